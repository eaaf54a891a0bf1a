//! Words that are kept twice, each with its check. One of them is *lost* if it fails its check while
//! the other one passes.
//!
//! A crash leaves no such word: a word is stored as a whole, with its check. So a lost word is damage,
//! and the other copy has the value that counts.

use medium::{Medium, Word};
use pool::{Guard, LostCopy};

use super::unchecked;

/// The number of the copy that is lost, if one is; the argument says which of them pass their checks.
pub(crate) fn lost_of(is_whole: [bool; 2]) -> Option<usize> {
    match is_whole {
        [false, true] => Some(0),
        [true, false] => Some(1),
        [true, true] | [false, false] => None,
    }
}

/// The report of a lost copy at `offset`, the one with this number. `what` names the value.
pub(crate) fn report_of(offset: u64, copy: usize, what: &str) -> LostCopy {
    let ordinal = if copy == 0 { "first" } else { "second" };
    LostCopy {
        offset,
        what: format!("the {ordinal} copy of {what} fails its check"),
        is_outdated: false,
        can_be_mended: true,
    }
}

/// A lost word.
pub(crate) struct LostWord<'g> {
    cell: &'g Word,
    found: u64,
    /// The content of the other copy.
    right: u64,
    /// The number of the copy, 0 or 1.
    copy: usize,
}

impl<'g> LostWord<'g> {
    /// The lost one of two words, if there is one. 0 stands for no value, and is never lost.
    pub(crate) fn of_pair<M: Medium>(guard: &Guard<'_, M>, words: &'g [Word; 2]) -> Option<Self> {
        let found = words.each_ref().map(|word| word.load(guard));
        let copy = lost_of(found.map(|word| word == 0 || unchecked(word).is_some()))?;
        Some(Self {
            cell: &words[copy],
            found: found[copy],
            right: found[1 - copy],
            copy,
        })
    }

    /// The report of it. `what` names the value.
    pub(crate) fn report<M: Medium>(&self, guard: &Guard<'_, M>, what: &str) -> LostCopy {
        report_of(guard.offset_of(self.cell), self.copy, what)
    }

    /// Writes the word anew from the other copy, unless another thread has stored a value there
    /// meanwhile. The caller fences.
    pub(crate) fn mend<M: Medium>(&self, guard: &Guard<'_, M>) {
        // PERSIST: nothing must precede; if this is lost, the word is still lost, and the other copy
        // counts.
        if self
            .cell
            .compare_exchange(guard, self.found, self.right)
            .is_ok()
        {
            guard.flush(self.cell);
        }
    }
}

/// Writes a damaged copy of some words anew from a whole one. No thread writes either of them
/// meanwhile. The caller fences.
pub(crate) fn write_anew<M: Medium>(guard: &Guard<'_, M>, damaged: &[Word], whole: &[Word]) {
    for (cell, right) in damaged.iter().zip(whole) {
        let word = right.load(guard);
        if cell.load(guard) != word {
            // PERSIST: nothing must precede; as long as one of these is lost, the copy does not
            // count, or has the content of the other one.
            cell.publish(guard, word);
        }
    }
}
