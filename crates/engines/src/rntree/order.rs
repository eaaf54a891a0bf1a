//! Order bytes: where a key lies between a leaf's bounds, in one byte.
//!
//! A fingerprint tells keys apart but not their order, so an insert would have to read all entries,
//! 14 lines, to rank its key among them. An order byte keeps the order: of two keys the lower one
//! never has the higher byte. An insert compares all 56 order bytes at once, and reads only the
//! entries that tie. If keys are spread evenly, one insert in four finds a tie. Keys that crowd
//! together within a leaf tie more often; then all entries are read, and the leaf gets a new scale.

/// How keys map to order bytes: from a base, in steps of a power of two.
///
/// ```text
///   bits 0..6 shift | 6..64 base: a multiple of 64
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scale(pub(super) u64);

const SHIFT_MASK: u64 = 63;

impl Scale {
    /// Maps every key to 0: for leaves that are still empty.
    pub(super) const FLAT: Self = Self(1 << 63 | SHIFT_MASK);

    /// The finest scale that keeps the keys from `low` to `high` apart from those beyond.
    pub(super) fn covering(low: u64, high: u64) -> Self {
        let base = low & !SHIFT_MASK;
        let bits = u64::BITS - high.saturating_sub(base).leading_zeros();
        Self(base | u64::from(bits.saturating_sub(u8::BITS)))
    }

    /// The order byte of a key. Monotone.
    #[inline(always)]
    pub(super) fn order(self, key: u64) -> u8 {
        (key.saturating_sub(self.0 & !SHIFT_MASK) >> (self.0 & SHIFT_MASK)).min(u64::from(u8::MAX))
            as u8
    }
}

#[cfg(test)]
mod tests;
