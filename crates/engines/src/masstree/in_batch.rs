//! Which tree's batch a thread is in: within a batch, what would wait for the end of a batch is refused.

use std::cell::Cell;

use medium::Medium;
use medium::sync::{is_scheduled, thread_number};

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

/// Refuses what waits for the end of all batches: another thread's may wait for the end of this one's.
pub(super) fn refuse_in_any_batch<M: Medium>() -> Result<()> {
    if own_tree::<M>() == 0 { Ok(()) } else { Err(Error::InBatch) }
}

/// Refuses what would wait for the end of a batch of the same thread, of the tree at this address.
#[inline(always)]
pub(super) fn refuse_in_batch_of<M: Medium>(tree: usize) -> Result<()> {
    if own_tree::<M>() == tree { Err(Error::InBatch) } else { Ok(()) }
}

/// Notes that the thread is in a batch of the tree at this address. From now on operations that would wait for its end are refused.
pub(super) fn begin<M: Medium>(tree: usize) -> Result<Mark> {
    let own = own_batch::<M>();
    BATCHES.with(|batches| match batches[own].get() {
        0 => {
            batches[own].set(tree);
            Ok(Mark { own })
        }
        _ => Err(Error::InBatch),
    })
}
