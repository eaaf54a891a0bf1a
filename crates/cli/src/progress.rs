//! Progress bars, and formatted figures.

use std::time::Duration;

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::context::Context;

/// A bar up to `total`, or a spinner that counts. Drawn on standard error if that is a terminal.
pub(crate) fn bar(context: Context, total: Option<u64>, template: &str) -> ProgressBar {
    if context.quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10));
    // All templates are in this crate; should one not parse, the default style is used.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("\u{2588}\u{2593}\u{2591}"));
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// A count with separators: 1,234,567.
pub(crate) fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// Bytes with a unit: 1.21 MiB.
pub(crate) fn bytes(number: u64) -> String {
    HumanBytes(number).to_string()
}

/// A rate per second: 1.21 M/s.
pub(crate) fn rate(number: u64, duration: Duration) -> String {
    let rate = per_second(number, duration);
    match rate {
        rate if rate >= 1e6 => format!("{:.2} M/s", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.0} k/s", rate / 1e3),
        rate => format!("{rate:.0}/s"),
    }
}

/// A rate per second.
pub(crate) fn per_second(number: u64, duration: Duration) -> f64 {
    number as f64 / duration.as_secs_f64().max(1e-9)
}

/// A duration with three digits: 12.3 ms.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        seconds if seconds >= 10.0 => format!("{seconds:.1} s"),
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds if seconds >= 1e-3 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{:.0} \u{b5}s", seconds * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(duration(Duration::from_micros(12_345)), "12.3 ms");
        assert_eq!(duration(Duration::from_millis(12_345)), "12.3 s");
        assert_eq!(rate(2_500_000, Duration::from_secs(1)), "2.50 M/s");
        assert_eq!(count(1_234_567), "1,234,567");
    }
}
