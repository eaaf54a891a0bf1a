//! Room for entries: recycling, split and merge, each with one line store.

use std::sync::atomic::Ordering;

use medium::Medium;
use pool::{Guard, Result};

use super::RnTree;
use super::insert::write_entry;
use super::layout::{Leaf, LeafRecord, Slots, low_bits};
use crate::index::Codec;
use crate::inner::Separator;

impl<M: Medium, C: Codec, const N: usize> RnTree<M, C, N> {
    /// Makes room for `key` in a leaf without a free entry. Returns the leaf to go on with.
    pub(super) fn make_room(&self, guard: &Guard<'_, M>, index: u32, key: C::Key<'_>) -> Result<u32> {
        let heap = self.inner.heap();
        let record = self.leaves.get(index);
        let lock = record.lock();
        if LeafRecord::is_dead(record.version()) {
            drop(lock);
            return self.inner.descend(key);
        }
        if let Some(next) = Self::beyond(&heap, record, key)? {
            return Ok(next);
        }
        if record.claimed.load(Ordering::Relaxed) != low_bits(N) {
            return Ok(index);
        }
        if record.dead.load(Ordering::Relaxed) != 0 {
            record.recycle();
        } else if record.slots().count() * 2 >= N {
            self.split(guard, record, key)?;
        } else {
            // Most entries are claimed by writers on their way: they will publish or give them back.
            drop(lock);
            std::thread::yield_now();
        }
        Ok(index)
    }

    /// Moves the upper half of a full leaf into a new one. Under the leaf's lock, which is kept until the parent knows
    /// the new leaf.
    fn split(&self, guard: &Guard<'_, M>, record: &LeafRecord, key: C::Key<'_>) -> Result<()> {
        let leaf = Self::leaf(guard, record)?;
        let slots = record.slots();
        let keep = self.split_position(guard, leaf, record, &slots, key)?;
        let offset = guard.allocate_node(size_of::<Leaf<N>>())?;
        let right = match self.fill_right(guard, leaf, &slots, keep, offset) {
            Ok(right) => right,
            Err(error) => {
                guard.free_node(offset);
                return Err(error);
            }
        };
        let separate = || -> Result<(Separator, u32)> {
            Ok((self.separator_after(guard, leaf, &slots, keep)?, self.leaves.allocate()?))
        };
        let (separator, new) = match separate() {
            Ok(separated) => separated,
            Err(error) => {
                guard.free_node(offset);
                return Err(error);
            }
        };
        // PERSIST: the new leaf is ordered before; lost, the old leaf still has all entries.
        let stored = match leaf.slots.publish(guard, &slots.0, &slots.with(keep, offset).0) {
            Ok(stored) => Slots(stored),
            Err(error) => {
                guard.free_node(offset);
                self.leaves.free(new);
                self.inner.retire_separator(separator);
                return Err(error.into());
            }
        };
        let lsn = guard.fence();
        let high = record.high.load(Ordering::Relaxed);
        let new_record = self.leaves.get(new);
        new_record.reset(offset, &right, (record.next(), high), lsn);
        for position in 0..right.count() {
            new_record.set_fingerprint(position, record.fingerprint(slots.entry(keep + position)));
        }
        record.stamp(lsn);
        let moved = slots.bitmap() & !stored.bitmap();
        record.change(&stored, || {
            // Next before high, high before live: whoever misses a moved entry is sent on, and finds where to.
            record.set_next(new);
            let bound = if C::TIES { separator.tail } else { separator.word };
            // ORDER: pairs with the acquire in `beyond`.
            record.high.store(bound, Ordering::Release);
            record.live.store(stored.bitmap(), Ordering::Release);
        });
        record.dead.store(record.dead.load(Ordering::Relaxed) | moved, Ordering::Relaxed);
        let mut bytes = Vec::new();
        crate::inner::InnerTree::<C>::copy_separator(&self.inner.heap(), separator, &mut bytes)?;
        // Without memory for inner nodes the new leaf is still found, by way of the old one.
        let _ = self.inner.structure().insert(C::key(&bytes)?, separator, new);
        Ok(())
    }

    /// How many entries stay: half, or nearly all where keys arrive in ascending order at the tree's end.
    fn split_position(
        &self,
        guard: &Guard<'_, M>,
        leaf: &Leaf<N>,
        record: &LeafRecord,
        slots: &Slots,
        key: C::Key<'_>,
    ) -> Result<usize> {
        let count = slots.count();
        if record.next() == 0 {
            let last = self.entry_words(guard, leaf, slots, count - 1);
            let above = C::word(key) > last[0]
                || C::TIES && C::word(key) == last[0] && C::compare_tie(guard, key, last)?.is_gt();
            if above {
                return Ok(count - 1);
            }
        }
        Ok(count / 2)
    }

    /// Copies the entries from position `keep` on into a new leaf, which is ordered before what comes after.
    fn fill_right(
        &self,
        guard: &Guard<'_, M>,
        leaf: &Leaf<N>,
        slots: &Slots,
        keep: usize,
        offset: u64,
    ) -> Result<Slots> {
        let right = guard.node::<Leaf<N>>(offset)?;
        let moved = slots.count() - keep;
        for (position, cells) in right.entries[..moved].iter().enumerate() {
            let words = self.entry_words(guard, leaf, slots, keep + position);
            cells[0].store(guard, words[0]);
            cells[1].store(guard, words[1]);
        }
        let stored = right.slots.init(guard, &Slots::identity(moved, slots.next()).0);
        right.entries[..moved].chunks(4).for_each(|line| guard.flush_words(line.as_flattened()));
        guard.fence();
        Ok(Slots(stored))
    }

