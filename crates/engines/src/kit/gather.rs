//! Copies of records that lie together: when a node splits, it can copy the records of the entries
//! that move, one after the other, to new space.

use std::marker::PhantomData;

use medium::Medium;
use pool::Guard;

use crate::index::{Codec, EntryWords};

/// Copies of records, given back unless they are published.
pub struct Gathered<'g, 'p, M: Medium, C: Codec> {
    guard: &'g Guard<'p, M>,
    /// Pairs of the old entry and the entry that leads to the copy.
    copies: Vec<[EntryWords; 2]>,
    codec: PhantomData<fn() -> C>,
}

impl<'g, 'p, M: Medium, C: Codec> Gathered<'g, 'p, M, C> {
    /// No copies.
    pub fn none(guard: &'g Guard<'p, M>) -> Self {
        Self {
            guard,
            copies: Vec::new(),
            codec: PhantomData,
        }
    }

    /// Copies and flushes the records of neighbouring entries. The entries lead to the copies from
    /// now on; the caller fences before it publishes them. An entry keeps its record if that is
    /// long or damaged, or if the pool is full. Copies of one size lie next to each other if the
    /// allocator has just begun a slab, and near each other in a slab that was used before.
    pub fn of<'e>(
        guard: &'g Guard<'p, M>,
        entries: impl Iterator<Item = &'e mut EntryWords>,
    ) -> Self {
        let entries = entries.collect::<Vec<_>>();
        let mut gathered = Self::none(guard);
        entries.iter().for_each(|entry| C::prefetch(guard, **entry));
        entries
            .iter()
            .for_each(|entry| C::prefetch_rest(guard, **entry));
        for entry in entries {
            match C::copy_short_record(guard, *entry) {
                Ok(Some(copy)) => {
                    gathered.copies.push([*entry, copy]);
                    *entry = copy;
                }
                Ok(None) => {}
                Err(error) if error.is_corrupt() => {}
                Err(_) => break,
            }
        }
        gathered
    }

    /// Retires the records that were copied. The tree must reach the copies, and new readers must
    /// not find the old records.
    pub fn published(mut self) {
        self.copies
            .drain(..)
            .for_each(|[old, _]| C::retire(self.guard, old));
    }
}

impl<M: Medium, C: Codec> Drop for Gathered<'_, '_, M, C> {
    fn drop(&mut self) {
        self.copies
            .drain(..)
            .for_each(|[_, copy]| C::discard(self.guard, copy));
    }
}
