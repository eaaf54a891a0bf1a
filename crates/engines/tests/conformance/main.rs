//! One suite for all engines: whatever implements `Index` passes all of it, on every medium, with every codec, with
//! small nodes and large ones. An engine gets it by one line at the end of this file.
//!
//! - `model`: random operations against `BTreeMap`, reopening in between; keys and values at their limits;
//! - `threads`, `ranges`: histories per key, sums that must come out, ranges while others write;
//! - `space`: a full pool, an emptied tree, leaks; `bulk`: bulk load;
//! - `damage`: every byte of a pool flipped in turn; `trees`: several trees, the wrong codec;
//! - `budget`: persists per operation, counted.
//!
//! Random choices follow from a seed, the same in every run. `EVERLEAF_SEED=random` or `=NUMBER` chooses another,
//! `EVERLEAF_CASES=NUMBER` multiplies the number of cases. A failure prints the seed and the command that replays it.
//!
//! A suite that cannot fail is no suite: `selftest` runs it on a stand-in that is right, and on stand-ins with one flaw
//! each, all of which must be caught.

// A test crate is its own whole world: `pub` says what a module offers to the others.
#![allow(unreachable_pub)]

extern crate everleaf_engines as engines;

#[macro_use]
mod harness;
mod budget;
mod bulk;
mod damage;
mod generate;
mod limits;
mod model;
mod ranges;
mod selftest;
mod space;
mod standin;
mod threads;
mod trees;

use engines::bztree::{BzTree, BzTreeOptions};
use engines::masstree::{EpochLength, MassTree, MassTreeOptions, Mode};
use engines::rntree::{RnTree, RnTreeOptions};
use harness::Contract;

/// Epochs that end all the time; every open is one after a crash.
const MASSTREE: MassTreeOptions = MassTreeOptions {
    epoch: EpochLength::Every(std::time::Duration::from_millis(1)),
    mode: Mode::InLine,
    recovery_threads: 2,
    shards: 8,
    close_cleanly: false,
    first_epoch: 1,
};

// One line per engine: a name, the type (generic over medium, codec and capacity), two capacities, its options, its
// contract.
conformance!(
    rntree,
    RnTree,
    [4, 56],
    RnTreeOptions::default(),
    Contract::Immediate(budget::Fences { insert: 2, update: 2, remove: 1 }),
    on_every_medium
);
conformance!(
    bztree,
    BzTree,
    [4, 56],
    BzTreeOptions::default(),
    Contract::Immediate(budget::Fences { insert: 3, update: 3, remove: 3 }),
    on_media_without_lines
);
conformance!(masstree, MassTree, [4, 14], MASSTREE, Contract::Epoch, on_media_without_lines);
