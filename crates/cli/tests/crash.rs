//! `everleaf crash`: counts, exit codes, and a report whose command repeats it.

mod common;

use common::run;
use serde_json::{Value, json};

fn crash(more: &[&str], code: i32) -> Value {
    run(&[&["crash", "--engine", "rntree", "--json"], more].concat()).expect(code).json()
}

/// Where the first fence of an insertion is: that which makes an entry durable before it is published.
fn a_fence() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../engines/src/rntree/insert.rs");
    let source = std::fs::read_to_string(file).unwrap();
    let line = source.lines().position(|line| line.contains("guard.fence()")).unwrap() + 1;
    format!("rntree/insert.rs:{line}")
}

#[test]
fn small_scopes_are_exhausted_without_a_violation() {
    for codec in ["word", "record"] {
        let report = crash(&["--exhaustive", "--length", "2", "--codec", codec], 0);
        assert_eq!(
            (&report["violations"], &report["scope"], &report["leaf_entries"]),
            (&json!(0), &json!("all_sequences"), &json!(4)),
            "{report}"
        );
        // Four seed trees, twelve choices, twice.
        assert_eq!((&report["traces"], &report["cut_short"]), (&json!(4 * 12 * 12), &json!(0)));
        for figure in ["points", "recoveries", "second_points", "images_avoided"] {
            assert!(report[figure].as_f64().unwrap() > 500.0, "{figure}: {report}");
        }
    }
}

#[test]
fn a_random_sequence_is_that_of_its_seed() {
    let run = |seed| crash(&["--ops", "150", "--seed", seed], 0);
    let (one, again, other) = (run("7"), run("7"), run("8"));
    let figures = |report: &Value| ["points", "recoveries"].map(|figure| report[figure].clone());
    assert_eq!((figures(&one), &one["leaf_entries"]), (figures(&again), &json!(56)));
    assert_ne!(figures(&one), figures(&other));
    assert!(one["command"].as_str().unwrap().ends_with("--ops 150 --seed 7"), "{one}");
}

#[test]
fn every_medium_and_form_of_lines_is_explored() {
    for medium in ["dax", "eadr", "file"] {
        for lines in ["single", "twin"] {
            let report = crash(&["--ops", "100", "--seed", "1", "--medium", medium, "--lines", lines], 0);
            assert_eq!((&report["medium"], &report["violations"]), (&json!(medium), &json!(0)));
            assert!(report["points"].as_u64().unwrap() > 100, "{report}");
        }
    }
}

#[test]
fn a_violation_is_told_and_its_command_repeats_it() {
    let fence = a_fence();
    for scope in [&["--exhaustive", "--length", "1"][..], &["--ops", "200", "--seed", "5"]] {
        let report = crash(&[scope, &["--leave-out", &fence]].concat(), 1);
        let violation = &report["violation"];
        assert_eq!(report["violations"], json!(1), "{report}");
        assert_eq!(violation["operations"].as_array().unwrap().len(), 1, "shortest: {violation}");
        let crashes = violation["crashes"].as_array().unwrap();
        assert!(crashes[0]["point"].as_str().unwrap().contains("rntree/insert.rs:"), "{violation}");
        assert!(!crashes[0]["behind"].as_array().unwrap().is_empty(), "{violation}");
        let replay = violation["replay"].as_str().unwrap();
        let arguments: Vec<&str> = replay.split(' ').skip(1).chain(["--json"]).collect();
        let repeated = run(&arguments).expect(1).json();
        assert_eq!((&repeated["violation"], &repeated["recoveries"]), (violation, &json!(1)), "{replay}");
        let words = run(&arguments[..arguments.len() - 1]).expect(1);
        for part in ["one crash, repeated", "VIOLATION", "without the fence", "is behind", replay] {
            assert!(words.text().contains(part), "{part}: {words:?}");
        }
        // Without the mistake the same crash does no harm.
        let mended: Vec<&str> =
            arguments.iter().copied().filter(|word| *word != "--leave-out" && *word != fence).collect();
        assert_eq!(run(&mended).expect(0).json()["violations"], json!(0));
    }
}

#[test]
fn wrong_use_has_exit_code_2() {
    for arguments in [
        &[][..],
        &["--engine", "no-such-engine"],
        &["--engine", "rntree", "--medium", "tape"],
        &["--engine", "rntree", "--ops", "0"],
        &["--engine", "rntree", "--length", "2"],
        &["--engine", "rntree", "--exhaustive", "--seed", "1"],
        &["--engine", "rntree", "--replay", "i1=1@x"],
        &["--engine", "rntree", "--leave-out", "insert.rs"],
        &["--engine", "rntree", "--ops", "10", "--leave-out", "insert.rs:1"],
    ] {
        run(&[&["crash"], arguments].concat()).expect(2);
    }
}
