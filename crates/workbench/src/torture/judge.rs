//! The judge: whether the content after a loss of power can follow from the content before it and
//! the writer's records.

use std::path::{Path, PathBuf};

use serde::Serialize;
use sim::torture::{Oracle, RoundHistory, Tally};

use super::WorkArgs;
use super::channel::Reading;
use terminal::context::Context;
use terminal::failure::{Answer, Failure, Outcome};

/// For tests with power cuts: compares two channels.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    /// The offset of the records in a channel, in bytes
    #[arg(long)]
    records_at: usize,
    /// The channel with the content before, and the writer's records
    before: PathBuf,
    /// The channel with the content after the cut
    after: PathBuf,
}

#[derive(Serialize, Default)]
struct Verdict {
    #[serde(flatten)]
    tally: Tally,
    keys: u64,
    violations: Vec<String>,
}

/// A reader's result, and the writer's records behind it.
fn read(path: &Path, args: &Args) -> Result<(Reading, Vec<u8>), Failure> {
    let mut bytes = std::fs::read(path).map_err(Failure::io(format!("read {}", path.display())))?;
    let malformed = |what: String| Failure::Refused(format!("{}: {what}", path.display()));
    if bytes.len() < args.records_at {
        return Err(malformed(format!("has only {} bytes", bytes.len())));
    }
    let records = bytes.split_off(args.records_at);
    let line = bytes
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let reading: Reading =
        serde_json::from_slice(line).map_err(|error| malformed(error.to_string()))?;
    match &reading.contents {
        Some(contents) if !contents.is_of(&args.work.workload()) => {
            Err(malformed("has other trees or keys".to_owned()))
        }
        _ => Ok((reading, records)),
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let (before, records) = read(&args.before, args)?;
    let (after, _) = read(&args.after, args)?;
    let workload = args.work.workload();
    let mut verdict = Verdict {
        violations: after.violations,
        ..Verdict::default()
    };
    if let Some(before) = before.contents
        && let Some(after) = after.contents
    {
        let history = RoundHistory::read(&records, &workload).unwrap_or_else(|what| {
            verdict.violations.push(what);
            RoundHistory::default()
        });
        history.add_to(&mut verdict.tally);
        let mut oracle = Oracle::new(before, workload);
        oracle.judge(history, after, &mut verdict.tally, &mut verdict.violations);
        verdict.keys = oracle.count();
    }
    context.say(&verdict, verdict.violations.join("\n"))?;
    Ok(Answer::from_bool(verdict.violations.is_empty()))
}
