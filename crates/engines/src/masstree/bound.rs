//! How long a walk through all of a tree may be.
//!
//! Within a layer slices ascend, whatever is damaged, so a walk comes to the layer's end. But several entries of a damaged tree
//! may lead to one layer, and each of its entries to one below: few nodes, and more ways through them than anybody has time
//! for. A walk that visits more nodes than there can be has found damage.

use std::cell::Cell;

use medium::Medium;
use pool::Guard;

use super::Core;
use super::access::{View, Walk};
use super::layout::{OFFSET_MASK, interior_bytes};
use crate::Error;

/// Nodes that are met before it is asked how many there can be.
const MET_UNASKED: u64 = 1 << 12;
/// How often a walk meets a node at most: for itself, for each entry that leads to a layer, of which that is the first node, and
/// for each neighbour that goes while the walk is there; and once more.
const MEETINGS: u64 = 4;

/// The nodes that a walk has met, as often as it has.
#[derive(Default)]
pub(super) struct Met {
    nodes: Cell<u64>,
    limit: Cell<u64>,
    /// The epoch in which the walk began. In each later one nodes may lie where others were before.
    first_epoch: Cell<Option<u64>>,
}

impl Met {
    pub(super) fn nodes(&self) -> u64 {
        self.nodes.get()
    }

    /// What was met in a part of the walk that is not repeated counts.
    pub(super) fn keep(&self, nodes: u64) {
        self.nodes.set(nodes);
    }
}

impl<M: Medium> Core<M> {
    /// At least as many nodes as there is room for in all that the tree has from the pool. O(slabs).
    pub(super) fn nodes_max(&self, guard: &Guard<'_, M>) -> u64 {
        let mut bytes = 0;
        let counted = self.visit_runs(guard, &mut |_, class| {
            bytes += super::allocator::run_bytes(class);
            Ok(())
        });
        let bytes = if counted.is_ok() { bytes } else { guard.medium().extent().length() };
        bytes / interior_bytes() as u64
    }
}

impl<M: Medium> View<'_, M> {
    /// Before a walk meets a node: with this it has met so many.
    #[inline(always)]
    pub(super) fn meet(&self, met: &Met, nodes: u64, pointer: u64) -> Walk<()> {
        if nodes <= met.limit.get() { Ok(()) } else { self.meet_many(met, nodes, pointer) }
    }

    #[cold]
    fn meet_many(&self, met: &Met, nodes: u64, pointer: u64) -> Walk<()> {
        let first = met.first_epoch.get().unwrap_or(self.epoch);
        met.first_epoch.set(Some(first));
        let mut limit = MET_UNASKED;
        if nodes > limit {
            let epochs = self.epoch.saturating_sub(first) + 1;
            let at_once = MEETINGS * self.core.nodes_max(&self.guard);
            limit = at_once.saturating_mul(epochs).max(limit);
        }
        if nodes > limit {
            let what = "a node that more ways lead to than there are nodes";
            return Err(Error::corrupt(pointer & OFFSET_MASK, what).into());
        }
        met.limit.set(limit);
        Ok(())
    }
}
