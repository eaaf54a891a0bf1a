//! The kernels with 512-bit vectors.
//!
//! Each is an `asm!` block on zmm16 to zmm31, which inlines into code that is compiled without
//! AVX-512: such code cannot name those registers, so no VZEROUPPER is needed.
//!
//! A load of shared memory stands for relaxed atomic loads of the aligned 8-byte words in it: the
//! processor never splits such a word, and to the compiler `asm!` is opaque, so there is no data
//! race for it to reason from.

use std::arch::asm;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU64;

use crate::line_store::{LineValue, TAG_MASK};

/// # Safety
/// AVX-512 F and BW exist.
#[inline(always)]
pub(super) unsafe fn match_byte(line: &[AtomicU64; 8], byte: u8) -> u64 {
    let mask: u64;
    // SAFETY: the caller ensures that the instructions exist; the block reads the 64 bytes that the
    // reference covers.
    unsafe {
        asm!(
            "vpbroadcastb zmm16, {byte:e}",
            "vpcmpeqb k1, zmm16, [{line}]",
            "kmovq {mask}, k1",
            byte = in(reg) u32::from(byte),
            line = in(reg) line,
            mask = lateout(reg) mask,
            out("zmm16") _,
            out("k1") _,
            options(nostack, preserves_flags, readonly),
        );
    }
    mask
}

/// # Safety
/// AVX-512 F and BW exist.
#[inline(always)]
pub(super) unsafe fn compare_bytes(line: &[AtomicU64; 8], byte: u8) -> (u64, u64) {
    let (below, equal): (u64, u64);
    // SAFETY: the caller ensures that the instructions exist; the block reads the 64 bytes that the
    // reference covers.
    unsafe {
        asm!(
            "vpbroadcastb zmm16, {byte:e}",
            "vmovdqu64 zmm17, [{line}]",
            "vpcmpub k1, zmm17, zmm16, 1",
            "vpcmpeqb k2, zmm17, zmm16",
            "kmovq {below}, k1",
            "kmovq {equal}, k2",
            byte = in(reg) u32::from(byte),
            line = in(reg) line,
            below = lateout(reg) below,
            equal = lateout(reg) equal,
            out("zmm16") _,
            out("zmm17") _,
            out("k1") _,
            out("k2") _,
            options(nostack, preserves_flags, readonly),
        );
    }
    (below, equal)
}

/// Counts keys by four compares of eight with the broadcast key, by the predicate `$predicate` (key
/// ? other).
macro_rules! rank {
    ($name:ident, $predicate:literal) => {
        /// # Safety
        /// AVX-512 F, BW and DQ, BMI2 and POPCNT exist; `count` is at most 32.
        #[inline(always)]
        pub(super) unsafe fn $name(keys: &[AtomicU64; 32], count: usize, key: u64) -> usize {
            let rank: u64;
            // SAFETY: the caller ensures that the instructions exist; the block reads the 256 bytes
            // that the reference covers.
            unsafe {
                asm!(
                    "vpbroadcastq zmm16, {key}",
                    concat!("vpcmpuq k1, zmm16, [{keys}], ", $predicate),
                    concat!("vpcmpuq k2, zmm16, [{keys} + 64], ", $predicate),
                    concat!("vpcmpuq k3, zmm16, [{keys} + 128], ", $predicate),
                    concat!("vpcmpuq k4, zmm16, [{keys} + 192], ", $predicate),
                    "kunpckbw k1, k2, k1",
                    "kunpckbw k3, k4, k3",
                    "kunpckwd k1, k3, k1",
                    "kmovd {rank:e}, k1",
                    "bzhi {rank:e}, {rank:e}, {count:e}",
                    "popcnt {rank:e}, {rank:e}",
                    key = in(reg) key,
                    keys = in(reg) keys,
                    count = in(reg) count,
                    rank = out(reg) rank,
                    out("zmm16") _,
                    out("k1") _,
                    out("k2") _,
                    out("k3") _,
                    out("k4") _,
                    options(nostack, readonly),
                );
            }
            rank as usize
        }
    };
}

rank!(rank_le, 5); // key >= other
rank!(rank_lt, 6); // key > other

/// # Safety
/// AVX-512 F, BW and DQ exist; there are at most 16 words.
#[inline(always)]
pub(super) unsafe fn compare_words(words: &[AtomicU64], key: u64) -> (u32, u32) {
    let wanted = !(!0_u32 << words.len());
    let (below, equal): (u32, u32);
    // SAFETY: the caller ensures that the instructions exist; a masked compare reads only what the
    // mask has a bit for, and the mask has one for each of the words.
    unsafe {
        asm!(
            "vpbroadcastq zmm16, {key}",
            "kmovd k1, {wanted:e}",
            "kshiftrw k2, k1, 8",
            "vpcmpuq k3 {{k1}}, zmm16, [{words}], 6",
            "vpcmpuq k4 {{k2}}, zmm16, [{words} + 64], 6",
            "vpcmpuq k5 {{k1}}, zmm16, [{words}], 0",
            "vpcmpuq k6 {{k2}}, zmm16, [{words} + 64], 0",
            "kunpckbw k3, k4, k3",
            "kunpckbw k5, k6, k5",
            "kmovd {below:e}, k3",
            "kmovd {equal:e}, k5",
            key = in(reg) key,
            wanted = in(reg) wanted,
            words = in(reg) words.as_ptr(),
            below = lateout(reg) below,
            equal = lateout(reg) equal,
            out("zmm16") _,
            out("k1") _,
            out("k2") _,
            out("k3") _,
            out("k4") _,
            out("k5") _,
            out("k6") _,
            options(nostack, preserves_flags, readonly),
        );
    }
    (below, equal)
}

