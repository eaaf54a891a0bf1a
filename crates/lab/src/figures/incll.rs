//! The figures of the InCLL paper (section 6): 8-byte keys and values, epochs of 64 ms, the
//! transient tree (MT+) beside the durable one, and beside one without in-line logs.

use everleaf::Engine;

use super::{Claim, Figure, KEYS, Measure, Point, Setup, THREADS, bench_args, threads_in_words};
use crate::bench::{
    Distribution, PoolMedium, Sample, Series, Trees, Workload, count_of, fit_together, recoveries,
};
use crate::comparison::{grouped, median};
use crate::notes::NoteReceiver;
use terminal::failure::Result;

/// A tree by the paper's name, with its settings of masstree.
type Tree = (&'static str, &'static str);

const TRANSIENT: Tree = ("MT+", "mode=transient");
const IN_LINE: Tree = ("INCLL", "mode=in-line");
const LOGGING: Tree = ("LOGGING", "mode=logging");

const DISTRIBUTIONS: [(&str, Distribution); 2] = [
    ("uniform", Distribution::Uniform),
    ("zipfian", Distribution::Zipfian),
];

/// Milliseconds of an epoch, here as in the paper.
const EPOCH_MS: f64 = 64.0;
const MOPS: &str = "M ops/s";
const DELAY: &str = "ns added to a fence";
/// Sizes between the decades, where the paper finds the most overhead.
const BETWEEN: [u64; 2] = [2_000_000, 3_000_000];
/// Delays of the paper's emulation of slow memory.
const DELAYS_NS: [u64; 5] = [0, 100, 200, 500, 1000];
const NO_MT: &str = "MT, the Masstree of its authors: bench it by itself";

/// A tree of the paper's figure 4.
struct PaperTree {
    /// The loss of INCLL against MT+: uniform, zipfian.
    losses: [&'static str; 2],
    /// How to measure its other tree.
    other: &'static str,
}

/// Keys of the second one.
const LARGE_TREE: u64 = 100_000_000;
const TREES: [PaperTree; 2] = [
    PaperTree {
        losses: [
            "14.6% to 21.3%, of 20 M keys",
            "3.0% to 19.3%, of 20 M keys",
        ],
        other: "the second tree, of 100 M keys: run it again with --keys 100000000",
    },
    PaperTree {
        losses: [
            "10.7% to 15.3%, of 100 M keys",
            "6.7% to 22.2%, of 100 M keys",
        ],
        other: "the first tree, of 20 M keys: run it again without --keys",
    },
];

/// The figures; 0 and 9 are in the text.
pub(super) const FIGURES: &[(u8, Measure)] = &[
    (2, |setup, notes| Lab::new(setup, notes).workloads()),
    (3, |setup, notes| {
        let title = "Figure 3: latency of fences, YCSB-A";
        Lab::new(setup, notes).delays(title, &[IN_LINE], &["-4.3%", "-6.0%"])
    }),
    (4, |setup, notes| Lab::new(setup, notes).threads()),
    (5, |setup, notes| Lab::new(setup, notes).sizes()),
    (6, |setup, notes| Lab::new(setup, notes).overheads()),
    (7, |setup, notes| Lab::new(setup, notes).nodes_logged()),
    (8, |setup, notes| {
        let title = "Figure 8: latency of fences with in-line logs and without, YCSB-A";
        let papers = ["-4.1%", "-5.7%", "-42.5%", "-28.5%"];
        Lab::new(setup, notes).delays(title, &[IN_LINE, LOGGING], &papers)
    }),
    (0, |setup, notes| Lab::new(setup, notes).flushes()),
    (9, |setup, notes| Lab::new(setup, notes).recoveries()),
];

/// Numbers of keys: decades, closer where the paper finds the most overhead, and what was asked
/// for.
fn sizes_to(most: u64) -> Vec<u64> {
    let decades = (4..)
        .map(|power| 10_u64.pow(power))
        .take_while(|keys| *keys < most);
    let mut sizes: Vec<u64> = decades
        .chain(BETWEEN)
        .filter(|keys| *keys < most)
        .chain([most])
        .collect();
    sizes.sort_unstable();
    sizes
}

/// A figure that is being measured.
struct Lab<'a> {
    setup: &'a Setup,
    notes: NoteReceiver<'a>,
    points: Vec<Point>,
}

