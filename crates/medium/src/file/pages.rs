//! Sets of pages. Pages that were written are private to the process: they make up the memory of
//! the medium.

/// Bytes of a page.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Lines of a page.
pub(super) const PAGE_LINES: u64 = PAGE_BYTES / crate::LINE_BYTES as u64;

/// A set of pages.
#[derive(Debug, Default)]
pub(super) struct Pages {
    bits: Vec<u64>,
}

impl Pages {
    /// The number of pages.
    pub(super) fn count(&self) -> u64 {
        self.bits
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }

    /// Adds the page of a line; returns whether it is new.
    #[inline]
    pub(super) fn add(&mut self, line: u64) -> bool {
        let page = line / PAGE_LINES;
        let word = (page / 64) as usize;
        let bit = 1 << (page % 64);
        if word >= self.bits.len() {
            self.bits.resize((word + 1).next_power_of_two(), 0);
        }
        let new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        new
    }
}
