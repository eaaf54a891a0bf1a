//! Runs the explorer and shows its progress.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Instant;

use indicatif::ProgressBar;
use medium::sim::{Mutation, Site};
use sim::index::script::{Mix, random_operations, writes, writes_in_epochs};
use sim::index::suite::{Progress, Suite, exhaust};
use sim::index::{AnyEngine, FollowUp, IndexOperation, IndexSubject, RUBBISH_FROM};
use sim::{DurabilityContract, ExplorationOptions, Explorer, Images, SecondCrash, Stats};

use super::replay::Repeat;
use super::report::{FailedRecovery, Report};
use super::{Args, parse_place, threads};
use terminal::context::Context;
use terminal::failure::Failure;
use terminal::progress;

/// The most bytes of a pool under exploration.
const LIMIT_BYTES: u64 = 16 << 20;

/// The counts, and the failure if there is one.
type ThreadsFindings = (Stats, Option<Box<sim::CrashFailure<IndexOperation>>>);

/// Runs the exploration of the arguments.
pub(super) fn run(args: &Args, context: Context) -> Result<Report, Failure> {
    let start = Instant::now();
    let engine = &args.engine();
    let seed = args.seed();
    let mut options = ExplorationOptions {
        rules: args.medium.rules(),
        line_form: args.lines.form(),
        limit_bytes: LIMIT_BYTES,
        rubbish_from: Some(RUBBISH_FROM),
        images: args.images_tried(),
        second_crash: args.second_crash().into(),
        seed,
        command: args.command(),
        ..ExplorationOptions::default()
    };
    let operations = |seed, count: u32, keys: u64| {
        let is_immediate = engine.durability() == DurabilityContract::OnReturn;
        let mix: Mix = if is_immediate {
            writes
        } else {
            writes_in_epochs
        };
        // At the end all keys are removed, so that full leaves are merged.
        let removed = keys.min(u64::from(count) / 5);
        let mut operations = random_operations(seed, count as usize - removed as usize, keys, mix);
        operations.extend((0..removed).map(IndexOperation::Remove));
        operations
    };
    if let Some(place) = &args.leave_out {
        let script = match &args.replay {
            Some(repeat) => repeat.all_operations(),
            None if args.exhaustive || args.threads.is_some() => operations(1, 200, 20),
            None => operations(seed, args.ops, keys(args.ops)),
        };
        options.mutations = mutations(engine, &options, &script, place)?;
    }
    let of_one = |(stats, failure): ThreadsFindings| {
        (
            stats,
            failure.map(|failure| FailedRecovery::new(&failure, &args.command())),
        )
    };
    let of_threads = |(stats, failure): threads::ThreadsFindings| {
        (
            stats,
            failure.map(|failure| FailedRecovery::of_threads(&failure, &args.command())),
        )
    };
    let (stats, violation) = match (&args.replay, args.exhaustive, args.threads) {
        (Some(repeat), ..) => match &repeat.threads {
            Some((programs, schedule)) => of_threads(threads::repeat(
                engine, options, repeat, programs, schedule,
            )?),
            None => of_one(repeat_crash(engine, args, options, repeat)?),
        },
        (None, true, Some(_)) => of_threads(threads::all(engine, args, &options, context)),
        (None, false, Some(_)) => {
            of_threads(threads::random(engine, args, &options, seed, context))
        }
        (None, true, None) => of_one(all(engine, args, &options, context)),
        (None, false, None) => {
            let operations = operations(seed, args.ops, keys(args.ops));
            of_one(random(engine, options, &operations, context)?)
        }
    };
    Ok(Report {
        stats: Some(stats),
        images_avoided: Some(stats.images_avoided()),
        violations: u64::from(violation.is_some()),
        seconds: start.elapsed().as_secs_f64(),
        first_violations: violation.into_iter().collect(),
        ..Report::new(args, seed)
    })
}

/// The number of keys of a random sequence: enough for splits, and few enough that keys are reused,
/// and that all can be removed at the end.
fn keys(operations: u32) -> u64 {
    (u64::from(operations) / 5).max(4)
}

pub(super) fn explorer(
    engine: &AnyEngine,
    follow_up: FollowUp,
    options: ExplorationOptions,
) -> Result<Explorer<IndexSubject>, Failure> {
    Explorer::new(IndexSubject::new(engine, follow_up), options)
        .map_err(|error| Failure::Refused(error.to_string()))
}

