//! `everleaf insert`: adds a key, if it is absent.

use terminal::context::Context;
use terminal::failure::Outcome;

pub(crate) use super::put::Args;

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let inserted = args.write(context, |tree, key, value| tree.insert(key, value))?;
    context.answer(
        &serde_json::json!({ "inserted": inserted }),
        inserted,
        "the key is present",
    )
}
