//! The conformance suite on the BzTree.

// A test crate is its own whole world: `pub` says what a module offers to the others.
#![allow(unreachable_pub)]

extern crate everleaf_engines as engines;

#[macro_use]
mod suite;

use engines::bztree::{BzTree, BzTreeOptions};
use harness::Contract;
use suite::*;

conformance!(
    bztree,
    BzTree,
    [4, 56],
    BzTreeOptions::default(),
    Contract::Immediate(budget::Fences { insert: 3, update: 3, remove: 3 }),
    on_media_without_lines
);
