//! `everleaf shell`: commands on one pool, one after the other, with transactions and snapshots.
//!
//! At a terminal the lines are edited, and an error ends only its own command. Otherwise the shell
//! runs a script: its first error ends it, so that no command runs whose predecessor has failed.

mod editor;
mod session;
mod words;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use everleaf::Store;

use self::editor::{LineEditor, Typed, history_file};
use self::session::{NextStep, Session};
use crate::arguments::TreeArgs;
use crate::forms::FormArgs;
use crate::input::{Input, LineRead, note_byte_order_mark, too_long};
use terminal::context::Context;
use terminal::failure::{Answer, Failure, Outcome};
use terminal::pool::PoolArgs;
use terminal::report::report;
use terminal::{interrupt, progress};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    /// Only read, a copy of one moment: another process may write the pool meanwhile
    #[arg(long)]
    read_only: bool,
    /// The file of the history of lines [default: everleaf/shell_history in $XDG_STATE_HOME, or in
    /// ~/.local/state]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    #[command(flatten)]
    tree: TreeArgs,
    #[command(flatten)]
    forms: FormArgs,
}

/// Runs commands from standard input, up to its end or the first error.
fn run_script(session: &mut Session<'_>, context: Context) -> Result<(), Failure> {
    let mut input = Input::open(Path::new("-"))?;
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        interrupt::check()?;
        let read = input.read_line(&mut line)?;
        number += 1;
        if number == 1 && input.has_byte_order_mark {
            note_byte_order_mark(context, &input.name);
        }
        let done = match read {
            LineRead::End => return Ok(()),
            LineRead::TooLong(length) => Err(Failure::Usage(too_long(length))),
            LineRead::Line(_) => session.run(line.strip_suffix(b"\n").unwrap_or(&line)),
        };
        match done {
            Ok(NextStep::GoOn) => {}
            Ok(NextStep::End) => return Ok(()),
            Err(Failure::Interrupted) => return Err(Failure::Interrupted),
            Err(failure) => return Err(failure.at_line(&input.name, number)),
        }
    }
}

/// Runs the commands of a user at a terminal.
fn run_at_terminal(
    args: &Args,
    session: &mut Session<'_>,
    store: &Store,
    context: Context,
) -> Result<(), Failure> {
    let history = args.history.clone().or_else(history_file);
    let mut editor = LineEditor::new(store, history)?;
    let trees = progress::many(store.trees()?.len() as u64, "tree");
    context.note(format!(
        "{}: {trees}; `help` lists the commands, Tab completes, Ctrl-D ends",
        store.path().display()
    ));
    loop {
        let prompt = session.prompt();
        let line = match interrupt::at_prompt(|| editor.read(&prompt))?? {
            Typed::Line(line) => line,
            Typed::Cancelled => continue,
            Typed::End => break,
        };
        match session.run(line.as_bytes()) {
            Ok(NextStep::GoOn) => {}
            Ok(NextStep::End) => break,
            Err(failure) => {
                report(context, &failure);
            }
        }
    }
    if let Err(failure) = editor.save_history() {
        context.note(format!("note: the lines were not kept: {failure}"));
    }
    Ok(())
}

/// Removes a pool that the shell has made and in which it has stored nothing.
fn remove_if_unused(store: Store) -> Result<(), Failure> {
    if store.trees()?.is_empty() {
        return Ok(store.remove_files()?);
    }
    Ok(store.close()?)
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let is_new = args.pool.is_new() && !args.read_only;
    interrupt::gently();
    let store = if args.read_only {
        args.pool.read_for_long(context)?
    } else {
        args.pool.open(context, true)?
    };
    if is_new {
        context.note(format!("note: {} is a new pool", store.path().display()));
    }
    let mut session = Session::new(&store, context, args.tree.clone(), args.forms.clone());
    let ran = if std::io::stdin().is_terminal() {
        run_at_terminal(args, &mut session, &store, context)
    } else {
        run_script(&mut session, context)
    };
    let was_dropped = session.end();
    let closed = if is_new {
        remove_if_unused(store)
    } else {
        store.close().map_err(Failure::from)
    };
    ran?;
    closed?;
    Ok(Answer::from_bool(!was_dropped))
}
