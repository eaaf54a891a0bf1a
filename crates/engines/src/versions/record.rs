//! Recording what a write replaces, before it is published.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use medium::sync::{Mutex, MutexGuard, Ordering};
use rustc_hash::FxHasher;

use super::changes::{OldValue, Stamp, TreeVersions};
use super::clock::Clock;
use super::read_set::{ReadSet, SortedReads};
use super::{KEY_LOCKS, PlantedFault, StoreView, Versions, VersionsFault};
#[cfg(doc)]
use crate::ErrorKind;
use crate::Result;

/// So few writes that a transaction compares its reads with them under the lock of the clock.
const FEW_WRITES: u64 = 32;
/// How often a transaction compares its reads with the writes since its last check without that
/// lock, if these were more.
const CHECKS_WITHOUT_LOCK: u32 = 8;

/// A write that has a stamp and is not published yet; views with later stamps wait for its drop.
#[derive(Debug)]
pub(crate) struct UnpublishedWrite<'v> {
    versions: &'v Versions,
    stamp: Stamp,
    /// Whether it is a transaction, for which versions stay on.
    is_transaction: bool,
}

impl UnpublishedWrite<'_> {
    /// Notes that the write is a batch that only the next open can finish. Views that ought to have
    /// it fail.
    pub(crate) fn leave_unfinished(self) {
        let versions = self.versions;
        let stamp = self.stamp;
        if versions.faults.has(VersionsFault::UnfinishedTooLate) {
            drop(self);
            Versions::reach_switch();
            versions.unfinished.fetch_min(stamp, Ordering::AcqRel);
            return;
        }
        // ORDER: it is noted before the drop ends the wait of views for this write.
        versions.unfinished.fetch_min(stamp, Ordering::AcqRel);
    }
}

impl Drop for UnpublishedWrite<'_> {
    fn drop(&mut self) {
        let mut clock = self.versions.lock_clock();
        if self.is_transaction {
            clock.end_transaction(self.stamp);
        } else {
            clock.end_write(self.stamp);
        }
    }
}

/// A key that a batch changes.
#[derive(Debug)]
pub(crate) struct BatchChange<'b> {
    pub(crate) tree: &'b Arc<TreeVersions>,
    pub(crate) key: &'b [u8],
}

/// What must not have changed since a view was opened, for a transaction that commits.
#[derive(Debug)]
pub(crate) struct TransactionCheck<'b> {
    pub(crate) view: &'b StoreView,
    pub(crate) reads: &'b ReadSet,
}

