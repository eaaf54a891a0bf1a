//! Prefetching: asking for lines before they are needed.
//!
//! A prefetch reads nothing that the program can see and never faults, so these functions are safe
//! for any reference; asking costs a cycle or two, and one of the few misses that a core can have
//! outstanding.

use crate::LINE_BYTES;

/// Prefetches the line that holds the first byte of `target`. O(1).
#[inline(always)]
pub fn prefetch_read<T: ?Sized>(target: &T) {
    prefetch(std::ptr::from_ref(target).cast());
}

/// Prefetches every line of `target`. O(lines).
#[inline(always)]
pub fn prefetch_lines<T: ?Sized>(target: &T) {
    prefetch_first(target, size_of_val(target));
}

/// Prefetches the lines that hold the first `bytes` of `target`, or all of it if it is shorter.
/// O(lines).
#[inline(always)]
pub fn prefetch_first<T: ?Sized>(target: &T, bytes: usize) {
    let first = std::ptr::from_ref(target).cast::<u8>();
    let length = bytes.min(size_of_val(target));
    // For a type that is aligned to a line the compiler knows the skew, and thus the number of
    // lines.
    let skew = if align_of_val(target) >= LINE_BYTES {
        0
    } else {
        first.addr() % LINE_BYTES
    };
    for line in (0..length + if length == 0 { 0 } else { skew }).step_by(LINE_BYTES) {
        prefetch(first.wrapping_sub(skew).wrapping_add(line));
    }
}

/// Prefetches the line that holds the first byte of `target` for a store to it, so that the store
/// does not wait for the line. O(1).
#[inline(always)]
pub fn prefetch_write<T: ?Sized>(target: &T) {
    let address = std::ptr::from_ref(target).cast::<u8>();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which no address makes fault and which old processors ignore.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    prefetch(address);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: part of x86-64; a hint, which no address makes fault.
    unsafe { _mm_prefetch(address.cast(), _MM_HINT_T0) }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn prefetch(address: *const u8) {
    // SAFETY: part of AArch64; a hint, which no address makes fault.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
fn prefetch(_address: *const u8) {}
