//! Batches: writes to any trees of a pool, of which a crash leaves all or none.
//!
//! # Locks
//!
//! A batch takes the stripes ([`Stripes`]) of all its keys, in ascending order of trees and
//! stripes; a single write shares the stripe of its key, a bulk load all stripes of its tree. So no
//! other write to its keys comes between. Readers take no stripe, and may see a batch half applied.
//! Whatever a batch waits for after that, as the end of an epoch, waits for no stripe.
//!
//! # Steps
//!
//! Trees are *immediate* (an operation is durable when it returns) or durable *by epochs*.
//!
//! 1. The stripes are locked. Conditions are read. Slabs are set aside for the worst case.
//! 2. *Only trees by epochs*: the batch is applied within one epoch, whose end is the commit. There
//!    is no entry.
//! 3. *Only immediate trees*: new records are written, then an entry with all writes, and a slot of
//!    the pool's prefix is made to lead to the entry: the commit. The writes are applied; trees
//!    take the records over.
//! 4. *Both*: records are written, and an entry with the immediate writes and the number of the
//!    running epoch is written and published. The other writes are applied within that epoch. Its
//!    end is the commit. Then the immediate writes are applied.
//! 5. The slot is cleared, and that is ordered before any later write to these keys. The stripes
//!    are unlocked. The caller waits until all is durable.
//!
//! # Recovery
//!
//! An open reads the slots before it opens a tree ([`Unfinished::read`]), as the first tree by
//! epochs that opens moves the epoch. An entry whose epoch did not end is dropped. The writes of
//! the others are applied once more; what they write is there already, or was not yet, for nothing
//! else was written to their keys since. What belongs to a tree that does not open stays in the
//! journal.
//!
//! # What a crash may leave behind
//!
//! The space of an entry, and of records that no tree has taken over. The mark of the pool finds it
//! free.

mod journal;
mod recover;
mod room;
mod stripes;

use medium::sync::ExclusiveGuard;
use medium::{Lsn, Medium};
use pool::{Guard, Pool};

use self::journal::{ENTRY_BYTES_MAX, Logged, entry_bytes, publish, write_entry};
use self::stripes::wait_for_writes;
use crate::engine::{Codec, Contract, Engine};
use crate::index::{Condition, Epochs, Index, check_entry, record};
use crate::kit::write::Unpublished;
use crate::{ErrorKind, Result};

pub(crate) use self::journal::Journal;
pub use self::recover::Unfinished;
pub(crate) use self::stripes::Striped;
pub use self::stripes::Stripes;

/// A tree beneath stripes, as the registry makes them: for structures that are in no registry.
#[doc(hidden)]
pub fn striped<M: Medium>(pool: &Pool<M>, tree: impl Index) -> impl Index {
    Striped::records(pool, tree)
}

/// The most writes of a batch to trees that are durable by epochs: an epoch can log the nodes that
/// so many change.
pub const EPOCH_WRITES_MAX: usize = 10_000;

/// A tree that a batch writes to.
#[derive(Clone, Copy)]
pub struct Target<'b> {
    /// Its name, for errors.
    pub name: &'b str,
    /// The tree, as the registry has opened it.
    pub index: &'b dyn Index,
    /// Its engine.
    pub engine: Engine,
    /// Its codec.
    pub codec: Codec,
    /// The first root word of the tree, which no other tree of the pool has.
    pub anchor: u64,
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
pub struct Expected<'b> {
    /// The tree, by its number in the batch.
    pub tree: usize,
    /// The key.
    pub key: &'b [u8],
    /// What has to hold for it.
    pub condition: Condition<&'b [u8]>,
}

/// Writes of which a crash leaves all or none.
pub struct Batch<'b> {
    /// The trees. Each is there once.
    pub trees: Vec<Target<'b>>,
    /// The writes. Of those to one key the last counts.
    pub writes: Vec<Write<'b>>,
    /// The conditions.
    pub conditions: Vec<Expected<'b>>,
}

impl Target<'_> {
    fn is_by_epochs(&self) -> bool {
        self.engine.contract == Contract::Epoch
    }

    fn check(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_entry(self.codec == Codec::Word, key, value.unwrap_or(&[0; 8]))
    }

    /// Its stripes, and the tree beneath.
    fn striped(&self) -> (&Stripes, &dyn Index) {
        self.index
            .striped()
            .expect("the registry puts every tree beneath stripes")
    }
}

