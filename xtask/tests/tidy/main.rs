//! `cargo xtask tidy` as a command: exit codes, text, JSON, and which files it looks at.

mod circles;
mod names;
mod shapes;

use std::path::Path;
use std::process::{Command, Output};
use std::{fs, str};

/// Files of a small workspace in which every rule is kept.
const TIDY: &[(&str, &str)] = &[
    (
        "Cargo.toml",
        "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\", \"xtask\"]\n",
    ),
    (
        "docs/ARCHITECTURE.md",
        "crates/engines crates/everleaf crates/sim crates/cli\n",
    ),
    (
        "crates/engines/Cargo.toml",
        "[package]\nname = \"everleaf-engines\"\n",
    ),
    ("crates/engines/src/lib.rs", "#![forbid(unsafe_code)]\n"),
    (
        "crates/everleaf/Cargo.toml",
        "[package]\nname = \"everleaf\"\n",
    ),
    ("crates/everleaf/src/lib.rs", "#![forbid(unsafe_code)]\n"),
    (
        "crates/sim/Cargo.toml",
        "[package]\nname = \"everleaf-sim\"\n",
    ),
    ("crates/sim/src/lib.rs", "#![forbid(unsafe_code)]\n"),
    (
        "crates/cli/Cargo.toml",
        "[package]\nname = \"everleaf-cli\"\n",
    ),
    (
        "crates/cli/src/main.rs",
        "#![forbid(unsafe_code)]\nfn main() {}\n",
    ),
    ("xtask/Cargo.toml", "[package]\nname = \"xtask\"\n"),
    (
        "xtask/src/main.rs",
        "#![forbid(unsafe_code)]\nfn main() {}\n",
    ),
];

/// The crate that may be unsafe.
const MEDIUM: [(&str, &str); 2] = [
    (
        "crates/medium/Cargo.toml",
        "[package]\nname = \"everleaf-medium\"\n",
    ),
    ("crates/medium/src/lib.rs", "#![allow(unsafe_code)]\n"),
];

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("the path has a folder"))
        .expect("the folder can be made");
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
    command
        .args(args)
        .current_dir(folder)
        .output()
        .expect("xtask can be started")
}

/// Exit code and standard output.
fn outcome(output: &Output) -> (i32, &str) {
    let code = output.status.code().expect("xtask ends by itself");
    (
        code,
        str::from_utf8(&output.stdout).expect("the output is text"),
    )
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
    let json = "{\"rust_files\":5,\"manifests\":6,\"violations\":[]}\n";
    assert_eq!(outcome(&xtask(root.path(), &["tidy", "--json"])), (0, json));
}

/// What is found with these files added or replaced: `file:line: what`.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let root = workspace();
    for (path, text) in files {
        write(root.path(), path, text);
    }
    let output = xtask(root.path(), &["tidy", "--json"]);
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("one JSON document");
    let violations = json["violations"].as_array().expect("a list");
    assert_eq!(
        output.status.code(),
        Some(i32::from(!violations.is_empty()))
    );
    let words = |it: &serde_json::Value| {
        format!(
            "{}:{}: {}",
            it["file"].as_str().unwrap(),
            it["line"],
            it["what"].as_str().unwrap()
        )
    };
    violations.iter().map(words).collect()
}

/// What is found in the crate `crates/<name>` whose manifest has these lines, from line 3 on.
fn found_in(name: &str, lines: &str) -> Vec<String> {
    let text = format!("[package]\nname = \"everleaf-{name}\"\n{lines}\n");
    let manifest = format!("crates/{name}/Cargo.toml");
    let root = format!("crates/{name}/src/lib.rs");
    let map = format!("{} crates/{name}", TIDY[1].1);
    found(&[
        (&manifest, &text),
        (&root, "#![forbid(unsafe_code)]\n"),
        (TIDY[1].0, &map),
    ])
}

