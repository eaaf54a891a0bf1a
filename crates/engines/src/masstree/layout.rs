//! The layout of a tree in the pool, line by line.
//!
//! ```text
//! border node, 320 bytes                           interior node, 312 bytes
//!   0  link, link log     the allocator's            0  link, link log
//!  16  version            volatile                  16  version
//!  24  epoch word         InCLLp                    24  epoch word
//!  32  permutation log    InCLLp                    32  shape: 4 bits count, 4 bits for each separator's class
//!  40  permutation                                  40  -
//!  48  classes            4 bits for each slot      48  -
//!  56  listed             volatile                  56  listed
//!  64  slices 0..14                                 64  slices 0..14
//! 184  -                                           184  first child
//! 192  value log, low     InCLL1                   192  children 1..15
//! 200  values 0..6
//! 256  values 7..13
//! 312  value log, high    InCLL2; value 14 of a tree without logs
//!
//! and in a tree of words, 576 bytes:
//! 320  cells              two for each slot
//! ```
//!
//! A log lies in the line of the words that it logs, so that it reaches the medium before their
//! changes. A pointer to an interior node has bit 0 set; nodes and records begin at multiples of
//! 16. A pointer to a cell is `16 * (number + 1)`, with cells `2 * slot` and `2 * slot + 1` for a
//! slot: no object lies so low (`cells`). An epoch word has 48 bits of epoch, 13 bits of the stamp
//! of the execution that wrote it, and three flags.
//!
//! ```text
//! record                                           external log entry
//!   0  link, link log                                0  epoch, target, sum
//!  16  value length (28), key length (20), check    64  the node
//!  24  value, then the whole key if it is longer than a slice
//! ```

use std::ops::Range;

use medium::{Medium, VolatileWord, Word, node};
use pool::{Guard, TreeRoot};

pub(super) use crate::kit::{checked, unchecked};
use crate::{Error, Result};

/// Classes of objects in the durable allocator.
pub(super) const CLASSES: usize = 48;
/// The fewest shards of a tree.
pub(super) const SHARDS_MIN: usize = 2;
/// The most.
pub(super) const SHARDS_MAX: usize = 65;
/// The most slots of a border node with in-line logs, and of separators of an interior one.
pub(super) const WIDTH: usize = 14;
/// The most slots of any border node: without logs there is one more.
pub(super) const WIDTH_MAX: usize = 15;

/// Flag of a border node's epoch word: it was written by a first touch, so the medium may have an
/// older one. Until the new one is durable, no value log may be written.
pub(super) const TOUCHED: u64 = 1 << 61;
/// Flag of a node's epoch word: a key was removed in this epoch, so inserts need the external log.
pub(super) const REMOVED: u64 = 1 << 62;
/// Flag of a node's epoch word: the node is in the external log, or new, in this epoch.
pub(super) const LOGGED: u64 = 1 << 63;
/// The epoch in a node's epoch word.
pub(super) const EPOCH_MASK: u64 = (1 << 48) - 1;
/// The stamp in a node's epoch word.
const STAMP_MASK: u64 = !EPOCH_MASK & !TOUCHED & !REMOVED & !LOGGED;
/// Bit of a pointer to an interior node.
pub(super) const INTERIOR: u64 = 1;
/// The offset in a pointer.
pub(super) const OFFSET_MASK: u64 = (1 << 48) - 16;

node! {
    /// Values with their two in-line logs.
    #[repr(align(64))]
    pub(super) struct LoggedValues {
        pub(super) log_low: Word,
        pub(super) words: [Word; WIDTH],
        pub(super) log_high: Word,
    }
}

node! {
    /// A border node.
    pub(super) struct Border {
        pub(super) link: [Word; 2],
        pub(super) version: VolatileWord,
        pub(super) epoch: Word,
        pub(super) permutation_log: Word,
        pub(super) permutation: Word,
        pub(super) classes: Word,
        pub(super) listed: VolatileWord,
        pub(super) slices: [Word; WIDTH_MAX],
        pub(super) values: LoggedValues,
    }
}

