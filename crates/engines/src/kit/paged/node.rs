//! Nodes, entries and their order.

use crate::{Error, Result};
use medium::{Medium, Word};
use pool::Guard;

/// The most entries of a node: one line has room for this many slots and their count.
pub const ENTRIES_MAX: usize = 63;
/// The most words of a node before its entries.
pub const HEAD_WORDS_MAX: usize = 10;

/// The kind of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeKind {
    /// It holds entries of the tree.
    Leaf,
    /// It holds separators and children.
    Inner,
}

/// How large nodes of a kind are.
#[derive(Clone, Copy, Debug)]
pub struct NodeShape {
    /// Words before the entries. The last of them is the link: of a leaf the next leaf, of an inner
    /// node the first child.
    pub head_words: usize,
    /// The most entries.
    pub entries: usize,
    /// Whether a node keeps the order of its entries.
    pub is_ordered: bool,
}

impl NodeShape {
    /// Words of a node.
    #[inline(always)]
    pub(super) fn words(self, has_tails: bool) -> usize {
        self.head_words + if has_tails { 3 } else { 2 } * self.entries
    }

    /// Bytes of a node: whole lines, so that it is allocated on a line boundary.
    pub(super) fn bytes(self, has_tails: bool) -> usize {
        (8 * self.words(has_tails)).next_multiple_of(medium::LINE_BYTES)
    }
}

/// A node in the pool.
#[derive(Clone, Copy)]
pub struct PagedNode<'g> {
    /// The offset of the node in the pool.
    pub offset: u64,
    /// Its kind.
    pub kind: NodeKind,
    /// The words before the entries; the last is the link.
    pub head: &'g [Word],
    /// Its entries, live or not: key word and value, or the separator's word and the child behind
    /// it.
    pub entries: &'g [[Word; 2]],
    /// In an inner node whose keys can tie: records with the separators' keys, 0 for a separator
    /// whose word is enough.
    pub tails: &'g [Word],
}

impl<'g> PagedNode<'g> {
    #[inline(always)]
    pub(super) fn at<M: Medium>(
        guard: &'g medium::MediumGuard<'_, M>,
        offset: u64,
        kind: NodeKind,
        shape: NodeShape,
        has_tails: bool,
    ) -> Result<Self> {
        let words = guard.words(offset, shape.words(has_tails))?;
        let (head, rest) = words.split_at(shape.head_words);
        let (entries, tails) = rest.split_at(2 * shape.entries);
        Ok(Self {
            offset,
            kind,
            head,
            entries: entries.as_chunks().0,
            tails,
        })
    }

    /// The word that links it.
    #[inline(always)]
    pub fn link(&self) -> &'g Word {
        &self.head[self.head.len() - 1]
    }

    /// An entry.
    #[inline(always)]
    pub fn item<M: Medium>(&self, guard: &Guard<'_, M>, slot: usize) -> Item {
        let [word, value] = &self.entries[slot];
        let tail = self.tails.get(slot).map_or(0, |tail| tail.load(guard));
        Item {
            word: word.load(guard),
            value: value.load(guard),
            tail,
        }
    }

    /// Writes an entry that is not live.
    #[inline(always)]
    pub(super) fn store_item<M: Medium>(&self, guard: &Guard<'_, M>, slot: usize, item: Item) {
        self.entries[slot][0].store(guard, item.word);
        self.entries[slot][1].store(guard, item.value);
        if let Some(tail) = self.tails.get(slot) {
            tail.store(guard, item.tail);
        }
    }

    /// Writes and flushes an entry that is not live.
    #[inline(always)]
    pub fn write_item<M: Medium>(&self, guard: &Guard<'_, M>, slot: usize, item: Item) {
        self.store_item(guard, slot, item);
        guard.flush(&self.entries[slot]);
        if let Some(tail) = self.tails.get(slot) {
            guard.flush(tail);
        }
    }
}

/// An entry of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    /// The first word of its key.
    pub word: u64,
    /// Its value, or the child that covers the keys from the separator on.
    pub value: u64,
    /// For a separator, the record with its key; 0 if the separator is the smallest key that has
    /// this word.
    pub tail: u64,
}

/// The slots of the live entries, in the order of their keys: byte 0 is their count, the bytes
/// behind it are slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order(pub [u64; 8]);

impl Order {
    /// These slots.
    pub fn of(slots: impl IntoIterator<Item = usize>) -> Self {
        let mut bytes = [0; 64];
        let mut count = 0;
        for (byte, slot) in bytes[1..].iter_mut().zip(slots) {
            *byte = slot as u8;
            count += 1;
        }
        bytes[0] = count;
        let words = bytes.as_chunks().0;
        Self(std::array::from_fn(|index| {
            u64::from_le_bytes(words[index])
        }))
    }

    /// The number of slots.
    #[inline(always)]
    pub fn count(&self) -> usize {
        (self.0[0] & 0xff) as usize
    }

    /// The slot at a position.
    #[inline(always)]
    pub fn slot(&self, position: usize) -> usize {
        let byte = 1 + position;
        (self.0[byte / 8 % 8] >> (8 * (byte % 8)) & 0xff) as usize
    }

    /// All slots. A damaged count is limited to the room of the line.
    pub fn slots(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.count().min(ENTRIES_MAX)).map(|position| self.slot(position))
    }

    /// Puts a slot at a position. The order is not full.
    #[inline(always)]
    pub fn insert(&mut self, position: usize, slot: usize) {
        let first = (1 + position) / 8;
        let shift = 8 * ((1 + position) % 8);
        let mut carried = slot as u64;
        let mut kept = (1 << shift) - 1;
        let mut at = shift;
        for word in &mut self.0[first..] {
            let old = *word;
            *word = old & kept | (old & !kept) << 8 | carried << at;
            carried = old >> 56;
            kept = 0;
            at = 0;
        }
        self.0[0] += 1;
    }

    /// Takes out the slot at a position.
    #[inline(always)]
    pub fn remove(&mut self, position: usize) {
        let first = (1 + position) / 8;
        let shift = 8 * ((1 + position) % 8);
        for index in first..8 {
            let kept = if index == first { (1 << shift) - 1 } else { 0 };
            let next = self.0.get(index + 1).map_or(0, |word| word << 56);
            self.0[index] = self.0[index] & kept | (self.0[index] >> 8 | next) & !kept;
        }
        self.0[0] -= 1;
    }

    /// One bit for each slot, and the bits of all slots together.
    #[inline(always)]
    fn listed(&self) -> (u64, usize) {
        self.slots().fold((0, 0), |(live, all), slot| {
            (live | 1 << (slot & 63), all | slot)
        })
    }

    /// One bit for each slot.
    pub fn live(&self) -> u64 {
        self.listed().0
    }

    /// Refuses an order that does not list exactly these entries.
    #[inline]
    pub(super) fn validated(self, live: u64, offset: u64) -> Result<Self> {
        let (listed, all) = self.listed();
        if self.count() != live.count_ones() as usize || all > ENTRIES_MAX || listed != live {
            return Err(Error::corrupt(
                offset,
                "a slot array that does not list the entries of its node",
            ));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
