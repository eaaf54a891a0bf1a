//! What a transaction has read: keys, and ranges as far as they were consumed.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::changes::{ChangedLately, FirstChanged, Stamp, TreeVersions};
use super::fault::VersionsFault;
use super::read_ranges::SortedRanges;
use crate::index::{Bounds, Direction};
use crate::{Error, ErrorKind, Result};

/// The keys and ranges that a transaction has read.
#[derive(Debug, Default)]
pub struct ReadSet {
    trees: Vec<TreeReads>,
}

#[derive(Debug)]
struct TreeReads {
    tree: Arc<TreeVersions>,
    /// Its name, for errors.
    name: String,
    keys: BTreeSet<Vec<u8>>,
    ranges: Vec<ReadRange>,
}

/// The reads of a transaction that commits, sorted to be compared with keys that have changed.
#[derive(Debug)]
pub(super) struct SortedReads<'r> {
    trees: Vec<SortedTreeReads<'r>>,
}

#[derive(Debug)]
struct SortedTreeReads<'r> {
    reads: &'r TreeReads,
    ranges: SortedRanges<'r>,
}

/// A range that is being read.
#[derive(Debug)]
struct ReadRange {
    direction: Direction,
    /// The part that was read; `None` before the first entry.
    bounds: Option<Bounds>,
    /// Where the reading began.
    from: Bound<Vec<u8>>,
}

/// One range of a [`ReadSet`].
#[derive(Clone, Copy, Debug)]
pub struct ReadSpan {
    tree: usize,
    range: usize,
}

impl ReadSet {
    /// Notes that a key was read.
    pub fn note_key(&mut self, tree: &Arc<TreeVersions>, name: &str, key: &[u8]) {
        let tree = self.number(tree, name);
        let keys = &mut self.trees[tree].keys;
        if !keys.contains(key) {
            keys.insert(key.to_vec());
        }
    }

    /// Notes that a range is being read, from one of its ends on.
    pub fn begin_range(
        &mut self,
        tree: &Arc<TreeVersions>,
        name: &str,
        from: Bound<Vec<u8>>,
        direction: Direction,
    ) -> ReadSpan {
        let tree = self.number(tree, name);
        let ranges = &mut self.trees[tree].ranges;
        ranges.push(ReadRange {
            direction,
            bounds: None,
            from,
        });
        ReadSpan {
            tree,
            range: ranges.len() - 1,
        }
    }

    /// Notes how far a range was read: to a key, or to its end.
    pub fn extend_range(&mut self, span: ReadSpan, to: Bound<&[u8]>) {
        let range = &mut self.trees[span.tree].ranges[span.range];
        let bounds = range.bounds.get_or_insert_with(|| {
            let mut bounds = Bounds::all();
            match range.direction {
                Direction::Forward => bounds.lower = range.from.clone(),
                Direction::Reverse => bounds.upper = range.from.clone(),
            }
            bounds
        });
        let end = match range.direction {
            Direction::Forward => &mut bounds.upper,
            Direction::Reverse => &mut bounds.lower,
        };
        set_bound(end, to);
    }

    /// Checks that nothing that was read has changed since `stamp`.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`].
    pub(super) fn expect_unchanged_since(&self, stamp: Stamp) -> Result<()> {
        for reads in &self.trees {
            reads.expect_unchanged_since(stamp)?;
        }
        Ok(())
    }

    /// The reads, sorted for [`SortedReads::expect_unchanged_lately`]. O(ranges * log ranges).
    pub(super) fn sorted(&self) -> SortedReads<'_> {
        let trees = self.trees.iter().map(|reads| SortedTreeReads {
            reads,
            ranges: SortedRanges::of(reads.spans()),
        });
        SortedReads {
            trees: trees.collect(),
        }
    }

    fn number(&mut self, tree: &Arc<TreeVersions>, name: &str) -> usize {
        let known = self
            .trees
            .iter()
            .position(|reads| Arc::ptr_eq(&reads.tree, tree));
        known.unwrap_or_else(|| {
            self.trees.push(TreeReads {
                tree: Arc::clone(tree),
                name: name.to_owned(),
                keys: BTreeSet::new(),
                ranges: Vec::new(),
            });
            self.trees.len() - 1
        })
    }
}

impl TreeReads {
    /// The parts of its ranges that were read.
    fn spans(&self) -> impl Iterator<Item = &Bounds> {
        self.ranges.iter().filter_map(|range| range.bounds.as_ref())
    }

    fn expect_unchanged_since(&self, stamp: Stamp) -> Result<()> {
        let keys = self.keys.iter().map(Vec::as_slice);
        match self.tree.first_changed(keys, self.spans(), stamp) {
            None => Ok(()),
            Some(changed) => Err(self.conflict(changed)),
        }
    }

    fn conflict(&self, changed: FirstChanged) -> Error {
        let key = match changed {
            FirstChanged::Key(key) => Some(key),
            FirstChanged::WholeTree => None,
        };
        let tree = self.name.clone();
        ErrorKind::Conflict { tree, key }.into()
    }
}

impl SortedReads<'_> {
    /// Does the same as [`ReadSet::expect_unchanged_since`] for a stamp that is not long ago. The
    /// caller has the clock's lock. O(writes since then * log reads), unless these writes were too
    /// many to be known.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`].
    pub(super) fn expect_unchanged_lately(&self, stamp: Stamp) -> Result<()> {
        for sorted in &self.trees {
            let reads = sorted.reads;
            let was_read = |key: &[u8]| sorted.has(key);
            match reads.tree.changed_lately(stamp, was_read) {
                ChangedLately::No => {}
                ChangedLately::Yes(changed) => return Err(reads.conflict(changed)),
                ChangedLately::Unknown => reads.expect_unchanged_since(stamp)?,
            }
        }
        Ok(())
    }
}

impl SortedTreeReads<'_> {
    /// Whether a key was read, by itself or within a range. O(log keys + log ranges).
    fn has(&self, key: &[u8]) -> bool {
        if self.reads.keys.contains(key) {
            return true;
        }
        let faults = self.reads.tree.faults();
        !faults.has(VersionsFault::NoCheckOfRanges) && self.ranges.contains(key)
    }
}

/// Replaces a bound, and uses the memory of its key again.
fn set_bound(bound: &mut Bound<Vec<u8>>, to: Bound<&[u8]>) {
    match (bound, to) {
        (Bound::Included(key), Bound::Included(to)) => {
            key.clear();
            key.extend_from_slice(to);
        }
        (bound, to) => *bound = to.map(<[u8]>::to_vec),
    }
}
