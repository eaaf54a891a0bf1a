//! The in-line log of a value: InCLL1 and InCLL2 of the paper.
//!
//! ```text
//! bits 0..4 slot   4..48 the value, whose low four bits are 0   48..64 the low bits of the epoch      0: no log
//! ```

use super::layout::OFFSET_MASK;

/// How far an epoch word and a value log of one node may be apart.
pub(super) const EPOCHS_APART_MAX: u64 = 1 << 15;

/// A value log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ValueLog(pub(super) u64);

impl ValueLog {
    pub(super) fn new(slot: usize, value: u64, epoch: u64) -> Self {
        Self(slot as u64 | value & OFFSET_MASK | epoch << 48)
    }

    pub(super) fn slot(self) -> usize {
        (self.0 & 15) as usize
    }

    pub(super) fn value(self) -> u64 {
        self.0 & OFFSET_MASK
    }

    /// The epoch of the log: the one nearest to `near` with these low bits.
    pub(super) fn epoch(self, near: u64) -> u64 {
        let distance = ((self.0 >> 48) as u16)
            .wrapping_sub(near as u16)
            .cast_signed();
        near.wrapping_add_signed(i64::from(distance))
    }
}

#[cfg(test)]
mod tests;
