//! RNTree: a leaf whose order lives in one 64-byte slot line that is written failure-atomically.
//!
//! After Liu, Xing, Chen, Wu: *Building Scalable NVM-based B+tree with HTM*, ICPP 2019.
//!
//! ## Layout
//!
//! The pool holds only leaves (`layout`), in a chain, and the records that entries lead to. All
//! volatile state (inner nodes, locks, transient slots, fingerprints) lies in memory, and recovery
//! rebuilds it.
//!
//! ## Invariants
//!
//! 1. A leaf's slot line lists its entries in ascending order of keys, and each entry that it lists
//!    is durable.
//! 2. The slot line holds the offset of the next leaf. The chain from the head reaches every entry
//!    exactly once, in ascending order. The head is never merged away.
//! 3. An entry is always in one of four states: free; claimed, and written by its claimant alone;
//!    live, listed and never written; dead, not listed and not written until it is recycled.
//! 4. A leaf's lower bound never changes; its upper bound is its high key, which is the next leaf's
//!    lower bound.
//! 5. A reader returns only durable values, or waits until they are durable: the transient slots
//!    and `live` change only after the fence of the slot line, and carry its LSN. A reader waits
//!    for a writer in one other case: if it reaches a leaf that is being merged into its left
//!    neighbour, it waits until the merge is published.
//!
//! ## Commit points
//!
//! | operation | persists | commit point |
//! | --- | --- | --- |
//! | insert, update, put | 2 | the slot line lists the entry (entry and record are fenced before) |
//! | remove | 1 | the slot line no longer lists it |
//! | split | 2 | the left slot line drops the upper half and links the new leaf, in one store |
//! | split with the right neighbour | 2 | the same store, which also links the new leaves past the old right neighbour |
//! | merge | 2 | the left slot line takes the right one's entries and its next leaf, in one store |
//! | recycling | 0 | dead entries are free once the version is raised |
//!
//! ## Recovery
//!
//! Follow the chain, rebuild the volatile records on all cores, build the inner nodes (`recover`).
//!
//! ## What a crash may leave behind
//!
//! Entries that no slot line lists: the next claim can take them. Their records, and leaves that no
//! chain reaches: the mark frees them. A twin line with one torn copy: recovery mends it. Nothing
//! else: there is no undo log and no half-done chain.
//!
//! ## Damage
//!
//! The slot line carries a check of itself and of the entries that it lists (`layout`). It is part
//! of the line, so it costs no persist. An operation updates it from the entries that it changes,
//! so it costs no load. Recovery verifies every leaf before it writes anything, `check` verifies
//! every leaf; reads do not. Leaves that fail are neither merged nor rebalanced with neighbours, so
//! that the damage does not spread before it is found.
//!
//! ## Where this departs from the paper
//!
//! - *Algorithm 1, line 3, Algorithm 2*: a bitmap is claimed from instead of a counter, so entries
//!   are recycled without a copy; the counters `nlogs` and `plogs`, which Algorithm 3 forgets to
//!   reset, do not exist.
//! - *Algorithm 1, line 10*: the result of the conditional update is used; if a condition fails at
//!   first sight, nothing is allocated. After locking, the leaf is checked again: it may have been
//!   split meanwhile.
//! - *Algorithm 3*: the undo log is gone; `next` lies in the slot line and changes with it. Entries
//!   are not moved within the old leaf (lines 7 to 11 overwrite slots that they still read, and
//!   lose the last entry of an odd leaf); the separator is taken in key order (line 5 takes it by
//!   physical position).
//! - *Algorithm 3, lines 15 and 16*: the leaf stays locked until the parent knows the new one; a
//!   reader with a stale parent compares the high key and moves right.
//! - *Algorithm 4*: returns; and finds by fingerprint, not by binary search.
//! - A full leaf moves entries to its right neighbour, or the two become three, as in a B*-tree:
//!   leaves are four fifths full after random inserts. A leaf is split alone only if no leaf is
//!   to its right, or if that leaf is locked or damaged.
//! - With `RnTreeOptions::gathers` a split copies the records of the entries that it moves next to
//!   each other: for ranges over a pool that is larger than memory.
//! - Point reads and scans of words are not pinned: a leaf's version is taken while its parent
//!   still leads to it, and continues when its record is reused, so that a reader of a reused leaf
//!   fails to validate. A pin is a full fence, and would keep the processor from starting an
//!   operation before the persist of the last one is complete.
//! - *Algorithm 1, line 10* searches the slot array for the key, an entry at each step. Order bytes
//!   (`order`) rank the key in memory; only entries that tie are read.
//! - Writes of words are not pinned either: a claim keeps its leaf from being merged away
//!   (`LeafRecord::close`).
//! - Empty and small leaves are merged, if their locks are free; the paper never frees a leaf.

