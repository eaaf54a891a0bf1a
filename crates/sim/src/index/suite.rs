//! Small scopes, exhausted: every short sequence of operations on small trees, every crash of its
//! last operation.
//!
//! Twelve choices: insert, update, put and remove on three keys, from a few seed trees. A sequence
//! of length L is explored from the call of its last operation on; crashes before that belong to
//! shorter sequences.
//!
//! With buffered durability each sequence ends with a sync, which is explored too. The sequence is
//! run once without another sync, and once with another sync at each place before its last
//! operation.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use serde::Serialize;

use super::IndexOperation::{self, Insert, Put, Remove, Sync as EndEpoch, Update};
use super::{AnyEngine, FollowUp, IndexSubject, KeyShape};
use crate::explore::Explorer;
use crate::options::ExplorationOptions;
use crate::report::{CrashFailure, Stats};
use crate::subject::DurabilityContract;

/// A seed tree and the keys of the operations on it.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Its description.
    pub name: &'static str,
    /// The operations that make the seed.
    pub setup: Vec<IndexOperation>,
    /// The keys.
    pub keys: [u64; 3],
}

impl Scope {
    /// The value of a key in the seed tree; 0 if it is absent.
    pub(super) fn value(&self, wanted: u64) -> u64 {
        let write = |operation: &IndexOperation| match *operation {
            Insert(key, value) | Update(key, value) | Put(key, value) if key == wanted => {
                Some(value)
            }
            Remove(key) if key == wanted => Some(0),
            _ => None,
        };
        self.setup.iter().rev().find_map(write).unwrap_or(0)
    }
}

/// The four seed trees, for leaves of `entries` entries (at least 4) and inner nodes of `children`
/// children.
pub fn scopes(entries: usize, children: usize) -> Vec<Scope> {
    let entries = entries as u64;
    let children = children as u64;
    let inserts =
        |keys: &mut dyn Iterator<Item = u64>| keys.map(|key| Insert(key, key)).collect::<Vec<_>>();
    // Ascending inserts leave each leaf but the last one short of full; two more make the first two
    // full.
    let last = 10 * ((entries - 1) * (children - 1) + entries);
    let mut parent_full = inserts(&mut (10..=last).step_by(10));
    parent_full.extend([25, 10 * entries + 5].map(|key| Insert(key, key)));
    let mut near_merge = inserts(&mut (1..=2 * entries).map(|key| 10 * key));
    // Two leaves with so few keys that the next removals merge them.
    let kept = 1 + entries / 4;
    near_merge.extend(
        (1..=2 * entries)
            .filter(|key| key % entries >= kept)
            .map(|key| Remove(10 * key)),
    );
    vec![
        Scope {
            name: "empty",
            setup: Vec::new(),
            keys: [10, 20, 30],
        },
        Scope {
            name: "leaf one short of full",
            setup: inserts(&mut (1..entries).map(|key| 10 * key)),
            keys: [10, 15, 10 * entries],
        },
        Scope {
            name: "parent full",
            setup: parent_full,
            keys: [10, 15, last + 5],
        },
        Scope {
            name: "one short of a merge",
            setup: near_merge,
            keys: [10, 10 * entries, 10 * entries + 10],
        },
    ]
}

/// The seed trees for keys as [`KeyShape::Layers`] has them, for nodes of four slots.
pub fn layer_scopes() -> Vec<Scope> {
    let inserts = |keys: &[u64]| {
        keys.iter()
            .map(|key| Insert(*key, *key))
            .collect::<Vec<_>>()
    };
    let then = |mut setup: Vec<IndexOperation>, removed: &[u64]| {
        setup.extend(removed.iter().map(|key| Remove(*key)));
        setup
    };
    // Ascending, so that nodes stay full: five of them, below a full one.
    let mut parent_full: Vec<u64> = (1..=10)
        .flat_map(|first| [50 * first, 50 * first + 10])
        .collect();
    parent_full.extend([220, 320]);
    vec![
        Scope {
            name: "two keys, three layers down",
            setup: inserts(&[20, 30]),
            keys: [20, 30, 10],
        },
        // The first layer has no free slot; a layer with one key is removed with that key.
        Scope {
            name: "layers in a full node",
            setup: then(inserts(&[20, 30, 50, 60, 70, 100]), &[30]),
            keys: [0, 20, 110],
        },
        Scope {
            name: "ties and a layer in a full node",
            setup: then(inserts(&[1, 2, 5, 10, 20]), &[20]),
            keys: [3, 10, 40],
        },
        Scope {
            name: "a layer of two nodes, one short of one",
            setup: then(inserts(&[21, 22, 23, 24, 25]), &[22, 23]),
            keys: [25, 21, 30],
        },
        Scope {
            name: "parent full, of layers",
            setup: inserts(&parent_full),
            keys: [0, 120, 320],
        },
    ]
}

