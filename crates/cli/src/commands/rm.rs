//! `everleaf rm`: removes a key.

use std::ffi::OsString;

use crate::context::{Context, Notation, PoolArgs, TreeArgs};
use crate::failure::{Answer, Outcome};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The key
    key: OsString,
    #[command(flatten)]
    tree: TreeArgs,
    #[command(flatten)]
    notation: Notation,
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let store = args.pool.open(context, false)?;
    let tree = args.tree.open(&store)?;
    let removed = tree.remove(args.notation.argument(&args.key, tree.kind().codec)?)?;
    drop(tree);
    store.close()?;
    context
        .say(&serde_json::json!({ "removed": removed }), if removed { "" } else { "the key is absent" })?;
    Ok(Answer::from_bool(removed))
}
