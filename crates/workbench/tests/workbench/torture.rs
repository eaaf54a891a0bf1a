//! `everleaf-workbench torture`.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::{everleaf, on, pool, run};
use everleaf::Store;
use serde_json::json;

/// The pool opens, and has no violation.
#[track_caller]
fn expect_sound(pool: &Path) {
    let store = Store::open(pool).unwrap();
    let violations = store.check().unwrap();
    assert!(violations.is_empty(), "{violations:?}");
}

#[test]
fn torture_finds_no_violation_and_takes_its_own_pools_again() {
    let (_folder, pool) = pool();
    let short = "--rounds 3 --seconds-per-round 0.1 --keys 2000 --medium dax --line-store twin";
    let mut arguments = on("torture", &pool, &short.split(' ').collect::<Vec<_>>());
    for _ in 0..3 {
        arguments.insert(1, "--json".into());
        let said = run(&arguments).expect(0);
        let report = said.json();
        assert_eq!(
            (&report["rounds"], &report["violations"]),
            (&json!(3), &json!(0)),
            "{said:?}"
        );
        // The replay is a command of its own, with the same choices.
        let replay = report["replay"].as_str().unwrap();
        assert!(
            replay.contains("--rounds 3 --seconds-per-round 0.1 ") && replay.contains("--seed"),
            "{replay}"
        );
        assert!(
            replay.contains(" --keys 2000 ") && replay.contains("--medium dax --line-store twin"),
            "{replay}"
        );
        arguments = shlex::split(replay)
            .unwrap()
            .into_iter()
            .skip(1)
            .map(Into::into)
            .collect();
    }
    expect_sound(&pool);
    let words = run(&on("torture", &pool, &["--rounds", "1", "--threads", "1"])).expect(0);
    assert!(words.text().contains("no violation"), "{words:?}");
}

#[test]
fn torture_has_keys_of_the_shape_that_it_is_given() {
    let (_folder, pool) = pool();
    let short = "--rounds 6 --seconds-per-round 0.1 --keys 2000 --medium file --json --key-shape";
    for more in ["prefix", "urls", "words --batches"] {
        let arguments: Vec<&str> = [short, more]
            .iter()
            .flat_map(|words| words.split(' '))
            .collect();
        let said = run(&on("torture", &pool, &arguments)).expect(0);
        let report = said.json();
        assert_eq!(report["violations"], json!(0), "{said:?}");
        let shape = more.split(' ').next().unwrap();
        let replay = report["replay"].as_str().unwrap();
        assert!(
            replay.contains(&format!(" --keys 2000 --key-shape {shape} ")),
            "{replay}"
        );
        if shape == "prefix" {
            let store = Store::open(&pool).unwrap();
            let tree = store.tree("torture records").unwrap();
            let (first, _) = tree.first().unwrap().unwrap();
            assert!(first.starts_with(b"tenant42/user/"), "{first:?}");
            drop(tree);
            store.close().unwrap();
        }
    }
}

#[test]
fn torture_knows_what_operations_promise_that_are_durable_later() {
    let (_folder, pool) = pool();
    let short = "--rounds 2 --seconds-per-round 0.1 --keys 2000 --medium file --log-bytes 256K --json --durability";
    for promise in ["sync", "5", "tickets"] {
        let arguments = [&short.split(' ').collect::<Vec<_>>()[..], &[promise]].concat();
        let said = run(&on("torture", &pool, &arguments)).expect(0);
        assert_eq!(said.json()["violations"], json!(0), "{said:?}");
        let replay = said.json()["replay"].as_str().unwrap().to_owned();
        assert!(
            replay.contains(&format!("--durability {promise} ")),
            "{replay}"
        );
    }
    let none = ["--durability", "tickets", "--engine", "masstree"];
    run(&on("torture", &pool, &none)).expect(2);
    run(&on("torture", &pool, &["--durability", "never"])).expect(2);
}

#[test]
fn torture_opens_and_closes_many_stores() {
    let (folder, pool) = pool();
    let short = "--stores 50 --rounds 4 --seconds-per-round 0.2 --keys 2000 --medium file --json";
    let arguments = on("torture", &pool, &short.split(' ').collect::<Vec<_>>());
    for _ in 0..2 {
        let said = run(&arguments).expect(0);
        let report = said.json();
        assert_eq!(report["violations"], json!(0), "{said:?}");
        assert!(report["acknowledged"].as_u64().unwrap() > 100, "{said:?}");
        let replay = report["replay"].as_str().unwrap();
        assert!(replay.contains(" --stores 50 "), "{replay}");
    }
    let files = std::fs::read_dir(folder.path()).unwrap();
    let paths = files.map(|entry| entry.unwrap().path());
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    assert_eq!(paths.filter(|path| !is_log(path)).count(), 50);
    // A sync of one store says nothing about the others.
    let later = ["--stores", "2", "--durability", "sync"];
    run(&on("torture", &pool, &later)).expect(2);
    let by_epochs = ["--stores", "2", "--engine", "masstree"];
    run(&on("torture", &pool, &by_epochs)).expect(2);
    let without_keys = ["--stores", "200", "--keys", "100"];
    run(&on("torture", &pool, &without_keys)).expect(2);
}

