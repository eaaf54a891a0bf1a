//! A node, and how its entries shift (FAST).

use engines::kit::paged::{checked, unchecked};
use engines::kit::prelude::*;
use medium::LINE_BYTES;

/// Words before the entries: one line.
const HEAD_WORDS: usize = 8;
/// The words of a head.
const LOW: usize = 0;
const LOW_TAIL: usize = 1;
const SIBLING: usize = 2;
const FIRST: usize = 3;
const LEVEL: usize = 4;
const ENTRIES_A_LINE: usize = LINE_BYTES / 16;
/// The value that counts as left of the first entry of a leaf: the offset of no record.
const NO_RECORD: u64 = 1;

/// A node in the pool.
#[derive(Clone, Copy)]
pub(super) struct FastFairNode<'g> {
    pub(super) offset: u64,
    /// 0 for leaves.
    pub(super) level: u64,
    /// Whether the tree's keys can tie.
    ties: bool,
    head: &'g [Word],
    pub(super) entries: &'g [[Word; 2]],
}

/// The lower bound of a node: the first word of the key, and in trees of records a record with the
/// key. The leftmost node has zeros.
pub(super) type Low = [u64; 2];

/// The content of a new node.
pub(super) struct NewNode<'c> {
    pub(super) level: u64,
    pub(super) low: Low,
    pub(super) sibling: u64,
    pub(super) first_child: u64,
    pub(super) entries: &'c [EntryWords],
}

impl<'g> FastFairNode<'g> {
    /// Bytes of a node with this many entries.
    pub(super) fn bytes(entries: usize) -> usize {
        (8 * HEAD_WORDS + 16 * entries).next_multiple_of(LINE_BYTES)
    }

    #[inline(always)]
    pub(super) fn at<M: Medium>(
        guard: &'g Guard<'_, M>,
        offset: u64,
        entries: usize,
        ties: bool,
    ) -> Result<Self> {
        let (head, entries) = guard
            .words(offset, HEAD_WORDS + 2 * entries)?
            .split_at(HEAD_WORDS);
        Ok(Self {
            offset,
            level: head[LEVEL].load(guard),
            ties,
            head,
            entries: entries.as_chunks().0,
        })
    }

    /// Writes and flushes a node that nothing leads to.
    pub(super) fn write<M: Medium>(&self, guard: &Guard<'_, M>, content: &NewNode<'_>) {
        let first = if content.level > 0 {
            checked(content.first_child)
        } else {
            u64::from(!content.entries.is_empty())
        };
        let [low, tail] = content.low;
        let head = [
            low,
            tail,
            checked(content.sibling),
            first,
            content.level,
            0,
            0,
            0,
        ];
        self.head
            .iter()
            .zip(head)
            .for_each(|(word, value)| word.store(guard, value));
        let entries = content
            .entries
            .iter()
            .copied()
            .chain(std::iter::repeat([0; 2]));
        for (entry, words) in self.entries.iter().zip(entries) {
            entry
                .iter()
                .zip(words)
                .for_each(|(word, value)| word.store(guard, value));
        }
        guard.flush_words(self.head);
        guard.flush_words(self.entries.as_flattened());
    }

    fn checked_at<M: Medium>(&self, guard: &Guard<'_, M>, word: usize) -> Result<u64> {
        let damaged = || Error::corrupt(self.offset, "a word that leads to a node fails its check");
        unchecked(self.head[word].load(guard)).ok_or_else(damaged)
    }

    /// The sibling to the right; 0 if there is none.
    #[inline(always)]
    pub(super) fn sibling<M: Medium>(&self, guard: &Guard<'_, M>) -> Result<u64> {
        self.checked_at(guard, SIBLING)
    }

    /// Leads to another sibling; durable at the LSN.
    pub(super) fn publish_sibling<M: Medium>(&self, guard: &Guard<'_, M>, sibling: u64) -> Lsn {
        self.head[SIBLING].publish(guard, checked(sibling));
        guard.fence()
    }

