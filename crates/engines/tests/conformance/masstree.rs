//! The conformance suite on the Masstree.

// A test crate is its own whole world: `pub` says what a module offers to the others.
#![allow(unreachable_pub)]

extern crate everleaf_engines as engines;

#[macro_use]
mod suite;

use std::time::Duration;

use engines::masstree::{EpochLength, MassTree, MassTreeOptions, Mode};
use harness::{Contract, Durability};
use suite::*;

/// Epochs that end all the time; every open is one after a crash.
const MASSTREE: MassTreeOptions = MassTreeOptions {
    epoch: EpochLength::Every(Duration::from_millis(1)),
    mode: Mode::InLine,
    recovery_threads: 2,
    shards: 8,
    close_cleanly: false,
    first_epoch: 1,
};

conformance!(
    masstree,
    MassTree,
    [4, 14],
    MASSTREE,
    Contract { durability: Durability::Epoch, notices_damage: false },
    on_media_without_lines
);
