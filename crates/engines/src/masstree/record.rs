//! Records: a value, and the whole key if one slice does not hold it.
//!
//! The key is there from its first byte, so a record moves into a new layer as it is: the rest of
//! the key there is found by skipping the slices above. Records are never changed while the tree
//! leads to them. The check of a record covers the lengths, the value and the whole key, also a key
//! that only a slice holds. Its header is that of the other engines' records; the header's check is
//! taken over the value first, and then over the key.

use medium::{Medium, Word};
use pool::Guard;
use pool::bytes::{copy_in, copy_out, copy_out_summed};

use super::access::{TreeAccess, Walk};
use super::layout::WIDTH_MAX;
use super::shard::Work;
use crate::index::record::header::{Lengths, RecordHeader};
use crate::index::record::{prefetch_rest, prefix_word};
use crate::{Error, Result};

/// The greatest pointer to a cell of a node (`cells`). No record lies so low.
pub(super) const CELL_POINTER_MAX: u64 = 16 * 2 * WIDTH_MAX as u64;
/// Bytes of the allocator's link before a record's first word.
const LINK_BYTES: u64 = 16;

/// A record's place and header, its lengths within the limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    start: u64,
    header: RecordHeader,
}

/// The key of a value that is copied.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueKey<'k> {
    Given(&'k [u8]),
    /// The buffer holds it, from here to its end, and gets the value behind it.
    InBuffer(usize),
}

/// The greatest key that one slice holds, so that its record does not.
const SLICE_BYTES: usize = 8;

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
        let header = RecordHeader::read(guard, start)?;
        (object > CELL_POINTER_MAX).then_some(Self { start, header })
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
        self.header.value_length()
    }

    /// The length of the whole key, which a slice may hold.
    #[inline(always)]
    fn key_length(&self) -> usize {
        self.header.key_length()
    }

    /// The length of the key if the record holds it, else 0.
    #[inline(always)]
    fn stored_key_length(&self) -> usize {
        if self.key_length() > SLICE_BYTES {
            self.key_length()
        } else {
            0
        }
    }

    fn value_offset(&self) -> u64 {
        self.start + self.header.bytes()
    }

    fn key_offset(&self) -> u64 {
        self.value_offset() + 8 * self.value_length().div_ceil(8) as u64
    }

    fn value_words<'g, M: Medium>(&self, guard: &'g Guard<'_, M>) -> Result<&'g [Word]> {
        Ok(guard.words(self.value_offset(), self.value_length().div_ceil(8))?)
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

    /// Appends the value, whatever it is.
    pub(super) fn copy_value<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        copy_out(guard, self.value_words(guard)?, self.value_length(), buffer);
        Ok(())
    }

    /// Appends the value of a key. In a pool that verifies reads, the record must pass its check.
    /// After an error the buffer is as it was before.
    #[inline]
    pub(super) fn copy_value_of<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        key: ValueKey<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        if !guard.verifies() {
            return self.copy_value(guard, buffer);
        }
        let start = buffer.len();
        let words = self.value_words(guard)?;
        let sum = self.header.sum();
        let sum = copy_out_summed(guard, words, self.value_length(), buffer, sum);
        let key = match key {
            ValueKey::Given(key) => key,
            ValueKey::InBuffer(key_start) => &buffer[key_start..start],
        };
        if self.key_length() == key.len() && self.header.passes(sum.with_bytes(key)) {
            return Ok(());
        }
        buffer.truncate(start);
        Err(self.fails_its_check())
    }

    /// In a pool that verifies reads, refuses a record whose key, which it holds, cannot be relied
    /// upon. A read that concludes from it that an entry is not the one it wants calls this first.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the record fails its check.
    pub(super) fn expect_key<M: Medium>(&self, guard: &Guard<'_, M>) -> Result<()> {
        if !guard.verifies() {
            return Ok(());
        }
        let key = guard.words(self.key_offset(), self.stored_key_length().div_ceil(8))?;
        let value = self.value_words(guard)?;
        let is_sound = self.header.has_sound_key(
            |sum| sum.with_words(guard, key),
            |sum| sum.with_words(guard, value).with_words(guard, key),
        );
        if is_sound {
            Ok(())
        } else {
            Err(self.fails_its_check())
        }
    }

    #[cold]
    fn fails_its_check(&self) -> Error {
        Error::corrupt(self.start, "a record that fails its check")
    }

    /// Whether the value of `key` is this one.
    pub(super) fn has_value<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        if self.value_length() == value.len() && is_same(guard, self.value_offset(), value)? {
            return Ok(true);
        }
        self.copy_value_of(guard, ValueKey::Given(key), &mut Vec::new())?;
        Ok(false)
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
        let Some(length) = self.stored_key_length().checked_sub(skipped) else {
            return Err(Error::corrupt(
                self.start,
                "a record without the key that it should have",
            ));
        };
        let words = guard.words(self.key_offset() + skipped as u64, length.div_ceil(8))?;
        copy_out(guard, words, length, buffer);
        Ok(())
    }

    /// Whether the record passes its checks with its key, which a slice may hold, and its value; and
    /// is padded with zeros.
    pub(super) fn is_sound<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        let sum = self.header.sum().with_bytes(value).with_bytes(key);
        let key_passes = self.header.key_passes(|sum| sum.with_bytes(key));
        let is_its_key = self.key_length() == key.len() && key_passes != Some(false);
        Ok(is_its_key && self.header.passes(sum) && self.is_padded(guard)?)
    }

    /// Whether key and value are padded with zeros.
    fn is_padded<M: Medium>(&self, guard: &Guard<'_, M>) -> Result<bool> {
        let parts = [
            (self.value_offset(), self.value_length()),
            (self.key_offset(), self.stored_key_length()),
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

impl<M: Medium> TreeAccess<'_, M> {
    /// Hints the processor to load a record's first line.
    #[inline(always)]
    pub(super) fn prefetch_record(&self, object: u64) {
        self.prefetch_word(object.saturating_add(LINK_BYTES));
    }

    /// Hints the processor to load the lines of a record behind the first one. The caller has
    /// prefetched that a while ago ([`TreeAccess::prefetch_record`]), because the lengths are read from
    /// it.
    pub(super) fn prefetch_rest_of_record(&self, object: u64) {
        if let Some(record) = Record::if_whole(&self.guard, object) {
            prefetch_rest(
                &self.guard,
                record.start,
                record.stored_key_length(),
                record.value_length(),
            );
        }
    }

    /// Writes a record.
    pub(super) fn write_record(&self, work: &mut Work<'_>, key: &[u8], value: &[u8]) -> Walk<u64> {
        let stored = if key.len() > SLICE_BYTES { key } else { &[] };
        let lengths = Lengths {
            key: key.len(),
            value: value.len(),
        };
        let header_words = lengths.header_words();
        let key_words = stored.len().div_ceil(8);
        let value_words = value.len().div_ceil(8);
        let count = header_words + value_words + key_words;
        let bytes = LINK_BYTES + 8 * count as u64;
        let object = self
            .core
            .space(&self.guard)
            .allocate(work, bytes as usize)?;
        let words = self.guard.words(object + LINK_BYTES, count)?;
        let (header, body) = words.split_at(header_words);
        lengths.write(
            &self.guard,
            header,
            |sum| sum.with_bytes(key),
            |sum| sum.with_bytes(value).with_bytes(key),
        );
        copy_in(&self.guard, &body[..value_words], value);
        copy_in(&self.guard, &body[value_words..], stored);
        self.core.epochs.list(&mut work.shard, object, bytes);
        Ok(object)
    }
}
