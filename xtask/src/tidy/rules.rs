//! The rules. Each is a function from the workspace to violations, and reads nothing else.

use super::Violation;
use super::tree::{Dependency, MAP, Package, TextFile, Workspace};

/// The crate that decides how bytes become durable.
const MEDIUM: &str = "crates/medium";
/// Ways to make a line durable. A word also stands for what begins with it: `clflush` for
/// `clflushopt`.
const INSTRUCTIONS: [&str; 5] = ["clwb", "clflush", "sfence", "msync", "movdir64b"];
/// The crates from the ground up. A crate may depend on the crates of the layers below its own.
const LAYERS: [&[&str]; 7] = [
    &["medium"],
    &["pool", "derive"],
    &["engines"],
    &["everleaf"],
    &["sim", "server", "terminal"],
    &["lab"],
    &["cli", "workbench"],
];
/// Crates that are to be of use without the rest of the house: what they may need of it
/// unconditionally.
const CORES: [(&str, &[&str]); 1] = [("sim", &["medium"])];
/// A reason has at least this many words: a bare name says nothing.
const REASON_WORDS_MIN: usize = 2;

/// Every rule.
pub(super) const ALL: [fn(&Workspace) -> Vec<Violation>; 5] =
    [words, unsafe_code, arrows, dependencies, map];

/// Comments may say what they like, string literals may not. A name is read as its parts between
/// underscores, so `_mm_sfence` is the word `sfence`, while a type such as `Movdir64b` that names a
/// choice is none. Assembly and stores through a raw pointer are unsafe, so the compiler refuses
/// them.
fn words(tree: &Workspace) -> Vec<Violation> {
    let word = |part: &str| INSTRUCTIONS.into_iter().find(|word| part.starts_with(word));
    let mut found = Vec::new();
    // This file holds the list itself.
    for file in tree
        .sources()
        .filter(|file| !is_in(file, MEDIUM) && !is_in(file, "xtask"))
    {
        for (line, code) in code(file) {
            found.extend(
                code.split(|c: char| !c.is_alphanumeric())
                    .filter_map(word)
                    .map(|word| {
                        let way_out =
                            "call the medium through its cells and guard: flush, fence, wait";
                        violation(
                            file,
                            line,
                            "words",
                            format!("`{word}` above {MEDIUM}"),
                            way_out,
                        )
                    }),
            );
        }
    }
    found
}

/// The workspace's lints deny `unsafe`; a crate that forbids it cannot allow it again, and no test
/// may.
fn unsafe_code(tree: &Workspace) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut add = |file: &TextFile, line: usize, what: &str, way_out: &'static str| {
        found.push(violation(
            file,
            line,
            "unsafe-code",
            what.to_owned(),
            way_out,
        ));
    };
    for package in tree
        .packages
        .iter()
        .filter(|package| tree.folder(package) != MEDIUM)
    {
        let is_root = |kind: &str| kind == "bin" || kind.ends_with("lib");
        let roots = package
            .targets
            .iter()
            .filter(|target| target.kind.iter().any(|kind| is_root(kind)));
        for file in roots.filter_map(|target| tree.file(&tree.relative(&target.src_path))) {
            if !code(file).any(|(_, code)| code.starts_with("#![forbid(unsafe_code)]")) {
                add(
                    file,
                    1,
                    "`#![forbid(unsafe_code)]` is missing",
                    "add it below the crate's docs",
                );
            }
        }
    }
    for file in tree
        .sources()
        .filter(|file| !is_in(file, MEDIUM) && !is_in(file, "xtask"))
    {
        let allows = |code: &str| {
            code.contains("unsafe_code") && (code.contains("allow") || code.contains("expect"))
        };
        for (line, _) in code(file).filter(|(_, code)| allows(code)) {
            add(
                file,
                line,
                "`unsafe` is allowed here",
                "move what needs it into crates/medium",
            );
        }
    }
    found
}

