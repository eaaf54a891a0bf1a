//! Cells: the only way to pool memory.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::line_store::{LineValue, TAG_MASK, twin};
use crate::sync::is_scheduled;
use crate::sync::schedule::{Access, AccessKind, reach};
use crate::{LINE_BYTES, LineForm, Medium, MediumError, MediumGuard, Node};

/// 8 bytes, aligned: stored atomically, also across a crash.
#[repr(transparent)]
#[derive(Debug)]
pub struct Word(AtomicU64);

// SAFETY: one atomic word; any bits are valid.
unsafe impl Node for Word {
    const NAME: &'static str = "Word";
}

impl Word {
    /// Loads with acquire ordering.
    #[inline(always)]
    pub fn load<M: Medium>(&self, guard: &MediumGuard<'_, M>) -> u64 {
        guard.medium().load(&self.0)
    }

    /// Stores with release ordering. Durable only after a flush and a fence.
    #[inline(always)]
    #[track_caller]
    pub fn store<M: Medium>(&self, guard: &MediumGuard<'_, M>, value: u64) {
        guard.medium().store(&self.0, value);
    }

    /// Stores and flushes the word that makes something reachable: everything it leads to is
    /// durable already.
    #[inline(always)]
    #[track_caller]
    pub fn publish<M: Medium>(&self, guard: &MediumGuard<'_, M>, value: u64) {
        guard.medium().store(&self.0, value);
        guard.flush(self);
    }

    /// Replaces `current` by `new`; `Err` holds the value that was found instead.
    #[inline(always)]
    #[track_caller]
    pub fn compare_exchange<M: Medium>(
        &self,
        guard: &MediumGuard<'_, M>,
        current: u64,
        new: u64,
    ) -> Result<u64, u64> {
        guard.medium().compare_exchange(&self.0, current, new)
    }

    /// Hints the processor to load the word's line for a store. A flush may have evicted it from
    /// the cache.
    #[inline(always)]
    pub fn prefetch_write(&self) {
        crate::kernels::prefetch_write(self);
    }

    /// Hints the processor to load the word's line.
    #[inline(always)]
    pub fn prefetch(&self) {
        crate::kernels::prefetch_read(self);
    }

    #[inline(always)]
    pub(crate) fn from_atomics(words: &[AtomicU64]) -> &[Self] {
        // SAFETY: `Word` is a transparent wrapper.
        unsafe { &*(std::ptr::from_ref(words) as *const [Self]) }
    }

    #[inline(always)]
    pub(crate) fn atomics(words: &[Self]) -> &[AtomicU64] {
        // SAFETY: `Word` is a transparent wrapper.
        unsafe { &*(std::ptr::from_ref(words) as *const [AtomicU64]) }
    }

    /// Pairs of words seen as entries, for [`Medium::compare_entries`].
    #[inline(always)]
    pub fn pairs(entries: &[[Self; 2]]) -> &[[AtomicU64; 2]] {
        // SAFETY: `Word` is a transparent wrapper.
        unsafe { &*(std::ptr::from_ref(entries) as *const [[AtomicU64; 2]]) }
    }

    /// Words seen as bytes or keys to be searched, for [`Medium::match_byte`] and
    /// [`Medium::rank_le`].
    #[inline(always)]
    pub fn run<const N: usize>(words: &[Self; N]) -> &[AtomicU64; N] {
        // SAFETY: `Word` is a transparent wrapper.
        unsafe { &*std::ptr::from_ref(words).cast::<[AtomicU64; N]>() }
    }
}

/// A word in the pool that means nothing across a restart (a lock, a version): it reads as
/// arbitrary after a crash. Each execution gives it a value before it uses it
/// ([`VolatileWord::start`]). Only that first value is a store to the medium.
#[repr(transparent)]
#[derive(Debug)]
pub struct VolatileWord(AtomicU64);

// SAFETY: one atomic word; any bits are valid.
unsafe impl Node for VolatileWord {
    const NAME: &'static str = "VolatileWord";
}

impl VolatileWord {
    /// Gives the word a first value, with release ordering. To be called when the memory becomes a
    /// node, and when an execution reaches the node for the first time.
    #[inline(always)]
    #[track_caller]
    pub fn start<M: Medium>(&self, guard: &MediumGuard<'_, M>, value: u64) {
        guard.medium().start_volatile(&self.0, value);
    }

