//! Inserting: into a free slot, by a split, as a new layer.

use medium::Medium;

use super::access::{TreeAccess, Walk};
use super::find::{BorderEntry, LockedBorder};
use super::in_line_log::BorderChange;
use super::layout::with_nibble;
use super::record::Record;
use super::shard::Work;
use super::slice::{LAYER, Slice};
use crate::Error;
use crate::index::record::prefix_word;

/// A key that a layer is made for, and its value.
struct NewKey<'k> {
    /// The key behind the slices of the layers above.
    tail: &'k [u8],
    key: &'k [u8],
    value: &'k [u8],
}

impl<M: Medium> TreeAccess<'_, M> {
    /// The content of the new slot, in the form of [`TreeAccess::content_of`].
    pub(super) fn write_content(&self, work: &mut Work<'_>, key: &[u8], value: &[u8]) -> Walk<u64> {
        if self.core.are_words {
            Ok(prefix_word(value))
        } else {
            self.write_record(work, key, value)
        }
    }

    pub(super) fn insert(
        &self,
        work: &mut Work<'_>,
        mut place: LockedBorder<'_, M>,
        key: &[u8],
        value: &[u8],
    ) -> Walk<()> {
        let content = self.write_content(work, key, value)?;
        let position = self.position(place.node, place.permutation, place.slice);
        let made = if self.core.are_words {
            &[][..]
        } else {
            &[content]
        };
        if place.permutation.count(self.core.width) == self.core.width {
            return self
                .split(work, place, key, position, content)
                .or_else(|stop| self.give_up(work, made, stop));
        }
        let slot = place.permutation.free_slot(self.core.width);
        self.prepare(work, place.node, BorderChange::Insert(slot))
            .or_else(|stop| self.give_up(work, made, stop))?;
        // A reader may still read the key that the slot had before.
        place.lock.begin_insert();
        self.fill_slot(place.node, slot, place.slice, content)?;
        // PERSIST: nothing; durable with the epoch, and undone by the permutation log if that
        // fails. ORDER: pairs with the load in `place`: the slot is visible.
        place.node.permutation.store(
            &self.guard,
            place.permutation.inserted(position, self.core.width).0,
        );
        Ok(())
    }

    /// Two keys that share a slice and go on behind it: the entry of the first becomes a layer with
    /// both.
    pub(super) fn insert_layer(
        &self,
        work: &mut Work<'_>,
        mut place: LockedBorder<'_, M>,
        entry: BorderEntry,
        key: &[u8],
        value: &[u8],
    ) -> Walk<()> {
        let old = Record::at(&self.guard, entry.value)?;
        let mut old_tail = Vec::new();
        old.copy_tail(&self.guard, 8 * (place.depth + 1), &mut old_tail)?;
        let new_tail = Slice::rest(key, place.depth + 1);
        if old_tail == new_tail {
            // The keys are equal, so no number of layers would tell them apart.
            return Err(Error::corrupt(entry.value, "two reads of a record's key disagree").into());
        }
        let mut made = Vec::new();
        let root = self
            .make_layers(
                work,
                &old_tail,
                entry.value,
                &NewKey {
                    tail: new_tail,
                    key,
                    value,
                },
                &mut made,
            )
            .and_then(|root| {
                self.prepare(work, place.node, BorderChange::Everything)?;
                Ok(root)
            })
            .or_else(|stop| self.give_up(work, &made, stop))?;
        place.lock.begin_change();
        // PERSIST: nothing; durable with the epoch, and undone from the external log if that fails.
        place.node.values.value(entry.slot).store(&self.guard, root);
        let classes = place.node.classes.load(&self.guard);
        place
            .node
            .classes
            .store(&self.guard, with_nibble(classes, entry.slot, LAYER));
        Ok(())
    }

    /// Makes as many layers as it takes to tell two keys apart; returns the root of the first. Adds
    /// the objects that it allocates to `made`.
    fn make_layers(
        &self,
        work: &mut Work<'_>,
        old_tail: &[u8],
        old_record: u64,
        new_key: &NewKey<'_>,
        made: &mut Vec<u64>,
    ) -> Walk<u64> {
        let mut depth = 0;
        let slices = |depth| {
            (
                Slice::of(Slice::rest(old_tail, depth)),
                Slice::of(Slice::rest(new_key.tail, depth)),
            )
        };
        while slices(depth).0 == slices(depth).1 {
            depth += 1;
        }
        let (old, new) = slices(depth);
        let record = self.write_record(work, new_key.key, new_key.value)?;
        made.push(record);
        let mut entries = [(old, old_record), (new, record)];
        entries.sort_unstable_by_key(|(slice, _)| *slice);
        let mut root = self.new_border(work, &entries)?;
        made.push(root);
        for depth in (0..depth).rev() {
            let slice = Slice {
                word: slices(depth).0.word,
                class: LAYER,
            };
            root = self.new_border(work, &[(slice, root)])?;
            made.push(root);
        }
        Ok(root)
    }
}
