use super::*;

#[test]
fn figures_are_short() {
    assert_eq!(duration(Duration::from_micros(12_345)), "12.3 ms");
    assert_eq!(duration(Duration::from_millis(12_345)), "12.3 s");
    assert_eq!(rate(2_500_000, Duration::from_secs(1)), "2.50 M/s");
    assert_eq!(rate(5_921, Duration::from_secs(1)), "5,921/s");
    assert_eq!(count(1_234_567), "1,234,567");
}

#[test]
fn one_thing_is_no_plural() {
    assert_eq!(
        [many(1, "tree"), many(0, "key"), many(2, "entry")],
        ["1 tree", "0 keys", "2 entries"]
    );
    assert_eq!(
        [were(1, "entry"), were(3000, "leaf")],
        ["1 entry was", "3,000 leaves were"]
    );
}
