//! The node: one line.
//!
//! ```text
//! node, 64 bytes; a twin line's second copy lies in the 64 bytes before
//!   0  bit 0 leaf | bits 1..4 status, in the log | 6..48 parent's offset | 48..62 check | 62, 63 the medium's
//!   8  five pointers of 48 bits, one a word: children; in a leaf four records, and in the fifth the next leaf
//!  48  four IDs of 30 bits, two a word: the keys of the entries of a leaf, or the separators of an inner node
//! ```
//!
//! IDs come first to last without a gap; 0 is no ID. A node has as many keys as it has IDs. An
//! inner node has one child more.
//!
//! The *check* is the exclusive or of the words, each rotated by an amount of its own, and of the
//! node's offset, folded to 14 bits. It detects every change of a single byte, and all but one of
//! 16,384 other damages. It is part of the line, so it costs no persist.

use medium::{Line, LineValue, Medium, TAG_MASK, node};
use pool::Guard;

use crate::{Error, Result};

/// The most IDs of a node.
pub(super) const IDS_MAX: usize = 4;
/// The most pointers of a node.
pub(super) const POINTERS_MAX: usize = IDS_MAX + 1;
/// Two leaves are merged if they have this many keys together, or fewer, or if one of them has
/// none.
pub(super) const MERGED_MAX: usize = 2;
/// The most keys of a leaf between two operations: a fourth one splits it.
pub(super) const LEAF_ENTRIES: usize = IDS_MAX - 1;
/// Bits of an ID: two of them, and the medium's two bits, fill a word.
pub(super) const ID_BITS: u32 = 30;

/// The pointer of a leaf that leads to the next leaf.
const NEXT: usize = IDS_MAX;
const LEAF: u64 = 1;
const STATUS_SHIFT: u32 = 1;
const STATUS_MASK: u64 = 7;
const OFFSET_MASK: u64 = (1 << 48) - 1;
const PARENT_MASK: u64 = OFFSET_MASK & !0x3f;
const CHECK_SHIFT: u32 = 48;
const CHECK_MASK: u64 = 0x3fff;
const ID_MASK: u64 = (1 << ID_BITS) - 1;
/// The first word of IDs.
const IDS: usize = 1 + POINTERS_MAX;

node! {
    /// A node, or the log.
    pub(super) struct NodeLine {
        pub(super) line: Line,
    }
}

const _: () = {
    assert!(size_of::<NodeLine>() == 64 && align_of::<NodeLine>() == 64);
    assert!(IDS + IDS_MAX / 2 == 8);
    assert!(2 * ID_BITS <= TAG_MASK.trailing_zeros());
    assert!(CHECK_SHIFT + CHECK_MASK.count_ones() == TAG_MASK.trailing_zeros());
};

/// A node as it was loaded, with the medium's tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LoadedNode(pub(super) LineValue);

impl LoadedNode {
    /// The node at an offset. Not verified.
    pub(super) fn load<M: Medium>(guard: &Guard<'_, M>, offset: u64) -> Result<Self> {
        let found = guard.node::<NodeLine>(offset)?.line.load(guard);
        Ok(Self(found.map_err(Error::torn(offset))?))
    }
    /// Reads and verifies a node that no writer is at work on. Of a twin line the older copy, too:
    /// if the newer one was lost, the older one would count. The second copy of a new node is
    /// empty.
    pub(super) fn load_sound<M: Medium>(guard: &Guard<'_, M>, offset: u64) -> Result<Self> {
        let line = &guard.node::<NodeLine>(offset)?.line;
        let found = line.inspect(guard).map_err(Error::torn(offset))?;
        let is_sound = |(number, copy)| {
            number == 1 && copy == LineValue::ZERO || LoadedNode(copy).validated(offset).is_ok()
        };
        if !found.is_whole || !line.copies(guard).enumerate().all(is_sound) {
            return Err(Error::corrupt(offset, "a node that fails its check"));
        }
        Ok(LoadedNode(found.value))
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.0.0[0] & LEAF != 0
    }

    /// The status of the log, in the log's line.
    pub(super) fn status(&self) -> u64 {
        self.0.0[0] >> STATUS_SHIFT & STATUS_MASK
    }

