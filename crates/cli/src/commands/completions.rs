//! `everleaf completions`: completion scripts for shells.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::context::Context;
use crate::failure::{Answer, Outcome};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "everleaf", &mut script);
    let mut output = Context::output();
    output.write_all(&script)?;
    output.flush()?;
    Ok(Answer::Yes)
}
