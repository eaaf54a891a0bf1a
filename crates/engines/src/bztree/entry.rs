//! BzTree in the list of engines.

use medium::Medium;
use pool::{NewTree, Pool, TreeRoot};

use super::{BzTree, BzTreeOptions, NodeSizes};
use crate::Result;
use crate::engine::{
    Build, Contract, EngineEntry, Nodes, Opening, Persists, Salvaged, Setting, Settings, Values,
    Visit,
};
use crate::index::{Codec, MaybeWords};
use crate::kit::salvage::salvage_leaves;
use crate::media_of;

// Positions of settings.
const LEAF_ENTRIES: usize = 0;
const FREE_ENTRIES: usize = 1;
const INNER_CHILDREN: usize = 2;
const OPERATIONS: usize = 3;
const PATIENCE: usize = 4;

/// BzTree in the list of engines.
pub(crate) static ENTRY: EngineEntry = EngineEntry {
    id: 4,
    name: "bztree",
    paper: "BzTree: A High-Performance Latch-free Range Index for Non-Volatile Memory, VLDB 2018",
    contract: Contract::Immediate(Persists {
        insert: 3,
        update: 3,
        update_words: 3,
        remove: 3,
    }),
    notices_damage: &[],
    marks_later: true,
    stores_lines: false,
    is_trie: false,
    room_per_write: 6_144,
    settings: &[
        Setting {
            name: "leaf-entries",
            help: "the most entries of a leaf",
            values: Values::Number(4, 56),
            is_fixed: true,
            is_hidden: false,
        },
        Setting {
            name: "free-entries",
            help: "the least free entries of a new leaf: at most three quarters of its entries",
            values: Values::Number(1, 42),
            is_fixed: true,
            is_hidden: false,
        },
        Setting {
            name: "inner-children",
            help: "the most children of an inner node",
            values: Values::Number(4, 63),
            is_fixed: true,
            is_hidden: false,
        },
        Setting {
            name: "operations",
            help: "how many operations can change the tree at the same time; for new trees",
            values: Values::Number(1, 128),
            is_fixed: false,
            is_hidden: true,
        },
        Setting {
            name: "patience",
            help: "how often an insert checks an earlier reservation before it ends it",
            values: Values::Number(0, u32::MAX as u64),
            is_fixed: false,
            is_hidden: true,
        },
    ],
    full: Nodes {
        leaf_entries: 56,
        children: 63,
        settings: &[("leaf-entries", 56)],
    },
    small: Nodes {
        leaf_entries: 4,
        children: 5,
        settings: &[("leaf-entries", 4)],
    },
    explored: &[("operations", 2)],
    settings_of: |root| {
        let NodeSizes {
            leaf_entries,
            free_entries,
            inner_children,
        } = NodeSizes::of_root(root).validated()?;
        Ok(Settings::NONE
            .with(LEAF_ENTRIES, leaf_entries as u64)
            .with(FREE_ENTRIES, free_entries as u64)
            .with(INNER_CHILDREN, inner_children as u64))
    },
    media: media_of!(BzTree),
};

/// The sizes that are set. If only the leaf's are set, the others follow from them.
fn sizes(settings: &Settings) -> Option<NodeSizes> {
    let set = |position| settings.get(position).map(|value| value as usize);
    let [leaf_entries, free_entries, inner_children] =
        [LEAF_ENTRIES, FREE_ENTRIES, INNER_CHILDREN].map(set);
    leaf_entries.or(free_entries).or(inner_children)?;
    let usual = leaf_entries.map_or_else(NodeSizes::default, NodeSizes::of_leaf);
    Some(NodeSizes {
        leaf_entries: usual.leaf_entries,
        free_entries: free_entries.unwrap_or(usual.free_entries),
        inner_children: inner_children.unwrap_or(usual.inner_children),
    })
}

fn options(opening: &Opening, nodes: Option<NodeSizes>) -> BzTreeOptions {
    let usual = BzTreeOptions::default();
    let set = |position| opening.settings.get(position);
    BzTreeOptions {
        operations_max: set(OPERATIONS)
            .map_or(usual.operations_max, |operations| operations as usize),
        nodes,
        mark_later: opening.mark_later,
        patience: set(PATIENCE).map_or(usual.patience, |patience| patience as u32),
    }
}

impl<M: Medium, C: Codec> Build<M> for BzTree<M, C>
where
    Self: MaybeWords,
{
    fn create(pool: &Pool<M>, tree: NewTree<'_>, opening: &Opening) -> Result<Self> {
        Self::create(pool, tree, options(opening, sizes(&opening.settings)))
    }

    fn open(pool: &Pool<M>, root: &TreeRoot, opening: &Opening) -> Result<Self> {
        let made = (ENTRY.settings_of)(root)?;
        Self::open(
            pool,
            root,
            options(opening, sizes(&opening.settings.or(made))),
        )
    }

    fn salvage_at(pool: &Pool<M>, root: &TreeRoot, visit: &mut Visit<'_>) -> Salvaged {
        salvage_leaves::<M, C, Self>(pool, root, visit)
    }
}
