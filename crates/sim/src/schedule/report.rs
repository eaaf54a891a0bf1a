//! Reports of explorations of threads.

use std::fmt;

use medium::sim::Event;

use super::Program;
use super::order::Schedule;
use super::record::Recorded;
use crate::report::{Crash, CrashFailure, CrashReplay, write_crashes, write_head};
use crate::subject::{Complaint, Subject};

/// The most switches that a report lists, the last ones: a livelock has thousands.
const SWITCHES_SAID: usize = 24;

/// A schedule after which something was wrong, or a crash of one.
#[derive(Clone, Debug)]
pub struct ThreadsFailure<O> {
    /// What is wrong.
    pub what: Complaint,
    /// The operations before the structure was explored.
    pub setup: Vec<O>,
    /// The program.
    pub program: Program<O>,
    /// The schedule.
    pub schedule: Schedule,
    /// The number of preemptions, if schedules were searched by it.
    pub preemptions: u32,
    /// For each switch, the place at which the thread was stopped.
    pub places: Vec<String>,
    /// The crashes; none, if it goes wrong without one.
    pub crashes: Vec<Crash>,
    /// The faults that were planted.
    pub planted: Vec<String>,
    /// The command that repeats it.
    pub command: String,
    /// The seed of random schedules, if that is what was searched; else of random images.
    pub seed: u64,
}

impl<O> ThreadsFailure<O> {
    /// A failure before the threads began.
    pub(crate) fn in_setup(failure: CrashFailure<O>) -> Self {
        let CrashFailure {
            what,
            setup,
            operations,
            planted,
            command,
            seed,
            ..
        } = failure;
        let program = Program {
            before: operations,
            ..Program::of(Vec::new())
        };
        let schedule = Schedule::default();
        let places = Vec::new();
        let crashes = Vec::new();
        Self {
            what,
            setup,
            program,
            schedule,
            preemptions: 0,
            places,
            crashes,
            planted,
            command,
            seed,
        }
    }

    /// The crashes to repeat.
    pub fn replay(&self) -> CrashReplay {
        CrashReplay::of(&self.crashes)
    }
}

/// For each switch, the thread's last operation on the medium. Operations before the threads began
/// belong to none.
pub(super) fn places<S: Subject>(
    schedule: &Schedule,
    events: &[usize],
    recorded: &Recorded<S>,
) -> Vec<String> {
    let mut from = schedule.first;
    let mut places = Vec::new();
    for ((_, to), event) in schedule.switches.iter().zip(events) {
        let before = recorded
            .trace
            .events
            .iter()
            .take(*event)
            .skip(recorded.begin);
        let mine = |event: &&Event| event.thread() == Some(from);
        let last = before.rev().find(mine).and_then(Event::site);
        places.push(match last {
            Some((kind, site)) => format!("after its {kind:?} at {site}"),
            None => "before its first store".to_owned(),
        });
        from = *to;
    }
    places
}

impl<O: fmt::Debug> ThreadsFailure<O> {
    /// The report, with the command that repeats it.
    pub fn narrate(&self, repeat: &str) -> String {
        format!("{}  seed {:#x}; replay: {repeat}", Story(self), self.seed)
    }
}

/// The report without the command that repeats it.
struct Story<'f, O>(&'f ThreadsFailure<O>);

impl<O: fmt::Debug> fmt::Display for ThreadsFailure<O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut repeat = format!("Search::Replay of schedule {}", self.schedule);
        if !self.crashes.is_empty() {
            repeat += &format!(", ExplorationOptions::replay of crash {}", self.replay());
        }
        formatter.write_str(&self.narrate(&format!("{repeat}; found by {}", self.command)))
    }
}

impl<O: fmt::Debug> fmt::Display for Story<'_, O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(failure) = self;
        write_head(formatter, &failure.what, &failure.planted, &failure.setup)?;
        formatter.write_str(&failure.program.lines())?;
        writeln!(formatter, "  thread {} begins", failure.schedule.first)?;
        let mut from = failure.schedule.first;
        let unsaid = failure.places.len().saturating_sub(SWITCHES_SAID);
        for (index, ((step, to), place)) in failure
            .schedule
            .switches
            .iter()
            .zip(&failure.places)
            .enumerate()
        {
            if index >= unsaid {
                writeln!(
                    formatter,
                    "  step {step}: thread {from} stops {place}; thread {to} goes on"
                )?;
            } else if index == 0 {
                writeln!(formatter, "  ... {unsaid} switches")?;
            }
            from = *to;
        }
        write_crashes(formatter, &failure.crashes)
    }
}
