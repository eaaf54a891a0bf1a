//! The table, and the places that its rows damage.

use engines::engine::Engine;
use medium::testing::stride;

use super::pools::{Ground, PoolKind, SMALL, THINNED};
use super::{Damage, Expected, Noticed, Row};

pub(crate) const LINE: usize = 64;
const PAGE: usize = 4096;
const SLAB: usize = 64 << 10;
/// Where the root table begins, with the slot of the only tree, and its words.
const SLOT: usize = 0x3000;
const SLOT_WORDS: usize = 28;
const FIRST_ROOT: usize = 18;
/// The bits of a word that are an offset.
const OFFSET: u64 = (1 << 48) - 1;
/// The most entries of a leaf of rntree.
const LEAF_ENTRIES: usize = 56;
/// Entries of [`PoolKind::Mixed`].
const MIXED: usize = everleaf_lab::testing::damage::ENTRIES;
const SEED: u64 = 3;

/// After one flipped bit no more is lost than the entries of a leaf. One entry may be an older one:
/// a line that is kept twice has its other copy, and a damaged offset may lead to a record that was
/// replaced.
const A_LEAF_AT_MOST: Expected = Expected {
    noticed: Noticed::UnlessIntact,
    saved_min: MIXED - 100,
    wrong_max: 1,
};

pub(crate) const TABLE: &[Row] = &[
    Row {
        what: "nothing",
        engines: Engine::ALL,
        pool: PoolKind::Mixed { seed: SEED },
        damages: |_| vec![Damage::Nothing],
        expected: Expected {
            noticed: Noticed::Nothing,
            saved_min: MIXED,
            wrong_max: 0,
        },
        costly_min: || 0,
        reported_min: 0,
    },
    // A damage of several bytes may pass a check of few bits, which is rare: `cargo xtask damage`
    // counts.
    Row {
        what: "any place in any way",
        engines: Engine::ALL,
        pool: PoolKind::Mixed { seed: SEED },
        damages: any_places,
        expected: Expected {
            noticed: Noticed::ByCheck,
            saved_min: 0,
            wrong_max: usize::MAX,
        },
        costly_min: || 0,
        reported_min: 0,
    },
    // In this round the inner nodes lead a check back to leaves that it has seen; it must end.
    Row {
        what: "leaves that do not ascend",
        engines: &[Engine::RNTREE],
        pool: PoolKind::Mixed { seed: 1 },
        damages: |_| {
            vec![Damage::Any {
                seed: 1,
                round: 1027,
            }]
        },
        expected: Expected {
            noticed: Noticed::Always,
            saved_min: 0,
            wrong_max: usize::MAX,
        },
        costly_min: || 0,
        reported_min: 0,
    },
    Row {
        what: "a bit where all begins",
        engines: Engine::ALL,
        pool: PoolKind::Mixed { seed: SEED },
        damages: bits_where_all_begins,
        expected: A_LEAF_AT_MOST,
        costly_min: || 0,
        reported_min: 0,
    },
    Row {
        what: "a bit of an offset of a node",
        engines: Engine::ALL,
        pool: PoolKind::Mixed { seed: SEED },
        damages: bits_of_offsets,
        expected: A_LEAF_AT_MOST,
        costly_min: || 0,
        reported_min: 0,
    },
    // Each of the two lines is whole, so the chain once jumped from one leaf to the successor of
    // the other, and the salvage did not search the slabs.
    Row {
        what: "two slot lines that are swapped",
        engines: &[Engine::RNTREE],
        pool: PoolKind::Thinned,
        damages: swapped_slot_lines,
        expected: Expected {
            noticed: Noticed::BySalvage,
            saved_min: THINNED - 2 * LEAF_ENTRIES,
            wrong_max: 0,
        },
        costly_min: || 0,
        reported_min: 4,
    },
    // The page records how the slab is cut into slots, and which of them are in use. The leaves
    // behind it are found nevertheless, and leaves that were removed before the close are not.
    Row {
        what: "the first page of a slab",
        engines: &[
            Engine::RNTREE,
            Engine::WBTREE,
            Engine::CAWBT,
            Engine::BZTREE,
        ],
        pool: PoolKind::Thinned,
        damages: first_pages_of_slabs,
        expected: A_PAGE_AT_MOST,
        costly_min: || 0,
        reported_min: 4,
    },
    // One damaged link between free objects once made all of them count as in use, with the entries
    // that they had; and without its first page no node of a run was found.
    Row {
        what: "free objects",
        engines: &[Engine::MASSTREE],
        pool: PoolKind::Thinned,
        damages: pages_behind_the_first_slabs,
        expected: A_PAGE_AT_MOST,
        costly_min: || 0,
        reported_min: 0,
    },
    // Once only a violation reported the lost entries of a node of zeros, in wbtree, bztree and
    // masstree.
    Row {
        what: "a page of zeros",
        engines: Engine::ALL,
        pool: PoolKind::Small,
        damages: pages,
        expected: Expected {
            noticed: Noticed::AsEntriesOrNodes,
            saved_min: SMALL * 3 / 5 + 1,
            wrong_max: 0,
        },
        // More than ten of all pages.
        costly_min: || 10 / stride(3) + 1,
        reported_min: 0,
    },
];