    #[inline(always)]
    pub(super) fn low<M: Medium>(&self, guard: &Guard<'_, M>) -> Low {
        [self.head[LOW].load(guard), self.head[LOW_TAIL].load(guard)]
    }

    /// The child at a position.
    #[inline(always)]
    pub(super) fn child<M: Medium>(&self, guard: &Guard<'_, M>, position: usize) -> Result<u64> {
        let Some(before) = position.checked_sub(1) else {
            return self.checked_at(guard, FIRST);
        };
        let damaged = || Error::corrupt(self.offset, "a word that leads to a node fails its check");
        let word = self
            .entries
            .get(before)
            .map_or(0, |entry| entry[1].load(guard));
        unchecked(word).ok_or_else(damaged)
    }

    #[inline(always)]
    pub(super) fn words<M: Medium>(&self, guard: &Guard<'_, M>, index: usize) -> EntryWords {
        self.entries[index].each_ref().map(|word| word.load(guard))
    }

    /// Whether equal keys, and not equal values, mark a dead entry.
    #[inline(always)]
    fn is_by_key(&self) -> bool {
        !self.ties && self.level == 0
    }

    /// How many entries are in use: those before the first one without a value, or, in trees of
    /// words, without a key. Only the first entry of a leaf can have the key 0: its head says
    /// whether there is one.
    #[inline(always)]
    pub(super) fn used<M: Medium>(&self, guard: &Guard<'_, M>) -> usize {
        let capacity = self.entries.len();
        if self.ties {
            return self
                .entries
                .iter()
                .position(|entry| entry[1].load(guard) == 0)
                .unwrap_or(capacity);
        }
        let unused = guard
            .medium()
            .compare_entries(Word::pairs(self.entries), 0)
            .1;
        match self.level {
            0 if self.head[FIRST].load(guard) == 0 => 0,
            0 => ((unused & !1).trailing_zeros() as usize).min(capacity),
            _ => (unused.trailing_zeros() as usize).min(capacity),
        }
    }

    /// The value left of an entry.
    #[inline(always)]
    fn left_of<M: Medium>(&self, guard: &Guard<'_, M>, index: usize) -> u64 {
        match index.checked_sub(1) {
            Some(before) => self.entries[before][1].load(guard),
            None if self.level > 0 => self.head[FIRST].load(guard),
            None => NO_RECORD,
        }
    }

