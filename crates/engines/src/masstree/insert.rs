//! Writing: updates, inserts into a free slot, new layers.

use crate::index::record::{check_lengths, prefix_word};
use medium::Medium;

use super::Core;
use super::access::{Stop, View, Walk, Work};
use super::find::{Entry, Place};
use super::in_line_log::Change;
use super::layout::{Border, LOGGED, with_nibble};
use super::permutation::Permutation;
use super::record::Record;
use super::slice::{LAYER, LONGER, Slice};
use super::version::{Lock, Version};
use crate::index::Condition;
use crate::{Error, Result};

/// How often an operation ends the epoch to make room before it gives up.
const ROUNDS_MAX: u32 = 2;

impl<M: Medium> Core<M> {
    /// Writes or removes, if `condition` holds; returns whether it held. O(log n).
    pub(super) fn write(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        condition: Condition<&[u8]>,
    ) -> Result<bool> {
        check_lengths(key, value.unwrap_or_default())?;
        let mut rounds = 0;
        loop {
            let (view, mut work) =
                if rounds == 0 { self.enter_beside_batches()? } else { self.enter_with_log() };
            let full = match view.write(&mut work, key, value, condition) {
                Ok(held) => return Ok(held),
                Err(Stop::Full(error)) => error,
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Again | Stop::NeedsPass) => {
                    return Err(Error::corrupt(self.anchor, "an operation that does not come to its end"));
                }
            };
            drop(work);
            rounds += 1;
            // A thread in a batch of another tree ends no epoch.
            if rounds == ROUNDS_MAX || self.is_in_any_batch() {
                return Err(full);
            }
            // What was freed becomes reusable, and the external log empty.
            self.advance()?;
        }
    }
}

/// A border node locked for a write, and what its key has there.
pub(super) struct Locked<'v, M: Medium> {
    pub(super) lock: Lock<'v, M>,
    pub(super) node: &'v Border,
    pub(super) pointer: u64,
    pub(super) depth: usize,
    pub(super) slice: Slice,
    pub(super) permutation: Permutation,
    pub(super) entry: Option<Entry>,
}

