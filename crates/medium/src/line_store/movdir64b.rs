//! MOVDIR64B: 64 bytes as one direct store.
//!
//! The architecture promises that the 64 bytes are written together. The store bypasses the caches
//! (a cached copy of the line is written back and dropped first), so it needs no flush; it is
//! durable after the next SFENCE. It is weakly ordered, as a write-combining store is: without a
//! fence, neither older stores nor later ones of this thread are ordered with it. A caller that
//! computes the new value from the old line loads the line *before*.

use std::arch::asm;
use std::sync::atomic::AtomicU64;

use super::LineValue;

/// Stores `value` to the line.
///
/// # Safety
/// MOVDIR64B exists; the line is 64-byte aligned and mapped writable.
#[inline(always)]
pub(super) unsafe fn store(line: *const [AtomicU64; 8], value: &LineValue) {
    // SAFETY: reads 64 bytes of `value`, writes the 64 bytes of the line: a store that other
    // threads see as eight atomic word stores, whatever else they see. `AtomicU64` permits writing
    // through a shared pointer. No `nomem`: the compiler has stored `value` to memory before, and
    // forgets what it knew of the line.
    unsafe {
        asm!("movdir64b {line}, [{value}]", line = in(reg) line, value = in(reg) value,
             options(nostack, preserves_flags));
    }
}
