//! `everleaf stat`: figures about a pool, its medium and its trees.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use everleaf::{Encodings, EpochStat, IndexStat, LineForm, Store, StoreStat, Survives};
use serde::Serialize;

use super::trees::TypeNames;
use terminal::context::{Context, survives_name};
use terminal::failure::{Answer, Failure, Outcome};
use terminal::pool::PoolArgs;
use terminal::{progress, text};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
}

#[derive(Serialize)]
struct Report {
    pool: String,
    format_version: u32,
    uuid: String,
    line_form: &'static str,
    medium: String,
    survives: &'static str,
    emulated: bool,
    file_bytes: u64,
    high_water_bytes: u64,
    used_bytes: u64,
    allocations: u64,
    /// After a crash, if only an open for writing finds out which space is in use: the number of
    /// allocations that this open has found.
    marked: Option<u64>,
    keys: u64,
    /// Bytes of slabs in use per key, over all trees.
    bytes_per_key: Option<f64>,
    recovered_after_crash: bool,
    /// Trees that could not be recovered, and why. While there is one, no space is reused that was
    /// in use before the open.
    damaged: Vec<Damaged>,
    open_ns: u64,
    /// Weaknesses of the system that the store had to put up with.
    notes: Vec<String>,
    trees: Vec<TreeReport>,
}

/// A tree that could not be recovered.
#[derive(Serialize)]
struct Damaged {
    tree: String,
    what: String,
}

#[derive(Serialize)]
struct TreeReport {
    name: String,
    engine: &'static str,
    codec: &'static str,
    keys: u64,
    leaves: u64,
    leaf_bytes: u64,
    height: u32,
    volatile_bytes: u64,
    volatile_bytes_per_key: Option<f64>,
    recovery_ns: u64,
    #[serde(flatten)]
    types: TypeNames,
    /// The types in words.
    #[serde(skip)]
    types_in_words: Option<String>,
    /// The engine's counters since the tree was opened.
    counters: BTreeMap<&'static str, u64>,
    /// Figures of an engine that is durable by epochs.
    epochs: Option<EpochReport>,
    /// Why there are no figures.
    error: Option<String>,
}

/// Since the tree was opened.
#[derive(Serialize)]
struct EpochReport {
    running: u64,
    ended: u64,
    nodes_logged: u64,
    in_line_logs: u64,
    lines_flushed: u64,
    lines_flushed_per_epoch: f64,
    pause_us_mean: f64,
    pause_us_max: f64,
    nodes_restored: u64,
    sweeping: bool,
    swept_keys: u64,
    failing: bool,
}

impl EpochReport {
    fn of(stat: EpochStat) -> Self {
        Self {
            running: stat.running,
            ended: stat.epochs,
            nodes_logged: stat.nodes_logged,
            in_line_logs: stat.in_line_logs,
            lines_flushed: stat.lines_flushed,
            lines_flushed_per_epoch: stat.lines_flushed as f64 / stat.epochs.max(1) as f64,
            pause_us_mean: stat.pause_ns as f64 / 1e3 / stat.epochs.max(1) as f64,
            pause_us_max: stat.pause_ns_max as f64 / 1e3,
            nodes_restored: stat.nodes_restored,
            sweeping: stat.is_sweeping,
            swept_keys: stat.swept_keys,
            failing: stat.is_failing,
        }
    }

    fn words(&self) -> String {
        let sweep = if self.sweeping {
            ", recovering the rest"
        } else {
            ""
        };
        let failing = if self.failing {
            ", the last epoch could not be ended"
        } else {
            ""
        };
        format!(
            "; epoch {}: {} logged externally, {}, {} an epoch, {} put back{sweep}{failing}",
            progress::count(self.running),
            progress::many(self.nodes_logged, "node"),
            progress::many(self.in_line_logs, "in-line log"),
            progress::many(self.lines_flushed_per_epoch.round() as u64, "line"),
            progress::many(self.nodes_restored, "node"),
        )
    }
}

fn per_key(bytes: u64, keys: u64) -> Option<f64> {
    (keys > 0).then(|| bytes as f64 / keys as f64)
}

impl Report {
    fn of(store: &Store) -> Result<Self, Failure> {
        let mut trees = Vec::new();
        for info in store.trees()? {
            let opened = store.open_tree(&info.name);
            let stat = opened.and_then(|tree| Ok((tree.stat()?, tree.counters())));
            let (engine, codec) = info.kind.map_or(("unknown", "unknown"), |kind| {
                (kind.engine.name(), kind.codec.name())
            });
            let encodings = info.encodings.as_ref();
            trees.push(TreeReport::of(info.name, engine, codec, encodings, stat));
        }
        let stat: StoreStat = store.stat()?;
        let keys = trees.iter().map(|tree| tree.keys).sum();
        Ok(Self {
            pool: stat.path.display().to_string(),
            format_version: stat.format_version,
            uuid: format!("{:032x}", stat.uuid),
            line_form: if stat.line_form == LineForm::Twin {
                "twin"
            } else {
                "single"
            },
            medium: stat.medium,
            survives: survives_name(stat.survives),
            emulated: stat.survives == Survives::ProcessCrash,
            file_bytes: stat.file_bytes,
            high_water_bytes: stat.high_water_bytes,
            used_bytes: stat.used_bytes,
            allocations: stat.allocations,
            marked: stat.marked,
            keys,
            bytes_per_key: match stat.marked {
                None => per_key(stat.used_bytes, keys),
                // The bytes in use are only a lower bound.
                Some(_) => None,
            },
            recovered_after_crash: stat.recovery.after_crash,
            damaged: stat
                .recovery
                .damaged
                .into_iter()
                .map(|damage| Damaged {
                    tree: damage.part.to_string(),
                    what: damage.what,
                })
                .collect(),
            open_ns: stat.recovery.duration.as_nanos() as u64,
            notes: stat.notes,
            trees,
        })
    }

