//! The operations of a run: drawn beforehand, so that drawing takes no measured time.

use super::args::{Args, Distribution, Workload};
use super::keys::{Keys, Random, Zipfian};

/// One operation, with its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Find(u64),
    Insert(u64),
    Update(u64),
    Remove(u64),
    Scan(u64, u32),
    ReadModifyWrite(u64),
    Put(u64),
}

/// The operations of a run, for each thread its own.
pub(crate) struct Script {
    pub(crate) threads: Vec<Vec<Step>>,
    /// Whether consecutive finds go together.
    pub(crate) batched: bool,
    /// The keys, if all operations are finds: reading them takes less time than reading steps.
    pub(crate) finds: Option<Vec<Vec<u64>>>,
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
        match self.args.distribution {
            _ if self.args.workload == Workload::D => self.latest(),
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
            (0..threads).map(script).collect(),
            args.workload == Workload::GetMany,
        )
    }

    fn of(threads: Vec<Vec<Step>>, batched: bool) -> Self {
        let key = |step: &Step| match step {
            Step::Find(key) => Some(*key),
            _ => None,
        };
        let finds = threads
            .iter()
            .map(|steps| steps.iter().map(key).collect())
            .collect();
        Self {
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
            distribution: Distribution::Uniform,
            ..args.clone()
        };
        let present = keys.count() - args.withheld();
        let mut random = Random::new(args.seed + 77 + number as u64);
        let find = |_| Step::Find(keys.key(random.below(present)));
        Self::of(
            vec![(0..plain.operations().min(1_000_000)).map(find).collect()],
            false,
        )
    }

    /// All operations.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Step> + '_ {
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
) -> Step {
    let is_monotonic = chooser.args.distribution == Distribution::Monotonic;
    let mut any = || keys.key(chooser.choose());
    let find_or = |writes: bool, step: fn(u64) -> Step, key: u64| {
        if writes { step(key) } else { Step::Find(key) }
    };
    if workload
        .upserts_percent()
        .is_some_and(|upserts| percent < upserts)
    {
        let above = absent.next().filter(|_| is_monotonic);
        return Step::Put(above.map_or_else(any, |number| keys.key(number)));
    }
    match workload {
        Workload::ReadMostly | Workload::ReadHeavy | Workload::Balanced => Step::Find(any()),
        Workload::ScanMostly | Workload::ScanBalanced => {
            Step::Scan(any(), 1 + (percent * 7 % 10) as u32)
        }
        Workload::Find | Workload::GetMany | Workload::C => Step::Find(any()),
        Workload::Update => Step::Update(any()),
        Workload::A => find_or(percent < 50, Step::Update, any()),
        Workload::B => find_or(percent < 5, Step::Update, any()),
        Workload::F => find_or(percent < 50, Step::ReadModifyWrite, any()),
        Workload::Scan => Step::Scan(any(), 100),
        Workload::Scan10 => Step::Scan(any(), 10),
        Workload::Load => Step::Insert(keys.key(index)),
        Workload::Remove => removed.next().map_or_else(
            || Step::Find(any()),
            |number| Step::Remove(keys.key(number)),
        ),
        Workload::Insert => absent.next().map_or_else(
            || Step::Find(any()),
            |number| Step::Insert(keys.key(number)),
        ),
        Workload::D | Workload::E if percent < 5 => absent.next().map_or_else(
            || Step::Find(any()),
            |number| Step::Insert(keys.key(number)),
        ),
        Workload::D => Step::Find(any()),
        Workload::E => Step::Scan(any(), 1 + (percent * 7 % 100) as u32),
        Workload::Mixed => match index % 4 {
            0 => Step::Find(any()),
            1 => Step::Update(any()),
            2 => absent.next().map_or_else(
                || Step::Find(any()),
                |number| Step::Insert(keys.key(number)),
            ),
            _ => removed.next().map_or_else(
                || Step::Find(any()),
                |number| Step::Remove(keys.key(number)),
            ),
        },
    }
}
