//! Measures series in turns, so that a drift of the machine affects all of them alike.

use super::args::Args;
use super::keys::Keys;
use super::subject::Bench;
use super::undo;
use super::workload::Script;
use crate::comparison::{median, turns};
use terminal::failure::{Failure, Result};

/// Bytes of memory for a key of 8 bytes, its value, and its part of the nodes, with a margin.
const KEY_BYTES: u64 = 96;

/// A throughput, with its space and counters.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Million operations a second, the median of the runs.
    pub(crate) mops: f64,
    /// Bytes of slabs in use at the end of the runs.
    pub(crate) used_bytes: u64,
    /// The engine's counters of the last run.
    pub(crate) counters: Vec<(&'static str, u64)>,
}

/// A measurement on one of several trees.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// The tree's number.
    pub(crate) tree: usize,
    /// The operations; engine, medium and keys are the tree's.
    pub(crate) args: Args,
}

/// Trees with the same keys, loaded for several measurements, each of which leaves the keys as they
/// were.
pub(crate) struct Trees {
    trees: Vec<Bench>,
    keys: Keys,
    /// Whether each tree had a run already.
    are_warm: bool,
}

impl Trees {
    /// Loads a tree for each of these, all with the keys of the first.
    pub(crate) fn load(all: &[Args]) -> Result<Self> {
        let first = all
            .first()
            .ok_or_else(|| Failure::Usage("no tree is measured".to_owned()))?;
        first.validate()?;
        let keys = first.keys_drawn();
        let load = |args: &Args| {
            args.validate()?;
            let mut bench = Bench::create(args)?;
            bench.load(args, &keys, args.keys - args.withheld())?;
            bench.end_epoch()?;
            Ok(bench)
        };
        Ok(Self {
            trees: all.iter().map(load).collect::<Result<_>>()?,
            keys,
            are_warm: false,
        })
    }

    /// Measures series run by run in turns. Returns a sample for each.
    pub(crate) fn samples(&mut self, all: &[Series]) -> Result<Vec<Sample>> {
        if all.len() > 1 && !self.are_warm {
            self.warm(all)?;
        }
        let mut found: Vec<Measurement> = all.iter().map(|_| Measurement::default()).collect();
        let runs = all.iter().map(|series| series.args.runs).max().unwrap_or(0);
        for number in 0..runs {
            for turn in turns(number, all.len()) {
                self.run(&all[turn], number, &mut found[turn])?;
            }
        }
        Ok(found.into_iter().map(Measurement::sample).collect())
    }

    /// Gives each tree a run that does not count: its first run is slower, and would affect one
    /// series alone.
    fn warm(&mut self, all: &[Series]) -> Result<()> {
        for tree in 0..self.trees.len() {
            if let Some(series) = all.iter().find(|series| series.tree == tree) {
                // With a seed that no other run has.
                self.run(series, series.args.runs, &mut Measurement::default())?;
            }
        }
        self.are_warm = true;
        Ok(())
    }

    fn run(
        &self,
        Series { tree, args }: &Series,
        number: usize,
        found: &mut Measurement,
    ) -> Result<()> {
        args.validate()?;
        let bench = &self.trees[*tree];
        bench.set_delay(args);
        let script = Script::new(args, &self.keys, number);
        let before = bench.counters();
        let measured = bench.measure(&script)?;
        found.counters = bench.counters_since(&before);
        found
            .mops
            .push(measured.operations as f64 / measured.elapsed.as_secs_f64() / 1e6);
        found.used_bytes = bench.used_bytes()?;
        undo(args, bench, &script)?;
        // Later writes back of this run must not slow another series.
        bench.end_epoch()
    }
}

/// Whether these trees fit into memory together; `true` if the free memory is not known.
pub(crate) fn fit_together(all: &[Args]) -> bool {
    let bytes = all.iter().map(|args| args.keys * KEY_BYTES).sum::<u64>();
    let available = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| available_bytes(&text));
    available.is_none_or(|available| bytes <= available)
}

/// The bytes of available memory, by the kernel.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// The measurements of a series so far.
#[derive(Default)]
struct Measurement {
    mops: Vec<f64>,
    used_bytes: u64,
    counters: Vec<(&'static str, u64)>,
}

impl Measurement {
    fn sample(self) -> Sample {
        Sample {
            mops: median(&self.mops),
            used_bytes: self.used_bytes,
            counters: self.counters,
        }
    }
}

/// Measures one workload by itself, without the standard library's map beside it.
pub(crate) fn sample(args: &Args) -> Result<Sample> {
    let alone = [Series {
        tree: 0,
        args: args.clone(),
    }];
    let mut found = Trees::load(std::slice::from_ref(args))?.samples(&alone)?;
    Ok(found.remove(0))
}

#[cfg(test)]
mod tests;
