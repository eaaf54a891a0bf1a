//! The kernels for any processor: eight bytes at a time within a word, no branch on what memory
//! holds.
//!
//! Not inlined on x86-64: the compiler would load their constants even where another form runs.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::line_store::{LineValue, TAG_MASK};

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = LOW_BITS << 7;

/// Bit i is set where byte i of `word` is zero.
#[inline(always)]
fn zero_bytes(word: u64) -> u64 {
    // The high bit of a byte stays clear only if the byte has no bit at all. No carry leaves a
    // byte.
    let any = ((word & !HIGH_BITS) + !HIGH_BITS) | word;
    // Collects bits 0, 8, ..., 56 in the top byte: bit 8i times 2^(56-7i) is bit 56+i, and no two
    // products overlap.
    ((!any & HIGH_BITS) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

#[cfg_attr(target_arch = "x86_64", inline(never))]
pub(super) fn match_byte(line: &[AtomicU64; 8], byte: u8) -> u64 {
    match_byte_of(&load_line(line), byte)
}

#[cfg_attr(target_arch = "x86_64", inline(never))]
pub(super) fn compare_bytes(line: &[AtomicU64; 8], byte: u8) -> (u64, u64) {
    let line = load_line(line);
    let below = |word: u64| {
        word.to_le_bytes()
            .iter()
            .rev()
            .fold(0, |mask, other| mask << 1 | u64::from(*other < byte))
    };
    let below = (0..8).fold(0, |mask, index| mask | below(line.0[index]) << (8 * index));
    (below, match_byte_of(&line, byte))
}

#[inline(always)]
fn match_byte_of(line: &LineValue, byte: u8) -> u64 {
    let wanted = u64::from(byte) * LOW_BITS;
    (0..8).fold(0, |mask, index| {
        mask | zero_bytes(line.0[index] ^ wanted) << (8 * index)
    })
}

#[cfg_attr(target_arch = "x86_64", inline(never))]
pub(super) fn rank_le(keys: &[AtomicU64; 32], count: usize, key: u64) -> usize {
    keys[..count]
        .iter()
        .map(|other| usize::from(other.load(Ordering::Relaxed) <= key))
        .sum()
}

#[inline(always)]
pub(super) fn compare_words(words: &[AtomicU64], key: u64) -> (u32, u32) {
    words
        .iter()
        .enumerate()
        .fold((0, 0), |(below, equal), (index, word)| {
            let word = word.load(Ordering::Relaxed);
            (
                below | u32::from(word < key) << index,
                equal | u32::from(word == key) << index,
            )
        })
}

#[cfg_attr(target_arch = "x86_64", inline(never))]
pub(super) fn rank_lt(keys: &[AtomicU64; 32], count: usize, key: u64) -> usize {
    keys[..count]
        .iter()
        .map(|other| usize::from(other.load(Ordering::Relaxed) < key))
        .sum()
}

#[cfg_attr(target_arch = "x86_64", inline(never))]
pub(super) fn compare_entries(entries: &[[AtomicU64; 2]], key: u64) -> (u64, u64) {
    // Backwards, so that doubling puts the first entry in bit 0: a compare and an add with carry
    // each.
    entries.iter().rev().fold((0, 0), |(below, equal), entry| {
        let word = entry[0].load(Ordering::Relaxed);
        (
            below << 1 | u64::from(word < key),
            equal << 1 | u64::from(word == key),
        )
    })
}

#[cfg_attr(target_arch = "x86_64", inline(never))]
pub(super) fn load_line(line: &[AtomicU64; 8]) -> LineValue {
    LineValue::load(line, Ordering::Relaxed)
}

#[cfg_attr(target_arch = "x86_64", inline(never))]
pub(super) fn store_line(line: &[AtomicU64; 8], value: &LineValue) {
    value.store(line, Ordering::Relaxed);
}

#[cfg_attr(target_arch = "x86_64", inline(never))]
pub(super) fn find_slot(line: &LineValue, count: usize, slot: u8) -> Option<usize> {
    let untagged = LineValue(line.0.map(|word| word & !TAG_MASK));
    let found = match_byte_of(&untagged, slot) >> 8 & !(!0 << count);
    (found != 0).then_some(found.trailing_zeros() as usize)
}
