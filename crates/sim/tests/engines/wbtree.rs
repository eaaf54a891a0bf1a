//! The wB+-Tree under crashes, with nodes of each design.

use everleaf_sim::index::CodecName::{Record, Word};
use everleaf_sim::index::IndexOperation::{self, Insert, Remove};
use everleaf_sim::index::script::{every_change, random_operations, writes};
use everleaf_sim::index::{AnyEngine, CodecName, Engine, Explored, FollowUp, Size, engine};
use everleaf_sim::{Images, Options, Rules, SecondCrash};

use crate::common;

fn options(images: Images, second_crash: SecondCrash) -> Options {
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

/// All designs, with words and with records; where it is to be fast, records only in nodes of one
/// design.
fn engines() -> impl Iterator<Item = AnyEngine> {
    let records = if common::is_thorough() { 4 } else { 1 };
    designs(Word)
        .into_iter()
        .chain(designs(Record).into_iter().take(records))
}

fn explore_each(operations: &[IndexOperation], follow_up: FollowUp, options: &Options) {
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
        let options = Options {
            rules,
            follow_up_first: true,
            ..options
        };
        explore_each(&every_change(), FollowUp::SplitAndMerge, &options);
    }
}

#[test]
fn a_script_on_a_log_and_with_persistent_caches() {
    for rules in [Rules::Log, Rules::PersistentCaches] {
        let options = Options {
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

/// Enough keys for several levels: inner nodes split and merge, the root comes and goes.
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
        let options = Options {
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

/// Every sequence of so many operations on small trees, every crash of the last one and of its
/// recovery, every image.
#[test]
fn small_scopes_exhausted() {
    for engine in engines() {
        for (length, rules) in [(2, Rules::Lines), (1, Rules::Log)] {
            let options = Options {
                rules,
                ..options(Images::All, SecondCrash::InRecovery)
            };
            common::exhaust(&engine, length, &options);
        }
    }
}
