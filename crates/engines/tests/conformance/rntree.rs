//! The conformance suite on the RNTree.

// A test crate is its own whole world: `pub` says what a module offers to the others.
#![allow(unreachable_pub)]

extern crate everleaf_engines as engines;

#[macro_use]
mod suite;

use suite::*;

conformance!(rntree, RNTREE, on_every_medium);
