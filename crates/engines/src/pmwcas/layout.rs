//! The layout of descriptors in the pool.
//!
//! ```text
//!   0  status     state (2 bits), number of words (4), sequence number (35), 7 bits of zero, check (16)
//!   8  check      of sequence number and words
//!  16  word 0     its offset, the value expected there, the value desired
//!  40  word 1     ...
//!  64  words 2 and 3
//! 112  8 unused bytes
//! 120  writer     the operation that wrote this line, once it has: sequence number (35 bits), check (29)
//! 128  words 4 and 5, and so on, as in the line before
//! 192  words 6 and 7
//! ```
//!
//! An operation on two words takes one line, on up to four words two.
//!
//! **Torn or damaged?** A crash may interrupt the filling of a descriptor. Then no word holds its
//! name, which is installed only after a fence. If the descriptor was damaged instead, words may
//! hold its name. To tell the two apart, the last word stored in each line, the status or the
//! *writer*, says whether the line was written whole: a crash leaves a prefix of the stores to a
//! line. Before a line is written its writer is cleared. After the number 2^35 - 1 the numbers
//! start again with 1. Before that all writers are cleared, so that no old line is taken for one of
//! the new operation with the same number.

use medium::{BadOffset, LINE_BYTES, Medium, Word, node};

use super::WORDS_MAX;
use super::word::SEQUENCE_MASK;

node! {
    /// A descriptor.
    pub(super) struct DescriptorNode {
        pub(super) status: Word,
        pub(super) check: Word,
        first: [[Word; 3]; FIRST_LINE],
        lines: [[Word; 8]; 3],
    }
}

/// Words that lie in the line of the status.
const FIRST_LINE: usize = 2;
/// Words of an operation in each line behind it.
const LINE: usize = 2;
/// The word of such a line that names the writer.
const WRITER: usize = 7;

/// Bytes of a descriptor.
pub(super) const DESCRIPTOR_BYTES: usize = size_of::<DescriptorNode>();

const _: () = {
    assert!(DESCRIPTOR_BYTES == 256 && DESCRIPTOR_BYTES.is_multiple_of(LINE_BYTES));
    assert!(std::mem::offset_of!(DescriptorNode, check) == 8);
    assert!(std::mem::offset_of!(DescriptorNode, first) == 16);
    assert!(std::mem::offset_of!(DescriptorNode, lines) == LINE_BYTES);
    assert!(WORDS_MAX == FIRST_LINE + 3 * LINE);
};

/// How far an operation has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OperationState {
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
    pub(super) state: OperationState,
    pub(super) count: usize,
    pub(super) sequence: u64,
}

const COUNT_SHIFT: u32 = 2;
const SEQUENCE_SHIFT: u32 = 6;
const CHECK_SHIFT: u32 = 48;

/// Spreads a word over its upper bits by multiplication; odd, so that no two words become equal.
pub(super) const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Status {
    /// The status as a word, with its check.
    #[inline]
    pub(super) fn encode(self) -> u64 {
        let bits = self.state as u64
            | (self.count as u64) << COUNT_SHIFT
            | self.sequence << SEQUENCE_SHIFT;
        bits | check_of_status(bits) << CHECK_SHIFT
    }

    /// The status in a word; `None` if it fails its check.
    #[inline]
    pub(super) fn decode(word: u64) -> Option<Self> {
        let state = match word & 3 {
            0 => OperationState::Free,
            1 => OperationState::Undecided,
            2 => OperationState::Succeeded,
            _ => OperationState::Failed,
        };
        let count = (word >> COUNT_SHIFT) as usize & 15;
        let status = Self {
            state,
            count,
            sequence: word >> SEQUENCE_SHIFT & SEQUENCE_MASK,
        };
        (status.encode() == word && count <= WORDS_MAX).then_some(status)
    }

    /// The status of the same operation in another state.
    pub(super) fn in_state(self, state: OperationState) -> Self {
        Self { state, ..self }
    }
}

fn check_of_status(bits: u64) -> u64 {
    // A word of zeros fails, too.
    (bits + 1).wrapping_mul(SPREAD) >> CHECK_SHIFT
}

/// A word to be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TargetWord {
    pub(super) offset: u64,
    pub(super) old: u64,
    pub(super) new: u64,
}

/// The writer word of a line that the operation with this number wrote whole. No operation has the
/// number 0.
fn writer(sequence: u64) -> u64 {
    sequence | (sequence + 1).wrapping_mul(SPREAD) >> 35 << 35
}

/// A line that is not written whole yet.
const NOBODY: u64 = 0;

