//! Reads the undamaged entries of a damaged tree, even of one that does not open because a
//! descriptor is damaged.
//!
//! Nothing is rolled forward or back. A word that names a sound descriptor has the value that the
//! descriptor gives it. A word that names a damaged descriptor cannot be read, and everything below
//! it is left out.

use std::iter;
use std::ops::RangeInclusive;

use medium::Medium;
use pool::{Guard, Pool, TreeRoot};

use super::check::VisitedNode;
use super::layout::{ENTRIES_MAX, leaf_bytes};
use super::{BzTree, NodeSizes};
use crate::index::{Codec, EntryWords, Part};
use crate::kit::salvage::{Leafy, Led};
use crate::pmwcas::Seen;
use crate::{Error, ErrorKind, Result};

impl<M: Medium, C: Codec> Leafy<M, C> for BzTree<M, C> {
    const IS_CHECKED: bool = false;

    fn at_root(pool: &Pool<M>, root: &TreeRoot) -> Result<Self> {
        let nodes = NodeSizes::of_root(root).to_string();
        root.demand(Self::ENGINE.0, C::ID, &[nodes.clone(), nodes])?;
        Ok(Self::unrecovered(pool, root))
    }

    fn leaf_bytes(&self) -> RangeInclusive<usize> {
        leaf_bytes(1)..=leaf_bytes(ENTRIES_MAX)
    }

    fn leaves(&self, guard: &Guard<'_, M>) -> Led {
        let mut led = Led::default();
        let walked = self.walk(guard, &mut |visited| {
            match visited {
                VisitedNode::Leaf(offset, ..) => led.leaves.push(offset),
                VisitedNode::Damaged(offset, error) => {
                    led.note(offset, Part::Node, "a node and all below it", &error);
                }
                VisitedNode::Inner(..) => {}
            }
            Ok(())
        });
        if let Err(error) = walked {
            let offset = match error.kind() {
                ErrorKind::Corrupt { offset, .. } => *offset,
                _ => self.anchor,
            };
            led.note(offset, Part::Node, "all of the tree", &error);
        }
        led
    }

    /// A leaf that was replaced is frozen, and its memory may be kept for a leaf to come. Memory
    /// that is a record now may have entries of an earlier leaf behind the record's end.
    fn may_be_leaf(&self, guard: &Guard<'_, M>, offset: u64) -> bool {
        let status = Self::leaf(guard, offset).and_then(|leaf| self.leaf_status(guard, leaf));
        status.is_ok_and(|status| !status.is_frozen())
    }

    fn entries(&self, guard: &Guard<'_, M>, leaf: u64) -> Result<Vec<Result<EntryWords>>> {
        let head = Self::leaf(guard, leaf)?;
        loop {
            let status = self.leaf_status(guard, head);
            let entries =
                (0..ENTRIES_MAX).map(|entry| self.salvage_entry(guard, leaf, entry).transpose());
            let mut entries: Vec<_> = entries.flatten().collect();
            let status = match status {
                Ok(status) => status,
                // A page of zeros has no entry left.
                Err(error) if entries.is_empty() => return Err(error),
                Err(error) => {
                    entries.push(Err(error));
                    return Ok(entries);
                }
            };
            let missing = status.live().saturating_sub(entries.len());
            // The missing entries are lost, unless a writer has changed the leaf meanwhile.
            if missing == 0 || self.leaf_status(guard, head).is_ok_and(|now| now == status) {
                let lost = || Err(Error::corrupt(leaf, "the leaf counts it, but it is empty"));
                entries.extend(iter::repeat_with(lost).take(missing));
                return Ok(entries);
            }
        }
    }
}

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// An entry, even if the leaf's status is damaged: an entry that holds a key has a fingerprint.
    fn salvage_entry(
        &self,
        guard: &Guard<'_, M>,
        offset: u64,
        entry: usize,
    ) -> Result<Option<EntryWords>> {
        let leaf = Self::leaf(guard, offset)?;
        if leaf.fingerprint(guard, entry) == 0 {
            return Ok(None);
        }
        let found = self.read_entry(guard, leaf, entry, &mut Seen::default())?;
        Ok(found.map(|found| found.words))
    }
}
