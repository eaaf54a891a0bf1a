//! The layout of a tree in the pool.
//!
//! ```text
//! anchor, 64 bytes, then the descriptors of PMwCAS
//!   0  root        pointer to the root
//!
//! leaf with room for n entries, 64 + 24 n bytes (1,408 for 56)
//!   0  fingerprints  one byte for each entry; 0 for one that was never reserved, perhaps 0 for one that is gone
//!  56  status        frozen (bit 0), entries it has room for (1 to 7), entries reserved (8 to 15), of these pending (16
//!                    to 23) and dead (24 to 31), sorted from the start (32 to 39), how often it was frozen (40 to 60)
//!  64  entry 0       metadata, key word, payload
//!  88  entry 1       ...
//!
//! metadata of an entry
//!      0 and 1       empty, visible or gone
//!      2 to 4        the upper three bits of the value
//!      8 to 47       a version, raised by each update
//!
//! inner node, 1,024 bytes (1,536 where keys can tie)
//!   0  keys        up to 62 separators' first words, ascending
//! 496  header      level, 1 above leaves (bits 0 to 7), separators (8 to 15), check of separators (16 to 47)
//! 504  status      frozen (bit 0), changes of children (8 to 60)
//! 512  children    up to 63: pointers
//! 1024 tails       where keys can tie: offsets of records with the separators' keys, 0 where the word is enough
//! ```
//!
//! The check is a CRC-32C over the rest of the header, the first words and the tails: none of them ever
//! changes. 0 stands for no check, as nodes have it that were written before there was one.
//!
//! A pointer is the offset of a node, with bit 0 if it is a leaf, and the check of both (bits 48 to
//! 60).
//!
//! Metadata, payloads, statuses, children and the root are words of PMwCAS: bits 61 to 63 of each
//! belong to PMwCAS.

use medium::{LINE_BYTES, Medium, Word, WordSum, node};

use crate::pmwcas::VALUE_MASK;
use crate::{Error, Result};

/// The most entries of a leaf: 56 fingerprints and the status fill one line.
pub const ENTRIES_MAX: usize = 56;
/// The most children of an inner node.
pub(super) const CHILDREN_MAX: usize = 63;

node! {
    /// Where a tree begins.
    pub(super) struct Anchor {
        pub(super) root: Word,
        spare: [Word; 7],
    }
}

node! {
    /// An inner node, without the tails.
    pub(super) struct Inner {
        /// Separators; the last two words are header and status.
        pub(super) keys: [Word; 64],
        pub(super) children: [Word; 64],
    }
}

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 24;
/// Words of an entry.
pub(super) const META: usize = 0;
pub(super) const KEY: usize = 1;
pub(super) const PAYLOAD: usize = 2;

/// The word of a leaf's head that is its status.
pub(super) const LEAF_STATUS: usize = 7;
/// Words of an inner node's keys that hold no key.
pub(super) const INNER_HEADER: usize = 62;
pub(super) const INNER_STATUS: usize = 63;

const _: () = {
    assert!(size_of::<Anchor>() == LINE_BYTES);
    assert!(leaf_bytes(ENTRIES_MAX) == 1408 && leaf_bytes(4) == 160);
    assert!(ENTRIES_MAX as u64 <= CAPACITY_MASK);
    assert!(std::mem::offset_of!(Inner, children) == 512 && size_of::<Inner>() == 1024);
    assert!(LEAF_STATUS * 8 == ENTRIES_MAX && INNER_HEADER == CHILDREN_MAX - 1);
};

/// Bytes of an inner node.
pub(super) const fn inner_bytes(ties: bool) -> usize {
    size_of::<Inner>() + if ties { 512 } else { 0 }
}

/// Bytes of a leaf with room for `capacity` entries.
pub(super) const fn leaf_bytes(capacity: usize) -> usize {
    LINE_BYTES + ENTRY_BYTES * capacity
}

/// The node is a leaf.
const LEAF: u64 = 1;
/// Where the check of a pointer begins.
const POINTER_CHECK_SHIFT: u32 = 48;
const POINTER_CHECK_BITS: u32 = 13;

/// A word that leads to a node, with a check of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pointer(pub(super) u64);

impl Pointer {
    pub(super) fn leaf(offset: u64) -> Self {
        Self::checked(offset | LEAF)
    }

    pub(super) fn inner(offset: u64) -> Self {
        Self::checked(offset)
    }

    /// The check is the exclusive or of groups of bits: every changed bit changes it.
    #[inline(always)]
    fn checked(word: u64) -> Self {
        let half = word ^ word >> (2 * POINTER_CHECK_BITS);
        let check = (half ^ half >> POINTER_CHECK_BITS) & ((1 << POINTER_CHECK_BITS) - 1);
        Self(word | check << POINTER_CHECK_SHIFT)
    }

    #[inline(always)]
    pub(super) fn is_leaf(self) -> bool {
        self.0 & LEAF != 0
    }

