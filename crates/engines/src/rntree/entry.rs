//! RNTree in the list of engines.

use medium::Medium;
use pool::{NewTree, Pool, TreeRoot};

use super::salvage::Chain;
use super::{ENTRIES_MAX, ROOT_ENTRIES, RnTree, RnTreeOptions};
use crate::Result;
use crate::engine::{
    Build, Contract, EngineEntry, Nodes, Opening, Persists, Salvaged, Setting, Settings, Values,
    Visit,
};
use crate::index::{Codec, MaybeWords};
use crate::kit::salvage::salvage_leaves;
use crate::media_of;

/// The positions of the settings.
const LEAF_ENTRIES: usize = 0;
const GATHER: usize = 1;

/// RNTree in the list of engines.
pub(crate) static ENTRY: EngineEntry = EngineEntry {
    id: 1,
    name: "rntree",
    paper: "Building Scalable NVM-based B+tree with HTM, ICPP 2019",
    contract: Contract::Immediate(Persists {
        insert: 2,
        update: 2,
        update_words: 2,
        remove: 1,
    }),
    notices_damage: &crate::engine::CodecKind::ALL,
    marks_later: false,
    stores_lines: true,
    is_trie: false,
    room_per_write: 1_280,
    settings: &[
        Setting::leaf_entries(3, ENTRIES_MAX as u64),
        Setting {
            name: "gather",
            help: "on: splits copy records next to each other, for ranges over a pool that is larger than memory",
            values: Values::Names(&["off", "on"]),
            is_fixed: false,
            is_hidden: false,
        },
    ],
    full: Nodes {
        leaf_entries: ENTRIES_MAX,
        children: 32,
        settings: &[("leaf-entries", ENTRIES_MAX as u64)],
    },
    small: Nodes {
        leaf_entries: 4,
        children: 32,
        settings: &[("leaf-entries", 4)],
    },
    explored: &[],
    settings_of: |root| match root.words[ROOT_ENTRIES] {
        usual if usual == ENTRIES_MAX as u64 => Ok(Settings::NONE),
        entries => Ok(Settings::NONE.with(LEAF_ENTRIES, entries)),
    },
    media: media_of!(RnTree),
};

fn options(opening: &Opening, settings: &Settings) -> RnTreeOptions {
    let leaf_entries = settings
        .get(LEAF_ENTRIES)
        .map_or(ENTRIES_MAX, |entries| entries as usize);
    RnTreeOptions {
        recovery_threads: opening.threads,
        leaf_entries,
        gathers: settings.get(GATHER) == Some(1),
    }
}

impl<M: Medium, C: Codec> Build<M> for RnTree<M, C>
where
    Self: MaybeWords,
{
    fn create(pool: &Pool<M>, tree: NewTree<'_>, opening: &Opening) -> Result<Self> {
        Self::create(pool, tree, options(opening, &opening.settings))
    }

    fn open(pool: &Pool<M>, root: &TreeRoot, opening: &Opening) -> Result<Self> {
        let made = (ENTRY.settings_of)(root)?;
        Self::open(pool, root, options(opening, &opening.settings.or(made)))
    }

    fn salvage_at(pool: &Pool<M>, root: &TreeRoot, visit: &mut Visit<'_>) -> Salvaged {
        salvage_leaves::<M, C, Chain>(pool, root, visit)
    }
}
