//! The comparison trees under crashes, at small scope.

use engines::engine::Engine;
use everleaf_lab::{BTREE, FAST_FAIR};
use sim::index::IndexOperation::{self, Insert, Remove, Update};
use sim::index::script::{
    every_change, every_drop, every_load, random_operations, to_word, writes,
};
use sim::index::suite::{self, Suite};
use sim::index::{CodecName, FollowUp, IndexSubject, RUBBISH_FROM, Size, engine};
use sim::{ExplorationOptions, Explorer, Images, Rules, SecondCrash};

const CODECS: [CodecName; 2] = [CodecName::Word, CodecName::Record];

fn options(rules: Rules, images: Images, second_crash: SecondCrash) -> ExplorationOptions {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let command = format!("cargo test --release -p everleaf-lab --test explorer {name}");
    ExplorationOptions {
        rules,
        images,
        second_crash,
        command,
        limit_bytes: 16 << 20,
        ..ExplorationOptions::default()
    }
}

/// Explores a sequence with both codecs; nothing must be wrong, and nothing left out.
fn explore(
    tree: Engine,
    operations: &[IndexOperation],
    follow_up: FollowUp,
    options: &ExplorationOptions,
) {
    for codec in CODECS {
        let explored = engine(tree, codec, Size::Small);
        let mut explorer =
            Explorer::new(IndexSubject::new(&explored, follow_up), options.clone()).unwrap();
        if let Err(failure) = explorer.explore(operations) {
            panic!(
                "{codec:?}, {}: {}",
                to_word(operations),
                failure.narrate(&failure.command)
            );
        }
        assert_eq!(explorer.stats().cut_short, 0);
        println!("{tree} {codec:?}: {}", explorer.stats());
    }
}

/// Every short sequence of operations on small trees, every crash of the last one and of its
/// recovery, every image.
fn exhaust(tree: Engine, length: usize, options: &ExplorationOptions) {
    for codec in CODECS {
        let explored = engine(tree, codec, Size::Small);
        let found = suite::exhaust(
            &explored,
            Suite {
                length,
                threads: 2,
                progress: None,
            },
            options,
        );
        if let Some(failure) = &found.failure {
            panic!("{codec:?}: {}", failure.narrate(&failure.command));
        }
        assert_eq!(found.stats.cut_short, 0);
        println!(
            "{tree} {codec:?}, {length}: {}; {:.1} s",
            found.stats, found.seconds
        );
    }
}

/// A script of every change, a first write before any scan, loads and drops, short sequences.
fn survives_crashes(tree: Engine) {
    let all = |rules| options(rules, Images::All, SecondCrash::InRecovery);
    for rules in [Rules::Lines, Rules::Log, Rules::PersistentCaches] {
        explore(tree, &every_change(), FollowUp::SplitAndMerge, &all(rules));
    }
    let some = options(
        Rules::Lines,
        Images::Some { random: 2 },
        SecondCrash::InRecovery,
    );
    let first = ExplorationOptions {
        follow_up_first: true,
        ..some.clone()
    };
    explore(tree, &every_change(), FollowUp::SplitAndMerge, &first);
    for script in [every_load(), every_drop()] {
        let options = ExplorationOptions {
            rubbish_from: Some(RUBBISH_FROM),
            ..all(Rules::Lines)
        };
        explore(tree, &script, FollowUp::Keys, &options);
    }
    exhaust(tree, 2, &all(Rules::Lines));
    exhaust(tree, 1, &all(Rules::Log));
}

/// Several levels: inner nodes split and merge, the tree gets and loses levels; and random scripts.
fn survives_crashes_of_inner_nodes(tree: Engine) {
    let mut operations: Vec<_> = (0..40).map(|key| Insert(key * 7 % 40, key)).collect();
    operations.extend((0..40).map(|key| Remove(key * 11 % 40)));
    let some = options(
        Rules::Lines,
        Images::Some { random: 2 },
        SecondCrash::InRecovery,
    );
    explore(tree, &operations, FollowUp::Keys, &some);
    for seed in 1..3 {
        println!("seed {seed}");
        explore(
            tree,
            &random_operations(seed, 60, 16, writes),
            FollowUp::SplitAndMerge,
            &some,
        );
    }
}

