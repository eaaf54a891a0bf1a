//! Records: a key and a value of any length, outside the leaf.
//!
//! ```text
//! header    the lengths of key and value, and a check of all words: one or two words
//! then      the key, padded with zeros to a whole word
//! then      the value, padded with zeros to a whole word
//! ```
//!
//! Records are never changed after they were published. All access is by words, tails included;
//! bytes are copied out, never borrowed.

use std::cmp::Ordering;

use medium::{LINE_BYTES, Medium, Word};
use pool::Guard;
use pool::bytes::{copy_in, copy_out, copy_out_summed};

use crate::{Error, ErrorKind, Result};

pub(crate) mod header;

use header::{Lengths, RecordHeader};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// The most words of a record that are prefetched: 1 KiB.
const PREFETCHED_WORDS_MAX: usize = 1 << 7;

/// The most words of a record that is copied to lie near others: 1 KiB. Few longer records would
/// share a page.
const COPIED_WORDS_MAX: usize = 1 << 7;

/// Hints the processor to load the lines of a record behind its first one.
#[inline]
pub fn prefetch_rest<M: Medium>(
    guard: &Guard<'_, M>,
    record: u64,
    key_length: usize,
    value_length: usize,
) {
    let length = 1 + key_length.div_ceil(8) + value_length.div_ceil(8);
    if let Ok(words) = guard.words(record, length.min(PREFETCHED_WORDS_MAX)) {
        // The last line may begin less than a line behind the one before it.
        words
            .iter()
            .step_by(LINE_BYTES / 8)
            .skip(1)
            .chain(words.last())
            .for_each(Word::prefetch);
    }
}

/// The first 8 bytes of a key, big-endian and padded with zeros: has the order of the keys, except
/// for ties.
#[inline]
pub fn prefix_word(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut bytes = [0; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}

/// A record's place and header, its lengths within the limits.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    offset: u64,
    header: RecordHeader,
}

/// Refuses keys and values beyond the limits.
pub fn check_lengths(key: &[u8], value: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(ErrorKind::KeyTooLong {
            length: key.len(),
            limit: KEY_BYTES_MAX,
        }
        .into());
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(ErrorKind::ValueTooLong {
            length: value.len(),
            limit: VALUE_BYTES_MAX,
        }
        .into());
    }
    Ok(())
}

/// Writes and flushes a record; the caller fences before it publishes the offset.
pub fn write<M: Medium>(guard: &Guard<'_, M>, key: &[u8], value: &[u8]) -> Result<u64> {
    check_lengths(key, value)?;
    let lengths = Lengths {
        key: key.len(),
        value: value.len(),
    };
    let header_words = lengths.header_words();
    let key_words = key.len().div_ceil(8);
    let value_words = value.len().div_ceil(8);
    let count = header_words + key_words + value_words;
    let offset = guard.allocate(count * 8)?;
    let words = guard.words(offset, count)?;
    let (header, body) = words.split_at(header_words);
    lengths.write(
        guard,
        header,
        |sum| sum.with_bytes(key),
        |sum| sum.with_bytes(key).with_bytes(value),
    );
    copy_in(guard, &body[..key_words], key);
    copy_in(guard, &body[key_words..], value);
    guard.flush_words(words);
    Ok(offset)
}

/// Copies and flushes the record at `offset`. `None` if it is longer than 1 KiB.
pub fn copy_short<M: Medium>(guard: &Guard<'_, M>, offset: u64) -> Result<Option<u64>> {
    if Record::at(guard, offset)?.words() > COPIED_WORDS_MAX {
        return Ok(None);
    }
    copy(guard, offset).map(Some)
}

/// Copies and flushes the record at `offset`.
pub fn copy<M: Medium>(guard: &Guard<'_, M>, offset: u64) -> Result<u64> {
    let count = Record::at(guard, offset)?.words();
    let from = guard.words(offset, count)?;
    let copy = guard.allocate(count * 8)?;
    let to = guard.words(copy, count)?;
    from.iter()
        .zip(to)
        .for_each(|(from, to)| to.store(guard, from.load(guard)));
    guard.flush_words(to);
    Ok(copy)
}

impl Record {
    /// The record at `offset`; checks its bounds.
    #[inline]
    pub fn at<M: Medium>(guard: &Guard<'_, M>, offset: u64) -> Result<Self> {
        match Self::if_whole(guard, offset) {
            Some(record) => Ok(record),
            None => Err(Self::damage(guard, offset)),
        }
    }

    /// Does the same as [`Record::at`], for loops over many records: the compiler keeps an
    /// [`Option`] in registers.
    #[inline(always)]
    fn if_whole<M: Medium>(guard: &Guard<'_, M>, offset: u64) -> Option<Self> {
        let header = RecordHeader::read(guard, offset)?;
        Some(Self { offset, header })
    }

    /// Why there is no record at `offset`.
    #[cold]
    fn damage<M: Medium>(guard: &Guard<'_, M>, offset: u64) -> Error {
        let place = guard.words(offset, 1).err().map(Error::from);
        place.unwrap_or_else(|| Error::corrupt(offset, "a record with impossible lengths"))
    }

    /// The words that the record takes.
    fn words(&self) -> usize {
        let header_words = self.header.bytes() as usize / 8;
        header_words + self.key_length().div_ceil(8) + self.value_length().div_ceil(8)
    }

