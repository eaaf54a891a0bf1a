//! The first words of a record: the lengths of its key and its value, and its check.
//!
//! ```text
//! short   word 0    key length (12 bits), value length (14 bits), zeros (5 bits), 0 (1 bit),
//!                   check of the record (32 bits)
//! long    word 0    key length (31 bits), 1 (1 bit), check of the record (32 bits)
//!         word 1    value length (32 bits), check of the lengths and the key (32 bits)
//! ```
//!
//! A record has the short form if its lengths fit. Both checks are CRC-32C over whole words: the
//! low half of word 0 as a word, word 1 in the long form (its low half for the check of the key),
//! and then the words of the record, with their padding. A record of zeros passes no check.

use medium::{Medium, Word, WordSum};
use pool::Guard;

use super::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

const SHORT_KEY_BITS: u32 = 12;
const SHORT_VALUE_BITS: u32 = 14;
/// The bit of word 0 that tells a long header from a short one.
const IS_LONG: u64 = 1 << 31;
/// The part of word 0 that holds the lengths.
const LOW_HALF: u64 = u32::MAX as u64;

/// The lengths of a record and its checks, as its first words hold them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordHeader {
    key_length: u32,
    value_length: u32,
    first: u64,
    /// 0 in the short form.
    second: u64,
}

/// The lengths of a record that is to be written.
#[derive(Clone, Copy)]
pub(crate) struct Lengths {
    pub(crate) key: usize,
    pub(crate) value: usize,
}

impl Lengths {
    fn is_long(self) -> bool {
        self.key >> SHORT_KEY_BITS != 0 || self.value >> SHORT_VALUE_BITS != 0
    }

    /// The words that the header takes.
    pub(crate) fn header_words(self) -> usize {
        1 + usize::from(self.is_long())
    }

    /// The low half of word 0.
    fn first_half(self) -> u64 {
        if self.is_long() {
            self.key as u64 | IS_LONG
        } else {
            self.key as u64 | (self.value as u64) << SHORT_KEY_BITS
        }
    }

    /// Stores the header into its words, which lie before the record's body. `sum_key` and
    /// `sum_body` add the words of the key, and of all that lies behind the header, to a sum.
    pub(crate) fn write<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        words: &[Word],
        sum_key: impl FnOnce(WordSum) -> WordSum,
        sum_body: impl FnOnce(WordSum) -> WordSum,
    ) {
        let first_half = self.first_half();
        let mut sum = WordSum::default().with_word(first_half);
        if let Some(second) = words.get(1) {
            let value_length = self.value as u64;
            let key_check = sum_key(sum.with_word(value_length)).check();
            let content = value_length | u64::from(key_check) << 32;
            second.store(guard, content);
            sum = sum.with_word(content);
        }
        let check = sum_body(sum).check();
        words[0].store(guard, first_half | u64::from(check) << 32);
    }
}

impl RecordHeader {
    /// Reads the header at `offset`. `None` if the offset or the lengths are out of bounds.
    #[inline(always)]
    pub(crate) fn read<M: Medium>(guard: &Guard<'_, M>, offset: u64) -> Option<Self> {
        let [first, ..] = guard.words(offset, 1).ok()? else {
            return None;
        };
        let first = first.load(guard);
        if first & IS_LONG != 0 {
            return Self::read_long(guard, offset, first);
        }
        Some(Self {
            key_length: first as u32 & ((1 << SHORT_KEY_BITS) - 1),
            value_length: (first as u32 >> SHORT_KEY_BITS) & ((1 << SHORT_VALUE_BITS) - 1),
            first,
            second: 0,
        })
    }

    #[cold]
    fn read_long<M: Medium>(guard: &Guard<'_, M>, offset: u64, first: u64) -> Option<Self> {
        let second = guard.words(offset, 2).ok()?[1].load(guard);
        let header = Self {
            key_length: (first & (IS_LONG - 1)) as u32,
            value_length: second as u32,
            first,
            second,
        };
        let is_within_limits =
            header.key_length() <= KEY_BYTES_MAX && header.value_length() <= VALUE_BYTES_MAX;
        is_within_limits.then_some(header)
    }

    /// The length of the key, in bytes.
    #[inline(always)]
    pub(crate) fn key_length(&self) -> usize {
        self.key_length as usize
    }

    /// The length of the value, in bytes.
    #[inline(always)]
    pub(crate) fn value_length(&self) -> usize {
        self.value_length as usize
    }

    #[inline(always)]
    fn is_long(&self) -> bool {
        self.first & IS_LONG != 0
    }

    /// The bytes that the header takes.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> u64 {
        if self.is_long() { 16 } else { 8 }
    }

    /// The sum that the words behind the header have to be added to: see [`RecordHeader::passes`].
    #[inline(always)]
    pub(crate) fn sum(&self) -> WordSum {
        let sum = WordSum::default().with_word(self.first & LOW_HALF);
        if self.is_long() {
            sum.with_word(self.second)
        } else {
            sum
        }
    }

    /// Whether a sum over the whole record is its check.
    #[inline(always)]
    pub(crate) fn passes(&self, sum: WordSum) -> bool {
        u64::from(sum.check()) == self.first >> 32
    }

    /// Whether the key and the lengths can be relied upon. A long record has a check for that; of a
    /// short one all must pass. `sum_key` adds the words of the key to a sum, `sum_body` all words
    /// behind the header.
    pub(crate) fn has_sound_key(
        &self,
        sum_key: impl FnOnce(WordSum) -> WordSum,
        sum_body: impl FnOnce(WordSum) -> WordSum,
    ) -> bool {
        match self.key_passes(sum_key) {
            Some(passes) => passes,
            None => self.passes(sum_body(self.sum())),
        }
    }

    /// For a long record, whether its key passes a check of its own. `sum_key` adds the words of
    /// the key to a sum. `None` for a short record, whose only check is that of the whole.
    pub(crate) fn key_passes(&self, sum_key: impl FnOnce(WordSum) -> WordSum) -> Option<bool> {
        if !self.is_long() {
            return None;
        }
        let lengths = WordSum::default()
            .with_word(self.first & LOW_HALF)
            .with_word(self.second & LOW_HALF);
        let check = u64::from(sum_key(lengths).check());
        Some(check == self.second >> 32)
    }
}
