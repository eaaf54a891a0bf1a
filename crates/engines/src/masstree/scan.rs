//! Ranges: the entries from a key on, one border node at a time, down and up the layers.
//!
//! A scan holds nothing between two batches: it remembers the last key, and descends to it again. A border node is read
//! at one version, together with the slices between which it lies; the next node is the one that covers its upper end
//! (or what lies below its lower end). So whatever is split or removed meanwhile, each key comes at most once, in
//! order, and a key that is there for the whole scan comes.

use std::ops::Bound;

use medium::Medium;
use smallvec::SmallVec;

use super::access::{Stop, View, Walk};
use super::cells::{Value, no_cell, no_word};
use super::core::Core;
use super::find::{Neighbours, Origin, ScanLeaf};
use super::layout::{Border, nibble};
use super::permutation::Permutation;
use super::record::Record;
use super::slice::{LAYER, LONGER, Slice, Target};
use crate::index::record::KEY_BYTES_MAX;
use crate::index::{Bounds, Direction};
use crate::kit::scan::{Batch, Batches, Cursor};
use crate::{Error, Result};

/// How often a scan reads a node at most, on average: for itself, for each layer that it leads to, and for each neighbour that goes
/// meanwhile.
const READS_OF_A_NODE: u64 = 8;

/// The nodes that a scan has read. Several entries of a damaged tree may lead to one layer: then there are few nodes, and more
/// ways through them than there is time for. So a scan that reads more nodes than there can be has found damage.
#[derive(Clone, Copy)]
pub(super) struct NodesRead {
    count: u64,
    /// The epoch in which the scan began. In each later one nodes may lie where others were before.
    first_epoch: u64,
}

impl NodesRead {
    fn add<M: Medium>(&mut self, view: &View<'_, M>, node: u64) -> Walk<()> {
        self.count += 1;
        let places = view.guard.medium().extent().length() / size_of::<Border>() as u64;
        let epochs = view.epoch.saturating_sub(self.first_epoch) + 1;
        if self.count / READS_OF_A_NODE > places.saturating_mul(epochs) {
            return Err(Error::corrupt(node, "more ways lead through the tree than there are nodes").into());
        }
        Ok(())
    }
}

/// Where a frame goes on.
#[derive(Clone, Copy)]
enum Edge {
    /// Everything.
    Nothing,
    /// At the scan's start, a key that may go on below.
    Key,
    /// At this slice, without it or with it.
    Slice(Slice, bool),
}

/// A layer that is being read.
#[derive(Clone, Copy)]
struct Frame<'v> {
    root: u64,
    origin: Origin<'v>,
    edge: Edge,
}

/// An entry that a scan found.
pub(super) struct Found<'a> {
    pub(super) prefix: &'a [u8],
    pub(super) slice: Slice,
    pub(super) content: u64,
}

impl Found<'_> {
    pub(super) fn value<M: Medium>(&self, view: &View<'_, M>) -> Result<Value> {
        if view.core.are_words {
            return Ok(Value::Word(self.content));
        }
        Record::at(&view.guard, self.content).map(Value::Record)
    }

    /// Appends the key.
    pub(super) fn copy_key<M: Medium>(&self, view: &View<'_, M>, key: &mut Vec<u8>) -> Result<()> {
        key.extend_from_slice(self.prefix);
        self.slice.append_to(key);
        if self.slice.class == LONGER {
            Record::at(&view.guard, self.content)?.copy_tail(&view.guard, self.prefix.len() + 8, key)?;
        }
        Ok(())
    }
}

/// Where a scan begins, or goes on.
pub(super) struct Start<'k> {
    pub(super) from: Bound<&'k [u8]>,
    pub(super) direction: Direction,
    /// What the scan has read before.
    pub(super) read: NodesRead,
}

