//! Cache-line write-back and the store fence, per processor architecture.
//!
//! On byte-addressable memory a store is durable once its line has left the caches for the memory
//! controller. A *flush* asks for that and does not wait; the *store fence* waits for every flush
//! that this thread asked for. Both are single instructions, but which ones depends on the
//! processor, so the choice is made once, at run time, and passed along as a [`FlushKind`].
//!
//! Why not one instruction for all: CLWB may keep the line cached, so that the next reader does not
//! pay for durability; CLFLUSHOPT evicts it; CLFLUSH evicts it and also waits for the previous one.
//! Each older instruction is right everywhere the newer one is, only slower.
//!
//! The instructions are `asm!` without `nomem`, so the compiler moves no store across them. A flush
//! is ordered by the processor after older stores to the same line (x86: Intel SDM, CLWB and
//! CLFLUSHOPT; Arm: data cache maintenance by address, as for a load of that line), so no fence
//! stands between a store and its flush.

#[cfg(target_arch = "x86_64")]
pub(crate) mod cpuid;
#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod native;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "other.rs"]
mod native;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod native;
#[cfg(test)]
mod tests;

use crate::names::named;

/// The instruction that writes a cache line back to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushKind {
    /// x86-64: writes the line back and may keep it cached.
    Clwb,
    /// x86-64: writes the line back and evicts it; unordered among themselves.
    Clflushopt,
    /// x86-64: writes the line back and evicts it, one after the other.
    Clflush,
    /// AArch64 with FEAT_DPB: cleans the line to the point of persistence.
    DcCvap,
    /// AArch64 without FEAT_DPB: cleans the line to the point of coherency. Whether the line then
    /// survives loss of power depends on the platform. Linux falls back to the same instruction.
    DcCvac,
    /// No flush: the caches are durable (eADR), or nothing has to be (RAM). A processor cannot
    /// report this, so [`FlushKind::detect`] returns it only on processors without a known flush;
    /// the caller that opens the medium may choose it.
    Nothing,
}

impl FlushKind {
    /// The cheapest flush that this processor has. O(1), but CPUID may trap to a hypervisor: ask
    /// once, keep the answer.
    pub fn detect() -> Self {
        native::detect()
    }

    /// Whether this processor has the instruction. [`FlushKind::Nothing`] is supported everywhere.
    pub fn is_supported(self) -> bool {
        self == Self::Nothing || native::is_supported(self)
    }
}

named!(FlushKind, "flush": Clwb = "clwb", Clflushopt = "clflushopt", Clflush = "clflush", DcCvap = "dc-cvap",
       DcCvac = "dc-cvac", Nothing = "nothing");

/// Asks that every line which holds a byte of `[first, first + length)` be written back; does not
/// wait. O(lines).
///
/// # Safety
/// The range is mapped readable in this process, and `kind` is supported
/// ([`FlushKind::is_supported`]).
#[inline(always)]
pub(crate) unsafe fn flush_range(kind: FlushKind, first: *const u8, length: usize) {
    // SAFETY: the caller's contract is the callee's.
    unsafe { native::flush_range(kind, first, length) }
}

/// Returns when everything this thread flushed has reached the durability domain, and its older
/// stores, direct and non-temporal ones included, are globally visible.
///
/// CLFLUSH needs no fence for durability, and eADR no flush; both still need one to order stores
/// that bypass the store buffer's order (MOVDIR64B), so every kind gets it.
#[inline(always)]
pub(crate) fn store_fence(kind: FlushKind) {
    native::store_fence(kind);
}

/// Calls `visit` with the address of each line of `line_bytes` (a power of two) that the range
/// touches.
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code, reason = "tested everywhere, used where there is a flush")
)]
#[inline(always)]
fn each_line(first: *const u8, length: usize, line_bytes: usize, mut visit: impl FnMut(*const u8)) {
    let end = first.addr() + length;
    let mut line = first.wrapping_sub(first.addr() & (line_bytes - 1));
    if length == 0 {
        return;
    }
    while line.addr() < end {
        visit(line);
        line = line.wrapping_add(line_bytes);
    }
}
