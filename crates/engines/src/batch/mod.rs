//! Batches: writes to any trees of a pool, of which a crash leaves all or none.
//!
//! # Locks
//!
//! Each tree has stripes ([`Stripes`]); each key belongs to one of them. A batch locks the stripes
//! of all its keys, in ascending order of trees and stripes. A single write shares the stripe of
//! its key. A batch waits for the end of a bulk load, which takes all stripes of its tree before it
//! is published. So no other write to a key of the batch comes between its steps. Readers take no stripe: they may see a batch half applied.
//!
//! A batch that holds stripes may wait for an epoch to end. The end of an epoch takes no stripe, so
//! the two never wait for each other.
//!
//! # Views
//!
//! While views are open ([`crate::versions`]), a batch reads what it replaces and takes a stamp
//! before it writes anything. A transaction is a batch whose reads are checked in that step.
//!
//! # Steps
//!
//! A tree is durable *immediately* (an operation is durable when it returns) or *by epochs*.
//!
//! 1. Lock the stripes. Check the conditions. Set aside slabs for the worst case.
//! 2. *Writes by epochs alone*: apply the batch within one epoch. The end of that epoch is the
//!    commit. There is no journal entry.
//! 3. *Immediate writes alone*: write the new records, then a journal entry that lists all writes,
//!    then publish the entry in a slot of the pool's prefix: the commit. Apply the writes; the
//!    trees take over the records.
//! 4. *Both*: write the records. Within one epoch, publish an entry that lists the immediate writes
//!    and names the epoch, and apply the other writes. The end of that epoch is the commit. Then
//!    apply the immediate writes.
//! 5. Clear the slot; that is ordered before any later write to these keys. Unlock the stripes.
//!    Wait until all of it is durable.
//!
//! A batch of immediate writes takes step 4 as well if a condition has read a state that the
//! running epoch has changed: a crash may take that state back. The locked stripes keep the state
//! until the batch is done, so the epoch of the entry is that of the state or a later one. After a
//! crash both are there, or neither is. If the epoch of the state has ended, its end is ordered
//! before the entry, and the batch takes step 3.
//!
//! # Recovery
//!
//! An open reads the slots before it opens any tree ([`Unfinished::read`]), because the first epoch
//! tree that opens starts a new epoch. If an entry names an epoch that did not end, the entry is
//! dropped. All other entries are applied again. A write that had been applied before the crash
//! changes nothing, since no other write to its key came between. Writes to a tree that does not
//! open stay in the journal.
//!
//! # What a crash may leave behind
//!
//! The space of an entry, and of records that no tree has taken over. The mark of the pool frees
//! it.

mod journal;
mod recover;
mod room;
mod stripes;

use std::cell::{Cell, RefCell};

use medium::sync::ExclusiveGuard;
use medium::sync::schedule::{self, Access, AccessKind};
use medium::{Lsn, Medium};
use pool::{BatchSlot, Guard, Pool};

use self::journal::{ENTRY_BYTES_MAX, Logged, NO_EPOCH, entry_bytes, publish, write_entry};
use self::stripes::wait_for_writes;
use crate::engine::{CodecKind, Contract, EngineEntry};
use crate::index::{Condition, Epochs, Index, Observed, check_entry, record};
use crate::kit::write::Unpublished;
use crate::versions::{
    self, BatchChange, OldValue, ReadSet, StoreView, TransactionCheck, Versions, VersionsFault,
};
use crate::{ErrorKind, Result};

pub use self::recover::Unfinished;
pub use self::stripes::{StripedTree, StripedWords, Stripes};

/// The most writes of one batch to trees that are durable by epochs. An epoch has room to log the
/// nodes that this many writes change.
pub const EPOCH_WRITES_MAX: usize = 10_000;

