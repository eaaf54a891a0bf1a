//! `everleaf get`: the value of a key.

use std::ffi::OsString;
use std::io::Write;

use everleaf::Value;
use serde_json::Map;

use crate::arguments::TreeArgs;
use crate::forms::{EntryForms, FormArgs, JsonEncoding};
use terminal::context::{Context, write_json};
use terminal::failure::{Answer, Outcome};
use terminal::pool::PoolArgs;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    get: GetArgs,
}

/// The arguments without the pool, which the shell takes as well.
#[derive(clap::Args, Debug)]
pub(super) struct GetArgs {
    /// The key
    #[arg(allow_negative_numbers = true)]
    pub(super) key: OsString,
    #[command(flatten)]
    pub(super) tree: TreeArgs,
    #[command(flatten)]
    pub(super) forms: FormArgs,
    /// Print the value's bytes as they are, and nothing else
    #[arg(long, conflicts_with_all = ["hex", "value_type"])]
    raw: bool,
}

impl GetArgs {
    /// Prints the value of a key, if there is one.
    pub(super) fn answer(
        &self,
        context: Context,
        forms: &EntryForms,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Outcome {
        let mut output = Context::output();
        if context.json {
            let mut object = Map::new();
            let mut keys = JsonEncoding::of_keys(forms);
            keys.note(key);
            keys.add(&mut object, "key", key)?;
            object.insert("found".to_owned(), value.is_some().into());
            if let Some(value) = value {
                let mut values = JsonEncoding::of_values(forms);
                values.note(value);
                values.add(&mut object, "value", value)?;
            }
            write_json(&mut output, &object)?;
        } else if let Some(value) = value {
            if self.raw {
                output.write_all(value)?;
            } else {
                writeln!(output, "{}", forms.show_value(value)?)?;
            }
        }
        output.flush()?;
        if value.is_none() && !context.json {
            context.note("the key is absent");
        }
        Ok(Answer::from_bool(value.is_some()))
    }
}

/// A key of a tree, its value, and how both are printed.
struct Found {
    forms: EntryForms,
    key: Vec<u8>,
    value: Option<Value>,
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let found = args.pool.read(context, |store| {
        let tree = args.get.tree.open(store)?;
        let forms = args.get.forms.of_tree(&tree);
        let key = forms.key_argument(&args.get.key)?;
        let value = tree.get(&key)?;
        Ok(Found { forms, key, value })
    })?;
    args.get
        .answer(context, &found.forms, &found.key, found.value.as_deref())
}
