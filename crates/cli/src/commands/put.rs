//! `everleaf put`: sets the value of a key.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use everleaf::VALUE_BYTES_MAX;

use crate::arguments::NewTreeArgs;
use crate::forms::{EntryForms, FormArgs};
use crate::input::{Input, LINE_BYTES_MAX};
use terminal::context::Context;
use terminal::failure::{Answer, Failure, Outcome};
use terminal::interrupt;
use terminal::pool::PoolArgs;

/// Also the arguments of `insert`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The key
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    /// The value; `-` is standard input
    #[arg(required_unless_present = "value_file", allow_negative_numbers = true)]
    value: Option<OsString>,
    /// Take the value from this file
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    value_file: Option<PathBuf>,
    #[command(flatten)]
    tree: NewTreeArgs,
    #[command(flatten)]
    forms: FormArgs,
}

impl Args {
    /// The text of the value.
    fn value(&self) -> Result<Vec<u8>, Failure> {
        let file = match (&self.value_file, &self.value) {
            (Some(file), _) => file.as_path(),
            (None, Some(value)) if value != "-" => return Ok(value.as_bytes().to_vec()),
            _ => Path::new("-"),
        };
        interrupt::gently();
        let mut input = Input::open(file)?;
        let mut text = Vec::new();
        let most = LINE_BYTES_MAX as u64;
        let read = input.reader.by_ref().take(most + 1).read_to_end(&mut text);
        read.map_err(Failure::io(format!("read {}", input.name)))?;
        if text.len() as u64 > most {
            return Err(Failure::Refused(format!(
                "{} has more than {most} bytes; the longest value has {VALUE_BYTES_MAX}, so give it in parts",
                input.name
            )));
        }
        Ok(text)
    }

    /// Key and value as bytes.
    fn entry(&self, value: &[u8], forms: &EntryForms) -> Result<(Vec<u8>, Vec<u8>), Failure> {
        let key = forms.key_argument(&self.key)?;
        let value = forms.read_value_file(value).map_err(Failure::Usage)?;
        Ok((key, value))
    }

    /// Opens the tree, calls `write` with it, key and value, and closes the store. Neither pool nor
    /// tree is made for an invalid key or value.
    pub(super) fn write<T>(
        &self,
        context: Context,
        write: impl FnOnce(&everleaf::Tree, &[u8], &[u8]) -> everleaf::Result<T>,
    ) -> Result<T, Failure> {
        let value = self.value()?;
        if self.pool.is_new() {
            let forms = self.forms.of_new_tree(self.tree.new_codec());
            self.entry(&value, &forms)?;
            forms.encodings_of_new()?;
        }
        self.pool.write(context, |store| {
            let tree = self.tree.find(store, &self.forms)?;
            let (key, value) = self.entry(&value, &tree.forms)?;
            Ok(write(&tree.open(store)?, &key, &value)?)
        })
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    args.write(context, |tree, key, value| tree.put(key, value))?;
    context.say(&serde_json::json!({ "stored": 1 }), "")?;
    Ok(Answer::Yes)
}
