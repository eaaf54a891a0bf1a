//! Engines with one fault at a time: each must be noticed, or be justified as harmless.

use std::path::Path;

use engines::engine::Engine;
use everleaf_lab::testing::mutants::{MutationTarget, run};

fn every_mutant_is_caught_or_known_to_be_harmless(engine: Engine, mutants_min: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let report = run(&MutationTarget::of(engine), &root, 2, &|_| {});
    println!(
        "{} mutants, {} killed, {:?}",
        report.mutants, report.killed, report.kinds
    );
    assert_eq!(
        (report.failure.as_deref(), report.survived),
        (None, 0),
        "{:#?}",
        report.survivors
    );
    assert!(
        report.mutants > mutants_min && report.kinds.len() >= 5,
        "{:?}",
        report.kinds
    );
    assert!(
        report.is_sound(),
        "these justify nothing: {:#?}",
        report.unused
    );
}

#[test]
#[ignore = "thorough: 170 s"]
fn of_rntree() {
    every_mutant_is_caught_or_known_to_be_harmless(Engine::RNTREE, 80);
}

#[test]
fn of_the_sorted_chain() {
    every_mutant_is_caught_or_known_to_be_harmless(everleaf_lab::SORTED_CHAIN, 10);
}
