//! Runs the explorer, and shows how far it is.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::time::Instant;

use indicatif::ProgressBar;
use medium::sim::{Mutation, Site, SiteKind};
use sim::index::script::random_operations;
use sim::index::suite::{Progress, Suite, exhaust};
use sim::index::{Engine, FollowUp, IndexOperation, IndexSubject};
use sim::{Explorer, Options, Replay, Stats};

use super::replay::Repeat;
use super::report::{Report, Scope, Violation};
use super::{Args, name, parse_place};
use crate::context::Context;
use crate::failure::Failure;
use crate::progress;

/// The most bytes of a pool under exploration.
const LIMIT_BYTES: u64 = 16 << 20;

type Found = (Stats, Option<Box<sim::Failure<IndexOperation>>>);

/// Explores what the arguments say.
pub(super) fn run<E: Engine>(
    engine: &(impl Fn() -> E + Sync),
    args: &Args,
    context: Context,
) -> Result<Report, Failure> {
    let start = Instant::now();
    let is_random = !args.exhaustive && args.replay.is_none();
    let seed = args.seed.unwrap_or_else(|| if is_random { rand::random() } else { 1 });
    let operations = random_operations(seed, args.ops as usize, keys(args.ops));
    let mut options = Options {
        rules: args.medium.rules(),
        line_form: args.lines.form(),
        limit_bytes: LIMIT_BYTES,
        second_crash: args.second_crash().into(),
        seed,
        command: args.command(),
        ..Options::default()
    };
    if let Some(place) = &args.leave_out {
        let script = if args.exhaustive { random_operations(1, 200, 20) } else { operations.clone() };
        options.mutations = mutations(engine(), &options, &script, place)?;
    }
    let (stats, failure) = match &args.replay {
        Some(repeat) => repeat_crash(engine(), args, options, repeat)?,
        None if args.exhaustive => all(engine, args, &options, context),
        None => random(engine(), options, &operations, context)?,
    };
    let mut command = args.command();
    match &args.replay {
        Some(repeat) => command += &format!(" --replay {repeat}"),
        None if args.exhaustive => command += &format!(" --length {}", args.length),
        None => command += &format!(" --ops {} --seed {seed}", args.ops),
    }
    Ok(Report {
        engine: E::NAME,
        codec: E::CODEC,
        medium: name(&args.medium),
        lines: name(&args.lines),
        leaf_entries: engine().leaf_entries(),
        scope: match &args.replay {
            Some(_) => Scope::OneCrash,
            None if args.exhaustive => Scope::AllSequences { length: args.length },
            None => Scope::RandomSequence { length: args.ops, seed },
        },
        stats,
        images_avoided: stats.images_avoided(),
        violations: u64::from(failure.is_some()),
        seconds: start.elapsed().as_secs_f64(),
        violation: failure.map(|failure| Violation::new(&failure, &args.command())),
        command,
    })
}

/// How many keys a random sequence works on: enough for splits, few enough to come back to.
fn keys(operations: u32) -> u64 {
    (u64::from(operations) * 6 / 10).max(4)
}

fn explorer<E: Engine>(
    engine: E,
    follow_up: FollowUp,
    options: Options,
) -> Result<Explorer<IndexSubject<E>>, Failure> {
    Explorer::new(IndexSubject::new(engine, follow_up), options)
        .map_err(|error| Failure::Refused(error.to_string()))
}

/// Every short sequence on small trees.
fn all<E: Engine>(engine: impl Fn() -> E + Sync, args: &Args, options: &Options, context: Context) -> Found {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = args.jobs.map_or(cores, usize::from);
    let bar = progress::bar(context, None, "{bar:40} {pos} of {len} sequences, {msg}");
    let tell = |progress: &Progress| {
        bar.set_length(progress.sequences);
        bar.set_position(progress.sequences_done);
        bar.set_message(format!("{}; {}", message(&progress.stats), progress.scope));
    };
    let suite = Suite { length: args.length as usize, threads, progress: Some(&tell) };
    let report = exhaust(engine, suite, options);
    bar.finish_and_clear();
    (report.stats, report.failure)
}

fn message(stats: &Stats) -> String {
    let count = progress::count;
    format!("{} crash points, {} recoveries", count(stats.points), count(stats.recoveries))
}

/// One random sequence.
fn random<E: Engine>(
    engine: E,
    options: Options,
    operations: &[IndexOperation],
    context: Context,
) -> Result<Found, Failure> {
    let bar = progress::bar(context, Some(1000), "{bar:40} {msg}");
    // Forcing a split of a full leaf after each recovery would be most of the work.
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

/// One crash, on a tree made as it was made then: in small scopes it stands before the first operation is recorded.
fn repeat_crash<E: Engine>(
    engine: E,
    args: &Args,
    options: Options,
    repeat: &Repeat,
) -> Result<Found, Failure> {
    let follow_up = if args.exhaustive { FollowUp::SplitAndMerge } else { FollowUp::Keys };
    let options = Options { replay: Some(repeat.crashes.clone()), ..options };
    let mut explorer = explorer(engine, follow_up, options)?;
    let result = if args.exhaustive { explorer.set_up(&repeat.setup) } else { Ok(()) };
    let result = result.and_then(|()| explorer.explore(&repeat.operations));
    Ok((explorer.stats(), result.err()))
}

/// The faults that leave out what is called at a place; what may be called there is found by running a script.
fn mutations<E: Engine>(
    engine: E,
    options: &Options,
    script: &[IndexOperation],
    place: &str,
) -> Result<Vec<Mutation>, Failure> {
    let (file, line) = parse_place(place)?;
    // A replay of no crash runs the script, and nothing else.
    let nothing = Options { replay: Some(Replay::default()), ..options.clone() };
    let mut explorer = explorer(engine, FollowUp::Keys, nothing)?;
    explorer.sim().start_census();
    explorer.explore(script).map_err(|failure| Failure::Refused(failure.to_string()))?;
    let sites: BTreeSet<(SiteKind, Site)> = explorer.sim().census().into_keys().collect();
    let here = sites.iter().filter(|(_, site)| site.file.ends_with(file) && site.line == line);
    let mutations: Vec<Mutation> = here
        .map(|(kind, site)| match kind {
            SiteKind::Flush => Mutation::DropFlush(*site),
            SiteKind::Fence => Mutation::DropFence(*site),
            SiteKind::Wait => Mutation::DropWait(*site),
            SiteKind::Store | SiteKind::StoreLine => Mutation::DropStore(*site),
        })
        .collect();
    if mutations.is_empty() {
        let near = sites.iter().filter(|(_, site)| site.file.ends_with(file)).map(|(_, site)| site.line);
        let near: BTreeSet<u32> = near.collect();
        return Err(Failure::Usage(format!(
            "nothing is flushed, fenced, waited for or stored at {place}; in files of that name it is at lines {near:?}"
        )));
    }
    Ok(mutations)
}