/// The setup of a measurement of several trees.
#[derive(Clone, Copy)]
struct Setting {
    workload: Workload,
    distribution: Distribution,
    threads: usize,
    /// The delays of fences, for figures of delays: each tree is measured with each of them.
    delays_ns: &'static [u64],
}

impl Setting {
    /// This setup for trees with these arguments.
    fn series(&self, trees: &[crate::bench::Args]) -> Vec<Series> {
        let delays: Vec<Option<u64>> = match self.delays_ns {
            [] => vec![None],
            delays => delays.iter().copied().map(Some).collect(),
        };
        let one = |tree: usize, delay: Option<u64>| {
            let mut args = trees[tree].clone();
            args.workload = self.workload;
            args.distribution = Some(self.distribution);
            args.threads = self.threads;
            args.persist_delay_ns = delay;
            Series { tree, args }
        };
        (0..trees.len())
            .flat_map(|tree| delays.iter().map(move |delay| one(tree, *delay)))
            .collect()
    }
}

impl<'a> Lab<'a> {
    fn new(setup: &'a Setup, notes: NoteReceiver<'a>) -> Self {
        Self {
            setup,
            notes,
            points: Vec::new(),
        }
    }

    fn setting(&self, workload: Workload, distribution: Distribution) -> Setting {
        Setting {
            workload,
            distribution,
            threads: self.threads_max(),
            delays_ns: &[],
        }
    }

    fn threads_max(&self) -> usize {
        self.setup.threads_max()
    }

    /// Each distribution of YCSB-A.
    fn both(&self) -> [Setting; 2] {
        DISTRIBUTIONS.map(|(_, distribution)| self.setting(Workload::A, distribution))
    }

    /// Measures trees of `keys` keys in turns; each tree is loaded once. Returns samples by
    /// setting, tree and delay.
    fn measure(&self, trees: &[Tree], keys: u64, settings: &[Setting]) -> Result<Vec<Vec<Sample>>> {
        let is_delayed = settings.iter().any(|setting| !setting.delays_ns.is_empty());
        let tree_args = |(_, mode): &Tree| {
            let mut bench = bench_args(self.setup);
            bench.engine = Engine::MASSTREE;
            bench.set = vec![(*mode).to_owned()];
            bench.medium = PoolMedium::Dax;
            bench.keys = keys;
            bench.threads = self.threads_max();
            bench.persist_delay_ns = is_delayed.then_some(0);
            bench
        };
        let args: Vec<_> = trees.iter().map(tree_args).collect();
        let together = if fit_together(&args) { args.len() } else { 1 };
        if together < args.len() {
            self.notes.note(
                "memory does not hold these trees together: one after the other, not in turns",
            );
        }
        let mut found = vec![Vec::new(); settings.len()];
        for (args, names) in args.chunks(together).zip(trees.chunks(together)) {
            let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
            let names = names.join(" and ");
            self.notes
                .note(format!("loading {} keys: {names}", grouped(keys)));
            let mut loaded = Trees::load(args)?;
            for (setting, found) in settings.iter().zip(&mut found) {
                let Setting {
                    workload,
                    distribution,
                    threads,
                    ..
                } = setting;
                let name = workload.name();
                self.notes.note(format!(
                    "{names}: {name}, {distribution:?}, {} keys, {}",
                    grouped(keys),
                    threads_in_words(*threads)
                ));
                found.extend(loaded.samples(&setting.series(args))?);
            }
        }
        Ok(found)
    }

    fn point(&mut self, panel: &str, series: &str, x: f64, y: f64) {
        self.points.push(Point::new(panel, series, x, y));
    }