/// Every short sequence on small trees.
fn all(
    engine: &AnyEngine,
    args: &Args,
    options: &ExplorationOptions,
    context: Context,
) -> ThreadsFindings {
    let template = "{bar:20} {human_pos} of {human_len} sequences, {elapsed}: {wide_msg}";
    // The first report tells how many there are.
    let bar = OnceLock::new();
    let tell = |progress: &Progress| {
        let text = format!("{}; {}", message(&progress.stats), progress.scope);
        let first = || progress::bar(context, Some(progress.sequences), &text, template);
        let bar: &ProgressBar = bar.get_or_init(first);
        bar.set_position(progress.sequences_done);
        bar.set_message(text.clone());
    };
    let suite = Suite {
        length: args.length as usize,
        threads: args.workers(),
        progress: Some(&tell),
    };
    let report = exhaust(engine, suite, options);
    // Removes it from the screen.
    drop(bar);
    (report.stats, report.failure)
}

pub(super) fn message(stats: &Stats) -> String {
    let schedules = match stats.schedules {
        0 => String::new(),
        schedules => format!("{}, ", progress::many(schedules, "schedule")),
    };
    let points = progress::many(stats.points, "crash point");
    let recoveries = progress::many(stats.recoveries, "recovery");
    format!("{schedules}{points}, {recoveries}")
}

/// One random sequence.
fn random(
    engine: &AnyEngine,
    options: ExplorationOptions,
    operations: &[IndexOperation],
    context: Context,
) -> Result<ThreadsFindings, Failure> {
    let bar = progress::bar(
        context,
        Some(1000),
        &message(&Stats::default()),
        "{bar:20} {percent:>3}%, {elapsed}: {wide_msg}",
    );
    // Without a forced split after each recovery, which would take most of the time with leaves of
    // full size.
    let mut explorer = explorer(engine, FollowUp::Keys, options)?;
    let shown: ProgressBar = bar.clone();
    explorer.on_progress(move |stats, done| {
        shown.set_position((done * 1000.0) as u64);
        shown.set_message(message(stats));
    });
    let result = explorer.explore(operations);
    bar.finish_and_clear();
    Ok((explorer.stats(), result.err()))
}

/// One crash, on a tree made as in the exploration: in small scopes the setup is not recorded.
fn repeat_crash(
    engine: &AnyEngine,
    args: &Args,
    options: ExplorationOptions,
    repeat: &Repeat,
) -> Result<ThreadsFindings, Failure> {
    let follow_up = if args.exhaustive {
        FollowUp::SplitAndMerge
    } else {
        FollowUp::Keys
    };
    let options = ExplorationOptions {
        replay: Some(repeat.crashes.clone()),
        ..options
    };
    let mut explorer = explorer(engine, follow_up, options)?;
    let mut result = if args.exhaustive {
        explorer.set_up(&repeat.setup)
    } else {
        Ok(())
    };
    // The operations after a recovery depend on the first operation that was crashed. A report by
    // the watchdog does not name it, so all are tried.
    for from_operation in 0..if args.exhaustive {
        repeat.operations.len().max(1)
    } else {
        1
    } {
        explorer.options_mut().from_operation = from_operation;
        result = result.and_then(|()| explorer.explore(&repeat.operations));
    }
    Ok((explorer.stats(), result.err()))
}

/// The faults that leave out the call at a place. A run of a script, with crashes, shows which
/// calls there are.
fn mutations(
    engine: &AnyEngine,
    options: &ExplorationOptions,
    script: &[IndexOperation],
    place: &str,
) -> Result<Vec<Mutation>, Failure> {
    let (file, line) = parse_place(place)?;
    let images = Images::Some { random: 0 };
    let second_crash = SecondCrash::Never;
    let once = ExplorationOptions {
        images,
        second_crash,
        ..options.clone()
    };
    let mut explorer = explorer(engine, FollowUp::Keys, once)?;
    let survey = explorer
        .survey(script)
        .map_err(|failure| Failure::Refused(failure.to_string()))?;
    let left_out = survey.into_iter().filter_map(|mutation| match mutation {
        Mutation::DropFlush(site)
        | Mutation::DropFence(site)
        | Mutation::DropWait(site)
        | Mutation::DropStore(site) => Some((site, mutation)),
        Mutation::PublishEarly(_) | Mutation::SwapPersists(..) => None,
    });
    let of_file: Vec<(Site, Mutation)> = left_out
        .filter(|(site, _)| site.file.ends_with(file))
        .collect();
    let here = of_file.iter().filter(|(site, _)| site.line == line);
    let mutations: Vec<Mutation> = here.map(|(_, mutation)| *mutation).collect();
    if mutations.is_empty() {
        let near: BTreeSet<u32> = of_file.iter().map(|(site, _)| site.line).collect();
        return Err(Failure::Usage(format!(
            "the exploration calls no flush, fence, wait or store at {place}; in files of that name it does at lines {near:?}"
        )));
    }
    Ok(mutations)
}
