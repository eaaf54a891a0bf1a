//! A check of words: CRC-32C, taken while they are copied.

use crate::kernels::crc;
use crate::{Medium, MediumGuard, Word};

/// From this many words on, they are first copied and then summed. Three sums beside each other,
/// which the crate `crc32c` makes, then take less time than one sum within the copy.
const TWO_PASSES_FROM: usize = 256;

/// Words that are copied before they are summed: 4 KiB, which the first-level cache holds.
const PASS_WORDS: usize = 512;

/// A CRC-32C (Castagnoli) under way. It is that of the words' bytes, in little-endian order.
///
/// ```
/// let sum = everleaf_medium::WordSum::default().with_word(0x3837_3635_3433_3231);
/// assert_eq!(sum.check(), crc32c::crc32c(b"12345678"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a sum changes nothing"]
pub struct WordSum {
    /// The complement of the CRC so far.
    state: u32,
}

impl Default for WordSum {
    #[inline(always)]
    fn default() -> Self {
        Self { state: u32::MAX }
    }
}

impl WordSum {
    /// The sum with another word.
    #[inline(always)]
    pub fn with_word(self, word: u64) -> Self {
        let state = if crc::has_instruction() {
            // SAFETY: the instruction exists.
            unsafe { crc::step(self.state, word) }
        } else {
            crc::step_by_table(self.state, word)
        };
        Self { state }
    }

    /// The sum with bytes, whose last word is padded with zeros. O(length).
    pub fn with_bytes(self, bytes: &[u8]) -> Self {
        let (whole, tail) = bytes.as_chunks::<8>();
        let sum = if whole.len() < TWO_PASSES_FROM {
            self.add_all(whole.iter().map(|chunk| u64::from_le_bytes(*chunk)))
        } else {
            self.add_long(whole.as_flattened())
        };
        if tail.is_empty() {
            return sum;
        }
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        sum.with_word(u64::from_le_bytes(last))
    }

    /// The sum with words of a pool. O(words).
    #[inline]
    pub fn with_words<M: Medium>(self, guard: &MediumGuard<'_, M>, words: &[Word]) -> Self {
        self.add_all(words.iter().map(|word| word.load(guard)))
    }

    /// Copies words of a pool into chunks of bytes, as many as there are of both, and adds them.
    /// O(words).
    #[inline]
    pub fn copy_words<M: Medium>(
        self,
        guard: &MediumGuard<'_, M>,
        words: &[Word],
        chunks: &mut [[u8; 8]],
    ) -> Self {
        if words.len() >= TWO_PASSES_FROM {
            return self.copy_long(guard, words, chunks);
        }
        let mut state = self.state;
        if crc::has_instruction() {
            for (chunk, word) in chunks.iter_mut().zip(words) {
                let word = word.load(guard);
                // SAFETY: the instruction exists.
                state = unsafe { crc::step(state, word) };
                *chunk = word.to_le_bytes();
            }
        } else {
            for (chunk, word) in chunks.iter_mut().zip(words) {
                let word = word.load(guard);
                state = crc::step_by_table(state, word);
                *chunk = word.to_le_bytes();
            }
        }
        Self { state }
    }

    /// The CRC-32C of all words that were added. It is not 0 for words of zeros.
    #[inline(always)]
    pub fn check(self) -> u32 {
        !self.state
    }

    #[inline(always)]
    fn add_all(self, words: impl Iterator<Item = u64>) -> Self {
        let mut state = self.state;
        if crc::has_instruction() {
            for word in words {
                // SAFETY: the instruction exists.
                state = unsafe { crc::step(state, word) };
            }
        } else {
            for word in words {
                state = crc::step_by_table(state, word);
            }
        }
        Self { state }
    }

    /// Adds many whole words.
    fn add_long(self, bytes: &[u8]) -> Self {
        Self {
            state: !crc32c::crc32c_append(!self.state, bytes),
        }
    }

    #[inline(never)]
    fn copy_long<M: Medium>(
        mut self,
        guard: &MediumGuard<'_, M>,
        words: &[Word],
        chunks: &mut [[u8; 8]],
    ) -> Self {
        let passes = words.chunks(PASS_WORDS);
        for (words, chunks) in passes.zip(chunks.chunks_mut(PASS_WORDS)) {
            for (chunk, word) in chunks.iter_mut().zip(words) {
                *chunk = word.load(guard).to_le_bytes();
            }
            self = self.add_long(chunks.as_flattened());
        }
        self
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
