//! Arguments that several commands take: a tree, a new tree, a range of keys.

use std::ffi::OsString;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use everleaf::{Bounds, CodecKind, Engine, Store, Tree, TreeOptions};
use terminal::failure::Failure;
use terminal::values::engine_of;

use crate::forms::{EntryForms, FormArgs};

/// The name of the tree that is made if none is named.
pub(crate) const MAIN_TREE: &str = "main";

/// The tree of the pool.
#[derive(Args, Clone, Debug)]
pub(crate) struct TreeArgs {
    /// The tree [default: the only one, or `main`]
    #[arg(long, value_name = "NAME")]
    pub(crate) tree: Option<String>,
}

/// The options of a new tree.
#[derive(Args, Clone, Debug)]
pub(crate) struct NewTreeArgs {
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
    /// The entries of a new tree: `record` for byte strings, `word` for numbers of 64 bits [default: record]
    #[arg(long, value_name = "NAME", value_parser = codec())]
    pub(crate) codec: Option<CodecKind>,
    /// The engine of a new tree; `everleaf engines` describes them [default: rntree]
    #[arg(long, value_name = "NAME", value_parser = engine_of(Engine::ALL))]
    pub(crate) engine: Option<Engine>,
}

fn codec() -> impl TypedValueParser<Value = CodecKind> {
    let codecs = [CodecKind::Record, CodecKind::Word];
    let named = move |name: String| CodecKind::from_name(&name).unwrap_or(codecs[0]);
    PossibleValuesParser::new(codecs.map(CodecKind::name)).map(named)
}

/// A range of keys.
#[derive(Args, Clone, Debug)]
pub(crate) struct RangeArgs {
    /// The first key; of a tuple the first parts are enough
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) from: Option<OsString>,
    /// The key before which the range ends; of a tuple the first parts are enough
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) to: Option<OsString>,
    /// Only keys that begin with this: with these bytes, or with these parts of a tuple
    #[arg(long, value_name = "KEY", allow_negative_numbers = true, conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<OsString>,
}

impl RangeArgs {
    /// The range in a tree of these forms.
    pub(crate) fn bounds(&self, forms: &EntryForms) -> Result<Bounds, Failure> {
        match &self.prefix {
            Some(prefix) => forms.prefix(prefix),
            None => forms.range(self.from.as_deref(), self.to.as_deref()),
        }
    }
}

impl TreeArgs {
    /// The name of the chosen tree.
    pub(crate) fn name(&self, store: &Store) -> Result<String, Failure> {
        if let Some(name) = &self.tree {
            return Ok(name.clone());
        }
        let mut names: Vec<String> = store.trees()?.into_iter().map(|tree| tree.name).collect();
        if names.len() == 1 {
            return Ok(names.remove(0));
        }
        if names.is_empty() || names.iter().any(|name| name == MAIN_TREE) {
            return Ok(MAIN_TREE.to_owned());
        }
        Err(Failure::Usage(format!(
            "the pool has {} trees; name one with --tree: {names:?}",
            names.len()
        )))
    }

    /// The tree, which must exist.
    pub(crate) fn open(&self, store: &Store) -> Result<Tree, Failure> {
        Ok(store.open_tree(&self.name(store)?)?)
    }
}

impl NewTreeArgs {
    /// The codec of a new tree.
    pub(crate) fn new_codec(&self) -> CodecKind {
        self.codec.unwrap_or(TreeOptions::default().codec)
    }

    /// Finds the tree, which need not exist yet.
    pub(crate) fn find(&self, store: &Store, forms: &FormArgs) -> Result<TreeToWrite, Failure> {
        let name = self.tree.name(store)?;
        let found = match store.open_tree(&name) {
            Err(error) if error.is_absent() => None,
            found => Some(found?),
        };
        let forms = match &found {
            Some(tree) => forms.of_tree(tree),
            None => forms.of_new_tree(self.new_codec()),
        };
        let default = found.as_ref().map(Tree::kind).unwrap_or_default();
        let options = TreeOptions {
            engine: self.engine.unwrap_or(default.engine),
            codec: self.codec.unwrap_or(default.codec),
            ..TreeOptions::default()
        };
        Ok(TreeToWrite {
            name,
            found,
            forms,
            options,
        })
    }
}

/// The tree that a command is to write to.
pub(crate) struct TreeToWrite {
    name: String,
    /// `None` if it is yet to be made.
    found: Option<Tree>,
    /// The forms of its keys and values.
    pub(crate) forms: EntryForms,
    /// The engine and the codec that it must have.
    options: TreeOptions,
}

impl TreeToWrite {
    /// Opens the tree, and makes it if it is missing. An existing one must have the codec and the
    /// engine that were asked for, if any were. A new one remembers the types of keys and values.
    pub(crate) fn open(self, store: &Store) -> Result<Tree, Failure> {
        let Self {
            name,
            found,
            forms,
            options,
        } = self;
        if let Some(found) = found {
            // Fails if the tree has another engine or codec.
            drop(store.tree_with(&name, options)?);
            return forms.to_write(store, found);
        }
        match forms.encodings_of_new()? {
            Some(encodings) => Ok(store.encoded_tree(&name, options, &encodings)?),
            None => Ok(store.tree_with(&name, options)?),
        }
    }
}
