//! The mark after a crash: which allocations the tree reaches, found out while it is at work.
//!
//! The walk visits all keys, leaf by leaf, from the lowest to the highest. For each leaf it takes the
//! writers' lock for a moment, descends from the root to the key where the leaf before ended, and
//! marks the inner nodes on the way, the leaf, the leaf's records, and the tail of the separator at
//! the leaf's end.
//!
//! Between two leaves, writers change the tree. No barrier is needed: no space of the old generation
//! is allocated meanwhile, so old space that is reachable at the end of the walk was reachable
//! throughout. The walk finds each kind of it:
//!
//! - *A node's lower bound never changes*: a split leaves the lower entries in the node, and a merge
//!   takes the right node's entries into the left one. A leaf that stays in the tree covers its lower
//!   bound when the walk reaches that key, and the inner nodes that stay above it are on the way.
//! - *A record that stays visible* is in the leaf that covers its key when the walk reaches that key.
//! - *A separator that stays in the tree* ends some leaf when the walk reaches that leaf, in whichever
//!   inner node it lies by then. So tails are marked leaf by leaf, not node by node.
//!
//! A new root, the removal of a root with a single child, and a bulk load into an empty tree only add
//! new space, or retire old space. Space that is retired during the walk, and that a reader may still
//! use, is marked when it is retired. A writer retires after it has given the lock back, perhaps when
//! the walk has ended already; so the mark ends only once every thread that was pinned at the end of
//! the walk is done ([`pool::Pool::finish_marking_later`]).

use medium::Medium;
use medium::sync::hand_over;
use pool::Guard;

use super::find::{Path, Step};
use super::{Format, Item, NodeKind, Paged, PagedNode};
use crate::index::Codec;
use crate::kit::bits;
use crate::kit::scan::{Tied, Way};
use crate::{Error, Result};

impl<M: Medium, C: Codec, F: Format> Paged<M, C, F> {
    /// Marks all that the tree reaches; asks after each leaf whether to go on. Returns whether it
    /// came to the end. Writers wait while a leaf is marked. O(leaves) descents, and O(n) with
    /// records.
    pub(super) fn mark_reached(&self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        self.pool.mark(self.anchor)?;
        let mut marked = Path::new();
        let mut start: Option<Vec<u8>> = None;
        loop {
            let guard = self.pool.pin();
            let writers_kept_out = self.latch.keep_writers_out(&guard);
            let way = match &start {
                None => Way::First,
                Some(key) => Way::Key(C::bound(key), Tied::UpTo),
            };
            let mut path = Path::new();
            let leaf = self.descend(&guard, &way, |step| path.push(step))?;
            self.mark_path(&path, &marked)?;
            self.mark_leaf(&guard, &leaf)?;
            let Some(end) = self.upper_bound(&guard, &path)? else {
                return Ok(true);
            };
            if end.tail != 0 {
                C::mark(&self.pool, [end.word, end.tail])?;
            }
            let key = Self::key_of(&guard, NodeKind::Inner, end)?;
            hand_over(writers_kept_out);
            if start.is_some_and(|start| start >= key) {
                return Err(Error::corrupt(self.anchor, "separators out of order"));
            }
            marked = path;
            start = Some(key);
            drop(guard);
            if !go_on() {
                return Ok(false);
            }
        }
    }

    /// Marks the inner nodes on the path to a leaf. Most are on the path to the leaf before, which
    /// is `marked`. A node in space that was reused meanwhile is new, and needs no mark.
    fn mark_path(&self, path: &Path, marked: &Path) -> Result<()> {
        for (depth, step) in path.iter().enumerate() {
            let is_marked = marked
                .get(depth)
                .is_some_and(|marked| marked.offset == step.offset);
            if !is_marked {
                self.pool.mark(step.offset)?;
            }
        }
        Ok(())
    }

    /// Marks a leaf and its records. Under the writers' lock.
    fn mark_leaf(&self, guard: &Guard<'_, M>, leaf: &PagedNode<'_>) -> Result<()> {
        self.pool.mark(leaf.offset)?;
        if !C::TIES {
            return Ok(());
        }
        if let Some(what) = self.format.fault(guard, leaf) {
            return Err(Error::corrupt(leaf.offset, what));
        }
        for slot in bits(self.format.live(guard, leaf)) {
            let item = leaf.item(guard, slot);
            C::mark(&self.pool, [item.word, item.value])?;
        }
        Ok(())
    }

    /// The separator behind the leaf at the end of a path; `None` for the last leaf. Under the
    /// writers' lock.
    fn upper_bound(&self, guard: &Guard<'_, M>, path: &Path) -> Result<Option<Item>> {
        for Step { offset, position } in path.iter().rev() {
            let node = self.node(guard, *offset, NodeKind::Inner)?;
            let order = self.order(guard, &node, self.format.live(guard, &node))?;
            if *position < order.count() {
                let separator = node.item(guard, order.slot(*position));
                Self::tail_of(&node, separator)?;
                return Ok(Some(separator));
            }
        }
        Ok(None)
    }
}
