//! The `everleaf` command.
//!
//! Exit codes: 0 = yes, or done; 1 = no, or violations were found, or an error occurred; 2 = wrong usage.
#![forbid(unsafe_code)]

mod child;
mod commands;
mod context;
mod dump_format;
mod failure;
mod input;
mod progress;
mod text;
mod under_way;
mod whole_file;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use context::Context;
use failure::{Answer, Failure};

/// Durable ordered indexes: a file of named trees that survives a crash.
///
/// Exit codes: 0 = yes, or done; 1 = no, or violations were found, or an error occurred; 2 = wrong usage.
#[derive(Parser, Debug)]
#[command(name = "everleaf", version, arg_required_else_help = true)]
struct Cli {
    /// Print JSON on standard output, one object a line
    #[arg(long, global = true)]
    json: bool,
    /// Print no notes and no progress on standard error
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    everleaf::ignore_file_size_signal();
    let cli = Cli::parse();
    let context = Context { json: cli.json, quiet: cli.quiet };
    match commands::run(cli.command, context) {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Child(code)) => ExitCode::from(code),
        Err(failure) if failure.is_closed_output() => ExitCode::SUCCESS,
        Err(failure) => report(context, &failure),
    }
}

fn report(context: Context, failure: &Failure) -> ExitCode {
    let message = failure.to_string();
    if context.json {
        // If this fails too, the exit code still tells.
        let _ = context.say(&serde_json::json!({ "error": message }), "");
    }
    let _ = writeln!(std::io::stderr(), "everleaf: {message}");
    ExitCode::from(if matches!(failure, Failure::Usage(_)) { 2 } else { 1 })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_arguments_fit_together() {
        super::Cli::command().debug_assert();
    }
}
