//! Room for entries: recycling, split and merge, each with one line store.

use medium::sync::{self, Ordering};
use medium::{Lsn, Medium};
use pool::Guard;

use super::RnTree;
use super::insert::write_entry;
use super::layout::{EntrySum, Leaf, LeafRecord, Slots, low_bits};
use super::order::Scale;
use crate::Result;
use crate::index::{Codec, EntryWords};
use crate::kit::chain::{InnerTree, Separator, Structure};
use crate::kit::gather::Gathered;
use crate::kit::shared_prefix::count_shared;

/// A full leaf shares entries with a right neighbour that is at most this full; with a fuller one,
/// both become three.
const SHARE_NUMERATOR: usize = 3;
const SHARE_DENOMINATOR: usize = 4;

/// Why the inner nodes can be read again after a leaf was published.
pub(super) const SEPARATORS_ARE_IN_MEMORY: &str = "separators are in the memory of this process";

/// A leaf that nothing leads to yet.
#[derive(Clone, Copy)]
pub(super) struct NewLeaf {
    offset: u64,
    pub(super) index: u32,
    pub(super) separator: Separator,
}

/// The leaf behind a new one.
#[derive(Clone, Copy)]
pub(super) struct LeafBehind {
    pub(super) offset: u64,
    pub(super) index: u32,
    /// The upper bound of the new leaf.
    pub(super) bound: u64,
}

/// Leaves that nothing leads to yet, and the records that were copied for them.
pub(super) struct Built<'g, 'p, M: Medium, C: Codec> {
    pub(super) leaves: Vec<NewLeaf>,
    pub(super) records: Gathered<'g, 'p, M, C>,
}

