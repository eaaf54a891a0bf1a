//! The journal, to which a batch on trees of immediate durability is written before it is applied.
//!
//! ```text
//! an entry, in words
//! 0      bytes of the entry (48 bits), with a check
//! 1      CRC32C of the words from 2 on
//! 2      the epoch that the batch lies in, if it also writes to trees that are durable by epochs, or rests on a
//!        state of one that a crash may take back; 0 if not
//! 3 ..   writes, one after the other: the first root word of the tree, and in one of two forms what to do there
//!        - bytes of the key (32 bits); bytes of the value plus one, or 0 to remove the key (32 bits); the key and the value, each
//!          padded with zeros to a whole word
//!        - the offset of a record with key and value, with the highest bit set: the tree is to take the record over
//! ```
//!
//! A batch writes records before the entry, so that long values are written once. The check of word
//! 1 does not cover them: each has its own. While the entry leads to a record, no thread may free
//! the record. No other write of its key comes between, but another thread's split of the leaf may
//! replace the record by a copy and retire it. Therefore the batch is pinned. Its own splits, and
//! those of an open that finishes it, copy no records ([`Guard::has_set_aside`]).
//!
//! A word of the pool's prefix ([`BATCHES`]) leads to each entry: its offset with a check, or 0.

use medium::{Lsn, Medium, Word};
use pool::bytes::{copy_in, copy_out};
use pool::{ALLOCATION_BYTES_MAX, BATCHES, Guard};

use super::Write;
use crate::index::Condition;
use crate::index::record::Record;
use crate::kit::{checked, unchecked};
use crate::{Error, Result};

/// The longest entry, in bytes. With the keys and values of a batch it must not be longer either.
pub(super) const ENTRY_BYTES_MAX: usize = ALLOCATION_BYTES_MAX;

/// Stands for the epoch in the entry of a batch that names none.
pub(super) const NO_EPOCH: u64 = 0;

const BYTES: usize = 0;
const CHECK: usize = 1;
const EPOCH: usize = 2;
const WRITES: usize = 3;
/// In the second word of a write: the rest is the offset of a record.
const IN_RECORD: u64 = 1 << 63;

/// The word of the prefix that leads to an entry.
pub(super) fn slot_word<'g, M: Medium>(guard: &'g Guard<'_, M>, slot: usize) -> Result<&'g Word> {
    Ok(&guard.words(BATCHES + 8 * slot as u64, 1)?[0])
}

/// A write in the form of an entry.
#[derive(Debug)]
pub(super) struct Logged<B> {
    /// The first root word of its tree.
    pub(super) anchor: u64,
    pub(super) key: B,
    pub(super) value: Option<B>,
    /// The record of key and value, if the tree is to take one over.
    pub(super) record: Option<u64>,
}

impl<B: AsRef<[u8]>> Logged<B> {
    /// Bytes of the write in its entry.
    fn bytes(&self) -> usize {
        bytes_of(
            self.key.as_ref(),
            self.value.as_ref().map(B::as_ref),
            self.record.is_some(),
        )
    }

    /// The condition that lets a tree take the record over.
    pub(super) fn condition<V>(&self) -> Condition<V> {
        self.record.map_or(Condition::Always, Condition::Written)
    }
}

/// Bytes of a write in an entry.
pub(super) fn bytes_of(key: &[u8], value: Option<&[u8]>, is_in_record: bool) -> usize {
    if is_in_record {
        return 16;
    }
    16 + key.len().next_multiple_of(8) + value.map_or(0, <[u8]>::len).next_multiple_of(8)
}

