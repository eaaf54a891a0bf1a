//! Ranges: the entries from a key on, one border node at a time, down and up the layers.
//!
//! A scan holds nothing between two batches: it remembers the last key, and descends to it again. A
//! border node is read at one version, together with the slices between which it lies; the next
//! node is the one that covers its upper end (in reverse, the slices just below its lower end). So
//! whatever is split or removed meanwhile, each key comes at most once, in order, and a key that is
//! present for the whole scan does come.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::{Bound, Range};

use medium::{Lsn, Medium};
use smallvec::{SmallVec, smallvec};

use super::access::{Stop, TreeAccess, Walk};
use super::cells::{NO_CELL, NO_WORD, SlotValue, side_of};
use super::core::Core;
use super::find::{Origin, ScanLeaf};
use super::layout::{Border, WIDTH_MAX, nibble};
use super::permutation::Permutation;
use super::record::{Record, ValueKey};
use super::slice::{LAYER, LONGER, Slice, SliceTarget};
use crate::index::record::{KEY_BYTES_MAX, prefix_word};
use crate::index::{Bounds, Direction, Scan, VisitWords};
use crate::kit::scan::{Batches, Cursor, ScanBatch};
use crate::{Error, Result};

/// How far ahead of the record that is copied others are prefetched: first their beginnings, then,
/// closer, the rest of them.
const RECORDS_AHEAD: [usize; 2] = [12, 6];

/// When a scan comes to an entry that leads to a layer, it prefetches that layer, and those of the
/// entries behind, up to this many entries in all.
const LAYERS_AHEAD: usize = 4;

/// The most bytes of beginnings of keys that a scan keeps for entries that are not copied yet. One
/// beginning may be longer.
const PREFIX_BYTES_PENDING: usize = 16 << 10;

/// The most reads of a node by one scan, on average: one for its entries, one for each layer that
/// it leads to, and one for each neighbour that is removed meanwhile.
const READS_OF_A_NODE: u64 = 8;

/// The nodes that a scan has read. In a damaged tree several entries may lead to one layer, so that
/// few nodes give more paths than any scan could follow. So a scan that reads more nodes than the
/// pool has room for has found damage.
#[derive(Clone, Copy)]
pub(super) struct NodesRead {
    count: u64,
    /// How many epochs of the tree had begun before the scan. In later epochs nodes may lie where
    /// others were before.
    epochs_before: u64,
}

impl NodesRead {
    fn add<M: Medium>(&mut self, view: &TreeAccess<'_, M>, node: u64) -> Walk<()> {
        self.count += 1;
        let places = view.guard.medium().extent().length() / size_of::<Border>() as u64;
        let epochs = view.core.epochs.begun() - self.epochs_before + 1;
        if self.count / READS_OF_A_NODE > places.saturating_mul(epochs) {
            return Err(Error::corrupt(
                node,
                "more ways lead through the tree than there are nodes",
            )
            .into());
        }
        Ok(())
    }
}

/// A layer that is being read.
#[derive(Clone, Copy)]
struct Frame<'v> {
    root: u64,
    origin: Origin<'v>,
    /// The slice where it goes on, and whether that is included; `None` for all of the layer.
    at: Option<(Slice, bool)>,
    /// Whether that is a slice of the key from which the scan starts, which may go on below.
    is_start: bool,
}

impl<'v> Frame<'v> {
    /// The layer `depth`, all of it, or from a key on.
    fn new(root: u64, origin: Origin<'v>, from: Option<&[u8]>, depth: usize) -> Self {
        let at = from.map(|key| (Slice::of(Slice::rest(key, depth)), true));
        Self {
            root,
            origin,
            at,
            is_start: at.is_some(),
        }
    }

    fn go_on_at(&mut self, slice: Slice, is_included: bool) {
        self.at = Some((slice, is_included));
        self.is_start = false;
    }

    /// The border node that it goes on with.
    #[inline(always)]
    fn target(&self, is_forward: bool) -> SliceTarget {
        match self.at {
            Some((slice, is_included)) if is_forward || is_included => SliceTarget::At(slice),
            Some((slice, _)) => SliceTarget::Below(slice),
            None if is_forward => SliceTarget::At(Slice::FIRST),
            None => SliceTarget::Last,
        }
    }

