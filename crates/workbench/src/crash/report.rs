//! The report, in JSON and in words.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use sim::index::IndexOperation;
use sim::watchdog::{Doing, Ended};
use sim::{Crash, CrashReplay, Stats, ThreadsFailure};

use super::replay::Repeat;
use super::{Args, name};
use terminal::context::Context;
use terminal::failure::Failure;
use terminal::progress;

/// The one line of `--json`.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) engine: &'static str,
    pub(super) codec: &'static str,
    pub(super) medium: String,
    pub(super) lines: String,
    pub(super) leaf_entries: usize,
    /// The images of each crash that were tried.
    pub(super) images_tried: String,
    #[serde(flatten)]
    pub(super) scope: ExplorationScope,
    /// Counts; `None` if the exploration ended its process.
    #[serde(flatten)]
    pub(super) stats: Option<Stats>,
    pub(super) images_avoided: Option<f64>,
    pub(super) violations: u64,
    pub(super) seconds: f64,
    /// The command that repeats all of this.
    pub(super) command: String,
    /// The exploration ends with the first one.
    pub(super) first_violations: Vec<FailedRecovery>,
}

/// The exploration.
#[derive(Serialize)]
#[serde(tag = "scope", rename_all = "snake_case")]
pub(super) enum ExplorationScope {
    /// Every sequence of this length, from every seed tree.
    AllSequences { length: u64 },
    /// One sequence.
    RandomSequence { length: u32, seed: u64 },
    /// Every program of threads with one operation each, from every seed tree, by every schedule.
    AllSchedules { threads: u16, preemptions: u32 },
    /// Random programs, by random schedules.
    RandomSchedules { threads: u16, seed: u64 },
    /// The long profile, one scope after the other.
    Long,
    /// A crash that was reported.
    OneCrash,
}

impl fmt::Display for ExplorationScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllSequences { length } => {
                write!(
                    formatter,
                    "all sequences of {}",
                    progress::many(*length, "operation")
                )
            }
            Self::RandomSequence { length, seed } => {
                write!(
                    formatter,
                    "{}, seed {seed}",
                    progress::many((*length).into(), "operation")
                )
            }
            Self::AllSchedules {
                threads,
                preemptions,
            } => write!(
                formatter,
                "{threads} threads with one operation each, all schedules with at most {}",
                progress::many((*preemptions).into(), "preemption")
            ),
            Self::RandomSchedules { threads, seed } => {
                write!(
                    formatter,
                    "{threads} threads, random programs and schedules, seed {seed}"
                )
            }
            Self::Long => formatter.write_str("the long profile"),
            Self::OneCrash => formatter.write_str("one crash, repeated"),
        }
    }
}

/// A crash from which the engine did not recover.
#[derive(Serialize)]
pub(super) struct FailedRecovery {
    what: String,
    setup: Vec<String>,
    operations: Vec<String>,
    /// The operations of each thread, if there were several; `operations` came before these.
    threads: Vec<Vec<String>>,
    /// For each switch to another thread, the place at which the first one was stopped.
    switches: Vec<Switch>,
    crashes: Vec<Moment>,
    left_out: Vec<String>,
    /// The command that repeats this crash, and nothing else.
    replay: String,
    /// All of this as text.
    #[serde(skip)]
    story: String,
}

/// A thread stops, and another one goes on.
#[derive(Serialize)]
struct Switch {
    step: u32,
    to: u16,
    stopped: String,
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
        Self {
            point: crash.point.to_string(),
            during: crash.during.clone(),
            behind: behind.collect(),
        }
    }
}

fn texts(operations: &[IndexOperation]) -> Vec<String> {
    operations.iter().map(|one| format!("{one:?}")).collect()
}

impl FailedRecovery {
    /// The report of a repetition.
    fn of_repeat(what: String, repeat: &Repeat) -> Self {
        let threads = repeat
            .threads
            .as_ref()
            .map_or(&[][..], |(threads, _)| threads);
        Self {
            what,
            setup: texts(&repeat.setup),
            operations: texts(&repeat.operations),
            threads: threads.iter().map(|thread| texts(thread)).collect(),
            switches: Vec::new(),
            crashes: Vec::new(),
            left_out: Vec::new(),
            replay: String::new(),
            story: String::new(),
        }
    }

    pub(super) fn new(failure: &sim::CrashFailure<IndexOperation>, command: &str) -> Self {
        let repeat = Repeat {
            setup: failure.setup.clone(),
            operations: failure.operations.clone(),
            threads: None,
            crashes: failure.replay(),
        };
        let replay = repeat.command(command);
        Self {
            crashes: failure.crashes.iter().map(Moment::from).collect(),
            left_out: failure.planted.clone(),
            story: failure.narrate(&replay),
            replay,
            ..Self::of_repeat(failure.what.clone(), &repeat)
        }
    }

