//! `apply`: conditions and writes as one transaction.

use std::path::Path;

use crate::common::{lines, on, pool, run, run_with};
use serde_json::json;

/// A pool with a tree of records, one of numbers, and one of an engine that is durable by epochs.
fn sample(pool: &Path) {
    let load = |options: &[&str], lines: &str| {
        run_with(&on("load", pool, options), lines.as_bytes()).expect(0);
    };
    load(&["--tree", "accounts"], "ada\t70\nbob\t30\n");
    load(&["--tree", "counts", "--codec", "word"], "1\t10\n");
    load(&["--tree", "late", "--engine", "masstree"], "k\tv\n");
}

/// All entries of all trees.
fn content(pool: &Path) -> Vec<u8> {
    run(&on("dump", pool, &[])).expect(0).output
}

#[test]
fn a_script_is_applied_as_a_whole() {
    let (_folder, pool) = pool();
    sample(&pool);
    let script = "# A transfer of 20.\n\
                  expect\taccounts\tada\t70\n\
                  expect-present\taccounts\tbob\n\
                  expect-absent\taccounts\tcleo\n\
                  \n\
                  put\taccounts\tada\t50\n\
                  expect\taccounts\tada\t50\n\
                  put\taccounts\tbob\t50\n\
                  put\taccounts\ta\\tb\tvalue\twith\\na tab\n\
                  expect\tcounts\t1\t10\n\
                  put\tcounts\t1\t11\n\
                  remove\tlate\tk\n\
                  remove\tlate\tno such key\n";
    let escaped = ["-", "--escaped", "--json"];
    let said = run_with(&on("apply", &pool, &escaped), script.as_bytes()).expect(0);
    assert_eq!(
        said.json(),
        json!({ "applied": true, "conditions": 5, "put": 4, "removed": 1 })
    );
    let scan = |tree: &str| {
        let said = run(&on("scan", &pool, &["--tree", tree])).expect(0);
        said.text().to_owned()
    };
    assert_eq!(
        scan("accounts"),
        "a\\tb\tvalue\\twith\\na tab\nada\t50\nbob\t50\n"
    );
    assert_eq!(scan("counts"), "1\t11\n");
    assert_eq!(scan("late"), "");
    // A second time its conditions do not hold.
    let said = run_with(&on("apply", &pool, &[]), script.as_bytes()).expect(1);
    let last = said.errors.lines().last().unwrap();
    assert_eq!(
        last,
        "standard input, line 2: key \"ada\" of tree \"accounts\" has the value \"50\"; nothing was written"
    );
}

#[test]
fn a_condition_that_does_not_hold_leaves_everything_as_it_was() {
    let (_folder, pool) = pool();
    sample(&pool);
    let before = content(&pool);
    for (condition, what) in [
        (
            "expect\taccounts\tada\t71",
            "key \"ada\" of tree \"accounts\" has the value \"70\"",
        ),
        (
            "expect\taccounts\tcleo\t1",
            "key \"cleo\" of tree \"accounts\" is absent",
        ),
        (
            "expect\tcounts\t1\t11",
            "key \"1\" of tree \"counts\" has the value \"10\"",
        ),
        (
            "expect-absent\tlate\tk",
            "key \"k\" of tree \"late\" has the value \"v\"",
        ),
        (
            "expect-present\tlate\tm",
            "key \"m\" of tree \"late\" is absent",
        ),
        (
            "expect-present\taccounts\tbob",
            "key \"bob\" of tree \"accounts\" is absent",
        ),
    ] {
        let script = format!(
            "put\taccounts\tzoe\t0\nremove\taccounts\tbob\nput\tcounts\t2\t2\nput\tlate\tk2\tv\n{condition}\n"
        );
        let said = run_with(&on("apply", &pool, &["-", "--json"]), script.as_bytes()).expect(1);
        assert_eq!(
            said.json(),
            json!({ "applied": false, "line": 5, "what": what })
        );
        assert_eq!(content(&pool), before, "{condition}");
    }
}

