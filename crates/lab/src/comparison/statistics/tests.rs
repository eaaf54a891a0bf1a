use super::*;

/// Whether two figures are the same, but for rounding.
fn is_same(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-9
}

#[test]
fn a_median_is_in_the_middle() {
    assert!(is_same(median(&[3.0, 1.0, 2.0]), 2.0));
    assert!(is_same(median(&[4.0, 2.0]), 3.0));
    assert!(median(&[]).is_nan());
}

#[test]
fn a_spread_is_the_highest_over_the_lowest() {
    assert!(is_same(spread(&[2.0, 6.0, 4.0]), 3.0));
    assert!(is_same(spread(&[5.0]), 1.0));
    assert!(is_same(spread(&[]), 1.0));
    assert!(is_same(spread(&[0.0, 1.0]), 1.0));
}