mod check;
mod destroy;
mod entry;
mod find;
mod insert;
mod layout;
mod load;
#[cfg(all(test, loom))]
mod loom_tests;
mod order;
mod recover;
mod relocate;
mod remove;
mod salvage;
mod scan;
mod split;

use std::sync::Arc;

use medium::arena::Arena;
use medium::sync::{AtomicU64, Ordering};
use medium::{Lsn, Medium};
use pool::{NewTree, Pool, ROOT_WORDS, TreeRoot};

use crate::engine::instrumented_trees;
use crate::index::{Codec, Index, MaybeWords};
use crate::kit::chain::InnerTree;
use crate::{Error, ErrorKind, Result, methods_of_entries, methods_of_trees, words_of_entries};
use layout::{EntrySum, Leaf, LeafRecord, Slots};
use order::LeafDigits;

pub(crate) use entry::ENTRY;
pub use layout::ENTRIES_MAX;

/// The most leaves of one tree.
const LEAVES_MAX: u32 = 1 << 28;

/// Root word 0: the offset of the first leaf.
const ROOT_HEAD: usize = 0;
/// Root word 1: entries of a leaf.
const ROOT_ENTRIES: usize = 1;

/// The fewest entries of a leaf that can be split and merged.
const ENTRIES_MIN: u64 = 3;

/// How a tree is opened.
#[derive(Clone, Copy, Debug)]
pub struct RnTreeOptions {
    /// Threads that rebuild the volatile half.
    pub recovery_threads: usize,
    /// The most entries of a leaf: 3 to [`ENTRIES_MAX`], fixed when the tree is made. A leaf always
    /// takes the same space. Fewer entries make splits and merges frequent, for tests.
    pub leaf_entries: usize,
    /// Whether splits copy the records of the entries that they move next to each other.
    pub gathers: bool,
}

impl Default for RnTreeOptions {
    fn default() -> Self {
        let recovery_threads = crate::cores();
        Self {
            recovery_threads,
            leaf_entries: ENTRIES_MAX,
            gathers: false,
        }
    }
}