#[test]
fn a_violation_answers_1_with_file_line_and_way_out() {
    let root = workspace();
    write(
        root.path(),
        "crates/sim/tests/a.rs",
        "#[test]\nfn f() {\n    msync();\n}\n",
    );
    let text = "crates/sim/tests/a.rs:3: `msync` above crates/medium; call the medium through its cells and guard: \
                flush, fence, wait\n";
    assert_eq!(outcome(&xtask(root.path(), &["tidy"])), (1, text));
    let output = xtask(root.path(), &["tidy", "--json"]);
    let (code, json) = outcome(&output);
    let json: serde_json::Value = serde_json::from_str(json).expect("one JSON document");
    let violation = &json["violations"][0];
    assert_eq!(code, 1);
    assert_eq!(json["violations"].as_array().map(Vec::len), Some(1));
    assert_eq!(violation["file"], "crates/sim/tests/a.rs");
    assert_eq!(violation["line"], 3);
    assert_eq!(violation["rule"], "words");
    assert_eq!(violation["what"], "`msync` above crates/medium");
}

#[test]
fn instructions_are_found_in_code_and_in_strings_above_the_medium() {
    let file = "crates/engines/src/a.rs";
    for word in ["clwb", "clflush", "sfence", "msync", "movdir64b"] {
        let expected = [format!("{file}:2: `{word}` above crates/medium")];
        assert_eq!(
            found(&[(file, &format!("fn f() {{\n    _mm_{word}();\n}}\n"))]),
            expected
        );
        assert_eq!(
            found(&[(file, &format!("\nconst A: &str = \"{word}opt\";\n"))]),
            expected
        );
    }
    let other =
        "//! clwb\n/// sfence\nfn transfence() { Choice::Movdir64b; \"offence\"; } // msync\n";
    assert_eq!(found(&[(file, other)]), [""; 0]);
    let map = format!("{} crates/medium", TIDY[1].1);
    let [manifest, root] = MEDIUM;
    let exempt = [
        ("crates/medium/src/a.rs", "fn f() { clwb() }"),
        ("xtask/src/a.rs", "fn f() { clwb() }"),
    ];
    assert_eq!(
        found(&[manifest, root, (TIDY[1].0, &map), exempt[0], exempt[1]]),
        [""; 0]
    );
    assert_eq!(
        found(&[("crates/sim/medium/a.rs", "fn f() { clwb() }")]).len(),
        1
    );
}

#[test]
fn crates_other_than_the_medium_forbid_unsafe_code() {
    let root = "crates/engines/src/lib.rs";
    for text in [
        "",
        "#![deny(unsafe_code)]\n",
        "// #![forbid(unsafe_code)]\n",
    ] {
        assert_eq!(
            found(&[(root, text)]),
            [format!("{root}:1: `#![forbid(unsafe_code)]` is missing")]
        );
    }
    let binary = ("crates/cli/src/bin/tool/main.rs", "fn main() {}");
    assert_eq!(
        found(&[binary]),
        ["crates/cli/src/bin/tool/main.rs:1: `#![forbid(unsafe_code)]` is missing"]
    );
    for text in [
        "#![allow(unsafe_code)]",
        "#[expect(unsafe_code, reason = \"fast\")]",
    ] {
        let file = "crates/cli/tests/a.rs";
        assert_eq!(
            found(&[(file, &format!("\n{text}\nfn f() {{}}\n"))]),
            [format!("{file}:2: `unsafe` is allowed here")]
        );
    }
    let map = format!("{} crates/medium", TIDY[1].1);
    assert_eq!(found(&[MEDIUM[0], MEDIUM[1], (TIDY[1].0, &map)]), [""; 0]);
}

#[test]
fn arrows_point_down() {
    let path = |target: &str| format!("{target} = {{ workspace = true }}");
    let shared = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\", \"xtask\"]\n[workspace.dependencies]\n\
                  engines = { path = \"crates/engines\", package = \"everleaf-engines\" } # the index designs\n\
                  cli = { path = \"crates/cli\", package = \"everleaf-cli\" } # the command\n\
                  xtask = { path = \"xtask\" } # the chores\n";
    let found = |name: &str, lines: &str| {
        let text = format!("[package]\nname = \"everleaf-{name}\"\n{lines}\n");
        found(&[
            ("Cargo.toml", shared),
            (&format!("crates/{name}/Cargo.toml"), &text),
        ])
    };
    assert_eq!(
        found("cli", &format!("[dependencies]\n{}", path("engines"))),
        [""; 0]
    );
    for section in [
        "dependencies",
        "dev-dependencies",
        "target.'cfg(unix)'.build-dependencies",
    ] {
        for (name, target) in [("engines", "cli"), ("sim", "cli"), ("everleaf", "cli")] {
            let expected = [format!(
                "crates/{name}/Cargo.toml:4: {name} depends on {target}, which is not below it"
            )];
            assert_eq!(
                found(name, &format!("[{section}]\n{}", path(target))),
                expected,
                "{section}"
            );
        }
    }
    let expected =
        ["crates/cli/Cargo.toml:4: cli depends on xtask, which is not part of the library"];
    assert_eq!(
        found("cli", &format!("[dependencies]\n{}", path("xtask"))),
        expected
    );
    let optional = "[dependencies]\nengines = { workspace = true, optional = true }";
    assert_eq!(found("sim", optional), [""; 0]);
    assert_eq!(
        found("sim", &format!("[dev-dependencies]\n{}", path("engines"))),
        [""; 0]
    );
    let expected = ["crates/sim/Cargo.toml:4: the core of sim depends on engines"];
    assert_eq!(
        found("sim", &format!("[dependencies]\n{}", path("engines"))),
        expected
    );
}

