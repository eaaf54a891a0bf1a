//! `everleaf torture`: kills its own writers at random and verifies the pool after each kill.

mod channel;
pub(crate) mod judge;
mod keys;
mod lists;
mod log;
mod promise;
pub(crate) mod reader;
mod round;
mod verify;
pub(crate) mod writer;

use std::time::Duration;

use everleaf::{Engine, Options};
use lab::bench::KeyShape;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use terminal::values::engine_of;

use keys::TortureKeys;
use promise::Promise;
use sim::torture::{Contents, Oracle, TREES, Tally, TortureWorkload, tree_names};
use terminal::context::Context;
use terminal::failure::{Answer, Failure, Outcome};
use terminal::pool::PoolArgs;
use terminal::violations::Violations;
use terminal::{child, interrupt, progress, text};
use verify::open_trees;

/// The work of writers: the same for all processes of a run.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct WorkArgs {
    /// The engine
    #[arg(long, value_name = "NAME", default_value = "rntree", value_parser = engine_of(lab::ENGINES))]
    engine: Engine,
    /// The durability that writers rely on: immediate, sync (at a sync), a number of milliseconds
    /// (or a sync), or tickets
    #[arg(long, value_name = "PROMISE", default_value = "immediate")]
    durability: Promise,
    /// Threads of a writer
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: u8,
    /// Keys that are used in each tree
    #[arg(long, default_value_t = 12_000, value_parser = clap::value_parser!(u32).range(100..))]
    keys: u32,
    /// The shape of keys in trees of records [default: short ones, long ones, and some that begin as
    /// others do]
    #[arg(long, value_enum, value_name = "SHAPE")]
    key_shape: Option<KeyShape>,
    /// Trees, alternately of records and of words
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=TREES.len() as i64))]
    trees: u8,
    /// Two trees of each engine, and batches over them, which move money between accounts, beside
    /// the single operations
    #[arg(long, conflicts_with_all = ["engine", "trees"])]
    batches: bool,
    /// Does the same as --batches, with transactions instead, which also append to lists; snapshots
    /// audit all of it the whole time
    #[arg(long, conflicts_with_all = ["engine", "trees", "batches"])]
    transactions: bool,
    /// Stores, which the writer opens, writes to and closes again and again; the others lie beside
    /// the pool, with numbers behind their names
    #[arg(long, default_value_t = 1, conflicts_with_all = ["batches", "transactions"], value_parser = clap::value_parser!(u32).range(1..=1000))]
    stores: u32,
}

impl WorkArgs {
    /// The same as command-line arguments, separated by spaces.
    fn to_arguments(&self) -> String {
        let Self {
            engine,
            durability,
            threads,
            keys,
            key_shape,
            trees,
            batches,
            transactions,
            stores,
        } = self;
        let trees = if *transactions {
            "--transactions".to_owned()
        } else if *batches {
            "--batches".to_owned()
        } else {
            format!("--engine {engine} --trees {trees}")
        };
        let stores = if *stores > 1 {
            format!(" --stores {stores}")
        } else {
            String::new()
        };
        let key_shape = match key_shape {
            Some(shape) => format!(" --key-shape {}", shape.name()),
            None => String::new(),
        };
        format!(
            "{trees} --threads {threads} --keys {keys}{key_shape} --durability {durability}{stores}"
        )
    }

    /// The pools of all stores. The first one is the one that the user names.
    fn pools(&self, first: &PoolArgs) -> Vec<PoolArgs> {
        let mut pools = vec![first.clone()];
        for number in 1..self.stores {
            let mut path = first.pool.clone().into_os_string();
            path.push(format!(".{number}"));
            pools.push(PoolArgs {
                pool: path.into(),
                ..first.clone()
            });
        }
        pools
    }

    /// The store that a key belongs to.
    fn store_of(&self, key: u32) -> u32 {
        key % self.stores
    }

    /// The keys of all trees.
    fn keys(&self) -> TortureKeys {
        TortureKeys {
            shape: self.key_shape,
        }
    }

