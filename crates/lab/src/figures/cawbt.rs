//! The figures of the CAWBT paper (section 5, and figure 1): 8-byte keys in ascending order, one
//! thread.

use super::{Claim, Figure, KEYS, Measure, Point, Setup, bench_args, threads_in_words};
use crate::bench::{Distribution, Once, PoolMedium, Workload, once, recoveries, split_ns};
use crate::comparison::{grouped, median};
use crate::notes::NoteReceiver;
use medium::SmallPages;
use terminal::failure::{Failure, Result};

/// The figures there are.
pub(super) const FIGURES: &[(u8, Measure)] = &[
    (1, |setup, notes| Lab::new(setup, notes).profile()),
    (7, |setup, notes| Lab::new(setup, notes).splits()),
    (8, |setup, notes| Lab::new(setup, notes).flushes()),
    (9, |setup, notes| Lab::new(setup, notes).inserts()),
    (10, |setup, notes| Lab::new(setup, notes).searches()),
    (11, |setup, notes| Lab::new(setup, notes).rebuilds()),
    (12, |setup, notes| Lab::new(setup, notes).space()),
];

/// How many keys, in place of the paper's numbers.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyScale {
    /// A hundredth of them
    Small,
    /// The paper's, but a fifth of its 10 million
    Machine,
    /// The paper's
    Paper,
}

impl KeyScale {
    fn of(self, keys: u64) -> u64 {
        match self {
            Self::Small => keys / 100,
            Self::Machine => keys.min(2_000_000),
            Self::Paper => keys,
        }
    }
}

/// Keys of figures 1, 7, 8 and 12, and of 9 and 10.
const FEW: u64 = 500_000;
const MANY: u64 = 10_000_000;
/// Keys of figure 11.
const REBUILT: [u64; 4] = [500_000, 1_000_000, 1_500_000, 2_000_000];

/// The keys of a figure.
pub(super) fn keys(number: u8, scale: KeyScale) -> u64 {
    scale.of(match number {
        9 | 10 => MANY,
        11 => REBUILT[3],
        _ => FEW,
    })
}

/// A tree of the paper.
#[derive(Clone, Copy)]
struct Tree {
    series: &'static str,
    engine: &'static str,
    /// The setting that is the degree, and the degree.
    degree: (&'static str, u64),
    /// A further setting.
    set: Option<&'static str>,
    medium: PoolMedium,
}

const CAWBT: Tree = Tree {
    series: "CAWBT",
    engine: "cawbt",
    degree: ("", 4),
    set: None,
    medium: PoolMedium::Dax,
};
/// The tree of the CAWBT paper, but each find goes down to a leaf.
const TO_LEAVES: Tree = Tree {
    series: "CAWBT, no fast search",
    set: Some("fast-search=off"),
    ..CAWBT
};
const FAST_FAIR: Tree = Tree {
    series: "FAST-FAIR",
    engine: "fast-fair",
    degree: ("leaf-entries", 28),
    ..CAWBT
};
const DEGREES: [u64; 3] = [4, 7, 15];

/// The B+-tree without consistency: the same one in memory, where nothing is flushed, fenced or
/// logged.
const PLAIN: &str = "B+-tree, none";
const CONSISTENT: &str = "B+-tree, consistent";
const WB: &str = "wB+-tree";

const MS: &str = "ms";
const DEGREE: &str = "degree";

fn plain(degree: u64) -> Tree {
    Tree {
        series: PLAIN,
        medium: PoolMedium::Ram,
        ..consistent(degree)
    }
}

fn consistent(degree: u64) -> Tree {
    Tree {
        series: CONSISTENT,
        engine: "btree",
        degree: ("degree", degree),
        ..CAWBT
    }
}

fn wb(degree: u64) -> Tree {
    Tree {
        series: WB,
        engine: "wbtree",
        degree: ("leaf-entries", degree),
        ..CAWBT
    }
}

/// CAWBT, and these trees with each degree.
fn trees(families: &[fn(u64) -> Tree]) -> Vec<Tree> {
    let others = families.iter().flat_map(|family| DEGREES.map(family));
    std::iter::once(CAWBT).chain(others).collect()
}

/// A figure that is being measured.
struct Lab<'a> {
    setup: &'a Setup,
    keys: u64,
    notes: NoteReceiver<'a>,
    points: Vec<Point>,
    /// `None` where the system has no such switch.
    _small_pages: Option<SmallPages>,
}

impl<'a> Lab<'a> {
    fn new(setup: &'a Setup, notes: NoteReceiver<'a>) -> Self {
        Self {
            setup,
            keys: setup.keys,
            notes,
            points: Vec::new(),
            // A file in memory need not get huge pages, so memory must not get any.
            _small_pages: SmallPages::take(),
        }
    }

