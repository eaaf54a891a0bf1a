//! The wB+-Tree in the list of engines.

use medium::Dax;

use super::WbTree;
use super::layout::{DESIGNS, ENTRIES_MIN};
use crate::engine;
use crate::engine::{Contract, EngineEntry, Nodes, Persists, Setting, Values};
use crate::index::WordCodec;
use crate::media_of;

pub(super) const ID: u16 = 6;
pub(super) const NAME: &str = "wbtree";

// Positions of settings.
pub(super) const DESIGN: usize = 0;
pub(super) const LEAF_ENTRIES: usize = 1;

/// The wB+-Tree in the list of engines.
pub(crate) static ENTRY: EngineEntry = entry(
    NAME,
    Persists {
        insert: 3,
        update: 2,
        update_words: 1,
        remove: 3,
    },
    &[engine::CodecKind::Record],
    Nodes {
        leaf_entries: 59,
        children: 60,
        settings: &[("design", 0), ("leaf-entries", 59)],
    },
    Nodes {
        leaf_entries: 4,
        children: 5,
        settings: &[("design", 0), ("leaf-entries", 4)],
    },
);

/// The wB+-Tree whose new trees have bitmap-only leaves by default.
pub static BITMAP_LEAVES: EngineEntry = entry(
    "wbtree-bitmap-only",
    Persists {
        insert: 2,
        update: 2,
        update_words: 1,
        remove: 1,
    },
    &[],
    Nodes {
        leaf_entries: 63,
        children: 60,
        settings: &[("design", 1), ("leaf-entries", 63)],
    },
    Nodes {
        leaf_entries: 4,
        children: 5,
        settings: &[("design", 1), ("leaf-entries", 4)],
    },
);

/// The wB+-Tree whose new trees have slot-only nodes by default.
pub static SLOT_ONLY: EngineEntry = entry(
    "wbtree-slot-only",
    Persists {
        insert: 2,
        update: 2,
        update_words: 1,
        remove: 1,
    },
    &[],
    Nodes {
        leaf_entries: 7,
        children: 8,
        settings: &[("design", 2), ("leaf-entries", 7)],
    },
    Nodes {
        leaf_entries: 3,
        children: 4,
        settings: &[("design", 2), ("leaf-entries", 3)],
    },
);

const fn entry(
    name: &'static str,
    persists: Persists,
    notices_damage: &'static [engine::CodecKind],
    full: Nodes,
    small: Nodes,
) -> EngineEntry {
    EngineEntry {
        id: ID,
        name,
        paper: "Persistent B+-Trees in Non-Volatile Main Memory, VLDB 2015",
        contract: Contract::Immediate(persists),
        notices_damage,
        marks_later: true,
        stores_lines: false,
        is_trie: false,
        room_per_write: 4_096,
        settings: &[
            Setting {
                name: "design",
                help: "how nodes keep the order of their entries",
                values: Values::Names(&[DESIGNS[0].1, DESIGNS[1].1, DESIGNS[2].1]),
                is_fixed: true,
                is_hidden: false,
            },
            Setting {
                name: "leaf-entries",
                help: "the most entries of a node: 59 with slot+bitmap, 63 with bitmap-only leaves, 7 with slot-only",
                values: Values::Number(ENTRIES_MIN as u64, DESIGNS[1].2 as u64),
                is_fixed: true,
                is_hidden: false,
            },
        ],
        full,
        small,
        explored: &[],
        settings_of: WbTree::<Dax, WordCodec>::settings_of,
        media: media_of!(WbTree),
    }
}
