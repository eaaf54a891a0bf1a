//! Small scopes, exhausted: every short sequence of operations on small trees, every crash of its last operation.
//!
//! Twelve choices: insert, update, put and remove on three keys, from four seed trees. A sequence of length L is explored
//! from the call of its last operation on; crashes before that belong to shorter sequences.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::IndexOperation::{self, Insert, Put, Remove, Update};
use super::{Engine, FollowUp, IndexSubject};
use crate::explore::{Explorer, Options};
use crate::report::{Failure, Stats};

/// A seed tree and the keys that are worked on.
#[derive(Clone, Debug)]
pub struct Scope {
    /// What it is, for people.
    pub name: &'static str,
    /// The operations that make the seed.
    pub setup: Vec<IndexOperation>,
    /// The keys.
    pub keys: [u64; 3],
}

/// The most children of an inner node.
const CHILDREN_MAX: u64 = 32;

/// The four seed trees, for leaves of `entries` entries (at least 4).
pub fn scopes(entries: usize) -> Vec<Scope> {
    let entries = entries as u64;
    let inserts = |keys: &mut dyn Iterator<Item = u64>| keys.map(|key| Insert(key, key)).collect::<Vec<_>>();
    // Ascending inserts leave each leaf but the last one short of full; two more make the first two full.
    let last = 10 * ((entries - 1) * (CHILDREN_MAX - 1) + entries);
    let mut parent_full = inserts(&mut (10..=last).step_by(10));
    parent_full.extend([25, 10 * entries + 5].map(|key| Insert(key, key)));
    let mut near_merge = inserts(&mut (1..=2 * entries).map(|key| 10 * key));
    // Two leaves with so few keys that the next removals merge them.
    let kept = 1 + entries / 4;
    near_merge.extend((1..=2 * entries).filter(|key| key % entries >= kept).map(|key| Remove(10 * key)));
    vec![
        Scope { name: "empty", setup: Vec::new(), keys: [10, 20, 30] },
        Scope {
            name: "leaf one short of full",
            setup: inserts(&mut (1..entries).map(|key| 10 * key)),
            keys: [10, 15, 10 * entries],
        },
        Scope { name: "parent full", setup: parent_full, keys: [10, 15, last + 5] },
        Scope {
            name: "one short of a merge",
            setup: near_merge,
            keys: [10, 10 * entries, 10 * entries + 10],
        },
    ]
}

/// All sequences of `length` of the twelve choices; a write stores its position.
pub fn sequences(keys: [u64; 3], length: usize) -> impl Iterator<Item = Vec<IndexOperation>> {
    let choice = move |choice: usize, position: usize| {
        let (key, value) = (keys[choice / 4], 100 + position as u64);
        [Insert(key, value), Update(key, value), Put(key, value), Remove(key)][choice % 4]
    };
    let count = 12usize.pow(length as u32);
    (0..count).map(move |number| {
        (0..length)
            .map(|position| choice(number / 12usize.pow((length - 1 - position) as u32) % 12, position))
            .collect()
    })
}

/// A failure, boxed for its size.
pub type SuiteResult = Result<Stats, Box<Failure<IndexOperation>>>;

/// Explores all sequences of `length` from all seed trees on `threads` threads. `options.from_operation` is set here.
pub fn exhaust<E: Engine>(
    engine: impl Fn() -> E + Sync,
    length: usize,
    threads: usize,
    options: &Options,
) -> SuiteResult {
    let options = Options { from_operation: length - 1, ..options.clone() };
    let mut total = Stats::default();
    for scope in scopes(engine().leaf_entries()) {
        let all: Vec<_> = sequences(scope.keys, length).collect();
        // Neighbours share their first operations: what one worker knows is of use to it again.
        let chunks: Vec<_> = all.chunks(all.len().div_ceil(threads * 8)).collect();
        let next = AtomicUsize::new(0);
        let outcome = Mutex::new(Ok(Stats::default()));
        let work = || {
            let result =
                work(&engine, &scope, &options, || chunks.get(next.fetch_add(1, Ordering::Relaxed)).copied());
            if result.is_err() {
                next.store(chunks.len(), Ordering::Relaxed);
            }
            let mut outcome = outcome.lock();
            match (&mut *outcome, result) {
                (Ok(total), Ok(stats)) => *total += stats,
                (Ok(_), Err(failure)) => *outcome = Err(failure),
                (Err(_), _) => {}
            }
        };
        std::thread::scope(|threads_scope| {
            for _ in 1..threads {
                threads_scope.spawn(work);
            }
            work();
        });
        total += outcome.into_inner()?;
    }
    Ok(total)
}

fn work<'s, E: Engine>(
    engine: &(impl Fn() -> E + Sync),
    scope: &Scope,
    options: &Options,
    mut next: impl FnMut() -> Option<&'s [Vec<IndexOperation>]>,
) -> SuiteResult {
    let subject = IndexSubject::new(engine(), FollowUp::SplitAndMerge);
    let mut explorer = Explorer::new(subject, options.clone()).expect("memory for the explorer");
    explorer.set_up(&scope.setup)?;
    while let Some(sequences) = next() {
        for sequence in sequences {
            explorer.explore(sequence)?;
        }
    }
    Ok(explorer.stats())
}

#[cfg(test)]
mod tests {
    use engines::index::{Index, WordCodec};
    use medium::sim::{Sim, SimOptions};

    use super::*;
    use crate::index::RnTreeEngine;
    use crate::subject::Subject;

    fn figures(setup: &[IndexOperation]) -> (u64, u32, u64) {
        let subject = IndexSubject::new(RnTreeEngine::<WordCodec, 4>::default(), FollowUp::Keys);
        let sim = Sim::new(SimOptions::default()).unwrap();
        let mut opened = subject.open(&sim).unwrap();
        for operation in setup {
            subject.apply(&mut opened, operation).unwrap();
        }
        let stat = opened.tree.as_ref().unwrap().stat().unwrap();
        (stat.leaves, stat.height, stat.keys)
    }

    #[test]
    fn seeds_are_what_they_are_called() {
        let after = |scope: usize, operation: IndexOperation| {
            let mut operations = scopes(4)[scope].setup.clone();
            operations.push(operation);
            figures(&operations)
        };
        let seeds: Vec<_> = scopes(4).iter().map(|scope| figures(&scope.setup)).collect();
        assert_eq!(seeds, [(1, 0, 0), (1, 0, 3), (32, 1, 99), (3, 1, 4)]);
        // Each of the keys that are absent splits a leaf, and the parent with it.
        assert_eq!([15, 975].map(|key| after(2, Insert(key, 1))), [(33, 2, 100); 2]);
        // Each of the keys that are present is one without which leaves merge.
        assert_eq!([10, 40, 50].map(|key| after(3, Remove(key))), [(2, 1, 3); 3]);
    }

    #[test]
    fn sequences_are_all_there_once() {
        let mut all: Vec<_> = sequences([1, 2, 3], 2).map(|sequence| format!("{sequence:?}")).collect();
        assert_eq!(all[0], "[insert 1=100, insert 1=101]");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 144);
    }
}