    fn bench(&self, tree: &Tree, workload: Workload) -> Result<crate::bench::Args> {
        let missing = || Failure::Usage(format!("no engine is named {}", tree.engine));
        let mut bench = bench_args(self.setup);
        bench.engine = crate::engine_from_name(tree.engine).ok_or_else(missing)?;
        let (setting, degree) = tree.degree;
        let of_degree = (!setting.is_empty()).then(|| format!("{setting}={degree}"));
        bench.set = of_degree
            .into_iter()
            .chain(tree.set.map(str::to_owned))
            .collect();
        bench.medium = tree.medium;
        bench.workload = workload;
        bench.distribution = Some(Distribution::Monotonic);
        bench.threads = 1;
        bench.keys = self.keys;
        bench.ops = Some(self.keys);
        Ok(bench)
    }

    /// One run: of inserts of all keys into an empty tree, or of finds of all keys.
    fn once(&self, tree: &Tree, workload: Workload, is_counted: bool) -> Result<Once> {
        let (_, degree) = tree.degree;
        self.notes.note(format!(
            "{}, degree {degree}: {}, {} keys",
            tree.series,
            workload.name(),
            grouped(self.keys)
        ));
        once(&self.bench(tree, workload)?, is_counted)
    }

    /// The median of the milliseconds of all runs.
    fn ms(&self, tree: &Tree, workload: Workload) -> Result<f64> {
        let run = |_| Ok(self.once(tree, workload, false)?.ms);
        Ok(median(
            &(0..self.setup.runs).map(run).collect::<Result<Vec<_>>>()?,
        ))
    }

    fn point(&mut self, panel: &str, tree: &Tree, y: f64) {
        self.points
            .push(Point::new(panel, tree.series, tree.degree.1 as f64, y));
    }

    fn figure(self, title: &'static str, y: &'static str, missing: &'static str) -> Figure {
        Figure {
            title,
            x: DEGREE,
            y,
            points: self.points,
            claims: Vec::new(),
            missing,
        }
    }

    /// Figure 1: by differences, for release builds mislead profilers.
    fn profile(mut self) -> Result<Figure> {
        let mut claims = Vec::new();
        for degree in DEGREES {
            let all = self.ms(&consistent(degree), Workload::Load)?;
            let search = self.ms(&plain(degree), Workload::Find)?;
            let durable = all - self.ms(&plain(degree), Workload::Load)?;
            for (panel, ms) in [("search", search), ("flushes, fences, log", durable)] {
                let percent = (100.0 * ms / all).clamp(0.0, 100.0);
                self.point(panel, &consistent(degree), percent);
                let paper = if panel == "search" {
                    "38%, binary search"
                } else {
                    "15%, flushes"
                };
                claims.push(Claim::new(
                    format!("{panel}, degree {degree}"),
                    paper,
                    format!("{percent:.0}%"),
                ));
            }
        }
        let missing = "a profile by function: the search is that of finds of the same keys in memory, what durability costs is \
                       the difference to inserts in memory; and the paper's compiler, which did not optimise: its search is \
                       slower, so its flushes weigh less. A fence of today waits for its lines, a flush of 2012 did not";
        let title = "Figure 1: where an insert spends its time, ascending keys";
        Ok(Figure {
            claims,
            ..self.figure(title, "% of the time", missing)
        })
    }

    fn splits(mut self) -> Result<Figure> {
        let all = trees(&[plain, consistent, wb]);
        for tree in &all {
            let splits = self.once(tree, Workload::Load, false)?.splits;
            self.point("splits", tree, splits as f64);
        }
        let keys = self.keys;
        let missing = "the same count for the same degree: the paper splits at the fourth key into halves; paged trees split a \
                       full node before an insert, and the last leaf keeps seven eighths, so ascending keys split less";
        let mut figure = self.figure("Figure 7: splits, ascending keys", "splits", missing);
        for Tree {
            series,
            degree: (_, degree),
            ..
        } in all
        {
            let splits = figure.at("splits", series, degree as f64);
            let paper = match (series, degree) {
                ("CAWBT", _) => "374,986 of 500,000 inserts",
                (_, 4) => "as CAWBT",
                _ => "as the others of this degree",
            };
            let ours = format!("{} of {} inserts", grouped(splits as u64), grouped(keys));
            figure.claims.push(Claim::new(
                format!("{series}, degree {degree}"),
                paper,
                ours,
            ));
        }
        Ok(figure)
    }

