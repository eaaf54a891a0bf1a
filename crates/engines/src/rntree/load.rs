//! Bulk load: leaves filled from sorted input, all published by one line store.

use medium::sync::Ordering;
use medium::{Lsn, Medium};
use pool::{Error, Guard, Result};

use super::RnTree;
use super::insert::write_entry;
use super::layout::{Leaf, Slots};
use crate::index::{Codec, EntryWords, NextEntry};
use crate::inner::Separator;

/// What is written of a load before it is published.
#[derive(Default)]
struct Load {
    /// Slots of the tree's first leaf, which takes the first entries.
    head: Option<Slots>,
    /// The last entry of the first leaf.
    head_last: EntryWords,
    /// The entries claimed in the first leaf.
    claimed: u64,
    /// The leaves behind it.
    leaves: Vec<Loaded>,
    /// All entries, where they lead to records.
    written: Vec<EntryWords>,
    entries: u64,
}

/// A leaf that is written but for its slot line.
struct Loaded {
    offset: u64,
    count: usize,
    first: EntryWords,
}

impl<M: Medium, C: Codec, const N: usize> RnTree<M, C, N> {
    /// Fills an empty tree. The slot line of the first leaf publishes its own entries and the chain behind it.
    pub(super) fn load(&self, next: &mut NextEntry<'_>, fill: f64) -> Result<u64> {
        let guard = self.pool.pin();
        let head = self.leaves.get(self.head);
        let _lock = head.lock();
        if head.next() != 0 || head.slots().count() != 0 {
            return Err(Error::NotEmpty);
        }
        head.recycle();
        let mut load = Load::default();
        let done = self.write_leaves(&guard, next, fill, &mut load);
        let done = done.and_then(|()| if load.entries == 0 { Ok(None) } else { self.publish(&guard, &load) });
        match done {
            Ok(lsn) => guard.wait_for(lsn.unwrap_or(Lsn::DURABLE))?,
            Err(error) => {
                head.release(load.claimed);
                load.leaves.iter().for_each(|leaf| guard.free_node(leaf.offset));
                load.written.into_iter().for_each(|words| C::discard(&guard, words));
                return Err(error);
            }
        }
        Ok(load.entries)
    }

    /// Writes and flushes entries, leaf by leaf.
    fn write_leaves(
        &self,
        guard: &Guard<'_, M>,
        next: &mut NextEntry<'_>,
        fill: f64,
        load: &mut Load,
    ) -> Result<()> {
        let per_leaf = ((N as f64 * fill.clamp(0.5, 1.0)).round() as usize).clamp(1, N);
        let (mut key, mut value, mut last) = (Vec::new(), Vec::new(), Vec::new());
        while next(&mut key, &mut value)? {
            if load.entries > 0 && key <= last {
                return Err(Error::NotSorted { index: load.entries });
            }
            let words = C::encode(guard, C::key(&key)?, C::value(&value)?)?;
            if C::TIES {
                load.written.push(words);
            }
            if !self.write_to_head(guard, words, per_leaf, load)? {
                if load.leaves.last().is_none_or(|leaf| leaf.count == per_leaf) {
                    let offset = guard.allocate_node(size_of::<Leaf<N>>())?;
                    load.leaves.push(Loaded { offset, count: 0, first: words });
                }
                if let Some(leaf) = load.leaves.last_mut() {
                    write_entry(guard, &guard.node::<Leaf<N>>(leaf.offset)?.entries[leaf.count], words);
                    leaf.count += 1;
                }
            }
            std::mem::swap(&mut key, &mut last);
            load.entries += 1;
        }
        Ok(())
    }

