use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn order_bytes_keep_the_order(low: u64, high: u64, one: u64, other: u64) {
        let scale = Scale::covering(low.min(high), low.max(high));
        prop_assert!(scale.order(one.min(other)) <= scale.order(one.max(other)));
        prop_assert_eq!(Scale::FLAT.order(one), 0);
    }

    #[test]
    fn bounds_are_told_from_what_lies_far_beyond(low: u64, length in 256..u64::MAX / 4) {
        let low = low / 2;
        let scale = Scale::covering(low, low + length);
        prop_assert!(scale.order(low + length) >= 127);
        prop_assert!(scale.order(low) <= 1);
    }
}

#[test]
fn neighbouring_keys_differ_in_a_narrow_leaf() {
    let scale = Scale::covering(1000, 1100);
    assert!((1000..1100).all(|key| scale.order(key) < scale.order(key + 1)));
}