    fn flushes(mut self) -> Result<Figure> {
        let mut claims = Vec::new();
        for tree in trees(&[consistent, wb]).into_iter().chain([FAST_FAIR]) {
            let Some(counts) = self.once(&tree, Workload::Load, true)?.counts else {
                continue;
            };
            let of = |count: u64| count as f64 / self.keys as f64;
            let lines = of(counts.lines_flushed);
            let fences = of(counts.fences);
            self.point("flushes", &tree, lines);
            self.point("fences", &tree, fences);
            let what = format!("{}, degree {}", tree.series, tree.degree.1);
            let paper = claimed_flushes(&tree);
            claims.push(Claim::new(
                what,
                paper,
                format!("{lines:.2} lines flushed, {fences:.2} fences"),
            ));
        }
        let missing = "its counts as numbers: they are bars. Ascending keys shift nothing, so a B+-tree flushes more with the degree \
                       only where a split logs more. The paper's tree flushes after each step of a shift, so its counts grow with the degree. Where the processor has no \
                       store of a line, a node of CAWBT is two lines";
        let title = "Figure 8: lines flushed by an insert, ascending keys, counted";
        Ok(Figure {
            claims,
            ..self.figure(title, "an insert", missing)
        })
    }

    /// Inserts or finds of all keys with these trees, in turns.
    fn times(&mut self, all: &[Tree], workload: Workload) -> Result<()> {
        let mut ms = vec![Vec::new(); all.len()];
        for _ in 0..self.setup.runs {
            for (tree, ms) in all.iter().zip(&mut ms) {
                ms.push(self.once(tree, workload, false)?.ms);
            }
        }
        for (tree, ms) in all.iter().zip(&ms) {
            self.point(MS, tree, median(ms));
        }
        Ok(())
    }

    /// Nanoseconds of a logged split.
    fn split_ns(&self) -> Result<f64> {
        self.notes.note(format!(
            "{}: inserts one by one, {} keys",
            CAWBT.series,
            grouped(self.keys)
        ));
        let bench = self.bench(&CAWBT, Workload::Load)?;
        let runs = (0..self.setup.runs).map(|_| split_ns(&bench));
        Ok(median(&runs.collect::<Result<Vec<_>>>()?))
    }

    fn inserts(mut self) -> Result<Figure> {
        let mut all = trees(&[plain, consistent, wb]);
        all.push(FAST_FAIR);
        self.times(&all, Workload::Load)?;
        let keys = self.keys;
        let split_ns = self.split_ns()?;
        let missing = "the paper's compiler: it did not optimise there, which makes searches dearer beside flushes. How the paper has \
                       timed a split: here each insert is timed alone, and the time of inserts without a split is subtracted. \
                       A leaf's split shares the fences of its insert, and writes a log, a leaf and the parent more; each split \
                       above it takes two persists of its own";
        let mut figure = self.figure("Figure 9: inserts of ascending keys", MS, missing);
        let ms = |series: &str, degree: u64| figure.at(MS, series, degree as f64);
        let cawbt = ms(CAWBT.series, 4);
        let per_key = |ms: f64| format!("{ms:.0} ms, {:.0} ns a key", ms * 1e6 / keys as f64);
        let mut claims = vec![
            Claim::new(
                "CAWBT",
                "4,126 ms, 413 ns a key; the fastest",
                per_key(cawbt),
            ),
            Claim::new(
                "CAWBT, beside the B+-tree without, degree 4",
                "almost the same (abstract), faster (section 5.4)",
                ratio(ms(PLAIN, 4) / cawbt),
            ),
            Claim::new(
                "a logged split of CAWBT",
                "96 ns (text)",
                format!("{split_ns:.0} ns"),
            ),
            Claim::new("FAST-FAIR", "-", per_key(ms(FAST_FAIR.series, 28))),
            Claim::new(
                "the consistent B+-tree, degree 15 beside 4",
                "slower",
                ratio(ms(CONSISTENT, 4) / ms(CONSISTENT, 15)),
            ),
        ];
        claims.extend(DEGREES.map(|degree| {
            let what = format!("CAWBT over the wB+-tree, degree {degree}");
            Claim::new(
                what,
                "3.0x (+200%), degree not told",
                ratio(ms(WB, degree) / cawbt),
            )
        }));
        figure.claims = claims;
        Ok(figure)
    }

