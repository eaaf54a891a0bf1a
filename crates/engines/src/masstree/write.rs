//! Writing: conditions, room, and updates.

use medium::Medium;

use super::access::{TreeAccess, Walk};
use super::cells::{NO_CELL, cell_pointer, side_of};
use super::core::Core;
use super::find::{BorderEntry, LockedBorder};
use super::in_line_log::BorderChange;
use super::layout::line_of;
use super::shard::Work;
use crate::index::Condition;
use crate::index::record::prefix_word;
use crate::kit::epochs::in_batch::refuse_in_any_batch;
use crate::{Error, ErrorKind, Result};

impl<M: Medium> Core<M> {
    /// Writes or removes, if `condition` holds; returns whether it held. O(log n).
    pub(super) fn write(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        condition: Condition<&[u8]>,
    ) -> Result<bool> {
        self.end_failed()?;
        self.attempt_twice(|view, work| view.write(work, key, value, condition))
    }

    /// Attempts a change of one key; if the pool or the external log is full, once more in the next
    /// epoch.
    pub(super) fn attempt_twice<T>(
        &self,
        change: impl Fn(&TreeAccess<'_, M>, &mut Work<'_>) -> Walk<T>,
    ) -> Result<T> {
        let attempt = |(view, mut work): (TreeAccess<'_, M>, Work<'_>)| {
            change(&view, &mut work).map_err(|stop| self.error_of(stop))
        };
        let changed = attempt(self.enter());
        let is_full =
            |error: &Error| error.is_full() || matches!(error.kind(), ErrorKind::EpochFull { .. });
        // A thread in a batch ends no epoch.
        if !changed.as_ref().is_err_and(is_full) || refuse_in_any_batch::<M>().is_err() {
            return changed;
        }
        // After the end of the epoch freed objects can be reused, and the external log is empty.
        self.advance()?;
        attempt(self.enter_with_log())
    }
}

impl<M: Medium> TreeAccess<'_, M> {
    /// Does the work of [`Core::write`], with a pass.
    pub(super) fn write(
        &self,
        work: &mut Work<'_>,
        key: &[u8],
        value: Option<&[u8]>,
        condition: Condition<&[u8]>,
    ) -> Walk<bool> {
        let place = self.lock_place(key)?;
        let value_for = |entry| self.value_for(place.node, place.depth, entry, key);
        let found = place.entry.map_or(Ok(None), value_for)?;
        let holds = match (condition, &found) {
            (Condition::Always | Condition::Written(_), _)
            | (Condition::Absent, None)
            | (Condition::Present, Some(_)) => true,
            (Condition::Equals(expected), Some(found)) => found.is(&self.guard, key, expected)?,
            _ => false,
        };
        if !holds {
            return Ok(false);
        }
        self.guard.admit()?;
        match (value, found, place.entry) {
            (Some(value), Some(_), Some(entry)) => self.update(work, &place, entry, key, value)?,
            (Some(value), None, Some(entry)) => {
                self.insert_layer(work, place, entry, key, value)?;
            }
            (Some(value), ..) => self.insert(work, place, key, value)?,
            (None, Some(_), Some(entry)) => self.remove(work, place, entry, key)?,
            (None, ..) => {}
        }
        Ok(true)
    }

    pub(super) fn update(
        &self,
        work: &mut Work<'_>,
        place: &LockedBorder<'_, M>,
        entry: BorderEntry,
        key: &[u8],
        value: &[u8],
    ) -> Walk<()> {
        if self.core.are_words {
            return self.update_cell(work, place, entry, prefix_word(value));
        }
        let new = self.write_record(work, key, value)?;
        self.prepare(work, place.node, BorderChange::Update(entry.slot))
            .or_else(|stop| self.give_up(work, &[new], stop))?;
        // PERSIST: nothing; durable with the epoch, and undone by the in-line log if that fails.
        // ORDER: pairs with the load in `search`: the record is visible.
        place.node.values.value(entry.slot).store(&self.guard, new);
        self.free(work, entry.value)
    }

    /// Changes the value of an entry in a tree of words.
    fn update_cell(
        &self,
        work: &mut Work<'_>,
        place: &LockedBorder<'_, M>,
        entry: BorderEntry,
        word: u64,
    ) -> Walk<()> {
        let node = place.node;
        let Some(current) = side_of(entry.slot, entry.value) else {
            return Err(Error::corrupt(self.guard.offset_of(node), NO_CELL).into());
        };
        let cells = &self.cells(node)?[entry.slot];
        let may_overwrite = self.prepare(work, node, BorderChange::Update(entry.slot))?;
        let side = if may_overwrite { current } else { 1 - current };
        self.list_node(work, &node.listed, line_of(node, &cells[side]));
        // PERSIST: nothing; durable with the epoch. If that fails the pointer leads to the other
        // cell again, or all of the node is put back.
        cells[side].store(&self.guard, word);
        if !may_overwrite {
            // ORDER: pairs with the load in `search`: the cell's content is visible.
            node.values
                .value(entry.slot)
                .store(&self.guard, cell_pointer(entry.slot, side));
        }
        Ok(())
    }
}
