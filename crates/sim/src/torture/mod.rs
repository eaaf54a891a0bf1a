//! Processes that are killed while they write, and a judge of the content of the pool afterwards.
//!
//! The explorer knows every store, so it knows every image that a crash may leave. A process that
//! is really killed gives less information: its threads announce each operation by a
//! [`Announcement`] before they execute it, and the answer of an operation is part of its thread's
//! next record. The judge here reads these records ([`RoundHistory`]) and the trees after the next
//! open ([`Contents`]), and says whether the trees may be as they are:
//!
//! 1. The history tells when each operation began and when it was acknowledged.
//! 2. Batches are found by their traces in their trees. Each is in all of its trees or in none.
//! 3. Operations found in the trees, and syncs, give the moment up to which acknowledged operations
//!    must be present, if operations are not durable when they return.
//! 4. Each key is judged by itself: its version must be that of a write, and no other operation
//!    that must be present may certainly have come after that write.
//!
//! Each write writes a version of its own, so the state of a key names the operation that made it.
//! That makes histories of millions of operations cheap to judge. The explorer's histories are
//! short and their values may repeat; it searches for an order of their operations instead.
//!
//! `everleaf torture` runs the writers, kills them and reads the pools.

mod announcement;
mod batches;
mod contents;
mod history;
mod oracle;
mod transfer;

use engines::engine::Engine;
use serde::Serialize;

pub use announcement::{
    ANNOUNCEMENT_BYTES, Announcement, OperationKind, ValueVersion, has_words, key_bytes, owner,
    spread, value_bytes, version, version_of,
};
pub use contents::Contents;
pub use history::RoundHistory;
pub use oracle::Oracle;
pub use transfer::{Move, Transfer, account_keys, ledger};

/// The trees of a torture pool without batches, by their place in records. Those with an odd place
/// are trees of words.
pub const TREES: [&str; 4] = [
    "torture records",
    "torture words",
    "torture more records",
    "torture more words",
];

/// The meaning of the acknowledgement of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledged {
    /// The write is durable.
    Durable,
    /// The write may be lost until a sync is acknowledged.
    Buffered,
    /// The write may be lost until its thread has waited for it; other threads read only durable
    /// values.
    ByTicket,
}

/// The work of the writers: the same for all processes of a run.
#[derive(Clone, Debug)]
pub struct TortureWorkload {
    /// The engine of the trees, if there are no batches.
    pub engine: Engine,
    /// The meaning of an acknowledgement, if the engine is not durable by epochs.
    pub acknowledged: Acknowledged,
    /// Threads of a writer.
    pub threads: u8,
    /// Keys of single operations in each tree.
    pub keys: u32,
    /// Trees, if there are no batches.
    pub trees: u8,
    /// Whether there are two trees of each engine, and batches over them.
    pub batches: bool,
}

impl TortureWorkload {
    /// How many trees there are.
    pub fn tree_count(&self) -> u8 {
        if self.batches {
            transfer::tree_count()
        } else {
            self.trees
        }
    }

    /// The name of a tree.
    pub fn tree_name(&self, tree: u8) -> String {
        if self.batches {
            transfer::tree_name(tree)
        } else {
            TREES[usize::from(tree)].to_owned()
        }
    }

    /// The engine of a tree.
    pub fn engine(&self, tree: u8) -> Engine {
        if self.batches {
            transfer::engine_of(tree)
        } else {
            self.engine
        }
    }

    /// Whether acknowledged writes to a tree, and values read from it, may be lost until a sync is
    /// acknowledged.
    pub fn is_buffered(&self, tree: u8) -> bool {
        self.engine(tree).is_buffered() || self.acknowledged == Acknowledged::Buffered
    }

    /// How many keys a tree may have: those of single operations, and behind them those of batches.
    pub fn key_count(&self) -> u32 {
        if self.batches {
            self.keys + transfer::key_count(self.threads)
        } else {
            self.keys
        }
    }
}

/// The names that trees of torture pools have.
pub fn tree_names() -> Vec<String> {
    let of_batches = (0..transfer::tree_count()).map(transfer::tree_name);
    TREES
        .into_iter()
        .map(str::to_owned)
        .chain(of_batches)
        .collect()
}

/// Counts of operations.
#[derive(Serialize, Default)]
pub struct Tally {
    /// Operations announced.
    pub operations: u64,
    /// Operations acknowledged.
    pub acknowledged: u64,
    /// Operations under way when their writer died, and found done.
    pub pending_done: u64,
    /// Operations under way when their writer died, and found not done.
    pub pending_undone: u64,
    /// Those of the operations that are batches, if there are any.
    pub batches: Option<BatchTally>,
}

/// Counts of batches.
#[derive(Serialize, Default)]
pub struct BatchTally {
    /// Acknowledged as written.
    pub written: u64,
    /// A condition failed, because another thread had written in between.
    pub refused: u64,
    /// Under way when their writer died, and found done.
    pub pending_done: u64,
    /// Under way when their writer died, and found not done.
    pub pending_undone: u64,
    /// Written and lost, which is allowed because they were not durable yet.
    pub lost_before_durable: u64,
}
