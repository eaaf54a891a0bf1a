//! Retired allocations whose owner must do more work after the last reader has left, before they
//! are freed.

use std::sync::Arc;

use medium::Medium;
use medium::sync::Mutex;

use crate::Guard;
use crate::limbo::{Limbo, Sink};

/// How many retired allocations share one deferred call.
const BATCH_OFFSETS: usize = 16;

/// Retired allocations wait here for their readers, and then for their owner, which takes them and
/// frees them ([`Guard::free`]). After a crash they are free, like all allocations that no tree
/// reaches.
pub struct Quarantine {
    pub(crate) limbo: Limbo,
    /// Allocations that no thread reads any more.
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
        Self {
            limbo: Limbo::of_batches(BATCH_OFFSETS),
            over: Arc::default(),
        }
    }
}

impl Quarantine {
    /// Retires an allocation, as [`Guard::retire`] does; but once no thread that is pinned now can
    /// still read it, it is not freed: its owner may take it.
    pub fn retire<M: Medium>(&self, guard: &Guard<'_, M>, offset: u64) {
        guard.retire_to(offset, &self.limbo, &self.over);
    }

    /// Takes the allocations that no thread reads any more, if there are at least `least`. The
    /// caller frees them.
    pub fn take(&self, least: usize) -> Vec<u64> {
        let mut over = self.over.0.lock();
        if over.len() < least {
            Vec::new()
        } else {
            std::mem::take(&mut over)
        }
    }

    /// How many allocations no thread reads any more.
    pub fn count(&self) -> usize {
        self.over.0.lock().len()
    }

    /// All of them, for an owner that is no longer in use.
    pub fn take_all(&self) -> Vec<u64> {
        // The order matters: offsets that a deferred call has taken from the first list are in the
        // second.
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
