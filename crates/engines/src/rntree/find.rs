//! Point reads: fingerprints, then the one entry that they point at.

use medium::sync::Ordering;
use medium::{Lsn, Medium, kernels};
use pool::Guard;

use super::RnTree;
use super::layout::{Leaf, LeafRecord};
use crate::Result;
use crate::index::{Codec, EntryWords, Observed};
use crate::kit::bits;
use crate::kit::chain::{GROUP, HeapGuard, InnerTree};

/// The result of a point read in a leaf.
pub(super) enum LeafFinding {
    /// The key, in this entry.
    Entry(usize, EntryWords),
    /// The leaf covers the key, and does not have it.
    Absent,
    /// The leaf does not cover the key any more: this next leaf does, or one behind it.
    Beyond(u32),
    /// The leaf was merged away: descend again.
    Dead,
}

/// The purpose of an optimistic read of a leaf.
pub(super) trait Purpose {
    /// Whether the caller needs the entry at once. Otherwise fingerprints are enough, and the entry
    /// is only prefetched.
    const CONFIRMS: bool;
    /// Whether an entry will be claimed and written.
    const CLAIMS: bool;
    /// Whether the key will have to be ranked among those of the leaf.
    const RANKS: bool;
}

/// To find a key, and perhaps to remove it.
pub(super) struct Find;

impl Purpose for Find {
    const CONFIRMS: bool = true;
    const CLAIMS: bool = false;
    const RANKS: bool = false;
}

