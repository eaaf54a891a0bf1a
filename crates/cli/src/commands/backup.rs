//! `everleaf backup`: a consistent copy of a pool, in a new file.
//!
//! The pool may be open in another process, which goes on writing.

use std::path::PathBuf;

use crate::context::{Context, PoolArgs};
use crate::failure::{Answer, Outcome};
use crate::progress;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The file to make
    target: PathBuf,
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let bytes = args.pool.options().backup(&args.pool.pool, &args.target)?;
    [&args.pool.pool, &args.target].into_iter().for_each(|path| context.note_file(path));
    let words = format!("copied {} to {}", progress::bytes(bytes), args.target.display());
    context
        .say(&serde_json::json!({ "target": args.target.display().to_string(), "bytes": bytes }), words)?;
    Ok(Answer::Yes)
}
