//! Atomic words outside of pools.

use std::fmt;
use std::marker::PhantomData;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

use super::schedule::{Access, AccessKind, reach};
use super::{Ordering, is_scheduled};
use crate::{LineValue, Medium, kernels};

/// A volatile word that goes with the nodes of a medium: an atomic whose accesses are yield points
/// where the medium is [scheduled](Medium::SCHEDULED), and nothing but an atomic everywhere else.
/// For fields of [`volatile!`](crate::volatile!) types.
#[repr(transparent)]
pub struct Atomic<M> {
    word: AtomicU64,
    medium: PhantomData<fn() -> M>,
}

impl<M> fmt::Debug for Atomic<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.word.fmt(formatter)
    }
}

impl<M> Atomic<M> {
    /// A word with this value.
    pub fn new(value: u64) -> Self {
        Self {
            word: AtomicU64::new(value),
            medium: PhantomData,
        }
    }
}

impl<M: Medium> Atomic<M> {
    #[inline(always)]
    fn reach(&self, kind: AccessKind) {
        if is_scheduled::<M>() {
            reach(Access::words(std::slice::from_ref(self), kind));
        }
    }

    /// Does what the method of [`AtomicU64`] does; a yield point where the medium is scheduled.
    #[inline(always)]
    pub fn load(&self, order: Ordering) -> u64 {
        self.reach(AccessKind::Load);
        self.word.load(order)
    }

    /// Does what the method of [`AtomicU64`] does; a yield point where the medium is scheduled.
    #[inline(always)]
    pub fn store(&self, value: u64, order: Ordering) {
        self.reach(AccessKind::Store);
        self.word.store(value, order);
    }

    /// Does what the method of [`AtomicU64`] does; a yield point where the medium is scheduled.
    #[inline(always)]
    pub fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.reach(AccessKind::Store);
        self.word.compare_exchange(current, new, success, failure)
    }

    /// Does what the method of [`AtomicU64`] does; a yield point where the medium is scheduled.
    #[inline(always)]
    pub fn compare_exchange_weak(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.reach(AccessKind::Store);
        self.word
            .compare_exchange_weak(current, new, success, failure)
    }

    /// Does what the method of [`AtomicU64`] does; a yield point where the medium is scheduled.
    #[inline(always)]
    pub fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.reach(AccessKind::Store);
        self.word.fetch_and(bits, order)
    }

    /// Does what the method of [`AtomicU64`] does; a yield point where the medium is scheduled.
    #[inline(always)]
    pub fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.reach(AccessKind::Store);
        self.word.fetch_or(bits, order)
    }

    /// Does what the method of [`AtomicU64`] does; a yield point where the medium is scheduled.
    #[inline(always)]
    pub fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.reach(AccessKind::Store);
        self.word.fetch_add(value, order)
    }

    /// The words themselves, about to be read by a kernel: one yield point for all of them.
    #[inline(always)]
    pub fn read_together<const N: usize>(words: &[Self; N]) -> &[AtomicU64; N] {
        if is_scheduled::<M>() {
            reach(Access::words(words, AccessKind::Load));
        }
        Self::plain(words)
    }

    /// Stores all words, relaxed: one yield point for all of them. Under the scheduler no thread
    /// sees a part of these stores; `loom` shows such states.
    #[inline(always)]
    pub fn store_together(words: &[Self; 8], values: &LineValue) {
        if is_scheduled::<M>() {
            reach(Access::words(words, AccessKind::Store));
        }
        kernels::store_line(Self::plain(words), values);
    }

    /// The atomic itself, for hints that read nothing.
    #[inline(always)]
    pub fn plain<const N: usize>(words: &[Self; N]) -> &[AtomicU64; N] {
        // SAFETY: `Self` is a transparent wrapper.
        unsafe { &*std::ptr::from_ref(words).cast::<[AtomicU64; N]>() }
    }
}

/// Loads all words, relaxed.
#[inline(always)]
pub fn load_all<const N: usize>(words: &[AtomicU64; N]) -> [u64; N] {
    std::array::from_fn(|index| words[index].load(Ordering::Relaxed))
}
