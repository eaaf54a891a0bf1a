//! RNTree under crashes.

use everleaf_sim::index::CodecName::{Record, Word};
use everleaf_sim::index::script::{every_change, random_operations, writes};
use everleaf_sim::index::{
    AnyEngine, CodecName, Engine, Explored, FollowUp, IndexOperation, Size, engine,
};
use everleaf_sim::{ExplorationOptions, Images, Rules, SecondCrash};
use medium::LineForm;

use crate::common;
use crate::common::setting;

fn options(line_form: LineForm, images: Images, second_crash: SecondCrash) -> ExplorationOptions {
    ExplorationOptions {
        line_form,
        ..common::options("engines", images, second_crash)
    }
}

/// With four entries a leaf.
fn explore(codec: CodecName, operations: &[IndexOperation], options: ExplorationOptions) {
    let engine = common::small(Engine::RNTREE, codec);
    common::explore(&engine, operations, FollowUp::SplitAndMerge, options);
}

#[test]
fn a_script_with_words_and_single_lines() {
    let all = [
        SecondCrash::Never,
        SecondCrash::InRecovery,
        SecondCrash::Anywhere,
    ];
    for second_crash in all
        .into_iter()
        .take(if common::is_thorough() { 3 } else { 2 })
    {
        let options = options(LineForm::Single, Images::All, second_crash);
        explore(Word, &every_change(), options);
    }
}

#[test]
fn a_script_with_words_and_twin_lines() {
    let options = options(LineForm::Twin, Images::All, SecondCrash::InRecovery);
    explore(Word, &every_change(), options);
}

#[test]
fn a_script_with_records() {
    for line_form in [LineForm::Single, LineForm::Twin] {
        for images in [Images::Some { random: 4 }, Images::All] {
            let options = options(line_form, images, SecondCrash::InRecovery);
            explore(Record, &every_change(), options);
        }
    }
}

#[test]
fn a_script_with_persistent_caches() {
    for line_form in [LineForm::Single, LineForm::Twin] {
        let options = options(line_form, Images::All, SecondCrash::InRecovery);
        let options = ExplorationOptions {
            rules: Rules::PersistentCaches,
            ..options
        };
        explore(Word, &every_change(), options.clone());
        explore(Record, &every_change(), options);
    }
}

#[test]
fn a_script_on_a_log() {
    for line_form in [LineForm::Single, LineForm::Twin] {
        for second_crash in [
            SecondCrash::Never,
            SecondCrash::InRecovery,
            SecondCrash::Anywhere,
        ] {
            if second_crash == SecondCrash::Anywhere && !common::is_thorough() {
                continue;
            }
            let options = options(line_form, Images::All, second_crash);
            let options = ExplorationOptions {
                rules: Rules::Log,
                ..options
            };
            explore(Word, &every_change(), options.clone());
            explore(Record, &every_change(), options);
        }
    }
}

#[test]
fn a_script_with_splits_that_copy_records() {
    let single =
        [Rules::Lines, Rules::Log, Rules::PersistentCaches].map(|rules| (LineForm::Single, rules));
    let all = single.into_iter().chain([(LineForm::Twin, Rules::Lines)]);
    for (line_form, rules) in all.take(if common::is_thorough() { 4 } else { 2 }) {
        let options = ExplorationOptions {
            rules,
            ..options(line_form, Images::All, SecondCrash::InRecovery)
        };
        let engine = Explored::small(Engine::RNTREE, Record)
            .opening_with("gather", 1)
            .shared();
        common::explore(&engine, &every_change(), FollowUp::Reuse, options.clone());
        if common::is_thorough() {
            common::explore(&engine, &every_change(), FollowUp::SplitAndMerge, options);
        }
    }
}

#[test]
fn loads_and_drops() {
    for line_form in [LineForm::Single, LineForm::Twin] {
        let options = options(line_form, Images::All, SecondCrash::InRecovery);
        common::explore_loads_and_drops(Engine::RNTREE, &options);
    }
}

#[test]
fn random_scripts() {
    let first = setting("EVERLEAF_SEED", 1);
    for seed in first..first + setting("EVERLEAF_SEEDS", if common::is_thorough() { 8 } else { 1 })
    {
        println!("seed {seed}");
        let operations = random_operations(seed, 60, 14, writes);
        let single = options(LineForm::Single, Images::All, SecondCrash::InRecovery);
        let twin = options(
            LineForm::Twin,
            Images::Some { random: 2 },
            SecondCrash::InRecovery,
        );
        explore(Word, &operations, single.clone());
        explore(Record, &operations, single);
        let five: AnyEngine = Explored::small(Engine::RNTREE, CodecName::Word)
            .with_nodes("leaf-entries", 5, 32)
            .shared();
        common::explore(&five, &operations, FollowUp::SplitAndMerge, twin.clone());
        explore(Record, &operations, twin);
    }
}

#[test]
fn long_runs_at_full_leaf_size() {
    let seed = setting("EVERLEAF_SEED", 1);
    let count = if common::is_thorough() { 1000 } else { 500 };
    let mut operations = random_operations(seed, count, 200, writes);
    // Full leaves are merged, too.
    operations.extend((0..200).map(IndexOperation::Remove));
    let images = if common::is_thorough() {
        Images::All
    } else {
        Images::Some { random: 2 }
    };
    let options = ExplorationOptions {
        seed,
        ..options(LineForm::Single, images, SecondCrash::Never)
    };
    common::explore(
        &engine(Engine::RNTREE, Word, Size::Full),
        &operations,
        FollowUp::Keys,
        options,
    );
}

#[test]
fn long_runs_with_records_and_twin_lines() {
    let seed = setting("EVERLEAF_SEED", 1);
    let operations = random_operations(seed, 500, 60, writes);
    let options = ExplorationOptions {
        seed,
        ..options(
            LineForm::Twin,
            Images::Some { random: 1 },
            SecondCrash::Never,
        )
    };
    explore(Record, &operations, options);
}
