//! `everleaf rm`: removes a key, or a range of keys.

use std::ffi::OsString;
use std::ops::Bound;

use everleaf::{Bounds, CodecKind, Store, Tree};
use serde_json::json;

use crate::arguments::{RangeArgs, TreeArgs};
use crate::forms::{EntryForms, FormArgs};
use crate::under_way::Writes;
use terminal::context::Context;
use terminal::failure::{Failure, Outcome};
use terminal::pool::PoolArgs;
use terminal::{interrupt, progress};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The key; or give --prefix, --from or --to, for all keys of a range, or --all
    #[arg(required_unless_present_any = ["from", "to", "prefix", "all"], conflicts_with_all = ["from", "to", "prefix", "all"], allow_negative_numbers = true)]
    key: Option<OsString>,
    #[command(flatten)]
    range: RangeArgs,
    /// Remove all entries of the tree; a range that holds every key, such as --prefix '', needs
    /// this too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    tree: TreeArgs,
    #[command(flatten)]
    forms: FormArgs,
}

/// All forms.
pub(crate) const USAGE: &str = "everleaf rm [OPTIONS] <POOL> <KEY>
       everleaf rm [OPTIONS] <POOL> --prefix <KEY>
       everleaf rm [OPTIONS] <POOL> [--from <KEY>] [--to <KEY>]
       everleaf rm [OPTIONS] <POOL> --all";
/// Keys that are removed together: between them no range is open, so that their space can be
/// reused.
const TOGETHER: usize = 4096;

impl Args {
    /// The range to remove. It holds every key only if the user gave --all.
    fn bounds(&self, forms: &EntryForms, codec: CodecKind) -> Result<Bounds, Failure> {
        let bounds = self.range.bounds(forms)?;
        let is_whole = holds_every_key(&bounds, codec);
        if is_whole && !self.all {
            return Err(Failure::Usage(
                "this range holds every key, so all entries of the tree would be removed; give --all if that is meant".to_owned(),
            ));
        }
        if self.all && !is_whole {
            return Err(Failure::Usage(
                "--all removes all entries, and --prefix, --from and --to only those of a range; give one or the other".to_owned(),
            ));
        }
        Ok(bounds)
    }
}

/// Whether no key of a tree lies outside of the bounds.
fn holds_every_key(bounds: &Bounds, codec: CodecKind) -> bool {
    let begins_with_the_least = match &bounds.lower {
        Bound::Unbounded => true,
        Bound::Included(key) => key.is_empty() || codec == CodecKind::Word && *key == [0; 8],
        Bound::Excluded(_) => false,
    };
    begins_with_the_least && bounds.upper == Bound::Unbounded
}

/// Removes a range.
fn remove_all(
    store: &Store,
    tree: &Tree,
    bounds: &Bounds,
    context: Context,
) -> Result<u64, Failure> {
    let bar = progress::bar(
        context,
        None,
        "removing",
        "{spinner} {msg}, {human_pos} entries so far, {elapsed}",
    );
    let mut writes = Writes::new(store, tree);
    let mut removed = || -> Result<(), Failure> {
        loop {
            let keys = tree
                .range(bounds.clone())
                .take(TOGETHER)
                .map(|entry| entry.map(|(key, _)| key));
            let keys = keys.collect::<everleaf::Result<Vec<_>>>()?;
            for key in &keys {
                interrupt::check()?;
                writes.remove(key)?;
            }
            bar.set_position(writes.durable());
            if keys.len() < TOGETHER {
                return Ok(());
            }
        }
    };
    let removed = removed();
    let settled = writes.settle();
    let count = writes.durable();
    bar.finish_and_clear();
    let words = format!("{} removed", progress::were(count, "entry"));
    removed
        .and(settled.map_err(Failure::from))
        .map_err(|failure| failure.after(words, json!({ "removed": count })))?;
    Ok(count)
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let store = args.pool.open(context, false)?;
    interrupt::gently();
    let tree = args.tree.open(&store)?;
    let forms = args.forms.of_tree(&tree);
    let tree = forms.to_remove(&store, tree)?;
    let removed = match &args.key {
        Some(key) => tree.remove(forms.key_argument(key)?)?.into(),
        None => {
            let bounds = args.bounds(&forms, tree.kind().codec)?;
            remove_all(&store, &tree, &bounds, context)?
        }
    };
    drop(tree);
    store.close()?;
    if args.key.is_none() && removed > 0 && !context.json {
        context.say(&(), format!("{} removed", progress::were(removed, "entry")))?;
    }
    let none = if args.key.is_some() {
        "the key is absent"
    } else if args.all {
        "the tree has no entry"
    } else {
        "no key is in this range"
    };
    context.answer(&json!({ "removed": removed }), removed > 0, none)
}