    /// Whether it passes its check.
    #[inline(always)]
    pub(super) fn is_sound(self) -> bool {
        self == Self::checked(self.0 & ((1 << POINTER_CHECK_SHIFT) - 1))
    }

    #[inline(always)]
    pub(super) fn offset(self) -> u64 {
        self.0 & ((1 << POINTER_CHECK_SHIFT) - 16)
    }
}

/// Whether a status, of a leaf or of an inner node, says that the node is frozen.
pub(super) const FROZEN: u64 = 1;

/// A leaf's status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LeafStatus(pub(super) u64);

const CAPACITY_SHIFT: u32 = 1;
const CAPACITY_MASK: u64 = 0x7f;
const ONE_RESERVED: u64 = 1 << 8;
const ONE_PENDING: u64 = 1 << 16;
const ONE_DEAD: u64 = 1 << 24;
const ONE_FREEZE: u64 = 1 << 40;

impl LeafStatus {
    /// The status of a new leaf with `count` entries, all sorted, and room for `capacity`.
    pub(super) fn of_sorted(count: usize, capacity: usize) -> Self {
        Self((count as u64) << 8 | (count as u64) << 32 | (capacity as u64) << CAPACITY_SHIFT)
    }

    #[inline(always)]
    fn byte(self, shift: u32) -> usize {
        (self.0 >> shift) as usize & 0xff
    }

    pub(super) fn is_frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    /// Entries that there is room for.
    pub(super) fn capacity(self) -> usize {
        (self.0 >> CAPACITY_SHIFT & CAPACITY_MASK) as usize
    }

    /// Whether all of them were reserved.
    pub(super) fn is_full(self) -> bool {
        self.count() >= self.capacity()
    }

    /// Entries that were reserved at any time.
    pub(super) fn count(self) -> usize {
        self.byte(8)
    }

    /// The number of reserved entries that are not visible yet.
    pub(super) fn pending(self) -> usize {
        self.byte(16)
    }

    /// The number of reserved entries that are gone.
    pub(super) fn dead(self) -> usize {
        self.byte(24)
    }

    /// Entries from the start that are in the order of their keys.
    pub(super) fn sorted(self) -> usize {
        self.byte(32)
    }

    /// Entries that are visible.
    pub(super) fn live(self) -> usize {
        self.count().saturating_sub(self.pending() + self.dead())
    }

    /// Frozen once more. Each freeze of a leaf gives another status, so a thread that copied the
    /// leaf notices a thaw in between.
    pub(super) fn frozen(self) -> Self {
        Self((self.0 + ONE_FREEZE) & VALUE_MASK | FROZEN)
    }

    /// No longer frozen.
    pub(super) fn thawed(self) -> Self {
        Self(self.0 & !FROZEN)
    }

    /// With one more entry, not visible yet.
    pub(super) fn reserved(self) -> Self {
        Self(self.0 + ONE_RESERVED + ONE_PENDING)
    }

    /// With one pending entry fewer.
    pub(super) fn completed(self) -> Self {
        Self(self.0 - if self.pending() > 0 { ONE_PENDING } else { 0 })
    }

    /// With one entry more that is gone.
    pub(super) fn buried(self) -> Self {
        Self(self.0 + ONE_DEAD)
    }

    /// The most entries that a replacement of the leaf must hold: those that are visible, and,
    /// unless the leaf is frozen, those that may still become visible.
    pub(super) fn kept(self) -> usize {
        self.live() + if self.is_frozen() { 0 } else { self.pending() }
    }

    /// Refuses a status that no leaf can have.
    #[inline(always)]
    pub(super) fn validated(self, offset: u64) -> Result<Self> {
        // A leaf of zeros, which a lost page leaves, has no room.
        if self.capacity().wrapping_sub(1) >= ENTRIES_MAX
            || self.count() > self.capacity()
            || self.sorted() > self.count()
            || self.pending() + self.dead() > self.count()
        {
            return Err(Error::corrupt(offset, "a leaf with an impossible status"));
        }
        Ok(self)
    }
}

/// The state of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryState {
    Empty,
    Visible,
    Gone,
}

/// An entry's metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Meta(pub(super) u64);

const VERSION_SHIFT: u32 = 8;
const VERSION_MASK: u64 = (1 << 40) - 1;

impl Meta {
    /// The metadata of an entry that is free or reserved.
    pub(super) const EMPTY: Self = Self(0);

    /// Visible, with the upper three bits of a value.
    pub(super) fn visible(high: u64, version: u64) -> Self {
        Self(2 | high << 2 | (version & VERSION_MASK) << VERSION_SHIFT)
    }

    /// Gone.
    pub(super) fn gone(self) -> Self {
        Self(self.0 | 3)
    }

    #[inline(always)]
    pub(super) fn state(self) -> EntryState {
        match self.0 & 3 {
            0 => EntryState::Empty,
            2 => EntryState::Visible,
            // 3, or 1, which only damage leaves.
            _ => EntryState::Gone,
        }
    }

