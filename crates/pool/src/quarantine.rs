//! Retired allocations that are not free when the last reader is gone: their owner has something to do before they are used
//! again.

use std::sync::Arc;

use medium::Medium;
use medium::sync::Mutex;

use crate::Guard;
use crate::limbo::{Limbo, Sink};

/// So many share one deferred call.
const BATCH_OFFSETS: usize = 16;

/// Where retired allocations wait for their readers, and then for their owner, who takes them and frees them
/// ([`Guard::free`]). After a crash they are free like all that nothing reaches.
pub struct Quarantine {
    pub(crate) limbo: Limbo,
    /// What nobody reads any more.
    over: Arc<Over>,
}

#[derive(Default)]
struct Over(Mutex<Vec<u64>>);

impl Sink for Over {
    fn accept(&self, offset: u64) {
        self.0.lock().push(offset);
    }
}

impl Default for Quarantine {
    fn default() -> Self {
        Self { limbo: Limbo::of_batches(BATCH_OFFSETS), over: Arc::default() }
    }
}

impl Quarantine {
    /// As [`Guard::retire`], but once no thread that is pinned now can still read the allocation, its owner may take it.
    pub fn retire<M: Medium>(&self, guard: &Guard<'_, M>, offset: u64) {
        guard.retire_to(offset, &self.limbo, &self.over);
    }

    /// What nobody reads any more, if it is so many at least. The caller frees them.
    pub fn take(&self, least: usize) -> Vec<u64> {
        let mut over = self.over.0.lock();
        if over.len() < least { Vec::new() } else { std::mem::take(&mut over) }
    }

    /// How many allocations nobody reads any more.
    pub fn count(&self) -> usize {
        self.over.0.lock().len()
    }

    /// All, read or not: for an owner that nobody uses any more.
    pub fn take_all(&self) -> Vec<u64> {
        // In this order: what a deferred call has taken from the first is in the second.
        let mut offsets = self.limbo.drain();
        offsets.append(&mut self.over.0.lock());
        offsets
    }

    pub(crate) fn close_batch<M: Medium>(&self, guard: &Guard<'_, M>) {
        if let Some(batch) = self.limbo.take_batch() {
            guard.free_later(batch, &self.over);
        }
    }
}