    /// Whether a slice lies where it goes on, or behind.
    #[inline(always)]
    fn takes(&self, slice: Slice, is_forward: bool) -> bool {
        self.at.is_none_or(|(at, is_included)| {
            is_included && slice == at || if is_forward { slice > at } else { slice < at }
        })
    }
}

/// An entry that a scan found.
pub(super) struct ScannedEntry<'a> {
    pub(super) prefix: &'a [u8],
    pub(super) slice: Slice,
    pub(super) content: u64,
}

impl ScannedEntry<'_> {
    /// The first word of the key.
    fn word(&self) -> u64 {
        if self.prefix.is_empty() {
            self.slice.word
        } else {
            prefix_word(self.prefix)
        }
    }

    pub(super) fn value<M: Medium>(&self, view: &TreeAccess<'_, M>) -> Result<SlotValue> {
        if view.core.are_words {
            return Ok(SlotValue::Word(self.content));
        }
        Record::at(&view.guard, self.content).map(SlotValue::Record)
    }

    /// Appends the key.
    pub(super) fn copy_key<M: Medium>(
        &self,
        view: &TreeAccess<'_, M>,
        key: &mut Vec<u8>,
    ) -> Result<()> {
        key.extend_from_slice(self.prefix);
        self.slice.append_to(key);
        if self.slice.class == LONGER {
            Record::at(&view.guard, self.content)?.copy_tail(
                &view.guard,
                self.prefix.len() + 8,
                key,
            )?;
        }
        Ok(())
    }

    /// Appends the key and the value; returns the length of the key.
    fn copy_entry<M: Medium>(
        &self,
        view: &TreeAccess<'_, M>,
        buffer: &mut Vec<u8>,
    ) -> Result<usize> {
        let start = buffer.len();
        self.copy_key(view, buffer)?;
        let key_length = buffer.len() - start;
        let value = self.value(view)?;
        value.copy_of(&view.guard, ValueKey::InBuffer(start), buffer)?;
        Ok(key_length)
    }
}

/// The entries of a border node: for each the word of its slice; its pointer or, in a tree of
/// words, its value; and its class.
struct BorderEntries {
    words: [[u64; 2]; WIDTH_MAX],
    classes: [u8; WIDTH_MAX],
    count: usize,
}

impl BorderEntries {
    fn slice(&self, position: usize) -> Slice {
        Slice {
            word: self.words[position][0],
            class: self.classes[position].min(LONGER),
        }
    }
}