/// A tree that a batch writes to, and its properties that matter to a batch.
#[derive(Clone, Copy)]
pub struct BatchTree<'b> {
    /// The tree's name, for errors.
    pub name: &'b str,
    /// The tree.
    pub tree: &'b StripedTree,
    /// The first root word of the tree, which no other tree of the pool has.
    pub anchor: u64,
    /// The coding of the tree's entries.
    pub codec: CodecKind,
    /// Whether the tree is durable by epochs.
    pub is_by_epochs: bool,
    /// Whether the tree is a trie: keys that share slices lie in layers below layers.
    pub is_trie: bool,
    /// Bytes of nodes that a write may allocate, at most.
    pub room_per_write: u32,
}

/// A write of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Write<'b> {
    /// The tree, by its number in the batch.
    pub tree: usize,
    /// The key.
    pub key: &'b [u8],
    /// Its new value; `None` removes the key.
    pub value: Option<&'b [u8]>,
}

/// A condition of a batch, on the state before it.
#[derive(Clone, Copy, Debug)]
pub struct BatchCondition<'b> {
    /// The tree, by its number in the batch.
    pub tree: usize,
    /// The key.
    pub key: &'b [u8],
    /// The condition on its value.
    pub condition: Condition<&'b [u8]>,
}

/// Writes of which a crash leaves all or none.
pub struct BatchRequest<'b> {
    /// The trees, each of them once.
    pub trees: Vec<BatchTree<'b>>,
    /// The writes. Of those to one key the last counts.
    pub writes: Vec<Write<'b>>,
    /// The conditions.
    pub conditions: Vec<BatchCondition<'b>>,
    /// The reads that must still hold, if the batch is a transaction.
    pub transaction: Option<TransactionReads<'b>>,
}

/// The reads of a transaction. It is written only if none of them has changed since.
#[derive(Clone, Copy, Debug)]
pub struct TransactionReads<'b> {
    /// The view in which it was read.
    pub view: &'b StoreView,
    /// The keys and ranges.
    pub reads: &'b ReadSet,
    /// The last read of a tree that is durable by epochs.
    pub epoch: Option<EpochRead<'b>>,
}

/// A read of a tree that is durable by epochs.
#[derive(Clone, Copy)]
pub struct EpochRead<'b> {
    /// The tree.
    pub tree: &'b StripedTree,
    /// The epoch that ran then.
    pub epoch: u64,
}

impl std::fmt::Debug for EpochRead<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("EpochRead")
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl<'b> BatchTree<'b> {
    /// A tree of an engine with this entry.
    pub fn new(
        name: &'b str,
        tree: &'b StripedTree,
        anchor: u64,
        codec: CodecKind,
        engine: &EngineEntry,
    ) -> Self {
        Self {
            name,
            tree,
            anchor,
            codec,
            is_by_epochs: engine.contract == Contract::Epoch,
            is_trie: engine.is_trie,
            room_per_write: engine.room_per_write,
        }
    }

    fn has_records(&self) -> bool {
        self.codec == CodecKind::Record
    }

    /// Checks a key, and a value if there is one, against the limits of the tree.
    ///
    /// # Errors
    /// [`ErrorKind::KeyTooLong`], [`ErrorKind::ValueTooLong`], [`ErrorKind::NotAWord`].
    pub fn check(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_entry(self.codec == CodecKind::Word, key, value.unwrap_or(&[0; 8]))
    }

    fn stripes(&self) -> &'b Stripes {
        self.tree.stripes()
    }
}

/// The size of a batch that is being built: it has limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BatchSize {
    /// Writes to trees that are durable by epochs.
    writes_by_epochs: usize,
    /// Bytes of a journal entry that lists the other writes.
    bytes: usize,
}

impl BatchSize {
    /// The size with one more write to a key that the batch has not written yet.
    ///
    /// # Errors
    /// [`ErrorKind::BatchTooLarge`].
    pub fn with(mut self, tree: &BatchTree<'_>, key: &[u8], value: Option<&[u8]>) -> Result<Self> {
        if tree.is_by_epochs {
            self.writes_by_epochs += 1;
        } else {
            if self.bytes == 0 {
                self.bytes = entry_bytes(&[], |_| false);
            }
            self.bytes += journal::bytes_of(key, value, false);
        }
        self.expect_within_limits()?;
        Ok(self)
    }

