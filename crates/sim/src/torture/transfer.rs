//! Transfers: batches that move money between accounts, in trees of all engines.
//!
//! Behind its ordinary keys each tree has some *accounts* and, for each thread, a *ledger*: the
//! version of the last batch of that thread that wrote to the tree. A balance is stored as a
//! version is; an account with the balance 0 is absent. All begin with 0, so the sum of all
//! balances is 0 at any time.

use engines::engine::Engine;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{TortureWorkload, ValueVersion, has_words};

/// Accounts in each tree. Few, so that threads contend.
const ACCOUNTS: u32 = 16;
/// In a hundred batches, those over trees that are durable by epochs alone.
const BY_EPOCHS: u32 = 35;

/// The most trees of a pool: one of records and one of words for each engine.
pub(super) fn tree_count() -> u8 {
    2 * Engine::ALL.len() as u8
}

/// The engine of a tree.
pub(super) fn engine_of(tree: u8) -> Engine {
    Engine::ALL[usize::from(tree / 2)]
}

/// The name of a tree.
pub(super) fn tree_name(tree: u8) -> String {
    format!(
        "torture {} {}",
        engine_of(tree),
        if has_words(tree) { "words" } else { "records" }
    )
}

/// Keys of each tree that batches use.
pub(super) fn key_count(threads: u8) -> u32 {
    ACCOUNTS + u32::from(threads)
}

/// The keys that are accounts.
pub fn account_keys(workload: &TortureWorkload) -> std::ops::Range<u32> {
    workload.keys..workload.keys + ACCOUNTS
}

/// The key that is the ledger of a thread.
pub fn ledger(workload: &TortureWorkload, thread: u8) -> u32 {
    workload.keys + ACCOUNTS + u32::from(thread)
}

/// The amount that a batch adds to an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// The account's tree.
    pub tree: u8,
    /// The account's key.
    pub key: u32,
    /// Added with wrapping.
    pub amount: u64,
}

/// A batch: one account pays to one to three others.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// One for each account.
    pub moves: Vec<Move>,
    /// The trees of its accounts, in ascending order.
    pub trees: Vec<u8>,
}

impl Transfer {
    /// The transfer with this version, from which all of its moves follow.
    pub fn of(version: ValueVersion, workload: &TortureWorkload) -> Self {
        let mut random = SmallRng::seed_from_u64(version);
        // A batch over both kinds of trees ends the epoch. In every second round they are rare, so
        // that epochs are long.
        let both = if (version >> 40).is_multiple_of(2) {
            25
        } else {
            1
        };
        let number = random.random_range(0..100);
        let is_over_both = number >= 100 - both;
        let is_by_epochs = number < BY_EPOCHS;
        let is_used = |tree: &u8| is_over_both || engine_of(*tree).is_buffered() == is_by_epochs;
        let trees: Vec<u8> = (0..tree_count()).filter(is_used).collect();
        let count = random.random_range(2..=4);
        let mut moves: Vec<Move> = Vec::new();
        while moves.len() < count {
            let tree = trees[random.random_range(0..trees.len())];
            let key = random.random_range(account_keys(workload));
            let is_new = !moves
                .iter()
                .any(|known| known.tree == tree && known.key == key);
            if is_new {
                moves.push(Move {
                    tree,
                    key,
                    amount: random.random_range(1..=3),
                });
            }
        }
        let paid: u64 = moves[1..].iter().map(|step| step.amount).sum();
        moves[0].amount = paid.wrapping_neg();
        let mut trees: Vec<u8> = moves.iter().map(|step| step.tree).collect();
        trees.sort_unstable();
        trees.dedup();
        Self { moves, trees }
    }

    /// Whether all of its trees are durable by epochs, so that it is, too.
    pub(super) fn is_by_epochs(&self) -> bool {
        self.trees.iter().all(|tree| engine_of(*tree).is_buffered())
    }

    /// Whether an epoch is complete once it is durable.
    pub(super) fn needs_epoch(&self) -> bool {
        self.trees.iter().any(|tree| engine_of(*tree).is_buffered())
    }
}
