//! How keys and values become the two words of an entry.
//!
//! The first word orders entries; more of the key is compared only if first words tie. The second
//! word holds the value, or the offset of its record.

use std::cmp::Ordering;

use crate::index::record::{self, Record};
use medium::Medium;
use pool::Guard;

use crate::{Error, ErrorKind, Result};

/// An entry's two words.
pub type EntryWords = [u64; 2];

/// The bits of its keys' hashes that a tree stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashBits(pub u16);

impl HashBits {
    /// All of them.
    pub const ALL: Self = Self(u16::MAX);
    /// The fingerprint, but for its lowest bit: a fingerprint of 0 is stored as 1. A stored 0 means
    /// that the fingerprint is missing.
    pub const FINGERPRINT: Self = Self(0xfe);
}

/// A way to code entries.
pub trait Codec: Send + Sync + 'static {
    /// The codec's number in a pool's root table.
    const ID: u16;
    /// The codec's name.
    const NAME: &'static str;
    /// Whether first words can tie between different keys.
    const TIES: bool;
    /// Whether entries have records.
    const HAS_RECORDS: bool;

    /// A key to look for.
    type Key<'k>: Copy;
    /// A value to write.
    type Value<'v>: Copy;

    /// A key from bytes.
    fn key(bytes: &[u8]) -> Result<Self::Key<'_>>;
    /// A value from bytes.
    fn value(bytes: &[u8]) -> Result<Self::Value<'_>>;
    /// The end of a range as a key: the greatest key of this codec that is not above `bytes`, or,
    /// if `bytes` are shorter than a key of the codec, the first key above them.
    fn bound(bytes: &[u8]) -> Self::Key<'_>;
    /// Whether [`Codec::bound`] cut bytes off.
    fn is_rounded(bytes: &[u8]) -> bool;
    /// The key's first word.
    fn word(key: Self::Key<'_>) -> u64;
    /// The bytes of the key, if first words can tie between different keys; otherwise none.
    fn tie_bytes(key: Self::Key<'_>) -> &[u8];
    /// 16 bits that spread over keys; the low 8 are the fingerprint.
    fn hash(key: Self::Key<'_>) -> u16;
    /// The hash of a stored entry's key, from the entry alone.
    fn hash_of(entry: EntryWords) -> u16;
    /// Whether the hash in an entry can be that of `key`. `bits` are those that the engine stores.
    #[inline(always)]
    fn fits(entry: EntryWords, key: Self::Key<'_>, bits: HashBits) -> bool {
        let stored = Self::hash_of(entry);
        let is_missing = bits == HashBits::FINGERPRINT && stored == 0;
        is_missing || (stored ^ Self::hash(key)) & bits.0 == 0
    }
    /// Writes and flushes the entry's record, if it has one.
    fn encode<M: Medium>(
        guard: &Guard<'_, M>,
        key: Self::Key<'_>,
        value: Self::Value<'_>,
    ) -> Result<EntryWords>;
    /// The entry of a key whose record is at this offset. `None` if entries have no records.
    #[inline(always)]
    fn with_record(_key: Self::Key<'_>, _record: u64) -> Option<EntryWords> {
        None
    }
    /// The offset of an entry's record, if it has one.
    fn record(entry: EntryWords) -> Option<u64>;
    /// The entry with a copy of its record, which is flushed. `None` if it has no record.
    #[inline(always)]
    fn copy_record<M: Medium>(
        _guard: &Guard<'_, M>,
        _entry: EntryWords,
    ) -> Result<Option<EntryWords>> {
        Ok(None)
    }
    /// Does the same as [`Codec::copy_record`], but returns `None` also for a record that is longer
    /// than 1 KiB ([`record::copy_short`]).
    #[inline(always)]
    fn copy_short_record<M: Medium>(
        _guard: &Guard<'_, M>,
        _entry: EntryWords,
    ) -> Result<Option<EntryWords>> {
        Ok(None)
    }
    /// Frees the record of an entry that was never published.
    #[inline(always)]
    fn discard<M: Medium>(guard: &Guard<'_, M>, entry: EntryWords) {
        if let Some(record) = Self::record(entry) {
            guard.free(record);
        }
    }
    /// Retires the record of an entry that new readers cannot find.
    #[inline(always)]
    fn retire<M: Medium>(guard: &Guard<'_, M>, entry: EntryWords) {
        if let Some(record) = Self::record(entry) {
            guard.retire(record);
        }
    }
    /// Marks the record of an entry.
    #[inline(always)]
    fn mark<M: Medium>(pool: &pool::Pool<M>, entry: EntryWords) -> Result<()> {
        Self::record(entry).map_or(Ok(()), |record| pool.mark(record))
    }
    /// How `key` compares with the key of an entry whose first word is the same.
    fn compare_tie<M: Medium>(
        guard: &Guard<'_, M>,
        key: Self::Key<'_>,
        entry: EntryWords,
    ) -> Result<Ordering>;
    /// How the keys of two entries with the same first word compare.
    fn compare_tied<M: Medium>(
        guard: &Guard<'_, M>,
        one: EntryWords,
        other: EntryWords,
    ) -> Result<Ordering>;
    /// Whether an entry whose first word is the key's is that of `key`. In a pool that verifies
    /// reads, a record with another key must pass its check, and `fits` must say that the entry is
    /// one of that key. `fits` gets the entry that the key in the record should have.
    fn is_key<M: Medium>(
        guard: &Guard<'_, M>,
        key: Self::Key<'_>,
        entry: EntryWords,
        fits: impl FnOnce(EntryWords) -> bool,
    ) -> Result<bool>;
    /// In a pool that verifies reads, refuses an entry whose record's key fails its check.
    fn expect_key<M: Medium>(guard: &Guard<'_, M>, entry: EntryWords) -> Result<()>;
    /// Whether an entry has `value`.
    fn has_value<M: Medium>(
        guard: &Guard<'_, M>,
        entry: EntryWords,
        value: Self::Value<'_>,
    ) -> Result<bool>;
    /// Prefetches the record of an entry.
    fn prefetch<M: Medium>(guard: &Guard<'_, M>, entry: EntryWords);
    /// Prefetches the rest of an entry's record. The caller has prefetched its first line a while
    /// ago ([`Codec::prefetch`]), because the length is read from it.
    fn prefetch_rest<M: Medium>(guard: &Guard<'_, M>, entry: EntryWords);
    /// Appends an entry's key.
    fn copy_key<M: Medium>(
        guard: &Guard<'_, M>,
        entry: EntryWords,
        buffer: &mut Vec<u8>,
    ) -> Result<()>;
    /// Appends an entry's value.
    fn copy_value<M: Medium>(
        guard: &Guard<'_, M>,
        entry: EntryWords,
        buffer: &mut Vec<u8>,
    ) -> Result<()>;
    /// Appends an entry's key and its value; returns the length of the key. Refuses a record whose
    /// key has another first word than the entry; in a pool that verifies reads also one whose key
    /// has another hash. `bits` are those of the hash that the engine stores.
    fn copy_entry<M: Medium>(
        guard: &Guard<'_, M>,
        entry: EntryWords,
        bits: HashBits,
        buffer: &mut Vec<u8>,
    ) -> Result<usize>;
    /// Whether the entry's record passes its check.
    fn is_sound<M: Medium>(guard: &Guard<'_, M>, entry: EntryWords) -> Result<bool>;
}

/// Mixes all bits of a word into 16.
#[inline(always)]
fn mix(word: u64) -> u16 {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16
}

/// Keys and values are words themselves; as bytes they have 8 each, big-endian.
#[derive(Debug)]
pub enum WordCodec {}

fn word_of(bytes: &[u8], what: &'static str) -> Result<u64> {
    let bytes = bytes.try_into().map_err(|_| ErrorKind::NotAWord {
        what,
        length: bytes.len(),
    })?;
    Ok(u64::from_be_bytes(bytes))
}

impl Codec for WordCodec {
    const ID: u16 = 1;
    const NAME: &'static str = "word";
    const TIES: bool = false;
    const HAS_RECORDS: bool = false;
    type Key<'k> = u64;
    type Value<'v> = u64;

    fn key(bytes: &[u8]) -> Result<u64> {
        word_of(bytes, "key")
    }

    fn value(bytes: &[u8]) -> Result<u64> {
        word_of(bytes, "value")
    }

    fn bound(bytes: &[u8]) -> u64 {
        record::prefix_word(bytes)
    }

    fn is_rounded(bytes: &[u8]) -> bool {
        bytes.len() > 8
    }

    #[inline(always)]
    fn word(key: u64) -> u64 {
        key
    }

    #[inline(always)]
    fn tie_bytes(_key: Self::Key<'_>) -> &[u8] {
        &[]
    }

    #[inline(always)]
    fn hash(key: u64) -> u16 {
        mix(key)
    }

    #[inline(always)]
    fn hash_of(entry: EntryWords) -> u16 {
        mix(entry[0])
    }

    #[inline(always)]
    fn encode<M: Medium>(_guard: &Guard<'_, M>, key: u64, value: u64) -> Result<EntryWords> {
        Ok([key, value])
    }

    #[inline(always)]
    fn record(_entry: EntryWords) -> Option<u64> {
        None
    }

    #[inline(always)]
    fn compare_tie<M: Medium>(
        _guard: &Guard<'_, M>,
        _key: u64,
        _entry: EntryWords,
    ) -> Result<Ordering> {
        Ok(Ordering::Equal)
    }

    #[inline(always)]
    fn compare_tied<M: Medium>(
        _guard: &Guard<'_, M>,
        _one: EntryWords,
        _other: EntryWords,
    ) -> Result<Ordering> {
        Ok(Ordering::Equal)
    }

    #[inline(always)]
    fn is_key<M: Medium>(
        _guard: &Guard<'_, M>,
        _key: u64,
        _entry: EntryWords,
        _fits: impl FnOnce(EntryWords) -> bool,
    ) -> Result<bool> {
        Ok(true)
    }

    #[inline(always)]
    fn expect_key<M: Medium>(_guard: &Guard<'_, M>, _entry: EntryWords) -> Result<()> {
        Ok(())
    }

    fn has_value<M: Medium>(_guard: &Guard<'_, M>, entry: EntryWords, value: u64) -> Result<bool> {
        Ok(entry[1] == value)
    }

    #[inline(always)]
    fn prefetch<M: Medium>(_guard: &Guard<'_, M>, _entry: EntryWords) {}

    fn prefetch_rest<M: Medium>(_guard: &Guard<'_, M>, _entry: EntryWords) {}

    fn copy_key<M: Medium>(
        _guard: &Guard<'_, M>,
        entry: EntryWords,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        buffer.extend_from_slice(&entry[0].to_be_bytes());
        Ok(())
    }

    fn copy_value<M: Medium>(
        _guard: &Guard<'_, M>,
        entry: EntryWords,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        buffer.extend_from_slice(&entry[1].to_be_bytes());
        Ok(())
    }

    fn copy_entry<M: Medium>(
        _guard: &Guard<'_, M>,
        entry: EntryWords,
        _bits: HashBits,
        buffer: &mut Vec<u8>,
    ) -> Result<usize> {
        buffer.extend_from_slice(entry.map(u64::to_be_bytes).as_flattened());
        Ok(8)
    }

    fn is_sound<M: Medium>(_guard: &Guard<'_, M>, _entry: EntryWords) -> Result<bool> {
        Ok(true)
    }
}

/// Keys of 0 bytes to 64 KiB and values of 0 bytes to 16 MiB, in records outside of the leaf. The
/// first word is the key's first 8 bytes, the second the record's offset (48 bits) below the key's
/// hash (16 bits), so that fingerprints are rebuilt without reading records.
#[derive(Debug)]
pub enum RecordCodec {}

/// Refuses a key or a value that a tree of words, or one of records, cannot hold.
pub(crate) fn check_entry(are_words: bool, key: &[u8], value: &[u8]) -> Result<()> {
    if are_words {
        WordCodec::key(key).and(WordCodec::value(value)).map(drop)
    } else {
        RecordCodec::key(key)
            .and(RecordCodec::value(value))
            .map(drop)
    }
}

const OFFSET_MASK: u64 = (1 << 48) - 1;

impl RecordCodec {
    fn entry(key: &[u8], record: u64) -> EntryWords {
        [Self::word(key), record | u64::from(Self::hash(key)) << 48]
    }

    /// The entry that a record should have which `entry` leads to.
    #[cold]
    fn entry_of<M: Medium>(
        guard: &Guard<'_, M>,
        record: &Record,
        entry: EntryWords,
    ) -> Result<EntryWords> {
        let mut key = Vec::new();
        record.copy_key(guard, &mut key)?;
        Ok(Self::entry(&key, entry[1] & OFFSET_MASK))
    }

    #[cold]
    fn leads_to_another_key(entry: EntryWords) -> Error {
        Error::corrupt(
            entry[1] & OFFSET_MASK,
            "a record with another key than the entry that leads to it",
        )
    }

    /// The entry of the same key with a record at another offset.
    fn with_offset(entry: EntryWords, record: u64) -> EntryWords {
        [entry[0], record | entry[1] & !OFFSET_MASK]
    }
}

impl Codec for RecordCodec {
    const ID: u16 = 2;
    const NAME: &'static str = "record";
    const TIES: bool = true;
    const HAS_RECORDS: bool = true;
    type Key<'k> = &'k [u8];
    type Value<'v> = &'v [u8];

    fn key(bytes: &[u8]) -> Result<&[u8]> {
        record::check_lengths(bytes, &[])?;
        Ok(bytes)
    }

    fn value(bytes: &[u8]) -> Result<&[u8]> {
        record::check_lengths(&[], bytes)?;
        Ok(bytes)
    }

    fn bound(bytes: &[u8]) -> &[u8] {
        bytes
    }

    fn is_rounded(_bytes: &[u8]) -> bool {
        false
    }

    #[inline(always)]
    fn word(key: &[u8]) -> u64 {
        record::prefix_word(key)
    }

    #[inline(always)]
    fn tie_bytes(key: Self::Key<'_>) -> &[u8] {
        key
    }

    #[inline]
    fn hash(key: &[u8]) -> u16 {
        let mut state = key.len() as u64;
        for chunk in key.chunks(8) {
            state = (state ^ record::prefix_word(chunk)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            state ^= state >> 32;
        }
        mix(state)
    }

    #[inline(always)]
    fn hash_of(entry: EntryWords) -> u16 {
        (entry[1] >> 48) as u16
    }

    fn encode<M: Medium>(guard: &Guard<'_, M>, key: &[u8], value: &[u8]) -> Result<EntryWords> {
        let offset = record::write(guard, key, value)?;
        Ok(Self::entry(key, offset))
    }

    fn with_record(key: &[u8], record: u64) -> Option<EntryWords> {
        Some(Self::entry(key, record))
    }

    #[inline(always)]
    fn record(entry: EntryWords) -> Option<u64> {
        Some(entry[1] & OFFSET_MASK)
    }

    fn copy_record<M: Medium>(
        guard: &Guard<'_, M>,
        entry: EntryWords,
    ) -> Result<Option<EntryWords>> {
        let copy = record::copy(guard, entry[1] & OFFSET_MASK)?;
        Ok(Some(Self::with_offset(entry, copy)))
    }

    fn copy_short_record<M: Medium>(
        guard: &Guard<'_, M>,
        entry: EntryWords,
    ) -> Result<Option<EntryWords>> {
        let copy = record::copy_short(guard, entry[1] & OFFSET_MASK)?;
        Ok(copy.map(|copy| Self::with_offset(entry, copy)))
    }

    fn compare_tie<M: Medium>(
        guard: &Guard<'_, M>,
        key: &[u8],
        entry: EntryWords,
    ) -> Result<Ordering> {
        Record::at(guard, entry[1] & OFFSET_MASK)?.compare(guard, key)
    }

    fn compare_tied<M: Medium>(
        guard: &Guard<'_, M>,
        one: EntryWords,
        other: EntryWords,
    ) -> Result<Ordering> {
        let one = Record::at(guard, one[1] & OFFSET_MASK)?;
        let other = Record::at(guard, other[1] & OFFSET_MASK)?;
        one.compare_keys(guard, &other)
    }

    #[inline(always)]
    fn is_key<M: Medium>(
        guard: &Guard<'_, M>,
        key: &[u8],
        entry: EntryWords,
        fits: impl FnOnce(EntryWords) -> bool,
    ) -> Result<bool> {
        let record = Record::at(guard, entry[1] & OFFSET_MASK)?;
        if record.compare(guard, key)?.is_eq() {
            return Ok(true);
        }
        // Rare: the caller has found the key's hash, or a part of it, in the entry.
        record.expect_key(guard)?;
        if !guard.verifies() || fits(Self::entry_of(guard, &record, entry)?) {
            return Ok(false);
        }
        Err(Self::leads_to_another_key(entry))
    }

    fn expect_key<M: Medium>(guard: &Guard<'_, M>, entry: EntryWords) -> Result<()> {
        Record::at(guard, entry[1] & OFFSET_MASK)?.expect_key(guard)
    }

    fn has_value<M: Medium>(guard: &Guard<'_, M>, entry: EntryWords, value: &[u8]) -> Result<bool> {
        let record = Record::at(guard, entry[1] & OFFSET_MASK)?;
        if record.value_length() != value.len() {
            // The check of the key covers the lengths.
            record.expect_key(guard)?;
            return Ok(false);
        }
        let mut current = Vec::with_capacity(value.len() + 8);
        record.copy_value(guard, &mut current)?;
        Ok(current == value)
    }

    fn prefetch<M: Medium>(guard: &Guard<'_, M>, entry: EntryWords) {
        if let Ok([header, ..]) = guard.words(entry[1] & OFFSET_MASK, 1) {
            header.prefetch();
        }
    }

    fn prefetch_rest<M: Medium>(guard: &Guard<'_, M>, entry: EntryWords) {
        Record::prefetch_rest(guard, entry[1] & OFFSET_MASK);
    }

    fn copy_key<M: Medium>(
        guard: &Guard<'_, M>,
        entry: EntryWords,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        Record::at(guard, entry[1] & OFFSET_MASK)?.copy_key(guard, buffer)
    }

    fn copy_value<M: Medium>(
        guard: &Guard<'_, M>,
        entry: EntryWords,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        Record::at(guard, entry[1] & OFFSET_MASK)?.copy_value(guard, buffer)
    }

    fn copy_entry<M: Medium>(
        guard: &Guard<'_, M>,
        entry: EntryWords,
        bits: HashBits,
        buffer: &mut Vec<u8>,
    ) -> Result<usize> {
        let start = buffer.len();
        let offset = entry[1] & OFFSET_MASK;
        let key_length = Record::copy_entry(guard, offset, buffer)?;
        let key = &buffer[start..start + key_length];
        // A damaged offset may lead to the sound record of another key with the same first word.
        if Self::word(key) == entry[0] && (!guard.verifies() || Self::fits(entry, key, bits)) {
            return Ok(key_length);
        }
        buffer.truncate(start);
        Err(Self::leads_to_another_key(entry))
    }

    fn is_sound<M: Medium>(guard: &Guard<'_, M>, entry: EntryWords) -> Result<bool> {
        Record::at(guard, entry[1] & OFFSET_MASK)?.is_sound(guard)
    }
}
