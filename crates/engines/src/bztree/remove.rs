//! Removing a key: PMwCAS on the entry's metadata and the status.

use medium::Medium;
use pool::Guard;

use super::BzTree;
use super::insert::Attempt;
use super::layout::{LEAF_STATUS, META};
use crate::Result;
use crate::index::{Codec, Condition, Written};
use crate::kit::write::holds;
use crate::pmwcas::{DIRTY, Seen};

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// Removes a key if the condition holds. O(log n).
    pub(super) fn erase(
        &self,
        key: C::Key<'_>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<Written> {
        let guard = self.pool.pin();
        self.attempt(|| self.try_erase(&guard, key, condition))
    }

    fn try_erase(
        &self,
        guard: &Guard<'_, M>,
        key: C::Key<'_>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<Attempt> {
        let mut seen = Seen::default();
        let offset = self.descend(guard, key, &mut seen)?;
        let leaf = Self::leaf(guard, offset)?;
        let status = self.leaf_status_helping(guard, leaf)?;
        let found = self.look(guard, leaf, key, &mut seen)?;
        if found.is_none() && !self.is_absent(guard, offset, key, &mut seen)? {
            return Ok(Attempt::Again);
        }
        let held = holds::<M, C>(guard, condition, found.as_ref().map(|found| found.words))?;
        let found = match found {
            Some(found) if held => found,
            _ => {
                // There is nothing to change: the answer is the result of the read, even in a
                // frozen leaf.
                let lsn = guard.left_to_caller(seen.lsn());
                return Ok(Attempt::Done(Written { held, lsn }));
            }
        };
        if status.is_frozen() {
            return self.make_way(guard, key, offset, false);
        }
        let mut bury = self.pmwcas.allocate();
        let meta = &leaf.entry(guard, found.entry)?[META];
        bury.add_word(guard, meta, found.meta.0, found.meta.gone().0)?;
        bury.add_word(guard, &leaf.head[LEAF_STATUS], status.0, status.buried().0)?;
        let Some(commit) = bury.attempt(guard)? else {
            return Ok(Attempt::Again);
        };
        C::retire(guard, found.words);
        let lsn = guard.left_to_caller(commit.lsn());
        // If the remove is durable, the next search for this key need not read the dead entry first.
        // Otherwise a reader must find the entry, which is dirty, and wait.
        if self.pmwcas.read(guard, meta)? & DIRTY == 0 {
            leaf.set_fingerprint(guard, found.entry, 0);
        }
        if status.buried().live() <= self.sizes.live_min() {
            // The key is removed, even if the merge fails for lack of space or for damage in a
            // neighbour. An operation that reads the damaged leaf reports it.
            let _ = self.shrink(guard, key);
        }
        Ok(Attempt::Done(Written::done(lsn)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
