//! Numbers as people and programs read them.

use serde_json::{Value, json};

/// A number with three digits, or all before its point.
pub fn digits(number: f64) -> String {
    match number {
        number if number >= 99.95 => format!("{number:.0}"),
        number if number >= 9.995 => format!("{number:.1}"),
        // Two significant digits: "0.00 times" would say nothing.
        number if (1e-6..0.0995).contains(&number) => {
            format!("{number:.*}", (1.0 - number.log10().floor()) as usize)
        }
        number => format!("{number:.2}"),
    }
}

/// A number with separators: 1,234,567.
pub fn grouped(number: u64) -> String {
    if number < 1000 {
        number.to_string()
    } else {
        format!("{},{:03}", grouped(number / 1000), number % 1000)
    }
}

/// A figure for programs, with three digits behind its point; `null` if it was not measured.
pub(crate) fn rounded(value: f64) -> Value {
    if value.is_finite() {
        json!((value * 1000.0).round() / 1000.0)
    } else {
        Value::Null
    }
}

#[cfg(test)]
mod tests;