    /// The size without one of its writes.
    #[must_use]
    pub fn without(mut self, tree: &BatchTree<'_>, key: &[u8], value: Option<&[u8]>) -> Self {
        if tree.is_by_epochs {
            self.writes_by_epochs -= 1;
        } else {
            self.bytes -= journal::bytes_of(key, value, false);
        }
        self
    }

    fn expect_within_limits(self) -> Result<()> {
        if self.writes_by_epochs > EPOCH_WRITES_MAX {
            return Err(ErrorKind::BatchTooLarge {
                what: "writes to trees that are durable by epochs",
                size: self.writes_by_epochs,
                limit: EPOCH_WRITES_MAX,
            }
            .into());
        }
        if self.bytes > ENTRY_BYTES_MAX {
            return Err(ErrorKind::BatchTooLarge {
                what: "bytes",
                size: self.bytes,
                limit: ENTRY_BYTES_MAX,
            }
            .into());
        }
        Ok(())
    }
}

/// Writes a batch: all of it or nothing. Returns the LSN at which it is durable; the caller waits
/// for that. With trees that are durable by epochs alone it is durable with the end of the running
/// epoch, and there is nothing to wait for. O(writes * log n).
///
/// # Errors
/// [`ErrorKind::ConditionFailed`]; [`ErrorKind::Conflict`] and [`ErrorKind::ViewTooOld`] for a
/// transaction; [`ErrorKind::PoolFull`], [`ErrorKind::BatchTooLarge`] and the errors of single
/// writes for keys and values that their tree cannot hold: nothing was written.
/// [`ErrorKind::BatchUnfinished`], and the errors of media and of damaged trees: the next open
/// finishes the batch or undoes it, and nothing is written before that.
pub fn write<M: Medium>(pool: &Pool<M>, batch: &BatchRequest<'_>) -> Result<Lsn> {
    let writes = batch.writes_to_apply()?;
    let room = room::runs(batch, &writes.by_epochs, &writes.immediate);
    pool.peek().await_memory()?;

    let locked = batch.lock_stripes()?;
    pool.batch_slots().expect_whole()?;
    let failed = batch.failed_condition()?;
    if let Some(index) = failed.value {
        drop(locked);
        // A failed condition is an answer, so the state that it rests on must be durable.
        pool.peek().wait_for(failed.lsn)?;
        let tree = batch.trees[batch.conditions[index].tree].name.to_owned();
        return Err(ErrorKind::ConditionFailed { tree, index }.into());
    }

    let tree_by_epochs = batch.tree_by_epochs(&writes)?;

    let commit = BatchCommit {
        pool,
        batch,
        writes,
        tree_by_epochs,
    };
    let committed = pool.with_set_aside(&room, || commit.run())?;
    drop(locked);
    if let Some(first) = batch.trees.first() {
        first.tree.versions().store().tell_forgotten();
    }
    committed
}

/// Whether all batches that were begun are done or undone.
///
/// # Errors
/// [`ErrorKind::BatchUnfinished`].
pub fn expect_finished<M: Medium>(pool: &Pool<M>) -> Result<()> {
    pool.batch_slots().expect_whole()
}

/// The last write to each key of a batch, in order of trees and keys.
struct LastWrites<'b> {
    /// Those to trees that are durable by epochs.
    by_epochs: Vec<Write<'b>>,
    /// Those to trees of immediate durability.
    immediate: Vec<Write<'b>>,
}

impl<'b> LastWrites<'b> {
    fn all(&self) -> impl Iterator<Item = &Write<'b>> {
        self.by_epochs.iter().chain(&self.immediate)
    }
}

/// A stripe of a tree of a batch. All batches lock in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StripeToLock {
    anchor: u64,
    stripe: usize,
    /// The tree's number in the batch.
    tree: usize,
}

impl<'b> BatchRequest<'b> {
    fn writes_to_apply(&self) -> Result<LastWrites<'b>> {
        self.check_entries()?;
        let writes = self.last_writes();

