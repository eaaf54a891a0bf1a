//! Counters of what reaches a medium.

use std::fmt;
use std::ops::Sub;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::LINE_BYTES;

/// Threads spread over this many sets of counters.
const SHARDS: usize = 8;

/// The counts so far; the difference of two is what happened in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Words stored, including successful compare-exchanges, but not those of single-form line
    /// stores.
    pub words_stored: u64,
    /// Lines stored failure-atomically in [`LineForm::Single`](crate::LineForm::Single) (a twin
    /// line is stored as eight words).
    pub lines_stored: u64,
    /// Lines whose write-back was asked for. A line store counts here as well.
    pub lines_flushed: u64,
    /// Fences: ordering points.
    pub fences: u64,
    /// Bits that stores changed. Changes of bits wear memory out.
    pub bits_flipped: u64,
}

impl Counts {
    fn of(
        [
            words_stored,
            lines_stored,
            lines_flushed,
            fences,
            bits_flipped,
        ]: [u64; COUNTERS],
    ) -> Self {
        Self {
            words_stored,
            lines_stored,
            lines_flushed,
            fences,
            bits_flipped,
        }
    }

    fn all(self) -> [u64; COUNTERS] {
        [
            self.words_stored,
            self.lines_stored,
            self.lines_flushed,
            self.fences,
            self.bits_flipped,
        ]
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let after = self.all();
        let before = before.all();
        Self::of(std::array::from_fn(|index| after[index] - before[index]))
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} words and {} lines stored, {} lines flushed, {} fences, {} bits flipped",
            self.words_stored,
            self.lines_stored,
            self.lines_flushed,
            self.fences,
            self.bits_flipped
        )
    }
}

/// The meaning of each counter of a shard, in the order of the fields of [`Counts`].
const WORDS: usize = 0;
const LINES: usize = 1;
const FLUSHED: usize = 2;
const FENCES: usize = 3;
const BITS: usize = 4;
const COUNTERS: usize = 5;

/// Counters of what reaches a medium. Counting an operation costs a few nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    shards: [CachePadded<[AtomicU64; COUNTERS]>; SHARDS],
}

fn shard_of_thread() -> usize {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) as usize % SHARDS);
    SHARD.with(|shard| *shard)
}

impl Counters {
    /// The counts so far.
    pub(crate) fn counts(&self) -> Counts {
        let sum = |counter: usize| {
            self.shards
                .iter()
                .map(|shard| shard[counter].load(Ordering::Relaxed))
                .sum()
        };
        Counts::of(std::array::from_fn(sum))
    }

    fn add(&self, counter: usize, amount: u64) {
        self.shards[shard_of_thread()][counter].fetch_add(amount, Ordering::Relaxed);
    }

    /// Counts a word store.
    pub(crate) fn word(&self, old: u64, new: u64) {
        self.add(WORDS, 1);
        self.add(BITS, u64::from((old ^ new).count_ones()));
    }

    /// Counts the store of a whole line, which is written back as well.
    pub(crate) fn line(&self, old: &[u64; 8], new: &[u64; 8]) {
        let flipped: u32 = old
            .iter()
            .zip(new)
            .map(|(old, new)| (old ^ new).count_ones())
            .sum();
        self.add(LINES, 1);
        self.add(FLUSHED, 1);
        self.add(BITS, u64::from(flipped));
    }

    /// Counts the lines that hold at least one byte of `memory`.
    pub(crate) fn flush(&self, memory: &[AtomicU64]) {
        let Some(last) = memory.last() else { return };
        let line = |word: &AtomicU64| std::ptr::from_ref(word).addr() / LINE_BYTES;
        self.add(FLUSHED, (line(last) - line(&memory[0]) + 1) as u64);
    }

    /// Counts a fence.
    pub(crate) fn fence(&self) {
        self.add(FENCES, 1);
    }
}
