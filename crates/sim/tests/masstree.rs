//! The durable Masstree under crashes: what is found is what the last epoch that ended had left.

use std::time::Instant;

use engines::index::{Codec, RecordCodec, WordCodec};
use engines::masstree::Mode;
use everleaf_sim::index::IndexOperation::{self, Exchange, Insert, Put, Remove, Reopen, Sync, Update};
use everleaf_sim::index::{FollowUp, IndexSubject, MassTreeEngine};
use everleaf_sim::{Explorer, Images, Options, Rules, SecondCrash, Stats};

fn options(images: Images, second_crash: SecondCrash) -> Options {
    let command = "cargo test --release -p everleaf-sim --test masstree".to_owned();
    Options { images, second_crash, command, limit_bytes: 16 << 20, ..Options::default() }
}

fn explore_engine<C: Codec, const W: usize>(
    engine: MassTreeEngine<C, W>,
    operations: &[IndexOperation],
    follow_up: FollowUp,
    options: Options,
) -> Stats {
    let subject = IndexSubject::new(engine, follow_up);
    let mut explorer = Explorer::new(subject, options).unwrap();
    let start = Instant::now();
    explorer.explore(operations).unwrap_or_else(|failure| panic!("{failure}"));
    let stats = explorer.stats();
    println!("{}, {W} slots: {stats}; {:?}", C::NAME, start.elapsed());
    assert_eq!(stats.cut_short, 0);
    stats
}

fn explore<C: Codec, const W: usize>(operations: &[IndexOperation], options: Options) -> Stats {
    explore_engine(MassTreeEngine::<C, W>::default(), operations, FollowUp::SplitAndMerge, options)
}

/// Each kind of change alone in an epoch, and those that do not go together.
fn script() -> Vec<IndexOperation> {
    let mut script = vec![Insert(10, 1), Insert(20, 2), Sync, Insert(10, 3), Update(20, 4), Sync];
    // Two values in one line; an insert after a remove; an update after that.
    script.extend([
        Put(30, 6),
        Put(40, 7),
        Update(10, 8),
        Sync,
        Update(10, 9),
        Update(20, 10),
        Update(30, 11),
        Sync,
    ]);
    script.extend([Remove(20), Insert(25, 12), Exchange(25, 12, 13), Sync, Remove(40), Remove(30), Sync]);
    script.extend([Insert(30, 14), Insert(40, 15), Update(30, 16), Sync]);
    // Splits, of more than one level.
    script.extend((41..47).map(|key| Insert(key, key)));
    script.push(Sync);
    script.extend((47..60).map(|key| Insert(key, key)));
    script.push(Reopen);
    // Nodes that are emptied, and what was freed is used again.
    script.extend([10, 25, 30, 40, 41, 42, 43].map(Remove));
    script.push(Sync);
    script.extend((44..56).map(Remove));
    script.extend([Sync, Insert(5, 11), Insert(6, 12), Sync, Remove(5), Insert(7, 13), Reopen]);
    script.extend((56..60).map(Remove));
    script.extend([Remove(6), Remove(7), Sync, Insert(8, 1)]);
    script
}

#[test]
fn a_script_with_words() {
    for second_crash in [SecondCrash::Never, SecondCrash::InRecovery] {
        explore::<WordCodec, 4>(&script(), options(Images::Some { random: 4 }, second_crash));
    }
}

#[test]
fn a_script_with_records() {
    explore::<RecordCodec, 4>(&script(), options(Images::Some { random: 8 }, SecondCrash::InRecovery));
}

#[test]
fn a_script_with_the_external_log_alone() {
    let options = options(Images::Some { random: 4 }, SecondCrash::InRecovery);
    let engine = MassTreeEngine::<RecordCodec, 4>::new(Mode::Logging, 1);
    explore_engine(engine, &script(), FollowUp::SplitAndMerge, options);
}

