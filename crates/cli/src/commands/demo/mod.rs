//! `everleaf demo`: this machine's own files in a durable map, with a kill in mid-write.

mod listing;
mod prove;
mod report;
mod show;
pub(crate) mod writer;

use std::io::{BufWriter, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use everleaf::{Engine, Store, Tree};
use terminal::temporary::Scratch;
use terminal::values::engine_of;

use listing::Listing;
use prove::Acknowledgements;
use report::Report;
use show::Show;
use terminal::context::Context;
use terminal::failure::{Answer, Failure, Outcome};
use terminal::pool::PoolArgs;
use terminal::{child, progress};
use writer::THREADS;

/// The tree of the demo's pool, by which the demo recognises a pool of its own.
const TREE: &str = "everleaf demo";
/// The part of all paths after which the writer is killed.
const KILLED_AFTER: f64 = 0.6;
/// How long the writer has written before its rate is shown.
const RATE_AFTER: Duration = Duration::from_millis(100);
const BAR: &str = "     {bar:20.cyan} {percent:>3}%  {msg}";

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The folder with the files to store
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// The most paths
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    paths: u32,
    /// The pool to make; an earlier demo's is replaced, anything else is not touched
    #[arg(long, value_name = "FILE", default_value = "everleaf-demo.pool")]
    pool: PathBuf,
    /// The engine of the tree
    #[arg(long, default_value = "rntree", value_name = "NAME", value_parser = engine_of(Engine::ALL))]
    engine: Engine,
}

/// The writer's work until it was killed.
struct Killed {
    acknowledged: Acknowledgements,
    process: u32,
    /// From the first acknowledgement to the kill.
    duration: Duration,
}

/// Runs the writer on all paths and kills it after some of them.
fn write_and_kill(
    pool: &PoolArgs,
    engine: Engine,
    listing: &Listing,
    context: Context,
) -> Result<Killed, Failure> {
    let mut arguments = vec![
        "demo-writer".into(),
        format!("--engine={}", engine.name()).into(),
    ];
    arguments.extend(pool.to_arguments());
    let mut child = child::spawn(arguments, Stdio::piped(), Stdio::piped())?;
    let process = child.id();
    let no_pipes = || {
        Failure::Refused(
            "the writer has no pipes; this is a fault of everleaf, please report it".to_owned(),
        )
    };
    let input = child.stdin.take().ok_or_else(no_pipes)?;
    let mut output = child.stdout.take().ok_or_else(no_pipes)?;
    // `send` closes the pipe at its end, which tells the writer that there are no more paths.
    let sent = writer::send(listing, BufWriter::with_capacity(1 << 20, input));
    let bar = progress::bar(context, Some(listing.len() as u64), "0 acknowledged", BAR);
    let kill_at = ((listing.len() as f64 * KILLED_AFTER) as usize).max(1);
    let mut acknowledged = Acknowledgements::none(listing.len());
    let mut start = None;
    let mut duration = Duration::ZERO;
    let mut status = None;
    let mut part = vec![0; 64 << 10];
    let mut rest = Vec::new();
    loop {
        let length = output
            .read(&mut part)
            .map_err(Failure::io("read from the writer process"))?;
        if length == 0 {
            break;
        }
        let start: Instant = *start.get_or_insert_with(Instant::now);
        rest.extend_from_slice(&part[..length]);
        let (numbers, cut_off) = rest.as_chunks::<4>();
        for number in numbers {
            acknowledged.note(u32::from_le_bytes(*number))?;
        }
        rest = cut_off.to_vec();
        bar.set_position(acknowledged.count as u64);
        let count = acknowledged.count as u64;
        let elapsed = start.elapsed();
        // A rate of only a few writes would be meaningless.
        let rate = (elapsed >= RATE_AFTER).then(|| format!(", {}", progress::rate(count, elapsed)));
        bar.set_message(format!(
            "{} acknowledged{}",
            progress::count(count),
            rate.unwrap_or_default()
        ));
        if status.is_none() && acknowledged.count >= kill_at {
            duration = start.elapsed();
            status = Some(child::kill(&mut child)?);
        }
    }
    bar.finish_and_clear();
    match status {
        Some(status) if child::was_killed(status) => {}
        // The writer ended by itself.
        _ => {
            if let Some(failure) = child::failure_of(&mut child) {
                return Err(failure);
            }
            sent.map_err(Failure::io("hand the paths to the writer process"))?;
            return Err(Failure::Refused(
                "the writer process ended too early, and did not say why; try it again, and report it if it ends again".to_owned(),
            ));
        }
    }
    Ok(Killed {
        acknowledged,
        process,
        duration,
    })
}

