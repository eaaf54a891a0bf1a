//! Records: a value, and the whole key if one slice does not hold it.
//!
//! The key is there from its first byte, so a record moves into a new layer as it is: the rest of
//! the key there is found by skipping the slices above. Records are never changed while the tree
//! leads to them. The check of a record covers the lengths, the value and the whole key, also a key
//! that only a slice holds.

use medium::{Medium, Word};
use pool::Guard;
use pool::bytes::{copy_in, copy_out};

use super::access::{View, Walk};
use super::layout::WIDTH_MAX;
use super::shard::Work;
use crate::index::record::{KEY_BYTES_MAX, VALUE_BYTES_MAX, prefetch_rest, prefix_word};
use crate::{Error, Result};

/// The greatest pointer to a cell of a node (`cells`). No record lies so low.
pub(super) const CELL_POINTER_MAX: u64 = 16 * 2 * WIDTH_MAX as u64;
/// Bytes of the allocator's link before a record's first word.
const LINK_BYTES: u64 = 16;
const VALUE_BITS: u32 = 28;
const KEY_BITS: u32 = 20;

/// A record's place and lengths, its bounds checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    start: u64,
    header: u64,
}

/// The greatest key that one slice holds, so that its record does not.
const SLICE_BYTES: usize = 8;

/// The header of a record with the check of all that belongs to it.
fn header_of(key_length: usize, key: &[u8], value: &[u8]) -> u64 {
    let lengths = value.len() as u64 | (key_length as u64) << VALUE_BITS;
    let sum = [&lengths.to_le_bytes(), key, value]
        .iter()
        .fold(0, |sum, part| crc32c::crc32c_append(sum, part));
    lengths | u64::from(sum) << (VALUE_BITS + KEY_BITS)
}

impl Record {
    /// The record of an object.
    #[inline(always)]
    pub(super) fn at<M: Medium>(guard: &Guard<'_, M>, object: u64) -> Result<Self> {
        match Self::if_whole(guard, object) {
            Some(record) => Ok(record),
            None => Err(Self::damage(guard, object)),
        }
    }

    /// Does the same as [`Record::at`], for loops over many records: the compiler keeps an
    /// [`Option`] in registers.
    #[inline(always)]
    fn if_whole<M: Medium>(guard: &Guard<'_, M>, object: u64) -> Option<Self> {
        // A sum that wraps around could lie within the pool.
        let start = object.saturating_add(LINK_BYTES);
        let [header, ..] = guard.words(start, 1).ok()? else {
            return None;
        };
        let record = Self {
            start,
            header: header.load(guard),
        };
        let is_whole = object > CELL_POINTER_MAX
            && record.value_length() <= VALUE_BYTES_MAX
            && record.key_length() <= KEY_BYTES_MAX;
        is_whole.then_some(record)
    }

    /// Why an object is no record.
    #[cold]
    fn damage<M: Medium>(guard: &Guard<'_, M>, object: u64) -> Error {
        if object <= CELL_POINTER_MAX {
            return Error::corrupt(
                object,
                "a pointer to a cell of its node, in a tree of records",
            );
        }
        let place = guard
            .words(object.saturating_add(LINK_BYTES), 1)
            .err()
            .map(Error::from);
        place.unwrap_or_else(|| Error::corrupt(object, "a record with impossible lengths"))
    }

    #[inline(always)]
    fn value_length(&self) -> usize {
        (self.header & ((1 << VALUE_BITS) - 1)) as usize
    }

    #[inline(always)]
    fn key_length(&self) -> usize {
        (self.header >> VALUE_BITS & ((1 << KEY_BITS) - 1)) as usize
    }

    fn value_offset(&self) -> u64 {
        self.start + 8
    }

    fn key_offset(&self) -> u64 {
        self.value_offset() + 8 * self.value_length().div_ceil(8) as u64
    }

    /// The value, if it is one word: as big-endian bytes.
    #[inline(always)]
    pub(super) fn word<M: Medium>(&self, guard: &Guard<'_, M>) -> Result<u64> {
        if self.value_length() != 8 {
            return Err(Error::corrupt(self.start, "a value that is no word"));
        }
        Ok(guard.words(self.value_offset(), 1)?[0]
            .load(guard)
            .swap_bytes())
    }

