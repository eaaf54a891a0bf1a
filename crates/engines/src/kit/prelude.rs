//! The names that an engine's files use, for one `use` of all of them.

pub use medium::{Lsn, Medium, Word};
pub use pool::{Guard, NewTree, Pool, ROOT_WORDS, TreeRoot};

pub use super::bits;
pub use super::load::{EncodedEntries, entries_per_leaf};
pub use super::salvage::{Leafy, Led, salvage_leaves};
pub use super::scan::{Goal, LeafBatches, LeafCopy, Leaves};
pub use super::search::rank;
pub use super::walk::{chain, verify_entry};
pub use super::write::{Encoded, Unpublished, holds};
pub use crate::engine::{
    Build, Contract, EngineEntry, Nodes, Opening, Persists, Salvaged, Setting, Settings, Values,
    Visit,
};
pub use crate::index::{
    Bounds, Codec, Condition, Direction, EntryWords, Index, IndexStat, LeftOut, MaybeWords,
    NextEntry, Observed, Part, Scan, Violation, VisitWords, Written,
};
pub use crate::{Error, ErrorKind, Result};
pub use crate::{media_of, methods_of_entries, methods_of_trees, words_of_entries};
