//! Threads under exploration: every relevant interleaving, and every crash of each.
//!
//! The threads of a [`Program`] are coroutines of one thread of the operating system, so that a
//! switch costs nanoseconds. They run one at a time; before each access that other threads could
//! notice ([`medium::sync`] lists these) the scheduler may switch to another thread. Each run is
//! recorded, and then
//!
//! - its **history** is judged: some order of the operations must explain their results, separately
//!   for each part of the state (for each key of a map). Each operation takes effect between its
//!   call and its return;
//! - it is **crashed** at every crash point, like the trace of a single thread; the state after a
//!   crash must contain every operation that had returned, and each pending one wholly or not at
//!   all;
//! - a **deadlock**, a run without an end, a panic and an error are violations as well.
//!
//! [`Search`] chooses the runs:
//!
//! - [`Search::Exhaustive`]: all schedules with a bounded number of *preemptions* (a thread is
//!   stopped although it could have gone on). Two are enough for most bugs (Musuvathi, Qadeer, PLDI
//!   2007). Three reductions keep the number of runs small, and lose no outcome
//!   (`tests/reduction.rs`):
//!   1. Threads are stopped only before accesses in conflict with those of a thread that is not
//!      done, and before a step that makes something durable (a fence, or a store with persistent
//!      caches), when stores are visible and not yet durable.
//!   2. A preempted thread goes on only after a step in conflict with its own next step: otherwise
//!      it could have taken that step before the preemption.
//!   3. A run ends at a state from which everything was tried. In equal states each thread has seen
//!      the same and is about to do the same, and each shared place was last written by the same
//!      thread with the same knowledge.
//! - [`Search::Sweep`]: visible before durable. One thread is stopped at a fence, when its
//!   publishing store is visible; the others run to their ends; then comes the crash.
//! - [`Search::Random`]: probabilistic concurrency testing, for long runs.
//!
//! Not covered: weak memory orderings, as the scheduler is sequentially consistent (these are
//! tested with `loom`); and interleavings within one step, between two yield points (`medium::sync`
//! says why).

mod crew;
mod order;
mod record;
mod report;
mod states;
mod turn;

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use medium::sim::Mutation;

use crate::context::AcceptableStates;
use crate::explore::{Explorer, SHRINK_RECOVERIES_MAX};
use crate::linearize::History;
use crate::report::Crash;
use crate::subject::{Complaint, Subject};

use self::crew::Crew;
use self::order::{RandomPriorities, ScheduleTree};
use self::states::mix;
use self::turn::{End, ScheduleOrder, Turn};

pub use self::order::Schedule;
pub use self::report::ThreadsFailure;

/// A part of the state, the operation on that part, and what the operation returned there.
pub type PartOf<S> = (
    u64,
    <S as Subject>::Operation,
    Option<<S as Subject>::Outcome>,
);

/// A subject that several threads use at once.
///
/// Given the order of its threads' steps it must be deterministic, as a [`Subject`] is. All state
/// that its threads share must be in the medium or behind [`medium::sync`].
pub trait Concurrent: Subject {
    /// Executes an operation, as [`Subject::apply`] does, beside other threads.
    fn call(
        &self,
        instance: &Self::Instance,
        operation: &Self::Operation,
    ) -> Result<Self::Outcome, Complaint>;

    /// Splits each of these calls into one operation for each independent part of the state that it
    /// concerns. Histories are judged part by part, which is much faster with many parts. An
    /// operation that takes effect on each part at a time of its own, such as a scan, becomes as
    /// many operations. By default there is one part, the whole.
    fn parts(
        &self,
        start: &Self::State,
        calls: &[(Self::Operation, Option<Self::Outcome>)],
    ) -> Vec<Vec<PartOf<Self>>> {
        let _ = start;
        let whole = |(operation, outcome): &(Self::Operation, Option<Self::Outcome>)| {
            vec![(0, operation.clone(), outcome.clone())]
        };
        calls.iter().map(whole).collect()
    }
}

/// The operations of several threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program<O> {
    /// Operations that one thread executes before the others begin, on the same structure.
    pub before: Vec<O>,
    /// The operations of each thread. At most 64 threads.
    pub threads: Vec<Vec<O>>,
    /// Threads, by number, that are never preempted: for programs too long for all schedules.
    pub uninterrupted: Vec<usize>,
}

impl<O> Program<O> {
    /// Threads without operations before them.
    pub fn of(threads: Vec<Vec<O>>) -> Self {
        Self {
            before: Vec::new(),
            threads,
            uninterrupted: Vec::new(),
        }
    }
}

impl<O: Clone> Program<O> {
    /// Threads with one operation each.
    pub fn single(operations: &[O]) -> Self {
        Self::of(
            operations
                .iter()
                .map(|operation| vec![operation.clone()])
                .collect(),
        )
    }

