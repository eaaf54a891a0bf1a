//! `everleaf scan`: the entries of a range of keys.

use std::ffi::OsString;
use std::io::Write;
use std::ops::Bound;

use everleaf::{Bounds, Codec, Range};

use crate::context::{Context, Notation, PoolArgs, TreeArgs, write_json};
use crate::failure::{Answer, Failure, Outcome};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    tree: TreeArgs,
    /// The first key
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// The key before which the range ends
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// Only keys that begin with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
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
    fn bounds(&self, codec: Codec) -> Result<Bounds, Failure> {
        let read = |key: &OsString| self.notation.argument(key, codec);
        if let Some(prefix) = &self.prefix {
            if codec == Codec::Word && !self.notation.hex {
                return Err(Failure::Usage(
                    "--prefix does not apply to a tree of numbers; give --from and --to, or --hex".into(),
                ));
            }
            return Ok(Bounds::prefix(&read(prefix)?));
        }
        let lower = self.from.as_ref().map(read).transpose()?.map_or(Bound::Unbounded, Bound::Included);
        let upper = self.to.as_ref().map(read).transpose()?.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(Bounds { lower, upper })
    }

    fn print(&self, context: Context, mut range: Range<'_>, codec: Codec) -> Result<(), Failure> {
        let mut output = Context::output();
        for _ in 0..self.limit.unwrap_or(u64::MAX) {
            let entry = if self.reverse { range.next_entry_back()? } else { range.next_entry()? };
            let Some((key, value)) = entry else { break };
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
                writeln!(output, "{}\t{}", self.notation.show(key, codec), self.notation.show(value, codec))?;
            }
        }
        Ok(output.flush()?)
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let store = args.pool.open(context, false)?;
    let tree = args.tree.open(&store)?;
    let codec = tree.kind().codec;
    args.print(context, tree.range(args.bounds(codec)?), codec)?;
    Ok(Answer::Yes)
}
