//! `docs/COMMAND.md`: every answer that it shows has the shape that the command prints.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{program, run};
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/COMMAND.md");

/// An example: the line of a shell, its exit code, and the lines that it prints on standard output.
struct Example {
    line: &'static str,
    code: i32,
    output: Vec<&'static str>,
}

fn examples() -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for block in PAGE.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            match (line.strip_prefix("$ "), examples.last_mut()) {
                (Some(line), _) => {
                    let (line, code) = line.split_once("   # exit code ").unwrap_or((line, "0"));
                    examples.push(Example {
                        line,
                        code: code.parse().unwrap(),
                        output: Vec::new(),
                    });
                }
                (None, Some(example)) => example.output.push(line),
                (None, None) => panic!("a block begins with {line}"),
            }
        }
    }
    examples
}

fn run_line(line: &str, folder: &Path) -> (i32, String) {
    let path = format!(
        "{}:{}",
        Path::new(program()).parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut shell = Command::new("sh");
    let shell = shell
        .args(["-c", line])
        .current_dir(folder)
        .env("PATH", path)
        .stdin(Stdio::null());
    let output = shell.output().unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

/// The fields of an answer and the types of their values, one path a line.
fn shape(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            found.insert(format!("{path}: object"));
            fields
                .iter()
                .for_each(|(name, value)| shape(value, &format!("{path}.{name}"), found));
        }
        Value::Array(values) => {
            found.insert(format!("{path}: array"));
            values
                .iter()
                .for_each(|value| shape(value, &format!("{path}[]"), found));
        }
        Value::String(_) => drop(found.insert(format!("{path}: string"))),
        Value::Number(_) => drop(found.insert(format!("{path}: number"))),
        Value::Bool(_) => drop(found.insert(format!("{path}: true or false"))),
        Value::Null => panic!("{path} is null"),
    }
}

fn shape_of(line: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    shape(&value, "", &mut found);
    found
}

#[test]
fn every_answer_has_the_shape_that_the_page_shows() {
    let folder = tempfile::tempdir().unwrap();
    for Example { line, code, output } in examples() {
        let (found_code, printed) = run_line(line, folder.path());
        assert_eq!(found_code, code, "{line}: {printed}");
        assert_eq!(
            printed.lines().count(),
            output.len(),
            "{line} prints {printed}"
        );
        for (printed, shown) in printed.lines().zip(output) {
            if line.contains("--json") {
                let printed_shape = shape_of(printed);
                let shown_shape = shape_of(shown);
                let differing: Vec<_> = printed_shape.symmetric_difference(&shown_shape).collect();
                assert!(
                    differing.is_empty(),
                    "{line} prints {printed}; the page differs in {differing:?}"
                );
            } else {
                assert_eq!(printed, shown, "{line}");
            }
        }
    }
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
    let examples = examples();
    for name in names.into_iter().filter(|name| *name != "help") {
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
