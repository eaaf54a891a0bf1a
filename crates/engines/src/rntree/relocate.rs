//! Leaves that move out of slabs that are to be emptied.
//!
//! A leaf moves as it does in a split that moves all of its entries and none of the leaf before it:
//!
//! 1. Lock the leaf before it, and the leaf. Ask the inner nodes whether they lead to the leaf.
//! 2. If both leaves fit into one with room to spare, merge them. No space is taken.
//! 3. Otherwise write a new leaf with the same entries, and fence.
//! 4. *Publish* the leaf before it with a link to the new one: the commit point. Fence.
//! 5. Replace the leaf in the inner nodes, unlock both, and retire it.
//!
//! The first leaf, to which the root leads, stays where it is.

use medium::Medium;
use medium::sync::Ordering;
use pool::Guard;

use super::RnTree;
use super::layout::LeafRecord;
use super::split::{Built, LeafBehind, NewLeaf, SEPARATORS_ARE_IN_MEMORY};
use crate::Result;
use crate::index::{Codec, Moved};
use crate::kit::chain::DescentTarget;
use crate::kit::gather::Gathered;

/// Of the entries that fit into a leaf, three quarters may come together when leaves are merged
/// instead of moved.
const MERGED_NUMERATOR: usize = 3;
const MERGED_DENOMINATOR: usize = 4;

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// Moves the leaf behind the one that covers the keys just below `low`, if it lies in a slab
    /// that is to be emptied. Gives up if a lock is taken.
    pub(super) fn relocate_leaf(&self, low: C::Key<'_>) -> Result<Moved> {
        let guard = &self.pool.pin();
        guard.interleave(&self.inner);
        let before = self.inner.locate(DescentTarget::Below(low))?.leaf;
        let left = self.leaves.get(before);
        let Some(left_lock) = left.try_lock() else {
            return Ok(Moved::Stays);
        };
        let index = left.next();
        if LeafRecord::<M>::is_dead(left.version()) || index == 0 {
            return Ok(Moved::Stays);
        }
        let leaf = self.leaves.get(index);
        let Some(lock) = leaf.try_lock() else {
            return Ok(Moved::Stays);
        };
        if LeafRecord::<M>::is_dead(leaf.version()) {
            return Ok(Moved::Stays);
        }
        if !guard.is_evacuated(leaf.offset()) {
            return Ok(Moved::NotEvacuated);
        }
        let bound = self.copy_high_key(left)?;
        let bound_key = C::key(&bound)?;
        guard.interleave(&self.inner);
        // A leaf is removed or replaced under its lock and that of the leaf before it. This thread
        // has both, so the answer holds until they are unlocked.
        if !self.inner.structure().leads_to(bound_key, index)? {
            return Ok(Moved::Stays);
        }

        let moved = leaf.slots().count();
        let count = left.slots().count() + moved;
        let has_room = count * MERGED_DENOMINATOR <= self.capacity * MERGED_NUMERATOR;
        let is_merged = (has_room || moved == 0) && self.absorb(guard, left, leaf)?;
        let separator = if is_merged {
            guard.interleave(&self.inner);
            let removed = self.inner.structure().remove(bound_key);
            removed.expect(SEPARATORS_ARE_IN_MEMORY)
        } else {
            let Some(new) = self.replace_leaf(guard, left, leaf, &bound)? else {
                return Ok(Moved::Stays);
            };
            guard.interleave(&self.inner);
            let mut structure = self.inner.structure();
            let replaced = structure.replace(bound_key, new.separator, new.index);
            replaced.expect(SEPARATORS_ARE_IN_MEMORY)
        };
        let lsn = left.lsn();
        drop(lock);
        drop(left_lock);
        self.inner.retire_separator(separator);
        guard.retire_node(leaf.offset());
        self.leaves.retire(guard.pin(), index);
        Ok(Moved::Done(lsn))
    }

    /// Steps 3 and 4: links `left` to a copy of `leaf`, which is dead afterwards. Both are locked.
    /// `None` if the leaf is empty or damaged, or a writer is about to use it.
    fn replace_leaf(
        &self,
        guard: &Guard<'_, M>,
        left: &LeafRecord<M>,
        leaf: &LeafRecord<M>,
        bound: &[u8],
    ) -> Result<Option<NewLeaf>> {
        // Damage stays where it is, and is found there.
        if leaf.slots().count() == 0 || self.verify_check(guard, leaf).is_err() || !leaf.close() {
            return Ok(None);
        }
        let built = self.build_copy(guard, leaf, bound);
        let built = built.inspect_err(|_| leaf.reopen())?;
        // A thread that finds a dead leaf descends again, and finds the new one.
        leaf.set_dead(true);
        let kept = left.slots().count();
        let published = self.publish_built(guard, left, kept, &built.leaves, Some(leaf));
        if let Err(error) = published {
            self.discard_built(guard, &built.leaves);
            leaf.set_dead(false);
            leaf.reopen();
            return Err(error);
        }
        let new = built.leaves.first().copied();
        built.records.published();
        Ok(new)
    }

    /// Writes a new leaf with the entries of one, ordered before what comes after. Nothing leads
    /// there yet.
    fn build_copy<'g, 'p>(
        &self,
        guard: &'g Guard<'p, M>,
        leaf: &LeafRecord<M>,
        bound: &[u8],
    ) -> Result<Built<'g, 'p, M, C>> {
        let mut entries = Vec::with_capacity(self.capacity);
        self.collect(guard, leaf, 0, &mut entries)?;
        let separator = self.inner.separator(C::key(bound)?, bound)?;
        let behind = LeafBehind {
            offset: leaf.slots().next(),
            index: leaf.next(),
            bound: leaf.high.load(Ordering::Relaxed),
        };
        let new = self.build_behind(guard, &entries, separator, behind)?;
        // PERSIST: nothing must precede; if this is lost, nothing leads to the leaf yet.
        guard.fence();
        Ok(Built {
            leaves: vec![new],
            records: Gathered::none(guard),
        })
    }
}
