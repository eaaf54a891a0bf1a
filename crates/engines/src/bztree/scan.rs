//! Ranges: one leaf after the other, each copied at once, both ways.
//!
//! Between two leaves a range holds nothing: no pin, no node. It goes on from the separator where the last leaf ended, by a
//! new descent. A leaf's bounds never change, so whatever was split or merged meanwhile, no key comes twice, and none that
//! is there for the whole range is missed.

use std::cmp::Ordering;
use std::ops::Bound;

use medium::{Medium, kernels};
use pool::{Error, Guard, Result};

use super::BzTree;
use super::find::{Goal, Path, Step};
use super::layout::{LEAF_STATUS, Leaf, LeafStatus, Pointer};
use super::runs::{self, Run};
use crate::index::{Bounds, Codec, Direction, EntryWords, Scan};
use crate::pmwcas::{Seen, VALUE_MASK};

/// Leaves behind the one that is read that are prefetched, as far as they have its parent.
const LEAVES_AHEAD: usize = 3;

type Snapshot = Run<EntryWords>;

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// The visible entries of a leaf, in the order of their keys.
    fn snapshot(
        &self,
        guard: &Guard<'_, M>,
        leaf: Leaf<'_>,
        seen: &mut Seen,
        into: &mut Snapshot,
    ) -> Result<()> {
        into.clear();
        let status = self.leaf_status(guard, leaf)?;
        let entries = leaf.entries(guard, status.count())?;
        kernels::prefetch_lines(entries);
        let mut sorted = 0;
        for (entry, cells) in entries.iter().enumerate() {
            if let Some(found) = self.read_cells(guard, cells, entry, seen)? {
                into.push(found.words);
            }
            if entry + 1 == status.sorted() {
                sorted = into.len();
            }
        }
        let compare = |one: &EntryWords, other: &EntryWords| Self::compare_entries(guard, *one, *other);
        if runs::sort(into, sorted, compare)? {
            // A key that was removed and inserted again while its leaf was read: the later entry counts.
            let mut kept = 0;
            for position in 0..into.len() {
                if position + 1 == into.len() || compare(&into[position], &into[position + 1])?.is_ne() {
                    into[kept] = into[position];
                    kept += 1;
                }
            }
            into.truncate(kept);
        }
        Ok(())
    }

    /// Prefetches what follows the leaf at the end of a path under the same parent: of the next leaf the entries, of those
    /// behind it the line that tells how many these are.
    #[inline(always)]
    fn prefetch_siblings(guard: &Guard<'_, M>, path: &[Step]) {
        let Some(Ok((inner, position))) =
            path.last().map(|step| Self::inner(guard, step.offset).map(|inner| (inner, step.position)))
        else {
            return;
        };
        let following = inner.children.iter().take(Self::header(guard, inner).separators() + 1);
        for (ahead, child) in following.skip(position + 1).take(LEAVES_AHEAD).enumerate() {
            let pointer = Pointer(child.load(guard) & VALUE_MASK);
            let Ok(leaf) = Self::leaf(guard, pointer.offset()) else { continue };
            if ahead == 0 {
                let status = LeafStatus(leaf.head[LEAF_STATUS].load(guard) & VALUE_MASK);
                let Ok(entries) = leaf.entries(guard, status.count()) else { continue };
                kernels::prefetch_lines(entries);
            } else {
                kernels::prefetch_read(leaf.head);
            }
        }
    }

    /// Calls `visit` with the entries from `from` on, ascending and leaf by leaf, until it returns `false`.
    pub(super) fn visit_words(&self, from: u64, visit: &mut dyn FnMut(&[[u64; 2]]) -> bool) -> Result<()>
    where
        C: for<'k> Codec<Key<'k> = u64>,
    {
        let (mut resume, mut snapshot) = (from, Snapshot::new());
        loop {
            let next = {
                let (guard, mut seen) = (self.pool.pin(), Seen::default());
                let (path, offset) = self.descend_path(&guard, &Goal::Key(resume), &mut seen)?;
                Self::prefetch_siblings(&guard, &path);
                self.snapshot(&guard, Self::leaf(&guard, offset)?, &mut seen, &mut snapshot)?;
                self.pmwcas.settle(&guard, &mut seen)?;
                Self::upper_bound(&guard, &path)?.map(|separator| separator.word)
            };
            let start = snapshot.partition_point(|words| words[0] < resume);
            if start < snapshot.len() && !visit(&snapshot[start..]) {
                return Ok(());
            }
            match next {
                None => return Ok(()),
                Some(next) if next > resume => resume = next,
                Some(_) => return Err(Error::corrupt(self.anchor, "separators out of order")),
            }
        }
    }
}

/// Keys and values of a leaf, or why one of them cannot be read.
type Ahead = Vec<Result<(Vec<u8>, Vec<u8>)>>;

