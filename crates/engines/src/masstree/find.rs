//! Finding: down the layers, and within each from its root to a border node.

use medium::Medium;

use super::access::{HEIGHT_MAX, NodeRef, Stop, TreeAccess, Walk};
use super::cells::{NO_CELL, SlotValue};
use super::core::Core;
use super::layout::{Border, INTERIOR, Interior, OFFSET_MASK, nibble};
use super::permutation::Permutation;
use super::record::Record;
use super::slice::{LAYER, LONGER, Slice, SliceTarget};
use super::version::{Lock, Version};
use crate::kit::bits;
use crate::{Error, Result};

/// Border nodes that a scan prefetches ahead of the one that it reads.
const LEAVES_AHEAD: usize = 3;

/// A border node that a descent reached.
pub(super) struct ReachedLeaf<'v, T = ()> {
    pub(super) node: &'v Border,
    /// The version of the node when the descent reached it and it was the right one.
    pub(super) version: Version,
    /// The parts of the descent that are remembered.
    pub(super) trail: T,
}

/// The parts of a descent that are remembered: nothing for finding a key, [`SliceBounds`] for going
/// on from there.
pub(super) trait Trail<'v, M: Medium>: Default {
    /// The descent goes on with the child `rank` of a node.
    fn step(
        &mut self,
        view: &'v TreeAccess<'_, M>,
        node: &'v Interior,
        version: Version,
        shape: u64,
        rank: usize,
    );
}

impl<'v, M: Medium> Trail<'v, M> for () {
    #[inline(always)]
    fn step(&mut self, _: &'v TreeAccess<'_, M>, _: &'v Interior, _: Version, _: u64, _: usize) {}
}

/// Between which slices a border node lies.
#[derive(Default)]
pub(super) struct SliceBounds<'v> {
    /// The lowest slice that it covers; `None` for the first of a layer.
    pub(super) low: Option<Slice>,
    /// The first slice above those that it covers; `None` for the last of a layer.
    pub(super) high: Option<Slice>,
    /// The parent, unless the node is the root.
    above: Option<Above<'v>>,
    /// The parent of that, unless that is the root.
    beyond: Option<Above<'v>>,
}

impl<'v, M: Medium> Trail<'v, M> for SliceBounds<'v> {
    #[inline(always)]
    fn step(
        &mut self,
        view: &'v TreeAccess<'_, M>,
        node: &'v Interior,
        version: Version,
        shape: u64,
        rank: usize,
    ) {
        self.beyond = self.above.replace(Above {
            node,
            version,
            rank,
            high: self.high,
        });
        if rank > 0 {
            self.low = Some(view.separator(node, shape, rank - 1));
        }
        if rank < Interior::separators(shape) {
            self.high = Some(view.separator(node, shape, rank));
        }
    }
}

impl SliceBounds<'_> {
    /// The first border node behind the current one that is not prefetched yet, counted from the
    /// current one: under another parent the very next one.
    #[inline(always)]
    pub(super) fn first_ahead(&self) -> usize {
        if self.above.is_some_and(|above| above.rank == 0) {
            1
        } else {
            LEAVES_AHEAD
        }
    }

    /// Repeats the last step, but takes the next child; `None` if the node has no further one.
    #[inline(always)]
    fn step_aside<M: Medium>(&mut self, view: &TreeAccess<'_, M>) -> Option<u64> {
        let above = self.above.as_mut()?;
        let shape = above.node.shape.load(&view.guard);
        let count = Interior::separators(shape);
        if above.rank >= count {
            return None;
        }
        self.low = Some(view.separator(above.node, shape, above.rank));
        above.rank += 1;
        self.high = if above.rank < count {
            Some(view.separator(above.node, shape, above.rank))
        } else {
            above.high
        };
        Some(above.node.child(above.rank).load(&view.guard))
    }

    /// Whether the parent has not changed.
    #[inline(always)]
    fn is_still<M: Medium>(&self, view: &TreeAccess<'_, M>) -> bool {
        self.above
            .is_none_or(|above| above.version.is_still(&view.guard, &above.node.version))
    }
}

/// A border node from which a scan can go on.
pub(super) type ScanLeaf<'v> = ReachedLeaf<'v, SliceBounds<'v>>;

/// An interior node on the way of a descent.
#[derive(Clone, Copy)]
struct Above<'v> {
    node: &'v Interior,
    version: Version,
    /// The child that the descent took.
    rank: usize,
    /// The first slice above those that the node covers.
    high: Option<Slice>,
}

/// An entry of a border node.
#[derive(Clone, Copy, Debug)]
pub(super) struct BorderEntry {
    pub(super) slot: usize,
    /// The class of its slice, or [`LAYER`].
    pub(super) class: u8,
    /// The pointer.
    pub(super) value: u64,
    /// In a tree of words, the content of its cell, if it leads to one.
    pub(super) cell: Option<u64>,
}

