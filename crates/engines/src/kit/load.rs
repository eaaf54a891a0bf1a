//! Bulk loads: a sorted source, cut into leaves.

use std::marker::PhantomData;

use medium::Medium;
use pool::Guard;

use crate::index::{Codec, EntryWords, NextEntry};
use crate::{ErrorKind, Result};

/// After this many bytes of keys and values a load waits if the disk is far behind.
const PACE_BYTES: usize = 1 << 20;

/// The source of a bulk load. The order of its keys is checked.
pub struct Source<'s> {
    next: &'s mut NextEntry<'s>,
    last: Vec<u8>,
    entries: u64,
    is_over: bool,
}

impl<'s> Source<'s> {
    /// The entries that `next` returns.
    pub fn new(next: &'s mut NextEntry<'s>) -> Self {
        Self {
            next,
            last: Vec::new(),
            entries: 0,
            is_over: false,
        }
    }

    /// Gets the next entry; returns whether there was one. After the last one `next` is not called
    /// again.
    ///
    /// # Errors
    /// [`ErrorKind::NotSorted`] if the key is not above the one before it.
    pub fn next_into(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        if self.is_over || !(self.next)(key, value)? {
            self.is_over = true;
            return Ok(false);
        }
        if self.entries > 0 && *key <= self.last {
            return Err(ErrorKind::NotSorted {
                index: self.entries,
            }
            .into());
        }
        self.last.clone_from(key);
        self.entries += 1;
        Ok(true)
    }

    /// The number of entries that the source gave so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }
}

/// The entries of a bulk load, encoded one by one. Unless [`EncodedEntries::published`] is called,
/// all records that were written are given back when this is dropped.
pub struct EncodedEntries<'g, 'p, 's, M: Medium, C: Codec> {
    guard: &'g Guard<'p, M>,
    source: Source<'s>,
    key: Vec<u8>,
    value: Vec<u8>,
    bytes: usize,
    /// The entries that lead to records.
    written: Vec<EntryWords>,
    codec: PhantomData<fn() -> C>,
}

impl<'g, 'p, 's, M: Medium, C: Codec> EncodedEntries<'g, 'p, 's, M, C> {
    /// The entries that `next` returns.
    pub fn new(guard: &'g Guard<'p, M>, next: &'s mut NextEntry<'s>) -> Self {
        let key = Vec::new();
        let value = Vec::new();
        let written = Vec::new();
        Self {
            guard,
            source: Source::new(next),
            key,
            value,
            bytes: 0,
            written,
            codec: PhantomData,
        }
    }

    /// The next entry, its record flushed but not fenced; `None` at the end. The caller holds no
    /// lock: from time to time this orders all writes so far, and waits while the disk is far
    /// behind.
    ///
    /// # Errors
    /// The same as those of [`Source::next_into`].
    pub fn next_entry(&mut self) -> Result<Option<EntryWords>> {
        if self.bytes > PACE_BYTES {
            self.guard.keep_pace()?;
            self.bytes = 0;
        }
        if !self.source.next_into(&mut self.key, &mut self.value)? {
            return Ok(None);
        }
        let words = C::encode(self.guard, C::key(&self.key)?, C::value(&self.value)?)?;
        if C::TIES {
            self.written.push(words);
        }
        self.bytes += self.key.len() + self.value.len();
        Ok(Some(words))
    }

    /// Cuts all entries into leaves, and calls `write` with the offset of each leaf, that of the
    /// next one (0 after the last) and its entries. The first leaf, which is empty if the source
    /// is, lies at `first`. The others lie where `allocate` says.
    pub fn for_each_leaf(
        &mut self,
        per_leaf: usize,
        first: u64,
        mut allocate: impl FnMut() -> Result<u64>,
        mut write: impl FnMut(u64, u64, Vec<EntryWords>) -> Result<()>,
    ) -> Result<()> {
        let mut offset = first;
        let mut entries = self.next_entries(per_leaf)?;
        loop {
            let behind = self.next_entries(per_leaf)?;
            let next = if behind.is_empty() { 0 } else { allocate()? };
            write(offset, next, std::mem::replace(&mut entries, behind))?;
            if next == 0 {
                return Ok(());
            }
            offset = next;
        }
    }

    /// The next entries, `count` of them unless the source ends before.
    fn next_entries(&mut self, count: usize) -> Result<Vec<EntryWords>> {
        let mut entries = Vec::new();
        while entries.len() < count {
            match self.next_entry()? {
                Some(words) => entries.push(words),
                None => break,
            }
        }
        Ok(entries)
    }

    /// The key of the entry that was returned last.
    pub fn key(&self) -> Result<C::Key<'_>> {
        C::key(&self.key)
    }

    /// How many entries were returned.
    pub fn entries(&self) -> u64 {
        self.source.entries
    }

    /// Keeps the records, because the tree reaches the entries now. Returns the number of entries.
    pub fn published(mut self) -> u64 {
        self.written.clear();
        self.source.entries
    }
}

impl<M: Medium, C: Codec> Drop for EncodedEntries<'_, '_, '_, M, C> {
    fn drop(&mut self) {
        self.written
            .drain(..)
            .for_each(|words| C::discard(self.guard, words));
    }
}

/// The entries of a leaf that is filled to the part `fill` of its `capacity`: at least half of it,
/// and at least one.
pub fn entries_per_leaf(capacity: usize, fill: f64) -> usize {
    ((capacity as f64 * fill.clamp(0.5, 1.0)).round() as usize).clamp(1, capacity)
}