        let size = BatchSize {
            writes_by_epochs: writes.by_epochs.len(),
            bytes: entry_bytes(&writes.immediate, |_| false),
        };
        size.expect_within_limits()?;
        Ok(writes)
    }

    /// Whether each tree can hold the keys and values that the batch has for it.
    fn check_entries(&self) -> Result<()> {
        for write in &self.writes {
            self.trees[write.tree].check(write.key, write.value)?;
        }
        for expected in &self.conditions {
            let value = match expected.condition {
                Condition::Equals(value) => Some(value),
                _ => None,
            };
            self.trees[expected.tree].check(expected.key, value)?;
        }
        Ok(())
    }

    fn last_writes(&self) -> LastWrites<'b> {
        // The last write to a key comes first, and stays first: the sort is stable.
        let mut last: Vec<Write<'b>> = self.writes.iter().rev().copied().collect();
        last.sort_by_key(|write| (write.tree, write.key));
        last.dedup_by_key(|write| (write.tree, write.key));

        let mut writes = LastWrites {
            by_epochs: Vec::new(),
            immediate: Vec::new(),
        };
        for write in last {
            if self.trees[write.tree].is_by_epochs {
                writes.by_epochs.push(write);
            } else {
                writes.immediate.push(write);
            }
        }
        writes
    }

    /// Locks the stripes of all keys that the batch reads or writes.
    fn lock_stripes(&self) -> Result<Vec<ExclusiveGuard<'_>>> {
        for tree in &self.trees {
            // If the source of a bulk load writes this batch, it would wait for that load, and thus
            // for itself.
            if tree.stripes().is_loader() {
                return Err(ErrorKind::InLoadSource.into());
            }
        }
        let order = self.stripes_in_order();
        loop {
            if let Some(locked) = self.try_lock_stripes(&order) {
                // Beside a view no write has an announced share: see `stripes`.
                let has_view = self.transaction.is_some();
                if !has_view {
                    wait_for_writes(
                        order
                            .iter()
                            .map(|at| (self.trees[at.tree].stripes(), at.stripe)),
                    );
                }
                return Ok(locked);
            }
            for tree in &self.trees {
                tree.stripes().wait_for_loads();
            }
        }
    }

    fn stripes_in_order(&self) -> Vec<StripeToLock> {
        let mut order = Vec::with_capacity(self.writes.len() + self.conditions.len());
        for write in &self.writes {
            order.push(self.stripe_of(write.tree, write.key));
        }
        for expected in &self.conditions {
            order.push(self.stripe_of(expected.tree, expected.key));
        }
        if !self.has_fault(VersionsFault::StripesInAnyOrder) {
            order.sort_unstable();
        }
        order.dedup();
        order
    }

    /// Whether a test has planted this fault in the versions of the store.
    fn has_fault(&self, fault: VersionsFault) -> bool {
        match self.trees.first() {
            Some(first) => first.tree.versions().store().faults().has(fault),
            None => false,
        }
    }

    fn stripe_of(&self, tree: usize, key: &[u8]) -> StripeToLock {
        let target = &self.trees[tree];
        StripeToLock {
            anchor: target.anchor,
            stripe: Stripes::of(key),
            tree,
        }
    }

    /// `None`, and no stripe locked, if one of the trees is being loaded.
    fn try_lock_stripes(&self, order: &[StripeToLock]) -> Option<Vec<ExclusiveGuard<'_>>> {
        let mut locked = Vec::with_capacity(order.len());
        for at in order {
            if self.has_fault(VersionsFault::StripesInAnyOrder) {
                schedule::reach(Access::something::<Stripes>(AccessKind::Store));
            }
            let stripe = self.trees[at.tree].stripes().lock(at.stripe)?;
            locked.push(stripe);
        }
        Some(locked)
    }

    /// The first condition that does not hold, with the LSN at which everything that was read is
    /// durable.
    fn failed_condition(&self) -> Result<Observed<Option<usize>>> {
        let mut value = Vec::new();
        let mut lsn = Lsn::DURABLE;
        for (index, expected) in self.conditions.iter().enumerate() {
            let tree = self.trees[expected.tree].tree;
            let is_present = tree.read_into(expected.key, &mut value)?;
            lsn = lsn.max(is_present.lsn);
            let holds = match expected.condition {
                Condition::Always | Condition::Written(_) | Condition::Moved { .. } => true,
                Condition::Absent => !is_present.value,
                Condition::Present => is_present.value,
                Condition::Equals(expected) => is_present.value && value == expected,
            };
            if !holds {
                return Ok(Observed {
                    value: Some(index),
                    lsn,
                });
            }
        }
        Ok(Observed { value: None, lsn })
    }

    /// A tree in whose epochs the batch must lie: one that it writes to; or, if all writes are
    /// immediate, one of which a condition or a transaction has read a state that a crash may take
    /// back. All trees of a pool but transient ones share their epochs, so one is enough. The
    /// conditions hold, and the stripes are locked.
    fn tree_by_epochs(&self, writes: &LastWrites<'b>) -> Result<Option<&'b StripedTree>> {
        for write in &writes.by_epochs {
            let tree = self.trees[write.tree].tree;
            if tree.shared_epochs().is_some() {
                return Ok(Some(tree));
            }
        }
        // The trees by epochs that are left are transient. A crash loses them wholly, so the writes
        // to them need no epoch.
        let transient = writes
            .by_epochs
            .first()
            .map(|write| self.trees[write.tree].tree);
        if writes.immediate.is_empty() {
            return Ok(transient);
        }
        if let Some(transaction) = &self.transaction
            && let Some(read) = &transaction.epoch
            && let Some(epochs) = read.tree.shared_epochs()
            && !epochs.is_durable(read.epoch)
            && !self.has_fault(VersionsFault::ReadsOfEpochIgnored)
        {
            return Ok(Some(read.tree));
        }
        for expected in &self.conditions {
            let Some(epochs) = self.trees[expected.tree].tree.shared_epochs() else {
                continue;
            };
            if epochs.has_changed(expected.key)? {
                return Ok(Some(self.trees[expected.tree].tree));
            }
        }
        Ok(transient)
    }

    /// Whether a write puts a record into its tree.
    pub(super) fn has_record(&self, write: &Write<'_>) -> bool {
        write.value.is_some() && self.trees[write.tree].has_records()
    }

    /// Applies one write to a tree whose stripes are locked, under a condition that holds. It need
    /// not wait until the write is durable: the cleared slot has a later LSN.
    fn apply(&self, write: &Write<'b>, condition: Condition<&'b [u8]>) -> Result<()> {
        let tree = self.trees[write.tree].tree.beneath();
        let written = tree.write(write.key, write.value, condition)?;
        debug_assert!(written.held || write.value.is_none());
        Ok(())
    }
}