/// No more is lost than the content of a page: 64 records of 64 bytes, or its leaves. No removed
/// entry comes back.
const A_PAGE_AT_MOST: Expected = Expected {
    noticed: Noticed::Free,
    saved_min: THINNED - PAGE / 16,
    wrong_max: 0,
};

fn any_places(_ground: &Ground) -> Vec<Damage> {
    (0..60)
        .step_by(stride(3))
        .map(|round| Damage::Any { seed: SEED, round })
        .collect()
}

/// The slot of the root table, and the first lines of the node to which it leads: of `rntree` the
/// first leaf, of others the anchor or the root.
fn bits_where_all_begins(ground: &Ground) -> Vec<Damage> {
    let first = (ground.word(SLOT + 8 * FIRST_ROOT) & OFFSET) as usize;
    let slot = (0..SLOT_WORDS).map(|word| SLOT + 8 * word);
    let lines = (0..16).map(|word| first + 8 * word);
    let mut damages = Vec::new();
    for (number, at) in slot.chain(lines).enumerate().step_by(stride(5)) {
        damages.push(Damage::Flip {
            at: at + number % 6,
            bit: number % 8,
        });
    }
    damages
}

/// Offsets that lead from node to node: words whose lower bits are the offset of some line in use.
fn bits_of_offsets(ground: &Ground) -> Vec<Damage> {
    let is_offset = |at: &usize| {
        let offset = ground.word(*at) & ((1 << 48) - 64);
        (1 << 16..ground.bytes.len() as u64).contains(&offset)
            && ground.bytes[offset as usize..][..LINE] != [0; LINE]
    };
    let places: Vec<usize> = (1 << 16..ground.bytes.len())
        .step_by(8)
        .filter(is_offset)
        .collect();
    let some = places.iter().step_by(places.len() / 40);
    let mut damages = Vec::new();
    for (number, at) in some.enumerate().step_by(stride(3)) {
        damages.push(Damage::Flip {
            at: at + 1,
            bit: number % 8,
        });
    }
    damages
}

/// The leaves of the tree of rntree in a pool, in the order of its chain.
fn chain_of_rntree(ground: &Ground) -> Vec<usize> {
    let mut leaf = (ground.word(SLOT + 8 * FIRST_ROOT) & OFFSET) as usize;
    let mut leaves = Vec::new();
    while leaf != 0 {
        leaves.push(leaf);
        leaf = (ground.word(leaf) & OFFSET) as usize / LINE * LINE;
    }
    leaves
}

fn swapped_slot_lines(ground: &Ground) -> Vec<Damage> {
    let leaves = chain_of_rntree(ground);
    let last = leaves.len() - 1;
    let swap = |one: usize, other: usize| Damage::Swap {
        one: leaves[one],
        other: leaves[other],
    };
    vec![
        swap(0, last),
        swap(1, 2),
        swap(10, last - 10),
        swap(last / 2, last / 2 + 40),
    ]
}

fn first_pages_of_slabs(ground: &Ground) -> Vec<Damage> {
    (1..ground.bytes.len() / SLAB)
        .step_by(5)
        .map(|slab| page_of_zeros(slab * SLAB))
        .collect()
}

fn pages_behind_the_first_slabs(ground: &Ground) -> Vec<Damage> {
    (2 * SLAB / PAGE..ground.bytes.len() / PAGE)
        .step_by(61)
        .map(|page| page_of_zeros(page * PAGE))
        .collect()
}

fn pages(ground: &Ground) -> Vec<Damage> {
    (0..ground.bytes.len())
        .step_by(PAGE * stride(3))
        .map(page_of_zeros)
        .collect()
}

fn page_of_zeros(at: usize) -> Damage {
    Damage::Zeros { at, length: PAGE }
}
