//! Slabs that a thread sets aside before it begins an operation that must not find the pool full.

use std::collections::BTreeSet;

use medium::Medium;
use medium::sync::{Ordering, thread_number};

use super::{FREE, MediumGuard, Space, Unowned, find_run};
use crate::Result;

impl Unowned {
    /// `count` adjacent ones of the slabs that a thread has set aside.
    pub(super) fn take_from_set_aside(&mut self, thread: usize, count: u32) -> Option<u32> {
        let (_, slabs) = self
            .set_aside
            .iter_mut()
            .find(|(owner, _)| *owner == thread)?;
        let first = find_run(slabs, count)?;
        slabs.retain(|slab| !(first..first + count).contains(slab));
        Some(first)
    }
}

impl Space {
    /// Sets slabs aside for the calling thread: for each entry of `runs` that many adjacent ones.
    /// Until [`Space::end_set_aside`] the thread's allocations get them if the pool is full.
    ///
    /// # Errors
    /// [`ErrorKind::PoolFull`](crate::ErrorKind::PoolFull), and none is set aside.
    pub(crate) fn set_aside<M: Medium>(
        &self,
        guard: &MediumGuard<'_, M>,
        runs: &[u32],
    ) -> Result<()> {
        let taken = self.try_set_aside(guard, runs);
        if taken.as_ref().is_err_and(crate::Error::is_full) {
            // A slab without a slot in use may be open in a shard.
            drop(self.leave_open(None));
            return self.try_set_aside(guard, runs);
        }
        taken
    }

    fn try_set_aside<M: Medium>(&self, guard: &MediumGuard<'_, M>, runs: &[u32]) -> Result<()> {
        let mut unowned = self.unowned.lock();
        let mut slabs = BTreeSet::new();
        for count in runs {
            match self.take_unowned(guard, &mut unowned, *count) {
                Ok(first) => slabs.extend(first..first + count),
                Err(error) => {
                    self.give_up(&mut unowned, slabs);
                    return Err(error);
                }
            }
        }
        unowned.set_aside.push((thread_number::<M>(), slabs));
        Ok(())
    }

    /// Whether the calling thread is between [`Space::set_aside`] and [`Space::end_set_aside`].
    pub(crate) fn has_set_aside<M: Medium>(&self, guard: &MediumGuard<'_, M>) -> bool {
        guard.interleave(&self.unowned);
        let unowned = self.unowned.lock();
        let thread = thread_number::<M>();
        unowned.set_aside.iter().any(|(owner, _)| *owner == thread)
    }

    /// Frees the slabs that the thread has set aside and not used.
    pub(crate) fn end_set_aside<M: Medium>(&self) {
        let mut unowned = self.unowned.lock();
        let thread = thread_number::<M>();
        let own = unowned
            .set_aside
            .iter()
            .position(|(owner, _)| *owner == thread);
        if let Some(own) = own {
            let (_, slabs) = unowned.set_aside.swap_remove(own);
            self.give_up(&mut unowned, slabs);
        }
    }

    fn give_up(&self, unowned: &mut Unowned, slabs: BTreeSet<u32>) {
        for slab in slabs {
            let known = self.slabs.get(slab);
            known.class.store(0, Ordering::Relaxed);
            known.used.store(0, Ordering::Relaxed);
            known.state.store(FREE, Ordering::Relaxed);
            unowned.add_free(slab);
        }
    }
}
