//! Batches: writes that lie in one epoch, so that a crash leaves all of them or none.
//!
//! A batch keeps the shard of batches locked, so the epoch does not end before the batch, and a second batch waits. Otherwise its
//! writes are ordinary: other threads see each write at once, and writes before an error stay. A batch cannot make room by ending
//! the epoch, so in a full pool, or when the external log is full, a write fails at once.
//!
//! The trees of a pool share their epochs. A thread in a batch does not wait for a batch of another thread, which may be about to
//! wait for it. So within a batch nothing ends an epoch, no other batch begins, and no tree of this engine is opened.

use std::cell::{Cell, RefCell};

use medium::Medium;
use medium::sync::{is_scheduled, thread_number};

use super::access::View;
use super::cells::Value;
use super::core::Core;
use super::shard::Work;
use crate::index::{Batch, Condition};
use crate::{Error, Result};

/// Threads of a scheduler, which all run on one thread of the system.
const SCHEDULED_MAX: usize = 8;

thread_local! {
    /// The address of the tree in whose batch the thread is; 0 for none. Each thread of a scheduler has an entry; others use the
    /// first one.
    static BATCHES: [Cell<usize>; SCHEDULED_MAX] = const { [const { Cell::new(0) }; SCHEDULED_MAX] };
}

/// The calling thread's entry of [`BATCHES`].
#[inline(always)]
fn own_batch<M: Medium>() -> usize {
    if is_scheduled::<M>() { thread_number::<M>() % SCHEDULED_MAX } else { 0 }
}

/// The tree of the calling thread's batch.
#[inline(always)]
fn own_tree<M: Medium>() -> usize {
    BATCHES.with(|batches| batches[own_batch::<M>()].get())
}

/// The thread's batch; it ends when this is dropped, also when the caller panics.
pub(super) struct Mark {
    own: usize,
}

impl Drop for Mark {
    fn drop(&mut self) {
        BATCHES.with(|batches| batches[self.own].set(0));
    }
}

/// A batch of writes.
struct Writes<'t, M: Medium> {
    view: View<'t, M>,
    work: RefCell<Work<'t>>,
}

/// Refuses what waits for the end of all batches: another thread's may wait for the end of this one's.
pub(super) fn refuse_in_any_batch<M: Medium>() -> Result<()> {
    if own_tree::<M>() == 0 { Ok(()) } else { Err(Error::InBatch) }
}

impl<M: Medium> Core<M> {
    /// Refuses what would wait for the end of a batch of the same thread.
    #[inline(always)]
    pub(super) fn refuse_in_batch(&self) -> Result<()> {
        if own_tree::<M>() == std::ptr::from_ref(self).addr() { Err(Error::InBatch) } else { Ok(()) }
    }

    /// Whether the thread is in a batch of any tree.
    #[inline(always)]
    pub(super) fn is_in_any_batch(&self) -> bool {
        own_tree::<M>() != 0
    }

    /// Notes that the thread is in a batch. From now on operations that would wait for its end are refused.
    pub(super) fn begin_batch(&self) -> Result<Mark> {
        let own = own_batch::<M>();
        BATCHES.with(|batches| match batches[own].get() {
            0 => {
                batches[own].set(std::ptr::from_ref(self).addr());
                Ok(Mark { own })
            }
            _ => Err(Error::InBatch),
        })
    }

    /// Runs `run` within one epoch.
    pub(super) fn batch(&self, run: &mut dyn FnMut(&dyn Batch) -> Result<()>) -> Result<()> {
        let _mark = self.begin_batch()?;
        let (view, work) = self.enter_for_long();
        run(&Writes { view, work: RefCell::new(work) })
    }
}

impl<M: Medium> Batch for Writes<'_, M> {
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        self.view.core.check_entry(key, &[0; 8])?;
        self.view.begin_operation();
        let found =
            self.view.find_with(key, &mut |view: &View<'_, M>, found: Value| found.copy(&view.guard, value));
        Ok(found.map_err(|stop| self.view.core.error_of(stop))?.is_some())
    }

    fn write(&self, key: &[u8], value: Option<&[u8]>, condition: Condition<&[u8]>) -> Result<bool> {
        self.view.core.check_entry(key, value.unwrap_or(&[0; 8]))?;
        self.view.begin_operation();
        let written = self.view.write(&mut self.work.borrow_mut(), key, value, condition);
        written.map_err(|stop| self.view.core.error_of(stop))
    }
}
