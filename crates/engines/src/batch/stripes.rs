//! The stripes of a tree: locks that keep single writes and batches apart.
//!
//! A single write shares the stripe of its key until its commit is ordered, and waits for its
//! durability without it. A bulk load shares all stripes of its tree: single writes go on, batches
//! wait. A batch has the stripes of all its keys alone until it is done. Readers take none.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use medium::Medium;
use medium::sync::{
    ExclusiveGuard, Mutex, Share, SharedGuard, SharedLock, is_scheduled, pause, thread_number,
    wait_for_announced,
};
use pool::Pool;

use super::journal::Journal;
use crate::index::record::prefix_word;
use crate::index::{
    Bounds, Condition, Direction, Epochs, Index, IndexStat, LeftOut, Measured, NextEntry, Scan,
    Value, Violation, WordIndex,
};
use crate::{ErrorKind, Result};

/// How often a batch looks whether a load is over.
const WAIT: Duration = Duration::from_millis(1);

/// Stripes of a tree. A batch of a few hundred keys locks most of them.
const STRIPES: usize = 64;

/// The stripes of one tree.
#[derive(Debug)]
pub struct Stripes {
    stripes: [CachePadded<SharedLock>; STRIPES],
    /// The threads that load the tree, by their numbers.
    loaders: Mutex<Vec<usize>>,
}

impl Default for Stripes {
    fn default() -> Self {
        Self {
            stripes: std::array::from_fn(|_| CachePadded::default()),
            loaders: Mutex::default(),
        }
    }
}

impl Stripes {
    /// The stripe of a key: of a tree of words, those of its eight bytes. Two keys may have the
    /// same one.
    #[inline]
    pub(super) fn of(&self, key: &[u8]) -> usize {
        let rest = if key.len() > 8 {
            prefix_word(&key[key.len() - 8..]).rotate_left(25)
        } else {
            0
        };
        Self::of_word(prefix_word(key) ^ rest)
    }

    #[inline(always)]
    fn of_word(word: u64) -> usize {
        (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - STRIPES.ilog2())) as usize
    }

    /// A share of a stripe. The source of a load, which has shares of all, gets none.
    #[inline(always)]
    fn share<M: Medium>(&self, stripe: usize) -> Option<Share<'_>> {
        // A scheduler knows no announced shares.
        let announced = if M::SCHEDULED {
            None
        } else {
            self.stripes[stripe].announce()
        };
        announced.or_else(|| self.wait::<M>(stripe))
    }

    #[cold]
    fn wait<M: Medium>(&self, stripe: usize) -> Option<Share<'_>> {
        let stripe = &self.stripes[stripe];
        stripe
            .try_share()
            .or_else(|| (!self.is_loader::<M>()).then(|| stripe.share()))
            .map(Share::from)
    }

    /// Shares of all stripes, for a load.
    fn share_all<M: Medium>(&self) -> Loader<'_, M> {
        // Before the shares, so that a batch that waits for one of them sees why.
        self.loaders.lock().push(thread_number::<M>());
        let shares = self.stripes.iter().map(|stripe| stripe.share()).collect();
        Loader {
            stripes: self,
            _shares: shares,
            medium: PhantomData,
        }
    }

    /// Whether the calling thread loads the tree, and calls from the source of the load.
    pub(super) fn is_loader<M: Medium>(&self) -> bool {
        self.loaders.lock().contains(&thread_number::<M>())
    }

    /// Whether a thread loads the tree.
    fn is_loaded(&self) -> bool {
        !self.loaders.lock().is_empty()
    }

    /// Waits until no thread loads the tree. The calling thread holds no stripe of any tree: the
    /// source of the load may want it.
    pub(super) fn wait_for_loads<M: Medium>(&self) {
        let mut spins = 0;
        while self.is_loaded() {
            if is_scheduled::<M>() {
                pause(&mut spins);
            } else {
                std::thread::sleep(WAIT);
            }
        }
    }

    /// The stripe alone; `None` if the tree is being loaded. A thread takes several in ascending
    /// order, and then waits for the writes that share them already ([`wait_for_writes`]).
    pub(super) fn lock(&self, stripe: usize) -> Option<ExclusiveGuard<'_>> {
        loop {
            let locked = self.stripes[stripe].try_lock();
            if locked.is_some() || self.is_loaded() {
                return locked;
            }
        }
    }
}

/// Waits until the single writes are over that began before the calling thread locked these
/// stripes.
pub(super) fn wait_for_writes<'s, M: Medium>(stripes: impl Iterator<Item = (&'s Stripes, usize)>) {
    if !M::SCHEDULED {
        wait_for_announced(stripes.map(|(stripes, stripe)| &*stripes.stripes[stripe]));
    }
}

/// A thread that loads a tree, until this is dropped.
struct Loader<'s, M: Medium> {
    stripes: &'s Stripes,
    _shares: Vec<SharedGuard<'s, ()>>,
    medium: PhantomData<M>,
}

