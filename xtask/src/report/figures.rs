//! The figures: what the suites did, for each engine.

use std::fs;

use serde_json::Value;

use super::{Failure, json, output};

/// The command, as `cargo build` leaves it.
const EVERLEAF: &str = "target/release/everleaf";
const CODECS: [&str; 2] = ["word", "record"];
const MEDIA: [&str; 3] = ["dax", "eadr", "file"];
const HEAD: &str =
    "| engine | entries | medium | what | traces | crash points | images avoided | recoveries | violations |";

/// The engines that the command knows.
fn engines() -> Result<Vec<String>, Failure> {
    let help = output(EVERLEAF, &["crash", "--help"])?;
    // The first time the option is named is in the usage, the last where it is described.
    let option = help.split("--engine <NAME>").last().unwrap_or_default();
    let values = option.split("[possible values: ").nth(1).and_then(|rest| rest.split(']').next());
    let values = values.ok_or_else(|| Failure::Command {
        command: format!("{EVERLEAF} crash --help"),
        what: "names no engines".to_owned(),
    })?;
    Ok(values.split(", ").map(str::to_owned).collect())
}

/// The first cells of every row that there should be.
fn rows(engines: &[String]) -> Vec<(String, String, String, bool)> {
    let mut rows = Vec::new();
    for engine in engines {
        for exhaustive in [true, false] {
            for medium in MEDIA {
                for codec in CODECS {
                    rows.push((engine.clone(), codec.to_owned(), medium.to_owned(), exhaustive));
                }
            }
        }
    }
    rows
}

fn build() -> Result<(), Failure> {
    output("cargo", &["build", "--release", "--quiet", "--package", "everleaf-cli"]).map(drop)
}

/// Runs everything.
pub(super) fn measure(length: u8, ops: u32, exhibits: usize) -> Result<String, Failure> {
    build()?;
    let (length, ops) = (length.to_string(), ops.to_string());
    let mut table = format!("\n{HEAD}\n{}\n", "| --- ".repeat(HEAD.matches('|').count() - 1) + "|");
    for (engine, codec, medium, exhaustive) in rows(&engines()?) {
        let mut arguments = vec!["crash", "--engine", &engine, "--codec", &codec, "--medium", &medium];
        match exhaustive {
            true => arguments.extend(["--exhaustive", "--length", &length]),
            false => arguments.extend(["--ops", &ops, "--seed", "1"]),
        }
        arguments.extend(["--json", "--quiet"]);
        let said = json(EVERLEAF, &arguments)?;
        let what = match exhaustive {
            true => format!("all sequences of {length}"),
            false => format!("{ops} random operations"),
        };
        table += &format!("| {engine} | {codec} | {medium} | {what} ");
        for figure in ["traces", "points", "images_avoided", "recoveries", "violations"] {
            table += &format!("| {} ", count(&said[figure]));
        }
        table += "|\n";
    }
    Ok(format!(
        "{table}\nMuseum: {exhibits} exhibits, all found.\n\nMeasured on {} by `cargo xtask report`.\n\n",
        machine()
    ))
}

/// What is not as it should be in the figures of a page, their values aside.
pub(super) fn stale(figures: &str, exhibits: usize) -> Result<Vec<String>, Failure> {
    build()?;
    let mut complaints = Vec::new();
    let cells =
        |line: &str| line.split('|').skip(1).take(3).map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let found: Vec<_> = figures.lines().filter(|line| line.starts_with("| ")).skip(2).map(cells).collect();
    let wanted = rows(&engines()?).into_iter().map(|(engine, codec, medium, _)| vec![engine, codec, medium]);
    if !figures.contains(HEAD) || found != wanted.collect::<Vec<_>>() {
        complaints
            .push("the figures do not have the rows and columns that `cargo xtask report` writes".to_owned());
    }
    if !figures.contains(&format!("Museum: {exhibits} exhibits,")) {
        complaints.push(format!("the museum has {exhibits} exhibits"));
    }
    Ok(complaints)
}

/// A number with separators; one that is too large for that in powers of ten.
fn count(number: &Value) -> String {
    let number = number.as_f64().unwrap_or(f64::NAN);
    if !(0.0..1e12).contains(&number) {
        return format!("{number:.1e}");
    }
    let digits = format!("{number:.0}");
    let separator = |(index, digit): (usize, char)| {
        let comma = (index > 0 && (digits.len() - index).is_multiple_of(3)).then_some(',');
        comma.into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(separator).collect()
}

/// The processor and its cores.
fn machine() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models: Vec<&str> = cpus.lines().filter_map(|line| line.strip_prefix("model name")).collect();
    let model = models.first().and_then(|line| line.split(": ").nth(1)).unwrap_or("an unknown processor");
    format!("{model}, {} cores,", std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_readable() {
        let counts = [0.0, 12.0, 123.0, 1234.0, 1_234_567.0, 2.5e15].map(|number| count(&number.into()));
        assert_eq!(counts, ["0", "12", "123", "1,234", "1,234,567", "2.5e15"]);
    }
}
