//! The set of failed epochs: epochs that were running when their process ended.

use std::sync::atomic::Ordering;

use medium::Medium;
use medium::sync::AtomicBool;
use pool::{Guard, Pool};

use super::{EpochWords, Epochs, Shards, checked, unchecked};
use crate::{Error, Result};

/// Reads the set of failed epochs.
fn read_failed<M: Medium>(guard: &Guard<'_, M>, at: u64, cells: &EpochWords) -> Result<Vec<u64>> {
    let words = cells.failed.iter().map(|cell| cell.load(guard)).filter(|word| *word != 0);
    let damaged = || Error::corrupt(at, "the set of failed epochs is damaged");
    words.map(|word| unchecked(word).ok_or_else(damaged)).collect()
}

/// Adds an epoch to the set of failed ones.
fn fail<M: Medium>(
    guard: &Guard<'_, M>,
    at: u64,
    cells: &EpochWords,
    epoch: u64,
    failed: &mut Vec<u64>,
) -> Result<()> {
    if failed.contains(&epoch) {
        return Ok(());
    }
    let Some(cell) = cells.failed.iter().find(|cell| cell.load(guard) == 0) else {
        return Err(Error::corrupt(at, "the set of failed epochs is full"));
    };
    // PERSIST: the nodes are restored; lost, they are restored once more.
    cell.publish(guard, checked(epoch));
    guard.fence();
    failed.push(epoch);
    Ok(())
}

impl<M: Medium, S: Default> Epochs<M, S> {
    /// Goes on with the epochs of an earlier process, with `first` or a later one. If an epoch was running, `undo` undoes what has to
    /// be undone of it at once, durably ordered; then the epoch has failed. Returns whether one has.
    pub(in super::super) fn open(
        pool: &Pool<M>,
        words: u64,
        shards: &Shards,
        first: u64,
        undo: impl FnOnce(u64) -> Result<()>,
    ) -> Result<(Self, bool)> {
        let guard = pool.peek();
        let cells = guard.node::<EpochWords>(words)?;
        let running = unchecked(cells.running.load(&guard)).filter(|running| (1..1 << 47).contains(running));
        let Some(running) = running else {
            return Err(Error::corrupt(words, "the number of the running epoch is damaged"));
        };
        let mut failed = read_failed(&guard, words, cells)?;
        if failed.iter().any(|epoch| *epoch > running) {
            return Err(Error::corrupt(words, "an epoch has failed that never began"));
        }
        let has_failed = cells.clean.load(&guard) != checked(1);
        if has_failed {
            undo(running)?;
            fail(&guard, words, cells, running, &mut failed)?;
        }
        let mut epochs = Self::new(pool, words, shards, first.max(running + 1));
        // PERSIST: the failed epoch is in the set, and what had to be undone is; lost, both are done once more. Not clean before the
        // epoch begins: both words lie in one line. Whatever is durable later is so after this, so there is nothing to wait for.
        cells.clean.store(&guard, checked(0));
        cells.running.publish(&guard, checked(epochs.first));
        guard.fence();
        epochs.any_failed = AtomicBool::new(!failed.is_empty());
        epochs.failed = failed;
        Ok((epochs, has_failed))
    }
}

impl<M: Medium, S> Epochs<M, S> {
    /// Notes in the pool that the running epoch has not failed, although it does not end. An epoch has ended just before.
    pub(in super::super) fn close(&self) -> Result<()> {
        if self.are_over() {
            return Ok(());
        }
        let guard = self.pool.peek();
        // PERSIST: the last epoch is complete, and nothing was written since; lost, an empty epoch has failed.
        guard.node::<EpochWords>(self.words)?.clean.publish(&guard, checked(1));
        Ok(guard.drain()?)
    }

    /// Empties the set of failed epochs: nothing is left that was written in one.
    pub(in super::super) fn forget_failed(&self) -> Result<()> {
        let _ended = self.ended.lock();
        if self.are_over() {
            return Ok(());
        }
        let guard = self.pool.peek();
        for cell in &guard.node::<EpochWords>(self.words)?.failed {
            // PERSIST: no node and no link of a failed epoch is left; lost, they are looked for once more.
            cell.publish(&guard, 0);
        }
        guard.drain()?;
        self.any_failed.store(false, Ordering::Release);
        Ok(())
    }
}
