//! A wrapper that counts what reaches a medium.

use std::fmt;
use std::ops::Sub;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::{Extent, LINE_BYTES, LineForm, LineValue, Lsn, Medium, MediumError, Survives};

/// Threads spread over this many sets of counters.
const SHARDS: usize = 8;

/// What was counted so far; the difference of two of them is what happened in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Words stored, successful compare-exchanges included; those of single-form line stores are not.
    pub words_stored: u64,
    /// Lines stored failure-atomically in [`LineForm::Single`] (a twin line is stored as eight words).
    pub lines_stored: u64,
    /// Lines whose write-back was asked for. A line store counts here as well.
    pub lines_flushed: u64,
    /// Fences: ordering points.
    pub fences: u64,
    /// Bits that a store changed: what wears out memory.
    pub bits_flipped: u64,
    /// Waits for durability.
    pub waits: u64,
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            words_stored: self.words_stored - before.words_stored,
            lines_stored: self.lines_stored - before.lines_stored,
            lines_flushed: self.lines_flushed - before.lines_flushed,
            fences: self.fences - before.fences,
            bits_flipped: self.bits_flipped - before.bits_flipped,
            waits: self.waits - before.waits,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} words and {} lines stored, {} lines flushed, {} fences, {} bits flipped, {} waits",
            self.words_stored,
            self.lines_stored,
            self.lines_flushed,
            self.fences,
            self.bits_flipped,
            self.waits
        )
    }
}

#[derive(Debug, Default)]
struct Counters {
    words_stored: AtomicU64,
    lines_stored: AtomicU64,
    lines_flushed: AtomicU64,
    fences: AtomicU64,
    bits_flipped: AtomicU64,
    waits: AtomicU64,
}

/// Counts stores, flushes, fences and flipped bits on their way to `M`.
///
/// What an engine costs is [`Count::counts`] after minus before. Costs a few nanoseconds per store; loads are not
/// counted and cost nothing.
#[derive(Debug)]
pub struct Count<M> {
    inner: M,
    shards: [CachePadded<Counters>; SHARDS],
}

fn shard_of_thread() -> usize {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) as usize % SHARDS);
    SHARD.with(|shard| *shard)
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl<M: Medium> Count<M> {
    /// Counts from zero.
    pub fn new(inner: M) -> Self {
        Self { inner, shards: Default::default() }
    }

    /// The medium inside.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// What was counted since [`Count::new`]. Exact for what this thread did and for what happened before.
    pub fn counts(&self) -> Counts {
        let sum = |counter: fn(&Counters) -> &AtomicU64| {
            self.shards.iter().map(|shard| counter(shard).load(Ordering::Relaxed)).sum()
        };
        Counts {
            words_stored: sum(|shard| &shard.words_stored),
            lines_stored: sum(|shard| &shard.lines_stored),
            lines_flushed: sum(|shard| &shard.lines_flushed),
            fences: sum(|shard| &shard.fences),
            bits_flipped: sum(|shard| &shard.bits_flipped),
            waits: sum(|shard| &shard.waits),
        }
    }

    #[inline]
    fn counters(&self) -> &Counters {
        &self.shards[shard_of_thread()]
    }

    #[inline]
    fn count_word(&self, old: u64, new: u64) {
        let counters = self.counters();
        add(&counters.words_stored, 1);
        add(&counters.bits_flipped, u64::from((old ^ new).count_ones()));
    }
}

/// Lines that hold at least one byte of `memory`.
fn lines_of(memory: &[AtomicU64]) -> u64 {
    if memory.is_empty() {
        return 0;
    }
    let first = memory.as_ptr() as usize / LINE_BYTES;
    let last = (memory.as_ptr() as usize + size_of_val(memory) - 1) / LINE_BYTES;
    (last - first + 1) as u64
}

// SAFETY: extent and growth are the inner medium's.
unsafe impl<M: Medium> Medium for Count<M> {
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

    #[inline]
    #[track_caller]
    fn start_volatile(&self, word: &AtomicU64, value: u64) {
        self.inner.start_volatile(word, value);
    }

    #[inline]
    fn store(&self, word: &AtomicU64, value: u64) {
        // The old value is only counted, so it is read past the medium.
        self.count_word(word.load(Ordering::Relaxed), value);
        self.inner.store(word, value);
    }

