//! `docs/COMMAND.md`: every answer that it shows has the shape that the command prints.

use crate::common::page::{Example, examples, expect_shapes};
use crate::common::run;

const PAGE: &str = include_str!("../../../../docs/COMMAND.md");

#[test]
fn every_answer_has_the_shape_that_the_page_shows() {
    expect_shapes(PAGE);
}

#[test]
fn every_command_is_on_the_page_with_its_answer() {
    let help = run(&["--help"]).expect(0);
    let (_, commands) = help.text().split_once("Commands:").unwrap();
    let commands = commands.split("Options:").next().unwrap().lines();
    let names: Vec<&str> = commands
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(names.len() > 18, "{names:?}");
    let examples = examples(PAGE);
    // The workbench has a page of its own.
    let elsewhere = ["help", "bench", "crash", "lab", "torture"];
    for name in names.into_iter().filter(|name| !elsewhere.contains(name)) {
        let is_shown = |example: &Example| {
            example.line.contains("--json") && example.line.contains(&format!("everleaf {name} "))
        };
        assert!(
            examples.iter().any(is_shown),
            "no answer of {name} is shown"
        );
        assert!(
            PAGE.contains(&format!("`{name}`")),
            "{name} is not explained"
        );
    }
}
