//! The permutation word: which slots of a border node are in use, in which order.
//!
//! ```text
//! bits 0..4     the number of keys
//! bits 4p+4..   the slot at position p; the slots behind the last key are free
//! bits 60..64   the check, unless the node has as many slots: the exclusive or of all nibbles is 15
//! ```
//!
//! One store of this word inserts or removes a key. It is the word that the in-line log keeps a
//! copy of.

use super::layout::{WIDTH_MAX, slots};

/// A permutation of up to 15 slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Permutation(pub(super) u64);

/// The bits of the check.
const CHECK: u64 = 15 << 60;

/// The low `nibbles` nibbles.
fn low(nibbles: usize) -> u64 {
    if nibbles >= 16 {
        !0
    } else {
        (1 << (4 * nibbles)) - 1
    }
}

impl Permutation {
    /// `count` keys in order, in a node of `width`.
    pub(super) fn identity(count: usize, width: usize) -> Self {
        let slots = slots(width);
        // Positions that the node does not have hold no slot: `position` never finds one there.
        let slot = |position| {
            if position < width {
                slots.start + position
            } else {
                15
            }
        };
        let word = (0..WIDTH_MAX)
            .rev()
            .map(slot)
            .fold(0, |word, slot| (word | slot as u64) << 4);
        Self(word | count as u64).sealed(width)
    }

    /// With its check.
    #[inline(always)]
    fn sealed(self, width: usize) -> Self {
        if width == WIDTH_MAX {
            return self;
        }
        let word = self.0 & !CHECK;
        let folded = word ^ word >> 32;
        let folded = folded ^ folded >> 16;
        let folded = folded ^ folded >> 8;
        Self(word | !(folded ^ folded >> 4) << 60)
    }

    /// The number of keys, at most `width`: a damaged word may claim more.
    #[inline(always)]
    pub(super) fn count(self, width: usize) -> usize {
        ((self.0 & 15) as usize).min(width)
    }

    /// The slot at a position; below [`WIDTH_MAX`], also in a damaged word.
    #[inline(always)]
    pub(super) fn slot(self, position: usize) -> usize {
        ((self.0 >> (4 * position + 4) & 15) as usize).min(WIDTH_MAX - 1)
    }

    /// The position of a slot.
    #[inline(always)]
    pub(super) fn position(self, slot: usize) -> usize {
        (0..WIDTH_MAX)
            .find(|position| self.slot(*position) == slot)
            .unwrap_or(WIDTH_MAX)
    }

    /// The slot that the next insert takes.
    pub(super) fn free_slot(self, width: usize) -> usize {
        self.slot(self.count(width))
    }

    /// Takes the free slot into use, at `position`.
    pub(super) fn inserted(self, position: usize, width: usize) -> Self {
        let count = self.count(width);
        let slot = self.0 >> (4 * count + 4) & 15;
        let below = low(position + 1);
        let through = low(count + 1);
        let moved = self.0 & through & !below;
        let above = self.0 & !low(count + 2);
        Self((self.0 & below | slot << (4 * position + 4) | moved << 4 | above) + 1).sealed(width)
    }

    /// Frees the slot at `position`; the next insert takes it first.
    pub(super) fn removed(self, position: usize, width: usize) -> Self {
        let count = self.count(width);
        let slot = self.0 >> (4 * position + 4) & 15;
        let below = low(position + 1);
        let through = low(count + 1);
        let moved = self.0 & through & !below & !(15 << (4 * position + 4));
        let above = self.0 & !through;
        Self((self.0 & below | moved >> 4 | slot << (4 * count) | above) - 1).sealed(width)
    }

    /// The first `count` keys only.
    pub(super) fn truncated(self, count: usize, width: usize) -> Self {
        Self(self.0 & !15 | count as u64).sealed(width)
    }

    /// Whether the word passes its check, and lists as many slots as the node has, each once.
    pub(super) fn is_sound(self, width: usize) -> bool {
        let listed = |word: u64| {
            (0..width).fold(0_u32, |seen, position| {
                seen | 1 << (word >> (4 * position + 4) & 15)
            })
        };
        self == self.sealed(width)
            && (self.0 & 15) as usize <= width
            && listed(self.0) == listed(Self::identity(0, width).0)
    }
}

#[cfg(test)]
mod tests;
