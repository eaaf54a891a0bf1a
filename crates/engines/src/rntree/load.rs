//! Bulk load: leaves filled from sorted input, all published by one line store.

use std::sync::atomic::Ordering;

use medium::{Lsn, Medium};
use pool::{Error, Guard, Result};

use super::RnTree;
use super::insert::write_entry;
use super::layout::{Leaf, Slots};
use crate::index::{Codec, EntryWords, NextEntry};
use crate::inner::Separator;

/// A leaf that is written but for its slot line.
struct Loaded {
    offset: u64,
    count: usize,
    first: EntryWords,
}

impl<M: Medium, C: Codec, const N: usize> RnTree<M, C, N> {
    /// Fills an empty tree. The first leaf stays empty; its slot line publishes the chain behind it.
    pub(super) fn load(&self, next: &mut NextEntry<'_>, fill: f64) -> Result<u64> {
        let guard = self.pool.pin();
        let head = self.leaves.get(self.head);
        let _lock = head.lock();
        if head.next() != 0 || head.slots().count() != 0 {
            return Err(Error::NotEmpty);
        }
        let mut written = Vec::new();
        let loaded = self.write_leaves(&guard, next, fill, &mut written);
        let (leaves, entries) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                written.into_iter().for_each(|words| C::discard(&guard, words));
                return Err(error);
            }
        };
        if leaves.is_empty() {
            return Ok(0);
        }
        let publish = || self.publish_leaves(&guard, &leaves);
        let lsn = publish().inspect_err(|_| {
            leaves.iter().for_each(|leaf| guard.free_node(leaf.offset));
        })?;
        guard.wait_for(lsn)?;
        Ok(entries)
    }

    /// Writes and flushes entries, leaf by leaf. `written` collects the entries for the case of an error.
    fn write_leaves(
        &self,
        guard: &Guard<'_, M>,
        next: &mut NextEntry<'_>,
        fill: f64,
        written: &mut Vec<EntryWords>,
    ) -> Result<(Vec<Loaded>, u64)> {
        let per_leaf = ((N as f64 * fill.clamp(0.5, 1.0)).round() as usize).clamp(1, N);
        let mut leaves: Vec<Loaded> = Vec::new();
        let (mut key, mut value, mut last) = (Vec::new(), Vec::new(), Vec::new());
        let mut entries = 0;
        let mut fill_leaves = || -> Result<()> {
            while next(&mut key, &mut value)? {
                if entries > 0 && key <= last {
                    return Err(Error::NotSorted { index: entries });
                }
                let words = C::encode(guard, C::key(&key)?, C::value(&value)?)?;
                if C::TIES {
                    written.push(words);
                }
                if leaves.last().is_none_or(|leaf| leaf.count == per_leaf) {
                    let offset = guard.allocate_node(size_of::<Leaf<N>>())?;
                    leaves.push(Loaded { offset, count: 0, first: words });
                }
                if let Some(leaf) = leaves.last_mut() {
                    write_entry(guard, &guard.node::<Leaf<N>>(leaf.offset)?.entries[leaf.count], words);
                    leaf.count += 1;
                }
                std::mem::swap(&mut key, &mut last);
                entries += 1;
            }
            Ok(())
        };
        let filled = fill_leaves();
        if let Err(error) = filled {
            leaves.iter().for_each(|leaf| guard.free_node(leaf.offset));
            return Err(error);
        }
        Ok((leaves, entries))
    }

    /// Writes the slot lines, then publishes all by that of the first leaf, which is locked and empty.
    fn publish_leaves(&self, guard: &Guard<'_, M>, leaves: &[Loaded]) -> Result<Lsn> {
        let first = self.leaves.allocate_run(leaves.len() as u32)?;
        let mut separators = vec![(Separator::default(), self.head)];
        for (position, loaded) in leaves.iter().enumerate() {
            let next = leaves.get(position + 1).map_or(0, |next| next.offset);
            let leaf = guard.node::<Leaf<N>>(loaded.offset)?;
            let slots = Slots(leaf.slots.init(guard, &Slots::identity(loaded.count, next).0));
            let number = first + position as u32;
            let record = self.leaves.get(number);
            let next_number = if next == 0 { 0 } else { number + 1 };
            self.place(number, loaded.offset)?;
            record.reset(loaded.offset, &slots, (next_number, 0), Lsn::DURABLE);
            for entry in 0..loaded.count {
                let words = self.entry_words(guard, leaf, &slots, entry);
                record.set_fingerprint(entry, C::hash_of(words) as u8);
            }
            let separator = match position.checked_sub(1).map(|before| &leaves[before]) {
                Some(before) => {
                    let before_leaf = guard.node::<Leaf<N>>(before.offset)?;
                    let last = Slots::identity(before.count, 0);
                    let last = self.entry_words(guard, before_leaf, &last, before.count - 1);
                    self.separator_between(guard, last, loaded.first)?
                }
                None => self.separator_from(guard, loaded.first)?,
            };
            let bound = if C::TIES { separator.tail } else { separator.word };
            let before = separators.last().map_or(self.head, |(_, before)| *before);
            self.leaves.get(before).high.store(bound, Ordering::Relaxed);
            separators.push((separator, number));
        }
        guard.fence();
        let head = self.leaves.get(self.head);
        let head_leaf = Self::leaf(guard, head)?;
        let old = head.slots();
        // PERSIST: all leaves and records are ordered before; lost, the tree is empty.
        let stored = head_leaf.slots.publish(guard, &old.0, &old.with(0, leaves[0].offset).0)?;
        let lsn = guard.fence();
        head.stamp(lsn);
        leaves
            .iter()
            .enumerate()
            .for_each(|(position, _)| self.leaves.get(first + position as u32).stamp(lsn));
        head.change(&Slots(stored), || head.set_next(first));
        self.inner.build(&separators)?;
        Ok(lsn)
    }
}