    pub(super) fn parent(&self) -> u64 {
        self.0.0[0] & PARENT_MASK
    }

    /// An ID; 0 behind the last one.
    pub(super) fn id(&self, position: usize) -> u32 {
        (self.0.0[IDS + position / 2] >> (ID_BITS * (position as u32 % 2)) & ID_MASK) as u32
    }

    /// How many IDs it has.
    pub(super) fn count(&self) -> usize {
        (0..IDS_MAX)
            .map(|position| usize::from(self.id(position) != 0))
            .sum()
    }
    pub(super) fn pointer(&self, position: usize) -> u64 {
        self.0.0[1 + position] & OFFSET_MASK
    }

    /// The children of an inner node, the records of a leaf.
    pub(super) fn pointers(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + '_ {
        (0..self.count() + usize::from(!self.is_leaf())).map(|position| self.pointer(position))
    }

    /// The position of a child of an inner node.
    pub(super) fn position_of(&self, child: u64) -> Option<usize> {
        if self.is_leaf() {
            return None;
        }
        self.pointers().position(|pointer| pointer == child)
    }

    /// The leaf behind a leaf; 0 behind the last one.
    pub(super) fn next(&self) -> u64 {
        self.pointer(NEXT)
    }

    fn sum(words: &[u64; 8], offset: u64) -> u64 {
        let rotated = words
            .iter()
            .zip(0..)
            .map(|(word, index)| (word & !TAG_MASK).rotate_left(7 * index));
        // The offset is multiplied, so that a swap of two lines is noticed even if their offsets
        // differ in few bits.
        let place = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let sum = rotated.fold(place ^ 0x35b9, |sum, word| sum ^ word);
        (0..5).fold(0, |folded, part| folded ^ sum >> (14 * part)) & CHECK_MASK
    }

    /// The node itself. Refuses a line that is not the node of this offset, or that no node can
    /// have.
    pub(super) fn validated(self, offset: u64) -> Result<Self> {
        let mut words = self.0.0;
        words[0] &= !(CHECK_MASK << CHECK_SHIFT);
        if Self::sum(&words, offset) != self.0.0[0] >> CHECK_SHIFT & CHECK_MASK {
            return Err(Error::corrupt(offset, "a node that fails its check"));
        }
        let has_gap = (self.count()..IDS_MAX).any(|position| self.id(position) != 0);
        if self.status() == 0 && (has_gap || self.pointers().any(|pointer| pointer == 0)) {
            return Err(Error::corrupt(offset, "a node with a gap"));
        }
        Ok(self)
    }
}

/// A full node in two parts.
pub(super) struct Halves {
    pub(super) left: NodeContent,
    /// The separator between them.
    pub(super) separator: u32,
    pub(super) right: NodeContent,
}

/// The content that a node is to get.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeContent {
    pub(super) is_leaf: bool,
    pub(super) status: u64,
    pub(super) count: usize,
    pub(super) ids: [u32; IDS_MAX],
    pub(super) pointers: [u64; POINTERS_MAX],
}

impl NodeContent {
    pub(super) fn of(node: &LoadedNode) -> Self {
        Self {
            is_leaf: node.is_leaf(),
            status: node.status(),
            count: node.count(),
            ids: std::array::from_fn(|position| node.id(position)),
            pointers: std::array::from_fn(|position| node.pointer(position)),
        }
    }

    /// A leaf without entries.
    pub(super) fn empty_leaf() -> Self {
        Self {
            is_leaf: true,
            ..Self::default()
        }
    }

    /// An inner node with two children.
    pub(super) fn of_two(left: u64, separator: u32, right: u64) -> Self {
        let mut content = Self {
            count: 1,
            ..Self::default()
        };
        content.ids[0] = separator;
        content.pointers[0] = left;
        content.pointers[1] = right;
        content
    }

