//! Splits: a full border node gives its upper half to a new one; so do the interior nodes above that are full.
//!
//! All that a split needs (locks, what is to move, nodes, entries of the external log) is there before it changes anything,
//! so that it happens wholly or not at all.
//!
//! Nodes do not know their parents. They are found by one more descent. A parent cannot lose the child meanwhile, for the child is
//! locked. Locks are taken upwards: from a layer's border to its root, then in the layer above.

use medium::Medium;
use smallvec::SmallVec;

use super::access::{NodeRef, View, Walk};
use super::find::{Interiors, Leaf, Locked};
use super::in_line_log::Change;
use super::layout::{Border, Interior, nibble};
use super::nodes::Parts;
use super::permutation::Permutation;
use super::shard::Work;
use super::slice::{LAYER, LONGER, Slice};
use super::version::Lock;

/// The nodes on the way to a key, from the root of the first layer down, each with its layer.
pub(super) type Path = Vec<(usize, u64)>;

/// What leads to a node; locked.
pub(super) enum Parent<'v, M: Medium> {
    Interior(Box<InteriorLock<'v, M>>),
    Root(RootLock<'v, M>),
}

/// A locked interior node, the position of the child that the lock was taken for, and all that the node holds.
pub(super) struct InteriorLock<'v, M: Medium> {
    pub(super) lock: Lock<'v, M>,
    pub(super) node: &'v Interior,
    pub(super) pointer: u64,
    pub(super) position: usize,
    pub(super) parts: Parts,
}

/// A locked border node, and the slot of one of its entries.
pub(super) struct EntryLock<'v, M: Medium> {
    pub(super) lock: Lock<'v, M>,
    pub(super) node: &'v Border,
    pub(super) pointer: u64,
    pub(super) slot: usize,
}

