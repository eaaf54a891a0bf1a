//! Batches: writes that lie in one epoch, so that a crash leaves all of them or none.
//!
//! A batch keeps the shard of batches locked, so the epoch does not end before the batch, and a second batch waits. Otherwise its
//! writes are ordinary: other threads see each write at once, and writes before an error stay. A batch cannot make room by ending
//! the epoch, so in a full pool, or when the external log is full, a write fails at once.
//!
//! The trees of a pool share their epochs. A thread in a batch does not wait for a batch of another thread, which may be about to
//! wait for it. So within a batch nothing ends an epoch, no other batch begins, and no tree of this engine is opened.

use std::cell::RefCell;

use medium::Medium;

use super::access::View;
use super::cells::Value;
use super::core::Core;
use super::in_batch::begin;
use super::shard::Work;
use crate::Result;
use crate::index::{Batch, Condition};

/// A batch of writes.
struct Writes<'t, M: Medium> {
    view: View<'t, M>,
    work: RefCell<Work<'t>>,
}

impl<M: Medium> Core<M> {
    /// Runs `run` within one epoch.
    pub(super) fn batch(&self, run: &mut dyn FnMut(&dyn Batch) -> Result<()>) -> Result<()> {
        let _mark = begin::<M>(self.address())?;
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
