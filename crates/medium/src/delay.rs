//! A wrapper that makes every fence slower, to stand for slower memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::{Extent, LineForm, LineValue, Lsn, Medium, MediumError, Survives};

/// Spins for some nanoseconds after every fence of `M`, as the InCLL paper (ASPLOS'19, section 6) does to emulate
/// slower persistent memory. The delay may be changed while the medium is in use.
#[derive(Debug)]
pub struct Delay<M> {
    inner: M,
    delay_ns: AtomicU64,
}

impl<M: Medium> Delay<M> {
    /// Delays each fence by `delay_ns` nanoseconds more than it takes.
    pub fn new(inner: M, delay_ns: u64) -> Self {
        Self { inner, delay_ns: AtomicU64::new(delay_ns) }
    }

    /// The medium inside.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// The delay, in nanoseconds.
    pub fn delay_ns(&self) -> u64 {
        self.delay_ns.load(Ordering::Relaxed)
    }

    /// Changes the delay, for fences that begin after this.
    pub fn set_delay_ns(&self, delay_ns: u64) {
        self.delay_ns.store(delay_ns, Ordering::Relaxed);
    }
}

/// Keeps the processor busy for `delay_ns` nanoseconds, to within a reading of the clock (about 20 ns).
fn spin(delay_ns: u64) {
    let (start, delay) = (Instant::now(), Duration::from_nanos(delay_ns));
    while start.elapsed() < delay {
        std::hint::spin_loop();
    }
}

// SAFETY: extent and growth are the inner medium's.
unsafe impl<M: Medium> Medium for Delay<M> {
    type Notes = M::Notes;
    const LATE: bool = M::LATE;
    const DIRECT: bool = M::DIRECT;
    const SCHEDULED: bool = M::SCHEDULED;

    #[inline(always)]
    fn extent(&self) -> &Extent {
        self.inner.extent()
    }

    fn grow(&self, length: u64) -> Result<(), MediumError> {
        self.inner.grow(length)
    }

    fn shrink(&mut self, length: u64) -> Result<(), MediumError> {
        self.inner.shrink(length)
    }

    #[inline(always)]
    fn line_form(&self) -> LineForm {
        self.inner.line_form()
    }

    #[inline(always)]
    fn load(&self, word: &AtomicU64) -> u64 {
        self.inner.load(word)
    }

    #[inline(always)]
    fn start_volatile(&self, word: &AtomicU64, value: u64) {
        self.inner.start_volatile(word, value);
    }

    #[inline(always)]
    fn store(&self, word: &AtomicU64, value: u64) {
        self.inner.store(word, value);
    }

    #[inline(always)]
    fn compare_exchange(&self, word: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        self.inner.compare_exchange(word, current, new)
    }

    #[inline(always)]
    fn store_line(
        &self,
        notes: &Self::Notes,
        line: &[AtomicU64; 8],
        value: &LineValue,
    ) -> Result<(), MediumError> {
        self.inner.store_line(notes, line, value)
    }

    #[inline(always)]
    #[track_caller]
    fn store_copy(&self, notes: &Self::Notes, copy: &[AtomicU64; 8], value: &LineValue) {
        self.inner.store_copy(notes, copy, value);
    }

    #[inline(always)]
    fn flush(&self, notes: &Self::Notes, memory: &[AtomicU64]) {
        self.inner.flush(notes, memory);
    }

    #[inline]
    fn fence(&self, notes: &Self::Notes) -> Lsn {
        let lsn = self.inner.fence(notes);
        match self.delay_ns() {
            0 => {}
            delay_ns => spin(delay_ns),
        }
        lsn
    }

    #[inline(always)]
    fn durable(&self) -> Lsn {
        self.inner.durable()
    }

    #[inline(always)]
    fn wait(&self, lsn: Lsn) -> Result<(), MediumError> {
        self.inner.wait(lsn)
    }

    #[inline(always)]
    fn defer(&self, lsn: Lsn) -> Result<(), MediumError> {
        self.inner.defer(lsn)
    }

    fn settle(&self, lsn: Lsn) -> Result<(), MediumError> {
        self.inner.settle(lsn)
    }

    #[inline(always)]
    fn admit(&self) -> Result<(), MediumError> {
        self.inner.admit()
    }

    fn finish(&self) -> Result<(), MediumError> {
        self.inner.finish()
    }

    fn file(&self) -> Option<&crate::File> {
        self.inner.file()
    }

    fn survives(&self) -> Survives {
        self.inner.survives()
    }

    fn describe(&self) -> String {
        format!("{}; every fence {} ns slower", self.inner.describe(), self.delay_ns())
    }

    #[inline(always)]
    fn compare_entries(&self, entries: &[[AtomicU64; 2]], key: u64) -> (u64, u64) {
        self.inner.compare_entries(entries, key)
    }

    #[inline(always)]
    fn load_line(&self, line: &[AtomicU64; 8]) -> LineValue {
        self.inner.load_line(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Guard, Ram};

    #[test]
    fn fences_take_at_least_the_delay() {
        let delay = Delay::new(Ram::new(1 << 16).unwrap(), 2_000);
        delay.grow(4096).unwrap();
        let guard = Guard::new(&delay);
        let start = Instant::now();
        for _ in 0..100 {
            guard.fence();
        }
        assert!(start.elapsed() >= Duration::from_micros(200));
        delay.set_delay_ns(0);
        assert!(delay.describe().ends_with("0 ns slower"));
    }
}
