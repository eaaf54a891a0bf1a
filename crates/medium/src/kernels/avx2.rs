//! The kernels with 256-bit vectors, for processors without AVX-512.
//!
//! Loads of shared memory are `asm!`, as in `avx512`, and stand for relaxed atomic loads of the
//! aligned words in it. All are single `asm!` blocks, which inline into code that is compiled
//! without AVX; each ends with VZEROUPPER, so that code with 128-bit vectors behind it stays fast.
//! AVX2 compares words as signed: their sign bits are flipped before.

use std::arch::asm;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU64;

use crate::line_store::{LineValue, TAG_MASK};

const SIGN: u64 = 1 << 63;

/// Where the eight double words go that packing within 128-bit lanes has left in the order 0, 2, 4,
/// 6, 1, 3, 5, 7.
static ORDER: [u32; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// From position `16 - n` on: a mask that loads `n` of sixteen words.
static MASKS: [i64; 32] = {
    let mut masks = [0; 32];
    let mut index = 0;
    while index < 16 {
        masks[index] = -1;
        index += 1;
    }
    masks
};

/// Nothing where the compiler itself uses AVX: it may keep something in the upper halves.
#[cfg(target_feature = "avx")]
macro_rules! zero_upper {
    () => {
        ""
    };
}

/// Zeroes the upper halves of all vectors.
#[cfg(not(target_feature = "avx"))]
macro_rules! zero_upper {
    () => {
        "vzeroupper"
    };
}

/// # Safety
/// AVX2 exists.
#[inline(always)]
pub(super) unsafe fn match_byte(line: &[AtomicU64; 8], byte: u8) -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: the caller ensures that the instructions exist; the block reads the 64 bytes that the
    // reference covers.
    unsafe {
        asm!(
            "vmovd xmm0, {byte:e}",
            "vpbroadcastb ymm0, xmm0",
            "vpcmpeqb ymm1, ymm0, [{line}]",
            "vpcmpeqb ymm0, ymm0, [{line} + 32]",
            "vpmovmskb {low:e}, ymm1",
            "vpmovmskb {high:e}, ymm0",
            zero_upper!(),
            byte = in(reg) u32::from(byte),
            line = in(reg) line,
            low = lateout(reg) low,
            high = lateout(reg) high,
            out("xmm0") _,
            out("xmm1") _,
            options(nostack, preserves_flags, readonly),
        );
    }
    low | high << 32
}

/// # Safety
/// AVX2 exists.
#[inline(always)]
pub(super) unsafe fn compare_bytes(line: &[AtomicU64; 8], byte: u8) -> (u64, u64) {
    let (most_low, most_high, equal_low, equal_high): (u64, u64, u64, u64);
    // SAFETY: the caller ensures that the instructions exist; the block reads the 64 bytes that the
    // reference covers.
    unsafe {
        asm!(
            "vmovd xmm0, {byte:e}",
            "vpbroadcastb ymm0, xmm0",
            "vmovdqu ymm1, [{line}]",
            "vmovdqu ymm2, [{line} + 32]",
            "vpcmpeqb ymm3, ymm1, ymm0",
            "vpcmpeqb ymm4, ymm2, ymm0",
            "vpmovmskb {equal_low:e}, ymm3",
            "vpmovmskb {equal_high:e}, ymm4",
            // A byte is at most the other one if it is the lesser of the two.
            "vpminub ymm3, ymm1, ymm0",
            "vpminub ymm4, ymm2, ymm0",
            "vpcmpeqb ymm3, ymm3, ymm1",
            "vpcmpeqb ymm4, ymm4, ymm2",
            "vpmovmskb {most_low:e}, ymm3",
            "vpmovmskb {most_high:e}, ymm4",
            zero_upper!(),
            byte = in(reg) u32::from(byte),
            line = in(reg) line,
            equal_low = out(reg) equal_low,
            equal_high = out(reg) equal_high,
            most_low = lateout(reg) most_low,
            most_high = lateout(reg) most_high,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            out("xmm3") _,
            out("xmm4") _,
            options(nostack, preserves_flags, readonly),
        );
    }
    let equal = equal_low | equal_high << 32;
    ((most_low | most_high << 32) & !equal, equal)
}

