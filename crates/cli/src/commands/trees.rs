//! `everleaf trees`: the trees of a pool.

use std::io::Write;

use everleaf::{Encodings, Store};
use serde::Serialize;

use terminal::context::{Context, write_json};
use terminal::failure::{Answer, Failure, Outcome};
use terminal::pool::{PoolArgs, is_overtaken};
use terminal::{progress, text};

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
    #[serde(flatten)]
    types: TypeNames,
    /// The types in words.
    #[serde(skip)]
    words: Option<String>,
}

/// The types of a tree, as `--key-type` and `--value-type` name them; none if it has none.
#[derive(Serialize, Clone, Default)]
pub(super) struct TypeNames {
    #[serde(skip_serializing_if = "Option::is_none")]
    key_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_type: Option<String>,
}

impl TypeNames {
    pub(super) fn of(encodings: Option<&Encodings>) -> Self {
        Self {
            key_type: encodings.map(|names| text::type_name(&names.key)),
            value_type: encodings.map(|names| text::type_name(&names.value)),
        }
    }
}

fn rows(store: &Store) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for info in store.trees()? {
        let (engine, codec) = info.kind.map_or(("unknown", "unknown"), |kind| {
            (kind.engine.name(), kind.codec.name())
        });
        let keys = match store.open_tree(&info.name).and_then(|tree| tree.len()) {
            Ok(keys) => Some(keys),
            Err(error) if is_overtaken(&error) => return Err(error.into()),
            Err(_) => None,
        };
        rows.push(Row {
            types: TypeNames::of(info.encodings.as_ref()),
            words: info.encodings.as_ref().map(text::types_in_words),
            name: info.name,
            engine,
            codec,
            keys,
        });
    }
    Ok(rows)
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let rows = args.pool.read(context, rows)?;
    print_rows(&rows, context)
}

/// Prints the trees of a store.
pub(super) fn print(store: &Store, context: Context) -> Outcome {
    print_rows(&rows(store)?, context)
}

fn print_rows(rows: &[Row], context: Context) -> Outcome {
    let mut output = Context::output();
    if context.json {
        write_json(&mut output, &serde_json::json!({ "trees": rows }))?;
    } else {
        for row in rows {
            let keys = row
                .keys
                .map_or("damaged".to_owned(), |keys| progress::many(keys, "key"));
            let name = text::escape(row.name.as_bytes());
            write!(output, "{name}\t{}\t{}\t{keys}", row.engine, row.codec)?;
            match &row.words {
                Some(types) => writeln!(output, "\t{types}")?,
                None => writeln!(output)?,
            }
        }
    }
    output.flush()?;
    Ok(Answer::Yes)
}
