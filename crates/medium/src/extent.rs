//! The memory of a medium: where it starts and how far it reaches.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{LINE_BYTES, WORD_BYTES};

/// The mapped memory of a medium: a base address that never moves, and a length that only grows
/// while threads use it.
#[derive(Debug)]
pub struct Extent {
    base: NonNull<u8>,
    length: AtomicU64,
}

// SAFETY: an extent is an address and a number; what it points to is only ever accessed as atomics.
unsafe impl Send for Extent {}
// SAFETY: as above.
unsafe impl Sync for Extent {}

impl Extent {
    /// An extent of `length` bytes at `base`.
    ///
    /// # Safety
    /// `base` is aligned to a line, and `length` bytes from it (and all that [`Extent::set_length`]
    /// adds later) stay readable and writable until the extent's owner is dropped, accessed only as
    /// 8-byte atomics (a 64-byte access counts as eight).
    pub unsafe fn new(base: NonNull<u8>, length: u64) -> Self {
        debug_assert!((base.as_ptr() as usize).is_multiple_of(LINE_BYTES));
        Self {
            base,
            length: AtomicU64::new(length),
        }
    }

    /// The first byte.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Bytes that may be accessed.
    #[inline]
    pub fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    /// Makes `length` bytes accessible.
    ///
    /// # Safety
    /// The memory up to `length` is mapped. With a smaller length than before, the memory beyond
    /// stays mapped, as [`Extent::new`] demands, or the caller has exclusive access.
    pub unsafe fn set_length(&self, length: u64) {
        self.length.store(length, Ordering::Release);
    }

    /// `offset` as an address, if `bytes` bytes from it lie inside and it is aligned to `align`.
    #[inline]
    pub fn at(&self, offset: u64, bytes: usize, align: usize) -> Option<*mut u8> {
        let end = offset.checked_add(bytes as u64)?;
        if end > self.length() || !offset.is_multiple_of(align as u64) {
            return None;
        }
        Some(self.base().wrapping_add(offset as usize))
    }

    /// `count` words at `offset`, if they lie inside.
    #[inline]
    pub fn words(&self, offset: u64, count: usize) -> Option<&[AtomicU64]> {
        let first = self.at(offset, count.checked_mul(WORD_BYTES)?, WORD_BYTES)?;
        // SAFETY: `at` checked bounds and alignment; the owner keeps the memory mapped while `self`
        // is borrowed, and all access to it is atomic (contract of `new`).
        Some(unsafe { std::slice::from_raw_parts(first.cast::<AtomicU64>(), count) })
    }

    /// The line of this number, if it lies inside.
    #[inline]
    pub(crate) fn line(&self, number: u64) -> Option<&[AtomicU64; 8]> {
        self.words(
            number.checked_mul(LINE_BYTES as u64)?,
            LINE_BYTES / WORD_BYTES,
        )?
        .first_chunk()
    }

    /// The offset of memory inside this extent; `None` if it lies elsewhere.
    #[inline]
    pub fn offset_of(&self, memory: &[AtomicU64]) -> Option<u64> {
        let offset = (memory.as_ptr() as usize).wrapping_sub(self.base() as usize) as u64;
        (offset.checked_add(size_of_val(memory) as u64)? <= self.length()).then_some(offset)
    }
}
