//! `everleaf bench` and `everleaf lab`: print the measurements of the crate `lab`.

use lab::notes::{Notes, Said};

use crate::context::Context;
use crate::failure::{Answer, Failure, Outcome};

fn with_notes<T>(context: Context, measure: impl FnOnce(Notes<'_>) -> T) -> T {
    measure(Notes { line: &|text| context.note(text), store: &|store| context.note_medium(store) })
}

/// Runs the benchmark.
pub(crate) fn bench(args: &lab::bench::Args, context: Context) -> Outcome {
    let said = with_notes(context, |notes| lab::bench::run(args, notes))?;
    context.say(&said.json, said.text)?;
    Ok(Answer::Yes)
}

/// Measures figures of a paper.
pub(crate) fn figures(args: &lab::figures::Args, context: Context) -> Outcome {
    for number in args.numbers()? {
        let Said { json, text } = with_notes(context, |notes| lab::figures::run(args, number, notes))?;
        context.say(&json, text)?;
    }
    Ok::<_, Failure>(Answer::Yes)
}
