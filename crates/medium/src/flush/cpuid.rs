//! The answers of CPUID about the instructions that this crate chooses among.

use std::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};

/// The feature bits that decide which flush and which line store this processor gets.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a set of feature bits, as CPUID has them"
)]
pub(crate) struct CpuFeatures {
    /// Leaf 0 says "GenuineIntel".
    pub(crate) intel: bool,
    /// CLFLUSHOPT exists.
    pub(crate) clflushopt: bool,
    /// CLWB exists.
    pub(crate) clwb: bool,
    /// MOVDIR64B exists.
    pub(crate) movdir64b: bool,
    /// XBEGIN exists, and microcode does not force every transaction to abort.
    pub(crate) rtm: bool,
}

impl CpuFeatures {
    /// Asks the processor.
    pub(crate) fn read() -> Self {
        let vendor = cpuid(0, 0);
        let leaf_7 = if vendor.eax >= 7 {
            cpuid(7, 0)
        } else {
            CpuidResult {
                eax: 0,
                ebx: 0,
                ecx: 0,
                edx: 0,
            }
        };
        let has = |register: u32, bit: u32| register >> bit & 1 == 1;
        Self {
            intel: [vendor.ebx, vendor.edx, vendor.ecx]
                .map(u32::to_le_bytes)
                .as_flattened()
                == b"GenuineIntel",
            clflushopt: has(leaf_7.ebx, 23),
            clwb: has(leaf_7.ebx, 24),
            movdir64b: has(leaf_7.ecx, 28),
            rtm: has(leaf_7.ebx, 11) && !has(leaf_7.edx, 11),
        }
    }
}

#[allow(
    unused_unsafe,
    reason = "newer compilers know that CPUID exists on every x86-64 and call it safe"
)]
fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    // SAFETY: every x86-64 processor has CPUID; it reads no memory.
    unsafe {
        if leaf == 0 {
            __cpuid(0)
        } else {
            __cpuid_count(leaf, subleaf)
        }
    }
}
