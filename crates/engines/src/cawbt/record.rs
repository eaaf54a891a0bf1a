//! Records, to which leaves lead, and the space that an operation has taken but not published.
//!
//! With the codec for byte strings an entry has the codec's record. A word entry has a record of
//! its own, as a leaf has room for pointers only:
//!
//! ```text
//!   0  key      8  value      16  check of both
//! ```

use medium::sync::Ordering;
use smallvec::SmallVec;

use super::CawbTree;
use super::layout::{NodeContent, NodeLine};
use crate::index::record::Record;
use crate::kit::prelude::*;
use crate::kit::write::written;

/// Words of the record of a word entry.
const WORDS: usize = 3;

fn check_of([key, value]: EntryWords) -> u64 {
    let mixed = (key ^ 0x35b9).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value;
    (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The offset of the record of an entry of byte strings.
pub(super) fn offset_in(words: EntryWords) -> u64 {
    words[1] & ((1 << 48) - 1)
}

/// The entry in the table that a leaf's pointer stands for.
pub(super) fn entry_at<M: Medium, C: Codec>(
    guard: &Guard<'_, M>,
    record: u64,
    key: &mut Vec<u8>,
) -> Result<EntryWords> {
    if C::TIES {
        key.clear();
        Record::at(guard, record)?.copy_key(guard, key)?;
        let key = C::key(key)?;
        return Ok([C::word(key), record | u64::from(C::hash(key)) << 48]);
    }
    let words = guard.words(record, WORDS)?;
    let entry = [words[0].load(guard), words[1].load(guard)];
    if words[2].load(guard) != check_of(entry) {
        return Err(Error::corrupt(record, "a record that fails its check"));
    }
    Ok(entry)
}

/// Gives back the record of a leaf's pointer that new readers do not find. Readers do not read the
/// records of words.
pub(super) fn retire<M: Medium, C: Codec>(guard: &Guard<'_, M>, record: u64) {
    if C::TIES {
        guard.retire(record);
    } else {
        guard.free(record);
    }
}

/// Nodes, records and IDs that nothing leads to yet, given back unless they are published.
pub(super) struct Fresh<'t, 'g, 'p, M: Medium, C: Codec> {
    tree: &'t CawbTree<M, C>,
    guard: &'g Guard<'p, M>,
    nodes: SmallVec<[u64; 2]>,
    records: SmallVec<[u64; 1]>,
    ids: SmallVec<[u32; 1]>,
}

impl<'t, 'g, 'p, M: Medium, C: Codec> Fresh<'t, 'g, 'p, M, C> {
    pub(super) fn new(tree: &'t CawbTree<M, C>, guard: &'g Guard<'p, M>) -> Self {
        Self {
            tree,
            guard,
            nodes: SmallVec::new(),
            records: SmallVec::new(),
            ids: SmallVec::new(),
        }
    }

    /// Writes and flushes the record of an entry: the entry's words, and the record's offset.
    pub(super) fn record(
        &mut self,
        key: C::Key<'_>,
        value: C::Value<'_>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<(EntryWords, u64)> {
        if let Some(words) = written::<C>(key, condition) {
            return Ok((words, offset_in(words)));
        }
        let words = C::encode(self.guard, key, value)?;
        self.record_of(words)
    }

    /// Does the same as [`Fresh::record`], for an entry that is encoded.
    pub(super) fn record_of(&mut self, words: EntryWords) -> Result<(EntryWords, u64)> {
        if C::TIES {
            self.records.push(offset_in(words));
            return Ok((words, offset_in(words)));
        }
        let record = self.guard.allocate(8 * WORDS)?;
        self.records.push(record);
        let cells = self.guard.words(record, WORDS)?;
        let content = [words[0], words[1], check_of(words)];
        cells
            .iter()
            .zip(content)
            .for_each(|(cell, word)| cell.store(self.guard, word));
        self.guard.flush_words(cells);
        Ok((words, record))
    }

    /// An ID for an entry.
    pub(super) fn id(&mut self, words: EntryWords) -> Result<u32> {
        let id = self.tree.ids.claim()?;
        self.ids.push(id);
        self.tree.ids.set(id, words)?;
        Ok(id)
    }

    /// Space for a node.
    pub(super) fn allocate_node(&mut self) -> Result<u64> {
        let offset = self.guard.allocate_node(size_of::<NodeLine>())?;
        self.nodes.push(offset);
        Ok(offset)
    }

    /// Writes and flushes a node that nothing leads to.
    pub(super) fn write_node(&self, offset: u64, content: &NodeContent, parent: u64) -> Result<()> {
        let node = content.sealed(offset, parent);
        self.guard
            .node::<NodeLine>(offset)?
            .line
            .init(self.guard, &node.0);
        Ok(())
    }

    /// Writes and flushes a new node, and returns its offset.
    pub(super) fn node(&mut self, content: &NodeContent, parent: u64) -> Result<u64> {
        let offset = self.allocate_node()?;
        self.write_node(offset, content, parent)?;
        Ok(offset)
    }

    /// Keeps everything, because the tree reaches it now.
    pub(super) fn published(&mut self) {
        self.nodes.clear();
        self.records.clear();
        self.ids.clear();
    }
}

impl<M: Medium, C: Codec> Drop for Fresh<'_, '_, '_, M, C> {
    fn drop(&mut self) {
        // Parts of a change that was cut off may lead here, so nothing is given back.
        if self.tree.is_cut_off.load(Ordering::Relaxed) {
            return;
        }
        self.nodes
            .drain(..)
            .for_each(|node| self.guard.free_node(node));
        self.records
            .drain(..)
            .for_each(|record| self.guard.free(record));
        self.ids
            .drain(..)
            .for_each(|id| self.tree.ids.give_back(id));
    }
}
