//! Small scopes under threads: all pairs, and some triples, of operations on small trees.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::IndexOperation::{
    self, Exchange, Get, GetMany, Insert, Put, Remove, Scan, ScanBack, Sync as EndEpoch, Update,
    Visit,
};
use super::script::Numbers;
use super::suite::Scope;
use super::{AnyEngine, FollowUp, IndexSubject};
use crate::explore::Explorer;
use crate::options::ExplorationOptions;
use crate::report::Stats;
use crate::schedule::{Program, Scheduling, Search, ThreadsFailure};
use crate::subject::DurabilityContract;

/// The seed trees, for leaves of `entries` entries (at least 4): one where the threads work in one
/// leaf, one where they split it (alone, and with its neighbour), one where they merge leaves.
pub fn scopes(entries: usize) -> Vec<Scope> {
    let entries = entries as u64;
    let fill =
        |keys: std::ops::Range<u64>| keys.map(|key| Insert(10 * key, key)).collect::<Vec<_>>();
    // Ascending inserts leave the first of two leaves one short of full.
    let mut neighbours = fill(1..entries + 3);
    neighbours.push(Insert(15, 1));
    let mut near_merge = fill(1..2 * entries + 1);
    let kept = 1 + entries / 4;
    near_merge.extend(
        (1..=2 * entries)
            .filter(|key| key % entries >= kept)
            .map(|key| Remove(10 * key)),
    );
    vec![
        Scope {
            name: "one leaf",
            setup: fill(1..3),
            keys: [10, 15, 20],
        },
        Scope {
            name: "a leaf to split",
            setup: fill(1..entries + 1),
            keys: [10, 15, 10 * entries],
        },
        Scope {
            name: "a leaf to share",
            setup: neighbours,
            keys: [10, 17, 10 * entries],
        },
        Scope {
            name: "leaves to merge",
            setup: near_merge,
            keys: [10, 10 * entries, 10 * entries + 10],
        },
    ]
}

/// The end of an epoch, where there are epochs.
pub fn epoch_end(durability: DurabilityContract) -> Option<IndexOperation> {
    (durability != DurabilityContract::OnReturn).then_some(EndEpoch)
}

/// The operations of threads on a scope: each kind, on keys that are present and on one that is
/// not; and the end of an epoch, with buffered durability.
pub fn choices(scope: &Scope, durability: DurabilityContract) -> Vec<IndexOperation> {
    let [low, middle, high] = scope.keys;
    let all = (0, 10 * high);
    let choices = [
        Insert(middle, 101),
        Insert(middle + 1, 102),
        Put(low, 103),
        Update(high, 104),
        Exchange(high, scope.value(high), 105),
        Remove(low),
        Remove(high),
        Get(high),
        Get(middle),
        Scan(all.0, all.1),
        ScanBack(all.0, all.1),
        Visit(all.0, all.1),
    ];
    choices.into_iter().chain(epoch_end(durability)).collect()
}

/// All pairs of the choices of a scope, and of finding two keys at once, of which at least one
/// writes.
pub fn pairs(scope: &Scope, durability: DurabilityContract) -> Vec<Program<IndexOperation>> {
    let [low, _, high] = scope.keys;
    let mut choices = choices(scope, durability);
    choices.push(GetMany(low, high));
    let pairs = choices.iter().enumerate().flat_map(|(index, one)| {
        choices[index..]
            .iter()
            .map(|other| Program::single(&[*one, *other]))
    });
    pairs
        .filter(|program| {
            program
                .threads
                .iter()
                .flatten()
                .any(|operation| operation.writes())
        })
        .collect()
}

/// A thread that moves all records, beside each of the choices of a scope.
pub fn movers(scope: &Scope, durability: DurabilityContract) -> Vec<Program<IndexOperation>> {
    let choices = choices(scope, durability).into_iter();
    choices
        .map(|other| Program::single(&[IndexOperation::Evacuate, other]))
        .collect()
}

/// All triples of the choices of a scope of which at least two write.
pub fn triples(scope: &Scope, durability: DurabilityContract) -> Vec<Program<IndexOperation>> {
    let choices = choices(scope, durability);
    let mut triples = Vec::new();
    for (first, one) in choices.iter().enumerate() {
        for (second, other) in choices.iter().enumerate().skip(first) {
            triples.extend(choices[second..].iter().map(|third| [*one, *other, *third]));
        }
    }
    triples.retain(|triple| triple.iter().filter(|operation| operation.writes()).count() > 1);
    triples
        .iter()
        .map(|triple| Program::single(triple))
        .collect()
}

/// Setups that leave free records to the shard of the first thread, and programs in which the
/// second thread needs them. For a tree without a failed epoch, which would keep a shard from
/// taking records over.
pub fn takers() -> Vec<(Vec<IndexOperation>, Program<IndexOperation>)> {
    // The first record of a layer is left out: it holds its key and is longer.
    let one = vec![
        Insert(10, 1),
        Insert(20, 2),
        EndEpoch,
        Update(20, 3),
        EndEpoch,
    ];
    let mut many = one.clone();
    many.extend((100..106).map(|key| Insert(key, key)).chain([EndEpoch]));
    many.extend((100..106).map(Remove).chain([EndEpoch]));
    let taken = vec![
        Remove(20),
        Insert(30, 5),
        EndEpoch,
        Remove(30),
        Insert(40, 6),
    ];
    vec![
        // The first thread goes on; some are left at the end of the epoch.
        (many.clone(), Program::of(vec![vec![Insert(15, 4)], taken])),
        // All of them need some, and take from each other.
        (
            many,
            Program::single(&[Insert(15, 4), Insert(30, 5), Insert(40, 6)]),
        ),
        // Space that it frees must not be used in this epoch, by any thread.
        (
            one.clone(),
            Program::of(vec![
                vec![Remove(20), EndEpoch],
                vec![Insert(30, 5), Insert(40, 6)],
            ]),
        ),
        (
            one,
            Program::of(vec![
                vec![Update(20, 4), Update(20, 5)],
                vec![Insert(30, 6)],
            ]),
        ),
    ]
}