#[test]
fn a_crate_without_a_layer_is_found() {
    assert_eq!(found_in("lab", ""), [""; 0]);
    assert_eq!(
        found_in("spare", ""),
        ["crates/spare/Cargo.toml:1: crates/spare has no layer"]
    );
}

#[test]
fn a_dependency_stands_once_with_its_reason() {
    let root = |lines: &str| format!("{}[workspace.dependencies]\n{lines}", TIDY[0].1);
    let good = "a = \"1\" # the command line\n# heads a group\nb = { version = \"1\", features = [\"x\"] } # reads maps\n";
    assert_eq!(found(&[("Cargo.toml", &root(good))]), [""; 0]);
    let bad = "a = \"1\"\nb = \"1\" # b\nc = \"1#2 3\" #\n";
    let expected = [(5, "a"), (6, "b"), (7, "c")]
        .map(|(line, name)| format!("Cargo.toml:{line}: nothing says why `{name}` is here"));
    assert_eq!(found(&[("Cargo.toml", &root(bad))]), expected);
}

#[test]
fn members_inherit_their_dependencies() {
    for section in [
        "dependencies",
        "dev-dependencies",
        "build-dependencies",
        "target.x.dependencies",
    ] {
        for value in ["\"1\"", "{ version = \"1\" }"] {
            let expected = ["crates/lab/Cargo.toml:4: `b` is not inherited from the workspace"];
            assert_eq!(
                found_in("lab", &format!("[{section}]\nb = {value}")),
                expected
            );
        }
    }
    let expected = ["crates/lab/Cargo.toml:3: `[dependencies.b]` is a section of its own"];
    assert_eq!(
        found_in("lab", "[dependencies.b]\nversion = \"1\""),
        expected
    );
}

#[test]
fn the_map_names_every_crate() {
    let map = |text: &str| found(&[("docs/ARCHITECTURE.md", text)]);
    assert_eq!(
        map("crates/\n  engines/ the designs\n  everleaf/ sim/ cli/\n"),
        [""; 0]
    );
    let expected = ["docs/ARCHITECTURE.md:1: crates/sim is not on the map"];
    assert_eq!(
        map("engines/ everleaf/ cli/ and simulation/, a sim, src/sim/"),
        expected
    );
    let root = workspace();
    fs::remove_file(root.path().join("docs/ARCHITECTURE.md")).expect("the map can be removed");
    assert_eq!(outcome(&xtask(root.path(), &["tidy"])).0, 1);
}

#[test]
fn build_output_hidden_folders_and_other_checkouts_are_left_out() {
    let root = workspace();
    let bad = "fn f() { msync() }\n";
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
    for args in [
        &["tidy", "--no-such-option"][..],
        &["no-such-chore"],
        &[],
        &["tidy", "--root", folder],
    ] {
        assert_eq!(outcome(&xtask(root.path(), args)).0, 2, "{args:?}");
    }
    assert_eq!(outcome(&xtask(empty.path(), &["tidy"])).0, 2);
    write(root.path(), "crates/sim/src/latin.rs", "");
    fs::write(root.path().join("crates/sim/src/latin.rs"), b"// \xff\n")
        .expect("the file can be written");
    let output = xtask(root.path(), &["tidy"]);
    assert_eq!(outcome(&output).0, 2);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("latin.rs"),
        "{output:?}"
    );
}
