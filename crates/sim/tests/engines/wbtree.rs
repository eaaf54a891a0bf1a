//! The wB+-Tree under crashes, with nodes of each design.

use everleaf_sim::index::CodecName::{Record, Word};
use everleaf_sim::index::IndexOperation::{self, Insert, Mark, Put, Remove};
use everleaf_sim::index::script::{every_change, random_operations, writes};
use everleaf_sim::index::{AnyEngine, CodecName, Engine, Explored, FollowUp, Size, engine};
use everleaf_sim::{ExplorationOptions, Images, Program, Rules, Search, SecondCrash};

use crate::{common, marks};

fn options(images: Images, second_crash: SecondCrash) -> ExplorationOptions {
    common::options("engines", images, second_crash)
}

/// The smallest nodes of each design. Those of three entries split on either side of a separator.
fn designs(codec: CodecName) -> [AnyEngine; 4] {
    let of = |design, entries| {
        let small = Explored::small(Engine::WBTREE, codec).with("design", design);
        small
            .with_nodes("leaf-entries", entries, entries + 1)
            .shared()
    };
    [of(0, 4), of(0, 3), of(1, 4), of(2, 3)]
}

/// All designs, with words and with records; in ordinary runs with records only in nodes of one
/// design.
fn engines() -> impl Iterator<Item = AnyEngine> {
    let records = if common::is_thorough() { 4 } else { 1 };
    designs(Word)
        .into_iter()
        .chain(designs(Record).into_iter().take(records))
}

fn explore_each(operations: &[IndexOperation], follow_up: FollowUp, options: &ExplorationOptions) {
    for engine in engines() {
        common::explore(&engine, operations, follow_up, options.clone());
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

/// After a crash a write comes before any scan of the whole tree: a slot array that is not valid is
/// written anew by the next insert or remove.
#[test]
fn writes_come_first_after_a_crash() {
    for rules in [Rules::Lines, Rules::Log] {
        let options = options(Images::Some { random: 2 }, SecondCrash::InRecovery);
        let options = ExplorationOptions {
            rules,
            follow_up_first: true,
            ..options
        };
        explore_each(&every_change(), FollowUp::SplitAndMerge, &options);
    }
}

/// The same engines, whose trees leave the mark after a crash for later.
fn marking_later() -> impl Iterator<Item = AnyEngine> {
    [Word, Record].into_iter().map(|codec| {
        Explored::small(Engine::WBTREE, codec)
            .marking_later()
            .shared()
    })
}

/// The operations after a crash come before the mark: nothing is reused too early, nothing leaks.
#[test]
fn operations_before_the_mark() {
    for second_crash in [SecondCrash::Never, SecondCrash::InRecovery] {
        for engine in marking_later() {
            let options = options(Images::Some { random: 2 }, second_crash);
            common::explore(&engine, &every_change(), FollowUp::SplitAndMerge, options);
        }
    }
}

/// The mark after a crash beside a thread that splits, merges and replaces records. Then free space
/// is reused.
#[test]
fn a_mark_beside_changes() {
    let full: Vec<_> = (1..9).map(|key| Insert(10 * key, key)).collect();
    let mut small_leaves = full.clone();
    small_leaves.extend([20, 30, 60, 70].map(Remove));
    for engine in marking_later() {
        let explore = |setup: &[IndexOperation], operation: IndexOperation| {
            let program = Program::of(vec![vec![Mark, Insert(16, 103)], vec![operation]]);
            let search = Search::Exhaustive { preemptions_max: 2 };
            let options = options(Images::Some { random: 0 }, SecondCrash::Never);
            marks::explore(&engine, setup, &[(program, search)], &options);
        };
        for operation in [Insert(15, 101), Put(10, 102), Remove(20)] {
            explore(&full, operation);
        }
        for key in [10, 40, 50, 80] {
            explore(&small_leaves, Remove(key));
        }
    }
}

#[test]
fn a_script_on_a_log_and_with_persistent_caches() {
    for rules in [Rules::Log, Rules::PersistentCaches] {
        let options = ExplorationOptions {
            rules,
            ..options(Images::All, SecondCrash::InRecovery)
        };
        explore_each(&every_change(), FollowUp::Keys, &options);
    }
}

#[test]
fn loads_and_drops() {
    let options = options(Images::All, SecondCrash::InRecovery);
    common::explore_loads_and_drops(Engine::WBTREE, &options);
    for codec in [Word, Record] {
        let [_, _, bitmap_only, slot_only] = designs(codec);
        common::explore_loads_and_drops_of(&[bitmap_only, slot_only], &options);
    }
}

/// Enough keys for several levels: inner nodes split and merge, and the tree gets and loses levels.
#[test]
fn inner_nodes_that_split_and_merge() {
    let mut operations: Vec<_> = (0..40).map(|key| Insert(key * 7 % 40, key)).collect();
    operations.extend((0..40).map(|key| Remove(key * 11 % 40)));
    for rules in [Rules::Lines, Rules::Log] {
        let is_twice = rules == Rules::Lines || common::is_thorough();
        let second_crash = if is_twice {
            SecondCrash::InRecovery
        } else {
            SecondCrash::Never
        };
        let random = if common::is_thorough() { 2 } else { 1 };
        let options = ExplorationOptions {
            rules,
            ..options(Images::Some { random }, second_crash)
        };
        explore_each(&operations, FollowUp::Keys, &options);
    }
}

#[test]
fn random_scripts() {
    for seed in common::seeds(1, 3) {
        println!("seed {seed}");
        let options = options(Images::Some { random: 2 }, SecondCrash::Never);
        let operations = random_operations(seed, 60, 16, writes);
        explore_each(&operations, FollowUp::SplitAndMerge, &options);
        let full = engine(Engine::WBTREE, Word, Size::Full);
        common::explore(
            &full,
            &random_operations(seed, 300, 150, writes),
            FollowUp::Keys,
            options,
        );
    }
}

/// Every short sequence of operations on small trees, every crash of the last one and of its
/// recovery, every image.
#[test]
fn small_scopes_exhausted() {
    for engine in engines() {
        for (length, rules) in [(2, Rules::Lines), (1, Rules::Log)] {
            let options = ExplorationOptions {
                rules,
                ..options(Images::All, SecondCrash::InRecovery)
            };
            common::exhaust(&engine, length, &options);
        }
    }
}
