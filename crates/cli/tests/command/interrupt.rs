//! Ctrl-C: the command reports the entries that it has stored, and leaves no file behind.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Said, everleaf, lines, on, pool, run, run_with};
use serde_json::json;

fn start<A: AsRef<std::ffi::OsStr>>(arguments: &[A]) -> Child {
    let mut command = everleaf();
    let command = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn interrupt(mut child: Child) -> Said {
    // The input is kept open: its end would end the command, too.
    let _input = child.stdin.take();
    let killed = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    Said::of(child.wait_with_output().unwrap())
}

/// Waits until `is_so`, for a while.
#[track_caller]
fn expect_soon(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it did not happen"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

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

#[test]
fn a_benchmark_removes_its_pool() {
    let (folder, pool) = pool();
    let sizes = [
        "--keys", "5000000", "--runs", "9", "--medium", "dax", "--pool",
    ];
    let bench = start(&[&["bench"], &sizes[..], &[pool.to_str().unwrap()]].concat());
    expect_soon(|| pool.exists());
    std::thread::sleep(Duration::from_millis(200));
    interrupt(bench).expect(3);
    assert!(files(folder.path()).is_empty());
}

/// The file in which the disk itself is measured once stayed behind.
#[test]
fn a_benchmark_on_a_disk_leaves_no_file() {
    let (folder, _) = pool();
    let mut command = everleaf();
    command
        .args([
            "bench", "--medium", "file", "--keys", "1000", "--ops", "1000",
        ])
        .current_dir(folder.path());
    let bench = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    expect_soon(|| {
        files(folder.path()).iter().any(|name| {
            Path::new(name)
                .extension()
                .is_some_and(|extension| extension == "disk")
        })
    });
    interrupt(bench).expect(3);
    assert!(files(folder.path()).is_empty());
}
