//! The figures: what the suites did, for each engine.

use std::fs;

use serde_json::Value;

use super::{Failure, json, output};

/// The command, as `cargo build` leaves it.
const EVERLEAF: &str = "target/release/everleaf-workbench";
/// What plants mutants, as `cargo build` leaves it.
const MUTANTS_EXAMPLE: &str = "target/release/examples/mutants";
const MEDIA: [&str; 3] = ["dax", "eadr", "file"];
/// The tables, by their heads; and how many cells of a row say what it is about.
const SEQUENCES: Table = Table {
    name: "sequences",
    head: "| engine | entries | medium | what | traces | crash points | images avoided | recoveries | violations |",
    keys: 4,
};
const THREADS: Table = Table {
    name: "threads",
    head: "| engine | entries | threads | what | schedules | crash points | recoveries | violations |",
    keys: 4,
};
const MUTANTS: Table = Table {
    name: "mutants",
    head: "| engine | mutants | noticed | justified | survived | arguments not needed |",
    keys: 1,
};
/// The names of the tables.
pub(super) const TABLES: [&str; 3] = [SEQUENCES.name, THREADS.name, MUTANTS.name];

/// How much is explored.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExplorationExtent {
    /// Operations of each sequence in small scopes.
    pub(super) length: u8,
    /// Operations of random sequences.
    pub(super) ops: u32,
    /// Preemptions of pairs of threads.
    pub(super) preemptions: u32,
    /// Operations of random programs of three threads, of all together.
    pub(super) random_ops: u32,
}

/// A table of the page.
struct Table {
    name: &'static str,
    head: &'static str,
    keys: usize,
}

/// An engine's name, and the shapes of entries that it is explored with.
type Engine = (String, &'static [&'static str]);

/// What a row is about, the engine first, and how its figures are found.
struct Row {
    keys: Vec<String>,
    arguments: Vec<String>,
}

/// What is measured anew, and what stays as the page has it.
#[derive(Clone, Copy)]
pub(super) struct Renewal<'p> {
    /// The figures that the page has.
    pub(super) page: &'p str,
    /// The engine whose rows are measured; all, if there is none.
    pub(super) engine: Option<&'p str>,
    /// The table that is measured; all, if there is none.
    pub(super) table: Option<&'p str>,
}

impl Table {
    /// The table with a row for each of `rows`, and the figures that `measure` finds for it.
    fn measure(
        &self,
        rows: &[Row],
        renewal: Renewal<'_>,
        measure: impl Fn(&Row) -> Result<Vec<String>, Failure>,
    ) -> Result<String, Failure> {
        let columns = self.head.matches('|').count() - 1;
        let mut table = format!("{}\n{}|\n", self.head, "| --- ".repeat(columns));
        for row in rows {
            let is_measured = renewal.engine.is_none_or(|engine| row.keys[0] == engine)
                && renewal.table.is_none_or(|table| self.name == table);
            let cells = if is_measured {
                [row.keys.clone(), measure(row)?].concat()
            } else {
                let known = self
                    .rows(renewal.page)
                    .find(|cells| cells[..self.keys] == row.keys);
                known.unwrap_or_else(|| {
                    [row.keys.clone(), vec!["-".to_owned(); columns - self.keys]].concat()
                })
            };
            table += &format!("| {} |\n", cells.join(" | "));
        }
        Ok(table + "\n")
    }

    /// The rows that it has in the page, as cells.
    fn rows<'p>(&self, page: &'p str) -> impl Iterator<Item = Vec<String>> + use<'p> {
        let columns = self.head.matches('|').count() - 1;
        let rest = page.split_once(self.head).map_or("", |(_, rest)| rest);
        let cells = move |line: &str| -> Vec<String> {
            let cells = line
                .split('|')
                .map(|cell| cell.trim().to_owned())
                .chain(std::iter::repeat(String::new()));
            cells.skip(1).take(columns).collect()
        };
        rest.lines()
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .map(cells)
    }

    /// Whether it stands in the page with these rows, their figures aside.
    fn is_in(&self, page: &str, rows: &[Row]) -> bool {
        let keys = self.rows(page).map(|cells| cells[..self.keys].to_vec());
        page.contains(self.head) && keys.eq(rows.iter().map(|row| row.keys.clone()))
    }
}

/// The engines that the command knows, each with the shapes of entries that it is explored with.
fn engines() -> Result<Vec<Engine>, Failure> {
    let engines = super::engines(&[])?;
    let shapes = |is_trie: bool| -> &[&str] {
        if is_trie {
            &["word", "record", "layers"]
        } else {
            &["word", "record"]
        }
    };
    Ok(engines
        .iter()
        .filter_map(|engine| {
            Some((
                engine["engine"].as_str()?.to_owned(),
                shapes(engine["trie"] == true),
            ))
        })
        .collect())
}

