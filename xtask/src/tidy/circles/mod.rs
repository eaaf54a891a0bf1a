//! Rule `circles`: within a crate, files that use each other form no circle of more than two files.
//!
//! A file uses another one if a path in it (of a `use`, of an expression, type or pattern, or
//! written inside a macro call) leads to an item that the other file defines. Re-exports are
//! followed: a path through the facade of a `mod.rs` leads to the file that defines the item, so a
//! facade neither hides a circle nor makes one. A path that leads to a module, as in
//! `use crate::kit`, is no use by itself; the paths that begin with that module are.
//!
//! What does not count:
//! - the root of a crate (`lib.rs`, `main.rs`, the first file of a test or an example) and preludes
//!   (`prelude.rs`);
//! - a module's file and the files of its own submodules, in either direction;
//! - items that are compiled only for tests, and therefore files that only tests have;
//! - the bodies of `macro_rules!`, which belong to the files that call the macro;
//! - methods and associated functions, which a syntax tree does not tell apart: the file that
//!   defines the type counts by the path to the type.

mod components;
mod modules;

use super::Violation;
use super::syntax::Syntax;
use super::tree::Workspace;
use components::Graph;
use modules::Crate;

/// Looks for circles in every crate.
pub(in crate::tidy) fn circles(tree: &Workspace, syntax: &Syntax) -> Vec<Violation> {
    let mut found = Vec::new();
    for root in crate_roots(tree, syntax) {
        let graph = Crate::load(&root, syntax).graph();
        found.extend(graph.components().iter().map(|files| report(&graph, files)));
    }
    found
}

/// The first file of each crate: of libraries, commands, tests, benchmarks and examples.
fn crate_roots(tree: &Workspace, syntax: &Syntax) -> Vec<String> {
    let mut roots: Vec<String> = tree
        .packages
        .iter()
        .flat_map(|package| &package.targets)
        .map(|target| tree.relative(&target.src_path))
        .collect();
    // `cargo metadata` does not name the packages of workspaces that lie inside this one.
    let is_package = |path: &str| roots.iter().any(|root| package_folder(root) == path);
    let others: Vec<String> = syntax
        .files()
        .map(|(path, _)| path)
        .filter(|path| path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs"))
        .filter(|path| !is_package(package_folder(path)))
        .map(str::to_owned)
        .collect();
    roots.extend(others);
    roots.sort();
    roots.dedup();
    roots
}

/// The folder of the package whose crate begins in this file.
fn package_folder(root: &str) -> &str {
    root.split_once("/src/").map_or(root, |(folder, _)| folder)
}

/// Files that all reach each other, with one circle among them as an example.
fn report(graph: &Graph, files: &[usize]) -> Violation {
    let circle = graph.short_circle(files);
    let common = common_folder(files.iter().map(|file| graph.path(*file)));
    let short = |file: usize| &graph.path(file)[common.len()..];
    let mut example = String::new();
    for (from, to) in circle.iter().zip(circle.iter().skip(1)) {
        let line = graph.line(*from, *to);
        example.push_str(&format!("{}:{line} -> ", short(*from)));
    }
    example.push_str(short(circle[0]));
    let members: Vec<&str> = files.iter().map(|file| short(*file)).collect();
    Violation {
        file: graph.path(circle[0]).to_owned(),
        line: graph.line(circle[0], circle[1]),
        rule: "circles",
        what: format!(
            "{} files of {common} use each other in a circle, for example {example} (all of them: {})",
            files.len(),
            members.join(", "),
        ),
        way_out: "move what they share below them, or turn a use round",
    }
}

/// The longest beginning that these paths have in common, up to a `/`.
fn common_folder<'p>(mut paths: impl Iterator<Item = &'p str>) -> String {
    let first = paths.next().unwrap_or_default();
    let mut common = first.rfind('/').map_or("", |end| &first[..=end]);
    for path in paths {
        while !path.starts_with(common) {
            let shorter = common.trim_end_matches('/');
            common = shorter.rfind('/').map_or("", |end| &common[..=end]);
        }
    }
    common.to_owned()
}
