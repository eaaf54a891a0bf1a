//! Target words and their control bits.
//!
//! ```text
//! 63          the word holds the name of a descriptor
//! 62          ... conditionally: the first half of an RDCSS
//! 61          dirty: visible, but the decision that put it here may not be durable yet
//! 0 to 60     the value, or the name:
//!     0 to 9      the descriptor's index
//!     10 to 12    conditional: which of its words
//!     13 to 19    conditional: the slot of the thread that put it there
//!     20 to 25    conditional: which attempt of that thread
//!     26 to 60    the operation's sequence number
//! ```
//!
//! A conditional name belongs to one attempt of one thread. If all helpers used the same one, a
//! late helper could replace the conditional name of another one, which was stored after the
//! operation ended and the word had its old value again.

/// The word holds a descriptor's name.
pub const DESCRIPTOR: u64 = 1 << 63;
/// The word holds a descriptor's name, conditionally.
pub const CONDITIONAL: u64 = 1 << 62;
/// The word's value may not be durable yet.
pub const DIRTY: u64 = 1 << 61;
/// The bits of a value: 61 of them are the user's.
pub const VALUE_MASK: u64 = DIRTY - 1;

/// The most descriptors of a pool of descriptors.
pub(super) const DESCRIPTORS_MAX: usize = 1 << 10;
/// The most slots.
pub(super) const SLOTS_MAX: usize = 1 << 7;

const WORD_SHIFT: u32 = 10;
const SLOT_SHIFT: u32 = 13;
const ATTEMPT_SHIFT: u32 = 20;
const ATTEMPTS: u64 = 1 << 6;
const SEQUENCE_SHIFT: u32 = 26;
/// Bits of a sequence number: at a million operations a second on one descriptor it comes round
/// after nine hours (see `layout`). No operation has the number 0.
pub(super) const SEQUENCE_MASK: u64 = (1 << 35) - 1;

/// Whether a word holds a name instead of a value.
#[inline(always)]
pub fn is_name(raw: u64) -> bool {
    raw & (DESCRIPTOR | CONDITIONAL) != 0
}

/// A descriptor and the operation it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name {
    pub(super) index: usize,
    pub(super) sequence: u64,
}

impl Name {
    /// The name as a word holds it after the second half of an RDCSS.
    #[inline(always)]
    pub(super) fn installed(self) -> u64 {
        DESCRIPTOR | self.sequence << SEQUENCE_SHIFT | self.index as u64
    }

    /// The name, as the first half of an RDCSS leaves it in word `word`.
    #[inline(always)]
    pub(super) fn conditional(self, word: usize, slot: usize, attempt: u64) -> u64 {
        CONDITIONAL
            | self.sequence << SEQUENCE_SHIFT
            | (attempt % ATTEMPTS) << ATTEMPT_SHIFT
            | (slot as u64) << SLOT_SHIFT
            | (word as u64) << WORD_SHIFT
            | self.index as u64
    }

    /// The name in a word that holds one.
    #[inline(always)]
    pub(super) fn of(raw: u64) -> Self {
        let index = (raw & (DESCRIPTORS_MAX as u64 - 1)) as usize;
        Self {
            index,
            sequence: raw >> SEQUENCE_SHIFT & SEQUENCE_MASK,
        }
    }

    /// Whether a word holds this name conditionally.
    #[inline(always)]
    pub(super) fn is_conditional_in(self, raw: u64) -> bool {
        raw & (DESCRIPTOR | CONDITIONAL) == CONDITIONAL && Self::of(raw) == self
    }
}

/// Which of its descriptor's words a conditional name stands in.
#[inline(always)]
pub(super) fn conditional_word(raw: u64) -> usize {
    (raw >> WORD_SHIFT) as usize & 7
}

#[cfg(test)]
mod tests;
