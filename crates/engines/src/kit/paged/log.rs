//! The anchor of a tree, and its redo log: how several words change at once.
//!
//! ```text
//! anchor, 64 + 16 n bytes
//!   0  root     offset of the root, in its lowest six bits the levels of inner nodes; 16 bits that tell damage
//!   8  commit   0, or how many words the log has (bits 0 to 7) and the CRC-32C of them (bits 32 to 63)
//!  64  log      n times: the offset of a word, its new value; n is the format's (24: the heads of two nodes, and the root)
//! ```
//!
//! 1. The words are written to the log, with all new nodes that they lead to; a fence.
//! 2. The commit record is published; a fence. From here on the change happens, whatever crashes.
//! 3. The words are written in their places; a fence.
//! 4. The commit record is cleared; a fence. Only then does a writer use the log, or change the
//!    words, again.
//!
//! Recovery repeats 3 and 4 if there is a commit record. On a volatile medium there is no recovery,
//! and 1 and 2 are left out.

use crate::{Error, Result};
use medium::{LINE_BYTES, Lsn, Medium, Word};
use pool::Guard;
use smallvec::SmallVec;

use super::{HEAD_WORDS_MAX, PagedNode};

/// The most words that change at once, if heads tell which entries live: the heads of two nodes,
/// and the root.
pub const HEAD_WRITES_MAX: usize = 24;
const _: () = assert!(2 * HEAD_WORDS_MAX < HEAD_WRITES_MAX);

/// Where a tree begins.
pub(super) struct Anchor<'g> {
    pub(super) root: &'g Word,
    commit: &'g Word,
    log: &'g [[Word; 2]],
}

impl<'g> Anchor<'g> {
    /// Bytes of an anchor whose log has room for `writes_max` words.
    pub(super) const fn bytes(writes_max: usize) -> usize {
        LINE_BYTES + 16 * writes_max
    }

    #[inline(always)]
    pub(super) fn at<M: Medium>(
        guard: &'g Guard<'_, M>,
        offset: u64,
        writes_max: usize,
    ) -> Result<Self> {
        let (line, log) = guard
            .words(offset, Self::bytes(writes_max) / 8)?
            .split_at(LINE_BYTES / 8);
        Ok(Self {
            root: &line[0],
            commit: &line[1],
            log: log.as_chunks().0,
        })
    }

    /// Gives the anchor of a new tree its first value, and flushes it.
    pub(super) fn start<M: Medium>(&self, guard: &Guard<'_, M>, root: u64) {
        self.root.store(guard, root);
        self.commit.store(guard, 0);
        guard.flush(self.root);
    }

    /// Whether a change is to be finished. If so, some of its words may be written and others not.
    pub(super) fn is_changing<M: Medium>(&self, guard: &Guard<'_, M>) -> bool {
        self.commit.load(guard) != 0
    }
}

/// Words that are to change at once: their offsets and new values.
#[derive(Default)]
pub struct Redo(SmallVec<[[u64; 2]; HEAD_WRITES_MAX]>);

impl Redo {
    /// Adds a word and its new value.
    pub fn set<M: Medium>(&mut self, guard: &Guard<'_, M>, word: &Word, value: u64) {
        if word.load(guard) != value {
            self.0.push([guard.offset_of(word), value]);
        }
    }

    /// Adds the new head of a node, without the link.
    pub fn set_head<M: Medium>(
        &mut self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        head: [u64; HEAD_WORDS_MAX],
    ) {
        let words = &node.head[..node.head.len() - 1];
        words
            .iter()
            .zip(head)
            .for_each(|(word, value)| self.set(guard, word, value));
    }

    fn commit_word(&self) -> u64 {
        let bytes = self
            .0
            .iter()
            .flatten()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<_>>();
        self.0.len() as u64 | u64::from(crc32c::crc32c(&bytes)) << 32
    }

    /// Changes the words, all or none, after everything that was flushed before. A single word
    /// needs no log.
    pub(super) fn commit<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        anchor: &Anchor<'_>,
    ) -> Result<Lsn> {
        if let [[offset, value]] = self.0[..] {
            let word = guard.node::<Word>(offset)?;
            // PERSIST: the nodes or records that the word leads to are ordered before it; if this
            // is lost, nothing happened.
            guard.fence();
            word.publish(guard, value);
            return Ok(guard.fence());
        }
        if guard.is_volatile() {
            return self.write(guard, anchor);
        }
        for (entry, [offset, value]) in anchor.log.iter().zip(&self.0) {
            entry[0].store(guard, *offset);
            entry[1].store(guard, *value);
        }
        guard.flush_words(anchor.log[..self.0.len()].as_flattened());
        // PERSIST: the log, and the nodes that its words lead to, are ordered before the commit
        // record; if this is lost, nothing happened.
        guard.fence();
        anchor.commit.publish(guard, self.commit_word());
        // PERSIST: the commit record is ordered before the words; if this is lost, nothing
        // happened.
        guard.fence();
        self.write(guard, anchor)
    }

    /// Writes the words in their places, then clears the commit record.
    fn write<M: Medium>(&self, guard: &Guard<'_, M>, anchor: &Anchor<'_>) -> Result<Lsn> {
        let line = |write: &[u64; 2]| write[0] / LINE_BYTES as u64;
        for writes in self.0.chunk_by(|one, next| line(one) == line(next)) {
            for [offset, value] in writes {
                guard.node::<Word>(*offset)?.store(guard, *value);
            }
            guard.flush(guard.node::<Word>(writes[0][0])?);
        }
        // PERSIST: the words are ordered before the log is cleared; if this is lost, recovery
        // writes them again.
        guard.fence();
        anchor.commit.publish(guard, 0);
        // PERSIST: ordered before the log, or one of these words, changes again.
        Ok(guard.fence())
    }

    /// Finishes a change that a crash cut off.
    pub(super) fn recover<M: Medium>(guard: &Guard<'_, M>, anchor: &Anchor<'_>) -> Result<()> {
        let commit = anchor.commit.load(guard);
        if commit == 0 {
            return Ok(());
        }
        let entries = anchor.log.iter().take((commit & 0xff) as usize);
        let redo = Self(
            entries
                .map(|entry| [entry[0].load(guard), entry[1].load(guard)])
                .collect(),
        );
        if redo.commit_word() != commit {
            return Err(Error::corrupt(
                guard.offset_of(anchor.commit),
                "the redo log fails its check",
            ));
        }
        // This does not wait: as long as it is not durable, the next recovery does the same again.
        redo.write(guard, anchor).map(drop)
    }
}
