//! The engines under exploration, behind one trait, so that the explorer is compiled once for all
//! of them.

use std::sync::Arc;

use engines::batch::StripedTree;
use engines::engine::{CodecKind, Contract, Engine, Nodes, Opening};
use engines::index::{EpochLength, Index};
use engines::versions::TreeVersions;
use medium::sim::Sim;
use pool::{Pool, TreeRoot};

use super::KeyShape;
use crate::subject::DurabilityContract;

type Result<T> = engines::Result<T>;

/// An engine that can be explored: makes and opens trees.
pub trait Explorable: Send + Sync {
    /// Its name, for reports.
    fn name(&self) -> &'static str;

    /// The name of its codec, for reports.
    fn codec(&self) -> &'static str;

    /// How numbers become its keys and values.
    fn keys(&self) -> KeyShape;

    /// Makes a tree.
    fn create(&self, pool: &Pool<Sim>, name: &str) -> Result<Arc<StripedTree>>;

    /// Opens a tree: recovers it after a crash. On the calling thread.
    fn open(&self, pool: &Pool<Sim>, root: &TreeRoot) -> Result<Arc<StripedTree>>;

    /// Entries of a leaf. This many inserts side by side force a split.
    fn leaf_entries(&self) -> usize;

    /// The most children of an inner node. One leaf more than this forces it to split.
    fn children_max(&self) -> usize;

    /// Whether an open after a crash leaves the mark to
    /// [`IndexOperation::Mark`](super::IndexOperation::Mark).
    fn marks_later(&self) -> bool;

    /// The contract of a write. [`DurabilityContract::WithEpoch`] asks for
    /// [`Epochs::sync`](engines::index::Epochs::sync).
    fn durability(&self) -> DurabilityContract;

    /// How many allocations of the pool `tree` should have if it has `keys` keys; `None` if the
    /// engine has space of its own.
    fn allocations(&self, tree: &dyn Index, keys: u64) -> Result<Option<u64>>;
}

/// An engine, shared by its explorers.
pub type AnyEngine = Arc<dyn Explorable>;

/// How keys and values are coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodecName {
    /// Numbers of 64 bits.
    Word,
    /// Byte strings.
    Record,
    /// Byte strings of the form [`KeyShape::Layers`].
    Layers,
}

/// How many entries a leaf has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// The fewest that the engine can have, so that splits and merges are frequent.
    Small,
    /// The default of the engine.
    Full,
}

/// An engine of a registry, with a codec and settings.
#[derive(Clone, Debug)]
pub struct Explored {
    engine: Engine,
    codec: CodecName,
    leaf_entries: usize,
    children_max: usize,
    creation: Opening,
    opening: Opening,
}

impl Explored {
    /// An engine with the usual options: one thread, epochs that only operations end, and a drop of
    /// a tree that acts like a crash.
    ///
    /// # Panics
    /// If the engine refuses its own settings.
    pub fn new(engine: Engine, codec: CodecName, size: Size) -> Self {
        let Nodes {
            leaf_entries,
            children,
            settings,
        } = match size {
            Size::Small => engine.small,
            Size::Full => engine.full,
        };
        let set = |values| {
            engine
                .settings(values)
                .unwrap_or_else(|error| panic!("{error}"))
        };
        let opening = Opening {
            threads: 1,
            epoch: EpochLength::Manual,
            close_cleanly: false,
            mark_later: false,
            settings: set(settings).or(set(engine.explored)),
        };
        Self {
            engine,
            codec,
            leaf_entries,
            children_max: children,
            creation: opening.clone(),
            opening,
        }
    }

    /// An engine with the smallest nodes.
    pub fn small(engine: Engine, codec: CodecName) -> Self {
        Self::new(engine, codec, Size::Small)
    }

    /// This engine with another setting.
    #[must_use]
    pub fn with(self, setting: &str, value: u64) -> Self {
        let mut other = self.opening_with(setting, value);
        let set = other.set(setting, value);
        other.creation.settings = set.or(other.creation.settings);
        other
    }

    /// This engine with another setting for opens, but not for new trees.
    #[must_use]
    pub fn opening_with(mut self, setting: &str, value: u64) -> Self {
        self.opening.settings = self.set(setting, value).or(self.opening.settings);
        self
    }

