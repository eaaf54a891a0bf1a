//! The slots of the pool's prefix that lead to batches ([`BATCHES`](crate::BATCHES)): which of them
//! are taken while the pool is open. What a slot leads to is the concern of the layer above.

use medium::sync::{AtomicBool, AtomicU64, Ordering, pause};

use crate::header::BATCH_SLOTS;
use crate::{ErrorKind, Result};

/// The slots of an open pool. Nothing of this is durable.
#[derive(Debug, Default)]
pub struct BatchSlots {
    /// Bit i: slot i is taken.
    taken: AtomicU64,
    /// Bit i: slot i holds a batch that an earlier process left, and that no open could finish so
    /// far. Such a slot is taken, and becomes free only while the pool is opened.
    left: AtomicU64,
    /// A batch could not be finished.
    is_broken: AtomicBool,
}

/// A slot that a batch has, until this is dropped.
pub struct BatchSlot<'s> {
    slots: &'s BatchSlots,
    index: usize,
}

impl BatchSlot<'_> {
    /// Its number, below [`BATCH_SLOTS`].
    pub fn index(&self) -> usize {
        self.index
    }
}

impl Drop for BatchSlot<'_> {
    fn drop(&mut self) {
        let bit = 1 << self.index;
        // ORDER: pairs with the acquire in `take`.
        self.slots.taken.fetch_and(!bit, Ordering::Release);
    }
}

impl BatchSlots {
    /// Whether all batches were finished.
    ///
    /// # Errors
    /// [`ErrorKind::BatchUnfinished`].
    #[inline(always)]
    pub fn expect_whole(&self) -> Result<()> {
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(ErrorKind::BatchUnfinished.into());
        }
        Ok(())
    }

    /// Notes that a batch is neither done nor undone.
    pub(crate) fn give_up(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// Notes that a slot holds a batch that an earlier process left. Before any batch takes a slot.
    pub fn keep_left(&self, index: usize) {
        let bit = 1 << index;
        self.taken.fetch_or(bit, Ordering::Relaxed);
        self.left.fetch_or(bit, Ordering::Relaxed);
    }

    /// Frees a slot: the batch that an earlier process left there is finished.
    pub fn free_left(&self, index: usize) {
        let bit = 1 << index;
        self.left.fetch_and(!bit, Ordering::Relaxed);
        // ORDER: pairs with the acquire in `take`.
        self.taken.fetch_and(!bit, Ordering::Release);
    }

    /// A slot. Waits while other batches have all of them.
    ///
    /// # Errors
    /// [`ErrorKind::BatchUnfinished`] if every slot holds a batch that an earlier process left: none
    /// becomes free before the next open.
    pub fn take(&self) -> Result<BatchSlot<'_>> {
        const ALL: u64 = u64::MAX;
        const { assert!(BATCH_SLOTS == u64::BITS as usize) };
        if self.left.load(Ordering::Relaxed) == ALL {
            return Err(ErrorKind::BatchUnfinished.into());
        }
        let mut spins = 0;
        loop {
            let taken = self.taken.load(Ordering::Relaxed);
            if taken != ALL {
                let index = taken.trailing_ones() as usize;
                let with_index = taken | 1 << index;
                // ORDER: pairs with the release of the batch that had the slot: its last store
                // there comes before those of the new holder.
                let exchanged = self.taken.compare_exchange(
                    taken,
                    with_index,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if exchanged.is_ok() {
                    return Ok(BatchSlot { slots: self, index });
                }
            }
            pause(&mut spins);
        }
    }
}
