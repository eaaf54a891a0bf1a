//! RNTree in small scopes: every short sequence, every crash, every image.

use std::time::Instant;

use engines::index::{RecordCodec, WordCodec};
use everleaf_sim::index::RnTreeEngine;
use everleaf_sim::index::suite::exhaust;
use everleaf_sim::{Options, SecondCrash};
use medium::LineForm;

fn options(line_form: LineForm, second_crash: SecondCrash) -> Options {
    Options {
        line_form,
        second_crash,
        command: "cargo test --release -p everleaf-sim --test exhaustive".to_owned(),
        ..Options::default()
    }
}

#[test]
fn all_sequences() {
    let length = std::env::var("EVERLEAF_LENGTH").map_or(2, |length| length.parse().unwrap());
    for line_form in [LineForm::Single, LineForm::Twin] {
        for second_crash in [SecondCrash::Never, SecondCrash::InRecovery] {
            let start = Instant::now();
            let stats =
                exhaust(RnTreeEngine::<WordCodec, 4>::default, length, 2, &options(line_form, second_crash))
                    .unwrap_or_else(|failure| panic!("{failure}"));
            println!("words, {line_form:?}, {second_crash:?}: {stats}; {:?}", start.elapsed());
            let start = Instant::now();
            let stats = exhaust(
                RnTreeEngine::<RecordCodec, 4>::default,
                length,
                2,
                &options(line_form, second_crash),
            )
            .unwrap_or_else(|failure| panic!("{failure}"));
            println!("records, {line_form:?}, {second_crash:?}: {stats}; {:?}", start.elapsed());
        }
    }
}
