//! The durable Masstree under crashes: recovery finds the state at the end of the last epoch that
//! ended.

use engines::masstree::Mode;
use everleaf_sim::index::CodecName::{Layers, Record, Word};
use everleaf_sim::index::IndexOperation::{
    self, Compact, Insert, Mark, Put, Remove, Reopen, Sync, Update,
};
use everleaf_sim::index::script::{
    every_change_in_epochs, every_compaction, layers_in_epochs, random_operations,
    values_in_epochs, what_epochs_meet, writes_in_epochs,
};
use everleaf_sim::index::threads::takers;
use everleaf_sim::index::{
    AnyEngine, CodecName, Engine, Explored, FollowUp, IndexSubject, LONG_VALUE, Size, engine,
};
use everleaf_sim::{
    ExplorationOptions, Explorer, Images, Program, Rules, Scheduling, Search, SecondCrash, Stats,
};
use medium::sim::{Mutation, Site};
use medium::testing::stride;

use crate::common::setting;
use crate::{common, marks};

fn options(images: Images, second_crash: SecondCrash) -> ExplorationOptions {
    common::options("engines", images, second_crash)
}

/// With four slots a node.
fn explore(codec: CodecName, operations: &[IndexOperation], options: ExplorationOptions) {
    let engine = common::small(Engine::MASSTREE, codec);
    common::explore(&engine, operations, FollowUp::SplitAndMerge, options);
}

#[test]
fn a_script_with_words() {
    let random = if common::is_thorough() { 4 } else { 1 };
    for second_crash in [SecondCrash::Never, SecondCrash::InRecovery] {
        explore(
            Word,
            &every_change_in_epochs(),
            options(Images::Some { random }, second_crash),
        );
    }
}

#[test]
fn a_script_with_records() {
    let (random, second_crash) = if common::is_thorough() {
        (8, SecondCrash::InRecovery)
    } else {
        (1, SecondCrash::Never)
    };
    explore(
        Record,
        &every_change_in_epochs(),
        options(Images::Some { random }, second_crash),
    );
}

#[test]
fn a_script_with_layers_below_layers() {
    let with = |rules, second_crash| ExplorationOptions {
        rules,
        ..options(Images::Some { random: 1 }, second_crash)
    };
    explore(
        Layers,
        &layers_in_epochs(),
        with(Rules::Lines, SecondCrash::Never),
    );
    explore(
        Layers,
        &layers_in_epochs(),
        with(Rules::PersistentCaches, SecondCrash::Never),
    );
    explore(
        Layers,
        &layers_in_epochs(),
        with(Rules::Log, SecondCrash::InRecovery),
    );
    let first = ExplorationOptions {
        follow_up_first: true,
        ..with(Rules::Lines, SecondCrash::Never)
    };
    explore(Layers, &layers_in_epochs(), first);
    let logging: AnyEngine = Explored::small(Engine::MASSTREE, CodecName::Layers)
        .with("mode", Mode::Logging as u64)
        .shared();
    let sweeping: AnyEngine = Explored::small(Engine::MASSTREE, CodecName::Layers)
        .opening_with("sweep", 1)
        .shared();
    for engine in [logging, sweeping] {
        let options = with(Rules::Lines, SecondCrash::Never);
        common::explore(&engine, &layers_in_epochs(), FollowUp::Keys, options);
    }
}

#[test]
fn a_script_with_layers_and_crashes_in_recovery() {
    let operations = layers_in_epochs();
    let options = options(Images::Some { random: 0 }, SecondCrash::InRecovery);
    // The second half has nodes four layers down, and layers that are removed.
    let from_operation = if common::is_thorough() {
        0
    } else {
        operations.len() / 2
    };
    let engine = common::small(Engine::MASSTREE, Layers);
    common::explore(
        &engine,
        &operations,
        FollowUp::Keys,
        ExplorationOptions {
            from_operation,
            ..options
        },
    );
}

