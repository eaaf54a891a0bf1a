//! Changes of nodes: one of them, or several with the log; splits, merges, and what follows from them above.
//!
//! A split or a merge begins on a path whose inner nodes have one to three separators ([`CawbTree::settle`] sees to that), and goes up
//! from there, one node after the other, until that is so again. Space for all of it is there before.

use medium::sync::Ordering;
use medium::{Lsn, Medium};
use pool::Guard;
use smallvec::SmallVec;

use super::find::{Path, Place, Step};
use super::layout::{Content, IDS_MAX, LEAF_ENTRIES, Node, NodeLine};
use super::record::Fresh;
use super::{CawbTree, State, log};
use crate::index::Codec;
use crate::{Error, Result};

/// A change of nodes, whose readers wait until it ends. If it does not, as the medium failed after the first store, the tree is not
/// written any more.
pub(super) struct Change<'t, 'g, 'p, M: Medium, C: Codec> {
    tree: &'t CawbTree<M, C>,
    guard: &'g Guard<'p, M>,
    offsets: SmallVec<[u64; 6]>,
    is_published: bool,
}

impl<'t, 'g, 'p, M: Medium, C: Codec> Change<'t, 'g, 'p, M, C> {
    /// Begins a change that concerns these nodes.
    #[inline(always)]
    pub(super) fn of(
        tree: &'t CawbTree<M, C>,
        guard: &'g Guard<'p, M>,
        offsets: impl IntoIterator<Item = u64>,
    ) -> Self {
        let offsets: SmallVec<[u64; 6]> = offsets.into_iter().collect();
        offsets.iter().for_each(|offset| tree.versions.raise(*offset));
        Self { tree, guard, offsets, is_published: false }
    }

    /// Stores and flushes a node.
    #[inline(always)]
    #[track_caller]
    pub(super) fn publish(&mut self, offset: u64, old: &Node, content: &Content, parent: u64) -> Result<()> {
        let new = content.sealed(offset, parent);
        self.guard.node::<NodeLine>(offset)?.line.publish(self.guard, &old.0, &new.0)?;
        self.is_published = true;
        Ok(())
    }

    /// The change is ordered, and durable at `lsn`.
    #[inline(always)]
    pub(super) fn end(mut self, lsn: Lsn) {
        self.is_published = false;
        self.offsets.iter().for_each(|offset| self.tree.versions.stamp(*offset, lsn));
    }
}

impl<M: Medium, C: Codec> Drop for Change<'_, '_, '_, M, C> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.is_published {
            self.tree.is_cut_off.store(true, Ordering::Relaxed);
            self.tree.pool.leave_unclean();
        }
        self.offsets.iter().for_each(|offset| self.tree.versions.lower(*offset));
    }
}

/// What the operations of one writer share.
pub(super) struct Writer<'w, 'p, M: Medium> {
    pub(super) guard: &'w Guard<'p, M>,
    pub(super) state: &'w mut State,
}

impl<M: Medium, C: Codec> CawbTree<M, C> {
    fn not_a_parent(offset: u64) -> Error {
        Error::corrupt(offset, "an inner node that is none, or has no room where it should")
    }

    /// An inner node on a path, which must have `room` for so many children more.
    fn inner(guard: &Guard<'_, M>, offset: u64, room: usize) -> Result<Node> {
        let node = Node::load(guard, offset)?;
        if node.is_leaf() || node.count() + room > IDS_MAX {
            return Err(Self::not_a_parent(offset));
        }
        Ok(node)
    }

    /// Goes on with what a crash cut off: with the uppermost node of a path that has four IDs, or a single child. Whether there was one.
    pub(super) fn settle(&self, writer: &mut Writer<'_, '_, M>, path: &mut Path) -> Result<bool> {
        let Some(level) = path.iter().position(|step| step.count == 0 || step.count == IDS_MAX) else {
            return Ok(false);
        };
        if path[level].count == 0 {
            self.shrink(writer, path, level)?;
        } else {
            let mut fresh = Fresh::new(self, writer.guard);
            Self::reserve(&mut fresh, &path[..level])?;
            self.grow(writer, &mut fresh, path, level)?;
        }
        Ok(true)
    }

