//! A table of IDs in memory: short numbers for entries, for nodes that have no room for the entries
//! themselves.
//!
//! The table is one flat array, and an ID its index, from 1 on. An entry is two words, as a codec
//! makes them. IDs are given out by a counter; when it reaches the end of the array, IDs that were
//! given back are used again, the last one first. Only if there are none, the array doubles. So it
//! is at most twice as long as the most IDs that were ever in use.
//!
//! An ID that is retired is used again once every reader that was pinned at that moment has
//! unpinned. A reader that is not pinned must be sure, after it has read an entry, that its ID was
//! still in use; an entry is always readable.

use std::ops::Range;
use std::sync::Arc;

use medium::Medium;
use medium::arena::Arena;
use medium::sync::{Atomic, Mutex, Ordering};
use pool::Guard;

use crate::index::EntryWords;
use crate::kit::bits;
use crate::{ErrorKind, Result};

/// How many retired IDs share one deferred call.
const BATCH: usize = 64;
/// The first length of an array.
const FIRST_BOUND: u64 = 8;

/// A table of IDs.
pub struct Ids<M: 'static> {
    entries: Arena<[Atomic<M>; 2]>,
    most: u32,
    state: Arc<Mutex<IdsInUse>>,
}

/// Which IDs are in use.
#[derive(Default)]
struct IdsInUse {
    /// The next one of the counter.
    next: u64,
    /// The length of the array.
    bound: u64,
    free: Vec<u32>,
    /// IDs that a recovery found unused. They are kept as ranges, since there may be a billion of
    /// them.
    gaps: Vec<Range<u32>>,
    /// Retired IDs that were not handed over to the collector yet.
    retired: Vec<u32>,
}

impl IdsInUse {
    fn next_of_gap(&mut self) -> Option<u32> {
        let gap = self.gaps.last_mut()?;
        let id = gap.next();
        if gap.start == gap.end {
            self.gaps.pop();
        }
        id
    }
}

impl<M: Medium> Ids<M> {
    /// A table without IDs, for at most `most` of them.
    pub fn new(most: u32) -> Result<Self> {
        let entries = Arena::new(most)?;
        // Entry 0 exists for a reader that has read 0 in place of an ID.
        entries.reach(1)?;
        let state = IdsInUse {
            next: 1,
            bound: FIRST_BOUND,
            ..IdsInUse::default()
        };
        Ok(Self {
            entries,
            most,
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// Makes the IDs those in use, which a recovery has [set](Ids::set). Returns false if an ID
    /// occurs twice.
    pub fn resume(&self, used: impl Iterator<Item = u32> + Clone) -> bool {
        let last = used.clone().max().unwrap_or(0);
        let mut taken = vec![0_u64; last as usize / 64 + 1];
        let mut is_twice = false;
        for id in used {
            let word = &mut taken[id as usize / 64];
            let bit = 1 << (id % 64);
            is_twice |= *word & bit != 0;
            *word |= bit;
        }
        let mut gaps = Vec::new();
        let mut next_free = 1;
        for (word, first) in taken.iter().zip((0..).step_by(64)) {
            for id in bits(*word).map(|bit| first + bit as u32) {
                if next_free < id {
                    gaps.push(next_free..id);
                }
                next_free = id + 1;
            }
        }
        // The last one is used first.
        gaps.reverse();
        let next = u64::from(last) + 1;
        let bound = next.next_power_of_two().max(FIRST_BOUND);
        *self.state.lock() = IdsInUse {
            next,
            bound,
            gaps,
            ..IdsInUse::default()
        };
        !is_twice
    }

    /// An ID that is not in use.
    ///
    /// # Errors
    /// [`ErrorKind::TreeFull`] if all are in use.
    pub fn claim(&self) -> Result<u32> {
        let mut state = self.state.lock();
        if state.next >= state.bound {
            if let Some(id) = state.free.pop().or_else(|| state.next_of_gap()) {
                return Ok(id);
            }
            state.bound = (2 * state.bound).min(u64::from(self.most) + 1);
        }
        if state.next > u64::from(self.most) {
            return Err(ErrorKind::TreeFull {
                limit: u64::from(self.most),
            }
            .into());
        }
        let id = state.next as u32;
        // This makes room for several IDs at once, because it takes a lock.
        self.entries.reach((id | 0xff).min(self.most))?;
        state.next += 1;
        Ok(id)
    }

    /// Gives back an ID that no other thread has seen.
    pub fn give_back(&self, id: u32) {
        self.state.lock().free.push(id);
    }

    /// Gives back an ID that new readers cannot find, once the present ones have left.
    pub fn retire(&self, guard: &Guard<'_, M>, id: u32) {
        let mut state = self.state.lock();
        state.retired.push(id);
        // Under a scheduler each ID is handed over by itself, as early as possible: a test that
        // reads a reused ID then fails.
        if state.retired.len() >= if M::SCHEDULED { 1 } else { BATCH } {
            let batch = std::mem::take(&mut state.retired);
            let all = Arc::clone(&self.state);
            drop(state);
            guard.after_readers(move || all.lock().free.extend(batch));
        }
    }

    /// Gives an ID its entry, before any node has the ID.
    pub fn set(&self, id: u32, words: EntryWords) -> Result<()> {
        self.entries.reach(id)?;
        // ORDER: a reader that has read one of these words finds the raised version of the node
        // that had the ID before.
        self.entries
            .get(id)
            .iter()
            .zip(words)
            .for_each(|(word, value)| word.store(value, Ordering::Release));
        Ok(())
    }

    /// Replaces the second word of an entry.
    #[inline]
    pub fn replace(&self, id: u32, second: u64) {
        // ORDER: pairs with the acquire in `entry`: the record that the word leads to is visible.
        self.entries.peek(id)[1].store(second, Ordering::Release);
    }

    /// The entry of an ID. Any words for an ID that is not in use.
    #[inline(always)]
    pub fn entry(&self, id: u32) -> EntryWords {
        let [first, second] = self.entries.peek(id);
        [
            first.load(Ordering::Relaxed),
            second.load(Ordering::Acquire),
        ]
    }

    /// Hints the processor to load the entry of an ID.
    #[inline(always)]
    pub fn prefetch(&self, id: u32) {
        medium::kernels::prefetch_read(self.entries.peek(id));
    }

    /// Bytes of the table.
    pub fn bytes_used(&self) -> u64 {
        self.entries.bytes_used()
    }
}

#[cfg(test)]
mod tests;
