//! What was found, for machines and people.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use sim::index::IndexOperation;
use sim::{Crash, Stats};

use super::replay::Repeat;
use crate::progress;

/// The one line of `--json`.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) engine: &'static str,
    pub(super) codec: &'static str,
    pub(super) medium: String,
    pub(super) lines: String,
    pub(super) leaf_entries: usize,
    #[serde(flatten)]
    pub(super) scope: Scope,
    #[serde(flatten)]
    pub(super) stats: Stats,
    pub(super) images_avoided: f64,
    pub(super) violations: u64,
    pub(super) seconds: f64,
    /// The command that does all of this again.
    pub(super) command: String,
    pub(super) violation: Option<Violation>,
}

/// What was explored.
#[derive(Serialize)]
#[serde(tag = "scope", rename_all = "snake_case")]
pub(super) enum Scope {
    /// Every sequence of so many operations, from every seed tree.
    AllSequences { length: u64 },
    /// One sequence.
    RandomSequence { length: u32, seed: u64 },
    /// A crash that was reported.
    OneCrash,
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllSequences { length } => write!(formatter, "all sequences of {length} operations"),
            Self::RandomSequence { length, seed } => {
                write!(formatter, "{} operations, seed {seed}", progress::count((*length).into()))
            }
            Self::OneCrash => formatter.write_str("one crash, repeated"),
        }
    }
}

/// A crash from which the engine did not recover.
#[derive(Serialize)]
pub(super) struct Violation {
    what: String,
    setup: Vec<String>,
    operations: Vec<String>,
    crashes: Vec<Moment>,
    left_out: Vec<String>,
    /// The command that repeats this crash, and nothing else.
    replay: String,
    /// All of that, for people.
    #[serde(skip)]
    story: String,
}

/// One crash.
#[derive(Serialize)]
struct Moment {
    point: String,
    during: Option<String>,
    behind: Vec<Behind>,
}

/// A line that was behind.
#[derive(Serialize)]
struct Behind {
    offset: u64,
    stores_arrived: usize,
    stores: usize,
    first_missing: String,
}

impl From<&Crash> for Moment {
    fn from(crash: &Crash) -> Self {
        let behind = crash.behind.iter().map(|line| Behind {
            offset: line.offset,
            stores_arrived: line.arrived,
            stores: line.stores,
            first_missing: line.missing.to_string(),
        });
        Self { point: crash.point.to_string(), during: crash.during.clone(), behind: behind.collect() }
    }
}

impl Violation {
    pub(super) fn new(failure: &sim::Failure<IndexOperation>, command: &str) -> Self {
        let texts = |operations: &[IndexOperation]| operations.iter().map(|one| format!("{one:?}")).collect();
        let repeat = Repeat {
            setup: failure.setup.clone(),
            operations: failure.operations.clone(),
            crashes: failure.replay(),
        };
        let replay = format!("{command} --replay {repeat}");
        Self {
            what: failure.what.clone(),
            setup: texts(&failure.setup),
            operations: texts(&failure.operations),
            crashes: failure.crashes.iter().map(Moment::from).collect(),
            left_out: failure.planted.clone(),
            story: failure.narrate(&replay),
            replay,
        }
    }
}

impl Report {
    pub(super) fn is_sound(&self) -> bool {
        self.violations == 0
    }

    /// What went wrong, for people.
    pub(super) fn story(&self) -> Option<&str> {
        self.violation.as_ref().map(|violation| violation.story.as_str())
    }

    pub(super) fn words(&self) -> String {
        let count = progress::count;
        let stats = &self.stats;
        let mut words = format!(
            "{} with {} entries, {} entries a leaf, on {}, {} lines: {}\n{} traces, {} crash points ({} of \
             them in what followed a crash), {} recoveries in {}\n{} images avoided: nobody would have read what is \
             different in them\n",
            self.engine,
            self.codec,
            self.leaf_entries,
            self.medium,
            self.lines,
            self.scope,
            count(stats.traces),
            count(stats.points),
            count(stats.second_points),
            count(stats.recoveries),
            progress::duration(Duration::from_secs_f64(self.seconds)),
            large(self.images_avoided),
        );
        if stats.cut_short > 0 {
            words += &format!("{} crash points had too many images to try all\n", count(stats.cut_short));
        }
        match self.story() {
            Some(story) => words + "VIOLATION: " + story,
            None => words + "no violation",
        }
    }
}

/// A count that may be astronomic.
fn large(number: f64) -> String {
    if number < 1e12 { progress::count(number as u64) } else { format!("{number:.1e}") }
}