impl<M: Medium> Drop for Loader<'_, M> {
    fn drop(&mut self) {
        let (own, mut loaders) = (thread_number::<M>(), self.stripes.loaders.lock());
        if let Some(index) = loaders.iter().position(|loader| *loader == own) {
            loaders.swap_remove(index);
        }
    }
}

/// A tree above which lie its stripes.
pub(crate) struct Striped<M: Medium, T> {
    tree: T,
    as_words: Option<fn(&Self) -> &dyn WordIndex>,
    stripes: Stripes,
    /// Of all trees of the pool.
    journal: Arc<Journal>,
    pool: Pool<M>,
}

impl<M: Medium, T: Index> Striped<M, T> {
    /// A tree of records.
    pub(crate) fn records(pool: &Pool<M>, tree: T) -> Self {
        let (stripes, journal) = (Stripes::default(), Journal::of(pool));
        Self {
            tree,
            as_words: None,
            stripes,
            journal,
            pool: pool.clone(),
        }
    }

    /// A tree of words.
    pub(crate) fn words(pool: &Pool<M>, tree: T) -> Self
    where
        T: WordIndex,
    {
        Self {
            as_words: Some(|striped| striped),
            ..Self::records(pool, tree)
        }
    }

    /// A write to one key.
    #[inline(always)]
    fn written<R>(&self, stripe: usize, write: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        if M::LATE {
            self.pool.peek().await_memory()?;
        }
        let share = self.stripes.share::<M>(stripe);
        self.journal.expect_whole()?;
        // The explorer leaves out each wait of an engine by itself, so on its medium an operation
        // waits with its share.
        if !M::LATE || M::SCHEDULED {
            return write(&self.tree);
        }
        let (result, lsn) = medium::deferred(|| write(&self.tree));
        drop(share);
        self.pool.peek().wait_for(lsn)?;
        result
    }
}

impl<M: Medium, T: Index> Index for Striped<M, T> {
    fn engine(&self) -> &'static str {
        self.tree.engine()
    }

    fn codec(&self) -> &'static str {
        self.tree.codec()
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.tree.get_into(key, value)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.tree.get(key)
    }

    fn write(&self, key: &[u8], value: Option<&[u8]>, condition: Condition<&[u8]>) -> Result<bool> {
        self.written(self.stripes.of(key), |tree| {
            tree.write(key, value, condition)
        })
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        self.tree.get_many(keys)
    }

    fn range<'i>(&'i self, bounds: Bounds, direction: Direction) -> Result<Box<dyn Scan + 'i>> {
        self.tree.range(bounds, direction)
    }

    fn mark(&self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        self.tree.mark(go_on)
    }

    fn len(&self) -> Result<u64> {
        self.tree.len()
    }

    fn is_empty(&self) -> Result<bool> {
        self.tree.is_empty()
    }

    fn bulk_load(&self, next: &mut NextEntry<'_>, fill: f64) -> Result<u64> {
        if self.stripes.is_loader::<M>() {
            return Err(ErrorKind::InBatch.into());
        }
        let _loader = self.stripes.share_all::<M>();
        self.journal.expect_whole()?;
        self.tree.bulk_load(next, fill)
    }

    fn check(&self) -> Result<Vec<Violation>> {
        self.tree.check()
    }

    fn salvage(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<Option<Vec<LeftOut>>> {
        self.tree.salvage(visit)
    }

    fn stat(&self) -> Result<IndexStat> {
        self.tree.stat()
    }

    fn reclaim(&self) {
        self.tree.reclaim();
    }

    fn destroy(&self) -> Result<()> {
        self.tree.destroy()
    }

    fn words(&self) -> Option<&dyn WordIndex> {
        self.as_words.map(|as_words| as_words(self))
    }

    fn epochs(&self) -> Option<&dyn Epochs> {
        self.tree.epochs()
    }

    fn measured(&self) -> Option<&dyn Measured> {
        self.tree.measured()
    }

    fn striped(&self) -> Option<(&Stripes, &dyn Index)> {
        Some((&self.stripes, &self.tree))
    }
}

impl<M: Medium, T: Index + WordIndex> WordIndex for Striped<M, T> {
    #[inline]
    fn get(&self, key: u64) -> Result<Option<u64>> {
        WordIndex::get(&self.tree, key)
    }

    fn write(&self, key: u64, value: Option<u64>, condition: Condition<u64>) -> Result<bool> {
        self.written(Stripes::of_word(key), |tree| {
            WordIndex::write(tree, key, value, condition)
        })
    }

    fn get_many(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        WordIndex::get_many(&self.tree, keys, values)
    }

    fn scan(&self, from: u64, visit: &mut dyn FnMut(&[[u64; 2]]) -> bool) -> Result<()> {
        self.tree.scan(from, visit)
    }
}
