//! The bytes with which all keys of a node begin.
//!
//! A node orders its keys by one word of each. If all keys begin with the same bytes, as those of
//! one tenant or of one day do, then the word of their first eight bytes parts none of them. So a
//! node leaves out as many of the shared bytes as it must for the next word to part its keys. A
//! search first compares these bytes, and then the word behind them.

use std::cmp::Ordering;

use crate::index::record::prefix_word;

/// The most bytes that a node leaves out.
pub const SHARED_BYTES_MAX: usize = 48;
/// The words that these bytes take.
pub const SHARED_WORDS: usize = SHARED_BYTES_MAX / 8;

/// The word of a key behind its first `skip` bytes, padded with zeros.
#[inline(always)]
pub fn word_behind(key: &[u8], skip: usize) -> u64 {
    prefix_word(key.get(skip..).unwrap_or_default())
}

/// The number of bytes with which both keys begin.
pub fn count_shared(one: &[u8], other: &[u8]) -> usize {
    one.iter()
        .zip(other)
        .take_while(|(one, other)| one == other)
        .count()
}

/// How a key compares with all keys that begin with some bytes: `Equal` if it begins with them
/// itself. `length` is the number of the bytes, and `shared_word` returns their words, padded with
/// zeros.
#[inline(always)]
pub fn compare_beginning(
    key: &[u8],
    length: usize,
    shared_word: impl Fn(usize) -> u64,
) -> Ordering {
    for index in 0..length.div_ceil(8) {
        let start = 8 * index;
        let word = word_behind(key, start);
        let bytes = (length - start).min(8);
        let unused_bits = 64 - 8 * bytes as u32;
        let beginning = word >> unused_bits << unused_bits;
        let order = beginning.cmp(&shared_word(index));
        if order.is_ne() {
            return order;
        }
    }
    // The padding of a key that is too short equals bytes that are zero.
    if key.len() < length {
        Ordering::Less
    } else {
        Ordering::Equal
    }
}

/// Some bytes with which all keys of a node begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SharedPrefix {
    length: usize,
    words: [u64; SHARED_WORDS],
}

impl SharedPrefix {
    /// The fewest bytes that a node with these keys, which ascend, has to leave out so that the
    /// words behind part them; or as many as all of them share, up to [`SHARED_BYTES_MAX`].
    pub fn that_parts(keys: &[Vec<u8>]) -> Self {
        let [first, .., last] = keys else {
            return Self::default();
        };
        let shared = count_shared(first, last).min(SHARED_BYTES_MAX);
        let needed = keys
            .windows(2)
            .map(|pair| (count_shared(&pair[0], &pair[1]) + 1).saturating_sub(8))
            .max()
            .unwrap_or(0);
        Self::of(first, needed.min(shared))
    }

    /// The first `length` bytes of a key.
    fn of(key: &[u8], length: usize) -> Self {
        let mut words = [0; SHARED_WORDS];
        for (word, bytes) in words.iter_mut().zip(key[..length].chunks(8)) {
            *word = prefix_word(bytes);
        }
        Self { length, words }
    }

    /// All bytes that some keys share, up to [`SHARED_BYTES_MAX`]: at least as many as
    /// [`SharedPrefix::that_parts`] leaves out.
    pub fn of_all(keys: &[Vec<u8>]) -> Self {
        let Some((first, others)) = keys.split_first() else {
            return Self::default();
        };
        let shared = others.iter().map(|other| count_shared(first, other)).min();
        let length = shared.unwrap_or(first.len()).min(SHARED_BYTES_MAX);
        Self::of(first, length)
    }

    /// Of `length` bytes, which these words hold; of [`SHARED_BYTES_MAX`] if that is less.
    pub fn from_words(length: usize, words: [u64; SHARED_WORDS]) -> Self {
        let length = length.min(SHARED_BYTES_MAX);
        Self { length, words }
    }

    /// The number of bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The bytes as words, padded with zeros.
    pub fn words(&self) -> [u64; SHARED_WORDS] {
        self.words
    }

    /// See [`compare_beginning`].
    pub fn compare(&self, key: &[u8]) -> Ordering {
        compare_beginning(key, self.length, |index| self.words[index])
    }

    /// The word of a key behind these bytes.
    pub fn word_behind(&self, key: &[u8]) -> u64 {
        word_behind(key, self.length)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
