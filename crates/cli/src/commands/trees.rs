//! `everleaf trees`: the trees of a pool.

use std::io::Write;

use everleaf::Store;
use serde::Serialize;

use crate::arguments::PoolArgs;
use crate::context::{Context, write_json};
use crate::failure::{Answer, Outcome};
use crate::{progress, text};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
}

#[derive(Serialize)]
struct Row {
    name: String,
    engine: &'static str,
    codec: &'static str,
    /// `None` if the tree cannot be opened.
    keys: Option<u64>,
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    print(&args.pool.read(context)?, context)
}

/// Prints the trees of a store.
pub(super) fn print(store: &Store, context: Context) -> Outcome {
    let mut rows = Vec::new();
    for info in store.trees()? {
        let (engine, codec) = info.kind.map_or(("unknown", "unknown"), |kind| {
            (kind.engine.name(), kind.codec.name())
        });
        let keys = store.open_tree(&info.name).and_then(|tree| tree.len()).ok();
        rows.push(Row {
            name: info.name,
            engine,
            codec,
            keys,
        });
    }
    let mut output = Context::output();
    if context.json {
        write_json(&mut output, &serde_json::json!({ "trees": rows }))?;
    } else {
        for row in &rows {
            let keys = row
                .keys
                .map_or("damaged".to_owned(), |keys| progress::many(keys, "key"));
            let name = text::escape(row.name.as_bytes());
            writeln!(output, "{name}\t{}\t{}\t{keys}", row.engine, row.codec)?;
        }
    }
    output.flush()?;
    Ok(Answer::Yes)
}
