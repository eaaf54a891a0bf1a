//! Plants faults in an engine, one at a time, and prints those that no exploration noticed.
//!
//! ```text
//! cargo xtask mutants --engine rntree --json
//! ```
//!
//! Exit code: 0 = every mutant was caught or is justified, and every argument is needed; 1 = one
//! survived, or an argument justifies nothing; 2 = wrong usage.

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use everleaf_lab::testing::mutants::{MutantProgress, MutantReport, MutationTarget, run};

/// Plant faults in an engine: flushes, fences, waits and stores left out, publishes done first,
/// persists swapped.
#[derive(Parser)]
#[command(name = "cargo xtask mutants", bin_name = "cargo xtask mutants")]
struct Args {
    /// The engine, or `batches`.
    #[arg(long)]
    engine: String,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Plant only faults with this text in their descriptions, such as external_log.rs:95.
    #[arg(long, default_value = "")]
    only: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn print(report: &MutantReport) {
    if let Some(failure) = &report.failure {
        println!("without any fault: {failure}");
    }
    println!(
        "{}: {} mutants {:?}",
        report.engine, report.mutants, report.kinds
    );
    println!(
        "  {} killed, {} justified, {} survived",
        report.killed, report.justified, report.survived
    );
    for survivor in &report.survivors {
        let why = survivor
            .why
            .map_or_else(|| format!("SURVIVED at {}", survivor.place), str::to_owned);
        println!("  {}: {why}", survivor.mutant);
    }
    for unused in &report.unused {
        println!("  this justifies nothing: {unused}");
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let Some(target) = MutationTarget::from_name(&args.engine) else {
        let names: Vec<_> = everleaf_lab::ENGINES
            .iter()
            .map(|engine| engine.name)
            .collect();
        eprintln!(
            "mutants: there is no engine {:?}; there are {}, batches",
            args.engine,
            names.join(", ")
        );
        return ExitCode::from(2);
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let progress = |progress: &MutantProgress| {
        if let Some(survivor) = progress.survivor {
            eprintln!("not noticed: {survivor}");
        }
        if progress.done.is_multiple_of(10) || progress.done == progress.mutants {
            eprintln!("{} of {} mutants", progress.done, progress.mutants);
        }
    };
    let report = run(
        &target.only(&args.only),
        &root,
        args.threads.max(1),
        &progress,
    );
    if args.json {
        println!(
            "{}",
            serde_json::to_string(&report).expect("a report is JSON")
        );
    } else {
        print(&report);
    }
    ExitCode::from(u8::from(!report.is_sound()))
}
