//! Transfers: batches that move money between accounts, in trees of all engines.
//!
//! Behind its ordinary keys each tree has some *accounts* and, for each thread, a *ledger*: the
//! version of the last batch of that thread that wrote to the tree. A balance is stored as a
//! version is; an account with the balance 0 is absent. All begin with 0, so the sum of all
//! balances is 0 at any time.

use everleaf::Engine;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::Work;
use super::op::{Version, has_words};

/// Accounts in each tree. Few, so that threads meet.
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
pub(super) fn accounts(work: &Work) -> std::ops::Range<u32> {
    work.keys..work.keys + ACCOUNTS
}

/// The key that is the ledger of a thread.
pub(super) fn ledger(work: &Work, thread: u8) -> u32 {
    work.keys + ACCOUNTS + u32::from(thread)
}

/// What a batch adds to an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Move {
    pub(super) tree: u8,
    pub(super) key: u32,
    /// Added with wrapping.
    pub(super) amount: u64,
}

/// A batch: one account pays to one to three others.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub(super) moves: Vec<Move>,
    /// The trees of its accounts, in ascending order.
    pub(super) trees: Vec<u8>,
}

impl Transfer {
    /// The transfer with this version: all that it does follows from that.
    pub(super) fn of(version: Version, work: &Work) -> Self {
        let mut random = SmallRng::seed_from_u64(version);
        // A batch over both kinds of trees ends the epoch. In every second round they are rare, so
        // that epochs are long.
        let both = if (version >> 40).is_multiple_of(2) {
            25
        } else {
            1
        };
        let number = random.random_range(0..100);
        let is_used = |tree: &u8| match engine_of(*tree).is_buffered() {
            _ if number >= 100 - both => true,
            is_buffered => is_buffered == (number < BY_EPOCHS),
        };
        let trees: Vec<u8> = (0..tree_count()).filter(is_used).collect();
        let count = random.random_range(2..=4);
        let mut moves: Vec<Move> = Vec::new();
        while moves.len() < count {
            let (tree, key) = (
                trees[random.random_range(0..trees.len())],
                random.random_range(accounts(work)),
            );
            if moves
                .iter()
                .all(|known| (known.tree, known.key) != (tree, key))
            {
                moves.push(Move {
                    tree,
                    key,
                    amount: random.random_range(1..=3),
                });
            }
        }
        moves[0].amount = moves[1..]
            .iter()
            .fold(0, |paid, Move { amount, .. }| paid.wrapping_sub(*amount));
        let mut trees: Vec<u8> = moves.iter().map(|Move { tree, .. }| *tree).collect();
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