/// The code that compares 32 keys with one: two bits of `mask` for each key, in order, whose
/// comparison holds.
macro_rules! compare_keys {
    ($keys:ident, $key:ident, $first:literal, $second:literal) => {{
        let (low, high): (u64, u64);
        // SAFETY: the caller ensures that the instructions exist; the block reads the 256 bytes
        // that the reference covers.
        unsafe {
            asm!(
                "vmovq xmm4, {key}",
                "vpbroadcastq ymm4, xmm4",
                "vpcmpeqd ymm5, ymm5, ymm5",
                "vpsllq ymm5, ymm5, 63",
                "vpxor ymm0, ymm5, [{keys}]",
                "vpxor ymm1, ymm5, [{keys} + 32]",
                "vpxor ymm2, ymm5, [{keys} + 64]",
                "vpxor ymm3, ymm5, [{keys} + 96]",
                concat!("vpcmpgtq ymm0, ", $first, "0", $second, "0"),
                concat!("vpcmpgtq ymm1, ", $first, "1", $second, "1"),
                concat!("vpcmpgtq ymm2, ", $first, "2", $second, "2"),
                concat!("vpcmpgtq ymm3, ", $first, "3", $second, "3"),
                "vpackssdw ymm0, ymm0, ymm1",
                "vpackssdw ymm2, ymm2, ymm3",
                "vpacksswb ymm6, ymm0, ymm2",
                "vpxor ymm0, ymm5, [{keys} + 128]",
                "vpxor ymm1, ymm5, [{keys} + 160]",
                "vpxor ymm2, ymm5, [{keys} + 192]",
                "vpxor ymm3, ymm5, [{keys} + 224]",
                concat!("vpcmpgtq ymm0, ", $first, "0", $second, "0"),
                concat!("vpcmpgtq ymm1, ", $first, "1", $second, "1"),
                concat!("vpcmpgtq ymm2, ", $first, "2", $second, "2"),
                concat!("vpcmpgtq ymm3, ", $first, "3", $second, "3"),
                "vpackssdw ymm0, ymm0, ymm1",
                "vpackssdw ymm2, ymm2, ymm3",
                "vpacksswb ymm0, ymm0, ymm2",
                "vmovdqu ymm1, [{order}]",
                "vpermd ymm6, ymm1, ymm6",
                "vpermd ymm0, ymm1, ymm0",
                "vpmovmskb {low:e}, ymm6",
                "vpmovmskb {high:e}, ymm0",
                zero_upper!(),
                key = in(reg) $key ^ SIGN,
                keys = in(reg) $keys,
                order = in(reg) &raw const ORDER,
                low = lateout(reg) low,
                high = lateout(reg) high,
                out("xmm0") _,
                out("xmm1") _,
                out("xmm2") _,
                out("xmm3") _,
                out("xmm4") _,
                out("xmm5") _,
                out("xmm6") _,
                options(nostack, preserves_flags, readonly),
            );
        }
        low | high << 32
    }};
}

/// How many of the first `count` pairs of bits are set.
///
/// # Safety
/// BMI2 and POPCNT exist; `count` is at most 32.
#[inline(always)]
unsafe fn count_pairs(mask: u64, count: usize) -> usize {
    let bits: u64;
    // SAFETY: the caller ensures that the instructions exist.
    unsafe {
        asm!(
            "bzhi {bits}, {mask}, {length}",
            "popcnt {bits}, {bits}",
            mask = in(reg) mask,
            length = in(reg) 2 * count,
            bits = lateout(reg) bits,
            options(nostack, nomem, pure),
        );
    }
    bits as usize / 2
}

/// # Safety
/// AVX2, BMI2 and POPCNT exist; `count` is at most 32.
#[inline(always)]
pub(super) unsafe fn rank_le(keys: &[AtomicU64; 32], count: usize, key: u64) -> usize {
    let greater = compare_keys!(keys, key, "ymm", ", ymm4 #");
    // SAFETY: as the caller says.
    count - unsafe { count_pairs(greater, count) }
}

/// # Safety
/// AVX2, BMI2 and POPCNT exist; `count` is at most 32.
#[inline(always)]
pub(super) unsafe fn rank_lt(keys: &[AtomicU64; 32], count: usize, key: u64) -> usize {
    let less = compare_keys!(keys, key, "ymm4, ymm", " #");
    // SAFETY: as the caller says.
    unsafe { count_pairs(less, count) }
}

