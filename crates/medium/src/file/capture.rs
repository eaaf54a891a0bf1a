//! Storing to lines, and capturing a line while other threads store to it.
//!
//! The content of a line in the log must be a prefix of the line's stores. If the processor loads a
//! line whole ([`WholeLoad`]), a capture is one load. On other processors each store and each
//! capture takes a lock for a few instructions; the lines of a stripe share one lock. Once pages
//! are given back (`private`), each store takes the lock on any processor.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::pages::{PAGE_BYTES, PAGE_LINES};
use super::private::Private;
use crate::line_store::store_single;
use crate::{LINE_BYTES, LineStore, LineValue, MediumError, WholeLoad};

/// The number of locks. Lines that share one are this many lines apart.
const STRIPES: usize = 4096;
/// How often a thread spins on a lock before it yields the processor.
const SPINS: u32 = 64;

/// How lines are stored and captured.
#[derive(Debug)]
pub(super) struct LineCapture {
    whole: Option<WholeLoad>,
    stripes: Box<[AtomicBool]>,
    pub(super) private: Private,
    /// The address of the pool.
    base: usize,
}

pub(super) struct LockedStripe<'l>(&'l AtomicBool);

impl Drop for LockedStripe<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // ORDER: pairs with the acquire in `lock`.
        self.0.store(false, Ordering::Release);
    }
}

impl LineCapture {
    /// For a pool at `base`. Loads lines whole if the processor can and it is `wanted`.
    pub(super) fn new(wanted: bool, base: usize, private: Private) -> Self {
        let whole = if wanted { WholeLoad::detect() } else { None };
        let stripes = (0..STRIPES).map(|_| AtomicBool::new(false)).collect();
        Self {
            whole,
            stripes,
            private,
            base,
        }
    }

    /// How lines are captured, as text for a report.
    pub(super) fn describe(&self) -> &'static str {
        if self.whole.is_some() {
            "lines captured by one load"
        } else {
            "lines captured under a striped lock"
        }
    }

    /// To be called before a store. The lock keeps a capture that takes several loads from the
    /// line, and the page from being given back.
    #[inline(always)]
    fn lock(&self, word: *const AtomicU64) -> Option<LockedStripe<'_>> {
        if self.private.is_active() {
            return Some(self.lock_private(word));
        }
        self.lock_if_torn(word)
    }

    /// Does the same as [`LineCapture::lock`] for a word whose value no capture needs: takes the
    /// lock only if pages are given back.
    #[inline(always)]
    fn lock_volatile(&self, word: *const AtomicU64) -> Option<LockedStripe<'_>> {
        if self.private.is_active() {
            Some(self.lock_private(word))
        } else {
            None
        }
    }

    #[inline(always)]
    fn lock_if_torn(&self, word: *const AtomicU64) -> Option<LockedStripe<'_>> {
        if self.whole.is_some() {
            None
        } else {
            Some(self.lock_stripe(word.addr() / LINE_BYTES))
        }
    }

    #[inline(never)]
    fn lock_private(&self, word: *const AtomicU64) -> LockedStripe<'_> {
        let locked = self.lock_stripe(word.addr() / LINE_BYTES);
        self.private
            .note_store(word.addr().wrapping_sub(self.base) as u64 / PAGE_BYTES);
        locked
    }

    #[inline(always)]
    fn lock_stripe(&self, line: usize) -> LockedStripe<'_> {
        let stripe = &self.stripes[line % STRIPES];
        // ORDER: pairs with the release in `drop`.
        if stripe.swap(true, Ordering::Acquire) {
            Self::wait(stripe);
        }
        LockedStripe(stripe)
    }

    /// Stops stores to all lines of a page.
    pub(super) fn lock_page(&self, page: u64) -> Vec<LockedStripe<'_>> {
        let first = self.base / LINE_BYTES + (page * PAGE_LINES) as usize;
        (first..first + PAGE_LINES as usize)
            .map(|line| self.lock_stripe(line))
            .collect()
    }

    #[cold]
    fn wait(stripe: &AtomicBool) {
        let mut spins = 0;
        while stripe.load(Ordering::Relaxed) || stripe.swap(true, Ordering::Acquire) {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }

    #[inline(always)]
    pub(super) fn store(&self, word: &AtomicU64, value: u64) {
        let _locked = self.lock(word);
        word.store(value, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn compare_exchange(
        &self,
        word: &AtomicU64,
        current: u64,
        new: u64,
    ) -> Result<u64, u64> {
        let _locked = self.lock(word);
        word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    #[inline(always)]
    pub(super) fn store_volatile(&self, word: &AtomicU64, value: u64, order: Ordering) {
        let _locked = self.lock_volatile(word);
        word.store(value, order);
    }

    #[inline(always)]
    pub(super) fn compare_exchange_volatile(
        &self,
        word: &AtomicU64,
        [current, new]: [u64; 2],
        success: Ordering,
    ) -> Result<u64, u64> {
        let _locked = self.lock_volatile(word);
        word.compare_exchange(current, new, success, Ordering::Relaxed)
    }

    /// Stores a line so that no capture sees a part of it.
    #[inline(always)]
    pub(super) fn store_line(
        &self,
        line: &[AtomicU64; 8],
        value: &LineValue,
    ) -> Result<(), MediumError> {
        let _locked = self.lock(&raw const line[0]);
        if self.whole.is_some() {
            // SAFETY: a processor that loads lines whole has AVX-512, and a `Line` is aligned and
            // writable.
            return Ok(unsafe { store_single(LineStore::Avx512, line, value) }?);
        }
        value.store(line, Ordering::Release);
        Ok(())
    }

    /// The content of the line at one instant.
    #[inline(always)]
    pub(super) fn capture(&self, line: &[AtomicU64; 8]) -> LineValue {
        if let Some(whole) = self.whole {
            return whole.load(line);
        }
        let _locked = self.lock_if_torn(&raw const line[0]);
        LineValue::load(line, Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
