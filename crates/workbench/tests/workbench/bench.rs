//! `everleaf-workbench bench`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::common::children::{expect_soon, files, interrupt, start};
use crate::common::frames::frames;
use crate::common::{everleaf, pool, run};

#[test]
fn a_benchmark_measures_the_tree_that_it_filled() {
    for (engine, workload, medium) in [
        ("rntree", "load", "dax"),
        ("rntree", "insert", "ram"),
        ("bztree", "d", "ram"),
        ("masstree", "remove", "dax"),
        ("bztree", "find", "dax"),
        ("masstree", "find", "dax"),
    ] {
        let sizes = [
            "--keys", "8000", "--ops", "1000", "--runs", "2", "--count", "--json", "--quiet",
        ];
        let what = [
            "bench",
            "--engine",
            engine,
            "--workload",
            workload,
            "--medium",
            medium,
        ];
        let beside: &[&str] = if medium == "ram" {
            &[]
        } else {
            &["--baseline", "ram"]
        };
        let report = run(&[&what[..], &sizes, beside].concat()).expect(0).json();
        let figure = |name: &str| {
            report[name]
                .as_f64()
                .unwrap_or_else(|| panic!("{name} in {report}"))
        };
        assert!(
            figure("mops") > 0.0 && figure("find_ns") > 0.0 && figure("ratio_to_btreemap") > 0.0
        );
        assert!((16.0..400.0).contains(&figure("bytes_per_key")), "{report}");
        let writes = workload != "d" && workload != "find";
        assert!(
            engine == "masstree" || !writes || figure("persists_per_op") >= 2.0,
            "{report}"
        );
        assert!(
            workload != "find" || figure("store_over_engine") > 0.0,
            "{report}"
        );
        assert_eq!(
            report["load_mops"].is_null(),
            workload == "load",
            "{report}"
        );
        let has_ratio =
            ["ratio_to_ram", "find_ratio_to_ram"].map(|name| report[name].as_f64() > Some(0.0));
        assert_eq!(has_ratio, [medium != "ram"; 2], "{report}");
        assert_eq!(report["pages"], "huge");
    }
}

#[test]
fn a_benchmark_of_a_bulk_load_tells_how_dense_that_is() {
    // If the processor has only twin lines, they add 1.4 bytes for each key of a leaf.
    for (engine, bytes) in [("rntree", 22.0), ("bztree", 60.0), ("masstree", 90.0)] {
        let what = [
            "bench",
            "--engine",
            engine,
            "--medium",
            "dax",
            "--workload",
            "find",
            "--bulk-load",
            "1",
        ];
        let sizes = [
            "--keys", "30000", "--ops", "1000", "--runs", "1", "--json", "--quiet",
        ];
        let report = run(&[&what[..], &sizes].concat()).expect(0).json();
        assert!(report["load_mops"].as_f64().unwrap() > 0.0, "{report}");
        assert!(
            (16.0..bytes).contains(&report["bytes_per_key"].as_f64().unwrap()),
            "{report}"
        );
    }
    run(&["bench", "--bulk-load", "2"]).expect(2);
    run(&["bench", "--bulk-load", "1", "--workload", "load"]).expect(2);
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

#[test]
fn a_benchmark_that_makes_no_sense_is_wrong_use() {
    run(&["bench", "--medium", "ram", "--baseline", "ram"]).expect(2);
    let words = run(&["bench", "--key-shape", "urls"]).expect(2);
    assert!(words.errors.contains("add --records"), "{words:?}");
}

/// The example of the help, with fewer keys and in memory.
#[test]
fn a_benchmark_has_keys_of_the_shape_that_it_is_given() {
    let example = "bench --key-shape prefix --value-size 150";
    let short = " --medium ram --keys 2000 --ops 1000 --runs 1 --quiet";
    let line = format!("{example}{short}");
    let arguments: Vec<&str> = line.split(' ').collect();
    let said = run(&arguments).expect(0);
    assert!(
        said.text().contains("2,000 keys (prefix) of 30 bytes"),
        "{said:?}"
    );
    let report = run(&[&arguments[..], &["--json"]].concat())
        .expect(0)
        .json();
    assert_eq!(report["key_shape"], "prefix");
    assert_eq!(report["key_size"].as_f64(), Some(30.0));
}

#[test]
fn the_first_frame_of_a_bar_is_right() {
    let bench = [
        "bench", "--medium", "ram", "--keys", "300000", "--ops", "1000", "--runs", "1",
    ];
    let shown = frames(everleaf().args(bench));
    assert!(shown[0].contains("0 of 3 done"), "{shown:?}");
}
