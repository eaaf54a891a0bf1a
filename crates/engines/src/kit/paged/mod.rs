//! A B+-tree that lies wholly in the pool, generic over its node format.
//!
//! ```text
//! anchor (log)  ->  root  ->  inner nodes  ->  leaves, each linked to the next one
//!
//! node of any format
//!   head      what the format keeps: which entries live, and perhaps their order
//!   link      the last word of the head; of a leaf the next leaf (0 after the last), of an inner node the first child
//!   entries   in any place: key word and value, or separator and the child that covers the keys from it on
//!   tails     of inner nodes whose keys can tie: records with separators that a word is not enough for
//! ```
//!
//! The format ([`Format`]) says how a head is coded, and adds and removes single entries of leaves
//! with the persists of its paper. Everything else is here: descents, splits and merges, the redo
//! log, ranges, bulk loads, walks, the lock.
//!
//! ## Invariants
//!
//! 1. All leaves are at the same depth, which the root's word names. So no node has to name its
//!    kind.
//! 2. A node has live entries and others. The live entries have different keys; the others may hold
//!    anything.
//! 3. A separator is above all keys before it and not above any behind it. Its tail belongs to the
//!    node that has it.
//! 4. Words that lead to nodes have a check of 16 bits ([`checked`]).
//!
//! ## Commit points
//!
//! | operation | persists | commit point |
//! | --- | --- | --- |
//! | insert, remove | as the format has them | the format's |
//! | update | 1; 2 with records | the value's word |
//! | split, merge, a new root | 4 | the commit record of the redo log (`log`) |
//! | bulk load, a root with a single child | 2 | the root's word |
//!
//! A split moves the upper entries to a new node, before anything leads there; then the log changes
//! the heads of the old node and its parent at once. New entries of nodes in use are written to
//! places that are not live. A full parent is split first, in a change of its own, so the log has a
//! fixed size. A merge moves the entries of a node to the one before.
//!
//! ## Recovery
//!
//! 1. The open finishes the redo log: O(1). The tree is then as after a prefix of its operations.
//! 2. If the pool asks for it, the tree marks all space that it reaches, O(nodes), with records O(n);
//!    in the open, or later while the tree is in use (`mark`).
//!
//! ## What a crash may leave behind
//!
//! Heads in the middle of the format's own commit. Small nodes, if the crash came before a merge:
//! they are merged when neighbouring keys are removed. Space that no node reaches: the mark frees
//! it.
//!
//! ## Concurrency
//!
//! There is one writer at a time. Readers run in parallel ([`latch`](super::latch)). No lock is
//! held while a thread waits for durability.

mod change;
mod find;
mod insert;
mod load;
mod log;
mod mark;
mod node;
mod recover;
mod remove;
mod scan;
mod walk;

use std::fmt::Debug;
use std::marker::PhantomData;

use medium::{Lsn, Medium};
use pool::{Guard, Pool, ROOT_WORDS, TreeRoot};

use super::latch::Latch;
use crate::engine::Settings;
use crate::index::{Codec, Index, MaybeWords};
use crate::{Error, Result, methods_of_entries, methods_of_trees, words_of_entries};

pub use super::{checked, unchecked};
pub use log::{HEAD_WRITES_MAX, Redo};
pub use node::{ENTRIES_MAX, HEAD_WORDS_MAX, Item, NodeKind, NodeShape, Order, PagedNode};