    /// Whether an entry in use is dead: it is being shifted, which shows in the one beside it.
    #[inline(always)]
    pub(super) fn is_dead<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        index: usize,
        used: usize,
    ) -> bool {
        if self.is_by_key() {
            return index + 1 < used
                && self.words(guard, index)[0] == self.words(guard, index + 1)[0];
        }
        self.words(guard, index)[1] == self.left_of(guard, index)
    }

    /// The word of an entry whose 0 says that it is not in use.
    #[inline(always)]
    fn end_word(&self, index: usize) -> &'g Word {
        &self.entries[index][usize::from(self.ties)]
    }

    /// Makes sure that an entry behind those in use says that it is not.
    #[inline(always)]
    fn end_at<M: Medium>(&self, guard: &Guard<'_, M>, index: usize) {
        if index < self.entries.len() && self.end_word(index).load(guard) != 0 {
            self.end_word(index).publish(guard, 0);
            // PERSIST: the end is ordered before the entries before it are in use; if this is lost,
            // the old content there would be in use as well.
            guard.fence();
        }
    }

    /// Writes an entry that is not in use until the last store.
    #[inline(always)]
    fn store_unused<M: Medium>(&self, guard: &Guard<'_, M>, index: usize, words: EntryWords) {
        let other = usize::from(!self.ties);
        let end = usize::from(self.ties);
        self.entries[index][other].store(guard, words[other]);
        self.entries[index][end].store(guard, words[end]);
    }

    /// Says in the head of a leaf of words whether there is a first entry; durable at the LSN.
    fn publish_first<M: Medium>(&self, guard: &Guard<'_, M>, is_there: bool) -> Lsn {
        self.head[FIRST].publish(guard, u64::from(is_there));
        guard.fence()
    }

    /// Adds an entry at a position; durable at the LSN. Its record is ordered before.
    #[inline]
    pub(super) fn insert<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        used: usize,
        position: usize,
        new: EntryWords,
    ) -> Lsn {
        self.end_at(guard, used + 1);
        for index in (position..used).rev() {
            let [key, value] = &self.entries[index + 1];
            let moved = self.words(guard, index);
            if index + 1 == used {
                self.store_unused(guard, used, moved);
            } else {
                value.store(guard, moved[1]);
                key.store(guard, moved[0]);
            }
            if (index + 1) % ENTRIES_A_LINE == 0 {
                guard.flush(key);
                // PERSIST: a line is ordered before the entry that it has taken over changes in the
                // line before it; if this is lost, that entry is nowhere.
                guard.fence();
            }
        }
        let [key, value] = &self.entries[position];
        if self.is_by_key() {
            // The entry has the next one's key until the last store.
            value.store(guard, new[1]);
            key.publish(guard, new[0]);
            let lsn = guard.fence();
            // PERSIST: the first entry is ordered before the head says that there is one; if this
            // is lost, there is none.
            return if used == 0 {
                self.publish_first(guard, true)
            } else {
                lsn
            };
        }
        if position < used || !self.ties {
            // The entry has the value of the one before until the last store.
            value.store(guard, self.left_of(guard, position));
        }
        key.store(guard, new[0]);
        value.publish(guard, new[1]);
        guard.fence()
    }

    /// Removes the entry at a position, or a dead one; durable at the LSN.
    #[inline]
    pub(super) fn remove<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        used: usize,
        position: usize,
    ) -> Lsn {
        if self.is_by_key() && used == 1 {
            return self.publish_first(guard, false);
        }
        if !self.is_by_key() {
            self.entries[position][1].store(guard, self.left_of(guard, position));
        }
        for index in position + 1..used {
            let [key, value] = &self.entries[index - 1];
            let moved = self.words(guard, index);
            key.store(guard, moved[0]);
            value.store(guard, moved[1]);
            if index % ENTRIES_A_LINE == 0 {
                guard.flush(key);
                // PERSIST: a line is ordered before the entry that it has taken over changes in the
                // line behind it; if this is lost, that entry is nowhere.
                guard.fence();
            }
        }
        // PERSIST: lines before it are ordered before; if this is lost, the last entry equals the
        // one before it, and is dead.
        self.end_word(used - 1).publish(guard, 0);
        guard.fence()
    }

    /// Removes the entries from `kept` on, which the sibling has as well: flushes them, for they do
    /// not count anyway.
    pub(super) fn truncate<M: Medium>(&self, guard: &Guard<'_, M>, used: usize, kept: usize) {
        if kept == 0 && self.is_by_key() {
            self.publish_first(guard, false);
        }
        (kept..used).for_each(|index| self.end_word(index).store(guard, 0));
        guard.flush_words(self.entries[kept..used].as_flattened());
    }

    /// Adds entries behind those in use, which count once the sibling that has them as well is
    /// gone.
    pub(super) fn append<M: Medium>(&self, guard: &Guard<'_, M>, used: usize, new: &[EntryWords]) {
        let end = used + new.len();
        self.end_at(guard, end);
        for (index, words) in (used..).zip(new) {
            self.store_unused(guard, index, *words);
        }
        guard.flush_words(self.entries[used..end].as_flattened());
        // PERSIST: the entries are ordered before the parent no longer leads to the sibling; if
        // this is lost, they would be nowhere.
        guard.fence();
        if used == 0 && !new.is_empty() && self.is_by_key() {
            self.publish_first(guard, true);
        }
    }
}
