//! The most important figures, with units, as a short table. `--json` has all.

use super::args::{Args, Distribution, Workload};
use super::key_shape::KeyShape;
use super::report::Report;
use super::subject::{Recoveries, TreeSizes};
use crate::comparison::{digits, grouped, median};

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
    if mops >= 1.0 {
        format!("{} M/s", digits(mops))
    } else {
        format!("{} k/s", digits(mops * 1e3))
    }
}

/// A line of the table: its name, its figure, and the figure's meaning.
type Row = (&'static str, String, String);

/// How many times `theirs` is of `ours`, in words; nothing if one of them was not measured.
fn times(ours: f64, theirs: &[f64], whose: &str) -> String {
    let ratio = median(theirs) / ours;
    if ratio.is_finite() {
        format!("{} times {whose}", digits(ratio))
    } else {
        String::new()
    }
}

/// The workload, and the distribution by which it chooses keys.
fn workload_in_words(args: &Args) -> String {
    let workload = match args.workload.ycsb() {
        Some(letter) => format!("workload {} (YCSB-{letter})", args.workload.name()),
        None => format!("workload {}", args.workload.name()),
    };
    if !args.workload.chooses_keys() {
        return workload;
    }
    let distribution = args.distribution();
    let skew = match distribution {
        Distribution::Zipfian | Distribution::Latest => format!(" (theta {})", args.theta),
        _ => String::new(),
    };
    format!("{workload}, {} keys{skew}", distribution.name())
}

/// How many keys there are, and of which shape and length.
fn keys_in_words(args: &Args) -> String {
    let keys = grouped(args.keys);
    if args.key_shape == KeyShape::Random {
        return format!("{keys} keys of {} bytes", args.key_size());
    }
    let shape = args.key_shape.name();
    let bytes = args.key_shape.key_bytes_in_words();
    format!("{keys} keys ({shape}) of {bytes} bytes")
}

impl Report {
    /// The table.
    pub(crate) fn text(&self) -> String {
        let args = &self.args;
        let many = |count: usize, thing: &str| {
            if count == 1 {
                format!("1 {thing}")
            } else {
                format!("{count} {thing}s")
            }
        };
        let mut text = format!(
            "{}, {}: {}, {} operations on {}, the median of {}",
            args.engine,
            workload_in_words(args),
            keys_in_words(args),
            grouped(args.operations()),
            many(args.threads, "thread"),
            many(args.runs, "run"),
        );
        let mut rows = self.speed();
        rows.extend(self.parts());
        for (name, figure, what) in rows {
            text += format!("\n{name:<11} {figure:>16}  {what}").trim_end();
        }
        text
    }

    /// Throughput and latency.
    fn speed(&self) -> Vec<Row> {
        let ns = median(&self.ns);
        let whose = "that of the standard library's BTreeMap on one thread";
        let mut rows: Vec<Row> =
            vec![("throughput", rate(ns), times(ns, &self.baseline_ns, whose))];
        let others = [
            (&self.alone_ns, "that of one thread"),
            (&self.ram_ns, "that of the same tree in memory"),
        ];
        for (theirs, whose) in others.into_iter().filter(|(theirs, _)| !theirs.is_empty()) {
            rows.push(("", String::new(), times(ns, theirs, whose)));
        }
        let floor = ns / self.floor_ns();
        // The floor has persists of memory. A write to a file waits for a disk, which has a line of
        // its own.
        let waits_for_disk = self.disk.is_some() && self.budget() > 0.0;
        if self.args.threads == 1 && floor.is_finite() && !waits_for_disk {
            let what = "the floor: one find, and the persists that the engine's paper needs";
            rows.push((
                "operation",
                time(ns),
                format!("{} times {what}", digits(floor)),
            ));
        }
        let within = |quantile| time(self.latency_ns.value_at_quantile(quantile) as f64);
        let longest = time(self.latency_ns.max() as f64);
        let rest = format!(
            "99% within {}, 99.9% within {}; the longest {longest}",
            within(0.99),
            within(0.999)
        );
        rows.push((
            "latency",
            within(0.5),
            format!("half of the operations; {rest}"),
        ));
        rows
    }

    /// The parts of the time of an operation, and the space of the tree.
    fn parts(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        if self.args.workload != Workload::Find {
            let find = median(&self.find_ns);
            let map = median(&self.baseline_find_ns);
            rows.push((
                "find",
                time(find),
                format!("afterwards, in the same tree; BTreeMap {}", time(map)),
            ));
        }
        if self.persist_ns > 0.0 {
            let each = self
                .counts
                .map_or_else(String::new, |(counts, operations)| {
                    format!(
                        "; {} an operation",
                        digits(counts.fences as f64 / operations as f64)
                    )
                });
            rows.push((
                "persist",
                time(self.persist_ns),
                format!("one line until it is durable{each}"),
            ));
        }
        if let Some(disk) = &self.disk {
            rows.push((
                "disk",
                rate(1e9 / disk.syncs_per_second),
                "durable writes of 4 KiB, by one thread in the same folder".to_owned(),
            ));
        }
        if self.load_mops.is_finite() {
            rows.push((
                "load",
                rate(1e3 / self.load_mops),
                "of the keys before the runs".to_owned(),
            ));
        }
        if let Some(TreeSizes {
            keys,
            used_bytes,
            volatile_bytes,
            medium,
        }) = &self.sizes
        {
            let per_key = |bytes: u64| digits(bytes as f64 / *keys as f64);
            let beside = format!("in the pool; {} of memory", per_key(*volatile_bytes));
            rows.push((
                "space",
                format!("{} bytes a key", per_key(*used_bytes)),
                beside,
            ));
            rows.push(("medium", String::new(), medium.clone()));
        }
        if let Some(Recoveries { clean, crash, .. }) = &self.recoveries {
            let [clean, crash] = [clean, crash].map(|duration| time(duration.as_nanos() as f64));
            rows.push((
                "recovery",
                crash,
                format!("to open it after a crash; {clean} after a clean close"),
            ));
        }
        rows
    }
}

#[cfg(test)]
mod tests;
