//! BzTree: a latch-free B+-tree, all of it in the pool, changed by persistent multi-word
//! compare-and-swap.
//!
//! After Arulraj, Levandoski, Minhas, Larson: *BzTree: A High-Performance Latch-free Range Index
//! for Non-Volatile Memory*, VLDB 2018. Sections below are the paper's. The same source is the
//! volatile index: on [plain memory](medium::Dax::plain) nothing is flushed.
//!
//! ## Layout
//!
//! See `layout`: an anchor with the root, the descriptors of [PMwCAS](crate::pmwcas) behind it,
//! leaves, inner nodes, and the records that entries and separators lead to. Nothing is rebuilt
//! when a tree is opened.
//!
//! ## Invariants
//!
//! 1. A node's range of keys never changes. A leaf never has keys that it does not cover.
//! 2. An entry goes from empty to visible to gone, or from empty to gone; never back, and never
//!    before the status counts it as reserved. Its key does not change once it is visible; its
//!    value does, by PMwCAS, and each change raises the version in its metadata.
//! 3. A key is visible in at most one entry.
//! 4. The visible entries of a leaf that is frozen stay as they are until it is thawed. Every
//!    operation that changes one names the leaf's status, too. The operation that replaces the leaf
//!    also names it, and freezes the leaf for good.
//! 5. An inner node's separators never change. A child is swapped together with a change of the
//!    status, and the node is frozen by the very operation that replaces it, which names that
//!    status: no swap is lost in a copy.
//! 6. A visible value is durable, or it is dirty and its readers wait (see
//!    [PMwCAS](crate::pmwcas)). Two values may recur: an update leaves the status as it was, and
//!    may bring a payload back. Their dirty bits may be cleared too early, which does no harm: only
//!    a count is answered from a status, and a count waits for everything; a payload is used only
//!    together with its metadata, whose version never recurs.
//!
//! ## Commit points
//!
//! Each is an operation of PMwCAS, three ordered persists whatever the number of words. The nodes
//! and records that it publishes are durable with the first of them, an entry at the latest with
//! the second (see `insert`).
//!
//! | operation | words | persists | commit point: success of |
//! | --- | --- | --- | --- |
//! | insert | 2 | 3 | metadata becomes visible, status counts it as complete |
//! | update, put, compare-exchange | 3 | 3 | payload, metadata with the next version, status unchanged |
//! | remove | 2 | 3 | metadata becomes gone, status counts it as dead |
//! | consolidation | 3 | 3 | the parent's child, the parent's status; the leaf is frozen for good |
//! | split of a node | 4 | 3 | the node and its parent are frozen for good, the grandparent's child, its status |
//! | merge of two nodes | 5 | 3 | as a split, with both nodes |
//! | change of the root | 2 to 4 | 3 | the root instead of the grandparent's words |
//! | reservation of an entry, freeze or thaw of a leaf | 1 | 0 | not durable, and need not be: see `insert` and `split` |
//! | get, scan, a condition that fails | 0 | 0 | |
//!
//! ## Recovery
//!
//! PMwCAS rolls its descriptors forward or back (`recover`): O(1). After a crash all space that the
//! tree reaches is also marked, before the open returns or while the tree is in use (`mark`).
//!
//! ## What a crash may leave behind
//!
//! Entries that were reserved and never completed: counted as pending, ended by the next insert
//! into the leaf, reclaimed when the leaf is renewed. Leaves that are frozen: renewed by the next
//! thread that is to change them. Inner nodes with a single child, and leaves that are small, where
//! the crash came between two merges: merged when keys beside them are removed, or they are full
//! and written to. Space that nothing reaches: the mark frees it.
//!
//! ## Where this departs from the paper
//!
//! - *4.1, layout*: entries have a fixed size, key word and payload. Values of 8 bytes lie in the
//!   leaf; keys and values of other lengths lie in records, their first eight bytes in the leaf. So
//!   offset, key and total length need no bits, block size is count. A line of one-byte
//!   fingerprints beside the status finds the entry, whether sorted or not: a find touches that
//!   line and the entry. The order of the sorted part serves scans and consolidation.
//! - *4.2.1, insert*: the reservation is one compare-and-swap of the status without a persist, not
//!   a durable PMwCAS; so an insert takes three persists instead of six. The status counts what is
//!   pending, so only an insert that finds a reservation searches for a duplicate again; it waits a
//!   bounded time, then ends the reservation by PMwCAS, so that a thread that has stopped blocks no
//!   other thread. A reservation that a crash left is ended in the same way; so there is no index
//!   epoch to tell it by.
//! - *4.2.3, update*: in place, for inline values too. PMwCAS leaves 61 bits of a word; the other
//!   three of a value lie in the metadata, which is part of the operation anyway, beside a version
//!   by which a reader knows that both belong together. No dead entry, no consolidation for
//!   updates.
//! - *4.2.6, scans*: they go on from the separator, not from the last key, so they can pass an
//!   empty leaf.
//! - *4.3, consolidation*: the parent's status carries a counter that each swap of a child raises;
//!   otherwise a copy of the parent could be installed that lacks the swap. A thread that finds a
//!   frozen leaf renews it at once, not at the second try. Freezing is not flushed. If there is no
//!   space to renew it, the leaf is thawed and stays in use. So the operation that replaces a leaf
//!   also names its status, which counts how often it was frozen.
//! - *4.3 and 5, node sizes*: counted in entries, as these have one size. The bytes by which the
//!   allocator rounds up hold free entries, too. The upper half of a split has twice the free
//!   entries.
//! - *5*: nodes are allocated before anything is frozen, and a leaf and an inner node are kept in
//!   reserve for consolidation and merging. Inner nodes are split and merged like leaves, and are
//!   frozen by the operation that replaces them. The last leaf is split unevenly, for ascending
//!   keys. A root with two children that merge is replaced by the merged node.
//! - *6.1, allocation*: descriptors do not own allocations durably: space that the tree does not
//!   reach is free after a crash.
//!
//! ## Not supported
//!
//! A full leaf does not share entries with its neighbours.

