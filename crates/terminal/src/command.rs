//! A command line: global options, parsing, and exit codes.
//!
//! Exit codes: 0 = yes, or done; 1 = no; 2 = wrong use; 3 = an error.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::context::Context;
use crate::failure::{Answer, Failure, Outcome};
use crate::report::{report, tell_script};

/// The options that every command has, and its subcommands.
#[derive(Parser, Debug)]
#[command(version, arg_required_else_help = true)]
pub struct CommandLine<C: Subcommand> {
    /// Print JSON on standard output, one object a line; also for errors
    #[arg(long, global = true)]
    pub json: bool,
    /// Print no notes and no progress on standard error
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// The subcommand.
    #[command(subcommand)]
    pub command: C,
}

/// A program on the command line: its name, and the first words of its help.
#[derive(Clone, Copy, Debug)]
pub struct Application {
    /// The name of the program.
    pub name: &'static str,
    /// The first sentence of its help.
    pub about: &'static str,
    /// The help before the list of subcommands.
    pub long_about: &'static str,
}

impl Application {
    /// The command line of this program with these subcommands.
    pub fn command<C: Subcommand>(self) -> Command {
        CommandLine::<C>::command()
            .name(self.name)
            .about(self.about)
            .long_about(self.long_about)
    }

    /// Parses the arguments, the first of which is the name of the program.
    ///
    /// # Errors
    /// A malformed command line. Help and the version are errors, too.
    pub fn parse<C: Subcommand>(
        self,
        arguments: &[OsString],
    ) -> Result<CommandLine<C>, clap::Error> {
        let mut command = self.command::<C>();
        let mut matches: ArgMatches = command.try_get_matches_from_mut(arguments)?;
        let parsed = CommandLine::from_arg_matches_mut(&mut matches);
        parsed.map_err(|error| error.format(&mut command))
    }

    /// Parses the arguments, runs the subcommand, reports a failure, and returns the exit code.
    pub fn run<C: Subcommand>(
        self,
        arguments: &[OsString],
        run: impl FnOnce(C, Context) -> Outcome,
    ) -> ExitCode {
        let line = match self.parse::<C>(arguments) {
            Ok(line) => line,
            // Help and the version are errors to the parser.
            Err(error) if !error.use_stderr() => error.exit(),
            Err(error) => return wrong_use(arguments, &error),
        };
        let context = Context {
            json: line.json,
            quiet: line.quiet,
        };
        match run(line.command, context) {
            Ok(Answer::Yes) => ExitCode::SUCCESS,
            Ok(Answer::No) => ExitCode::from(1),
            Ok(Answer::Child(code)) => ExitCode::from(code),
            Err(failure) if failure.is_closed_output() => ExitCode::SUCCESS,
            Err(failure) => ExitCode::from(report(context, &failure)),
        }
    }
}

/// The name of the subcommand in a command line that is not parsed yet: its first argument that is no
/// option.
pub fn subcommand_name(arguments: &[OsString]) -> Option<&str> {
    arguments
        .iter()
        .skip(1)
        .filter_map(|argument| argument.to_str())
        .find(|name| !name.starts_with('-'))
}

/// Whether a command line that is not parsed yet asks for JSON. Behind `--` it would be a key.
pub fn wants_json(arguments: &[OsString]) -> bool {
    arguments
        .iter()
        .take_while(|argument| *argument != "--")
        .any(|argument| argument == "--json")
}

/// Reports a malformed command line; returns the exit code.
fn wrong_use(arguments: &[OsString], error: &clap::Error) -> ExitCode {
    if wants_json(arguments) {
        tell_script(&Failure::of_parser(error));
    }
    // If this fails, the exit code still tells.
    let _ = error.print();
    ExitCode::from(Failure::USAGE)
}
