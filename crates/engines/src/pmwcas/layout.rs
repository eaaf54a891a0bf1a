//! What lies in the pool: descriptors.
//!
//! ```text
//!   0  status     state (2 bits), number of words (4), sequence number (35), 7 bits of zero, check (16)
//!   8  check      of sequence number and words
//!  16  word 0     its offset, the value expected there, the value desired
//!  40  word 1     ...
//! 184  word 7
//! 208  48 bytes of nothing
//! ```
//!
//! An operation on two words takes one line, on up to four words two.

use medium::{BadOffset, LINE_BYTES, Medium, Word, node};

use super::WORDS_MAX;
use super::word::SEQUENCE_MASK;

node! {
    /// A descriptor.
    pub(super) struct DescriptorNode {
        pub(super) status: Word,
        pub(super) check: Word,
        pub(super) targets: [[Word; 3]; WORDS_MAX],
        spare: [Word; 6],
    }
}

/// Bytes of a descriptor.
pub(super) const DESCRIPTOR_BYTES: usize = size_of::<DescriptorNode>();

const _: () = {
    assert!(DESCRIPTOR_BYTES == 256 && DESCRIPTOR_BYTES.is_multiple_of(LINE_BYTES));
    assert!(std::mem::offset_of!(DescriptorNode, check) == 8);
    assert!(std::mem::offset_of!(DescriptorNode, targets) == 16);
};

/// How far an operation has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// No word holds the descriptor's name.
    Free = 0,
    /// Phase 1: some words may hold the name.
    Undecided = 1,
    /// Phase 2: words that hold the name get the desired values.
    Succeeded = 2,
    /// Phase 2: words that hold the name get the expected values back.
    Failed = 3,
}

/// A descriptor's status word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Status {
    pub(super) state: State,
    pub(super) count: usize,
    pub(super) sequence: u64,
}

const COUNT_SHIFT: u32 = 2;
const SEQUENCE_SHIFT: u32 = 6;
const CHECK_SHIFT: u32 = 48;

/// Spreads a word over its upper bits; odd, so nothing is lost.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Status {
    /// The status as a word, with its check.
    #[inline]
    pub(super) fn encode(self) -> u64 {
        let bits = self.state as u64 | (self.count as u64) << COUNT_SHIFT | self.sequence << SEQUENCE_SHIFT;
        bits | check_of_status(bits) << CHECK_SHIFT
    }

    /// The status in a word; `None` if it fails its check.
    #[inline]
    pub(super) fn decode(word: u64) -> Option<Self> {
        let state = match word & 3 {
            0 => State::Free,
            1 => State::Undecided,
            2 => State::Succeeded,
            _ => State::Failed,
        };
        let count = (word >> COUNT_SHIFT) as usize & 15;
        let status = Self { state, count, sequence: word >> SEQUENCE_SHIFT & SEQUENCE_MASK };
        (status.encode() == word && count <= WORDS_MAX).then_some(status)
    }

    /// The same operation in another state.
    pub(super) fn in_state(self, state: State) -> Self {
        Self { state, ..self }
    }
}

fn check_of_status(bits: u64) -> u64 {
    // A word of zeros fails, too.
    (bits + 1).wrapping_mul(SPREAD) >> CHECK_SHIFT
}

/// A word to be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target {
    pub(super) offset: u64,
    pub(super) old: u64,
    pub(super) new: u64,
}

impl DescriptorNode {
    /// The first `count` words, as an operation left them.
    pub(super) fn load_targets<M: Medium>(
        &self,
        guard: &medium::Guard<'_, M>,
        count: usize,
    ) -> smallvec::SmallVec<[Target; WORDS_MAX]> {
        let load = |cells: &[Word; 3]| Target {
            offset: cells[0].load(guard),
            old: cells[1].load(guard),
            new: cells[2].load(guard),
        };
        self.targets.iter().take(count).map(load).collect()
    }

    /// Writes and flushes a new operation; the caller fences.
    pub(super) fn fill<M: Medium>(
        &self,
        guard: &medium::Guard<'_, M>,
        sequence: u64,
        targets: &[Target],
    ) -> Result<(), BadOffset> {
        for (cells, target) in self.targets.iter().zip(targets) {
            cells[0].store(guard, target.offset);
            cells[1].store(guard, target.old);
            cells[2].store(guard, target.new);
        }
        self.check.store(guard, check_of(sequence, targets));
        let status = Status { state: State::Undecided, count: targets.len(), sequence };
        self.status.store(guard, status.encode());
        guard.flush_words(guard.words(guard.offset_of(self), 2 + 3 * targets.len())?);
        Ok(())
    }
}

/// What a descriptor's check is to be.
pub(super) fn check_of(sequence: u64, targets: &[Target]) -> u64 {
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(SPREAD).rotate_left(29);
    targets.iter().fold(mix(SPREAD, sequence), |sum, target| {
        [target.offset, target.old, target.new].into_iter().fold(sum, mix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_with_one_flipped_bit_is_refused() {
        for state in [State::Free, State::Undecided, State::Succeeded, State::Failed] {
            for sequence in [0, 1, 12_345, SEQUENCE_MASK] {
                let status = Status { state, count: 3, sequence };
                let word = status.encode();
                assert_eq!(Status::decode(word), Some(status));
                for bit in 0..64 {
                    assert_eq!(Status::decode(word ^ 1 << bit), None, "{status:?}, bit {bit}");
                }
            }
        }
        assert_eq!(Status::decode(0), None, "memory that was never formatted");
    }
}
