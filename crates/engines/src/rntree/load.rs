//! Bulk load: leaves filled from sorted input, all published by one line store.

use medium::sync::{self, Ordering};
use medium::{Lsn, Medium};
use pool::Guard;

use super::RnTree;
use super::insert::write_entry;
use super::layout::{EntrySum, Leaf, Slots};
use super::order::Scale;
use crate::index::{Codec, EntryWords, NextEntry};
use crate::kit::chain::Separator;
use crate::kit::load::{EncodedEntries, entries_per_leaf};
use crate::{ErrorKind, Result};

/// The part of a load that is written before it is published.
#[derive(Default)]
struct Load {
    /// The first entries, for the tree's first leaf. They are written last, as other threads may
    /// still write to that leaf.
    first: Vec<EntryWords>,
    /// The leaves behind it.
    leaves: Vec<LoadedLeaf>,
}

/// A leaf of which everything but the slot line is written.
struct LoadedLeaf {
    offset: u64,
    count: usize,
    first: EntryWords,
    sum: EntrySum,
}

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// Fills an empty tree. The slot line of the first leaf publishes its own entries and the chain
    /// behind it. No lock is held while `next` runs, so it may read the tree; the thread is not
    /// pinned, so memory that other threads retire is freed meanwhile.
    pub(super) fn load<'s>(&self, next: &'s mut NextEntry<'s>, fill: f64) -> Result<u64> {
        // No other thread can reach the new leaves, and the first leaf is never retired, so no pin
        // is needed.
        let guard = self.pool.peek();
        self.expect_empty()?;
        let mut source = EncodedEntries::<M, C>::new(&guard, next);
        let mut load = Load::default();
        let done = self.write_leaves(&guard, &mut source, fill, &mut load);
        let done = done.and_then(|()| match source.entries() {
            0 => Ok(Lsn::DURABLE),
            _ => self.publish(&guard, &load),
        });
        match done {
            Ok(lsn) => {
                let entries = source.published();
                guard.wait_for(lsn)?;
                Ok(entries)
            }
            Err(error) => {
                load.leaves
                    .iter()
                    .for_each(|leaf| guard.free_node(leaf.offset));
                Err(error)
            }
        }
    }

    /// Refuses a tree that is not empty. Under the lock of the first leaf the answer stays true.
    fn expect_empty(&self) -> Result<()> {
        let head = self.leaves.get(self.head);
        if head.next() != 0 || head.slots().count() != 0 {
            Err(ErrorKind::NotEmpty.into())
        } else {
            Ok(())
        }
    }

    /// Writes and flushes entries, leaf by leaf.
    fn write_leaves(
        &self,
        guard: &Guard<'_, M>,
        source: &mut EncodedEntries<'_, '_, '_, M, C>,
        fill: f64,
        load: &mut Load,
    ) -> Result<()> {
        let per_leaf = entries_per_leaf(self.capacity, fill);
        while let Some(words) = source.next_entry()? {
            // The smallest keys go to the first leaf: no key can lie before them, because no
            // separator is below the smallest possible key.
            if load.first.len() < per_leaf {
                load.first.push(words);
                continue;
            }
            if load.leaves.last().is_none_or(|leaf| leaf.count == per_leaf) {
                let offset = guard.allocate_node(size_of::<Leaf>())?;
                load.leaves.push(LoadedLeaf {
                    offset,
                    count: 0,
                    first: words,
                    sum: EntrySum::default(),
                });
            }
            if let Some(leaf) = load.leaves.last_mut() {
                write_entry(
                    guard,
                    &guard.node::<Leaf>(leaf.offset)?.entries[leaf.count],
                    words,
                );
                leaf.sum = leaf.sum.with(leaf.count, words);
                leaf.count += 1;
            }
        }
        Ok(())
    }

    /// Writes the remaining slot lines, then publishes all by the slot line of the first leaf.
    fn publish(&self, guard: &Guard<'_, M>, load: &Load) -> Result<Lsn> {
        let count = load.leaves.len();
        let first = if count == 0 {
            0
        } else {
            self.leaves.allocate_run(count as u32)?
        };
        let mut separators = vec![(Separator::default(), self.head)];
        let published = self.write_and_publish(guard, load, first, &mut separators);
        if published.is_err() {
            (first..)
                .take(count)
                .for_each(|index| self.leaves.free(index));
            for (separator, _) in separators {
                self.inner.retire_separator(separator);
            }
        }
        published
    }

    /// Does the work of [`RnTree::publish`]; the new leaves have the indices from `first` on. After an
    /// error the caller frees these indices and the separators.
    fn write_and_publish(
        &self,
        guard: &Guard<'_, M>,
        load: &Load,
        first: u32,
        separators: &mut Vec<(Separator, u32)>,
    ) -> Result<Lsn> {
        self.write_slots(guard, load, first, separators)?;
        if !load.leaves.is_empty() {
            guard.keep_pace()?;
        }
        self.publish_in_head(guard, load, first, separators)
    }

    /// Waits for entries of the first leaf, and publishes.
    fn publish_in_head(
        &self,
        guard: &Guard<'_, M>,
        load: &Load,
        first: u32,
        separators: &[(Separator, u32)],
    ) -> Result<Lsn> {
        let head = self.leaves.get(self.head);
        loop {
            let lock = head.lock();
            self.expect_empty()?;
            head.recycle();
            let claims: Vec<usize> = load
                .first
                .iter()
                .map_while(|_| head.claim(self.capacity))
                .collect();
            let claimed = claims.iter().fold(0, |claimed, entry| claimed | 1 << entry);
            if claims.len() == load.first.len() {
                let published = self.publish_with(guard, load, &claims, first, separators);
                return published.inspect_err(|_| head.release(claimed));
            }
            head.release(claimed);
            // Writers hold claims and wait for the lock: they will publish their entries, or give
            // them back.
            drop(lock);
            sync::yield_now();
        }
    }

    /// Publishes with these entries of the first leaf, which is locked.
    fn publish_with(
        &self,
        guard: &Guard<'_, M>,
        load: &Load,
        claims: &[usize],
        first: u32,
        separators: &[(Separator, u32)],
    ) -> Result<Lsn> {
        let leaves = &load.leaves;
        let head = self.leaves.get(self.head);
        let leaf = Self::leaf(guard, head)?;
        let old = head.slots();
        let mut new = old;
        let mut sum = EntrySum::default();
        // The leaf is empty. Its scale may be one of digits, which cannot be told from words alone.
        head.rescale(Scale::FLAT, []);
        for (entry, words) in claims.iter().copied().zip(load.first.iter().copied()) {
            write_entry(guard, &leaf.entries[entry], words);
            head.set_fingerprint(entry, C::hash_of(words) as u8);
            new = new.inserted(new.count(), entry as u8);
            sum = sum.with(entry, words);
        }
        let new = new
            .with(new.count(), leaves.first().map_or(0, |leaf| leaf.offset))
            .sealed(&old, sum);
        guard.fence();
        // PERSIST: all leaves and records are ordered before; if this is lost, the tree is empty.
        let stored = Slots(leaf.slots.publish(guard, &old.0, &new.0)?);
        let lsn = guard.fence();
        head.stamp(lsn);
        (first..)
            .take(leaves.len())
            .for_each(|index| self.leaves.get(index).stamp(lsn));
        head.lead(
            &stored,
            first,
            separators.get(1).map_or(0, |(separator, _)| separator.0),
        );
        // If there is no memory for inner nodes the leaves are still found, through the first one.
        guard.interleave(&self.inner);
        let _ = self.inner.build(separators);
        Ok(lsn)
    }

    /// Writes and flushes the slot lines of the new leaves, and fills their records from index
    /// `first` on. Appends their separators.
    fn write_slots(
        &self,
        guard: &Guard<'_, M>,
        load: &Load,
        first: u32,
        separators: &mut Vec<(Separator, u32)>,
    ) -> Result<()> {
        let mut last = load.first.last().copied().unwrap_or_default();
        for (position, loaded) in load.leaves.iter().enumerate() {
            let next = load.leaves.get(position + 1).map_or(0, |next| next.offset);
            let leaf = guard.node::<Leaf>(loaded.offset)?;
            let slots = Slots::identity(loaded.count, next, loaded.sum);
            let slots = Slots(leaf.slots.init(guard, &slots.0));
            let number = first + position as u32;
            let leaf_record = self.leaves.get(number);
            let next_number = if next == 0 { 0 } else { number + 1 };
            leaf_record.reset(loaded.offset, &slots, next_number, 0, Lsn::DURABLE);
            self.place(number, loaded.offset)?;
            for entry in 0..loaded.count {
                let words = leaf.entry(guard, &slots, entry);
                leaf_record.set_fingerprint(entry, C::hash_of(words) as u8);
            }
            let separator = self.separator_between(guard, last, loaded.first)?;
            if position > 0 {
                self.leaves
                    .get(number - 1)
                    .high
                    .store(separator.0, Ordering::Relaxed);
            }
            separators.push((separator, number));
            last = leaf.entry(guard, &slots, loaded.count - 1);
        }
        Ok(())
    }
}
