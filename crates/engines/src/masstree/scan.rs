//! Ranges: the entries from a key on, one border node at a time, down and up the layers.
//!
//! A scan holds nothing between two batches: it remembers the last key, and descends to it again. A border node is read
//! at one version, together with the slices between which it lies; the next node is the one that covers its upper end
//! (or what lies below its lower end). So whatever is split or removed meanwhile, each key comes at most once, in
//! order, and a key that is there for the whole scan comes.

use std::ops::Bound;

use medium::Medium;
use smallvec::SmallVec;

use super::Core;
use super::access::{Stop, View, Walk};
use super::bound::Met;
use super::cells::{Value, no_cell};
use super::find::{Neighbours, Origin, ScanLeaf};
use super::layout::nibble;
use super::permutation::Permutation;
use super::record::Record;
use super::slice::{LAYER, LONGER, Slice, Target};
use crate::index::{Bounds, Direction};
use crate::kit::scan::{Batch, Batches, Cursor};
use crate::{Error, Result};

/// Border nodes that a scan has on their way while it reads one.
pub(super) const LEAVES_AHEAD: usize = 3;

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
    target: Target,
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

/// Takes what a scan finds.
pub(super) trait Sink<M: Medium> {
    /// Takes an entry; `false` if it was the last one wanted.
    fn take(&mut self, view: &View<'_, M>, found: &Found<'_>) -> Result<bool>;
}

/// Where a scan begins, or goes on.
pub(super) struct Start<'k> {
    pub(super) from: Bound<&'k [u8]>,
    pub(super) direction: Direction,
    /// What was met in the batches before.
    pub(super) met: &'k Met,
}