/// The result of an unpinned read: the key's entry, if there is one, in a leaf that covered the key
/// at this version.
pub(super) struct Peeked {
    pub(super) index: u32,
    pub(super) version: u64,
    pub(super) words: Option<EntryWords>,
    /// The live entries that have the key's fingerprint.
    pub(super) candidates: u64,
    /// The LSN at which everything that was read is durable.
    pub(super) lsn: Lsn,
}

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// The leaf in the pool that a record stands for.
    #[inline(always)]
    pub(super) fn leaf<'g>(
        guard: &'g Guard<'_, M>,
        leaf_record: &LeafRecord<M>,
    ) -> Result<&'g Leaf> {
        Ok(guard.node::<Leaf>(leaf_record.offset())?)
    }

    /// Prefetches the record of a leaf, and with it the leaf's first line. It is not known yet
    /// which entry will be read, but its page is: the walk of the page table, which on 4 KiB pages
    /// takes longer than the cache miss, is done when the fingerprints name the entry. (Prefetching
    /// all lines cost more bandwidth than it saved time.)
    #[inline(always)]
    fn prefetch_leaf(&self, guard: &Guard<'_, M>, index: u32) {
        let leaf_record = self.leaves.get(index);
        leaf_record.prefetch();
        if let Ok(leaf) = guard.node::<Leaf>(self.offsets.get(index).load(Ordering::Relaxed)) {
            kernels::prefetch_read(&leaf.slots);
        }
    }

    /// Whether `key` belongs to the next leaf, and which that is.
    ///
    /// In the middle of a split the key may be live in this leaf as well. Readers may go either
    /// way: it is the same entry. A writer that goes to the next leaf, and has not read that the
    /// key is no longer in this leaf, must first see the end of the split's change, by
    /// [`LeafRecord::sequence`]. Otherwise a reader could find the old entry here after the write.
    #[inline(always)]
    pub(super) fn beyond(
        heap: &HeapGuard<'_>,
        leaf_record: &LeafRecord<M>,
        key: C::Key<'_>,
    ) -> Result<Option<u32>> {
        // The high key first: a split stores it after the next leaf, so a reader that is sent on
        // finds the next leaf. ORDER: acquire pairs with the release of the high key in `shorten`.
        // `extend` stores it first, but raises the version before and after: a reader that saw it
        // with old entries, or saw the old high key with the new next leaf, does not validate
        // (`is_still`); and the old next leaf is dead.
        let high = leaf_record.high.load(Ordering::Acquire);
        // ORDER: acquire pairs with the release in `set_next`: the next leaf's record is filled.
        let next = leaf_record.next();
        if next == 0 {
            return Ok(None);
        }
        // 0 is none, also beside a next leaf: a split of the last leaf may be half seen.
        let is_beyond = match C::TIES {
            false => high != 0 && C::word(key) >= high,
            true => high != 0 && InnerTree::<C>::compare_tail(heap, key, high)?.is_ge(),
        };
        Ok(is_beyond.then_some(next))
    }

    /// Searches a leaf for `key`, beside writers.
    ///
    /// The linearisation point is the load of `live`: an entry that is live then has the key's
    /// value then, and stays as it is until it is recycled, which raises the version.
    #[inline(always)]
    pub(super) fn look(
        &self,
        guard: &Guard<'_, M>,
        heap: &HeapGuard<'_>,
        leaf_record: &LeafRecord<M>,
        key: C::Key<'_>,
        hash: u16,
    ) -> Result<LeafFinding> {
        loop {
            let version = leaf_record.version();
            if LeafRecord::<M>::is_dead(version) {
                LeafRecord::<M>::wait();
                return Ok(LeafFinding::Dead);
            }
            // ORDER: pairs with the release store of `live`: the entries in it, and their
            // fingerprints, are visible.
            let live = leaf_record.live.load(Ordering::Acquire);
            let candidates = leaf_record.matches(hash as u8) & live;
            let seen = match self.look_among(guard, leaf_record, candidates, key, hash) {
                Ok(Some((entry, words))) => LeafFinding::Entry(entry, words),
                Ok(None) => match Self::beyond(heap, leaf_record, key) {
                    Ok(Some(next)) => LeafFinding::Beyond(next),
                    Ok(None) => LeafFinding::Absent,
                    Err(_) if !leaf_record.is_still(version) => continue,
                    Err(error) => return Err(error),
                },
                // An entry that seems damaged may have been recycled meanwhile.
                Err(_) if !leaf_record.is_still(version) => continue,
                Err(error) => return Err(error),
            };
            if leaf_record.is_still(version) {
                return Ok(seen);
            }
        }
    }

    /// The entry that has the key, among `candidates`: live entries that have its fingerprint.
    #[inline(always)]
    pub(super) fn look_among(
        &self,
        guard: &Guard<'_, M>,
        leaf_record: &LeafRecord<M>,
        candidates: u64,
        key: C::Key<'_>,
        hash: u16,
    ) -> Result<Option<(usize, EntryWords)>> {
        if candidates == 0 {
            return Ok(None);
        }
        let leaf = Self::leaf(guard, leaf_record)?;
        for entry in bits(candidates) {
            let Some(cells) = leaf.entries.get(entry) else {
                break;
            };
            let first = cells[0].load(guard);
            if first == C::word(key) {
                let words = [first, cells[1].load(guard)];
                // The two words may have been read at different moments, so only the second counts.
                let fits = |found: EntryWords| found[1] == words[1];
                if C::hash_of(words) == hash && C::is_key(guard, key, words, fits)? {
                    return Ok(Some((entry, words)));
                }
            }
        }
        Ok(None)
    }

    /// The leaf that the inner nodes lead to.
    #[inline(always)]
    pub(super) fn descend(&self, guard: &Guard<'_, M>, key: C::Key<'_>) -> Result<u32> {
        guard.interleave_read(&self.inner);
        self.inner.descend(key)
    }

    /// Searches for `key` from leaf `index` on, and follows splits and merges that happen
    /// meanwhile.
    #[inline(always)]
    pub(super) fn seek(
        &self,
        guard: &Guard<'_, M>,
        heap: &HeapGuard<'_>,
        mut index: u32,
        key: C::Key<'_>,
        hash: u16,
    ) -> Result<(u32, Option<(usize, EntryWords)>)> {
        loop {
            match self.look(guard, heap, self.leaves.get(index), key, hash)? {
                LeafFinding::Entry(entry, words) => return Ok((index, Some((entry, words)))),
                LeafFinding::Absent => return Ok((index, None)),
                LeafFinding::Beyond(next) => index = next,
                LeafFinding::Dead => index = self.descend(guard, key)?,
            }
        }
    }

    /// Calls `use_entry` with the entry of `key`. O(log n).
    #[inline(always)]
    pub(super) fn find<R>(
        &self,
        key: C::Key<'_>,
        use_entry: impl FnOnce(&Guard<'_, M>, EntryWords) -> Result<R>,
    ) -> Result<Observed<Option<R>>> {
        if !C::TIES {
            let guard = self.pool.peek();
            let peeked = self.peek::<Find>(&guard, key, C::hash(key))?;
            let lsn = guard.left_to_caller(peeked.lsn);
            let value = match peeked.words {
                Some(words) => Some(use_entry(&guard, words)?),
                None => None,
            };
            return Ok(Observed { value, lsn });
        }
        let guard = self.pool.pin();
        let heap = self.inner.heap();
        let index = self.descend(&guard, key)?;
        self.prefetch_leaf(&guard, index);
        let (index, seen) = self.seek(&guard, &heap, index, key, C::hash(key))?;
        let lsn = guard.left_to_caller(self.leaves.get(index).lsn());
        let value = match seen {
            Some((_, words)) => Some(use_entry(&guard, words)?),
            None => None,
        };
        Ok(Observed { value, lsn })
    }

    /// Searches for `key`, for codecs whose entries hold the whole key and value. Needs no pin: a
    /// leaf's version is taken while the leaf is certain to be the right one, and memory that is
    /// reused after that has another version. Without the fence of a pin the processor overlaps one
    /// operation with the next.
    #[inline(always)]
    pub(super) fn peek<P: Purpose>(
        &self,
        guard: &Guard<'_, M>,
        key: C::Key<'_>,
        hash: u16,
    ) -> Result<Peeked> {
        'descend: loop {
            guard.interleave_read(&self.inner);
            let (mut index, mut version) = self.inner.descend_touching(key, |leaf, _| {
                let leaf_record = self.leaves.peek(leaf);
                leaf_record.prefetch();
                if let Ok(leaf) =
                    guard.node::<Leaf>(self.offsets.peek(leaf).load(Ordering::Relaxed))
                {
                    let number = C::word(key);
                    Self::prefetch_for::<P>(guard, leaf_record, leaf, number);
                }
                leaf_record.version()
            })?;
            while !LeafRecord::<M>::is_dead(version) {
                let leaf_record = self.leaves.get(index);
                // ORDER: as in `look`.
                let live = leaf_record.live.load(Ordering::Acquire);
                let candidates = leaf_record.matches(hash as u8) & live;
                let seen = if P::CONFIRMS {
                    self.look_among(guard, leaf_record, candidates, key, hash)
                } else {
                    Self::leaf(guard, leaf_record)
                        .map(|leaf| prefetch_entry(leaf, candidates))
                        .map(|()| None)
                };
                let beyond = match seen {
                    Ok(None) => Self::beyond(&self.inner.heap(), leaf_record, key),
                    _ => Ok(None),
                };
                let lsn = leaf_record.lsn();
                let next_version = match &beyond {
                    Ok(Some(next)) => Some(self.leaves.get(*next).version()),
                    // An error counts only if the leaf is still as it was, which is checked next.
                    Ok(None) | Err(_) => None,
                };
                if !leaf_record.is_still(version) {
                    continue 'descend;
                }
                match (beyond?, next_version) {
                    // ORDER: pairs with the release at the end of `change`: a writer goes on only
                    // after that.
                    (Some(_), _) if !P::CONFIRMS && leaf_record.sequence().is_none() => {
                        LeafRecord::<M>::wait();
                    }
                    // It is still the next leaf, so its version was taken while it was the next
                    // leaf.
                    (Some(next), Some(next_version)) if leaf_record.next() == next => {
                        index = next;
                        version = next_version;
                    }
                    (None, _) => {
                        let words = seen?.map(|(_, words)| words);
                        return Ok(Peeked {
                            index,
                            version,
                            words,
                            candidates,
                            lsn,
                        });
                    }
                    _ => continue 'descend,
                }
            }
            LeafRecord::<M>::wait();
        }
    }

    /// Does the same as [`RnTree::find`] for many keys, whose cache misses overlap: all descend
    /// together, then all fingerprints arrive, then all entries. Returns the LSN at which
    /// everything that was read is durable.
    #[inline(always)]
    pub(super) fn find_many(
        &self,
        keys: &[C::Key<'_>],
        mut use_entry: impl FnMut(&Guard<'_, M>, usize, Option<EntryWords>) -> Result<()>,
    ) -> Result<Lsn> {
        let mut lsn = Lsn::DURABLE;
        let guard = self.pool.pin();
        let heap = self.inner.heap();
        for (group, keys) in keys.chunks(GROUP).enumerate() {
            let mut indices = [0; GROUP];
            let indices = &mut indices[..keys.len()];
            guard.interleave_read(&self.inner);
            self.inner.descend_many(keys, indices)?;
            indices
                .iter()
                .for_each(|index| self.leaves.get(*index).prefetch());
            for (key, index) in keys.iter().zip(indices.iter()) {
                let leaf_record = self.leaves.get(*index);
                let matches = leaf_record.matches(C::hash(*key) as u8)
                    & leaf_record.live.load(Ordering::Relaxed);
                if let Ok(leaf) = Self::leaf(&guard, leaf_record) {
                    prefetch_entry(leaf, matches);
                }
            }
            for (position, (key, index)) in keys.iter().zip(indices.iter()).enumerate() {
                let index = if *index == 0 {
                    self.descend(&guard, *key)?
                } else {
                    *index
                };
                let (index, seen) = self.seek(&guard, &heap, index, *key, C::hash(*key))?;
                lsn = lsn.max(guard.left_to_caller(self.leaves.get(index).lsn()));
                use_entry(
                    &guard,
                    group * GROUP + position,
                    seen.map(|(_, words)| words),
                )?;
            }
        }
        Ok(lsn)
    }
}

/// Prefetches the first of some entries, if there is one.
#[inline(always)]
fn prefetch_entry(leaf: &Leaf, entries: u64) {
    if let Some(cells) = leaf.entries.get(entries.trailing_zeros() as usize) {
        kernels::prefetch_read(cells);
    }
}
