//! Runs of all stores in turns, each in a process of its own, so that drift of the machine hits all
//! alike.

use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::bench::KeyShape;
use lab::comparison::{median, turns};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::measure::{FigureLine, Plan, key_shape_argument};
use crate::metric::{self, Metric, Unit};
use crate::peers::PeerKind;

/// A figure of one run.
#[derive(Serialize)]
pub(crate) struct RunFigure {
    pub(crate) store: &'static str,
    pub(crate) key_shape: KeyShape,
    pub(crate) run: usize,
    pub(crate) metric: String,
    pub(crate) value: f64,
    pub(crate) unit: Unit,
}

/// The results of all runs with keys of one shape.
pub(crate) struct Results {
    pub(crate) key_shape: KeyShape,
    pub(crate) samples: Vec<RunFigure>,
    /// Why a store was left out, by its name. It has no samples.
    pub(crate) failed: Vec<(&'static str, String)>,
}

impl Results {
    fn new(key_shape: KeyShape) -> Self {
        Self {
            key_shape,
            samples: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// The figures of a store, one for each run.
    pub(crate) fn figures(&self, store: &str, metric: &Metric) -> Vec<f64> {
        let of_it = self
            .samples
            .iter()
            .filter(|sample| sample.store == store && sample.metric == metric.name);
        of_it.map(|sample| sample.value).collect()
    }

    pub(crate) fn median(&self, store: &str, metric: &Metric) -> Option<f64> {
        let figures = self.figures(store, metric);
        if figures.is_empty() {
            return None;
        }
        Some(median(&figures))
    }

    /// The best median of some stores.
    pub(crate) fn best<'k>(
        &self,
        kinds: impl IntoIterator<Item = &'k &'static PeerKind>,
        metric: &Metric,
    ) -> Option<(&'static PeerKind, f64)> {
        let medians = kinds
            .into_iter()
            .filter_map(|kind| Some((*kind, self.median(kind.name, metric)?)));
        medians.max_by(|(_, a), (_, b)| metric.advantage(*a, *b).total_cmp(&1.0))
    }
}

/// Runs every store `runs` times with keys of each shape, in sub-folders of `folder`, which is
/// empty. `see` gets each figure. Returns the results of each shape.
pub(crate) fn take(
    folder: &Path,
    plan: &Plan,
    shapes: &[KeyShape],
    kinds: &[&'static PeerKind],
    runs: usize,
    see: impl Fn(&RunFigure) -> Result,
) -> Result<Vec<Results>> {
    let mut all: Vec<Results> = shapes.iter().map(|shape| Results::new(*shape)).collect();
    let figures = plan.metrics().count() * shapes.len() * kinds.len() * runs;
    let bar = progress_bar(figures as u64);
    for run in 0..runs {
        for shape_turn in turns(run, shapes.len()) {
            let results = &mut all[shape_turn];
            let plan = plan.with_keys(results.key_shape);
            for turn in turns(run, kinds.len()) {
                take_one(
                    folder,
                    &plan,
                    kinds[turn],
                    Round { run, runs },
                    &bar,
                    results,
                    &see,
                )?;
            }
        }
    }
    bar.finish_and_clear();
    Ok(all)
}

/// One of the runs of each store.
#[derive(Clone, Copy)]
struct Round {
    run: usize,
    runs: usize,
}

/// Runs one store once, unless it has failed before.
fn take_one(
    folder: &Path,
    plan: &Plan,
    kind: &'static PeerKind,
    round: Round,
    bar: &ProgressBar,
    results: &mut Results,
    see: impl Fn(&RunFigure) -> Result,
) -> Result {
    if results.failed.iter().any(|(name, _)| *name == kind.name) {
        return Ok(());
    }
    let key_shape = results.key_shape;
    let run = round.run + 1;
    bar.set_message(format!(
        "{}, {} keys, run {run} of {}",
        kind.name,
        key_shape.name(),
        round.runs
    ));
    let place = folder.join(format!("{}-{}-{run}", kind.name, key_shape.name()));
    std::fs::create_dir(&place).map_err(Failure::path("make", &place))?;
    let tell = |line: FigureLine| {
        let FigureLine { metric, value } = line;
        let unit = metric::from_name(&metric).map_or(Unit::PerSecond, |metric| metric.unit);
        let sample = RunFigure {
            store: kind.name,
            key_shape,
            run,
            metric,
            value,
            unit,
        };
        bar.inc(1);
        bar.suspend(|| see(&sample))?;
        Ok(sample)
    };
    match measure(kind, plan, &place, tell)? {
        Run::Measured(samples) => results.samples.extend(samples),
        Run::Failed(why) => {
            bar.suspend(|| eprintln!("{why}"));
            results.samples.retain(|sample| sample.store != kind.name);
            results.failed.push((kind.name, why));
        }
    }
    std::fs::remove_dir_all(&place).map_err(Failure::path("remove", &place))?;
    // Data that this store left in the page cache must not slow down the next one.
    let _ = Command::new("sync").status();
    Ok(())
}

/// How one run of one store ended.
enum Run {
    Measured(Vec<RunFigure>),
    /// The store failed, and this is why.
    Failed(String),
}

/// Measures one store once.
fn measure(
    kind: &'static PeerKind,
    plan: &Plan,
    place: &Path,
    tell: impl Fn(FigureLine) -> Result<RunFigure>,
) -> Result<Run> {
    let cannot = |error| {
        Failure::new(format!(
            "cannot start a process for {}: {error}; free some memory",
            kind.name
        ))
    };
    let mut child = Command::new(std::env::current_exe().map_err(cannot)?)
        .args(["measure", "--store", kind.name, "--folder"])
        .arg(place)
        .arg(key_shape_argument(&[plan.shape.key_shape]))
        .args(plan.arguments())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let mut samples = Vec::new();
    let lines = child
        .stdout
        .take()
        .map(BufReader::new)
        .into_iter()
        .flat_map(BufRead::lines);
    for line in lines.map_while(std::result::Result::ok) {
        if let Ok(line) = serde_json::from_str(&line) {
            samples.push(tell(line)?);
        }
    }
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut said);
    }
    let status = child.wait().map_err(cannot)?;
    if status.success() {
        return Ok(Run::Measured(samples));
    }
    let why = said.trim();
    Ok(Run::Failed(if why.is_empty() {
        format!("{}: its process ended with {status}", kind.name)
    } else {
        why.to_owned()
    }))
}

fn progress_bar(figures: u64) -> ProgressBar {
    let bar = ProgressBar::new(figures);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template(
        "{bar:30} {pos}/{len} figures, {elapsed} gone, {eta} to go: {msg}",
    );
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
