//! The figures: what the suites did, for each engine.

use std::fs;

use serde_json::Value;

use super::{Failure, json, output};

/// The command, as `cargo build` leaves it.
const EVERLEAF: &str = "target/release/everleaf";
/// Where the command names the engines.
const ENGINES: &str = "crates/cli/src/commands/crash/engine.rs";
/// The engines whose sequences stand in the page; those of the others take long, and are to follow.
const MEASURED: [&str; 1] = ["rntree"];
const CODECS: [&str; 2] = ["word", "record"];
const MEDIA: [&str; 3] = ["dax", "eadr", "file"];
/// The tables, by their heads; and how many cells of a row say what it is about.
const SEQUENCES: Table = Table {
    head: "| engine | entries | medium | what | traces | crash points | images avoided | recoveries | violations |",
    keys: 4,
};
const THREADS: Table = Table {
    head: "| engine | entries | threads | what | schedules | crash points | recoveries | violations |",
    keys: 4,
};
/// How much is explored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Operations of each sequence in small scopes.
    pub(super) length: u8,
    /// Operations of random sequences.
    pub(super) ops: u32,
    /// Preemptions of pairs of threads.
    pub(super) preemptions: u32,
}

/// A table of the page.
struct Table {
    head: &'static str,
    keys: usize,
}

/// What a row is about, and how its figures are found.
struct Row {
    keys: Vec<String>,
    arguments: Vec<String>,
}

impl Table {
    /// The table with a row for each of `rows`, and the figures that `measure` finds for it.
    fn measure(
        &self,
        rows: &[Row],
        measure: impl Fn(&Row) -> Result<Vec<String>, Failure>,
    ) -> Result<String, Failure> {
        let mut table = format!("{}\n{}|\n", self.head, "| --- ".repeat(self.head.matches('|').count() - 1));
        for row in rows {
            let cells = [row.keys.clone(), measure(row)?].concat();
            table += &format!("| {} |\n", cells.join(" | "));
        }
        Ok(table + "\n")
    }

    /// Whether it stands in the page with these rows, their figures aside.
    fn is_in(&self, page: &str, rows: &[Row]) -> bool {
        let Some((_, rest)) = page.split_once(self.head) else { return false };
        let keys = |line: &str| -> Vec<String> {
            line.split('|').skip(1).take(self.keys).map(|cell| cell.trim().to_owned()).collect()
        };
        let found = rest.lines().skip(2).take_while(|line| line.starts_with('|')).map(keys);
        found.eq(rows.iter().map(|row| row.keys.clone()))
    }
}

/// The engines that the command knows, as its source names them.
fn engines() -> Result<Vec<String>, Failure> {
    let path = super::root().join(ENGINES);
    let file = syn::parse_file(&super::read(&path)?)
        .map_err(|source| Failure::Rust { path: path.clone(), source })?;
    let variants = file.items.iter().find_map(|item| match item {
        syn::Item::Enum(names) if names.ident == "EngineName" => Some(&names.variants),
        _ => None,
    });
    let variants = variants.ok_or(Failure::NoEngines { path })?;
    Ok(variants.iter().map(|variant| variant.ident.to_string().to_lowercase()).collect())
}

fn row<const N: usize>(keys: [&str; N], options: &[&str]) -> Row {
    let always = ["crash", "--json", "--quiet", "--engine", keys[0], "--codec", keys[1]];
    let arguments = always.iter().chain(options).map(|text| (*text).to_owned()).collect();
    Row { keys: keys.map(str::to_owned).to_vec(), arguments }
}

/// One thread: small scopes, and random sequences at full size.
fn sequences(engines: &[String], Extent { length, ops, .. }: Extent) -> Vec<Row> {
    let (length, ops) = (length.to_string(), ops.to_string());
    let small = (format!("all sequences of {length}"), ["--exhaustive", "--length", &length, "--jobs", "2"]);
    let large = (format!("{ops} random operations"), ["--ops", &ops, "--seed", "1", "--jobs=2"]);
    let mut rows = Vec::new();
    for engine in engines.iter().filter(|engine| MEASURED.contains(&engine.as_str())) {
        for (what, options) in [&small, &large] {
            for medium in MEDIA {
                for codec in CODECS {
                    let options = [&options[..], &["--medium", medium]].concat();
                    rows.push(row([engine, codec, medium, what], &options));
                }
            }
        }
    }
    rows
}

/// Two threads: all pairs of operations.
fn threads(engines: &[String], Extent { preemptions, .. }: Extent) -> Vec<Row> {
    let preemptions = preemptions.to_string();
    let what = format!("all pairs, {preemptions} preemption");
    let options = ["--exhaustive", "--threads=2", "--preemptions", &preemptions];
    let of_engine = |engine| CODECS.map(|codec| row([engine, codec, "2", &what], &options));
    engines.iter().flat_map(|engine: &String| of_engine(engine)).collect()
}

fn build() -> Result<(), Failure> {
    output("cargo", &["build", "--release", "--quiet", "--package", "everleaf-cli"]).map(drop)
}

/// What a command says about some figures, as cells.
fn cells(program: &str, row: &Row, figures: &[&str]) -> Result<Vec<String>, Failure> {
    let arguments: Vec<&str> = row.arguments.iter().map(String::as_str).collect();
    let said = json(program, &arguments)?;
    Ok(figures.iter().map(|figure| count(&said[figure])).collect())
}

/// Runs everything.
pub(super) fn measure(extent: Extent, exhibits: usize) -> Result<String, Failure> {
    build()?;
    let engines = engines()?;
    let sequences = SEQUENCES.measure(&sequences(&engines, extent), |row| {
        cells(EVERLEAF, row, &["traces", "points", "images_avoided", "recoveries", "violations"])
    })?;
    let threads = THREADS.measure(&threads(&engines, extent), |row| {
        cells(EVERLEAF, row, &["schedules", "points", "recoveries", "violations"])
    })?;
    Ok(format!(
        "\n{sequences}{threads}Museum: {exhibits} exhibits, all found.\n\nMeasured on {} by `cargo xtask \
         report`.\n\n",
        machine()
    ))
}

/// What is not as it should be in the figures of a page, their values aside.
pub(super) fn stale(figures: &str, extent: Extent, exhibits: usize) -> Result<Vec<String>, Failure> {
    let engines = engines()?;
    let mut complaints = Vec::new();
    for (name, table, rows) in [
        ("sequences", SEQUENCES, sequences(&engines, extent)),
        ("threads", THREADS, threads(&engines, extent)),
    ] {
        if !table.is_in(figures, &rows) {
            complaints.push(format!(
                "the figures of {name} do not have the rows and columns that `cargo xtask report` writes"
            ));
        }
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
