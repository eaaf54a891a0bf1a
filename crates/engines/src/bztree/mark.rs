//! The mark after a crash: it finds the allocations that the tree reaches, while the tree is in
//! use.
//!
//! The walk visits all keys, leaf by leaf. For each leaf it descends from the root to the key where
//! the last leaf ended, and marks the inner nodes on the way, the leaf, its records, and the record
//! of the separator at its end. No barrier is needed: no space of the old generation is allocated
//! meanwhile, so old space that is reachable at the end of the walk was reachable throughout. Each
//! kind of it is found:
//!
//! - *A node's range of keys never changes.* A leaf that stays in the tree is the one that covers
//!   its smallest key when the walk reaches that key, and the inner nodes above it that stay in the
//!   tree are on the way.
//! - *A record that stays visible* is in the leaf that covers its key when the walk reads that
//!   leaf; it does not matter that other threads copy its entry from leaf to leaf. If the leaf is
//!   replaced while it is read, it was frozen before that, and still has the entry.
//! - *A separator that stays in the tree* ends some leaf when the walk reaches that leaf, however
//!   inner nodes are split and merged, which keep its record. So records of separators are marked
//!   leaf by leaf, not node by node: a new node, which needs no mark, can hold old separators.
//!
//! Space that was removed before the walk reached it, and that a reader may still use, is marked
//! when it is retired. The mark ends only after every thread that may be about to retire something
//! is done ([`pool::Pool::finish_marking_later`]).

use medium::Medium;
use pool::Guard;

use super::BzTree;
use super::find::{DescentGoal, Path};
use crate::index::Codec;
use crate::pmwcas::Seen;
use crate::{Error, Result};

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// Marks all allocations that the tree reaches. Calls `go_on` after each leaf, and stops if it
    /// returns `false`. Returns whether it came to the end. O(n).
    pub(super) fn mark_reached(&self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        self.pool.mark(self.anchor)?;
        let mut marked = Path::new();
        let mut start = None::<Vec<u8>>;
        loop {
            let guard = self.pool.pin();
            let goal = match &start {
                None => DescentGoal::First,
                Some(key) => DescentGoal::Key(C::bound(key)),
            };
            let (path, leaf) = self.descend_path(&guard, &goal, &mut Seen::default())?;
            for (depth, step) in path.iter().enumerate() {
                // Most inner nodes were marked on the path of the leaf before. A node in space that
                // was reused meanwhile is new, and need not be marked.
                if marked.get(depth).map(|marked| marked.offset) != Some(step.offset) {
                    self.pool.mark(step.offset)?;
                }
            }
            self.mark_leaf(&guard, leaf)?;
            let Some(end) = Self::upper_bound(&guard, &path)? else {
                return Ok(true);
            };
            if end.tail != 0 {
                self.pool.mark(end.tail)?;
            }
            let mut key = Vec::new();
            Self::copy_separator(&guard, end, &mut key)?;
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

    fn mark_leaf(&self, guard: &Guard<'_, M>, offset: u64) -> Result<()> {
        self.pool.mark(offset)?;
        if !C::TIES {
            return Ok(());
        }
        let leaf = Self::leaf(guard, offset)?;
        self.visible(guard, leaf)?
            .into_iter()
            .try_for_each(|(_, words)| C::mark(&self.pool, words))
    }
}
