//! Batches: writes that lie in one epoch, so that a crash leaves all of them or none.
//!
//! A batch holds its shard, so the epoch does not end before it does. Nothing else is special about it: others see each
//! write as it is done, and what was written before an error stays. It cannot make room by ending the epoch, so a pool
//! that is full fails the write that meets it.

use std::cell::{Cell, RefCell};

use medium::Medium;
use pool::record::check_lengths;
use pool::{Error, Result};

use super::Core;
use super::access::{Stop, View, Work};
use crate::index::{Batch, Condition};

thread_local! {
    /// The tree, by its address, in a batch of which this thread is; 0 for none.
    static BATCH: Cell<usize> = const { Cell::new(0) };
}

/// Ends the thread's batch, also when the caller panics.
struct Mark;

impl Drop for Mark {
    fn drop(&mut self) {
        BATCH.set(0);
    }
}

/// Refuses a key or a value that the tree's codec cannot hold.
pub(super) type CheckEntry<'t> = &'t dyn Fn(&[u8], &[u8]) -> Result<()>;

/// A batch of writes.
struct Writes<'t, M: Medium, const W: usize> {
    view: View<'t, M, W>,
    work: RefCell<Work<'t>>,
    check: CheckEntry<'t>,
}

impl<M: Medium, const W: usize> Core<M, W> {
    /// Refuses what would wait for the end of a batch of the same thread.
    #[inline(always)]
    pub(super) fn refuse_in_batch(&self) -> Result<()> {
        if BATCH.get() == std::ptr::from_ref(self).addr() { Err(Error::InBatch) } else { Ok(()) }
    }

    /// Runs `run` within one epoch.
    pub(super) fn batch<'t>(
        &'t self,
        check: CheckEntry<'t>,
        run: &mut dyn FnMut(&dyn Batch) -> Result<()>,
    ) -> Result<()> {
        if BATCH.get() != 0 {
            return Err(Error::InBatch);
        }
        let (view, work) = self.enter();
        let writes = Writes { view, work: RefCell::new(work), check };
        BATCH.set(std::ptr::from_ref(self).addr());
        let _mark = Mark;
        run(&writes)
    }
}

fn failed(anchor: u64, stop: Stop) -> Error {
    match stop {
        Stop::Full(error) | Stop::Failed(error) => error,
        Stop::Again | Stop::NeedsPass => Error::corrupt(anchor, "an operation that does not come to its end"),
    }
}

impl<M: Medium, const W: usize> Batch for Writes<'_, M, W> {
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        (self.check)(key, &[0; 8])?;
        let found = self.view.find_with(key, &mut |view: &View<'_, M, W>, record: super::record::Record| {
            record.copy_value(&view.guard, value)
        });
        Ok(found.map_err(|stop| failed(self.view.core.anchor, stop))?.is_some())
    }

    fn write(&self, key: &[u8], value: Option<&[u8]>, condition: Condition<&[u8]>) -> Result<bool> {
        (self.check)(key, value.unwrap_or(&[0; 8]))?;
        check_lengths(key, value.unwrap_or_default())?;
        let written = self.view.write(&mut self.work.borrow_mut(), key, value, condition);
        written.map_err(|stop| failed(self.view.core.anchor, stop))
    }
}
