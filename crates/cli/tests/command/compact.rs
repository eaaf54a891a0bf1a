//! `everleaf compact`.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use crate::common::{everleaf, lines, on, pool, run, run_with};

const ENTRIES: u32 = 20_000;
const ENGINES: [&str; 5] = ["rntree", "bztree", "masstree", "wbtree", "cawbt"];

fn line(number: u32) -> String {
    format!("key{number:06}\t{}\n", "v".repeat(100))
}

fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn dump(pool: &Path) -> String {
    run(&on("dump", pool, &[])).expect(0).text().to_owned()
}

/// A pool with a tree of each engine, of which most entries were removed.
fn fill(pool: &Path, medium: &str) {
    for engine in ENGINES {
        let kind = ["--tree", engine, "--engine", engine, "--medium", medium];
        run_with(&on("load", pool, &kind), lines(0..ENTRIES, line).as_bytes()).expect(0);
        run(&on(
            "rm",
            pool,
            &["--tree", engine, "--from", "key001000", "--medium", medium],
        ))
        .expect(0);
    }
    let words = [
        "1", "7", "--tree", "words", "--codec", "word", "--medium", medium,
    ];
    run(&on("put", pool, &words)).expect(0);
}

#[test]
fn a_pool_is_written_anew() {
    for medium in ["file", "dax"] {
        let (folder, pool) = pool();
        fill(&pool, medium);
        let before = dump(&pool);
        let mode = std::fs::metadata(&pool).unwrap().permissions();
        let report = run(&on("compact", &pool, &["--json", "--medium", medium]))
            .expect(0)
            .json();
        assert_eq!(
            (report["trees"].as_u64(), report["entries"].as_u64()),
            (Some(6), Some(5_001))
        );
        let old = report["bytes_before"].as_u64().unwrap();
        let new = report["bytes"].as_u64().unwrap();
        assert!(new < old, "{report}");
        assert_eq!(
            names(folder.path()),
            [pool.file_name().unwrap().to_str().unwrap()]
        );
        assert_eq!(std::fs::metadata(&pool).unwrap().permissions(), mode);
        assert_eq!(dump(&pool), before);
        run(&on("check", &pool, &[])).expect(0);
        let said = run(&on("compact", &pool, &["--medium", medium]))
            .expect(0)
            .text()
            .to_owned();
        assert!(said.contains("5,001 entries in 6 trees"), "{said}");
    }
}

/// The size after `compact` once included the reserve, which a pool on `dax` does not have.
#[test]
fn a_pool_takes_no_more_room_after_it_than_before() {
    let (_folder, pool) = pool();
    run(&on("put", &pool, &["k", "v", "--medium", "dax"])).expect(0);
    let report = run(&on("compact", &pool, &["--json", "--medium", "file"]))
        .expect(0)
        .json();
    let before = report["bytes_before"].as_u64().unwrap();
    let after = report["bytes"].as_u64().unwrap();
    assert!(after > 0 && after <= before, "{report}");
}

/// The files of a run that was killed once stayed for ever.
#[test]
fn files_of_a_run_that_was_killed_are_removed_by_the_next() {
    let (folder, pool) = pool();
    run(&on("put", &pool, &["k", "v"])).expect(0);
    let name = pool.file_name().unwrap().to_str().unwrap().to_owned();
    let kept = format!(".{name}.notes.part");
    for left in [
        format!(".{name}.aB3dE6.part"),
        format!(".{name}.aB3dE6.part.log"),
        kept.clone(),
    ] {
        std::fs::write(folder.path().join(left), "x").unwrap();
    }
    let said = run(&on("compact", &pool, &[])).expect(0);
    assert!(said.errors.contains("removed 2 files"), "{said:?}");
    let mut left = names(folder.path());
    left.sort();
    assert_eq!(left, [kept, name]);
}

#[test]
fn what_fails_changes_nothing() {
    let (folder, pool) = pool();
    run(&on("compact", &pool, &[])).expect(3);
    assert!(names(folder.path()).is_empty());
    run(&on("put", &pool, &["k", "the value"])).expect(0);
    let mut bytes = std::fs::read(&pool).unwrap();
    let value = bytes
        .windows(9)
        .position(|window| window == b"the value")
        .unwrap();
    bytes[value] ^= 4;
    std::fs::write(&pool, &bytes).unwrap();
    let refused = run(&on("compact", &pool, &[])).expect(3);
    assert!(refused.errors.contains("damaged"), "{refused:?}");
    assert_eq!(names(folder.path()).len(), 1);
}

#[test]
fn an_interrupted_one_leaves_no_file() {
    let (folder, pool) = pool();
    fill(&pool, "file");
    let before = dump(&pool);
    for pause_ms in [0, 5, 20, 50, 100, 200] {
        let mut child = everleaf()
            .args(on("compact", &pool, &["--medium", "file"]))
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(pause_ms));
        let id = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::INT);
        let mut errors = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut errors)
            .unwrap();
        let _ = child.wait().unwrap();
        assert!(
            names(folder.path())
                .iter()
                .all(|name| !name.contains(".part")),
            "after {pause_ms} ms: {:?}, {errors}",
            names(folder.path())
        );
        assert_eq!(dump(&pool), before);
    }
}