node! {
    /// A border node of a tree of words, with the cells of its values.
    pub(super) struct WordBorder {
        pub(super) border: Border,
        pub(super) cells: [[Word; 2]; WIDTH_MAX],
    }
}

node! {
    /// An interior node.
    pub(super) struct Interior {
        pub(super) link: [Word; 2],
        pub(super) version: VolatileWord,
        pub(super) epoch: Word,
        pub(super) shape: Word,
        spare: [Word; 2],
        pub(super) listed: VolatileWord,
        pub(super) slices: [Word; WIDTH_MAX],
        pub(super) first: Word,
        pub(super) rest: [Word; WIDTH_MAX],
    }
}

node! {
    /// A word with its in-line log.
    pub(super) struct LoggedWord {
        pub(super) epoch: Word,
        pub(super) old: Word,
        pub(super) value: Word,
    }
}

node! {
    /// The free objects of one class, those freed in an epoch behind those that were there when it
    /// began, and where fresh ones begin; one line.
    pub(super) struct Queue {
        pub(super) epoch: Word,
        pub(super) head: Word,
        pub(super) head_old: Word,
        pub(super) tail: Word,
        pub(super) tail_old: Word,
        pub(super) fresh: Word,
        pub(super) fresh_old: Word,
        spare: Word,
    }
}

node! {
    /// Where everything begins; the root table leads here. The areas of the shards follow.
    pub(super) struct Anchor {
        /// The root of the first layer.
        pub(super) root: LoggedWord,
        /// The last run that was taken from the pool.
        pub(super) runs: LoggedWord,
        /// How many shards there are, with its check. Twice.
        pub(super) shards: [Word; 2],
        /// The external log was restored for all failed epochs before this one, with its check.
        /// Twice.
        pub(super) restored: [Word; 2],
        /// No writes are left of failed epochs before this one, with its check. Twice.
        pub(super) swept: [Word; 2],
        spare: [Word; 4],
    }
}

node! {
    /// The area of a shard in the pool.
    #[repr(align(64))]
    pub(super) struct ShardArea {
        /// The first segment of the external log, with its check. Twice.
        pub(super) log: [Word; 2],
        spare: [Word; 6],
        pub(super) queues: [Queue; CLASSES],
    }
}

/// The value of two words that hold it with its check: one of them may be damaged. `None` if they
/// hold none. If a crash came between the two, the greater value.
///
/// # Errors
/// `error` if both are damaged.
pub(super) fn load_twice<M: Medium>(
    guard: &Guard<'_, M>,
    words: [&Word; 2],
    error: impl FnOnce() -> Error,
) -> Result<Option<u64>> {
    let words = words.map(|word| word.load(guard));
    let value = words.iter().filter_map(|word| unchecked(*word)).max();
    if value.is_some() || words.contains(&0) {
        Ok(value)
    } else {
        Err(error())
    }
}

/// Stores a word and its second copy, which lie in one line, and flushes them.
#[track_caller]
pub(super) fn publish_twice<M: Medium>(guard: &Guard<'_, M>, words: &[Word; 2], value: u64) {
    words[1].store(guard, checked(value));
    words[0].publish(guard, checked(value));
}

/// Bytes of an anchor with the areas of its shards.
pub(super) const fn anchor_bytes(shards: usize) -> usize {
    size_of::<Anchor>() + shards * size_of::<ShardArea>()
}

