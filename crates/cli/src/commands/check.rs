//! `everleaf check`: verifies the whole structure of a pool.

use std::io::Write;

use everleaf::{Store, StoreViolation};
use serde::Serialize;

use super::violations::Violations;
use crate::arguments::PoolArgs;
use crate::context::{Context, write_json};
use crate::failure::{Answer, Failure, Outcome};
use crate::{interrupt, progress};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
}

#[derive(Serialize)]
struct Report {
    sound: bool,
    #[serde(flatten)]
    counted: Counted,
    #[serde(flatten)]
    violations: Violations,
}

/// The counts of a pool.
#[derive(Serialize, Default)]
pub(super) struct Counted {
    pub(super) trees: u64,
    /// The entries of the trees that could be counted.
    pub(super) entries: u64,
    /// The number of trees that are too damaged to be counted.
    trees_not_counted: u64,
}

impl Counted {
    fn words(&self) -> String {
        format!(
            "{}, {}",
            progress::many(self.trees, "tree"),
            progress::many(self.entries, "entry")
        )
    }

    /// The result of a check that found `violations` violations, in words.
    fn damage(&self, violations: u64) -> String {
        let mut words = progress::many(violations, "violation");
        if self.trees_not_counted < self.trees {
            words += &format!(" in {}", self.words());
        }
        match self.trees_not_counted {
            0 => words,
            1 => words + "; 1 tree is too damaged to count its entries",
            trees => {
                format!(
                    "{words}; {} trees are too damaged to count their entries",
                    progress::count(trees)
                )
            }
        }
    }
}

/// The trees, and the entries of those that can be counted.
pub(super) fn count(store: &Store) -> Result<Counted, Failure> {
    let mut counted = Counted::default();
    for tree in store.trees()? {
        counted.trees += 1;
        match store.open_tree(&tree.name).and_then(|tree| tree.len()) {
            Ok(entries) => counted.entries += entries,
            Err(_) => counted.trees_not_counted += 1,
        }
    }
    Ok(counted)
}

/// All violations of a store.
pub(super) fn violations(context: Context, store: &Store) -> Result<Vec<StoreViolation>, Failure> {
    violations_among(context, store, count(store)?.entries)
}

/// All violations of a store. `entries` is the number of its entries, for the progress bar.
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
    let counted = count(&store)?;
    let found = violations_among(context, &store, counted.entries)?;
    let sound = found.is_empty();
    let mut output = Context::output();
    if context.json {
        let violations = found.into_iter().collect();
        write_json(
            &mut output,
            &Report {
                sound,
                counted,
                violations,
            },
        )?;
    } else {
        for violation in &found {
            writeln!(output, "{violation}")?;
        }
        if sound {
            writeln!(output, "sound: {}, no violation", counted.words())?;
        } else {
            writeln!(output, "{}", counted.damage(found.len() as u64))?;
            writeln!(
                output,
                "`everleaf dump --salvage` saves all whole entries, `everleaf restore` puts it into another pool"
            )?;
        }
    }
    output.flush()?;
    Ok(Answer::from_bool(sound))
}
