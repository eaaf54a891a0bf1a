//! Recovery (section 4.3 of the paper).
//!
//! An open after a crash takes these steps. Each may be repeated after another crash.
//!
//! 1. The nodes that the external log holds of the failed epoch are restored, in parallel, and made durable.
//! 2. The epoch is added to the set of failed epochs, and the next epoch begins.
//! 3. The ends of the free queues and the root are restored from their in-line logs. The tree is usable.
//! 4. Every other node is recovered when it is first touched: its epoch word is older than this execution.
//! 5. A background sweep touches the nodes that are left, and then empties the set of failed epochs (`sweep`).
//!
//! A first touch that restores nothing is not listed for the end of the epoch, so reads write nothing. It stores a lock and a
//! stamp, which mean something to this process only, and a permutation log that equals the permutation, all in the header
//! line. If the cache writes that line back anyway, the node still reads as unchanged. As long as it does not, the epoch word
//! on the medium may be arbitrarily old. So the new one is marked (`TOUCHED`), and made durable before the first value log,
//! whose sixteen bits depend on it (`in_line_log`).

use std::sync::atomic::Ordering;

use medium::{Medium, Word};
use pool::Guard;

use super::Core;
use super::access::{View, Walk};
use super::in_line_log::{EPOCHS_APART_MAX, ValueLog};
use super::layout::{
    Anchor, Border, EPOCH_MASK, FAILED_RANGES, HEADER_LINE, HIGH_SLOTS, INTERIOR, LOW_SLOTS, Logged,
    OFFSET_MASK, SHARDS, TOUCHED, WordBorder, checked, line_of, unchecked,
};
use super::permutation::Permutation;
use super::version::Version;
use crate::{Error, Result};

/// Ranges in the set of failed epochs from which on an open sweeps at once.
const RANGES_SWEPT_AT: usize = FAILED_RANGES - 4;

/// First and last epoch of a range.
pub(super) type Failed = Vec<(u64, u64)>;

impl<M: Medium> Core<M> {
    /// Whether an epoch failed. The set is empty but for the time between a crash and the end of the sweep.
    #[inline]
    pub(super) fn has_failed(&self, epoch: u64) -> bool {
        self.any_failed.load(Ordering::Acquire)
            && self.failed.iter().any(|(first, last)| (*first..=*last).contains(&epoch))
    }

    /// What the anchor says of failed epochs.
    pub(super) fn read_failed(guard: &Guard<'_, M>, anchor: u64) -> Result<Failed> {
        let mut failed = Failed::new();
        for range in &guard.node::<Anchor>(anchor)?.failed {
            let (first, last) = (range[0].load(guard), range[1].load(guard));
            if first == 0 {
                continue;
            }
            match (unchecked(first), unchecked(last)) {
                (Some(first), Some(last)) if first <= last => failed.push((first, last)),
                _ => return Err(Error::corrupt(anchor, "the set of failed epochs is damaged")),
            }
        }
        Ok(failed)
    }

    /// Undoes, as far as it has to be done at once, what the epoch `failed` did; then it is in the set.
    pub(super) fn fail(guard: &Guard<'_, M>, anchor: u64, failed: u64, ranges: &mut Failed) -> Result<()> {
        let cells = &guard.node::<Anchor>(anchor)?.failed;
        if ranges.iter().any(|(first, last)| (*first..=*last).contains(&failed)) {
            return Ok(());
        }
        let follows = |range: &[Word; 2]| {
            range[0].load(guard) != 0 && unchecked(range[1].load(guard)) == Some(failed - 1)
        };
        if let Some(range) = cells.iter().find(|range| follows(range)) {
            // PERSIST: the nodes are put back; lost, they are put back once more.
            range[1].publish(guard, checked(failed));
            ranges.iter_mut().filter(|range| range.1 == failed - 1).for_each(|range| range.1 = failed);
        } else if let Some(range) = cells.iter().find(|range| range[0].load(guard) == 0) {
            range[1].store(guard, checked(failed));
            // PERSIST: as above; the end of the range lies in the same line, before.
            range[0].publish(guard, checked(failed));
            ranges.push((failed, failed));
        } else {
            return Err(Error::corrupt(anchor, "the set of failed epochs is full"));
        }
        guard.fence();
        Ok(())
    }

