//! `everleaf backup`: a consistent copy of a pool, in a new file.
//!
//! The pool may be open in another process, which goes on writing.

use std::path::{Path, PathBuf};

use crate::context::{Context, PoolArgs};
use crate::failure::{Answer, Outcome};
use crate::{interrupt, progress};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The file to make
    target: PathBuf,
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    interrupt::gently();
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
    let template = "{msg} {bar:40} {percent:>3}%, {binary_bytes} of {binary_total_bytes}, {elapsed}";
    let bar = progress::bar(context, Some(length(&args.pool.pool)), "copying", template);
    let shown = bar.clone();
    let tick = move |bytes| {
        shown.inc(bytes);
        !interrupt::is_asked()
    };
    let options = args.pool.options();
    let copied =
        medium::progress::watched(tick, || args.pool.wait(|| options.backup(&args.pool.pool, &args.target)));
    bar.finish_and_clear();
    interrupt::check()?;
    let bytes = copied?;
    [&args.pool.pool, &args.target].into_iter().for_each(|path| context.note_file(path));
    let words = format!("copied {} to {}", progress::bytes(bytes), args.target.display());
    context
        .say(&serde_json::json!({ "target": args.target.display().to_string(), "bytes": bytes }), words)?;
    Ok(Answer::Yes)
}