/// Bytes of an entry of these writes, of which `is_in_record` have their keys and values in
/// records.
pub(super) fn entry_bytes(
    writes: &[Write<'_>],
    is_in_record: impl Fn(&Write<'_>) -> bool,
) -> usize {
    let bytes = |write: &Write<'_>| bytes_of(write.key, write.value, is_in_record(write));
    8 * WRITES + writes.iter().map(bytes).sum::<usize>()
}

/// Writes an entry. Ordered when this returns, with the records that it leads to.
pub(super) fn write_entry<M: Medium, B: AsRef<[u8]>>(
    guard: &Guard<'_, M>,
    writes: &[Logged<B>],
    epoch: u64,
) -> Result<u64> {
    let bytes = 8 * WRITES + writes.iter().map(Logged::bytes).sum::<usize>();
    let offset = guard.allocate(bytes)?;
    let words = guard.words(offset, bytes / 8)?;
    words[BYTES].store(guard, checked(bytes as u64));
    words[EPOCH].store(guard, epoch);
    let mut at = WRITES;
    for Logged {
        anchor,
        key,
        value,
        record,
    } in writes
    {
        words[at].store(guard, *anchor);
        at += 2;
        if let Some(record) = record {
            words[at - 1].store(guard, IN_RECORD | record);
            continue;
        }
        let key = key.as_ref();
        let value = value.as_ref().map(B::as_ref);
        let value_length = value.map_or(0, |value| value.len() as u64 + 1);
        words[at - 1].store(guard, key.len() as u64 | value_length << 32);
        for bytes in [Some(key), value].into_iter().flatten() {
            let length = bytes.len().div_ceil(8);
            copy_in(guard, &words[at..at + length], bytes);
            at += length;
        }
    }
    words[CHECK].store(guard, check_of(guard, words));
    guard.flush_words(words);
    guard.fence();
    Ok(offset)
}

fn check_of<M: Medium>(guard: &Guard<'_, M>, words: &[Word]) -> u64 {
    let words = words[EPOCH..]
        .iter()
        .map(|word| word.load(guard).to_le_bytes());
    u64::from(words.fold(0, |check, bytes| crc32c::crc32c_append(check, &bytes)))
}

/// Makes a slot lead to an entry, or to none. Ordered when this returns.
pub(super) fn publish<M: Medium>(
    guard: &Guard<'_, M>,
    slot: usize,
    entry: Option<u64>,
) -> Result<Lsn> {
    // PERSIST: the entry is ordered before, or all of its writes are applied and ordered; if this
    // is lost, the batch is not done, or is applied once more before any thread reads.
    slot_word(guard, slot)?.publish(guard, entry.map_or(0, checked));
    Ok(guard.fence())
}

/// An entry that an open has found.
#[derive(Debug)]
pub(super) struct JournalEntry {
    pub(super) slot: usize,
    pub(super) offset: u64,
    pub(super) writes: Vec<Logged<Vec<u8>>>,
}

/// The entry that a slot leads to.
pub(super) enum SlotContent {
    Nothing,
    /// An entry whose epoch did not end.
    Uncommitted,
    Committed(JournalEntry),
}

/// Reads the entry that a slot leads to; `is_complete` tells whether an epoch ended.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the slot, the entry, or a record that it leads to is damaged.
pub(super) fn read_entry<M: Medium>(
    guard: &Guard<'_, M>,
    slot: usize,
    is_complete: impl FnOnce(u64) -> Result<bool>,
) -> Result<SlotContent> {
    let at = BATCHES + 8 * slot as u64;
    let word = slot_word(guard, slot)?.load(guard);
    if word == 0 {
        return Ok(SlotContent::Nothing);
    }
    let offset = unchecked(word);
    let offset = offset
        .ok_or_else(|| Error::corrupt(at, "the word that leads to a batch fails its check"))?;
    let damaged = || Error::corrupt(offset, "a batch that was being applied fails its check");
    let bytes = unchecked(guard.words(offset, 1)?[0].load(guard)).ok_or_else(damaged)? as usize;
    if !(8 * WRITES..=ENTRY_BYTES_MAX).contains(&bytes) || !bytes.is_multiple_of(8) {
        return Err(damaged());
    }
    let words = guard.words(offset, bytes / 8)?;
    if words[CHECK].load(guard) != check_of(guard, words) {
        return Err(damaged());
    }
    let epoch = words[EPOCH].load(guard);
    if epoch != 0 && !is_complete(epoch)? {
        return Ok(SlotContent::Uncommitted);
    }
    let mut writes = Vec::new();
    let mut rest = &words[WRITES..];
    while !rest.is_empty() {
        writes.push(read_write(guard, &mut rest)?.ok_or_else(damaged)?);
    }
    Ok(SlotContent::Committed(JournalEntry {
        slot,
        offset,
        writes,
    }))
}

/// Reads the first of the writes in `rest`, and leaves the others there.
fn read_write<M: Medium>(
    guard: &Guard<'_, M>,
    rest: &mut &[Word],
) -> Result<Option<Logged<Vec<u8>>>> {
    let Some((head, behind)) = rest.split_first_chunk::<2>() else {
        return Ok(None);
    };
    *rest = behind;
    let [anchor, what] = head.each_ref().map(|word| word.load(guard));
    if what & IN_RECORD == 0 {
        return Ok(read_bytes(guard, what, rest).map(|(key, value)| Logged {
            anchor,
            key,
            value,
            record: None,
        }));
    }
    let offset = what & !IN_RECORD;
    let record = Record::at(guard, offset)?;
    if !record.is_sound(guard)? {
        return Err(Error::corrupt(
            offset,
            "a record of a batch that was being applied fails its check",
        ));
    }
    let mut key = Vec::new();
    let mut value = Vec::new();
    record.copy_key(guard, &mut key)?;
    record.copy_value(guard, &mut value)?;
    Ok(Some(Logged {
        anchor,
        key,
        value: Some(value),
        record: Some(offset),
    }))
}

/// The key and the value that `rest` begins with.
fn read_bytes<M: Medium>(
    guard: &Guard<'_, M>,
    lengths: u64,
    rest: &mut &[Word],
) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let mut bytes = |length: usize| {
        let (words, behind) = rest.split_at_checked(length.div_ceil(8))?;
        *rest = behind;
        let mut bytes = Vec::new();
        copy_out(guard, words, length, &mut bytes);
        Some(bytes)
    };
    let key = bytes((lengths & u64::from(u32::MAX)) as usize)?;
    let value = match (lengths >> 32) as usize {
        0 => None,
        length => Some(bytes(length - 1)?),
    };
    Some((key, value))
}

#[cfg(test)]
mod tests;
