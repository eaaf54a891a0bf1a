//! The cost of epochs: times of operations during which an epoch ends, and of the first use of a
//! node after a crash.

use std::time::Instant;

use everleaf::Tree;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::args::{Args, Workload};
use super::keys::{Keys, Random};
use super::subject::{Bench, KeyForm, histogram, on_threads};
use super::workload::Script;
use terminal::failure::Result;

/// A distance of keys that are never in one leaf.
const KEYS_APART: usize = 32;
/// Leaves that are used.
const TOUCHES_MAX: usize = 50_000;

/// Times of gets after a crash, before anything has recovered the nodes.
pub(crate) struct Touches {
    /// Gets of one key in each of many leaves.
    first_ns: Histogram<u64>,
    /// Gets of the same keys once more.
    again_ns: Histogram<u64>,
}

/// The measurements of epochs.
#[derive(Default)]
pub(crate) struct EpochFigures {
    pub(crate) across_ns: Option<Histogram<u64>>,
    pub(crate) touches: Option<Touches>,
    /// The longest pause since the tree was made.
    pub(crate) pause_ns_max: Option<u64>,
}

impl EpochFigures {
    pub(crate) fn json(&self) -> Value {
        let across = |figure: &dyn Fn(&Histogram<u64>) -> u64| {
            self.across_ns
                .as_ref()
                .filter(|across| !across.is_empty())
                .map(figure)
        };
        let touches = |times: fn(&Touches) -> &Histogram<u64>, quantile| {
            self.touches
                .as_ref()
                .map(|touches| times(touches).value_at_quantile(quantile))
        };
        json!({
            "operations_across_advance": across(&Histogram::len),
            "p50_across_advance_ns": across(&|across| across.value_at_quantile(0.5)),
            "p999_across_advance_ns": across(&|across| across.value_at_quantile(0.999)),
            "pause_ns_max": self.pause_ns_max,
            "first_touch_p50_ns": touches(|touches| &touches.first_ns, 0.5),
            "first_touch_p99_ns": touches(|touches| &touches.first_ns, 0.99),
            "second_touch_p50_ns": touches(|touches| &touches.again_ns, 0.5),
            "second_touch_p99_ns": touches(|touches| &touches.again_ns, 0.99),
        })
    }
}

/// Times the operations during which the epoch changed, in a run of its own. All operations are
/// timed, so that run is slower than others. `None` for engines without epochs.
pub(crate) fn across(args: &Args, bench: &Bench, keys: &Keys) -> Result<Option<Histogram<u64>>> {
    if bench.epoch_stat().is_none() || args.workload == Workload::Load {
        return Ok(None);
    }
    // With a seed that no other run has.
    let script = Script::new(args, keys, args.runs);
    let mut all = histogram();
    for times in on_threads(script.threads.len(), |thread| {
        across_of(bench, &script, thread)
    }) {
        all.add(times?).expect("histograms of one shape");
    }
    super::undo(args, bench, &script)?;
    Ok(Some(all))
}

fn across_of(bench: &Bench, script: &Script, thread: usize) -> Result<Histogram<u64>> {
    let running = || bench.epoch_stat().map_or(0, |stat| stat.running);
    let subject = bench.subject();
    let mut latency_ns = histogram();
    let mut sum = 0_u64;
    let mut buffer = Vec::new();
    let mut before = running();
    let mut stamps = script.stamps(thread);
    for step in &script.threads[thread] {
        let start = Instant::now();
        sum = sum.wrapping_add(subject.step(*step, stamps.take(), &mut buffer)?);
        let elapsed = start.elapsed();
        let after = running();
        if after != before {
            latency_ns.saturating_record(elapsed.as_nanos() as u64);
            before = after;
        }
    }
    std::hint::black_box(sum);
    Ok(latency_ns)
}

/// Gets a key of each of many leaves, twice. The tree was opened after a crash and not used since.
pub(crate) fn first_touches(tree: &Tree, args: &Args) -> Result<Touches> {
    let drawn = args.keys_drawn();
    let mut sorted: Vec<u64> = (0..args.keys - args.withheld())
        .map(|index| drawn.key(index))
        .collect();
    sorted.sort_unstable();
    let apart = sorted.len().div_ceil(TOUCHES_MAX).max(KEYS_APART);
    let form = KeyForm::of(args);
    let mut keys: Vec<_> = sorted
        .iter()
        .step_by(apart)
        .map(|key| form.bytes(*key))
        .collect();
    let mut random = Random::new(args.seed);
    for index in (1..keys.len()).rev() {
        keys.swap(index, random.below(index as u64 + 1) as usize);
    }
    let mut buffer = Vec::new();
    let mut get_all = || -> Result<Histogram<u64>> {
        let mut latency_ns = histogram();
        for key in &keys {
            let start = Instant::now();
            std::hint::black_box(tree.index().get_into(key, &mut buffer)?);
            latency_ns.saturating_record(start.elapsed().as_nanos() as u64);
        }
        Ok(latency_ns)
    };
    Ok(Touches {
        first_ns: get_all()?,
        again_ns: get_all()?,
    })
}
