//! CAWBT: a B+-tree whose node is one line, written failure-atomically, and whose keys are numbers
//! of a table in memory.
//!
//! After Lee, Lee, Park, Won: *CAWBT: NVM-Based B+Tree Index Structure Using Cache Line Sized
//! Atomic Write*, IEICE 2019.
//!
//! ## Layout
//!
//! In the pool: nodes of one line (`layout`), from the root on, whose offset never changes; the
//! log, another line (`log`); the records that leaves lead to (`record`). In memory: the table of
//! IDs ([`ids`](crate::kit::ids)), which holds each ID's entry, that is the two words that the
//! codec makes of key and value or record; and versions of nodes (`versions`).
//!
//! ## Invariants
//!
//! 1. All leaves are at the same depth. Each links to the next one.
//! 2. A separator is the ID of the first key to its right. So each key except the first is a
//!    separator at most once, and a reader that finds its ID in an inner node has found the key.
//! 3. A leaf has one to three keys; the root may be an empty leaf. An inner node has two to four
//!    children. A node with five children is split at once, a node with one is merged; if a crash
//!    cuts that off, the next split or merge below it does so.
//! 4. An ID is in use from before its leaf has it until after its leaf, and the inner node that has
//!    it as a separator, have lost it durably.
//! 5. Readers see only ordered changes, and wait until these are durable: versions are odd from
//!    before the first store of a change until after its fence. An update changes no ID, so it
//!    raises no version; its value enters the table after the fence.
//!
//! ## Commit points
//!
//! | operation | persists | commit point |
//! | --- | --- | --- |
//! | insert | 2: record; leaf | the leaf's line |
//! | update | 2: record; leaf | the leaf's line |
//! | remove | 1: leaf, with the inner node that has the key as a separator | the leaf's line |
//! | insert that splits a leaf | 2: record, new leaf, log; leaf and parent | the first of leaf and parent |
//! | remove that merges leaves | 2: log; leaf and parent | the first of leaf and parent |
//! | split, merge above it | 2 each: log, new node; node and parent | the first of node and parent |
//! | new root | 2: log, new nodes; root | the root's line |
//! | root with one child | 2: log; root | the root's line |
//! | bulk load | 2: all below the root; root | the root's line |
//! | leaf that moves | 2: its copy, log; the leaf before and parent | the first of these two |
//! | inner node or first leaf that moves | 2: its copy, log; parent | the parent's line |
//!
//! The log describes the next change. It is not a commit record: if any line that it names has
//! changed, the log is durable, and recovery changes the others.
//!
//! ## Recovery
//!
//! 1. The change in the log is finished: O(1).
//! 2. All nodes are visited, on all cores, and verified: checks, the order of keys, the links of
//!    leaves. The entries of the leaves fill the table. After a crash nodes and records are marked,
//!    torn twin lines mended, and a separator that is not the first key to its right is replaced by
//!    that.
//!
//! The log stays as it is until the next change. A further recovery finds that its change is done.
//!
//! ## What a crash may leave behind
//!
//! Nodes as in invariant 3. Records and nodes that nothing reaches: the mark frees them.
//!
//! ## Where this departs from the paper
//!
//! - *Section 3.4*: splits come with the fourth key, before it is in the leaf, so that the record,
//!   the new leaf and the log share a fence, and an insert that splits a leaf costs the persists of
//!   one that does not. There is no status to be set before and cleared after: see commit points. A
//!   split above comes next, with a log of its own. Recovery finishes the split that the log names,
//!   and leaves the one above to the next split below it.
//! - The root keeps its place: it is split into two new nodes. That is one store, so the log is
//!   emptied and not used.
//! - *Section 4.2*: the parent pointer is written with its node only, because a split would
//!   otherwise have to store all children that it moved. It is stale once the node has another
//!   parent. A bulk load writes 0. An open corrects neither, for that would be a store to each
//!   node. Nothing reads the pointer: writers keep the path of their descent, recovery and salvage
//!   go down from the root, and the log names the nodes of a change.
//! - The fifth pointer of a leaf is the link to the next one, which the paper leaves out.
//! - *Section 3.2.3*: an ID that was given back is used again before the table grows, so that the
//!   table does not grow with the number of inserts.
//! - *Section 3.5* leaves readers unguarded. They validate (`versions`).
//! - *Section 3.1*: keys and values are persisted, before the line that leads to them. So
//!   operations are durable.
//! - Deletion, merges, ranges, bulk loads are not in the paper.

mod change;
mod check;
mod find;
mod insert;
mod layout;
mod load;
mod log;
#[cfg(all(test, loom))]
mod loom_tests;
mod publish;
mod record;
mod recover;
mod relocate;
mod remove;
mod scan;
#[cfg(test)]
mod tests;
mod versions;

use std::marker::PhantomData;

use medium::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};
use medium::{LineValue, MediumError};

use crate::index::Measured;
use crate::kit::ids::Ids;
use crate::kit::prelude::*;
use layout::{IDS_MAX, LEAF_ENTRIES};
use versions::VersionTable;

/// A node is always one line, so there are no settings.
const NODES: Nodes = Nodes {
    leaf_entries: LEAF_ENTRIES,
    children: IDS_MAX,
    settings: &[],
};

/// CAWBT in the list of engines.
pub(crate) static ENTRY: EngineEntry = EngineEntry {
    id: 7,
    name: "cawbt",
    paper: "CAWBT: NVM-Based B+Tree Index Structure Using Cache Line Sized Atomic Write, IEICE 2019",
    contract: Contract::Immediate(Persists {
        insert: 2,
        update: 2,
        update_words: 2,
        remove: 1,
    }),
    notices_damage: &crate::engine::CodecKind::ALL,
    marks_later: false,
    stores_lines: true,
    is_trie: false,
    room_per_write: 256,
    settings: &[Setting {
        name: "fast-search",
        help: "off: a find goes down to the leaf, also where an inner node has the key's ID",
        values: Values::Names(&["on", "off"]),
        is_fixed: false,
        is_hidden: true,
    }],
    full: NODES,
    small: NODES,
    explored: &[],
    settings_of: |_| Ok(Settings::NONE),
    media: media_of!(CawbTree),
};

