//! Eight non-temporal stores, past the caches: one copy of a twin line.
//!
//! The processor gathers them in a write-combining buffer and sends the line to memory without
//! reading it first, so there is no miss to wait for, and no flush. It may send the line in pieces,
//! in any order; [`super::twin`] recognises a line that was not sent as a whole. Weakly ordered
//! like a direct store: visible and durable in order after the next SFENCE.

use std::arch::asm;
use std::sync::atomic::AtomicU64;

use super::LineValue;

/// Stores `value` to the line.
#[inline(always)]
pub(super) fn store(line: &[AtomicU64; 8], value: &LineValue) {
    for (word, value) in line.iter().zip(value.0) {
        // SAFETY: SSE2 is part of x86-64; writes an aligned word that the reference covers, for
        // other threads one atomic store. `AtomicU64` permits writing through a shared pointer.
        unsafe {
            asm!("movnti [{word}], {value}", word = in(reg) word.as_ptr(), value = in(reg) value,
                 options(nostack, preserves_flags));
        }
    }
}
