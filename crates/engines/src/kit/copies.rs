//! Words that are kept twice, each with its check. One of them is *lost* if it fails its check while
//! the other one passes.
//!
//! A crash leaves no such word: a word is stored as a whole, with its check. So a lost word is damage,
//! and the other copy has the value that counts.

use medium::{Medium, Word};
use pool::{Guard, LostCopy};

use super::unchecked;

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
        let is_whole = found.map(|word| word == 0 || unchecked(word).is_some());
        let copy = match is_whole {
            [false, true] => 0,
            [true, false] => 1,
            [true, true] | [false, false] => return None,
        };
        Some(Self {
            cell: &words[copy],
            found: found[copy],
            right: found[1 - copy],
            copy,
        })
    }

    /// The report of it. `what` names the value.
    pub(crate) fn report<M: Medium>(&self, guard: &Guard<'_, M>, what: &str) -> LostCopy {
        let ordinal = if self.copy == 0 { "first" } else { "second" };
        LostCopy {
            offset: guard.offset_of(self.cell),
            what: format!("the {ordinal} copy of {what} fails its check"),
            is_outdated: false,
            can_be_mended: true,
        }
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