impl Start<'_> {
    fn key(&self) -> Option<(&[u8], bool)> {
        match self.from {
            Bound::Included(key) => Some((key, true)),
            Bound::Excluded(key) => Some((key, false)),
            Bound::Unbounded => None,
        }
    }

    fn is_forward(&self) -> bool {
        self.direction == Direction::Forward
    }

    /// The edge and the target of a layer that is read from its end.
    fn whole(&self) -> (Edge, Target) {
        (Edge::Nothing, if self.is_forward() { Target::At(Slice::FIRST) } else { Target::Last })
    }

    /// The edge and the target of the layer `depth` on the way of the start key.
    fn along(&self, depth: usize) -> (Edge, Target) {
        match self.key() {
            Some((key, _)) => (Edge::Key, Target::At(Slice::of(Slice::rest(key, depth)))),
            None => self.whole(),
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

/// What is said of a key of another class, in a tree of words.
pub(super) fn no_word(node: u64) -> Error {
    Error::corrupt(node, "a key that is no word")
}

impl<M: Medium> View<'_, M> {
    /// The entries of a border node at one version, in the order of the scan, to its end there. It may have come to cover
    /// more than when it was found, as its neighbour went: what lies there is taken where the scan goes on.
    ///
    /// And if the node holds two that are not in order: how many of these come before those two.
    pub(super) fn entries_of(
        &self,
        leaf: &mut ScanLeaf<'_>,
        is_forward: bool,
    ) -> Walk<(Entries, Option<usize>)> {
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
            let (mut entries, mut before, mut sound, mut last) = (Entries::new(), 0, None, None);
            for entry in (0..count).map(entry) {
                let (slice, ..) = entry;
                if last.is_some_and(|last| last == slice || (last < slice) != is_forward) {
                    sound = sound.or(Some(before));
                }
                (before, last) = (entries.len(), Some(slice));
                if is_within(&entry) {
                    entries.push(entry);
                }
            }
            if leaf.version.is_still(&self.guard, &leaf.node.version) {
                return damage.map_or(Ok((entries, sound)), |error| Err(error.into()));
            }
            leaf.version = self.renew(leaf.version, &leaf.node.version)?;
        }
    }

    fn judge(&self, start: &Start<'_>, depth: usize, edge: Edge, entry: (Slice, u8, u64)) -> Walk<Verdict> {
        let (slice, class, object) = entry;
        let take_if = |condition| if condition { Verdict::Take } else { Verdict::Skip };
        let (at, is_key) = match edge {
            Edge::Nothing => return Ok(Verdict::Take),
            Edge::Slice(at, included) => {
                let is_beyond = if start.is_forward() { slice > at } else { slice < at };
                return Ok(take_if(is_beyond || included && slice == at));
            }
            Edge::Key => match start.key() {
                Some((key, included)) => (Slice::of(Slice::rest(key, depth)), (key, included)),
                None => return Ok(Verdict::Take),
            },
        };
        let (key, included) = is_key;
        if slice != at {
            return Ok(take_if((slice > at) == start.is_forward()));
        }
        if class == LAYER {
            return Ok(Verdict::Enter);
        }
        if slice.class < LONGER {
            return Ok(take_if(included));
        }
        let mut tail = Vec::new();
        Record::at(&self.guard, object)?.copy_tail(&self.guard, 8 * (depth + 1), &mut tail)?;
        let order = tail.as_slice().cmp(Slice::rest(key, depth + 1));
        let is_beyond = if start.is_forward() { order.is_gt() } else { order.is_lt() };
        Ok(take_if(is_beyond || included && order.is_eq()))
    }

    /// The border node that a frame goes on with, `next` if that is known; those behind it are on their way.
    #[inline(always)]
    fn leaf_of<'v>(
        &'v self,
        start: &Start<'_>,
        frame: Frame<'v>,
        next: Option<ScanLeaf<'v>>,
    ) -> Walk<ScanLeaf<'v>> {
        let (first, leaf) = match next {
            Some(leaf) => (leaf.trail.first_ahead(), leaf),
            None => (1, self.descend(frame.root, frame.origin, frame.target)?),
        };
        if start.is_forward() {
            self.prefetch_behind(&leaf, first);
        }
        Ok(leaf)
    }

    /// A frame for the layer `depth`, whose root an entry of a border node leads to.
    fn frame_below<'v>(
        start: &Start<'_>,
        depth: usize,
        leaf: &ScanLeaf<'v>,
        root: u64,
        verdict: &Verdict,
    ) -> Walk<Frame<'v>> {
        if 8 * depth > crate::index::record::KEY_BYTES_MAX {
            return Err(Error::corrupt(root, "a layer deeper than the longest key").into());
        }
        let (edge, target) = if *verdict == Verdict::Enter { start.along(depth) } else { start.whole() };
        Ok(Frame { root, origin: Origin::Entry(leaf.node, leaf.version), edge, target })
    }

    #[inline(always)]
    fn prefetch_records(&self, entries: &Entries) {
        if !self.core.are_words {
            for (_, _, object) in entries.iter().filter(|(_, class, _)| *class != LAYER) {
                self.prefetch_record(*object);
            }
        }
    }

    /// Reads entries from `start` on into `sink`. Returns the last key if the sink had enough, `None` at the end.
    pub(super) fn collect(&self, start: &Start<'_>, sink: &mut impl Sink<M>) -> Walk<Option<Vec<u8>>> {
        let root = self.anchor()?.root.value.load(&self.guard);
        let (edge, target) = start.along(0);
        let mut frames = vec![Frame { root, origin: Origin::Anchor, edge, target }];
        let mut prefix = Vec::new();
        let mut next_leaf = None;
        let mut nodes = start.met.nodes();
        while let Some(&frame) = frames.last() {
            let top = frames.len() - 1;
            let mut leaf = self.leaf_of(start, frame, next_leaf.take())?;
            let (mut entries, sound) = match self.entries_of(&mut leaf, start.is_forward()) {
                Err(Stop::Again) => {
                    self.retry()?;
                    continue;
                }
                entries => entries?,
            };
            // On the way to where the batch before ended nodes are met once more in each batch; but no more than the key has slices.
            if !matches!(frame.edge, Edge::Key) {
                nodes += 1;
                self.meet(start.met, nodes, leaf.pointer)?;
            }
            entries.truncate(sound.unwrap_or(usize::MAX));
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
                if !sink.take(self, &found)? {
                    let mut key = Vec::new();
                    found.copy_key(self, &mut key)?;
                    start.met.keep(nodes);
                    return Ok(Some(key));
                }
            }
            match below {
                Some((slice, root, verdict)) => {
                    // When the layer below is read this one goes on behind its entry.
                    frames[top] =
                        Frame { edge: Edge::Slice(slice, false), target: Target::At(slice), ..frame };
                    prefix.extend_from_slice(&slice.word.to_be_bytes());
                    frames.push(Self::frame_below(start, frames.len(), &leaf, root, &verdict)?);
                }
                None if sound.is_some() => {
                    return Err(Error::corrupt(leaf.pointer, "entries out of order").into());
                }
                None => match self.go_on(start, frame, &leaf)? {
                    Some(next) => {
                        frames[top] = next;
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
        Ok(None)
    }

    /// A frame that goes on with the next border node, if there is one.
    fn go_on<'v>(&self, start: &Start<'_>, frame: Frame<'v>, leaf: &ScanLeaf<'_>) -> Walk<Option<Frame<'v>>> {
        let (end, target) = if start.is_forward() {
            let Some(high) = leaf.trail.high else { return Ok(None) };
            ((high, true), Target::At(high))
        } else {
            let Some(low) = leaf.trail.low else { return Ok(None) };
            ((low, false), Target::Below(low))
        };
        let is_progress = match frame.target {
            Target::At(before) | Target::Below(before) if start.is_forward() => end.0 > before,
            Target::At(before) => end.0 <= before,
            Target::Below(before) => end.0 < before,
            Target::Last => true,
        };
        if !is_progress {
            return if self.is_valid() {
                Err(Error::corrupt(leaf.pointer, "separators out of order").into())
            } else {
                Err(Stop::NeedsPass)
            };
        }
        Ok(Some(Frame { edge: Edge::Slice(end.0, end.1), target, ..frame }))
    }
}