    /// The throughput of each tree.
    fn points_of(&mut self, panel: &str, trees: &[Tree], x: f64, samples: &[Sample]) {
        for ((series, _), sample) in trees.iter().zip(samples) {
            self.point(panel, series, x, sample.mops);
        }
    }

    fn figure(
        self,
        title: &'static str,
        x: &'static str,
        y: &'static str,
        missing: &'static str,
    ) -> Figure {
        Figure {
            title,
            x,
            y,
            points: self.points,
            claims: Vec::new(),
            missing,
        }
    }

    /// The distance of one curve below another, in percent, at a point.
    fn overhead(figure: &Figure, panel: &str, trees: [Tree; 2], x: f64) -> f64 {
        let [durable, transient] = trees.map(|(name, _)| figure.at(panel, name, x));
        100.0 * (1.0 - durable / transient)
    }

    fn workloads(mut self) -> Result<Figure> {
        // Uniform, zipfian. The text has a range for each workload, and for each distribution (5.9%
        // to 10.3% zipfian, 7.8% to 15.4% uniform): together they leave one value each, but for E,
        // which it calls the least affected.
        let papers = [
            (Workload::A, ["15.4%", "10.3%"]),
            (Workload::B, ["13.9%", "5.9%"]),
            (Workload::C, ["13.5%", "7.9%"]),
            (Workload::Scan10, ["7.8%, of E", "5.9% to 10.3%, of E"]),
        ];
        let panels: Vec<_> = papers
            .into_iter()
            .flat_map(|(workload, papers)| {
                DISTRIBUTIONS
                    .into_iter()
                    .zip(papers)
                    .map(move |one| (workload, one))
            })
            .map(|(workload, ((name, distribution), paper))| {
                (
                    format!("{}, {name}", workload.name()),
                    self.setting(workload, distribution),
                    paper,
                )
            })
            .collect();
        let settings: Vec<_> = panels.iter().map(|(_, setting, _)| *setting).collect();
        let trees = [TRANSIENT, IN_LINE, LOGGING];
        let found = self.measure(&trees, self.setup.keys, &settings)?;
        let threads = self.threads_max() as f64;
        for ((panel, ..), samples) in panels.iter().zip(found) {
            self.points_of(panel, &trees, threads, &samples);
        }
        let mut figure = self.figure(
            "Figure 2: YCSB-A, B, C, and E as ranges of 10",
            THREADS,
            MOPS,
            NO_MT,
        );
        for (tree, is_in_paper) in [(IN_LINE, true), (LOGGING, false)] {
            for (panel, _, paper) in &panels {
                let overhead = Self::overhead(&figure, panel, [tree, TRANSIENT], threads);
                let what = format!("{} below MT+, {panel}", tree.0);
                let paper = if is_in_paper { *paper } else { "-" };
                figure
                    .claims
                    .push(Claim::new(what, paper, format!("{overhead:.1}%")));
            }
        }
        Ok(figure)
    }

