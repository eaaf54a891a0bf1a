//! What is visible and not durable yet, on media whose fences order and do not yet make durable ([`Medium::LATE`]).
//!
//! Words are told apart by a hash: for each of these there is the last commit that made a value visible. So who reads a
//! dirty word waits for the commit of that value, or a later one of a word that has the same hash.

use medium::sync::{AtomicU64, Ordering};
use medium::{Lsn, Medium, WORD_BYTES};
use pool::Guard;
use smallvec::SmallVec;

use super::Pmwcas;
use super::execute::word_at;
use super::layout::SPREAD;
use super::word::{DIRTY, VALUE_MASK};
use crate::Result;

/// Hashes of words. More of them, and fewer readers wait for somebody else's commit.
const HASHES: usize = 1 << 12;
const HASH_SHIFT: u32 = u64::BITS - HASHES.ilog2();

/// The last commits of words.
#[derive(Debug)]
pub(super) struct Commits(Box<[AtomicU64]>);

impl Commits {
    pub(super) fn new<M: Medium>() -> Self {
        Self((0..if M::LATE { HASHES } else { 0 }).map(|_| AtomicU64::new(0)).collect())
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    fn of(&self, offset: u64) -> &AtomicU64 {
        &self.0[((offset / WORD_BYTES as u64).wrapping_mul(SPREAD) >> HASH_SHIFT) as usize]
    }

    /// Before the word at `offset` gets a value that is durable with `lsn`.
    pub(super) fn note<M: Medium>(&self, offset: u64, lsn: Lsn) {
        if M::LATE {
            // ORDER: pairs with the acquire in `last`: who sees the value finds its commit.
            self.of(offset).fetch_max(lsn.0, Ordering::AcqRel);
        }
    }

    /// With what everything is durable that was visible in the word at `offset`, in this life.
    fn last(&self, offset: u64) -> Lsn {
        Lsn(self.of(offset).load(Ordering::Acquire))
    }

    /// With what everything is durable that was visible in any word.
    fn newest(&self) -> Lsn {
        Lsn(self.0.iter().map(|last| last.load(Ordering::Acquire)).max().unwrap_or_default())
    }

    /// What the word at `offset` gets that is to have `value`, the newest one there or the one before: dirty, unless both are
    /// durable.
    pub(super) fn visible<M: Medium>(&self, guard: &Guard<'_, M>, offset: u64, value: u64) -> u64 {
        if M::LATE && !guard.is_durable(self.last(offset)) { value | DIRTY } else { value }
    }
}

/// What a thread has seen that a crash could take back: nothing on media whose fences make durable.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// With what all of it is durable.
    lsn: Lsn,
    /// Words that were dirty, and their values.
    dirty: SmallVec<[(u64, u64); 2]>,
}

impl Seen {
    /// Notes what was read in the word at `offset`; its value.
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

    /// A word stays dirty where waits are put off, in the pool, too, across a restart: so it may be durable long since.
    #[cold]
    fn note_dirty<M: Medium>(&mut self, guard: &Guard<'_, M>, commits: &Commits, offset: u64, value: u64) {
        let lsn = commits.last(offset);
        if !guard.is_durable(lsn) {
            self.lsn = self.lsn.max(lsn);
            self.dirty.push((offset, value));
        }
    }

    /// Waits until it is durable, and says so of the words.
    #[cold]
    #[track_caller]
    fn wait<M: Medium>(&mut self, guard: &Guard<'_, M>) -> Result<()> {
        guard.wait_for(self.lsn)?;
        // Unless the wait was put off, too.
        if guard.is_durable(self.lsn) {
            self.dirty.drain(..).try_for_each(|(offset, value)| clean(guard, offset, value))?;
        }
        Ok(())
    }
}

/// Says that a value is durable, where it still is. Not flushed: a crash that brings the dirty bit back finds no commit that
/// anybody would wait for.
pub(super) fn clean<M: Medium>(guard: &Guard<'_, M>, offset: u64, value: u64) -> Result<()> {
    let _ = word_at(guard, offset)?.compare_exchange(guard, value | DIRTY, value);
    Ok(())
}

impl Pmwcas {
    /// Returns when what was seen is durable. Nothing on media whose fences make durable.
    ///
    /// # Errors
    /// [`PoolError::Medium`](crate::PoolError::Medium): the medium failed, and what was seen is no answer.
    #[inline(always)]
    #[track_caller]
    pub fn settle<M: Medium>(&self, guard: &Guard<'_, M>, seen: &mut Seen) -> Result<()> {
        if M::LATE && !seen.dirty.is_empty() { seen.wait(guard) } else { Ok(()) }
    }

    /// Returns when all is durable that was visible before, for those who have read much of it, by [`Pmwcas::read`] as well.
    pub fn settle_all<M: Medium>(&self, guard: &Guard<'_, M>) -> Result<()> {
        if M::LATE { Ok(guard.wait_for(self.commits.newest())?) } else { Ok(()) }
    }
}
