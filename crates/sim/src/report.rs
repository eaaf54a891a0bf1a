//! Reports of explorations.

use std::fmt;
use std::ops::AddAssign;

use medium::sim::Site;
use serde::Serialize;

use crate::model::Behind;
use crate::strategy::Choices;
use crate::subject::Complaint;

/// A moment at which the explorer crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// Before a fence that makes something durable.
    BeforeFence(Site),
    /// Before a wait that makes something durable.
    BeforeWait(Site),
    /// Before a store, with persistent caches.
    BeforeStore(Site),
    /// Before the memory grew.
    BeforeGrowth,
    /// Before room was given back.
    BeforeRelease,
    /// Before an operation is called.
    BeforeOperation(u32),
    /// After an operation has returned.
    AfterOperation(u32),
    /// After recovery, when the whole state was observed.
    AfterObservation,
    /// At the end of the trace.
    AtEnd,
}

impl fmt::Display for Point {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeforeFence(site) => write!(formatter, "before the fence at {site}"),
            Self::BeforeWait(site) => write!(formatter, "before the wait at {site}"),
            Self::BeforeStore(site) => write!(formatter, "before the store at {site}"),
            Self::BeforeGrowth => formatter.write_str("before the memory grew"),
            Self::BeforeRelease => formatter.write_str("before room was given back"),
            Self::BeforeOperation(number) => write!(formatter, "before operation {number}"),
            Self::AfterOperation(number) => write!(formatter, "after operation {number}"),
            Self::AfterObservation => formatter.write_str("after the state was seen"),
            Self::AtEnd => formatter.write_str("at the end"),
        }
    }
}

/// One crash of a failure: the first, or a later one during the recovery from it and the operations
/// after that.
#[derive(Clone, Debug)]
pub struct Crash {
    /// When.
    pub point: Point,
    /// The number of the event in its trace.
    pub event: usize,
    /// The phase of the run, if there is one to name.
    pub during: Option<String>,
    /// The lines that were behind, of those that recovery read.
    pub behind: Vec<Behind>,
    /// The contents that loads found, as choices.
    pub choices: Vec<u16>,
}

/// Which crashes to repeat: events and choices. Reads and prints as
/// `event:choice,choice/event:choice`; see [`Choices`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CrashReplay {
    /// For each crash, the number of its event and the choices.
    pub crashes: Vec<(usize, Choices)>,
}

impl CrashReplay {
    /// The replay that repeats these crashes.
    pub(crate) fn of(crashes: &[Crash]) -> Self {
        let choices = |crash: &Crash| (crash.event, Choices::Given(crash.choices.clone()));
        Self {
            crashes: crashes.iter().map(choices).collect(),
        }
    }
}

impl fmt::Display for CrashReplay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (event, choices)) in self.crashes.iter().enumerate() {
            let separator = if index == 0 { "" } else { "/" };
            write!(formatter, "{separator}{event}:{choices}")?;
        }
        Ok(())
    }
}

impl std::str::FromStr for CrashReplay {
    type Err = Complaint;

    fn from_str(text: &str) -> Result<Self, Complaint> {
        let bad =
            |part: &str| format!("no replay: {part:?}; give event:choice,choice/event:choice");
        let crash = |part: &str| {
            let (event, choices) = part.split_once(':').ok_or_else(|| bad(part))?;
            Ok((
                event.parse().map_err(|_| bad(part))?,
                choices.parse().map_err(|_| bad(part))?,
            ))
        };
        Ok(Self {
            crashes: text
                .split('/')
                .map(crash)
                .collect::<Result<_, Complaint>>()?,
        })
    }
}

/// A crash from which the structure did not recover correctly.
#[derive(Clone, Debug)]
pub struct CrashFailure<O> {
    /// What is wrong.
    pub what: Complaint,
    /// The operations before the structure was explored.
    pub setup: Vec<O>,
    /// The shortest sequence of operations found that shows it.
    pub operations: Vec<O>,
    /// The crashes; none, if it goes wrong without one.
    pub crashes: Vec<Crash>,
    /// The faults that were planted.
    pub planted: Vec<String>,
    /// The command that repeats it.
    pub command: String,
    /// The seed of random images.
    pub seed: u64,
}

impl<O> CrashFailure<O> {
    /// The replay of this failure.
    pub fn replay(&self) -> CrashReplay {
        CrashReplay::of(&self.crashes)
    }
}