    fn searches(mut self) -> Result<Figure> {
        let mut all = vec![TO_LEAVES];
        all.extend(trees(&[consistent, wb]));
        all.push(FAST_FAIR);
        self.times(&all, Workload::Find)?;
        let missing = "the paper's compiler: it did not optimise there, which makes searches dearer beside flushes. Its share of keys \
                       found above the leaves: here half of them, as each leaf has two keys, of which one is a separator";
        let mut figure = self.figure("Figure 10: finds of all keys, ascending", MS, missing);
        let ms = |series: &str, degree: u64| figure.at(MS, series, degree as f64);
        let cawbt = ms(CAWBT.series, 4);
        let mut claims = vec![
            Claim::new(
                "CAWBT over itself without the fast search",
                "1.12x (+12%, text)",
                ratio(ms(TO_LEAVES.series, 4) / cawbt),
            ),
            Claim::new(
                "FAST-FAIR over the wB+-tree, degree 15",
                "the best, before it",
                ratio(ms(WB, 15) / ms(FAST_FAIR.series, 28)),
            ),
            Claim::new(
                "the consistent B+-tree, degree 15 over 4",
                "faster",
                ratio(ms(CONSISTENT, 4) / ms(CONSISTENT, 15)),
            ),
        ];
        claims.extend(DEGREES.map(|degree| {
            let what = format!("CAWBT over the wB+-tree, degree {degree}");
            Claim::new(
                what,
                "1.4x (+40%), degree not told",
                ratio(ms(WB, degree) / cawbt),
            )
        }));
        figure.claims = claims;
        Ok(figure)
    }

    fn rebuilds(mut self) -> Result<Figure> {
        let mut claims = Vec::new();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // The B+-tree opens on one thread whatever the machine has.
        let mut trees = vec![(CAWBT, 1), (CAWBT, cores), (consistent(4), 1)];
        trees.dedup_by_key(|(tree, threads)| (tree.series, *threads));
        for keys in REBUILT.map(|keys| self.setup.scale.of(keys)) {
            self.keys = keys;
            for &(tree, threads) in &trees {
                let series = format!("{}, {}", tree.series, threads_in_words(threads));
                self.notes.note(format!(
                    "{series}, {} keys, opened after a crash",
                    grouped(keys)
                ));
                let bench = crate::bench::Args {
                    recovery_threads: Some(threads),
                    ..self.bench(&tree, Workload::Find)?
                };
                let open = |_| Ok(recoveries(&bench)?.crash.as_secs_f64() * 1e3);
                let ms = median(&(0..self.setup.runs).map(open).collect::<Result<Vec<_>>>()?);
                self.points
                    .push(Point::new("open to first answer", &series, keys as f64, ms));
                let is_as_the_paper = tree.series == CAWBT.series && threads == 1;
                let paper = if is_as_the_paper {
                    "10 ns a key, linear"
                } else {
                    "-"
                };
                let ours = format!("{ms:.2} ms, {:.1} ns a key", ms * 1e6 / keys as f64);
                claims.push(Claim::new(
                    format!("{series}, {} keys", grouped(keys)),
                    paper,
                    ours,
                ));
            }
        }
        let missing = "the rebuild by itself: an open after a crash also verifies all nodes and records, and marks the space that the \
                       tree reaches, as that of the B+-tree beside it, which has no table and opens on one thread. The paper's \
                       rebuild is of one thread, and reads the leaves alone";
        let title = "Figure 11: opening after a crash, with the rebuild of the table of IDs";
        Ok(Figure {
            x: KEYS,
            claims,
            ..self.figure(title, MS, missing)
        })
    }

    fn space(mut self) -> Result<Figure> {
        let mut claims = Vec::new();
        for tree in trees(&[plain, wb]) {
            let bytes = self.once(&tree, Workload::Load, false)?.bytes as f64 / self.keys as f64;
            self.point("bytes a pair", &tree, bytes);
            let paper = match tree.series {
                "CAWBT" => "more than the wB+-trees of higher degree, not by much",
                _ => "-",
            };
            let what = format!("{}, degree {}", tree.series, tree.degree.1);
            claims.push(Claim::new(what, paper, format!("{bytes:.1} bytes a pair")));
        }
        let missing = "CAWBT with degree 6, which its line has no room for. Here CAWBT's records count, and memory as well as pool";
        Ok(Figure {
            claims,
            ..self.figure("Figure 12: space, ascending keys", "bytes", missing)
        })
    }
}

/// The paper's claims about a tree's flushes.
fn claimed_flushes(tree: &Tree) -> &'static str {
    match (tree.series, tree.degree.1) {
        (WB, 4) => "the most of all",
        (WB, 15) => "far fewer than with degree 4",
        (CONSISTENT, 15) => "more than with degree 4",
        _ => "-",
    }
}

/// How many times as fast.
fn ratio(times: f64) -> String {
    format!("{times:.2}x")
}
