//! The operations of a run: drawn beforehand, so that drawing takes no measured time.

use std::collections::{HashMap, HashSet};

use super::args::{Args, Distribution, Workload};
use super::keys::{Keys, Random, Zipfian};

/// One operation, with its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkloadStep {
    Find(u64),
    Insert(u64),
    Update(u64),
    Remove(u64),
    Scan(u64, u32),
    ReadModifyWrite(u64),
    Put(u64),
}

/// About how many keys of a script are verified after its run.
const KEYS_VERIFIED: usize = 50_000;

/// The operations of a run, for each thread its own.
pub(crate) struct Script {
    /// The number of the run. An update derives its value from it, so that no two runs write the
    /// same values.
    number: usize,
    pub(crate) threads: Vec<Vec<WorkloadStep>>,
    /// Whether consecutive finds are one call of `find_many`.
    pub(crate) batched: bool,
    /// The keys, if all operations are finds: reading them takes less time than reading steps.
    pub(crate) finds: Option<Vec<Vec<u64>>>,
}

/// Stamps, which distinguish operations: each has another number, never 0.
pub(crate) struct Stamps {
    next: u64,
}

impl Stamps {
    /// The stamp of the next operation.
    #[inline]
    pub(crate) fn take(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// The value that an update with a stamp gives to a key: not the key, which is the value that a load
/// gives to it, and another one for each stamp.
#[inline]
pub(crate) fn updated(key: u64, stamp: u64) -> u64 {
    key ^ stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Draws the numbers of keys that are in the tree.
struct Chooser<'a> {
    args: &'a Args,
    zipfian: Zipfian,
    random: Random,
    present: u64,
    next: u64,
}

impl Chooser<'_> {
    fn choose(&mut self) -> u64 {
        match self.args.distribution() {
            Distribution::Uniform => self.random.below(self.present),
            Distribution::Latest => self.latest(),
            Distribution::Zipfian => {
                // Scrambled, so that the frequent keys are spread over the tree.
                let rank = self.zipfian.rank(&mut self.random);
                Keys::new(0, 0).key(rank) % self.present
            }
            Distribution::Sequential | Distribution::Monotonic => {
                self.next = (self.next + 1) % self.present;
                self.next
            }
        }
    }

    fn latest(&mut self) -> u64 {
        self.present - 1 - self.zipfian.rank(&mut self.random)
    }
}

impl Script {
    /// The operations of run `number`.
    pub(crate) fn new(args: &Args, keys: &Keys, number: usize) -> Self {
        let present = keys.count() - args.withheld();
        let threads = args.threads as u64;
        let operations = args.operations();
        let script = |thread: u64| {
            let random = Random::new(args.seed ^ (number as u64 + 1) << 32 ^ (thread + 1) << 16);
            let zipfian = Zipfian::new(present, args.theta);
            let mut chooser = Chooser {
                args,
                zipfian,
                random,
                present,
                next: thread * present / threads,
            };
            // Numbers of keys that are not in the tree yet, and of keys to remove: each at most
            // once.
            let mut absent = (present + thread..keys.count()).step_by(args.threads);
            let first_removed = chooser.random.below(present / threads) * threads + thread;
            let mut removed = (first_removed..present)
                .step_by(args.threads)
                .chain((thread..first_removed).step_by(args.threads));
            let mine = operations / threads + u64::from(thread < operations % threads);
            (0..mine)
                .map(|index| {
                    let percent = chooser.random.below(100);
                    step(
                        args.workload,
                        index,
                        percent,
                        &mut chooser,
                        keys,
                        &mut absent,
                        &mut removed,
                    )
                })
                .collect()
        };
        Self::of(
            number,
            (0..threads).map(script).collect(),
            args.workload == Workload::GetMany,
        )
    }

    fn of(number: usize, threads: Vec<Vec<WorkloadStep>>, batched: bool) -> Self {
        let key = |step: &WorkloadStep| match step {
            WorkloadStep::Find(key) => Some(*key),
            _ => None,
        };
        let finds = threads
            .iter()
            .map(|steps| steps.iter().map(key).collect())
            .collect();
        Self {
            number,
            threads,
            batched,
            finds,
        }
    }

    /// Uniform point reads on one thread, for the floor.
    pub(crate) fn finds(args: &Args, keys: &Keys, number: usize) -> Self {
        let workload = Workload::Find;
        let plain = Args {
            workload,
            threads: 1,
            distribution: Some(Distribution::Uniform),
            ..args.clone()
        };
        let present = keys.count() - args.withheld();
        let mut random = Random::new(args.seed + 77 + number as u64);
        let find = |_| WorkloadStep::Find(keys.key(random.below(present)));
        Self::of(
            number,
            vec![(0..plain.operations().min(1_000_000)).map(find).collect()],
            false,
        )
    }

