//! The conformance suite on the RNTree.

// A test crate is its own whole world: `pub` says what a module offers to the others.
#![allow(unreachable_pub)]

extern crate everleaf_engines as engines;

#[macro_use]
mod suite;

use engines::rntree::{RnTree, RnTreeOptions};
use harness::{Contract, Durability};
use suite::*;

conformance!(
    rntree,
    RnTree,
    [4, 56],
    RnTreeOptions::default(),
    Contract {
        durability: Durability::Immediate(budget::Fences { insert: 2, update: 2, remove: 1 }),
        notices_damage: true,
    },
    on_every_medium
);