    /// The words of the entry at `position`.
    pub(super) fn entry_words(
        &self,
        guard: &Guard<'_, M>,
        leaf: &Leaf<N>,
        slots: &Slots,
        position: usize,
    ) -> [u64; 2] {
        let cells = &leaf.entries[slots.entry(position).min(N - 1)];
        [cells[0].load(guard), cells[1].load(guard)]
    }

    /// A separator between the entries before and at position `keep`.
    fn separator_after(
        &self,
        guard: &Guard<'_, M>,
        leaf: &Leaf<N>,
        slots: &Slots,
        keep: usize,
    ) -> Result<Separator> {
        let left = self.entry_words(guard, leaf, slots, keep - 1);
        let right = self.entry_words(guard, leaf, slots, keep);
        self.separator_between(guard, left, right)
    }

    /// The shortest separator above the key of one entry and not above that of the next.
    pub(super) fn separator_between(
        &self,
        guard: &Guard<'_, M>,
        left: [u64; 2],
        right: [u64; 2],
    ) -> Result<Separator> {
        if !C::TIES {
            return Ok(Separator { word: right[0], tail: 0 });
        }
        let (mut low, mut high) = (Vec::new(), Vec::new());
        C::copy_key(guard, left, &mut low)?;
        C::copy_key(guard, right, &mut high)?;
        let common = low.iter().zip(&high).take_while(|(low, high)| low == high).count();
        high.truncate(common + 1);
        self.inner.separator(C::key(&high)?, &high)
    }

    /// A separator that is the key of an entry, where nothing is known of what lies before.
    pub(super) fn separator_from(&self, guard: &Guard<'_, M>, words: [u64; 2]) -> Result<Separator> {
        let mut bytes = Vec::new();
        C::copy_key(guard, words, &mut bytes)?;
        self.inner.separator(C::key(&bytes)?, &bytes)
    }

    /// Merges the leaf that covers `key` with a neighbour, if one of them is empty or both are small. Gives up where
    /// anybody is in the way: the next removal tries again.
    pub(super) fn merge(&self, guard: &Guard<'_, M>, key: C::Key<'_>) -> Result<()> {
        let Some(mut structure) = self.inner.try_structure() else { return Ok(()) };
        let Some((left_index, right_index)) = structure.neighbours(key)? else { return Ok(()) };
        let (left, right) = (self.leaves.get(left_index), self.leaves.get(right_index));
        // Left to right, and only if free: a split waits for the structure with its leaf locked.
        let Some(left_lock) = left.try_lock() else { return Ok(()) };
        let Some(right_lock) = right.try_lock() else { return Ok(()) };
        if left.next() != right_index || LeafRecord::is_dead(left.version() | right.version()) {
            return Ok(());
        }
        let counts = (left.slots().count(), right.slots().count());
        let worth_it = counts.0 + counts.1 <= N / 2 || counts.0 == 0 || counts.1 == 0;
        if !worth_it || counts.0 + counts.1 > N || !self.absorb(guard, left, right)? {
            return Ok(());
        }
        let separator = structure.remove(key, right_index)?;
        drop((left_lock, right_lock));
        if let Some(separator) = separator {
            self.inner.retire_separator(separator);
        }
        guard.retire_node(right.offset());
        self.leaves.retire(guard.pin(), right_index);
        Ok(())
    }

    /// Moves all entries of `right` into `left` and leaves `right` dead. Both are locked. `false` if there is no room.
    fn absorb(&self, guard: &Guard<'_, M>, left: &LeafRecord, right: &LeafRecord) -> Result<bool> {
        left.recycle();
        let (left_leaf, right_leaf) = (Self::leaf(guard, left)?, Self::leaf(guard, right)?);
        let (old, from) = (left.slots(), right.slots());
        let mut new = old.with(old.count(), from.next());
        let mut claimed = 0;
        for position in 0..from.count() {
            let Some(entry) = left.claim(N) else {
                left.release(claimed);
                return Ok(false);
            };
            claimed |= 1 << entry;
            new = new.inserted(new.count(), entry as u8);
            let words = self.entry_words(guard, right_leaf, &from, position);
            write_entry(guard, &left_leaf.entries[entry], words);
            left.set_fingerprint(entry, right.fingerprint(from.entry(position)));
        }
        // PERSIST: the copies before the slot line that lists them; lost, both leaves are as they were.
        guard.fence();
        // Who meets a dead leaf descends again, and finds what the left one publishes.
        right.set_dead(true);
        let stored = match left_leaf.slots.publish(guard, &old.0, &new.0) {
            Ok(stored) => Slots(stored),
            Err(error) => {
                right.set_dead(false);
                left.release(claimed);
                return Err(error.into());
            }
        };
        let lsn = guard.fence();
        left.stamp(lsn);
        left.change(&stored, || {
            left.live.store(stored.bitmap(), Ordering::Release);
            left.high.store(right.high.load(Ordering::Relaxed), Ordering::Release);
            left.set_next(right.next());
        });
        Ok(true)
    }
}
