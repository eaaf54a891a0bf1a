//! The conformance suite: one set of tests for all engines, media, codecs and sizes of nodes.

// A test crate is its own whole world: `pub` says what a module offers to the others.
#![allow(unreachable_pub)]

mod flawed;
#[macro_use]
mod suite;
mod selftest;

use suite::*;

conformance!(rntree, engines::registry::Engine::RNTREE, on_every_medium);
conformance!(bztree, engines::registry::Engine::BZTREE, on_media_without_lines);
conformance!(masstree, engines::registry::Engine::MASSTREE, on_media_without_lines);
conformance!(wbtree, engines::registry::Engine::WBTREE, on_media_without_lines);
conformance!(wbtree_bitmap_leaves, everleaf_lab::WBTREE_BITMAP_LEAVES, on_some_media);
conformance!(wbtree_slot_only, everleaf_lab::WBTREE_SLOT_ONLY, on_some_media);
conformance!(sorted_chain, everleaf_lab::SORTED_CHAIN, on_some_media);
