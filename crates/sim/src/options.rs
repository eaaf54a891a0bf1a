//! The options of an exploration.

use medium::LineForm;
use medium::sim::Mutation;

use crate::model::Rules;
use crate::report::CrashReplay;

/// Which of the images that a crash may leave are tried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Images {
    /// All of them: recovery branches on each word that it loads from a line whose content is open.
    All,
    /// All of them, each made in full: slow, to check [`Images::All`] where images are few.
    Eager,
    /// All lines old, all new, each line alone new, each alone old; and a number of random ones.
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
    /// During recovery, and after its result was observed.
    InRecovery,
    /// During recovery and the operations that follow.
    Anywhere,
}

/// The options of an exploration.
#[derive(Clone, Debug)]
pub struct ExplorationOptions {
    /// The memory model.
    pub rules: Rules,
    /// How lines are stored.
    pub line_form: LineForm,
    /// The most bytes of memory.
    pub limit_bytes: u64,
    /// From this offset on, in bytes, fresh memory holds rubbish instead of zeros. No medium does
    /// that, but a structure finds such content in space that was used before.
    pub rubbish_from: Option<u64>,
    /// Which images.
    pub images: Images,
    /// Whether and where a second crash is tried.
    pub second_crash: SecondCrash,
    /// Crash only from this operation on; those before it only prepare the state. 0 includes the
    /// opening.
    pub from_operation: usize,
    /// The most recoveries at one crash point. A point that would need more is counted as cut
    /// short.
    pub recoveries_per_point_max: u64,
    /// The most loads, stores, flushes and fences of one run: of a sequence without a crash, or of
    /// a recovery and the operations after it. The limit grows by the same number for each hundred
    /// operations explored.
    pub steps_max: u64,
    /// The seed of random images.
    pub seed: u64,
    /// Whether, if only one state is right after a crash, the follow-up operations run before the
    /// first observation. A structure that recovers nodes at their first use then recovers them in
    /// these operations.
    pub follow_up_first: bool,
    /// Faults to plant.
    pub mutations: Vec<Mutation>,
    /// Whether to search for a shorter sequence of operations when one fails.
    pub shrink: bool,
    /// Whether to skip crash points that can leave nothing new: those before which nothing changed,
    /// and those with the same images and expectations as another one. If not, there is a crash
    /// before every event: slow, to check that nothing is missed.
    pub reduced: bool,
    /// Repeats these crashes only.
    pub replay: Option<CrashReplay>,
    /// The command that runs this exploration, for reports.
    pub command: String,
}

impl Default for ExplorationOptions {
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
