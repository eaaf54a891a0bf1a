//! CAWBT in the list of engines.

use super::CawbTree;
use super::layout::{IDS_MAX, LEAF_ENTRIES};
use crate::kit::prelude::*;

/// A node is one line, so there is nothing to be set.
const NODES: Nodes = Nodes { leaf_entries: LEAF_ENTRIES, children: IDS_MAX, settings: &[] };

/// CAWBT in the list of engines.
pub(crate) static ENTRY: Entry = Entry {
    id: 7,
    name: "cawbt",
    paper: "CAWBT: NVM-Based B+Tree Index Structure Using Cache Line Sized Atomic Write, IEICE 2019",
    contract: Contract::Immediate(Persists { insert: 2, update: 2, update_words: 2, remove: 1 }),
    notices_damage: &crate::registry::Codec::ALL,
    marks_later: false,
    stores_lines: true,
    is_trie: false,
    settings: &[],
    full: NODES,
    small: NODES,
    explored: &[],
    settings_of: |_| Ok(Settings::NONE),
    media: media_of!(CawbTree),
};

impl<M: Medium, C: Codec> Build<M> for CawbTree<M, C>
where
    Self: MaybeWords,
{
    fn create(pool: &Pool<M>, name: &str, _opening: &Opening) -> Result<Self> {
        Self::create_at(pool, name)
    }

    fn open(pool: &Pool<M>, root: &TreeRoot, opening: &Opening) -> Result<Self> {
        root.demand((ENTRY.id, C::ID), &[String::new(), String::new()])?;
        Self::open_at(pool, root, opening.threads)
    }

    fn salvage_at(pool: &Pool<M>, root: &TreeRoot, visit: &mut Visit<'_>) -> Salvaged {
        salvage_leaves::<M, C, Self>(pool, root, visit)
    }
}