impl<M: Medium> TreeAccess<'_, M> {
    /// Reads the entries of a border node at one version, in the order of the scan, to its end
    /// there. If its neighbour was removed, the node covers more than when it was found. The scan
    /// reads the additional part where it goes on.
    #[inline(always)]
    fn read_entries(
        &self,
        leaf: &mut ScanLeaf<'_>,
        is_forward: bool,
        entries: &mut BorderEntries,
    ) -> Walk<()> {
        let node = leaf.node;
        let cells = if self.core.are_words {
            Some(self.cells(node)?)
        } else {
            None
        };
        loop {
            let permutation = Permutation(node.permutation.load(&self.guard));
            let count = permutation.count(self.core.width);
            let classes = node.classes.load(&self.guard);
            let mut are_words = true;
            let mut are_in_cells = true;
            let mut are_sorted = true;
            let mut last = if is_forward { 0 } else { u64::MAX };
            for position in 0..count {
                let slot = permutation.slot(if is_forward {
                    position
                } else {
                    count - 1 - position
                });
                let class = nibble(classes, slot);
                let mut content = node.values.value(slot).load(&self.guard);
                if let Some(cells) = cells {
                    let side = side_of(slot, content);
                    are_words &= class == 8;
                    are_in_cells &= side.is_some();
                    content = cells[slot][side.unwrap_or_default()].load(&self.guard);
                }
                let word = node.slices[slot].load(&self.guard);
                are_sorted &= if is_forward { word > last } else { word < last };
                last = word;
                entries.words[position] = [word, content];
                entries.classes[position] = class;
            }
            if !leaf.version.is_still(&self.guard, &node.version) {
                leaf.version = self.renew(leaf.version, &node.version)?;
                continue;
            }
            let is_before = |one: Slice, other| if is_forward { one < other } else { one > other };
            // Slices with one word differ in class.
            are_sorted = are_sorted
                || (1..count).all(|next| is_before(entries.slice(next - 1), entries.slice(next)));
            if !(are_words && are_in_cells && are_sorted) {
                let what = if are_words {
                    "entries out of order"
                } else {
                    NO_WORD
                };
                let what = if are_in_cells { what } else { NO_CELL };
                return Err(Error::corrupt(self.guard.offset_of(node), what).into());
            }
            let is_within = |slice: Slice| match is_forward {
                true => leaf.trail.high.is_none_or(|high| slice < high),
                false => leaf.trail.low.is_none_or(|low| slice >= low),
            };
            let within = (0..count).rposition(|position| is_within(entries.slice(position)));
            entries.count = within.map_or(0, |last| last + 1);
            return Ok(());
        }
    }

    /// Calls `take` with the common beginning of the keys of some entries, and with the words and
    /// classes of these entries, from the slices of `from` on, until it returns `false`. The first
    /// ones may lie before `from`. Returns whether it came to the end.
    #[inline(always)]
    pub(super) fn collect(
        &self,
        from: Option<&[u8]>,
        direction: Direction,
        nodes_read: &mut NodesRead,
        mut take: impl FnMut(&[u8], &[[u64; 2]], &[u8]) -> Walk<bool>,
    ) -> Walk<bool> {
        let is_forward = direction == Direction::Forward;
        let root = self.anchor()?.root.value.load(&self.guard);
        let mut frames: SmallVec<[_; 2]> = smallvec![Frame::new(root, Origin::Anchor, from, 0)];
        let mut prefix = Vec::new();
        let mut entries = BorderEntries {
            words: [[0; 2]; WIDTH_MAX],
            classes: [0; WIDTH_MAX],
            count: 0,
        };
        let mut next_leaf: Option<ScanLeaf<'_>> = None;
        while let Some(frame) = frames.last_mut() {
            let target = frame.target(is_forward);
            let (first, leaf) = match &mut next_leaf {
                Some(leaf) => (leaf.trail.first_ahead(), leaf),
                None => (
                    1,
                    next_leaf.insert(self.descend(frame.root, frame.origin, target)?),
                ),
            };
            if is_forward {
                self.prefetch_behind(leaf, first);
            }
            match self.read_entries(leaf, is_forward, &mut entries) {
                Err(Stop::Again) => {
                    self.retry()?;
                    next_leaf = None;
                    continue;
                }
                read => read?,
            }
            // Each batch reads the nodes on the way to its start key once more. They are at most as
            // many as the key has slices.
            if !frame.is_start {
                nodes_read.add(self, self.guard.offset_of(leaf.node))?;
            }
            let BorderEntries {
                words,
                classes,
                count,
            } = &entries;
            let start = (0..*count)
                .find(|at| frame.takes(entries.slice(*at), is_forward))
                .unwrap_or(*count);
            let end = (start..*count)
                .find(|position| classes[*position] == LAYER)
                .unwrap_or(*count);
            if !take(&prefix, &words[start..end], &classes[start..end])? {
                return Ok(false);
            }
            if end < *count {
                for position in (end..*count).take(LAYERS_AHEAD) {
                    if classes[position] == LAYER {
                        self.prefetch(words[position][1]);
                    }
                }
                let slice = entries.slice(end);
                let root = words[end][1];
                let starts_below = frame.is_start && frame.at == Some((slice, true));
                let from = if starts_below { from } else { None };
                // When the layer below is read this one goes on behind its entry.
                frame.go_on_at(slice, false);
                prefix.extend_from_slice(&slice.word.to_be_bytes());
                if prefix.len() > KEY_BYTES_MAX {
                    return Err(Error::corrupt(root, "a layer deeper than the longest key").into());
                }
                frames.push(Frame::new(
                    root,
                    Origin::Entry(leaf.node, leaf.version),
                    from,
                    prefix.len() / 8,
                ));
                next_leaf = None;
            } else if let Some(end) = if is_forward {
                leaf.trail.high
            } else {
                leaf.trail.low
            } {
                if frame.at.is_some_and(|(at, _)| at == end && is_forward)
                    || !frame.takes(end, is_forward)
                {
                    return Err(
                        self.damaged(self.guard.offset_of(leaf.node), "separators out of order")
                    );
                }
                frame.go_on_at(end, is_forward);
                if !(is_forward && self.next_leaf(leaf)?) {
                    next_leaf = None;
                }
            } else {
                next_leaf = None;
                frames.pop();
                prefix.truncate(8 * frames.len().saturating_sub(1));
            }
        }
        Ok(true)
    }
}

