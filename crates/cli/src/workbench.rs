//! The second command, `everleaf-workbench`: measurements, and tests that kill and crash. It stands in
//! a package of its own, so that users who do not need it do not build it. This command calls it if it
//! lies in the same folder.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use clap::Subcommand;
use terminal::command::wants_json;
use terminal::context::Context;
use terminal::failure::Failure;
use terminal::report::report;

/// The file name of the second command.
const NAME: &str = "everleaf-workbench";

/// The subcommands of the workbench, as this command's help lists them.
#[derive(Subcommand, Debug)]
pub(crate) enum Workbench {
    /// Kill writers at random and verify that nothing acknowledged is lost (everleaf-workbench)
    Torture,
    /// Crash an engine at every relevant moment, and check every recovery (everleaf-workbench)
    Crash,
    /// Measure throughput, latency, persists and memory (everleaf-workbench)
    Bench,
    /// Measure the figures of a paper again (everleaf-workbench)
    Lab,
}

/// Whether the workbench has a subcommand of this name.
pub(crate) fn has_subcommand(name: &str) -> bool {
    Workbench::has_subcommand(name)
}

/// Becomes the second command, with the same arguments. Returns only if that fails.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let failure = turn_into(arguments);
    // An error is printed in any case.
    let context = Context {
        json: wants_json(arguments),
        quiet: false,
    };
    ExitCode::from(report(context, &failure))
}

/// Becomes the second command, or says why not.
pub(crate) fn turn_into(arguments: &[OsString]) -> Failure {
    let this_program = match std::env::current_exe() {
        Ok(path) => path,
        Err(error) => return Failure::io("find this program")(error),
    };
    let path = this_program.with_file_name(NAME);
    if !path.is_file() {
        return missing(&path);
    }
    // The help of the second command then names the command that the user typed.
    let error = Command::new(&path)
        .arg0("everleaf")
        .args(&arguments[1..])
        .exec();
    Failure::io(format!("start {}", path.display()))(error)
}

fn missing(path: &Path) -> Failure {
    Failure::Refused(format!(
        "bench, crash, torture and lab are subcommands of {NAME}, and there is no {}; in a checkout \
         `cargo build --release -p {NAME}` builds it, `cargo install --path crates/workbench` installs it",
        path.display()
    ))
}
