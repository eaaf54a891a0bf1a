//! Sorted ranges have the same keys as all ranges one by one.

use super::*;

/// Keys that are ends of ranges.
const ENDS: [&str; 3] = ["b", "d", "f"];
/// These keys, and keys beside them.
const KEYS: [&str; 8] = ["", "a", "b", "c", "d", "e", "f", "g"];

fn ends() -> Vec<Bound<Vec<u8>>> {
    let mut ends = vec![Bound::Unbounded];
    for end in ENDS {
        ends.push(Bound::Included(end.into()));
        ends.push(Bound::Excluded(end.into()));
    }
    ends
}

/// All ranges with these ends, empty ones included.
fn all_ranges() -> Vec<Bounds> {
    let mut ranges = Vec::new();
    for lower in ends() {
        for upper in ends() {
            ranges.push(Bounds {
                lower: lower.clone(),
                upper,
            });
        }
    }
    ranges
}

fn expect_same_keys(ranges: &[&Bounds]) {
    let sorted = SortedRanges::of(ranges.iter().copied());
    for key in KEYS {
        let key = key.as_bytes();
        let expected = ranges.iter().any(|range| range.contains(key));
        assert_eq!(sorted.contains(key), expected, "{key:?} in {ranges:?}");
    }
}

#[test]
fn sorted_ranges_have_the_keys_of_all() {
    let all = all_ranges();
    expect_same_keys(&[]);
    for one in &all {
        expect_same_keys(&[one]);
        for two in &all {
            expect_same_keys(&[one, two]);
            for three in &all {
                expect_same_keys(&[one, two, three]);
            }
        }
    }
}

/// A key is compared with few of the ranges.
#[test]
fn ranges_within_another_one_are_left_out() {
    let word = |number: u32| number.to_be_bytes().to_vec();
    let range = |from: u32, to: u32| Bounds {
        lower: Bound::Included(word(from)),
        upper: Bound::Included(word(to)),
    };
    let mut ranges: Vec<Bounds> = (0..1000).map(|from| range(2 * from, 2 * from)).collect();
    ranges.push(range(99, 501));
    let sorted = SortedRanges::of(ranges.iter());
    assert_eq!(sorted.ranges.len(), 1000 - 201 + 1);
    assert!(sorted.contains(&word(501)) && !sorted.contains(&word(503)));
}
