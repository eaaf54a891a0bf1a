//! Values that are visible and not durable yet, on media whose fences order but do not make durable
//! ([`Medium::LATE`]).
//!
//! For each hash of words the last commit is kept that made a value visible in such a word. So the
//! reader of a dirty word waits for the commit of its value, or for a later commit of a word with
//! the same hash.

use medium::sync::{AtomicU64, Ordering};
use medium::{Lsn, Medium, WORD_BYTES};
use pool::Guard;

use super::Pmwcas;
use super::execute::word_at;
use super::layout::SPREAD;
use super::word::{DIRTY, VALUE_MASK};
use crate::Result;

/// Hashes of words. With more of them fewer readers wait for the commit of another word.
const HASHES: usize = 1 << 12;
const HASH_SHIFT: u32 = u64::BITS - HASHES.ilog2();

/// The last commits of words.
#[derive(Debug)]
pub(super) struct Commits(Box<[AtomicU64]>);

impl Commits {
    pub(super) fn new<M: Medium>() -> Self {
        Self(
            (0..if M::LATE { HASHES } else { 0 })
                .map(|_| AtomicU64::new(0))
                .collect(),
        )
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    fn of(&self, offset: u64) -> &AtomicU64 {
        &self.0[((offset / WORD_BYTES as u64).wrapping_mul(SPREAD) >> HASH_SHIFT) as usize]
    }

    /// Notes the LSN of a value, before the word at `offset` gets the value.
    pub(super) fn note<M: Medium>(&self, offset: u64, lsn: Lsn) {
        if M::LATE {
            // ORDER: pairs with the acquire in `last`: a thread that sees the value finds its
            // commit.
            self.of(offset).fetch_max(lsn.0, Ordering::AcqRel);
        }
    }

    /// The LSN by which every value is durable that was visible in the word at `offset` since the
    /// open.
    fn last(&self, offset: u64) -> Lsn {
        Lsn(self.of(offset).load(Ordering::Acquire))
    }

    /// The LSN by which every value is durable that was visible in any word.
    fn newest(&self) -> Lsn {
        Lsn(self
            .0
            .iter()
            .map(|last| last.load(Ordering::Acquire))
            .max()
            .unwrap_or_default())
    }

    /// The content to store in the word at `offset` for `value`, which is the newest value there or
    /// the one before it: with the dirty bit, unless both values are durable.
    pub(super) fn visible<M: Medium>(&self, guard: &Guard<'_, M>, offset: u64, value: u64) -> u64 {
        if M::LATE && !guard.is_durable(self.last(offset)) {
            value | DIRTY
        } else {
            value
        }
    }
}

/// The values that a thread has read and a crash could undo: none on media whose fences make
/// durable.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// The LSN at which all of them are durable.
    lsn: Lsn,
}

impl Seen {
    /// Notes the content `raw` of the word at `offset`; returns the value in it.
    #[inline(always)]
    pub(super) fn note<M: Medium>(
        &mut self,
        guard: &Guard<'_, M>,
        commits: &Commits,
        offset: impl FnOnce() -> u64,
        raw: u64,
    ) -> u64 {
        if M::LATE && raw & DIRTY != 0 {
            self.note_dirty(guard, commits, offset(), raw & VALUE_MASK);
        }
        raw & VALUE_MASK
    }

    /// Notes a dirty word. If its value is durable the bit is of no use any more: the reader clears
    /// it. The bit may have been written back to the pool, and be there after a restart.
    #[cold]
    fn note_dirty<M: Medium>(
        &mut self,
        guard: &Guard<'_, M>,
        commits: &Commits,
        offset: u64,
        value: u64,
    ) {
        let lsn = commits.last(offset);
        if guard.is_durable(lsn) {
            clean(guard, offset, value);
        } else {
            self.lsn = self.lsn.max(lsn);
        }
    }

    /// The LSN at which all of them are durable.
    #[inline(always)]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }
}

/// Clears the dirty bit of a word if it still has this value. Not flushed: after a crash that
/// brings the bit back, no reader has a commit to wait for.
fn clean<M: Medium>(guard: &Guard<'_, M>, offset: u64, value: u64) {
    if let Ok(word) = word_at(guard, offset) {
        let _ = word.compare_exchange(guard, value | DIRTY, value);
    }
}

impl Pmwcas {
    /// Returns when all values in `seen` are durable. Does nothing on media whose fences make
    /// durable.
    ///
    /// # Errors
    /// [`ErrorKind::Medium`](crate::ErrorKind::Medium): the medium failed; the caller must not
    /// answer from these values.
    #[inline(always)]
    #[track_caller]
    pub fn settle<M: Medium>(&self, guard: &Guard<'_, M>, seen: &Seen) -> Result<()> {
        guard.wait_for(seen.lsn)
    }

    /// Returns when every value that was visible before the call is durable: for a caller that has
    /// read many words, also by [`Pmwcas::read`].
    pub fn settle_all<M: Medium>(&self, guard: &Guard<'_, M>) -> Result<()> {
        if M::LATE {
            Ok(guard.wait_for(self.commits.newest())?)
        } else {
            Ok(())
        }
    }
}