/// # Safety
/// AVX2 exists; there are at most 16 words.
#[inline(always)]
pub(super) unsafe fn compare_words(words: &[AtomicU64], key: u64) -> (u32, u32) {
    let valid = !(!0_u32 << words.len());
    let masks = MASKS.as_ptr().wrapping_add(16 - words.len());
    let (below, equal): (u32, u32);
    // SAFETY: the caller ensures that the instructions exist; a masked load reads only what the
    // mask has, one bit for each of the words; the masks are 16 words of `MASKS`.
    unsafe {
        asm!(
            "vmovq xmm4, {key}",
            "vpbroadcastq ymm4, xmm4",
            "vpcmpeqd ymm5, ymm5, ymm5",
            "vpsllq ymm5, ymm5, 63",
            "vmovdqu ymm0, [{masks}]",
            "vmovdqu ymm1, [{masks} + 32]",
            "vmovdqu ymm2, [{masks} + 64]",
            "vmovdqu ymm3, [{masks} + 96]",
            "vpmaskmovq ymm0, ymm0, [{words}]",
            "vpmaskmovq ymm1, ymm1, [{words} + 32]",
            "vpmaskmovq ymm2, ymm2, [{words} + 64]",
            "vpmaskmovq ymm3, ymm3, [{words} + 96]",
            "vpxor ymm0, ymm0, ymm5",
            "vpxor ymm1, ymm1, ymm5",
            "vpxor ymm2, ymm2, ymm5",
            "vpxor ymm3, ymm3, ymm5",
            "vpcmpeqq ymm5, ymm0, ymm4",
            "vpcmpeqq ymm6, ymm1, ymm4",
            "vpackssdw ymm5, ymm5, ymm6",
            "vpcmpeqq ymm6, ymm2, ymm4",
            "vpcmpeqq ymm7, ymm3, ymm4",
            "vpackssdw ymm6, ymm6, ymm7",
            "vpacksswb ymm5, ymm5, ymm6",
            "vpcmpgtq ymm0, ymm4, ymm0",
            "vpcmpgtq ymm1, ymm4, ymm1",
            "vpcmpgtq ymm2, ymm4, ymm2",
            "vpcmpgtq ymm3, ymm4, ymm3",
            "vpackssdw ymm0, ymm0, ymm1",
            "vpackssdw ymm2, ymm2, ymm3",
            "vpacksswb ymm0, ymm0, ymm2",
            // Two bytes a word, in order; then one.
            "vmovdqu ymm1, [{order}]",
            "vpermd ymm0, ymm1, ymm0",
            "vpermd ymm5, ymm1, ymm5",
            "vextracti128 xmm1, ymm0, 1",
            "vextracti128 xmm2, ymm5, 1",
            "vpacksswb xmm0, xmm0, xmm1",
            "vpacksswb xmm5, xmm5, xmm2",
            "vpmovmskb {below:e}, xmm0",
            "vpmovmskb {equal:e}, xmm5",
            zero_upper!(),
            key = in(reg) key ^ SIGN,
            words = in(reg) words.as_ptr(),
            masks = in(reg) masks,
            order = in(reg) &raw const ORDER,
            below = lateout(reg) below,
            equal = lateout(reg) equal,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            out("xmm3") _,
            out("xmm4") _,
            out("xmm5") _,
            out("xmm6") _,
            out("xmm7") _,
            options(nostack, preserves_flags, readonly),
        );
    }
    (below & valid, equal & valid)
}

/// # Safety
/// AVX2 exists.
#[inline(always)]
pub(super) unsafe fn load_line(line: &[AtomicU64; 8]) -> LineValue {
    let mut value = MaybeUninit::<LineValue>::uninit();
    // SAFETY: the caller ensures that the instructions exist; the block reads the 64 bytes that the
    // reference covers, and fills `value`, which is as long, and for which any bits are valid.
    unsafe {
        copy(line.as_ptr().cast(), value.as_mut_ptr().cast());
        value.assume_init()
    }
}

/// # Safety
/// AVX2 exists.
#[inline(always)]
pub(super) unsafe fn store_line(line: &[AtomicU64; 8], value: &LineValue) {
    // SAFETY: the caller ensures that the instructions exist; the block writes the 64 bytes that
    // the reference covers, for other threads atomic word stores. `AtomicU64` permits writing
    // through a shared pointer.
    unsafe { copy(value.0.as_ptr(), line.as_ptr().cast_mut().cast()) }
}