#[test]
fn random_scripts_with_layers_below_layers() {
    let first = setting("EVERLEAF_SEED", 1);
    for seed in first..first + setting("EVERLEAF_SEEDS", if common::is_thorough() { 2 } else { 1 })
    {
        println!("seed {seed}");
        let operations = random_operations(seed, 60, 130, writes_in_epochs);
        explore(
            Layers,
            &operations,
            options(Images::Some { random: 1 }, SecondCrash::Never),
        );
    }
}

/// The tree, whose opens after a crash leave the mark for later.
fn marking_later(codec: CodecName) -> AnyEngine {
    Explored::small(Engine::MASSTREE, codec)
        .marking_later()
        .shared()
}

/// The operations after a crash come before the mark: nothing is reused too early, nothing leaks.
#[test]
fn operations_before_the_mark() {
    let second_crashes: &[SecondCrash] = if common::is_thorough() {
        &[SecondCrash::Never, SecondCrash::InRecovery]
    } else {
        &[SecondCrash::Never]
    };
    for second_crash in second_crashes.iter().copied() {
        let options = options(Images::Some { random: 1 }, second_crash);
        for (codec, operations) in [
            (Word, every_change_in_epochs()),
            (Record, every_compaction()),
        ] {
            let engine = marking_later(codec);
            common::explore(
                &engine,
                &operations,
                FollowUp::SplitAndMerge,
                options.clone(),
            );
        }
    }
}

/// The mark after a crash beside a thread that splits, removes, and gives runs back to the pool.
/// Then free space is reused.
#[test]
fn a_mark_beside_changes() {
    let mut setup: Vec<_> = (1..24).map(|key| Insert(10 * key, key)).collect();
    setup.push(Sync);
    let mut emptied = setup.clone();
    emptied.extend((1..22).map(|key| Remove(10 * key)));
    emptied.push(Sync);
    for engine in [marking_later(Word), marking_later(Record)] {
        let explore = |setup: &[IndexOperation], operation: IndexOperation| {
            let program = Program::of(vec![vec![Mark, Insert(16, 103)], vec![operation]]);
            let search = Search::Exhaustive { preemptions_max: 2 };
            let options = options(Images::Some { random: 0 }, SecondCrash::Never);
            marks::explore(&engine, setup, &[(program, search)], &options);
        };
        for operation in [Insert(15, 101), Put(10, 102), Remove(20)] {
            explore(&setup, operation);
        }
        for operation in [Compact, Remove(220), Insert(15, 101)] {
            explore(&emptied, operation);
        }
    }
}

/// Runs go back to the pool, and are taken again.
#[test]
fn a_script_of_compactions() {
    explore(
        Record,
        &every_compaction(),
        options(Images::Some { random: 0 }, SecondCrash::Never),
    );
}

#[test]
#[ignore = "thorough: minutes"]
fn a_script_of_compactions_and_crashes_in_recovery() {
    for rules in [Rules::Lines, Rules::PersistentCaches, Rules::Log] {
        let options = ExplorationOptions {
            rules,
            ..options(Images::Some { random: 2 }, SecondCrash::InRecovery)
        };
        explore(Record, &every_compaction(), options);
    }
}

#[test]
#[ignore = "thorough: 12 s"]
fn loads_and_drops() {
    let options = options(Images::Some { random: 0 }, SecondCrash::InRecovery);
    common::explore_loads_and_drops(Engine::MASSTREE, &options);
}

#[test]
#[ignore = "thorough: 20 s"]
fn a_script_with_the_external_log_alone() {
    let options = options(Images::Some { random: 4 }, SecondCrash::InRecovery);
    let engines: [AnyEngine; 2] = [
        Explored::small(Engine::MASSTREE, CodecName::Record)
            .with("mode", Mode::Logging as u64)
            .shared(),
        Explored::small(Engine::MASSTREE, CodecName::Word)
            .with("mode", Mode::Logging as u64)
            .shared(),
    ];
    for engine in engines {
        common::explore(
            &engine,
            &every_change_in_epochs(),
            FollowUp::SplitAndMerge,
            options.clone(),
        );
    }
}

