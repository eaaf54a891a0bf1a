//! Order bytes: where a key lies between a leaf's bounds, in one byte.
//!
//! A fingerprint tells keys apart but not their order, so an insert would have to read all entries,
//! 14 lines, to rank its key among them. An order byte keeps the order: of two keys the lower one
//! never has the higher byte. An insert compares all 56 order bytes at once, and reads only the
//! entries that tie. If keys are spread evenly, one insert in four finds a tie. Keys that crowd
//! together within a leaf tie more often; then all entries are read, and the leaf gets a new scale.
//!
//! The scale maps numbers to order bytes. The number of a key is its first word. In a leaf where the
//! first words tie it is made of the bytes behind those that all keys of the leaf share
//! ([`KeyDigits`]).

use medium::sync::{Atomic, Ordering};
use medium::{Medium, volatile};

use crate::kit::shared_prefix::{SHARED_WORDS, SharedPrefix};

/// How numbers map to order bytes: from a base, in steps of a power of two.
///
/// ```text
///   bits 0..6 shift | 6 whether the numbers are made of digits | 7..64 base: a multiple of 128
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scale(pub(super) u64);

const SHIFT_MASK: u64 = 63;
const OF_DIGITS: u64 = 64;
const BASE_MASK: u64 = !(SHIFT_MASK | OF_DIGITS);

impl Scale {
    /// Maps every key to 0: for leaves that are still empty.
    pub(super) const FLAT: Self = Self(1 << 63 | SHIFT_MASK);

    /// The finest scale that keeps the numbers from `low` to `high` apart from those beyond.
    pub(super) fn covering(low: u64, high: u64) -> Self {
        let base = low & BASE_MASK;
        let bits = u64::BITS - high.saturating_sub(base).leading_zeros();
        Self(base | u64::from(bits.saturating_sub(u8::BITS)))
    }

    /// The same scale, for numbers that are made of digits.
    pub(super) fn of_digits(self) -> Self {
        Self(self.0 | OF_DIGITS)
    }

    /// Whether a key's number is made of digits. Otherwise it is the key's first word.
    #[inline(always)]
    pub(super) fn is_of_digits(self) -> bool {
        self.0 & OF_DIGITS != 0
    }

    /// The order byte of a number. Monotone.
    #[inline(always)]
    pub(super) fn order(self, number: u64) -> u8 {
        let steps = number.saturating_sub(self.0 & BASE_MASK) >> (self.0 & SHIFT_MASK);
        steps.min(u64::from(u8::MAX)) as u8
    }
}

/// How the keys of one leaf map to numbers if their first words tie: the bytes that all of them
/// share are left out, and each of the eight bytes behind is one digit. The digit of a byte is the
/// number of lower bytes that occur among these in the leaf. So a digit takes no more bits than are
/// needed, and an order byte holds two decimal or hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KeyDigits {
    prefix: SharedPrefix,
    /// The least byte that occurs.
    lowest: u8,
    /// Bit i: the byte `lowest + i` occurs. All bits, if a byte occurs that is beyond: then each byte is
    /// its own digit.
    alphabet: u64,
}

/// The digits of a number: eight of eight bits fit into it.
const DIGITS: usize = 8;

impl KeyDigits {
    /// The digits of some keys. O(bytes of the keys).
    pub(super) fn of(keys: &[Vec<u8>]) -> Self {
        let prefix = SharedPrefix::of_all(keys);
        let bytes = || keys.iter().flat_map(|key| bytes_behind(key, &prefix));
        let lowest = bytes().min().unwrap_or(0);
        let mut alphabet = 0;
        for byte in bytes() {
            alphabet |= 1_u64
                .checked_shl(u32::from(byte - lowest))
                .unwrap_or(u64::MAX);
        }
        Self {
            prefix,
            lowest,
            alphabet,
        }
    }

    /// Whether each byte is its own digit.
    fn has_all_bytes(&self) -> bool {
        self.alphabet == u64::MAX
    }

    /// The bits of a digit.
    fn digit_bits(&self) -> u32 {
        if self.has_all_bytes() {
            u8::BITS
        } else {
            let greatest = self.alphabet.count_ones().saturating_sub(1);
            u32::BITS - greatest.leading_zeros()
        }
    }

