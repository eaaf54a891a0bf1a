//! `everleaf bench` and `everleaf lab`: print the measurements of the crate `lab`.

use indicatif::ProgressBar;
use lab::notes::{NoteReceiver, Said};

use terminal::context::Context;
use terminal::failure::{Answer, Failure, Outcome};
use terminal::progress;

/// A bar of `count` steps, which names the step that is under way.
fn steps(context: Context, count: u64, first: &str) -> ProgressBar {
    progress::bar(
        context,
        Some(count),
        first,
        "{bar:20} {pos} of {len} done, {elapsed}: {wide_msg}",
    )
}

/// Measures. `tell` takes the name of the next measurement, which is printed as a note if no bar is
/// drawn.
fn with_notes<T>(
    context: Context,
    bar: &ProgressBar,
    tell: impl Fn(&str),
    measure: impl FnOnce(NoteReceiver<'_>) -> T,
) -> T {
    let line = |text: &str| {
        if bar.is_hidden() {
            context.note(text);
        } else {
            tell(text);
        }
    };
    measure(NoteReceiver {
        line: &line,
        store: &|store| bar.suspend(|| context.note_medium(store)),
    })
}

/// Runs the benchmark.
pub(crate) fn bench(args: &lab::bench::Args, context: Context) -> Outcome {
    let args = &lab::bench::with_medium(args)?;
    let bar = steps(context, lab::bench::steps(args), "opening a pool");
    let is_first = std::cell::Cell::new(true);
    // A note begins a step, and thus ends the one before.
    let tell = |text: &str| {
        bar.inc(u64::from(!is_first.replace(false)));
        bar.set_message(text.to_owned());
    };
    let said = with_notes(context, &bar, tell, |notes| lab::bench::run(args, notes))?;
    bar.finish_and_clear();
    context.say(&said.json, said.text)?;
    Ok(Answer::Yes)
}

/// Measures figures of a paper.
pub(crate) fn figures(args: &lab::figures::Args, context: Context) -> Outcome {
    let numbers = args.numbers()?;
    args.try_plots(&numbers)?;
    let bar = steps(context, numbers.len() as u64, "loading keys");
    for number in numbers {
        let tell = |text: &str| bar.set_message(format!("figure {number}, {text}"));
        let Said { json, text } = with_notes(context, &bar, tell, |notes| {
            lab::figures::run(args, number, notes)
        })?;
        bar.inc(1);
        bar.suspend(|| context.say(&json, text))?;
    }
    bar.finish_and_clear();
    Ok::<_, Failure>(Answer::Yes)
}
