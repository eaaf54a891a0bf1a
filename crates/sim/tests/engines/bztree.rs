//! BzTree under crashes.

use everleaf_sim::index::CodecName::{Record, Word};
use everleaf_sim::index::IndexOperation::{self, Exchange, Insert, Put, Remove, Reopen, Update};
use everleaf_sim::index::script::{random_operations, writes};
use everleaf_sim::index::{AnyEngine, CodecName, Engine, Explored, FollowUp, Size, engine};
use everleaf_sim::{ExplorationOptions, Images, Rules, SecondCrash};

use crate::common;

fn options(images: Images, second_crash: SecondCrash) -> ExplorationOptions {
    common::options("engines", images, second_crash)
}

/// With four entries a leaf.
fn explore(codec: CodecName, operations: &[IndexOperation], options: ExplorationOptions) {
    let engine = common::small(Engine::BZTREE, codec);
    common::explore(&engine, operations, FollowUp::SplitAndMerge, options);
}

/// Inserts, updates, removes; splits of leaves and of the root, consolidations, merges back to a
/// single leaf.
fn script() -> Vec<IndexOperation> {
    let mut script = vec![
        Insert(10, 1),
        Insert(20, 2),
        Insert(10, 3),
        Update(20, u64::MAX - 4),
        Update(30, 5),
        Put(30, 1 << 61 | 6),
        Put(40, 7),
        Remove(20),
        Insert(25, 8),
        Exchange(25, 8, 9),
        Exchange(25, 8, 10),
    ];
    script.extend((41..47).map(|key| Insert(key, key)));
    script.push(Reopen);
    script.extend([10, 25, 30, 40, 41, 42, 43].map(Remove));
    script.extend([
        Insert(5, 11),
        Reopen,
        Remove(44),
        Remove(45),
        Remove(46),
        Remove(5),
    ]);
    script
}

#[test]
fn a_script_with_words() {
    for second_crash in [SecondCrash::Never, SecondCrash::InRecovery] {
        explore(Word, &script(), options(Images::All, second_crash));
    }
    // Insert, update, put, remove.
    let options = options(Images::All, SecondCrash::Anywhere);
    let engine = common::small(Engine::BZTREE, Word);
    common::explore(&engine, &script()[..8], FollowUp::Keys, options);
}

/// After a crash a write, or a find, comes before any scan of the whole tree.
#[test]
fn writes_come_first_after_a_crash() {
    for (codec, rules) in [
        (Word, Rules::Lines),
        (Record, Rules::Lines),
        (Word, Rules::Log),
    ] {
        let options = options(Images::Some { random: 2 }, SecondCrash::InRecovery);
        explore(
            codec,
            &script(),
            ExplorationOptions {
                rules,
                follow_up_first: true,
                ..options
            },
        );
    }
}

#[test]
fn loads_and_drops() {
    common::explore_loads_and_drops(
        Engine::BZTREE,
        &options(Images::All, SecondCrash::InRecovery),
    );
}

#[test]
fn a_script_with_records() {
    for images in [Images::Some { random: 4 }, Images::All] {
        let options = options(images, SecondCrash::InRecovery);
        explore(Record, &script(), options);
    }
}

#[test]
fn a_script_on_a_log_and_with_persistent_caches() {
    for rules in [Rules::Log, Rules::PersistentCaches] {
        let options = ExplorationOptions {
            rules,
            ..options(Images::All, SecondCrash::InRecovery)
        };
        explore(Word, &script(), options.clone());
        explore(Record, &script(), options);
    }
}

/// The operations after a crash come before the mark: nothing is reused too early, nothing leaks.
#[test]
fn operations_before_the_mark() {
    let engines: [AnyEngine; 2] = [
        Explored::small(Engine::BZTREE, CodecName::Word)
            .marking_later()
            .shared(),
        Explored::small(Engine::BZTREE, CodecName::Record)
            .marking_later()
            .shared(),
    ];
    for second_crash in [SecondCrash::Never, SecondCrash::InRecovery] {
        for engine in &engines {
            let options = options(Images::Some { random: 2 }, second_crash);
            common::explore(engine, &script(), FollowUp::SplitAndMerge, options);
        }
    }
}

/// Enough keys for three levels: inner nodes split and merge, and the tree gets and loses levels.
#[test]
fn inner_nodes_that_split_and_merge() {
    let mut operations: Vec<_> = (0..24).map(|key| Insert(key * 7 % 24, key)).collect();
    operations.extend((0..24).map(|key| Remove(key * 5 % 24)));
    for rules in [Rules::Lines, Rules::Log] {
        let options = ExplorationOptions {
            rules,
            ..options(Images::Some { random: 2 }, SecondCrash::Never)
        };
        explore(Word, &operations, options.clone());
        explore(Record, &operations, options);
    }
}

#[test]
fn random_scripts() {
    for seed in common::seeds(2, 4) {
        println!("seed {seed}");
        let operations = random_operations(seed, 50, 14, writes);
        let options = options(Images::Some { random: 2 }, SecondCrash::Never);
        explore(Word, &operations, options.clone());
        let five: AnyEngine = Explored::small(Engine::BZTREE, CodecName::Record)
            .with_nodes("leaf-entries", 5, 5)
            .shared();
        common::explore(&five, &operations, FollowUp::SplitAndMerge, options.clone());
        let engine = engine(Engine::BZTREE, Word, Size::Full);
        common::explore(&engine, &operations, FollowUp::Keys, options);
    }
}

fn exhaust(codec: CodecName, length: usize, rules: Rules, second_crash: SecondCrash) {
    let options = ExplorationOptions {
        rules,
        ..options(Images::All, second_crash)
    };
    common::exhaust(&common::small(Engine::BZTREE, codec), length, &options);
}

/// Every short sequence of operations on small trees, every crash of the last one, every image.
/// With a crash of the recovery as well `everleaf crash --exhaustive` does it at length 2 and
/// beyond.
#[test]
fn small_scopes_exhausted() {
    exhaust(Word, 2, Rules::Lines, SecondCrash::Never);
    exhaust(Word, 1, Rules::Lines, SecondCrash::InRecovery);
}

#[test]
fn small_scopes_exhausted_on_a_log_and_with_records() {
    let second_crash = if common::is_thorough() {
        SecondCrash::InRecovery
    } else {
        SecondCrash::Never
    };
    exhaust(Word, 2, Rules::Log, second_crash);
    exhaust(Record, 1, Rules::Lines, SecondCrash::InRecovery);
}
