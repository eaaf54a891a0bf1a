use super::*;

#[test]
fn runs_are_merged_and_equals_are_noticed() {
    let compare = |one: &(u32, u32), other: &(u32, u32)| Ok(one.0.cmp(&other.0));
    let sorted_at = |keys: &[u32], sorted: usize| {
        let mut run: Vec<_> = (0..).zip(keys).map(|(place, key)| (*key, place)).collect();
        let found = sort(&mut run, sorted, compare).unwrap();
        let mut expected: Vec<_> = (0..).zip(keys).map(|(place, key)| (*key, place)).collect();
        expected.sort_by_key(|entry| entry.0);
        assert_eq!(run, expected, "{keys:?}, {sorted} sorted");
        let is_late = |entry: &(u32, u32)| entry.1 as usize >= sorted;
        let late = (0..).zip(&run).filter(|(_, entry)| is_late(entry));
        let late = late.fold(0, |bits, (position, _)| bits | 1 << position);
        assert_eq!(found.late, late, "{keys:?}, {sorted} sorted");
        found.has_equal
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
