//! Removal: the slot line no longer lists the entry.

use medium::sync::Ordering;
use medium::{Lsn, Medium};
use pool::Guard;

use super::RnTree;
use super::find::Find;
use super::layout::{EntrySum, LeafRecord, Slots};
use crate::Result;
use crate::index::{Codec, Condition, EntryWords, Written};
use crate::kit::write::holds;

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// Removes `key` if `condition` holds; an absent key stays absent. One persist, none if there
    /// is nothing to do.
    pub(super) fn erase(
        &self,
        key: C::Key<'_>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<Written> {
        let hash = C::hash(key);
        let mut peeked = None;
        if !C::TIES {
            // This read is not pinned, for the reason given in `store_as`.
            let guard = self.pool.peek();
            let seen = self.peek::<Find>(&guard, key, hash)?;
            let held = holds::<M, C>(&guard, condition, seen.words)?;
            if !held || seen.words.is_none() {
                let lsn = guard.left_to_caller(seen.lsn);
                return Ok(Written { held, lsn });
            }
            peeked = Some(seen);
        }
        let guard = self.pool.pin();
        let heap = self.inner.heap();
        let mut index = match peeked {
            Some(seen) if self.leaves.get(seen.index).is_still(seen.version) => seen.index,
            _ => self.descend(&guard, key)?,
        };
        loop {
            let (found, seen) = self.seek(&guard, &heap, index, key, hash)?;
            let leaf_record = self.leaves.get(found);
            let held = holds::<M, C>(&guard, condition, seen.map(|(_, words)| words))?;
            if !held || seen.is_none() {
                let lsn = guard.left_to_caller(leaf_record.lsn());
                return Ok(Written { held, lsn });
            }
            let lock = leaf_record.lock();
            if LeafRecord::<M>::is_dead(leaf_record.version()) {
                drop(lock);
                LeafRecord::<M>::wait();
                index = self.descend(&guard, key)?;
                continue;
            }
            if let Some(next) = Self::beyond(&heap, leaf_record, key)? {
                index = next;
                continue;
            }
            let live = leaf_record.live.load(Ordering::Relaxed);
            let Some((entry, words)) = self.look_among(
                &guard,
                leaf_record,
                leaf_record.matches(hash as u8) & live,
                key,
                hash,
            )?
            else {
                // Another thread removed it meanwhile: check the condition again.
                index = found;
                continue;
            };
            if !holds::<M, C>(&guard, condition, Some(words))? {
                index = found;
                continue;
            }
            let (lsn, count) = self.unlist(&guard, found, entry, words)?;
            drop(lock);
            C::retire(&guard, words);
            if count <= self.capacity / 4 {
                let _ = self.merge(&guard, key); // the key is gone, merged or not
            }
            return Ok(Written::done(guard.left_to_caller(lsn)));
        }
    }

    /// Publishes the leaf without an entry that it lists; the caller holds the leaf's lock. Returns
    /// the LSN at which that is durable, and the number of entries that are left.
    fn unlist(
        &self,
        guard: &Guard<'_, M>,
        index: u32,
        entry: usize,
        words: EntryWords,
    ) -> Result<(Lsn, usize)> {
        let leaf_record = self.leaves.get(index);
        let leaf = Self::leaf(guard, leaf_record)?;
        let slots = leaf_record.slots();
        let Some(position) = slots.position_of(entry) else {
            return Err(self.damaged(index, "a live entry without a slot"));
        };
        let new = slots
            .removed(position)
            .sealed(&slots, EntrySum::default().with(entry, words));
        // PERSIST: nothing must precede; if this is lost, the key is still there.
        let stored = leaf.slots.publish(guard, &slots.0, &new.0)?;
        let lsn = guard.fence();
        leaf_record.stamp(lsn);
        let live = leaf_record.live.load(Ordering::Relaxed);
        leaf_record.change(&Slots(stored), || {
            leaf_record
                .live
                .store(live & !(1 << entry), Ordering::Release);
        });
        leaf_record.dead.store(
            leaf_record.dead.load(Ordering::Relaxed) | 1 << entry,
            Ordering::Relaxed,
        );
        Ok((lsn, slots.count() - 1))
    }
}
