//! BzTree under crashes.

use std::time::Instant;

use engines::bztree::BzTree;
use engines::index::{Codec, MaybeWords, RecordCodec, WordCodec};
use everleaf_sim::index::IndexOperation::{self, Exchange, Insert, Put, Remove, Reopen, Update};
use everleaf_sim::index::suite::{Suite, exhaust};
use everleaf_sim::index::{BzTreeEngine, FollowUp, IndexSubject};
use everleaf_sim::{Explorer, Images, Options, Rules, SecondCrash, Stats};
use medium::sim::Sim;

fn options(images: Images, second_crash: SecondCrash) -> Options {
    let command = "cargo test --release -p everleaf-sim --test bztree".to_owned();
    Options { images, second_crash, command, limit_bytes: 16 << 20, ..Options::default() }
}

fn explore<C: Codec, const N: usize>(
    operations: &[IndexOperation],
    follow_up: FollowUp,
    options: Options,
) -> Stats
where
    BzTree<Sim, C, N>: MaybeWords,
{
    let subject = IndexSubject::new(BzTreeEngine::<C, N>::default(), follow_up);
    let mut explorer = Explorer::new(subject, options).unwrap();
    let start = Instant::now();
    explorer.explore(operations).unwrap_or_else(|failure| panic!("{failure}"));
    let stats = explorer.stats();
    println!("{}, {N} entries: {stats}; {:?}", C::NAME, start.elapsed());
    assert_eq!(stats.cut_short, 0);
    stats
}

/// Inserts, updates, removes; splits of leaves and of the root, consolidations, merges back to a single leaf.
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
    script.extend([Insert(5, 11), Reopen, Remove(44), Remove(45), Remove(46), Remove(5)]);
    script
}

#[test]
fn a_script_with_words() {
    for second_crash in [SecondCrash::Never, SecondCrash::InRecovery] {
        explore::<WordCodec, 4>(&script(), FollowUp::SplitAndMerge, options(Images::All, second_crash));
    }
    // Insert, update, put, remove.
    let options = options(Images::All, SecondCrash::Anywhere);
    explore::<WordCodec, 4>(&script()[..8], FollowUp::Keys, options);
}

#[test]
fn a_script_with_records() {
    for images in [Images::Some { random: 4 }, Images::All] {
        let options = options(images, SecondCrash::InRecovery);
        explore::<RecordCodec, 4>(&script(), FollowUp::SplitAndMerge, options);
    }
}

#[test]
fn a_script_on_a_log_and_with_persistent_caches() {
    for rules in [Rules::Log, Rules::PersistentCaches] {
        let options = Options { rules, ..options(Images::All, SecondCrash::InRecovery) };
        explore::<WordCodec, 4>(&script(), FollowUp::SplitAndMerge, options.clone());
        explore::<RecordCodec, 4>(&script(), FollowUp::SplitAndMerge, options);
    }
}

/// Enough keys for three levels: inner nodes split and merge, the root comes and goes.
#[test]
fn inner_nodes_that_split_and_merge() {
    let mut operations: Vec<_> = (0..24).map(|key| Insert(key * 7 % 24, key)).collect();
    operations.extend((0..24).map(|key| Remove(key * 5 % 24)));
    for rules in [Rules::Lines, Rules::Log] {
        let options = Options { rules, ..options(Images::Some { random: 2 }, SecondCrash::Never) };
        explore::<WordCodec, 4>(&operations, FollowUp::SplitAndMerge, options.clone());
        explore::<RecordCodec, 4>(&operations, FollowUp::SplitAndMerge, options);
    }
}

/// Writes to keys that come and go.
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
            (1..10, _) => Update(key, value),
            (10..20, _) => Put(key, value),
            (20..70, true) | (20..40, false) => Insert(key, value),
            _ => Remove(key),
        }
    };
    (0..count).map(operation).collect()
}

#[test]
fn random_scripts() {
    for seed in 1..5 {
        println!("seed {seed}");
        let operations = random_operations(seed, 50, 14);
        let options = options(Images::Some { random: 2 }, SecondCrash::Never);
        explore::<WordCodec, 4>(&operations, FollowUp::SplitAndMerge, options.clone());
        explore::<RecordCodec, 5>(&operations, FollowUp::SplitAndMerge, options.clone());
        explore::<WordCodec, 56>(&operations, FollowUp::Keys, options);
    }
}

fn exhaust_scopes<C: Codec>(length: usize, rules: Rules)
where
    BzTree<Sim, C, 4>: MaybeWords,
{
    let suite = Suite { length, threads: 2, progress: None };
    let options = Options { rules, ..options(Images::All, SecondCrash::InRecovery) };
    let report = exhaust(BzTreeEngine::<C, 4>::default, suite, &options);
    if let Some(failure) = &report.failure {
        panic!("{failure}");
    }
    println!("{}, {length}, {rules:?}: {}; {:.1} s", C::NAME, report.stats, report.seconds);
    assert_eq!(report.stats.cut_short, 0);
}

/// Every sequence of so many operations on small trees, every crash of the last one, every image.
#[test]
fn small_scopes_exhausted() {
    exhaust_scopes::<WordCodec>(2, Rules::Lines);
    exhaust_scopes::<WordCodec>(2, Rules::Log);
    exhaust_scopes::<RecordCodec>(1, Rules::Lines);
}
