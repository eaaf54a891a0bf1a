//! `everleaf insert`: adds a key, if it is absent.

use crate::context::Context;
use crate::failure::{Answer, Outcome};

pub(crate) use super::put::Args;

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let inserted = args.write(context, |tree, key, value| tree.insert(key, value))?;
    context.say(
        &serde_json::json!({ "inserted": inserted }),
        if inserted { "" } else { "the key is present" },
    )?;
    Ok(Answer::from_bool(inserted))
}
