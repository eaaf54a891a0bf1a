//! The conformance suite: one set of tests for all engines, media, codecs and sizes of nodes.
//!
//! The tests are made of the lists of engines, media and tests, so there is no `#[test]` here. They are run, chosen and listed as
//! any others: `cargo test --release -p everleaf-lab --test conformance -- rntree::`.

// No other crate uses a test crate: `pub` marks what a module offers to the other modules.
#![allow(unreachable_pub)]

mod flawed;
#[macro_use]
mod suite;
mod selftest;

use suite::{TESTS, generate, harness, model, threads};

fn main() {
    let mut trials = selftest::trials();
    trials.extend(everleaf_lab::ENGINES.iter().flat_map(|engine| harness::trials(*engine)));
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials).exit();
}