impl<M: Medium> Core<M> {
    /// Reads one batch: `sink` is made anew for each attempt.
    pub(super) fn read_batch<S: Sink<M>>(
        &self,
        start: &Start<'_>,
        make: impl Fn() -> S,
    ) -> Result<(S, Option<Vec<u8>>)> {
        let read = |view: &View<'_, M>| {
            let mut sink = make();
            let last = view.collect(start, &mut sink)?;
            Ok((sink, last))
        };
        let view = self.look();
        if let (Ok(batch), true) = (read(&view), view.is_valid()) {
            return Ok(batch);
        }
        self.find_slowly(|view, _| read(view))
    }

    /// The number of keys; exact when no thread writes.
    pub(super) fn count(&self) -> Result<u64> {
        struct Count(u64);
        impl<M: Medium> Sink<M> for Count {
            fn take(&mut self, _view: &View<'_, M>, _found: &Found<'_>) -> Result<bool> {
                self.0 += 1;
                Ok(!self.0.is_multiple_of(4096))
            }
        }
        let (mut total, mut last): (u64, Option<Vec<u8>>) = (0, None);
        let met = Met::default();
        loop {
            let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let start = Start { from, direction: Direction::Forward, met: &met };
            let (count, end) = self.read_batch(&start, || Count(0))?;
            total += count.0;
            match end {
                Some(end) => last = Some(end),
                None => return Ok(total),
            }
        }
    }
}

impl<M: Medium> Sink<M> for Batch {
    fn take(&mut self, view: &View<'_, M>, found: &Found<'_>) -> Result<bool> {
        self.push(|key| found.copy_key(view, key), |value| found.value(view)?.copy(&view.guard, value))
    }
}

/// The batches of a range.
pub(super) struct RangeBatches<'i, M: Medium> {
    core: &'i Core<M>,
    met: Met,
}

impl<'i, M: Medium> RangeBatches<'i, M> {
    /// A cursor over the entries within `bounds`.
    pub(super) fn cursor(core: &'i Core<M>, bounds: Bounds, direction: Direction) -> Cursor<Self> {
        Cursor::new(Self { core, met: Met::default() }, bounds, direction)
    }
}

impl<M: Medium> Batches for RangeBatches<'_, M> {
    fn read(&mut self, batch: &mut Batch) -> Result<()> {
        let from = match batch.from() {
            Bound::Included(key) => Bound::Included(key.as_slice()),
            Bound::Excluded(key) => Bound::Excluded(key.as_slice()),
            Bound::Unbounded => Bound::Unbounded,
        };
        let start = Start { from, direction: batch.direction(), met: &self.met };
        let (filled, last) = self.core.read_batch(&start, || batch.fresh())?;
        *batch = filled;
        match last {
            Some(last) => batch.go_on_from(Bound::Excluded(last)),
            None => batch.finish(),
        }
        Ok(())
    }
}
