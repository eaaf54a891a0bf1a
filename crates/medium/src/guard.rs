//! The guard, which every access to a pool takes as an argument.

use crate::line_store::LineValue;
use crate::sync::schedule::{Access, AccessKind, reach};
use crate::sync::{Pin, is_scheduled, pin_on};
use crate::{LINE_BYTES, Line, Lsn, Medium, MediumError, Node, Word};

/// An offset that does not hold what it should: out of bounds or misaligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("offset {offset:#x} cannot hold a {what}: {bytes} bytes, but the pool has {length}")]
pub struct BadOffset {
    /// Where.
    pub offset: u64,
    /// The type that was expected there.
    pub what: &'static str,
    /// Its size.
    pub bytes: usize,
    /// The length of the pool.
    pub length: u64,
}

/// Access to a medium: the epoch pin that keeps retired memory from being reused, and this thread's
/// notes of what it flushed. Its lifetime bounds every reference into the pool. Not for sharing
/// between threads.
pub struct MediumGuard<'m, M: Medium> {
    medium: &'m M,
    notes: M::Notes,
    pin: Option<Pin>,
}

impl<'m, M: Medium> MediumGuard<'m, M> {
    /// Pins the current thread and opens access to `medium`.
    #[inline]
    pub fn new(medium: &'m M) -> Self {
        Self {
            medium,
            notes: M::Notes::default(),
            pin: Some(pin_on::<M>()),
        }
    }

    /// Opens access without pinning: the memory that is read may have been retired and reused. So
    /// the reader validates what it found, by a value that reuse changes. Saves a full fence, which
    /// would also keep the processor from beginning one read before the last has ended.
    #[inline(always)]
    pub fn unpinned(medium: &'m M) -> Self {
        Self {
            medium,
            notes: M::Notes::default(),
            pin: None,
        }
    }

