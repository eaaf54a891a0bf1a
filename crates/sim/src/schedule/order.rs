//! The order of threads: all schedules, random ones, or one repeated.

use std::fmt;
use std::str::FromStr;

use rustc_hash::FxHashMap;

use super::states::mix;
use crate::subject::Complaint;

/// At which steps the scheduler switched threads, and to which. Reads and prints as
/// `thread,step:thread,step:thread`: the first thread, then the switches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schedule {
    /// The thread that begins.
    pub first: u16,
    /// Steps, counted over all threads from 0, and the thread that runs from there.
    pub switches: Vec<(u32, u16)>,
}

impl fmt::Display for Schedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.first)?;
        self.switches
            .iter()
            .try_for_each(|(step, thread)| write!(formatter, ",{step}:{thread}"))
    }
}

impl FromStr for Schedule {
    type Err = Complaint;

    fn from_str(text: &str) -> Result<Self, Complaint> {
        let bad =
            |part: &str| format!("no schedule: {part:?}; give thread,step:thread,step:thread");
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let first = first.parse().map_err(|_| bad(first))?;
        let switch = |part: &str| {
            let (step, thread) = part.split_once(':').ok_or_else(|| bad(part))?;
            Ok((
                step.parse().map_err(|_| bad(part))?,
                thread.parse().map_err(|_| bad(part))?,
            ))
        };
        Ok(Self {
            first,
            switches: parts.map(switch).collect::<Result<_, Complaint>>()?,
        })
    }
}

/// One decision of a run.
#[derive(Clone, Debug)]
pub(super) struct ThreadDecision {
    /// How many threads could run; the first is the one that runs without a preemption.
    options: usize,
    chosen: usize,
    /// The step, to notice a run that does not repeat the last one.
    step: u32,
    /// Events recorded before.
    event: usize,
}

/// All schedules up to a number of preemptions, depth first. A thread is preempted if it could have
/// gone on.
pub(super) struct ScheduleTree {
    preemptions_max: u32,
    /// Whether a run ends at a state from which everything was tried.
    prunes: bool,
    /// The number of preemptions of the last round.
    begun: Option<u32>,
    /// Choices to repeat, and the steps at which they were made.
    path: Vec<(usize, u32)>,
    decided: Vec<ThreadDecision>,
    preemptions: u32,
    /// States from which everything was tried, except steps of certain sleeping threads (see
    /// [`Sleepers`]), and the preemptions that were left then.
    ///
    /// [`Sleepers`]: super::states::Sleepers
    visited: FxHashMap<u64, u32>,
}

/// How a decision ended.
pub(super) enum Choice {
    /// This thread goes on.
    Go(u16),
    /// Everything from here on was tried before.
    Known,
    /// The run does not repeat the last one although it made the same decisions.
    Astray,
}

/// A choice between threads.
#[derive(Clone, Copy)]
pub(super) struct ThreadChoice<'o> {
    /// The threads that can run next. The first one costs nothing.
    pub(super) options: &'o [u16],
    /// The threads whose next step was tried already, as bits.
    pub(super) asleep: u64,
    /// Whether the other options are preemptions.
    pub(super) preempts: bool,
    /// The step, counted over all threads.
    pub(super) step: u32,
    /// The event that is recorded next.
    pub(super) event: usize,
}

impl ScheduleTree {
    pub(super) fn new(preemptions_max: u32, prunes: bool) -> Self {
        Self {
            preemptions_max,
            prunes,
            begun: None,
            path: Vec::new(),
            decided: Vec::new(),
            preemptions: 0,
            visited: FxHashMap::default(),
        }
    }

    /// Starts again with this number of preemptions; returns whether the number has changed.
    pub(super) fn begin_round(&mut self, preemptions_max: u32) -> bool {
        self.visited.clear();
        self.path.clear();
        self.preemptions_max = preemptions_max;
        self.begun.replace(preemptions_max) != Some(preemptions_max)
    }

    /// Preemptions of this run so far.
    pub(super) fn preemptions(&self) -> u32 {
        self.preemptions
    }

    pub(super) fn begin_run(&mut self) {
        self.decided.clear();
        self.preemptions = 0;
    }