/// Neighbours with equal values, which a shift must not confuse.
fn survives_equal_values(tree: Engine) {
    let mut operations: Vec<_> = [2, 6, 4, 0].map(|key| Insert(key, 7)).to_vec();
    operations.extend([
        Remove(2),
        Insert(3, 7),
        Update(3, 7),
        Remove(0),
        Insert(5, 7),
        Remove(3),
    ]);
    let all = options(Rules::Lines, Images::All, SecondCrash::InRecovery);
    explore(tree, &operations, FollowUp::SplitAndMerge, &all);
}

/// Nodes of full size, where a shift runs over several lines, and nearly full ones, which split.
fn survives_shifts_over_lines(tree: Engine) {
    let last = tree.full.leaf_entries as u64;
    for (filled, operations) in [
        (
            9,
            vec![
                Insert(5, 1),
                Insert(35, 2),
                Remove(20),
                Remove(5),
                Remove(90),
            ],
        ),
        (
            last - 1,
            vec![Insert(5, 1), Insert(35, 2), Insert(36, 3), Remove(10)],
        ),
    ] {
        for codec in CODECS {
            let explored = engine(tree, codec, Size::Full);
            let options = options(Rules::Lines, Images::All, SecondCrash::InRecovery);
            let subject = IndexSubject::new(&explored, FollowUp::Keys);
            let mut explorer = Explorer::new(subject, options).unwrap();
            let setup: Vec<_> = (1..=filled).map(|key| Insert(10 * key, 7)).collect();
            explorer
                .set_up(&setup)
                .unwrap_or_else(|failure| panic!("{failure}"));
            if let Err(failure) = explorer.explore(&operations) {
                panic!(
                    "{codec:?}, {filled} keys: {}",
                    failure.narrate(&failure.command)
                );
            }
            println!("{tree} {codec:?}, {filled} keys: {}", explorer.stats());
        }
    }
}

macro_rules! trees {
    ($($name:ident: $tree:expr;)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn crashes() {
                survives_crashes($tree);
            }

            #[test]
            fn crashes_of_inner_nodes() {
                survives_crashes_of_inner_nodes($tree);
            }

            #[test]
            fn crashes_beside_equal_values() {
                survives_equal_values($tree);
            }

            #[test]
            fn crashes_of_shifts_over_lines() {
                survives_shifts_over_lines($tree);
            }
        }
    )* };
}

trees! {
    btree: BTREE;
    fast_fair: FAST_FAIR;
}

/// A store made trees of a variant with the settings of its engine: `bench` and `torture` of a
/// variant ran the engine itself.
#[test]
fn a_variant_has_nodes_of_its_own() {
    let store = everleaf::Store::in_memory().unwrap();
    let of = |name: &str| everleaf::TreeOptions {
        engine: everleaf_lab::engine_from_name(name).unwrap(),
        ..everleaf::TreeOptions::RECORDS
    };
    let leaf_bytes = |name: &str, kind| {
        store
            .tree_with(name, kind)
            .unwrap()
            .stat()
            .unwrap()
            .leaf_bytes
    };
    for (name, bytes) in [
        ("wbtree", 1024),
        ("wbtree-bitmap-only", 1024),
        ("wbtree-slot-only", 128),
    ] {
        assert_eq!(leaf_bytes(name, of(name)), bytes, "{name}");
    }
    let kinds =
        ["wbtree", "wbtree-bitmap-only"].map(|name| store.open_tree(name).unwrap().kind().settings);
    assert_ne!(kinds[0], kinds[1]);
    let small = of("wbtree-slot-only").with("leaf-entries", 3).unwrap();
    assert_eq!(leaf_bytes("small", small), 64);
    assert_eq!(
        leaf_bytes("set", of("wbtree-slot-only").with("design", 0).unwrap()),
        1024
    );
}
