//! `everleaf crash`: counts, exit codes, and a report whose command repeats it.

use std::process::Stdio;
use std::time::Duration;

use crate::common::{everleaf, run};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

fn crash(more: &[&str], code: i32) -> Value {
    run(&[&["crash", "--engine", "rntree", "--json"], more].concat())
        .expect(code)
        .json()
}

/// The arguments of a command that a report names, taken apart as a shell does it; with `--json` at
/// the end.
fn arguments_of(replay: &str) -> Vec<String> {
    let mut arguments = shlex::split(replay).unwrap();
    arguments.remove(0);
    arguments.push("--json".to_owned());
    arguments
}

/// The place of the first fence of an insertion, which makes an entry durable before it is
/// published.
fn a_fence() -> String {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../engines/src/rntree/insert.rs"
    );
    let source = std::fs::read_to_string(file).unwrap();
    let line = source
        .lines()
        .position(|line| line.contains("guard.fence()"))
        .unwrap()
        + 1;
    format!("rntree/insert.rs:{line}")
}

#[test]
fn small_scopes_are_exhausted_without_a_violation() {
    for codec in ["word", "record"] {
        let report = crash(&["--exhaustive", "--length", "2", "--codec", codec], 0);
        assert_eq!(
            (
                &report["violations"],
                &report["scope"],
                &report["leaf_entries"]
            ),
            (&json!(0), &json!("all_sequences"), &json!(4)),
            "{report}"
        );
        // Four seed trees, twelve choices, twice.
        assert_eq!(
            (&report["traces"], &report["cut_short"]),
            (&json!(4 * 12 * 12), &json!(0))
        );
        for figure in ["points", "recoveries", "second_points", "images_avoided"] {
            assert!(
                report[figure].as_f64().unwrap() > 500.0,
                "{figure}: {report}"
            );
        }
    }
}

#[test]
fn a_random_sequence_is_that_of_its_seed() {
    let run = |seed| crash(&["--ops", "150", "--seed", seed], 0);
    let one = run("7");
    let again = run("7");
    let other = run("8");
    let figures = |report: &Value| ["points", "recoveries"].map(|figure| report[figure].clone());
    assert_eq!(
        (figures(&one), &one["leaf_entries"]),
        (figures(&again), &json!(56))
    );
    assert_ne!(figures(&one), figures(&other));
    assert!(
        one["command"]
            .as_str()
            .unwrap()
            .ends_with("--ops 150 --seed 7"),
        "{one}"
    );
}

#[test]
fn every_medium_and_form_of_lines_is_explored() {
    for medium in ["dax", "eadr", "file"] {
        for lines in ["single", "twin"] {
            let report = crash(
                &[
                    "--ops", "100", "--seed", "1", "--medium", medium, "--lines", lines,
                ],
                0,
            );
            assert_eq!(
                (&report["medium"], &report["violations"]),
                (&json!(medium), &json!(0))
            );
            assert!(report["points"].as_u64().unwrap() > 80, "{report}");
        }
    }
}

#[test]
fn a_violation_is_told_and_its_command_repeats_it() {
    let fence = a_fence();
    for scope in [
        &["--exhaustive", "--length", "1"][..],
        &["--ops", "200", "--seed", "5"],
    ] {
        let report = crash(&[scope, &["--leave-out", &fence]].concat(), 1);
        let violation = &report["first_violations"][0];
        assert_eq!(report["violations"], json!(1), "{report}");
        assert_eq!(
            violation["operations"].as_array().unwrap().len(),
            1,
            "shortest: {violation}"
        );
        let crashes = violation["crashes"].as_array().unwrap();
        assert!(
            crashes[0]["point"]
                .as_str()
                .unwrap()
                .contains("rntree/insert.rs:"),
            "{violation}"
        );
        assert!(
            !crashes[0]["behind"].as_array().unwrap().is_empty(),
            "{violation}"
        );
        let replay = violation["replay"].as_str().unwrap();
        let arguments = arguments_of(replay);
        let repeated = run(&arguments).expect(1).json();
        assert_eq!(
            (&repeated["first_violations"][0], &repeated["recoveries"]),
            (violation, &json!(1)),
            "{replay}"
        );
        let words = run(&arguments[..arguments.len() - 1]).expect(1);
        for part in [
            "one crash, repeated",
            "VIOLATION",
            "without the fence",
            "is behind",
            replay,
        ] {
            assert!(words.text().contains(part), "{part}: {words:?}");
        }
        // Without the fault the same crash causes no violation.
        let mended: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mended: Vec<&str> = mended
            .into_iter()
            .filter(|word| *word != "--leave-out" && *word != fence)
            .collect();
        assert_eq!(run(&mended).expect(0).json()["violations"], json!(0));
    }
}

#[test]
fn every_engine_is_explored_by_one_thread_and_by_two() {
    for engine in [
        "bztree",
        "masstree",
        "wbtree",
        "wbtree-bitmap-only",
        "wbtree-slot-only",
        "cawbt",
    ] {
        for codec in ["word", "record"] {
            let always = ["crash", "--json", "--engine", engine, "--codec", codec];
            for scope in [
                &["--exhaustive", "--length", "1"][..],
                &["--ops", "60", "--seed", "1"],
            ] {
                let report = run(&[&always, scope].concat()).expect(0).json();
                assert_eq!(
                    (&report["engine"], &report["violations"]),
                    (&json!(engine), &json!(0))
                );
                assert!(report["points"].as_u64().unwrap() > 40, "{report}");
            }
        }
    }
    for engine in ["rntree", "bztree", "masstree"] {
        let arguments = [
            "crash",
            "--json",
            "--engine",
            engine,
            "--threads",
            "2",
            "--ops",
            "48",
            "--seed",
            "3",
        ];
        let report = run(&arguments).expect(0).json();
        assert_eq!(
            (&report["scope"], &report["violations"]),
            (&json!("random_schedules"), &json!(0))
        );
        assert_eq!(
            (&report["schedules"], &report["seed"]),
            (&json!(2 * 12), &json!(3)),
            "{report}"
        );
    }
}

