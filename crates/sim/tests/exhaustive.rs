//! RNTree in small scopes: every short sequence, every crash, every image.

use engines::index::{Codec, MaybeWords, RecordCodec, WordCodec};
use engines::rntree::RnTree;
use everleaf_sim::index::suite::{self, Suite};
use everleaf_sim::index::{RUBBISH_FROM, RnTreeEngine};
use everleaf_sim::{Options, Rules, SecondCrash};
use medium::LineForm;
use medium::sim::Sim;

/// The length of sequences; `EVERLEAF_LENGTH` sets another one.
fn length(usual: usize) -> usize {
    std::env::var("EVERLEAF_LENGTH")
        .map_or(usual, |length| length.parse().expect("EVERLEAF_LENGTH is a number"))
}

fn options(rules: Rules, line_form: LineForm, second_crash: SecondCrash) -> Options {
    let command = "cargo test --release -p everleaf-sim --test exhaustive".to_owned();
    let rubbish_from = Some(RUBBISH_FROM);
    Options { rules, line_form, rubbish_from, second_crash, command, ..Options::default() }
}

fn exhaust<C: Codec>(length: usize, rules: Rules, line_form: LineForm, second_crash: SecondCrash)
where
    RnTree<Sim, C, 4>: MaybeWords,
{
    let suite = Suite { length, threads: 2, progress: None };
    let report =
        suite::exhaust(RnTreeEngine::<C, 4>::default, suite, &options(rules, line_form, second_crash));
    if let Some(failure) = &report.failure {
        panic!("{failure}");
    }
    let (stats, seconds) = (report.stats, report.seconds);
    println!("{}, {length}, {rules:?}, {line_form:?}, {second_crash:?}: {stats}; {seconds:.1} s", C::NAME);
    assert_eq!((stats.traces, stats.cut_short), (4 * 12u64.pow(length as u32), 0));
}

#[test]
fn words_in_single_lines() {
    exhaust::<WordCodec>(length(3), Rules::Lines, LineForm::Single, SecondCrash::InRecovery);
}

#[test]
fn words_in_twin_lines() {
    exhaust::<WordCodec>(length(3), Rules::Lines, LineForm::Twin, SecondCrash::InRecovery);
}

#[test]
fn records_in_single_lines() {
    exhaust::<RecordCodec>(length(3), Rules::Lines, LineForm::Single, SecondCrash::InRecovery);
}

#[test]
fn records_in_twin_lines() {
    exhaust::<RecordCodec>(length(2), Rules::Lines, LineForm::Twin, SecondCrash::InRecovery);
}

#[test]
fn second_crashes_anywhere() {
    exhaust::<WordCodec>(length(2), Rules::Lines, LineForm::Single, SecondCrash::Anywhere);
    exhaust::<RecordCodec>(length(1), Rules::Lines, LineForm::Twin, SecondCrash::Anywhere);
}

#[test]
fn on_a_log() {
    exhaust::<WordCodec>(length(3), Rules::Log, LineForm::Single, SecondCrash::InRecovery);
    exhaust::<RecordCodec>(length(3), Rules::Log, LineForm::Single, SecondCrash::InRecovery);
    exhaust::<RecordCodec>(length(2), Rules::Log, LineForm::Twin, SecondCrash::InRecovery);
}