    /// Reserves the nodes that a split at the end of a path needs, with all that follow from it.
    pub(super) fn reserve(fresh: &mut Fresh<'_, '_, '_, M, C>, path: &[Step]) -> Result<()> {
        let splits = path.iter().rev().take_while(|step| step.count + 1 == IDS_MAX).count();
        // A split of the root takes two.
        fresh.reserve(1 + splits + usize::from(splits == path.len()))
    }

    /// Splits a leaf whose content with the new entry is `content`. What is new is in `fresh`.
    pub(super) fn split_leaf(
        &self,
        writer: &mut Writer<'_, '_, M>,
        fresh: &mut Fresh<'_, '_, '_, M, C>,
        place: &mut Place,
        content: &Content,
    ) -> Result<Lsn> {
        let (left, right) = content.split_leaf(IDS_MAX / 2);
        let (node, separator) = ((place.leaf, place.node), right.ids[0]);
        let lsn = match place.path.last().copied() {
            Some(above) => self.split(writer, fresh, node, [left, right], (separator, above))?,
            None => self.split_root(writer, fresh, node.1, [left, right], separator)?,
        };
        writer.state.counts.leaves += 1;
        match place.path.len().checked_sub(1) {
            Some(level) => Ok(self.grow(writer, fresh, &mut place.path, level)?.unwrap_or(lsn)),
            None => Ok(lsn),
        }
    }

    /// Splits the nodes of a path that have four IDs, from `level` up.
    fn grow(
        &self,
        writer: &mut Writer<'_, '_, M>,
        fresh: &mut Fresh<'_, '_, '_, M, C>,
        path: &mut Path,
        mut level: usize,
    ) -> Result<Option<Lsn>> {
        let mut last = None;
        loop {
            let offset = path[level].offset;
            let node = Self::inner(writer.guard, offset, 0)?;
            if node.count() < IDS_MAX {
                return Ok(last);
            }
            let (left, separator, right) = Content::of(&node).split_inner(LEAF_ENTRIES);
            let above = level.checked_sub(1);
            last = Some(match above {
                Some(above) => {
                    self.split(writer, fresh, (offset, node), [left, right], (separator, path[above]))?
                }
                None => self.split_root(writer, fresh, node, [left, right], separator)?,
            });
            writer.state.counts.inner += 1;
            let Some(above) = above else { return Ok(last) };
            level = above;
        }
    }

    /// Splits a node below a parent that has room.
    fn split(
        &self,
        writer: &mut Writer<'_, '_, M>,
        fresh: &mut Fresh<'_, '_, '_, M, C>,
        (offset, node): (u64, Node),
        [mut left, right]: [Content; 2],
        (separator, above): (u32, Step),
    ) -> Result<Lsn> {
        let guard = writer.guard;
        let parent = Self::inner(guard, above.offset, 1)?;
        let new = fresh.node(&right, above.offset)?;
        if left.is_leaf {
            left = left.with_next(new);
        }
        self.write_log(guard, writer.state, &log::split(&left, [offset, new, above.offset], separator))?;
        // PERSIST: the new node, the record and the log are ordered before the nodes; lost, nothing happened.
        guard.fence();
        let mut content = Content::of(&parent);
        content.insert_child(above.position + 1, separator, new);
        let mut change = Change::of(self, guard, [offset, new, above.offset]);
        change.publish(offset, &node, &left, above.offset)?;
        change.publish(above.offset, &parent, &content, parent.parent())?;
        let lsn = guard.fence();
        change.end(lsn);
        fresh.published();
        writer.state.splits += 1;
        Ok(lsn)
    }