    /// A failure of several threads.
    pub(super) fn of_threads(failure: &ThreadsFailure<IndexOperation>, command: &str) -> Self {
        let repeat = Repeat {
            setup: failure.setup.clone(),
            operations: failure.program.before.clone(),
            threads: Some((failure.program.threads.clone(), failure.schedule.clone())),
            crashes: failure.replay(),
        };
        let replay = repeat.command(command);
        let switches = failure.schedule.switches.iter().zip(&failure.places);
        let switches = switches.map(|((step, to), place)| Switch {
            step: *step,
            to: *to,
            stopped: place.clone(),
        });
        Self {
            switches: switches.collect(),
            crashes: failure.crashes.iter().map(Moment::from).collect(),
            left_out: failure.planted.clone(),
            story: failure.narrate(&replay),
            replay,
            ..Self::of_repeat(failure.what.clone(), &repeat)
        }
    }

    /// A failure that ended the exploration's process, found by the command `whole`.
    pub(super) fn of_ended(ended: &Ended, whole: &str) -> Self {
        let mut what = ended.what.clone();
        let mut story = what.clone();
        let mut first = None;
        let mut repeats = Vec::new();
        for Doing {
            command,
            word,
            program,
            crash,
        } in &ended.doing
        {
            let repeat = if word.is_empty() {
                None
            } else {
                format!("{word}{crash}").parse::<Repeat>().ok()
            };
            let replay = match &repeat {
                Some(repeat) => repeat.command(command),
                None => whole.to_owned(),
            };
            let which = if repeats.is_empty() {
                "during"
            } else {
                "or during"
            };
            story += &format!("\n  {which} this:\n{program}  replay: {replay}");
            repeats.push(replay);
            first = first.or(repeat);
        }
        if repeats.len() > 1 {
            what += &format!(", in one of {} explorations", repeats.len());
        }
        let nothing = || Repeat {
            setup: Vec::new(),
            operations: Vec::new(),
            threads: None,
            crashes: CrashReplay::default(),
        };
        let replay = repeats
            .into_iter()
            .next()
            .unwrap_or_else(|| whole.to_owned());
        Self {
            replay,
            story,
            ..Self::of_repeat(what, &first.unwrap_or_else(nothing))
        }
    }
}

impl Report {
    /// A report with the arguments alone.
    pub(super) fn new(args: &Args, seed: u64) -> Self {
        let engine = args.engine();
        Self {
            engine: engine.name(),
            codec: engine.codec(),
            medium: name(&args.medium),
            lines: name(&args.lines),
            leaf_entries: engine.leaf_entries(),
            images_tried: name(&args.images()),
            scope: args.scope(seed),
            stats: None,
            images_avoided: None,
            violations: 0,
            seconds: 0.0,
            command: args.whole_command(seed),
            first_violations: Vec::new(),
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.violations == 0
    }

    /// The failure, as text.
    pub(super) fn story(&self) -> Option<&str> {
        self.first_violations
            .first()
            .map(|violation| violation.story.as_str())
    }

    /// Prints it, in JSON or in words.
    pub(super) fn say(&self, context: Context) -> Result<(), Failure> {
        context.say(&self.json()?, self.words())?;
        if context.json
            && let Some(story) = self.story()
        {
            context.note(story);
        }
        Ok(())
    }

    /// The report as a JSON object, without counts that are too large to be printed.
    pub(super) fn json(&self) -> Result<Value, Failure> {
        let mut report = serde_json::to_value(self).map_err(std::io::Error::from)?;
        if let Value::Object(fields) = &mut report {
            let is_too_large =
                |count: &Value| count.as_f64().is_some_and(|count| count >= IMAGES_MAX);
            fields.retain(|name, count| !name.starts_with("images") || !is_too_large(count));
        }
        Ok(report)
    }

    pub(super) fn words(&self) -> String {
        let mut words = format!(
            "{} with {} entries, {} entries a leaf, on {}, {} lines: {}, {} images\n",
            self.engine,
            self.codec,
            self.leaf_entries,
            self.medium,
            self.lines,
            self.scope,
            self.images_tried
        );
        if let Some(stats) = &self.stats {
            words += &self.counts(stats);
        }
        match self.story() {
            Some(story) => words + "VIOLATION: " + story,
            None => words + "no violation",
        }
    }

    fn counts(&self, stats: &Stats) -> String {
        let count = progress::count;
        let mut words = match stats.schedules {
            0 => progress::many(stats.traces, "trace"),
            schedules => format!(
                "{} ({} of them up to a state that was known)",
                progress::many(schedules, "schedule"),
                count(stats.schedules_cut)
            ),
        };
        words += &format!(
            ", {} ({} of them in what followed a crash), {} in {}\n{} images avoided: no recovery \
             would have read what is different in them\n",
            progress::many(stats.points, "crash point"),
            count(stats.second_points),
            progress::many(stats.recoveries, "recovery"),
            progress::duration(Duration::from_secs_f64(self.seconds)),
            large(self.images_avoided.unwrap_or(0.0)),
        );
        if stats.cut_short > 0 {
            words += &format!(
                "{} had too many images to try all\n",
                progress::many(stats.cut_short, "crash point")
            );
        }
        words
    }
}

/// A count of images from here on is not printed: the type cannot represent much larger numbers,
/// and the counts stay at its end.
const IMAGES_MAX: f64 = 1e300;

/// A count that may be very large.
fn large(number: f64) -> String {
    match number {
        number if number < 1e12 => progress::count(number as u64),
        number if number < IMAGES_MAX => format!("{number:.1e}"),
        _ => "more than 10^300".to_owned(),
    }
}
