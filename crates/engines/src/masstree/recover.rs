//! Recovery of a node that is touched for the first time after an open (section 4.3 of the paper).
//!
//! A first touch that restores nothing is not listed for the end of the epoch, so reads write
//! nothing. It stores a lock and a stamp, which only this process uses, and a permutation log that
//! equals the permutation, all in the header line. If the cache writes that line back anyway, the
//! node still reads as unchanged. Until the cache writes it back, the epoch word on the medium may
//! be arbitrarily old. So the new one is marked (`TOUCHED`), and made durable before the first
//! value log, whose sixteen bits depend on it (`in_line_log`).

use medium::Medium;
use pool::Guard;

use super::core::Core;
use super::layout::{
    Border, EPOCH_MASK, HEADER_LINE, HIGH_SLOTS, INTERIOR, Interior, LOW_SLOTS, OFFSET_MASK,
    TOUCHED, WordBorder, line_of,
};
use super::permutation::Permutation;
use super::value_log::{EPOCHS_APART_MAX, ValueLog};
use crate::{Error, Result};

impl<M: Medium> Core<M> {
    /// Recovers a node, in the epoch `running`, unless it was touched in this execution.
    pub(super) fn recover_node(
        &self,
        guard: &Guard<'_, M>,
        running: u64,
        pointer: u64,
    ) -> Result<()> {
        let offset = pointer & OFFSET_MASK;
        let number = (offset / 64) as usize % self.recovery_locks.len();
        let _lock = self.recovery_locks[number].lock();
        if pointer & INTERIOR != 0 {
            let node = guard.node::<Interior>(offset)?;
            if node.epoch.load(guard) & EPOCH_MASK < self.epochs.first {
                node.version.start(guard, 0);
                node.listed.start(guard, 0);
                // ORDER: pairs with the load in `interior`: the version is visible.
                node.epoch.store(guard, running | self.stamp);
            }
            return Ok(());
        }
        if self.are_words {
            guard.node::<WordBorder>(offset)?;
        }
        let node = guard.node::<Border>(offset)?;
        let old = node.epoch.load(guard) & EPOCH_MASK;
        if old >= self.epochs.first {
            return Ok(());
        }
        let logs = [&node.values.log_low, &node.values.log_high];
        let is_listed = self.epochs.has_failed(old) || logs.iter().any(|log| log.load(guard) != 0);
        let recovered = self.recover_border(guard, running, node, old);
        if is_listed {
            // This is done even if the node is damaged: once the failed epochs are forgotten, the
            // restoration is not repeated.
            let lines = logs
                .iter()
                .fold(HEADER_LINE, |lines, log| lines | line_of(node, log));
            self.epochs.list_touched_lines(offset, lines);
        }
        recovered
    }

    /// Applies the in-line logs of a border node whose last epoch was `old`.
    fn recover_border(
        &self,
        guard: &Guard<'_, M>,
        running: u64,
        node: &Border,
        old: u64,
    ) -> Result<()> {
        let mut is_cleared = false;
        let mut oldest = old;
        let halves = [
            (&node.values.log_low, LOW_SLOTS),
            (&node.values.log_high, HIGH_SLOTS),
        ];
        for (cell, slots) in halves {
            let log = ValueLog(cell.load(guard));
            if log.0 == 0 {
                continue;
            }
            let epoch = log.epoch(old);
            oldest = oldest.min(epoch);
            if self.epochs.has_failed(epoch) && slots.contains(&log.slot()) {
                node.values.value(log.slot()).store(guard, log.value());
            }
            // This store comes after the value's, in the same line.
            cell.store(guard, 0);
            is_cleared = true;
        }
        if is_cleared && running - oldest >= EPOCHS_APART_MAX {
            // PERSIST: with the new epoch word the sixteen bits of the old log would stand for
            // another epoch.
            guard.flush(&node.values);
            guard.fence();
        }
        if self.epochs.has_failed(old) {
            node.permutation
                .store(guard, node.permutation_log.load(guard));
        }
        node.permutation_log
            .store(guard, node.permutation.load(guard));
        if !Permutation(node.permutation.load(guard)).is_sound(self.width) {
            return Err(Error::corrupt(
                guard.offset_of(node),
                "a permutation that is none",
            ));
        }
        node.version.start(guard, 0);
        node.listed.start(guard, 0);
        // ORDER: pairs with the load in `border`: the restored values and the version are visible.
        node.epoch.store(guard, running | self.stamp | TOUCHED);
        Ok(())
    }
}
