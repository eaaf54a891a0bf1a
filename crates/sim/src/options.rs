//! What is explored, and how far.

use medium::LineForm;
use medium::sim::Mutation;

use crate::model::Rules;
use crate::report::Replay;

/// Which of the images that a crash may leave are tried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Images {
    /// All of them: recovery branches on each word that it loads from a line whose content is open.
    All,
    /// All of them, each made in full: slow, and only there to check the other way while images are few.
    Eager,
    /// All lines old, all new, each line alone new, each alone old; and so many by chance.
    Some {
        /// Random images for each crash point.
        random: u32,
    },
}

/// Where a second crash is tried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SecondCrash {
    /// Nowhere.
    Never,
    /// During recovery, and when its result was seen.
    InRecovery,
    /// During recovery and the operations that follow.
    Anywhere,
}

/// What is explored, and how far.
#[derive(Clone, Debug)]
pub struct Options {
    /// The memory model.
    pub rules: Rules,
    /// How lines are stored.
    pub line_form: LineForm,
    /// The most bytes of memory.
    pub limit_bytes: u64,
    /// From this offset on, in bytes, fresh memory holds rubbish instead of zeros: more than a medium does, and what a
    /// structure sees that takes space which was used before.
    pub rubbish_from: Option<u64>,
    /// Which images.
    pub images: Images,
    /// Whether crashes come in pairs.
    pub second_crash: SecondCrash,
    /// Crash only from this operation on; the operations before set the stage. 0 includes the opening.
    pub from_operation: usize,
    /// The most recoveries at one crash point; what is left is counted as cut short.
    pub recoveries_per_point_max: u64,
    /// The most loads, stores, flushes and fences of one run: of a sequence without a crash, of a recovery with what
    /// follows it. As many more for each hundred operations that are explored, which make a longer run no loop.
    pub steps_max: u64,
    /// The seed of random images.
    pub seed: u64,
    /// Whether, where only one state is right after a crash, the operations that follow come before anything is looked at:
    /// what recovers at its first touch is then touched by them first.
    pub follow_up_first: bool,
    /// Faults to plant.
    pub mutations: Vec<Mutation>,
    /// Whether a shorter sequence of operations is looked for when one fails.
    pub shrink: bool,
    /// Whether crash points are left out that can leave nothing new: where nothing changed since the last one, and what leaves
    /// what another one left, with the same expectations. Otherwise a crash comes before every event; slow, and there to
    /// check that nothing is missed.
    pub reduced: bool,
    /// Repeats these crashes only.
    pub replay: Option<Replay>,
    /// The command that runs this exploration, for reports.
    pub command: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rules: Rules::Lines,
            line_form: LineForm::Single,
            limit_bytes: 4 << 20,
            rubbish_from: None,
            images: Images::All,
            second_crash: SecondCrash::InRecovery,
            from_operation: 0,
            recoveries_per_point_max: 100_000,
            steps_max: 1_000_000,
            seed: 1,
            follow_up_first: false,
            mutations: Vec::new(),
            shrink: true,
            reduced: true,
            replay: None,
            command: "cargo test".to_owned(),
        }
    }
}
