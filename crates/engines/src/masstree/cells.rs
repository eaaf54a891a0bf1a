//! Cells: where a tree of words has its values, two for each slot of a border node.
//!
//! The value word of a slot is a pointer, as in the paper, and the in-line logs hold it in packed
//! form. It says which of the slot's two cells is valid. A separate buffer for a value of eight
//! bytes would cost a cache miss for each key that is read.
//!
//! - *Insert*: the value goes to the first cell of a free slot. The slot was free when the epoch
//!   began, or the node is in the external log. So no value that a crash brings back is
//!   overwritten.
//! - *Update*: the other cell is written, then the pointer, which was logged. The value to which
//!   the pointer led when the epoch began stays in its cell until the epoch ends. A second update
//!   finds that the log holds its own slot, and overwrites the valid cell. So does each update of a
//!   node that is in the external log, cells included. So a pointer moves once an epoch.
//! - *Remove*: there is nothing to free.
//!
//! A reader loads the pointer, then the cell, then compares the node's version, and at the end the
//! epoch. That suffices:
//!
//! - In the same epoch the cell changes only by an update in place, which is a valid answer, or by
//!   an insert that takes the slot again, which raises the version first.
//! - In a later epoch the cell may be overwritten while the pointer still leads to it. A reader
//!   that sees such a value also sees the number of that epoch.

use medium::Medium;
use pool::Guard;

use super::access::{TreeAccess, Walk};
use super::layout::{Border, WIDTH_MAX, WordBorder};
use super::record::{CELL_POINTER_MAX, Record, ValueKey};
use crate::{Error, Result};

const _: () = assert!(CELL_POINTER_MAX == cell_pointer(WIDTH_MAX - 1, 1));

/// The pointer to a cell of a slot.
#[inline(always)]
pub(super) const fn cell_pointer(slot: usize, side: usize) -> u64 {
    16 * (1 + 2 * slot as u64 + side as u64)
}

/// Which cell of a slot a pointer leads to.
#[inline(always)]
pub(super) fn side_of(slot: usize, pointer: u64) -> Option<usize> {
    let distance = pointer.wrapping_sub(cell_pointer(slot, 0));
    if distance == 0 || distance == 16 {
        Some(distance as usize / 16)
    } else {
        None
    }
}

/// A key of another class in a tree of words.
pub(super) const NO_WORD: &str = "a key that is no word";
/// A pointer that leads to no cell of its slot.
pub(super) const NO_CELL: &str = "a value that lies in no cell of its slot, in a tree of words";

/// The value of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum SlotValue {
    /// In a tree of words.
    Word(u64),
    /// In a tree of records.
    Record(Record),
}

impl SlotValue {
    /// The value as a word; as bytes it is big-endian.
    #[inline(always)]
    pub(super) fn word<M: Medium>(&self, guard: &Guard<'_, M>) -> Result<u64> {
        match self {
            Self::Word(word) => Ok(*word),
            Self::Record(record) => record.word(guard),
        }
    }

    /// Appends the value.
    pub(super) fn copy<M: Medium>(&self, guard: &Guard<'_, M>, buffer: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Word(word) => {
                buffer.extend_from_slice(&word.to_be_bytes());
                Ok(())
            }
            Self::Record(record) => record.copy_value(guard, buffer),
        }
    }

    /// Appends the value of a key. In a pool that verifies reads, the record must pass its check.
    #[inline(always)]
    pub(super) fn copy_of<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        key: ValueKey<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        match self {
            Self::Word(_) => self.copy(guard, buffer),
            Self::Record(record) => record.copy_value_of(guard, key, buffer),
        }
    }

    /// Whether the value of `key` is this one.
    pub(super) fn is<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        match self {
            Self::Word(word) => Ok(word.to_be_bytes() == value),
            Self::Record(record) => record.has_value(guard, key, value),
        }
    }
}

impl<M: Medium> TreeAccess<'_, M> {
    /// The cells of a border node. For trees of words.
    #[inline(always)]
    pub(super) fn cells(&self, node: &Border) -> Walk<&[[medium::Word; 2]; WIDTH_MAX]> {
        Ok(&self
            .guard
            .node::<WordBorder>(self.guard.offset_of(node))?
            .cells)
    }

    /// The content of the cell that a slot's pointer leads to; `None` if it leads to none. For
    /// trees of words.
    #[inline(always)]
    pub(super) fn load_cell(&self, node: &Border, slot: usize, pointer: u64) -> Option<u64> {
        let cells = self.cells(node).ok()?;
        side_of(slot, pointer).map(|side| cells[slot][side].load(&self.guard))
    }

    /// The content of a slot with this pointer: in a tree of words the value, else the pointer
    /// itself. The node is locked.
    pub(super) fn content_of(&self, node: &Border, slot: usize, pointer: u64) -> Walk<u64> {
        if !self.core.are_words {
            return Ok(pointer);
        }
        let word = self.load_cell(node, slot, pointer);
        Ok(word.ok_or_else(|| Error::corrupt(self.guard.offset_of(node), NO_CELL))?)
    }

    /// Writes the content, in the sense of [`TreeAccess::content_of`], of a slot that is not in use.
    pub(super) fn fill_value(&self, node: &Border, slot: usize, content: u64) -> Walk<()> {
        let mut pointer = content;
        if self.core.are_words {
            self.cells(node)?[slot][0].store(&self.guard, content);
            pointer = cell_pointer(slot, 0);
        }
        node.values.value(slot).store(&self.guard, pointer);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
