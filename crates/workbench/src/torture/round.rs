//! One round of torture: start a writer, kill it, verify the pool.

use std::ffi::OsString;
use std::io::Read;
use std::process::{ChildStdout, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use everleaf::Options;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sim::torture::{Contents, Oracle, RoundHistory};

use super::verify::StoreKeys;
use super::writer::FOUND_WRONG;
use super::{Args, Report, options_of, verify};
use terminal::child;
use terminal::failure::Failure;

/// The most time that a writer may take to open the pool.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(60);
/// The pause between reads of the pipe, so that its reader does not wake up for every record.
const READER_REST: Duration = Duration::from_millis(1);

/// Reads a pipe to its end, and signals `began` when the first bytes arrive.
fn read_all(mut pipe: ChildStdout, began: &Sender<()>) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut part = vec![0; 1 << 20];
    loop {
        let length = pipe.read(&mut part)?;
        if length == 0 {
            return Ok(all);
        }
        if all.is_empty() {
            // The receiver is gone if the writer is to be killed before it begins.
            let _ = began.send(());
        }
        all.extend_from_slice(&part[..length]);
        std::thread::sleep(READER_REST);
    }
}

/// Runs a writer and kills it at a random moment. Returns its records, and the violation if it
/// ended by itself.
fn run_writer(
    args: &Args,
    seed: u64,
    round: u32,
    random: &mut SmallRng,
) -> Result<(Vec<u8>, Option<String>), Failure> {
    let mut arguments: Vec<OsString> = vec!["torture-writer".into()];
    arguments.extend([format!("--seed={seed}"), format!("--round={round}")].map(OsString::from));
    arguments.extend(args.work.to_arguments().split(' ').map(OsString::from));
    arguments.extend(args.pool.to_arguments());
    let mut writer = child::spawn(arguments, Stdio::null(), Stdio::inherit())?;
    let (sender, began) = channel();
    let Some(pipe) = writer.stdout.take() else {
        return Err(Failure::Refused(
            "the writer has no output; this is a fault of everleaf, please report it".to_owned(),
        ));
    };
    let read = move || read_all(pipe, &sender);
    let reader = match std::thread::Builder::new().spawn(read) {
        Ok(reader) => reader,
        Err(error) => {
            child::kill(&mut writer)?;
            return Err(Failure::io("start a thread that reads from the writer")(
                error,
            ));
        }
    };
    // One writer in eight dies early: while it starts, opens or recovers.
    if random.random_ratio(1, 8) {
        std::thread::sleep(Duration::from_secs_f64(random.random_range(0.0..0.005)));
    } else {
        match began.recv_timeout(OPEN_WAIT_MAX) {
            Ok(()) => {
                let life = random.random_range(0.0..1.0) * args.seconds_per_round;
                std::thread::sleep(Duration::from_secs_f64(life));
            }
            // It ended by itself, and its message is on standard error.
            Err(RecvTimeoutError::Disconnected) => {}
            Err(RecvTimeoutError::Timeout) => {
                child::kill(&mut writer)?;
                let what = format!(
                    "a writer did not begin within {} s",
                    OPEN_WAIT_MAX.as_secs()
                );
                return Ok((Vec::new(), Some(what)));
            }
        }
    }
    let status = child::kill(&mut writer)?;
    let said = match reader.join() {
        Ok(said) => said.map_err(Failure::io("read from the writer process"))?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    if child::was_killed(status) || child::was_interrupted(status) {
        return Ok((said, None));
    }
    if status.code() == Some(1) {
        return Err(Failure::Refused(
            "the writer failed by itself; above it says why, and what helps".to_owned(),
        ));
    }
    let why = if status.code() == Some(FOUND_WRONG) {
        "saw something wrong"
    } else {
        "crashed by itself"
    };
    Ok((
        said,
        Some(format!("the writer {why} ({status}), as it says above")),
    ))
}

/// Opens the pool after a kill, and checks it against the writer's records; returns how long the
/// opening took.
fn judge(
    args: &Args,
    options: &Options,
    round: u32,
    history: RoundHistory,
    oracle: &mut Oracle,
    report: &mut Report,
    violations: &mut Vec<String>,
) -> Result<Duration, Failure> {
    let workload = args.work.workload();
    let mut contents = Contents::empty(&workload);
    let mut slowest = Duration::ZERO;
    let mut used_bytes = 0;
    for (number, pool) in args.work.pools(&args.pool).iter().enumerate() {
        let store = child::open_after_kill(options, &pool.pool)?;
        slowest = slowest.max(store.recovery().duration);
        let mut numbers = Vec::new();
        for key in 0..workload.key_count() {
            if args.work.store_of(key) == number as u32 {
                numbers.push(key);
            }
        }
        let keys = StoreKeys {
            numbers,
            form: args.work.keys(),
        };
        verify::read_all(&store, &workload, &keys, round, &mut contents, violations)?;
        used_bytes += store.stat()?.used_bytes;
    }
    oracle.judge(history, contents, &mut report.tally, violations);
    report.keys = oracle.count();
    report.used_bytes = used_bytes;
    Ok(slowest)
}

/// Runs a round; returns how long the pool took to open after it, if it did, and all violations.
pub(super) fn run(
    args: &Args,
    seed: u64,
    round: u32,
    round_seed: u64,
    oracle: &mut Oracle,
    report: &mut Report,
) -> Result<(Option<Duration>, Vec<String>), Failure> {
    let mut random = SmallRng::seed_from_u64(round_seed);
    let (said, blame) = run_writer(args, seed, round, &mut random)?;
    let mut violations: Vec<String> = blame.into_iter().collect();
    let history = match RoundHistory::read(&said, &args.work.workload()) {
        Ok(history) => history,
        Err(what) => {
            violations.push(what);
            RoundHistory::default()
        }
    };
    history.add_to(&mut report.tally);
    report.killed_while_opening += u32::from(history.announced() == 0);
    // In half of the rounds the pool is not closed cleanly, so that the next writer has to recover,
    // too.
    let options = options_of(&args.pool)
        .create(false)
        .close_cleanly(random.random());
    let recovery = match judge(
        args,
        &options,
        round,
        history,
        oracle,
        report,
        &mut violations,
    ) {
        Ok(recovery) => Some(recovery),
        // Only kills have happened to the pool, so damage is a violation.
        Err(failure) if failure.is_damage() => {
            violations.push(failure.to_string());
            None
        }
        Err(failure) => return Err(failure),
    };
    for violation in &mut violations {
        *violation = format!("round {round}: {violation}");
    }
    Ok((recovery, violations))
}
