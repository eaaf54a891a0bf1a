//! Ctrl-C: the command reports the entries that it has stored, and leaves no file behind.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::common::children::{expect_soon, files, interrupt, start};
use crate::common::{lines, on, pool, run, run_with};
use serde_json::json;

/// Whether an unfinished file is there.
fn has_part(folder: &Path) -> bool {
    files(folder).iter().any(|name| {
        Path::new(name)
            .extension()
            .is_some_and(|extension| extension == "part")
    })
}

#[test]
fn a_load_says_what_it_stored_although_it_waits_for_input() {
    let (folder, pool) = pool();
    let mut load = start(&on("load", &pool, &["--json"]));
    let input = load.stdin.as_mut().unwrap();
    input
        .write_all(lines(0..1000, |number| format!("{number:04}\tv\n")).as_bytes())
        .unwrap();
    input.flush().unwrap();
    // The reader waits in the system for the next line.
    expect_soon(|| pool.exists());
    std::thread::sleep(Duration::from_millis(300));
    let said = interrupt(load).expect(3);
    let answer = said.json();
    assert_eq!(
        (&answer["kind"], &answer["exit_code"]),
        (&json!("interrupted"), &json!(3)),
        "{said:?}"
    );
    let stored = answer["stored"].as_u64().unwrap();
    assert!(
        said.errors.contains("interrupted; before that, "),
        "{said:?}"
    );
    assert_eq!(
        run(&on("scan", &pool, &["--keys"]))
            .expect(0)
            .text()
            .lines()
            .count() as u64,
        stored
    );
    assert_eq!(files(folder.path()), ["a.pool"], "it was closed cleanly");
}

#[test]
fn a_load_that_stored_nothing_leaves_no_pool() {
    let (folder, pool) = pool();
    let load = start(&on("load", &pool, &[]));
    expect_soon(|| pool.exists());
    std::thread::sleep(Duration::from_millis(200));
    let said = interrupt(load).expect(3);
    assert!(said.errors.contains("0 entries were stored"), "{said:?}");
    assert!(files(folder.path()).is_empty());
}

#[test]
fn a_value_that_was_awaited_is_not_stored() {
    let (folder, pool) = pool();
    let put = start(&on("put", &pool, &["k", "-"]));
    std::thread::sleep(Duration::from_millis(200));
    interrupt(put).expect(3);
    assert!(files(folder.path()).is_empty());
}

#[test]
fn a_dump_leaves_no_part() {
    let (folder, pool) = pool();
    let lines = lines(0..200_000, |number| {
        format!("{number}\t{}\n", "v".repeat(50))
    });
    run_with(&on("load", &pool, &[]), lines.as_bytes()).expect(0);
    // Its reader is slow: the dump waits for it.
    let dump = start(&on("dump", &pool, &[]));
    std::thread::sleep(Duration::from_millis(500));
    let said = interrupt(dump).expect(3);
    assert!(said.errors.contains("interrupted"), "{said:?}");
    let target = folder.path().join("all.dump");
    let dump = start(&on("dump", &pool, &[target.to_str().unwrap()]));
    expect_soon(|| has_part(folder.path()) || target.exists());
    let is_done = interrupt(dump).code == 0;
    assert_eq!(target.exists(), is_done);
    assert!(!has_part(folder.path()));
}

/// Ctrl-C during the check of the copy was once ignored, or left a copy that was not verified.
#[test]
fn a_backup_is_verified_or_not_there() {
    let (folder, pool) = pool();
    let lines = lines(0..200_000, |number| {
        format!("{number}\t{}\n", "v".repeat(50))
    });
    run_with(&on("load", &pool, &[]), lines.as_bytes()).expect(0);
    for pause_ms in [0, 20, 50, 100] {
        let target = folder.path().join("copy.pool");
        let backup = start(&on("backup", &pool, &[target.to_str().unwrap()]));
        expect_soon(|| has_part(folder.path()) || target.exists());
        std::thread::sleep(Duration::from_millis(pause_ms));
        let said = interrupt(backup);
        assert_eq!(
            (target.exists(), has_part(folder.path())),
            (said.code == 0, false),
            "{pause_ms} ms: {said:?}"
        );
        let _ = std::fs::remove_file(&target);
    }
}
