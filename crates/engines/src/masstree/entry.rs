//! The durable Masstree in the list of engines.

use std::iter;
use std::time::Duration;

use medium::Medium;
use pool::{NewTree, Pool, TreeRoot};

use super::core::Core;
use super::layout::{ENGINE_ID, ROOT_ANCHOR};
use super::{MassTree, MassTreeOptions, Mode, width_of};
use crate::Result;
use crate::engine::{
    Build, Contract, EngineEntry, Nodes, Opening, Salvaged, Setting, Settings, Values, Visit,
};
use crate::index::{Codec, Epochs, LeftOut, Part};
use crate::kit::salvage::Salvage;
use crate::media_of;

// Positions of settings.
const WIDTH: usize = 0;
const MODE: usize = 1;
const SHARDS: usize = 2;
const FIRST_EPOCH: usize = 3;
const SWEEP: usize = 4;
const PATIENCE: usize = 5;

/// A setting of one open, for tests and comparisons.
const fn setting(name: &'static str, help: &'static str, values: Values) -> Setting {
    Setting {
        name,
        help,
        values,
        is_fixed: false,
        is_hidden: true,
    }
}

/// The durable Masstree in the list of engines.
pub(crate) static ENTRY: EngineEntry = EngineEntry {
    id: ENGINE_ID,
    name: "masstree",
    paper: "Fine-Grain Checkpointing with In-Cache-Line Logging, ASPLOS 2019",
    contract: Contract::Epoch,
    notices_damage: &[],
    marks_later: true,
    stores_lines: false,
    is_trie: true,
    room_per_write: 4_096,
    settings: &[
        Setting {
            is_fixed: true,
            ..setting("width", "the most entries of a node", Values::Number(4, 15))
        },
        setting(
            "mode",
            "how changes are made undoable: the paper's INCLL, LOGGING and MT+",
            Values::Names(&["in-line", "logging", "transient"]),
        ),
        setting(
            "shards",
            "threads that write side by side; a further one waits for an operation of another one",
            Values::Number(1, 64),
        ),
        setting(
            "first-epoch",
            "the first epoch of this open, if it is later than the next one",
            Values::Number(1, 1 << 47),
        ),
        setting(
            "sweep",
            "1: the open recovers the whole tree at once, not each node when it is touched",
            Values::Number(0, 1),
        ),
        setting(
            "patience",
            "milliseconds that an operation waits for a node that stays locked",
            Values::Number(1, 3_600_000),
        ),
    ],
    full: Nodes {
        leaf_entries: 14,
        children: 15,
        settings: &[("width", 14)],
    },
    small: Nodes {
        leaf_entries: 4,
        children: 5,
        settings: &[("width", 4)],
    },
    explored: &[],
    settings_of: |root| match width_of(root)? {
        super::layout::WIDTH => Ok(Settings::NONE),
        width => Ok(Settings::NONE.with(WIDTH, width as u64)),
    },
    media: media_of!(MassTree),
};

fn options(opening: &Opening) -> MassTreeOptions {
    let usual = MassTreeOptions::default();
    let set = |position| opening.settings.get(position);
    MassTreeOptions {
        epoch: opening.epoch,
        mode: match set(MODE) {
            Some(1) => Mode::Logging,
            Some(2) => Mode::Transient,
            _ => Mode::InLine,
        },
        width: set(WIDTH).map(|width| width as usize),
        recovery_threads: opening.threads,
        shards: set(SHARDS).map_or(usual.shards, |shards| shards as usize),
        close_cleanly: opening.close_cleanly,
        mark_later: opening.mark_later,
        patience: set(PATIENCE).map_or(usual.patience, Duration::from_millis),
        first_epoch: set(FIRST_EPOCH).unwrap_or(usual.first_epoch),
    }
}

impl<M: Medium, C: Codec> Build<M> for MassTree<M, C> {
    fn create(pool: &Pool<M>, tree: NewTree<'_>, opening: &Opening) -> Result<Self> {
        Self::create(pool, tree, options(opening))
    }

    fn open(pool: &Pool<M>, root: &TreeRoot, opening: &Opening) -> Result<Self> {
        let tree = Self::open(pool, root, options(opening))?;
        if opening.settings.get(SWEEP) == Some(1) {
            tree.sweep()?;
        }
        Ok(tree)
    }

    fn salvage_at(pool: &Pool<M>, root: &TreeRoot, visit: &mut Visit<'_>) -> Salvaged {
        let options = MassTreeOptions {
            width: Some(width_of(root)?),
            ..options(&Opening::default())
        };
        let core = Core::unopened(pool, root.words[ROOT_ANCHOR], &options, Self::ARE_WORDS)?;
        let (lost, note) = core.lost(|_| true)?;
        Salvage::with_lost(visit, lost).finish();
        // Salvage finds nodes one by one, so it is not known which entries a damaged one held.
        let what = "the words that lead to the nodes of the tree, which does not open".to_owned();
        let unopened = LeftOut::new(root.words[ROOT_ANCHOR], Part::Node, what);
        Ok(Some(iter::once(unopened).chain(note).collect()))
    }
}