/// The place of a layer's root, locked.
pub(super) enum RootLock<'v, M: Medium> {
    /// In the anchor.
    Anchor(#[expect(dead_code, reason = "held")] medium::sync::MutexGuard<'v, ()>),
    /// In an entry of the layer above.
    Entry(EntryLock<'v, M>),
}

impl<M: Medium> View<'_, M> {
    /// Locks what leads to the node `child`, which is locked, and on the way to `key` in layer `depth` or above. `path` is that way
    /// as it was found before; it is found anew if it has changed.
    pub(super) fn lock_parent(
        &self,
        key: &[u8],
        depth: usize,
        child: u64,
        path: &mut Path,
    ) -> Walk<Parent<'_, M>> {
        loop {
            if let Some(position) = path.iter().rposition(|(_, pointer)| *pointer == child) {
                path.truncate(position + 1);
                let above = position.checked_sub(1).map(|above| path[above]);
                if let Some(parent) = self.try_lock_parent(key, above, child)? {
                    return Ok(parent);
                }
            }
            if !path.is_empty() {
                self.retry()?;
            }
            self.place_along(key, depth, |layer, leaf: &Leaf<'_, Interiors>| {
                if layer == 0 {
                    path.clear();
                }
                path.extend(leaf.trail.iter().chain([&leaf.pointer]).map(|pointer| (layer, *pointer)));
            })?;
        }
    }

    /// Locks the node `above`, or the anchor's root if there is none; `None` if that does not lead to `child`.
    fn try_lock_parent(
        &self,
        key: &[u8],
        above: Option<(usize, u64)>,
        child: u64,
    ) -> Walk<Option<Parent<'_, M>>> {
        let Some((layer, pointer)) = above else {
            let lock = self.core.root.lock();
            let is_root = self.anchor()?.root.value.load(&self.guard) == child;
            return Ok(is_root.then_some(Parent::Root(RootLock::Anchor(lock))));
        };
        let slice = Slice::of(Slice::rest(key, layer));
        Ok(match self.node(pointer)? {
            NodeRef::Interior(node) => {
                let lock = self.lock(&node.version)?;
                let parts = self.parts(node);
                let position = parts.separators.partition_point(|separator| *separator <= slice);
                let leads = parts.children[position] == child && !lock.is_deleted();
                leads.then(|| {
                    Parent::Interior(Box::new(InteriorLock { lock, node, pointer, position, parts }))
                })
            }
            NodeRef::Border(node) => {
                let lock = self.lock(&node.version)?;
                let permutation = Permutation(node.permutation.load(&self.guard));
                let entry = self
                    .search(node, permutation, slice)
                    .filter(|entry| entry.class == LAYER && entry.value == child && !lock.is_deleted());
                entry.map(|entry| {
                    Parent::Root(RootLock::Entry(EntryLock { lock, node, pointer, slot: entry.slot }))
                })
            }
        })
    }

    /// Logs the place of a root before it changes.
    pub(super) fn prepare_root(&self, work: &mut Work<'_>, root: &RootLock<'_, M>) -> Walk<()> {
        match root {
            RootLock::Anchor(_) => Ok(()),
            RootLock::Entry(entry) => {
                self.prepare(work, entry.pointer, entry.node, Change::Everything).map(drop)
            }
        }
    }

    /// Sets a layer's root; [`View::prepare_root`] was called.
    pub(super) fn set_root(&self, work: &mut Work<'_>, root: &mut RootLock<'_, M>, pointer: u64) -> Walk<()> {
        match root {
            RootLock::Anchor(_) => self.set_first_root(work, pointer)?,
            RootLock::Entry(entry) => {
                // Readers that wait for the old root see when they go on that it is no root any more.
                entry.lock.begin_change();
                entry.node.values.value(entry.slot).store(&self.guard, pointer);
            }
        }
        Ok(())
    }

    /// Inserts into a full border node.
    pub(super) fn split(
        &self,
        work: &mut Work<'_>,
        mut place: Locked<'_, M>,
        key: &[u8],
        position: usize,
        content: u64,
    ) -> Walk<()> {
        let width = self.core.width;
        let (mut full, mut path) = (Vec::new(), Path::new());
        let mut child = place.pointer;
        let mut top = loop {
            match self.lock_parent(key, place.depth, child, &mut path)? {
                Parent::Interior(parent) if parent.parts.separators.len() >= width => {
                    child = parent.pointer;
                    full.push(*parent);
                }
                top => break top,
            }
        };
        let parent = match (full.first(), &top) {
            (Some(parent), _) => Some(parent),
            (None, Parent::Interior(parent)) => Some(&**parent),
            (None, Parent::Root(_)) => None,
        };
        let is_last = parent.is_none_or(|parent| parent.position == parent.parts.separators.len());
        // With keys in ascending order the left node stays full, and those above nearly so.
        let kept = if is_last && position == width { width } else { width.div_ceil(2) };
        let upper = self.upper_of(&place, position, content, kept)?;
        let mut made = SmallVec::<[u64; 8]>::new();
        self.prepare_split(work, &place, &full, &top, &mut made)
            .or_else(|stop| self.give_up(work, &made, stop))?;

        let (mut left, mut right) = (place.pointer, made[0]);
        let mut separator = self.split_border(work, &mut place, position, content, (right, &upper))?;
        for (parent, offset) in full.iter_mut().zip(&made[1..]) {
            parent.parts.insert(parent.position, separator, right);
            let Parts { separators, children } = &parent.parts;
            let middle = if is_last && parent.position == width { width - 1 } else { width.div_ceil(2) };
            parent.lock.begin_change();
            right = self.fill_interior(work, *offset, &separators[middle + 1..], &children[middle + 1..])?;
            separator = separators[middle];
            self.store_parts(parent.node, &separators[..middle], &children[..=middle]);
            left = parent.pointer;
        }
        match &mut top {
            Parent::Interior(parent) => {
                parent.lock.begin_change();
                parent.parts.insert(parent.position, separator, right);
                self.store_parts(parent.node, &parent.parts.separators, &parent.parts.children);
            }
            Parent::Root(root) => {
                let offset = made[made.len() - 1];
                let pointer = self.fill_interior(work, offset, &[separator], &[left, right])?;
                self.set_root(work, root, pointer)?;
            }
        }
        // The nodes above are unlocked before those below.
        drop(top);
        Ok(())
    }

    /// Allocates and logs all that a split needs.
    fn prepare_split(
        &self,
        work: &mut Work<'_>,
        place: &Locked<'_, M>,
        full: &[InteriorLock<'_, M>],
        top: &Parent<'_, M>,
        made: &mut SmallVec<[u64; 8]>,
    ) -> Walk<()> {
        made.push(self.allocate_border(work)?);
        for _ in 0..full.len() + usize::from(matches!(top, Parent::Root(_))) {
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

    /// What the new node gets when an entry is inserted into a full one, whose first `kept` entries stay.
    fn upper_of(
        &self,
        place: &Locked<'_, M>,
        position: usize,
        content: u64,
        kept: usize,
    ) -> Walk<SmallVec<[(Slice, u64); 16]>> {
        let node = place.node;
        let classes = node.classes.load(&self.guard);
        let entry = |position: usize| -> Walk<(Slice, u64)> {
            let slot = place.permutation.slot(position);
            let slice = Slice { word: node.slices[slot].load(&self.guard), class: nibble(classes, slot) };
            Ok((slice, self.content_of(node, slot, node.values.value(slot).load(&self.guard))?))
        };
        let mut entries: SmallVec<_> = (kept..self.core.width).map(entry).collect::<Walk<_>>()?;
        if position > kept || entries.is_empty() {
            entries.insert(position - kept, (place.slice, content));
        }
        Ok(entries)
    }

    /// Gives the upper entries of a border node to a new one, and inserts; returns the separator.
    fn split_border(
        &self,
        work: &mut Work<'_>,
        place: &mut Locked<'_, M>,
        position: usize,
        content: u64,
        (offset, upper): (u64, &[(Slice, u64)]),
    ) -> Walk<Slice> {
        let (node, width) = (place.node, self.core.width);
        self.fill_border(work, offset, upper)?;
        place.lock.begin_change();
        let is_in_upper = upper.iter().any(|(slice, _)| *slice == place.slice);
        let mut permutation = place.permutation.truncated(width + usize::from(is_in_upper) - upper.len());
        if !is_in_upper {
            let slot = permutation.free_slot(width);
            self.fill_slot(node, slot, place.slice, content)?;
            permutation = permutation.inserted(position, width);
        }
        node.permutation.store(&self.guard, permutation.0);
        Ok(Slice { word: upper[0].0.word, class: upper[0].0.class.min(LONGER) })
    }
}