#[test]
fn a_bad_line_is_named_and_nothing_is_written() {
    let (_folder, pool) = pool();
    sample(&pool);
    let before = content(&pool);
    let long_key = format!("put\taccounts\t{}\tv", "k".repeat((64 << 10) + 1));
    for (line, texts) in [
        (
            "putt\taccounts\tk\tv",
            ["the first field is \"putt\"", "; give one of expect, "],
        ),
        (
            "put accounts k v",
            ["\"put accounts k v\"", ", and a tab behind it"],
        ),
        (
            "put\taccounts\tk",
            ["the fields do not fit", "`put TAB tree TAB key TAB value`"],
        ),
        (
            "remove\taccounts",
            ["the fields do not fit", "`remove TAB tree TAB key`"],
        ),
        (
            "remove\taccounts\tk\tv",
            ["the fields do not fit", "`remove TAB tree TAB key`"],
        ),
        ("put\tnone\tk\tv", ["no tree \"none\"", "`everleaf trees`"]),
        (
            "put\tcounts\tone\t1",
            ["\"one\" is no number", "; give one from 0"],
        ),
        (
            "put\taccounts\tk\t\\q",
            ["an unknown escape", "the escapes are"],
        ),
        (
            "put\taccounts\\xff\tk\tv",
            ["is not UTF-8", "`everleaf trees`"],
        ),
        (&long_key, ["65537", "65536"]),
    ] {
        let script = format!("put\taccounts\tada\t0\n{line}\n");
        let said = run_with(&on("apply", &pool, &["-", "--escaped"]), script.as_bytes()).expect(3);
        let last = said.errors.lines().last().unwrap();
        assert!(
            last.starts_with("everleaf: standard input, line 2: ")
                && last.ends_with("; nothing was written"),
            "{said:?}"
        );
        for text in texts {
            assert!(said.errors.contains(text), "{said:?}");
        }
        assert_eq!(content(&pool), before, "{line}");
    }
    let said = run_with(&on("apply", &pool, &["--json"]), b"remove\n").expect(3);
    assert_eq!(said.json()["kind"], json!("input"));
}

#[test]
fn a_script_is_hex_or_escaped_if_asked() {
    let (_folder, pool) = pool();
    sample(&pool);
    let hex = b"expect\taccounts\t616461\t3730\nput\taccounts\t00ff\t\nput\tcounts\t0000000000000002\t0000000000000003\n";
    run_with(&on("apply", &pool, &["-", "--hex"]), hex).expect(0);
    let raw = b"put\taccounts\ta\\tb\t\\\n";
    run_with(&on("apply", &pool, &["-"]), raw).expect(0);
    let said = run(&on("scan", &pool, &["--tree", "accounts", "--hex"])).expect(0);
    assert!(
        said.text().starts_with("00ff\t\n615c7462\t5c\n"),
        "{said:?}"
    );
    let said = run(&on("get", &pool, &["2", "--tree", "counts"])).expect(0);
    assert_eq!(said.text(), "3\n");
    let escaped = b"put\taccounts\ta\\\\tb\t\\x5c\\n\n";
    run_with(&on("apply", &pool, &["-", "--escaped"]), escaped).expect(0);
    let said = run(&on("get", &pool, &["a\\tb", "--tree", "accounts", "--raw"])).expect(0);
    assert_eq!(said.text(), "\\\n");
    run_with(&on("apply", &pool, &["-", "--escaped", "--hex"]), b"").expect(2);
}

#[test]
fn a_script_that_is_too_large_is_refused() {
    let (folder, pool) = pool();
    sample(&pool);
    let before = content(&pool);
    let script = folder.path().join("script");
    let file = script.to_str().unwrap();
    let value = "v".repeat(1 << 20);
    let large = lines(0..20, |number| {
        format!("put\taccounts\t{number}\t{value}\n")
    });
    std::fs::write(&script, large).unwrap();
    let said = run(&on("apply", &pool, &[file])).expect(3);
    assert!(
        said.errors.contains("script, line ") && said.errors.contains("is too large, the limit is"),
        "{said:?}"
    );
    let many = lines(0..10_001, |number| format!("put\tlate\t{number}\tv\n"));
    std::fs::write(&script, many).unwrap();
    let said = run(&on("apply", &pool, &[file])).expect(3);
    assert!(said.errors.contains("script, line 10001: "), "{said:?}");
    assert_eq!(content(&pool), before);
}

#[test]
fn a_script_needs_a_pool() {
    let (_folder, pool) = pool();
    let said = run_with(&on("apply", &pool, &["--json"]), b"put\tmain\tk\tv\n").expect(3);
    assert_eq!(said.json()["kind"], json!("absent"));
    assert!(!pool.exists());
}
