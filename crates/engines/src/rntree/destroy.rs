//! Gives back the space of a tree that was removed from the root table.

use medium::Medium;

use super::RnTree;
use crate::Result;
use crate::index::Codec;

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// Frees every record and every leaf, at once. The caller promises that no other thread uses
    /// the tree. This takes no persist: after a crash this space is not reachable, and thus free.
    pub(super) fn give_back(&self) -> Result<()> {
        let guard = self.pool.pin();
        let mut index = self.head;
        while index != 0 {
            let leaf_record = self.leaves.get(index);
            let leaf = Self::leaf(&guard, leaf_record)?;
            let slots = leaf_record.slots();
            for position in 0..slots.count() {
                C::discard(&guard, leaf.entry(&guard, &slots, position));
            }
            guard.free_node(leaf_record.offset());
            index = leaf_record.next();
        }
        Ok(())
    }
}
