//! The conformance suite on the BzTree.

// A test crate is its own whole world: `pub` says what a module offers to the others.
#![allow(unreachable_pub)]

extern crate everleaf_engines as engines;

#[macro_use]
mod suite;

use engines::bztree::{BzTree, BzTreeOptions};
use harness::{Contract, Durability};
use suite::*;

conformance!(
    bztree,
    BzTree,
    [4, 56],
    BzTreeOptions::default(),
    Contract {
        durability: Durability::Immediate(budget::Fences { insert: 3, update: 3, remove: 3 }),
        notices_damage: false,
    },
    on_media_without_lines
);