/// Writes a batch: all of it, durably when this returns, or nothing. With trees that are durable by
/// epochs alone it is durable with the end of the running epoch, and not waited for. O(writes * log
/// n).
///
/// # Errors
/// [`ErrorKind::ConditionFailed`]; [`ErrorKind::PoolFull`], [`ErrorKind::BatchTooLarge`] and what
/// single writes return for keys and values that their tree cannot hold: nothing was written.
/// [`ErrorKind::BatchUnfinished`], and the errors of media and of damaged trees: the next open
/// finishes the batch or undoes it, and nothing is written before that.
pub fn write<M: Medium>(pool: &Pool<M>, batch: &Batch<'_>) -> Result<()> {
    let journal = Journal::of(pool);
    let (by_epochs, immediate) = batch.last_writes()?;
    let runs = room::runs(batch, &by_epochs, &immediate);
    pool.peek().await_memory()?;
    let locked = batch.lock::<M>()?;
    journal.expect_whole()?;
    let (failed, seen) = medium::deferred(|| batch.failed_condition());
    if let Some(index) = failed? {
        drop(locked);
        pool.peek().wait_for(seen)?;
        let tree = batch.trees[batch.conditions[index].tree].name.to_owned();
        return Err(ErrorKind::ConditionFailed { tree, index }.into());
    }
    let commit = Commit {
        pool,
        journal: &journal,
        batch,
        by_epochs,
        immediate,
    };
    let written = pool.with_set_aside(&runs, || commit.run())?;
    drop(locked);
    pool.peek().wait_for(written?)
}

/// Whether all batches that were begun are done or undone.
///
/// # Errors
/// [`ErrorKind::BatchUnfinished`].
pub fn expect_finished<M: Medium>(pool: &Pool<M>) -> Result<()> {
    Journal::of(pool).expect_whole()
}

impl<'b> Batch<'b> {
    /// The last write to each key, in order of trees and keys: those to trees that are durable by
    /// epochs, and the others.
    fn last_writes(&self) -> Result<(Vec<Write<'b>>, Vec<Write<'b>>)> {
        for Write { tree, key, value } in &self.writes {
            self.trees[*tree].check(key, *value)?;
        }
        for Expected {
            tree,
            key,
            condition,
        } in &self.conditions
        {
            let value = if let Condition::Equals(value) = condition {
                Some(*value)
            } else {
                None
            };
            self.trees[*tree].check(key, value)?;
        }
        let mut last = self.writes.clone();
        // Stable, and from the last one on, so that the last of a key comes first.
        last.reverse();
        last.sort_by(|one, other| (one.tree, one.key).cmp(&(other.tree, other.key)));
        last.dedup_by(|later, first| (later.tree, later.key) == (first.tree, first.key));
        let (by_epochs, immediate): (Vec<_>, Vec<_>) = last
            .into_iter()
            .partition(|write| self.trees[write.tree].is_by_epochs());
        let too_large =
            |what, size, limit| Err(ErrorKind::BatchTooLarge { what, size, limit }.into());
        let bytes = entry_bytes(&immediate, |_| false);
        if by_epochs.len() > EPOCH_WRITES_MAX {
            return too_large(
                "writes to trees that are durable by epochs",
                by_epochs.len(),
                EPOCH_WRITES_MAX,
            );
        }
        if bytes > ENTRY_BYTES_MAX {
            return too_large("bytes", bytes, ENTRY_BYTES_MAX);
        }
        Ok((by_epochs, immediate))
    }

