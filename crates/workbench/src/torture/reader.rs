//! The reader process: opens the pool after a loss of power, reads it in every way, and reports the
//! content.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use super::channel::Reading;
use super::log::LogReport;
use super::verify::StoreKeys;
use super::{WorkArgs, options_of, verify};
use sim::torture::Contents;
use terminal::context::survives_name;
use terminal::context::write_json;
use terminal::failure::{Answer, Failure, Outcome};
use terminal::pool::PoolArgs;

/// For tests with power cuts: reads a torture pool, which is made if it is missing.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    #[arg(long)]
    round: u32,
    #[command(flatten)]
    work: WorkArgs,
    /// The file for the result, from its first byte on
    #[arg(long)]
    channel: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let reading = read(args)?;
    let mut said = Vec::new();
    write_json(&mut said, &reading)?;
    let refused = || Failure::io(format!("write to {}", args.channel.display()));
    let mut channel = File::options()
        .write(true)
        .open(&args.channel)
        .map_err(refused())?;
    channel
        .write_all(&said)
        .and_then(|()| channel.sync_all())
        .map_err(refused())?;
    Ok(Answer::from_bool(reading.violations.is_empty()))
}

fn read(args: &Args) -> Result<Reading, Failure> {
    let mut reading = Reading::default();
    // In half of the rounds the pool is not closed cleanly, so that the next open has to recover,
    // too.
    let options = options_of(&args.pool).close_cleanly(args.round.is_multiple_of(2));
    // The pool must open and be readable after any loss of power.
    let store = match options.open(&args.pool.pool) {
        Ok(store) => store,
        Err(error) => {
            reading
                .violations
                .push(format!("the pool does not open: {error}"));
            return Ok(reading);
        }
    };
    reading.open_ns = store.recovery().duration.as_nanos() as u64;
    let stat = store.stat()?;
    reading.medium = stat.medium;
    reading.log = stat.log.map(LogReport::of);
    survives_name(store.survives()).clone_into(&mut reading.survives);
    let workload = args.work.workload();
    let keys = StoreKeys {
        numbers: (0..workload.key_count()).collect(),
        form: args.work.keys(),
    };
    let mut contents = Contents::empty(&workload);
    let violations = &mut reading.violations;
    match verify::read_all(
        &store,
        &workload,
        &keys,
        args.round,
        &mut contents,
        violations,
    ) {
        Ok(()) => reading.contents = Some(contents),
        Err(failure) => reading
            .violations
            .push(format!("the pool cannot be read: {failure}")),
    }
    Ok(reading)
}
