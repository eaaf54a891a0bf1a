//! Rule `shapes`: code that has to be read twice, and what to write instead.
//!
//! | refused | instead |
//! | --- | --- |
//! | `let (a, b) = (x, y)` | two `let`s, or a struct |
//! | `fn f((a, b): (A, B))` | two parameters, or a struct |
//! | `filter(\|_\| ..)` | `if` |
//! | `x.into_iter().for_each(..)` | `if let` for an option, else `for` |
//! | `then_some(()).ok_or(..)` | `if`, and an early return |
//! | `[a, b][usize::from(flag)]` | `if` and `else`, or a struct |
//! | `(a, b) = (x, y)` | two assignments |
//! | `Option<Result<Option<T>>>` | an enum that names the cases |
//! | `Err(Ok(..))`, `Ok(Err(..))` | an enum that names the cases |
//! | `.ok().flatten()`, `.ok().copied()`, `.ok().cloned()` | `match` |
//!
//! Further shapes are only counted, by `cargo xtask tidy --count-shapes`, since some of them are
//! the plainest way at times; with `--places` it lists where they stand.

mod closures;
mod finder;
mod rules_of_macros;

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Violation;
use super::syntax::{Syntax, package_of};
use finder::Finder;

/// A shape that the syntax tree shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shape {
    TupleLet,
    TupleParameter,
    FilterAsIf,
    ForEachOfOption,
    ThenSomeUnit,
    IndexByBool,
    TupleAssignment,
    NestedOption,
    LongTuple,
    FlattenedResult,
    NestedResult,
    AssigningClosure,
    FilledInLater,
}

impl Shape {
    const ALL: [Self; 13] = [
        Self::TupleLet,
        Self::TupleParameter,
        Self::FilterAsIf,
        Self::ForEachOfOption,
        Self::ThenSomeUnit,
        Self::IndexByBool,
        Self::TupleAssignment,
        Self::NestedOption,
        Self::LongTuple,
        Self::FlattenedResult,
        Self::NestedResult,
        Self::AssigningClosure,
        Self::FilledInLater,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::TupleLet => "`let` with tuples on both sides",
            Self::TupleParameter => "a tuple taken apart as a parameter",
            Self::FilterAsIf => "`filter(|_| ..)`",
            Self::ForEachOfOption => "`.into_iter().for_each(..)`",
            Self::ThenSomeUnit => "`then_some(()).ok_or(..)`",
            Self::IndexByBool => "an index made of a bool",
            Self::TupleAssignment => "an assignment of tuples, `(a, b) = (x, y)`",
            Self::NestedOption => "`Option` and `Result` three deep in a type",
            Self::LongTuple => "a tuple type of more than two, in a signature or a field",
            Self::FlattenedResult => "`.ok()` with `.copied()`, `.cloned()` or `.flatten()`",
            Self::NestedResult => "`Err(Ok(..))`, `Ok(Err(..))`",
            Self::AssigningClosure => "a closure that assigns to variables around it",
            Self::FilledInLater => "a field that begins as `MAX`",
        }
    }

    /// What to write instead of a shape that is refused; nothing for one that is only counted.
    fn way_out(self) -> Option<&'static str> {
        match self {
            Self::TupleLet => Some("write a `let` for each, or `match` on the tuple"),
            Self::TupleParameter => Some("take two parameters, or a struct with named fields"),
            Self::FilterAsIf => Some("write `if`"),
            Self::ForEachOfOption => Some("write `if let` for an option, else `for`"),
            Self::ThenSomeUnit => Some("write `if`, and return the error"),
            Self::IndexByBool => Some("write `if` and `else`, or a struct with two fields"),
            Self::NestedOption => Some("write an enum that names the cases"),
            Self::FlattenedResult => Some("`match`, and say why the error may be dropped"),
            Self::NestedResult => Some("write an enum that names the cases"),
            Self::TupleAssignment => Some("write an assignment for each, or swap the two"),
            Self::LongTuple | Self::AssigningClosure | Self::FilledInLater => None,
        }
    }
}

/// A shape that was found in a file.
struct Sighting {
    shape: Shape,
    line: usize,
}

/// Reports every refused shape, and every file in which none can be found because it is not Rust.
pub(in crate::tidy) fn shapes(syntax: &Syntax) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in syntax.unreadable() {
        found.push(Violation {
            file: file.path.clone(),
            line: file.line,
            rule: "shapes",
            what: format!("this is not Rust: {}", file.reason),
            way_out: "mend it, or give the file another extension",
        });
    }
    for (path, file) in syntax.files() {
        for Sighting { shape, line } in Finder::find(file) {
            if let Some(way_out) = shape.way_out() {
                found.push(Violation {
                    file: path.to_owned(),
                    line,
                    rule: "shapes",
                    what: shape.name().to_owned(),
                    way_out,
                });
            }
        }
    }
    found
}

/// Every place of a shape that is only counted, tests included, a line for each.
pub(in crate::tidy) fn places(syntax: &Syntax) -> String {
    let mut list = String::new();
    for (path, file) in syntax.files() {
        for Sighting { shape, line } in Finder::find(file) {
            if shape.way_out().is_none() {
                let _ = writeln!(list, "{path}:{line}: {}", shape.name());
            }
        }
    }
    list
}

/// How often each shape occurs in each package, tests included, as a table.
pub(in crate::tidy) fn count(syntax: &Syntax) -> String {
    let mut counts: BTreeMap<Shape, BTreeMap<&str, usize>> = BTreeMap::new();
    let mut packages: Vec<&str> = Vec::new();
    for (path, file) in syntax.files() {
        let package = package_of(path);
        if !packages.contains(&package) {
            packages.push(package);
        }
        for sighting in Finder::find(file) {
            let of_shape = counts.entry(sighting.shape).or_default();
            *of_shape.entry(package).or_default() += 1;
        }
    }
    let mut table = String::from("| shape | refused |");
    for package in &packages {
        let _ = write!(table, " {package} |");
    }
    table.push_str(" all |\n| --- | --- |");
    for _ in &packages {
        table.push_str(" ---: |");
    }
    table.push_str(" ---: |\n");
    for shape in Shape::ALL {
        let none = BTreeMap::new();
        let of_shape = counts.get(&shape).unwrap_or(&none);
        let refused = if shape.way_out().is_some() {
            "yes"
        } else {
            "no"
        };
        // A bar would end the cell.
        let name = shape.name().replace('|', "\\|");
        let _ = write!(table, "| {name} | {refused} |");
        for package in &packages {
            let _ = write!(table, " {} |", of_shape.get(package).unwrap_or(&0));
        }
        let _ = writeln!(table, " {} |", of_shape.values().sum::<usize>());
    }
    table
}