    #[inline(always)]
    fn reach<M: Medium>(&self, kind: AccessKind) {
        if is_scheduled::<M>() {
            reach(Access::words(std::slice::from_ref(self), kind));
        }
    }

    /// Does what the method of [`AtomicU64`] does; a yield point under a scheduler.
    #[inline(always)]
    pub fn load<M: Medium>(&self, _guard: &MediumGuard<'_, M>, order: Ordering) -> u64 {
        self.reach::<M>(AccessKind::Load);
        self.0.load(order)
    }

    /// Does what the method of [`AtomicU64`] does; a yield point under a scheduler.
    #[inline(always)]
    pub fn store<M: Medium>(&self, guard: &MediumGuard<'_, M>, value: u64, order: Ordering) {
        self.reach::<M>(AccessKind::Store);
        guard.medium().store_volatile(&self.0, value, order);
    }

    /// Does what the method of [`AtomicU64`] does, with `Relaxed` on failure; a yield point under a
    /// scheduler.
    #[inline(always)]
    pub fn compare_exchange<M: Medium>(
        &self,
        guard: &MediumGuard<'_, M>,
        current: u64,
        new: u64,
        success: Ordering,
    ) -> Result<u64, u64> {
        self.reach::<M>(AccessKind::Store);
        guard
            .medium()
            .compare_exchange_volatile(&self.0, [current, new], success)
    }
}

/// A torn line that no crash leaves, so the pool is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Torn {
    /// Neither copy of a twin line is whole.
    #[error("both copies of the line are torn")]
    Twin,
    /// A single line has bits that only the tags of twins set.
    #[error("a single line with the tags of twins")]
    Single,
}

/// The content of a line that no thread writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundLine {
    /// The newest whole value, as stored.
    pub value: LineValue,
    /// Whether nothing is torn. If not, the line needs [`Line::recover`] before it is published
    /// again.
    pub is_whole: bool,
}

/// 64 bytes, aligned, written failure-atomically: after a crash the line holds one of its published
/// values, whole.
///
/// Bits 62 and 63 of each word belong to the medium ([`crate::TAG_MASK`]); the other 496 bits, the
/// *payload*, are the caller's. The caller serialises writers, and keeps the value *as stored*: it
/// carries the tag that tells a twin line which copy to write next, so that publishing reads
/// nothing from the pool.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Line([AtomicU64; 8]);

// SAFETY: eight atomic words; any bits are valid.
unsafe impl Node for Line {
    const NAME: &'static str = "Line";
}

impl Line {
    #[inline(always)]
    pub(crate) fn atomics(&self) -> &[AtomicU64; 8] {
        &self.0
    }

    /// The second copy of a twin line.
    ///
    /// # Panics
    /// If the line does not lie in the guard's medium.
    #[inline]
    fn second<'g, M: Medium>(&self, guard: &'g MediumGuard<'_, M>) -> &'g Line {
        let extent = guard.medium().extent();
        let offset = extent
            .offset_of(&self.0)
            .and_then(|offset| offset.checked_sub(LINE_BYTES as u64));
        let address = offset.and_then(|offset| extent.at(offset, LINE_BYTES, LINE_BYTES));
        // SAFETY: `at` checked bounds and alignment; a line takes any bits.
        unsafe {
            &*address
                .expect("a twin line of another medium")
                .cast::<Line>()
        }
    }

    /// Gives a line in fresh memory its first value, and flushes it; returns the value as stored.
    /// Not failure-atomic: publish the line's node only after a fence.
    #[inline]
    #[track_caller]
    pub fn init<M: Medium>(&self, guard: &MediumGuard<'_, M>, payload: &LineValue) -> LineValue {
        let mut value = *payload;
        if guard.medium().line_form() == LineForm::Twin {
            let copies = twin::initial(payload);
            value = copies[0];
            let second = self.second(guard);
            second.store_words(guard, &copies[1]);
            guard.flush(second);
        }
        self.store_words(guard, &value);
        guard.flush(self);
        value
    }