/// The batches of a range.
pub(super) struct RangeBatches<'i, M: Medium> {
    core: &'i Core<M>,
    read: NodesRead,
}

impl<'i, M: Medium> RangeBatches<'i, M> {
    /// A cursor over the entries within `bounds`.
    pub(super) fn cursor(core: &'i Core<M>, bounds: Bounds, direction: Direction) -> Cursor<Self> {
        Cursor::new(
            Self {
                core,
                read: core.nothing_read(),
            },
            bounds,
            direction,
        )
    }
}

/// An entry that a scan has found and not copied yet.
struct PendingEntry {
    /// Where the beginning of its key lies in [`PendingEntries::prefixes`].
    prefix: Range<usize>,
    slice: Slice,
    content: u64,
}

/// Entries that a scan has found and not copied yet: their records are on the way from memory while
/// the next nodes are read, those of other layers included.
struct PendingEntries<'v, 'm, M: Medium> {
    view: &'v TreeAccess<'m, M>,
    /// Where the entries are copied to.
    batch: ScanBatch,
    /// The beginnings of the keys, one after the other: the entries of a layer share one.
    prefixes: Vec<u8>,
    entries: VecDeque<PendingEntry>,
}

impl PendingEntry {
    fn scanned<'p>(&self, prefixes: &'p [u8]) -> ScannedEntry<'p> {
        ScannedEntry {
            prefix: &prefixes[self.prefix.clone()],
            slice: self.slice,
            content: self.content,
        }
    }
}

impl<M: Medium> PendingEntries<'_, '_, M> {
    /// Takes entries, and copies those that were found long enough ago. Returns whether the batch
    /// takes more.
    fn take(&mut self, prefix: &[u8], words: &[[u64; 2]], classes: &[u8]) -> Result<bool> {
        if words.is_empty() {
            return Ok(true);
        }
        let Some(prefix) = self.keep_prefix(prefix)? else {
            return Ok(false);
        };
        for (&[word, content], &class) in words.iter().zip(classes) {
            self.entries.push_back(PendingEntry {
                prefix: prefix.clone(),
                slice: Slice {
                    word,
                    class: class.min(LONGER),
                },
                content,
            });
            if !self.view.core.are_words {
                self.view.prefetch_record(content);
            }
        }
        // The scan reads no more entries than the batch can take, and none behind the range.
        let is_behind =
            |entry: &PendingEntry| self.batch.is_behind(entry.scanned(&self.prefixes).word());
        let is_enough =
            self.entries.len() >= self.batch.room() || self.entries.back().is_some_and(is_behind);
        self.copy_all_but(if is_enough { 0 } else { RECORDS_AHEAD[0] })
    }

    /// Keeps the beginning of the keys that come next. Returns where it lies; `None` if entries had
    /// to be copied for that, and the batch takes no more.
    fn keep_prefix(&mut self, prefix: &[u8]) -> Result<Option<Range<usize>>> {
        if let Some(last) = self.entries.back()
            && self.prefixes[last.prefix.clone()] == *prefix
        {
            return Ok(Some(last.prefix.clone()));
        }
        let is_full = self.prefixes.len() + prefix.len() > PREFIX_BYTES_PENDING;
        if is_full && !self.copy_all_but(0)? {
            return Ok(None);
        }
        if self.entries.is_empty() {
            self.prefixes.clear();
        }
        let start = self.prefixes.len();
        self.prefixes.extend_from_slice(prefix);
        Ok(Some(start..self.prefixes.len()))
    }