impl Versions {
    /// Locks a key, for a single write.
    pub(crate) fn lock_key(&self, tree: &TreeVersions, key: &[u8]) -> Option<MutexGuard<'_, ()>> {
        if self.faults.has(VersionsFault::NoKeyLock) {
            return None;
        }
        let locks = self
            .key_locks
            .get_or_init(|| (0..KEY_LOCKS).map(|_| Mutex::new(())).collect());
        let mut hasher = FxHasher::default();
        tree.number().hash(&mut hasher);
        key.hash(&mut hasher);
        Some(locks[hasher.finish() as usize % KEY_LOCKS].lock())
    }

    /// Takes a stamp for a single write, and records what it replaces if there is a view. The key is
    /// locked, and its stripe is shared.
    ///
    /// # Errors
    /// Those of `read_old`, but for damage.
    pub(crate) fn record_write(
        &self,
        tree: &Arc<TreeVersions>,
        key: &[u8],
        read_old: impl Fn() -> Result<OldValue>,
    ) -> Result<UnpublishedWrite<'_>> {
        {
            let mut clock = self.lock_clock();
            if !clock.has_views() {
                self.switch_off_if_idle(&mut clock);
                return Ok(self.stamped(&mut clock));
            }
        }
        // A view is open, so all writes that have not seen the switch have ended, and the others of
        // this key wait for its lock: the value stays as it is until this write.
        let old = read_old()?;
        let mut clock = self.lock_clock();
        let write = self.stamped(&mut clock);
        if self.faults.has(VersionsFault::StampThenRecord) {
            drop(clock);
            clock = self.lock_clock();
        }
        clock.record(tree, key, write.stamp, old);
        self.end_record(clock);
        Ok(write)
    }

    /// Takes a stamp for a batch, and records what it replaces if there is a view. If the batch is a
    /// transaction, its reads are checked in the same step. The stripes of the keys are locked.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`], [`ErrorKind::ViewTooOld`] for a transaction; those of `read_old`, but
    /// for damage.
    pub(crate) fn record_batch(
        &self,
        changes: &[BatchChange<'_>],
        read_old: impl Fn(usize) -> Result<OldValue>,
        check: Option<&TransactionCheck<'_>>,
    ) -> Result<UnpublishedWrite<'_>> {
        let checked_up_to = {
            let mut clock = self.lock_clock();
            if !clock.has_views() && check.is_none() {
                self.switch_off_if_idle(&mut clock);
                return Ok(self.stamped(&mut clock));
            }
            clock.stamp
        };
        if let Some(check) = check {
            // Most conflicts are found here, where no other write waits.
            check.expect_unchanged_since(check.view.stamp(), self.faults)?;
        }
        // A view is open, so all writes that have not seen the switch have ended, and the others of
        // these keys wait for their stripes: the values stay as they are until this batch.
        let old_values: Vec<OldValue> = (0..changes.len()).map(read_old).collect::<Result<_>>()?;
        let mut clock = match check {
            Some(check) => self.lock_clock_unchanged(check, checked_up_to)?,
            None => self.lock_clock(),
        };
        let mut write = match check {
            Some(_) => self.stamped_transaction(&mut clock),
            None => self.stamped(&mut clock),
        };
        for (change, value) in changes.iter().zip(old_values) {
            clock.record(change.tree, change.key, write.stamp, value);
            if self.faults.has(VersionsFault::StampForEachWrite) {
                drop(clock);
                drop(write);
                clock = self.lock_clock();
                write = self.stamped(&mut clock);
            }
        }
        self.end_record(clock);
        Ok(write)
    }

    /// Takes a stamp for a bulk load, and records that its tree was empty. The calling thread has all
    /// stripes of the tree alone.
    pub(crate) fn record_load(&self, tree: &Arc<TreeVersions>) -> UnpublishedWrite<'_> {
        let mut clock = self.lock_clock();
        let write = self.stamped(&mut clock);
        if clock.has_views() && !self.faults.has(VersionsFault::LoadNotRecorded) {
            clock.record_load(tree, write.stamp);
        }
        write
    }

    /// Keeps the changes within their bound after some were recorded, and unlocks the clock.
    fn end_record(&self, mut clock: MutexGuard<'_, Clock>) {
        clock.keep_within(self.bytes_max);
        let forgotten = clock.forgotten_view();
        drop(clock);
        if let Some(view) = forgotten {
            self.note_forgotten(view);
        }
    }

    /// Locks the clock at a moment at which nothing has changed that a transaction has read.
    /// Everything up to `checked_up_to` was checked already.
    fn lock_clock_unchanged(
        &self,
        check: &TransactionCheck<'_>,
        mut checked_up_to: Stamp,
    ) -> Result<MutexGuard<'_, Clock>> {
        let sorted_reads = check.reads.sorted();
        let mut clock = self.lock_clock();
        // Reads that are many are checked against writes that are many without the lock.
        for _ in 0..CHECKS_WITHOUT_LOCK {
            let writes_since = clock.stamp - checked_up_to;
            if writes_since <= FEW_WRITES {
                break;
            }
            let check_from = std::mem::replace(&mut checked_up_to, clock.stamp);
            drop(clock);
            check.expect_unchanged_since(check_from, self.faults)?;
            clock = self.lock_clock();
        }
        if !self.faults.has(VersionsFault::EndedViewCommits) {
            check.view.expect_whole()?;
        }
        check.expect_unchanged_lately(&sorted_reads, checked_up_to, self.faults)?;
        Ok(clock)
    }

    fn stamped(&self, clock: &mut Clock) -> UnpublishedWrite<'_> {
        UnpublishedWrite {
            versions: self,
            stamp: clock.begin_write(),
            is_transaction: false,
        }
    }

    fn stamped_transaction(&self, clock: &mut Clock) -> UnpublishedWrite<'_> {
        UnpublishedWrite {
            versions: self,
            stamp: clock.begin_transaction(),
            is_transaction: true,
        }
    }
}

impl TransactionCheck<'_> {
    /// Checks that nothing that the transaction has read has changed since a stamp.
    fn expect_unchanged_since(&self, stamp: Stamp, faults: PlantedFault) -> Result<()> {
        if faults.has(VersionsFault::NoCheck) {
            return Ok(());
        }
        self.reads.expect_unchanged_since(stamp)
    }

    /// Does the same for a stamp that is not long ago, under the lock of the clock. `sorted_reads` are
    /// the reads of this transaction.
    fn expect_unchanged_lately(
        &self,
        sorted_reads: &SortedReads<'_>,
        stamp: Stamp,
        faults: PlantedFault,
    ) -> Result<()> {
        if faults.has(VersionsFault::NoCheck) || faults.has(VersionsFault::CheckThenStamp) {
            return Ok(());
        }
        sorted_reads.expect_unchanged_lately(stamp)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
