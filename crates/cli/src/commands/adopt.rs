//! `everleaf adopt`: gives a tree other types of keys and values, or none.

use std::cell::RefCell;

use everleaf::{Encodings, ErrorKind, Store};
use serde_json::{Map, json};

use terminal::pool::PoolArgs;

use crate::arguments::TreeArgs;
use crate::forms::FieldType;
use terminal::context::Context;
use terminal::failure::{Answer, Failure, Outcome};
use terminal::{interrupt, text};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    tree: TreeArgs,
    /// The type of its keys, such as u64 or text,u32; `everleaf help put` lists the types
    #[arg(
        long,
        value_name = "TYPE",
        required_unless_present = "bytes",
        requires = "value_type"
    )]
    key_type: Option<FieldType>,
    /// The type of its values
    #[arg(long, value_name = "TYPE", required_unless_present = "bytes")]
    value_type: Option<FieldType>,
    /// Make it a tree of byte strings, which forgets its types and takes any keys and values
    #[arg(long, conflicts_with_all = ["key_type", "value_type"])]
    bytes: bool,
}

/// Gives a tree these types, if all of its entries are of them.
fn give_types(
    store: &Store,
    name: &str,
    key_type: &FieldType,
    value_type: &FieldType,
) -> Result<Encodings, Failure> {
    let encodings = Encodings {
        key: key_type.encoding(),
        value: value_type.encoding(),
    };
    let refused = RefCell::new(None);
    let refuse = |failure: Failure| {
        let why = failure.to_string();
        refused.replace(Some(failure));
        ErrorKind::NotEncodable { why }.into()
    };
    let adopted = store.adopt_encoded(name, &encodings, |key, value| {
        interrupt::check().map_err(|interruption| refuse(interruption.into()))?;
        if key_type.show(key).is_none() {
            return Err(refuse(not_of_type(name, "key", key, key_type)));
        }
        if value_type.show(value).is_none() {
            return Err(refuse(not_of_type(name, "value", value, value_type)));
        }
        Ok(())
    });
    if let Some(failure) = refused.take() {
        return Err(failure);
    }
    adopted?;
    Ok(encodings)
}

fn not_of_type(name: &str, what: &str, bytes: &[u8], of_type: &FieldType) -> Failure {
    Failure::Refused(format!(
        "tree {name:?} has the {what} {}, which is no {of_type}, so the tree was not changed; give the type with which \
         it was written, or remove that entry",
        text::quoted(bytes)
    ))
}

impl Args {
    /// Changes the types of the tree. Returns the new ones.
    fn adopt(&self, store: &Store, name: &str) -> Result<Option<Encodings>, Failure> {
        match (&self.key_type, &self.value_type) {
            (Some(key_type), Some(value_type)) => {
                Ok(Some(give_types(store, name, key_type, value_type)?))
            }
            _ => {
                store.adopt_as_bytes(name)?;
                Ok(None)
            }
        }
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    interrupt::gently();
    let store = args.pool.open(context, false)?;
    // Until then the thread that recovers uses the trees.
    store.finish_recovery();
    interrupt::check()?;
    let name = args.tree.name(&store)?;
    let adopted = args.adopt(&store, &name);
    store.close()?;
    let mut answer = Map::new();
    answer.insert("tree".to_owned(), json!(name));
    let name = text::escape(name.as_bytes());
    let words = match adopted? {
        Some(encodings) => {
            answer.insert(
                "key_type".to_owned(),
                json!(text::type_name(&encodings.key)),
            );
            answer.insert(
                "value_type".to_owned(),
                json!(text::type_name(&encodings.value)),
            );
            format!("tree {name} holds {}", text::types_in_words(&encodings))
        }
        None => format!("tree {name} holds byte strings"),
    };
    context.say(&answer, words)?;
    Ok(Answer::Yes)
}