#[test]
fn every_schedule_of_pairs_is_explored() {
    let report = crash(
        &[
            "--exhaustive",
            "--threads",
            "2",
            "--preemptions",
            "0",
            "--codec",
            "word",
        ],
        0,
    );
    assert_eq!(
        (&report["violations"], &report["scope"], &report["threads"]),
        (&json!(0), &json!("all_schedules"), &json!(2)),
        "{report}"
    );
    // On four seed trees, eleven choices make 66 pairs, of which 15 only read; either thread may
    // begin.
    assert!(
        report["schedules"].as_u64().unwrap() >= 2 * 4 * (66 - 15),
        "{report}"
    );
}

#[test]
fn a_violation_of_threads_is_told_and_its_command_repeats_it() {
    let fence = a_fence();
    for scope in [
        &["--exhaustive", "--threads", "2", "--preemptions", "1"][..],
        &["--threads", "3", "--seed", "1"],
    ] {
        let report = crash(&[scope, &["--leave-out", &fence]].concat(), 1);
        let violation = &report["first_violations"][0];
        assert!(
            !violation["threads"].as_array().unwrap().is_empty(),
            "{violation}"
        );
        let replay = violation["replay"].as_str().unwrap();
        let arguments = arguments_of(replay);
        let repeated = run(&arguments).expect(1).json();
        for part in ["what", "threads", "crashes"] {
            assert_eq!(
                repeated["first_violations"][0][part], violation[part],
                "{part}: {replay}"
            );
        }
        assert_eq!(
            (&repeated["schedules"], &repeated["recoveries"]),
            (&json!(1), &json!(1)),
            "{repeated}"
        );
        let words = run(&arguments[..arguments.len() - 1]).expect(1);
        for part in ["VIOLATION", "without the fence", "begins", "is behind"] {
            assert!(words.text().contains(part), "{part}: {words:?}");
        }
    }
}

/// The processes that a process has started.
fn children(parent: u32) -> Vec<Pid> {
    let stat = |entry: std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // After the name, which is in parentheses: the state, and the parent.
        let mut fields = text.rsplit_once(") ")?.1.split(' ').skip(1);
        let is_child = fields.next()?.parse() == Ok(parent);
        if !is_child {
            return None;
        }
        Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(stat)
        .collect()
}

/// The report of an exploration whose process is killed after this time.
fn report_of_a_death(after: Duration) -> Value {
    let arguments = [
        "crash",
        "--engine",
        "rntree",
        "--exhaustive",
        "--length",
        "5",
        "--json",
    ];
    let mut command = everleaf();
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let parent = command.spawn().unwrap();
    let child = loop {
        std::thread::sleep(Duration::from_millis(50));
        if let Some(child) = children(parent.id()).pop() {
            break child;
        }
    };
    std::thread::sleep(after);
    kill_process(child, Signal::ABORT).unwrap();
    let output = parent.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), &report["violations"]),
        (Some(1), &json!(1)),
        "{report}"
    );
    assert!(
        report["first_violations"][0]["what"]
            .as_str()
            .unwrap()
            .contains("died of signal 6"),
        "{report}"
    );
    report
}

/// A process without progress, or one that died, stands for a recovery that loops, or aborts.
#[test]
fn an_exploration_that_does_not_come_to_its_end_is_a_violation() {
    // The explorer's tests watch one that loops. This one is only stopped, so the watchdog waits
    // for it.
    let replay = (0..20).find_map(|number| {
        let report = report_of_a_death(Duration::from_millis(1000 + 7 * number));
        // Between two sequences nothing is tried: then the report names the whole command.
        let replay = report["first_violations"][0]["replay"].as_str().unwrap();
        assert!(
            replay.starts_with("everleaf crash --engine rntree"),
            "{report}"
        );
        replay.contains("--replay").then(|| replay.to_owned())
    });
    // The attempt of that moment causes no violation by itself.
    let arguments = arguments_of(&replay.expect("a death while something is tried"));
    assert_eq!(run(&arguments).expect(0).json()["violations"], json!(0));
}

#[test]
fn wrong_use_has_exit_code_2() {
    for arguments in [
        &[][..],
        &["--engine", "no-such-engine"],
        &["--engine", "rntree", "--medium", "tape"],
        &["--engine", "rntree", "--ops", "0"],
        &["--engine", "rntree", "--ops", "20001"],
        &["--engine", "rntree", "--length", "2"],
        &["--engine", "rntree", "--threads", "1"],
        &["--engine", "rntree", "--threads", "4", "--exhaustive"],
        &["--engine", "rntree", "--threads", "2", "--preemptions", "1"],
        &["--engine", "rntree", "--minutes", "1"],
        &["--engine", "rntree", "--long", "--exhaustive"],
        &["--engine", "rntree", "--replay", ",,g1,g1@0>1@"],
        &["--engine", "rntree", "--exhaustive", "--seed", "1"],
        &["--engine", "rntree", "--replay", "i1=1@x"],
        &["--engine", "rntree", "--leave-out", "insert.rs"],
        &[
            "--engine",
            "rntree",
            "--ops",
            "10",
            "--leave-out",
            "insert.rs:1",
        ],
    ] {
        run(&[&["crash"], arguments].concat()).expect(2);
    }
}