    /// Lists of operations: those before, then those of each thread.
    fn parts(&self) -> impl Iterator<Item = &[O]> {
        std::iter::once(&self.before)
            .chain(&self.threads)
            .map(Vec::as_slice)
    }

    /// The program without the operation at `position`; `None` if there are fewer operations.
    fn without(&self, mut position: usize) -> Option<Self> {
        let mut shorter = self.clone();
        if position < self.before.len() {
            shorter.before.remove(position);
            return Some(shorter);
        }
        position -= self.before.len();
        let mut thread = 0;
        while position >= self.threads.get(thread)?.len() {
            position -= self.threads[thread].len();
            thread += 1;
        }
        shorter.threads[thread].remove(position);
        if shorter.threads[thread].is_empty() {
            shorter.threads.remove(thread);
            shorter.uninterrupted.retain(|other| *other != thread);
            shorter
                .uninterrupted
                .iter_mut()
                .for_each(|other| *other -= usize::from(*other > thread));
        }
        Some(shorter)
    }
}

impl<O: fmt::Debug> Program<O> {
    /// A line for each thread.
    fn lines(&self) -> String {
        let mut lines = String::new();
        if !self.before.is_empty() {
            lines += &format!("  and then {:?}\n", self.before);
        }
        for (thread, operations) in self.threads.iter().enumerate() {
            lines += &format!("  thread {thread}: {operations:?}\n");
        }
        lines
    }
}

/// The schedules that are tried. See the [module](self).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Search {
    /// All schedules with at most this number of preemptions.
    Exhaustive {
        /// The largest number of preemptions.
        preemptions_max: u32,
    },
    /// One preemption, at a fence.
    Sweep,
    /// Random schedules.
    Random {
        /// The number of runs.
        runs: u32,
        /// How many ordering constraints a bug may need: 1 to about 5.
        depth: u32,
        /// The seed of the random numbers.
        seed: u64,
    },
    /// This one.
    Replay(Schedule),
}

/// How threads are explored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scheduling {
    /// Which schedules.
    pub search: Search,
    /// Whether each run is crashed as well.
    pub crashes: bool,
    /// The most steps of a run; more are a livelock.
    pub steps_max: u32,
    /// Whether to skip schedules that are equivalent to others. If not, [`Search::Exhaustive`] may
    /// stop a thread before each access, and no run ends early: slow, to check the reductions
    /// (`tests/reduction.rs`).
    pub reduced: bool,
}

impl Default for Scheduling {
    fn default() -> Self {
        Self {
            search: Search::Exhaustive { preemptions_max: 2 },
            crashes: true,
            steps_max: 100_000,
            reduced: true,
        }
    }
}

/// The result of an exploration of threads.
pub type ThreadsVerdict<S> = Result<(), Box<ThreadsFailure<<S as Subject>::Operation>>>;

