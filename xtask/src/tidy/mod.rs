//! `cargo xtask tidy`: the rules of the house that neither the compiler nor clippy checks.
//!
//! | rule | holds |
//! | --- | --- |
//! | `words` | above `crates/medium` nothing flushes or fences by itself |
//! | `unsafe-code` | every crate but `medium` forbids `unsafe`, its tests and examples included |
//! | `arrows` | a crate depends only on crates below it |
//! | `dependencies` | every dependency stands once, in the workspace table, with the reason for it |
//! | `map` | `docs/ARCHITECTURE.md` names every crate |
//!
//! Clippy and the compiler hold the rest, by the root manifest's lints: functions of at most 100
//! lines unless one piece reads better, no unfinished code, no debugging output, no test that is
//! ignored without a reason, no `unsafe` above `medium`.

mod rules;
mod tree;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use tree::{Error, Tree};

/// Options of `cargo xtask tidy`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print one line of JSON instead of text.
    #[arg(long)]
    json: bool,
    /// The workspace to check; without it, the one around the current folder.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// What a rule found: where, what is wrong, and what to do instead.
#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    /// The path from the workspace root, with `/` on every platform.
    file: String,
    /// From 1.
    line: usize,
    rule: &'static str,
    what: String,
    way_out: &'static str,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    rust_files: usize,
    manifests: usize,
    violations: Vec<Violation>,
}

/// Checks the workspace and prints what was found.
pub(crate) fn run(args: &Args) -> ExitCode {
    match Tree::load(args.root.as_deref()).and_then(|tree| print(&inspect(&tree), args.json)) {
        Ok(is_clean) => ExitCode::from(u8::from(!is_clean)),
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs every rule.
fn inspect(tree: &Tree) -> Report {
    let mut violations: Vec<Violation> = rules::ALL.iter().flat_map(|rule| rule(tree)).collect();
    violations.sort();
    Report {
        rust_files: tree.sources().count(),
        manifests: tree.manifests().count(),
        violations,
    }
}

/// Prints the report; the answer is whether it is clean.
fn print(report: &Report, json: bool) -> Result<bool, Error> {
    let mut out = std::io::stdout().lock();
    if json {
        let line = serde_json::to_string(report).expect("strings and numbers always become JSON");
        writeln!(out, "{line}").map_err(Error::Print)?;
    } else {
        for Violation {
            file,
            line,
            what,
            way_out,
            ..
        } in &report.violations
        {
            writeln!(out, "{file}:{line}: {what}; {way_out}").map_err(Error::Print)?;
        }
        let Report {
            rust_files,
            manifests,
            violations,
        } = report;
        eprintln!(
            "tidy: {rust_files} Rust files, {manifests} manifests, {} violations",
            violations.len()
        );
    }
    Ok(report.violations.is_empty())
}
