//! Reading what is whole in a damaged tree, even one that does not open.

use medium::Medium;
use pool::{Guard, Pool, TreeRoot};

use super::layout::{Leaf, Slots};
use super::{ROOT_HEAD, RnTree};
use crate::Result;
use crate::index::{Codec, Violation};
use crate::kit::walk::salvage_chain;

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// Calls `visit` with the entries of all leaves that pass their checks, in ascending order of keys, until it returns
    /// `false`. Returns what was left out. Writes nothing, and needs no tree that is open. O(n), with some bytes of memory
    /// for each leaf.
    ///
    /// A leaf that fails its check is left out, and the salvage goes on with the leaf that it names. If it names no leaf that can
    /// be read, or one that was visited before, all leaves behind it are left out. If the name of the next leaf is itself
    /// damaged, leaves in between may be missed and are not reported.
    ///
    /// # Errors
    /// [`Error::TreeMismatch`](crate::Error::TreeMismatch), as [`RnTree::open`].
    pub fn salvage(
        pool: &Pool<M>,
        root: &TreeRoot,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Vec<Violation>> {
        let capacity = Self::capacity_of(root)?;
        let guard = pool.pin();
        Ok(salvage_chain::<M, C>(&guard, root.words[ROOT_HEAD], visit, |offset| {
            let (leaf, slots) = Self::read_leaf(&guard, offset, capacity)?;
            let entries = Self::verify_slots(&guard, (offset, leaf, &slots), capacity)
                .map(|()| (0..slots.count()).map(|position| leaf.entry(&guard, &slots, position)).collect());
            Ok((slots.next(), entries))
        }))
    }

    /// A leaf and its slots, not validated.
    fn read_leaf<'g>(guard: &'g Guard<'_, M>, offset: u64, capacity: usize) -> Result<(&'g Leaf, Slots)> {
        let leaf = guard.node::<Leaf>(offset)?;
        if let Ok(value) = leaf.slots.load(guard) {
            return Ok((leaf, Slots(value)));
        }
        // The line is torn, or only the medium's tags are damaged: the check decides.
        let copies: Vec<_> = leaf.slots.copies(guard).map(Slots).collect();
        let is_whole = |slots: &&Slots| Self::verify_slots(guard, (offset, leaf, slots), capacity).is_ok();
        let slots = copies.iter().find(is_whole).unwrap_or(&copies[0]);
        Ok((leaf, *slots))
    }

    fn verify_slots(
        guard: &Guard<'_, M>,
        (offset, leaf, slots): (u64, &Leaf, &Slots),
        capacity: usize,
    ) -> Result<()> {
        slots.validate(capacity, offset)?;
        slots.verify(leaf.sum(guard, slots, 0), offset)
    }
}
