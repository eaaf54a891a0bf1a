//! The conformance suite: one set of tests for all engines, media, codecs and sizes of nodes.
//!
//! It makes its tests at run time, from lists of engines, media and tests, and `libtest-mimic` runs
//! them. It takes the usual options, but one filter only, as in `cargo test --release -p
//! everleaf-lab --test conformance -- rntree::`, and captures no output.

// No other crate uses a test crate: `pub` marks what a module offers to the other modules.
#![allow(unreachable_pub)]

mod flawed;
mod selftest;
mod suite;

use suite::{TESTS, generate, harness, model, threads};

fn main() {
    let arguments = libtest_mimic::Arguments::from_args();
    let mut trials = selftest::trials();
    trials.extend(
        everleaf_lab::ENGINES
            .iter()
            .flat_map(|engine| harness::trials(*engine)),
    );
    if !arguments.list {
        harness::lacking()
            .for_each(|medium| eprintln!("not tested, as this processor lacks it: {medium}"));
    }
    libtest_mimic::run(&arguments, trials).exit();
}
