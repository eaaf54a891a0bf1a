//! `everleaf backup`: a consistent copy of a pool, in a new file.
//!
//! The pool may be open in another process, which goes on writing. The copy is opened and checked;
//! a damaged copy of a damaged pool is kept, but does not replace another file.

use std::path::{Path, PathBuf};

use everleaf::StoreViolation;
use serde::Serialize;
use terminal::output_file::{ForceArgs, OutputPool};

use super::check;
use terminal::context::Context;
use terminal::failure::{Answer, Failure, Outcome};
use terminal::pool::PoolArgs;
use terminal::violations::Violations;
use terminal::{interrupt, progress};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The file to make
    target: PathBuf,
    #[command(flatten)]
    force: ForceArgs,
}

#[derive(Serialize)]
struct Report {
    target: String,
    bytes: u64,
    #[serde(flatten)]
    violations: Violations,
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    interrupt::gently();
    let output = OutputPool::begin(&args.target, args.force, &args.pool.files())?;
    let part = output.part();
    let bytes = copy(args, context, &part).map_err(|failure| args.named(failure, &part))?;
    let verified = verify(args, context, &part);
    let found = match verified {
        Ok(found) => found,
        // An interrupted backup leaves no file.
        Err(Failure::Interrupted) => return Err(Failure::Interrupted),
        Err(failure) => {
            // A copy that cannot be verified is kept, so that the user can examine it, but not in
            // place of another file.
            if !output.replaces() {
                output.finish()?;
            }
            return Err(args.named(failure, &part));
        }
    };
    let target = args.target.display().to_string();
    if let Some(damage) = found.first()
        && output.replaces()
    {
        return Err(Failure::Refused(format!(
            "the pool is damaged: {damage}; {target} was not replaced; back up to another name to keep a damaged copy"
        )));
    }
    output.finish()?;
    context.note_file(&args.pool.pool);
    context.note_file(&args.target);
    let violations: Violations = found.into_iter().collect();
    violations.note(context, "damage in the copy");
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

impl Args {
    /// The failure, with the path of the target instead of that of `part`, which is temporary.
    fn named(&self, failure: Failure, part: &Path) -> Failure {
        match failure {
            Failure::Store(error) if error.path() == Some(part) => {
                Failure::Store(error.moved_to(&self.target))
            }
            other => other,
        }
    }
}

/// Copies the pool to the new file `part`; returns the bytes of the copy.
fn copy(args: &Args, context: Context, part: &Path) -> Result<u64, Failure> {
    let length = std::fs::metadata(&args.pool.pool).map_or(0, |found| found.len());
    let template =
        "{msg} {bar:20} {percent:>3}%, {binary_bytes} of {binary_total_bytes}, {elapsed}";
    let bar = progress::bar(context, Some(length), "copying", template);
    let shown = bar.clone();
    let tick = move |bytes| {
        shown.inc(bytes);
        !interrupt::is_asked()
    };
    let options = args.pool.options();
    let copied = medium::progress::watched(tick, || {
        args.pool.wait(|| options.backup(&args.pool.pool, part))
    });
    bar.finish_and_clear();
    match copied {
        Err(_) if interrupt::is_asked() => Err(Failure::Interrupted),
        copied => copied,
    }
}

/// Checks the copy, which is only read.
fn verify(args: &Args, context: Context, part: &Path) -> Result<Vec<StoreViolation>, Failure> {
    let options = args.pool.options().read_only(true);
    let store = progress::while_running(context, "opening the copy", || options.open(part))?;
    check::violations(context, &store)
}
