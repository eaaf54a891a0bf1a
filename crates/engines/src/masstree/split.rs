//! Splits: a full border node gives its upper half to a new one; so do the interior nodes above
//! that are full.
//!
//! A split acquires everything that it needs (locks, the entries that move, nodes, entries of the
//! external log) before it changes anything, so that it happens wholly or not at all.
//!
//! Nodes do not know their parents. They are found by one more descent. A parent cannot lose the
//! child meanwhile, for the child is locked. Locks are taken upwards: from a layer's border to its
//! root, then in the layer above.

use medium::Medium;
use smallvec::SmallVec;

use super::access::{HEIGHT_MAX, NodeRef, TreeAccess, Walk};
use super::find::LockedBorder;
use super::in_line_log::BorderChange;
use super::layout::{Border, INTERIOR, Interior, OFFSET_MASK, nibble};
use super::nodes::Parts;
use super::permutation::Permutation;
use super::shard::Work;
use super::slice::{LAYER, LONGER, Slice, SliceTarget};
use super::version::Lock;

/// The locked parent of a node, which leads to it.
pub(super) enum Parent<'v, M: Medium> {
    Interior(InteriorLock<'v, M>),
    Root(RootLock<'v, M>),
}

/// A locked interior node, and the position of the child that the lock was taken for.
pub(super) struct InteriorLock<'v, M: Medium> {
    pub(super) lock: Lock<'v, M>,
    pub(super) node: &'v Interior,
    pub(super) position: usize,
}

/// A locked border node, and the slot of one of its entries.
pub(super) struct EntryLock<'v, M: Medium> {
    pub(super) lock: Lock<'v, M>,
    pub(super) node: &'v Border,
    pub(super) slot: usize,
}

