//! `everleaf drop` and `everleaf rename`: a tree as a whole.

use everleaf::{ErrorKind, Result, Store};

use terminal::context::Context;
use terminal::failure::{Failure, Outcome};
use terminal::interrupt;
use terminal::pool::PoolArgs;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// The tree to remove
    tree: String,
}

#[derive(clap::Args, Debug)]
pub(crate) struct RenameArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// The tree
    tree: String,
    /// Its new name, which no tree may have
    name: String,
}

/// Changes a tree; returns whether there is one of this name.
fn change(
    pool: &PoolArgs,
    context: Context,
    tree: &str,
    change: impl FnOnce(&Store) -> Result<()>,
) -> std::result::Result<bool, Failure> {
    // The change is one step, so a signal does not interrupt it before the answer is printed.
    interrupt::gently();
    let store = pool.open(context, false)?;
    // After a crash, space is freed only once it is known which space is in use.
    store.finish_recovery();
    interrupt::check()?;
    let changed = change(&store);
    store.close()?;
    match changed {
        Err(error) => match error.kind() {
            ErrorKind::NoSuchTree { name } if name == tree => Ok(false),
            _ => Err(error.into()),
        },
        Ok(()) => Ok(true),
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let dropped = change(&args.pool, context, &args.tree, |store| {
        store.drop_tree(&args.tree)
    })?;
    context.answer(
        &serde_json::json!({ "dropped": dropped }),
        dropped,
        "there is no such tree",
    )
}

pub(crate) fn rename(args: &RenameArgs, context: Context) -> Outcome {
    let rename = |store: &Store| store.rename_tree(&args.tree, &args.name);
    let renamed = change(&args.pool, context, &args.tree, rename)?;
    context.answer(
        &serde_json::json!({ "renamed": renamed }),
        renamed,
        "there is no such tree",
    )
}
