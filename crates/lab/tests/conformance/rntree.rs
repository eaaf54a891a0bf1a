//! The conformance suite on the RNTree.

// A test crate is its own whole world: `pub` says what a module offers to the others.
#![allow(unreachable_pub)]

#[macro_use]
mod suite;

use suite::*;

conformance!(rntree, engines::registry::Engine::RNTREE, on_every_medium);