    /// Puts back what the external log has of `epoch`, on some threads.
    pub(super) fn restore(&self, epoch: u64, threads: usize) -> Result<u64> {
        let restore = |thread: usize, step: usize| -> Result<u64> {
            let guard = self.pool.peek();
            let mut restored = 0;
            for shard in (thread..SHARDS).step_by(step) {
                restored += self.restore_nodes(&guard, shard, epoch)?;
            }
            // Ordered before the epoch is in the set; nobody reads the log of an epoch that is.
            guard.fence();
            Ok(restored)
        };
        let threads = threads.clamp(1, SHARDS);
        if threads == 1 {
            return restore(0, 1);
        }
        std::thread::scope(|scope| {
            let part = |thread| move || restore(thread, threads);
            let running: Vec<_> = (0..threads)
                .map(|thread| std::thread::Builder::new().spawn_scoped(scope, part(thread)))
                .collect();
            let panicked = || Error::corrupt(self.anchor, "the external log could not be read");
            let results = running.into_iter().enumerate().map(|(thread, helper)| match helper {
                Ok(helper) => helper.join().unwrap_or_else(|_| Err(panicked())),
                // The system gives no more threads.
                Err(_) => restore(thread, threads),
            });
            results.sum()
        })
    }

    /// Puts the root, the runs and the free queues back to where the last completed epoch had them.
    pub(super) fn recover_cells(&self, guard: &Guard<'_, M>) -> Result<()> {
        let anchor = guard.node::<Anchor>(self.anchor)?;
        for cell in [&anchor.root, &anchor.runs] {
            let Logged { epoch, old, value } = cell;
            if self.has_failed(epoch.load(guard)) {
                // The epoch stays: until it is forgotten, a crash puts the same back once more.
                value.store(guard, old.load(guard));
                self.list_touched(self.anchor + 64, 64);
            }
        }
        self.recover_queues(guard)
    }

    /// Whether an open should sweep before it returns.
    pub(super) fn is_sweep_due(&self) -> bool {
        self.failed.len() >= RANGES_SWEPT_AT
    }
}

impl<M: Medium> View<'_, M> {
    /// Recovers a node that this execution touches for the first time.
    pub(super) fn recover_node(&self, pointer: u64) -> Walk<()> {
        let offset = pointer & OFFSET_MASK;
        let number = (offset / 64) as usize % self.core.recovery_locks.len();
        let _lock = self.core.recovery_locks[number].lock();
        if pointer & INTERIOR != 0 {
            let node = self.guard.node::<super::layout::Interior>(offset)?;
            if node.epoch.load(&self.guard) & EPOCH_MASK < self.core.first {
                Version::start(&self.guard, &node.version);
                node.listed.start(&self.guard, 0);
                // ORDER: pairs with the load in `interior`: the version is visible.
                node.epoch.store(&self.guard, self.epoch_word());
            }
            return Ok(());
        }
        if self.core.are_words {
            self.guard.node::<WordBorder>(offset)?;
        }
        let node = self.guard.node::<Border>(offset)?;
        let old = node.epoch.load(&self.guard) & EPOCH_MASK;
        if old >= self.core.first {
            return Ok(());
        }
        let logs = [&node.values.log_low, &node.values.log_high];
        let is_listed = self.core.has_failed(old) || logs.iter().any(|log| log.load(&self.guard) != 0);
        let recovered = self.recover_border(node, old);
        if is_listed {
            // Also if it is damaged: what was put back is not done once more when the failed epochs are forgotten.
            let lines = logs.iter().fold(HEADER_LINE, |lines, log| lines | line_of(node, log));
            self.core.list_touched_lines(offset, lines);
        }
        recovered
    }

    /// Applies the in-line logs of a border node whose last epoch was `old`.
    fn recover_border(&self, node: &Border, old: u64) -> Walk<()> {
        let guard = &self.guard;
        let (mut is_cleared, mut oldest) = (false, old);
        let halves = [(&node.values.log_low, LOW_SLOTS), (&node.values.log_high, HIGH_SLOTS)];
        for (cell, slots) in halves {
            let log = ValueLog(cell.load(guard));
            if log.0 == 0 {
                continue;
            }
            let epoch = log.epoch(old);
            oldest = oldest.min(epoch);
            if self.core.has_failed(epoch) && slots.contains(&log.slot()) {
                node.values.value(log.slot()).store(guard, log.value());
            }
            // After the value, in the same line.
            cell.store(guard, 0);
            is_cleared = true;
        }
        if is_cleared && self.epoch - oldest >= EPOCHS_APART_MAX {
            // PERSIST: beside the new epoch word the sixteen bits of the old log would mean another epoch.
            guard.flush(&node.values);
            guard.fence();
        }
        if self.core.has_failed(old) {
            node.permutation.store(guard, node.permutation_log.load(guard));
        }
        node.permutation_log.store(guard, node.permutation.load(guard));
        if !Permutation(node.permutation.load(guard)).is_sound(self.core.width) {
            return Err(Error::corrupt(guard.offset_of(node), "a permutation that is none").into());
        }
        Version::start(guard, &node.version);
        node.listed.start(guard, 0);
        // ORDER: pairs with the load in `border`: what was put back, and the version, are visible.
        node.epoch.store(guard, self.epoch_word() | TOUCHED);
        Ok(())
    }
}