    /// The medium.
    #[inline(always)]
    pub fn medium(&self) -> &'m M {
        self.medium
    }

    /// Whether this guard is pinned: retired memory stays readable.
    pub fn is_pinned(&self) -> bool {
        self.pin.is_some()
    }

    /// The epoch pin.
    ///
    /// # Panics
    /// If the guard was made by [`MediumGuard::unpinned`], which is for reading.
    #[inline(always)]
    pub fn pin(&self) -> &Pin {
        self.pin.as_ref().expect("a guard that is pinned")
    }

    /// A yield point for the scheduler of the crash explorer, before a lock or a change of volatile
    /// state that is neither a cell nor an [`Atomic`](crate::sync::Atomic) of this medium. It
    /// compiles to no code for other media.
    #[inline(always)]
    pub fn interleave<T>(&self, _what: &T) {
        if is_scheduled::<M>() {
            reach(Access::something::<T>(AccessKind::Store));
        }
    }

    /// A yield point, as [`MediumGuard::interleave`] is, before such state is read.
    #[inline(always)]
    pub fn interleave_read<T>(&self, _what: &T) {
        if is_scheduled::<M>() {
            reach(Access::something::<T>(AccessKind::Load));
        }
    }

    /// A yield point, as [`MediumGuard::interleave`] is, before memory is allocated or given back:
    /// which memory a thread gets depends on the order of the threads.
    #[inline(always)]
    pub fn interleave_memory(&self) {
        if is_scheduled::<M>() {
            reach(Access::free_memory());
        }
    }

    /// The node at `offset`. O(1); checks bounds and alignment, not meaning.
    #[inline]
    pub fn node<T: Node>(&self, offset: u64) -> Result<&T, BadOffset> {
        const { assert!(align_of::<T>() <= LINE_BYTES) };
        let extent = self.medium.extent();
        // The second copy of a twin line lies before its node, so no node starts in the first line.
        match extent.at(offset, size_of::<T>(), align_of::<T>()) {
            // SAFETY: in bounds and aligned (the base is aligned to a line); `T: Node` takes any
            // bits and is accessed atomically; the memory stays mapped while the medium lives,
            // which outlives this guard.
            Some(address) if offset >= LINE_BYTES as u64 => Ok(unsafe { &*address.cast::<T>() }),
            _ => Err(BadOffset {
                offset,
                what: T::NAME,
                bytes: size_of::<T>(),
                length: extent.length(),
            }),
        }
    }

    /// `count` words at `offset`. O(1).
    #[inline]
    pub fn words(&self, offset: u64, count: usize) -> Result<&[Word], BadOffset> {
        let extent = self.medium.extent();
        match extent.words(offset, count) {
            Some(words) => Ok(Word::from_atomics(words)),
            None => Err(BadOffset {
                offset,
                what: "word",
                bytes: count.saturating_mul(8),
                length: extent.length(),
            }),
        }
    }

    /// Which of up to 16 words are below `key`, and which equal it ([`Medium::compare_words`]).
    #[inline(always)]
    pub fn compare_words(&self, words: &[Word], key: u64) -> (u32, u32) {
        self.medium.compare_words(Word::atomics(words), key)
    }

    /// The offset of a node that was reached through this guard.
    ///
    /// # Panics
    /// If the node lies in another medium.
    #[inline]
    pub fn offset_of<T: Node>(&self, node: &T) -> u64 {
        let offset = (std::ptr::from_ref(node) as usize)
            .wrapping_sub(self.medium.extent().base() as usize) as u64;
        assert!(
            offset < self.medium.extent().length(),
            "a node of another medium"
        );
        offset
    }

    /// Asks that a node be written back; does not wait. A twin line is flushed by [`Line::publish`]
    /// itself.
    #[inline(always)]
    #[track_caller]
    pub fn flush<T: Node>(&self, node: &T) {
        // SAFETY: a node consists of words (its size is a multiple of 8, its alignment at least
        // that), any bits of which are valid atomics.
        let words = unsafe {
            std::slice::from_raw_parts(
                std::ptr::from_ref(node).cast::<std::sync::atomic::AtomicU64>(),
                size_of::<T>() / crate::WORD_BYTES,
            )
        };
        self.medium.flush(&self.notes, words);
    }

    /// Asks that words be written back; does not wait.
    #[inline(always)]
    #[track_caller]
    pub fn flush_words(&self, words: &[Word]) {
        self.medium.flush(&self.notes, Word::atomics(words));
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn store_line(&self, line: &Line, value: &LineValue) -> Result<(), MediumError> {
        self.medium.store_line(&self.notes, line.atomics(), value)
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn store_copy(&self, copy: &Line, value: &LineValue) {
        self.medium.store_copy(&self.notes, copy.atomics(), value);
    }

    /// Orders flushes: everything this thread flushed before is durable before anything it flushes
    /// later. Returns the position to wait for.
    #[inline(always)]
    #[track_caller]
    pub fn fence(&self) -> Lsn {
        self.medium.fence(&self.notes)
    }

    /// Orders flushes of stores that need not become durable before something else does: see
    /// [`Medium::fence_at_rest`].
    #[track_caller]
    pub fn fence_at_rest(&self) -> Lsn {
        self.medium.fence_at_rest(&self.notes)
    }

    /// Leaves the wait for `lsn` to the caller of the running operation: see
    /// [`Medium::left_to_caller`].
    #[inline(always)]
    #[track_caller]
    pub fn left_to_caller(&self, lsn: Lsn) -> Lsn {
        if M::LATE {
            self.medium.left_to_caller(lsn)
        } else {
            lsn
        }
    }

    /// Waits until everything up to `lsn` is durable.
    #[inline(always)]
    #[track_caller]
    pub fn wait(&self, lsn: Lsn) -> Result<(), MediumError> {
        if M::LATE {
            // The common case of a read, so it comes first and is cheap.
            if lsn <= self.medium.durable() {
                return Ok(());
            }
        }
        self.medium.wait(lsn)
    }

    /// Slows this thread down if the disk is far behind `lsn`, for operations that return before
    /// they are durable.
    pub fn keep_up(&self, lsn: Lsn) -> Result<(), MediumError> {
        if M::LATE && lsn > self.medium.durable() {
            return self.medium.keep_up(lsn);
        }
        Ok(())
    }

    /// Waits until everything up to `lsn` is durable, also where the durability of operations is
    /// put off ([`Durability`](crate::Durability)).
    #[track_caller]
    pub fn settle(&self, lsn: Lsn) -> Result<(), MediumError> {
        self.medium.settle(lsn)
    }

    /// Does the same as [`MediumGuard::settle`], but wakes no task
    /// ([`Medium::settle_without_waking`]).
    #[track_caller]
    pub fn settle_without_waking(&self, lsn: Lsn) -> Result<(), MediumError> {
        self.medium.settle_without_waking(lsn)
    }

    /// Waits while more memory is taken by written pages than is allowed ([`Medium::await_memory`]).
    #[inline(always)]
    pub fn await_memory(&self) -> Result<(), MediumError> {
        self.medium.await_memory()
    }

    /// Whether a write may begin: not after the medium has failed.
    #[inline(always)]
    pub fn admit(&self) -> Result<(), MediumError> {
        self.medium.admit()
    }

    /// Fence and wait: everything this thread flushed is durable when the call returns.
    #[inline(always)]
    #[track_caller]
    pub fn drain(&self) -> Result<(), MediumError> {
        let lsn = self.fence();
        self.wait(lsn)
    }
}
