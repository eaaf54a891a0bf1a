//! Replacing a leaf that is frozen or full: by one that is consolidated, or by two.
//!
//! Every node that a change needs is allocated before anything is frozen. The replacement is
//! flushed, and ordered by fence 1 of the operation that installs it. A thread that finds the leaf
//! frozen makes a replacement of its own; one of them is installed, the others are freed. A thread
//! that cannot make one thaws the leaf instead: the operation that replaces a leaf names its
//! status, so it fails if the leaf was thawed, and leaves it frozen for good otherwise.
//!
//! An inner node is never frozen alone: the operation that installs its replacement freezes it,
//! together with the parent's child. So no thread finds an inner node that is frozen and still in
//! the tree.

use medium::Medium;
use pool::Guard;

use super::find::{Separator, Step};
use super::image::{CopiedEntry, Copies, InnerImage, LeafSpace, NewNodes};
use super::layout::{LeafStatus, Pointer};
use super::{BzTree, NodeSizes};
use crate::index::Codec;
use crate::{Error, Result};

/// A leaf that is frozen, and its status since.
#[derive(Clone, Copy)]
pub(super) struct Frozen {
    pub(super) offset: u64,
    pub(super) status: LeafStatus,
}

/// The anchor or the inner node that leads to a node.
enum Parent {
    /// The anchor: the node is the root.
    Anchor,
    /// An inner node, with its status and its content.
    Inner { status: u64, image: InnerImage },
}

