//! `everleaf put`: sets the value of a key.

use std::ffi::OsString;

use crate::context::{Context, NewTreeArgs, Notation, PoolArgs};
use crate::failure::{Answer, Failure, Outcome};

/// Also the arguments of `insert`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The key
    key: OsString,
    /// The value
    value: OsString,
    #[command(flatten)]
    tree: NewTreeArgs,
    #[command(flatten)]
    notation: Notation,
}

impl Args {
    /// Opens the tree and hands it over with key and value; closes the store.
    pub(super) fn write<T>(
        &self,
        context: Context,
        write: impl FnOnce(&everleaf::Tree, &[u8], &[u8]) -> everleaf::Result<T>,
    ) -> Result<T, Failure> {
        let store = self.pool.open(context, true)?;
        let tree = self.tree.open(&store)?;
        let codec = tree.kind().codec;
        let key = self.notation.argument(&self.key, codec)?;
        let value = self.notation.argument(&self.value, codec)?;
        let written = write(&tree, &key, &value)?;
        drop(tree);
        store.close()?;
        Ok(written)
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    args.write(context, |tree, key, value| tree.put(key, value))?;
    context.say(&serde_json::json!({ "done": true }), "")?;
    Ok(Answer::Yes)
}