/// A sweep after each open, and crashes in it; and a tree that is closed in good order.
#[test]
fn a_script_with_sweeps_and_one_with_clean_ends() {
    let mut script = what_epochs_meet();
    script.push(Sync);
    let engines: [AnyEngine; 2] = [
        Explored::small(Engine::MASSTREE, CodecName::Word)
            .opening_with("sweep", 1)
            .shared(),
        Explored::small(Engine::MASSTREE, CodecName::Word)
            .closing_cleanly()
            .shared(),
    ];
    let random = if common::is_thorough() { 2 } else { 1 };
    let all = [Rules::Lines, Rules::Log]
        .into_iter()
        .flat_map(|rules| [(&engines[0], rules), (&engines[1], rules)]);
    // The first and the last have each engine and each memory model once.
    for (engine, rules) in all.step_by(stride(3)) {
        let options = ExplorationOptions {
            rules,
            ..options(Images::Some { random }, SecondCrash::InRecovery)
        };
        common::explore(engine, &script, FollowUp::SplitAndMerge, options);
    }
}

#[test]
fn a_script_with_persistent_caches_and_on_a_log() {
    let random = if common::is_thorough() { 4 } else { 1 };
    for rules in [Rules::PersistentCaches, Rules::Log] {
        let options = ExplorationOptions {
            rules,
            ..options(Images::Some { random }, SecondCrash::InRecovery)
        };
        explore(Word, &every_change_in_epochs(), options.clone());
        // With persistent caches there are as many second crashes as pairs of stores.
        let is_twice = rules == Rules::Log || common::is_thorough();
        let second_crash = if is_twice {
            SecondCrash::InRecovery
        } else {
            SecondCrash::Never
        };
        explore(
            Record,
            &every_change_in_epochs(),
            ExplorationOptions {
                second_crash,
                ..options
            },
        );
    }
}

/// The low bits of epochs in value logs, and the epochs in links, begin anew during the script.
#[test]
#[ignore = "thorough: 38 s"]
fn epochs_that_wrap() {
    for first_epoch in [(1 << 16) - 3, (1 << 31) - 4, (1 << 32) - 5] {
        let options = options(Images::Some { random: 1 }, SecondCrash::InRecovery);
        let engines: [AnyEngine; 2] = [
            Explored::small(Engine::MASSTREE, CodecName::Record)
                .with("first-epoch", first_epoch)
                .shared(),
            Explored::small(Engine::MASSTREE, CodecName::Word)
                .with("first-epoch", first_epoch)
                .shared(),
        ];
        for engine in engines {
            common::explore(
                &engine,
                &every_change_in_epochs(),
                FollowUp::SplitAndMerge,
                options.clone(),
            );
        }
    }
}

/// Nodes without a change for 2^15 epochs and more: the sixteen bits of their value logs would mean
/// another epoch.
#[test]
fn nodes_that_were_left_alone_for_long() {
    for rules in [Rules::Lines, Rules::Log] {
        let options = ExplorationOptions {
            rules,
            ..options(Images::Some { random: 2 }, SecondCrash::Anywhere)
        };
        for epoch in [1 << 15, (1 << 15) + 5, 1 << 17] {
            let engine: AnyEngine = Explored::small(Engine::MASSTREE, CodecName::Word)
                .opening_with("first-epoch", epoch)
                .shared();
            common::explore(
                &engine,
                &values_in_epochs(),
                FollowUp::Keys,
                options.clone(),
            );
        }
    }
}

