//! One aligned 64-byte AVX-512 store.
//!
//! Intel cores with AVX-512 move the 64 bytes to the cache at once, though no manual promises it;
//! on Zen 4 another thread's 64-byte load sees such a store half done (the litmus test beside this
//! file shows it). A line in the cache is written back whole, so what one store put there together
//! reaches memory together. zmm16, which no code without AVX-512 can name, needs no VZEROUPPER
//! after it, so this inlines anywhere.

use std::arch::asm;
use std::sync::atomic::AtomicU64;

use super::LineValue;

/// Stores `value` to the line.
///
/// # Safety
/// AVX-512F exists; the line is 64-byte aligned and mapped writable.
#[inline(always)]
pub(super) unsafe fn store(line: *const [AtomicU64; 8], value: &LineValue) {
    // SAFETY: reads 64 aligned bytes of `value`, writes the 64 of the line: for other threads at
    // least eight atomic word stores. `AtomicU64` permits writing through a shared pointer. x86
    // orders it as any store (release), and without `nomem` the compiler does, too.
    unsafe {
        asm!("vmovdqa64 zmm16, [{value}]", "vmovdqa64 [{line}], zmm16",
             line = in(reg) line, value = in(reg) value, out("zmm16") _, options(nostack, preserves_flags));
    }
}
