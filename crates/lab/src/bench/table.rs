//! The figures that a person looks for first, with units, as a short table. `--json` has all.

use super::args::Workload;
use super::report::{Report, median};
use super::subject::{Recoveries, Sizes};

/// Nanoseconds, in the unit that suits them.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 999.5 => format!("{} ns", digits(ns)),
        ns if ns < 999.5e3 => format!("{} \u{b5}s", digits(ns / 1e3)),
        ns if ns < 999.5e6 => format!("{} ms", digits(ns / 1e6)),
        ns => format!("{} s", digits(ns / 1e9)),
    }
}

/// A throughput, from the time of an operation.
fn rate(ns: f64) -> String {
    let mops = 1e3 / ns;
    if mops >= 1.0 { format!("{} M/s", digits(mops)) } else { format!("{} k/s", digits(mops * 1e3)) }
}

/// A number with three digits, or all before its point.
fn digits(number: f64) -> String {
    match number {
        number if number >= 99.95 => format!("{number:.0}"),
        number if number >= 9.995 => format!("{number:.1}"),
        number => format!("{number:.2}"),
    }
}

/// A number with separators: 1,234,567.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

impl Report {
    /// The table.
    pub(crate) fn text(&self) -> String {
        let (args, ns) = (&self.args, median(&self.ns));
        let mut rows: Vec<(&str, String, String)> = Vec::new();
        let mut row = |name, figure: String, what: String| rows.push((name, figure, what));
        let beside = |ours: f64, theirs: &[f64], whose: &str| {
            let ratio = median(theirs) / ours;
            if ratio.is_finite() { format!("{} times {whose}", digits(ratio)) } else { String::new() }
        };
        row(
            "throughput",
            rate(ns),
            beside(ns, &self.baseline_ns, "that of the standard library's BTreeMap on one thread"),
        );
        if !self.alone_ns.is_empty() {
            row("", String::new(), beside(ns, &self.alone_ns, "that of one thread"));
        }
        if !self.ram_ns.is_empty() {
            row("", String::new(), beside(ns, &self.ram_ns, "that of the same tree in memory"));
        }
        let floor = ns / self.floor_ns();
        if args.threads == 1 && floor.is_finite() {
            let what = "the floor: one find, and the persists that the engine's paper needs";
            row("operation", time(ns), format!("{} times {what}", digits(floor)));
        }
        let latency = |quantile| time(self.latency_ns.value_at_quantile(quantile) as f64);
        let rest = [(0.99, "99%"), (0.999, "99.9%")]
            .map(|(quantile, name)| format!("{name} within {}", latency(quantile)));
        let longest = time(self.latency_ns.max() as f64);
        row(
            "latency",
            latency(0.5),
            format!("half of the operations; {}; the longest {longest}", rest.join(", ")),
        );
        if args.workload != Workload::Find {
            let (find, map) = (median(&self.find_ns), median(&self.baseline_find_ns));
            row("find", time(find), format!("afterwards, in the same tree; BTreeMap {}", time(map)));
        }
        if self.persist_ns > 0.0 {
            let each = self.counts.map_or_else(String::new, |(counts, operations)| {
                format!("; {} an operation", digits(counts.fences as f64 / operations as f64))
            });
            row("persist", time(self.persist_ns), format!("one line until it is durable{each}"));
        }
        if self.load_mops.is_finite() {
            row("load", rate(1e3 / self.load_mops), "of the keys before the runs".to_owned());
        }
        if let Some(Sizes { keys, used_bytes, volatile_bytes, medium }) = &self.sizes {
            let per_key = |bytes: u64| digits(bytes as f64 / *keys as f64);
            row(
                "space",
                format!("{} bytes a key", per_key(*used_bytes)),
                format!("in the pool; {} of memory", per_key(*volatile_bytes)),
            );
            row("medium", String::new(), medium.clone());
        }
        if let Some(Recoveries { clean, crash, .. }) = &self.recoveries {
            let clean = time(clean.as_nanos() as f64);
            row(
                "recovery",
                time(crash.as_nanos() as f64),
                format!("to open it after a crash; {clean} after a clean close"),
            );
        }
        let threads =
            if args.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", args.threads) };
        let runs =
            if args.runs == 1 { "1 run".to_owned() } else { format!("the median of {} runs", args.runs) };
        let mut text = format!(
            "{}, workload {}: {} keys of {} bytes, {} operations on {threads}, {runs}",
            args.engine,
            args.workload.name(),
            grouped(args.keys),
            args.key_size,
            grouped(args.operations()),
        );
        for (name, figure, what) in rows {
            text += format!("\n{name:<11} {figure:>16}  {what}").trim_end();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        assert_eq!(
            [time(69.768), time(3887.0), time(126_207.0), time(2.5e9)],
            ["69.8 ns", "3.89 \u{b5}s", "126 \u{b5}s", "2.50 s"]
        );
        assert_eq!([rate(69.768), rate(5e6)], ["14.3 M/s", "0.20 k/s"]);
        assert_eq!([0, 999, 1_234_567].map(grouped), ["0", "999", "1,234,567"]);
    }
}
