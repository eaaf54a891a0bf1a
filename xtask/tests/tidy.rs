//! `cargo xtask tidy` as a command: exit codes, text, JSON, and which files it looks at.

use std::path::Path;
use std::process::{Command, Output};
use std::{fs, str};

/// Files of a small workspace in which every rule is kept.
const TIDY: &[(&str, &str)] = &[
    ("Cargo.toml", "[workspace]\nmembers = [\"crates/*\", \"xtask\"]\n"),
    ("docs/ARCHITECTURE.md", "crates/engines crates/everleaf crates/sim crates/cli\n"),
    ("crates/engines/Cargo.toml", "[package]\nname = \"everleaf-engines\"\n"),
    ("crates/engines/src/lib.rs", "#![forbid(unsafe_code)]\n"),
    ("crates/everleaf/Cargo.toml", "[package]\nname = \"everleaf\"\n"),
    ("crates/everleaf/src/lib.rs", "#![forbid(unsafe_code)]\n"),
    ("crates/sim/Cargo.toml", "[package]\nname = \"everleaf-sim\"\n"),
    ("crates/sim/src/lib.rs", "#![forbid(unsafe_code)]\n"),
    ("crates/cli/Cargo.toml", "[package]\nname = \"everleaf-cli\"\n"),
    ("crates/cli/src/main.rs", "#![forbid(unsafe_code)]\nfn main() {}\n"),
    ("xtask/src/main.rs", "#![forbid(unsafe_code)]\nfn main() {}\n"),
];

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("the path has a folder")).expect("the folder can be made");
    fs::write(path, text).expect("the file can be written");
}

fn workspace() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    for (path, text) in TIDY {
        write(root.path(), path, text);
    }
    root
}

fn xtask(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(args).current_dir(folder).output().expect("xtask can be started")
}

/// Exit code and standard output.
fn outcome(output: &Output) -> (i32, &str) {
    let code = output.status.code().expect("xtask ends by itself");
    (code, str::from_utf8(&output.stdout).expect("the output is text"))
}

#[test]
fn a_tidy_workspace_answers_0_and_prints_nothing() {
    let root = workspace();
    assert_eq!(outcome(&xtask(root.path(), &["tidy"])), (0, ""));
    assert_eq!(
        outcome(&xtask(&root.path().join("crates/cli/src"), &["tidy"])),
        (0, ""),
        "from a folder in it"
    );
    let json = "{\"rust_files\":5,\"manifests\":5,\"violations\":[]}\n";
    assert_eq!(outcome(&xtask(root.path(), &["tidy", "--json"])), (0, json));
}

#[test]
fn a_violation_answers_1_with_file_line_and_way_out() {
    let root = workspace();
    write(root.path(), "crates/sim/tests/a.rs", "#[test]\nfn f() {\n    dbg!(1);\n}\n");
    let text = "crates/sim/tests/a.rs:3: `dbg!` is left over; delete it, or report through `tracing`\n";
    assert_eq!(outcome(&xtask(root.path(), &["tidy"])), (1, text));
    let output = xtask(root.path(), &["tidy", "--json"]);
    let (code, json) = outcome(&output);
    let json: serde_json::Value = serde_json::from_str(json).expect("one JSON document");
    let violation = &json["violations"][0];
    assert_eq!(code, 1);
    assert_eq!(json["violations"].as_array().map(Vec::len), Some(1));
    assert_eq!(violation["file"], "crates/sim/tests/a.rs");
    assert_eq!(violation["line"], 3);
    assert_eq!(violation["rule"], "leftovers");
    assert_eq!(violation["what"], "`dbg!` is left over");
}

#[test]
fn every_rule_runs() {
    let root = workspace();
    let long = format!("#![forbid(unsafe_code)]\nfn f() {{\n{}}}\n", "    g();\n".repeat(70));
    write(root.path(), "crates/everleaf/src/lib.rs", &long);
    write(root.path(), "crates/engines/src/lib.rs", "fn f() { msync(); todo!() }\n");
    let cli = "[package]\nname = \"everleaf-cli\"\n[dependencies]\nxtask = { path = \"../../xtask\" }\n";
    write(root.path(), "crates/cli/Cargo.toml", cli);
    write(root.path(), "crates/sim/src/broken.rs", "fn f( {}\n");
    write(root.path(), "docs/ARCHITECTURE.md", "crates/engines crates/everleaf crates/sim\n");
    let output = xtask(root.path(), &["tidy", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    let violations = json["violations"].as_array().expect("a list");
    let found = violations.iter().map(|it| (it["file"].as_str().unwrap(), it["rule"].as_str().unwrap()));
    assert_eq!(
        found.collect::<Vec<_>>(),
        [
            ("crates/cli/Cargo.toml", "dependencies"),
            ("crates/cli/Cargo.toml", "arrows"),
            ("crates/engines/src/lib.rs", "unsafe-code"),
            ("crates/engines/src/lib.rs", "words"),
            ("crates/engines/src/lib.rs", "leftovers"),
            ("crates/everleaf/src/lib.rs", "length"),
            ("crates/sim/src/broken.rs", "parse"),
            ("docs/ARCHITECTURE.md", "map"),
        ]
    );
}

#[test]
fn build_output_hidden_folders_and_other_checkouts_are_left_out() {
    let root = workspace();
    let bad = "fn f() { todo!() }\n";
    write(root.path(), "target/a.rs", bad);
    write(root.path(), "output/CACHEDIR.TAG", "");
    write(root.path(), "output/a.rs", bad);
    write(root.path(), ".hidden/a.rs", bad);
    write(root.path(), "other/.git", "gitdir: elsewhere\n");
    write(root.path(), "other/a.rs", bad);
    assert_eq!(outcome(&xtask(root.path(), &["tidy"])), (0, ""));
    write(root.path(), "more/a.rs", bad);
    assert_eq!(outcome(&xtask(root.path(), &["tidy"])).0, 1);
}

#[test]
fn wrong_use_answers_2() {
    let root = workspace();
    let empty = tempfile::tempdir().expect("a temporary folder");
    let folder = empty.path().to_str().expect("the path is text");
    for args in [&["tidy", "--no-such-option"][..], &["no-such-chore"], &[], &["tidy", "--root", folder]] {
        assert_eq!(outcome(&xtask(root.path(), args)).0, 2, "{args:?}");
    }
    assert_eq!(outcome(&xtask(empty.path(), &["tidy"])).0, 2);
    write(root.path(), "crates/sim/src/latin.rs", "");
    fs::write(root.path().join("crates/sim/src/latin.rs"), b"// \xff\n").expect("the file can be written");
    let output = xtask(root.path(), &["tidy"]);
    assert_eq!(outcome(&output).0, 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("latin.rs"), "{output:?}");
}
