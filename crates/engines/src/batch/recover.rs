//! Recovery of batches that were under way at a crash.

use medium::Medium;
use pool::{BATCH_SLOTS, Pool};

use super::journal::{JournalEntry, Logged, SlotContent, publish, read_entry, write_entry};
use crate::index::Index;
use crate::kit::epochs::is_complete;
use crate::{Error, Result};

/// Batches that were committed and may be half applied.
#[derive(Debug, Default)]
pub struct Unfinished {
    found: Vec<JournalEntry>,
    /// Entries that cannot be read.
    pub damage: Vec<Error>,
}

impl Unfinished {
    /// Reads the journal, and drops batches that were not committed. To be called before any tree
    /// is opened. O(slots + writes).
    ///
    /// # Errors
    /// Those of the medium. Damage is no error here.
    pub fn read<M: Medium>(pool: &Pool<M>) -> Result<Self> {
        let guard = pool.peek();
        let mut unfinished = Self::default();
        for slot in 0..BATCH_SLOTS {
            match read_entry(&guard, slot, |epoch| is_complete(pool, epoch)) {
                Ok(SlotContent::Nothing) => continue,
                Ok(SlotContent::Uncommitted) => {
                    publish(&guard, slot, None)?;
                    continue;
                }
                Ok(SlotContent::Committed(found)) => unfinished.found.push(found),
                Err(error) if error.is_corrupt() => unfinished.damage.push(error),
                Err(error) => return Err(error),
            }
            pool.batch_slots().keep_left(slot);
        }
        Ok(unfinished)
    }

    /// Marks the space of the entries and of the records that they lead to, in a pool that has to
    /// be marked.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if one lies where no allocation can lie.
    pub fn mark<M: Medium>(&self, pool: &Pool<M>) -> Result<()> {
        for found in &self.found {
            let records = found.writes.iter().filter_map(|write| write.record);
            records
                .chain([found.offset])
                .try_for_each(|offset| pool.mark(offset))?;
        }
        Ok(())
    }

    /// Whether there are no batches, not even damaged ones.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty() && self.damage.is_empty()
    }

    /// Applies the remaining writes of the batches, before any thread reads: `tree` returns the
    /// tree with this first root word. Writes to a tree that is not there stay for a later open.
    /// O(writes * log n).
    ///
    /// # Errors
    /// The first error of a write. Writes that failed stay for a later open, and no other write is
    /// accepted before that.
    pub fn finish<'t, M: Medium>(
        self,
        pool: &Pool<M>,
        tree: impl Fn(u64) -> Option<&'t dyn Index>,
    ) -> Result<()> {
        let finished = self.finish_all(pool, tree);
        if finished.is_err() {
            pool.give_up_batch();
        }
        finished
    }

    fn finish_all<'t, M: Medium>(
        self,
        pool: &Pool<M>,
        tree: impl Fn(u64) -> Option<&'t dyn Index>,
    ) -> Result<()> {
        let guard = pool.peek();
        let mut failed = Ok(());
        for JournalEntry {
            slot,
            offset,
            writes,
        } in self.found
        {
            let count = writes.len();
            // No slabs are set aside. But inside of this call splits copy no records: if the disk
            // is full, the writes must allocate no more than they did before the crash, and a split
            // must not retire a record that the entry leads to.
            let applied = pool.with_set_aside(&[], || apply_all(writes, &tree))?;
            let left = applied.left;
            if failed.is_ok() {
                failed = applied.first_error;
            }
            if left.len() == count {
                continue;
            }
            let rest = match left.is_empty() {
                true => None,
                false => match write_entry(&guard, &left, 0) {
                    Ok(entry) => Some(entry),
                    Err(error) => return failed.and(Err(error)),
                },
            };
            publish(&guard, slot, rest)?;
            guard.free(offset);
            if rest.is_none() {
                pool.batch_slots().free_left(slot);
            }
        }
        // There is no wait: if a crash takes any of this back, the next open does it again.
        failed
    }
}

/// The outcome of the writes of a batch.
struct Applied {
    /// Those that could not be applied, or whose tree is not there.
    left: Vec<Logged<Vec<u8>>>,
    first_error: Result<()>,
}

/// Applies writes to the trees that are there.
fn apply_all<'t>(
    writes: Vec<Logged<Vec<u8>>>,
    tree: impl Fn(u64) -> Option<&'t dyn Index>,
) -> Applied {
    let mut applied = Applied {
        left: Vec::new(),
        first_error: Ok(()),
    };
    for write in writes {
        let Some(tree) = tree(write.anchor) else {
            applied.left.push(write);
            continue;
        };
        if let Err(error) = tree.write(&write.key, write.value.as_deref(), write.condition()) {
            applied.left.push(write);
            if applied.first_error.is_ok() {
                applied.first_error = Err(error);
            }
        }
    }
    applied
}
