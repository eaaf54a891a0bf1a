use super::*;

#[test]
fn numbers_have_three_digits_or_all_before_the_point() {
    assert_eq!(
        [0.00456, 0.0561, 0.0, 1.0, 12.345, 123.4, 1234.5].map(digits),
        ["0.0046", "0.056", "0.00", "1.00", "12.3", "123", "1234"]
    );
}

#[test]
fn long_numbers_have_separators() {
    assert_eq!(
        [0, 999, 1_002_003, 1_234_567].map(grouped),
        ["0", "999", "1,002,003", "1,234,567"]
    );
}

#[test]
fn figures_that_were_not_measured_are_null() {
    assert_eq!(rounded(f64::NAN), Value::Null);
    assert_eq!(rounded(2.00049), json!(2.0));
}