/// Stores the paths that are missing, from two threads, and returns how many. All are durable when
/// this returns.
fn finish(store: &Store, tree: &Tree, listing: &Listing) -> Result<usize, Failure> {
    let added = AtomicUsize::new(0);
    let add = |thread: usize| -> everleaf::Result<()> {
        let mut last = None;
        for index in writer::part(thread, listing.len()) {
            let inserted = tree
                .pending()
                .insert(listing.path(index), listing.value(index))?;
            let is_new = inserted.peek() == Some(&true);
            added.fetch_add(usize::from(is_new), Ordering::Relaxed);
            last = Some(inserted);
        }
        // When the last one is durable, so are those before it.
        if let Some(last) = last {
            last.wait()?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let mut others = Vec::new();
        for thread in 1..THREADS {
            let started = Builder::new().spawn_scoped(scope, move || add(thread));
            others.push(started.map_err(Failure::io("start a thread that writes"))?);
        }
        add(0)?;
        for other in others {
            other
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok::<(), Failure>(())
    })?;
    // A tree with epochs needs a sync: its tickets do not wait for the epoch.
    store.sync()?;
    Ok(added.into_inner())
}

/// The prefix of the scan that is shown: a folder that most systems have, else that of the path in
/// the middle.
fn prefix_to_show(listing: &Listing, root: &Path) -> Vec<u8> {
    for candidate in ["/etc/ssl/", "/etc/apt/", "/etc/"] {
        let count = (0..listing.len())
            .filter(|index| listing.path(*index).starts_with(candidate.as_bytes()))
            .take(3);
        if root == Path::new("/") && count.count() == 3 {
            return candidate.as_bytes().to_vec();
        }
    }
    let middle = listing.path(listing.len() / 2);
    let slash = middle.iter().rposition(|byte| *byte == b'/');
    middle[..slash.map_or(0, |slash| slash + 1)].to_vec()
}

/// Lists the files below the folder; returns the result in words.
fn walk(args: &Args, context: Context, report: &mut Report) -> Result<(Listing, String), Failure> {
    let start = Instant::now();
    let root = args.root.canonicalize();
    let root = root.map_err(Failure::io(format!("walk {}", args.root.display())))?;
    let own_pool = std::path::absolute(&args.pool).unwrap_or_else(|_| args.pool.clone());
    let spinner = progress::bar(context, None, "0 paths", "     {spinner:.cyan} {msg}");
    let listing = Listing::walk(&root, args.paths as usize, &own_pool, |count| {
        spinner.set_message(format!("{} paths", progress::count(count)));
    });
    spinner.finish_and_clear();
    if listing.len() == 0 {
        return Err(Failure::Refused(format!(
            "{} has no files that can be read; choose another folder with --root",
            root.display()
        )));
    }
    let words = report.walked(&root, &listing, start.elapsed());
    Ok((listing, words))
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let pool = PoolArgs::new(args.pool.clone());
    child::replace_own(
        &pool.pool,
        pool.options(),
        &[TREE],
        "pool of an earlier demo",
    )?;
    // A signal removes the pool. A failure leaves it, so that the user can examine it.
    let scratch = Scratch::adopt(&args.pool);
    let outcome = show_all(args, &pool, context);
    scratch.keep();
    outcome
}

fn show_all(args: &Args, pool: &PoolArgs, context: Context) -> Outcome {
    let show = Show::new(context);
    let mut report = Report::new(&args.pool);
    show.title("everleaf demo: a durable ordered map of this machine's own files");
    let (listing, words) = walk(args, context, &mut report)?;
    show.step("walk", &words);

    let place = args.pool.display();
    let words = format!(
        "a process with two threads inserts path -> size, time of change into the new pool {place}"
    );
    show.step("write", &words);
    let killed = write_and_kill(pool, args.engine, &listing, context)?;
    show.step("kill", &report.killed(&killed));

    let start = Instant::now();
    let store = child::open_after_kill(&pool.options().create(false), &args.pool)?;
    let tree = store.open_tree(TREE)?;
    show.step(
        "recover",
        &report.recovered(&store, &tree, start.elapsed())?,
    );
    context.note_medium(&store);

    let bar = progress::bar(
        context,
        Some(killed.acknowledged.count as u64),
        "looked up",
        BAR,
    );
    let start = Instant::now();
    let proof = prove::prove(&tree, &listing, &killed.acknowledged, |count| {
        bar.inc(count);
    })?;
    bar.finish_and_clear();
    show.step("prove", &report.proved(proof, &store, start.elapsed())?);

    let start = Instant::now();
    let added = finish(&store, &tree, &listing)?;
    show.step("finish", &report.finished(added, start.elapsed()));
    let prefix = prefix_to_show(&listing, &args.root);
    show.step("scan", &report.scanned(&tree, &prefix)?);
    report.summed_up(&store, &tree, &listing)?;
    drop(tree);
    store.close()?;
    show.end(&report)?;
    Ok(Answer::from_bool(report.is_proved()))
}

#[cfg(test)]
mod tests;
