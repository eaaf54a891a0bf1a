//! The order of a leaf's entries: those from its last consolidation are sorted, the few that came
//! since are not.

use std::cmp::Ordering as Compare;

use smallvec::SmallVec;

use crate::Result;

/// The entries of a leaf, or of two.
pub(super) type Run<T> = SmallVec<[T; 64]>;

/// Sorts `run`, whose first `sorted` entries are in order; the others are few. Entries that compare
/// equal keep their order. Returns whether there are any.
#[inline(always)]
pub(super) fn sort<T: Copy>(
    run: &mut [T],
    sorted: usize,
    compare: impl Fn(&T, &T) -> Result<Compare>,
) -> Result<bool> {
    let mut equal = false;
    let mut goes_before = |one: &T, other: &T| -> Result<bool> {
        let found = compare(one, other)?;
        equal |= found.is_eq();
        Ok(found.is_lt())
    };
    let mut copied: Run<T> = SmallVec::from_slice(&run[sorted..]);
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
    while early > 0 && left > 0 {
        let one = late[left - 1];
        let other = run[early - 1];
        let is_early = goes_before(&one, &other)?;
        run[early + left - 1] = if is_early { other } else { one };
        early -= usize::from(is_early);
        left -= usize::from(!is_early);
    }
    run[..left].copy_from_slice(&late[..left]);
    Ok(equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_merged_and_equals_are_noticed() {
        let compare = |one: &(u32, u32), other: &(u32, u32)| Ok(one.0.cmp(&other.0));
        let sorted_at = |keys: &[u32], sorted: usize| {
            let mut run: Vec<_> = (0..).zip(keys).map(|(place, key)| (*key, place)).collect();
            let equal = sort(&mut run, sorted, compare).unwrap();
            let mut expected: Vec<_> = (0..).zip(keys).map(|(place, key)| (*key, place)).collect();
            expected.sort_by_key(|entry| entry.0);
            assert_eq!(run, expected, "{keys:?}, {sorted} sorted");
            equal
        };
        assert!(!sorted_at(&[], 0));
        assert!(!sorted_at(&[5, 3, 1, 4], 0));
        assert!(!sorted_at(&[1, 4, 6, 9, 8, 0, 5, 2], 4));
        assert!(!sorted_at(&[1, 4, 6], 3));
        assert!(sorted_at(&[1, 4, 6, 4, 0], 3));
        assert!(sorted_at(&[1, 7, 0, 7, 3], 1));
        assert!(!sorted_at(&[2, 3, 1], 2));
    }

    #[test]
    fn an_error_of_the_comparison_is_the_result() {
        let fails = |_: &u64, _: &u64| Err(crate::Error::corrupt(64, "a record"));
        assert!(sort(&mut [1, 2, 0], 2, fails).is_err());
        assert!(sort(&mut [1, 2], 2, fails).is_ok(), "nothing to compare");
    }
}
