//! Changes of nodes: splits, merges, and the changes that these cause in the levels above.
//!
//! A split gives the parent one more child, a merge takes one. A parent with five children is split
//! at once, one with a single child merged, and so on up to the root. If a crash or a full pool
//! interrupts that, the next split or merge below goes on with it.

use super::find::{KeyPlace, Path, Step};
use super::layout::{Halves, IDS_MAX, LEAF_ENTRIES, LoadedNode, MERGED_MAX, NodeContent};
use super::publish::NodeChange;
use super::record::Fresh;
use super::{CawbTree, LEVELS_MAX, WriterState, log};
use crate::kit::prelude::*;

/// The state that the steps of one write share.
pub(super) struct Writer<'w, 'p, M: Medium> {
    pub(super) guard: &'w Guard<'p, M>,
    pub(super) state: &'w mut WriterState,
}

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// An inner node.
    fn inner(guard: &Guard<'_, M>, offset: u64) -> Result<LoadedNode> {
        let node = LoadedNode::load(guard, offset)?;
        if node.is_leaf() {
            return Err(Error::corrupt(
                offset,
                "a leaf where an inner node should be",
            ));
        }
        Ok(node)
    }

    /// The place of a key for a write, and whether its condition holds. If the write is to split or
    /// merge its leaf, the inner nodes above have room.
    pub(super) fn place_for(
        &self,
        writer: &mut Writer<'_, '_, M>,
        key: C::Key<'_>,
        condition: Condition<C::Value<'_>>,
        removes: bool,
    ) -> Result<(KeyPlace, bool)> {
        for _ in 0..2 * LEVELS_MAX {
            let mut place = self.locate(writer.guard, key)?;
            let held = holds::<M, C>(writer.guard, condition, place.found)?;
            let is_there = place.found.is_some();
            let count = place.node.count();
            let has_changed = match removes {
                true if held && is_there && count <= MERGED_MAX => {
                    self.merge_single(writer, &mut place.path)?
                }
                false if held && !is_there && count >= LEAF_ENTRIES => {
                    self.split_full(writer, &mut place.path)?
                }
                _ => false,
            };
            if !has_changed {
                return Ok((place, held));
            }
        }
        Err(ErrorKind::Contended { offset: self.root }.into())
    }

    /// Splits the inner nodes of a path that have four IDs, the uppermost first. Returns whether
    /// there was one. If so, the path may lead to other nodes now, and some on it may still have
    /// four IDs.
    pub(super) fn split_full(
        &self,
        writer: &mut Writer<'_, '_, M>,
        path: &mut Path,
    ) -> Result<bool> {
        let mut found = false;
        while let Some(level) = path.iter().position(|step| step.count == IDS_MAX) {
            let offset = path[level].offset;
            let node = Self::inner(writer.guard, offset)?;
            let above = level.checked_sub(1).map(|above| path[above]);
            let mut fresh = Fresh::new(self, writer.guard);
            self.split(
                writer,
                &mut fresh,
                offset,
                &node,
                &NodeContent::of(&node),
                above,
            )?;
            path[level].count = 1;
            found = true;
            // The nodes below may belong to the new node now.
            if path[level + 1..].iter().any(|step| step.count == IDS_MAX) {
                break;
            }
            let Some(above) = level.checked_sub(1) else {
                break;
            };
            path[above].count += 1;
        }
        Ok(found)
    }

    /// Splits a node that is to have this content. `fresh` has the new nodes, records and IDs in it.
    pub(super) fn split(
        &self,
        writer: &mut Writer<'_, '_, M>,
        fresh: &mut Fresh<'_, '_, '_, M, C>,
        offset: u64,
        node: &LoadedNode,
        content: &NodeContent,
        above: Option<Step>,
    ) -> Result<Lsn> {
        let guard = writer.guard;
        let Halves {
            mut left,
            separator,
            right,
        } = content.split();
        let lsn = if let Some(above) = above {
            let new = fresh.node(&right, above.offset)?;
            let log = log::split(&left, [offset, new, above.offset], separator);
            self.carry_out(guard, writer.state, &log)?
        } else {
            // The root becomes the parent of two new nodes.
            let behind = fresh.node(&right, offset)?;
            if left.is_leaf {
                left = left.with_next(behind);
            }
            let before = fresh.node(&left, offset)?;
            self.write_log(guard, writer.state, &NodeContent::empty_leaf())?;
            // PERSIST: the new nodes, the record and the log are ordered before the root; if this
            // is lost, nothing happened.
            guard.fence();
            let content = NodeContent::of_two(before, separator, behind);
            let lsn =
                self.store_one(guard, offset, node, &content, 0, &[offset, before, behind])?;
            writer.state.counts.levels += 1;
            writer.state.counts.inner += 1;
            lsn
        };
        fresh.published();
        writer.state.splits += 1;
        *writer.state.counts.of_kind(content.is_leaf) += 1;
        Ok(lsn)
    }

    /// Stores one node, in a change for which readers of some nodes wait.
    #[track_caller]
    pub(super) fn store_one(
        &self,
        guard: &Guard<'_, M>,
        offset: u64,
        old: &LoadedNode,
        content: &NodeContent,
        parent: u64,
        concerned: &[u64],
    ) -> Result<Lsn> {
        let mut change = NodeChange::of(self, guard, concerned.iter().copied());
        change.publish(offset, old, content, parent)?;
        let lsn = guard.fence();
        change.end(lsn);
        Ok(lsn)
    }

    /// Gives the inner nodes of a path that have a single child another one, or merges them, the
    /// uppermost first. Returns whether there was one. If so, the path may lead to other nodes now,
    /// and some on it may still have a single child.
    pub(super) fn merge_single(
        &self,
        writer: &mut Writer<'_, '_, M>,
        path: &mut Path,
    ) -> Result<bool> {
        let mut found = false;
        while let Some(level) = path.iter().position(|step| step.count == 0) {
            found = true;
            let Some(above) = level.checked_sub(1) else {
                self.lower_root(writer)?;
                break;
            };
            path[level].count = 1;
            if !self.move_child(writer, path[level].offset, path[above])? {
                // A node is merged with the next one, the last one with the one before.
                let step = path[above];
                self.merge(writer, step, step.position.min(step.count - 1), 0, 0)?;
                path[above].count -= 1;
            }
            // The nodes below may belong to another node now.
            if path[level + 1..].iter().any(|step| step.count == 0) {
                break;
            }
        }
        Ok(found)
    }

    /// Merges the child at a position with the next one; of leaves, without the ID `removed`, which
    /// the inner node `separated` has as a separator.
    pub(super) fn merge(
        &self,
        writer: &mut Writer<'_, '_, M>,
        above: Step,
        position: usize,
        removed: u32,
        separated: u64,
    ) -> Result<Lsn> {
        let guard = writer.guard;
        let parent = Self::inner(guard, above.offset)?;
        let [left, right] = [position, position + 1].map(|position| parent.pointer(position));
        let content = NodeContent::of(&LoadedNode::load(guard, right)?);
        let nodes = [left, right, above.offset, separated];
        let log = log::merge(&content, nodes, [removed, parent.id(position)]);
        let lsn = self.carry_out(guard, writer.state, &log)?;
        guard.retire_node(right);
        writer.state.merges += 1;
        *writer.state.counts.of_kind(content.is_leaf) -= 1;
        Ok(lsn)
    }

    /// Gives a node with a single child another one, if the node beside it has at least four
    /// children.
    fn move_child(&self, writer: &mut Writer<'_, '_, M>, offset: u64, above: Step) -> Result<bool> {
        let guard = writer.guard;
        let position = above.position;
        let parent = Self::inner(guard, above.offset)?;
        let is_last = position < above.count;
        let beside = parent.pointer(if is_last { position + 1 } else { position - 1 });
        let node = Self::inner(guard, beside)?;
        if node.count() < LEAF_ENTRIES {
            return Ok(false);
        }
        let lost = if is_last { 0 } else { node.count() };
        let separators = [
            parent.id(position - usize::from(!is_last)),
            node.id(lost.saturating_sub(1)),
        ];
        let log = log::moved(
            [offset, node.pointer(lost), beside, above.offset],
            separators,
            is_last,
        );
        self.carry_out(guard, writer.state, &log)?;
        Ok(true)
    }

    /// Replaces a root that has a single child by the child.
    fn lower_root(&self, writer: &mut Writer<'_, '_, M>) -> Result<()> {
        let guard = writer.guard;
        let root = Self::inner(guard, self.root)?;
        let offset = root.pointer(0);
        let child = LoadedNode::load(guard, offset)?;
        self.write_log(guard, writer.state, &NodeContent::empty_leaf())?;
        // PERSIST: the log, which may name the child, is empty before the root; if this is lost, an
        // open would find a node in the log whose memory is something else by then.
        guard.fence();
        self.store_one(
            guard,
            self.root,
            &root,
            &NodeContent::of(&child),
            0,
            &[self.root, offset],
        )?;
        guard.retire_node(offset);
        writer.state.merges += 1;
        writer.state.counts.levels -= 1;
        writer.state.counts.inner -= 1;
        Ok(())
    }
}
