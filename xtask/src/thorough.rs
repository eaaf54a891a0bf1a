//! `cargo xtask thorough`: what takes too long for the ordinary tests.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Runs everything unless `--only` says otherwise; `docs/TESTING.md` has the times.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only what has this text in its name, as `mutants`.
    #[arg(long, default_value = "")]
    only: String,
    /// Print what would be run, and run nothing.
    #[arg(long)]
    list: bool,
    /// Print JSON: one object a run.
    #[arg(long)]
    json: bool,
}

/// One run: its name, and the arguments of cargo.
struct Run {
    name: String,
    arguments: Vec<String>,
}

fn run_of(name: &str, arguments: &str) -> Run {
    Run {
        name: name.to_owned(),
        arguments: arguments.split_whitespace().map(str::to_owned).collect(),
    }
}

/// What there is to run. The short ones first.
fn runs(pool: &Path, engines: &[String]) -> Vec<Run> {
    let everleaf = "run --release --quiet --package everleaf-workbench --";
    let mut runs = vec![
        run_of("ignored tests", "test --release --workspace -- --ignored"),
        run_of("publish", "publish --dry-run --workspace --allow-dirty"),
        run_of(
            "scopes",
            "test --release --package everleaf-sim --test engines",
        ),
        run_of(
            "conformance",
            "test --release --package everleaf-lab --test conformance",
        ),
        run_of(
            "damage",
            "test --release --package everleaf-lab --test damage",
        ),
        run_of(
            "bad input",
            "test --release --package everleaf --test everyday",
        ),
        run_of(
            "values of serde",
            "test --release --package everleaf --features serde --test everyday typed::",
        ),
        run_of("files", "test --release --package everleaf-medium --lib"),
    ];
    for engine in engines {
        let crash = format!("{everleaf} crash --engine {engine}");
        runs.push(run_of(
            &format!("exhaustive {engine}"),
            &format!("{crash} --exhaustive"),
        ));
        runs.push(run_of(
            &format!("pairs {engine}"),
            &format!("{crash} --exhaustive --threads 2"),
        ));
    }
    for engine in engines {
        let mut torture = run_of(
            &format!("torture {engine}"),
            &format!("{everleaf} torture --engine {engine} --rounds 100"),
        );
        torture
            .arguments
            .push(pool.join(format!("{engine}.pool")).display().to_string());
        runs.push(torture);
    }
    let mut torture = run_of(
        "torture batches",
        &format!("{everleaf} torture --batches --rounds 200"),
    );
    torture
        .arguments
        .push(pool.join("batches.pool").display().to_string());
    runs.push(torture);
    let mut torture = run_of(
        "torture transactions",
        &format!("{everleaf} torture --transactions --rounds 200"),
    );
    torture
        .arguments
        .push(pool.join("transactions.pool").display().to_string());
    runs.push(torture);
    let mut torture = run_of(
        "torture stores",
        &format!("{everleaf} torture --stores 200 --rounds 50"),
    );
    torture
        .arguments
        .push(pool.join("stores.pool").display().to_string());
    runs.push(torture);
    for engine in engines {
        runs.push(run_of(
            &format!("mutants {engine}"),
            &format!("xtask mutants --engine {engine}"),
        ));
    }
    runs.push(run_of("mutants batches", "xtask mutants --engine batches"));
    runs
}

/// Exit code 0: all that was run passed. 1: something failed. 2: nothing has that text in its name,
/// or nothing can be run.
pub(crate) fn run(args: &Args) -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pools = root.join("target/thorough");
    if let Err(error) = std::fs::create_dir_all(&pools) {
        eprintln!(
            "xtask thorough: {} cannot be made: {error}",
            pools.display()
        );
        return ExitCode::from(2);
    }
    // Those that exist to be compared with, too.
    let engines = match crate::report::engine_names(&["--all"]) {
        Ok(engines) => engines,
        Err(failure) => {
            eprintln!("xtask thorough: {failure}");
            return ExitCode::from(2);
        }
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut runs = runs(&pools, &engines);
    let mut failed = 0;
    runs.retain(|run| run.name.contains(&args.only));
    if runs.is_empty() {
        eprintln!(
            "xtask thorough: nothing has {:?} in its name; --list prints all names",
            args.only
        );
        return ExitCode::from(2);
    }
    for run in runs {
        if args.list {
            println!("{:24} cargo {}", run.name, run.arguments.join(" "));
            continue;
        }
        eprintln!("== {}: cargo {}", run.name, run.arguments.join(" "));
        let begin = Instant::now();
        let mut command = Command::new(&cargo);
        command.args(&run.arguments).current_dir(&root);
        if ["scopes", "conformance", "damage", "bad input", "files"].contains(&run.name.as_str()) {
            command.env("EVERLEAF_CASES", "8");
        }
        if args.json {
            // Standard output is for the objects.
            command.stdout(Stdio::null());
        }
        let passed = match command.status() {
            Ok(status) => status.success(),
            Err(error) => {
                eprintln!("xtask thorough: cargo does not run: {error}; is it in PATH?");
                return ExitCode::from(2);
            }
        };
        let seconds = begin.elapsed().as_secs();
        failed += u32::from(!passed);
        if args.json {
            println!(
                "{{\"name\":{:?},\"passed\":{passed},\"seconds\":{seconds}}}",
                run.name
            );
        } else {
            println!(
                "== {}: {} after {seconds} s",
                run.name,
                if passed { "passed" } else { "FAILED" }
            );
        }
    }
    ExitCode::from(u8::from(failed > 0))
}
