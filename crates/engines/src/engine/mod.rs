//! The description of an engine, as data: its id, name, contract, settings and limits, and how its
//! trees are made and opened on each medium. Engines and kit depend on this module, but not on the
//! list of engines, which is [`registry`](crate::registry).
//!
//! An [`EngineEntry`] holds function pointers that make and open trees ([`Media`]). They are
//! instantiated where the entry is defined, so each engine is compiled once, and not again by every
//! crate that uses it.

mod open;
mod settings;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use crate::index::{Codec as _, RecordCodec, WordCodec};

pub(crate) use open::instrumented_trees;
pub use open::{AnyTree, Build, Factory, Host, Media, Opening, Salvaged, Visit};
pub use settings::{Setting, Settings, Values};

/// Engines outside of this crate have ids from here on.
pub const OUTSIDE_IDS: u16 = 0x8000;

/// The design of an index: how its nodes lie in the pool, and when an operation is durable. A
/// handle of its [`EngineEntry`].
#[derive(Clone, Copy)]
pub struct Engine(pub(crate) &'static EngineEntry);

/// The description of an engine.
pub struct EngineEntry {
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
    pub notices_damage: &'static [CodecKind],
    /// Whether an open after a crash does not mark the space in use: then
    /// [`Index::mark`](crate::index::Index::mark) does so later.
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
    /// Settings for the crash explorer, which keep the number of states small.
    pub explored: &'static [(&'static str, u64)],
    /// The settings with which the tree of a root was made.
    pub settings_of: fn(&pool::TreeRoot) -> crate::Result<Settings>,
    /// How trees are made and opened, on each medium.
    pub media: Media,
}

/// When a write is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contract {
    /// When it returns. It takes this many ordered persists, unless nodes split or merge.
    Immediate(Persists),
    /// When it returns, like [`Contract::Immediate`], but nodes shift their entries: each shift may
    /// take persists of its own, beside these.
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
    /// An engine outside this crate.
    pub const fn new(entry: &'static EngineEntry) -> Self {
        Self(entry)
    }

    /// Its name: see [`EngineEntry::name`].
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

impl Deref for Engine {
    type Target = EngineEntry;

    fn deref(&self) -> &EngineEntry {
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
pub enum CodecKind {
    /// Keys of 0 bytes to 64 KiB, values of 0 bytes to 16 MiB.
    #[default]
    Record,
    /// Keys and values of exactly 8 bytes: `u64`, big-endian where they are seen as bytes. Smaller
    /// and faster.
    Word,
}

impl CodecKind {
    /// Every codec.
    pub const ALL: [Self; 2] = [Self::Record, Self::Word];

    /// The name that [`CodecKind::from_name`] reads.
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
