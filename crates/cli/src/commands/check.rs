//! `everleaf check`: verifies the whole structure of a pool.

use std::io::Write;

use serde::Serialize;

use super::stat::LogReport;
use crate::context::{Context, PoolArgs, write_json};
use crate::failure::{Answer, Outcome};
use crate::progress;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
}

#[derive(Serialize)]
struct Violation {
    tree: Option<String>,
    offset: Option<u64>,
    what: String,
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let store = args.pool.open(context, false)?;
    let found = store.check()?;
    let sound = found.is_empty();
    let mut output = Context::output();
    if context.json {
        let violations: Vec<_> = found
            .into_iter()
            .map(|violation| Violation {
                tree: violation.tree,
                offset: violation.offset,
                what: violation.what,
            })
            .collect();
        let log = store.stat()?.log.map(LogReport::of);
        let report = serde_json::json!({ "sound": sound, "violations": violations, "log": log });
        write_json(&mut output, &report)?;
    } else {
        for violation in &found {
            writeln!(output, "{violation}")?;
        }
        if let Some(log) = store.stat()?.log.map(LogReport::of) {
            writeln!(output, "log: {}", log.words())?;
        }
        if sound {
            writeln!(output, "sound: {} trees, no violation", store.trees()?.len())?;
        } else {
            let count = progress::count(found.len() as u64);
            writeln!(
                output,
                "{count} violations; `everleaf dump --salvage` saves what is whole, `restore` it elsewhere"
            )?;
        }
    }
    output.flush()?;
    Ok(Answer::from_bool(sound))
}