/// The names of these engines, and of their variants: the same engine with other defaults, under
/// its name and a word more.
fn with_variants(engines: &[Engine]) -> Result<Vec<String>, Failure> {
    let is_of = |name: &str, engine: &str| {
        name.strip_prefix(engine)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let mut names = super::engine_names(&["--all"])?;
    names.retain(|name| engines.iter().any(|(engine, _)| is_of(name, engine)));
    Ok(names)
}

fn row<const N: usize>(keys: [&str; N], options: &[&str]) -> Row {
    let always = [
        "crash", "--json", "--quiet", "--engine", keys[0], "--codec", keys[1],
    ];
    let arguments = always
        .iter()
        .chain(options)
        .map(|text| (*text).to_owned())
        .collect();
    Row {
        keys: keys.map(str::to_owned).to_vec(),
        arguments,
    }
}

/// One thread: small scopes, and random sequences at full size.
fn sequences(
    engines: &[Engine],
    ExplorationExtent { length, ops, .. }: ExplorationExtent,
) -> Vec<Row> {
    let length = length.to_string();
    let ops = ops.to_string();
    let small = (
        format!("all sequences of {length}"),
        ["--exhaustive", "--length", &length, "--jobs", "2"],
    );
    let large = (
        format!("{ops} random operations"),
        ["--ops", &ops, "--seed", "1", "--jobs=2"],
    );
    let mut rows = Vec::new();
    for (engine, codecs) in engines {
        for (what, options) in [&small, &large] {
            for medium in MEDIA {
                for codec in *codecs {
                    let options = [&options[..], &["--medium", medium]].concat();
                    rows.push(row([engine, codec, medium, what], &options));
                }
            }
        }
    }
    rows
}

/// Two threads: all pairs of operations. Three: random programs.
fn threads(
    engines: &[Engine],
    ExplorationExtent {
        preemptions,
        random_ops,
        ..
    }: ExplorationExtent,
) -> Vec<Row> {
    let preemptions = preemptions.to_string();
    let ops = random_ops.to_string();
    let pairs = format!("all pairs, {preemptions} preemption");
    let pairs = (
        "2",
        pairs,
        vec!["--exhaustive", "--threads=2", "--preemptions", &preemptions],
    );
    let random = format!("{ops} random operations");
    let random = (
        "3",
        random,
        vec!["--threads=3", "--ops", &ops, "--seed=1", "--jobs=2"],
    );
    let mut rows = Vec::new();
    for (engine, codecs) in engines {
        for (threads, what, options) in [&pairs, &random] {
            for codec in *codecs {
                rows.push(row([engine, codec, threads, what], options));
            }
        }
    }
    rows
}

/// One fault at a time, of each engine and variant, and of the batches that they share.
fn mutants(names: &[String]) -> Vec<Row> {
    let arguments = |name: &str| ["--json", "--engine", name].map(str::to_owned).to_vec();
    let row = |name: &str| Row {
        keys: vec![name.to_owned()],
        arguments: arguments(name),
    };
    names
        .iter()
        .map(String::as_str)
        .chain(["batches"])
        .map(row)
        .collect()
}

fn build() -> Result<(), Failure> {
    let build = ["build", "--release", "--quiet", "--package"];
    output("cargo", &[&build[..], &["everleaf-workbench"]].concat())?;
    output(
        "cargo",
        &[&build[..], &["everleaf-lab", "--example", "mutants"]].concat(),
    )?;
    Ok(())
}

/// What a command says about some figures, as cells; of a list, how long it is.
fn cells(program: &str, row: &Row, figures: &[&str]) -> Result<Vec<String>, Failure> {
    let arguments: Vec<&str> = row.arguments.iter().map(String::as_str).collect();
    let said = json(program, &arguments)?;
    let cell = |figure: &&str| match &said[figure] {
        Value::Array(list) => count(&list.len().into()),
        number => count(number),
    };
    Ok(figures.iter().map(cell).collect())
}

/// Runs everything, or everything of one engine.
pub(super) fn measure(
    extent: ExplorationExtent,
    exhibits: usize,
    renewal: Renewal<'_>,
) -> Result<String, Failure> {
    build()?;
    output(
        "cargo",
        &[
            "test",
            "--release",
            "--quiet",
            "--package",
            "everleaf-sim",
            "--test",
            "museum",
        ],
    )?;
    let engines = engines()?;
    let names = with_variants(&engines)?;
    if let Some(engine) = renewal
        .engine
        .filter(|engine| !names.iter().any(|name| name == engine))
    {
        return Err(Failure::NoEngine {
            engine: engine.to_owned(),
            known: names.join(", "),
        });
    }
    let sequences = SEQUENCES.measure(&sequences(&engines, extent), renewal, |row| {
        cells(
            EVERLEAF,
            row,
            &[
                "traces",
                "points",
                "images_avoided",
                "recoveries",
                "violations",
            ],
        )
    })?;
    let threads = THREADS.measure(&threads(&engines, extent), renewal, |row| {
        cells(
            EVERLEAF,
            row,
            &["schedules", "points", "recoveries", "violations"],
        )
    })?;
    let mutants = MUTANTS.measure(&mutants(&names), renewal, |row| {
        cells(
            MUTANTS_EXAMPLE,
            row,
            &["mutants", "killed", "justified", "survived", "unused"],
        )
    })?;
    Ok(format!(
        "\n{sequences}{threads}{mutants}Museum: {exhibits} exhibits, all found.\n\nMeasured on {} by `cargo xtask \
         report`.\n\n",
        machine()
    ))
}

/// What is not as it should be in the figures of a page, their values aside.
pub(super) fn stale(
    figures: &str,
    extent: ExplorationExtent,
    exhibits: usize,
) -> Result<Vec<String>, Failure> {
    let engines = engines()?;
    let mut complaints = Vec::new();
    for (table, rows) in [
        (SEQUENCES, sequences(&engines, extent)),
        (THREADS, threads(&engines, extent)),
        (MUTANTS, mutants(&with_variants(&engines)?)),
    ] {
        if !table.is_in(figures, &rows) {
            let name = table.name;
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

/// A number with separators; one that is too large for that in powers of ten. JSON has no number
/// for what is larger still.
fn count(number: &Value) -> String {
    let Some(number) = number.as_f64() else {
        return "over 1.8e308".to_owned();
    };
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
    let models: Vec<&str> = cpus
        .lines()
        .filter_map(|line| line.strip_prefix("model name"))
        .collect();
    let model = models
        .first()
        .and_then(|line| line.split(": ").nth(1))
        .unwrap_or("an unknown processor");
    format!(
        "{model}, {} cores,",
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    )
}

#[cfg(test)]
mod tests;
