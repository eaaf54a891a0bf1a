//! Records: a key and a value of any length, outside the leaf.
//!
//! ```text
//! word 0    key length (20 bits), value length (28 bits), check of key and value (16 bits)
//! then      the key, padded with zeros to a whole word
//! then      the value, padded with zeros to a whole word
//! ```
//!
//! Records are never changed after they were published. All access is by words, tails included;
//! bytes are copied out, never borrowed.

use std::cmp::Ordering;

use medium::{LINE_BYTES, Medium, Word};
use pool::Guard;
use pool::bytes::{copy_in, copy_out};

use crate::{Error, ErrorKind, Result};

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

const KEY_BITS: u32 = 20;
const VALUE_BITS: u32 = 28;

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

/// A record's place and lengths, its bounds checked.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    offset: u64,
    header: u64,
}

/// The check of a record. It is complemented, so that a line of zeros is no record.
fn check_of(key: &[u8], value: &[u8]) -> u16 {
    !crc32c::crc32c_append(crc32c::crc32c(key), value) as u16
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
    let key_words = key.len().div_ceil(8);
    let value_words = value.len().div_ceil(8);
    let count = 1 + key_words + value_words;
    let offset = guard.allocate(count * 8)?;
    let words = guard.words(offset, count)?;
    let check = u64::from(check_of(key, value));
    words[0].store(
        guard,
        key.len() as u64 | (value.len() as u64) << KEY_BITS | check << (KEY_BITS + VALUE_BITS),
    );
    copy_in(guard, &words[1..=key_words], key);
    copy_in(guard, &words[1 + key_words..], value);
    guard.flush_words(words);
    Ok(offset)
}

/// Copies and flushes the record at `offset`. `None` if it is longer than 1 KiB.
pub fn copy<M: Medium>(guard: &Guard<'_, M>, offset: u64) -> Result<Option<u64>> {
    let record = Record::at(guard, offset)?;
    let count = 1 + record.key_length().div_ceil(8) + record.value_length().div_ceil(8);
    if count > COPIED_WORDS_MAX {
        return Ok(None);
    }
    let from = guard.words(offset, count)?;
    let copy = guard.allocate(count * 8)?;
    let to = guard.words(copy, count)?;
    from.iter()
        .zip(to)
        .for_each(|(from, to)| to.store(guard, from.load(guard)));
    guard.flush_words(to);
    Ok(Some(copy))
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
        let [header, ..] = guard.words(offset, 1).ok()? else {
            return None;
        };
        let record = Self {
            offset,
            header: header.load(guard),
        };
        (record.key_length() <= KEY_BYTES_MAX && record.value_length() <= VALUE_BYTES_MAX)
            .then_some(record)
    }

    /// Why there is no record at `offset`.
    #[cold]
    fn damage<M: Medium>(guard: &Guard<'_, M>, offset: u64) -> Error {
        let place = guard.words(offset, 1).err().map(Error::from);
        place.unwrap_or_else(|| Error::corrupt(offset, "a record with impossible lengths"))
    }

    fn key_words<'g, M: Medium>(&self, guard: &'g Guard<'_, M>) -> Result<&'g [Word]> {
        Ok(guard.words(self.offset + 8, self.key_length().div_ceil(8))?)
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

    /// The length of the key, in bytes.
    #[inline(always)]
    pub fn key_length(&self) -> usize {
        (self.header & ((1 << KEY_BITS) - 1)) as usize
    }

    /// The length of the value, in bytes.
    #[inline(always)]
    pub fn value_length(&self) -> usize {
        (self.header >> KEY_BITS & ((1 << VALUE_BITS) - 1)) as usize
    }

    /// Appends the key to a buffer.
    pub fn copy_key<M: Medium>(&self, guard: &Guard<'_, M>, buffer: &mut Vec<u8>) -> Result<()> {
        copy_out(guard, self.key_words(guard)?, self.key_length(), buffer);
        Ok(())
    }

    /// Appends the value to a buffer. In a pool that verifies reads, the record must pass its
    /// check.
    pub fn copy_value<M: Medium>(&self, guard: &Guard<'_, M>, buffer: &mut Vec<u8>) -> Result<()> {
        self.verify(guard)?;
        self.copy_value_as_is(guard, buffer)
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
        record.verify(guard)?;
        let key_words = record.key_length().div_ceil(8);
        let words = guard.words(offset + 8, key_words + record.value_length().div_ceil(8))?;
        let (key, value) = words.split_at(key_words);
        copy_out(guard, key, record.key_length(), buffer);
        copy_out(guard, value, record.value_length(), buffer);
        Ok(record.key_length())
    }

    #[inline]
    fn verify<M: Medium>(&self, guard: &Guard<'_, M>) -> Result<()> {
        if guard.verifies() && !self.is_sound(guard)? {
            return Err(Error::corrupt(self.offset, "a record that fails its check"));
        }
        Ok(())
    }

    fn copy_value_as_is<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let start = self.offset + 8 + 8 * self.key_length().div_ceil(8) as u64;
        copy_out(
            guard,
            guard.words(start, self.value_length().div_ceil(8))?,
            self.value_length(),
            buffer,
        );
        Ok(())
    }

    /// Whether key and value pass the record's check, and the key's padding is zero, which
    /// comparisons rely on. O(length).
    pub fn is_sound<M: Medium>(&self, guard: &Guard<'_, M>) -> Result<bool> {
        let mut key = Vec::new();
        let mut value = Vec::new();
        self.copy_key(guard, &mut key)?;
        self.copy_value_as_is(guard, &mut value)?;
        let check = (self.header >> (KEY_BITS + VALUE_BITS)) as u16;
        Ok(check_of(&key, &value) == check && self.compare(guard, &key)?.is_eq())
    }
}
