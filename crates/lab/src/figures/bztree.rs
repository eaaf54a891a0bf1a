//! The figures of the BzTree paper (section 7): upserts as writes, 8-byte keys and values unless
//! the figure says otherwise, the tree filled beforehand.

use super::{Claim, Figure, KEYS, Measure, Point, Setup, THREADS, bench_args, threads_in_words};
use crate::bench::{
    Distribution, PoolMedium, Sample, Series, Shares, Trees, Workload, count_of, recoveries,
    sample, shares, words,
};
use crate::comparison::{grouped, median};
use crate::notes::NoteReceiver;
use medium::SmallPages;
use terminal::failure::Result;

/// One curve.
#[derive(Clone, Copy)]
struct Curve {
    panel: &'static str,
    series: &'static str,
    workload: Workload,
    distribution: Distribution,
    medium: PoolMedium,
}

const fn curve(panel: &'static str, workload: Workload, distribution: Distribution) -> Curve {
    Curve {
        panel,
        series: "bztree",
        workload,
        distribution,
        medium: PoolMedium::Ram,
    }
}

const MOPS: &str = "M ops/s";
const NO_RIVAL: &str = "the paper's Bw-tree, to which its claims compare";

/// The figures; 1 is table 1, 0 is table 2, 2 is the text about recovery.
pub(super) const FIGURES: &[(u8, Measure)] = &[
    (4, random),
    (5, skewed),
    (6, durability),
    (7, ranges),
    (8, sizes),
    (9, parts),
    (1, pmwcas_words),
    (0, memory),
    (2, recovery),
];

fn curve_args(setup: &Setup, curve: &Curve, threads: usize) -> crate::bench::Args {
    let mut bench = bench_args(setup);
    bench.workload = curve.workload;
    bench.distribution = Some(curve.distribution);
    bench.medium = curve.medium;
    bench.threads = threads;
    bench
}

fn measure(
    setup: &Setup,
    curve: &Curve,
    threads: usize,
    notes: NoteReceiver<'_>,
) -> Result<Sample> {
    notes.note(format!(
        "{}, {}, {}",
        curve.panel,
        curve.series,
        threads_in_words(threads)
    ));
    sample(&curve_args(setup, curve, threads))
}

/// Points of throughput by threads, and the percentage of PMwCAS operations that failed, if there
/// were any.
#[derive(Default)]
struct ByThreads {
    points: Vec<Point>,
    failed: Vec<Claim>,
}

impl ByThreads {
    fn note(&mut self, curve: &Curve, threads: usize, sample: &Sample) {
        let count = |name| count_of(&sample.counters, name);
        let attempts = count("pmwcas_attempts");
        let failures = count("pmwcas_failures");
        if attempts > 0 {
            let what = format!(
                "PMwCAS failed, {}, {}, {}",
                curve.panel,
                curve.series,
                threads_in_words(threads)
            );
            let share = 100.0 * failures as f64 / attempts as f64;
            let ours = format!("{share:.3}% of {attempts}");
            // The paper's numbers are of its balanced workload; it bounds all of them.
            let is_balanced = curve.workload == Workload::Balanced;
            let paper = if is_balanced {
                "0.02% to 0.12%, 8 to 48 threads"
            } else {
                "under 0.2%"
            };
            self.failed.push(Claim::new(what, paper, ours));
        }
        self.points.push(Point::new(
            curve.panel,
            curve.series,
            threads as f64,
            sample.mops,
        ));
    }
}

/// Throughput by threads, curve by curve.
fn by_threads(setup: &Setup, curves: &[Curve], notes: NoteReceiver<'_>) -> Result<ByThreads> {
    let mut found = ByThreads::default();
    for curve in curves {
        for &threads in &setup.threads {
            let sample = measure(setup, curve, threads, notes)?;
            found.note(curve, threads, &sample);
        }
    }
    Ok(found)
}

