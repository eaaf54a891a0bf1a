//! Adds and removes single entries of a leaf, with the persists of the paper.

use medium::{Lsn, Medium};
use pool::Guard;

use super::layout::{BITMAP, Layout, Style, VALID, bits_of, sealed};
use crate::kit::paged::{Item, Order, PagedNode};

impl Layout {
    /// Adds an entry: three ordered persists with a slot array and a bitmap, otherwise two.
    #[inline]
    pub(super) fn add_entry<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        leaf: &PagedNode<'_>,
        mut order: Order,
        position: usize,
        item: Item,
    ) -> Lsn {
        let style = self.style(leaf.kind);
        if style == Style::SlotBitmap {
            let live = Self::invalidate(guard, leaf);
            let slot = (!live >> 1).trailing_zeros() as usize;
            leaf.write_item(guard, slot, item);
            order.insert(position, slot);
            return Self::validate(guard, leaf, &order, live | bits_of(1 << slot));
        }
        let word = &leaf.head[0];
        let old = word.load(guard);
        let (slot, new) = match style {
            Style::Slots => {
                let slot = (!order.live()).trailing_zeros() as usize;
                order.insert(position, slot);
                (slot, order.0[0])
            }
            _ => {
                let slot = (!old).trailing_zeros() as usize;
                (slot, old | 1 << slot)
            }
        };
        leaf.write_item(guard, slot, item);
        // PERSIST: the entry and its record are ordered before the head that names the entry; if
        // this is lost, the entry is not there.
        guard.fence();
        word.publish(guard, new);
        guard.fence()
    }

    /// Removes an entry: three ordered persists with a slot array and a bitmap, otherwise one.
    #[inline]
    pub(super) fn remove_entry<M: Medium>(
        self,
        guard: &Guard<'_, M>,
        leaf: &PagedNode<'_>,
        mut order: Order,
        position: usize,
        slot: usize,
    ) -> Lsn {
        let word = &leaf.head[0];
        match self.style(leaf.kind) {
            Style::SlotBitmap => {
                let live = Self::invalidate(guard, leaf);
                order.remove(position);
                return Self::validate(guard, leaf, &order, live & !bits_of(1 << slot));
            }
            // PERSIST: nothing must precede; if this is lost, the entry is still there.
            Style::Bitmap => word.publish(guard, word.load(guard) & !(1 << slot)),
            Style::Slots => {
                order.remove(position);
                // PERSIST: nothing must precede; if this is lost, the entry is still there.
                word.publish(guard, order.0[0]);
            }
        }
        guard.fence()
    }

    /// Marks the slot array as invalid, unless a crash has left it so; returns the bits of the live
    /// entries.
    #[inline]
    fn invalidate<M: Medium>(guard: &Guard<'_, M>, leaf: &PagedNode<'_>) -> u64 {
        let bitmap = leaf.head[BITMAP].load(guard);
        let bits = bitmap & bits_of((1 << leaf.entries.len()) - 1);
        if bitmap & VALID != 0 {
            // PERSIST: nothing must precede; if this is lost, the slot array is as it was, because
            // it changes only behind the fence.
            leaf.head[BITMAP].publish(guard, sealed(bits));
            guard.fence();
        }
        bits
    }

    /// Writes a slot array, and marks it as valid, together with the entries that are live now.
    #[inline]
    fn validate<M: Medium>(
        guard: &Guard<'_, M>,
        leaf: &PagedNode<'_>,
        order: &Order,
        bits: u64,
    ) -> Lsn {
        for (word, value) in leaf.head[..8].iter().zip(order.0) {
            if word.load(guard) != value {
                word.store(guard, value);
            }
        }
        guard.flush_words(&leaf.head[..8]);
        // PERSIST: slot array and entry are ordered before the bitmap; if this is lost, the former
        // bitmap counts, and no slot array.
        guard.fence();
        leaf.head[BITMAP].publish(guard, sealed(bits | VALID));
        guard.fence()
    }
}
