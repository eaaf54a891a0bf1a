//! `everleaf completions`: completion scripts for shells.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::context::Context;
use crate::failure::{Answer, Outcome};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut crate::Cli::<super::Command>::command(),
        "everleaf",
        &mut script,
    );
    let script = String::from_utf8_lossy(&script);
    let json = serde_json::json!({ "shell": args.shell.to_string(), "script": script });
    context.say(&json, script.trim_end())?;
    Ok(Answer::Yes)
}