impl<M: Medium> View<'_, M> {
    /// As [`Core::write`], with a pass.
    pub(super) fn write(
        &self,
        work: &mut Work<'_>,
        key: &[u8],
        value: Option<&[u8]>,
        condition: Condition<&[u8]>,
    ) -> Walk<bool> {
        let place = self.lock_place(key)?;
        let found = match place.entry {
            Some(entry) => self.value_for(place.pointer, place.depth, entry, key)?,
            None => None,
        };
        let holds = match (condition, &found) {
            (Condition::Always, _) | (Condition::Absent, None) | (Condition::Present, Some(_)) => true,
            (Condition::Equals(expected), Some(found)) => found.is(&self.guard, expected)?,
            _ => false,
        };
        if !holds {
            return Ok(false);
        }
        self.guard.medium().admit()?;
        match (value, found, place.entry) {
            (Some(value), Some(_), Some(entry)) => self.update(work, &place, entry, key, value)?,
            (Some(value), None, Some(entry)) => self.insert_layer(work, place, entry, key, value)?,
            (Some(value), ..) => self.insert(work, place, key, value)?,
            (None, Some(_), Some(entry)) => self.remove(work, place, entry, key)?,
            (None, ..) => {}
        }
        Ok(true)
    }

    /// Locks the border node that `key` belongs to.
    pub(super) fn lock_place(&self, key: &[u8]) -> Walk<Locked<'_, M>> {
        loop {
            let Place { leaf, depth, .. } = self.place(key, usize::MAX)?;
            let lock = self.lock(&leaf.node.version)?;
            if lock.covers_since(leaf.version) {
                let slice = Slice::of(Slice::rest(key, depth));
                let permutation = Permutation(leaf.node.permutation.load(&self.guard));
                let entry = self.search(leaf.node, permutation, slice);
                // Another writer may have made a layer of what was no entry, or one key.
                if entry.is_none_or(|entry| entry.class != LAYER) {
                    let (node, pointer) = (leaf.node, leaf.pointer);
                    return Ok(Locked { lock, node, pointer, depth, slice, permutation, entry });
                }
            }
            drop(lock);
            self.retry()?;
        }
    }

    /// The key that a record has to hold, if it goes on behind `slice`.
    fn stored_key(slice: Slice, key: &[u8]) -> &[u8] {
        if slice.class == LONGER { key } else { &[] }
    }

    fn update(
        &self,
        work: &mut Work<'_>,
        place: &Locked<'_, M>,
        entry: Entry,
        key: &[u8],
        value: &[u8],
    ) -> Walk<()> {
        if self.core.are_words {
            return self.update_cell(work, place, entry, prefix_word(value));
        }
        let new = self.write_record(work, Self::stored_key(place.slice, key), value)?;
        self.prepare(work, place.pointer, place.node, Change::Update(entry.slot))
            .or_else(|stop| self.give_up(work, &[new], stop))?;
        // PERSIST: nothing; durable with the epoch, and undone by the in-line log if that fails.
        // ORDER: pairs with the load in `search`: the record is visible.
        place.node.values.value(entry.slot).store(&self.guard, new);
        self.free(work, entry.value)
    }

    /// Gives back what was allocated in vain.
    pub(super) fn give_up<T>(&self, work: &mut Work<'_>, objects: &[u64], stop: Stop) -> Walk<T> {
        for object in objects {
            self.free(work, *object)?;
        }
        Err(stop)
    }

    /// What a new slot is to hold, as [`View::content_of`] has it.
    pub(super) fn write_content(
        &self,
        work: &mut Work<'_>,
        key: &[u8],
        slice: Slice,
        value: &[u8],
    ) -> Walk<u64> {
        if self.core.are_words {
            return Ok(prefix_word(value));
        }
        self.write_record(work, Self::stored_key(slice, key), value)
    }

    fn insert(&self, work: &mut Work<'_>, mut place: Locked<'_, M>, key: &[u8], value: &[u8]) -> Walk<()> {
        let content = self.write_content(work, key, place.slice, value)?;
        let position = self.position(place.node, place.permutation, place.slice);
        let made = if self.core.are_words { &[][..] } else { &[content] };
        if place.permutation.count(self.core.width) == self.core.width {
            return self
                .split(work, place, key, position, content)
                .or_else(|stop| self.give_up(work, made, stop));
        }
        let slot = place.permutation.free_slot(self.core.width);
        self.prepare(work, place.pointer, place.node, Change::Insert(slot))
            .or_else(|stop| self.give_up(work, made, stop))?;
        // A reader may still look at the key that the slot had before.
        place.lock.begin_insert();
        self.fill_slot(place.node, slot, place.slice, content)?;
        // PERSIST: nothing; durable with the epoch, and undone by the permutation log if that fails.
        // ORDER: pairs with the load in `place`: the slot is visible.
        place.node.permutation.store(&self.guard, place.permutation.inserted(position, self.core.width).0);
        Ok(())
    }

    /// Writes a slot that is not in use.
    pub(super) fn fill_slot(&self, node: &Border, slot: usize, slice: Slice, content: u64) -> Walk<()> {
        node.slices[slot].store(&self.guard, slice.word);
        let classes = node.classes.load(&self.guard);
        node.classes.store(&self.guard, with_nibble(classes, slot, slice.class));
        self.fill_value(node, slot, content)
    }

    /// A new border node with entries in order; nobody sees it yet.
    pub(super) fn new_border(&self, work: &mut Work<'_>, entries: &[(Slice, u64)]) -> Walk<u64> {
        let offset = self.allocate_border(work)?;
        self.fill_border(work, offset, entries)?;
        Ok(offset)
    }

    /// Makes a border node of allocated memory. [`LAYER`] as a class stands for itself.
    pub(super) fn fill_border(&self, work: &mut Work<'_>, offset: u64, entries: &[(Slice, u64)]) -> Walk<()> {
        let node = self.guard.node::<Border>(offset)?;
        Version::start(&self.guard, &node.version);
        // Before the values: a tree without logs has one of them in the place of the high log.
        node.values.log_low.store(&self.guard, 0);
        node.values.log_high.store(&self.guard, 0);
        let permutation = Permutation::identity(entries.len(), self.core.width);
        let mut classes = 0;
        for (position, (slice, content)) in entries.iter().enumerate() {
            let slot = permutation.slot(position);
            node.slices[slot].store(&self.guard, slice.word);
            classes = with_nibble(classes, slot, slice.class);
            self.fill_value(node, slot, *content)?;
        }
        node.classes.store(&self.guard, classes);
        node.permutation.store(&self.guard, permutation.0);
        // New in this epoch, so nothing of it has to be logged; if that fails, nothing leads here.
        node.epoch.store(&self.guard, self.epoch_word() | LOGGED);
        self.list_new(work, offset, &node.listed, self.core.border_bytes());
        Ok(())
    }

    /// Two keys that share a slice and go on behind it: the entry of the first becomes a layer with both.
    fn insert_layer(
        &self,
        work: &mut Work<'_>,
        mut place: Locked<'_, M>,
        entry: Entry,
        key: &[u8],
        value: &[u8],
    ) -> Walk<()> {
        let old = Record::at(&self.guard, entry.value)?;
        let mut old_tail = Vec::new();
        old.copy_tail(&self.guard, 8 * (place.depth + 1), &mut old_tail)?;
        let new_tail = Slice::rest(key, place.depth + 1);
        if old_tail == new_tail {
            // No number of layers would tell them apart.
            return Err(Error::corrupt(entry.value, "a record that has the key, and has it not").into());
        }
        let mut made = Vec::new();
        let root = self
            .make_layers(work, (&old_tail, entry.value), (new_tail, key, value), &mut made)
            .and_then(|root| {
                self.prepare(work, place.pointer, place.node, Change::Everything)?;
                Ok(root)
            })
            .or_else(|stop| self.give_up(work, &made, stop))?;
        place.lock.begin_change();
        // PERSIST: nothing; durable with the epoch, and undone from the external log if that fails.
        place.node.values.value(entry.slot).store(&self.guard, root);
        let classes = place.node.classes.load(&self.guard);
        place.node.classes.store(&self.guard, with_nibble(classes, entry.slot, LAYER));
        Ok(())
    }

    /// Makes as many layers as it takes to tell two keys apart; returns the root of the first. What was allocated goes to
    /// `made`.
    fn make_layers(
        &self,
        work: &mut Work<'_>,
        (old_tail, old_record): (&[u8], u64),
        (new_tail, key, value): (&[u8], &[u8], &[u8]),
        made: &mut Vec<u64>,
    ) -> Walk<u64> {
        let mut depth = 0;
        let slices =
            |depth| (Slice::of(Slice::rest(old_tail, depth)), Slice::of(Slice::rest(new_tail, depth)));
        while slices(depth).0 == slices(depth).1 {
            depth += 1;
        }
        let (old, new) = slices(depth);
        let record = self.write_record(work, Self::stored_key(new, key), value)?;
        made.push(record);
        let mut entries = [(old, old_record), (new, record)];
        entries.sort_unstable_by_key(|(slice, _)| *slice);
        let mut root = self.new_border(work, &entries)?;
        made.push(root);
        for depth in (0..depth).rev() {
            let slice = Slice { word: slices(depth).0.word, class: LAYER };
            root = self.new_border(work, &[(slice, root)])?;
            made.push(root);
        }
        Ok(root)
    }
}
