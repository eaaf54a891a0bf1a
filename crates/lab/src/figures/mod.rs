//! `everleaf lab`: the figures of the papers, measured again on this machine, the paper's claim
//! beside each.

mod bztree;
mod cawbt;
mod incll;
mod plot;

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::Parser;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use everleaf::Engine;
use serde_json::{Value, json};

use crate::bench;
use crate::comparison::{grouped, rounded};
use crate::notes::{NoteReceiver, Said};
use terminal::failure::{Failure, Result};
use terminal::output_file::ForceArgs;

/// Measure the figures of a paper again
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The paper: bztree (Arulraj et al., VLDB 2018), incll (Cohen et al., ASPLOS 2019) or cawbt
    /// (Lee et al., IEICE 2019)
    #[arg(value_parser = PaperParser)]
    system: String,
    /// The figure; all, if none is named. bztree: 4 (random keys), 5 (zipfian and ascending keys),
    /// 6 (cost of durability), 7 (ranges), 8 (key sizes, free space), 9 (where the time goes); 1 is
    /// table 1 (words of PMwCAS), 0 is table 2 (memory), 2 is recovery, from the text. incll: 2
    /// (workloads), 3 (latency of fences), 4 (threads), 5 and 6 (sizes of the tree), 7 (nodes
    /// logged), 8 (latency, without in-line logs); 0 is the cost of the end of an epoch and 9 is
    /// recovery, from the text. cawbt: 1 (where an insert spends its time), 7 (splits), 8
    /// (flushes), 9 (inserts), 10 (finds), 11 (rebuild of the table of IDs), 12 (space)
    #[arg(long)]
    figure: Option<u64>,
    /// Keys in the tree, for bztree and incll [default: as in the papers, 1,000,000, for incll
    /// 20,000,000]
    #[arg(long)]
    keys: Option<u64>,
    /// Operations of a run, over all threads, for bztree and incll [default: 500,000, and for incll
    /// 2,000,000: the paper has a million a thread]
    #[arg(long)]
    ops: Option<u64>,
    /// Numbers of threads, for bztree and incll; most figures of incll take the largest [default:
    /// 1,2; the papers: up to 48, and 8]
    #[arg(long, value_delimiter = ',')]
    threads: Option<Vec<usize>>,
    /// Number of runs; the result is their median
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// The numbers of keys, for cawbt, whose figures have their own [default: machine]
    #[arg(long, value_enum)]
    scale: Option<cawbt::KeyScale>,
    /// Also draw the figure, as SVG. Without --figure each is drawn into a file of its own, with
    /// its number in the name
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
}

/// The papers whose figures are measured.
const PAPERS: [&str; 3] = ["bztree", "incll", "cawbt"];

/// Parses the name of a paper. The name of an engine without figures is answered with what there is
/// for it.
#[derive(Clone)]
struct PaperParser;

impl TypedValueParser for PaperParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> std::result::Result<String, clap::Error> {
        let engine = value.to_str().and_then(crate::engine_from_name);
        match engine {
            Some(engine) if !PAPERS.contains(&engine.name()) => {
                let text = without_figures(engine);
                let kind = clap::error::ErrorKind::InvalidValue;
                Err(clap::Error::raw(kind, format!("{text}\n")).with_cmd(command))
            }
            _ => PossibleValuesParser::new(PAPERS).parse_ref(command, argument, value),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(PAPERS.map(PossibleValue::new).into_iter()))
    }
}

/// What there is in place of figures of an engine.
fn without_figures(engine: Engine) -> String {
    let name = engine.name();
    if engine == Engine::MASSTREE {
        return format!(
            "the figures of the paper of {name} go by the name of the paper, incll: `everleaf lab incll`"
        );
    }
    format!(
        "the figures of the paper of {name} are not measured, only those of {}; `everleaf bench --engine {name}` measures {name}",
        PAPERS.join(", ")
    )
}

/// The setup of a figure.
struct Setup {
    system: String,
    keys: u64,
    ops: u64,
    threads: Vec<usize>,
    runs: usize,
    scale: cawbt::KeyScale,
}

/// The x axis of figures by threads.
const THREADS: &str = "threads";
/// The x axis of figures by the size of the tree, which is drawn by decades.
const KEYS: &str = "keys";

/// A measured point of a figure.
#[derive(Clone, Debug)]
struct Point {
    panel: String,
    series: String,
    x: f64,
    y: f64,
}

