//! Giving back the space of a tree that is gone from the root table.

use medium::Medium;

use super::RnTree;
use crate::Result;
use crate::index::Codec;

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// Frees every record and every leaf, at once: the caller says that nobody else uses the tree. No persist: what
    /// nothing reaches is free after a crash as well.
    pub(super) fn give_back(&self) -> Result<()> {
        let guard = self.pool.pin();
        let mut index = self.head;
        while index != 0 {
            let record = self.leaves.get(index);
            let (leaf, slots) = (Self::leaf(&guard, record)?, record.slots());
            for position in 0..slots.count() {
                C::discard(&guard, leaf.entry(&guard, &slots, position));
            }
            guard.free_node(record.offset());
            index = record.next();
        }
        Ok(())
    }
}
