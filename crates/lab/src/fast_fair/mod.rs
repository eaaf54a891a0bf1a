//! FAST-FAIR: a B+-tree, all of it in the pool, that needs no log: every store of a shift or a
//! split leaves a node that a reader can use.
//!
//! After Hwang, Kim, Won, Nam: *Endurable Transient Inconsistency in Byte-Addressable Persistent
//! B+-Tree*, FAST 2018.
//!
//! ## Layout
//!
//! ```text
//! node with room for n entries, 64 + 16 n bytes (512 for 28)
//!   0  low      first word of the lower bound; of the leftmost node of a level 0
//!   8  tail     in trees of records a record with the lower bound; of the leftmost node of a level 0
//!  16  sibling  the next node of the level; 0 after the last
//!  24  first    of an inner node the first child, of a leaf of words 1 if there is an entry
//!  32  level    0 for leaves
//!  64  entries  in ascending order, four in a line: key word and value, or separator and child
//! ```
//!
//! A line of its own leads to the root.
//!
//! ## Invariants
//!
//! 1. An entry is not in use, and neither is what is behind it, if its value is 0; in trees of
//!    words, if its key is 0 (but see `FastFairNode::used`: the first entry of a leaf).
//! 2. An entry in use is dead if its value is that of the entry before it; in leaves of words,
//!    where values may be equal, if its key is that of the next entry. At most one entry of a node
//!    is like that. So each store of a shift leaves all entries.
//! 3. Entries at or above the lower bound of the sibling are copies. Only a crash leaves any, and
//!    the next open takes them out.
//! 4. A child's lower bound is the separator before it, and its first child's. It never changes.
//!
//! ## Commit points
//!
//! | operation | persists, where a shift leaves n lines | commit point |
//! | --- | --- | --- |
//! | insert | n + 1; with records n + 2 | the last store to the entry |
//! | remove | n + 1 | the first store: with records a value, else a key |
//! | update | 1; with records 2 | the value |
//! | split | 3: sibling; the word that leads to it; the end of the node and the parent | the second |
//! | merge | 3: copies; the parent; the word that leads to the sibling | the last |
//!
//! ## Recovery
//!
//! Lazy, but for copies. After a crash a descent goes to a sibling that no parent leads to. The
//! first writer that comes there enters it in the parent, and removes the dead entry of each node
//! on its way. Copies are taken out at the open: they name records of the sibling's, and a writer
//! that passes the sibling alone could free these. The mark of space is made as always, level by
//! level along the siblings: O(n).
//!
//! ## Concurrency
//!
//! One writer at a time, where the paper has a latch on each node. Readers take no lock, as in the
//! paper, but what they have read counts only if no writer changed anything meanwhile
//! ([`latch`](engines::kit::latch)): the paper's readers may return values that a crash takes back.
//!
//! ## Where this departs from the paper
//!
//! - *Values* of words may be equal, so duplicate pointers cannot mark dead entries of leaves:
//!   duplicate keys do.
//! - *Merges* are those of `merge`; the published code leaves nodes empty.
//! - *Search*: all entries of a node at once, and not one by one.
//! - *Moving right*: after an open a descent checks the sibling of each node; in a tree that this
//!   process has made it need not.

mod change;
mod find;
mod node;
#[cfg(test)]
mod tests;
mod whole;

use std::marker::PhantomData;

use engines::kit::latch::Latch;
use engines::kit::prelude::*;

const ENTRIES_MIN: u64 = 3;
const ENTRIES_MAX: u64 = 60;

/// FAST-FAIR in the list of engines.
pub(crate) static ENTRY: EngineEntry = EngineEntry {
    id: engines::engine::OUTSIDE_IDS + 2,
    name: "fast-fair",
    paper: "Endurable Transient Inconsistency in Byte-Addressable Persistent B+-Tree, FAST 2018",
    contract: Contract::Shifting(Persists {
        insert: 1,
        update: 2,
        update_words: 1,
        remove: 1,
    }),
    notices_damage: &[],
    marks_later: false,
    stores_lines: false,
    is_trie: false,
    room_per_write: 4_096,
    settings: &[Setting::leaf_entries(ENTRIES_MIN, ENTRIES_MAX)],
    full: Nodes {
        leaf_entries: 28,
        children: 29,
        settings: &[("leaf-entries", 28)],
    },
    small: Nodes {
        leaf_entries: 4,
        children: 5,
        settings: &[("leaf-entries", 4)],
    },
    explored: &[],
    settings_of: |root| Ok(Settings::NONE.with(0, root.words[ROOT_ENTRIES])),
    media: media_of!(FastFair),
};

/// Root word 0: the offset of the word that leads to the root.
const ROOT_OFFSET: usize = 0;
/// Root word 1: the most entries of a node.
const ROOT_ENTRIES: usize = 1;

/// A tree. Immediate durability.
pub struct FastFair<M: Medium, C: Codec> {
    pool: Pool<M>,
    /// The offset of the word that leads to the root.
    root: u64,
    entries: usize,
    latch: Latch<M>,
    /// Whether a crash may have left nodes in the middle of a change.
    is_unfinished: bool,
    recovery_ns: u64,
    recovered_from_crash: bool,
    codec: PhantomData<fn() -> C>,
}

impl<M: Medium, C: Codec> FastFair<M, C> {
    const ENGINE: (u16, &'static str) = (ENTRY.id, ENTRY.name);
}

impl<M: Medium, C: Codec> Index for FastFair<M, C>
where
    Self: MaybeWords,
{
    methods_of_entries!();
    methods_of_trees!();

    fn wait(&self, lsn: Lsn) -> Result<()> {
        self.pool.peek().wait_for(lsn)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.figures()?.keys)
    }
}

words_of_entries!(FastFair);
