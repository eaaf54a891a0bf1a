//! Splits: a full border node gives its upper half to a new one; so do the interior nodes above that are full.
//!
//! All that a split needs (locks, what is to move, nodes, entries of the external log) is there before it changes anything,
//! so that it happens wholly or not at all.
//!
//! Nodes do not know their parents. A parent is found by descending once more; it cannot lose the child meanwhile, for
//! the child is locked. Locks are taken upwards: from a layer's border to its root, then in the layer above.

use medium::Medium;
use smallvec::SmallVec;

use super::access::{HEIGHT_MAX, NodeRef, Stop, View, Walk, Work};
use super::find::Origin;
use super::in_line_log::Change;
use super::insert::Locked;
use super::layout::{Border, INTERIOR, Interior, LOGGED, OFFSET_MASK, interior_bytes, with_nibble};
use super::permutation::Permutation;
use super::slice::{LAYER, Slice, Target};
use super::version::{Lock, Version};
use crate::Error;

/// What leads to a node; locked.
pub(super) enum Parent<'v, M: Medium> {
    Interior(InteriorLock<'v, M>),
    Root(RootLock<'v, M>),
}

/// A locked interior node, and the position of the child that the lock was taken for.
pub(super) struct InteriorLock<'v, M: Medium> {
    pub(super) lock: Lock<'v, M>,
    pub(super) node: &'v Interior,
    pub(super) pointer: u64,
    pub(super) position: usize,
}

/// The place of a layer's root, locked.
pub(super) enum RootLock<'v, M: Medium> {
    /// In the anchor.
    Anchor(#[expect(dead_code, reason = "held")] medium::sync::MutexGuard<'v, ()>),
    /// In an entry of a border node.
    Entry { lock: Lock<'v, M>, node: &'v Border, pointer: u64, slot: usize },
}

/// Separators and children of an interior node while it is taken apart.
pub(super) struct Parts {
    pub(super) separators: SmallVec<[Slice; 16]>,
    pub(super) children: SmallVec<[u64; 17]>,
}

/// What the split of a border node gives away.
struct Upper {
    /// How many entries stay.
    kept: usize,
    /// What goes, with the new entry if that belongs there.
    entries: SmallVec<[(Slice, u64); 16]>,
    /// Whether the node is the last one of its parent.
    is_last: bool,
}

impl Parts {
    /// Adds a child behind the one at `position`. Fails only in a damaged pool, whose free space lies over its nodes.
    fn insert(&mut self, position: usize, separator: Slice, child: u64) -> Walk<()> {
        if position > self.separators.len() {
            return Err(Error::corrupt(child & OFFSET_MASK, "a node that changed while it was locked").into());
        }
        self.separators.insert(position, separator);
        self.children.insert(position + 1, child);
        Ok(())
    }

    /// Takes the child at `position` out, with a separator beside it.
    pub(super) fn remove(&mut self, position: usize) -> Walk<()> {
        if position >= self.children.len() || self.separators.is_empty() {
            return Err(Error::corrupt(0, "a node that changed while it was locked").into());
        }
        self.children.remove(position);
        self.separators.remove(position.saturating_sub(1));
        Ok(())
    }
}