/// All sequences of `length` of the twelve choices; a write stores its position.
pub fn sequences(keys: [u64; 3], length: usize) -> impl Iterator<Item = Vec<IndexOperation>> {
    let choice = move |choice: usize, position: usize| {
        let key = keys[choice / 4];
        let value = 100 + position as u64;
        [
            Insert(key, value),
            Update(key, value),
            Put(key, value),
            Remove(key),
        ][choice % 4]
    };
    let count = 12usize.pow(length as u32);
    (0..count).map(move |number| {
        (0..length)
            .map(|position| {
                choice(
                    number / 12usize.pow((length - 1 - position) as u32) % 12,
                    position,
                )
            })
            .collect()
    })
}

/// The parameters of a suite.
#[derive(Clone, Copy)]
pub struct Suite<'p> {
    /// The number of operations of each sequence, at least 1. The time grows twelvefold with each.
    pub length: usize,
    /// The number of threads.
    pub threads: usize,
    /// Called from time to time, by one thread at a time.
    pub progress: Option<&'p (dyn Fn(&Progress) + Sync)>,
}

/// How far a suite is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The seed tree that is being explored.
    pub scope: &'static str,
    /// Sequences that were explored, of all seed trees.
    pub sequences_done: u64,
    /// Sequences in total.
    pub sequences: u64,
    /// The counts so far.
    pub stats: Stats,
}

/// The result of a suite.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteReport {
    /// The engine.
    pub engine: String,
    /// Its codec.
    pub codec: String,
    /// Entries of a leaf.
    pub leaf_entries: usize,
    /// Operations of each sequence.
    pub length: usize,
    /// The form of lines.
    pub line_form: String,
    /// The memory model.
    pub rules: String,
    /// The counts, of all seed trees.
    #[serde(flatten)]
    pub stats: Stats,
    /// Images that were not made, because they differ only in words that no recovery reads.
    pub images_avoided: f64,
    /// Crashes from which the engine did not recover. The suite ends at the first one.
    pub violations: u64,
    /// The report of the failure, with the command that repeats it.
    pub report: Option<String>,
    /// The duration of the suite, in seconds.
    pub seconds: f64,
    /// The failure, for programs.
    #[serde(skip)]
    pub failure: Option<Box<CrashFailure<IndexOperation>>>,
}

/// The sequences of one seed tree.
fn scripts(
    scope: &Scope,
    length: usize,
    durability: DurabilityContract,
) -> Vec<Vec<IndexOperation>> {
    let sequences = sequences(scope.keys, length);
    if durability == DurabilityContract::OnReturn {
        return sequences.collect();
    }
    let with_syncs = |sequence: Vec<IndexOperation>| {
        (0..length).map(move |place| {
            let (before, after) = sequence.split_at(place);
            let inner = (place > 0).then_some(EndEpoch);
            before
                .iter()
                .copied()
                .chain(inner)
                .chain(after.iter().copied())
                .chain([EndEpoch])
                .collect()
        })
    };
    sequences.flat_map(with_syncs).collect()
}

/// The state that the workers share.
struct Shared<'s> {
    scope: &'s Scope,
    chunks: Vec<&'s [Vec<IndexOperation>]>,
    next: AtomicUsize,
    outcome: Mutex<Outcome>,
    suite: Suite<'s>,
}

/// The results of the workers so far.
struct Outcome {
    progress: Progress,
    failure: Option<Box<CrashFailure<IndexOperation>>>,
}

