//! Nodes: how they are made, taken apart and filled.

use medium::Medium;
use smallvec::SmallVec;

use super::access::{TreeAccess, Walk};
use super::allocator::border_class;
use super::core::Core;
use super::layout::{Border, INTERIOR, Interior, LOGGED, interior_bytes, nibble, with_nibble};
use super::options::Mode;
use super::permutation::Permutation;
use super::shard::Work;
use super::slice::Slice;
use crate::Result;

/// Separators and children of an interior node while it is taken apart.
pub(super) struct Parts {
    pub(super) separators: SmallVec<[Slice; 16]>,
    pub(super) children: SmallVec<[u64; 17]>,
}

impl Parts {
    /// Adds a child behind the one at `position`.
    pub(super) fn with(mut self, position: usize, separator: Slice, child: u64) -> Self {
        self.separators.insert(position, separator);
        self.children.insert(position + 1, child);
        self
    }
}

impl<M: Medium> TreeAccess<'_, M> {
    /// Space for a border node.
    pub(super) fn allocate_border(&self, work: &mut Work<'_>) -> Walk<u64> {
        Ok(self
            .core
            .space(&self.guard)
            .allocate_class(work, border_class(self.core.are_words))?)
    }

    /// Space for an interior node. Its class differs from that of border nodes. So interior nodes,
    /// which are few and read often, lie together on few pages, whose addresses stay in the
    /// processor's translation cache.
    pub(super) fn allocate_interior(&self, work: &mut Work<'_>) -> Walk<u64> {
        Ok(self
            .core
            .space(&self.guard)
            .allocate(work, interior_bytes())?)
    }

    /// Writes a slot that is not in use.
    pub(super) fn fill_slot(
        &self,
        node: &Border,
        slot: usize,
        slice: Slice,
        content: u64,
    ) -> Walk<()> {
        node.slices[slot].store(&self.guard, slice.word);
        let classes = node.classes.load(&self.guard);
        node.classes
            .store(&self.guard, with_nibble(classes, slot, slice.class));
        self.fill_value(node, slot, content)
    }

    /// A new border node with entries in order, which nothing leads to yet.
    pub(super) fn new_border(&self, work: &mut Work<'_>, entries: &[(Slice, u64)]) -> Walk<u64> {
        let offset = self.allocate_border(work)?;
        self.fill_border(work, offset, entries)?;
        Ok(offset)
    }

    /// Makes a border node of allocated memory.
    pub(super) fn fill_border(
        &self,
        work: &mut Work<'_>,
        offset: u64,
        entries: &[(Slice, u64)],
    ) -> Walk<()> {
        let node = self.guard.node::<Border>(offset)?;
        node.version.start(&self.guard, 0);
        // The logs are written before the values: a tree without logs has a value in the place of
        // the high log.
        node.values.log_low.store(&self.guard, 0);
        node.values.log_high.store(&self.guard, 0);
        let permutation = Permutation::identity(entries.len(), self.core.width);
        let mut classes = 0;
        for (position, (slice, content)) in entries.iter().enumerate() {
            let slot = permutation.slot(position);
            node.slices[slot].store(&self.guard, slice.word);
            classes = with_nibble(classes, slot, slice.class);
            self.fill_value(node, slot, *content)?;
        }
        node.classes.store(&self.guard, classes);
        node.permutation.store(&self.guard, permutation.0);
        // The node is new in this epoch, so nothing of it has to be logged: if the epoch fails,
        // nothing leads here.
        node.epoch.store(&self.guard, self.epoch_word() | LOGGED);
        self.core.epochs.list_new(
            &self.guard,
            work,
            offset,
            &node.listed,
            self.core.border_bytes(),
        );
        Ok(())
    }

    /// The pointer to an interior node.
    pub(super) fn pointer_to(&self, node: &Interior) -> u64 {
        self.guard.offset_of(node) | INTERIOR
    }

    /// A separator of an interior node.
    #[inline(always)]
    pub(super) fn separator(&self, node: &Interior, shape: u64, index: usize) -> Slice {
        Slice {
            word: node.slices[index].load(&self.guard),
            class: nibble(shape >> 4, index),
        }
    }

    pub(super) fn parts(&self, node: &Interior) -> Parts {
        let shape = node.shape.load(&self.guard);
        let count = Interior::separators(shape);
        Parts {
            separators: (0..count)
                .map(|index| self.separator(node, shape, index))
                .collect(),
            children: (0..=count)
                .map(|index| node.child(index).load(&self.guard))
                .collect(),
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
        node.shape
            .store(&self.guard, classes << 4 | separators.len() as u64);
    }

    /// Makes an interior node of allocated memory, which nothing leads to yet.
    pub(super) fn fill_interior(
        &self,
        work: &mut Work<'_>,
        offset: u64,
        separators: &[Slice],
        children: &[u64],
    ) -> Walk<u64> {
        let node = self.guard.node::<Interior>(offset)?;
        node.version.start(&self.guard, 0);
        self.store_parts(node, separators, children);
        node.epoch.store(&self.guard, self.epoch_word() | LOGGED);
        self.core
            .epochs
            .list_new(&self.guard, work, offset, &node.listed, interior_bytes());
        Ok(offset | INTERIOR)
    }
}

impl<M: Medium> Core<M> {
    /// Gives a new tree its root. Durable when this returns.
    pub(super) fn begin(&self) -> Result<()> {
        let made = {
            let (view, mut work) = self.enter();
            view.new_border(&mut work, &[]).and_then(|root| {
                view.set_first_root(&mut work, root)?;
                if self.mode != Mode::Transient {
                    self.log.begin(&view.guard, &mut work)?;
                }
                Ok(())
            })
        };
        made.map_err(|stop| self.error_of(stop))?;
        self.advance()
    }
}