    /// The node as it is to be stored at an offset.
    pub(super) fn sealed(&self, offset: u64, parent: u64) -> LoadedNode {
        let mut words = [0; 8];
        words[0] = u64::from(self.is_leaf) | self.status << STATUS_SHIFT | parent & PARENT_MASK;
        words[1..IDS].copy_from_slice(&self.pointers);
        for (word, ids) in words[IDS..].iter_mut().zip(self.ids.chunks_exact(2)) {
            *word = u64::from(ids[0]) | u64::from(ids[1]) << ID_BITS;
        }
        words[0] |= LoadedNode::sum(&words, offset) << CHECK_SHIFT;
        LoadedNode(LineValue(words))
    }

    pub(super) fn with_next(mut self, next: u64) -> Self {
        self.pointers[NEXT] = next;
        self
    }

    /// Adds an entry to a leaf that has room.
    pub(super) fn insert_entry(&mut self, position: usize, id: u32, record: u64) {
        self.ids.copy_within(position..IDS_MAX - 1, position + 1);
        self.pointers
            .copy_within(position..IDS_MAX - 1, position + 1);
        self.ids[position] = id;
        self.pointers[position] = record;
        self.count += 1;
    }

    /// Removes an entry of a leaf.
    pub(super) fn remove_entry(&mut self, position: usize) {
        self.ids.copy_within(position + 1.., position);
        self.pointers.copy_within(position + 1..IDS_MAX, position);
        self.ids[IDS_MAX - 1] = 0;
        self.pointers[IDS_MAX - 1] = 0;
        self.count -= 1;
    }

    /// Adds a child to an inner node that has room, with the separator before it. The first child
    /// is never added.
    pub(super) fn insert_child(&mut self, position: usize, separator: u32, child: u64) {
        self.ids.copy_within(position - 1..IDS_MAX - 1, position);
        self.pointers
            .copy_within(position..POINTERS_MAX - 1, position + 1);
        self.ids[position - 1] = separator;
        self.pointers[position] = child;
        self.count += 1;
    }

    /// Removes a child of an inner node, with the separator before it, or for the first child the
    /// one behind.
    pub(super) fn remove_child(&mut self, position: usize) {
        self.ids.copy_within(position.max(1).., position.max(1) - 1);
        self.pointers.copy_within(position + 1.., position);
        self.ids[IDS_MAX - 1] = 0;
        self.pointers[POINTERS_MAX - 1] = 0;
        self.count -= 1;
    }

    /// A full node in two parts, and the separator between them: two and two keys of a leaf, three
    /// and two children.
    pub(super) fn split(&self) -> Halves {
        let mut left = *self;
        let mut right = *self;
        if self.is_leaf {
            let half = self.count / 2;
            (half..self.count)
                .rev()
                .for_each(|position| left.remove_entry(position));
            (0..half).for_each(|_| right.remove_entry(0));
            return Halves {
                separator: right.ids[0],
                left,
                right,
            };
        }
        let half = self.count / 2 + 1;
        (half..=self.count)
            .rev()
            .for_each(|position| left.remove_child(position));
        (0..half).for_each(|_| right.remove_child(0));
        Halves {
            left,
            separator: self.ids[half - 1],
            right,
        }
    }

    /// A leaf without an entry.
    pub(super) fn without(mut self, id: u32) -> Self {
        if let Some(position) = (0..self.count).find(|position| self.ids[*position] == id) {
            self.remove_entry(position);
        }
        self
    }

    /// An inner node with another separator in the place of one, if it has that.
    pub(super) fn with_separator(mut self, old: u32, new: u32) -> Self {
        self.ids[..self.count]
            .iter_mut()
            .filter(|id| **id == old)
            .for_each(|id| *id = new);
        self
    }

    /// A node and the next one, which together have at most four keys, or five children with the
    /// separator between them.
    pub(super) fn joined(mut self, separator: u32, right: &Self) -> Self {
        for position in 0..right.count + usize::from(!self.is_leaf) {
            let pointer = right.pointers[position];
            if self.is_leaf {
                self.insert_entry(self.count, right.ids[position], pointer);
            } else {
                let before = position
                    .checked_sub(1)
                    .map_or(separator, |before| right.ids[before]);
                self.insert_child(self.count + 1, before, pointer);
            }
        }
        if self.is_leaf {
            self.with_next(right.pointers[NEXT])
        } else {
            self
        }
    }
}

#[cfg(test)]
mod tests;
