//! Finding many keys at once, so that their cache misses overlap.
//!
//! A batch is walked twice. The first walk goes down level by level, all keys together, and only
//! gives the processor hints of the memory that it will read. It checks nothing, because no result
//! depends on it. The second walk is the ordinary find of each key, which now finds its nodes and
//! its record in the cache.

use medium::Medium;
use smallvec::SmallVec;

use super::access::{HEIGHT_MAX, TreeAccess, Walk};
use super::core::Core;
use super::layout::{Border, INTERIOR, Interior, OFFSET_MASK};
use super::permutation::Permutation;
use super::slice::{LAYER, Slice, SliceTarget};
use crate::Result;

/// Keys that are walked together. The processor does not overlap more misses.
const BATCH: usize = 16;

impl<M: Medium> TreeAccess<'_, M> {
    /// Loads the nodes of the first layer that the search for keys with these slices will read.
    fn warm(&self, slices: impl Iterator<Item = Slice>) -> Walk<()> {
        let root = self.anchor()?.root.value.load(&self.guard);
        let mut walks: SmallVec<[(Slice, u64); BATCH]> =
            slices.map(|slice| (slice, root)).collect();
        for _ in 0..HEIGHT_MAX {
            let mut is_down = true;
            for (slice, pointer) in &mut walks {
                if *pointer & INTERIOR != 0 {
                    let node = self.guard.node::<Interior>(*pointer & OFFSET_MASK)?;
                    let rank =
                        self.rank(node, node.shape.load(&self.guard), SliceTarget::At(*slice));
                    *pointer = node.child(rank).load(&self.guard);
                    self.prefetch(*pointer);
                    is_down = false;
                }
            }
            if is_down {
                break;
            }
        }
        for (slice, pointer) in walks {
            let node = self.guard.node::<Border>(pointer & OFFSET_MASK)?;
            let permutation = Permutation(node.permutation.load(&self.guard));
            let Some((slot, class)) = self.find_slot(node, permutation, slice) else {
                continue;
            };
            let value = node.values.value(slot).load(&self.guard);
            match class {
                _ if self.core.are_words => self.cells(node)?[slot][0].prefetch(),
                LAYER => self.prefetch(value),
                _ => self.prefetch_record(value),
            }
        }
        Ok(())
    }
}

impl<M: Medium> Core<M> {
    /// Calls `find` with each key, in batches whose cache misses overlap.
    pub(super) fn find_many<K>(
        &self,
        keys: &[K],
        slice: impl Fn(&K) -> Slice,
        mut find: impl FnMut(&K) -> Result<()>,
    ) -> Result<()> {
        for batch in keys.chunks(BATCH) {
            // An error of the first walk occurs again in the find, which returns it.
            let _ = self.look().warm(batch.iter().map(&slice));
            batch.iter().try_for_each(&mut find)?;
        }
        Ok(())
    }
}