    /// The stamps of a thread's operations.
    pub(crate) fn stamps(&self, thread: usize) -> Stamps {
        Stamps {
            next: (self.number as u64 + 1) << 48 | (thread as u64) << 40,
        }
    }

    /// Keys that the script updates, neither adds nor removes, and the values that one of them may
    /// have in the end: for each thread that of its last update. Of a long script only some keys.
    pub(crate) fn last_updates(&self) -> HashMap<u64, Vec<u64>> {
        let length: usize = self.threads.iter().map(Vec::len).sum();
        let apart = (length / KEYS_VERIFIED) as u64 + 1;
        let mut last: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut others = HashSet::new();
        for (thread, steps) in self.threads.iter().enumerate() {
            let mut of_thread = HashMap::new();
            let mut stamps = self.stamps(thread);
            for step in steps {
                let stamp = stamps.take();
                match *step {
                    WorkloadStep::Update(key)
                    | WorkloadStep::Put(key)
                    | WorkloadStep::ReadModifyWrite(key) => {
                        if key.is_multiple_of(apart) {
                            of_thread.insert(key, updated(key, stamp));
                        }
                    }
                    WorkloadStep::Insert(key) | WorkloadStep::Remove(key) => {
                        others.insert(key);
                    }
                    WorkloadStep::Find(_) | WorkloadStep::Scan(..) => {}
                }
            }
            for (key, value) in of_thread {
                last.entry(key).or_default().push(value);
            }
        }
        last.retain(|key, _| !others.contains(key));
        last
    }

    /// All operations.
    pub(crate) fn steps(&self) -> impl Iterator<Item = WorkloadStep> + '_ {
        self.threads.iter().flatten().copied()
    }
}

fn step(
    workload: Workload,
    index: u64,
    percent: u64,
    chooser: &mut Chooser<'_>,
    keys: &Keys,
    absent: &mut impl Iterator<Item = u64>,
    removed: &mut impl Iterator<Item = u64>,
) -> WorkloadStep {
    let is_monotonic = chooser.args.distribution() == Distribution::Monotonic;
    let mut any = || keys.key(chooser.choose());
    let find_or = |writes: bool, step: fn(u64) -> WorkloadStep, key: u64| {
        if writes {
            step(key)
        } else {
            WorkloadStep::Find(key)
        }
    };
    if workload
        .upserts_percent()
        .is_some_and(|upserts| percent < upserts)
    {
        let key = match absent.next() {
            Some(above) if is_monotonic => keys.key(above),
            Some(_) | None => any(),
        };
        return WorkloadStep::Put(key);
    }
    match workload {
        Workload::ReadMostly | Workload::ReadHeavy | Workload::Balanced => {
            WorkloadStep::Find(any())
        }
        Workload::ScanMostly | Workload::ScanBalanced => {
            WorkloadStep::Scan(any(), 1 + (percent * 7 % 10) as u32)
        }
        Workload::Find | Workload::GetMany | Workload::C => WorkloadStep::Find(any()),
        Workload::Update => WorkloadStep::Update(any()),
        Workload::A => find_or(percent < 50, WorkloadStep::Update, any()),
        Workload::B => find_or(percent < 5, WorkloadStep::Update, any()),
        Workload::F => find_or(percent < 50, WorkloadStep::ReadModifyWrite, any()),
        Workload::Scan => WorkloadStep::Scan(any(), 100),
        Workload::Scan10 => WorkloadStep::Scan(any(), 10),
        Workload::Load => WorkloadStep::Insert(keys.key(index)),
        Workload::Remove => removed.next().map_or_else(
            || WorkloadStep::Find(any()),
            |number| WorkloadStep::Remove(keys.key(number)),
        ),
        Workload::Insert => absent.next().map_or_else(
            || WorkloadStep::Find(any()),
            |number| WorkloadStep::Insert(keys.key(number)),
        ),
        Workload::D | Workload::E if percent < 5 => absent.next().map_or_else(
            || WorkloadStep::Find(any()),
            |number| WorkloadStep::Insert(keys.key(number)),
        ),
        Workload::D => WorkloadStep::Find(any()),
        Workload::E => WorkloadStep::Scan(any(), 1 + (percent * 7 % 100) as u32),
        Workload::Mixed => match index % 4 {
            0 => WorkloadStep::Find(any()),
            1 => WorkloadStep::Update(any()),
            2 => absent.next().map_or_else(
                || WorkloadStep::Find(any()),
                |number| WorkloadStep::Insert(keys.key(number)),
            ),
            _ => removed.next().map_or_else(
                || WorkloadStep::Find(any()),
                |number| WorkloadStep::Remove(keys.key(number)),
            ),
        },
    }
}

#[cfg(test)]
mod tests;
