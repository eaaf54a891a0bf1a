//! The `everleaf` command.
//!
//! Exit codes: 0 = yes, or done; 1 = no; 2 = wrong use; 3 = an error. `docs/COMMAND.md` has all
//! answers.
#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod dump_format;
mod forms;
mod input;
mod under_way;
mod workbench;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Subcommand;
use terminal::command::{Application, subcommand_name};
use terminal::failure::Failure;
use terminal::interrupt;
use terminal::report::report;

const APPLICATION: Application = Application {
    name: "everleaf",
    about: "Durable ordered indexes: a file of named trees that survives a crash",
    long_about: "\
Durable ordered indexes: a file of named trees that survives a crash.

Exit codes: 0 = yes, or done; 1 = no: a key is absent, a condition does not hold, or violations were \
found; 2 = wrong use; 3 = an error.",
};

fn main() -> ExitCode {
    everleaf::ignore_file_size_signal();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let named = subcommand_name(&arguments);
    if named.is_some_and(commands::Child::has_subcommand) {
        return APPLICATION.run(&arguments, |command, _| Ok(commands::run_child(command)));
    }
    if named.is_some_and(workbench::has_subcommand) {
        return workbench::run(&arguments);
    }
    APPLICATION.run(&arguments, |command, context| {
        interrupt::install(false, move || report(context, &Failure::Interrupted))?;
        commands::run(command, context)
    })
}

#[cfg(test)]
mod tests;
