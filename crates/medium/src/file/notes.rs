//! The lines that a guard flushed since its last fence.

use std::cell::RefCell;

use smallvec::SmallVec;

use crate::LINE_BYTES;

/// Numbers of lines.
#[derive(Debug, Default)]
pub struct Notes {
    lines: RefCell<SmallVec<[u64; 12]>>,
}

impl Notes {
    /// Adds the lines of `bytes` bytes from `offset`.
    #[inline]
    pub(super) fn add(&self, offset: u64, bytes: u64) {
        let line = LINE_BYTES as u64;
        let mut lines = self.lines.borrow_mut();
        for number in offset / line..(offset + bytes).div_ceil(line) {
            // Most lines that are flushed twice are flushed twice in a row.
            if lines.last() != Some(&number) {
                lines.push(number);
            }
        }
    }

    pub(super) fn clear(&self) {
        self.lines.borrow_mut().clear();
    }

    /// Calls `take` with the lines, each once and ascending, and forgets them.
    #[inline]
    pub(super) fn take<R>(&self, take: impl FnOnce(&[u64]) -> R) -> R {
        let mut lines = self.lines.borrow_mut();
        if lines.len() > 1 {
            lines.sort_unstable();
            lines.dedup();
        }
        let result = take(&lines);
        lines.clear();
        result
    }
}
