//! What a tree is: its engine and its codec.

use engines::bztree::{BzTree, NodeSizes};
use engines::index::{Codec as _, RecordCodec, WordCodec};
use pool::{Error, Result, TreeRoot};

/// The design of an index: how its nodes lie in the pool, and when an operation is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// RNTree (ICPP 2019): leaves in the pool, inner nodes in memory. Durable when an operation returns; an insert
    /// or an update costs two ordered persists, a remove one, a read none.
    #[default]
    RnTree,
    /// BzTree (VLDB 2018): all of it in the pool, latch-free. Durable when an operation returns; an insert, an update or a
    /// remove costs three ordered persists, a read none.
    BzTree,
    /// The durable Masstree (InCLL, ASPLOS 2019): everything in the pool. Durable by epochs: a write costs no persist
    /// of its own, and is durable with the end of its epoch, every 64 ms or at [`Store::sync`](crate::Store::sync).
    /// After a crash the tree is as it was at the end of an epoch. Usable at once after a crash.
    MassTree,
}

/// How entries are coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// Keys of 0 bytes to 64 KiB, values of 0 bytes to 16 MiB.
    #[default]
    Record,
    /// Keys and values of exactly 8 bytes: `u64`, big-endian where they are seen as bytes. Smaller and faster.
    Word,
}

impl Engine {
    /// Every engine.
    pub const ALL: [Self; 3] = [Self::RnTree, Self::BzTree, Self::MassTree];

    /// The name that [`Engine::from_name`] reads.
    pub fn name(self) -> &'static str {
        match self {
            Self::RnTree => "rntree",
            Self::BzTree => "bztree",
            Self::MassTree => "masstree",
        }
    }

    /// The engine of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// Whether a write is durable only with the end of its epoch.
    pub fn is_buffered(self) -> bool {
        self == Self::MassTree
    }

    /// Whether a tree is open before it has marked what it reaches.
    pub(crate) fn marks_later(self) -> bool {
        self == Self::BzTree
    }

    fn number(self) -> u16 {
        match self {
            // The number does not depend on the medium.
            Self::RnTree => engines::rntree::RnTree::<medium::Ram, WordCodec>::ENGINE.0,
            Self::BzTree => BzTree::<medium::Ram, WordCodec>::ENGINE.0,
            Self::MassTree => engines::masstree::MassTree::<medium::Ram, WordCodec>::ENGINE.0,
        }
    }
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

    fn number(self) -> u16 {
        match self {
            Self::Record => RecordCodec::ID,
            Self::Word => WordCodec::ID,
        }
    }
}

/// How a tree is made; an existing tree must have been made so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct TreeOptions {
    /// Its engine.
    pub engine: Engine,
    /// How its entries are coded.
    pub codec: Codec,
    /// How large its nodes are, where the engine has a choice: [`Engine::BzTree`]. `None`: the default for a new tree,
    /// whatever it has for an existing one.
    pub nodes: Option<NodeSizes>,
}

impl TreeOptions {
    /// Trees of byte strings.
    pub const RECORDS: Self = Self { engine: Engine::RnTree, codec: Codec::Record, nodes: None };
    /// Trees of `u64`.
    pub const WORDS: Self = Self { engine: Engine::RnTree, codec: Codec::Word, nodes: None };

    /// What the root table says of a tree.
    pub(crate) fn of(root: &TreeRoot) -> Result<Self> {
        let engine = Engine::ALL.into_iter().find(|engine| engine.number() == root.engine);
        let codec = Codec::ALL.into_iter().find(|codec| codec.number() == root.codec);
        let unknown =
            || Error::UnknownEngine { name: root.name.clone(), engine: root.engine, codec: root.codec };
        let (Some(engine), Some(codec)) = (engine, codec) else { return Err(unknown()) };
        let nodes = match engine {
            Engine::BzTree => Some(BzTree::<medium::Ram, WordCodec>::sizes_of(root)?),
            _ => None,
        };
        Ok(Self { engine, codec, nodes })
    }

    /// Refuses to take the tree `name`, which is `self`, for `wanted`.
    pub(crate) fn demand(self, name: &str, wanted: Self) -> Result<()> {
        // What is not named may be anything.
        if self == (Self { nodes: wanted.nodes.or(self.nodes), ..wanted }) {
            return Ok(());
        }
        Err(Error::TreeMismatch {
            name: name.to_owned(),
            found: self.to_string(),
            wanted: wanted.to_string(),
        })
    }
}

impl std::fmt::Display for TreeOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "engine {}, codec {}", self.engine.name(), self.codec.name())?;
        self.nodes.map_or(Ok(()), |nodes| write!(formatter, ", {nodes}"))
    }
}