    #[inline]
    fn compare_exchange(&self, word: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        let result = self.inner.compare_exchange(word, current, new);
        if result.is_ok() {
            self.count_word(current, new);
        }
        result
    }

    #[inline]
    fn store_line(
        &self,
        notes: &Self::Notes,
        line: &[AtomicU64; 8],
        value: &LineValue,
    ) -> Result<(), MediumError> {
        let flipped =
            line.iter().zip(value.0).map(|(word, new)| (word.load(Ordering::Relaxed) ^ new).count_ones());
        let flipped: u32 = flipped.sum();
        self.inner.store_line(notes, line, value)?;
        let counters = self.counters();
        add(&counters.lines_stored, 1);
        add(&counters.lines_flushed, 1);
        add(&counters.bits_flipped, u64::from(flipped));
        Ok(())
    }

    #[inline]
    fn store_copy(&self, notes: &Self::Notes, copy: &[AtomicU64; 8], value: &LineValue) {
        for (word, new) in copy.iter().zip(value.0) {
            self.count_word(word.load(Ordering::Relaxed), new);
        }
        add(&self.counters().lines_flushed, 1);
        self.inner.store_copy(notes, copy, value);
    }

    #[inline]
    fn flush(&self, notes: &Self::Notes, memory: &[AtomicU64]) {
        add(&self.counters().lines_flushed, lines_of(memory));
        self.inner.flush(notes, memory);
    }

    #[inline]
    fn fence(&self, notes: &Self::Notes) -> Lsn {
        add(&self.counters().fences, 1);
        self.inner.fence(notes)
    }

    #[inline(always)]
    fn durable(&self) -> Lsn {
        self.inner.durable()
    }

    #[inline]
    fn wait(&self, lsn: Lsn) -> Result<(), MediumError> {
        add(&self.counters().waits, 1);
        self.inner.wait(lsn)
    }

    #[inline(always)]
    fn defer(&self, lsn: Lsn) -> Result<(), MediumError> {
        self.inner.defer(lsn)
    }

    fn settle(&self, lsn: Lsn) -> Result<(), MediumError> {
        add(&self.counters().waits, 1);
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
        format!("{}; counted", self.inner.describe())
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
    use crate::{Guard, Line, Ram};

    #[test]
    fn stores_flushes_fences_and_bits_are_counted() {
        let count = Count::new(Ram::new(1 << 16).unwrap());
        count.grow(4096).unwrap();
        let guard = Guard::new(&count);
        let words = guard.words(64, 17).unwrap();
        let before = count.counts();
        words[0].store(&guard, 0b1011);
        words[0].store(&guard, 0b1000);
        assert_eq!(words[1].compare_exchange(&guard, 7, 8), Err(0));
        assert_eq!(words[1].compare_exchange(&guard, 0, 1), Ok(0));
        guard.flush_words(words);
        guard.drain().unwrap();
        let spent = count.counts() - before;
        let expected = Counts {
            words_stored: 3,
            lines_stored: 0,
            lines_flushed: 3,
            fences: 1,
            bits_flipped: 3 + 2 + 1,
            waits: 1,
        };
        assert_eq!(spent, expected, "{spent}");
    }

    #[test]
    fn a_line_store_is_one_line_stored_and_flushed() {
        let count = Count::new(Ram::new(1 << 16).unwrap());
        count.grow(4096).unwrap();
        let guard = Guard::new(&count);
        let line: &Line = guard.node(128).unwrap();
        let first = line.init(&guard, &LineValue::ZERO);
        let before = count.counts();
        line.publish(&guard, &first, &LineValue([3; 8])).unwrap();
        guard.fence();
        let spent = count.counts() - before;
        let expected = Counts { lines_stored: 1, lines_flushed: 1, fences: 1, bits_flipped: 16, ..spent };
        assert_eq!((spent, spent.words_stored), (expected, 0));
    }

    #[test]
    fn threads_count_together() {
        let count = Count::new(Ram::new(1 << 16).unwrap());
        count.grow(4096).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let count = &count;
                scope.spawn(move || {
                    let guard = Guard::new(count);
                    let words = guard.words(1024 * thread, 1).unwrap();
                    for value in 0..1000 {
                        words[0].publish(&guard, value);
                        guard.fence();
                    }
                });
            }
        });
        let counts = count.counts();
        assert_eq!((counts.words_stored, counts.lines_flushed, counts.fences), (4000, 4000, 4000));
    }
}