/// Two nodes that are to replace one.
#[derive(Clone, Copy)]
struct Split {
    old: Pointer,
    /// The status that the old node must still have.
    old_status: u64,
    halves: [Pointer; 2],
    /// The separator between the halves.
    between: Separator,
    /// The offset of the new parent.
    parent: u64,
}

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// Replaces the leaf at the end of a path, or first splits a parent that is full. The caller
    /// descends again in any case.
    pub(super) fn renew_leaf(
        &self,
        guard: &Guard<'_, M>,
        path: &[Step],
        offset: u64,
    ) -> Result<()> {
        let leaf = Self::leaf(guard, offset)?;
        let status = self.leaf_status(guard, leaf)?;
        if status.kept() > self.sizes.live_max() {
            return self.split_leaf(guard, path, offset, status);
        }
        let mut new = NewNodes::new(guard);
        // A leaf that only grows takes no spare: spares are for changes that give space back.
        let replacement =
            self.allocate_leaf(&mut new, status.kept(), status.kept() < status.count())?;
        let frozen = self.freeze(guard, leaf)?;
        let mut copies = Copies::new();
        self.gather(guard, leaf, frozen, &mut copies)?;
        let old = Frozen {
            offset,
            status: frozen,
        };
        self.consolidate(guard, path, old, new, replacement, &copies)
            .map(drop)
    }

    /// Replaces a frozen leaf by one with the same entries. Returns whether it did.
    pub(super) fn consolidate(
        &self,
        guard: &Guard<'_, M>,
        path: &[Step],
        old: Frozen,
        mut new: NewNodes<'_, '_, M>,
        replacement: LeafSpace,
        copies: &[CopiedEntry],
    ) -> Result<bool> {
        let Frozen { offset, status } = old;
        if copies.len() > replacement.capacity {
            self.expect_other_entries(guard, offset, status, copies.len())?;
            return Ok(false);
        }
        Self::write_leaf(guard, replacement, copies)?;
        let mut swap = self.pmwcas.allocate();
        Self::bury_leaf(guard, &mut swap, Self::leaf(guard, offset)?, status)?;
        let old = Pointer::leaf(offset);
        let new_leaf = Pointer::leaf(replacement.offset);
        let mut is_replaced = false;
        if self.swap_child(guard, &mut swap, path, old, new_leaf)? {
            new.release(replacement.offset);
            if let Some(commit) = self.attempt_swap(guard, swap)? {
                self.counters.consolidations.add();
                // This need not wait: the operation that needed room returns a later LSN.
                drop(commit);
                self.reuse(guard);
                is_replaced = true;
            }
        }
        self.refill_spares(guard);
        Ok(is_replaced)
    }

    /// For a leaf with more entries than it had before it was frozen with this status: they were
    /// added in between, or it was thawed meanwhile, and the next attempt counts them. Otherwise
    /// the leaf is damaged, and no attempt could replace it.
    fn expect_other_entries(
        &self,
        guard: &Guard<'_, M>,
        offset: u64,
        frozen: LeafStatus,
        entries: usize,
    ) -> Result<()> {
        if entries > frozen.live() && self.leaf_status(guard, Self::leaf(guard, offset)?)? == frozen
        {
            return Err(Error::corrupt(
                offset,
                "a leaf with more entries than its status counts",
            ));
        }
        Ok(())
    }

    /// Replaces a leaf by two, and its parent by one that knows both.
    fn split_leaf(
        &self,
        guard: &Guard<'_, M>,
        path: &[Step],
        offset: u64,
        status: LeafStatus,
    ) -> Result<()> {
        if self.parent_is_full(guard, path)? {
            return self.split_inner(guard, path);
        }
        let leaf = Self::leaf(guard, offset)?;
        let mut new = NewNodes::new(guard);
        // If keys come in order, the last leaf grows at its end: it is left nearly full, and the
        // new one has all the room. Keys often ascend in other places, too, so the upper half gets
        // more free entries.
        let is_last = Self::upper_bound(guard, path)?.is_none();
        let middle = |count: usize| {
            if is_last {
                count - count / 8 - 1
            } else {
                count / 2
            }
            .max(1)
        };
        let most = status.kept();
        let NodeSizes {
            leaf_entries,
            free_entries,
            ..
        } = self.sizes;
        let lower = middle(most);
        let upper = most - middle(most);
        let upper_room = if is_last {
            leaf_entries
        } else {
            upper + 2 * free_entries
        };
        let halves = [
            self.allocate_room(&mut new, lower + free_entries, lower)?,
            self.allocate_room(&mut new, upper_room, upper)?,
        ];
        let parent = new.allocate(Self::INNER_BYTES)?;
        let Some(known) = self.parent_image(guard, path, Pointer::leaf(offset))? else {
            return Ok(());
        };
        let frozen = self.freeze(guard, leaf)?;
        let mut copies = Copies::new();
        self.gather(guard, leaf, frozen, &mut copies)?;
        if copies.len() < 2 {
            let old = Frozen {
                offset,
                status: frozen,
            };
            return self
                .consolidate(guard, path, old, new, halves[0], &copies)
                .map(drop);
        }
        if copies.len() > most {
            return self.expect_other_entries(guard, offset, frozen, copies.len());
        }
        let (lower, upper) = copies.split_at(middle(copies.len()));
        let between = Self::separate(
            guard,
            &mut new,
            lower[lower.len() - 1].words,
            upper[0].words,
        )?;
        Self::write_leaf(guard, halves[0], lower)?;
        Self::write_leaf(guard, halves[1], upper)?;
        let halves = halves.map(|half| Pointer::leaf(half.offset));
        if self.install_split(
            guard,
            path,
            new,
            known,
            Split {
                old: Pointer::leaf(offset),
                old_status: frozen.0,
                halves,
                between,
                parent,
            },
        )? {
            self.counters.splits.add();
        }
        Ok(())
    }

    /// Whether the last node of a path has no room for another child.
    fn parent_is_full(&self, guard: &Guard<'_, M>, path: &[Step]) -> Result<bool> {
        let Some(step) = path.last() else {
            return Ok(false);
        };
        let header = Self::header(guard, Self::inner(guard, step.offset)?);
        Ok(header.separators() + 1 >= self.sizes.inner_children)
    }

    /// The parent of `child`, which comes after the last node of a path; `None` if the tree has
    /// changed.
    fn parent_image(
        &self,
        guard: &Guard<'_, M>,
        path: &[Step],
        child: Pointer,
    ) -> Result<Option<Parent>> {
        let Some(step) = path.last() else {
            return Ok(Some(Parent::Anchor));
        };
        match self.image(guard, step.offset)? {
            Some((status, image)) if image.children.get(step.position) == Some(&child) => {
                Ok(Some(Parent::Inner { status, image }))
            }
            _ => Ok(None),
        }
    }

    /// Installs the two nodes of a split in place of the old one, the child at the end of `path`, by
    /// a new parent, whose content so far is `known`. Freezes the old node, which must still have
    /// its status; a leaf is frozen already, and is now frozen for good. On success the old nodes
    /// are retired, otherwise the new ones are freed.
    fn install_split(
        &self,
        guard: &Guard<'_, M>,
        path: &[Step],
        mut new: NewNodes<'_, '_, M>,
        known: Parent,
        split: Split,
    ) -> Result<bool> {
        let Split {
            old,
            old_status,
            halves,
            between,
            parent,
        } = split;
        let level = match &known {
            Parent::Inner { image, .. } => image.level,
            Parent::Anchor if old.is_leaf() => 1,
            Parent::Anchor => Self::header(guard, Self::inner(guard, old.offset())?).level() + 1,
        };
        let mut swap = self.pmwcas.allocate();
        Self::freeze_for_good(guard, &mut swap, old, old_status)?;
        let (above, replaced, image) = match (path.split_last(), known) {
            (Some((step, above)), Parent::Inner { status, mut image }) => {
                image.separators.insert(step.position, between);
                image.children[step.position] = halves[0];
                image.children.insert(step.position + 1, halves[1]);
                Self::freeze_inner(guard, &mut swap, step.offset, status)?;
                (above, Pointer::inner(step.offset), image)
            }
            _ => (
                path,
                old,
                InnerImage {
                    level,
                    separators: vec![between],
                    children: halves.to_vec(),
                },
            ),
        };
        Self::write_inner(guard, parent, &image)?;
        if !self.swap_child(guard, &mut swap, above, replaced, Pointer::inner(parent))? {
            return Ok(false);
        }
        new.release(parent);
        let Some(commit) = self.attempt_swap(guard, swap)? else {
            return Ok(false);
        };
        new.keep();
        if replaced != old {
            self.retire(guard, old.offset());
        }
        // This need not wait: the operation that needed room returns a later LSN.
        drop(commit);
        self.reuse(guard);
        Ok(true)
    }

    /// Splits the last node of a path, or one above it that has no room for that.
    fn split_inner(&self, guard: &Guard<'_, M>, path: &[Step]) -> Result<()> {
        let Some((step, above)) = path.split_last() else {
            return Ok(());
        };
        if self.parent_is_full(guard, above)? {
            return self.split_inner(guard, above);
        }
        let mut new = NewNodes::new(guard);
        let halves = [
            new.allocate(Self::INNER_BYTES)?,
            new.allocate(Self::INNER_BYTES)?,
        ];
        let parent = new.allocate(Self::INNER_BYTES)?;
        let old = Pointer::inner(step.offset);
        let Some(known) = self.parent_image(guard, above, old)? else {
            return Ok(());
        };
        let Some((status, mut lower)) = self.image(guard, step.offset)? else {
            return Ok(());
        };
        if lower.separators.len() < 3 {
            return Ok(());
        }
        let (between, upper) = lower.split()?;
        Self::write_inner(guard, halves[0], &lower)?;
        Self::write_inner(guard, halves[1], &upper)?;
        let halves = halves.map(Pointer::inner);
        let done = self.install_split(
            guard,
            above,
            new,
            known,
            Split {
                old,
                old_status: status,
                halves,
                between,
                parent,
            },
        )?;
        if done {
            self.counters.splits.add();
        }
        Ok(())
    }
}
