//! `everleaf get`: the value of a key.

use std::ffi::OsString;
use std::io::Write;

use everleaf::{Store, Tree};

use crate::context::{Context, Notation, PoolArgs, TreeArgs, write_json};
use crate::failure::{Answer, Failure, Outcome};

/// A key of a tree; all arguments of `rm`.
#[derive(clap::Args, Debug)]
pub(crate) struct KeyArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// The key
    key: OsString,
    #[command(flatten)]
    tree: TreeArgs,
    #[command(flatten)]
    pub(super) notation: Notation,
}

impl KeyArgs {
    /// Opens the tree; returns it with its store, and the key.
    pub(super) fn open(&self, context: Context) -> Result<(Store, Tree, Vec<u8>), Failure> {
        let store = self.pool.open(context, false)?;
        let tree = self.tree.open(&store)?;
        let key = self.notation.argument(&self.key, tree.kind().codec)?;
        Ok((store, tree, key))
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,
    /// Print the value's bytes as they are, and nothing else
    #[arg(long, conflicts_with = "hex")]
    raw: bool,
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let (_store, tree, key) = args.key.open(context)?;
    let (codec, notation) = (tree.kind().codec, &args.key.notation);
    let value = tree.get(&key)?;
    let mut output = Context::output();
    if context.json {
        let mut object = serde_json::Map::new();
        notation.add_json(&mut object, "key", &key, codec);
        object.insert("found".to_owned(), value.is_some().into());
        if let Some(value) = &value {
            notation.add_json(&mut object, "value", value, codec);
        }
        write_json(&mut output, &object)?;
    } else if let Some(value) = &value {
        if args.raw {
            output.write_all(value)?;
        } else {
            writeln!(output, "{}", notation.show(value, codec))?;
        }
    }
    output.flush()?;
    if value.is_none() && !context.json {
        context.note("the key is absent");
    }
    Ok(Answer::from_bool(value.is_some()))
}
