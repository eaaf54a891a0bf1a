//! The mark after a crash: which allocations the tree reaches, found out while it is at work.
//!
//! A walk through all keys, leaf by leaf: each time from the root to the leaf where the last one ended, marking the inner
//! nodes on the way, the leaf and its records, and the record of the separator that ends it. No barrier is needed, for
//! nothing of the old generation is allocated meanwhile, and what is reached at the end of the walk was so all the time:
//!
//! - *A node's range of keys never changes.* A leaf that is there all the time is the one that covers its smallest key when
//!   the walk comes to that; so it is found, and the inner nodes above it that are there all the time are on the way.
//! - *A record that is visible all the time* is so in the leaf that covers its key when the walk comes by, whichever that
//!   is: it may be copied from leaf to leaf, before or after. If the leaf is replaced while it is read, it was frozen
//!   first, and shows what it had.
//! - *A separator that is there all the time* ends some leaf when the walk comes to that, however inner nodes are split and
//!   merged; they hand on its record. So it is not the nodes whose separators are marked: a node that is new, in space
//!   that was used before, can have old ones.
//!
//! What the walk misses because it was removed before, and somebody still reads, its retirement marks; and the mark ends
//! only when all who may be about to retire something are done ([`pool::Pool::finish_marking_later`]).

use medium::Medium;
use pool::Guard;

use super::BzTree;
use super::find::{Goal, Path};
use crate::index::Codec;
use crate::pmwcas::Seen;
use crate::{Error, Result};

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// Marks all that the tree reaches; asks after each leaf whether to go on. Whether it came to the end. O(n).
    pub(super) fn mark_reached(&self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        self.pool.mark(self.anchor)?;
        let (mut marked, mut start) = (Path::new(), None::<Vec<u8>>);
        loop {
            let guard = self.pool.pin();
            let goal = match &start {
                None => Goal::First,
                Some(key) => Goal::Key(C::bound(key)),
            };
            let (path, leaf) = self.descend_path(&guard, &goal, &mut Seen::default())?;
            for (depth, step) in path.iter().enumerate() {
                // Most are those of the leaf before. One whose space was used again is new, and need not be marked.
                if marked.get(depth).map(|marked| marked.offset) != Some(step.offset) {
                    self.pool.mark(step.offset)?;
                }
            }
            self.mark_leaf(&guard, leaf)?;
            let Some(end) = Self::upper_bound(&guard, &path)? else { return Ok(true) };
            if end.tail != 0 {
                self.pool.mark(end.tail)?;
            }
            let mut key = Vec::new();
            Self::copy_separator(&guard, end, &mut key)?;
            if start.is_some_and(|start| start >= key) {
                return Err(Error::corrupt(self.anchor, "separators out of order"));
            }
            (marked, start) = (path, Some(key));
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
        self.visible(guard, leaf)?.into_iter().try_for_each(|(_, words)| C::mark(&self.pool, words))
    }
}
