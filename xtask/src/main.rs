//! The chores of the workspace, run as `cargo xtask <chore>`.
//!
//! Every chore answers with its exit code: 0 = yes or clean, 1 = no or violations found, 2 = wrong
//! use.

#![forbid(unsafe_code)]

mod example;
mod report;
mod thorough;
mod tidy;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The chores of the workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Check the rules of the house that the compiler does not know.
    Tidy(tidy::Args),
    /// Run the suites and write their figures into docs/TESTING.md.
    Report(report::Args),
    /// Plant faults in an engine, one at a time, and say which of them no test noticed.
    Mutants(example::Args),
    /// Damage one place of a pool, again and again, and say what was not noticed.
    Damage(example::Args),
    /// Run what takes too long for the ordinary tests: long explorations, all mutants, torture.
    Thorough(thorough::Args),
    /// Cut the power of a virtual machine, again and again, and verify that nothing acknowledged is
    /// lost.
    Vm(vm::Args),
}

fn main() -> ExitCode {
    // A command line that does not parse leaves here, with exit code 2.
    match Cli::parse().chore {
        Chore::Tidy(args) => tidy::run(&args),
        Chore::Report(args) => report::run(&args),
        Chore::Mutants(args) => example::run("mutants", &args),
        Chore::Damage(args) => example::run("damage", &args),
        Chore::Thorough(args) => thorough::run(&args),
        Chore::Vm(args) => vm::run(&args),
    }
}