impl Start<'_> {
    /// The key, and whether it is part of the range.
    fn key(&self) -> (&[u8], bool) {
        match self.from {
            Bound::Included(key) => (key, true),
            Bound::Excluded(key) => (key, false),
            Bound::Unbounded => (&[], true),
        }
    }

    fn is_forward(&self) -> bool {
        self.direction == Direction::Forward
    }

    /// The border node of the layer `depth` that a frame goes on with.
    fn target(&self, depth: usize, edge: Edge) -> Target {
        match edge {
            Edge::Key => Target::At(Slice::of(Slice::rest(self.key().0, depth))),
            Edge::Slice(slice, _) if self.is_forward() => Target::At(slice),
            Edge::Slice(slice, _) => Target::Below(slice),
            Edge::Nothing if self.is_forward() => Target::At(Slice::FIRST),
            Edge::Nothing => Target::Last,
        }
    }
}

/// What the edge says of an entry.
#[derive(PartialEq, Eq)]
enum Verdict {
    Skip,
    Take,
    /// The start key goes on in this layer.
    Enter,
}

/// Entries of a border node: each its slice, its class, and its pointer, or in a tree of words its value.
pub(super) type Entries = SmallVec<[(Slice, u8, u64); 16]>;

impl<M: Medium> View<'_, M> {
    /// The entries of a border node at one version, in the order of the scan, to its end there. It may have come to cover
    /// more than when it was found, as its neighbour went: what lies there is taken where the scan goes on.
    fn entries_of(&self, leaf: &mut ScanLeaf<'_>, is_forward: bool) -> Walk<Entries> {
        let Neighbours { low, high, .. } = leaf.trail;
        let is_within = |(slice, ..): &(Slice, u8, u64)| match is_forward {
            true => high.is_none_or(|high| *slice < high),
            false => low.is_none_or(|low| *slice >= low),
        };
        loop {
            let permutation = Permutation(leaf.node.permutation.load(&self.guard));
            let count = permutation.count(self.core.width);
            let classes = leaf.node.classes.load(&self.guard);
            let mut damage = None;
            let entry = |position: usize| {
                let slot = permutation.slot(if is_forward { position } else { count - 1 - position });
                let class = nibble(classes, slot);
                let slice =
                    Slice { word: leaf.node.slices[slot].load(&self.guard), class: class.min(LONGER) };
                let mut content = leaf.node.values.value(slot).load(&self.guard);
                if self.core.are_words {
                    let cell = self.load_cell(leaf.node, slot, content);
                    if class != 8 {
                        damage = Some(no_word(leaf.pointer));
                    } else if cell.is_none() {
                        damage = Some(no_cell(leaf.pointer));
                    }
                    content = cell.unwrap_or_default();
                }
                (slice, class, content)
            };
            let (mut entries, mut last, mut is_ordered) = (Entries::new(), None, true);
            for entry in (0..count).map(entry) {
                let (slice, ..) = entry;
                is_ordered &= last.is_none_or(|last| last != slice && (last < slice) == is_forward);
                last = Some(slice);
                if is_within(&entry) {
                    entries.push(entry);
                }
            }
            if leaf.version.is_still(&self.guard, &leaf.node.version) {
                let disorder = || Error::corrupt(leaf.pointer, "entries out of order");
                let damage = damage.or_else(|| (!is_ordered).then(disorder));
                return damage.map_or(Ok(entries), |error| Err(error.into()));
            }
            leaf.version = self.renew(leaf.version, &leaf.node.version)?;
        }
    }

    fn judge(&self, start: &Start<'_>, depth: usize, edge: Edge, entry: (Slice, u8, u64)) -> Walk<Verdict> {
        let (slice, class, object) = entry;
        let (key, is_key_included) = start.key();
        let (at, is_included) = match edge {
            Edge::Nothing => return Ok(Verdict::Take),
            Edge::Slice(at, is_included) => (at, is_included),
            Edge::Key => (Slice::of(Slice::rest(key, depth)), is_key_included),
        };
        let mut order = slice.cmp(&at);
        if matches!(edge, Edge::Key) && order.is_eq() && slice.class == LONGER {
            if class == LAYER {
                return Ok(Verdict::Enter);
            }
            let mut tail = Vec::new();
            Record::at(&self.guard, object)?.copy_tail(&self.guard, 8 * (depth + 1), &mut tail)?;
            order = tail.as_slice().cmp(Slice::rest(key, depth + 1));
        }
        let is_beyond = if start.is_forward() { order.is_gt() } else { order.is_lt() };
        Ok(if is_beyond || is_included && order.is_eq() { Verdict::Take } else { Verdict::Skip })
    }

    /// The border node that a frame of layer `depth` goes on with, `next` if that is known; those behind it are prefetched.
    #[inline(always)]
    fn leaf_of<'v>(
        &'v self,
        start: &Start<'_>,
        depth: usize,
        frame: Frame<'v>,
        next: Option<ScanLeaf<'v>>,
    ) -> Walk<ScanLeaf<'v>> {
        let (first, leaf) = match next {
            Some(leaf) => (leaf.trail.first_ahead(), leaf),
            None => (1, self.descend(frame.root, frame.origin, start.target(depth, frame.edge))?),
        };
        if start.is_forward() {
            self.prefetch_behind(&leaf, first);
        }
        Ok(leaf)
    }

    #[inline(always)]
    fn prefetch_records(&self, entries: &Entries) {
        if !self.core.are_words {
            for (_, _, object) in entries.iter().filter(|(_, class, _)| *class != LAYER) {
                self.prefetch_record(*object);
            }
        }
    }

    /// Calls `take` with the entries from `start` on, until it returns `false`. Returns the last key then, `None` at the end; and
    /// what was read.
    fn collect(
        &self,
        start: &Start<'_>,
        mut take: impl FnMut(&Found<'_>) -> Result<bool>,
    ) -> Walk<(Option<Vec<u8>>, NodesRead)> {
        let root = self.anchor()?.root.value.load(&self.guard);
        let edge = if start.from == Bound::Unbounded { Edge::Nothing } else { Edge::Key };
        let mut frames = vec![Frame { root, origin: Origin::Anchor, edge }];
        let mut prefix = Vec::new();
        let mut next_leaf = None;
        let mut nodes_read = start.read;
        while let Some(&frame) = frames.last() {
            let top = frames.len() - 1;
            let mut leaf = self.leaf_of(start, top, frame, next_leaf.take())?;
            let entries = match self.entries_of(&mut leaf, start.is_forward()) {
                Err(Stop::Again) => {
                    self.retry()?;
                    continue;
                }
                entries => entries?,
            };
            // Each batch reads the nodes on the way to where the one before ended once more; but no more than the key has slices.
            if !matches!(frame.edge, Edge::Key) {
                nodes_read.add(self, leaf.pointer)?;
            }
            self.prefetch_records(&entries);
            let mut below = None;
            for entry in entries {
                let verdict = self.judge(start, top, frame.edge, entry)?;
                let (slice, class, value) = entry;
                if verdict == Verdict::Skip {
                    continue;
                }
                if class == LAYER {
                    below = Some((slice, value, verdict));
                    break;
                }
                let found = Found { prefix: &prefix, slice, content: value };
                if !take(&found)? {
                    let mut key = Vec::new();
                    found.copy_key(self, &mut key)?;
                    return Ok((Some(key), nodes_read));
                }
            }
            match below {
                Some((slice, root, verdict)) => {
                    // When the layer below is read this one goes on behind its entry.
                    frames[top].edge = Edge::Slice(slice, false);
                    prefix.extend_from_slice(&slice.word.to_be_bytes());
                    if prefix.len() > KEY_BYTES_MAX {
                        return Err(Error::corrupt(root, "a layer deeper than the longest key").into());
                    }
                    let edge = if verdict == Verdict::Enter { Edge::Key } else { Edge::Nothing };
                    frames.push(Frame { root, origin: Origin::Entry(leaf.node, leaf.version), edge });
                }
                None => match self.go_on(start, top, frame.edge, &leaf)? {
                    Some(edge) => {
                        frames[top].edge = edge;
                        if start.is_forward() && self.next_leaf(&mut leaf)? {
                            next_leaf = Some(leaf);
                        }
                    }
                    None => {
                        frames.pop();
                        prefix.truncate(8 * frames.len().saturating_sub(1));
                    }
                },
            }
        }
        Ok((None, nodes_read))
    }

    /// Where a frame of layer `depth` goes on behind a border node, if there is another one.
    fn go_on(&self, start: &Start<'_>, depth: usize, edge: Edge, leaf: &ScanLeaf<'_>) -> Walk<Option<Edge>> {
        let end = if start.is_forward() { leaf.trail.high } else { leaf.trail.low };
        let Some(end) = end else { return Ok(None) };
        let is_progress = match start.target(depth, edge) {
            Target::At(before) | Target::Below(before) if start.is_forward() => end > before,
            Target::At(before) => end <= before,
            Target::Below(before) => end < before,
            Target::Last => true,
        };
        if is_progress {
            Ok(Some(Edge::Slice(end, start.is_forward())))
        } else {
            Err(self.damaged(leaf.pointer, "separators out of order"))
        }
    }
}

