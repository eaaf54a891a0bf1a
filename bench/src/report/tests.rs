use super::*;
use crate::entries::EntryShape;
use crate::metric::{PeerWorkload, Unit};
use crate::peers::ALL;
use crate::turns::RunFigure;

fn plan() -> Plan {
    Plan {
        shape: EntryShape {
            entries: 1000,
            key_shape: KeyShape::Random,
            key_bytes: None,
            value_bytes: 150,
        },
        seconds: 1.0,
        idle: 1.0,
        workload: vec![PeerWorkload::Get],
    }
}

/// Gets a second of our default engine and of LMDB.
fn results(key_shape: KeyShape, ours: f64, theirs: f64) -> Results {
    let mut samples = Vec::new();
    for metric in plan().metrics() {
        for (store, value) in [("rntree", ours), ("lmdb", theirs)] {
            samples.push(RunFigure {
                store,
                key_shape,
                run: 1,
                metric: metric.name.to_owned(),
                value,
                unit: Unit::PerSecond,
            });
        }
    }
    Results {
        key_shape,
        samples,
        failed: Vec::new(),
    }
}

fn page(results: &[Results]) -> String {
    let kinds: Vec<_> = ALL
        .iter()
        .filter(|kind| ["rntree", "lmdb"].contains(&kind.name))
        .collect();
    let machine = MachineDescription {
        processor: "a processor".to_owned(),
        cores: 2,
        memory_gib: 8.0,
        kernel: "6".to_owned(),
        filesystem: "ext4".to_owned(),
        load: 0.0,
        sync_us: 100.0,
    };
    let page = Page {
        results,
        plan: &plan(),
        kinds: &kinds,
        runs: 1,
        machine: &machine,
    };
    page.text()
}

/// The headings of a page.
fn headings(page: &str) -> Vec<&str> {
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    headings.collect()
}

#[test]
fn a_page_of_random_keys_does_not_speak_of_shapes() {
    let page = page(&[results(KeyShape::Random, 2e6, 1e6)]);
    let expected = [
        "Where Everleaf loses",
        "All figures",
        "How it is measured",
        "Settings and versions",
    ];
    assert_eq!(headings(&page), expected);
    assert!(page.contains("1,000 entries with keys of 24 bytes and random values of 150 bytes"));
    assert!(!page.contains("random keys"), "{page}");
    assert!(page.contains("--runs 1 --key-shape=random --entries=1000"));
}

#[test]
fn a_page_of_several_shapes_has_the_losses_of_each_first() {
    let prefix = results(KeyShape::Prefix, 1e6, 3e6);
    let page = page(&[
        results(KeyShape::Random, 2e6, 1e6),
        prefix,
        results(KeyShape::Time, 1e6, 1e6),
    ]);
    let expected = [
        "Where Everleaf loses: random keys",
        "Where Everleaf loses: prefix keys",
        "Where Everleaf loses: time keys",
        "All figures: random keys",
        "All figures: prefix keys",
        "All figures: time keys",
        "How it is measured",
        "Settings and versions",
    ];
    assert_eq!(headings(&page), expected);
    let part = |heading: &str| {
        let (_, behind) = page.split_once(&format!("## {heading}\n")).unwrap();
        behind.split("\n## ").next().unwrap().to_owned()
    };
    assert!(part("Where Everleaf loses: random keys").contains("it loses 0 of 2 figures"));
    let losses = part("Where Everleaf loses: prefix keys");
    assert!(losses.contains("it loses 2 of 2 figures"), "{losses}");
    assert!(losses.contains("`lmdb` is 3.00 times better"), "{losses}");
    assert!(part("All figures: prefix keys").contains("| 1.00 M/s | **3.00 M/s** |"));
    assert!(part("All figures: random keys").contains("| **2.00 M/s** | 1.00 M/s |"));
    assert!(page.contains("--key-shape=random,prefix,time "), "{page}");
    assert!(
        page.contains("| 30 |") && page.contains("`tenant42/user/"),
        "{page}"
    );
    assert!(page.contains("those of the shape `time` are loaded in ascending order"));
}

#[test]
fn a_store_that_fails_with_some_keys_is_left_out_there_alone() {
    let mut failed = results(KeyShape::Words, 1e6, 1e6);
    failed.samples.retain(|sample| sample.store != "lmdb");
    failed.failed.push(("lmdb", "out of room".to_owned()));
    let page = page(&[results(KeyShape::Random, 2e6, 1e6), failed]);
    assert!(page.contains("**`lmdb` failed with words keys and is left out:** out of room"));
    let figures = |shape: &str| {
        let (_, behind) = page
            .split_once(&format!("## All figures: {shape} keys"))
            .unwrap();
        behind.split("\n## ").next().unwrap().contains("lmdb")
    };
    assert!(figures("random") && !figures("words"));
}
