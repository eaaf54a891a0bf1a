//! The conformance suite on the BzTree.

// A test crate is its own whole world: `pub` says what a module offers to the others.
#![allow(unreachable_pub)]

#[macro_use]
mod suite;

use suite::*;

conformance!(bztree, engines::registry::Engine::BZTREE, on_media_without_lines);
