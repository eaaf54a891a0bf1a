use super::*;
use medium::arena::Volatile;
use proptest::collection;
use proptest::prelude::*;

proptest! {
    #[test]
    fn order_bytes_keep_the_order(low: u64, high: u64, one: u64, other: u64) {
        let scale = Scale::covering(low.min(high), low.max(high));
        prop_assert!(scale.order(one.min(other)) <= scale.order(one.max(other)));
        prop_assert_eq!(Scale::FLAT.order(one), 0);
        prop_assert!(!scale.is_of_digits() && !Scale::FLAT.is_of_digits());
    }

    #[test]
    fn numbers_of_digits_keep_the_order(
        beginning in prop_oneof![Just(0_usize), Just(9), Just(60)],
        width in 1_u8..=255,
        tails in collection::vec(collection::vec(any::<u8>(), 0..12), 2..20),
        others in collection::vec(collection::vec(any::<u8>(), 0..12), 2..20),
    ) {
        let begun = |tail: &Vec<u8>| [&vec![7; beginning], &tail[..]].concat();
        // Few different bytes, as of digits; or all, zeros and the greatest included.
        let narrow = |tail: &Vec<u8>| tail.iter().map(|byte| byte % width).collect::<Vec<_>>();
        let keys: Vec<_> = tails.iter().map(|tail| begun(&narrow(tail))).collect();
        let digits = KeyDigits::of(&keys);
        let mut all = keys;
        all.extend(others.iter().map(begun));
        all.extend(others.iter().map(narrow));
        all.extend_from_slice(&others);
        all.sort();
        let numbers: Vec<_> = all.iter().map(|key| digits.number(key)).collect();
        prop_assert!(numbers.is_sorted(), "{:?} {:?}", digits, all);
        let stored = LeafDigits::<medium::Dax>::zeros();
        stored.store(&digits);
        prop_assert_eq!((stored.count_failure(), stored.count_failure()), (1, 2));
        prop_assert_eq!(stored.load(), digits);
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

fn assert_no_orders_tie(keys: &[Vec<u8>]) {
    let digits = KeyDigits::of(keys);
    let numbers: Vec<_> = keys.iter().map(|key| digits.number(key)).collect();
    let scale = Scale::covering(numbers[0], numbers[keys.len() - 1]).of_digits();
    assert!(scale.is_of_digits());
    let orders: Vec<_> = numbers.iter().map(|number| scale.order(*number)).collect();
    assert!(orders.is_sorted_by(|one, next| one < next), "{orders:?}");
}

/// An order byte parts all pairs of decimal or hexadecimal digits.
#[test]
fn two_digits_behind_a_shared_beginning_do_not_tie() {
    let decimal = |number: usize| format!("tenant3/invoice/0000001{number:02}456").into_bytes();
    assert_no_orders_tie(&(0..100).map(decimal).collect::<Vec<_>>());
    let hexadecimal = |number: usize| format!("tenant42/user/3{number:02x}9c01f").into_bytes();
    assert_no_orders_tie(&(0..256).map(hexadecimal).collect::<Vec<_>>());
}