    /// Stores a new value failure-atomically and flushes it; durable after the next fence.
    /// `previous` is the value that the line has, as stored. Returns the new value as stored; after
    /// an error the line has its old value.
    #[inline(always)]
    #[track_caller]
    pub fn publish<M: Medium>(
        &self,
        guard: &MediumGuard<'_, M>,
        previous: &LineValue,
        payload: &LineValue,
    ) -> Result<LineValue, MediumError> {
        if guard.medium().line_form() == LineForm::Single {
            guard.store_line(self, payload)?;
            return Ok(*payload);
        }
        let tag = twin::next_tag(
            twin::tag(&previous.0).expect("a value that was never loaded or initialised"),
        );
        let value = twin::with_tag(payload, tag);
        let copy = if twin::copy_of(tag) == 0 {
            self
        } else {
            self.second(guard)
        };
        guard.store_copy(copy, &value);
        Ok(value)
    }

    /// Hints the processor that the line will be published soon.
    #[inline(always)]
    pub fn prefetch<M: Medium>(&self, guard: &MediumGuard<'_, M>) {
        match guard.medium().line_form() {
            LineForm::Single => crate::kernels::prefetch_write(&self.0),
            // A copy is stored past the caches, so the prefetch only loads the translation of its
            // page's address.
            LineForm::Twin => crate::kernels::prefetch_read(&self.0),
        }
    }

    /// The newest whole value. A copy that a crash tore is first overwritten and drained: otherwise
    /// a later torn store with the same tag could complete it. Needs exclusive access to the line.
    pub fn recover<M: Medium>(&self, guard: &MediumGuard<'_, M>) -> Result<LineValue, Torn> {
        let found = self.inspect(guard)?;
        if !found.is_whole {
            let tag = twin::tag(&found.value.0).expect("a whole copy");
            let other = if twin::copy_of(tag) == 0 {
                self.second(guard)
            } else {
                self
            };
            // PERSIST: nothing must precede; lost before the fence, the copy is still torn or
            // already sound.
            other.store_words(guard, &twin::repair(tag));
            guard.flush(other);
            guard.fence();
        }
        Ok(found.value)
    }

    /// The newest whole value, and whether a crash tore the other copy; repairs nothing. Safe
    /// beside a writer only if retried.
    pub fn inspect<M: Medium>(&self, guard: &MediumGuard<'_, M>) -> Result<FoundLine, Torn> {
        let first = guard.medium().load_line(&self.0);
        if guard.medium().line_form() == LineForm::Single {
            let is_tagged = first.0.iter().any(|word| word & TAG_MASK != 0);
            return if is_tagged {
                Err(Torn::Single)
            } else {
                Ok(FoundLine {
                    value: first,
                    is_whole: true,
                })
            };
        }
        let copies = [first, guard.medium().load_line(&self.second(guard).0)];
        match twin::choose(&copies[0].0, &copies[1].0) {
            twin::TwinChoice::Newest {
                copy,
                other_is_sound,
                ..
            } => Ok(FoundLine {
                value: copies[copy],
                is_whole: other_is_sound,
            }),
            twin::TwinChoice::BothTorn => Err(Torn::Twin),
        }
    }

    /// Both copies without their tags, torn or not: for salvage, which tells by other means which
    /// one is whole.
    pub fn copies<'l, M: Medium>(
        &'l self,
        guard: &'l MediumGuard<'_, M>,
    ) -> impl Iterator<Item = LineValue> + 'l {
        let second = (guard.medium().line_form() == LineForm::Twin).then(|| self.second(guard));
        let copies = std::iter::once(self).chain(second);
        copies.map(|copy| {
            LineValue(
                guard
                    .medium()
                    .load_line(&copy.0)
                    .0
                    .map(|word| word & !TAG_MASK),
            )
        })
    }

    /// The newest whole value, as [`Line::inspect`] finds it.
    pub fn load<M: Medium>(&self, guard: &MediumGuard<'_, M>) -> Result<LineValue, Torn> {
        Ok(self.inspect(guard)?.value)
    }

    #[inline(always)]
    #[track_caller]
    fn store_words<M: Medium>(&self, guard: &MediumGuard<'_, M>, value: &LineValue) {
        for (word, value) in self.0.iter().zip(value.0) {
            guard.medium().store(word, value);
        }
    }
}