/// The place of a layer's root, locked.
pub(super) enum RootLock<'v, M: Medium> {
    /// In the anchor.
    Anchor(#[expect(dead_code, reason = "held")] medium::sync::MutexGuard<'v, ()>),
    /// In an entry of the layer above.
    Entry(EntryLock<'v, M>),
}

/// Whether two pointers lead to one node.
fn is_same(one: u64, other: u64) -> bool {
    (one ^ other) & (OFFSET_MASK | INTERIOR) == 0
}

impl<M: Medium> TreeAccess<'_, M> {
    /// Locks the parent of the node `child`: an interior node, or the place of a root. The child is
    /// locked, and covers `key` in layer `depth` or above.
    pub(super) fn lock_parent(&self, key: &[u8], depth: usize, child: u64) -> Walk<Parent<'_, M>> {
        loop {
            if let Some(parent) = self.try_lock_parent(key, depth, child)? {
                return Ok(parent);
            }
            self.retry()?;
        }
    }

    /// One attempt of [`TreeAccess::lock_parent`], which descends from the first root; `None` if the way
    /// to the child has changed meanwhile.
    fn try_lock_parent(&self, key: &[u8], depth: usize, child: u64) -> Walk<Option<Parent<'_, M>>> {
        let root = &self.anchor()?.root.value;
        let mut pointer = root.load(&self.guard);
        let mut layer = 0;
        if is_same(pointer, child) {
            let lock = self.core.root.lock();
            let is_root = is_same(root.load(&self.guard), child);
            return Ok(is_root.then_some(Parent::Root(RootLock::Anchor(lock))));
        }
        for _ in 0..HEIGHT_MAX * (depth + 1) {
            let node = self.node(pointer)?;
            let slice = Slice::of(Slice::rest(key, layer));
            self.stable(node.version())?;
            let Some((_, below)) = self.step(&node, slice) else {
                break;
            };
            if is_same(below, child) {
                let lock = self.lock(node.version())?;
                let leads = self
                    .step(&node, slice)
                    .filter(|(_, below)| is_same(*below, child));
                let Some((position, _)) = leads else {
                    return Ok(None);
                };
                if lock.is_deleted() {
                    return Ok(None);
                }
                return Ok(Some(match node {
                    NodeRef::Interior(node) => Parent::Interior(InteriorLock {
                        lock,
                        node,
                        position,
                    }),
                    NodeRef::Border(node) => Parent::Root(RootLock::Entry(EntryLock {
                        lock,
                        node,
                        slot: position,
                    })),
                }));
            }
            layer += usize::from(matches!(node, NodeRef::Border(_)));
            pointer = below;
        }
        Ok(None)
    }

    /// Where a node leads to for a slice: the position of a child or the slot of an entry, and the
    /// pointer there.
    pub(super) fn step(&self, node: &NodeRef<'_>, slice: Slice) -> Option<(usize, u64)> {
        match node {
            NodeRef::Interior(node) => {
                let rank = self.rank(node, node.shape.load(&self.guard), SliceTarget::At(slice));
                Some((rank, node.child(rank).load(&self.guard)))
            }
            NodeRef::Border(node) => {
                let entry =
                    self.search(node, Permutation(node.permutation.load(&self.guard)), slice);
                entry
                    .filter(|entry| entry.class == LAYER)
                    .map(|entry| (entry.slot, entry.value))
            }
        }
    }

    /// How many separators a locked interior node has.
    pub(super) fn separators(&self, parent: &InteriorLock<'_, M>) -> usize {
        Interior::separators(parent.node.shape.load(&self.guard))
    }

    /// Logs the place of a root before it changes.
    pub(super) fn prepare_root(&self, work: &mut Work<'_>, root: &RootLock<'_, M>) -> Walk<()> {
        match root {
            RootLock::Anchor(_) => Ok(()),
            RootLock::Entry(entry) => self
                .prepare(work, entry.node, BorderChange::Everything)
                .map(drop),
        }
    }

    /// Sets a layer's root; [`TreeAccess::prepare_root`] was called.
    pub(super) fn set_root(
        &self,
        work: &mut Work<'_>,
        root: &mut RootLock<'_, M>,
        pointer: u64,
    ) -> Walk<()> {
        match root {
            RootLock::Anchor(_) => self.set_first_root(work, pointer)?,
            RootLock::Entry(entry) => {
                // Readers that wait for the old root notice, when they go on, that it is no root
                // any more.
                entry.lock.begin_change();
                entry
                    .node
                    .values
                    .value(entry.slot)
                    .store(&self.guard, pointer);
            }
        }
        Ok(())
    }

    /// Inserts into a full border node.
    pub(super) fn split(
        &self,
        work: &mut Work<'_>,
        mut place: LockedBorder<'_, M>,
        key: &[u8],
        position: usize,
        content: u64,
    ) -> Walk<()> {
        let width = self.core.width;
        let mut full = Vec::new();
        let mut child = self.guard.offset_of(place.node);
        let mut top = loop {
            match self.lock_parent(key, place.depth, child)? {
                Parent::Interior(parent) if self.separators(&parent) >= width => {
                    child = self.pointer_to(parent.node);
                    full.push(parent);
                }
                top => break top,
            }
        };
        let parent = match (full.first(), &top) {
            (Some(parent), _) | (None, Parent::Interior(parent)) => Some(parent),
            (None, Parent::Root(_)) => None,
        };
        let is_last = parent.is_none_or(|parent| parent.position == self.separators(parent));
        // If keys come in ascending order, the left node stays full, and the nodes above stay
        // nearly full.
        let kept = if is_last && position == width {
            width
        } else {
            width.div_ceil(2)
        };
        let upper = self.upper_of(&place, position, content, kept)?;
        let mut made = SmallVec::<[u64; 8]>::new();
        self.prepare_split(work, &place, &full, &top, &mut made)
            .or_else(|stop| self.give_up(work, &made, stop))?;

        let mut left = self.guard.offset_of(place.node);
        let mut right = made[0];
        let mut separator =
            self.split_border(work, &mut place, position, content, right, &upper)?;
        for (parent, offset) in full.iter_mut().zip(&made[1..]) {
            let Parts {
                separators,
                children,
            } = self
                .parts(parent.node)
                .with(parent.position, separator, right);
            let middle = if is_last && parent.position == width {
                width - 1
            } else {
                width.div_ceil(2)
            };
            parent.lock.begin_change();
            right = self.fill_interior(
                work,
                *offset,
                &separators[middle + 1..],
                &children[middle + 1..],
            )?;
            separator = separators[middle];
            self.store_parts(parent.node, &separators[..middle], &children[..=middle]);
            left = self.pointer_to(parent.node);
        }
        match &mut top {
            Parent::Interior(parent) => {
                parent.lock.begin_change();
                let Parts {
                    separators,
                    children,
                } = self
                    .parts(parent.node)
                    .with(parent.position, separator, right);
                self.store_parts(parent.node, &separators, &children);
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

    /// Allocates and logs everything that a split needs.
    fn prepare_split(
        &self,
        work: &mut Work<'_>,
        place: &LockedBorder<'_, M>,
        full: &[InteriorLock<'_, M>],
        top: &Parent<'_, M>,
        made: &mut SmallVec<[u64; 8]>,
    ) -> Walk<()> {
        made.push(self.allocate_border(work)?);
        for _ in 0..full.len() + usize::from(matches!(top, Parent::Root(_))) {
            made.push(self.allocate_interior(work)?);
        }
        for parent in full {
            self.prepare_interior(work, parent.node)?;
        }
        match top {
            Parent::Interior(parent) => self.prepare_interior(work, parent.node)?,
            Parent::Root(root) => self.prepare_root(work, root)?,
        }
        self.prepare(work, place.node, BorderChange::Everything)
            .map(drop)
    }

    /// The entries that the new node gets when an entry is inserted into a full one, whose first
    /// `kept` entries stay.
    fn upper_of(
        &self,
        place: &LockedBorder<'_, M>,
        position: usize,
        content: u64,
        kept: usize,
    ) -> Walk<SmallVec<[(Slice, u64); 16]>> {
        let node = place.node;
        let classes = node.classes.load(&self.guard);
        let entry = |position: usize| -> Walk<(Slice, u64)> {
            let slot = place.permutation.slot(position);
            let slice = Slice {
                word: node.slices[slot].load(&self.guard),
                class: nibble(classes, slot),
            };
            Ok((
                slice,
                self.content_of(node, slot, node.values.value(slot).load(&self.guard))?,
            ))
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
        place: &mut LockedBorder<'_, M>,
        position: usize,
        content: u64,
        offset: u64,
        upper: &[(Slice, u64)],
    ) -> Walk<Slice> {
        let node = place.node;
        let width = self.core.width;
        self.fill_border(work, offset, upper)?;
        place.lock.begin_change();
        let is_in_upper = upper.iter().any(|(slice, _)| *slice == place.slice);
        let mut permutation = place
            .permutation
            .truncated(width + usize::from(is_in_upper) - upper.len(), width);
        if !is_in_upper {
            let slot = permutation.free_slot(width);
            self.fill_slot(node, slot, place.slice, content)?;
            permutation = permutation.inserted(position, width);
        }
        node.permutation.store(&self.guard, permutation.0);
        Ok(Slice {
            word: upper[0].0.word,
            class: upper[0].0.class.min(LONGER),
        })
    }
}
