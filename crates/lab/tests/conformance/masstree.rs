//! The conformance suite on the Masstree.

// A test crate is its own whole world: `pub` says what a module offers to the others.
#![allow(unreachable_pub)]

#[macro_use]
mod suite;

use suite::*;

conformance!(masstree, engines::registry::Engine::MASSTREE, on_media_without_lines);
