//! What a failed exploration of threads says.

use std::fmt;

use medium::sim::{Event, Trace};

use super::Program;
use super::order::Schedule;
use crate::report::{Crash, Replay, write_crashes};
use crate::subject::Complaint;

/// How many switches are told, the last ones: a livelock has thousands.
const SWITCHES_SAID: usize = 24;

/// A schedule after which something was wrong, or a crash of one.
#[derive(Clone, Debug)]
pub struct ThreadsFailure<O> {
    /// What is wrong.
    pub what: Complaint,
    /// The operations before the structure was explored.
    pub setup: Vec<O>,
    /// What the threads did.
    pub program: Program<O>,
    /// In which order.
    pub schedule: Schedule,
    /// For each switch, where the thread stood that was stopped.
    pub places: Vec<String>,
    /// The crashes; none, if it goes wrong without one.
    pub crashes: Vec<Crash>,
    /// The faults that were planted.
    pub planted: Vec<String>,
    /// The command that repeats it.
    pub command: String,
}

impl<O> ThreadsFailure<O> {
    /// The crashes to repeat.
    pub fn replay(&self) -> Replay {
        let crashes = self.crashes.iter().map(|crash| (crash.event, crash.choices.clone()));
        Replay { crashes: crashes.collect() }
    }
}

/// For each switch, the last operation on the medium that the thread had done.
pub(super) fn places(schedule: &Schedule, events: &[usize], trace: &Trace) -> Vec<String> {
    let mut from = schedule.first;
    let mut places = Vec::new();
    for ((_, to), event) in schedule.switches.iter().zip(events) {
        let before = trace.events.iter().take(*event).rev();
        let mine = |event: &&Event| event.thread() == Some(from);
        let last = before.clone().find(mine).and_then(Event::site);
        places.push(match last {
            Some((kind, site)) => format!("after its {kind:?} at {site}"),
            None => "before its first store".to_owned(),
        });
        from = *to;
    }
    places
}

impl<O: fmt::Debug> fmt::Display for ThreadsFailure<O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.what)?;
        for fault in &self.planted {
            writeln!(formatter, "  planted: {fault}")?;
        }
        if !self.setup.is_empty() {
            writeln!(formatter, "  after setup {:?}", self.setup)?;
        }
        if !self.program.before.is_empty() {
            writeln!(formatter, "  and then {:?}", self.program.before)?;
        }
        for (thread, operations) in self.program.threads.iter().enumerate() {
            writeln!(formatter, "  thread {thread}: {operations:?}")?;
        }
        writeln!(formatter, "  thread {} begins", self.schedule.first)?;
        let mut from = self.schedule.first;
        let unsaid = self.places.len().saturating_sub(SWITCHES_SAID);
        for (index, ((step, to), place)) in self.schedule.switches.iter().zip(&self.places).enumerate() {
            if index >= unsaid {
                writeln!(formatter, "  step {step}: thread {from} stops {place}; thread {to} goes on")?;
            } else if index == 0 {
                writeln!(formatter, "  ... {unsaid} switches")?;
            }
            from = *to;
        }
        write_crashes(formatter, &self.crashes)?;
        writeln!(formatter, "  found by {}", self.command)?;
        write!(formatter, "  to repeat it: Search::Replay of schedule {}", self.schedule)?;
        if !self.crashes.is_empty() {
            write!(formatter, ", Options::replay of crash {}", self.replay())?;
        }
        Ok(())
    }
}
