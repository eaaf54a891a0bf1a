//! The twin line: failure atomicity from two copies that validate themselves, for processors that
//! tear 64 bytes.
//!
//! A line is kept twice. Each publish overwrites the *older* copy, so a torn store harms nothing
//! that is needed. A copy validates itself by a *tag*, 0 to 3, in bits 62 and 63 of **every** word:
//! eight words with one tag are whole, anything else is torn. No checksum is computed, and a
//! publish costs one persist, as in the single form.
//!
//! ```text
//!   publish        0    1    2    3    4 ...        tag  = publish mod 4
//!   goes to copy   0    1    0    1    0 ...        copy = tag mod 2
//!   copy 0         0    0    2    2    0
//!   copy 1        (3)   1    1    3    3            (3): all zero, written with publish 0
//! ```
//!
//! # Invariants
//! 1. Sound copies carry tags that differ by 1 mod 4, and the newer is one ahead ([`choose`]).
//! 2. Copy 0 carries even tags, copy 1 odd ones; a copy with the other parity counts as torn.
//! 3. A publish overwrites a copy whose tag is two behind, so a word of the old value never passes
//!    for the new one.
//! 4. Hence, before a publish *all eight* words of the older copy carry the tag two behind. A crash
//!    breaks this: it leaves some words of the torn copy with the tag that the next publish uses
//!    again. Two torn stores could then complete each other to a value that nobody published. So
//!    **recovery repairs**: before the first publish it overwrites a torn copy with [`repair`] and
//!    fences. (Words that a crash of the repair leaves behind carry tag n or n-2, as before the
//!    repair, so repairing again is right; nothing is lost, for the newest copy is untouched.)
//! 5. The fence of one publish precedes the next publish of the same line; otherwise a crash could
//!    tear both copies.
//!
//! These functions are pure: they see values, never memory. They suit values at rest (recovery) and
//! values read under the line's lock. A reader *beside* a writer needs more: loading eight words
//! one by one while four publishes pass can mix two values of the same tag, which no tag tells
//! apart.

use super::{LineValue, TAG_MASK};

/// Bits below the tag.
const TAG_SHIFT: u32 = 62;

/// Which copy of a twin line counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TwinChoice {
    /// One copy is the newest whole value.
    Newest {
        /// 0 or 1.
        copy: usize,
        /// Its tag, 0 to 3; the next publish carries [`next_tag`] of it.
        tag: u8,
        /// Whether the other copy is whole, too. If not, overwrite it with [`repair`] before the
        /// next publish.
        other_is_sound: bool,
    },
    /// Neither copy is whole: no crash leaves this, so the pool is damaged (or was read beside a
    /// writer).
    BothTorn,
}

/// The tag that all eight words carry; `None` if they differ: a torn copy. O(1).
#[inline]
pub fn tag(words: &[u64; 8]) -> Option<u8> {
    let all = words.iter().fold(!0, |all, word| all & word) >> TAG_SHIFT;
    let any = words.iter().fold(0, |any, word| any | word) >> TAG_SHIFT;
    (all == any).then_some(all as u8)
}

/// The value with this tag (0 to 3) in every word, in place of any tag that it had. O(1).
#[inline]
pub fn with_tag(value: &LineValue, tag: u8) -> LineValue {
    debug_assert!(tag < 4, "tag {tag}");
    let bits = u64::from(tag) << TAG_SHIFT;
    LineValue(value.0.map(|word| word & !TAG_MASK | bits))
}

/// The value with all tag bits cleared. O(1).
#[inline]
pub fn payload(value: &LineValue) -> LineValue {
    LineValue(value.0.map(|word| word & !TAG_MASK))
}

/// The tag of the publish after the one that carries `tag`.
#[inline]
pub fn next_tag(tag: u8) -> u8 {
    (tag + 1) & 3
}

/// The copy, 0 or 1, that values with this tag are stored to.
#[inline]
pub fn copy_of(tag: u8) -> usize {
    usize::from(tag & 1)
}

/// The first values of both copies of a new line: `value` with tag 0, and zeros with tag 3. They
/// are written before the line is reachable, so their order does not matter.
#[inline]
pub fn initial(value: &LineValue) -> [LineValue; 2] {
    [with_tag(value, 0), with_tag(&LineValue::ZERO, 3)]
}

/// Chooses between copy 0 and copy 1, as found in memory. O(1).
#[inline]
pub fn choose(first: &[u64; 8], second: &[u64; 8]) -> TwinChoice {
    let sound = |words, copy| tag(words).filter(|&tag| copy_of(tag) == copy);
    match (sound(first, 0), sound(second, 1)) {
        // The tags have opposite parity, so they differ by 1 or by 3.
        (Some(even), Some(odd)) if next_tag(odd) == even => TwinChoice::Newest {
            copy: 0,
            tag: even,
            other_is_sound: true,
        },
        (Some(_), Some(odd)) => TwinChoice::Newest {
            copy: 1,
            tag: odd,
            other_is_sound: true,
        },
        (Some(even), None) => TwinChoice::Newest {
            copy: 0,
            tag: even,
            other_is_sound: false,
        },
        (None, Some(odd)) => TwinChoice::Newest {
            copy: 1,
            tag: odd,
            other_is_sound: false,
        },
        (None, None) => TwinChoice::BothTorn,
    }
}

/// The value that recovery stores over a torn copy, if the newest value has the tag `newest`:
/// zeros, with the tag one behind.
#[inline]
pub fn repair(newest: u8) -> LineValue {
    with_tag(&LineValue::ZERO, (newest + 3) & 3)
}