    fn delays(
        mut self,
        title: &'static str,
        trees: &[Tree],
        papers: &[&'static str],
    ) -> Result<Figure> {
        let settings = self.both().map(|setting| Setting {
            delays_ns: &DELAYS_NS,
            ..setting
        });
        let found = self.measure(trees, self.setup.keys, &settings)?;
        for ((panel, _), samples) in DISTRIBUTIONS.into_iter().zip(found) {
            for ((series, _), samples) in trees.iter().zip(samples.chunks(DELAYS_NS.len())) {
                for (delay_ns, sample) in DELAYS_NS.into_iter().zip(samples) {
                    self.point(panel, series, delay_ns as f64, sample.mops);
                }
            }
        }
        let mut figure = self.figure(title, DELAY, MOPS, "");
        let curves = trees
            .iter()
            .flat_map(|tree| DISTRIBUTIONS.map(|(panel, _)| (tree.0, panel)));
        for ((series, panel), paper) in curves.zip(papers.iter().copied()) {
            let at = |delay: u64| figure.at(panel, series, delay as f64);
            let change = 100.0 * (at(1000) / at(0) - 1.0);
            let what = format!("{series}, {panel}, 1 us added");
            figure
                .claims
                .push(Claim::new(what, paper, format!("{change:+.1}%")));
        }
        Ok(figure)
    }

    fn threads(mut self) -> Result<Figure> {
        let trees = [TRANSIENT, IN_LINE];
        let settings: Vec<_> = self
            .both()
            .into_iter()
            .flat_map(|setting| {
                self.setup
                    .threads
                    .iter()
                    .map(move |&threads| Setting { threads, ..setting })
            })
            .collect();
        let found = self.measure(&trees, self.setup.keys, &settings)?;
        let panels = DISTRIBUTIONS
            .into_iter()
            .flat_map(|(panel, _)| vec![panel; self.setup.threads.len()]);
        for ((panel, setting), samples) in panels.zip(&settings).zip(found) {
            self.points_of(panel, &trees, setting.threads as f64, &samples);
        }
        let threads = self.setup.threads.clone();
        let [tree, large_tree] = &TREES;
        let tree = if self.setup.keys >= LARGE_TREE {
            large_tree
        } else {
            tree
        };
        let mut figure = self.figure("Figure 4: threads, YCSB-A", THREADS, MOPS, tree.other);
        for ((panel, _), paper) in DISTRIBUTIONS.into_iter().zip(tree.losses) {
            for threads in &threads {
                let overhead =
                    Self::overhead(&figure, panel, [IN_LINE, TRANSIENT], *threads as f64);
                let what = format!("INCLL below MT+, {panel}, {}", threads_in_words(*threads));
                figure
                    .claims
                    .push(Claim::new(what, paper, format!("{overhead:.1}%")));
            }
        }
        Ok(figure)
    }

    /// Measures trees of every size, and calls `found` with panel, size, and samples by tree.
    fn by_size(
        &mut self,
        trees: &[Tree],
        mut note: impl FnMut(&mut Self, &str, f64, &[Sample]),
    ) -> Result<()> {
        for keys in sizes_to(self.setup.keys) {
            let found = self.measure(trees, keys, &self.both())?;
            for ((panel, _), samples) in DISTRIBUTIONS.into_iter().zip(found) {
                note(self, panel, keys as f64, &samples);
            }
        }
        // One panel after the other.
        self.points
            .sort_by(|one, other| one.panel.cmp(&other.panel));
        Ok(())
    }

    fn throughput_by_size(&mut self) -> Result<()> {
        let trees = [TRANSIENT, IN_LINE];
        self.by_size(&trees, |lab, panel, keys, samples| {
            lab.points_of(panel, &trees, keys, samples);
        })
    }

    fn sizes(mut self) -> Result<Figure> {
        self.throughput_by_size()?;
        let mut figure = self.figure(
            "Figure 5: throughput by the size of the tree, YCSB-A",
            KEYS,
            MOPS,
            NO_MT,
        );
        let papers = [
            "-69%, from 10 K to 100 M keys",
            "about -50%, from 10 K to 100 M keys",
        ];
        for ((panel, _), paper) in DISTRIBUTIONS.into_iter().zip(papers) {
            for (series, _) in [TRANSIENT, IN_LINE] {
                let Some(Shape { first, last, .. }) = Shape::of(&figure, panel, series) else {
                    continue;
                };
                let what = format!("{series}, {panel}");
                let change = 100.0 * (last.1 / first.1 - 1.0);
                let ours = format!(
                    "{change:+.0}%, from {} to {} keys",
                    grouped(first.0 as u64),
                    grouped(last.0 as u64)
                );
                figure.claims.push(Claim { what, paper, ours });
            }
        }
        Ok(figure)
    }

    fn overheads(mut self) -> Result<Figure> {
        self.throughput_by_size()?;
        let sizes = sizes_to(self.setup.keys);
        let mut measured = self.figure(
            "Figure 6: INCLL below MT+ by the size of the tree, YCSB-A",
            KEYS,
            "percent",
            "",
        );
        let points = DISTRIBUTIONS.iter().flat_map(|(panel, _)| {
            let measured = &measured;
            sizes.iter().map(move |keys| {
                let y = Self::overhead(measured, panel, [IN_LINE, TRANSIENT], *keys as f64);
                Point::new(*panel, IN_LINE.0, *keys as f64, y)
            })
        });
        measured.points = points.collect();
        let papers = [
            "27% at most, at 1 to 3 M keys, less below and above",
            "27% at most",
        ];
        for ((panel, _), paper) in DISTRIBUTIONS.into_iter().zip(papers) {
            let Some(Shape { first, peak, last }) = Shape::of(&measured, panel, IN_LINE.0) else {
                continue;
            };
            let ours = format!(
                "{:.1}% at {} keys, {:.1}% at {}, {:.1}% at {}",
                peak.1,
                grouped(peak.0 as u64),
                first.1,
                grouped(first.0 as u64),
                last.1,
                grouped(last.0 as u64)
            );
            measured.claims.push(Claim {
                what: format!("the most, {panel}"),
                paper,
                ours,
            });
        }
        Ok(measured)
    }

    /// Section 6.2: the cost of the end of an epoch.
    fn flushes(mut self) -> Result<Figure> {
        let mut claims = Vec::new();
        let found = self.measure(&[IN_LINE], self.setup.keys, &self.both())?;
        for ((panel, _), samples) in DISTRIBUTIONS.into_iter().zip(found) {
            let of = |name| count_of(&samples[0].counters, name) as f64;
            let epochs = of("epochs").max(1.0);
            let epoch_ns = EPOCH_MS * 1e6;
            let pause_ns = of("pause_ns") / epochs;
            self.point(
                panel,
                "lines flushed",
                EPOCH_MS,
                of("lines_flushed") / epochs,
            );
            self.point(panel, "us in which writers wait", EPOCH_MS, pause_ns / 1e3);
            let ms = pause_ns / 1e6;
            let percent = 100.0 * pause_ns / epoch_ns;
            let what = format!("writers wait at the end of an epoch, {panel}");
            claims.push(Claim::new(
                what,
                "1.38 to 1.39 ms, 2.2%",
                format!("{ms:.3} ms, {percent:.2}%"),
            ));
        }
        let missing = "the paper writes back the whole cache while writers wait; here lines are flushed, most of \
                       them while others work";
        let mut figure = self.figure(
            "Section 6.2: the end of an epoch, YCSB-A",
            "ms an epoch",
            "an epoch",
            missing,
        );
        figure.claims = claims;
        Ok(figure)
    }

    /// Section 6.3: opening after a crash right before the end of an epoch of updates.
    fn recoveries(mut self) -> Result<Figure> {
        let mut claims = Vec::new();
        for (series, mode) in [IN_LINE, LOGGING] {
            for keys in sizes_to(self.setup.keys) {
                self.notes.note(format!(
                    "{series}, {} keys, opened after a crash",
                    grouped(keys)
                ));
                let mut bench = bench_args(self.setup);
                bench.engine = Engine::MASSTREE;
                bench.set = vec![mode.to_owned()];
                bench.medium = PoolMedium::Dax;
                bench.keys = keys;
                bench.workload = Workload::Find;
                let mut ms = Vec::new();
                let mut nodes = 0;
                for _ in 0..self.setup.runs {
                    let found = recoveries(&bench)?;
                    ms.push(found.crash.as_secs_f64() * 1e3);
                    nodes = found.nodes_restored.unwrap_or(0);
                }
                let median = median(&ms);
                self.point("open to first answer, ms", series, keys as f64, median);
                self.point("nodes put back", series, keys as f64, nodes as f64);
                let what = format!("{series}, {} keys", grouped(keys));
                // The paper describes only one tree.
                let is_papers = series == IN_LINE.0 && keys == 1_000_000;
                let paper = if is_papers { "15 ms, 84 K nodes" } else { "-" };
                claims.push(Claim::new(
                    what,
                    paper,
                    format!("{median:.1} ms, {nodes} nodes"),
                ));
            }
        }
        let missing = "eight threads: one writes here, which puts fewer nodes into the log";
        let mut figure = self.figure("Section 6.3: recovery", KEYS, "ms, nodes", missing);
        figure.claims = claims;
        Ok(figure)
    }

    fn nodes_logged(mut self) -> Result<Figure> {
        let trees = [LOGGING, IN_LINE];
        self.by_size(&trees, |lab, panel, keys, samples| {
            for ((series, _), Sample { counters, .. }) in trees.iter().zip(samples) {
                let of = |name| count_of(counters, name);
                let per_epoch = of("nodes_logged") as f64 / of("epochs").max(1) as f64;
                lab.point(panel, series, keys, per_epoch);
            }
        })?;
        let title = "Figure 7: nodes in the external log by the size of the tree, YCSB-A";
        let mut figure = self.figure(title, KEYS, "nodes an epoch", "");
        let papers = [
            "rise up to 1 to 3 M keys, then level",
            "rise up to 1 to 3 M keys, then fall rapidly",
            "rise up to 1 to 3 M keys, then grow slowly",
            "rise up to 1 to 3 M keys, then fall slowly",
        ];
        let curves = DISTRIBUTIONS
            .iter()
            .flat_map(|(panel, _)| trees.map(|(series, _)| (*panel, series)));
        for ((panel, series), paper) in curves.zip(papers) {
            let Some(shape) = Shape::of(&figure, panel, series) else {
                continue;
            };
            figure.claims.push(Claim::new(
                format!("{series}, {panel}"),
                paper,
                shape.rise_and_fall(),
            ));
        }
        for (panel, _) in DISTRIBUTIONS {
            let last =
                |name| Shape::of(&figure, panel, name).map_or((0.0, f64::NAN), |shape| shape.last);
            let [(keys, in_line), (_, logging)] = [IN_LINE, LOGGING].map(|(name, _)| last(name));
            let ours = format!("{in_line:.0} of {logging:.0} nodes an epoch");
            let what = format!(
                "what in-line logs leave, {panel}, {} keys",
                grouped(keys as u64)
            );
            figure.claims.push(Claim {
                what,
                paper: "-",
                ours,
            });
        }
        Ok(figure)
    }
}

/// A curve by its first point, its highest one and its last one.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Shape {
    first: (f64, f64),
    peak: (f64, f64),
    last: (f64, f64),
}

