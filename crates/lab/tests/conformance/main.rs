//! The conformance suite: one set of tests for all engines, media, codecs and sizes of nodes.

// No other crate uses a test crate: `pub` marks what a module offers to the other modules.
#![allow(unreachable_pub)]

mod flawed;
#[macro_use]
mod suite;
mod selftest;

use suite::*;

/// A module of tests for each engine.
macro_rules! engines {
    ($($name:ident: $engine:expr, $media:ident;)*) => {
        $(conformance!($name, $engine, $media);)*

        /// The engines that are tested.
        const TESTED: &[engines::registry::Engine] = &[$($engine),*];
    };
}

engines! {
    rntree: engines::registry::Engine::RNTREE, on_every_medium;
    bztree: engines::registry::Engine::BZTREE, on_media_without_lines;
    masstree: engines::registry::Engine::MASSTREE, on_media_without_lines;
    wbtree: engines::registry::Engine::WBTREE, on_media_without_lines;
    cawbt: engines::registry::Engine::CAWBT, on_every_medium;
    wbtree_bitmap_leaves: everleaf_lab::WBTREE_BITMAP_LEAVES, on_some_media;
    wbtree_slot_only: everleaf_lab::WBTREE_SLOT_ONLY, on_some_media;
    btree: everleaf_lab::BTREE, on_some_media;
    fast_fair: everleaf_lab::FAST_FAIR, on_some_media;
    sorted_chain: everleaf_lab::SORTED_CHAIN, on_some_media;
}

#[test]
fn every_engine_is_tested() {
    let left_out: Vec<_> = everleaf_lab::ENGINES.iter().filter(|engine| !TESTED.contains(engine)).collect();
    assert!(left_out.is_empty(), "a line is missing above: {left_out:?}");
}
