//! `everleaf backup`: a consistent copy of a pool, in a new file.
//!
//! One process has a pool open at a time, so this is for pools that no other has; a program copies its own, while it
//! writes, by `Store::backup`.

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
    let store = args.pool.open(context, false)?;
    let bytes = store.backup(&args.target)?;
    let words = format!("copied {} to {}", progress::bytes(bytes), args.target.display());
    context
        .say(&serde_json::json!({ "target": args.target.display().to_string(), "bytes": bytes }), words)?;
    store.close()?;
    Ok(Answer::Yes)
}
