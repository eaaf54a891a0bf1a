//! The kernels with 512-bit vectors.
//!
//! Two shapes. The shortest are one `asm!` block on zmm16 to zmm31 and inline anywhere: code without AVX-512
//! cannot name those registers, so they need no VZEROUPPER, and a call would cost as much as the work. The
//! others are functions with `#[target_feature]`, written with intrinsics; there only loads of *shared*
//! memory are `asm!`.
//!
//! Every load of shared memory stands for relaxed atomic loads of the aligned 8-byte words in it: the
//! processor never splits such a word, and to the compiler `asm!` is opaque, so there is no data race for it
//! to reason from.

use std::arch::asm;
use std::arch::x86_64::{
    __m512i, __mmask8, _mm512_andnot_si512, _mm512_cmpeq_epi8_mask, _mm512_cmpeq_epu64_mask,
    _mm512_cmplt_epu64_mask, _mm512_load_si512, _mm512_permutex2var_epi64, _mm512_set_epi64,
    _mm512_set1_epi8, _mm512_set1_epi64,
};
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU64;

use crate::line_store::{LineValue, TAG_MASK};

/// # Safety
/// AVX-512 F and BW exist.
#[inline(always)]
pub(super) unsafe fn match_byte(line: &[AtomicU64; 8], byte: u8) -> u64 {
    let mask: u64;
    // SAFETY: the instructions exist, says the caller; reads the 64 bytes that the reference covers.
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
    // SAFETY: the instructions exist, says the caller; reads the 64 bytes that the reference covers.
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

/// Counts keys by four compares of eight with the broadcast key, by the predicate `$predicate` (key ? other).
macro_rules! rank {
    ($name:ident, $predicate:literal) => {
        /// # Safety
        /// AVX-512 F, BW and DQ, BMI2 and POPCNT exist; `count` is at most 32.
        #[inline(always)]
        pub(super) unsafe fn $name(keys: &[AtomicU64; 32], count: usize, key: u64) -> usize {
            let rank: u64;
            // SAFETY: the instructions exist, says the caller; reads the 256 bytes that the reference covers.
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
    // SAFETY: the instructions exist, says the caller; a masked compare reads only what the mask has a bit for, and the
    // mask has one for each of the words.
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
    // SAFETY: the instruction exists, says the caller; reads the 64 bytes that the reference covers, and
    // fills `value`, which is as long and aligned, and for which any bits are valid.
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
    // SAFETY: the instruction exists, says the caller; writes the 64 bytes that the reference covers, for other threads at
    // least eight atomic word stores. `AtomicU64` permits writing through a shared pointer.
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

/// Eight words from shared memory, relaxed.
///
/// # Safety
/// The 64 bytes at `first`, aligned to 8, are readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_words(first: *const AtomicU64) -> __m512i {
    let words: __m512i;
    // SAFETY: readable, says the caller.
    unsafe {
        asm!("vmovdqu64 {words}, [{first}]", first = in(reg) first, words = lateout(zmm_reg) words,
             options(nostack, preserves_flags, readonly));
    }
    words
}

/// Those of eight words from shared memory, relaxed, whose bit is set in `wanted`; zero for the others, which
/// are not accessed.
///
/// # Safety
/// The wanted words from `first`, aligned to 8, are readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_words_masked(first: *const AtomicU64, wanted: __mmask8) -> __m512i {
    let words: __m512i;
    // SAFETY: what is wanted is readable, says the caller; a masked load accesses nothing else.
    unsafe {
        asm!("vmovdqu64 {words} {{{wanted}}} {{z}}, [{first}]",
             first = in(reg) first, wanted = in(kreg) wanted, words = lateout(zmm_reg) words,
             options(nostack, preserves_flags, readonly));
    }
    words
}

/// Gathers the keys of eight entries at a time from two lines, and compares them at once.
///
/// # Safety
/// AVX-512 F, BW and DQ exist; there are at most 64 entries.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,bmi2")]
pub(super) unsafe fn compare_entries(entries: &[[AtomicU64; 2]], key: u64) -> (u64, u64) {
    let wanted = _mm512_set1_epi64(key.cast_signed());
    let even_words = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0);
    let (mut below, mut equal) = (0, 0);
    let mut compare = |front, back, bit: usize, valid: u64| {
        let keys = _mm512_permutex2var_epi64(front, even_words, back);
        below |= (u64::from(_mm512_cmplt_epu64_mask(keys, wanted)) & valid) << bit;
        equal |= (u64::from(_mm512_cmpeq_epu64_mask(keys, wanted)) & valid) << bit;
    };
    let (groups, rest) = entries.as_chunks::<8>();
    for (index, group) in groups.iter().enumerate() {
        let words = group.as_flattened().as_ptr();
        // SAFETY: a group is 16 words.
        let (front, back) = unsafe { (load_words(words), load_words(words.wrapping_add(8))) };
        compare(front, back, 8 * index, 0xff);
    }
    if !rest.is_empty() {
        let words = rest.as_flattened().as_ptr();
        let wanted_words = !(!0_u32 << (2 * rest.len()));
        // SAFETY: the mask has a bit for each of the words that the rest covers, and no other.
        let (front, back) = unsafe {
            let front = load_words_masked(words, wanted_words as u8);
            (front, load_words_masked(words.wrapping_add(8), (wanted_words >> 8) as u8))
        };
        compare(front, back, 8 * groups.len(), !(!0 << rest.len()));
    }
    (below, equal)
}

/// # Safety
/// AVX-512 F and BW exist; `count` is at most 56.
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
pub(super) unsafe fn find_slot(line: &LineValue, count: usize, slot: u8) -> Option<usize> {
    // SAFETY: 64 bytes, aligned, of a value that nobody else writes.
    let tagged = unsafe { _mm512_load_si512(std::ptr::from_ref(line).cast()) };
    let words = _mm512_andnot_si512(_mm512_set1_epi64(TAG_MASK.cast_signed()), tagged);
    let equal = _mm512_cmpeq_epi8_mask(words, _mm512_set1_epi8(slot.cast_signed()));
    let found = equal >> 8 & !(!0 << count);
    (found != 0).then_some(found.trailing_zeros() as usize)
}