/// The position of the setting "fast-search", and its value "off".
const FAST_SEARCH: usize = 0;
const OFF: u64 = 1;

/// Root word 0: the offset of the root node.
const ROOT_NODE: usize = 0;
/// Root word 1: the offset of the log.
const ROOT_LOG: usize = 1;

/// The most levels of inner nodes: more than a tree with all IDs needs, even with two children a
/// node.
const LEVELS_MAX: usize = 40;
/// The most keys of a tree.
const KEYS_MAX: u32 = (1 << layout::ID_BITS) - 1;

/// The size of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct TreeCounts {
    keys: u64,
    leaves: u64,
    inner: u64,
    /// Levels of inner nodes.
    levels: u32,
}

impl TreeCounts {
    /// The number of leaves, or of inner nodes.
    fn of_kind(&mut self, is_leaf: bool) -> &mut u64 {
        if is_leaf {
            &mut self.leaves
        } else {
            &mut self.inner
        }
    }
}

/// The state of writers, under their lock.
#[derive(Default)]
struct WriterState {
    /// The log's line as stored.
    log: LineValue,
    counts: TreeCounts,
    splits: u64,
    merges: u64,
}

/// A CAWBT. Immediate durability: an operation is durable when it returns, and no other thread has
/// returned its result before.
pub struct CawbTree<M: Medium, C: Codec> {
    pool: Pool<M>,
    root: u64,
    log: u64,
    ids: Ids<M>,
    versions: VersionTable<M>,
    state: Mutex<WriterState>,
    /// A change of several nodes was cut off by a failure of the medium: see [`CawbTree::lock`].
    is_cut_off: AtomicBool,
    /// Whether a find ends where an inner node has the key's ID.
    is_search_fast: bool,
    recovery_ns: u64,
    recovered_from_crash: bool,
    /// In a pool that verifies reads: the offset of a record that failed its check when the open put
    /// its key into the table. 0 if there is none.
    damaged_key: AtomicU64,
    codec: PhantomData<fn() -> C>,
}

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// The engine's number in a pool's root table, and its name.
    pub const ENGINE: (u16, &'static str) = (ENTRY.id, ENTRY.name);

    /// The tree at a root, not recovered.
    fn unopened(pool: &Pool<M>, words: &[u64; ROOT_WORDS]) -> Result<Self> {
        Ok(Self {
            pool: pool.clone(),
            root: words[ROOT_NODE],
            log: words[ROOT_LOG],
            ids: Ids::new(KEYS_MAX)?,
            versions: VersionTable::new()?,
            state: Mutex::default(),
            is_cut_off: AtomicBool::new(false),
            is_search_fast: true,
            recovery_ns: 0,
            recovered_from_crash: false,
            damaged_key: AtomicU64::new(0),
            codec: PhantomData,
        })
    }

    /// Keeps other writers out.
    ///
    /// # Errors
    /// [`MediumError::Failed`] after a change of several nodes that the medium did not store as a
    /// whole: the next open finishes it.
    fn lock(&self, guard: &Guard<'_, M>) -> Result<MutexGuard<'_, WriterState>> {
        guard.interleave(&self.state);
        let state = self.state.lock();
        self.expect_whole().map(|()| state)
    }

    /// Refuses a tree in which a change has not ended because the medium failed.
    fn expect_whole(&self) -> Result<()> {
        if self.is_cut_off.load(Ordering::Relaxed) {
            let what = "a line of a change was not stored".to_owned();
            return Err(MediumError::Failed(what).into());
        }
        Ok(())
    }

    /// Lets the next writer in, then waits until everything up to `lsn` is durable.
    #[track_caller]
    fn settle(guard: &Guard<'_, M>, state: MutexGuard<'_, WriterState>, lsn: Lsn) -> Result<()> {
        drop(state);
        guard.wait_for(lsn)
    }

    /// Lets the next writer in, and leaves the wait for `lsn` to the caller of the operation.
    #[track_caller]
    fn end(guard: &Guard<'_, M>, state: MutexGuard<'_, WriterState>, lsn: Lsn) -> Lsn {
        drop(state);
        guard.left_to_caller(lsn)
    }

    fn figures(&self) -> Result<IndexStat> {
        let guard = self.pool.peek();
        let state = self.lock(&guard)?;
        let TreeCounts {
            keys,
            leaves,
            inner,
            levels,
        } = state.counts;
        Self::settle(&guard, state, self.versions.last_lsn())?;
        Ok(IndexStat {
            keys,
            leaves,
            height: levels,
            volatile_bytes: self.ids.bytes_used() + versions::BYTES,
            recovery_ns: self.recovery_ns,
            recovered_from_crash: self.recovered_from_crash,
            leaf_bytes: size_of::<layout::NodeLine>() as u64,
            // Each key has a record, and there is the log.
            allocations: Some(keys + leaves + inner + 1),
            ..IndexStat::default()
        })
    }
}

impl<M: Medium, C: Codec> Index for CawbTree<M, C>
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

    fn measured(&self) -> Option<&dyn Measured> {
        Some(self)
    }
}

impl<M: Medium, C: Codec> Measured for CawbTree<M, C> {
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let state = self.state.lock();
        vec![("splits", state.splits), ("merges", state.merges)]
    }
}

words_of_entries!(CawbTree);
