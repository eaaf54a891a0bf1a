//! `cargo xtask tidy`: the rules of the house that neither the compiler nor clippy checks.
//!
//! | rule | holds |
//! | --- | --- |
//! | `words` | above `crates/medium` nothing flushes or fences by itself |
//! | `unsafe-code` | every crate but `medium` forbids `unsafe`, its tests and examples included |
//! | `arrows` | a crate depends only on crates below it |
//! | `dependencies` | every dependency stands once, in the workspace table, with the reason for it |
//! | `map` | `docs/ARCHITECTURE.md` names every crate |
//! | `circles` | within a crate, files use each other in no circle of more than two |
//! | `names` | no two types or traits have one name, if they are visible outside their modules |
//! | `shapes` | no code in the shapes that [`shapes`] lists, which have to be read twice |
//!
//! Clippy and the compiler hold the rest, by the root manifest's lints: functions of at most 100
//! lines unless one piece reads better, no unfinished code, no debugging output, no test that is
//! ignored without a reason, no `unsafe` above `medium`.

mod circles;
mod names;
mod rules;
mod shapes;
mod syntax;
mod tree;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use syntax::Syntax;
use tree::{Failure, Workspace};

/// Options of `cargo xtask tidy`.
#[derive(clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct Args {
    /// Print one line of JSON instead of text.
    #[arg(long)]
    json: bool,
    /// The workspace to check; without it, the one around the current folder.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Instead of checking, count the shapes that have to be read twice, as a table.
    #[arg(long, conflicts_with_all = ["json"])]
    count_shapes: bool,
    /// List every place of a shape that is counted and not refused, in place of the table.
    #[arg(long, requires = "count_shapes")]
    places: bool,
    /// Instead of checking, list the types and traits whose name is defined more than once.
    #[arg(long, conflicts_with_all = ["json", "count_shapes"])]
    names: bool,
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

/// Checks the workspace and prints the violations, or prints the list that was asked for.
pub(crate) fn run(args: &Args) -> ExitCode {
    match answer(args) {
        Ok(is_clean) => ExitCode::from(u8::from(!is_clean)),
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints what was asked for; the answer is whether the workspace is clean, as far as that was
/// asked.
fn answer(args: &Args) -> Result<bool, Failure> {
    let tree = Workspace::load(args.root.as_deref())?;
    if args.count_shapes {
        let syntax = Syntax::parse(&tree);
        let list = if args.places {
            shapes::places(&syntax)
        } else {
            shapes::count(&syntax)
        };
        print_list(&list)?;
        return Ok(true);
    }
    if args.names {
        print_list(&names::repeated(&Syntax::parse(&tree)))?;
        return Ok(true);
    }
    print(&inspect(&tree), args.json)
}

fn print_list(list: &str) -> Result<(), Failure> {
    std::io::stdout()
        .lock()
        .write_all(list.as_bytes())
        .map_err(Failure::Print)
}

/// Runs every rule.
fn inspect(tree: &Workspace) -> Report {
    let mut violations: Vec<Violation> = rules::ALL.iter().flat_map(|rule| rule(tree)).collect();
    let syntax = Syntax::parse(tree);
    violations.extend(circles::circles(tree, &syntax));
    violations.extend(names::names(&syntax));
    violations.extend(shapes::shapes(&syntax));
    violations.sort();
    Report {
        rust_files: tree.sources().count(),
        manifests: tree.manifests().count(),
        violations,
    }
}

/// Prints the report; the answer is whether it is clean.
fn print(report: &Report, json: bool) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    if json {
        let line = serde_json::to_string(report).expect("strings and numbers always become JSON");
        writeln!(out, "{line}").map_err(Failure::Print)?;
    } else {
        for Violation {
            file,
            line,
            what,
            way_out,
            ..
        } in &report.violations
        {
            writeln!(out, "{file}:{line}: {what}; {way_out}").map_err(Failure::Print)?;
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
