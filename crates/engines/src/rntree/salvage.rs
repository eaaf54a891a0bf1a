//! Reads the undamaged entries of a damaged tree, even of one that does not open.
//!
//! A leaf that fails its check is left out, and the salvage goes on with the leaf that it names, if
//! its slot line alone is whole. That leaf may be the wrong one, for example if two slot lines were
//! swapped. The leaves that are skipped then are found in the slabs of the pool.

use std::ops::RangeInclusive;

use medium::Medium;
use pool::{Guard, Pool, TreeRoot};

use super::layout::{Leaf, Slots};
use super::{ROOT_HEAD, RnTree};
use crate::Result;
use crate::index::{Codec, EntryWords};
use crate::kit::salvage::{Leafy, Led};

/// A chain of leaves that is not open.
pub(super) struct Chain {
    head: u64,
    capacity: usize,
}

impl<M: Medium, C: Codec> Leafy<M, C> for Chain {
    const IS_CHECKED: bool = true;
    const ARE_SORTED: bool = true;
    const HAS_LINE: bool = true;

    fn at_root(_: &Pool<M>, root: &TreeRoot) -> Result<Self> {
        Ok(Self {
            head: root.words[ROOT_HEAD],
            capacity: RnTree::<M, C>::capacity_of(root)?,
        })
    }

    fn leaf_bytes(&self) -> RangeInclusive<usize> {
        size_of::<Leaf>()..=size_of::<Leaf>()
    }

    fn leaves(&self, guard: &Guard<'_, M>) -> Led {
        let mut led = Led::default();
        led.follow(self.head, |offset, led| {
            let (leaf, slots) = self.read_leaf(guard, offset)?;
            led.leaves.push(offset);
            slots.verify_line(offset)?;
            led.is_doubtful |= self.verify_slots(guard, offset, leaf, &slots).is_err();
            Ok(slots.next())
        });
        led
    }

    fn entries(&self, guard: &Guard<'_, M>, offset: u64) -> Result<Vec<Result<EntryWords>>> {
        let (leaf, slots) = self.read_leaf(guard, offset)?;
        self.verify_slots(guard, offset, leaf, &slots)?;
        Ok((0..slots.count())
            .map(|position| Ok(leaf.entry(guard, &slots, position)))
            .collect())
    }
}

impl Chain {
    /// A leaf and its slots, not validated.
    fn read_leaf<'g, M: Medium>(
        &self,
        guard: &'g Guard<'_, M>,
        offset: u64,
    ) -> Result<(&'g Leaf, Slots)> {
        let leaf = guard.node::<Leaf>(offset)?;
        if let Ok(value) = leaf.slots.load(guard) {
            return Ok((leaf, Slots(value)));
        }
        // The line is torn, or only the medium's tags are damaged: the check decides.
        let copies: Vec<_> = leaf.slots.copies(guard).map(Slots).collect();
        let is_whole = |slots: &&Slots| self.verify_slots(guard, offset, leaf, slots).is_ok();
        let slots = copies.iter().find(is_whole).unwrap_or(&copies[0]);
        Ok((leaf, *slots))
    }

    fn verify_slots<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        offset: u64,
        leaf: &Leaf,
        slots: &Slots,
    ) -> Result<()> {
        slots.validate(self.capacity, offset)?;
        slots.verify(leaf.sum(guard, slots, 0), offset)
    }
}