impl Shape {
    /// The text about a curve of a figure, if it has points.
    fn of(figure: &Figure, panel: &str, series: &str) -> Option<Self> {
        let curve = figure
            .points
            .iter()
            .filter(|point| point.panel == panel && point.series == series);
        Self::of_points(&curve.map(|point| (point.x, point.y)).collect::<Vec<_>>())
    }

    fn of_points(points: &[(f64, f64)]) -> Option<Self> {
        let peak = points
            .iter()
            .max_by(|one, other| one.1.total_cmp(&other.1))?;
        Some(Self {
            first: *points.first()?,
            peak: *peak,
            last: *points.last()?,
        })
    }

    /// Where the curve is highest, and to what it has fallen at its end.
    fn rise_and_fall(self) -> String {
        let Self { first, peak, last } = self;
        let from = format!(
            "{} at {} keys",
            grouped(first.1.round() as u64),
            grouped(first.0 as u64)
        );
        let top = format!(
            "{} at {}",
            grouped(peak.1.round() as u64),
            grouped(peak.0 as u64)
        );
        if peak.0.total_cmp(&last.0).is_eq() {
            return format!("{from}, rise up to the largest: {top}");
        }
        let fall = 100.0 * (last.1 / peak.1 - 1.0);
        format!(
            "{from}, peak {top}, then {} at {} ({fall:+.0}%)",
            grouped(last.1.round() as u64),
            grouped(last.0 as u64)
        )
    }
}

#[cfg(test)]
mod tests;