/// Where the area of a shard lies.
#[inline(always)]
pub(super) const fn shard_area(anchor: u64, shard: usize) -> u64 {
    anchor + anchor_bytes(shard) as u64
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Border, epoch) == 24 && offset_of!(Border, permutation_log) == 32);
    assert!(offset_of!(Border, permutation) == 40 && offset_of!(Border, listed) == 56);
    assert!(offset_of!(Border, slices) == 64 && offset_of!(Border, values) == 192);
    assert!(offset_of!(LoggedValues, words) == 8 && offset_of!(LoggedValues, log_high) == 120);
    // Each log lies in the line of its values.
    assert!(
        8 + 8 * LOW_SLOTS.end <= medium::LINE_BYTES
            && 8 + 8 * HIGH_SLOTS.start >= medium::LINE_BYTES
    );
    assert!(size_of::<Border>() == 320 && align_of::<Border>() == 64);
    assert!(offset_of!(Interior, epoch) == 24 && offset_of!(Interior, listed) == 56);
    assert!(offset_of!(Interior, version) == 16 && offset_of!(Border, version) == 16);
    assert!(offset_of!(Interior, slices) == 64 && offset_of!(Interior, first) == 184);
    assert!(offset_of!(WordBorder, cells) == 320 && size_of::<WordBorder>() == 576);
    assert!(size_of::<Queue>() == 64 && offset_of!(ShardArea, queues) == 64);
    assert!(size_of::<ShardArea>().is_multiple_of(64) && size_of::<Anchor>() == 128);
};

/// Where a node has its version.
pub(super) const VERSION: u64 = std::mem::offset_of!(Border, version) as u64;
/// Where a node notes which of its lines are listed.
pub(super) const LISTED: u64 = std::mem::offset_of!(Border, listed) as u64;

/// The slots that a border node of `width` uses. A narrow one has them on both sides of the line
/// between the values, so that it uses both value logs.
pub(super) fn slots(width: usize) -> Range<usize> {
    if width <= HIGH_SLOTS.start {
        HIGH_SLOTS.start + 1 - width..HIGH_SLOTS.start + 1
    } else {
        0..width
    }
}

/// Words of a node, each a bit.
fn words(words: Range<usize>) -> u128 {
    words.fold(0, |set, word| set | 1 << word)
}

/// The words that the external log keeps of a border node, each a bit: those in use, without the
/// allocator's link and the volatile words.
pub(super) fn border_words_logged(width: usize, are_words: bool) -> u128 {
    const SLICES: usize = std::mem::offset_of!(Border, slices) / 8;
    const VALUES: usize = std::mem::offset_of!(Border, values) / 8;
    const CELLS: usize = std::mem::offset_of!(WordBorder, cells) / 8;
    let Range { start, end } = slots(width);
    let values = words(VALUES..VALUES + 1)
        | words(VALUES + 1 + start..VALUES + 1 + end)
        | words(VALUES + 1 + WIDTH..VALUES + 2 + WIDTH);
    let cells = if are_words {
        words(CELLS + 2 * start..CELLS + 2 * end)
    } else {
        0
    };
    words(3..7) | words(SLICES + start..SLICES + end) | values | cells
}

/// The words that the external log keeps of an interior node: see [`border_words_logged`].
pub(super) fn interior_words_logged(width: usize) -> u128 {
    const SLICES: usize = std::mem::offset_of!(Interior, slices) / 8;
    const CHILDREN: usize = std::mem::offset_of!(Interior, first) / 8;
    words(3..5) | words(SLICES..SLICES + width) | words(CHILDREN..CHILDREN + width + 1)
}

/// Bytes of a border node, in a tree of words or of records; an interior node is no larger.
pub(super) const fn border_bytes(are_words: bool) -> usize {
    if are_words {
        size_of::<WordBorder>()
    } else {
        size_of::<Border>()
    }
}

/// Bytes of an interior node as it is logged and flushed: whole lines.
pub(super) const fn interior_bytes() -> usize {
    size_of::<Interior>().next_multiple_of(medium::LINE_BYTES)
}

/// The first line of a node, in a set of lines.
pub(super) const HEADER_LINE: u64 = 1;

/// The line of a word of a border node, as a set.
#[inline(always)]
pub(super) fn line_of(node: &Border, word: &Word) -> u64 {
    let offset = std::ptr::from_ref(word)
        .addr()
        .wrapping_sub(std::ptr::from_ref(node).addr());
    1 << ((offset / medium::LINE_BYTES) & 15)
}

