//! Counters of what reaches a medium.

use std::fmt;
use std::ops::Sub;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::LINE_BYTES;

/// Threads spread over this many sets of counters.
const SHARDS: usize = 8;

/// What was counted so far; the difference of two of them is what happened in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Words stored, successful compare-exchanges included; those of single-form line stores are not.
    pub words_stored: u64,
    /// Lines stored failure-atomically in [`LineForm::Single`](crate::LineForm::Single) (a twin line is stored as eight words).
    pub lines_stored: u64,
    /// Lines whose write-back was asked for. A line store counts here as well.
    pub lines_flushed: u64,
    /// Fences: ordering points.
    pub fences: u64,
    /// Bits that a store changed: what wears out memory.
    pub bits_flipped: u64,
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
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} words and {} lines stored, {} lines flushed, {} fences, {} bits flipped",
            self.words_stored, self.lines_stored, self.lines_flushed, self.fences, self.bits_flipped
        )
    }
}

#[derive(Debug, Default)]
struct Shard {
    words_stored: AtomicU64,
    lines_stored: AtomicU64,
    lines_flushed: AtomicU64,
    fences: AtomicU64,
    bits_flipped: AtomicU64,
}

/// Counters of what reaches a medium. To count costs a few nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    shards: [CachePadded<Shard>; SHARDS],
}

fn shard_of_thread() -> usize {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) as usize % SHARDS);
    SHARD.with(|shard| *shard)
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl Counters {
    /// What was counted so far.
    pub(crate) fn counts(&self) -> Counts {
        let sum = |counter: fn(&Shard) -> &AtomicU64| {
            self.shards.iter().map(|shard| counter(shard).load(Ordering::Relaxed)).sum()
        };
        Counts {
            words_stored: sum(|shard| &shard.words_stored),
            lines_stored: sum(|shard| &shard.lines_stored),
            lines_flushed: sum(|shard| &shard.lines_flushed),
            fences: sum(|shard| &shard.fences),
            bits_flipped: sum(|shard| &shard.bits_flipped),
        }
    }

    fn shard(&self) -> &Shard {
        &self.shards[shard_of_thread()]
    }

    /// A word is stored.
    pub(crate) fn word(&self, old: u64, new: u64) {
        let shard = self.shard();
        add(&shard.words_stored, 1);
        add(&shard.bits_flipped, u64::from((old ^ new).count_ones()));
    }

    /// A line is stored whole, and written back.
    pub(crate) fn line(&self, old: &[u64; 8], new: &[u64; 8]) {
        let shard = self.shard();
        let flipped: u32 = old.iter().zip(new).map(|(old, new)| (old ^ new).count_ones()).sum();
        add(&shard.lines_stored, 1);
        add(&shard.lines_flushed, 1);
        add(&shard.bits_flipped, u64::from(flipped));
    }

    /// The lines that hold at least one byte of `memory` are written back.
    pub(crate) fn flush(&self, memory: &[AtomicU64]) {
        let Some(last) = memory.last() else { return };
        let line = |word: &AtomicU64| std::ptr::from_ref(word).addr() / LINE_BYTES;
        add(&self.shard().lines_flushed, (line(last) - line(&memory[0]) + 1) as u64);
    }

    /// A fence.
    pub(crate) fn fence(&self) {
        add(&self.shard().fences, 1);
    }
}
