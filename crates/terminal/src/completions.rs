//! Completion scripts for shells.

use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;

use crate::context::Context;
use crate::failure::{Answer, Outcome};

/// The arguments of a subcommand that prints a completion script.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// The command with hints for values that are no files: without a hint shells offer names of files.
fn with_hints(command: Command) -> Command {
    let hint = |arg: Arg| match arg.get_value_hint() {
        ValueHint::Unknown if arg.get_action().takes_values() => arg.value_hint(ValueHint::Other),
        _ => arg,
    };
    command.mut_args(hint).mut_subcommands(with_hints)
}

/// Prints the script that completes the command `name`.
pub fn print(args: &Args, name: &str, command: Command, context: Context) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut with_hints(command), name, &mut script);
    let script = String::from_utf8_lossy(&script);
    let json = serde_json::json!({ "shell": args.shell.to_string(), "script": script });
    context.say(&json, script.trim_end())?;
    Ok(Answer::Yes)
}