/// Claims about each curve: its throughput at the most threads, and how it scales. The paper
/// compares with a rival.
fn scaling(setup: &Setup, figure: &Figure, claims: &[(&str, &'static str)]) -> Vec<Claim> {
    let Some(fewest) = setup.threads.iter().min() else {
        return Vec::new();
    };
    let most = setup.threads.iter().max().unwrap_or(fewest);
    let claim = |(panel, paper): &(&str, &'static str)| {
        let one = figure.at(panel, "bztree", *fewest as f64);
        let all = figure.at(panel, "bztree", *most as f64);
        let ours = format!(
            "{all:.2} M/s on {}, {:.2}x those of {fewest}",
            threads_in_words(*most),
            all / one
        );
        Claim::new(*panel, paper, ours)
    };
    claims.iter().map(claim).collect()
}

/// A figure of throughput by threads, without the paper's rival.
fn scales(
    setup: &Setup,
    notes: NoteReceiver<'_>,
    title: &'static str,
    curves: &[Curve],
    claims: &[(&str, &'static str)],
) -> Result<Figure> {
    let ByThreads { points, failed } = by_threads(setup, curves, notes)?;
    let mut figure = Figure {
        title,
        x: THREADS,
        y: MOPS,
        points,
        claims: Vec::new(),
        missing: NO_RIVAL,
    };
    figure.claims = scaling(setup, &figure, claims);
    figure.claims.extend(failed);
    Ok(figure)
}

fn random(setup: &Setup, notes: NoteReceiver<'_>) -> Result<Figure> {
    let curves = [
        curve("read-only", Workload::Find, Distribution::Uniform),
        curve("90/10", Workload::ReadMostly, Distribution::Uniform),
        curve("75/25", Workload::ReadHeavy, Distribution::Uniform),
        curve("50/50", Workload::Balanced, Distribution::Uniform),
    ];
    let claims = [
        ("read-only", "1.28x the Bw-tree"),
        ("90/10", "-"),
        ("75/25", "1.7x the Bw-tree"),
        ("50/50", "2.4x the Bw-tree"),
    ];
    scales(
        setup,
        notes,
        "Figure 4: random keys, volatile",
        &curves,
        &claims,
    )
}

fn skewed(setup: &Setup, notes: NoteReceiver<'_>) -> Result<Figure> {
    let curves = [
        curve("zipfian, read-only", Workload::Find, Distribution::Zipfian),
        curve("zipfian, 50/50", Workload::Balanced, Distribution::Zipfian),
        curve(
            "ascending, read-only",
            Workload::Find,
            Distribution::Monotonic,
        ),
        curve(
            "ascending, 50/50",
            Workload::Balanced,
            Distribution::Monotonic,
        ),
    ];
    let claims = [
        ("zipfian, read-only", "1.33x the Bw-tree"),
        ("zipfian, 50/50", "4.3x the Bw-tree"),
        ("ascending, read-only", "-"),
        ("ascending, 50/50", "34 M/s, Bw-tree 21"),
    ];
    scales(
        setup,
        notes,
        "Figure 5: zipfian and ascending keys, volatile",
        &curves,
        &claims,
    )
}

/// A tree in memory and a durable one, in turns.
fn durability(setup: &Setup, notes: NoteReceiver<'_>) -> Result<Figure> {
    // The same pages for both media: a file in memory need not get huge ones.
    let _small_pages = SmallPages::take();
    let media = [("volatile", PoolMedium::Ram), ("durable", PoolMedium::Dax)];
    let mixes = [
        ("90/10", Workload::ReadMostly),
        ("50/50", Workload::Balanced),
    ];
    let curves = mixes.map(|(panel, workload)| {
        let distribution = Distribution::Uniform;
        media.map(|(series, medium)| Curve {
            panel,
            series,
            workload,
            distribution,
            medium,
        })
    });
    let most = setup.threads_max();
    notes.note("loading a tree in memory and a durable one");
    let mut trees = Trees::load(&curves[0].map(|curve| curve_args(setup, &curve, most)))?;
    let mut found = ByThreads::default();
    for pair in &curves {
        for &threads in &setup.threads {
            notes.note(format!(
                "{}, volatile and durable, {}",
                pair[0].panel,
                threads_in_words(threads)
            ));
            let of = |tree: usize| Series {
                tree,
                args: curve_args(setup, &pair[tree], threads),
            };
            for (curve, sample) in pair.iter().zip(trees.samples(&[of(0), of(1)])?) {
                found.note(curve, threads, &sample);
            }
        }
    }
    let ByThreads { points, failed } = found;
    let title = "Figure 6: cost of durability, random keys";
    let mut figure = Figure {
        title,
        x: THREADS,
        y: MOPS,
        points,
        claims: Vec::new(),
        missing: "",
    };
    for (panel, paper) in [("90/10", "5%"), ("50/50", "12%")] {
        for &threads in &setup.threads {
            let at = |series| figure.at(panel, series, threads as f64);
            let cost = 100.0 * (1.0 - at("durable") / at("volatile"));
            let what = format!("durability costs, {panel}, {}", threads_in_words(threads));
            figure
                .claims
                .push(Claim::new(what, paper, format!("{cost:.1}%")));
        }
    }
    figure.claims.extend(failed);
    Ok(figure)
}

fn ranges(setup: &Setup, notes: NoteReceiver<'_>) -> Result<Figure> {
    let curves = [
        curve("90/10", Workload::ScanMostly, Distribution::Uniform),
        curve("50/50", Workload::ScanBalanced, Distribution::Uniform),
        curve("ranges of 100", Workload::Scan, Distribution::Uniform),
    ];
    let claims = [
        ("90/10", "1.8x the Bw-tree; 28.5x on 48 threads"),
        ("50/50", "2.7x the Bw-tree"),
        ("ranges of 100", "-"),
    ];
    let title =
        "Figure 7: ranges of up to 10 and upserts, ranges of 100 alone, random keys, volatile";
    let mut figure = scales(setup, notes, title, &curves, &claims)?;
    if let Some(most) = setup.threads.iter().max() {
        let [mostly, balanced] =
            ["90/10", "50/50"].map(|panel| figure.at(panel, "bztree", *most as f64));
        let ours = format!("{:.1}x", balanced / mostly);
        figure
            .claims
            .push(Claim::new("50/50 over 90/10", "2.1x", ours));
    }
    Ok(figure)
}

/// Sizes of the tree that is recovered, as far as `--keys` goes.
const SIZES: [u64; 6] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000];

/// Bytes of a record and its metadata: the paper's unit of free space, in entries.
const RECORD_BYTES: usize = 24;
/// Sizes of free space, from the paper's first to its last.
const FREE_BYTES: [usize; 5] = [512, 256, 128, 64, 32];
/// The entries of the paper's node of a KiB.
const KIB_ENTRIES: usize = 40;

fn sizes(setup: &Setup, notes: NoteReceiver<'_>) -> Result<Figure> {
    let mut bench = bench_args(setup);
    bench.medium = PoolMedium::Ram;
    bench.threads = setup.threads_max();
    let mut points = Vec::new();
    let mut measure = |panel: String, bytes: usize, bench: &crate::bench::Args| -> Result<()> {
        notes.note(format!("{panel}, {bytes} bytes"));
        let y = sample(bench)?.mops;
        points.push(Point::new(panel, "bztree", bytes as f64, y));
        Ok(())
    };
    for (mix, workload) in [
        ("read-only", Workload::Find),
        ("75/25", Workload::ReadHeavy),
    ] {
        bench.workload = workload;
        for bytes in [8, 16, 32, 64, 128] {
            // The codec for records at each size, as the paper has no path for short keys either.
            let sized = crate::bench::Args {
                key_size: Some(bytes),
                records: true,
                ..bench.clone()
            };
            measure(format!("key size, {mix}"), bytes, &sized)?;
        }
        for bytes in FREE_BYTES {
            let sized = crate::bench::Args {
                set: vec![
                    format!("leaf-entries={KIB_ENTRIES}"),
                    format!("free-entries={}", bytes / RECORD_BYTES),
                ],
                ..bench.clone()
            };
            measure(format!("free space, {mix}"), bytes, &sized)?;
        }
    }
    let mut figure = Figure {
        title: "Figure 8: key sizes, and free space of leaves of 1 KiB; random keys, volatile",
        x: "bytes",
        y: MOPS,
        points,
        claims: Vec::new(),
        missing: "free space to the byte: counted in entries of 24 bytes, and what the allocator adds is free as well; upserts \
                  here need none, for they are in place",
    };
    for (panel, from, to, paper) in [
        ("key size, read-only", 8, 128, "-39%"),
        ("key size, 75/25", 8, 128, "-46%"),
        ("free space, read-only", 512, 32, "+45%"),
    ] {
        let at = |bytes: i32| figure.at(panel, "bztree", f64::from(bytes));
        let what = format!("{panel}, from {from} to {to} bytes");
        let ours = format!("{:+.0}%", 100.0 * (at(to) / at(from) - 1.0));
        figure.claims.push(Claim::new(what, paper, ours));
    }
    let panel = "free space, 75/25";
    let at = |bytes: &usize| figure.at(panel, "bztree", *bytes as f64);
    let best = FREE_BYTES
        .into_iter()
        .max_by(|one, other| at(one).total_cmp(&at(other)));
    let ours = best.map_or_else(String::new, |bytes| format!("{bytes} bytes"));
    figure
        .claims
        .push(Claim::new(format!("{panel}, the best"), "128 bytes", ours));
    Ok(figure)
}

fn parts(setup: &Setup, notes: NoteReceiver<'_>) -> Result<Figure> {
    // Both media get the same pages, as in `durability`.
    let _small_pages = SmallPages::take();
    let mut points = Vec::new();
    let mut claims = Vec::new();
    for (panel, workload, papers) in [
        ("50/50", Workload::Balanced, ["12%", "61%"]),
        (
            "read-only",
            Workload::Find,
            ["-", "78% where less is written"],
        ),
    ] {
        for (series, medium) in [("volatile", PoolMedium::Ram), ("durable", PoolMedium::Dax)] {
            notes.note(format!("{panel}, {series}"));
            let mut bench = bench_args(setup);
            bench.workload = workload;
            bench.medium = medium;
            let Shares {
                leaf,
                inner,
                pmwcas,
                rest,
            } = shares(&bench)?;
            for (x, y) in [(1.0, leaf), (2.0, inner), (3.0, pmwcas), (4.0, rest)] {
                points.push(Point::new(panel, series, x, y));
            }
            for (what, share, paper) in [
                ("PMwCAS", pmwcas, papers[0]),
                ("searching nodes", leaf + inner, papers[1]),
            ] {
                let what = format!("{what}, {panel}, {series}");
                claims.push(Claim::new(what, paper, format!("{share:.0}%")));
            }
        }
    }
    Ok(Figure {
        title: "Figure 9: where the time goes, random keys, one thread; one operation in eight is timed part by part",
        x: "1 leaf, 2 inner nodes, 3 PMwCAS, 4 rest",
        y: "% of the time",
        points,
        claims,
        missing: "cycles of a profiler: the clock is read between the parts, and its time taken off; persists count as PMwCAS",
    })
}

fn pmwcas_words(setup: &Setup, _: NoteReceiver<'_>) -> Result<Figure> {
    let mut bench = bench_args(setup);
    bench.medium = PoolMedium::Ram;
    bench.keys = setup.keys.clamp(5_000, 20_000);
    let mut points = Vec::new();
    let mut claims = Vec::new();
    for (operation, attempts, words) in words(&bench)? {
        let paper = match operation {
            "insert" => "2, 2",
            "remove" | "consolidation" => "2",
            "update" => "3 by pointer, 2 in line",
            "split" => "1, 3",
            _ => "2, 3",
        };
        points.push(Point::new(
            "words",
            operation,
            attempts as f64,
            words as f64,
        ));
        let ours = match attempts {
            1 => words.to_string(),
            more => format!("{words} in {more} operations of PMwCAS"),
        };
        claims.push(Claim::new(operation, paper, ours));
    }
    let title = "Table 1: words of PMwCAS by operation, counted";
    Ok(Figure {
        title,
        x: "operations of PMwCAS",
        y: "words",
        points,
        claims,
        missing: "",
    })
}

fn memory(setup: &Setup, notes: NoteReceiver<'_>) -> Result<Figure> {
    let papers = [
        (100_000, "2 MB"),
        (1_000_000, "21 MB"),
        (10_000_000, "228 MB"),
    ];
    let mut points = Vec::new();
    let mut claims = Vec::new();
    for (keys, paper) in papers.into_iter().filter(|(keys, _)| *keys <= setup.keys) {
        let mut bench = bench_args(setup);
        bench.workload = Workload::Balanced;
        bench.medium = PoolMedium::Ram;
        bench.keys = keys;
        bench.runs = 1;
        bench.threads = setup.threads_max();
        notes.note(format!("{} keys", grouped(keys)));
        let bytes = sample(&bench)?.used_bytes as f64;
        points.push(Point::new("memory", "bztree", keys as f64, bytes / 1e6));
        let ours = format!(
            "{:.1} MB, {:.1} bytes a key",
            bytes / 1e6,
            bytes / keys as f64
        );
        claims.push(Claim::new(
            format!("{} keys, after the 50/50 run", grouped(keys)),
            paper,
            ours,
        ));
    }
    let missing = "the paper's Bw-tree; the peak: bytes are counted after the run";
    Ok(Figure {
        title: "Table 2: memory",
        x: KEYS,
        y: "MB",
        points,
        claims,
        missing,
    })
}

fn recovery(setup: &Setup, notes: NoteReceiver<'_>) -> Result<Figure> {
    let mut points = Vec::new();
    let mut claims = Vec::new();
    for keys in SIZES.into_iter().filter(|keys| *keys <= setup.keys) {
        let mut bench = bench_args(setup);
        bench.medium = PoolMedium::Dax;
        bench.keys = keys;
        bench.workload = Workload::Find;
        notes.note(format!("{} keys", grouped(keys)));
        let mut micros = [Vec::new(), Vec::new()];
        for _ in 0..setup.runs {
            let found = recoveries(&bench)?;
            for (all, time) in micros.iter_mut().zip([found.crash, found.clean]) {
                all.push(time.as_secs_f64() * 1e6);
            }
        }
        let [crash, clean] = micros.map(|all| median(&all));
        for (series, y) in [("after a crash", crash), ("after a clean close", clean)] {
            points.push(Point::new("open to first answer", series, keys as f64, y));
        }
        let ours = format!("{crash:.0} us; {clean:.0} us after a clean close");
        claims.push(Claim::new(
            format!("{} keys, after a crash", grouped(keys)),
            "145 us",
            ours,
        ));
    }
    let missing = "operations under way at the crash; recovery reads their descriptors in any case";
    let title = "Recovery: open to the first answered get";
    Ok(Figure {
        title,
        x: KEYS,
        y: "us",
        points,
        claims,
        missing,
    })
}
