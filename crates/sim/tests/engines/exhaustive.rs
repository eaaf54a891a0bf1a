//! RNTree in small scopes: every short sequence, every crash, every image.

use everleaf_sim::index::CodecName::{Record, Word};
use everleaf_sim::index::{CodecName, Engine, RUBBISH_FROM};
use everleaf_sim::{ExplorationOptions, Images, Rules, SecondCrash};
use medium::LineForm;

use crate::common;

/// The length of sequences; `EVERLEAF_LENGTH` sets another one.
fn length(usual: usize) -> usize {
    common::setting("EVERLEAF_LENGTH", usual as u64) as usize
}

/// The length of sequences that take seconds for each form of lines and each memory model.
fn long() -> usize {
    if common::is_thorough() { 3 } else { 2 }
}

fn exhaust(
    codec: CodecName,
    length: usize,
    rules: Rules,
    line_form: LineForm,
    second_crash: SecondCrash,
) {
    let options = ExplorationOptions {
        rules,
        line_form,
        rubbish_from: Some(RUBBISH_FROM),
        ..common::options("engines", Images::All, second_crash)
    };
    let stats = common::exhaust(&common::small(Engine::RNTREE, codec), length, &options);
    assert!(
        stats.traces == 4 * 12u64.pow(length as u32)
            || std::env::var_os("EVERLEAF_CRASH").is_some()
    );
}

#[test]
fn words_in_single_lines() {
    exhaust(
        Word,
        length(long()),
        Rules::Lines,
        LineForm::Single,
        SecondCrash::InRecovery,
    );
}

#[test]
fn words_in_twin_lines() {
    exhaust(
        Word,
        length(long()),
        Rules::Lines,
        LineForm::Twin,
        SecondCrash::InRecovery,
    );
}

#[test]
fn records_in_single_lines() {
    exhaust(
        Record,
        length(long()),
        Rules::Lines,
        LineForm::Single,
        SecondCrash::InRecovery,
    );
}

#[test]
fn records_in_twin_lines() {
    exhaust(
        Record,
        length(long() - 1),
        Rules::Lines,
        LineForm::Twin,
        SecondCrash::InRecovery,
    );
}

#[test]
#[ignore = "thorough: 19 s"]
fn second_crashes_anywhere() {
    exhaust(
        Word,
        length(2),
        Rules::Lines,
        LineForm::Single,
        SecondCrash::Anywhere,
    );
    exhaust(
        Record,
        length(1),
        Rules::Lines,
        LineForm::Twin,
        SecondCrash::Anywhere,
    );
}

/// Every store is a crash point.
#[test]
#[ignore = "thorough: 18 s"]
fn with_persistent_caches() {
    exhaust(
        Word,
        length(3),
        Rules::PersistentCaches,
        LineForm::Single,
        SecondCrash::InRecovery,
    );
    exhaust(
        Record,
        length(3),
        Rules::PersistentCaches,
        LineForm::Single,
        SecondCrash::InRecovery,
    );
}

#[test]
fn on_a_log() {
    exhaust(
        Word,
        length(long()),
        Rules::Log,
        LineForm::Single,
        SecondCrash::InRecovery,
    );
    exhaust(
        Record,
        length(long()),
        Rules::Log,
        LineForm::Single,
        SecondCrash::InRecovery,
    );
    exhaust(
        Record,
        length(2),
        Rules::Log,
        LineForm::Twin,
        SecondCrash::InRecovery,
    );
}
