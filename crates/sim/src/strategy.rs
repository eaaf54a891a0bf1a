//! Strategies: which of the possible contents the loads of a run find.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::Arc;

use medium::sim::{Chooser, Decision};
use parking_lot::Mutex;

/// The content that loads find after a crash, if several are possible. Reads and prints as one
/// word: `0,2` (choices), `new`, `ahead=LINE`, `behind=LINE`, `random=SEED`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Choices {
    /// The value of this index, one load after the other; then the oldest.
    Given(Vec<u16>),
    /// Every line as new as possible.
    Newest,
    /// This line new, all others old.
    Ahead(u32),
    /// This line old, all others new.
    Behind(u32),
    /// At random, from this seed.
    Random(u64),
}

impl Default for Choices {
    /// Every line as old as possible.
    fn default() -> Self {
        Self::Given(Vec::new())
    }
}

impl Choices {
    /// The choices, if they are given one by one.
    pub(crate) fn given(&self) -> Option<&[u16]> {
        match self {
            Self::Given(path) => Some(path),
            _ => None,
        }
    }
}

impl fmt::Display for Choices {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(path) => {
                let choices: Vec<String> = path.iter().map(u16::to_string).collect();
                formatter.write_str(&choices.join(","))
            }
            Self::Newest => formatter.write_str("new"),
            Self::Ahead(line) => write!(formatter, "ahead={line}"),
            Self::Behind(line) => write!(formatter, "behind={line}"),
            Self::Random(seed) => write!(formatter, "random={seed}"),
        }
    }
}

impl FromStr for Choices {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        match text.split_once('=') {
            Some(("ahead", line)) => line.parse().map(Self::Ahead),
            Some(("behind", line)) => line.parse().map(Self::Behind),
            Some(("random", seed)) => seed.parse().map(Self::Random),
            _ if text == "new" => Ok(Self::Newest),
            _ => {
                let choices = text.split(',').filter(|choice| !choice.is_empty());
                choices
                    .map(str::parse)
                    .collect::<Result<_, _>>()
                    .map(Self::Given)
            }
        }
    }
}

/// One decision of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ValueDecision {
    pub(crate) line: u32,
    pub(crate) word: usize,
    pub(crate) value: u64,
    /// The index of the value among those that were possible.
    pub(crate) choice: u16,
    /// The number of possible values.
    pub(crate) choices: u16,
}

/// The decisions of a run: those to make, and those made.
#[derive(Debug)]
pub(crate) struct DecisionPlan {
    pub(crate) choices: Choices,
    /// The decisions made in this run.
    pub(crate) decided: Vec<ValueDecision>,
    /// State of the generator of random numbers.
    pub(crate) random: u64,
}

impl DecisionPlan {
    /// Begins a run.
    pub(crate) fn begin(&mut self, choices: Choices) {
        if let Choices::Random(seed) = choices {
            self.random = seed;
        }
        self.choices = choices;
        self.decided.clear();
    }

    /// The next path in depth-first order after the decisions of the last run; none if that was the
    /// last path. Only the last choice of the path is new.
    pub(crate) fn next_path(&self) -> Option<Vec<u16>> {
        let last = self
            .decided
            .iter()
            .rposition(|decided| decided.choice + 1 < decided.choices)?;
        let mut path: Vec<u16> = self.decided[..=last]
            .iter()
            .map(|decided| decided.choice)
            .collect();
        path[last] += 1;
        Some(path)
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

/// The chooser that follows a [`DecisionPlan`].
pub(crate) struct Follower(pub(crate) Arc<Mutex<DecisionPlan>>);

impl Chooser for Follower {
    fn choose(&mut self, decision: &Decision<'_>) -> usize {
        let mut plan = self.0.lock();
        let oldest = 0;
        let newest = decision.newest;
        let count = decision.values.len();
        let newest_if = |is_new: bool| if is_new { newest } else { oldest };
        let choice = match &plan.choices {
            // A replay that does not repeat the run may have a choice out of range here; it must
            // not panic.
            Choices::Given(path) => path
                .get(plan.decided.len())
                .map_or(oldest, |choice| usize::from(*choice).min(count - 1)),
            Choices::Newest => newest,
            Choices::Ahead(line) => newest_if(*line == decision.line),
            Choices::Behind(line) => newest_if(*line != decision.line),
            Choices::Random(_) => (plan.next_random() % count as u64) as usize,
        };
        plan.decided.push(ValueDecision {
            line: decision.line,
            word: decision.word,
            value: decision.values[choice],
            choice: choice as u16,
            choices: count as u16,
        });
        choice
    }
}