/// A claim of the paper, and the measurement.
struct Claim {
    what: String,
    paper: &'static str,
    ours: String,
}

impl Point {
    fn new(panel: impl Into<String>, series: &str, x: f64, y: f64) -> Self {
        Self {
            panel: panel.into(),
            series: series.to_owned(),
            x,
            y,
        }
    }
}

impl Claim {
    fn new(what: impl Into<String>, paper: &'static str, ours: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            paper,
            ours: ours.into(),
        }
    }
}

/// A figure.
struct Figure {
    title: &'static str,
    x: &'static str,
    y: &'static str,
    points: Vec<Point>,
    claims: Vec<Claim>,
    /// The part of the paper's figure that is not measured.
    missing: &'static str,
}

impl Figure {
    /// The value of a point.
    fn at(&self, panel: &str, series: &str, x: f64) -> f64 {
        let found = self.points.iter().find(|point| {
            point.panel == panel && point.series == series && point.x.to_bits() == x.to_bits()
        });
        found.map_or(f64::NAN, |point| point.y)
    }

    fn json(&self, setup: &Setup, number: u8) -> Value {
        let points: Vec<Value> = self
            .points
            .iter()
            .map(|point| json!({"panel": point.panel, "series": point.series, "x": point.x, "y": rounded(point.y)}))
            .collect();
        let claims: Vec<Value> = self
            .claims
            .iter()
            .map(|claim| json!({"what": claim.what, "paper": claim.paper, "ours": claim.ours}))
            .collect();
        json!({
            "lab": setup.system,
            "figure": number,
            "title": self.title,
            "x": self.x,
            "y": self.y,
            "keys": setup.keys,
            "ops": setup.ops,
            "runs": setup.runs,
            "machine": plot::machine(),
            "threads": setup.threads,
            "points": points,
            "claims": claims,
            "missing": self.missing,
        })
    }

    fn text(&self) -> String {
        let x = 12.max(self.x.len() + 2);
        let y = 12.max(self.y.len() + 2);
        let mut lines = vec![
            self.title.to_owned(),
            format!("{:<28}{:<22}{:>x$}{:>y$}", "", "", self.x, self.y),
        ];
        lines.extend(self.points.iter().map(|point| {
            format!(
                "{:<28}{:<22}{:>x$}{:>y$.3}",
                point.panel, point.series, point.x, point.y
            )
        }));
        if self.points.is_empty() {
            lines.push("nothing: the smallest tree of this figure has more keys".to_owned());
        }
        let longest =
            |length: fn(&Claim) -> usize| self.claims.iter().map(length).max().unwrap_or(0) + 2;
        let what = 50.max(longest(|claim| claim.what.len()));
        let paper = 34.max(longest(|claim| claim.paper.len()));
        lines.push(format!(
            "{:<what$}{:<paper$}{}",
            "claim", "the paper", "here"
        ));
        lines.extend(
            self.claims
                .iter()
                .map(|claim| format!("{:<what$}{:<paper$}{}", claim.what, claim.paper, claim.ours)),
        );
        if !self.missing.is_empty() {
            lines.push(format!("not here: {}", self.missing));
        }
        lines.join("\n")
    }
}

/// The benchmark's own defaults.
#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    args: bench::Args,
}

/// Arguments of a benchmark with the figure's sizes.
fn bench_args(setup: &Setup) -> bench::Args {
    let mut defaults = Defaults::parse_from(["lab"]).args;
    defaults.engine = if setup.system == "incll" {
        Engine::MASSTREE
    } else {
        Engine::BZTREE
    };
    defaults.medium = bench::PoolMedium::Dax;
    defaults.distribution = Some(bench::Distribution::Uniform);
    defaults.keys = setup.keys;
    defaults.ops = Some(setup.ops);
    defaults.runs = setup.runs;
    defaults
}

/// A number of threads, in words.
fn threads_in_words(threads: usize) -> String {
    format!(
        "{threads} {}",
        if threads == 1 { "thread" } else { "threads" }
    )
}

