//! Bytes in the words of a pool: they are copied in and out, and never borrowed.

use medium::{Medium, Word, WordSum};

/// Stores bytes into words, the last padded with zeros.
pub fn copy_in<M: Medium>(guard: &medium::MediumGuard<'_, M>, words: &[Word], bytes: &[u8]) {
    let (whole, tail) = bytes.as_chunks::<8>();
    for (word, chunk) in words.iter().zip(whole) {
        word.store(guard, u64::from_le_bytes(*chunk));
    }
    if !tail.is_empty() {
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        words[whole.len()].store(guard, u64::from_le_bytes(last));
    }
}

/// Appends the first `length` bytes of words to a buffer.
pub fn copy_out<M: Medium>(
    guard: &medium::MediumGuard<'_, M>,
    words: &[Word],
    length: usize,
    buffer: &mut Vec<u8>,
) {
    let start = buffer.len();
    buffer.resize(start + words.len() * 8, 0);
    let (chunks, _) = buffer[start..].as_chunks_mut::<8>();
    for (chunk, word) in chunks.iter_mut().zip(words) {
        *chunk = word.load(guard).to_le_bytes();
    }
    buffer.truncate(start + length);
}

/// Appends the first `length` bytes of words to a buffer, as [`copy_out`] does, and adds the words
/// to a sum.
#[inline]
pub fn copy_out_summed<M: Medium>(
    guard: &medium::MediumGuard<'_, M>,
    words: &[Word],
    length: usize,
    buffer: &mut Vec<u8>,
    sum: WordSum,
) -> WordSum {
    let start = buffer.len();
    buffer.resize(start + words.len() * 8, 0);
    let (chunks, _) = buffer[start..].as_chunks_mut::<8>();
    let sum = sum.copy_words(guard, words, chunks);
    buffer.truncate(start + length);
    sum
}

/// The bytes of words.
pub(crate) fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The CRC32C of words.
pub(crate) fn words_check(words: &[u64]) -> u64 {
    u64::from(crc32c::crc32c(&bytes_of(words)))
}