/// The stamp in the epoch words of nodes that are touched in the execution that begins with this
/// epoch. So an epoch word that was damaged before is not taken for one of this execution.
pub(super) fn stamp(first: u64) -> u64 {
    first.wrapping_mul(0x9e37_79b9_7f4a_7c15) & STAMP_MASK
}

/// The epoch in a node's epoch word, with the stamp.
#[inline(always)]
pub(super) fn stamped_epoch(state: u64) -> u64 {
    state & (EPOCH_MASK | STAMP_MASK)
}

/// The nibble of a slot.
#[inline(always)]
pub(super) fn nibble(word: u64, slot: usize) -> u8 {
    (word >> (4 * slot) & 15) as u8
}

/// The word with another nibble.
pub(super) fn with_nibble(word: u64, slot: usize, value: u8) -> u64 {
    word & !(15 << (4 * slot)) | u64::from(value) << (4 * slot)
}

/// The slots whose values lie in the line of the low value log.
pub(super) const LOW_SLOTS: Range<usize> = 0..WIDTH / 2;
/// The slots whose values lie in the line of the high value log.
pub(super) const HIGH_SLOTS: Range<usize> = WIDTH / 2..WIDTH;

impl LoggedWord {
    /// Sets the word; the old one is kept if it is of an earlier epoch. The caller serialises, and
    /// lists the line.
    pub(super) fn set<M: Medium>(&self, guard: &Guard<'_, M>, epoch: u64, value: u64) {
        if self.epoch.load(guard) != epoch {
            // These stores go to one line, so they become durable in this order.
            self.old.store(guard, self.value.load(guard));
            self.epoch.store(guard, epoch);
        }
        self.value.store(guard, value);
    }

    /// Restores the word that the last completed epoch had, after its last epoch has failed. The
    /// epoch in the log stays. Until the failed epoch is forgotten, an open after a further crash
    /// restores the same again.
    pub(super) fn restore<M: Medium>(&self, guard: &Guard<'_, M>) {
        self.value.store(guard, self.old.load(guard));
    }
}

impl LoggedValues {
    /// The value of a slot. A tree without logs has one slot more, in the place of the high log.
    #[inline(always)]
    pub(super) fn value(&self, slot: usize) -> &Word {
        self.words.get(slot).unwrap_or(&self.log_high)
    }

    /// The log in the line of a slot's value.
    pub(super) fn log(&self, slot: usize) -> &Word {
        if LOW_SLOTS.contains(&slot) {
            &self.log_low
        } else {
            &self.log_high
        }
    }
}

impl Interior {
    /// How many separators a shape word says that there are; at most [`WIDTH_MAX`], also in a
    /// damaged word.
    #[inline(always)]
    pub(super) fn separators(shape: u64) -> usize {
        ((shape & 15) as usize).min(WIDTH_MAX)
    }

    /// The pointer to a child.
    #[inline(always)]
    pub(super) fn child(&self, position: usize) -> &Word {
        if position == 0 {
            &self.first
        } else {
            &self.rest[position - 1]
        }
    }
}

/// The engine's number in the root table.
pub(super) const ENGINE_ID: u16 = 5;
/// Root word 0: the anchor.
pub(super) const ROOT_ANCHOR: usize = 0;
/// Root word 1: the width of nodes.
pub(super) const ROOT_WIDTH: usize = 1;
/// Root word 2: whether the tree is transient.
pub(super) const ROOT_TRANSIENT: usize = 2;

/// Where a tree in a pool has its anchor, if it is one of this engine and not transient.
pub(super) fn durable_anchor_of(root: &TreeRoot) -> Option<u64> {
    (root.engine == ENGINE_ID && root.words[ROOT_TRANSIENT] == 0).then_some(root.words[ROOT_ANCHOR])
}
