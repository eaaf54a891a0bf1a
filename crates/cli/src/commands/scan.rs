//! `everleaf scan`: the entries of a range of keys.

use std::io::Write;

use everleaf::{CodecKind, Range};

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
        mut range: Range<'_>,
        codec: CodecKind,
    ) -> Result<(), Failure> {
        let mut output = Context::output();
        for _ in 0..self.limit.unwrap_or(u64::MAX) {
            let entry = if self.reverse {
                range.next_entry_back()?
            } else {
                range.next_entry()?
            };
            let Some((key, value)) = entry else { break };
            interrupt::check()?;
            if context.json {
                let mut object = serde_json::Map::new();
                self.notation.add_json(&mut object, "key", key, codec);
                if !self.keys {
                    self.notation.add_json(&mut object, "value", value, codec);
                }
                write_json(&mut output, &object)?;
            } else if self.keys {
                writeln!(output, "{}", self.notation.show(key, codec))?;
            } else {
                writeln!(
                    output,
                    "{}\t{}",
                    self.notation.show(key, codec),
                    self.notation.show(value, codec)
                )?;
            }
        }
        Ok(output.flush()?)
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let store = args.pool.read(context)?;
    interrupt::gently();
    let tree = args.tree.open(&store)?;
    let codec = tree.kind().codec;
    args.print(
        context,
        tree.range(args.range.bounds(args.notation, codec)?),
        codec,
    )?;
    Ok(Answer::Yes)
}
