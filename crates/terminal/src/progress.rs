//! Progress bars, and formatted figures.

use std::thread::Builder;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

use crate::context::Context;

pub use medium::size as bytes;

/// A bar up to `total`, or a spinner that counts. Drawn on standard error if that is a terminal,
/// and removed at the end. `message` is in place before the first frame.
pub fn bar(context: Context, total: Option<u64>, message: &str, template: &str) -> ProgressBar {
    if context.quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10));
    // All templates are in this crate; should one not parse, the default style is used.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("\u{2588}\u{2593}\u{2591}"));
    }
    bar.set_message(message.to_owned());
    if may_start_thread() {
        bar.enable_steady_tick(Duration::from_millis(100));
    }
    bar.with_finish(ProgressFinish::AndClear)
}

/// Whether the system gives this process another thread. A bar that ticks panics without one;
/// without ticks it moves only with the work.
fn may_start_thread() -> bool {
    match medium::start_thread("everleaf-probe", || ()) {
        Ok(probe) => probe.join().is_ok(),
        Err(_) => false,
    }
}

/// A bar of entries up to `total`.
pub fn entries(context: Context, total: u64, message: &str) -> ProgressBar {
    bar(
        context,
        Some(total),
        message,
        "{msg} {bar:20} {percent:>3}%, {human_pos} of {human_len} entries, {elapsed}",
    )
}

/// Shows `message` and the elapsed time while `run` does work that cannot be counted. Nothing
/// appears if it takes less than a moment.
pub fn while_running<T>(context: Context, message: &str, run: impl FnOnce() -> T) -> T {
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let show = move || {
            if is_done
                .recv_timeout(MOMENT)
                .is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                let _bar = bar(context, None, message, "{spinner} {msg}, {elapsed}");
                // An error means that it is done.
                let _ = is_done.recv();
            }
        };
        // Without a thread nothing is shown.
        let _ = Builder::new().spawn_scoped(scope, show);
        let result = run();
        drop(done);
        result
    })
}

/// Work that takes less time gets no bar.
const MOMENT: Duration = Duration::from_millis(300);

/// A count with separators: 1,234,567.
pub fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// A count of things: 1 tree, 2 trees, 3 entries.
pub fn many(number: u64, thing: &str) -> String {
    let things = match thing.strip_suffix('y') {
        _ if number == 1 => thing.to_owned(),
        _ if thing == "leaf" => "leaves".to_owned(),
        Some(stem) if !stem.ends_with('e') => format!("{stem}ies"),
        _ => format!("{thing}s"),
    };
    format!("{} {things}", count(number))
}

/// A number of things with a verb: 1 entry was, 2 entries were.
pub fn were(number: u64, thing: &str) -> String {
    format!("{} {}", many(number, thing), was_or_were(number))
}

/// A number with a verb: 1 was, 2 were.
pub fn was(number: u64) -> String {
    format!("{} {}", count(number), was_or_were(number))
}

fn was_or_were(number: u64) -> &'static str {
    if number == 1 { "was" } else { "were" }
}

/// A rate per second: 1.21 M/s.
pub fn rate(number: u64, duration: Duration) -> String {
    let rate = per_second(number, duration);
    match rate {
        rate if rate >= 1e6 => format!("{:.2} M/s", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.0} k/s", rate / 1e3),
        rate => format!("{}/s", count(rate.round() as u64)),
    }
}

/// A rate per second.
pub fn per_second(number: u64, duration: Duration) -> f64 {
    number as f64 / duration.as_secs_f64().max(1e-9)
}

/// A duration with three digits: 12.3 ms.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        seconds if seconds >= 10.0 => format!("{seconds:.1} s"),
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds if seconds >= 1e-3 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{:.0} \u{b5}s", seconds * 1e6),
    }
}

#[cfg(test)]
mod tests;
