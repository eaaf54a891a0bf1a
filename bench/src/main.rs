//! Everleaf beside the stores that users would pick instead: the same keys, the same work, one
//! program.
//!
//! The parent ([`turns`]) starts one process for each store and run ([`measure`]); that one starts
//! a writer to kill ([`killed`]). [`transactions`] has a store of its own. Everything that differs between stores is in [`peers`].

mod entries;
mod failure;
mod killed;
mod machine;
mod measure;
mod metric;
mod peers;
mod report;
mod table;
mod transactions;
mod transfer;
mod turns;
mod zipfian;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand as _};
use lab::bench::KeyShape;

use failure::{Failure, Result};
use machine::MachineDescription;
use measure::{MeasureArgs, Plan, Run};
use metric::PeerWorkload;
use peers::PeerKind;
use terminal::output_file::{ForceArgs, OutputError, OutputFile};

/// Measures Everleaf beside LMDB, redb, fjall and RocksDB.
#[derive(Parser, Debug)]
#[command(version)]
struct Compare {
    /// A folder on the disk to measure; it gets the sub-folder `everleaf-peers`, which is removed
    /// at the end.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Only these stores; all if it is left out.
    #[arg(long, value_name = "NAME", num_args = 1.., value_parser = peers::parse)]
    store: Vec<&'static PeerKind>,
    /// The shapes of keys, with commas between them; all is measured with keys of each shape.
    #[arg(long, value_name = "SHAPE", value_enum, num_args = 1.., value_delimiter = ',', default_value = "random")]
    key_shape: Vec<KeyShape>,
    #[command(flatten)]
    plan: Plan,
    /// Runs of each store; figures are medians over them.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Print one JSON object per line: the machine, the stores, each figure of each run as it
    /// comes, each store that failed.
    #[arg(long)]
    json: bool,
    /// Write the results as a page of Markdown.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
}

impl Compare {
    /// The shapes of keys, each once.
    fn key_shapes(&self) -> Vec<KeyShape> {
        let mut shapes = Vec::new();
        for shape in &self.key_shape {
            if !shapes.contains(shape) {
                shapes.push(*shape);
            }
        }
        shapes
    }

    /// Refuses arguments that contradict each other.
    fn validate(&self) -> std::result::Result<(), clap::Error> {
        if self.plan.shape.key_bytes.is_some() && !self.key_shape.contains(&KeyShape::Random) {
            return Err(Self::command().error(
                ErrorKind::ArgumentConflict,
                "--key-bytes goes with random keys, and none are measured; keys of other shapes have lengths of their \
                 own: leave it out, or add random to --key-shape",
            ));
        }
        Ok(())
    }
}

/// Processes that this program starts: these are no part of its interface.
#[derive(Parser, Debug)]
enum Child {
    Measure(MeasureArgs),
    WriteUntilKilled(MeasureArgs),
}

fn main() -> ExitCode {
    let is_child = std::env::args()
        .nth(1)
        .is_some_and(|first| Child::has_subcommand(&first));
    let done = if is_child {
        match Child::parse() {
            Child::Measure(args) => measure_all(args).map(|()| true),
            Child::WriteUntilKilled(args) => killed::write_until_killed(&args).map(|()| true),
        }
    } else {
        let args = Compare::parse();
        if let Err(error) = args.validate() {
            error.exit();
        }
        compare_all(&args)
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("everleaf-peers: {error}");
            ExitCode::from(3)
        }
    }
}

/// Measures all workloads of one run of one store.
fn measure_all(args: MeasureArgs) -> Result {
    let run = Run::new(args);
    run.measure()?;
    if run.plan.has(PeerWorkload::Open) {
        killed::measure(&run)?;
    }
    if run.plan.has(PeerWorkload::Transaction) {
        transactions::measure(&run)?;
    }
    Ok(())
}

/// Measures all stores; returns whether every one gave its figures.
fn compare_all(args: &Compare) -> Result<bool> {
    let kinds: Vec<&'static PeerKind> = if args.store.is_empty() {
        peers::ALL.iter().collect()
    } else {
        args.store.clone()
    };
    if let Some(report) = &args.report {
        // A report that cannot be written should be an error now, not after an hour.
        OutputFile::rehearse(report, args.force, REPORT_BYTES).map_err(report_failure)?;
    }
    let shapes = args.key_shapes();
    let folder = args.dir.join("everleaf-peers");
    std::fs::create_dir(&folder).map_err(|error| {
        let path = folder.display();
        Failure::new(format!(
            "cannot make {path}: {error}; if an earlier run left it, remove it; else choose another --dir"
        ))
    })?;
    let compared = MachineDescription::here(&folder).and_then(|machine| {
        for warning in machine.warnings() {
            eprintln!("note: {warning}");
        }
        if args.json {
            let Plan { shape, seconds, .. } = &args.plan;
            let sizes = serde_json::json!({
                "entries": shape.entries,
                "key_bytes": shape.random_key_bytes(),
                "value_bytes": shape.value_bytes,
            });
            print_json(&serde_json::json!({
                "machine": machine,
                "shape": sizes,
                "key_shapes": shapes,
                "seconds": seconds,
                "runs": args.runs,
            }))?;
            for kind in &kinds {
                let store = kind.name;
                let version = kind.version();
                let settings = kind.settings;
                print_json(&serde_json::json!({ "store": store, "version": version, "settings": settings }))?;
            }
        }
        let see = |sample: &turns::RunFigure| if args.json { print_json(sample) } else { Ok(()) };
        let taken = turns::take(&folder, &args.plan, &shapes, &kinds, args.runs.into(), see);
        Ok((taken?, machine))
    });
    std::fs::remove_dir_all(&folder).map_err(Failure::path("remove", &folder))?;
    let (results, machine) = compared?;
    if args.json {
        for of_shape in &results {
            let key_shape = of_shape.key_shape;
            for (store, why) in &of_shape.failed {
                print_json(
                    &serde_json::json!({ "store": store, "key_shape": key_shape, "failed": why }),
                )?;
            }
        }
    } else {
        print_line(
            table::text(&results, &args.plan, &kinds)
                .trim_start_matches('\n')
                .trim_end(),
        )?;
    }
    if let Some(path) = &args.report {
        let page = report::Page {
            results: &results,
            plan: &args.plan,
            kinds: &kinds,
            runs: args.runs.into(),
            machine: &machine,
        };
        OutputFile::write_whole(path, args.force, page.text().as_bytes())
            .map_err(report_failure)?;
    }
    Ok(results.iter().all(|of_shape| of_shape.failed.is_empty()))
}

/// A report is about as large.
const REPORT_BYTES: usize = 64 << 10;

fn report_failure(error: OutputError) -> Failure {
    match error {
        OutputError::Io {
            action,
            path,
            source,
        } => Failure::path(action, &path)(source),
        error => Failure::new(error.to_string()),
    }
}

fn print_json(value: &impl serde::Serialize) -> Result {
    let line = serde_json::to_string(value)
        .map_err(|error| Failure::new(format!("{error}; this is a bug of the program")))?;
    print_line(&line)
}

fn print_line(line: &str) -> Result {
    let written = writeln!(std::io::stdout(), "{line}");
    written.map_err(|error| {
        Failure::new(format!(
            "cannot print: {error}; direct the output elsewhere"
        ))
    })
}

#[cfg(test)]
mod tests;
