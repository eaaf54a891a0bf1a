//! The stand-in's table of records.

use std::collections::BTreeMap;

use medium::Medium;
use pool::record::Record;
use pool::{Error, Guard, Pool, Result};

/// Words in a block of the table.
const BLOCK_WORDS: usize = 1024;
/// The word of a block that leads to the next one.
const NEXT: u64 = 8 * (BLOCK_WORDS as u64 - 1);

/// Where a key is.
#[derive(Clone, Copy)]
pub(super) struct Held {
    /// The offset of its word in the table.
    slot: u64,
    /// The offset of its record.
    pub(super) record: u64,
}

/// The table, and the map over it.
pub(super) struct Table {
    pub(super) records: BTreeMap<Vec<u8>, Held>,
    blocks: Vec<u64>,
    free_slots: Vec<u64>,
}

/// An empty block, flushed.
pub(super) fn create_block<M: Medium>(guard: &Guard<'_, M>) -> Result<u64> {
    let block = guard.allocate(8 * BLOCK_WORDS)?;
    let words = guard.words(block, BLOCK_WORDS)?;
    words.iter().for_each(|word| word.store(guard, 0));
    guard.flush_words(words);
    Ok(block)
}

impl Table {
    /// Reads the table.
    pub(super) fn load<M: Medium>(guard: &Guard<'_, M>, first: u64) -> Result<Self> {
        let mut table = Self { records: BTreeMap::new(), blocks: Vec::new(), free_slots: Vec::new() };
        let mut block = first;
        while block != 0 {
            if table.blocks.contains(&block) {
                return Err(Error::corrupt(block, "a block that leads back to itself"));
            }
            table.blocks.push(block);
            let words = guard.words(block, BLOCK_WORDS)?;
            for (slot, word) in (block..).step_by(8).zip(&words[..BLOCK_WORDS - 1]) {
                match word.load(guard) {
                    0 => table.free_slots.push(slot),
                    record => {
                        let mut key = Vec::new();
                        Record::at(guard, record)?.copy_key(guard, &mut key)?;
                        table.records.insert(key, Held { slot, record });
                    }
                }
            }
            block = words[BLOCK_WORDS - 1].load(guard);
        }
        Ok(table)
    }

    /// Marks all that the table reaches.
    pub(super) fn mark<M: Medium>(&self, pool: &Pool<M>) -> Result<()> {
        self.blocks.iter().try_for_each(|block| pool.mark(*block))?;
        self.records.values().try_for_each(|held| pool.mark(held.record))
    }

    /// Adds a block behind the first.
    pub(super) fn add_block<M: Medium>(&mut self, guard: &Guard<'_, M>) -> Result<()> {
        let block = create_block(guard)?;
        let [first, new] = [self.blocks[0], block].map(|block| guard.words(block + NEXT, 1));
        let (first, new) = (&first?[0], &new?[0]);
        new.publish(guard, first.load(guard));
        guard.fence();
        first.publish(guard, block);
        self.blocks.push(block);
        self.free_slots.extend((block..block + NEXT).step_by(8));
        Ok(())
    }

    /// Gives back everything.
    pub(super) fn retire_all<M: Medium>(&mut self, guard: &Guard<'_, M>) {
        std::mem::take(&mut self.records).into_values().for_each(|held| guard.retire(held.record));
        self.blocks.drain(..).for_each(|block| guard.retire(block));
    }

    /// Gives back all blocks of an empty table but the first.
    pub(super) fn cut<M: Medium>(&mut self, guard: &Guard<'_, M>) -> Result<()> {
        let first = self.blocks[0];
        guard.words(first + NEXT, 1)?[0].publish(guard, 0);
        guard.fence();
        self.blocks.drain(1..).for_each(|block| guard.retire(block));
        self.free_slots.retain(|slot| (first..first + NEXT).contains(slot));
        Ok(())
    }

    /// Makes sure that a key can be added.
    pub(super) fn reserve<M: Medium>(&mut self, guard: &Guard<'_, M>) -> Result<()> {
        if self.free_slots.is_empty() { self.add_block(guard) } else { Ok(()) }
    }

    /// Points the key to a record; returns the record that it had. Needs [`Table::reserve`].
    pub(super) fn put<M: Medium>(
        &mut self,
        guard: &Guard<'_, M>,
        key: Vec<u8>,
        record: u64,
    ) -> Result<Option<u64>> {
        let old = self.records.get(&key).copied();
        let slot = old.map(|old| old.slot).or_else(|| self.free_slots.pop()).expect("a reserved slot");
        guard.words(slot, 1)?[0].publish(guard, record);
        self.records.insert(key, Held { slot, record });
        Ok(old.map(|old| old.record))
    }

    /// Takes a key out; returns its record.
    pub(super) fn remove<M: Medium>(&mut self, guard: &Guard<'_, M>, key: &[u8]) -> Result<Option<u64>> {
        let Some(held) = self.records.remove(key) else { return Ok(None) };
        guard.words(held.slot, 1)?[0].publish(guard, 0);
        self.free_slots.push(held.slot);
        Ok(Some(held.record))
    }

    /// Takes the last key out; returns its record.
    pub(super) fn remove_last<M: Medium>(&mut self, guard: &Guard<'_, M>) -> Result<Option<u64>> {
        let Some(key) = self.records.last_key_value().map(|(key, _)| key.clone()) else { return Ok(None) };
        self.remove(guard, &key)
    }
}
