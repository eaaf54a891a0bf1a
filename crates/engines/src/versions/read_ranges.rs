//! Ranges of keys, sorted to find out whether a key lies in one of them.

use std::ops::Bound;

use crate::index::Bounds;

/// Ranges of one tree, in the order in which they begin. A range that ends no later than one before
/// it is left out, so the upper ends ascend as well.
#[derive(Debug)]
pub(super) struct SortedRanges<'r> {
    ranges: Vec<&'r Bounds>,
}

impl<'r> SortedRanges<'r> {
    /// Sorts ranges. O(n log n).
    pub(super) fn of(ranges: impl Iterator<Item = &'r Bounds>) -> Self {
        let mut by_begin: Vec<&Bounds> = ranges.collect();
        by_begin.sort_unstable_by_key(|range| begin_of(range));
        let mut sorted: Vec<&Bounds> = Vec::with_capacity(by_begin.len());
        for range in by_begin {
            // The last of the list has the highest end so far, and begins no later.
            match sorted.last() {
                Some(last) if !ends_above(range, last) => {}
                _ => sorted.push(range),
            }
        }
        Self { ranges: sorted }
    }

    /// Whether a key lies within one of the ranges. O(log n).
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        let begun = self
            .ranges
            .partition_point(|range| range.is_above_lower(key));
        // Of the ranges that begin at the key or before it, the last one has the highest end.
        match self.ranges[..begun].last() {
            Some(last) => last.is_below_upper(key),
            None => false,
        }
    }
}

/// Where a range begins: the key of its lower end, and whether it begins behind that key.
fn begin_of(range: &Bounds) -> (&[u8], bool) {
    match &range.lower {
        Bound::Unbounded => (&[], false),
        Bound::Included(key) => (key, false),
        Bound::Excluded(key) => (key, true),
    }
}

/// Whether a range may have keys above the upper end of another one.
fn ends_above(range: &Bounds, other: &Bounds) -> bool {
    match (&range.upper, &other.upper) {
        (_, Bound::Unbounded) => false,
        (Bound::Unbounded, _) => true,
        (Bound::Included(key), Bound::Excluded(other)) => key >= other,
        (
            Bound::Included(key) | Bound::Excluded(key),
            Bound::Included(other) | Bound::Excluded(other),
        ) => key > other,
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
