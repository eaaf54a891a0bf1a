//! The `everleaf-workbench` command: measurements of the engines, and tests that kill and crash them.
//!
//! `everleaf` calls it for its subcommands `bench`, `crash`, `lab` and `torture` if it lies in the same
//! folder. Exit codes: 0 = yes, or done; 1 = no; 2 = wrong use; 3 = an error. `docs/WORKBENCH.md` has all
//! answers.
#![forbid(unsafe_code)]

mod crash;
mod examples;
mod measure;
mod torture;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use everleaf::Engine;
use terminal::command::{Application, subcommand_name};
use terminal::completions;
use terminal::context::Context;
use terminal::engine_list;
use terminal::failure::{Failure, Outcome};
use terminal::interrupt;
use terminal::report::report;

const APPLICATION: Application = Application {
    name: "everleaf-workbench",
    about: "Measurements of Everleaf's engines, and tests that kill and crash them",
    long_about: "\
Measurements of Everleaf's engines, and tests that kill and crash them.

`everleaf` calls this program for its subcommands bench, crash, lab and torture.

Exit codes: 0 = yes, or done; 1 = no: violations were found; 2 = wrong use; 3 = an error.",
};

/// The subcommands.
#[derive(Subcommand, Debug)]
enum Command {
    /// Kill writers at random and verify that nothing acknowledged is lost; exit code 1 if anything
    /// is
    ///
    /// The pool, and its log if it has one, stay as the last round left them: `everleaf check` and
    /// `everleaf scan` open them.
    #[command(after_help = examples::TORTURE)]
    Torture(torture::Args),
    /// Crash an engine at every relevant moment, and check every recovery; exit code 1 if one is
    /// wrong
    #[command(after_help = examples::CRASH)]
    Crash(crash::Args),
    /// Measure throughput, latency, persists and memory, beside the standard library's map
    ///
    /// Prints the most important figures; --json prints all. Throughput counts all operations.
    /// Latencies are taken from one operation in 128, so the longest is that of the sample, and a
    /// rare pause may be missed. Two cases differ: with --tickets every write is timed until it is
    /// durable, and in get_many every batch of 16 is timed. The pool's file is deleted at the end.
    ///
    /// Ratios compare what was measured in this run, in turns: "2.0 times that of the BTreeMap" is
    /// twice its throughput. The floor is the time of a find, or half that of the BTreeMap if it is
    /// less, plus that of the persists which the engine cannot do without; a write that takes 1.3
    /// times the floor spends 30% on everything else.
    #[command(after_help = examples::BENCH)]
    Bench(lab::bench::Args),
    /// Measure the figures of a paper again, and print the paper's claims beside the results
    #[command(after_help = examples::LAB)]
    Lab(lab::figures::Args),
    /// List the engines and their settings
    #[command(after_help = examples::ENGINES)]
    Engines(EnginesArgs),
    /// Print a completion script for a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions(completions::Args),
}

#[derive(Args, Debug)]
struct EnginesArgs {
    /// Also list engines for comparison only: for `crash`, `torture` and `bench`, not for pools
    /// that are kept
    #[arg(long)]
    all: bool,
}

/// Hidden subcommands: this program starts them as child processes, and tests in virtual machines
/// do so, too.
#[derive(Subcommand, Debug)]
enum Child {
    #[command(name = "torture-writer")]
    Writer(torture::writer::Args),
    #[command(name = "torture-reader")]
    Reader(torture::reader::Args),
    #[command(name = "torture-judge")]
    Judge(torture::judge::Args),
}

fn main() -> ExitCode {
    everleaf::ignore_file_size_signal();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if subcommand_name(&arguments).is_some_and(Child::has_subcommand) {
        return APPLICATION.run(&arguments, run_child);
    }
    APPLICATION.run(&arguments, |command, context| {
        let report = move || report(context, &Failure::Interrupted);
        interrupt::install(sim::watchdog::is_watched(), report)?;
        run(command, context)
    })
}

fn run_child(command: Child, context: Context) -> Outcome {
    match command {
        Child::Writer(args) => torture::writer::run(&args),
        Child::Reader(args) => torture::reader::run(&args),
        Child::Judge(args) => torture::judge::run(&args, context),
    }
}

fn run(command: Command, context: Context) -> Outcome {
    match command {
        Command::Torture(args) => torture::run(&args, context),
        Command::Crash(args) => crash::run(&args, context),
        Command::Bench(args) => measure::bench(&args, context),
        Command::Lab(args) => measure::figures(&args, context),
        Command::Engines(args) if args.all => engine_list::print(lab::ENGINES, context),
        Command::Engines(_) => engine_list::print(Engine::ALL, context),
        Command::Completions(args) => completions::print(
            &args,
            APPLICATION.name,
            APPLICATION.command::<Command>(),
            context,
        ),
    }
}

#[cfg(test)]
mod tests;
