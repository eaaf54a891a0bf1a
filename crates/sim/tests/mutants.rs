//! RNTree with one fault at a time: each must be noticed, or be known to be harmless.

use std::path::Path;

use everleaf_sim::index::mutants::{Target, run};

#[test]
fn every_mutant_is_caught_or_known_to_be_harmless() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let report = run(&Target::of_name("rntree").unwrap(), &root, 2, &|_| {});
    println!("{} mutants, {} killed, {:?}", report.mutants, report.killed, report.kinds);
    assert_eq!((report.failure.as_deref(), report.survived), (None, 0), "{:#?}", report.survivors);
    assert!(report.mutants > 80 && report.kinds.len() == 6, "{:?}", report.kinds);
    assert!(report.is_sound(), "these justify nothing: {:#?}", report.unused);
}
