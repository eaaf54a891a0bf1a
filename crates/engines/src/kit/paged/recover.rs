//! Making and opening trees.

use std::time::Instant;

use crate::Result;
use medium::Medium;
use pool::{Pool, ROOT_WORDS, TreeRoot};

use super::log::{Anchor, Redo};
use super::{Format, Kind, Paged, ROOT_ANCHOR, ROOT_FORMAT};
use crate::index::{Codec, Index};
use crate::kit::write::Unpublished;

impl<M: Medium, C: Codec, F: Format> Paged<M, C, F>
where
    Self: Index,
{
    /// Makes an empty tree: an anchor, and a leaf as its root.
    pub(crate) fn create_as(pool: &Pool<M>, name: &str, format: F) -> Result<Self> {
        let (guard, mut words) = (pool.pin(), [0; ROOT_WORDS]);
        let mut space = Unpublished::new(&guard);
        words[ROOT_ANCHOR] = space.allocate_lines(size_of::<Anchor>())?;
        words[ROOT_FORMAT] = format.to_root();
        let tree = Self::unopened(pool, &words)?;
        let leaf = tree.allocate(&mut space, Kind::Leaf)?;
        tree.write_node(&guard, (leaf, Kind::Leaf), 0, &[])?;
        tree.anchor(&guard)?.start(&guard, Self::root_word(leaf, 0)?);
        // PERSIST: anchor and leaf are ordered before the root that leads to them; lost, there is no tree.
        guard.fence();
        pool.create_tree(name, (F::ENGINE.0, C::ID), &words)?;
        space.published();
        Ok(tree)
    }

    /// Opens a tree of this kind: finishes its redo log, and marks what it reaches if the pool asks for that.
    pub(crate) fn open_at(pool: &Pool<M>, root: &TreeRoot) -> Result<Self> {
        let start = Instant::now();
        let mut tree = Self::unopened(pool, &root.words)?;
        let guard = pool.pin();
        Redo::recover(&guard, tree.anchor(&guard)?)?;
        tree.root(&guard)?;
        if pool.needs_mark() {
            tree.recovered_from_crash = true;
            tree.mark_reached(&guard)?;
        }
        drop(guard);
        tree.recovery_ns = start.elapsed().as_nanos() as u64;
        Ok(tree)
    }
}
