//! The wB+-Tree: a B+-tree, all of it in the pool, whose nodes commit a change by one 8-byte store.
//!
//! After Chen, Jin: *Persistent B+-Trees in Non-Volatile Main Memory*, VLDB 2015. Three node
//! designs, chosen when a tree is made: slot array and bitmap in all nodes (the default),
//! bitmap-only leaves, slot-only nodes of one or two lines.
//!
//! ## Layout
//!
//! See `layout`: the nodes of the three designs. The tree around them is
//! [`paged`](crate::kit::paged).
//!
//! ## Invariants
//!
//! 1. A slot array that the bitmap calls valid lists the live entries, in the order of their keys.
//! 2. While the bitmap calls the slot array invalid, the bitmap alone tells which entries live.
//!    Readers need no slot array then; the next writer of the leaf writes it anew.
//! 3. A live entry's key does not change. Its value does, by one store.
//!
//! ## Commit points
//!
//! | operation | slot+bitmap | bitmap-only leaf | slot-only |
//! | --- | --- | --- | --- |
//! | insert | 3: bitmap (invalid); entry and slots; bitmap | 2: entry; bitmap | 2: entry; slot array |
//! | remove | 3: bitmap (invalid); slots; bitmap | 1: bitmap | 1: slot array |
//! | update | 1: value; with records 2: record; value | 1: value; with records 2: record; value | 1: value; with records 2: record; value |
//!
//! The last persist of each is the commit. Splits and merges: [`paged`](crate::kit::paged).
//!
//! ## Recovery
//!
//! That of [`paged`](crate::kit::paged): the open finishes the redo log. After a crash the tree also
//! marks the space that it reaches, in the open or later.
//!
//! ## What a crash may leave behind
//!
//! Leaves whose slot array is invalid, at most one for each crash: the insert or the remove that
//! was under way has not happened.
//!
//! ## Where this departs from the slides
//!
//! - *Search*: all keys of a node are compared at once (`compare_entries`), masked by the bitmap.
//!   The count of smaller keys is the position in the slot array, whose word gives the child by a
//!   shift. Where the first words of keys tie, a binary search goes on, and its narrow range is
//!   searched by shifts of one word, as in the slides.
//! - *Insertion*: the slot array takes a line of its own, as the bitmap's line has no room for it.
//!   A leaf that a crash has left invalid is made valid by the insert itself, and not before.
//! - *Deletion*: the slides say that it is like insertion, and give its counts. With a slot array
//!   and a bitmap it takes the insert's three persists.
//! - *Splits*: a full parent is split first, in a change of its own, so that the redo log has a
//!   fixed size. So an insert that splits l nodes takes 4 fences for each, and its own; in the
//!   slides' Table 3 it takes three in all.
//! - *Keys of variable size*: the first 8 bytes lie in the node. A separator has a copy of its key
//!   only where the bytes tie.
//! - Merges, ranges, concurrency and recovery are not in the slides.

mod change;
mod entry;
mod layout;

use crate::kit::paged::Paged;

pub(crate) use entry::ENTRY;
pub use entry::{BITMAP_LEAVES, SLOT_ONLY};
pub use layout::Layout;

/// A wB+-Tree.
pub type WbTree<M, C> = Paged<M, C, Layout>;
