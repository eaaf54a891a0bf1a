//! The set of failed epochs: epochs that were running when their process ended.

use std::sync::atomic::{AtomicBool, Ordering};

use medium::Medium;
use pool::{Guard, Pool};

use super::{EpochWords, Epochs, FAILED_MAX, Shards, checked, load_twice};
use crate::{Error, Result};

/// The set of failed epochs.
type Failed = [Option<u64>; FAILED_MAX];

/// Reads the set of failed epochs.
fn read_failed<M: Medium>(guard: &Guard<'_, M>, at: u64, cells: &EpochWords) -> Result<Failed> {
    let (damaged, mut failed) =
        (|| Error::corrupt(at, "the set of failed epochs is damaged"), Failed::default());
    for (index, epoch) in failed.iter_mut().enumerate() {
        *epoch = load_twice(guard, cells.failed.each_ref().map(|copy| &copy[index]), damaged)?;
    }
    Ok(failed)
}

/// Makes this the set of failed epochs, in both copies.
fn write_failed<M: Medium>(guard: &Guard<'_, M>, cells: &EpochWords, failed: &Failed) {
    for copy in &cells.failed {
        for (cell, epoch) in copy.iter().zip(failed) {
            let word = epoch.map_or(0, checked);
            if cell.load(guard) != word {
                // PERSIST: of a failed epoch the nodes are restored; lost, they are restored once more.
                cell.publish(guard, word);
            }
        }
    }
    guard.fence();
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
        let damaged = || Error::corrupt(words, "the number of the running epoch is damaged");
        let running = load_twice(&guard, [&cells.running, &cells.running_again], damaged)?;
        let running = running.filter(|running| (1..1 << 47).contains(running)).ok_or_else(damaged)?;
        let mut failed = read_failed(&guard, words, cells)?;
        if failed.iter().flatten().any(|epoch| *epoch > running) {
            return Err(Error::corrupt(words, "an epoch has failed that never began"));
        }
        let has_failed = cells.clean.load(&guard) != checked(1);
        if has_failed {
            undo(running)?;
            if !failed.contains(&Some(running)) {
                let free = failed.iter_mut().find(|epoch| epoch.is_none());
                let full = || Error::corrupt(words, "the set of failed epochs is full");
                *free.ok_or_else(full)? = Some(running);
            }
        }
        write_failed(&guard, cells, &failed);
        let mut epochs = Self::new(pool, words, shards, first.max(running + 1));
        // PERSIST: the failed epoch is in the set, and what had to be undone is; lost, both are done once more. Not clean before the
        // epoch begins: both words lie in one line. Whatever is durable later is so after this, so there is nothing to wait for.
        cells.clean.store(&guard, checked(0));
        cells.running_again.store(&guard, checked(epochs.first));
        cells.running.publish(&guard, checked(epochs.first));
        guard.fence();
        epochs.failed = failed.into_iter().flatten().collect();
        epochs.any_failed = AtomicBool::new(!epochs.failed.is_empty());
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
        // No node and no link of a failed epoch is left.
        write_failed(&guard, guard.node::<EpochWords>(self.words)?, &Failed::default());
        guard.drain()?;
        self.any_failed.store(false, Ordering::Release);
        Ok(())
    }
}
