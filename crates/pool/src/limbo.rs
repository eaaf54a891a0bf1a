//! Retired allocations that wait until no thread can still be reading them.

use std::sync::Arc;

use medium::sync::Mutex;

use crate::space::Space;

/// Offsets retired together; freed once, by the epoch collector or by the close of the pool.
pub(crate) type RetiredBatch = Arc<Mutex<Vec<u64>>>;

/// Takes the offsets that no thread reads any more.
pub(crate) trait Sink: Send + Sync + 'static {
    fn accept(&self, offset: u64);
}

impl Sink for Space {
    fn accept(&self, offset: u64) {
        self.free(offset);
    }
}

/// Frees a batch while its lock is held, so a close that finds the batch empty knows that its
/// offsets are free.
pub(crate) fn free_batch(batch: &RetiredBatch, sink: &impl Sink) {
    batch
        .lock()
        .drain(..)
        .for_each(|offset| sink.accept(offset));
}

/// How many offsets share one deferred call.
const BATCH_OFFSETS: usize = 64;

/// The waiting offsets of a pool.
pub(crate) struct Limbo {
    inner: Mutex<Inner>,
    batch_offsets: usize,
}

impl Default for Limbo {
    fn default() -> Self {
        Self::of_batches(BATCH_OFFSETS)
    }
}

#[derive(Default)]
struct Inner {
    filling: Vec<u64>,
    waiting: Vec<RetiredBatch>,
    /// When the list has this many entries, those that were freed meanwhile are removed.
    sweep_at: usize,
}

impl Inner {
    fn close_batch(&mut self) -> RetiredBatch {
        let batch = Arc::new(Mutex::new(std::mem::take(&mut self.filling)));
        if self.waiting.len() >= self.sweep_at {
            self.waiting.retain(|waiting| !waiting.lock().is_empty());
            self.sweep_at = 2 * self.waiting.len() + 16;
        }
        self.waiting.push(Arc::clone(&batch));
        batch
    }
}

impl Limbo {
    /// An empty limbo with `batch_offsets` offsets in a batch.
    pub(crate) fn of_batches(batch_offsets: usize) -> Self {
        Self {
            inner: Mutex::default(),
            batch_offsets,
        }
    }

    /// Adds an offset. If that fills the batch, returns the batch, which the caller frees after the
    /// current epoch.
    pub(crate) fn add(&self, offset: u64) -> Option<RetiredBatch> {
        let mut inner = self.inner.lock();
        inner.filling.push(offset);
        if inner.filling.len() < self.batch_offsets {
            None
        } else {
            Some(inner.close_batch())
        }
    }

    /// The batch that is not full yet, to be freed after the current epoch.
    pub(crate) fn take_batch(&self) -> Option<RetiredBatch> {
        let mut inner = self.inner.lock();
        if inner.filling.is_empty() {
            None
        } else {
            Some(inner.close_batch())
        }
    }

    /// Whether any offset still waits.
    pub(crate) fn is_waiting(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.waiting.retain(|waiting| !waiting.lock().is_empty());
        !(inner.filling.is_empty() && inner.waiting.is_empty())
    }

    /// Takes all offsets that still wait. Only for a pool that no thread reads any more.
    pub(crate) fn drain(&self) -> Vec<u64> {
        let mut inner = self.inner.lock();
        let mut offsets = std::mem::take(&mut inner.filling);
        for batch in inner.waiting.drain(..) {
            offsets.append(&mut batch.lock());
        }
        offsets
    }
}