/// Nodes without a change for 2^15 epochs and a few, without a restart: other nodes change
/// meanwhile. In each line of values beside the old epoch word the log of the new epoch would then
/// stand for another epoch, so the node goes to the external log.
#[test]
fn nodes_that_were_left_alone_for_long_in_one_life() {
    let mut script: Vec<_> = (1..6).map(|key| Insert(10 * key, key)).collect();
    script.extend([Update(10, 6), Sync]);
    script.extend((0..(1 << 15) + 5).flat_map(|value| [Update(50, value), Sync]));
    let from_operation = script.len();
    script.extend([Update(10, 7), Update(40, 8), Sync, Update(10, 9)]);
    for rules in [Rules::Lines, Rules::Log] {
        let options = options(Images::Some { random: 2 }, SecondCrash::Never);
        // A shorter one would not be long enough.
        let options = ExplorationOptions {
            rules,
            from_operation,
            shrink: false,
            ..options
        };
        let engine = common::small(Engine::MASSTREE, Word);
        common::explore(&engine, &script, FollowUp::Keys, options);
    }
}

/// Nodes without a change for that many epochs, half of them before a restart and half after. A
/// node is touched, and changed, in an epoch that is far from its own, though the first one of this
/// life is near to both.
#[test]
fn nodes_that_were_left_alone_for_long_in_two_lives() {
    let mut script: Vec<_> = (1..6).map(|key| Insert(10 * key, key)).collect();
    script.extend([Update(10, 6), Sync, Reopen]);
    script.extend((0..(1 << 14) + 5).flat_map(|value| [Update(50, value), Sync]));
    let from_operation = script.len();
    script.extend([Update(10, 7), Update(40, 8), Sync, Update(10, 9)]);
    for rules in [Rules::Lines, Rules::Log] {
        let options = options(Images::Some { random: 2 }, SecondCrash::Never);
        let options = ExplorationOptions {
            rules,
            from_operation,
            shrink: false,
            ..options
        };
        let engine: AnyEngine = Explored::small(Engine::MASSTREE, CodecName::Word)
            .opening_with("first-epoch", 1 << 14)
            .shared();
        common::explore(&engine, &script, FollowUp::Keys, options);
    }
}

/// Without in-line logs a node may be so wide that they would not lie in the lines of what they
/// log.
#[test]
fn a_script_with_the_external_log_alone_after_an_open() {
    let mut script: Vec<_> = (1..7).map(|key| Insert(10 * key, key)).collect();
    script.extend([Sync, Reopen]);
    let from_operation = script.len();
    script.extend((1..7).rev().map(|key| Update(10 * key, 10 + key)));
    script.extend([Remove(20), Insert(25, 7), Sync, Update(10, 8)]);
    for rules in [Rules::Lines, Rules::Log] {
        let options = options(Images::Some { random: 2 }, SecondCrash::InRecovery);
        let options = ExplorationOptions {
            rules,
            from_operation,
            ..options
        };
        let engine: AnyEngine = Explored::small(Engine::MASSTREE, CodecName::Word)
            .with_nodes("width", 7, 8)
            .with("mode", Mode::Logging as u64)
            .shared();
        common::explore(&engine, &script, FollowUp::SplitAndMerge, options);
    }
}

/// The recovery from a second crash does not restore a node again, over writes after the first
/// recovery.
#[test]
fn crashes_in_what_follows_a_crash() {
    for rules in [Rules::Lines, Rules::Log] {
        let options = ExplorationOptions {
            rules,
            ..options(Images::Some { random: 0 }, SecondCrash::Anywhere)
        };
        let script = [
            Insert(10, 1),
            Insert(20, 2),
            Sync,
            Update(10, 3),
            Remove(20),
            Sync,
            Update(10, 4),
            Sync,
        ];
        for codec in [Word, Record] {
            let engine = common::small(Engine::MASSTREE, codec);
            common::explore(&engine, &script, FollowUp::Keys, options.clone());
        }
    }
}