/// A range being read.
pub(super) struct RangeScan<'i, M: Medium, C: Codec> {
    tree: &'i BzTree<M, C>,
    direction: Direction,
    bounds: Bounds,
    /// Where the range goes on.
    from: Bound<Vec<u8>>,
    /// What is still to come of the leaf that was read last, the next one last: keys and values, or why one cannot be read.
    ahead: Ahead,
    finished: bool,
}

impl<'i, M: Medium, C: Codec> RangeScan<'i, M, C> {
    pub(super) fn new(tree: &'i BzTree<M, C>, bounds: Bounds, direction: Direction) -> Self {
        let from = match direction {
            Direction::Forward => bounds.lower.clone(),
            Direction::Reverse => bounds.upper.clone(),
        };
        Self { tree, direction, bounds, from, ahead: Vec::new(), finished: false }
    }

    /// The entries of a leaf that lie within both the bounds and what is still to come, the next one last.
    fn copy_leaf(&self, guard: &Guard<'_, M>, leaf: u64, seen: &mut Seen) -> Result<Ahead> {
        let mut snapshot = Snapshot::new();
        self.tree.snapshot(guard, BzTree::<M, C>::leaf(guard, leaf)?, seen, &mut snapshot)?;
        let rest = match self.direction {
            Direction::Forward => Bounds { lower: self.from.clone(), upper: self.bounds.upper.clone() },
            Direction::Reverse => Bounds { lower: self.bounds.lower.clone(), upper: self.from.clone() },
        };
        let mut ahead = Ahead::new();
        for words in snapshot {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            if let Err(error) = C::copy_key(guard, words, &mut key) {
                match rest.side_of(words[0]) {
                    Ordering::Less => {}
                    Ordering::Equal => ahead.push(Err(error)),
                    Ordering::Greater => break,
                }
                continue;
            }
            if !rest.is_above_lower(&key) {
                continue;
            }
            if !rest.is_below_upper(&key) {
                break;
            }
            ahead.push(C::copy_value(guard, words, &mut value).map(|()| (key, value)));
        }
        if self.direction == Direction::Forward {
            ahead.reverse();
        }
        Ok(ahead)
    }

    /// Reads the next leaf; `finished` is set with the last one. After an error nothing has changed.
    fn refill(&mut self) -> Result<()> {
        let (guard, mut seen) = (self.tree.pool.pin(), Seen::default());
        let from = self.from.clone();
        let (path, leaf) = self.descend(&guard, &from, &mut seen)?;
        let ahead = self.copy_leaf(&guard, leaf, &mut seen)?;
        self.tree.pmwcas.settle(&guard, &mut seen)?;
        let end = match self.direction {
            Direction::Forward => BzTree::<M, C>::upper_bound(&guard, &path)?,
            Direction::Reverse => BzTree::<M, C>::lower_bound(&guard, &path)?,
        };
        let Some(end) = end else {
            (self.ahead, self.finished) = (ahead, true);
            return Ok(());
        };
        let mut key = Vec::new();
        BzTree::<M, C>::copy_separator(&guard, end, &mut key)?;
        let start = match &from {
            Bound::Included(start) | Bound::Excluded(start) => Some(start),
            Bound::Unbounded => None,
        };
        let goes_on = start.is_none_or(|start| match self.direction {
            Direction::Forward => key > *start,
            Direction::Reverse => key <= *start,
        });
        if !goes_on || self.direction == Direction::Reverse && from == Bound::Excluded(key.clone()) {
            return Err(Error::corrupt(self.tree.anchor, "separators out of order"));
        }
        self.ahead = ahead;
        match self.direction {
            Direction::Forward => {
                self.finished = !self.bounds.is_below_upper(&key);
                self.from = Bound::Included(key);
            }
            Direction::Reverse => {
                self.finished = match &self.bounds.lower {
                    Bound::Included(lower) | Bound::Excluded(lower) => key <= *lower,
                    Bound::Unbounded => false,
                };
                self.from = Bound::Excluded(key);
            }
        }
        Ok(())
    }

    fn descend(&self, guard: &Guard<'_, M>, from: &Bound<Vec<u8>>, seen: &mut Seen) -> Result<(Path, u64)> {
        let goal = match (self.direction, from) {
            (Direction::Forward, Bound::Unbounded) => Goal::First,
            (Direction::Reverse, Bound::Unbounded) => Goal::Last,
            (Direction::Reverse, Bound::Excluded(key)) => Goal::Below(key, false),
            (Direction::Reverse, Bound::Included(key)) => Goal::Below(key, true),
            (Direction::Forward, Bound::Included(key) | Bound::Excluded(key)) => Goal::Key(C::bound(key)),
        };
        self.tree.descend_path(guard, &goal, seen)
    }
}

impl<M: Medium, C: Codec> Scan for RangeScan<'_, M, C> {
    fn next_into(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        loop {
            if let Some(entry) = self.ahead.pop() {
                (*key, *value) = entry?;
                return Ok(true);
            }
            if self.finished {
                return Ok(false);
            }
            self.refill()?;
        }
    }
}
