//! The reuse of the memory of nodes.
//!
//! A descriptor of PMwCAS keeps its content until its slot is used again. By then the leaf whose
//! words it names may have been replaced, and its memory may hold a record. A recovery would then
//! take a word of the record that equals the descriptor's name for that name. So the memory of a
//! replaced node waits twice before it is reused:
//!
//! 1. until no thread is pinned that could read the node or execute an operation on its words;
//! 2. until the descriptors of every slot that was used have been given back.
//!
//! Nodes are freed several at a time, so that the second step costs little.

use medium::Medium;
use medium::sync::Mutex;
use pool::{Guard, Quarantine};

use super::BzTree;
use super::layout::Pointer;
use crate::index::Codec;
use crate::pmwcas::{Leftovers, Recycled};

/// This many nodes share the fences that it takes to give descriptors back.
const NODES: usize = 16;

/// How often a full pool tries again to free nodes that wait for threads in the middle of an
/// operation.
const TRIES: usize = 100;

/// Nodes that were replaced and are not freed yet.
#[derive(Default)]
pub(super) struct Outgoing {
    /// Nodes that threads may still read.
    retired: Quarantine,
    /// Nodes that descriptors may still name.
    named: Mutex<(Vec<u64>, Leftovers)>,
}

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// Takes a node that was replaced, for its memory to be used again.
    pub(super) fn retire(&self, guard: &Guard<'_, M>, offset: u64) {
        self.outgoing.retired.retire(guard, offset);
    }

    /// Recycles the nodes of a child's word after an operation.
    pub(super) fn recycle(&self, guard: &Guard<'_, M>, recycled: Recycled) {
        match recycled {
            Recycled::Replaced(pointer) => self.retire(guard, Pointer(pointer).offset()),
            Recycled::Unused(pointer) => guard.free(Pointer(pointer).offset()),
        }
    }

    /// Frees nodes that no thread reads and no descriptor names, if there are enough of them.
    pub(super) fn reuse(&self, guard: &Guard<'_, M>) {
        self.reuse_from(guard, if M::SCHEDULED { 1 } else { NODES });
    }

    /// Frees nodes if there are at least `least`; returns whether none is left.
    fn reuse_from(&self, guard: &Guard<'_, M>, least: usize) -> bool {
        let Outgoing { retired, named } = &self.outgoing;
        guard.interleave(named);
        // If the lock is taken, another thread is doing this, or has stopped while doing it.
        let Some(mut named) = named.try_lock() else {
            return false;
        };
        let (nodes, leftovers) = &mut *named;
        if nodes.is_empty() {
            *nodes = retired.take(least);
            if nodes.is_empty() {
                return true;
            }
            *leftovers = self.pmwcas.leftovers();
        }
        // If a descriptor is damaged the nodes stay allocated; the next open reports the damage.
        if !self
            .pmwcas
            .clear_leftovers(guard, leftovers)
            .unwrap_or(false)
        {
            return false;
        }
        nodes.drain(..).for_each(|offset| guard.free(offset));
        true
    }

    /// Frees retired nodes, for a pool that is full. The calling thread is not pinned.
    pub(super) fn reclaim(&self) {
        self.pool.reclaim_with(Some(&self.outgoing.retired));
        let guard = self.pool.pin();
        // First the nodes that waited already, then those that were retired since.
        let mut spins = 0;
        let mut reuses = 0;
        for _ in 0..TRIES {
            medium::sync::pause(&mut spins);
            if self.reuse_from(&guard, 1) {
                reuses += 1;
            }
            if reuses == 2 {
                break;
            }
        }
    }

    /// The number of waiting nodes that no thread reads any more.
    pub(super) fn count_outgoing(&self) -> u64 {
        (self.outgoing.retired.count() + self.outgoing.named.lock().0.len()) as u64
    }

    /// Frees all of them. The tree is not in use any more, and no descriptor names a word.
    pub(super) fn free_outgoing(&self, guard: &Guard<'_, M>) {
        let named = std::mem::take(&mut self.outgoing.named.lock().0);
        named
            .into_iter()
            .chain(self.outgoing.retired.take_all())
            .for_each(|offset| guard.free(offset));
    }
}
