//! RNTree under crashes.

use std::time::Instant;

use engines::index::{Codec, RecordCodec, WordCodec};
use engines::rntree::{MaybeWords, RnTree};
use everleaf_sim::index::IndexOperation::{self, Exchange, Insert, Put, Remove, Reopen, Update};
use everleaf_sim::index::{FollowUp, IndexSubject, RnTreeEngine};
use everleaf_sim::{Explorer, Images, Options, SecondCrash, Stats};
use medium::LineForm;
use medium::sim::Sim;

fn explore<C: Codec, const N: usize>(
    setup: &[IndexOperation],
    operations: &[IndexOperation],
    options: Options,
) -> Stats
where
    RnTree<Sim, C, N>: MaybeWords,
{
    let subject = IndexSubject::new(RnTreeEngine::<C, N>::default(), FollowUp::SplitAndMerge);
    let mut explorer = Explorer::new(subject, options).unwrap();
    let start = Instant::now();
    if !setup.is_empty() {
        explorer.set_up(setup).unwrap_or_else(|failure| panic!("{failure}"));
    }
    explorer.explore(operations).unwrap_or_else(|failure| panic!("{failure}"));
    let stats = explorer.stats();
    println!(
        "{stats}; {:?}, {:.0} recoveries/s",
        start.elapsed(),
        stats.recoveries as f64 / start.elapsed().as_secs_f64()
    );
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
        explore::<WordCodec, 4>(&[], &script(), Options { second_crash, ..Options::default() });
    }
}

#[test]
fn a_script_with_words_and_twin_lines() {
    let options =
        Options { line_form: LineForm::Twin, second_crash: SecondCrash::InRecovery, ..Options::default() };
    explore::<WordCodec, 4>(&[], &script(), options);
}

#[test]
fn a_script_with_records() {
    for line_form in [LineForm::Single, LineForm::Twin] {
        let options = Options {
            line_form,
            images: Images::Some { random: 4 },
            second_crash: SecondCrash::InRecovery,
            ..Options::default()
        };
        explore::<RecordCodec, 4>(&[], &script(), options.clone());
        explore::<RecordCodec, 4>(&[], &script(), Options { images: Images::All, ..options });
    }
}
