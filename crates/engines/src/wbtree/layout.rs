//! How nodes lie in the pool: three designs, and nodes of any size.
//!
//! ```text
//! slot+bitmap node with room for n entries, 80 + 16 n bytes (1,024 for 59)
//!   0  slot array  byte 0: how many entries live; bytes 1 to 59: their slots in the order of their keys; 60 to 63: none
//!  64  bitmap      bit 0: the slot array is valid; bits 1 to 59: entry 0 to 58 lives; bits 60 to 63: check of the others
//!  72  link        of a leaf the next leaf, of an inner node the first child
//!  80  entries     key word, value or child
//!
//! bitmap-only leaf with room for n entries, 16 + 16 n bytes (1,024 for 63)
//!   0  bitmap      bits 0 to 62: the entry lives
//!   8  link
//!  16  entries
//!
//! slot-only node with room for n entries, 16 + 16 n bytes (64 for 3, 128 for 7)
//!   0  slot array  byte 0: how many entries live; bytes 1 to 7: their slots in the order of their keys
//!   8  link
//!  16  entries
//!
//! Behind the entries of inner nodes whose keys can tie: n tails of 8 bytes
//! ```
//!
//! Nodes begin at lines, so an entry lies in one line, and so does a slot array.

use crate::{ErrorKind, Result};
use medium::Medium;
use pool::Guard;

use super::entry::{DESIGN, LEAF_ENTRIES};
use crate::engine::Settings;
use crate::kit::paged::{Format, HEAD_WORDS_MAX, Item, NodeKind, NodeShape, Order, PagedNode};

/// Which of the paper's nodes a tree has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Design {
    /// Slot array and bitmap in all nodes.
    SlotBitmap,
    /// Leaves with a bitmap alone; inner nodes with both.
    BitmapLeaves,
    /// Slot arrays alone, in all nodes.
    SlotOnly,
}

/// The designs, as roots and settings number them, with their names and most entries.
pub(super) const DESIGNS: [(Design, &str, usize); 3] = [
    (Design::SlotBitmap, "slot+bitmap", 59),
    (Design::BitmapLeaves, "bitmap-only", 63),
    (Design::SlotOnly, "slot-only", 7),
];
/// The fewest entries of a node: an inner node that is split leaves two children on either side.
pub(super) const ENTRIES_MIN: usize = 3;

/// How a node records its entries and their order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    SlotBitmap,
    Bitmap,
    Slots,
}

/// The word of a slot+bitmap node that is the bitmap.
pub(super) const BITMAP: usize = 8;
/// The bit that says that the slot array is valid.
pub(super) const VALID: u64 = 1;
/// The bits of the live entries.
const LIVE: u64 = (1 << 60) - 2;
const CHECK_SHIFT: u32 = 60;

const _: () = {
    assert!(8 * (BITMAP + 2) + 16 * DESIGNS[0].2 == 1024 && BITMAP + 2 == HEAD_WORDS_MAX);
    assert!(16 + 16 * DESIGNS[1].2 == 1024 && 16 + 16 * DESIGNS[2].2 == 128);
    assert!(16 + 16 * ENTRIES_MIN == 64);
    assert!(LIVE.count_ones() as usize == DESIGNS[0].2);
};

/// For each of the four check bits, the bits of a bitmap whose parity it is. Bit i has the number i
/// mod 11 + 1: neither a single bit nor a whole byte can be inverted without a change of the check.
const PARITIES: [u64; 4] = {
    let mut parities = [0; 4];
    let mut bit = 0;
    while bit < 60 {
        let mut check = 0;
        while check < 4 {
            parities[check] |= ((bit % 11 + 1) >> check & 1) << bit;
            check += 1;
        }
        bit += 1;
    }
    parities
};

/// A bitmap with its check.
#[inline(always)]
pub(super) fn sealed(bitmap: u64) -> u64 {
    let bits = bitmap & (LIVE | VALID);
    let check = |index: usize| u64::from((bits & PARITIES[index]).count_ones() & 1) << index;
    bits | (check(0) | check(1) | check(2) | check(3)) << CHECK_SHIFT
}

/// The bits of a slot+bitmap node's bitmap for entries.
#[inline(always)]
pub(super) fn bits_of(live: u64) -> u64 {
    live << 1
}

/// The nodes of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    design: Design,
    leaf_entries: usize,
}

impl Layout {
    /// Nodes of a design whose leaves have `leaf_entries` entries.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] if the design has no such nodes.
    pub fn new(design: Design, leaf_entries: usize) -> Result<Self> {
        let (_, name, most) = DESIGNS[design as usize];
        if !(ENTRIES_MIN..=most).contains(&leaf_entries) {
            let what = format!(
                "wbtree: {name} nodes have {ENTRIES_MIN} to {most} entries, not {leaf_entries}"
            );
            return Err(ErrorKind::Setting { what }.into());
        }
        Ok(Self {
            design,
            leaf_entries,
        })
    }

    #[inline(always)]
    pub(super) fn style(self, kind: NodeKind) -> Style {
        match (self.design, kind) {
            (Design::SlotOnly, _) => Style::Slots,
            (Design::BitmapLeaves, NodeKind::Leaf) => Style::Bitmap,
            _ => Style::SlotBitmap,
        }
    }
}

