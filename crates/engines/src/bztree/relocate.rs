//! Nodes that move out of slabs that are to be emptied.
//!
//! A leaf moves as in a consolidation; an inner node likewise, by a copy that one operation installs
//! while it freezes the old node. Separators keep their records, which stay where they are.

use medium::{Lsn, Medium};
use pool::Guard;

use super::BzTree;
use super::find::{DescentGoal, Step};
use super::image::{Copies, NewNodes};
use super::layout::Pointer;
use super::split::Frozen;
use crate::Result;
use crate::index::{Codec, Moved};
use crate::pmwcas::Seen;

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// Moves the nodes on the way to a key, from the root to the leaf, that lie in slabs that are to
    /// be emptied.
    pub(super) fn relocate_nodes(&self, key: C::Key<'_>) -> Result<Moved> {
        let guard = &self.pool.pin();
        let mut moved = Moved::NotEvacuated;
        loop {
            let goal = DescentGoal::Key(key);
            let (path, leaf) = self.descend_path(guard, &goal, &mut Seen::default())?;
            let is_evacuated = |step: &Step| guard.is_evacuated(step.offset);
            let is_done = if let Some(depth) = path.iter().position(is_evacuated) {
                self.relocate_inner(guard, &path[..=depth])?
            } else if guard.is_evacuated(leaf) {
                self.relocate_leaf(guard, key, &path, leaf)?
            } else {
                return Ok(moved);
            };
            if !is_done {
                return Ok(Moved::Stays);
            }
            // No answer rests on a node that has moved, so there is no LSN to wait for.
            moved = Moved::Done(Lsn::DURABLE);
        }
    }

    /// Replaces the last node of a path by a copy. Returns whether it did.
    fn relocate_inner(&self, guard: &Guard<'_, M>, path: &[Step]) -> Result<bool> {
        let Some((step, above)) = path.split_last() else {
            return Ok(false);
        };
        let mut new = NewNodes::new(guard);
        let copy = new.allocate(Self::INNER_BYTES)?;
        let Some((status, image)) = self.image(guard, step.offset)? else {
            return Ok(false);
        };
        Self::write_inner(guard, copy, &image)?;
        let mut swap = self.pmwcas.allocate();
        Self::freeze_inner(guard, &mut swap, step.offset, status)?;
        let old = Pointer::inner(step.offset);
        if !self.swap_child(guard, &mut swap, above, old, Pointer::inner(copy))? {
            return Ok(false);
        }
        new.release(copy);
        let Some(commit) = self.attempt_swap(guard, swap)? else {
            return Ok(false);
        };
        drop(commit);
        self.reuse(guard);
        Ok(true)
    }

    /// Merges the leaf at the end of a path with a neighbour if it is small, or replaces it by a
    /// copy. Returns whether it did.
    fn relocate_leaf(
        &self,
        guard: &Guard<'_, M>,
        key: C::Key<'_>,
        path: &[Step],
        offset: u64,
    ) -> Result<bool> {
        let leaf = Self::leaf(guard, offset)?;
        let status = self.leaf_status_helping(guard, leaf)?;
        if status.live() <= self.sizes.live_min() {
            self.shrink(guard, key)?;
            if self.descend(guard, key, &mut Seen::default())? != offset {
                return Ok(true);
            }
        }
        let mut new = NewNodes::new(guard);
        let replacement = self.allocate_leaf(&mut new, status.kept(), false)?;
        let frozen = self.freeze(guard, leaf)?;
        let old = Frozen {
            offset,
            status: frozen,
        };
        let mut copies = Copies::new();
        let gathered = self.gather(guard, leaf, frozen, &mut copies);
        let replaced = match gathered {
            Ok(()) => self.consolidate(guard, path, old, new, replacement, &copies),
            Err(error) => Err(error),
        };
        if !matches!(replaced, Ok(true)) {
            // It stays in use.
            self.thaw(guard, key, offset)?;
        }
        replaced
    }
}
