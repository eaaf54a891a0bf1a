//! `everleaf scan`: the entries of a range of keys.

use std::io::Write;

use everleaf::{CodecKind, Tree, View, ViewRange};

use crate::arguments::{Notation, PoolArgs, RangeArgs, TreeArgs};
use crate::context::{Context, write_json};
use crate::failure::{Answer, Failure, Outcome};
use crate::interrupt;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    tree: TreeArgs,
    #[command(flatten)]
    range: RangeArgs,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Print at most this many entries
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    /// Print keys without values
    #[arg(long)]
    keys: bool,
    #[command(flatten)]
    notation: Notation,
}

impl Args {
    fn print(
        &self,
        context: Context,
        mut range: ViewRange<'_, Tree>,
        codec: CodecKind,
    ) -> Result<(), Failure> {
        let mut output = Context::output();
        for _ in 0..self.limit.unwrap_or(u64::MAX) {
            let entry = if self.reverse {
                range.next_bytes_back()?
            } else {
                range.next_bytes()?
            };
            let Some((key, value)) = entry else { break };
            interrupt::check()?;
            self.print_entry(context, &mut output, key, value, codec)?;
        }
        Ok(output.flush()?)
    }

    fn print_entry(
        &self,
        context: Context,
        output: &mut impl Write,
        key: &[u8],
        value: &[u8],
        codec: CodecKind,
    ) -> Result<(), Failure> {
        if context.json {
            let mut object = serde_json::Map::new();
            self.notation.add_json(&mut object, "key", key, codec);
            if !self.keys {
                self.notation.add_json(&mut object, "value", value, codec);
            }
            return write_json(output, &object);
        }
        let key = self.notation.show(key, codec);
        if self.keys {
            writeln!(output, "{key}")?;
        } else {
            let value = self.notation.show(value, codec);
            writeln!(output, "{key}\t{value}")?;
        }
        Ok(())
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let store = args.pool.read(context)?;
    interrupt::gently();
    let tree = args.tree.open(&store)?;
    let codec = tree.kind().codec;
    let bounds = args.range.bounds(args.notation, codec)?;
    let snapshot = store.snapshot()?;
    args.print(context, snapshot.range(&tree, bounds), codec)?;
    Ok(Answer::Yes)
}