/// An entry on its way to a new leaf.
#[derive(Clone, Copy)]
pub(super) struct MovedEntry {
    words: EntryWords,
    fingerprint: u8,
}

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// Makes room for `key` in a leaf without a free entry, unless that has changed since it had
    /// `version`. Returns the leaf to go on with, as long as this thread stays pinned; `None` to
    /// descend again.
    #[cold]
    pub(super) fn make_room(
        &self,
        index: u32,
        version: u64,
        key: C::Key<'_>,
    ) -> Result<Option<u32>> {
        let guard = &self.pool.pin();
        let leaf_record = self.leaves.get(index);
        // The version is unchanged under the pin, so the leaf cannot be retired before this thread
        // is done.
        if !leaf_record.is_still(version) {
            return Ok(None);
        }
        let lock = leaf_record.lock();
        if LeafRecord::<M>::is_dead(leaf_record.version()) {
            drop(lock);
            LeafRecord::<M>::wait();
            return Ok(None);
        }
        if let Some(next) = Self::beyond(&self.inner.heap(), leaf_record, key)? {
            return Ok(Some(next));
        }
        if leaf_record.claimed.load(Ordering::Relaxed) != low_bits(self.capacity) {
            return Ok(Some(index));
        }
        if leaf_record.dead.load(Ordering::Relaxed) != 0 {
            leaf_record.recycle();
        } else if leaf_record.slots().count() * 2 >= self.capacity {
            // Entries that move get a new check, which would hide damage from then on.
            self.verify_check(guard, leaf_record)?;
            if !self.split_with_neighbour(guard, leaf_record)? {
                self.split(guard, leaf_record, key)?;
            }
        } else {
            // Most entries are claimed by writers under way, which will publish them or give them
            // back.
            drop(lock);
            sync::yield_now();
        }
        Ok(Some(index))
    }

    /// Moves the upper half of a full leaf into a new one. Under the leaf's lock, which is kept
    /// until the parent knows the new leaf.
    fn split(
        &self,
        guard: &Guard<'_, M>,
        leaf_record: &LeafRecord<M>,
        key: C::Key<'_>,
    ) -> Result<()> {
        let slots = leaf_record.slots();
        let keep = self.split_position(
            guard,
            Self::leaf(guard, leaf_record)?,
            leaf_record,
            &slots,
            key,
        )?;
        let new = self.build(guard, leaf_record, keep, None, 1)?;
        let published = self.publish_built(guard, leaf_record, keep, &new.leaves, None);
        published.inspect_err(|_| self.discard_built(guard, &new.leaves))?;
        new.records.published();
        guard.interleave(&self.inner);
        self.enter(&mut self.inner.structure(), &new.leaves);
        Ok(())
    }

    /// Instead of splitting a full leaf alone: its entries and those of its right neighbour move on
    /// into one new leaf, if they fit with room to spare, else into two, so that two leaves become
    /// three (as in a B*-tree). Leaves are then four fifths full after random inserts, where
    /// splitting alone leaves ln 2.
    ///
    /// One line store as well: it drops the upper entries, and links the new leaves past the old
    /// neighbour. `false` if nothing was done.
    fn split_with_neighbour(
        &self,
        guard: &Guard<'_, M>,
        leaf_record: &LeafRecord<M>,
    ) -> Result<bool> {
        let old = leaf_record.next();
        if old == 0 {
            return Ok(false);
        }
        let neighbour = self.leaves.get(old);
        // Without waiting: another thread may hold the neighbour's lock across a persist.
        let Some(lock) = neighbour.try_lock() else {
            return Ok(false);
        };
        if LeafRecord::<M>::is_dead(neighbour.version()) {
            return Ok(false);
        }
        let count = leaf_record.slots().count();
        let count_right = neighbour.slots().count();
        let room_in_two = count_right * SHARE_DENOMINATOR <= self.capacity * SHARE_NUMERATOR;
        let parts = if room_in_two && (count + count_right).div_ceil(2) < self.capacity {
            1
        } else {
            2
        };
        let keep = (count + count_right) / (parts + 1);
        if keep == 0 || keep >= count {
            return Ok(false);
        }
        let bound = self.copy_high_key(leaf_record)?;
        let bound = C::key(&bound)?;
        guard.interleave(&self.inner);
        // A leaf is removed or replaced under its lock and that of the leaf before it. This thread
        // has both, so the answer holds until they are unlocked.
        if !self.inner.structure().leads_to(bound, old)? {
            return Ok(false);
        }
        // Damage stays where it is, and is found there.
        if self.verify_check(guard, neighbour).is_err() || !neighbour.close() {
            return Ok(false);
        }
        let new = self.build(guard, leaf_record, keep, Some(neighbour), parts);
        let new = new.inspect_err(|_| neighbour.reopen())?;
        // A new leaf begins below the old neighbour, whose place it takes in the inner nodes. Until
        // then no thread may split it, or share it with the leaf behind: the leaf that came of that
        // could be entered before the old neighbour, and the new leaf then behind both.
        let new_locks: Vec<_> = new
            .leaves
            .iter()
            .map(|leaf| self.leaves.get(leaf.index).lock())
            .collect();
        // A thread that finds a dead leaf descends again, and finds the new one.
        neighbour.set_dead(true);
        if let Err(error) =
            self.publish_built(guard, leaf_record, keep, &new.leaves, Some(neighbour))
        {
            drop(new_locks);
            self.discard_built(guard, &new.leaves);
            neighbour.set_dead(false);
            neighbour.reopen();
            return Err(error);
        }
        guard.interleave(&self.inner);
        let mut structure = self.inner.structure();
        let first = &new.leaves[0];
        let replaced = structure.replace(bound, first.separator, first.index);
        let replaced = replaced.expect(SEPARATORS_ARE_IN_MEMORY);
        self.enter(&mut structure, &new.leaves[1..]);
        drop(structure);
        drop(new_locks);
        drop(lock);
        new.records.published();
        self.inner.retire_separator(replaced);
        guard.retire_node(neighbour.offset());
        self.leaves.retire(guard.pin(), old);
        Ok(true)
    }

    /// Enters new leaves, which are published, in the inner nodes.
    fn enter(&self, structure: &mut Structure<'_, C>, leaves: &[NewLeaf]) {
        let heap = self.inner.heap();
        let mut enter = |leaf: &NewLeaf| -> Result<()> {
            let mut bytes = Vec::new();
            InnerTree::<C>::copy_separator(&heap, leaf.separator, &mut bytes)?;
            structure.insert(C::key(&bytes)?, leaf.separator, leaf.index)
        };
        for leaf in leaves {
            // If there is no memory for inner nodes the leaf is still found, through the leaf
            // before it.
            let _ = enter(leaf);
        }
    }

    /// Writes `parts` new leaves with the entries from position `keep` on and those of `absorbed`,
    /// ordered before what comes after. Nothing leads there yet.
    fn build<'g, 'p>(
        &self,
        guard: &'g Guard<'p, M>,
        leaf_record: &LeafRecord<M>,
        keep: usize,
        absorbed: Option<&LeafRecord<M>>,
        parts: usize,
    ) -> Result<Built<'g, 'p, M, C>> {
        let gathers = self.gathers && !guard.has_set_aside();
        let built = self.build_from(guard, leaf_record, keep, absorbed, parts, gathers);
        // The copies may have taken the last room for a leaf.
        if gathers && built.is_err() {
            return self.build_from(guard, leaf_record, keep, absorbed, parts, false);
        }
        built
    }

    /// Does the work of [`RnTree::build`]; copies records if `gathers`.
    fn build_from<'g, 'p>(
        &self,
        guard: &'g Guard<'p, M>,
        leaf_record: &LeafRecord<M>,
        keep: usize,
        absorbed: Option<&LeafRecord<M>>,
        parts: usize,
        gathers: bool,
    ) -> Result<Built<'g, 'p, M, C>> {
        let mut moved = Vec::with_capacity(2 * self.capacity);
        let last = self.collect(guard, leaf_record, keep - 1, &mut moved)?;
        let last = match absorbed {
            Some(absorbed) => self.collect(guard, absorbed, 0, &mut moved)?,
            None => last,
        };
        let records = match gathers {
            true => Gathered::of(guard, moved[1..].iter_mut().map(|moved| &mut moved.words)),
            false => Gathered::none(guard),
        };
        // The entry before the first that moves is there for the separator.
        let ends: Vec<usize> = (0..=parts)
            .map(|part| 1 + (moved.len() - 1) * part / parts)
            .collect();
        let mut built = Vec::with_capacity(parts);
        let mut behind = LeafBehind {
            offset: last.slots().next(),
            index: last.next(),
            bound: last.high.load(Ordering::Relaxed),
        };
        for part in (0..parts).rev() {
            match self.build_one(guard, &moved[ends[part] - 1..ends[part + 1]], behind) {
                Ok(leaf) => {
                    behind = LeafBehind {
                        offset: leaf.offset,
                        index: leaf.index,
                        bound: leaf.separator.0,
                    };
                    built.insert(0, leaf);
                }
                Err(error) => {
                    self.discard_built(guard, &built);
                    return Err(error);
                }
            }
        }
        // PERSIST: nothing must precede; if this is lost, nothing leads to the leaves and the copies yet.
        guard.fence();
        Ok(Built {
            leaves: built,
            records,
        })
    }

    /// Appends the entries of a leaf from position `start` on.
    pub(super) fn collect<'l>(
        &self,
        guard: &Guard<'_, M>,
        leaf_record: &'l LeafRecord<M>,
        start: usize,
        moved: &mut Vec<MovedEntry>,
    ) -> Result<&'l LeafRecord<M>> {
        let leaf = Self::leaf(guard, leaf_record)?;
        let slots = leaf_record.slots();
        moved.extend((start..slots.count()).map(|position| MovedEntry {
            words: leaf.entry(guard, &slots, position),
            fingerprint: leaf_record.fingerprint(slots.entry(position)),
        }));
        Ok(leaf_record)
    }

    /// Writes and flushes one new leaf: all of `moved` but the first, which goes before it.
    fn build_one(
        &self,
        guard: &Guard<'_, M>,
        moved: &[MovedEntry],
        behind: LeafBehind,
    ) -> Result<NewLeaf> {
        let separator = self.separator_between(guard, moved[0].words, moved[1].words)?;
        self.build_behind(guard, &moved[1..], separator, behind)
    }

    /// Writes and flushes one new leaf with these entries, at least one, behind a separator. The
    /// separator is given back if there is an error.
    pub(super) fn build_behind(
        &self,
        guard: &Guard<'_, M>,
        entries: &[MovedEntry],
        separator: Separator,
        behind: LeafBehind,
    ) -> Result<NewLeaf> {
        let high = behind.bound;
        let offset = guard.allocate_node(size_of::<Leaf>());
        let offset = offset.inspect_err(|_| self.inner.retire_separator(separator))?;
        let place = || {
            let index = self.leaves.allocate()?;
            self.place(index, offset)
                .inspect_err(|_| self.leaves.free(index))?;
            Ok(index)
        };
        let index = place().inspect_err(|_: &crate::Error| {
            self.inner.retire_separator(separator);
            guard.free_node(offset);
        })?;
        let leaf = guard.node::<Leaf>(offset)?;
        let leaf_record = self.leaves.get(index);
        let mut sum = EntrySum::default();
        for (entry, MovedEntry { words, fingerprint }) in entries.iter().enumerate() {
            leaf.entries[entry][0].store(guard, words[0]);
            leaf.entries[entry][1].store(guard, words[1]);
            leaf_record.set_fingerprint(entry, *fingerprint);
            sum = sum.with(entry, *words);
        }
        let slots = Slots(
            leaf.slots
                .init(guard, &Slots::identity(entries.len(), behind.offset, sum).0),
        );
        guard.flush_words(leaf.entries[..entries.len()].as_flattened());
        leaf_record.reset(offset, &slots, behind.index, high, Lsn::DURABLE);
        let last = entries[entries.len() - 1].words[0];
        let scale = Scale::covering(
            entries[0].words[0],
            if C::TIES || high == 0 { last } else { high },
        );
        leaf_record.rescale(
            scale,
            entries.iter().map(|moved| moved.words[0]).enumerate(),
        );
        Ok(NewLeaf {
            offset,
            index,
            separator,
        })
    }

    /// Gives new leaves back that were never published.
    pub(super) fn discard_built(&self, guard: &Guard<'_, M>, built: &[NewLeaf]) {
        for leaf in built {
            // Only readers of the record's former leaf can still use it, and they will not
            // validate.
            while !self.leaves.get(leaf.index).close() {
                sync::yield_now();
            }
            guard.free_node(leaf.offset);
            self.leaves.free(leaf.index);
            self.inner.retire_separator(leaf.separator);
        }
    }

    /// Publishes new leaves: the line store that drops the entries from position `keep` on and
    /// links them. If there is an error, they are not published.
    pub(super) fn publish_built(
        &self,
        guard: &Guard<'_, M>,
        leaf_record: &LeafRecord<M>,
        keep: usize,
        built: &[NewLeaf],
        absorbed: Option<&LeafRecord<M>>,
    ) -> Result<()> {
        let leaf = Self::leaf(guard, leaf_record)?;
        let slots = leaf_record.slots();
        let first = built[0];
        let moved = leaf.sum(guard, &slots, keep);
        let new = slots.with(keep, first.offset).sealed(&slots, moved);
        // PERSIST: the new leaves are ordered before; if this is lost, the old leaves still have all entries.
        let published = leaf.slots.publish(guard, &slots.0, &new.0);
        let stored = Slots(published?);
        let lsn = guard.fence();
        built
            .iter()
            .for_each(|leaf| self.leaves.get(leaf.index).stamp(lsn));
        leaf_record.stamp(lsn);
        if let Some(absorbed) = absorbed {
            absorbed.stamp(lsn);
        }
        let moved = slots.bitmap() & !stored.bitmap();
        leaf_record.shorten(&stored, first.index, first.separator.0);
        leaf_record.dead.store(
            leaf_record.dead.load(Ordering::Relaxed) | moved,
            Ordering::Relaxed,
        );
        Ok(())
    }

    /// How many entries stay: half, or nearly all where keys arrive in ascending order at the
    /// tree's end.
    fn split_position(
        &self,
        guard: &Guard<'_, M>,
        leaf: &Leaf,
        leaf_record: &LeafRecord<M>,
        slots: &Slots,
        key: C::Key<'_>,
    ) -> Result<usize> {
        let count = slots.count();
        if leaf_record.next() == 0 {
            let last = leaf.entry(guard, slots, count - 1);
            let above = C::word(key) > last[0]
                || C::TIES && C::word(key) == last[0] && C::compare_tie(guard, key, last)?.is_gt();
            if above {
                return Ok(count - 1);
            }
        }
        Ok(count / 2)
    }

    /// Refuses a leaf whose slots and entries fail their check. Under the leaf's lock.
    pub(super) fn verify_check(
        &self,
        guard: &Guard<'_, M>,
        leaf_record: &LeafRecord<M>,
    ) -> Result<()> {
        let leaf = Self::leaf(guard, leaf_record)?;
        let slots = leaf_record.slots();
        slots.verify(leaf.sum(guard, &slots, 0), leaf_record.offset())
    }

    /// The shortest separator above the key of one entry and not above that of the next.
    pub(super) fn separator_between(
        &self,
        guard: &Guard<'_, M>,
        left: [u64; 2],
        right: [u64; 2],
    ) -> Result<Separator> {
        if !C::TIES {
            return Ok(Separator(right[0]));
        }
        if left[0] != right[0] {
            // The words decide. The first byte in which the right one is greater is no padding.
            let common = (left[0] ^ right[0]).leading_zeros() as usize / 8;
            let bytes = right[0].to_be_bytes();
            let separator = &bytes[..=common];
            return self.inner.separator(C::key(separator)?, separator);
        }
        let mut low = Vec::new();
        let mut high = Vec::new();
        C::copy_key(guard, left, &mut low)?;
        C::copy_key(guard, right, &mut high)?;
        // A separator from a damaged key would lead readers of other keys to the wrong leaf.
        let right_key = C::expect_key(guard, right);
        if C::expect_key(guard, left).is_err() {
            right_key?;
        } else if right_key.is_err() {
            high = low;
            high.push(0);
        } else {
            high.truncate(count_shared(&low, &high) + 1);
        }
        self.inner.separator(C::key(&high)?, &high)
    }

    /// A separator that is the key of an entry, for a leaf whose predecessor's last key is not
    /// known.
    pub(super) fn separator_from(
        &self,
        guard: &Guard<'_, M>,
        words: [u64; 2],
    ) -> Result<Separator> {
        let mut bytes = Vec::new();
        C::copy_key(guard, words, &mut bytes)?;
        self.inner.separator(C::key(&bytes)?, &bytes)
    }

    /// Merges the leaf that covers `key` with a neighbour, if one of them is empty or both are
    /// small. Gives up if a lock is taken: the next removal tries again.
    ///
    /// 1. Ask the inner nodes for two neighbours, and lock both leaves.
    /// 2. Ask the inner nodes whether they lead to the right leaf. A leaf is removed or replaced
    ///    under its lock and that of the leaf before it. This thread has both, so the answer holds
    ///    until they are unlocked.
    /// 3. Move the entries, with two fences. The inner nodes are not locked meanwhile.
    /// 4. Remove the right leaf from the inner nodes, unlock both leaves, and retire it.
    pub(super) fn merge(&self, guard: &Guard<'_, M>, key: C::Key<'_>) -> Result<()> {
        guard.interleave(&self.inner);
        let Some(structure) = self.inner.try_structure() else {
            return Ok(());
        };
        let neighbours = structure.neighbours(key)?;
        drop(structure);
        let Some(neighbours) = neighbours else {
            return Ok(());
        };
        let left = self.leaves.get(neighbours.left);
        let right = self.leaves.get(neighbours.right);
        let Some(left_lock) = left.try_lock() else {
            return Ok(());
        };
        let Some(right_lock) = right.try_lock() else {
            return Ok(());
        };
        let is_one_dead = LeafRecord::<M>::is_dead(left.version() | right.version());
        if is_one_dead || left.next() != neighbours.right {
            return Ok(());
        }
        let count_left = left.slots().count();
        let count_right = right.slots().count();
        let count = count_left + count_right;
        let worth_it = count <= self.capacity / 2 || count_left == 0 || count_right == 0;
        if !worth_it || count > self.capacity {
            return Ok(());
        }
        let bound = self.copy_high_key(left)?;
        let bound = C::key(&bound)?;
        guard.interleave(&self.inner);
        if !self.inner.structure().leads_to(bound, neighbours.right)? {
            return Ok(());
        }
        if !self.absorb(guard, left, right)? {
            return Ok(());
        }
        guard.interleave(&self.inner);
        // Nothing may fail from here on: the inner nodes still lead to the dead leaf.
        let separator = self.inner.structure().remove(bound);
        let separator = separator.expect(SEPARATORS_ARE_IN_MEMORY);
        drop(left_lock);
        drop(right_lock);
        self.inner.retire_separator(separator);
        guard.retire_node(right.offset());
        self.leaves.retire(guard.pin(), neighbours.right);
        Ok(())
    }

    /// The upper bound of a leaf that has a leaf after it, as bytes. Under the leaf's lock.
    pub(super) fn copy_high_key(&self, leaf_record: &LeafRecord<M>) -> Result<Vec<u8>> {
        let high = leaf_record.high.load(Ordering::Relaxed);
        let mut bound = Vec::new();
        InnerTree::<C>::copy_separator(&self.inner.heap(), Separator(high), &mut bound)?;
        Ok(bound)
    }

    /// Moves all entries of `right` into `left` and leaves `right` dead. Both are locked. `false`
    /// if there is no room.
    pub(super) fn absorb(
        &self,
        guard: &Guard<'_, M>,
        left: &LeafRecord<M>,
        right: &LeafRecord<M>,
    ) -> Result<bool> {
        // Damage stays where it is, and is found there.
        if self.verify_check(guard, right).is_err() {
            return Ok(false);
        }
        left.recycle();
        let left_leaf = Self::leaf(guard, left)?;
        let right_leaf = Self::leaf(guard, right)?;
        let old = left.slots();
        let from = right.slots();
        let mut new = old.with(old.count(), from.next());
        if left.scale().is_of_digits() {
            // The words of the moved entries do not tell their digits. A later insert gives all
            // entries order bytes.
            left.rescale(Scale::FLAT, []);
            left.change(&old, || {});
        }
        let mut claimed = 0;
        let mut sum = EntrySum::default();
        for position in 0..from.count() {
            let Some(entry) = left.claim(self.capacity) else {
                left.release(claimed);
                return Ok(false);
            };
            claimed |= 1 << entry;
            new = new.inserted(new.count(), entry as u8);
            let words = right_leaf.entry(guard, &from, position);
            write_entry(guard, &left_leaf.entries[entry], words);
            left.set_fingerprint(entry, right.fingerprint(from.entry(position)));
            left.set_order(entry, words[0]);
            sum = sum.with(entry, words);
        }
        let new = new.sealed(&old, sum);
        if !right.close() {
            left.release(claimed);
            return Ok(false);
        }
        // PERSIST: the copies before the slot line that lists them; if this is lost, both leaves are as they
        // were.
        guard.fence();
        // A thread that finds a dead leaf descends again, and finds what the left one publishes.
        right.set_dead(true);
        let stored = match left_leaf.slots.publish(guard, &old.0, &new.0) {
            Ok(stored) => Slots(stored),
            Err(error) => {
                right.set_dead(false);
                right.reopen();
                left.release(claimed);
                return Err(error.into());
            }
        };
        let lsn = guard.fence();
        left.stamp(lsn);
        left.extend(&stored, right);
        Ok(true)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