    /// Adds an entry to the first leaf, which is locked; `false` if that is full.
    ///
    /// The smallest keys lie there, for none can lie before them: no separator is below the smallest key that there is.
    fn write_to_head(
        &self,
        guard: &Guard<'_, M>,
        words: EntryWords,
        per_leaf: usize,
        load: &mut Load,
    ) -> Result<bool> {
        let head = self.leaves.get(self.head);
        let slots = load.head.unwrap_or_else(|| head.slots());
        if !load.leaves.is_empty() || slots.count() == per_leaf {
            return Ok(false);
        }
        let Some(entry) = head.claim(N) else {
            // Writers hold all entries and wait for the lock: the tree is about to have entries.
            return if slots.count() == 0 { Err(Error::NotEmpty) } else { Ok(false) };
        };
        load.claimed |= 1 << entry;
        write_entry(guard, &Self::leaf(guard, head)?.entries[entry], words);
        head.set_fingerprint(entry, C::hash_of(words) as u8);
        head.set_order(entry, words[0]);
        load.head = Some(slots.inserted(slots.count(), entry as u8));
        load.head_last = words;
        Ok(true)
    }

    /// Writes the slot lines, then publishes all by that of the first leaf, which is locked.
    fn publish(&self, guard: &Guard<'_, M>, load: &Load) -> Result<Option<Lsn>> {
        let (leaves, head) = (&load.leaves, self.leaves.get(self.head));
        let first = if leaves.is_empty() { 0 } else { self.leaves.allocate_run(leaves.len() as u32)? };
        let head_leaf = Self::leaf(guard, head)?;
        let publish = || -> Result<_> {
            let separators = self.write_slots(guard, load, first)?;
            guard.fence();
            let slots = load.head.unwrap_or_else(|| head.slots());
            let new = slots.with(slots.count(), leaves.first().map_or(0, |leaf| leaf.offset));
            // PERSIST: all leaves and records are ordered before; lost, the tree is empty.
            Ok((separators, Slots(head_leaf.slots.publish(guard, &head.slots().0, &new.0)?)))
        };
        let (separators, stored) = publish().inspect_err(|_| {
            (first..).take(leaves.len()).for_each(|index| self.leaves.free(index));
        })?;
        let lsn = guard.fence();
        head.stamp(lsn);
        (first..).take(leaves.len()).for_each(|index| self.leaves.get(index).stamp(lsn));
        head.change(&stored, || {
            head.live.store(stored.bitmap(), Ordering::Release);
            if let Some((separator, _)) = separators.get(1) {
                head.high.store(Self::bound_of(*separator), Ordering::Release);
            }
            head.set_next(first);
        });
        // Without memory for inner nodes the leaves are still found, by way of the first.
        let _ = self.inner.build(&separators);
        Ok(Some(lsn))
    }

    /// A separator as a leaf's high key.
    fn bound_of(separator: Separator) -> u64 {
        if C::TIES { separator.tail } else { separator.word }
    }

    /// Writes and flushes the slot lines of the new leaves, and fills their records from index `first` on. Returns the
    /// separators of all leaves.
    fn write_slots(&self, guard: &Guard<'_, M>, load: &Load, first: u32) -> Result<Vec<(Separator, u32)>> {
        let mut separators = vec![(Separator::default(), self.head)];
        let mut last = load.head_last;
        for (position, loaded) in load.leaves.iter().enumerate() {
            let next = load.leaves.get(position + 1).map_or(0, |next| next.offset);
            let leaf = guard.node::<Leaf<N>>(loaded.offset)?;
            let slots = Slots(leaf.slots.init(guard, &Slots::identity(loaded.count, next).0));
            let number = first + position as u32;
            let record = self.leaves.get(number);
            let next_number = if next == 0 { 0 } else { number + 1 };
            record.reset(loaded.offset, &slots, (next_number, 0), Lsn::DURABLE);
            for entry in 0..loaded.count {
                let words = self.entry_words(guard, leaf, &slots, entry);
                record.set_fingerprint(entry, C::hash_of(words) as u8);
            }
            let separator = self.separator_between(guard, last, loaded.first)?;
            if position > 0 {
                self.leaves.get(number - 1).high.store(Self::bound_of(separator), Ordering::Relaxed);
            }
            separators.push((separator, number));
            last = self.entry_words(guard, leaf, &slots, loaded.count - 1);
        }
        Ok(separators)
    }
}
