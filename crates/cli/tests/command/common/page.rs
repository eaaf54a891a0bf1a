//! The examples of a page of the docs: every answer that it shows has the shape that the command prints.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::program;

/// An example: the line of a shell, its exit code, and the lines that it prints on standard output.
pub(crate) struct Example {
    pub(crate) line: &'static str,
    code: i32,
    output: Vec<&'static str>,
}

/// The examples of a page.
pub(crate) fn examples(page: &'static str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for block in page.split("```console\n").skip(1) {
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

/// Runs every example of a page, and compares the answers.
pub(crate) fn expect_shapes(page: &'static str) {
    let folder = tempfile::tempdir().unwrap();
    for Example { line, code, output } in examples(page) {
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