/// Where the root of a layer stands.
#[derive(Clone, Copy)]
pub(super) enum Origin<'v> {
    /// In the anchor.
    Anchor,
    /// In an entry of a border node, as it was at a version.
    Entry(&'v Border, Version),
}

/// Where a key belongs.
pub(super) struct KeyPosition<'v> {
    pub(super) leaf: ReachedLeaf<'v>,
    /// The layer, counted from the first.
    pub(super) depth: usize,
    /// The entry of the key's slice as it was at the leaf's version.
    pub(super) entry: Option<BorderEntry>,
}

/// A border node locked for a write, and the entry of the key there.
pub(super) struct LockedBorder<'v, M: Medium> {
    pub(super) lock: Lock<'v, M>,
    pub(super) node: &'v Border,
    pub(super) depth: usize,
    pub(super) slice: Slice,
    pub(super) permutation: Permutation,
    pub(super) entry: Option<BorderEntry>,
}

impl<M: Medium> TreeAccess<'_, M> {
    /// Whether a layer's root is still the one that was read.
    #[inline(always)]
    pub(super) fn is_root(&self, origin: Origin<'_>, root: u64) -> Walk<bool> {
        match origin {
            Origin::Anchor => Ok(self.anchor()?.root.value.load(&self.guard) == root),
            Origin::Entry(border, version) => Ok(
                version.is_still(&self.guard, &border.version) || self.leads_to(border, root)?
            ),
        }
    }

    /// Whether some entry of a border node still leads to a root, though the node has changed.
    #[cold]
    fn leads_to(&self, border: &Border, root: u64) -> Walk<bool> {
        loop {
            let version = self.stable(&border.version)?;
            let permutation = Permutation(border.permutation.load(&self.guard));
            let classes = border.classes.load(&self.guard);
            let mut slots =
                (0..permutation.count(self.core.width)).map(|position| permutation.slot(position));
            let leads = slots.any(|slot| {
                nibble(classes, slot) == LAYER
                    && border.values.value(slot).load(&self.guard) == root
            });
            if version.is_still(&self.guard, &border.version) {
                return Ok(leads && !version.is_deleted());
            }
            self.retry()?;
        }
    }

    /// How many separators lie before the child that `target` means.
    #[inline(always)]
    pub(super) fn rank(&self, node: &Interior, shape: u64, target: SliceTarget) -> usize {
        let count = Interior::separators(shape);
        let (slice, included) = match target {
            SliceTarget::At(slice) => (slice, true),
            SliceTarget::Below(slice) => (slice, false),
            SliceTarget::Last => return count,
        };
        let (below, equal) = self.guard.compare_words(&node.slices, slice.word);
        let present = (1_u32 << count) - 1;
        let mut before = below & present;
        for index in bits(equal & present) {
            let class = nibble(shape >> 4, index);
            before |= u32::from(class < slice.class || included && class == slice.class) << index;
        }
        before.count_ones() as usize
    }

    /// From the root of a layer to the border node that `target` means. [`Stop::Again`] if it is no
    /// root any more.
    #[inline(always)]
    pub(super) fn descend<'v, T: Trail<'v, M>>(
        &'v self,
        root: u64,
        origin: Origin<'_>,
        target: SliceTarget,
    ) -> Walk<ReachedLeaf<'v, T>> {
        'again: loop {
            let mut pointer = root;
            let mut trail = T::default();
            let mut above: Option<(&Interior, Version)> = None;
            for _ in 0..HEIGHT_MAX {
                let node = self.node(pointer)?;
                let version = self.stable(node.version())?;
                match above {
                    None if !self.is_root(origin, root)? => return Err(Stop::Again),
                    Some((above, version)) if !version.is_still(&self.guard, &above.version) => {
                        self.retry()?;
                        continue 'again;
                    }
                    _ => {}
                }
                if version.is_deleted() {
                    self.note_blocked_by(pointer & OFFSET_MASK);
                    if above.is_none() {
                        return Err(Stop::Again);
                    }
                    self.retry()?;
                    continue 'again;
                }
                match node {
                    NodeRef::Border(node) => {
                        return Ok(ReachedLeaf {
                            node,
                            version,
                            trail,
                        });
                    }
                    NodeRef::Interior(node) => {
                        let shape = node.shape.load(&self.guard);
                        let rank = self.rank(node, shape, target);
                        pointer = node.child(rank).load(&self.guard);
                        self.prefetch(pointer);
                        trail.step(self, node, version, shape, rank);
                        above = Some((node, version));
                    }
                }
            }
            // Only a circle has this many levels.
            return Err(self.damaged(pointer, "a layer that is too high"));
        }
    }

    /// Hints the processor to load the nodes that a scan reads next: the border nodes from the
    /// `first` to the last of [`LEAVES_AHEAD`] behind one, as far as they have the same parent;
    /// then that parent's neighbour, and once that was asked for, its first children.
    #[inline(always)]
    pub(super) fn prefetch_behind(&self, leaf: &ScanLeaf<'_>, first: usize) {
        let Some(above) = leaf.trail.above else {
            return;
        };
        let last = above.rank + LEAVES_AHEAD;
        let count = Interior::separators(above.node.shape.load(&self.guard));
        for rank in above.rank + first..=last.min(count) {
            self.prefetch(above.node.child(rank).load(&self.guard));
        }
        if last >= count {
            let was_asked_for = first > 1 && last > count;
            self.prefetch_beyond(leaf, if was_asked_for { last - count } else { 0 });
        }
    }

    /// Hints the processor to load the first children of the parent's neighbour, or the neighbour
    /// itself if the number is 0.
    #[inline(never)]
    fn prefetch_beyond(&self, leaf: &ScanLeaf<'_>, children: usize) {
        let Some(Above { node, rank, .. }) = leaf.trail.beyond else {
            return;
        };
        if rank >= Interior::separators(node.shape.load(&self.guard)) {
            return;
        }
        let next = node.child(rank + 1).load(&self.guard);
        if children == 0 {
            self.prefetch(next);
        } else if let Ok(next) = self.guard.node::<Interior>(next & OFFSET_MASK) {
            // The number of children may have changed since it was read.
            (0..children.min(LEAVES_AHEAD))
                .for_each(|rank| self.prefetch(next.child(rank).load(&self.guard)));
        }
    }

    /// Goes on with the border node behind one, if the parent, or the parent of that, has not
    /// changed: repeats the last steps of a descent. If this returns `false`, `leaf` must not be
    /// used any more.
    #[inline(always)]
    pub(super) fn next_leaf<'v>(&'v self, leaf: &mut ScanLeaf<'v>) -> Walk<bool> {
        let end = leaf.trail.high;
        let trail = &mut leaf.trail;
        let mut pointer = trail.step_aside(self);
        if pointer.is_none() {
            pointer = self.first_beyond(trail)?;
        }
        // If the parent was split meanwhile, the next child does not begin where this one ends.
        let Some(pointer) = pointer.filter(|pointer| *pointer & INTERIOR == 0 && trail.low == end)
        else {
            return Ok(false);
        };
        if !trail.is_still(self) {
            return Ok(false);
        }
        let node = self.border(pointer)?;
        let version = self.stable(&node.version)?;
        leaf.node = node;
        leaf.version = version;
        Ok(!version.is_deleted() && trail.is_still(self))
    }

    /// Goes on with the first child of the node behind the parent; `None` if the parent's parent
    /// has changed.
    #[inline(never)]
    fn first_beyond<'v>(&'v self, trail: &mut SliceBounds<'v>) -> Walk<Option<u64>> {
        trail.above = trail.beyond.take();
        let pointer = trail.step_aside(self);
        let Some(pointer) =
            pointer.filter(|pointer| *pointer & INTERIOR != 0 && trail.is_still(self))
        else {
            return Ok(None);
        };
        let node = self.interior(pointer)?;
        let version = self.stable(&node.version)?;
        if version.is_deleted() || !trail.is_still(self) {
            return Ok(None);
        }
        trail.step(self, node, version, node.shape.load(&self.guard), 0);
        Ok(Some(node.child(0).load(&self.guard)))
    }

    /// The slot of a slice, among those that `permutation` lists, and its class.
    #[inline(always)]
    pub(super) fn find_slot(
        &self,
        node: &Border,
        permutation: Permutation,
        slice: Slice,
    ) -> Option<(usize, u8)> {
        let (_, equal) = self.guard.compare_words(&node.slices, slice.word);
        for slot in bits(equal) {
            let class = nibble(node.classes.load(&self.guard), slot);
            if class.min(LONGER) == slice.class
                && permutation.position(slot) < permutation.count(self.core.width)
            {
                return Some((slot, class));
            }
        }
        None
    }

    /// The entry of a slice, among those that `permutation` lists.
    #[inline(always)]
    pub(super) fn search(
        &self,
        node: &Border,
        permutation: Permutation,
        slice: Slice,
    ) -> Option<BorderEntry> {
        let (slot, class) = self.find_slot(node, permutation, slice)?;
        let value = node.values.value(slot).load(&self.guard);
        let cell = if self.core.are_words {
            self.load_cell(node, slot, value)
        } else {
            None
        };
        Some(BorderEntry {
            slot,
            class,
            value,
            cell,
        })
    }

    /// The slice of a slot, with [`LAYER`] taken for [`LONGER`].
    pub(super) fn slice_of(&self, node: &Border, slot: usize) -> Slice {
        let class = nibble(node.classes.load(&self.guard), slot).min(LONGER);
        Slice {
            word: node.slices[slot].load(&self.guard),
            class,
        }
    }

    /// How many entries lie before `slice`. The node is locked.
    pub(super) fn position(&self, node: &Border, permutation: Permutation, slice: Slice) -> usize {
        let mut low = 0;
        let mut high = permutation.count(self.core.width);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.slice_of(node, permutation.slot(middle)) < slice {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Where `key` belongs.
    #[inline(always)]
    pub(super) fn place(&self, key: &[u8]) -> Walk<KeyPosition<'_>> {
        'again: loop {
            let mut root = self.anchor()?.root.value.load(&self.guard);
            let mut origin = Origin::Anchor;
            let mut depth = 0;
            loop {
                let slice = Slice::of(Slice::rest(key, depth));
                let mut leaf: ReachedLeaf<'_> =
                    match self.descend(root, origin, SliceTarget::At(slice)) {
                        Ok(leaf) => leaf,
                        Err(Stop::Again) => {
                            self.retry()?;
                            continue 'again;
                        }
                        Err(stop) => return Err(stop),
                    };
                let entry = loop {
                    let permutation = Permutation(leaf.node.permutation.load(&self.guard));
                    let entry = self.search(leaf.node, permutation, slice);
                    if leaf.version.is_still(&self.guard, &leaf.node.version) {
                        break entry;
                    }
                    leaf.version = match self.renew(leaf.version, &leaf.node.version) {
                        Err(Stop::Again) => continue 'again,
                        version => version?,
                    };
                };
                match entry {
                    Some(entry) if entry.class == LAYER => {
                        root = entry.value;
                        origin = Origin::Entry(leaf.node, leaf.version);
                        depth += 1;
                    }
                    entry => return Ok(KeyPosition { leaf, depth, entry }),
                }
            }
        }
    }

    /// Locks the border node that `key` belongs to.
    pub(super) fn lock_place(&self, key: &[u8]) -> Walk<LockedBorder<'_, M>> {
        loop {
            let KeyPosition { leaf, depth, .. } = self.place(key)?;
            let lock = self.lock(&leaf.node.version)?;
            if lock.covers_since(leaf.version) {
                let slice = Slice::of(Slice::rest(key, depth));
                let permutation = Permutation(leaf.node.permutation.load(&self.guard));
                let entry = self.search(leaf.node, permutation, slice);
                // Another writer may have made a layer meanwhile where there was no entry, or one
                // key.
                if entry.is_none_or(|entry| entry.class != LAYER) {
                    return Ok(LockedBorder {
                        lock,
                        node: leaf.node,
                        depth,
                        slice,
                        permutation,
                        entry,
                    });
                }
            }
            drop(lock);
            self.retry()?;
        }
    }

    /// The value of an entry in the layer `depth`, if it is that of `key`.
    #[inline(always)]
    pub(super) fn value_for(
        &self,
        node: &Border,
        depth: usize,
        entry: BorderEntry,
        key: &[u8],
    ) -> Result<Option<SlotValue>> {
        if self.core.are_words {
            let value = entry.cell.map(|word| Some(SlotValue::Word(word)));
            return value.ok_or_else(|| Error::corrupt(self.guard.offset_of(node), NO_CELL));
        }
        let record = Record::at(&self.guard, entry.value)?;
        let is_same = entry.class < LONGER
            || record.has_tail(&self.guard, 8 * (depth + 1), Slice::rest(key, depth + 1))?;
        if is_same {
            return Ok(Some(SlotValue::Record(record)));
        }
        record.expect_key(&self.guard)?;
        Ok(None)
    }

    /// The result of `use_value` for the value of `key`.
    #[inline(always)]
    pub(super) fn find_with<R>(
        &self,
        key: &[u8],
        use_value: &mut impl FnMut(&Self, SlotValue) -> Result<R>,
    ) -> Walk<Option<R>> {
        let place = self.place(key)?;
        let Some(entry) = place.entry else {
            return Ok(None);
        };
        let value = self.value_for(place.leaf.node, place.depth, entry, key)?;
        Ok(value.map(|value| use_value(self, value)).transpose()?)
    }
}

impl<M: Medium> Core<M> {
    /// Calls `use_value` with the value of `key`, perhaps several times; its last result counts.
    /// O(log n).
    #[inline(always)]
    pub(super) fn find<R>(
        &self,
        key: &[u8],
        mut use_value: impl FnMut(&TreeAccess<'_, M>, SlotValue) -> Result<R>,
    ) -> Result<Option<R>> {
        let view = self.look();
        let found = view.find_with(key, &mut use_value);
        let is_valid = view.is_valid();
        if let Ok(found) = found
            && is_valid
        {
            return Ok(found);
        }
        self.with_pass_held(|view| view.find_with(key, &mut use_value))
    }
}
