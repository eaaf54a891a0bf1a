//! Engines to compare with, benchmarks, and the figures of the papers.
//!
//! Users of a store need nothing of this crate. Its engines have ids from
//! [`OUTSIDE_IDS`](engines::engine::OUTSIDE_IDS) on, and their pools are for experiments only.
#![forbid(unsafe_code)]

use engines::engine::Engine;
use engines::wbtree;

pub mod bench;
pub mod btree;
pub mod comparison;
pub mod fast_fair;
pub mod figures;
pub mod notes;
pub mod sorted_chain;
#[doc(hidden)]
pub mod testing;

/// Sorted chain: the smallest complete engine on the kit, see [`sorted_chain`].
pub const SORTED_CHAIN: Engine = Engine::new(&sorted_chain::ENTRY);

/// The B+-tree with consistency of the CAWBT paper, see [`btree`].
pub const BTREE: Engine = Engine::new(&btree::ENTRY);

/// FAST-FAIR, see [`fast_fair`].
pub const FAST_FAIR: Engine = Engine::new(&fast_fair::ENTRY);

/// The wB+-Tree with its other designs of nodes: the same engine under names of their own, with the
/// budgets of these.
pub const WBTREE_BITMAP_LEAVES: Engine = Engine::new(&wbtree::BITMAP_LEAVES);
/// See [`WBTREE_BITMAP_LEAVES`].
pub const WBTREE_SLOT_ONLY: Engine = Engine::new(&wbtree::SLOT_ONLY);

/// The engines of this crate.
const OWN: &[Engine] = &[
    WBTREE_BITMAP_LEAVES,
    WBTREE_SLOT_ONLY,
    BTREE,
    FAST_FAIR,
    SORTED_CHAIN,
];

/// Every engine, those for users first.
pub const ENGINES: &[Engine] = &all();

const fn all() -> [Engine; Engine::ALL.len() + OWN.len()] {
    let mut all = [SORTED_CHAIN; Engine::ALL.len() + OWN.len()];
    let mut index = 0;
    while index < all.len() {
        let of_users = Engine::ALL.len();
        all[index] = if index < of_users {
            Engine::ALL[index]
        } else {
            OWN[index - of_users]
        };
        index += 1;
    }
    all
}

/// The engine of this name among [`ENGINES`].
pub fn engine_from_name(name: &str) -> Option<Engine> {
    ENGINES.iter().copied().find(|engine| engine.name == name)
}
