//! The writer process of the demo, and its protocol.
//!
//! It reads paths from standard input: for each the length of the path (4 bytes), the path, size
//! and time (8 bytes each), all little-endian. Its threads take one part each, in order, and
//! acknowledge durable paths by their numbers (4 bytes each), several at a time.

use std::io::{BufReader, Read, Write};
use std::ops::Range;
use std::thread::Builder;
use std::time::Duration;

use everleaf::{Engine, Store, Tree, TreeOptions};
use terminal::values::engine_of;

use super::TREE;
use super::listing::Listing;
use terminal::child;
use terminal::failure::{Answer, Failure, Outcome};
use terminal::pool::PoolArgs;

/// Threads that write.
pub(super) const THREADS: usize = 2;
/// Acknowledgements that are sent together: fewer bytes than a pipe takes in one piece.
pub(super) const ACKNOWLEDGED_TOGETHER: usize = 64;
/// A load of fewer paths is slowed down, so that there is something left to interrupt.
const PACED_BELOW: usize = 50_000;
/// How long a slowed load takes, about.
const PACED_DURATION: Duration = Duration::from_secs(1);

/// For the demo itself: stores the paths from standard input.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    #[arg(long, value_parser = engine_of(Engine::ALL))]
    engine: Engine,
}

/// The part of `count` paths that a thread writes, in order.
pub(super) fn part(thread: usize, count: usize) -> Range<usize> {
    count * thread / THREADS..count * (thread + 1) / THREADS
}

/// Whether a load of `count` paths is slowed down.
pub(super) fn is_paced(count: usize) -> bool {
    count < PACED_BELOW
}

/// Hands the paths to a writer.
pub(super) fn send(listing: &Listing, mut input: impl Write) -> std::io::Result<()> {
    for index in 0..listing.len() {
        let (size, changed) = listing.figures(index);
        input.write_all(&(listing.path(index).len() as u32).to_le_bytes())?;
        input.write_all(listing.path(index))?;
        input.write_all(&size.to_le_bytes())?;
        input.write_all(&changed.to_le_bytes())?;
    }
    input.flush()
}

fn receive(mut input: impl Read) -> std::io::Result<Listing> {
    let mut listing = Listing::default();
    let mut length = [0; 4];
    let mut path = Vec::new();
    let mut figures = [0; 16];
    loop {
        match input.read_exact(&mut length) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(listing),
            read => read?,
        }
        path.resize(u32::from_le_bytes(length) as usize, 0);
        input.read_exact(&mut path)?;
        input.read_exact(&mut figures)?;
        let figures = u128::from_le_bytes(figures);
        listing.push(&path, figures as u64, (figures >> 64) as i64);
    }
}

fn write_part(store: &Store, tree: &Tree, listing: &Listing, thread: usize) -> Result<(), Failure> {
    let mut pipe = child::raw_output()?;
    let part = part(thread, listing.len());
    let rest = if is_paced(listing.len()) {
        PACED_DURATION.mul_f64(1.0 / part.len().max(1) as f64)
    } else {
        Duration::ZERO
    };
    let together = if rest.is_zero() {
        ACKNOWLEDGED_TOGETHER
    } else {
        1
    };
    let mut acknowledgements = Vec::with_capacity(4 * together);
    let last = part.end.saturating_sub(1);
    for index in part {
        let inserted = tree
            .pending()
            .insert(listing.path(index), listing.value(index))?;
        acknowledgements.extend_from_slice(&(index as u32).to_le_bytes());
        if acknowledgements.len() == 4 * together || index == last {
            // Paths that are acknowledged together become durable together.
            inserted.wait()?;
            if tree.kind().engine.is_buffered() {
                store.sync()?;
            }
            pipe.write_all(&acknowledgements)?;
            acknowledgements.clear();
        }
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
    }
    Ok(())
}

pub(crate) fn run(args: &Args) -> Answer {
    write(args).unwrap_or_else(|failure| child::tell_parent(&failure))
}

fn write(args: &Args) -> Outcome {
    let listing = receive(BufReader::with_capacity(1 << 20, std::io::stdin().lock()))?;
    let store = args.pool.options().open(&args.pool.pool)?;
    let tree = store.tree_with(
        TREE,
        TreeOptions {
            engine: args.engine,
            ..TreeOptions::default()
        },
    )?;
    let written = std::thread::scope(|scope| {
        let store = &store;
        let tree = &tree;
        let listing = &listing;
        let mut threads = Vec::new();
        for thread in 0..THREADS {
            let write = move || write_part(store, tree, listing, thread);
            let started = Builder::new().spawn_scoped(scope, write);
            threads.push(started.map_err(Failure::io("start a thread that writes"))?);
        }
        for thread in threads {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok::<(), Failure>(())
    });
    written?;
    // Waits to be killed, even if it has stored all paths before that.
    std::thread::sleep(Duration::from_secs(60));
    Ok(Answer::No)
}

#[cfg(test)]
mod tests;