    /// The words of the key, and those of the value.
    #[inline(always)]
    fn body<'g, M: Medium>(&self, guard: &'g Guard<'_, M>) -> Result<(&'g [Word], &'g [Word])> {
        let key_words = self.key_length().div_ceil(8);
        let count = key_words + self.value_length().div_ceil(8);
        let words = guard.words(self.offset + self.header.bytes(), count)?;
        Ok(words.split_at(key_words))
    }

    fn key_words<'g, M: Medium>(&self, guard: &'g Guard<'_, M>) -> Result<&'g [Word]> {
        let start = self.offset + self.header.bytes();
        Ok(guard.words(start, self.key_length().div_ceil(8))?)
    }

    /// Hints the processor to load the lines of a record behind the first one, as many as a scan
    /// may want at once.
    #[inline]
    pub fn prefetch_rest<M: Medium>(guard: &Guard<'_, M>, offset: u64) {
        if let Some(record) = Self::if_whole(guard, offset) {
            prefetch_rest(guard, offset, record.key_length(), record.value_length());
        }
    }

    /// How `key` compares with this record's key.
    pub fn compare<M: Medium>(&self, guard: &Guard<'_, M>, key: &[u8]) -> Result<Ordering> {
        let words = self.key_words(guard)?;
        for (index, word) in words.iter().enumerate() {
            let mine = prefix_word(&word.load(guard).to_le_bytes());
            let yours = prefix_word(key.get(8 * index..).unwrap_or_default());
            if mine != yours {
                return Ok(yours.cmp(&mine));
            }
        }
        Ok(key.len().cmp(&self.key_length()))
    }

    /// How this record's key compares with another one's. Nothing is copied.
    pub fn compare_keys<M: Medium>(&self, guard: &Guard<'_, M>, other: &Self) -> Result<Ordering> {
        let own_words = self.key_words(guard)?;
        let other_words = other.key_words(guard)?;
        for (own_word, other_word) in own_words.iter().zip(other_words) {
            let own_prefix = prefix_word(&own_word.load(guard).to_le_bytes());
            let other_prefix = prefix_word(&other_word.load(guard).to_le_bytes());
            if own_prefix != other_prefix {
                return Ok(own_prefix.cmp(&other_prefix));
            }
        }
        // The padding of the shorter key is zero.
        Ok(self.key_length().cmp(&other.key_length()))
    }

    /// The length of the key, in bytes.
    #[inline(always)]
    pub fn key_length(&self) -> usize {
        self.header.key_length()
    }

    /// The length of the value, in bytes.
    #[inline(always)]
    pub fn value_length(&self) -> usize {
        self.header.value_length()
    }

    /// Appends the key to a buffer.
    pub fn copy_key<M: Medium>(&self, guard: &Guard<'_, M>, buffer: &mut Vec<u8>) -> Result<()> {
        copy_out(guard, self.key_words(guard)?, self.key_length(), buffer);
        Ok(())
    }

    /// Appends the value to a buffer. In a pool that verifies reads, the record must pass its
    /// check. After an error the buffer is as it was before.
    #[inline]
    pub fn copy_value<M: Medium>(&self, guard: &Guard<'_, M>, buffer: &mut Vec<u8>) -> Result<()> {
        let (key, value) = self.body(guard)?;
        let length = self.value_length();
        if !guard.verifies() {
            copy_out(guard, value, length, buffer);
            return Ok(());
        }
        let start = buffer.len();
        let sum = self.header.sum().with_words(guard, key);
        let sum = copy_out_summed(guard, value, length, buffer, sum);
        if self.header.passes(sum) {
            return Ok(());
        }
        buffer.truncate(start);
        Err(self.fails_its_check())
    }

    /// Appends the key and the value of the record at `offset` to a buffer, with the check that
    /// [`Record::copy_value`] makes; returns the length of the key.
    #[inline]
    pub fn copy_entry<M: Medium>(
        guard: &Guard<'_, M>,
        offset: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<usize> {
        let Some(record) = Self::if_whole(guard, offset) else {
            return Err(Self::damage(guard, offset));
        };
        let (key, value) = record.body(guard)?;
        let key_length = record.key_length();
        let value_length = record.value_length();
        if !guard.verifies() {
            copy_out(guard, key, key_length, buffer);
            copy_out(guard, value, value_length, buffer);
            return Ok(key_length);
        }
        let start = buffer.len();
        let sum = copy_out_summed(guard, key, key_length, buffer, record.header.sum());
        let sum = copy_out_summed(guard, value, value_length, buffer, sum);
        if record.header.passes(sum) {
            return Ok(key_length);
        }
        buffer.truncate(start);
        Err(record.fails_its_check())
    }

    /// In a pool that verifies reads, refuses a record whose key cannot be relied upon. A read that
    /// concludes from the key that an entry is not the one it wants calls this first.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the record fails its check.
    pub fn expect_key<M: Medium>(&self, guard: &Guard<'_, M>) -> Result<()> {
        if !guard.verifies() {
            return Ok(());
        }
        let (key, value) = self.body(guard)?;
        let is_sound = self.header.has_sound_key(
            |sum| sum.with_words(guard, key),
            |sum| sum.with_words(guard, key).with_words(guard, value),
        );
        if is_sound {
            Ok(())
        } else {
            Err(self.fails_its_check())
        }
    }

    #[cold]
    fn fails_its_check(&self) -> Error {
        Error::corrupt(self.offset, "a record that fails its check")
    }

    /// Whether the record passes its checks, and the key's padding is zero, which comparisons rely
    /// on. O(length).
    pub fn is_sound<M: Medium>(&self, guard: &Guard<'_, M>) -> Result<bool> {
        let (key, value) = self.body(guard)?;
        let sum = self.header.sum().with_words(guard, key);
        let sum = sum.with_words(guard, value);
        let key_passes = self.header.key_passes(|sum| sum.with_words(guard, key));
        if !self.header.passes(sum) || key_passes == Some(false) {
            return Ok(false);
        }
        let mut copy = Vec::new();
        self.copy_key(guard, &mut copy)?;
        Ok(self.compare(guard, &copy)?.is_eq())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