    fn set(&self, setting: &str, value: u64) -> engines::engine::Settings {
        self.engine
            .settings(&[(setting, value)])
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// This engine with `entries` entries a leaf, by the setting `setting`, and the number of
    /// children of an inner node that follows from it.
    #[must_use]
    pub fn with_nodes(self, setting: &str, entries: usize, children: usize) -> Self {
        Self {
            leaf_entries: entries,
            children_max: children,
            ..self.with(setting, entries as u64)
        }
    }

    /// This engine, but its opens leave the mark for later.
    #[must_use]
    pub fn marking_later(mut self) -> Self {
        self.opening.mark_later = true;
        self
    }

    /// This engine, but its trees end their epoch when they are dropped. For sequences whose last
    /// write is followed by a sync, so that the end of the epoch adds nothing.
    #[must_use]
    pub fn closing_cleanly(mut self) -> Self {
        self.creation.close_cleanly = true;
        self.opening.close_cleanly = true;
        self
    }

    /// The engine, shared by its explorers.
    pub fn shared(self) -> AnyEngine {
        Arc::new(self)
    }

    fn coded(&self) -> CodecKind {
        if self.codec == CodecName::Word {
            CodecKind::Word
        } else {
            CodecKind::Record
        }
    }
}

impl Explored {
    /// Makes a tree of a store with views.
    pub(super) fn create_with(
        &self,
        pool: &Pool<Sim>,
        name: &str,
        versions: Arc<TreeVersions>,
    ) -> Result<Arc<StripedTree>> {
        let created =
            (self.engine.media.sim.create)(pool, name.into(), self.coded(), &self.creation)?;
        Ok(Arc::new(StripedTree::new(pool, created, versions)))
    }

    /// Opens a tree of a store with views.
    pub(super) fn open_with(
        &self,
        pool: &Pool<Sim>,
        root: &TreeRoot,
        versions: Arc<TreeVersions>,
    ) -> Result<Arc<StripedTree>> {
        let opened = (self.engine.media.sim.open)(pool, root, self.coded(), &self.opening)?;
        Ok(Arc::new(StripedTree::new(pool, opened, versions)))
    }
}

impl Explorable for Explored {
    fn name(&self) -> &'static str {
        self.engine.name
    }

    fn codec(&self) -> &'static str {
        if self.codec == CodecName::Layers {
            "layers"
        } else {
            self.coded().name()
        }
    }

    fn keys(&self) -> KeyShape {
        match self.codec {
            CodecName::Word => KeyShape::Words,
            CodecName::Record => KeyShape::Records,
            CodecName::Layers => KeyShape::Layers,
        }
    }

    fn create(&self, pool: &Pool<Sim>, name: &str) -> Result<Arc<StripedTree>> {
        self.create_with(pool, name, TreeVersions::without_views(pool))
    }

    fn open(&self, pool: &Pool<Sim>, root: &TreeRoot) -> Result<Arc<StripedTree>> {
        self.open_with(pool, root, TreeVersions::without_views(pool))
    }

    fn leaf_entries(&self) -> usize {
        self.leaf_entries
    }

    fn children_max(&self) -> usize {
        self.children_max
    }

    fn marks_later(&self) -> bool {
        self.opening.mark_later
    }

    fn durability(&self) -> DurabilityContract {
        match self.engine.contract {
            Contract::Immediate(_) | Contract::Shifting(_) => DurabilityContract::OnReturn,
            Contract::Epoch => DurabilityContract::WithEpoch,
        }
    }

    fn allocations(&self, tree: &dyn Index, keys: u64) -> Result<Option<u64>> {
        if self.engine.contract == Contract::Epoch {
            // An engine with space of its own counts its objects in its check.
            return Ok(None);
        }
        let stat = tree.stat()?;
        let records = if self.coded() == CodecKind::Record {
            keys
        } else {
            0
        };
        Ok(Some(stat.allocations.unwrap_or(stat.leaves + records)))
    }
}

/// An engine with the usual options, shared.
pub fn engine(engine: Engine, codec: CodecName, size: Size) -> AnyEngine {
    Explored::new(engine, codec, size).shared()
}