    /// Splits the root: it becomes the parent of two new nodes.
    fn split_root(
        &self,
        writer: &mut Writer<'_, '_, M>,
        fresh: &mut Fresh<'_, '_, '_, M, C>,
        root: Node,
        [mut left, right]: [Content; 2],
        separator: u32,
    ) -> Result<Lsn> {
        let guard = writer.guard;
        let behind = fresh.node(&right, self.root)?;
        if left.is_leaf {
            left = left.with_next(behind);
        }
        let before = fresh.node(&left, self.root)?;
        self.write_log(guard, writer.state, &log::nothing())?;
        // PERSIST: the new nodes, the record and the log are ordered before the root; lost, nothing happened.
        guard.fence();
        let mut change = Change::of(self, guard, [self.root, before, behind]);
        change.publish(self.root, &root, &Content::of_two(before, separator, behind), 0)?;
        let lsn = guard.fence();
        change.end(lsn);
        fresh.published();
        writer.state.splits += 1;
        writer.state.counts.levels += 1;
        writer.state.counts.inner += 1;
        Ok(lsn)
    }

    /// Merges a leaf with the next one, both below the last node of a path, without an entry that is removed. `separated` is the inner
    /// node above that which the entry's ID separates.
    pub(super) fn merge_leaves(
        &self,
        writer: &mut Writer<'_, '_, M>,
        path: &mut Path,
        [left, right]: [(u64, Node); 2],
        removed: u32,
        separated: Option<Step>,
    ) -> Result<Lsn> {
        let (guard, level) = (writer.guard, path.len() - 1);
        let above = path[level];
        let parent = Self::inner(guard, above.offset, 0)?;
        let contents = [Content::of(&left.1), Content::of(&right.1)];
        let joined = log::joined_leaves(&contents[0], &contents[1], removed);
        let log = log::merge(&contents[1], [left.0, right.0, above.offset], removed, 0);
        self.write_log(guard, writer.state, &log)?;
        // PERSIST: the log is ordered before the nodes; lost, nothing happened.
        guard.fence();
        let mut content = Content::of(&parent);
        let removed_child = Self::position_of(&parent, right.0)?;
        content.remove_child(removed_child);
        // The left leaf's first key may be another one now.
        let mut further = None;
        if let Some(step) = separated {
            let node = if step.offset == above.offset { parent } else { Self::inner(guard, step.offset, 0)? };
            let mut separators = if step.offset == above.offset { content } else { Content::of(&node) };
            let place = separators.ids[..separators.count].iter().position(|id| *id == removed);
            if let Some(place) = place {
                separators.ids[place] = joined.ids[0];
            }
            if step.offset == above.offset {
                content = separators;
            } else {
                further = Some((step.offset, node, separators));
            }
        }
        let concerned = [left.0, right.0, above.offset].into_iter().chain(further.map(|(offset, ..)| offset));
        let mut change = Change::of(self, guard, concerned);
        change.publish(left.0, &left.1, &joined, above.offset)?;
        change.publish(above.offset, &parent, &content, parent.parent())?;
        if let Some((offset, node, separators)) = &further {
            change.publish(*offset, node, separators, node.parent())?;
        }
        let lsn = guard.fence();
        change.end(lsn);
        guard.retire_node(right.0);
        writer.state.merges += 1;
        writer.state.counts.leaves -= 1;
        self.shrink(writer, path, level)?;
        Ok(lsn)
    }

    /// The position of a child that is not the first one.
    fn position_of(parent: &Node, child: u64) -> Result<usize> {
        let found = (1..=parent.count()).find(|position| parent.pointer(*position) == child);
        found.ok_or_else(|| Self::not_a_parent(child))
    }

    /// Gives the nodes of a path that have a single child another one, or merges them, from `level` up.
    pub(super) fn shrink(
        &self,
        writer: &mut Writer<'_, '_, M>,
        path: &mut Path,
        mut level: usize,
    ) -> Result<()> {
        let guard = writer.guard;
        loop {
            let offset = path[level].offset;
            let node = Self::inner(guard, offset, 0)?;
            if node.count() > 0 {
                return Ok(());
            }
            let Some(above) = level.checked_sub(1) else { return self.lower_root(writer, node) };
            let (step, parent) = (path[above], Self::inner(guard, path[above].offset, 0)?);
            if parent.count() == 0 || step.position > parent.count() {
                return Err(Self::not_a_parent(step.offset));
            }
            // The node beside it: the next one, or before the last one.
            let is_next = step.position < parent.count();
            let beside = parent.pointer(if is_next { step.position + 1 } else { step.position - 1 });
            let other = Self::inner(guard, beside, 0)?;
            let separator = parent.id(step.position - usize::from(!is_next));
            let nodes = [(offset, node), (beside, other)];
            if other.count() == LEAF_ENTRIES || other.count() == IDS_MAX {
                return self.move_child(writer, nodes, (step, parent), separator, is_next);
            }
            let [left, right] = if is_next { nodes } else { [nodes[1], nodes[0]] };
            self.merge_inner(writer, [left, right], (step, parent), separator)?;
            level = above;
        }
    }

