//! `everleaf get`: the value of a key.

use std::ffi::OsString;
use std::io::Write;

use crate::arguments::{Notation, PoolArgs, TreeArgs};
use crate::context::{Context, write_json};
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
    /// Print the value's bytes as they are, and nothing else
    #[arg(long, conflicts_with = "hex")]
    raw: bool,
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let store = args.pool.read(context)?;
    let tree = args.tree.open(&store)?;
    let codec = tree.kind().codec;
    let notation = args.notation;
    let key = notation.argument(&args.key, codec)?;
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