/// Copies 64 bytes.
///
/// # Safety
/// AVX2 exists; `from` is readable and `to` writable.
#[inline(always)]
unsafe fn copy(from: *const u64, to: *mut u64) {
    // SAFETY: as the caller says.
    unsafe {
        asm!(
            "vmovdqu ymm0, [{from}]",
            "vmovdqu ymm1, [{from} + 32]",
            "vmovdqu [{to}], ymm0",
            "vmovdqu [{to} + 32], ymm1",
            zero_upper!(),
            from = in(reg) from,
            to = in(reg) to,
            out("xmm0") _,
            out("xmm1") _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// AVX2 exists; `count` is at most 56.
#[inline(always)]
pub(super) unsafe fn find_slot(line: &LineValue, count: usize, slot: u8) -> Option<usize> {
    let (low, high): (u64, u64);
    // SAFETY: the caller ensures that the instructions exist; the block reads the 64 bytes that the
    // reference covers.
    unsafe {
        asm!(
            "vmovq xmm0, {tags}",
            "vpbroadcastq ymm0, xmm0",
            "vmovd xmm1, {slot:e}",
            "vpbroadcastb ymm1, xmm1",
            "vpandn ymm2, ymm0, [{line}]",
            "vpandn ymm0, ymm0, [{line} + 32]",
            "vpcmpeqb ymm2, ymm2, ymm1",
            "vpcmpeqb ymm0, ymm0, ymm1",
            "vpmovmskb {low:e}, ymm2",
            "vpmovmskb {high:e}, ymm0",
            zero_upper!(),
            tags = in(reg) TAG_MASK,
            slot = in(reg) u32::from(slot),
            line = in(reg) line,
            low = lateout(reg) low,
            high = lateout(reg) high,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            options(nostack, preserves_flags, readonly),
        );
    }
    let found = (low | high << 32) >> 8 & !(!0 << count);
    (found != 0).then_some(found.trailing_zeros() as usize)
}

/// Compares the keys of four entries at a time, the last ones first.
///
/// # Safety
/// AVX2 exists; there are at most 64 entries.
#[inline(always)]
pub(super) unsafe fn compare_entries(entries: &[[AtomicU64; 2]], key: u64) -> (u64, u64) {
    let Some(last) = entries.len().checked_sub(1) else {
        return (0, 0);
    };
    let start = entries.as_ptr();
    let group = start.wrapping_add(last & !3);
    // Two words for each entry of the last group, which may have less than four.
    let masks = MASKS.as_ptr().wrapping_add(16 - 2 * (last % 4 + 1));
    let (below, equal): (u64, u64);
    // SAFETY: the caller ensures that the instructions exist; the block reads whole groups of four
    // entries, and of the last group, by the masks, what it has; the masks are 8 words of `MASKS`.
    unsafe {
        asm!(
            "vmovq xmm3, {key}",
            "vpbroadcastq ymm3, xmm3",
            "vpcmpeqd ymm2, ymm2, ymm2",
            "vpsllq ymm2, ymm2, 63",
            "xor {below:e}, {below:e}",
            "xor {equal:e}, {equal:e}",
            "vmovdqu ymm0, [{masks}]",
            "vmovdqu ymm1, [{masks} + 32]",
            "vpmaskmovq ymm0, ymm0, [{group}]",
            "vpmaskmovq ymm1, ymm1, [{group} + 32]",
            "jmp 3f",
            "2:",
            "vmovdqu ymm0, [{group}]",
            "vmovdqu ymm1, [{group} + 32]",
            "3:",
            // The keys of entries 0, 2, 1, 3; then in order.
            "vpunpcklqdq ymm0, ymm0, ymm1",
            "vpermq ymm0, ymm0, 0xd8",
            "vpxor ymm0, ymm0, ymm2",
            "vpcmpgtq ymm1, ymm3, ymm0",
            "vpcmpeqq ymm0, ymm3, ymm0",
            "vmovmskpd {less:e}, ymm1",
            "vmovmskpd {same:e}, ymm0",
            "shl {below}, 4",
            "shl {equal}, 4",
            "or {below}, {less}",
            "or {equal}, {same}",
            "sub {group}, 64",
            "cmp {group}, {start}",
            "jae 2b",
            zero_upper!(),
            key = in(reg) key ^ SIGN,
            start = in(reg) start,
            group = inout(reg) group => _,
            masks = in(reg) masks,
            less = out(reg) _,
            same = out(reg) _,
            below = out(reg) below,
            equal = out(reg) equal,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            out("xmm3") _,
            options(nostack, readonly),
        );
    }
    let valid = !0 >> (63 - last);
    (below & valid, equal & valid)
}
