//! What an open does with batches that were under way.

use medium::Medium;
use medium::sync::Ordering;
use pool::{BATCH_SLOTS, Pool};

use super::journal::{Found, Journal, Logged, publish, read_entry, write_entry};
use crate::index::Index;
use crate::kit::epochs::is_complete;
use crate::{Error, Result};

/// Batches that were committed and may be half applied.
#[derive(Debug, Default)]
pub struct Unfinished {
    found: Vec<Found>,
    /// Entries that cannot be read.
    pub damage: Vec<Error>,
}

impl Unfinished {
    /// Reads the journal, and drops batches that were not committed. Before any tree is opened. O(slots + writes).
    ///
    /// # Errors
    /// Those of the medium. Damage is no error here.
    pub fn read<M: Medium>(pool: &Pool<M>) -> Result<Self> {
        let (guard, journal, mut unfinished) = (pool.peek(), Journal::of(pool), Self::default());
        for slot in 0..BATCH_SLOTS {
            let found = read_entry(&guard, slot).and_then(|found| {
                let Some(found) = found else { return Ok(None) };
                if found.epoch == 0 || is_complete(pool, found.epoch)? {
                    return Ok(Some(found));
                }
                publish(&guard, slot, None)?;
                Ok(None)
            });
            match found {
                Ok(None) => continue,
                Ok(Some(found)) => unfinished.found.push(found),
                Err(error) if error.is_corrupt() => unfinished.damage.push(error),
                Err(error) => return Err(error),
            }
            journal.taken.fetch_or(1 << slot, Ordering::Relaxed);
        }
        Ok(unfinished)
    }

    /// Marks the space of the entries and of the records that they lead to, in a pool that has to be marked.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if one lies where none can.
    pub fn mark<M: Medium>(&self, pool: &Pool<M>) -> Result<()> {
        for found in &self.found {
            let records = found.writes.iter().filter_map(|write| write.record);
            records.chain([found.offset]).try_for_each(|offset| pool.mark(offset))?;
        }
        Ok(())
    }

    /// Applies what is left of the batches, before anybody reads: `tree` gives the tree with this first root word. What belongs to a
    /// tree that is not there stays for a later open. O(writes * log n).
    ///
    /// # Errors
    /// What a write returns. The batches stay for a later open then.
    pub fn finish<'t, M: Medium>(
        self,
        pool: &Pool<M>,
        tree: impl Fn(u64) -> Option<&'t dyn Index>,
    ) -> Result<()> {
        let (guard, journal) = (pool.peek(), Journal::of(pool));
        for Found { slot, offset, writes, .. } in self.found {
            let mut left = Vec::new();
            let apply = |write: Logged<Vec<u8>>| {
                let Some(tree) = tree(write.anchor) else {
                    left.push(write);
                    return Ok(());
                };
                tree.write(&write.key, write.value.as_deref(), write.condition()).map(drop)
            };
            // Nothing is set aside, but where the disk is full the writes must allocate no more than they did before the crash.
            let apply_all = || medium::deferred(|| writes.into_iter().try_for_each(apply)).0;
            pool.with_set_aside(&[], apply_all)??;
            let rest = if left.is_empty() { None } else { Some(write_entry(&guard, &left, 0)?) };
            publish(&guard, slot, rest)?;
            guard.free(offset);
            if rest.is_none() {
                journal.taken.fetch_and(!(1 << slot), Ordering::Release);
            }
        }
        // No wait: what a crash takes back of this is done again by the next open.
        Ok(())
    }
}