    /// Appends the value.
    pub(super) fn copy_value<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let words = guard.words(self.value_offset(), self.value_length().div_ceil(8))?;
        copy_out(guard, words, self.value_length(), buffer);
        Ok(())
    }

    /// Whether the value is this one.
    pub(super) fn has_value<M: Medium>(&self, guard: &Guard<'_, M>, value: &[u8]) -> Result<bool> {
        if self.value_length() != value.len() {
            return Ok(false);
        }
        is_same(guard, self.value_offset(), value)
    }

    /// Whether the key goes on with `tail` behind `skipped` bytes, a multiple of 8, and ends there.
    #[inline(always)]
    pub(super) fn has_tail<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        skipped: usize,
        tail: &[u8],
    ) -> Result<bool> {
        Ok(self.key_length() == skipped + tail.len()
            && is_same(guard, self.key_offset() + skipped as u64, tail)?)
    }

    /// Appends the rest of the key behind `skipped` bytes, a multiple of 8.
    pub(super) fn copy_tail<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        skipped: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let Some(length) = self.key_length().checked_sub(skipped) else {
            return Err(Error::corrupt(
                self.start,
                "a record without the key that it should have",
            ));
        };
        let words = guard.words(self.key_offset() + skipped as u64, length.div_ceil(8))?;
        copy_out(guard, words, length, buffer);
        Ok(())
    }

    /// Whether the record passes its check with its key, which a slice may hold, and its value; and
    /// is padded with zeros.
    pub(super) fn is_sound<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        Ok(self.header == header_of(self.key_length(), key, value) && self.is_padded(guard)?)
    }

    /// Refuses a record that is not sound: see [`Record::is_sound`].
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is not.
    #[cold]
    pub(super) fn expect_sound<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        if self.is_sound(guard, key, value)? {
            return Ok(());
        }
        Err(Error::corrupt(self.start, "a record that fails its check"))
    }

    /// Whether key and value are padded with zeros.
    fn is_padded<M: Medium>(&self, guard: &Guard<'_, M>) -> Result<bool> {
        let parts = [
            (self.value_offset(), self.value_length()),
            (self.key_offset(), self.key_length()),
        ];
        for (offset, length) in parts.into_iter().filter(|(_, length)| length % 8 != 0) {
            let last = guard.words(offset + length as u64 / 8 * 8, 1)?[0].load(guard);
            if last >> (length % 8 * 8) != 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The key, if the record holds it.
    pub(super) fn key<M: Medium>(&self, guard: &Guard<'_, M>) -> Result<Option<Vec<u8>>> {
        let mut key = Vec::new();
        self.copy_tail(guard, 0, &mut key)?;
        Ok((!key.is_empty()).then_some(key))
    }
}

/// Whether the bytes from `offset` on are these. The padding of the last word is not compared.
fn is_same<M: Medium>(guard: &Guard<'_, M>, offset: u64, bytes: &[u8]) -> Result<bool> {
    let words = guard.words(offset, bytes.len().div_ceil(8))?;
    let (whole, rest) = bytes.as_chunks::<8>();
    let is_rest = |last: &Word| {
        (last.load(guard).swap_bytes() ^ prefix_word(rest)) >> (64 - 8 * rest.len()) == 0
    };
    let mut pairs = words.iter().zip(whole);
    Ok(
        pairs.all(|(word, chunk)| word.load(guard) == u64::from_le_bytes(*chunk))
            && words.get(whole.len()).is_none_or(is_rest),
    )
}

impl<M: Medium> View<'_, M> {
    /// Hints the processor to load a record's first line.
    #[inline(always)]
    pub(super) fn prefetch_record(&self, object: u64) {
        self.prefetch_word(object.saturating_add(LINK_BYTES));
    }

    /// Hints the processor to load the lines of a record behind the first one. The caller has
    /// prefetched that a while ago ([`View::prefetch_record`]), because the lengths are read from
    /// it.
    pub(super) fn prefetch_rest_of_record(&self, object: u64) {
        if let Some(record) = Record::if_whole(&self.guard, object) {
            prefetch_rest(
                &self.guard,
                record.start,
                record.key_length(),
                record.value_length(),
            );
        }
    }

    /// Writes a record.
    pub(super) fn write_record(&self, work: &mut Work<'_>, key: &[u8], value: &[u8]) -> Walk<u64> {
        let stored = if key.len() > SLICE_BYTES { key } else { &[] };
        let key_words = stored.len().div_ceil(8);
        let value_words = value.len().div_ceil(8);
        let bytes = LINK_BYTES + 8 * (1 + key_words + value_words) as u64;
        let object = self
            .core
            .space(&self.guard)
            .allocate(work, bytes as usize)?;
        let words = self
            .guard
            .words(object + LINK_BYTES, 1 + key_words + value_words)?;
        words[0].store(&self.guard, header_of(stored.len(), key, value));
        copy_in(&self.guard, &words[1..=value_words], value);
        copy_in(&self.guard, &words[1 + value_words..], stored);
        self.core.epochs.list(&mut work.shard, object, bytes);
        Ok(object)
    }
}
