//! Reading what is whole in a damaged tree, even one that does not open because a descriptor is damaged.
//!
//! Nothing is rolled forward or back. A word that names a sound descriptor has the value that the descriptor gives it. A word
//! that names a damaged descriptor cannot be read, and everything below it is left out.

use medium::Medium;
use pool::{Guard, Pool, TreeRoot};

use super::check::Visited;
use super::layout::ENTRIES_MAX;
use super::{BzTree, NodeSizes};
use crate::index::{Codec, EntryWords, Violation};
use crate::kit::salvage::{Salvage, read_whole, what_of};
use crate::pmwcas::Seen;
use crate::{Error, Result};

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// Calls `visit` with the entries that can be read, in ascending order of keys, until it returns `false`. Returns what was
    /// left out. Changes nothing, and needs no tree that is open. O(n).
    ///
    /// # Errors
    /// [`Error::TreeMismatch`]: it is another engine's, or of another codec.
    pub fn salvage(
        pool: &Pool<M>,
        root: &TreeRoot,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Vec<Violation>> {
        let nodes = NodeSizes::of_root(root).to_string();
        root.demand((Self::ENGINE.0, C::ID), &[nodes.clone(), nodes])?;
        let tree = Self::unrecovered(pool, root);
        let (guard, mut salvage, mut goes_on) = (pool.pin(), Salvage::new(visit), true);
        let walked = tree.walk(&guard, &mut |visited| {
            match visited {
                Visited::Leaf(offset, ..) if goes_on => {
                    goes_on = tree.salvage_leaf(&guard, offset, &mut salvage);
                }
                Visited::Damaged(offset, error) if goes_on => {
                    salvage.leave_out(offset, format!("a node and all below it: {}", what_of(&error)));
                }
                _ => {}
            }
            Ok(())
        });
        if let Err(error) = walked {
            let offset = if let Error::Corrupt { offset, .. } = error { offset } else { tree.anchor };
            salvage.leave_out(offset, format!("all of the tree: {}", what_of(&error)));
        }
        Ok(salvage.finish())
    }

    /// Visits the entries of one leaf, or leaves them out; `false` if no more are wanted.
    fn salvage_leaf(&self, guard: &Guard<'_, M>, offset: u64, salvage: &mut Salvage<'_>) -> bool {
        let mut entries = Vec::new();
        for entry in 0..ENTRIES_MAX {
            let found = self.salvage_entry(guard, offset, entry).transpose();
            entries.extend(found.map(|words| read_whole::<M, C>(guard, words?)));
        }
        // Those that cannot be read have no key to be sorted by.
        entries.sort_by(|one, other| match (one, other) {
            (Ok((one, _)), Ok((other, _))) => one.cmp(other),
            (one, other) => one.is_ok().cmp(&other.is_ok()),
        });
        entries.into_iter().all(|read| salvage.entry(offset, read))
    }

    /// An entry, even if the leaf's status is damaged: an entry that was ever reserved has a fingerprint.
    fn salvage_entry(&self, guard: &Guard<'_, M>, offset: u64, entry: usize) -> Result<Option<EntryWords>> {
        let leaf = Self::leaf(guard, offset)?;
        if leaf.fingerprint(guard, entry) == 0 {
            return Ok(None);
        }
        let found = self.read_entry(guard, leaf, entry, &mut Seen::default())?;
        Ok(found.map(|found| found.words))
    }
}