/// An RNTree. Immediate durability: an operation is durable when it returns, and no reader has
/// seen it before.
pub struct RnTree<M: Medium, C: Codec> {
    pool: Pool<M>,
    /// The most entries of a leaf.
    capacity: usize,
    /// [`RnTreeOptions::gathers`]
    gathers: bool,
    leaves: Arc<Arena<LeafRecord<M>>>,
    /// A second copy of the leaves' offsets, dense enough to stay in the cache: a point read
    /// prefetches the leaf together with its record, not after it.
    offsets: Arena<AtomicU64>,
    /// How the keys of a leaf map to numbers, for those leaves whose scale is one of digits.
    digits: Arena<LeafDigits<M>>,
    inner: InnerTree<C>,
    head: u32,
    recovery_ns: u64,
    recovered_from_crash: bool,
}

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// The engine's number in a pool's root table, and its name.
    pub const ENGINE: (u16, &'static str) = (ENTRY.id, ENTRY.name);

    fn empty(pool: &Pool<M>, options: RnTreeOptions) -> Result<Self> {
        let leaves = Arc::new(Arena::new(LEAVES_MAX)?);
        let offsets = Arena::new(LEAVES_MAX)?;
        let digits = Arena::new(LEAVES_MAX)?;
        let inner = InnerTree::new(0)?;
        let pool = pool.clone();
        Ok(Self {
            pool,
            capacity: options.leaf_entries,
            gathers: options.gathers,
            leaves,
            offsets,
            digits,
            inner,
            head: 0,
            recovery_ns: 0,
            recovered_from_crash: false,
        })
    }

    /// Makes an empty tree and enters it in the pool's root table. Durable when this returns.
    pub fn create<'t>(
        pool: &Pool<M>,
        new: impl Into<NewTree<'t>>,
        options: RnTreeOptions,
    ) -> Result<Self> {
        let new = new.into();
        let leaf_entries = options.leaf_entries;
        if !(ENTRIES_MIN as usize..=ENTRIES_MAX).contains(&leaf_entries) {
            let what = "entries a leaf";
            let least = ENTRIES_MIN as usize;
            return Err(ErrorKind::NodeSize {
                what,
                size: leaf_entries,
                least,
                most: ENTRIES_MAX,
            }
            .into());
        }
        let guard = pool.pin();
        let offset = guard.allocate_node(size_of::<Leaf>())?;
        let enter = || -> Result<TreeRoot> {
            // PERSIST: the first leaf is ordered before the root that leads to it. The root table
            // is written through a guard of its own, whose fences do not cover what was flushed
            // through this one.
            guard
                .node::<Leaf>(offset)?
                .slots
                .init(&guard, &Slots::identity(0, 0, EntrySum::default()).0);
            guard.fence();
            let mut words = [0; ROOT_WORDS];
            words[ROOT_HEAD] = offset;
            words[ROOT_ENTRIES] = options.leaf_entries as u64;
            pool.create_tree(new, Self::ENGINE.0, C::ID, &words)
        };
        let root = enter().inspect_err(|_| guard.free_node(offset))?;
        let mut tree = Self::empty(pool, options)?;
        tree.start(&root, options, false)?;
        Ok(tree)
    }

    /// Opens a tree: rebuilds its volatile half from the leaves, and marks the allocations that it
    /// reaches if the pool asks for that. O(n), on `options.recovery_threads` threads.
    pub fn open(pool: &Pool<M>, root: &TreeRoot, options: RnTreeOptions) -> Result<Self> {
        let mut tree = Self::empty(pool, options)?;
        tree.start(root, options, pool.needs_mark())?;
        Ok(tree)
    }

    fn start(&mut self, root: &TreeRoot, options: RnTreeOptions, crashed: bool) -> Result<()> {
        let made = Self::capacity_of(root)?;
        let leaves = [described(made), described(self.capacity)];
        root.demand(Self::ENGINE.0, C::ID, &leaves)?;
        self.recovered_from_crash = crashed;
        self.recover(root.words[ROOT_HEAD], options.recovery_threads)
    }

    /// The most entries of a leaf of the tree at `root`. Refuses a tree of another engine or codec.
    fn capacity_of(root: &TreeRoot) -> Result<usize> {
        let entries = root.words[ROOT_ENTRIES];
        root.demand(Self::ENGINE.0, C::ID, &[String::new(), String::new()])?;
        if !(ENTRIES_MIN..=ENTRIES_MAX as u64).contains(&entries) {
            return Err(Error::corrupt(
                root.words[ROOT_HEAD],
                format!("a tree with {entries} entries a leaf"),
            ));
        }
        Ok(entries as usize)
    }

    /// Stores the offset of a new record's leaf.
    fn place(&self, index: u32, offset: u64) -> Result<()> {
        self.offsets.reach(index)?;
        self.offsets.get(index).store(offset, Ordering::Relaxed);
        Ok(())
    }

    /// The number by which the order bytes of a leaf place a key.
    #[inline(always)]
    fn number_of(&self, index: u32, leaf_record: &LeafRecord<M>, key: C::Key<'_>) -> u64 {
        if C::TIES
            && leaf_record.scale().is_of_digits()
            // A thread that does not see the digits yet plans with a wrong rank, and then again.
            && let Some(leaf_digits) = self.digits.find(index)
        {
            leaf_digits.load().number(C::tie_bytes(key))
        } else {
            C::word(key)
        }
    }

    /// Damage that was noticed in the leaf of a record.
    fn damaged(&self, index: u32, what: &str) -> Error {
        Error::corrupt(self.leaves.get(index).offset(), what)
    }
}

/// The description of a tree's nodes in an error.
fn described(leaf_entries: usize) -> String {
    format!("{leaf_entries} entries a leaf")
}

impl<M: Medium, C: Codec> Index for RnTree<M, C>
where
    Self: MaybeWords,
{
    methods_of_entries!();
    methods_of_trees!();

    fn wait(&self, lsn: Lsn) -> Result<()> {
        self.pool.peek().wait_for(lsn)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.count()?.0)
    }
}

words_of_entries!(RnTree);
instrumented_trees!(RnTree, RnTreeOptions);
