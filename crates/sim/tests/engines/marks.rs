//! The mark of a tree after a crash, beside threads that change the tree.

use everleaf_sim::index::threads::{self, ProgramExploration};
use everleaf_sim::index::{AnyEngine, FollowUp, IndexOperation};
use everleaf_sim::{ExplorationOptions, Program, Scheduling, Search};

/// Runs the programs on a tree that the operations of `setup` have made, in all schedules of each
/// search, without crashes.
pub(crate) fn explore(
    engine: &AnyEngine,
    setup: &[IndexOperation],
    programs: &[(Program<IndexOperation>, Search)],
    options: &ExplorationOptions,
) {
    let scheduling = Scheduling {
        crashes: false,
        ..Scheduling::default()
    };
    let next = |number: usize| programs.get(number).cloned();
    let work = ProgramExploration {
        options,
        follow_up: FollowUp::Keys,
        scheduling: &scheduling,
        workers: 1,
        progress: None,
    };
    let stats = threads::exhaust(engine, setup, next, work);
    let stats = stats.unwrap_or_else(|failure| panic!("{failure}"));
    let program = &programs[0].0;
    println!(
        "{program:?}, {}: {} schedules",
        engine.codec(),
        stats.schedules
    );
}