    /// Merges an inner node with the next one.
    fn merge_inner(
        &self,
        writer: &mut Writer<'_, '_, M>,
        [left, right]: [(u64, Node); 2],
        (step, parent): (Step, Node),
        separator: u32,
    ) -> Result<()> {
        let guard = writer.guard;
        let contents = [Content::of(&left.1), Content::of(&right.1)];
        let log = log::merge(&contents[1], [left.0, right.0, step.offset], 0, separator);
        self.write_log(guard, writer.state, &log)?;
        // PERSIST: the log is ordered before the nodes; lost, nothing happened.
        guard.fence();
        let mut above = Content::of(&parent);
        above.remove_child(Self::position_of(&parent, right.0)?);
        let mut change = Change::of(self, guard, [left.0, right.0, step.offset]);
        change.publish(left.0, &left.1, &contents[0].joined_inner(separator, &contents[1]), step.offset)?;
        change.publish(step.offset, &parent, &above, parent.parent())?;
        change.end(guard.fence());
        guard.retire_node(right.0);
        writer.state.merges += 1;
        writer.state.counts.inner -= 1;
        Ok(())
    }

    /// Gives an inner node with one child another one, from the node beside it.
    fn move_child(
        &self,
        writer: &mut Writer<'_, '_, M>,
        [(offset, node), (beside, other)]: [(u64, Node); 2],
        (step, parent): (Step, Node),
        separator: u32,
        is_next: bool,
    ) -> Result<()> {
        let guard = writer.guard;
        let (mut rest, mut above) = (Content::of(&other), Content::of(&parent));
        let lost = if is_next { 0 } else { rest.count };
        let (child, raised) = (rest.pointers[lost], rest.ids[lost.saturating_sub(1)]);
        rest.remove_child(lost);
        above.ids[step.position - usize::from(!is_next)] = raised;
        let log = log::moved([offset, beside, step.offset], child, separator, is_next);
        self.write_log(guard, writer.state, &log)?;
        // PERSIST: the log is ordered before the nodes; lost, nothing happened.
        guard.fence();
        let mut change = Change::of(self, guard, [offset, beside, step.offset]);
        let content = log::with_moved(&Content::of(&node), child, separator, is_next);
        change.publish(offset, &node, &content, step.offset)?;
        change.publish(beside, &other, &rest, step.offset)?;
        change.publish(step.offset, &parent, &above, parent.parent())?;
        change.end(guard.fence());
        writer.state.moves += 1;
        Ok(())
    }

    /// Replaces a root that has a single child by the child.
    fn lower_root(&self, writer: &mut Writer<'_, '_, M>, root: Node) -> Result<()> {
        let guard = writer.guard;
        let offset = root.pointer(0);
        let child = Node::load(guard, offset)?;
        if offset == self.root {
            return Err(Self::not_a_parent(offset));
        }
        // Whichever is durable first: the log is of a merge below the root, and finds nothing to do. It is durable before the child, which
        // it names, is used again.
        self.write_log(guard, writer.state, &log::nothing())?;
        let mut change = Change::of(self, guard, [self.root, offset]);
        change.publish(self.root, &root, &Content::of(&child), 0)?;
        change.end(guard.fence());
        guard.retire_node(offset);
        writer.state.merges += 1;
        writer.state.counts.levels = writer.state.counts.levels.saturating_sub(1);
        writer.state.counts.inner = writer.state.counts.inner.saturating_sub(1);
        Ok(())
    }
}
