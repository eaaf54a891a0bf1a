//! The `everleaf` command.
//!
//! Exit codes: 0 = yes, or done; 1 = no; 2 = wrong use; 3 = an error. `docs/COMMAND.md` has all
//! answers.
#![forbid(unsafe_code)]

mod arguments;
mod child;
mod commands;
mod context;
mod dump_format;
mod failure;
mod forms;
mod input;
mod interrupt;
mod progress;
mod report;
mod text;
mod under_way;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use context::Context;
use failure::{Answer, Failure, Outcome};
use report::{report, tell_script};

/// Durable ordered indexes: a file of named trees that survives a crash.
///
/// Exit codes: 0 = yes, or done; 1 = no: a key is absent, a condition does not hold, or violations
/// were found; 2 = wrong use; 3 = an error.
#[derive(Parser, Debug)]
#[command(name = "everleaf", version, arg_required_else_help = true)]
struct Cli<C: Subcommand> {
    /// Print JSON on standard output, one object a line; also for errors
    #[arg(long, global = true)]
    json: bool,
    /// Print no notes and no progress on standard error
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: C,
}

fn main() -> ExitCode {
    everleaf::ignore_file_size_signal();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let named = arguments
        .iter()
        .skip(1)
        .filter_map(|argument| argument.to_str())
        .find(|name| !name.starts_with('-'));
    if named.is_some_and(commands::Child::has_subcommand) {
        return run(&arguments, commands::run_child);
    }
    run(&arguments, |command, context| {
        interrupt::install(move || report(context, &Failure::Interrupted))?;
        commands::run(command, context)
    })
}

fn run<C: Subcommand>(arguments: &[OsString], run: impl FnOnce(C, Context) -> Outcome) -> ExitCode {
    let parsed = Cli::<C>::try_parse_from(arguments);
    let cli = match parsed {
        Ok(cli) => cli,
        // Help and the version are errors to the parser.
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => {
            if arguments
                .iter()
                .take_while(|argument| *argument != "--")
                .any(|argument| argument == "--json")
            {
                tell_script(&Failure::of_parser(&error));
            }
            // If this fails, the exit code still tells.
            let _ = error.print();
            return ExitCode::from(Failure::USAGE);
        }
    };
    let context = Context {
        json: cli.json,
        quiet: cli.quiet,
    };
    match run(cli.command, context) {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Child(code)) => ExitCode::from(code),
        Err(failure) if failure.is_closed_output() => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(report(context, &failure)),
    }
}

#[cfg(test)]
mod tests;