#[test]
fn random_scripts() {
    let first = setting("EVERLEAF_SEED", 1);
    for seed in first..first + setting("EVERLEAF_SEEDS", if common::is_thorough() { 3 } else { 1 })
    {
        println!("seed {seed}");
        let operations = random_operations(seed, 60, 14, writes_in_epochs);
        explore(
            Word,
            &operations,
            options(Images::Some { random: 2 }, SecondCrash::InRecovery),
        );
        explore(
            Record,
            &operations,
            options(Images::Some { random: 2 }, SecondCrash::InRecovery),
        );
        let five: [AnyEngine; 2] = [
            Explored::small(Engine::MASSTREE, CodecName::Record)
                .with_nodes("width", 5, 6)
                .shared(),
            Explored::small(Engine::MASSTREE, CodecName::Word)
                .with_nodes("width", 5, 6)
                .shared(),
        ];
        let options = options(Images::Some { random: 4 }, SecondCrash::Never);
        for engine in five {
            common::explore(
                &engine,
                &operations,
                FollowUp::SplitAndMerge,
                options.clone(),
            );
        }
    }
}

#[test]
#[ignore = "thorough: 23 s"]
fn long_runs_at_full_width() {
    let seed = setting("EVERLEAF_SEED", 1);
    let operations = random_operations(seed, 800, 200, writes_in_epochs);
    let options = ExplorationOptions {
        seed,
        ..options(Images::Some { random: 1 }, SecondCrash::Never)
    };
    for codec in [Record, Word] {
        let engine = engine(Engine::MASSTREE, codec, Size::Full);
        common::explore(&engine, &operations, FollowUp::Keys, options.clone());
    }
}

/// Free space that moves from one shard to another, at every crash.
#[test]
#[ignore = "thorough: 9 s"]
fn shares_that_take_over_what_others_have_free() {
    let source = include_str!("../../../engines/src/masstree/allocator.rs");
    let line_of =
        |text: &str| source.lines().position(|line| line.contains(text)).unwrap() as u32 + 1;
    let stores = ["own.tail.store", "own.head.store", "theirs.head.store"].map(line_of);
    for rules in [Rules::Lines, Rules::Log]
        .into_iter()
        .take(if common::is_thorough() { 2 } else { 1 })
    {
        let mut met = Vec::new();
        for (setup, program) in takers() {
            let engine = Explored::small(Engine::MASSTREE, CodecName::Record)
                .opening_with("sweep", 1)
                .shared();
            let options = ExplorationOptions {
                rules,
                ..options(Images::Some { random: 0 }, SecondCrash::Never)
            };
            let mut explorer =
                Explorer::new(IndexSubject::new(&engine, FollowUp::SplitAndMerge), options)
                    .unwrap();
            explorer.set_up(&setup).unwrap();
            let preemptions_max = if program.threads.len() > 2 { 1 } else { 2 };
            let search = Search::Exhaustive { preemptions_max };
            let scheduling = Scheduling {
                search,
                ..Scheduling::default()
            };
            let survey = explorer.survey_threads(&program, &scheduling);
            let survey = survey.unwrap_or_else(|failure| panic!("{failure}"));
            println!("taken over, {rules:?}: {}", explorer.stats());
            met.extend(survey.into_iter().filter_map(|mutation| match mutation {
                Mutation::DropStore(site) if site.file.ends_with("allocator.rs") => Some(site.line),
                _ => None,
            }));
        }
        assert!(
            stores.iter().all(|line| met.contains(line)),
            "{stores:?} {met:?}"
        );
    }
}

/// New objects are published at the end of the epoch, long after the guard that took slabs for them
/// was dropped.
#[test]
fn the_fences_for_slabs_are_missed() {
    // More keys than a node takes, so that there is one above, of another size.
    let mut script = vec![Insert(10, LONG_VALUE), Sync];
    script.extend((2..7).map(|key| Insert(10 * key, 1)));
    script.push(Sync);
    let explorer = |mutations| {
        let subject = IndexSubject::new(&common::small(Engine::MASSTREE, Record), FollowUp::Keys);
        let images = Images::Some { random: 0 };
        Explorer::new(
            subject,
            ExplorationOptions {
                mutations,
                shrink: false,
                ..options(images, SecondCrash::Never)
            },
        )
        .unwrap()
    };
    let survey = explorer(Vec::new())
        .survey(&script)
        .unwrap_or_else(|failure| panic!("{failure}"));
    let is_of_space = |site: &Site| site.file.ends_with("pool/src/space.rs");
    let fences = survey
        .into_iter()
        .filter(|fault| matches!(fault, Mutation::DropFence(site) if is_of_space(site)));
    let missed: Vec<_> = fences
        .filter(|fence| explorer(vec![*fence]).explore(&script).is_err())
        .collect();
    println!("{missed:?}");
    // For slots of a class, and for a long value.
    assert_eq!(missed.len(), 2);
}

