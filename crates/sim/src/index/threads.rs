//! Small scopes under threads: all pairs, and some triples, of operations on small trees.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::IndexOperation::{self, Get, Insert, Put, Remove, Scan, ScanBack, Update, Visit};
use super::suite::Scope;
use super::{Engine, FollowUp, IndexSubject};
use crate::explore::{Explorer, Options};
use crate::report::Stats;
use crate::schedule::{Program, Scheduling, ThreadsFailure};

/// The seed trees, for leaves of `entries` entries (at least 4): one where the threads meet in one leaf, one where they
/// split it (alone, and with its neighbour), one where they merge leaves.
pub fn scopes(entries: usize) -> Vec<Scope> {
    let entries = entries as u64;
    let fill = |keys: std::ops::Range<u64>| keys.map(|key| Insert(10 * key, key)).collect::<Vec<_>>();
    // Ascending inserts leave the first of two leaves one short of full.
    let mut neighbours = fill(1..entries + 3);
    neighbours.push(Insert(15, 1));
    let mut near_merge = fill(1..2 * entries + 1);
    let kept = 1 + entries / 4;
    near_merge.extend((1..=2 * entries).filter(|key| key % entries >= kept).map(|key| Remove(10 * key)));
    vec![
        Scope { name: "one leaf", setup: fill(1..3), keys: [10, 15, 20] },
        Scope { name: "a leaf to split", setup: fill(1..entries + 1), keys: [10, 15, 10 * entries] },
        Scope { name: "a leaf to share", setup: neighbours, keys: [10, 17, 10 * entries] },
        Scope { name: "leaves to merge", setup: near_merge, keys: [10, 10 * entries, 10 * entries + 10] },
    ]
}

/// The operations that threads do on a scope: each kind, on keys that are there and on one that is not.
pub fn choices(scope: &Scope) -> Vec<IndexOperation> {
    let [low, middle, high] = scope.keys;
    let all = (0, 10 * high);
    vec![
        Insert(middle, 101),
        Insert(middle + 1, 102),
        Put(low, 103),
        Update(high, 104),
        Remove(low),
        Remove(high),
        Get(high),
        Get(middle),
        Scan(all.0, all.1),
        ScanBack(all.0, all.1),
        Visit(all.0, all.1),
    ]
}

/// All pairs of the choices of a scope.
pub fn pairs(scope: &Scope) -> Vec<Program<IndexOperation>> {
    let choices = choices(scope);
    let pairs = choices
        .iter()
        .enumerate()
        .flat_map(|(index, one)| choices[index..].iter().map(|other| Program::single(&[*one, *other])));
    pairs.filter(|program| program.threads.iter().flatten().any(|operation| operation.writes())).collect()
}

/// All triples of the choices of a scope of which at least two write.
pub fn triples(scope: &Scope) -> Vec<Program<IndexOperation>> {
    let choices = choices(scope);
    let mut triples = Vec::new();
    for (first, one) in choices.iter().enumerate() {
        for (second, other) in choices.iter().enumerate().skip(first) {
            triples.extend(choices[second..].iter().map(|third| [*one, *other, *third]));
        }
    }
    triples.retain(|triple| triple.iter().filter(|operation| operation.writes()).count() > 1);
    triples.iter().map(|triple| Program::single(triple)).collect()
}

/// Threads that do `length` operations each on a few keys, by chance: with small leaves they split and merge all the
/// time. Half as many operations come before.
pub fn random(seed: u64, threads: usize, length: usize, keys: u64) -> Program<IndexOperation> {
    let mut state = seed;
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut operation = |number: u64| {
        let key = 1 + below(keys);
        match below(20) {
            0..7 => Insert(key, number),
            7..13 => Remove(key),
            13 => Put(key, number),
            14 => Update(key, number),
            15 | 16 => Get(key),
            17 => Scan(0, key + 4),
            18 => ScanBack(key, keys + 1),
            _ => Visit(key, keys + 1),
        }
    };
    let mut numbers = 0..;
    let mut thread = |length: usize| numbers.by_ref().take(length).map(&mut operation).collect();
    let before = thread(length / 2);
    Program { before, threads: (0..threads).map(|_| thread(length)).collect(), uninterrupted: Vec::new() }
}

/// A failure, boxed for its size.
pub type ThreadsResult = Result<Stats, Box<ThreadsFailure<IndexOperation>>>;

/// Explores programs on one scope, on `workers` threads of the system.
pub fn exhaust<E: Engine + 'static>(
    engine: impl Fn() -> E + Sync,
    scope: &Scope,
    programs: &[Program<IndexOperation>],
    workers: usize,
    (options, scheduling): (&Options, &Scheduling),
) -> ThreadsResult {
    let next = AtomicUsize::new(0);
    let outcome = Mutex::new(Ok(Stats::default()));
    let work = || {
        let subject = IndexSubject::new(engine(), FollowUp::Keys);
        let mut explorer = Explorer::new(subject, options.clone()).expect("memory for the explorer");
        explorer.set_up(&scope.setup).unwrap_or_else(|failure| panic!("{failure}"));
        let mut result = Ok(());
        while result.is_ok() {
            let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            result = explorer.explore_threads(program, scheduling);
        }
        let mut outcome = outcome.lock();
        match (&mut *outcome, result) {
            (Ok(total), Ok(())) => *total += explorer.stats(),
            (Ok(_), Err(failure)) => {
                next.store(programs.len(), Ordering::Relaxed);
                *outcome = Err(failure);
            }
            (Err(_), _) => {}
        }
    };
    std::thread::scope(|scope| {
        (1..workers).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    outcome.into_inner()
}