/// Explores all sequences of `suite.length` operations from all seed trees.
/// `options.from_operation` is set here.
pub fn exhaust(engine: &AnyEngine, suite: Suite<'_>, options: &ExplorationOptions) -> SuiteReport {
    let start = Instant::now();
    let scopes = match engine.keys() {
        KeyShape::Layers => layer_scopes(),
        KeyShape::Words | KeyShape::Records => scopes(engine.leaf_entries(), engine.children_max()),
    };
    let durability = engine.durability();
    let scripts: Vec<_> = scopes
        .iter()
        .map(|scope| scripts(scope, suite.length, durability))
        .collect();
    let sequences = scripts.iter().map(|scripts| scripts.len() as u64).sum();
    let progress = Progress {
        scope: scopes[0].name,
        sequences_done: 0,
        sequences,
        stats: Stats::default(),
    };
    let mut outcome = Outcome {
        progress,
        failure: None,
    };
    for (scope, scripts) in scopes.iter().zip(&scripts) {
        outcome.progress.scope = scope.name;
        // In chunks of neighbours, which share their first operations: a worker's known crash
        // points apply again.
        let chunks = scripts
            .chunks(scripts.len().div_ceil(suite.threads * 32))
            .collect();
        let shared = Shared {
            scope,
            chunks,
            next: AtomicUsize::new(0),
            outcome: Mutex::new(outcome),
            suite,
        };
        std::thread::scope(|threads| {
            for _ in 1..suite.threads {
                threads.spawn(|| work(engine, &shared, options));
            }
            work(engine, &shared, options);
        });
        outcome = shared.outcome.into_inner();
        if outcome.failure.is_some() {
            break;
        }
    }
    report(engine, suite.length, options, outcome, start)
}

fn report(
    engine: &AnyEngine,
    length: usize,
    options: &ExplorationOptions,
    outcome: Outcome,
    start: Instant,
) -> SuiteReport {
    let stats = outcome.progress.stats;
    SuiteReport {
        engine: engine.name().to_owned(),
        codec: engine.codec().to_owned(),
        leaf_entries: engine.leaf_entries(),
        length,
        line_form: format!("{:?}", options.line_form),
        rules: format!("{:?}", options.rules),
        stats,
        images_avoided: stats.images_avoided(),
        violations: u64::from(outcome.failure.is_some()),
        report: outcome.failure.as_ref().map(ToString::to_string),
        seconds: start.elapsed().as_secs_f64(),
        failure: outcome.failure,
    }
}

fn work(engine: &AnyEngine, shared: &Shared<'_>, options: &ExplorationOptions) {
    let mut reported = Stats::default();
    let result = (|| {
        // A sync at the end of a sequence belongs to its last operation.
        let mut setup = shared.scope.setup.clone();
        let buffered = engine.durability() != DurabilityContract::OnReturn;
        setup.extend(buffered.then_some(EndEpoch));
        let subject = IndexSubject::new(engine, FollowUp::SplitAndMerge);
        let mut explorer =
            Explorer::new(subject, options.clone()).expect("memory for the explorer");
        explorer.set_up(&setup)?;
        while let Some(scripts) = shared
            .chunks
            .get(shared.next.fetch_add(1, Ordering::Relaxed))
        {
            for script in *scripts {
                explorer.options_mut().from_operation = script.len() - 1 - usize::from(buffered);
                explorer.explore(script)?;
            }
            let stats = explorer.stats();
            shared.tell(stats.since(&reported), scripts.len());
            reported = stats;
        }
        Ok(())
    })();
    if let Err(failure) = result {
        shared.next.store(shared.chunks.len(), Ordering::Relaxed);
        shared.outcome.lock().failure.get_or_insert(failure);
    }
}

impl Shared<'_> {
    /// One more chunk is done.
    fn tell(&self, stats: Stats, sequences: usize) {
        let mut outcome = self.outcome.lock();
        outcome.progress.stats += stats;
        outcome.progress.sequences_done += sequences as u64;
        if let Some(progress) = self.suite.progress {
            progress(&outcome.progress);
        }
    }
}

#[cfg(test)]
mod tests;
