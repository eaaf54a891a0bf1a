//! The conformance suite on the sorted chain.

// A test crate is its own whole world: `pub` says what a module offers to the others.
#![allow(unreachable_pub)]

#[macro_use]
mod suite;

use suite::*;

conformance!(sorted_chain, everleaf_lab::SORTED_CHAIN, on_some_media);
