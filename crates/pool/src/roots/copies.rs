//! Copies of the root table that are damaged or outdated while the other copy is whole: they are
//! found, and written anew from the other copy.
//!
//! The table is read in parts, each from the first copy in which it passes its check: a state, a
//! name, a root word, the encodings, an offset in the directory. A part is written anew only in a copy in which it
//! does not count, and from the copy in which it does. So a reader finds the same before, meanwhile
//! and after, and a crash at any moment costs nothing. If a part fails its check in both copies,
//! both stay as they are.

use medium::{Medium, MediumGuard, Word};

use super::slot::{SLOT_BYTES, SlotPart};
use crate::Result;
use crate::header::checked;
use crate::lost_copy::{LostCopy, ordinal};

/// A part of the table that is to be written anew in one copy.
pub(super) enum BadPart {
    /// A part of a slot.
    OfSlot {
        slot: usize,
        /// The copy to be written.
        copy: usize,
        part: SlotPart,
        is_outdated: bool,
    },
    /// An offset in the directory.
    OfDirectory {
        page: usize,
        /// Where the word lies.
        offset: u64,
        /// The copy of the directory to be written.
        copy: usize,
        /// The copy of the page to which the word leads.
        leads_to: usize,
        /// The right value; `None` if no copy of the directory has it.
        value: Option<u64>,
        is_outdated: bool,
    },
}

fn fault(is_outdated: bool) -> &'static str {
    if is_outdated {
        "is outdated"
    } else {
        "fails its check"
    }
}

impl BadPart {
    /// The copy, in words. `slot_offset` is where the slot begins in that copy.
    pub(super) fn describe(&self, slot_offset: Option<u64>) -> LostCopy {
        match *self {
            Self::OfSlot {
                slot,
                copy,
                part,
                is_outdated,
            } => LostCopy {
                offset: slot_offset.unwrap_or_default() + 8 * part.first_word() as u64,
                what: format!(
                    "the {} copy of root table slot {slot}: {} {}",
                    ordinal(copy),
                    part.name(),
                    fault(is_outdated)
                ),
                is_outdated,
                can_be_mended: true,
            },
            Self::OfDirectory {
                page,
                offset,
                copy,
                leads_to,
                value,
                is_outdated,
            } => {
                let mut what = format!(
                    "the {} copy of the root table's directory: the word that leads to the {} copy of page {page} {}",
                    ordinal(copy),
                    ordinal(leads_to),
                    fault(is_outdated)
                );
                if value.is_none() {
                    what += ", in the other copy as well, so that it cannot be mended; dump the trees and restore them into a new pool";
                }
                LostCopy {
                    offset,
                    what,
                    is_outdated,
                    can_be_mended: value.is_some(),
                }
            }
        }
    }
}

/// Writes a part of a slot anew in a copy, and flushes it; the caller fences.
pub(super) fn copy_part<M: Medium>(
    guard: &MediumGuard<'_, M>,
    part: SlotPart,
    from: &[Word],
    to: &[Word],
) {
    debug_assert_eq!(from.len() as u64, SLOT_BYTES / 8);
    for word in part.words() {
        // PERSIST: nothing must precede: this part is read from the other copy until all of its
        // words are there. If one is lost, the part still fails its check, or is outdated.
        to[word].publish(guard, from[word].load(guard));
    }
}

/// Writes an offset in the directory anew, and flushes it; the caller fences.
pub(super) fn write_offset<M: Medium>(
    guard: &MediumGuard<'_, M>,
    offset: u64,
    value: u64,
) -> Result<()> {
    let word = &guard.words(offset, 1)?[0];
    // PERSIST: nothing must precede: the other copy of the directory has this offset. If this is
    // lost, that copy counts, as before.
    word.publish(guard, checked(value));
    Ok(())
}
