//! CAWBT under crashes. Its nodes are always small.

use everleaf_sim::index::CodecName::{Record, Word};
use everleaf_sim::index::IndexOperation::{self, Insert, Remove, Update};
use everleaf_sim::index::script::{every_change, merged_to_one_leaf, random_operations, writes};
use everleaf_sim::index::{AnyEngine, Engine, FollowUp, RUBBISH_FROM};
use everleaf_sim::{ExplorationOptions, Images, Rules, SecondCrash};
use medium::LineForm;

use crate::common;

fn options(images: Images, second_crash: SecondCrash) -> ExplorationOptions {
    ExplorationOptions {
        rubbish_from: Some(RUBBISH_FROM),
        ..common::options("engines", images, second_crash)
    }
}

fn engines() -> [AnyEngine; 2] {
    [Word, Record].map(|codec| common::small(Engine::CAWBT, codec))
}

/// On each model of memory, with each form of lines.
const SCOPES: [(Rules, LineForm); 4] = [
    (Rules::Lines, LineForm::Single),
    (Rules::Lines, LineForm::Twin),
    (Rules::Log, LineForm::Single),
    (Rules::PersistentCaches, LineForm::Single),
];

fn explore_each(operations: &[IndexOperation], follow_up: FollowUp, options: &ExplorationOptions) {
    explore_in(&SCOPES, operations, follow_up, options);
}

/// In ordinary runs only on the models of memory.
fn explore_lines(operations: &[IndexOperation], follow_up: FollowUp, options: &ExplorationOptions) {
    let scopes = if common::is_thorough() {
        SCOPES.len()
    } else {
        2
    };
    explore_in(&SCOPES[..scopes], operations, follow_up, options);
}

fn explore_in(
    scopes: &[(Rules, LineForm)],
    operations: &[IndexOperation],
    follow_up: FollowUp,
    options: &ExplorationOptions,
) {
    for engine in engines() {
        for &(rules, line_form) in scopes {
            // Ordinary runs explore records in the first scope only.
            let is_usual = (rules, line_form) == SCOPES[0];
            if engine.codec() == "record" && !is_usual && !common::is_thorough() {
                continue;
            }
            common::explore(
                &engine,
                operations,
                follow_up,
                ExplorationOptions {
                    rules,
                    line_form,
                    ..options.clone()
                },
            );
        }
    }
}

#[test]
fn a_script_of_every_change() {
    explore_each(
        &every_change(),
        FollowUp::SplitAndMerge,
        &options(Images::All, SecondCrash::InRecovery),
    );
}

/// A write that finds an unfinished change of a crash goes on with it.
#[test]
fn writes_come_first_after_a_crash() {
    let options = ExplorationOptions {
        follow_up_first: true,
        ..options(Images::Some { random: 2 }, SecondCrash::InRecovery)
    };
    explore_each(&every_change(), FollowUp::SplitAndMerge, &options);
}

/// The log names nodes. Once the nodes are freed, their lines may hold records, and an open must
/// not read these as nodes.
#[test]
fn the_log_names_no_node_that_is_gone() {
    let images = if common::is_thorough() {
        Images::All
    } else {
        Images::Some { random: 2 }
    };
    explore_lines(
        &merged_to_one_leaf(),
        FollowUp::Reuse,
        &options(images, SecondCrash::InRecovery),
    );
}

#[test]
fn loads_and_drops() {
    common::explore_loads_and_drops(
        Engine::CAWBT,
        &options(Images::All, SecondCrash::InRecovery),
    );
}

/// Three levels of inner nodes: splits go up to the root, merges and moves of children come down
/// from there.
#[test]
fn changes_that_go_up_to_the_root() {
    let ascending = (0..40).map(|key| Insert(key, key));
    let operations: Vec<_> = ascending
        .chain((0..40).map(|key| Remove(key * 11 % 40)))
        .collect();
    let second_crash = if common::is_thorough() {
        SecondCrash::InRecovery
    } else {
        SecondCrash::Never
    };
    explore_each(
        &operations,
        FollowUp::Keys,
        &options(Images::Some { random: 1 }, second_crash),
    );
    let mut operations: Vec<_> = (0..40).map(|key| Insert(key * 7 % 40, key)).collect();
    operations.extend((0..40).map(|key| Update(key * 3 % 40, 100 + key)));
    operations.extend((0..40).map(Remove));
    explore_lines(
        &operations,
        FollowUp::Keys,
        &options(Images::Some { random: 1 }, SecondCrash::Never),
    );
    // Keys are removed from the end: nodes lose their last children, and get others from the left.
    let ascending = (0..40).map(|key| Insert(key, key));
    let operations: Vec<_> = ascending.chain((0..40).rev().map(Remove)).collect();
    explore_lines(
        &operations,
        FollowUp::SplitAndMerge,
        &options(Images::Some { random: 2 }, SecondCrash::Never),
    );
}

#[test]
fn random_scripts() {
    for seed in common::seeds(1, 3) {
        println!("seed {seed}");
        let options = options(Images::Some { random: 2 }, SecondCrash::Never);
        explore_each(
            &random_operations(seed, 60, 16, writes),
            FollowUp::SplitAndMerge,
            &options,
        );
        explore_each(
            &random_operations(seed, 150, 60, writes),
            FollowUp::Keys,
            &options,
        );
    }
}

/// Every short sequence of operations on small trees, every crash of the last one and of its
/// recovery, every image.
#[test]
fn small_scopes_exhausted() {
    for engine in engines() {
        for (rules, line_form) in SCOPES {
            let is_long = engine.codec() == "word" || common::is_thorough();
            let length = if rules == Rules::Lines && is_long {
                2
            } else {
                1
            };
            let options = ExplorationOptions {
                rules,
                line_form,
                ..options(Images::All, SecondCrash::InRecovery)
            };
            common::exhaust(&engine, length, &options);
        }
    }
}

#[test]
#[ignore = "thorough: crashes after crashes"]
fn second_crashes_anywhere() {
    for engine in engines() {
        let options = options(Images::All, SecondCrash::Anywhere);
        common::exhaust(&engine, 1, &options);
        common::exhaust(
            &engine,
            1,
            &ExplorationOptions {
                line_form: LineForm::Twin,
                ..options
            },
        );
    }
}