/// # Safety
/// AVX-512 F exists.
#[inline(always)]
pub(crate) unsafe fn load_line(line: &[AtomicU64; 8]) -> LineValue {
    let mut value = MaybeUninit::<LineValue>::uninit();
    // SAFETY: the caller ensures that the instruction exists; the block reads the 64 bytes that the
    // reference covers, and fills `value`, which is as long and aligned, and for which any bits are
    // valid.
    unsafe {
        asm!(
            "vmovdqu64 zmm16, [{line}]",
            "vmovdqa64 [{value}], zmm16",
            line = in(reg) line,
            value = in(reg) value.as_mut_ptr(),
            out("zmm16") _,
            options(nostack, preserves_flags),
        );
        value.assume_init()
    }
}

/// # Safety
/// AVX-512 F exists.
#[inline(always)]
pub(super) unsafe fn store_line(line: &[AtomicU64; 8], value: &LineValue) {
    // SAFETY: the caller ensures that the instruction exists; the block writes the 64 bytes that
    // the reference covers, for other threads at least eight atomic word stores. `AtomicU64`
    // permits writing through a shared pointer.
    unsafe {
        asm!(
            "vmovdqa64 zmm16, [{value}]",
            "vmovdqu64 [{line}], zmm16",
            line = in(reg) line,
            value = in(reg) value,
            out("zmm16") _,
            options(nostack, preserves_flags),
        );
    }
}

/// The places of the keys in eight entries, which are pairs of key word and value word.
static KEYS: [u64; 8] = [0, 2, 4, 6, 8, 10, 12, 14];

/// # Safety
/// AVX-512 F, BW and DQ exist; there are at most 64 entries.
#[inline(always)]
pub(super) unsafe fn compare_entries(entries: &[[AtomicU64; 2]], key: u64) -> (u64, u64) {
    let mut below = 0;
    let mut equal = 0;
    for (index, group) in entries.chunks(8).enumerate() {
        let wanted = !(!0_u32 << (2 * group.len()));
        let (less, same): (u64, u64);
        // SAFETY: the caller ensures that the instructions exist; a masked load reads only what the
        // mask has a bit for, and the mask has one for each word of the group. What it does not
        // read is zero.
        unsafe {
            asm!(
                "kmovd k1, {wanted:e}",
                "kshiftrw k2, k1, 8",
                "vmovdqu64 zmm16 {{k1}} {{z}}, [{group}]",
                "vmovdqu64 zmm17 {{k2}} {{z}}, [{group} + 64]",
                "vmovdqu64 zmm18, [{keys}]",
                "vpermt2q zmm16, zmm18, zmm17",
                "vpbroadcastq zmm18, {key}",
                "vpcmpuq k1, zmm16, zmm18, 1",
                "vpcmpuq k2, zmm16, zmm18, 0",
                "kmovd {less:e}, k1",
                "kmovd {same:e}, k2",
                wanted = in(reg) wanted,
                group = in(reg) group.as_ptr(),
                keys = in(reg) &raw const KEYS,
                key = in(reg) key,
                less = lateout(reg) less,
                same = lateout(reg) same,
                out("zmm16") _,
                out("zmm17") _,
                out("zmm18") _,
                out("k1") _,
                out("k2") _,
                options(nostack, preserves_flags, readonly),
            );
        }
        let valid = !(!0 << group.len());
        below |= (less & 0xff & valid) << (8 * index);
        equal |= (same & 0xff & valid) << (8 * index);
    }
    (below, equal)
}

/// # Safety
/// AVX-512 F and BW exist; `count` is at most 56.
#[inline(always)]
pub(super) unsafe fn find_slot(line: &LineValue, count: usize, slot: u8) -> Option<usize> {
    let equal: u64;
    // SAFETY: the caller ensures that the instructions exist; the block reads the 64 bytes that the
    // reference covers.
    unsafe {
        asm!(
            "vpbroadcastq zmm16, {tags}",
            "vpandnq zmm16, zmm16, [{line}]",
            "vpbroadcastb zmm17, {slot:e}",
            "vpcmpeqb k1, zmm16, zmm17",
            "kmovq {equal}, k1",
            tags = in(reg) TAG_MASK,
            line = in(reg) line,
            slot = in(reg) u32::from(slot),
            equal = lateout(reg) equal,
            out("zmm16") _,
            out("zmm17") _,
            out("k1") _,
            options(nostack, preserves_flags, readonly),
        );
    }
    let found = equal >> 8 & !(!0 << count);
    (found != 0).then_some(found.trailing_zeros() as usize)
}
