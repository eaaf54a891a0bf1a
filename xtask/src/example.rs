//! `cargo xtask mutants` and `cargo xtask damage`: examples of the crate `lab`.
//!
//! They are built and run from here, so that xtask itself needs no engine.

use std::path::Path;
use std::process::{Command, ExitCode};

/// Progress comes on stderr, the report on stdout.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Passed on to the example: `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs an example. The exit code is its own; 2 if it cannot be run.
pub(crate) fn run(example: &str, args: &Args) -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "run",
        "--release",
        "--quiet",
        "--package",
        "everleaf-lab",
        "--example",
        example,
        "--",
    ]);
    match command.args(&args.arguments).current_dir(root).status() {
        Ok(status) => ExitCode::from(
            status
                .code()
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(2),
        ),
        Err(error) => {
            eprintln!("xtask {example}: cargo does not run: {error}; is it in PATH?");
            ExitCode::from(2)
        }
    }
}
