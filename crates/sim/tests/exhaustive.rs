//! RNTree in small scopes: every short sequence, every crash, every image.

use std::time::Instant;

use engines::index::{RecordCodec, WordCodec};
use everleaf_sim::index::RnTreeEngine;
use everleaf_sim::index::suite::exhaust;
use everleaf_sim::{Options, SecondCrash};
use medium::LineForm;

/// The length of sequences; `EVERLEAF_LENGTH` sets another one.
fn length(usual: usize) -> usize {
    std::env::var("EVERLEAF_LENGTH")
        .map_or(usual, |length| length.parse().expect("EVERLEAF_LENGTH is a number"))
}

fn options(line_form: LineForm, second_crash: SecondCrash) -> Options {
    let command = "cargo test --release -p everleaf-sim --test exhaustive".to_owned();
    Options { line_form, second_crash, command, ..Options::default() }
}

fn words(length: usize, line_form: LineForm, second_crash: SecondCrash) {
    let start = Instant::now();
    let engine = RnTreeEngine::<WordCodec, 4>::default;
    let stats = exhaust(engine, length, 2, &options(line_form, second_crash));
    let stats = stats.unwrap_or_else(|failure| panic!("{failure}"));
    println!("words, {length}, {line_form:?}, {second_crash:?}: {stats}; {:?}", start.elapsed());
    assert_eq!((stats.traces, stats.cut_short), (4 * 12u64.pow(length as u32), 0));
}

fn records(length: usize, line_form: LineForm, second_crash: SecondCrash) {
    let start = Instant::now();
    let engine = RnTreeEngine::<RecordCodec, 4>::default;
    let stats = exhaust(engine, length, 2, &options(line_form, second_crash));
    let stats = stats.unwrap_or_else(|failure| panic!("{failure}"));
    println!("records, {length}, {line_form:?}, {second_crash:?}: {stats}; {:?}", start.elapsed());
    assert_eq!((stats.traces, stats.cut_short), (4 * 12u64.pow(length as u32), 0));
}

#[test]
fn words_in_single_lines() {
    words(length(3), LineForm::Single, SecondCrash::InRecovery);
}

#[test]
fn words_in_twin_lines() {
    words(length(3), LineForm::Twin, SecondCrash::InRecovery);
}

#[test]
fn records_in_single_lines() {
    records(length(3), LineForm::Single, SecondCrash::InRecovery);
}

#[test]
fn records_in_twin_lines() {
    records(length(2), LineForm::Twin, SecondCrash::InRecovery);
}

#[test]
fn second_crashes_anywhere() {
    words(length(2), LineForm::Single, SecondCrash::Anywhere);
    records(length(1), LineForm::Twin, SecondCrash::Anywhere);
}