    /// The upper three bits of a value.
    #[inline(always)]
    pub(super) fn high(self) -> u64 {
        self.0 >> 2 & 7
    }

    /// How many updates there were.
    pub(super) fn version(self) -> u64 {
        self.0 >> VERSION_SHIFT & VERSION_MASK
    }
}

/// An inner node's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InnerHeader(pub(super) u64);

/// The bits of a header that are the check.
const HEADER_CHECK_SHIFT: u32 = 16;
const HEADER_CHECK_MASK: u64 = u32::MAX as u64;

impl InnerHeader {
    /// Without a check.
    pub(super) fn new(level: usize, separators: usize) -> Self {
        Self(level as u64 | (separators as u64) << 8)
    }

    /// With the check of the node's separators, given by their first words and their tails.
    pub(super) fn with_check(
        self,
        words: impl Iterator<Item = u64>,
        tails: impl Iterator<Item = u64>,
    ) -> Self {
        let bare = self.0 & !(HEADER_CHECK_MASK << HEADER_CHECK_SHIFT);
        let sum = WordSum::default()
            .with_word(bare)
            .with_word(sums_of_halves(words))
            .with_word(sums_of_halves(tails));
        // 0 stands for no check.
        let check = u64::from(sum.check().max(1));
        Self(bare | check << HEADER_CHECK_SHIFT)
    }

    /// Whether it has a check.
    #[inline(always)]
    pub(super) fn has_check(self) -> bool {
        self.0 >> HEADER_CHECK_SHIFT & HEADER_CHECK_MASK != 0
    }

    #[inline(always)]
    pub(super) fn level(self) -> usize {
        self.0 as usize & 0xff
    }

    /// Separators; as many as there is room for at most.
    #[inline(always)]
    pub(super) fn separators(self) -> usize {
        ((self.0 >> 8) as usize & 0xff).min(INNER_HEADER)
    }
}

/// The sum of the words at even places, and that of the others. A processor takes both at the same
/// time.
#[inline(always)]
fn sums_of_halves(mut words: impl Iterator<Item = u64>) -> u64 {
    let mut even = WordSum::default();
    let mut odd = WordSum::default();
    while let Some(word) = words.next() {
        even = even.with_word(word);
        if let Some(word) = words.next() {
            odd = odd.with_word(word);
        }
    }
    u64::from(even.check()) | u64::from(odd.check()) << 32
}

/// The status of an inner node of which another child was swapped.
pub(super) fn with_child_swapped(status: u64) -> u64 {
    (status + (1 << 8)) & VALUE_MASK
}

/// A leaf: where it lies, and its first line. Its capacity is in the status, so entries are reached
/// one by one.
#[derive(Clone, Copy)]
pub(super) struct Leaf<'g> {
    pub(super) offset: u64,
    pub(super) head: &'g [Word; 8],
}

impl<'g> Leaf<'g> {
    #[inline(always)]
    pub(super) fn at<M: Medium>(
        guard: &'g medium::MediumGuard<'_, M>,
        offset: u64,
    ) -> Result<Self> {
        Ok(Self {
            offset,
            head: guard.node::<[Word; 8]>(offset)?,
        })
    }

    /// An entry.
    #[inline(always)]
    pub(super) fn entry<M: Medium>(
        self,
        guard: &'g medium::MediumGuard<'_, M>,
        entry: usize,
    ) -> Result<&'g [Word; 3]> {
        Ok(guard.node::<[Word; 3]>(self.offset + leaf_bytes(entry) as u64)?)
    }

    /// The first `count` entries.
    #[inline(always)]
    pub(super) fn entries<M: Medium>(
        self,
        guard: &'g medium::MediumGuard<'_, M>,
        count: usize,
    ) -> Result<&'g [[Word; 3]]> {
        Ok(guard
            .words(self.offset + LINE_BYTES as u64, 3 * count)?
            .as_chunks()
            .0)
    }

    /// Notes the fingerprint of an entry that is not visible yet, or 0 for one that is gone;
    /// durable when the next name in the status is.
    #[inline(always)]
    pub(super) fn set_fingerprint<M: Medium>(
        self,
        guard: &medium::MediumGuard<'_, M>,
        entry: usize,
        fingerprint: u8,
    ) {
        let cell = &self.head[entry / 8];
        let shift = 8 * (entry % 8);
        let mut word = cell.load(guard);
        loop {
            let new = word & !(0xff << shift) | u64::from(fingerprint) << shift;
            match cell.compare_exchange(guard, word, new) {
                Ok(_) => return,
                // Another thread has set the fingerprint of another entry in this word.
                Err(found) => word = found,
            }
        }
    }

    /// The fingerprint of an entry.
    pub(super) fn fingerprint<M: Medium>(
        self,
        guard: &medium::MediumGuard<'_, M>,
        entry: usize,
    ) -> u8 {
        (self.head[entry / 8].load(guard) >> (8 * (entry % 8))) as u8
    }
}

#[cfg(test)]
mod tests;