impl DescriptorNode {
    #[inline]
    fn target(&self, position: usize) -> &[Word] {
        match position.checked_sub(FIRST_LINE) {
            None => &self.first[position],
            Some(behind) => &self.lines[behind / LINE][3 * (behind % LINE)..][..3],
        }
    }

    /// The lines behind the first that an operation on `count` words takes.
    fn lines_of(&self, count: usize) -> &[[Word; 8]] {
        &self.lines[..count.saturating_sub(FIRST_LINE).div_ceil(LINE)]
    }

    /// One of the words, as an operation left it.
    #[inline]
    pub(super) fn load_target<M: Medium>(
        &self,
        guard: &medium::MediumGuard<'_, M>,
        position: usize,
    ) -> TargetWord {
        let cells = self.target(position);
        TargetWord {
            offset: cells[0].load(guard),
            old: cells[1].load(guard),
            new: cells[2].load(guard),
        }
    }

    /// The first `count` words, as an operation left them.
    pub(super) fn load_targets<M: Medium>(
        &self,
        guard: &medium::MediumGuard<'_, M>,
        count: usize,
    ) -> smallvec::SmallVec<[TargetWord; WORDS_MAX]> {
        (0..count.min(WORDS_MAX))
            .map(|position| self.load_target(guard, position))
            .collect()
    }

    /// Writes and flushes a descriptor that is free; the caller fences.
    pub(super) fn format<M: Medium>(&self, guard: &medium::MediumGuard<'_, M>) {
        let free = Status {
            state: OperationState::Free,
            count: 0,
            sequence: 0,
        };
        self.status.publish(guard, free.encode());
        self.forget_writers(guard);
    }

    /// Clears the writer of each line, and flushes that; the caller fences.
    pub(super) fn forget_writers<M: Medium>(&self, guard: &medium::MediumGuard<'_, M>) {
        self.lines
            .iter()
            .for_each(|line| line[WRITER].publish(guard, writer(NOBODY)));
    }

    /// Writes and flushes a new operation; the caller fences. `before` is the status so far.
    pub(super) fn fill<M: Medium>(
        &self,
        guard: &medium::MediumGuard<'_, M>,
        before: Status,
        sequence: u64,
        targets: impl ExactSizeIterator<Item = TargetWord> + Clone,
    ) -> Result<(), BadOffset> {
        let count = targets.len();
        if before.state != OperationState::Free {
            // No other thread saw that operation.
            self.status
                .store(guard, before.in_state(OperationState::Free).encode());
        }
        let lines = self.lines_of(count);
        lines
            .iter()
            .for_each(|line| line[WRITER].store(guard, writer(NOBODY)));
        for (position, target) in targets.clone().enumerate() {
            let cells = self.target(position);
            cells[0].store(guard, target.offset);
            cells[1].store(guard, target.old);
            cells[2].store(guard, target.new);
        }
        lines
            .iter()
            .for_each(|line| line[WRITER].store(guard, writer(sequence)));
        self.check.store(guard, check_of(sequence, targets));
        let status = Status {
            state: OperationState::Undecided,
            count,
            sequence,
        };
        self.status.store(guard, status.encode());
        guard.flush_words(guard.words(guard.offset_of(self), 8 * (1 + lines.len()))?);
        Ok(())
    }

    /// The number of the last operation that wrote to a descriptor with this status, whether it
    /// finished filling it or not. All writers are cleared before numbers start again, so a writer
    /// never names an older operation with the same number.
    pub(super) fn last_sequence<M: Medium>(
        &self,
        guard: &medium::MediumGuard<'_, M>,
        status: Status,
    ) -> u64 {
        let written = self.lines.iter().map(|line| line[WRITER].load(guard));
        let known = written.filter(|found| *found == writer(found & SEQUENCE_MASK));
        known
            .map(|found| found & SEQUENCE_MASK)
            .fold(status.sequence, u64::max)
    }

    /// Whether a line of an undecided operation was certainly not written whole when the crash
    /// came.
    pub(super) fn is_torn<M: Medium>(
        &self,
        guard: &medium::MediumGuard<'_, M>,
        status: Status,
    ) -> bool {
        self.lines_of(status.count).iter().any(|line| {
            let found = line[WRITER].load(guard);
            found != writer(status.sequence) && found == writer(found & SEQUENCE_MASK)
        })
    }
}

/// The check that a descriptor with these words must have.
#[inline]
pub(super) fn check_of(sequence: u64, targets: impl Iterator<Item = TargetWord>) -> u64 {
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(SPREAD).rotate_left(29);
    targets.fold(mix(SPREAD, sequence), |sum, target| {
        [target.offset, target.old, target.new]
            .into_iter()
            .fold(sum, mix)
    })
}

#[cfg(test)]
mod tests;