impl<S: Concurrent + 'static> Explorer<S> {
    /// Explores threads, from the state that [`Explorer::set_up`] left. On a failure, searches for
    /// a simpler one.
    pub fn explore_threads(
        &mut self,
        program: &Program<S::Operation>,
        scheduling: &Scheduling,
    ) -> ThreadsVerdict<S> {
        let mut verdict = self.search(program, scheduling);
        let is_search = !matches!(scheduling.search, Search::Replay(_)) && self.options.shrink;
        if let Err(failure) = &mut verdict
            && is_search
        {
            let stats = self.stats;
            self.simplify(failure, scheduling);
            self.stats = stats;
        }
        self.rest();
        verdict
    }

    /// Explores threads, and returns each fault that could be planted, as [`Explorer::survey`]
    /// does. Publishes and persists of the threads are not moved, only those after a crash.
    pub fn survey_threads(
        &mut self,
        program: &Program<S::Operation>,
        scheduling: &Scheduling,
    ) -> Result<BTreeSet<Mutation>, Box<ThreadsFailure<S::Operation>>> {
        self.survey_while(|explorer| explorer.explore_threads(program, scheduling))
    }

    /// Searches for a failure with fewer operations, by the same search; with no more preemptions,
    /// where they are counted. If that takes too long, or random schedules do not find it again,
    /// the result is not the shortest.
    fn simplify(
        &mut self,
        failure: &mut Box<ThreadsFailure<S::Operation>>,
        scheduling: &Scheduling,
    ) {
        let search = match &scheduling.search {
            Search::Exhaustive { .. } => Search::Exhaustive {
                preemptions_max: failure.preemptions,
            },
            other => other.clone(),
        };
        let enough = self.stats.recoveries + SHRINK_RECOVERIES_MAX;
        let scheduling = Scheduling {
            search,
            ..scheduling.clone()
        };
        let mut position = 0;
        while let Some(shorter) = failure.program.without(position) {
            self.forget();
            if shorter.threads.is_empty() || self.stats.recoveries > enough {
                break;
            }
            match self.search(&shorter, &scheduling) {
                Err(simpler) => *failure = simpler,
                Ok(()) => position += 1,
            }
        }
        self.forget();
    }

    fn search(
        &mut self,
        program: &Program<S::Operation>,
        scheduling: &Scheduling,
    ) -> ThreadsVerdict<S> {
        assert!((1..=64).contains(&program.threads.len()), "1 to 64 threads");
        self.allow_steps(program.parts().map(<[S::Operation]>::len).sum());
        let reduced = scheduling.reduced;
        let order = match &scheduling.search {
            Search::Exhaustive { preemptions_max } => {
                ScheduleOrder::All(ScheduleTree::new(*preemptions_max, reduced))
            }
            Search::Sweep => ScheduleOrder::All(ScheduleTree::new(1, false)),
            Search::Random { depth, seed, .. } => ScheduleOrder::Random(RandomPriorities::new(
                *seed,
                program.threads.len(),
                *depth,
                0,
            )),
            Search::Replay(schedule) => ScheduleOrder::Again(schedule.clone()),
        };
        self.announce(|explorer| (explorer.word(program.parts()), program.lines()));
        let is_reduced = reduced || scheduling.search == Search::Sweep;
        let turn = Turn::new(self.sim.clone(), order, self.options.rules, is_reduced);
        let turn = Rc::new(turn);
        let mut crew = Crew::default();
        match &scheduling.search {
            Search::Exhaustive { preemptions_max } => {
                // Schedules with few preemptions come first: a failure then has the fewest that it
                // needs, and conflicts are learned while there are few runs.
                let first = if reduced { 0 } else { *preemptions_max };
                for preemptions in first..=*preemptions_max {
                    // Again as long as runs show new conflicts.
                    while turn.begin_round(preemptions) {
                        self.search_tree(&mut crew, &turn, program, scheduling)?;
                    }
                }
                Ok(())
            }
            Search::Sweep => self.search_tree(&mut crew, &turn, program, scheduling),
            Search::Random { runs, depth, seed } => {
                let mut steps = 0;
                for run in 0..*runs {
                    let seed = mix(*seed, u64::from(run));
                    turn.set_order(ScheduleOrder::Random(RandomPriorities::new(
                        seed,
                        program.threads.len(),
                        *depth,
                        steps,
                    )));
                    self.try_run(&mut crew, &turn, program, scheduling)?;
                    steps = steps.max(turn.steps());
                }
                Ok(())
            }
            Search::Replay(_) => self.try_run(&mut crew, &turn, program, scheduling),
        }
    }

    fn search_tree(
        &mut self,
        crew: &mut Crew,
        turn: &Rc<Turn>,
        program: &Program<S::Operation>,
        scheduling: &Scheduling,
    ) -> ThreadsVerdict<S> {
        loop {
            self.try_run(crew, turn, program, scheduling)?;
            if !turn.advance() {
                return Ok(());
            }
        }
    }

    /// Runs the program once, judges the run and crashes it.
    fn try_run(
        &mut self,
        crew: &mut Crew,
        turn: &Rc<Turn>,
        program: &Program<S::Operation>,
        scheduling: &Scheduling,
    ) -> ThreadsVerdict<S> {
        self.sim.set_mutations(self.options.mutations.clone());
        self.tell_schedule(String::new);
        let recorded = self.record_threads(crew, turn, program, scheduling.steps_max);
        self.sim.set_mutations(Vec::new());
        self.stats.schedules += 1;
        self.stats.schedules_cut += u64::from(matches!(turn.end(), Some(End::Known | End::Asleep)));
        let failure = |explorer: &Self, what: Complaint, crashes: Vec<Crash>| {
            let (schedule, events) = turn.schedule();
            let places = report::places(&schedule, &events, &recorded);
            Box::new(ThreadsFailure {
                what,
                setup: explorer.setup.clone(),
                program: program.clone(),
                schedule,
                preemptions: turn.preemptions(),
                places,
                crashes,
                planted: explorer
                    .options
                    .mutations
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                command: explorer.options.command.clone(),
                seed: match scheduling.search {
                    Search::Random { seed, .. } => seed,
                    _ => explorer.options.seed,
                },
            })
        };
        if let Err(what) = &recorded.verdict {
            return Err(failure(self, what.clone(), Vec::new()));
        }
        let history = History::new(recorded.start.clone(), Rc::clone(&recorded.calls));
        if scheduling.crashes {
            let from = recorded.begin.max(turn.known_events());
            self.tell_schedule(|| format!("{}@", turn.schedule().0));
            let context = AcceptableStates::of_threads(
                &*self.subject,
                history,
                turn.end() == Some(End::Known),
            );
            if let Err(found) = self.crash_trace(&recorded.trace, from, context) {
                return Err(failure(self, found.what.clone(), found.crashes.clone()));
            }
        }
        Ok(())
    }
}