/// The problem and the operations that show it, as text.
pub(crate) fn write_head(
    formatter: &mut fmt::Formatter<'_>,
    what: &str,
    planted: &[String],
    setup: &[impl fmt::Debug],
) -> fmt::Result {
    writeln!(formatter, "{what}")?;
    for fault in planted {
        writeln!(formatter, "  planted: {fault}")?;
    }
    if !setup.is_empty() {
        writeln!(formatter, "  after setup {setup:?}")?;
    }
    Ok(())
}

/// The crashes of a failure, as text.
pub(crate) fn write_crashes(formatter: &mut fmt::Formatter<'_>, crashes: &[Crash]) -> fmt::Result {
    for (index, crash) in crashes.iter().enumerate() {
        let which = if index == 0 {
            "crash"
        } else {
            "then, in what followed, a crash"
        };
        write!(formatter, "  {which} {}", crash.point)?;
        match &crash.during {
            Some(during) => writeln!(formatter, ", during {during}")?,
            None => writeln!(formatter)?,
        }
        for Behind {
            offset,
            arrived,
            stores,
            missing,
        } in &crash.behind
        {
            writeln!(
                formatter,
                "    line {offset:#x} is behind: {arrived} of {stores} stores arrived; the first missing one is \
                 at {missing}"
            )?;
        }
    }
    Ok(())
}

impl<O: fmt::Debug> CrashFailure<O> {
    /// The report, with the command that repeats the crash.
    pub fn narrate(&self, command: &str) -> String {
        format!("{}  seed {:#x}; replay: {command}", Story(self), self.seed)
    }
}

/// The report without the command that repeats it.
struct Story<'f, O>(&'f CrashFailure<O>);

impl<O: fmt::Debug> fmt::Display for CrashFailure<O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.narrate(&format!(
            "EVERLEAF_CRASH={} {}",
            self.replay(),
            self.command
        )))
    }
}

impl<O: fmt::Debug> fmt::Display for Story<'_, O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(failure) = self;
        write_head(formatter, &failure.what, &failure.planted, &failure.setup)?;
        for (number, operation) in failure.operations.iter().enumerate() {
            writeln!(formatter, "  operation {number}: {operation:?}")?;
        }
        write_crashes(formatter, &failure.crashes)
    }
}

/// How much was explored.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Stats {
    /// Sequences of operations that were recorded.
    pub traces: u64,
    /// Moments at which a crash was tried.
    pub points: u64,
    /// Moments that were skipped, because the same memory with the same expectations had been
    /// explored before.
    pub known: u64,
    /// Recoveries that were run, with the checks that follow each.
    pub recoveries: u64,
    /// Crash points during a recovery and the operations after it.
    pub second_points: u64,
    /// Images that the crash points could leave.
    pub images: f64,
    /// Crash points whose images were not all tried, because they were too many.
    pub cut_short: u64,
    /// The most decisions that one run made.
    pub decisions_max: u64,
    /// Schedules of threads that were run.
    pub schedules: u64,
    /// Schedules that were run only up to a state from which everything had been tried.
    pub schedules_cut: u64,
}

impl Stats {
    /// Images that were not made, because they differ only in words that no recovery reads.
    pub fn images_avoided(&self) -> f64 {
        (self.images - self.recoveries as f64).clamp(0.0, f64::MAX)
    }

    /// The counts since `earlier`; maxima are unchanged.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            traces: self.traces - earlier.traces,
            points: self.points - earlier.points,
            known: self.known - earlier.known,
            recoveries: self.recoveries - earlier.recoveries,
            second_points: self.second_points - earlier.second_points,
            images: self.images - earlier.images,
            cut_short: self.cut_short - earlier.cut_short,
            decisions_max: self.decisions_max,
            schedules: self.schedules - earlier.schedules,
            schedules_cut: self.schedules_cut - earlier.schedules_cut,
        }
    }
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.traces += other.traces;
        self.points += other.points;
        self.known += other.known;
        self.recoveries += other.recoveries;
        self.second_points += other.second_points;
        // The number may be larger than the type can represent.
        self.images = (self.images + other.images).min(f64::MAX);
        self.cut_short += other.cut_short;
        self.decisions_max = self.decisions_max.max(other.decisions_max);
        self.schedules += other.schedules;
        self.schedules_cut += other.schedules_cut;
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A count at the end of its type is not the number of images.
        let images = if self.images < f64::MAX {
            format!("{:.3e}", self.images)
        } else {
            "more than 1e308".to_owned()
        };
        write!(
            formatter,
            "{} traces, {} crash points ({} of them in what followed a crash, {} known already, {} cut short), \
             {} images, {} recoveries, at most {} decisions",
            self.traces,
            self.points,
            self.second_points,
            self.known,
            self.cut_short,
            images,
            self.recoveries,
            self.decisions_max
        )
    }
}

#[cfg(test)]
mod tests;
