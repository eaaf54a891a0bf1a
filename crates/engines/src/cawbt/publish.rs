//! Stores of nodes, whose readers wait until all of them are ordered.

use medium::sync::Ordering;
use smallvec::SmallVec;

use super::CawbTree;
use super::layout::{LoadedNode, NodeContent, NodeLine};
use crate::kit::prelude::*;

/// A change of nodes, whose readers wait until it ends. If it does not end, because the medium
/// failed after the first store, the tree accepts no more writes, and readers of these nodes give
/// up.
pub(super) struct NodeChange<'t, 'g, 'p, M: Medium, C: Codec> {
    tree: &'t CawbTree<M, C>,
    guard: &'g Guard<'p, M>,
    offsets: SmallVec<[u64; 4]>,
    is_published: bool,
}

impl<'t, 'g, 'p, M: Medium, C: Codec> NodeChange<'t, 'g, 'p, M, C> {
    /// Begins a change that concerns these nodes.
    pub(super) fn of(
        tree: &'t CawbTree<M, C>,
        guard: &'g Guard<'p, M>,
        offsets: impl IntoIterator<Item = u64>,
    ) -> Self {
        let offsets: SmallVec<[u64; 4]> = offsets.into_iter().collect();
        offsets
            .iter()
            .for_each(|offset| tree.versions.raise(*offset));
        Self {
            tree,
            guard,
            offsets,
            is_published: false,
        }
    }

    /// Stores and flushes a node.
    #[track_caller]
    pub(super) fn publish(
        &mut self,
        offset: u64,
        old: &LoadedNode,
        content: &NodeContent,
        parent: u64,
    ) -> Result<()> {
        let new = content.sealed(offset, parent);
        self.guard
            .node::<NodeLine>(offset)?
            .line
            .publish(self.guard, &old.0, &new.0)?;
        self.is_published = true;
        Ok(())
    }

    /// The change is ordered, and durable at `lsn`.
    pub(super) fn end(mut self, lsn: Lsn) {
        self.is_published = false;
        self.offsets
            .iter()
            .for_each(|offset| self.tree.versions.stamp(*offset, lsn));
    }
}

impl<M: Medium, C: Codec> Drop for NodeChange<'_, '_, '_, M, C> {
    fn drop(&mut self) {
        if self.is_published {
            self.tree.is_cut_off.store(true, Ordering::Relaxed);
            return self.tree.pool.leave_unclean();
        }
        self.offsets
            .iter()
            .for_each(|offset| self.tree.versions.lower(*offset));
    }
}