    /// Copies the first entries, and leaves the last `left`. Returns whether the batch takes more.
    fn copy_all_but(&mut self, left: usize) -> Result<bool> {
        let view = self.view;
        for _ in left..self.entries.len() {
            if let Some(ahead) = self.entries.get(RECORDS_AHEAD[1])
                && !view.core.are_words
            {
                view.prefetch_rest_of_record(ahead.content);
            }
            let Some(entry) = self.entries.pop_front() else {
                break;
            };
            let found = entry.scanned(&self.prefixes);
            let goes_on = self
                .batch
                .push(found.word(), |buffer| found.copy_entry(view, buffer))?;
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<M: Medium> Batches for RangeBatches<'_, M> {
    fn read(&mut self, batch: &mut ScanBatch) -> Result<()> {
        let from = match batch.from() {
            Bound::Included(key) | Bound::Excluded(key) => Some(&key[..]),
            Bound::Unbounded => None,
        };
        let read = |view: &TreeAccess<'_, M>| {
            let mut pending = PendingEntries {
                view,
                batch: batch.fresh(),
                prefixes: Vec::new(),
                entries: VecDeque::new(),
            };
            let mut nodes_read = self.read;
            let take = |prefix: &[u8], words: &[_], classes: &[_]| {
                Ok(pending.take(prefix, words, classes)?)
            };
            let is_end = view.collect(from, batch.direction(), &mut nodes_read, take)?;
            let is_end = is_end && pending.copy_all_but(0)?;
            Ok((pending.batch, nodes_read, is_end))
        };
        let view = self.core.look();
        let (filled, nodes_read, is_end) = match read(&view) {
            Ok(batch) if view.is_valid() => batch,
            _ => self.core.with_pass_held(read)?,
        };
        *batch = filled;
        self.read = nodes_read;
        if is_end {
            batch.finish();
        } else {
            batch.go_on_behind_last();
        }
        Ok(())
    }
}

impl<M: Medium> Core<M> {
    /// The count of a scan that begins now.
    pub(super) fn nothing_read(&self) -> NodesRead {
        NodesRead {
            count: 0,
            epochs_before: self.epochs.begun(),
        }
    }

    /// The number of keys; exact when no thread writes.
    pub(super) fn count(&self) -> Result<u64> {
        let mut entries = RangeBatches::cursor(self, Bounds::all(), Direction::Forward);
        let mut count = 0;
        while entries.advance()? {
            count += 1;
        }
        Ok(count)
    }

    /// Calls `visit` with the entries from `from` on, ascending and some at a time, until it
    /// returns `false`. For trees of words.
    pub(super) fn visit_words(&self, from: u64, visit: &mut VisitWords<'_>) -> Result<()> {
        let mut hand_over = |words: &[[u64; 2]]| {
            if !visit(words, Lsn::DURABLE) {
                return None;
            }
            let [last, _] = words.last()?;
            last.checked_add(1)
        };
        let next = Cell::new(Some(from));
        while let Some(from) = next.get() {
            let view = self.look();
            let mut nodes_read = self.nothing_read();
            let key = from.to_be_bytes();
            let read = view.collect(
                Some(&key),
                Direction::Forward,
                &mut nodes_read,
                |_, words, _| {
                    if !view.is_valid() {
                        return Err(Stop::NeedsPass);
                    }
                    if !words.is_empty() {
                        next.set(hand_over(words));
                    }
                    Ok(next.get().is_some())
                },
            );
            if read.is_ok() {
                break;
            }
            let Some(from) = next.get() else {
                break;
            };
            // `visit` is called without a pass, because it may wait for the end of the epoch.
            let key = from.to_be_bytes();
            let mut batch = Vec::new();
            self.with_pass_held(|view| {
                view.collect(
                    Some(&key),
                    Direction::Forward,
                    &mut nodes_read,
                    |_, words, _| {
                        batch.extend_from_slice(words);
                        Ok(batch.is_empty())
                    },
                )
            })?;
            next.set(if batch.is_empty() {
                None
            } else {
                hand_over(&batch)
            });
        }
        Ok(())
    }
}
