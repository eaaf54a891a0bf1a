//! Scans of trees of words: one layer, keys that are slices, values that are words. As `scan`, without what that takes for
//! keys of any length, and going on from batch to batch where the last one ended as long as the epoch lasts. The values lie
//! in the nodes, which are prefetched while those before them are read.

use medium::Medium;
use smallvec::SmallVec;

use super::access::{View, Walk};
use super::cells::{no_cell, no_word, side_of};
use super::core::Core;
use super::find::{Origin, ScanLeaf};
use super::layout::{WIDTH_MAX, nibble};
use super::permutation::Permutation;
use super::slice::{Slice, Target};
use crate::Result;

/// A scan of a tree of words, forward.
struct Words {
    /// Where it goes on.
    from: u64,
    /// Entries of one batch: key and value.
    entries: SmallVec<[[u64; 2]; WIDTH_MAX]>,
}

impl Words {
    fn slice(key: u64) -> Slice {
        Slice::of(&key.to_be_bytes())
    }

    /// Calls `visit` with a batch that was read; `false` if that, or the end of all keys, ends the scan.
    #[inline(always)]
    fn hand_over(&mut self, visit: &mut dyn FnMut(&[[u64; 2]]) -> bool) -> bool {
        let Some([last, _]) = self.entries.last() else { return true };
        let Some(next) = last.checked_add(1) else {
            visit(&self.entries);
            return false;
        };
        self.from = next;
        visit(&self.entries)
    }
}

impl<M: Medium> View<'_, M> {
    /// The border node that covers a word.
    fn leaf_of_word(&self, slice: Slice) -> Walk<ScanLeaf<'_>> {
        let root = self.anchor()?.root.value.load(&self.guard);
        self.descend(root, Origin::Anchor, Target::At(slice))
    }

    /// Appends the entries of a border node from `low` on. It may have come to cover more than when it was found, as its
    /// neighbour went: what lies there is taken where the scan goes on.
    #[inline(always)]
    fn take_words(&self, leaf: &mut ScanLeaf<'_>, low: u64, scan: &mut Words) -> Walk<()> {
        let last = leaf.trail.high.map_or(u64::MAX, |high| high.word.saturating_sub(1));
        let cells = self.cells(leaf.node)?;
        loop {
            let permutation = Permutation(leaf.node.permutation.load(&self.guard));
            let classes = leaf.node.classes.load(&self.guard);
            let (mut are_words, mut are_in_cells) = (true, true);
            let (mut found, mut count) = ([[0; 2]; WIDTH_MAX], 0);
            for position in 0..permutation.count(self.core.width) {
                let slot = permutation.slot(position);
                let word = leaf.node.slices[slot].load(&self.guard);
                are_words &= nibble(classes, slot) == 8;
                if (low..=last).contains(&word) {
                    let pointer = leaf.node.values.value(slot).load(&self.guard);
                    let value = side_of(slot, pointer).map(|side| cells[slot][side].load(&self.guard));
                    are_in_cells &= value.is_some();
                    found[count] = [word, value.unwrap_or_default()];
                    count += 1;
                }
            }
            if leaf.version.is_still(&self.guard, &leaf.node.version) {
                scan.entries.extend_from_slice(&found[..count]);
                return match (are_words, are_in_cells) {
                    (true, true) => Ok(()),
                    (false, _) => Err(no_word(leaf.pointer).into()),
                    (true, false) => Err(no_cell(leaf.pointer).into()),
                };
            }
            leaf.version = self.renew(leaf.version, &leaf.node.version)?;
        }
    }

    /// Goes on with the border node behind one; `false` at the end.
    #[inline(always)]
    fn leaf_behind<'v>(&'v self, leaf: &mut ScanLeaf<'v>) -> Walk<bool> {
        let Some(high) = leaf.trail.high else { return Ok(false) };
        let first = if self.next_leaf(leaf)? {
            leaf.trail.first_ahead()
        } else {
            *leaf = self.leaf_of_word(high)?;
            1
        };
        if leaf.trail.high.is_some_and(|end| end <= high) {
            return Err(self.damaged(leaf.pointer, "separators out of order"));
        }
        self.prefetch_behind(leaf, first);
        Ok(true)
    }

    /// Reads a batch, from behind `read` if that is known, which is left at the node that was read last. Returns whether there
    /// may be a next one.
    #[inline(always)]
    fn read_words<'v>(&'v self, scan: &mut Words, read: &mut Option<ScanLeaf<'v>>) -> Walk<bool> {
        scan.entries.clear();
        while scan.entries.is_empty() {
            let mut low = scan.from;
            let leaf = match read {
                Some(leaf) => {
                    low = leaf.trail.high.map_or(low, |high| low.max(high.word));
                    if !self.leaf_behind(leaf)? {
                        return Ok(false);
                    }
                    leaf
                }
                None => {
                    let leaf = self.leaf_of_word(Words::slice(low))?;
                    self.prefetch_behind(&leaf, 1);
                    read.insert(leaf)
                }
            };
            self.take_words(leaf, low, scan)?;
        }
        Ok(true)
    }
}

impl<M: Medium> Core<M> {
    /// Calls `visit` with the entries from `from` on, ascending and some at a time, until it returns `false`. For trees
    /// of words.
    pub(super) fn visit_words(&self, from: u64, visit: &mut dyn FnMut(&[[u64; 2]]) -> bool) -> Result<()> {
        let mut scan = Words { from, entries: SmallVec::new() };
        loop {
            let view = self.look();
            let mut read = None;
            while let Ok(goes_on) = view.read_words(&mut scan, &mut read) {
                if !view.is_valid() {
                    break;
                }
                if !scan.hand_over(visit) || !goes_on {
                    return Ok(());
                }
            }
            // What `visit` does must not wait for a pass that is held here, so it is called behind it.
            let goes_on = self.with_pass_held(|view| view.read_words(&mut scan, &mut None))?;
            if !scan.hand_over(visit) || !goes_on {
                return Ok(());
            }
        }
    }
}
