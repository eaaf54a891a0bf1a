//! The list of engines. All code that works with every engine takes them from a list of entries:
//! the store, the crash explorer, the mutants, the conformance suite, benchmarks, help texts, tables
//! in the docs.
//!
//! To add an engine: write its folder with a `pub(crate) static ENTRY`, add one constant to
//! [`Engine`] and to [`Engine::ALL`], and write its page. Engines outside this crate (comparison
//! trees) keep a list of their own, with ids from [`OUTSIDE_IDS`](crate::engine::OUTSIDE_IDS) on.

use crate::engine::{Engine, Settings};
use crate::{bztree, cawbt, masstree, rntree, wbtree};

impl Engine {
    /// RNTree (ICPP 2019): leaves in the pool, inner nodes in memory. Durable when an operation
    /// returns; an insert or an update costs two ordered persists, a remove one, a read none.
    pub const RNTREE: Self = Self(&rntree::ENTRY);
    /// BzTree (VLDB 2018): all of it in the pool, latch-free. Durable when an operation returns; an
    /// insert, an update or a remove costs three ordered persists, a read none.
    pub const BZTREE: Self = Self(&bztree::ENTRY);
    /// The durable Masstree (InCLL, ASPLOS 2019): everything in the pool. Durable by epochs: a
    /// write costs no persist of its own. It is durable with the end of its epoch: every 64 ms, or
    /// at a sync of the store. After a crash the tree is as it was at the end of an epoch, and
    /// usable at once.
    pub const MASSTREE: Self = Self(&masstree::ENTRY);

    /// The wB+-Tree (VLDB 2015): all of it in the pool, one writer at a time. Durable when an
    /// operation returns; an insert or a remove costs three ordered persists, an update of a word
    /// one, a read none. With other nodes inserts and removes cost less: its setting `design`.
    pub const WBTREE: Self = Self(&wbtree::ENTRY);

    /// CAWBT (IEICE 2019): nodes of one line in the pool, keys as numbers of a table in memory, one
    /// writer at a time. Durable when an operation returns; an insert or an update costs two
    /// ordered persists, a remove one, a read none.
    pub const CAWBT: Self = Self(&cawbt::ENTRY);

    /// Every engine of this crate, the default first.
    pub const ALL: &'static [Self] = &[
        Self::RNTREE,
        Self::BZTREE,
        Self::MASSTREE,
        Self::WBTREE,
        Self::CAWBT,
    ];

    /// The engine of this name among those of this crate.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|engine| engine.name == name)
    }

    /// The settings of a new tree: those that are set, and for an entry that is a variant of an
    /// engine also its first node setting, which selects the variant.
    #[must_use]
    pub fn settings_of_new(self, set: Settings) -> Settings {
        let is_variant = Self::ALL
            .iter()
            .any(|engine| engine.id == self.id && engine.name != self.name);
        let first = self
            .0
            .full
            .settings
            .get(..usize::from(is_variant))
            .unwrap_or_default();
        set.or(self.settings(first).unwrap_or_default())
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self::RNTREE
    }
}

#[cfg(test)]
mod tests;
