//! Slot arrays: up to 56 one-byte slots in bytes 8 to 63 of a line, moved up or down by one.
//!
//! One form only, seven words with masks instead of branches. An AVX-512 form was measured as well
//! (two shifts and a blend): it is no faster, because storing 64 bytes at once and reloading them
//! as words costs more than the words' arithmetic.

use crate::line_store::{LineValue, TAG_MASK};

/// Slots in a slot array.
pub const SLOTS: usize = 56;

/// The bits of word `index` of a line that lie before byte `end` of the line.
#[inline(always)]
fn bits_before(index: usize, end: usize) -> u64 {
    match end.saturating_sub(8 * index) {
        bytes @ 0..8 => !(!0 << (8 * bytes)),
        _ => !0,
    }
}

/// Puts `slot` at `position` of the slot array in bytes 8 to 63, moving the slots from there on up
/// by one. O(1).
///
/// The last slot falls out, so the array holds less than [`SLOTS`]. The header word (bytes 0 to 7)
/// and the tag bits of every word stay as they are; all slots are below 64, so that none reaches
/// into the tag bits.
///
/// # Panics
/// If `position` is not below [`SLOTS`].
#[inline]
pub fn insert_slot(line: &LineValue, position: usize, slot: u8) -> LineValue {
    assert!(
        position < SLOTS,
        "position {position} of a slot array of {SLOTS}"
    );
    debug_assert!(slot < 64, "slot {slot} reaches into the tag bits");
    let at = 8 + position;
    let new = u64::from_le_bytes([slot & 63; 8]);
    let mut result = *line;
    let mut before = 0;
    for index in 1..8 {
        let word = line.0[index] & !TAG_MASK;
        let moved = word << 8 | before >> 56;
        let kept = bits_before(index, at);
        let kept_or_new = bits_before(index, at + 1);
        let merged = word & kept | new & (kept_or_new & !kept) | moved & !kept_or_new;
        result.0[index] = line.0[index] & TAG_MASK | merged & !TAG_MASK;
        before = word;
    }
    result
}

/// Takes the slot at `position` out of the slot array, moving those after it down by one; a zero
/// becomes the last. O(1). Header and tags stay, as in [`insert_slot`].
///
/// # Panics
/// If `position` is not below [`SLOTS`].
#[inline]
pub fn remove_slot(line: &LineValue, position: usize) -> LineValue {
    assert!(
        position < SLOTS,
        "position {position} of a slot array of {SLOTS}"
    );
    let mut result = *line;
    let mut after = 0;
    for index in (1..8).rev() {
        let word = line.0[index] & !TAG_MASK;
        let moved = word >> 8 | after << 56;
        let kept = bits_before(index, 8 + position);
        result.0[index] = line.0[index] & TAG_MASK | (word & kept | moved & !kept) & !TAG_MASK;
        after = word;
    }
    result
}
