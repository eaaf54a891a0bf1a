//! RNTree under crashes.

use std::time::Instant;

use engines::index::{Codec, MaybeWords, RecordCodec, WordCodec};
use engines::rntree::RnTree;
use everleaf_sim::index::IndexOperation::{self, Exchange, Insert, Put, Remove, Reopen, Update};
use everleaf_sim::index::script::random_operations;
use everleaf_sim::index::{FollowUp, IndexSubject, RnTreeEngine};
use everleaf_sim::{Explorer, Images, Options, Rules, SecondCrash, Stats};
use medium::LineForm;
use medium::sim::Sim;

fn options(line_form: LineForm, images: Images, second_crash: SecondCrash) -> Options {
    let command = "cargo test --release -p everleaf-sim --test rntree".to_owned();
    Options { line_form, images, second_crash, command, limit_bytes: 16 << 20, ..Options::default() }
}

fn explore<C: Codec, const N: usize>(
    operations: &[IndexOperation],
    follow_up: FollowUp,
    options: Options,
) -> Stats
where
    RnTree<Sim, C, N>: MaybeWords,
{
    let subject = IndexSubject::new(RnTreeEngine::<C, N>::default(), follow_up);
    let mut explorer = Explorer::new(subject, options).unwrap();
    let start = Instant::now();
    explorer.explore(operations).unwrap_or_else(|failure| panic!("{failure}"));
    let stats = explorer.stats();
    println!("{}, {N} entries: {stats}; {:?}", C::NAME, start.elapsed());
    assert_eq!(stats.cut_short, 0);
    stats
}

fn script() -> Vec<IndexOperation> {
    let mut script = vec![
        Insert(10, 1),
        Insert(20, 2),
        Insert(10, 3),
        Update(20, 4),
        Update(30, 5),
        Put(30, 6),
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
fn a_script_with_words_and_single_lines() {
    for second_crash in [SecondCrash::Never, SecondCrash::InRecovery, SecondCrash::Anywhere] {
        let options = options(LineForm::Single, Images::All, second_crash);
        explore::<WordCodec, 4>(&script(), FollowUp::SplitAndMerge, options);
    }
}

#[test]
fn a_script_with_words_and_twin_lines() {
    let options = options(LineForm::Twin, Images::All, SecondCrash::InRecovery);
    explore::<WordCodec, 4>(&script(), FollowUp::SplitAndMerge, options);
}

#[test]
fn a_script_with_records() {
    for line_form in [LineForm::Single, LineForm::Twin] {
        for images in [Images::Some { random: 4 }, Images::All] {
            let options = options(line_form, images, SecondCrash::InRecovery);
            explore::<RecordCodec, 4>(&script(), FollowUp::SplitAndMerge, options);
        }
    }
}

#[test]
fn a_script_with_persistent_caches() {
    for line_form in [LineForm::Single, LineForm::Twin] {
        let options = options(line_form, Images::All, SecondCrash::InRecovery);
        let options = Options { rules: Rules::PersistentCaches, ..options };
        explore::<WordCodec, 4>(&script(), FollowUp::SplitAndMerge, options.clone());
        explore::<RecordCodec, 4>(&script(), FollowUp::SplitAndMerge, options);
    }
}

#[test]
fn a_script_on_a_log() {
    for line_form in [LineForm::Single, LineForm::Twin] {
        for second_crash in [SecondCrash::Never, SecondCrash::InRecovery, SecondCrash::Anywhere] {
            let options = options(line_form, Images::All, second_crash);
            let options = Options { rules: Rules::Log, ..options };
            explore::<WordCodec, 4>(&script(), FollowUp::SplitAndMerge, options.clone());
            explore::<RecordCodec, 4>(&script(), FollowUp::SplitAndMerge, options);
        }
    }
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
        let single = options(LineForm::Single, Images::All, SecondCrash::InRecovery);
        let twin = options(LineForm::Twin, Images::Some { random: 2 }, SecondCrash::InRecovery);
        explore::<WordCodec, 4>(&operations, FollowUp::SplitAndMerge, single.clone());
        explore::<RecordCodec, 4>(&operations, FollowUp::SplitAndMerge, single);
        explore::<WordCodec, 5>(&operations, FollowUp::SplitAndMerge, twin.clone());
        explore::<RecordCodec, 4>(&operations, FollowUp::SplitAndMerge, twin);
    }
}

#[test]
fn long_runs_at_full_leaf_size() {
    let seed = setting("EVERLEAF_SEED", 1);
    let operations = random_operations(seed, 1000, 600);
    for images in [Images::Some { random: 2 }, Images::All] {
        let options = Options { seed, ..options(LineForm::Single, images, SecondCrash::Never) };
        explore::<WordCodec, 56>(&operations, FollowUp::Keys, options);
    }
}

#[test]
fn long_runs_with_records_and_twin_lines() {
    let seed = setting("EVERLEAF_SEED", 1);
    let operations = random_operations(seed, 500, 60);
    let options = Options { seed, ..options(LineForm::Twin, Images::Some { random: 1 }, SecondCrash::Never) };
    explore::<RecordCodec, 4>(&operations, FollowUp::SplitAndMerge, options);
}
