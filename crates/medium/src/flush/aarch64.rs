//! DC CVAP, DC CVAC and DSB.

use std::arch::{asm, is_aarch64_feature_detected};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{FlushKind, each_line};

pub(super) fn detect() -> FlushKind {
    if is_aarch64_feature_detected!("dpb") {
        FlushKind::DcCvap
    } else {
        FlushKind::DcCvac
    }
}

pub(super) fn is_supported(kind: FlushKind) -> bool {
    match kind {
        FlushKind::DcCvap => is_aarch64_feature_detected!("dpb"),
        FlushKind::DcCvac => true,
        FlushKind::Clwb | FlushKind::Clflushopt | FlushKind::Clflush | FlushKind::Nothing => false,
    }
}

/// # Safety
/// The contract of [`super::flush_range`].
#[inline(always)]
pub(super) unsafe fn flush_range(kind: FlushKind, first: *const u8, length: usize) {
    match kind {
        FlushKind::DcCvap => each_line(first, length, line_bytes(), |line| {
            // SAFETY: the caller ensures that the line is mapped and that FEAT_DPB exists; cleaning
            // changes no value in memory. The instruction is `dc cvap`, spelt so that assemblers
            // without the feature take it.
            unsafe {
                asm!("sys #3, c7, c12, #1, {line}", line = in(reg) line, options(nostack, preserves_flags));
            }
        }),
        FlushKind::DcCvac => each_line(first, length, line_bytes(), |line| {
            // SAFETY: the caller ensures that the line is mapped; cleaning changes no value in
            // memory, and Linux permits it to programs (SCTLR_EL1.UCI).
            unsafe {
                asm!("dc cvac, {line}", line = in(reg) line, options(nostack, preserves_flags))
            }
        }),
        FlushKind::Clwb | FlushKind::Clflushopt | FlushKind::Clflush | FlushKind::Nothing => {}
    }
}

#[inline(always)]
pub(super) fn store_fence(_kind: FlushKind) {
    // SAFETY: a barrier; it touches neither registers nor memory. DSB, for DMB does not wait for
    // cache maintenance.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) }
}

/// Bytes in the smallest data cache line of this processor, read once.
#[inline]
fn line_bytes() -> usize {
    static LINE_BYTES: AtomicUsize = AtomicUsize::new(0);
    match LINE_BYTES.load(Ordering::Relaxed) {
        0 => {
            let bytes = line_bytes_of_register();
            LINE_BYTES.store(bytes, Ordering::Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

#[cold]
fn line_bytes_of_register() -> usize {
    let cache_type: u64;
    // SAFETY: reads an identification register that Linux lets programs read (or emulates for
    // them).
    unsafe {
        asm!("mrs {}, ctr_el0", out(reg) cache_type, options(nomem, nostack, preserves_flags))
    }
    // DminLine: the logarithm of the number of 4-byte words.
    4 << (cache_type >> 16 & 0xf)
}
