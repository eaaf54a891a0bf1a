//! The journal: where a batch on trees of immediate durability is written before it is applied.
//!
//! ```text
//! an entry, in words, each but the last two kinds with a check of its own or under that of word 1
//! 0      bytes of the entry (48 bits), with a check
//! 1      CRC32C of the words from 2 on
//! 2      the epoch that the batch lies in, if it also writes to trees that are durable by epochs; 0 if not
//! 3 ..   writes, one after the other: the first root word of the tree; bytes of the key, bytes of the value plus one, or 0 to remove
//!        the key; the key and the value, each padded with zeros to a whole word
//! ```
//!
//! A word of the pool's prefix ([`BATCHES`]) leads to each entry: its offset with a check, or 0.

use medium::sync::{AtomicBool, AtomicU64, Ordering, pause};
use medium::{Lsn, Medium, Word};
use pool::bytes::{copy_in, copy_out};
use pool::{ALLOCATION_BYTES_MAX, At, BATCH_SLOTS, BATCHES, Guard, Pool};
use std::sync::Arc;

use super::Write;
use crate::kit::{checked, unchecked};
use crate::{Error, Result};

/// The longest entry, in bytes.
pub(super) const ENTRY_BYTES_MAX: usize = ALLOCATION_BYTES_MAX;

const BYTES: usize = 0;
const CHECK: usize = 1;
const EPOCH: usize = 2;
const WRITES: usize = 3;

/// What is known of the journal of a pool that is open.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Bit i: slot i is taken.
    pub(super) taken: AtomicU64,
    /// A batch could not be finished.
    is_broken: AtomicBool,
}

/// A slot that a batch has, until this is dropped.
pub(super) struct Slot<'j> {
    journal: &'j Journal,
    pub(super) index: usize,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.journal.taken.fetch_and(!(1 << self.index), Ordering::Release);
    }
}

impl Journal {
    /// The journal of a pool.
    pub(crate) fn of<M: Medium>(pool: &Pool<M>) -> Arc<Self> {
        pool.common()
    }

    /// Whether all batches were finished.
    ///
    /// # Errors
    /// [`Error::BatchUnfinished`].
    #[inline(always)]
    pub(crate) fn expect_whole(&self) -> Result<()> {
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(Error::BatchUnfinished { at: At::UNKNOWN });
        }
        Ok(())
    }

    /// A batch is neither done nor undone: from now on nothing is written, and the next open decides.
    pub(super) fn give_up<M: Medium>(&self, pool: &Pool<M>) {
        self.is_broken.store(true, Ordering::Relaxed);
        pool.leave_unclean();
    }

    /// A slot. Waits while all are taken.
    pub(super) fn take_slot(&self) -> Slot<'_> {
        let mut spins = 0;
        loop {
            let taken = self.taken.load(Ordering::Relaxed);
            let index = taken.trailing_ones() as usize;
            // ORDER: pairs with the release of the batch that had the slot: its last store there comes before ours.
            if index < BATCH_SLOTS
                && self
                    .taken
                    .compare_exchange(taken, taken | 1 << index, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return Slot { journal: self, index };
            }
            pause(&mut spins);
        }
    }
}

/// The word of the prefix that leads to an entry.
pub(super) fn slot_word<'g, M: Medium>(guard: &'g Guard<'_, M>, slot: usize) -> Result<&'g Word> {
    Ok(&guard.words(BATCHES + 8 * slot as u64, 1)?[0])
}

fn bytes_of(write: &Write<'_>) -> usize {
    let value = write.value.map_or(0, <[u8]>::len);
    16 + write.key.len().next_multiple_of(8) + value.next_multiple_of(8)
}

/// Bytes of the entry of these writes.
pub(super) fn entry_bytes<'w>(writes: impl Iterator<Item = &'w Write<'w>>) -> usize {
    8 * WRITES + writes.map(bytes_of).sum::<usize>()
}

/// Writes an entry; `anchor` is the first root word of a tree, by its number in the batch. Ordered when this returns.
pub(super) fn write_entry<'w, M: Medium>(
    guard: &Guard<'_, M>,
    writes: impl Iterator<Item = &'w Write<'w>> + Clone,
    anchor: impl Fn(usize) -> u64,
    epoch: u64,
) -> Result<u64> {
    let bytes = entry_bytes(writes.clone());
    let offset = guard.allocate(bytes)?;
    let words = guard.words(offset, bytes / 8)?;
    words[BYTES].store(guard, checked(bytes as u64));
    words[EPOCH].store(guard, epoch);
    let mut at = WRITES;
    for write in writes {
        let value = write.value.map_or(0, |value| value.len() as u64 + 1);
        words[at].store(guard, anchor(write.tree));
        words[at + 1].store(guard, write.key.len() as u64 | value << 32);
        at += 2;
        for bytes in [Some(write.key), write.value].into_iter().flatten() {
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
    let words = words[EPOCH..].iter().map(|word| word.load(guard).to_le_bytes());
    u64::from(words.fold(0, |check, bytes| crc32c::crc32c_append(check, &bytes)))
}

/// Makes a slot lead to an entry, or to none. Ordered when this returns.
pub(super) fn publish<M: Medium>(guard: &Guard<'_, M>, slot: usize, entry: Option<u64>) -> Result<Lsn> {
    // PERSIST: the entry is ordered before, or all that it says is applied and ordered; lost, the batch is not done, or is applied
    // once more before anybody reads.
    slot_word(guard, slot)?.publish(guard, entry.map_or(0, checked));
    Ok(guard.fence())
}

/// A write as an entry has it.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    /// The first root word of its tree.
    pub(super) anchor: u64,
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
}

/// An entry that an open has found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) slot: usize,
    pub(super) offset: u64,
    pub(super) epoch: u64,
    pub(super) writes: Vec<Logged>,
}

/// The entry that a slot leads to.
///
/// # Errors
/// [`Error::Corrupt`] if the slot or the entry is damaged.
pub(super) fn read_entry<M: Medium>(guard: &Guard<'_, M>, slot: usize) -> Result<Option<Found>> {
    let at = BATCHES + 8 * slot as u64;
    let word = slot_word(guard, slot)?.load(guard);
    if word == 0 {
        return Ok(None);
    }
    let offset = unchecked(word);
    let offset = offset.ok_or_else(|| Error::corrupt(at, "what leads to a batch fails its check"))?;
    let damaged = || Error::corrupt(offset, "a batch that was being applied fails its check");
    let bytes = unchecked(guard.words(offset, 1)?[0].load(guard)).ok_or_else(damaged)? as usize;
    if !(8 * WRITES..=ENTRY_BYTES_MAX).contains(&bytes) || !bytes.is_multiple_of(8) {
        return Err(damaged());
    }
    let words = guard.words(offset, bytes / 8)?;
    if words[CHECK].load(guard) != check_of(guard, words) {
        return Err(damaged());
    }
    let (mut writes, mut rest) = (Vec::new(), &words[WRITES..]);
    while !rest.is_empty() {
        let write = read_write(guard, &mut rest).ok_or_else(damaged)?;
        writes.push(write);
    }
    Ok(Some(Found { slot, offset, epoch: words[EPOCH].load(guard), writes }))
}

/// The first of some writes, of which the others are left.
fn read_write<M: Medium>(guard: &Guard<'_, M>, rest: &mut &[Word]) -> Option<Logged> {
    let (head, behind) = rest.split_first_chunk::<2>()?;
    *rest = behind;
    let (anchor, lengths) = (head[0].load(guard), head[1].load(guard));
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
    Some(Logged { anchor, key, value })
}