    /// Whether all trees could be recovered and read.
    fn is_whole(&self) -> bool {
        self.damaged.is_empty() && self.trees.iter().all(|tree| tree.error.is_none())
    }

    fn words(&self) -> String {
        let mut words = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(words, "{name:<12} {value}");
        };
        line("pool", self.pool.clone());
        line(
            "format",
            format!(
                "version {}, {} lines, uuid {}",
                self.format_version, self.line_form, self.uuid
            ),
        );
        line("medium", self.medium.clone());
        let least = if self.marked.is_some() {
            "at least "
        } else {
            ""
        };
        let used = progress::bytes(self.used_bytes);
        let file = progress::bytes(self.file_bytes);
        line(
            "space",
            format!(
                "{least}{used} in use, file {file}, {}",
                progress::many(self.allocations, "allocation")
            ),
        );
        for Damaged { tree, what } in &self.damaged {
            line("damaged", format!("tree {tree:?}: {what}"));
        }
        let per_key = |bytes: f64| match bytes {
            bytes if bytes < 1000.0 => format!(", {bytes:.1} bytes per key"),
            bytes => format!(", {} per key", progress::bytes(bytes.round() as u64)),
        };
        let per_key = self.bytes_per_key.map_or(String::new(), per_key);
        line("keys", format!("{}{per_key}", progress::count(self.keys)));
        let how = if self.recovered_after_crash {
            "recovered after a crash, in memory"
        } else {
            "after a clean close"
        };
        line(
            "opened",
            format!(
                "{how}, in {}",
                progress::duration(Duration::from_nanos(self.open_ns))
            ),
        );
        for note in &self.notes {
            line("note", note.clone());
        }
        for tree in &self.trees {
            line("tree", tree.words());
        }
        if !self.is_whole() {
            line(
                "way out",
                "`everleaf check` lists all damage, `everleaf dump --salvage` saves the rest"
                    .to_owned(),
            );
        }
        words.truncate(words.trim_end().len());
        words
    }
}

impl TreeReport {
    fn of(
        name: String,
        engine: &'static str,
        codec: &'static str,
        encodings: Option<&Encodings>,
        stat: everleaf::Result<(IndexStat, Vec<(&'static str, u64)>)>,
    ) -> Self {
        let error = stat.as_ref().err().map(everleaf::Error::what);
        let (stat, counters) = stat.unwrap_or_default();
        Self {
            name,
            engine,
            codec,
            keys: stat.keys,
            leaves: stat.leaves,
            leaf_bytes: stat.leaf_bytes,
            height: stat.height,
            volatile_bytes: stat.volatile_bytes,
            volatile_bytes_per_key: per_key(stat.volatile_bytes, stat.keys),
            recovery_ns: stat.recovery_ns,
            types: TypeNames::of(encodings),
            types_in_words: encodings.map(text::types_in_words),
            counters: counters.into_iter().collect(),
            epochs: stat.epochs.map(EpochReport::of),
            error,
        }
    }

    fn words(&self) -> String {
        let types = match &self.types_in_words {
            Some(types) => format!(", {types}"),
            None => String::new(),
        };
        let head = format!(
            "{} ({}, {}{types})",
            text::escape(self.name.as_bytes()),
            self.engine,
            self.codec
        );
        if let Some(error) = &self.error {
            return format!("{head}: {error}");
        }
        let mut counters = String::new();
        for (name, number) in self.counters.iter().filter(|(_, number)| **number > 0) {
            let _ = write!(counters, ", {name} {}", progress::count(*number));
        }
        format!(
            "{head}: {}, {} of {}, {} above, {} of memory, recovered in {}{}{counters}",
            progress::many(self.keys, "key"),
            progress::many(self.leaves, "leaf"),
            progress::bytes(self.leaf_bytes),
            progress::many(self.height.into(), "level"),
            progress::bytes(self.volatile_bytes),
            progress::duration(Duration::from_nanos(self.recovery_ns)),
            self.epochs
                .as_ref()
                .map(EpochReport::words)
                .unwrap_or_default(),
        )
    }
}

pub(crate) fn run(args: &Args, context: Context) -> Outcome {
    let report = args.pool.read(context, Report::of)?;
    context.say(&report, report.words())?;
    Ok(Answer::from_bool(report.is_whole()))
}
