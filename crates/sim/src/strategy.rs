//! Strategies: which of the possible contents a run finds.

use std::sync::Arc;

use medium::sim::{Chooser, Decision};
use parking_lot::Mutex;

/// How decisions are made in one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Strategy {
    /// As the path says, then the oldest.
    Path,
    /// Every line as old as possible.
    Oldest,
    /// Every line as new as possible.
    Newest,
    /// This line new, all others old.
    Ahead(u32),
    /// This line old, all others new.
    Behind(u32),
    /// By chance.
    Random,
}

/// One decision of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Decided {
    pub(crate) line: u32,
    pub(crate) word: usize,
    pub(crate) value: u64,
    /// The index of the value among those that were possible.
    pub(crate) choice: u16,
    /// How many were possible.
    pub(crate) choices: u16,
}

/// The state of decisions: what is to be chosen, and what was.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) strategy: Strategy,
    /// For [`Strategy::Path`]: choices to repeat.
    pub(crate) path: Vec<u16>,
    /// What was decided in this run.
    pub(crate) decided: Vec<Decided>,
    /// State of the generator of random numbers.
    pub(crate) random: u64,
}

impl Plan {
    /// Prepares the next path in depth-first order, after the decisions of the last run; `false` if that was the last
    /// one. The last choice of the path is a new one, those before were made before.
    pub(crate) fn advance(&mut self) -> bool {
        let next = self.decided.iter().rposition(|decided| decided.choice + 1 < decided.choices);
        self.path.clear();
        let Some(last) = next else { return false };
        self.path.extend(self.decided[..=last].iter().map(|decided| decided.choice));
        self.path[last] += 1;
        true
    }

    /// The lines that were decided about, each once.
    pub(crate) fn lines(&self) -> Vec<u32> {
        let mut lines: Vec<u32> = self.decided.iter().map(|decided| decided.line).collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    fn next_random(&mut self) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// The chooser that follows a [`Plan`].
pub(crate) struct Follower(pub(crate) Arc<Mutex<Plan>>);

impl Chooser for Follower {
    fn choose(&mut self, decision: &Decision<'_>) -> usize {
        let mut plan = self.0.lock();
        let (oldest, newest, count) = (0, decision.newest, decision.values.len());
        let choice = match plan.strategy {
            // A choice too large for a replay that went another way must not end in a panic here.
            Strategy::Path => {
                plan.path.get(plan.decided.len()).map_or(oldest, |choice| usize::from(*choice).min(count - 1))
            }
            Strategy::Oldest => oldest,
            Strategy::Newest => newest,
            Strategy::Ahead(line) => {
                if line == decision.line {
                    newest
                } else {
                    oldest
                }
            }
            Strategy::Behind(line) => {
                if line == decision.line {
                    oldest
                } else {
                    newest
                }
            }
            Strategy::Random => (plan.next_random() % count as u64) as usize,
        };
        plan.decided.push(Decided {
            line: decision.line,
            word: decision.word,
            value: decision.values[choice],
            choice: choice as u16,
            choices: count as u16,
        });
        choice
    }
}