    /// The workload in the form that writers and the oracle need.
    fn workload(&self) -> TortureWorkload {
        let Self {
            engine,
            durability,
            threads,
            keys,
            key_shape: _,
            trees,
            batches,
            transactions,
            stores: _,
        } = *self;
        TortureWorkload {
            engine,
            acknowledged: durability.acknowledged(),
            threads,
            keys,
            trees,
            batches: batches || transactions,
        }
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    work: WorkArgs,
    /// How many times a writer is started and killed
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..1 << 23))]
    rounds: u32,
    /// The longest life of a writer, in seconds; it is killed at a random moment before
    #[arg(long, default_value_t = 0.2, value_parser = parse_seconds)]
    seconds_per_round: f64,
    /// Repeats the choices of an earlier run, though not the moments of its kills [default: random]
    #[arg(long)]
    seed: Option<u64>,
}

impl Args {
    /// The command that repeats a run.
    fn replay(&self, seed: u64) -> String {
        let Self {
            work,
            rounds,
            seconds_per_round,
            pool,
            ..
        } = self;
        let work = work.to_arguments();
        let pool = text::command_line(pool.to_arguments());
        format!(
            "everleaf torture {work} --rounds {rounds} --seconds-per-round {seconds_per_round} --seed {seed} {pool}"
        )
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds from 0.001 to 3600".to_owned()),
    }
}

/// The one line of `--json`.
#[derive(Serialize, Default)]
struct Report {
    rounds: u32,
    #[serde(flatten)]
    tally: Tally,
    #[serde(flatten)]
    violations: Violations,
    /// Writers killed before their first operation, most of them in recovery.
    killed_while_opening: u32,
    recovery_ns_median: u64,
    recovery_ns_max: u64,
    keys: u64,
    used_bytes: u64,
    seconds: f64,
    seed: u64,
    replay: String,
}

impl Report {
    fn words(&self) -> String {
        let count = progress::count;
        let nanoseconds = |ns| progress::duration(Duration::from_nanos(ns));
        let words = format!(
            "{} in {}: {}, {} of them acknowledged; of those under way at a kill {} done, {} not\nopening after a kill took {} (median), {} (longest); {} killed before the first write\n\
             {} and {} in the end\n",
            progress::many(self.rounds.into(), "round"),
            progress::duration(Duration::from_secs_f64(self.seconds)),
            progress::many(self.tally.operations, "operation"),
            count(self.tally.acknowledged),
            progress::was(self.tally.pending_done),
            progress::was(self.tally.pending_undone),
            nanoseconds(self.recovery_ns_median),
            nanoseconds(self.recovery_ns_max),
            progress::were(self.killed_while_opening.into(), "writer"),
            progress::many(self.keys, "key"),
            progress::bytes(self.used_bytes),
        );
        let of_batches = self.tally.batches.as_ref().map(|batches| {
            format!(
                "{} in batches, {} refused; of those under way at a kill {} done, {} not; {} lost before durable\n",
                progress::many(batches.written, "transfer"),
                count(batches.refused),
                progress::was(batches.pending_done),
                progress::was(batches.pending_undone),
                progress::was(batches.lost_before_durable),
            )
        });
        let words = words + &of_batches.unwrap_or_default();
        match self.violations.count() {
            0 => words + "no violation",
            violations => format!(
                "{words}{}; replay: {}",
                progress::many(violations, "violation").to_uppercase(),
                self.replay
            ),
        }
    }
}

impl Report {
    /// Prints the violations, even with `--quiet`.
    fn tell_violations(&self) {
        for violation in self.violations.told() {
            eprintln!("violation: {violation}");
        }
    }

    /// The failure of a run that was interrupted, with the rounds and violations before that.
    fn interrupted(&self) -> Failure {
        self.tell_violations();
        let words = format!(
            "{} ran with {} and {}; the pool is left",
            progress::many(self.rounds.into(), "round"),
            progress::many(self.tally.operations, "operation"),
            progress::many(self.violations.count(), "violation"),
        );
        let done = Interrupted {
            rounds: self.rounds,
            operations: self.tally.operations,
            violations: &self.violations,
        };
        Failure::Interrupted.after(words, serde_json::to_value(done).unwrap_or_default())
    }
}

