//! The engines, as data: one [`Entry`] each. All code that works with every engine takes them from
//! a list of entries: the store, the crash explorer, the mutants, the conformance suite,
//! benchmarks, help texts, tables in the docs.
//!
//! An entry holds function pointers that make and open trees on each medium ([`Media`]). They are
//! instantiated where the entry is defined, so each engine is compiled once, and not again by every
//! crate that uses it.
//!
//! To add an engine: write its folder with a `pub(crate) static ENTRY`, add one constant to
//! [`Engine`] and to [`Engine::ALL`], and write its page. Engines outside this crate (comparison
//! trees) keep a list of their own, with ids from [`OUTSIDE_IDS`] on.

mod open;
mod settings;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use crate::index::{Codec as _, RecordCodec, WordCodec};
use crate::{bztree, cawbt, masstree, rntree, wbtree};

pub(crate) use open::instrumented_trees;
pub use open::{AnyTree, Build, Factory, Host, Media, Opening, Salvaged, Visit};
pub use settings::{Setting, Settings, Values};

/// Engines outside of this crate have ids from here on.
pub const OUTSIDE_IDS: u16 = 0x8000;

/// The design of an index: how its nodes lie in the pool, and when an operation is durable. A
/// handle of its [`Entry`].
#[derive(Clone, Copy)]
pub struct Engine(pub(crate) &'static Entry);

/// The description of an engine.
pub struct Entry {
    /// Its number in a pool's root table. Never reused.
    pub id: u16,
    /// Its name in commands, reports and dumps.
    pub name: &'static str,
    /// The publication that it follows.
    pub paper: &'static str,
    /// When a write is durable, and what it costs.
    pub contract: Contract,
    /// The codecs with which it notices any damage to a tree: either the tree does not open, or
    /// `check` finds a violation, or the content is unchanged.
    pub notices_damage: &'static [Codec],
    /// Whether an open after a crash leaves the mark of space in use to
    /// [`Index::mark`](crate::index::Index::mark).
    pub marks_later: bool,
    /// Whether it uses failure-atomic line stores, so that it depends on the form of lines.
    pub stores_lines: bool,
    /// Whether it is a trie: keys that share slices lie in layers below layers.
    pub is_trie: bool,
    /// Bytes of nodes that a write may allocate, at most: those that it splits and rewrites on
    /// average over many writes, rounded to the pool's sizes.
    pub room_per_write: u32,
    /// The settings of its trees.
    pub settings: &'static [Setting],
    /// The default node sizes.
    pub full: Nodes,
    /// The smallest nodes, for tests: they make splits and merges frequent.
    pub small: Nodes,
    /// Settings that keep the state that the crash explorer searches small.
    pub explored: &'static [(&'static str, u64)],
    /// The settings with which the tree of a root was made.
    pub settings_of: fn(&pool::TreeRoot) -> crate::Result<Settings>,
    /// How trees are made and opened, on each medium.
    pub media: Media,
}

/// When a write is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contract {
    /// When it returns. It takes so many ordered persists, unless nodes split or merge.
    Immediate(Persists),
    /// As [`Contract::Immediate`], in nodes whose entries shift: each shift may take persists of
    /// its own, beside these.
    Shifting(Persists),
    /// With the end of its epoch.
    Epoch,
}

/// Ordered persists (flush and fence) of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Persists {
    /// Of an insert.
    pub insert: u64,
    /// Of an update of a record.
    pub update: u64,
    /// Of an update of a word.
    pub update_words: u64,
    /// Of a remove.
    pub remove: u64,
}

/// How large nodes are.
#[derive(Clone, Copy, Debug)]
pub struct Nodes {
    /// The most entries of a leaf.
    pub leaf_entries: usize,
    /// The most children of an inner node.
    pub children: usize,
    /// The settings that make such nodes.
    pub settings: &'static [(&'static str, u64)],
}

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

    /// An engine outside this crate.
    pub const fn new(entry: &'static Entry) -> Self {
        Self(entry)
    }

    /// The engine of this name among those of this crate.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|engine| engine.name == name)
    }

    /// Its name: see [`Entry::name`].
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// How its trees are made and opened.
    pub fn media(self) -> &'static Media {
        &self.0.media
    }

    /// Whether a write is durable only with the end of its epoch.
    pub fn is_buffered(self) -> bool {
        self.contract == Contract::Epoch
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self::RNTREE
    }
}

impl Deref for Engine {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        self.0
    }
}

impl PartialEq for Engine {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Engine {}

impl Hash for Engine {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// How entries are coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// Keys of 0 bytes to 64 KiB, values of 0 bytes to 16 MiB.
    #[default]
    Record,
    /// Keys and values of exactly 8 bytes: `u64`, big-endian where they are seen as bytes. Smaller
    /// and faster.
    Word,
}

impl Codec {
    /// Every codec.
    pub const ALL: [Self; 2] = [Self::Record, Self::Word];

    /// The name that [`Codec::from_name`] reads.
    pub fn name(self) -> &'static str {
        match self {
            Self::Record => RecordCodec::NAME,
            Self::Word => WordCodec::NAME,
        }
    }

    /// The codec of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }

    /// Its number in a pool's root table.
    pub fn id(self) -> u16 {
        match self {
            Self::Record => RecordCodec::ID,
            Self::Word => WordCodec::ID,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_are_unique_and_found_again() {
        for (index, engine) in Engine::ALL.iter().enumerate() {
            assert!(engine.id < OUTSIDE_IDS);
            assert_eq!(Engine::from_name(engine.name), Some(*engine));
            assert!(
                Engine::ALL[..index]
                    .iter()
                    .all(|other| other != engine && other.name != engine.name)
            );
        }
        assert_eq!(Engine::from_name("no such engine"), None);
    }

    #[test]
    fn nodes_can_be_set_as_an_entry_says() {
        for engine in Engine::ALL {
            for nodes in [engine.small, engine.full] {
                engine.settings(nodes.settings).unwrap();
            }
        }
    }
}