/// A batch whose conditions hold, whose stripes are locked, and for which room is set aside.
struct BatchCommit<'c, 'b, M: Medium> {
    pool: &'c Pool<M>,
    batch: &'c BatchRequest<'b>,
    writes: LastWrites<'b>,
    /// A tree in whose epochs the batch lies.
    tree_by_epochs: Option<&'b StripedTree>,
}

/// A journal entry that was published within an epoch.
struct PublishedEntry {
    entry: u64,
    epoch: u64,
}

/// Calls `run` with the number of the running epoch, which does not end meanwhile, and returns what
/// it returns.
fn run_within_epoch<T>(epochs: &dyn Epochs, mut run: impl FnMut(u64) -> Result<T>) -> Result<T> {
    let returned = Cell::new(None);
    epochs.within_epoch(&mut |epoch| {
        returned.set(Some(run(epoch)?));
        Ok(())
    })?;
    Ok(returned
        .into_inner()
        .expect("an epoch runs what it is given"))
}

impl<'b, M: Medium> BatchCommit<'_, 'b, M> {
    /// Takes a stamp, if views may be open, and writes the batch. Returns the LSN that the caller
    /// waits for.
    fn run(&self) -> Result<Lsn> {
        if self.batch.has_fault(VersionsFault::BatchBeforeRecord) {
            return self.run_before_record();
        }
        let unpublished = self.record_changes(|write| self.read_old(write))?;
        let written = self.write();
        if self.pool.batch_slots().expect_whole().is_err() {
            match unpublished {
                Some(unpublished) => unpublished.leave_unfinished(),
                // No view was open, so there is none that could do without the batch.
                None => self.refuse_views(),
            }
        }
        written
    }

    /// A fault that tests plant: writes the batch, and takes the stamp then.
    #[cold]
    fn run_before_record(&self) -> Result<Lsn> {
        let mut old_values = Vec::new();
        for write in self.writes.all() {
            old_values.push(self.read_old(write)?);
        }
        let old_values = RefCell::new(old_values.into_iter());
        let written = self.write()?;
        let next_old = |_: &Write<'_>| {
            let next = old_values.borrow_mut().next();
            Ok(next.expect("one for each write"))
        };
        drop(self.record_changes(next_old)?);
        Ok(written)
    }

    /// Lets no view open any more. The stripes of the batch are still locked, so a view that is being
    /// opened is not registered yet, or does not have the batch.
    fn refuse_views(&self) {
        for tree in &self.batch.trees {
            tree.tree.versions().store().refuse_views();
        }
    }

    /// The value that a write replaces.
    fn read_old(&self, write: &Write<'_>) -> Result<OldValue> {
        let tree = self.batch.trees[write.tree].tree;
        OldValue::of(tree.beneath().read(write.key))
    }

    /// Records what the batch replaces, if views may be open. A transaction is refused here if
    /// something that it has read has changed since.
    fn record_changes(
        &self,
        read_old: impl Fn(&Write<'_>) -> Result<OldValue>,
    ) -> Result<Option<versions::UnpublishedWrite<'_>>> {
        let Some(first) = self.batch.trees.first() else {
            return Ok(None);
        };
        let versions = first.tree.versions().store();
        Versions::reach_switch();
        if !versions.is_on() && self.batch.transaction.is_none() {
            return Ok(None);
        }
        let writes: Vec<&Write<'_>> = self.writes.all().collect();
        let changes: Vec<BatchChange<'_>> = writes
            .iter()
            .map(|write| BatchChange {
                tree: self.batch.trees[write.tree].tree.versions(),
                key: write.key,
            })
            .collect();
        let read_old = |index: usize| read_old(writes[index]);
        let check = self.batch.transaction.map(|transaction| TransactionCheck {
            view: transaction.view,
            reads: transaction.reads,
        });
        let unpublished = versions.record_batch(&changes, read_old, check.as_ref())?;
        Ok(Some(unpublished))
    }

    fn write(&self) -> Result<Lsn> {
        let has_immediate = !self.writes.immediate.is_empty();
        match self.epochs() {
            Some(epochs) if has_immediate => self.commit_by_entry_and_epoch(epochs),
            Some(epochs) => self.commit_by_epoch(epochs),
            None if has_immediate => self.commit_by_entry(),
            None => Ok(Lsn::DURABLE),
        }
    }

    /// Step 2: there is no entry, the end of the epoch is the commit.
    fn commit_by_epoch(&self, epochs: &dyn Epochs) -> Result<Lsn> {
        epochs.within_epoch(&mut |_| self.apply_by_epochs())?;
        Ok(Lsn::DURABLE)
    }

    /// Step 3: the entry is the commit.
    fn commit_by_entry(&self) -> Result<Lsn> {
        let slot = self.take_slot()?;
        // The thread is pinned, so that no record of the entry is freed: see `journal`.
        let guard = self.pool.pin();
        let mut space = Unpublished::new(&guard);
        let logged = self.write_records(&guard, &mut space)?;
        let entry = self.publish_entry(&guard, &slot, &logged, NO_EPOCH, &mut space)?;
        self.apply_immediate(&logged)?;
        self.clear(&guard, &slot, entry)
    }

    /// Step 4: the entry names an epoch, whose end is the commit.
    fn commit_by_entry_and_epoch(&self, epochs: &dyn Epochs) -> Result<Lsn> {
        let slot = self.take_slot()?;
        // The thread is pinned, so that no record of the entry is freed: see `journal`.
        let guard = self.pool.pin();
        let mut space = Unpublished::new(&guard);
        let logged = self.write_records(&guard, &mut space)?;

        let published = run_within_epoch(epochs, |epoch| {
            let entry = self.publish_entry(&guard, &slot, &logged, epoch, &mut space)?;
            self.apply_by_epochs()?;
            Ok(PublishedEntry { entry, epoch })
        })?;
        // This need not wait: the following steps have later LSNs.
        self.or_give_up(epochs.complete(published.epoch))?;

        self.apply_immediate(&logged)?;
        self.clear(&guard, &slot, published.entry)
    }

    fn take_slot(&self) -> Result<BatchSlot<'_>> {
        let slot = self.pool.batch_slots().take()?;
        // A batch that gave up leaves its slot as it is, for the next open.
        self.pool.batch_slots().expect_whole()?;
        Ok(slot)
    }

    /// Writes and flushes the records of the immediate writes, and returns these writes in the form
    /// of the journal.
    fn write_records(
        &self,
        guard: &Guard<'_, M>,
        space: &mut Unpublished<'_, '_, M>,
    ) -> Result<Vec<Logged<&'b [u8]>>> {
        let mut logged = Vec::with_capacity(self.writes.immediate.len());
        for write in &self.writes.immediate {
            let record = match write.value {
                Some(value) if self.batch.has_record(write) => {
                    let offset = record::write(guard, write.key, value)?;
                    Some(space.adopt(offset))
                }
                _ => None,
            };
            let anchor = self.batch.trees[write.tree].anchor;
            logged.push(Logged {
                anchor,
                key: write.key,
                value: write.value,
                record,
            });
        }
        Ok(logged)
    }

    /// Writes the entry and makes the slot lead to it. From here on the batch is committed: this
    /// thread or the next open finishes it. The journal owns the entry and its records.
    fn publish_entry(
        &self,
        guard: &Guard<'_, M>,
        slot: &BatchSlot<'_>,
        logged: &[Logged<&'b [u8]>],
        epoch: u64,
        space: &mut Unpublished<'_, '_, M>,
    ) -> Result<u64> {
        let entry = write_entry(guard, logged, epoch)?;
        space.published();
        self.or_give_up(publish(guard, slot.index(), Some(entry)))?;
        Ok(entry)
    }

    fn apply_by_epochs(&self) -> Result<()> {
        for write in &self.writes.by_epochs {
            self.or_give_up(self.batch.apply(write, Condition::Always))?;
        }
        Ok(())
    }

    /// Applies the immediate writes; their trees take the records over.
    fn apply_immediate(&self, logged: &[Logged<&'b [u8]>]) -> Result<()> {
        for (write, logged) in self.writes.immediate.iter().zip(logged) {
            self.or_give_up(self.batch.apply(write, logged.condition()))?;
        }
        Ok(())
    }

    /// Step 5. Returns the LSN of the cleared slot, by which the whole batch is durable.
    fn clear(&self, guard: &Guard<'_, M>, slot: &BatchSlot<'_>, entry: u64) -> Result<Lsn> {
        let cleared = self.or_give_up(publish(guard, slot.index(), None))?;
        guard.free(entry);
        Ok(cleared)
    }

    /// The epochs that the batch lies in, if it does; all trees of a pool but transient ones share
    /// them.
    fn epochs(&self) -> Option<&dyn Epochs> {
        self.tree_by_epochs?.epochs()
    }

    /// After an error in the middle of a batch only the next open can finish or undo it. Until then
    /// nothing is written.
    fn or_give_up<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.pool.give_up_batch();
            if let Some(epochs) = self.epochs() {
                epochs.give_up();
            }
        }
        result
    }
}
