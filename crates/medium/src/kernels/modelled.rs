//! The kernels that search volatile memory, for `loom`: word by word, on its atomics.

use crate::line_store::LineValue;
use crate::sync::{AtomicU64, Ordering};

/// Which of the line's 64 bytes equal `byte`.
pub fn match_byte(line: &[AtomicU64; 8], byte: u8) -> u64 {
    let bytes = line
        .iter()
        .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
    bytes.enumerate().fold(0, |mask, (index, found)| {
        mask | u64::from(found == byte) << index
    })
}

/// How many of the first `count` keys are less than or equal to `key`.
pub fn rank_le<const N: usize>(keys: &[AtomicU64; N], count: usize, key: u64) -> usize {
    keys.iter()
        .take(count)
        .filter(|word| word.load(Ordering::Relaxed) <= key)
        .count()
}

/// How many of the first `count` keys are less than `key`.
pub fn rank_lt<const N: usize>(keys: &[AtomicU64; N], count: usize, key: u64) -> usize {
    keys.iter()
        .take(count)
        .filter(|word| word.load(Ordering::Relaxed) < key)
        .count()
}

/// Which of the line's 64 bytes are below `byte`, and which equal it.
pub fn compare_bytes(line: &[AtomicU64; 8], byte: u8) -> (u64, u64) {
    let bytes: Vec<u8> = line
        .iter()
        .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
        .collect();
    let mask = |holds: &dyn Fn(u8) -> bool| {
        bytes.iter().enumerate().fold(0, |mask, (index, found)| {
            mask | u64::from(holds(*found)) << index
        })
    };
    (mask(&|found| found < byte), mask(&|found| found == byte))
}

/// Stores the line's words.
pub fn store_line(line: &[AtomicU64; 8], value: &LineValue) {
    for (word, value) in line.iter().zip(value.0) {
        word.store(value, Ordering::Relaxed);
    }
}