    /// Locks the stripes of all keys. The source of a load of one of the trees would wait for
    /// itself.
    fn lock<M: Medium>(&self) -> Result<Vec<ExclusiveGuard<'_>>> {
        if self
            .trees
            .iter()
            .any(|tree| tree.striped().0.is_loader::<M>())
        {
            return Err(ErrorKind::InBatch.into());
        }
        let writes = self.writes.iter().map(|write| (write.tree, write.key));
        let keys = writes.chain(
            self.conditions
                .iter()
                .map(|expected| (expected.tree, expected.key)),
        );
        let stripe_of = |(tree, key): (usize, &[u8])| {
            (
                self.trees[tree].anchor,
                self.trees[tree].striped().0.of(key),
                tree,
            )
        };
        let mut stripes: Vec<_> = keys.map(stripe_of).collect();
        stripes.sort_unstable();
        stripes.dedup();
        loop {
            let places = || {
                stripes
                    .iter()
                    .map(|(_, stripe, tree)| (self.trees[*tree].striped().0, *stripe))
            };
            if let Some(locked) = places()
                .map(|(stripes, stripe)| stripes.lock(stripe))
                .collect()
            {
                wait_for_writes::<M>(places());
                return Ok(locked);
            }
            self.trees
                .iter()
                .for_each(|tree| tree.striped().0.wait_for_loads::<M>());
        }
    }

    /// The first condition that does not hold.
    fn failed_condition(&self) -> Result<Option<usize>> {
        let mut value = Vec::new();
        for (
            index,
            Expected {
                tree,
                key,
                condition,
            },
        ) in self.conditions.iter().enumerate()
        {
            let is_present = self.trees[*tree].index.get_into(key, &mut value)?;
            let holds = match condition {
                Condition::Always | Condition::Written(_) => true,
                Condition::Absent => !is_present,
                Condition::Present => is_present,
                Condition::Equals(expected) => is_present && value == *expected,
            };
            if !holds {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Whether a write puts a record into its tree.
    fn has_record(&self, write: &Write<'_>) -> bool {
        write.value.is_some() && self.trees[write.tree].codec == Codec::Record
    }

    /// Applies writes to trees whose stripes are locked, each under a condition, which holds.
    fn apply(
        &self,
        writes: &[Write<'b>],
        condition: impl Fn(usize) -> Condition<&'b [u8]>,
    ) -> Result<()> {
        for (index, Write { tree, key, value }) in writes.iter().enumerate() {
            let held = self.trees[*tree]
                .striped()
                .1
                .write(key, *value, condition(index))?;
            debug_assert!(held || value.is_none());
        }
        Ok(())
    }
}

/// A batch whose conditions hold, whose stripes are locked, and for which there is room.
struct Commit<'c, 'b, M: Medium> {
    pool: &'c Pool<M>,
    journal: &'c Journal,
    batch: &'c Batch<'b>,
    by_epochs: Vec<Write<'b>>,
    immediate: Vec<Write<'b>>,
}

impl<'b, M: Medium> Commit<'_, 'b, M> {
    /// Returns what to wait for.
    fn run(&self) -> Result<Lsn> {
        if self.immediate.is_empty() {
            let Some(epochs) = self.epochs() else {
                return Ok(Lsn::DURABLE);
            };
            epochs.within_epoch(&mut |_| {
                self.finished(self.batch.apply(&self.by_epochs, |_| Condition::Always))
            })?;
            return Ok(Lsn::DURABLE);
        }
        // Pinned: see `journal`.
        let (slot, guard) = (self.journal.take_slot(), self.pool.pin());
        // A batch that gave up leaves its slot as it is, for the next open.
        self.journal.expect_whole()?;
        let mut space = Unpublished::new(&guard);
        let writes = self.write_records(&guard, &mut space)?;
        let mut begin = |epoch| -> Result<u64> {
            let entry = write_entry(&guard, &writes, epoch)?;
            space.published();
            self.finished(publish(&guard, slot.index, Some(entry)))?;
            Ok(entry)
        };
        let entry = match self.epochs() {
            None => begin(0)?,
            Some(epochs) => {
                let (mut entry, mut lies_in) = (0, 0);
                epochs.within_epoch(&mut |epoch| {
                    (entry, lies_in) = (begin(epoch)?, epoch);
                    self.finished(self.batch.apply(&self.by_epochs, |_| Condition::Always))
                })?;
                self.finished(epochs.complete(lies_in))?;
                entry
            }
        };
        let (applied, _) = medium::deferred(|| {
            self.batch
                .apply(&self.immediate, |index| writes[index].condition())
        });
        self.finished(applied)?;
        let cleared = self.finished(publish(&guard, slot.index, None))?;
        guard.free(entry);
        Ok(cleared)
    }

    /// The immediate writes as the journal has them. Their records are written and flushed.
    fn write_records(
        &self,
        guard: &Guard<'_, M>,
        space: &mut Unpublished<'_, '_, M>,
    ) -> Result<Vec<Logged<&'b [u8]>>> {
        let mut logged = Vec::with_capacity(self.immediate.len());
        for write in &self.immediate {
            let (anchor, key, value) =
                (self.batch.trees[write.tree].anchor, write.key, write.value);
            let record = match value.filter(|_| self.batch.has_record(write)) {
                Some(value) => Some(space.adopt(record::write(guard, key, value)?)),
                None => None,
            };
            logged.push(Logged {
                anchor,
                key,
                value,
                record,
            });
        }
        Ok(logged)
    }

    /// The epochs of the trees of which the batch has some; all trees of a pool share them.
    fn epochs(&self) -> Option<&dyn Epochs> {
        self.batch.trees[self.by_epochs.first()?.tree]
            .index
            .epochs()
    }

    /// What has begun must be finished, or the next open has to do that: then nothing is written
    /// before.
    fn finished<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.journal.give_up(self.pool);
            self.epochs().into_iter().for_each(Epochs::give_up);
        }
        result
    }
}
