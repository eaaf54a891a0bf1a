//! `everleaf put`: sets the value of a key.

use std::ffi::OsString;

use everleaf::Codec;

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
    fn entry(&self, codec: Codec) -> Result<(Vec<u8>, Vec<u8>), Failure> {
        Ok((self.notation.argument(&self.key, codec)?, self.notation.argument(&self.value, codec)?))
    }

    /// Opens the tree, calls `write` with it, key and value, and closes the store. Neither pool nor tree is made for an invalid key
    /// or value.
    pub(super) fn write<T>(
        &self,
        context: Context,
        write: impl FnOnce(&everleaf::Tree, &[u8], &[u8]) -> everleaf::Result<T>,
    ) -> Result<T, Failure> {
        if self.pool.is_new() {
            self.entry(self.tree.new_codec())?;
        }
        self.pool.write(context, |store| {
            let (key, value) = self.entry(self.tree.codec(store)?)?;
            Ok(write(&self.tree.open(store)?, &key, &value)?)
        })
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    args.write(context, |tree, key, value| tree.put(key, value))?;
    context.say(&serde_json::json!({ "done": true }), "")?;
    Ok(Answer::Yes)
}