impl<M: Medium> Core<M> {
    /// A scan begins now.
    fn nothing_read(&self) -> NodesRead {
        NodesRead { count: 0, first_epoch: self.epochs.running() }
    }

    /// Reads one batch: calls `take` with what `make` makes anew for each attempt, and with each entry, until it returns `false`.
    /// Returns what was made, and the last key; `None` at the end.
    fn read_batch<T>(
        &self,
        start: &mut Start<'_>,
        make: impl Fn() -> T,
        take: impl Fn(&mut T, &View<'_, M>, &Found<'_>) -> Result<bool>,
    ) -> Result<(T, Option<Vec<u8>>)> {
        let read = |view: &View<'_, M>| {
            let mut taken = make();
            let read = view.collect(start, |found| take(&mut taken, view, found))?;
            Ok((taken, read))
        };
        let view = self.look();
        let (taken, (last, nodes_read)) = match read(&view) {
            Ok(batch) if view.is_valid() => batch,
            _ => self.with_pass_held(read)?,
        };
        start.read = nodes_read;
        Ok((taken, last))
    }

    /// The number of keys; exact when no thread writes.
    pub(super) fn count(&self) -> Result<u64> {
        let count_some = |count: &mut u64, _: &View<'_, M>, _: &Found<'_>| {
            *count += 1;
            Ok(!count.is_multiple_of(4096))
        };
        let (mut total, mut last): (u64, Option<Vec<u8>>) = (0, None);
        let mut read = self.nothing_read();
        loop {
            let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut start = Start { from, direction: Direction::Forward, read };
            let (count, end) = self.read_batch(&mut start, || 0, count_some)?;
            (total, read) = (total + count, start.read);
            match end {
                Some(end) => last = Some(end),
                None => return Ok(total),
            }
        }
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
        Cursor::new(Self { core, read: core.nothing_read() }, bounds, direction)
    }
}

impl<M: Medium> Batches for RangeBatches<'_, M> {
    fn read(&mut self, batch: &mut Batch) -> Result<()> {
        let from = batch.from().as_ref().map(Vec::as_slice);
        let mut start = Start { from, direction: batch.direction(), read: self.read };
        let push = |batch: &mut Batch, view: &View<'_, M>, found: &Found<'_>| {
            batch.push(|key| found.copy_key(view, key), |value| found.value(view)?.copy(&view.guard, value))
        };
        let (filled, last) = self.core.read_batch(&mut start, || batch.fresh(), push)?;
        self.read = start.read;
        *batch = filled;
        match last {
            Some(last) => batch.go_on_from(Bound::Excluded(last)),
            None => batch.finish(),
        }
        Ok(())
    }
}
