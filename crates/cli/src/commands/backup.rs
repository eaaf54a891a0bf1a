//! `everleaf backup`: a consistent copy of a pool, in a new file.
//!
//! The pool may be open in another process, which goes on writing. The copy is opened and checked;
//! a damaged copy of a damaged pool is kept.

use std::io;
use std::path::{Path, PathBuf};

use everleaf::{Error, ErrorKind, StoreViolation};
use serde::Serialize;

use super::check;
use super::violations::Violations;
use crate::arguments::PoolArgs;
use crate::context::Context;
use crate::failure::{Answer, Failure, Outcome};
use crate::{interrupt, progress};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The file to make
    target: PathBuf,
}

#[derive(Serialize)]
struct Report {
    target: String,
    bytes: u64,
    #[serde(flatten)]
    violations: Violations,
}

/// Whether a file of the copy's name exists already.
fn is_taken(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Io { source, .. } => source.kind() == io::ErrorKind::AlreadyExists,
        _ => false,
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    interrupt::gently();
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
    let template =
        "{msg} {bar:20} {percent:>3}%, {binary_bytes} of {binary_total_bytes}, {elapsed}";
    let bar = progress::bar(context, Some(length(&args.pool.pool)), "copying", template);
    let shown = bar.clone();
    let tick = move |bytes| {
        shown.inc(bytes);
        !interrupt::is_asked()
    };
    let options = args.pool.options();
    let copied = medium::progress::watched(tick, || {
        args.pool
            .wait(|| options.backup(&args.pool.pool, &args.target))
    });
    bar.finish_and_clear();
    let bytes = match copied {
        Err(_) if interrupt::is_asked() => return Err(Failure::Interrupted),
        Err(Failure::Store(error)) if is_taken(&error) => {
            return Err(Failure::Exists {
                path: args.target.clone(),
                command: "backup",
            });
        }
        copied => copied?,
    };
    context.note_file(&args.pool.pool);
    context.note_file(&args.target);
    let found = verify(args, context).inspect_err(|failure| {
        // An interrupted backup leaves no file; a copy that cannot be verified is kept, so that the
        // user can examine it.
        if matches!(failure, Failure::Interrupted) {
            let _ = std::fs::remove_file(&args.target);
        }
    })?;
    let violations: Violations = found.into_iter().collect();
    violations.note(context, "damage in the copy");
    let target = args.target.display().to_string();
    let sound = violations.is_empty();
    let is_sound = if sound {
        "sound"
    } else {
        "damaged, as the pool is"
    };
    let words = format!("copied {} to {target}, {is_sound}", progress::bytes(bytes));
    context.say(
        &Report {
            target,
            bytes,
            violations,
        },
        words,
    )?;
    Ok(Answer::from_bool(sound))
}

/// Checks the copy, which is only read.
fn verify(args: &Args, context: Context) -> Result<Vec<StoreViolation>, Failure> {
    let options = args.pool.options().read_only(true);
    let store =
        progress::while_running(context, "opening the copy", || options.open(&args.target))?;
    check::violations(context, &store)
}
