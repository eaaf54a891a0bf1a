//! Several threads at once: every schedule of short programs, or random schedules of random ones.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sim::index::threads::{self, Chance, ProgramExploration, exhaust, scopes};
use sim::index::{AnyEngine, FollowUp, IndexOperation};
use sim::{ExplorationOptions, Program, Schedule, Scheduling, Search, Stats, ThreadsFailure};

use super::explore::{explorer, message};
use super::replay::Repeat;
use super::{Args, Length};
use terminal::context::Context;
use terminal::failure::Failure;
use terminal::progress;

/// The counts, and the failure if there is one.
pub(super) type ThreadsFindings = (Stats, Option<Box<ThreadsFailure<IndexOperation>>>);

/// How programs are explored; `tell` gets the counts of each.
fn work<'w>(
    options: &'w ExplorationOptions,
    scheduling: &'w Scheduling,
    args: &Args,
    tell: &'w (dyn Fn(&Stats) + Sync),
) -> ProgramExploration<'w> {
    ProgramExploration {
        options,
        follow_up: FollowUp::Keys,
        scheduling,
        workers: args.workers(),
        progress: Some(tell),
    }
}

const PROGRAMS: &str = "{bar:20} {human_pos} of {human_len} programs, {elapsed}: {wide_msg}";

/// Every pair or triple of operations on small trees, under every schedule.
pub(super) fn all(
    engine: &AnyEngine,
    args: &Args,
    options: &ExplorationOptions,
    context: Context,
) -> ThreadsFindings {
    let scopes = scopes(engine.leaf_entries());
    let programs = scopes.iter().map(|scope| match args.threads {
        Some(3) => threads::triples(scope, engine.durability()),
        _ => threads::pairs(scope, engine.durability()),
    });
    let programs: Vec<_> = programs.collect();
    let total = programs.iter().map(|programs| programs.len() as u64).sum();
    let bar = progress::bar(context, Some(total), &message(&Stats::default()), PROGRAMS);
    let stats = Mutex::new(Stats::default());
    for (scope, programs) in scopes.iter().zip(&programs) {
        let tell = |more: &Stats| {
            *stats.lock() += *more;
            bar.inc(1);
            bar.set_message(format!("{}; {}", message(&stats.lock()), scope.name));
        };
        let search = Search::Exhaustive {
            preemptions_max: args.preemptions,
        };
        let next = |number: usize| Some((programs.get(number)?.clone(), search.clone()));
        let scheduling = Scheduling::default();
        let work = work(options, &scheduling, args, &tell);
        if let Err(failure) = exhaust(engine, &scope.setup, next, work) {
            bar.finish_and_clear();
            return (*stats.lock(), Some(failure));
        }
    }
    bar.finish_and_clear();
    (stats.into_inner(), None)
}

/// Random programs under random schedules, for a number of operations or minutes.
pub(super) fn random(
    engine: &AnyEngine,
    args: &Args,
    options: &ExplorationOptions,
    seed: u64,
    context: Context,
) -> ThreadsFindings {
    let start = Instant::now();
    let threads = args.threads.map_or(2, usize::from);
    let chance = Chance {
        threads,
        ..Chance::default()
    };
    let operations = chance.length * chance.threads;
    let (total, limit) = match args.extent() {
        Length::Operations(count) => ((count as usize).div_ceil(operations), Duration::MAX),
        Length::Minutes(minutes) => (usize::MAX, Duration::from_secs(60 * minutes)),
    };
    let (length, template, unit) = match limit {
        Duration::MAX => (total as u64, PROGRAMS, 1),
        _ => (limit.as_secs(), "{bar:20} {pos} of {len} s: {wide_msg}", 0),
    };
    let bar = progress::bar(context, Some(length), &message(&Stats::default()), template);
    let stats = Mutex::new(Stats::default());
    let done = AtomicU64::new(0);
    let tell = |more: &Stats| {
        *stats.lock() += *more;
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        bar.set_position(if unit == 1 {
            done
        } else {
            start.elapsed().as_secs()
        });
        bar.set_message(message(&stats.lock()));
    };
    let next = |number: usize| {
        let is_more = number < total && start.elapsed() < limit;
        is_more.then(|| chance.program(seed.wrapping_add(number as u64), engine.durability()))
    };
    let scheduling = Scheduling::default();
    let work = work(options, &scheduling, args, &tell);
    let failure = exhaust(engine, &[], next, work).err();
    bar.finish_and_clear();
    (stats.into_inner(), failure)
}

/// One schedule, and its named crashes.
pub(super) fn repeat(
    engine: &AnyEngine,
    options: ExplorationOptions,
    repeat: &Repeat,
    threads: &[Vec<IndexOperation>],
    schedule: &Schedule,
) -> Result<ThreadsFindings, Failure> {
    let replay = Some(repeat.crashes.clone());
    let mut explorer = explorer(
        engine,
        FollowUp::Keys,
        ExplorationOptions { replay, ..options },
    )?;
    explorer
        .set_up(&repeat.setup)
        .map_err(|failure| Failure::Refused(failure.to_string()))?;
    let program = Program {
        before: repeat.operations.clone(),
        ..Program::of(threads.to_vec())
    };
    let search = Search::Replay(schedule.clone());
    let result = explorer.explore_threads(
        &program,
        &Scheduling {
            search,
            ..Scheduling::default()
        },
    );
    Ok((explorer.stats(), result.err()))
}