mod check;
mod entry;
mod find;
mod image;
mod insert;
mod layout;
mod load;
mod mark;
mod merge;
mod profile;
mod recover;
mod relocate;
mod remove;
mod reuse;
mod runs;
mod salvage;
mod scan;
mod sizes;
mod split;
#[cfg(all(test, not(loom)))]
mod testing;

use std::marker::PhantomData;

use medium::sync::{AtomicU64, Ordering};
use medium::{Lsn, Medium};
use pool::{Pool, TreeRoot};

use crate::engine::instrumented_trees;
use crate::index::{Codec, Index, MaybeWords, Measured, Profile};
use crate::pmwcas::{Pmwcas, PmwcasStat};
use crate::{Result, methods_of_entries, methods_of_trees, words_of_entries};

pub(crate) use entry::ENTRY;
pub use layout::ENTRIES_MAX;
pub use sizes::NodeSizes;

/// How a tree is made.
#[derive(Clone, Copy, Debug)]
pub struct BzTreeOptions {
    /// Operations that change the tree at the same time; more wait for one another. 1 to 128; each
    /// takes 512 bytes of the pool. Fixed when the tree is made.
    pub operations_max: usize,
    /// How large nodes are; `None` for leaves of 56 entries. Fixed when the tree is made: an open
    /// with other sizes is refused ([`BzTree::sizes_of`]).
    pub nodes: Option<NodeSizes>,
    /// Whether an open after a crash leaves the mark of reachable space to the caller, which calls
    /// [`Index::mark`] while the tree is in use, and then [`Pool::finish_marking_later`]. Otherwise
    /// the open marks, in O(n).
    pub mark_later: bool,
    /// How often an insert polls an earlier reservation before it ends it, so that the other insert
    /// starts again. The earlier reservation may be one that a crash left, whose insert no longer
    /// exists. With 0 the insert ends each at once. Default: 1,024; from the 64th time on the
    /// thread yields after each.
    pub patience: u32,
}

