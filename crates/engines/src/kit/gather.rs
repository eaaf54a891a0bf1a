//! Records brought together: copies of the records of entries that move to a new node, one after the other in the pool.

use std::marker::PhantomData;

use medium::Medium;
use pool::Guard;

use crate::index::{Codec, EntryWords};

/// Copies of records, given back unless they are published.
pub struct Gathered<'g, 'p, M: Medium, C: Codec> {
    guard: &'g Guard<'p, M>,
    /// Entries as they were, and with the copies.
    copies: Vec<[EntryWords; 2]>,
    codec: PhantomData<fn() -> C>,
}

impl<'g, 'p, M: Medium, C: Codec> Gathered<'g, 'p, M, C> {
    /// No copies.
    pub fn none(guard: &'g Guard<'p, M>) -> Self {
        Self { guard, copies: Vec::new(), codec: PhantomData }
    }

    /// Copies and flushes the records of neighbouring entries, which lead to the copies from now on; the caller fences before it
    /// publishes the entries. An entry keeps its record if that is long or damaged, or the pool has no room for a copy.
    pub fn of<'e>(guard: &'g Guard<'p, M>, entries: impl Iterator<Item = &'e mut EntryWords>) -> Self {
        let (entries, mut gathered) = (entries.collect::<Vec<_>>(), Self::none(guard));
        entries.iter().for_each(|entry| C::prefetch(guard, **entry));
        entries.iter().for_each(|entry| C::prefetch_rest(guard, **entry));
        for entry in entries {
            if let Some(copy) = C::copy_record(guard, *entry) {
                gathered.copies.push([*entry, copy]);
                *entry = copy;
            }
        }
        gathered
    }

    /// The tree reaches the copies, and new readers find none of the records that were copied: those are retired.
    pub fn published(mut self) {
        self.copies.drain(..).for_each(|[old, _]| C::retire(self.guard, old));
    }
}

impl<M: Medium, C: Codec> Drop for Gathered<'_, '_, M, C> {
    fn drop(&mut self) {
        self.copies.drain(..).for_each(|[_, copy]| C::discard(self.guard, copy));
    }
}
