use super::*;

#[test]
fn figures_have_three_digits_and_a_unit() {
    assert_eq!(
        [time(69.768), time(3887.0), time(126_207.0), time(2.5e9)],
        ["69.8 ns", "3.89 \u{b5}s", "126 \u{b5}s", "2.50 s"]
    );
    assert_eq!([rate(69.768), rate(5e6)], ["14.3 M/s", "0.20 k/s"]);
}