/// Measures a figure.
type Measure = fn(&Setup, NoteReceiver<'_>) -> Result<Figure>;

impl Args {
    /// The figures of a paper, in the order in which they are measured.
    fn figures(&self) -> &'static [(u8, Measure)] {
        match self.system.as_str() {
            "incll" => incll::FIGURES,
            "cawbt" => cawbt::FIGURES,
            _ => bztree::FIGURES,
        }
    }

    /// The setup of a figure: of the numbers of threads those that it measures with.
    fn setup(&self, number: u8) -> Setup {
        let scale = self.scale.unwrap_or(cawbt::KeyScale::Machine);
        let (keys, ops) = match self.system.as_str() {
            "incll" => (20_000_000, 2_000_000),
            "cawbt" => (cawbt::keys(number, scale), cawbt::keys(number, scale)),
            _ => (1_000_000, 500_000),
        };
        let given = self.threads.clone().unwrap_or_else(|| vec![1, 2]);
        let threads = match (self.system.as_str(), number) {
            ("cawbt", _) | ("bztree", 1 | 2 | 9) => vec![1],
            ("incll", 4) | ("bztree", 4..=7) => given,
            _ => given.into_iter().max().into_iter().collect(),
        };
        let keys = self.keys.unwrap_or(keys);
        let ops = self.ops.unwrap_or(ops);
        Setup {
            system: self.system.clone(),
            keys,
            ops,
            threads,
            runs: self.runs,
            scale,
        }
    }

    /// The numbers of the figures that are wanted.
    ///
    /// # Errors
    /// [`Failure::Usage`] for arguments that do not go together.
    pub fn numbers(&self) -> Result<Vec<u8>> {
        let usage = |what: String| Err(Failure::Usage(what));
        let all: Vec<u8> = self.figures().iter().map(|(number, _)| *number).collect();
        let Self {
            system,
            keys,
            ops,
            threads,
            ..
        } = self;
        if threads
            .as_ref()
            .is_some_and(|threads| threads.is_empty() || threads.contains(&0))
        {
            return usage("--threads lists numbers of threads, each at least 1".to_owned());
        }
        if system == "cawbt" && (keys.is_some() || ops.is_some() || threads.is_some()) {
            return usage(
                "the figures of cawbt have one thread and their own numbers of keys; give --scale in place of --keys, --ops \
                 and --threads"
                    .to_owned(),
            );
        }
        if system != "cawbt" && self.scale.is_some() {
            return usage(format!(
                "--scale is for cawbt; give --keys and --ops for {system}"
            ));
        }
        match self.figure {
            None => Ok(all),
            Some(wanted) => {
                if let Some(number) = all.iter().find(|number| u64::from(**number) == wanted) {
                    return Ok(vec![*number]);
                }
                let there: Vec<String> = all.iter().map(ToString::to_string).collect();
                usage(format!(
                    "{system} has no figure {wanted} here; give one of {}",
                    there.join(", ")
                ))
            }
        }
    }
}

impl Setup {
    fn threads_max(&self) -> usize {
        self.threads.iter().copied().max().unwrap_or(1)
    }

    /// The machine, and in words the keys, unless they are an axis, and the threads, unless the
    /// series have some each.
    fn in_words(&self, figure: &Figure) -> String {
        let threads: Vec<String> = self.threads.iter().map(ToString::to_string).collect();
        let threads = match self.threads[..] {
            [one] => threads_in_words(one),
            _ => format!("{} threads", threads.join(", ")),
        };
        let keys = (figure.x != KEYS).then(|| format!("{} keys", grouped(self.keys)));
        let threads = (!figure
            .points
            .iter()
            .any(|point| point.series.contains("thread")))
        .then_some(threads);
        let parts = [Some(plot::machine()), keys, threads];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// Measures a figure, and draws it if that is wanted.
pub fn run(args: &Args, number: u8, notes: NoteReceiver<'_>) -> Result<Said> {
    let setup = args.setup(number);
    let measure = args
        .figures()
        .iter()
        .find(|(known, _)| *known == number)
        .map(|(_, measure)| *measure);
    let measure = measure
        .ok_or_else(|| Failure::Usage(format!("{} has no figure {number} here", args.system)))?;
    let mut figure = measure(&setup, notes)?;
    // A measurement that gave no number has no place on an axis.
    figure.points.retain(|point| point.y.is_finite());
    let in_words = setup.in_words(&figure);
    plot::draw(&figure, args, number, &in_words)?;
    let text = format!("{}\n{in_words}", figure.text());
    Ok(Said {
        json: figure.json(&setup, number),
        text,
    })
}
