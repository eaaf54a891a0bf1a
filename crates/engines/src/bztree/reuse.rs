//! When the memory of nodes is used again.
//!
//! A descriptor of PMwCAS stays as its operation left it until its slot is used again. By then the leaf whose words it names may
//! have been replaced, its memory have become a record: and a recovery takes what looks there like the descriptor's name for
//! it, whoever wrote that. So nodes that were replaced wait, first until no thread reads them any more, as whoever is in an
//! operation on their words does; then until each slot that was used was given back once. Some at a time, so that it
//! costs next to nothing.

use medium::Medium;
use medium::sync::Mutex;
use pool::{Guard, Quarantine};

use super::BzTree;
use crate::index::Codec;
use crate::pmwcas::{Leftovers, Recycled};

/// So many nodes share the fences that it takes.
const NODES: usize = 16;

/// How often a full pool tries to have back what waits for threads that are in the middle of an operation.
const TRIES: usize = 100;

/// Nodes that are out of the tree.
#[derive(Default)]
pub(super) struct Outgoing {
    /// Those that threads may read.
    retired: Quarantine,
    /// Those that descriptors may name.
    named: Mutex<(Vec<u64>, Leftovers)>,
}

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// Takes a node that was replaced, for its memory to be used again.
    pub(super) fn retire(&self, guard: &Guard<'_, M>, offset: u64) {
        self.outgoing.retired.retire(guard, offset);
    }

    /// What becomes of the nodes of a child's word.
    pub(super) fn recycle(&self, guard: &Guard<'_, M>, recycled: Recycled) {
        match recycled {
            Recycled::Replaced(pointer) => self.retire(guard, pointer & !15),
            Recycled::Unused(pointer) => guard.free(pointer & !15),
        }
    }

    /// Frees nodes that neither threads read nor descriptors name, where there are enough of them.
    pub(super) fn reuse(&self, guard: &Guard<'_, M>) {
        self.reuse_from(guard, if M::SCHEDULED { 1 } else { NODES });
    }

    /// Frees nodes if there are so many; whether none is left.
    fn reuse_from(&self, guard: &Guard<'_, M>, least: usize) -> bool {
        let Outgoing { retired, named } = &self.outgoing;
        guard.interleave(named);
        // Else somebody is at it, or stopped there.
        let Some(mut named) = named.try_lock() else { return false };
        let (nodes, leftovers) = &mut *named;
        if nodes.is_empty() {
            *nodes = retired.take(least);
            if nodes.is_empty() {
                return true;
            }
            *leftovers = self.pmwcas.leftovers();
        }
        // Where a descriptor is damaged they stay what they are, until the next open says so.
        if !self.pmwcas.clear_leftovers(guard, leftovers).unwrap_or(false) {
            return false;
        }
        nodes.drain(..).for_each(|offset| guard.free(offset));
        true
    }

    /// Frees what was retired, for a pool that is full. The calling thread is not pinned.
    pub(super) fn reclaim(&self) {
        self.pool.reclaim_with(Some(&self.outgoing.retired));
        let guard = self.pool.pin();
        // What was there before, then what has come.
        let mut spins = 0;
        let _ = (0..TRIES)
            .filter(|_| {
                medium::sync::pause(&mut spins);
                self.reuse_from(&guard, 1)
            })
            .nth(1);
    }

    /// How many nodes are out of the tree and nobody reads any more.
    pub(super) fn count_outgoing(&self) -> u64 {
        (self.outgoing.retired.count() + self.outgoing.named.lock().0.len()) as u64
    }

    /// Frees all of them: nobody uses the tree any more, and no descriptor names anything.
    pub(super) fn free_outgoing(&self, guard: &Guard<'_, M>) {
        let named = std::mem::take(&mut self.outgoing.named.lock().0);
        named.into_iter().chain(self.outgoing.retired.take_all()).for_each(|offset| guard.free(offset));
    }
}
