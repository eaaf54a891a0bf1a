//! CLWB, CLFLUSHOPT, CLFLUSH and SFENCE.

use std::arch::asm;

use super::cpuid::CpuFeatures;
use super::{FlushKind, each_line};
use crate::LINE_BYTES;

pub(super) fn detect() -> FlushKind {
    let features = CpuFeatures::read();
    if features.clwb {
        FlushKind::Clwb
    } else if features.clflushopt {
        FlushKind::Clflushopt
    } else {
        FlushKind::Clflush
    }
}

pub(super) fn is_supported(kind: FlushKind) -> bool {
    match kind {
        FlushKind::Clwb => CpuFeatures::read().clwb,
        FlushKind::Clflushopt => CpuFeatures::read().clflushopt,
        FlushKind::Clflush => true,
        FlushKind::DcCvap | FlushKind::DcCvac | FlushKind::Nothing => false,
    }
}

/// # Safety
/// The contract of [`super::flush_range`].
#[inline(always)]
pub(super) unsafe fn flush_range(kind: FlushKind, first: *const u8, length: usize) {
    match kind {
        FlushKind::Clwb => each_line(first, length, LINE_BYTES, |line| {
            // SAFETY: the caller ensures that the line is mapped and that CLWB exists; CLWB changes
            // no value in memory.
            unsafe { asm!("clwb [{line}]", line = in(reg) line, options(nostack, preserves_flags)) }
        }),
        FlushKind::Clflushopt => each_line(first, length, LINE_BYTES, |line| {
            // SAFETY: the caller ensures that the line is mapped and that CLFLUSHOPT exists;
            // CLFLUSHOPT changes no value in memory.
            unsafe {
                asm!("clflushopt [{line}]", line = in(reg) line, options(nostack, preserves_flags));
            }
        }),
        FlushKind::Clflush => each_line(first, length, LINE_BYTES, |line| {
            // SAFETY: the caller ensures that the line is mapped; CLFLUSH changes no value in
            // memory.
            unsafe {
                asm!("clflush [{line}]", line = in(reg) line, options(nostack, preserves_flags));
            }
        }),
        FlushKind::DcCvap | FlushKind::DcCvac | FlushKind::Nothing => {}
    }
}

#[inline(always)]
pub(super) fn store_fence(_kind: FlushKind) {
    // SAFETY: SFENCE is part of x86-64 and touches neither registers nor memory. No `nomem`: the
    // compiler keeps every store on its side.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}
