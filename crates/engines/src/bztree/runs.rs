//! The order of a leaf's entries: those from its last consolidation are sorted, the few that were
//! added since are not.

use std::cell::Cell;
use std::cmp::Ordering as Compare;

use smallvec::SmallVec;

use crate::Result;

/// The entries of a leaf, or of two.
pub(super) type EntryRun<T> = SmallVec<[T; 64]>;

/// The outcome of a sort.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SortOutcome {
    /// Whether entries compared equal.
    pub(super) has_equal: bool,
    /// The positions of the entries that were not in order before, one bit each: a leaf has fewer
    /// than 64 entries.
    pub(super) late: u64,
}

/// Sorts `run`, whose first `sorted` entries are in order; the others are few. Entries that compare
/// equal keep their order.
#[inline(always)]
pub(super) fn sort<T: Copy>(
    run: &mut [T],
    sorted: usize,
    compare: impl Fn(&T, &T) -> Result<Compare>,
) -> Result<SortOutcome> {
    let has_equal = Cell::new(false);
    let goes_before = |one: &T, other: &T| -> Result<bool> {
        let found = compare(one, other)?;
        has_equal.set(has_equal.get() | found.is_eq());
        Ok(found.is_lt())
    };
    let mut copied: EntryRun<T> = SmallVec::from_slice(&run[sorted..]);
    let late = copied.as_mut_slice();
    for position in 1..late.len() {
        let entry = late[position];
        let mut hole = position;
        while hole > 0 && goes_before(&entry, &late[hole - 1])? {
            late[hole] = late[hole - 1];
            hole -= 1;
        }
        late[hole] = entry;
    }
    // From the end, so that entries that are in place already are not moved. Both indices move
    // without a branch: no processor predicts which entry comes next.
    let mut early = sorted;
    let mut left = late.len();
    let mut late_positions = 0_u64;
    while early > 0 && left > 0 {
        let one = late[left - 1];
        let other = run[early - 1];
        let is_early = goes_before(&one, &other)?;
        let position = early + left - 1;
        run[position] = if is_early { other } else { one };
        late_positions |= u64::from(!is_early) << position;
        early -= usize::from(is_early);
        left -= usize::from(!is_early);
    }
    run[..left].copy_from_slice(&late[..left]);
    late_positions |= (1 << left) - 1;
    Ok(SortOutcome {
        has_equal: has_equal.get(),
        late: late_positions,
    })
}

#[cfg(test)]
mod tests;
