//! One step of CRC-32C over a word. The state is the one between the complements at both ends.

use super::{Kernels, active};

/// Whether [`step`] may be called. Every processor with the instructions of the other kernels has
/// this one.
#[inline(always)]
pub(crate) fn has_instruction() -> bool {
    cfg!(all(target_arch = "x86_64", not(miri))) && active() != Kernels::Portable as u8
}

/// Adds a word by the processor's instruction.
///
/// # Safety
/// [`has_instruction`] has returned `true`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn step(state: u32, word: u64) -> u32 {
    let mut wide = u64::from(state);
    // SAFETY: the caller ensures that the instruction exists. It touches no memory.
    unsafe {
        std::arch::asm!("crc32 {wide}, {word}", wide = inout(reg) wide, word = in(reg) word,
                        options(pure, nomem, nostack, preserves_flags));
    }
    wide as u32
}

/// Never called: [`has_instruction`] returns `false`.
///
/// # Safety
/// None needed.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) unsafe fn step(state: u32, word: u64) -> u32 {
    step_by_table(state, word)
}

/// Adds a word by tables, on any processor.
pub(crate) fn step_by_table(state: u32, word: u64) -> u32 {
    !crc32c::crc32c_append(!state, &word.to_le_bytes())
}