/// Dependencies of tests and build scripts are arrows as well: a test that reaches upward meets a
/// second copy of its own crate.
fn arrows(tree: &Workspace) -> Vec<Violation> {
    let mut found = Vec::new();
    for package in &tree.packages {
        let folder = tree.folder(package);
        let Some(name) = folder.strip_prefix("crates/") else {
            continue;
        };
        let Some(manifest) = tree.file(&format!("{folder}/Cargo.toml")) else {
            continue;
        };
        let Some(layer) = layer(name) else {
            let what = format!("{folder} has no layer");
            let way_out = "give it one in xtask/src/tidy/rules.rs and in docs/ARCHITECTURE.md";
            found.push(violation(manifest, 1, "arrows", what, way_out));
            continue;
        };
        let core = CORES
            .iter()
            .find(|(core, _)| *core == name)
            .map(|(_, allowed)| *allowed);
        for dependency in &package.dependencies {
            let Some(path) = &dependency.path else {
                continue;
            };
            let target = tree.relative(path);
            let line = line_of(manifest, dependency);
            let mut add =
                |what, way_out| found.push(violation(manifest, line, "arrows", what, way_out));
            let Some(target) = target.strip_prefix("crates/") else {
                let what = format!("{name} depends on {target}, which is not part of the library");
                add(what, "turn the arrow round");
                continue;
            };
            let is_core = dependency.kind.as_deref() != Some("dev") && !dependency.optional;
            // A target without a layer is a violation of its own.
            if self::layer(target).is_some_and(|below| below >= layer) {
                let way_out = "turn the arrow round, or move what is shared down";
                add(
                    format!("{name} depends on {target}, which is not below it"),
                    way_out,
                );
            } else if is_core && core.is_some_and(|allowed| !allowed.contains(&target)) {
                add(
                    format!("the core of {name} depends on {target}"),
                    "make the dependency optional",
                );
            }
        }
    }
    found
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

/// The line of a dependency in its manifest.
fn line_of(manifest: &TextFile, dependency: &Dependency) -> usize {
    let is_it = |line: &str| {
        line.strip_prefix(dependency.key())
            .is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
    };
    manifest
        .text
        .lines()
        .position(is_it)
        .map_or(1, |index| index + 1)
}

/// Each dependency is one line: with version and reason in the root manifest, `workspace = true` in
/// the others.
fn dependencies(tree: &Workspace) -> Vec<Violation> {
    let mut found = Vec::new();
    for manifest in tree.manifests() {
        let mut section = "";
        for (index, line) in manifest.text.lines().enumerate() {
            let mut add = |what, way_out| {
                found.push(violation(
                    manifest,
                    index + 1,
                    "dependencies",
                    what,
                    way_out,
                ));
            };
            if line.starts_with('[') {
                section = line.trim();
                if section.contains("dependencies.") {
                    add(
                        format!("`{section}` is a section of its own"),
                        "write it as one line",
                    );
                }
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            let key = key.trim().trim_end_matches(".workspace");
            if line.starts_with('#') || !section.ends_with("dependencies]") {
                continue;
            }
            if section == "[workspace.dependencies]" {
                let reason = value.rsplit_once(" # ").map_or("", |(_, reason)| reason);
                if reason.split_whitespace().count() < REASON_WORDS_MIN {
                    let way_out = "end the line with a comment that gives the reason, or delete it";
                    add(format!("nothing says why `{key}` is here"), way_out);
                }
            } else if !line.contains("workspace = true") {
                let way_out =
                    "put version and path into the root manifest and write `workspace = true` here";
                add(
                    format!("`{key}` is not inherited from the workspace"),
                    way_out,
                );
            }
        }
    }
    found
}

/// The map names each crate as `name/` or `crates/name`.
fn map(tree: &Workspace) -> Vec<Violation> {
    let missing = TextFile {
        path: MAP.to_owned(),
        text: String::new(),
    };
    let map = tree.file(MAP).unwrap_or(&missing);
    let is_part = |c: char| c.is_alphanumeric() || "-_./".contains(c);
    let names = |name: &str| {
        let mut words = map
            .text
            .split(|c| !is_part(c))
            .filter(|word| word.contains('/'));
        words.any(|word| {
            word.strip_prefix("crates/")
                .unwrap_or(word)
                .split('/')
                .next()
                == Some(name)
        })
    };
    let folders = tree
        .packages
        .iter()
        .map(|package: &Package| tree.folder(package));
    let unnamed = folders.filter(|folder| {
        folder
            .strip_prefix("crates/")
            .is_some_and(|name| !names(name))
    });
    unnamed
        .map(|folder| {
            violation(
                map,
                1,
                "map",
                format!("{folder} is not on the map"),
                "add a line for it",
            )
        })
        .collect()
}

/// Whether a file lies in this folder, at any depth.
fn is_in(file: &TextFile, folder: &str) -> bool {
    file.path
        .strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// The lines of a Rust file by their number, without comments.
fn code(file: &TextFile) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(file.text.lines().map(without_comment))
}

fn without_comment(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code).trim()
}

fn violation(
    file: &TextFile,
    line: usize,
    rule: &'static str,
    what: String,
    way_out: &'static str,
) -> Violation {
    Violation {
        file: file.path.clone(),
        line,
        rule,
        what,
        way_out,
    }
}
