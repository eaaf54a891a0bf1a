//! `everleaf lab`: the figures of the papers, measured again on this machine, the paper's claim beside each.

mod bztree;
mod cawbt;
mod incll;
mod plot;

use std::path::PathBuf;

use clap::Parser;
use everleaf::Engine;
use serde_json::{Value, json};

use crate::bench;
use crate::failure::{Failure, Result};
use crate::notes::{Notes, Said};

/// Measure the figures of a paper again
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The paper: bztree (Arulraj et al., VLDB 2018), incll (Cohen et al., ASPLOS 2019) or cawbt (Lee et al., IEICE 2019)
    #[arg(value_parser = ["bztree", "incll", "cawbt"])]
    system: String,
    /// The figure; all, if none is named. bztree: 4 (random keys), 5 (zipfian and ascending keys), 6 (cost of durability), 7
    /// (ranges), 8 (key sizes, free space), 9 (where the time goes); 1 is table 1 (words of PMwCAS), 0 is table 2 (memory), 2 is
    /// recovery, from the text. incll: 2 (workloads), 3 (latency of fences), 4 (threads), 5 and 6 (sizes of the tree), 7 (nodes
    /// logged), 8 (latency, without in-line logs); 0 is the cost of the end of an epoch and 9 is recovery, from the text. cawbt: 1
    /// (where an insert spends its time), 7 (splits), 8 (flushes), 9 (inserts), 10 (finds), 11 (rebuild of the table of IDs), 12
    /// (space)
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..13))]
    figure: Option<u8>,
    /// Keys in the tree [default: as in the papers, 1,000,000, for incll 20,000,000]
    #[arg(long, hide_default_value = true, default_value_t = 1_000_000)]
    #[arg(default_value_if("system", "incll", "20000000"))]
    keys: u64,
    /// Operations of a run, over all threads [default: 500,000, and for incll 2,000,000: the paper has a million a thread]
    #[arg(long, hide_default_value = true, default_value_t = 500_000)]
    #[arg(default_value_if("system", "incll", "2000000"))]
    ops: u64,
    /// Numbers of threads; most figures of incll take the largest [the papers: up to 48, and 8]
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Number of runs; the result is their median
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// cawbt: the numbers of keys, in place of --keys, --ops and --threads
    #[arg(long, value_enum, default_value = "machine")]
    scale: cawbt::Scale,
    /// Also draw the figure, as SVG. Without --figure each is drawn into a file of its own, with its number in the name
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
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
        Self { panel: panel.into(), series: series.to_owned(), x, y }
    }
}

impl Claim {
    fn new(what: impl Into<String>, paper: &'static str, ours: impl Into<String>) -> Self {
        Self { what: what.into(), paper, ours: ours.into() }
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
        let found = self
            .points
            .iter()
            .find(|point| point.panel == panel && point.series == series && point.x.to_bits() == x.to_bits());
        found.map_or(f64::NAN, |point| point.y)
    }

    fn json(&self, args: &Args, number: u8) -> Value {
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
            "lab": args.system,
            "figure": number,
            "title": self.title,
            "x": self.x,
            "y": self.y,
            "keys": args.keys,
            "ops": args.ops,
            "runs": args.runs,
            "machine": plot::machine(),
            "threads": args.threads,
            "points": points,
            "claims": claims,
            "missing": self.missing,
        })
    }

    fn text(&self) -> String {
        let (x, y) = (12.max(self.x.len() + 2), 12.max(self.y.len() + 2));
        let mut lines =
            vec![self.title.to_owned(), format!("{:<28}{:<22}{:>x$}{:>y$}", "", "", self.x, self.y)];
        lines.extend(
            self.points.iter().map(|point| {
                format!("{:<28}{:<22}{:>x$}{:>y$.3}", point.panel, point.series, point.x, point.y)
            }),
        );
        let longest = |length: fn(&Claim) -> usize| self.claims.iter().map(length).max().unwrap_or(0) + 2;
        let (what, paper) =
            (50.max(longest(|claim| claim.what.len())), 34.max(longest(|claim| claim.paper.len())));
        lines.push(format!("{:<what$}{:<paper$}{}", "claim", "the paper", "here"));
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

fn rounded(value: f64) -> Value {
    if value.is_finite() { json!((value * 1000.0).round() / 1000.0) } else { Value::Null }
}

/// The benchmark's own defaults.
#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    args: bench::Args,
}

/// Arguments of a benchmark with the figure's sizes.
fn bench_args(args: &Args) -> bench::Args {
    let mut defaults = Defaults::parse_from(["lab"]).args;
    defaults.engine = if args.system == "incll" { Engine::MASSTREE } else { Engine::BZTREE };
    (defaults.keys, defaults.ops, defaults.runs) = (args.keys, Some(args.ops), args.runs);
    defaults
}

/// Measures the figure of this number.
type Measure = fn(u8, &Args, Notes<'_>) -> Result<Figure>;

impl Args {
    fn system(&self) -> (&'static [u8], Measure) {
        match self.system.as_str() {
            "incll" => (&incll::FIGURES, incll::figure),
            "cawbt" => (&cawbt::FIGURES, cawbt::figure),
            _ => (&bztree::FIGURES, bztree::figure),
        }
    }

    /// The same with the numbers of keys that a figure has of itself.
    fn sized(&self, number: u8) -> Self {
        let keys = cawbt::keys(number, self.scale);
        if self.system == "cawbt" { Self { keys, ops: keys, ..self.clone() } } else { self.clone() }
    }

    /// The machine, the keys and the threads, in words.
    fn setup(&self) -> String {
        let threads: Vec<String> = self.threads.iter().map(ToString::to_string).collect();
        let of = if threads == ["1"] { "thread" } else { "threads" };
        format!("{}; {} keys; {} {of}", plot::machine(), bench::grouped(self.keys), threads.join(", "))
    }

    /// The numbers of the figures that are wanted.
    pub fn numbers(&self) -> Result<Vec<u8>> {
        if self.threads.is_empty() || self.threads.contains(&0) {
            return Err(Failure::Usage("--threads lists numbers of threads, each at least 1".to_owned()));
        }
        Ok(self.figure.map_or_else(|| self.system().0.to_vec(), |number| vec![number]))
    }
}

/// Measures a figure, and draws it if that is wanted.
pub fn run(args: &Args, number: u8, notes: Notes<'_>) -> Result<Said> {
    let args = &args.sized(number);
    let mut figure = args.system().1(number, args, notes)?;
    // A measurement that gave no number has no place on an axis.
    figure.points.retain(|point| point.y.is_finite());
    plot::draw(&figure, args, number)?;
    let text = format!("{}\n{}", figure.text(), args.setup());
    Ok(Said { json: figure.json(args, number), text })
}