/// The answer of an interrupted run, as a part of its error.
#[derive(Serialize)]
struct Interrupted<'r> {
    rounds: u32,
    operations: u64,
    #[serde(flatten)]
    violations: &'r Violations,
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    if args.work.durability == Promise::Ticket && args.work.engine.is_buffered() {
        return Err(Failure::Usage(
            "--durability tickets does not apply to an engine that is durable by epochs; give sync, or another engine"
                .to_owned(),
        ));
    }
    let is_durable_at_once =
        args.work.durability.is_durable_at_once() && !args.work.engine.is_buffered();
    if args.work.stores > 1 && !is_durable_at_once {
        return Err(Failure::Usage(
            "--stores needs writes that are durable when they return: a sync of one store says nothing about the others"
                .to_owned(),
        ));
    }
    if args.work.keys < args.work.stores {
        return Err(Failure::Usage(format!(
            "{} stores need at least as many keys: give --keys {} or more",
            args.work.stores, args.work.stores
        )));
    }
    let mut names = tree_names();
    names.push(lists::LISTS.to_owned());
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for pool in args.work.pools(&args.pool) {
        child::replace_own(&pool.pool, options_of(&pool), &names, "torture pool")?;
    }
    let seed = args.seed.unwrap_or_else(rand::random);
    let start = std::time::Instant::now();
    let mut random = SmallRng::seed_from_u64(seed);
    let workload = args.work.workload();
    let mut oracle = Oracle::new(Contents::empty(&workload), workload.clone());
    let mut report = Report {
        seed,
        replay: args.replay(seed),
        ..Report::default()
    };
    make_pools(args, &workload, context)?;
    interrupt::gently();
    let bar = progress::bar(
        context,
        Some(args.rounds.into()),
        "0 operations",
        "{bar:20} round {pos} of {len}, {msg}",
    );
    let mut recoveries = Vec::new();
    for round in 1..=args.rounds {
        let ran = round::run(args, seed, round, random.random(), &mut oracle, &mut report);
        let failure = match ran {
            Ok((recovery, violations)) => {
                recoveries.extend(recovery.map(|recovery| recovery.as_nanos() as u64));
                report.rounds = round;
                for violation in violations {
                    report.violations.add(violation);
                }
                None
            }
            Err(failure) => Some(failure),
        };
        if interrupt::is_asked() {
            bar.finish_and_clear();
            return Err(report.interrupted());
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        bar.inc(1);
        bar.set_message(progress::many(report.tally.operations, "operation"));
        if !report.violations.is_empty() {
            // The oracle's content does not hold any more; the pool is left for examination.
            break;
        }
    }
    bar.finish_and_clear();
    report.seconds = start.elapsed().as_secs_f64();
    recoveries.sort_unstable();
    report.recovery_ns_median = recoveries
        .get(recoveries.len() / 2)
        .copied()
        .unwrap_or_default();
    report.recovery_ns_max = recoveries.last().copied().unwrap_or_default();
    report.tell_violations();
    context.say(&report, report.words())?;
    Ok(Answer::from_bool(report.violations.is_empty()))
}

/// The options that open a torture pool, which may hold trees of any engine.
fn options_of(pool: &PoolArgs) -> Options {
    pool.options().engines(lab::ENGINES)
}

/// Makes the pools and their trees, so that every round finds them.
fn make_pools(args: &Args, workload: &TortureWorkload, context: Context) -> Result<(), Failure> {
    for (number, pool) in args.work.pools(&args.pool).iter().enumerate() {
        let store = options_of(pool).open(&pool.pool)?;
        if number == 0 {
            context.note_medium(&store);
        }
        drop(open_trees(&store, workload)?);
        store.close()?;
    }
    Ok(())
}