impl<M: Medium> View<'_, M> {
    /// Locks what leads to the node `child`, in the layer `depth` of `key`. The child is locked and covers the key.
    pub(super) fn lock_parent(&self, key: &[u8], depth: usize, child: u64) -> Walk<Parent<'_, M>> {
        let slice = Slice::of(Slice::rest(key, depth));
        loop {
            match self.try_lock_parent(key, depth, slice, child) {
                Err(Stop::Again) => self.retry()?,
                other => return other,
            }
        }
    }

    /// As [`View::lock_parent`] for the root of a layer, when it is known in which border node its entry was; `None` if it
    /// is there no more, or `child` is no root.
    pub(super) fn lock_entry_of(
        &self,
        key: &[u8],
        depth: usize,
        child: u64,
        border: u64,
    ) -> Walk<Option<Parent<'_, M>>> {
        let node = self.border(border)?;
        let lock = self.lock(&node.version)?;
        let permutation = Permutation(node.permutation.load(&self.guard));
        let slice = Slice::of(Slice::rest(key, depth - 1));
        let entry = self.search(node, permutation, slice);
        let entry = entry.filter(|entry| entry.class == LAYER && entry.value == child && !lock.is_deleted());
        Ok(entry.map(|entry| Parent::Root(RootLock::Entry { lock, node, pointer: border, slot: entry.slot })))
    }

    fn try_lock_parent(&self, key: &[u8], depth: usize, slice: Slice, child: u64) -> Walk<Parent<'_, M>> {
        let (root, entry) = if depth == 0 {
            (self.anchor()?.root.value.load(&self.guard), None)
        } else {
            let place = self.place(key, depth - 1)?;
            let Some(entry) = place.entry.filter(|entry| entry.class == LAYER && place.depth == depth - 1)
            else {
                return Err(Stop::Again);
            };
            (entry.value, Some((place.leaf, entry)))
        };
        if root == child {
            return self.lock_root(root, entry).map(Parent::Root);
        }
        let origin =
            entry.as_ref().map_or(Origin::Anchor, |(leaf, _)| Origin::Entry(leaf.node, leaf.version));
        self.lock_above(root, origin, slice, child).map(Parent::Interior)
    }

    fn lock_root(
        &self,
        root: u64,
        entry: Option<(super::find::Leaf<'_>, super::find::Entry)>,
    ) -> Walk<RootLock<'_, M>> {
        let Some((leaf, entry)) = entry else {
            let lock = self.core.root.lock();
            let is_still = self.anchor()?.root.value.load(&self.guard) == root;
            return if is_still { Ok(RootLock::Anchor(lock)) } else { Err(Stop::Again) };
        };
        // Found again by its offset, as a reference that lives as long as this look.
        let node = self.border(leaf.pointer)?;
        let lock = self.lock(&node.version)?;
        if !lock.is_since(leaf.version) {
            return Err(Stop::Again);
        }
        Ok(RootLock::Entry { lock, node, pointer: leaf.pointer, slot: entry.slot })
    }

    /// Locks the interior node above `child`, below `root`.
    fn lock_above(
        &self,
        root: u64,
        origin: Origin<'_>,
        slice: Slice,
        child: u64,
    ) -> Walk<InteriorLock<'_, M>> {
        let mut pointer = root;
        let mut above: Option<(&Interior, Version)> = None;
        for _ in 0..HEIGHT_MAX {
            let NodeRef::Interior(node) = self.node(pointer)? else { return Err(Stop::Again) };
            let version = self.stable(&node.version)?;
            let is_right = match above {
                None => self.is_root(origin, root)?,
                Some((above, seen)) => seen.is_still(&self.guard, &above.version),
            };
            if !is_right || version.is_deleted() {
                return Err(Stop::Again);
            }
            let shape = node.shape.load(&self.guard);
            let position = self.rank(node, shape, Target::At(slice));
            let next = node.child(position).load(&self.guard);
            if next == child {
                let lock = self.lock(&node.version)?;
                if !lock.is_since(version) {
                    return Err(Stop::Again);
                }
                return Ok(InteriorLock { lock, node, pointer, position });
            }
            above = Some((node, version));
            pointer = next;
        }
        Err(Error::corrupt(pointer & OFFSET_MASK, "a layer that is too high").into())
    }

    pub(super) fn parts(&self, node: &Interior) -> Parts {
        let shape = node.shape.load(&self.guard);
        let count = Interior::separators(shape);
        Parts {
            separators: (0..count).map(|index| self.separator(node, shape, index)).collect(),
            children: (0..=count).map(|index| node.child(index).load(&self.guard)).collect(),
        }
    }

    /// Writes separators and children of an interior node.
    pub(super) fn store_parts(&self, node: &Interior, separators: &[Slice], children: &[u64]) {
        let mut classes = 0;
        for (index, separator) in separators.iter().enumerate() {
            node.slices[index].store(&self.guard, separator.word);
            classes = with_nibble(classes, index, separator.class);
        }
        for (index, child) in children.iter().enumerate() {
            node.child(index).store(&self.guard, *child);
        }
        node.shape.store(&self.guard, classes << 4 | separators.len() as u64);
    }

    /// Makes an interior node of allocated memory; nobody sees it yet.
    pub(super) fn fill_interior(
        &self,
        work: &mut Work<'_>,
        offset: u64,
        separators: &[Slice],
        children: &[u64],
    ) -> Walk<u64> {
        let node = self.guard.node::<Interior>(offset)?;
        Version::start(&self.guard, &node.version);
        self.store_parts(node, separators, children);
        node.epoch.store(&self.guard, self.epoch_word() | LOGGED);
        self.list_new(work, offset, &node.listed, interior_bytes());
        Ok(offset | INTERIOR)
    }

    /// Logs the place of a root before it changes.
    pub(super) fn prepare_root(&self, work: &mut Work<'_>, root: &RootLock<'_, M>) -> Walk<()> {
        match root {
            RootLock::Anchor(_) => Ok(()),
            RootLock::Entry { node, pointer, .. } => {
                self.prepare(work, *pointer, node, Change::Everything).map(drop)
            }
        }
    }

    /// Sets a layer's root; [`View::prepare_root`] was called.
    pub(super) fn set_root(&self, work: &mut Work<'_>, root: &mut RootLock<'_, M>, pointer: u64) -> Walk<()> {
        match root {
            RootLock::Anchor(_) => {
                self.set_logged(&self.anchor()?.root, pointer);
                self.list_cells(work);
            }
            RootLock::Entry { lock, node, slot, .. } => {
                // Readers that wait for the old root find that it is none when they go on.
                lock.begin_change();
                node.values.value(*slot).store(&self.guard, pointer);
            }
        }
        Ok(())
    }

    /// Inserts into a full border node.
    pub(super) fn split(
        &self,
        work: &mut Work<'_>,
        place: Locked<'_, M>,
        key: &[u8],
        position: usize,
        content: u64,
    ) -> Walk<()> {
        let mut full: SmallVec<[InteriorLock<'_, M>; 8]> = SmallVec::new();
        let mut child = place.pointer;
        let top = loop {
            match self.lock_parent(key, place.depth, child)? {
                Parent::Interior(parent)
                    if parent.node.shape.load(&self.guard) & 15 >= self.core.width as u64 =>
                {
                    child = parent.pointer;
                    full.push(parent);
                }
                top => break top,
            }
        };
        let parent = match (full.first(), &top) {
            (Some(parent), _) | (None, Parent::Interior(parent)) => Some(parent),
            (None, Parent::Root(_)) => None,
        };
        let is_last = parent
            .is_none_or(|parent| parent.position == (parent.node.shape.load(&self.guard) & 15) as usize);
        let upper = self.upper_of(&place, position, content, is_last)?;
        let is_new_root = matches!(top, Parent::Root(_));
        let mut made: SmallVec<[u64; 8]> = SmallVec::new();
        self.prepare_split(work, &place, &full, &top, &mut made, is_new_root)
            .or_else(|stop| self.give_up(work, &made, stop))?;
        self.apply_split(work, place, position, content, &upper, full, top, &made)
    }

    /// Allocates and logs all that a split needs.
    fn prepare_split(
        &self,
        work: &mut Work<'_>,
        place: &Locked<'_, M>,
        full: &[InteriorLock<'_, M>],
        top: &Parent<'_, M>,
        made: &mut SmallVec<[u64; 8]>,
        is_new_root: bool,
    ) -> Walk<()> {
        made.push(self.allocate_border(work)?);
        for _ in 0..full.len() + usize::from(is_new_root) {
            made.push(self.allocate_interior(work)?);
        }
        for parent in full {
            self.prepare_interior(work, parent.pointer, parent.node)?;
        }
        match top {
            Parent::Interior(parent) => self.prepare_interior(work, parent.pointer, parent.node)?,
            Parent::Root(root) => self.prepare_root(work, root)?,
        }
        self.prepare(work, place.pointer, place.node, Change::Everything).map(drop)
    }

    #[expect(clippy::too_many_arguments, reason = "all that was prepared")]
    fn apply_split(
        &self,
        work: &mut Work<'_>,
        mut place: Locked<'_, M>,
        position: usize,
        content: u64,
        upper: &Upper,
        full: SmallVec<[InteriorLock<'_, M>; 8]>,
        top: Parent<'_, M>,
        made: &[u64],
    ) -> Walk<()> {
        let is_last = upper.is_last;
        let (mut left, mut right) = (place.pointer, made[0]);
        let mut separator = self.split_border(work, &mut place, position, content, right, upper)?;
        let mut locks: SmallVec<[Lock<'_, M>; 8]> = SmallVec::new();
        for (parent, offset) in full.into_iter().zip(&made[1..]) {
            let mut parent = parent;
            let mut parts = self.parts(parent.node);
            parts.insert(parent.position, separator, right)?;
            if parts.separators.len() != self.core.width + 1 {
                return Err(Error::corrupt(parent.pointer, "a full node that is not full").into());
            }
            // In ascending order of keys the left node stays nearly full.
            let middle = if is_last && parent.position == self.core.width {
                self.core.width - 1
            } else {
                self.core.width.div_ceil(2)
            };
            parent.lock.begin_change();
            right = self.fill_interior(
                work,
                *offset,
                &parts.separators[middle + 1..],
                &parts.children[middle + 1..],
            )?;
            separator = parts.separators[middle];
            self.store_parts(parent.node, &parts.separators[..middle], &parts.children[..=middle]);
            left = parent.pointer;
            locks.push(parent.lock);
        }
        match top {
            Parent::Interior(mut parent) => {
                parent.lock.begin_change();
                let mut parts = self.parts(parent.node);
                parts.insert(parent.position, separator, right)?;
                if parts.separators.len() > self.core.width {
                    return Err(Error::corrupt(parent.pointer, "a node that became full by itself").into());
                }
                self.store_parts(parent.node, &parts.separators, &parts.children);
            }
            Parent::Root(mut root) => {
                let offset = made[made.len() - 1];
                let pointer = self.fill_interior(work, offset, &[separator], &[left, right])?;
                self.set_root(work, &mut root, pointer)?;
            }
        }
        // From here on the nodes below may be looked at again.
        drop(locks);
        drop(place);
        Ok(())
    }

    /// What the new node gets when an entry is inserted into a full one.
    fn upper_of(&self, place: &Locked<'_, M>, position: usize, content: u64, is_last: bool) -> Walk<Upper> {
        let node = place.node;
        let classes = node.classes.load(&self.guard);
        let entry = |position: usize| -> Walk<(Slice, u64)> {
            let slot = place.permutation.slot(position);
            let class = super::layout::nibble(classes, slot);
            let word = node.slices[slot].load(&self.guard);
            let held = self.content_of(node, slot, node.values.value(slot).load(&self.guard))?;
            Ok((Slice { word, class }, held))
        };
        // With keys in ascending order the left node stays full.
        let kept = if is_last && position == self.core.width {
            self.core.width
        } else {
            self.core.width.div_ceil(2)
        };
        let mut entries: SmallVec<[(Slice, u64); 16]> =
            (kept..self.core.width).map(entry).collect::<Walk<_>>()?;
        if position >= kept && !(position == kept && kept < self.core.width) {
            entries.insert(position - kept, (place.slice, content));
        }
        Ok(Upper { kept, entries, is_last })
    }

    /// Gives the upper entries of a border node to a new one, and inserts; returns the separator.
    fn split_border(
        &self,
        work: &mut Work<'_>,
        place: &mut Locked<'_, M>,
        position: usize,
        content: u64,
        offset: u64,
        upper: &Upper,
    ) -> Walk<Slice> {
        let (node, kept) = (place.node, upper.kept);
        self.fill_border(work, offset, &upper.entries)?;
        let first = upper.entries[0].0;
        let separator = Slice { word: first.word, class: first.class.min(super::slice::LONGER) };
        place.lock.begin_change();
        let mut permutation = place.permutation.truncated(kept);
        if position <= kept && kept < self.core.width {
            let slot = permutation.free_slot(self.core.width);
            self.fill_slot(node, slot, place.slice, content)?;
            permutation = permutation.inserted(position, self.core.width);
        }
        node.permutation.store(&self.guard, permutation.0);
        Ok(separator)
    }
}