/// Threads with `length` random operations each on a few keys: with small leaves they split and
/// merge often. Half as many operations come before them. With buffered durability epochs end
/// beside them.
pub fn random(
    seed: u64,
    threads: usize,
    length: usize,
    keys: u64,
    durability: DurabilityContract,
) -> Program<IndexOperation> {
    let in_epochs = epoch_end(durability).is_some();
    let mut numbers = Numbers::of_seed(seed);
    let mut operation = |number: u64| {
        let key = 1 + numbers.below(keys);
        match numbers.below(20) {
            0..7 => Insert(key, number),
            7..13 => Remove(key),
            13 => Put(key, number),
            14 => Update(key, number),
            15 | 18 if in_epochs => EndEpoch,
            15 => Exchange(key, number / 2, number),
            16 if number.is_multiple_of(2) => GetMany(key, key + 3),
            16 => Get(key),
            17 => Scan(0, key + 4),
            18 => ScanBack(key, keys + 1),
            _ => Visit(key, keys + 1),
        }
    };
    let mut numbers = 0..;
    let mut thread = |length: usize| numbers.by_ref().take(length).map(&mut operation).collect();
    let before = thread(length / 2);
    Program {
        before,
        threads: (0..threads).map(|_| thread(length)).collect(),
        uninterrupted: Vec::new(),
    }
}

/// How long random programs are, and how often each is run.
#[derive(Clone, Copy, Debug)]
pub struct Chance {
    /// Threads.
    pub threads: usize,
    /// Operations of each thread.
    pub length: usize,
    /// Random schedules of each program.
    pub runs: u32,
    /// The depth of [`Search::Random`].
    pub depth: u32,
}

impl Default for Chance {
    fn default() -> Self {
        Self {
            threads: 3,
            length: 12,
            runs: 12,
            depth: 4,
        }
    }
}

impl Chance {
    /// The program of a seed on a few keys, and how its schedules are searched.
    pub fn program(
        self,
        seed: u64,
        durability: DurabilityContract,
    ) -> (Program<IndexOperation>, Search) {
        let program = random(seed, self.threads, self.length, 14, durability);
        (
            program,
            Search::Random {
                runs: self.runs,
                depth: self.depth,
                seed,
            },
        )
    }
}

/// A failure, boxed for its size.
pub type ThreadsResult = Result<Stats, Box<ThreadsFailure<IndexOperation>>>;

/// How programs are explored.
#[derive(Clone, Copy)]
pub struct ProgramExploration<'w> {
    /// The options of each exploration.
    pub options: &'w ExplorationOptions,
    /// The operations after a crash.
    pub follow_up: FollowUp,
    /// How threads are explored; each program chooses its schedules.
    pub scheduling: &'w Scheduling,
    /// Threads of the system.
    pub workers: usize,
    /// Called after each program with its counts, by one thread at a time.
    pub progress: Option<&'w (dyn Fn(&Stats) + Sync)>,
}

/// Explores programs from one seed tree, made by `setup`: `program` is asked for number 0, 1, and
/// so on, until it has no more. Where durability is buffered, an epoch ends before the threads
/// begin.
pub fn exhaust(
    engine: &AnyEngine,
    setup: &[IndexOperation],
    program: impl Fn(usize) -> Option<(Program<IndexOperation>, Search)> + Sync,
    work: ProgramExploration<'_>,
) -> ThreadsResult {
    let next = AtomicUsize::new(0);
    let is_over = AtomicBool::new(false);
    let outcome = Mutex::new(Ok(Stats::default()));
    let explore = || {
        let sync = epoch_end(engine.durability());
        let setup: Vec<_> = setup.iter().copied().chain(sync).collect();
        let subject = IndexSubject::new(engine, work.follow_up);
        let mut explorer =
            Explorer::new(subject, work.options.clone()).expect("memory for the explorer");
        if let Err(failure) = explorer.set_up(&setup) {
            *outcome.lock() = Err(Box::new(ThreadsFailure::in_setup(*failure)));
            return is_over.store(true, Ordering::Relaxed);
        }
        let mut reported = Stats::default();
        while !is_over.load(Ordering::Relaxed) {
            let Some((mut program, search)) = program(next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            if !program.before.is_empty() {
                program.before.extend(sync);
            }
            let scheduling = Scheduling {
                search,
                ..work.scheduling.clone()
            };
            let result = explorer.explore_threads(&program, &scheduling);
            let mut outcome = outcome.lock();
            let stats = explorer.stats().since(&reported);
            reported = explorer.stats();
            if let Some(progress) = work.progress {
                progress(&stats);
            }
            match (&mut *outcome, result) {
                (Ok(total), Ok(())) => *total += stats,
                (Ok(_), Err(failure)) => {
                    is_over.store(true, Ordering::Relaxed);
                    *outcome = Err(failure);
                }
                (Err(_), _) => {}
            }
        }
    };
    std::thread::scope(|scope| {
        (1..work.workers).for_each(|_| drop(scope.spawn(explore)));
        explore();
    });
    outcome.into_inner()
}
