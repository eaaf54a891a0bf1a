//! `everleaf check`: verifies the whole structure of a pool.

use std::io::Write;

use everleaf::{Store, StoreViolation};
use serde::Serialize;

use crate::context::{Context, PoolArgs, write_json};
use crate::failure::{Answer, Failure, Outcome};
use crate::{interrupt, progress};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
}

#[derive(Serialize)]
struct Violation {
    tree: Option<String>,
    offset: Option<u64>,
    what: String,
}

#[derive(Serialize)]
struct Report {
    sound: bool,
    trees: u64,
    /// Of the trees that open.
    entries: u64,
    violations: Vec<Violation>,
}

/// The trees, and the entries of those that open.
pub(super) fn count(store: &Store) -> Result<(u64, u64), Failure> {
    let trees = store.trees()?;
    let entries =
        trees.iter().map(|tree| store.open_tree(&tree.name).and_then(|tree| tree.len()).unwrap_or(0)).sum();
    Ok((trees.len() as u64, entries))
}

/// The most violations that a command tells one by one, beside what it is for.
pub(super) const VIOLATIONS_TOLD: usize = 20;

/// All violations of a store.
pub(super) fn violations(context: Context, store: &Store) -> Result<Vec<StoreViolation>, Failure> {
    violations_among(context, store, count(store)?.1)
}

/// All violations of a store whose trees have so many entries.
pub(super) fn violations_among(
    context: Context,
    store: &Store,
    entries: u64,
) -> Result<Vec<StoreViolation>, Failure> {
    let bar = progress::entries(context, entries, "checking");
    let shown = bar.clone();
    let tick = move |entries| {
        shown.inc(entries);
        !interrupt::is_asked()
    };
    let found = medium::progress::watched(tick, || store.check());
    bar.finish_and_clear();
    interrupt::check()?;
    Ok(found?)
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let store = args.pool.read(context)?;
    let (trees, entries) = count(&store)?;
    let found = violations_among(context, &store, entries)?;
    let sound = found.is_empty();
    let mut output = Context::output();
    if context.json {
        let violations: Vec<_> = found
            .into_iter()
            .map(|violation| Violation {
                tree: violation.tree,
                offset: violation.offset,
                what: violation.what,
            })
            .collect();
        let report = Report { sound, trees, entries, violations };
        write_json(&mut output, &report)?;
    } else {
        for violation in &found {
            writeln!(output, "{violation}")?;
        }
        if sound {
            let (trees, entries) = (progress::many(trees, "tree"), progress::many(entries, "entry"));
            writeln!(output, "sound: {trees}, {entries}, no violation")?;
        } else {
            let count = progress::many(found.len() as u64, "violation");
            writeln!(
                output,
                "{count}; `everleaf dump --salvage` saves what is whole, `restore` it elsewhere"
            )?;
        }
    }
    output.flush()?;
    Ok(Answer::from_bool(sound))
}