    /// The digit of a byte.
    fn digit(&self, byte: u8) -> Digit {
        if self.has_all_bytes() {
            return Digit::Of(byte.into());
        }
        let Some(above_lowest) = byte.checked_sub(self.lowest) else {
            return Digit::Below;
        };
        let bit = 1_u64.checked_shl(above_lowest.into()).unwrap_or(0);
        let lower = (self.alphabet & bit.wrapping_sub(1)).count_ones();
        if self.alphabet & bit != 0 {
            Digit::Of(lower.into())
        } else {
            Digit::Behind(u64::from(lower.saturating_sub(1)))
        }
    }

    /// The number of a key. Monotone, for all keys: those that do not begin with the shared bytes
    /// have the least number or the greatest one.
    pub(super) fn number(&self, key: &[u8]) -> u64 {
        let order = self.prefix.compare(key);
        if order.is_ne() {
            return if order.is_lt() { 0 } else { u64::MAX };
        }
        let bits = self.digit_bits();
        let shifted =
            |number: u64, digits: usize| number.checked_shl(bits * digits as u32).unwrap_or(0);
        let mut number = 0;
        let mut bytes = bytes_behind(key, &self.prefix);
        for rest in (0..DIGITS).rev() {
            let digit = bytes.next().map_or(Digit::Below, |byte| self.digit(byte));
            match digit {
                Digit::Of(digit) => number = shifted(number, 1) | digit,
                // The least number that begins with these digits.
                Digit::Below => return shifted(number, rest + 1),
                // The greatest one.
                Digit::Behind(digit) => {
                    let least = shifted(shifted(number, 1) | digit, rest);
                    return least | !shifted(u64::MAX, rest);
                }
            }
        }
        number
    }
}

/// The digit of a byte.
enum Digit {
    /// This one: the byte occurs.
    Of(u64),
    /// The byte is below all that occur, or the key ends before it.
    Below,
    /// The byte does not occur. It is above the one with this digit, and below the next.
    Behind(u64),
}

/// The bytes of a key that its number is made of.
fn bytes_behind(key: &[u8], prefix: &SharedPrefix) -> impl Iterator<Item = u8> {
    key.iter().copied().skip(prefix.length()).take(DIGITS)
}

/// The byte of a shape that counts failures.
const FAILURES: usize = 2;

volatile! {
    /// The digits of one leaf's keys.
    pub(super) struct LeafDigits<M> {
        prefix: [Atomic<M>; SHARED_WORDS],
        alphabet: Atomic<M>,
        /// Bits 0..8 the length of the prefix, 8..16 the least byte, 16..24 how often the digits have
        /// failed to part a new key from the others.
        shape: Atomic<M>,
    }
}

impl<M: Medium> LeafDigits<M> {
    /// The digits. What is read beside a change is validated by the leaf's sequence.
    #[inline(always)]
    pub(super) fn load(&self) -> KeyDigits {
        let shape = self.shape.load(Ordering::Relaxed);
        let [length, lowest, ..] = shape.to_le_bytes();
        let words = std::array::from_fn(|index| self.prefix[index].load(Ordering::Relaxed));
        KeyDigits {
            prefix: SharedPrefix::from_words(usize::from(length), words),
            lowest,
            alphabet: self.alphabet.load(Ordering::Relaxed),
        }
    }

    /// Notes that the digits have failed to part a new key from the others. Returns how often they
    /// have, up to 255 times. Under the leaf's lock.
    pub(super) fn count_failure(&self) -> u8 {
        let mut shape = self.shape.load(Ordering::Relaxed).to_le_bytes();
        let failures = shape[FAILURES].saturating_add(1);
        shape[FAILURES] = failures;
        self.shape
            .store(u64::from_le_bytes(shape), Ordering::Relaxed);
        failures
    }

    /// Under the leaf's lock.
    pub(super) fn store(&self, digits: &KeyDigits) {
        for (cell, word) in self.prefix.iter().zip(digits.prefix.words()) {
            cell.store(word, Ordering::Relaxed);
        }
        self.alphabet.store(digits.alphabet, Ordering::Relaxed);
        let length = digits.prefix.length() as u8;
        let shape = [length, digits.lowest, 0, 0, 0, 0, 0, 0];
        self.shape
            .store(u64::from_le_bytes(shape), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