/// The entries that a slot array of one word lists.
#[inline(always)]
fn live_in(word: u64) -> u64 {
    let count = (word & 0xff).min(7);
    (1..=count).fold(0, |live, byte| live | 1 << (word >> (8 * byte) & 7))
}

impl Format for Layout {
    const ENGINE: (u16, &'static str) = (super::entry::ID, super::entry::NAME);

    fn of_root(word: u64) -> Option<Self> {
        let (design, ..) = *DESIGNS.get((word >> 8) as usize)?;
        Self::new(design, (word & 0xff) as usize).ok()
    }

    fn to_root(self) -> u64 {
        self.leaf_entries as u64 | (self.design as u64) << 8
    }

    fn of_settings(settings: &Settings) -> Result<Self> {
        let (design, _, most) = DESIGNS[settings.get(DESIGN).unwrap_or(0) as usize];
        Self::new(
            design,
            settings
                .get(LEAF_ENTRIES)
                .map_or(most, |entries| entries as usize),
        )
    }

    fn to_settings(self) -> Settings {
        Settings::NONE
            .with(DESIGN, self.design as u64)
            .with(LEAF_ENTRIES, self.leaf_entries as u64)
    }

    #[inline(always)]
    fn shape(self, kind: NodeKind) -> NodeShape {
        let entries = self.leaf_entries;
        match self.style(kind) {
            Style::SlotBitmap => NodeShape {
                head_words: BITMAP + 2,
                entries: entries.min(DESIGNS[0].2),
                is_ordered: true,
            },
            Style::Bitmap => NodeShape {
                head_words: 2,
                entries,
                is_ordered: false,
            },
            Style::Slots => NodeShape {
                head_words: 2,
                entries,
                is_ordered: true,
            },
        }
    }

    #[inline(always)]
    fn live<M: Medium>(self, guard: &Guard<'_, M>, node: &PagedNode<'_>) -> u64 {
        let all = (1 << node.entries.len()) - 1;
        all & match self.style(node.kind) {
            Style::SlotBitmap => (node.head[BITMAP].load(guard) & LIVE) >> 1,
            Style::Bitmap => node.head[0].load(guard),
            Style::Slots => live_in(node.head[0].load(guard)),
        }
    }

    #[inline(always)]
    fn order<M: Medium>(self, guard: &Guard<'_, M>, node: &PagedNode<'_>) -> Option<Order> {
        match self.style(node.kind) {
            Style::SlotBitmap if node.head[BITMAP].load(guard) & VALID != 0 => {
                let line = node.head.first_chunk::<8>()?;
                Some(Order(guard.medium().load_line(medium::Word::run(line)).0))
            }
            Style::SlotBitmap | Style::Bitmap => None,
            Style::Slots => Some(Order([node.head[0].load(guard), 0, 0, 0, 0, 0, 0, 0])),
        }
    }

    #[inline(always)]
    fn slot<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        position: usize,
    ) -> Option<usize> {
        let byte = 1 + position;
        let word = match self.style(node.kind) {
            Style::SlotBitmap if node.head[BITMAP].load(guard) & VALID != 0 => &node.head[byte / 8],
            Style::SlotBitmap | Style::Bitmap => return None,
            Style::Slots => &node.head[0],
        };
        Some((word.load(guard) >> (8 * (byte % 8)) & 0xff) as usize)
    }

    #[inline(always)]
    fn slots<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        position: usize,
    ) -> Option<u64> {
        let first = (1 + position) / 8;
        let shift = 8 * ((1 + position) % 8);
        match self.style(node.kind) {
            Style::SlotBitmap if node.head[BITMAP].load(guard) & VALID != 0 => {
                let behind = if first < 7 && shift > 0 {
                    node.head[first + 1].load(guard)
                } else {
                    0
                };
                Some(node.head[first].load(guard) >> shift | behind << 1 << (63 - shift))
            }
            Style::SlotBitmap | Style::Bitmap => None,
            Style::Slots => Some(node.head[0].load(guard) >> shift),
        }
    }

    fn head(self, kind: NodeKind, order: &Order) -> [u64; HEAD_WORDS_MAX] {
        let mut head = [0; HEAD_WORDS_MAX];
        match self.style(kind) {
            Style::SlotBitmap => {
                head[..8].copy_from_slice(&order.0);
                head[BITMAP] = sealed(bits_of(order.live()) | VALID);
            }
            Style::Bitmap => head[0] = order.live(),
            Style::Slots => head[0] = order.0[0],
        }
        head
    }

    #[inline]
    fn insert<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        leaf: &PagedNode<'_>,
        order: Order,
        position: usize,
        item: Item,
    ) -> medium::Lsn {
        self.add_entry(guard, leaf, order, position, item)
    }

    #[inline]
    fn remove<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        leaf: &PagedNode<'_>,
        order: Order,
        position: usize,
        slot: usize,
    ) -> medium::Lsn {
        self.remove_entry(guard, leaf, order, position, slot)
    }

    fn fault<M: Medium>(self, guard: &Guard<'_, M>, node: &PagedNode<'_>) -> Option<&'static str> {
        let bitmap = match self.style(node.kind) {
            Style::SlotBitmap => node.head[BITMAP].load(guard),
            Style::Bitmap | Style::Slots => return None,
        };
        let beyond = bits_of(!0 << node.entries.len()) & LIVE;
        (sealed(bitmap) != bitmap || bitmap & beyond != 0)
            .then_some("a bitmap that fails its check")
    }
}

#[cfg(test)]
mod tests;
