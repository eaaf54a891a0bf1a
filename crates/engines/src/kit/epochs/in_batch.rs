//! Whether a thread is in a batch: an operation that would wait for the batch is refused then.

use std::cell::Cell;

use medium::Medium;
use medium::sync::{is_scheduled, thread_number};

use crate::{ErrorKind, Result};

/// Threads of a scheduler, which all run on one thread of the system.
const SCHEDULED_MAX: usize = 8;

thread_local! {
    /// Whether the thread is in a batch. Each thread of a scheduler has an entry; others use the
    /// first one.
    static IN_BATCH: [Cell<bool>; SCHEDULED_MAX] = const { [const { Cell::new(false) }; SCHEDULED_MAX] };
}

/// The calling thread's entry of [`IN_BATCH`].
#[inline(always)]
fn own_entry<M: Medium>() -> usize {
    if is_scheduled::<M>() {
        thread_number::<M>() % SCHEDULED_MAX
    } else {
        0
    }
}

/// A thread's batch; it ends when this is dropped, also when the caller panics.
pub(crate) struct BatchMark {
    own: usize,
}

impl BatchMark {
    /// Notes that the thread is in a batch.
    ///
    /// # Errors
    /// [`ErrorKind::WithinEpoch`] if it is in one already.
    pub(crate) fn batch<M: Medium>() -> Result<Self> {
        let own = own_entry::<M>();
        if IN_BATCH.with(|in_batch| in_batch[own].replace(true)) {
            return Err(ErrorKind::WithinEpoch.into());
        }
        Ok(Self { own })
    }
}

impl Drop for BatchMark {
    fn drop(&mut self) {
        IN_BATCH.with(|in_batch| in_batch[self.own].set(false));
    }
}

/// Refuses, within a batch, an operation that waits for the end of all batches or locks all shards
/// of a tree.
#[inline(always)]
pub(crate) fn refuse_in_any_batch<M: Medium>() -> Result<()> {
    if IN_BATCH.with(|in_batch| in_batch[own_entry::<M>()].get()) {
        return Err(ErrorKind::WithinEpoch.into());
    }
    Ok(())
}