/// From the four seed trees, a sync at each place.
#[test]
#[ignore = "thorough: 47 s"]
fn small_scopes_exhausted() {
    for codec in [Word, Record] {
        let options = options(Images::Some { random: 0 }, SecondCrash::InRecovery);
        let engine = common::small(Engine::MASSTREE, codec);
        common::exhaust(&engine, setting("EVERLEAF_LENGTH", 2) as usize, &options);
    }
}

/// From seed trees with layers below layers. Longer sequences with a second crash are for `everleaf
/// crash --codec layers`, or for the setting: those of two take a minute.
#[test]
#[ignore = "thorough: 9 s"]
fn small_scopes_of_layers_exhausted() {
    let engine = common::small(Engine::MASSTREE, Layers);
    let length = setting("EVERLEAF_LENGTH", 1) as usize;
    let options = |second_crash| options(Images::Some { random: 0 }, second_crash);
    common::exhaust(&engine, length, &options(SecondCrash::InRecovery));
    common::exhaust(&engine, length + 1, &options(SecondCrash::Never));
}

/// After a crash a write, or a find, uses a node before any scan of the whole tree.
#[test]
#[ignore = "thorough: 22 s"]
fn writes_come_first_after_a_crash() {
    for (codec, rules) in [
        (Word, Rules::Lines),
        (Record, Rules::Lines),
        (Record, Rules::Log),
    ] {
        let options = options(Images::Some { random: 2 }, SecondCrash::InRecovery);
        let options = ExplorationOptions {
            rules,
            follow_up_first: true,
            ..options
        };
        explore(codec, &every_change_in_epochs(), options.clone());
        explore(codec, &what_epochs_meet(), options.clone());
        common::exhaust(&common::small(Engine::MASSTREE, codec), 1, &options);
    }
}

/// Every sequence of two writes on three keys, in one epoch and in two: every crash, every image.
fn every_pair_of_writes(seed: &[IndexOperation]) {
    let choices = |value| {
        [10, 20, 30]
            .into_iter()
            .flat_map(move |key| [Insert(key, value), Update(key, value), Remove(key)])
    };
    let mut total = Stats::default();
    for (first, second) in
        choices(7).flat_map(|first| choices(8).map(move |second| (first, second)))
    {
        for between in [vec![], vec![Sync]] {
            let mut script = seed.to_vec();
            script.push(Sync);
            let from_operation = script.len();
            script.push(first);
            script.extend(between);
            script.extend([second, Sync]);
            let options = ExplorationOptions {
                from_operation,
                ..options(Images::All, SecondCrash::Never)
            };
            let engine = common::small(Engine::MASSTREE, Word);
            let subject = IndexSubject::new(&engine, FollowUp::SplitAndMerge);
            let mut explorer = Explorer::new(subject, options).unwrap();
            explorer
                .explore(&script)
                .unwrap_or_else(|failure| panic!("{failure}"));
            total += explorer.stats();
        }
    }
    println!("pairs of writes: {total}");
    assert_eq!(total.cut_short, 0);
}

#[test]
fn every_pair_of_writes_in_a_node_that_has_one_key() {
    every_pair_of_writes(&[Insert(20, 1)]);
}

#[test]
#[ignore = "thorough: 82 s"]
fn every_pair_of_writes_in_a_node_that_is_full() {
    every_pair_of_writes(&[Insert(5, 1), Insert(20, 2), Insert(25, 3), Insert(40, 4)]);
}
