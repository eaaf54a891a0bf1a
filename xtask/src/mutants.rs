//! `cargo xtask mutants`: whether the crash explorer notices faults that are planted in an engine.
//!
//! The work is done by an example of the explorer, which is built and run from here: xtask itself needs no engine.

use std::path::Path;
use std::process::{Command, ExitCode};

/// What is passed on. Progress comes on stderr, the report on stdout.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The engine.
    #[arg(long)]
    engine: String,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Plant only what has this text in its description, as external_log.rs:95.
    #[arg(long, default_value = "")]
    only: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Exit code 0: every mutant was caught or is justified, and every argument is needed. 1: not so. 2: there is no such engine.
pub(crate) fn run(args: &Args) -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--release", "--quiet", "--package", "everleaf-lab", "--example", "mutants", "--"]);
    command.args(["--engine", &args.engine, "--threads", &args.threads.to_string()]);
    command.args(["--only", &args.only]);
    command.args(args.json.then_some("--json"));
    match command.current_dir(root).status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2)),
        Err(error) => {
            eprintln!("xtask mutants: cargo does not run: {error}; is it in PATH?");
            ExitCode::from(2)
        }
    }
}
