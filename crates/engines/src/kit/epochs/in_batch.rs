//! Whether a thread is in a batch, or salvages a tree: what would wait for itself is refused then.

use std::cell::Cell;

use medium::Medium;
use medium::sync::{is_scheduled, thread_number};

use crate::{ErrorKind, Result};

/// Threads of a scheduler, which all run on one thread of the system.
const SCHEDULED_MAX: usize = 8;

/// What a thread is in, if it is no salvage. No tree has this address.
const BATCH: usize = 1;

thread_local! {
    /// The address of the tree that the thread salvages, or [`BATCH`]; 0 for neither. Each thread
    /// of a scheduler has an entry; others use the first one.
    static BUSY: [Cell<usize>; SCHEDULED_MAX] = const { [const { Cell::new(0) }; SCHEDULED_MAX] };
}

/// The calling thread's entry of [`BUSY`].
#[inline(always)]
fn own_entry<M: Medium>() -> usize {
    if is_scheduled::<M>() {
        thread_number::<M>() % SCHEDULED_MAX
    } else {
        0
    }
}

#[inline(always)]
fn busy_with<M: Medium>() -> usize {
    BUSY.with(|busy| busy[own_entry::<M>()].get())
}

/// A thread's batch or salvage; it ends when this is dropped, also when the caller panics.
pub(crate) struct Mark {
    own: usize,
}

impl Mark {
    /// Notes that the thread salvages the tree at this address.
    pub(crate) fn salvage<M: Medium>(tree: usize) -> Result<Self> {
        let own = own_entry::<M>();
        BUSY.with(|busy| match busy[own].get() {
            0 => {
                busy[own].set(tree);
                Ok(Self { own })
            }
            _ => Err(ErrorKind::InBatch.into()),
        })
    }

    /// Notes that the thread is in a batch.
    pub(crate) fn batch<M: Medium>() -> Result<Self> {
        Self::salvage::<M>(BATCH)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        BUSY.with(|busy| busy[self.own].set(0));
    }
}

/// Refuses, within a batch or a salvage, what waits for the end of all batches or locks all shards
/// of a tree.
pub(crate) fn refuse_in_any_batch<M: Medium>() -> Result<()> {
    if busy_with::<M>() == 0 {
        Ok(())
    } else {
        Err(ErrorKind::InBatch.into())
    }
}

/// Refuses to write to the tree at this address while the same thread salvages it, and so has all
/// of its shards.
#[inline(always)]
pub(crate) fn refuse_in_salvage_of<M: Medium>(tree: usize) -> Result<()> {
    if busy_with::<M>() == tree {
        Err(ErrorKind::InBatch.into())
    } else {
        Ok(())
    }
}
