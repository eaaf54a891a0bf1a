//! `cargo xtask tidy`: the rules of the house that neither the compiler nor clippy checks.
//!
//! | rule | holds |
//! | --- | --- |
//! | `length` | Rust files have at most 800 lines, functions at most 70 |
//! | `words` | above `crates/medium` nobody flushes, fences or stores through a raw pointer |
//! | `unsafe-code` | the crates that promise safe Rust forbid `unsafe` and do not contain it |
//! | `leftovers` | no unfinished code, no debugging output, no test ignored without a reason |
//! | `arrows` | a crate depends only on crates below it |
//! | `dependencies` | every dependency stands once, in the workspace table, with the reason for it |
//! | `map` | `docs/ARCHITECTURE.md` names every crate |
//!
//! A rule is a function from the [`Tree`] to violations. Rules never touch the file system, so a test is a
//! few lines of text and the violations that they must give.

mod arrows;
mod dependencies;
mod leftovers;
mod length;
mod manifest;
mod map;
mod source;
mod tree;
mod unsafe_code;
mod words;

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use tree::Tree;

/// The rules, in the order in which they run.
const RULES: &[(&str, Check)] = &[
    ("length", length::check),
    ("words", words::check),
    ("unsafe-code", unsafe_code::check),
    ("leftovers", leftovers::check),
    ("arrows", arrows::check),
    ("dependencies", dependencies::check),
    ("map", map::check),
];

type Check = fn(&Tree) -> Vec<Finding>;

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
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    /// Path from the workspace root, with `/` on every platform.
    file: String,
    /// First line is 1.
    line: usize,
    what: String,
    way_out: String,
}

/// A finding and the rule that made it.
#[derive(Serialize)]
struct Violation {
    file: String,
    line: usize,
    rule: &'static str,
    what: String,
    way_out: String,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    rust_files: usize,
    manifests: usize,
    violations: Vec<Violation>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.file, self.line, self.what, self.way_out)
    }
}

/// Checks the workspace and prints what was found.
pub(crate) fn run(args: &Args) -> ExitCode {
    match load(args).and_then(|tree| print(&inspect(&tree), args.json)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::from(2)
        }
    }
}

fn load(args: &Args) -> Result<Tree, tree::Error> {
    match &args.root {
        Some(root) => Tree::load(root),
        None => Tree::load(&tree::find_root()?),
    }
}

/// Runs every rule; violations come sorted by file and line.
fn inspect(tree: &Tree) -> Report {
    let unreadable = tree.unreadable().iter().cloned();
    let mut violations: Vec<_> = unreadable.map(|finding| violation("parse", finding)).collect();
    for (rule, check) in RULES {
        violations.extend(check(tree).into_iter().map(|finding| violation(rule, finding)));
    }
    violations.sort_by(|a, b| (&a.file, a.line, &a.what).cmp(&(&b.file, b.line, &b.what)));
    Report { rust_files: tree.sources().len(), manifests: tree.manifests().len(), violations }
}

fn violation(rule: &'static str, finding: Finding) -> Violation {
    let Finding { file, line, what, way_out } = finding;
    Violation { file, line, rule, what, way_out }
}

/// Prints the report; the answer is whether it is clean.
fn print(report: &Report, json: bool) -> Result<bool, tree::Error> {
    let mut out = std::io::stdout().lock();
    if json {
        let line = serde_json::to_string(report).expect("strings and numbers always become JSON");
        writeln!(out, "{line}").map_err(tree::Error::Print)?;
    } else {
        for violation in &report.violations {
            writeln!(out, "{violation}").map_err(tree::Error::Print)?;
        }
        let Report { rust_files, manifests, violations } = report;
        eprintln!("tidy: {rust_files} Rust files, {manifests} manifests, {} violations", violations.len());
    }
    Ok(report.violations.is_empty())
}
