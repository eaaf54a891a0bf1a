//! `everleaf lab`: every figure, small.

use crate::common::{run, run_in_shell};
use serde_json::Value;

const SMALL: [&str; 9] = [
    "--json",
    "--keys",
    "3000",
    "--ops",
    "2000",
    "--threads",
    "1,2",
    "--runs",
    "1",
];

/// All lines of JSON that a run prints.
fn figures(system: &str, more: &[&str]) -> Vec<Value> {
    let said = run(&[&["lab", system], &SMALL[..], more].concat()).expect(0);
    said.text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[track_caller]
fn expect_sound(figure: &Value) {
    let points = figure["points"].as_array().unwrap();
    assert!(!points.is_empty(), "{figure}");
    for point in points {
        // A difference in percent may be negative.
        let is_any = figure["y"] == "percent";
        assert!(
            point["y"].as_f64().is_some_and(|y| y >= 0.0 || is_any),
            "{point}"
        );
    }
    for claim in figure["claims"].as_array().unwrap() {
        assert!(!claim["ours"].as_str().unwrap().contains("NaN"), "{claim}");
    }
}

#[test]
fn all_figures_of_bztree() {
    let figures = figures("bztree", &[]);
    let numbers: Vec<_> = figures
        .iter()
        .map(|figure| figure["figure"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [4, 5, 6, 7, 8, 9, 1, 0, 2]);
    // Of table 2 the smallest tree is larger than this one.
    figures[..7]
        .iter()
        .chain(&figures[8..])
        .for_each(expect_sound);
    let claims = figures[0]["claims"].as_array().unwrap();
    let failed = claims
        .iter()
        .filter(|claim| claim["what"].as_str().unwrap().starts_with("PMwCAS failed"));
    assert_eq!(
        failed.count(),
        6,
        "by curve with writes and number of threads"
    );
    let points = figures[4]["points"].as_array().unwrap();
    let free = points
        .iter()
        .filter(|point| point["panel"].as_str().unwrap().starts_with("free space"));
    assert_eq!(free.count(), 10, "two mixes, five sizes");
    let parts: f64 = figures[5]["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| point["y"].as_f64().unwrap())
        .sum();
    assert!(
        (parts - 400.0).abs() < 1.0,
        "four runs of 100% each: {}",
        figures[5]
    );
    let words = figures[6]["points"].as_array().unwrap().iter();
    let words: Vec<_> = words
        .map(|point| {
            (
                point["series"].as_str().unwrap(),
                point["y"].as_f64().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("insert", 2.0),
        ("remove", 2.0),
        ("update", 3.0),
        ("consolidation", 3.0),
        ("split", 4.0),
        ("merge", 5.0),
    ];
    assert_eq!(words, expected);
}

#[test]
fn figures_of_incll_and_their_drawings() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("figure.svg");
    for number in ["2", "3", "4", "5", "6", "7", "8"] {
        let figures = figures(
            "incll",
            &["--figure", number, "--plot", plot.to_str().unwrap()],
        );
        assert_eq!(figures.len(), 1);
        expect_sound(&figures[0]);
        assert!(
            !figures[0]["claims"].as_array().unwrap().is_empty(),
            "{}",
            figures[0]
        );
        assert!(std::fs::read_to_string(&plot).unwrap().contains("<svg"));
        std::fs::remove_file(&plot).unwrap();
    }
}

#[test]
fn what_the_text_of_incll_measures() {
    let ends = figures("incll", &["--figure", "0"]);
    let recoveries = figures("incll", &["--figure", "9"]);
    ends.iter().chain(&recoveries).for_each(expect_sound);
    let restored = |point: &&Value| point["panel"] == "nodes put back";
    let restored: Vec<_> = recoveries[0]["points"]
        .as_array()
        .unwrap()
        .iter()
        .filter(restored)
        .collect();
    assert!(
        !restored.is_empty() && restored.iter().all(|point| point["y"].as_f64() > Some(0.0)),
        "{restored:?}"
    );
}

#[test]
fn figures_of_cawbt_and_their_drawings() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("figure.svg");
    for number in [1, 7, 8, 9, 10, 11, 12] {
        let number_text = number.to_string();
        let arguments = [
            "lab",
            "cawbt",
            "--json",
            "--scale",
            "small",
            "--runs",
            "1",
            "--figure",
            &number_text,
        ];
        let figure = run(&[&arguments[..], &["--plot", plot.to_str().unwrap()]].concat())
            .expect(0)
            .json();
        assert_eq!(figure["figure"], number);
        expect_sound(&figure);
        assert!(!figure["claims"].as_array().unwrap().is_empty(), "{figure}");
        assert!(std::fs::read_to_string(&plot).unwrap().contains("<svg"));
        std::fs::remove_file(&plot).unwrap();
    }
}

#[test]
fn what_is_not_there_is_said() {
    let said = run(&["lab", "bztree", "--figure", "3"]).expect(2);
    assert!(said.errors.contains("figure 3"), "{said:?}");
    for number in ["99", "300"] {
        let said = run(&["lab", "cawbt", "--figure", number]).expect(2);
        let text = format!("cawbt has no figure {number} here; give one of 1, 7, 8, 9, 10, 11, 12");
        assert!(said.errors.contains(&text), "{said:?}");
    }
    let said = run(&["lab", "cawbt", "--keys", "3000"]).expect(2);
    assert!(
        said.errors.contains("--scale in place of --keys"),
        "{said:?}"
    );
    let said = run(&["lab", "incll", "--scale", "small"]).expect(2);
    assert!(said.errors.contains("give --keys"), "{said:?}");
    // An engine without figures is answered with what there is for it.
    let said = run(&["lab", "rntree"]).expect(2);
    let names_figures = said.errors.contains("only those of bztree, incll, cawbt");
    let names_bench = said.errors.contains("`everleaf bench --engine rntree`");
    assert!(names_figures && names_bench, "{said:?}");
    let said = run(&["lab", "masstree", "--json"]).expect(2);
    assert!(said.errors.contains("`everleaf lab incll`"), "{said:?}");
    assert_eq!(said.json()["kind"], "usage");
    let said = run(&["lab", "none"]).expect(2);
    assert!(
        said.errors
            .contains("possible values: bztree, incll, cawbt"),
        "{said:?}"
    );
}

/// Hours of measurement are not thrown away for a folder that is not there.
#[test]
fn a_drawing_that_cannot_be_written_fails_before_anything_is_measured() {
    let start = std::time::Instant::now();
    let said = run(&[
        "lab",
        "incll",
        "--plot",
        "/no/such/folder/all.svg",
        "--keys",
        "20000000",
    ])
    .expect(3);
    assert!(
        said.errors.contains("create /no/such/folder/all-2.svg"),
        "{said:?}"
    );
    let said = run(&["lab", "cawbt", "--figure", "9", "--plot", "nine.png"]).expect(2);
    assert!(
        said.errors.contains("as SVG") && said.errors.contains("not .png"),
        "{said:?}"
    );
    // A file that exists is not replaced without --force.
    let taken = tempfile::NamedTempFile::with_suffix(".svg").unwrap();
    let path = taken.path().to_str().unwrap();
    let said = run(&["lab", "cawbt", "--figure", "9", "--plot", path]).expect(3);
    assert!(said.errors.contains("give --force"), "{said:?}");
    // No file may be longer than 64 KiB, as on a disk that is almost full.
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("all.svg");
    let script = format!(
        "ulimit -f 64; exec \"$0\" lab incll --keys 20000000 --plot {}",
        plot.display()
    );
    let said = run_in_shell(&script).expect(3);
    assert!(
        said.errors.contains("write ") && said.errors.contains("all-2.svg"),
        "{said:?}"
    );
    assert!(start.elapsed().as_secs() < 5, "it did not measure");
}

#[test]
fn each_figure_is_drawn_into_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("all.svg");
    let drawn = figures("bztree", &["--plot", plot.to_str().unwrap()]);
    for figure in drawn {
        if figure["points"].as_array().unwrap().is_empty() {
            continue;
        }
        let path = folder.path().join(format!("all-{}.svg", figure["figure"]));
        let svg = std::fs::read_to_string(&path).unwrap();
        // The setup is named, and threads are whole numbers.
        assert!(
            svg.contains(if figure["x"] == "keys" {
                " core"
            } else {
                "3,000 keys; "
            }),
            "{svg}"
        );
        if figure["x"] == "threads" {
            assert!(svg.contains("3,000 keys; 1, 2 threads"), "{svg}");
            let labels: Vec<&str> = svg.lines().map(str::trim).collect();
            assert!(labels.contains(&"1") && labels.contains(&"2"), "{svg}");
        }
    }
}