#[test]
fn a_script_with_persistent_caches_and_on_a_log() {
    for rules in [Rules::PersistentCaches, Rules::Log] {
        let options = Options { rules, ..options(Images::Some { random: 4 }, SecondCrash::InRecovery) };
        explore::<WordCodec, 4>(&script(), options.clone());
        explore::<RecordCodec, 4>(&script(), options);
    }
}

/// The low bits of epochs in value logs, and the epochs in links, begin anew during the script.
#[test]
fn epochs_that_wrap() {
    for first_epoch in [(1 << 16) - 3, (1 << 31) - 4, (1 << 32) - 5] {
        let options = options(Images::Some { random: 4 }, SecondCrash::InRecovery);
        let engine = MassTreeEngine::<RecordCodec, 4>::new(Mode::InLine, first_epoch);
        explore_engine(engine, &script(), FollowUp::SplitAndMerge, options);
    }
}

/// Writes to keys that come and go, with an end of an epoch now and then.
fn random_operations(seed: u64, count: usize, keys: u64) -> Vec<IndexOperation> {
    let mut state = seed;
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let operation = |position: usize| {
        // The tree grows in the first half and shrinks in the second.
        let growing = position < count / 2;
        let (key, value) = (below(keys), position as u64);
        match (below(100), growing) {
            (0, _) => Reopen,
            (1..15, _) => Sync,
            (15..25, _) => Update(key, value),
            (25..35, _) => Put(key, value),
            (35..75, true) | (35..50, false) => Insert(key, value),
            _ => Remove(key),
        }
    };
    (0..count).map(operation).collect()
}

/// A number from the environment, to run with other seeds or longer.
fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

#[test]
fn random_scripts() {
    let first = setting("EVERLEAF_SEED", 1);
    for seed in first..first + setting("EVERLEAF_SEEDS", 8) {
        println!("seed {seed}");
        let operations = random_operations(seed, 60, 14);
        explore::<WordCodec, 4>(&operations, options(Images::Some { random: 2 }, SecondCrash::InRecovery));
        explore::<RecordCodec, 4>(&operations, options(Images::Some { random: 2 }, SecondCrash::InRecovery));
        explore::<RecordCodec, 5>(&operations, options(Images::Some { random: 4 }, SecondCrash::Never));
    }
}

#[test]
fn long_runs_at_full_width() {
    let seed = setting("EVERLEAF_SEED", 1);
    let operations = random_operations(seed, 800, 200);
    let options = Options { seed, ..options(Images::Some { random: 1 }, SecondCrash::Never) };
    let engine = MassTreeEngine::<RecordCodec, 14>::default();
    explore_engine(engine, &operations, FollowUp::Keys, options);
}

/// Every sequence of two writes on three keys, in one epoch and in two, in a node that has one key and in one that is full:
/// every crash, every image.
#[test]
fn every_pair_of_writes() {
    let choices = |value| {
        [10, 20, 30]
            .into_iter()
            .flat_map(move |key| [Put(key, value), Insert(key, value), Update(key, value), Remove(key)])
    };
    let mut total = Stats::default();
    for seed in [vec![Insert(20, 1)], vec![Insert(5, 1), Insert(20, 2), Insert(25, 3), Insert(40, 4)]] {
        for (first, second) in choices(7).flat_map(|first| choices(8).map(move |second| (first, second))) {
            for between in [vec![], vec![Sync]] {
                let mut script = seed.clone();
                script.push(Sync);
                let from_operation = script.len();
                script.push(first);
                script.extend(between);
                script.extend([second, Sync]);
                let options = Options { from_operation, ..options(Images::All, SecondCrash::Never) };
                let subject =
                    IndexSubject::new(MassTreeEngine::<WordCodec, 4>::default(), FollowUp::SplitAndMerge);
                let mut explorer = Explorer::new(subject, options).unwrap();
                explorer.explore(&script).unwrap_or_else(|failure| panic!("{failure}"));
                total += explorer.stats();
            }
        }
    }
    println!("pairs of writes: {total}");
    assert_eq!(total.cut_short, 0);
}