/// How nodes lie in the pool.
pub trait Format: Copy + Debug + Send + Sync + 'static {
    /// The engine's number in a pool's root table, and its name.
    const ENGINE: (u16, &'static str);
    /// The most words that a split or a merge changes at once.
    const LOG_WRITES_MAX: usize = HEAD_WRITES_MAX;

    /// The format of the tree at a root, from the root's second word; `None` if the word names
    /// none.
    fn of_root(word: u64) -> Option<Self>;

    /// The root's second word.
    fn to_root(self) -> u64;

    /// The format that settings of the engine ask for.
    fn of_settings(settings: &Settings) -> Result<Self>;

    /// The settings that ask for it.
    fn to_settings(self) -> Settings;

    /// How large nodes of a kind are.
    fn shape(self, kind: NodeKind) -> NodeShape;

    /// The live entries of a node: bit i stands for entry i.
    fn live<M: Medium>(self, guard: &Guard<'_, M>, node: &PagedNode<'_>) -> u64;

    /// The order of the live entries; `None` if the node does not keep it, or a crash has left it
    /// invalid. Whether it lists these entries is not checked.
    fn order<M: Medium>(self, guard: &Guard<'_, M>, node: &PagedNode<'_>) -> Option<Order>;

    /// The slot at a position of [`Format::order`].
    fn slot<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        position: usize,
    ) -> Option<usize>;

    /// The slots from a position of [`Format::order`] on, as the bytes of a word, as far as the
    /// order goes.
    fn slots<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        position: usize,
    ) -> Option<u64> {
        let slot = |ahead| Some(self.slot(guard, node, position + ahead)? as u64);
        (0..8)
            .rev()
            .try_fold(0, |slots, ahead| Some(slots << 8 | slot(ahead)? & 0xff))
    }

    /// The head of a node with these entries, without the link.
    fn head(self, kind: NodeKind, order: &Order) -> [u64; HEAD_WORDS_MAX];

    /// Adds an entry to a leaf that has room, at a position of its order if it keeps one; durable
    /// at the LSN. The record that the entry leads to is flushed.
    fn insert<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        leaf: &PagedNode<'_>,
        order: Order,
        position: usize,
        item: Item,
    ) -> Lsn;

    /// Removes an entry of a leaf, in this slot, and at a position of its order if it keeps one;
    /// durable at the LSN.
    fn remove<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        leaf: &PagedNode<'_>,
        order: Order,
        position: usize,
        slot: usize,
    ) -> Lsn;

    /// Adds a separator to an inner node that has room, at a position of its order, by words that
    /// change at once.
    fn insert_separator<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        mut order: Order,
        position: usize,
        separator: Item,
        redo: &mut Redo,
    ) {
        let slot = (!order.live()).trailing_zeros() as usize;
        node.write_item(guard, slot, separator);
        order.insert(position, slot);
        redo.set_head(guard, node, self.head(NodeKind::Inner, &order));
    }

    /// Removes the separator at a position of an inner node's order, by words that change at once.
    fn remove_separator<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        mut order: Order,
        position: usize,
        redo: &mut Redo,
    ) {
        order.remove(position);
        redo.set_head(guard, node, self.head(NodeKind::Inner, &order));
    }

    /// Repairs a leaf that a crash has left in the middle of a change, before a writer changes it;
    /// calls `change` first. For formats whose other methods rely on that.
    fn mend<M: Medium>(self, _guard: &Guard<'_, M>, _leaf: &PagedNode<'_>, _change: impl FnOnce()) {
    }

    /// The fault in the head of a node, if the head alone shows one.
    fn fault<M: Medium>(self, guard: &Guard<'_, M>, node: &PagedNode<'_>) -> Option<&'static str>;
}

/// Root word 0: the offset of the anchor.
const ROOT_ANCHOR: usize = 0;
/// Root word 1: the format.
const ROOT_FORMAT: usize = 1;

/// A tree. Immediate durability: an operation is durable when it returns, and no other thread has
/// returned its result before.
pub struct Paged<M: Medium, C: Codec, F: Format> {
    pool: Pool<M>,
    anchor: u64,
    format: F,
    latch: Latch<M>,
    recovery_ns: u64,
    recovered_from_crash: bool,
    codec: PhantomData<fn() -> C>,
}

impl<M: Medium, C: Codec, F: Format> Paged<M, C, F> {
    /// The engine's number in a pool's root table, and its name.
    pub const ENGINE: (u16, &'static str) = F::ENGINE;

    /// The settings with which the tree of a root was made.
    pub fn settings_of(root: &TreeRoot) -> Result<Settings> {
        Ok(Self::format_of(&root.words)?.to_settings())
    }

    /// The format that a root names.
    fn format_of(words: &[u64; ROOT_WORDS]) -> Result<F> {
        let word = words[ROOT_FORMAT];
        F::of_root(word).ok_or_else(|| {
            let engine = F::ENGINE.1;
            let what = format!(
                "a tree whose root names no nodes of {engine}: word {ROOT_FORMAT} is {word:#x}"
            );
            Error::corrupt(words[ROOT_ANCHOR], what)
        })
    }

    /// The tree at a root, not recovered.
    fn unopened(pool: &Pool<M>, words: &[u64; ROOT_WORDS]) -> Result<Self> {
        Ok(Self {
            pool: pool.clone(),
            anchor: words[ROOT_ANCHOR],
            format: Self::format_of(words)?,
            latch: Latch::new()?,
            recovery_ns: 0,
            recovered_from_crash: false,
            codec: PhantomData,
        })
    }
}

impl<M: Medium, C: Codec, F: Format> Index for Paged<M, C, F>
where
    Self: MaybeWords,
{
    methods_of_entries!();
    methods_of_trees!();

    fn wait(&self, lsn: Lsn) -> Result<()> {
        self.pool.peek().wait_for(lsn)
    }

    fn mark(&self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        self.mark_reached(go_on)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.figures()?.keys)
    }
}

words_of_entries!(Paged, F: Format);
