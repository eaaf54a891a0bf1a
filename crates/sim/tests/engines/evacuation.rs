//! Records that are moved out of slabs, crashed at every moment, and beside other threads.

use everleaf_sim::index::CodecName::Record;
use everleaf_sim::index::script::{
    evacuation_of_long_records, every_change, every_evacuation, every_evacuation_in_epochs,
};
use everleaf_sim::index::threads::{ProgramExploration, exhaust, movers, scopes};
use everleaf_sim::index::{Engine, FollowUp, IndexOperation};
use everleaf_sim::{ExplorationOptions, Images, Rules, Scheduling, Search, SecondCrash};
use medium::LineForm;
use medium::testing::stride;

use crate::common;

/// The engines of immediate durability.
const ENGINES: [Engine; 4] = [
    Engine::RNTREE,
    Engine::BZTREE,
    Engine::WBTREE,
    Engine::CAWBT,
];

fn options(images: Images, second_crash: SecondCrash) -> ExplorationOptions {
    common::options("engines", images, second_crash)
}

#[test]
fn a_script_of_moves() {
    for engine in ENGINES {
        let engine = common::small(engine, Record);
        for line_form in [LineForm::Single, LineForm::Twin] {
            let options = ExplorationOptions {
                line_form,
                ..options(Images::Some { random: 1 }, SecondCrash::Never)
            };
            common::explore(&engine, &every_evacuation(), FollowUp::Reuse, options);
        }
        let options = options(Images::Some { random: 0 }, SecondCrash::Never);
        let script = evacuation_of_long_records();
        common::explore(&engine, &script, FollowUp::Keys, options);
    }
}

#[test]
fn a_script_of_moves_within_epochs() {
    let engine = common::small(Engine::MASSTREE, Record);
    let options = options(Images::Some { random: 0 }, SecondCrash::Never);
    let script = every_evacuation_in_epochs();
    common::explore(&engine, &script, FollowUp::Keys, options);
}

/// The script of every change, with moves between its operations.
#[test]
fn moves_between_all_changes() {
    let mut script = Vec::new();
    for (position, operation) in every_change().into_iter().enumerate() {
        script.push(operation);
        if position % 5 == 4 {
            script.push(IndexOperation::Evacuate);
        }
    }
    for engine in ENGINES {
        let engine = common::small(engine, Record);
        for rules in [Rules::Lines, Rules::Log] {
            let second_crash = if common::is_thorough() {
                SecondCrash::InRecovery
            } else {
                SecondCrash::Never
            };
            let options = ExplorationOptions {
                rules,
                ..options(Images::Some { random: 0 }, second_crash)
            };
            common::explore(&engine, &script, FollowUp::SplitAndMerge, options);
        }
    }
}

/// A mover beside a reader or a writer of the keys that it moves.
#[test]
fn a_mover_beside_other_threads() {
    let search = Search::Exhaustive { preemptions_max: 1 };
    let share = if common::is_thorough() { 1 } else { stride(18) };
    for engine in ENGINES {
        let engine = common::small(engine, Record);
        for scope in scopes(engine.leaf_entries()) {
            let programs: Vec<_> = movers(&scope, engine.durability())
                .into_iter()
                .step_by(share)
                .collect();
            let next = |number: usize| Some((programs.get(number)?.clone(), search.clone()));
            let options = ExplorationOptions {
                limit_bytes: 4 << 20,
                ..options(Images::Some { random: 0 }, SecondCrash::Never)
            };
            let work = ProgramExploration {
                options: &options,
                follow_up: FollowUp::Keys,
                scheduling: &Scheduling::default(),
                workers: 2,
                progress: None,
            };
            let stats = exhaust(&engine, &scope.setup, next, work);
            let stats = stats.unwrap_or_else(|failure| panic!("{failure}"));
            println!("{}, {}: {stats}", engine.name(), scope.name);
            assert_eq!(stats.cut_short, 0);
        }
    }
}