    /// Prepares the next run; `false` if that was the last one.
    pub(super) fn advance(&mut self) -> bool {
        let next = self
            .decided
            .iter()
            .rposition(|decided| decided.chosen + 1 < decided.options);
        self.path.clear();
        let Some(last) = next else { return false };
        self.path.extend(
            self.decided[..=last]
                .iter()
                .map(|decided| (decided.chosen, decided.step)),
        );
        self.path[last].0 += 1;
        true
    }

    /// The number of events that earlier runs have recorded in the same way: up to the first new
    /// choice.
    pub(super) fn known_events(&self) -> usize {
        self.path
            .len()
            .checked_sub(1)
            .and_then(|last| self.decided.get(last))
            .map_or(0, |last| last.event)
    }

    /// Whether a run ends at a state from which everything was tried.
    pub(super) fn prunes(&self) -> bool {
        self.prunes
    }

    /// Whether everything was tried from a state with this number of preemptions left, except steps
    /// of sleeping threads. From now on this counts as tried.
    fn visit(&mut self, state: u64, asleep: u64, left: u32) -> bool {
        let number = |asleep| mix(state, asleep);
        // A trial with fewer threads asleep tried more. Checks all subsets of the sleeping threads.
        let mut fewer = asleep;
        loop {
            if self
                .visited
                .get(&number(fewer))
                .is_some_and(|tried| *tried >= left)
            {
                return true;
            }
            if fewer == 0 {
                break;
            }
            fewer = (fewer - 1) & asleep;
        }
        self.visited.insert(number(asleep), left);
        false
    }

    /// The thread that runs next.
    pub(super) fn choose(
        &mut self,
        decision: &ThreadChoice<'_>,
        state: impl FnOnce() -> u64,
    ) -> Choice {
        let ThreadChoice {
            options,
            asleep,
            preempts,
            step,
            event,
        } = *decision;
        let left = self.preemptions_max - self.preemptions;
        let position = self.decided.len();
        // One number for the state and the thread that would run.
        if self.prunes
            && position >= self.path.len()
            && self.visit(mix(state(), u64::from(options[0])), asleep, left)
        {
            return Choice::Known;
        }
        if options.len() == 1 || preempts && left == 0 {
            return Choice::Go(options[0]);
        }
        let (chosen, step_before) = self.path.get(position).copied().unwrap_or((0, step));
        let Some(thread) = options.get(chosen).copied() else {
            return Choice::Astray;
        };
        if step != step_before {
            return Choice::Astray;
        }
        self.preemptions += u32::from(preempts && chosen > 0);
        self.decided.push(ThreadDecision {
            options: options.len(),
            chosen,
            step,
            event,
        });
        Choice::Go(thread)
    }
}

/// Probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi, Nagarakatte, ASPLOS 2010):
/// threads have random priorities, the highest goes on, and at `depth - 1` random steps it falls to
/// the lowest. A bug that needs `depth` orderings is found with a probability of at least 1 in
/// (threads * steps^(depth-1)) a run.
pub(super) struct RandomPriorities {
    priorities: Vec<u32>,
    /// Steps at which the running thread falls to the lowest priority, ascending.
    falls: Vec<u32>,
    lowest: u32,
    state: u64,
}

impl RandomPriorities {
    pub(super) fn new(seed: u64, threads: usize, depth: u32, steps: u32) -> Self {
        let mut random = Self {
            priorities: Vec::new(),
            falls: Vec::new(),
            lowest: depth,
            state: seed,
        };
        random.priorities = (0..threads as u32)
            .map(|thread| thread + depth + 1)
            .collect();
        for last in (1..threads).rev() {
            let other = random.below(last as u64 + 1) as usize;
            random.priorities.swap(last, other);
        }
        random.falls = (1..depth)
            .map(|_| random.below(u64::from(steps.max(1))) as u32)
            .collect();
        random.falls.sort_unstable();
        random
    }

    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }

    /// The thread that runs at this step, of those that can.
    pub(super) fn choose(&mut self, current: u16, options: &[u16], step: u32) -> u16 {
        while self.falls.first().is_some_and(|fall| *fall <= step) {
            self.falls.remove(0);
            self.lowest -= 1;
            if let Some(priority) = self.priorities.get_mut(usize::from(current)) {
                *priority = self.lowest;
            }
        }
        let highest = options
            .iter()
            .max_by_key(|thread| self.priorities[usize::from(**thread)]);
        highest.copied().unwrap_or(current)
    }
}

#[cfg(test)]
mod tests;