#[test]
fn torture_of_batches_finds_each_whole_or_not_at_all() {
    let (_folder, pool) = pool();
    let short = "--batches --rounds 4 --seconds-per-round 0.1 --keys 500 --json";
    for more in [
        "--medium dax --line-store twin",
        "--medium file --log-bytes 256K",
        "--medium file --durability tickets",
        "--medium file --durability sync --threads 2",
    ] {
        let arguments: Vec<&str> = [short, more]
            .iter()
            .flat_map(|words| words.split(' '))
            .collect();
        let said = run(&on("torture", &pool, &arguments)).expect(0);
        let report = said.json();
        assert_eq!(
            (&report["rounds"], &report["violations"]),
            (&json!(4), &json!(0)),
            "{said:?}"
        );
        assert!(report["batches"]["written"].as_u64() > Some(0), "{said:?}");
        let replay = report["replay"].as_str().unwrap();
        assert!(
            replay.contains("torture --batches --threads ") && !replay.contains("--engine"),
            "{replay}"
        );
    }
    expect_sound(&pool);
    for other in [["--engine", "bztree"], ["--trees", "2"]] {
        run(&on(
            "torture",
            &pool,
            &[&["--batches"], &other[..]].concat(),
        ))
        .expect(2);
    }
    // Its pools and those without batches replace each other.
    run(&on(
        "torture",
        &pool,
        &[
            "--rounds",
            "1",
            "--seconds-per-round",
            "0.05",
            "--keys",
            "100",
        ],
    ))
    .expect(0);
}

/// Changes a bit of every line behind the pool's header.
fn damage(pool: &Path) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(pool)
        .unwrap();
    let length = file.metadata().unwrap().len();
    for offset in ((64 << 10)..length).step_by(64) {
        let mut byte = [0];
        // A close of the pool in between gives its free tail back.
        if file.read_at(&mut byte, offset + 9).unwrap() == 0 {
            break;
        }
        file.write_all_at(&[byte[0] ^ 4], offset + 9).unwrap();
    }
}

#[test]
fn torture_reports_damage_that_its_writer_meets() {
    let (_folder, pool) = pool();
    let medium = ["--medium", "dax", "--line-store", "twin", "--keys", "2000"];
    run(&on(
        "torture",
        &pool,
        &[&["--rounds", "1"], &medium[..]].concat(),
    ))
    .expect(0);
    damage(&pool);
    let choices = ["--seed=1", "--round=1", "--threads=1", "--engine=rntree"];
    let said = run(&on(
        "torture-writer",
        &pool,
        &[&choices, &medium[..]].concat(),
    ))
    .expect(3);
    assert!(
        said.errors.contains("torture writer: ") && said.errors.contains("is damaged"),
        "{said:?}"
    );
}

#[test]
fn torture_reports_damage_that_happens_meanwhile() {
    let (_folder, pool) = pool();
    let rounds = [
        "--rounds",
        "1000",
        "--seconds-per-round",
        "0.1",
        "--keys",
        "2000",
        "--json",
    ];
    let medium = ["--medium", "dax", "--line-store", "twin"];
    let arguments = on("torture", &pool, &[&rounds[..], &medium].concat());
    let torture = std::thread::spawn(move || run(&arguments));
    std::thread::sleep(std::time::Duration::from_secs(1));
    damage(&pool);
    let said = torture.join().unwrap().expect(1);
    assert!(said.json()["violations"].as_u64().unwrap() > 0, "{said:?}");
    assert!(
        said.json()["replay"].as_str().unwrap().contains("--seed"),
        "{said:?}"
    );
}

/// Violations in the round of the Ctrl-C were once not counted, and a writer that the Ctrl-C of a
/// terminal ended counted as a violation.
#[test]
fn an_interrupted_torture_says_what_it_found_so_far() {
    for is_damaged in [false, true] {
        let (_folder, pool) = pool();
        let rounds = [
            "--rounds",
            "1000",
            "--seconds-per-round",
            "1",
            "--keys",
            "2000",
            "--json",
        ];
        let medium = ["--medium", "dax", "--line-store", "twin"];
        let mut torture = everleaf();
        torture
            .args(on("torture", &pool, &[&rounds[..], &medium].concat()))
            .process_group(0);
        let torture = torture
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_secs(2));
        if is_damaged {
            damage(&pool);
        }
        // The signal goes to the writer, too, as from a terminal.
        let group = format!("-{}", torture.id());
        assert!(
            std::process::Command::new("kill")
                .args(["-INT", "--", &group])
                .status()
                .unwrap()
                .success()
        );
        let said = crate::common::Said::of(torture.wait_with_output().unwrap());
        let answer = said.json();
        let found = answer["violations"].as_u64().unwrap();
        assert_eq!(
            (found > 0, answer["first_violations"] != json!([])),
            (is_damaged, is_damaged),
            "{said:?}"
        );
        assert!(answer["rounds"].as_u64().unwrap() > 0, "{said:?}");
        // A round that ends before the signal ends the run with its violations.
        assert!(
            said.code == 3 && answer["kind"] == "interrupted" || is_damaged && said.code == 1,
            "{said:?}"
        );
    }
}

#[test]
fn torture_leaves_other_pools_alone() {
    let (_folder, pool) = pool();
    let store = Store::open(&pool).unwrap();
    store.tree("main").unwrap().put(b"k", b"v").unwrap();
    store.close().unwrap();
    let said = run(&on("torture", &pool, &[])).expect(3);
    assert!(
        said.errors.contains("a tree \"main\"") && said.errors.contains("no torture pool"),
        "{said:?}"
    );
    let store = Store::open(&pool).unwrap();
    assert!(store.tree("main").unwrap().contains(b"k").unwrap());
}

#[test]
fn torture_refuses_what_it_cannot_run() {
    let (folder, pool) = pool();
    run(&on("torture", &pool, &["--rounds", "0"])).expect(2);
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "dear diary").unwrap();
    let said = run(&on("torture", &text, &[])).expect(3);
    assert!(
        said.errors.contains("notes.txt") && said.errors.contains("not an Everleaf pool"),
        "{said:?}"
    );
    assert_eq!(std::fs::read_to_string(&text).unwrap(), "dear diary");
}
