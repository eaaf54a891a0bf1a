//! `everleaf rm`: removes a key.

use crate::context::Context;
use crate::failure::{Answer, Outcome};

pub(crate) use super::get::KeyArgs as Args;

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let (store, tree, key) = args.open(context)?;
    let removed = tree.remove(&key)?;
    drop(tree);
    store.close()?;
    context
        .say(&serde_json::json!({ "removed": removed }), if removed { "" } else { "the key is absent" })?;
    Ok(Answer::from_bool(removed))
}