impl Default for BzTreeOptions {
    fn default() -> Self {
        // Together with the anchor these fill a slot of 32 KiB.
        Self {
            operations_max: 63,
            nodes: None,
            mark_later: false,
            patience: 1 << 10,
        }
    }
}

/// How often the structure changed since the tree was opened.
#[derive(Debug, Default)]
struct StructureCounters {
    consolidations: Counter,
    splits: Counter,
    merges: Counter,
}

#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A BzTree. Immediate durability: an operation is durable when it returns, and no other thread has
/// returned its result before.
///
/// Latch-free: a reader never waits for a thread that has stopped; a writer does only if more
/// operations are under way than [`BzTreeOptions::operations_max`]. The pool's allocator is not
/// latch-free: a thread that stops while it allocates, retires or frees may hold a lock of the
/// pool. Writers that need space wait for that lock, and so does every 128th pin of a thread, which
/// frees retired space. Space that was retired after a stopped thread was pinned stays taken.
pub struct BzTree<M: Medium, C: Codec> {
    pool: Pool<M>,
    pmwcas: Pmwcas,
    anchor: u64,
    sizes: NodeSizes,
    rooms: sizes::Rooms,
    counters: StructureCounters,
    spares: image::Spares,
    outgoing: reuse::Outgoing,
    patience: u32,
    /// 1 once its space was given back.
    destroyed: AtomicU64,
    recovery_ns: u64,
    recovered_from_crash: bool,
    codec: PhantomData<fn() -> C>,
}

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// The engine's number in a pool's root table, and its name.
    pub const ENGINE: (u16, &'static str) = (ENTRY.id, ENTRY.name);

    /// How large the nodes of the tree at `root` are.
    ///
    /// # Errors
    /// [`crate::ErrorKind::NodeSize`]: the root names sizes that no tree can have.
    pub fn sizes_of(root: &TreeRoot) -> Result<NodeSizes> {
        NodeSizes::of_root(root).validated()
    }
}

impl<M: Medium, C: Codec> Drop for BzTree<M, C> {
    fn drop(&mut self) {
        if !self.pool.process().is_current() {
            // Operations of the parent may be under way.
            return;
        }
        // The memory that a descriptor names, if it is not given back, must stay in the pool: the
        // next open finishes the operation.
        if std::thread::panicking() {
            return self.pool.leave_unclean();
        }
        let guard = self.pool.pin();
        self.free_spares(&guard);
        if self.destroyed.load(Ordering::Acquire) == 0 && self.pmwcas.finish(&guard).is_err() {
            return self.pool.leave_unclean();
        }
        self.free_outgoing(&guard);
    }
}

impl<M: Medium, C: Codec> Index for BzTree<M, C>
where
    Self: MaybeWords,
{
    methods_of_entries!();
    methods_of_trees!();

    fn wait(&self, lsn: Lsn) -> Result<()> {
        self.pool.peek().wait_for(lsn)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.count()?.keys)
    }

    fn mark(&self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        self.mark_reached(go_on)
    }

    fn reclaim(&self) {
        Self::reclaim(self);
    }

    fn measured(&self) -> Option<&dyn Measured> {
        Some(self)
    }
}

impl<M: Medium, C: Codec> Measured for BzTree<M, C> {
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let PmwcasStat {
            attempts,
            words,
            failures,
            helps,
        } = self.pmwcas.stat();
        vec![
            ("pmwcas_attempts", attempts),
            ("pmwcas_words", words),
            ("pmwcas_failures", failures),
            ("pmwcas_helps", helps),
            ("consolidations", self.counters.consolidations.get()),
            ("splits", self.counters.splits.get()),
            ("merges", self.counters.merges.get()),
        ]
    }

    fn profile(&self, key: &[u8], value: Option<&[u8]>) -> Result<Option<Profile>> {
        self.profiled(C::key(key)?, value.map(C::value).transpose()?)
            .map(Some)
    }
}

words_of_entries!(BzTree);
instrumented_trees!(BzTree, BzTreeOptions);
