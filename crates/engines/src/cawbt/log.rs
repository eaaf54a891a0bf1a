//! The log: one line, which says what is about to be done with several nodes.
//!
//! ```text
//! status   1 split              2 merge              3 move
//! pointers node                 left node            node with one child
//!          new node             right node           node beside it
//!          parent               parent               parent
//!          records 0 and 1      first child of       the child
//!            of a leaf            the right node
//! IDs      0 and 1 of a leaf    the removed key      the separator before or behind the child
//!          of the new node      the separator        1: the child is the first one; 2: the last one
//! ```
//!
//! The line has the form of a node; that of leaves has the leaf's bit.
//!
//! 1. New nodes, the record and the log are flushed; a fence.
//! 2. The nodes that the log names are stored and flushed; a fence.
//!
//! Recovery knows of each node whether it was stored. If none was, the first fence may not have been complete, and nothing has
//! happened. If one was, the first fence was complete, and recovery stores the others. If all were, there is nothing to do, also after
//! further operations: what tells that a node was stored is changed by no operation that does not write the log.
//! Separators are not the log's concern: recovery compares each with the first key to its right.

use medium::Medium;
use pool::Guard;

use super::layout::{Content, IDS_MAX, LEAF_ENTRIES, Node, NodeLine};
use super::{CawbTree, State};
use crate::index::Codec;
use crate::{Error, Result};

const SPLIT: u64 = 1;
const MERGE: u64 = 2;
const MOVE: u64 = 3;

/// A child is the first one of the node that loses it.
const FIRST: u32 = 1;
/// A child is the last one of the node that loses it.
const LAST: u32 = 2;

/// The log of nothing: for changes of the root, which are one store.
pub(super) fn nothing() -> Content {
    Content::empty_leaf()
}

/// A node is split: it keeps the content `left`, and the parent gets the new node with the separator before it.
pub(super) fn split(left: &Content, nodes: [u64; 3], separator: u32) -> Content {
    let mut log = Content { is_leaf: left.is_leaf, status: SPLIT, ..Content::default() };
    log.pointers[..3].copy_from_slice(&nodes);
    log.pointers[3..].copy_from_slice(&left.pointers[..2]);
    log.ids[..2].copy_from_slice(&left.ids[..2]);
    log.ids[2] = separator;
    log
}

/// A node gets the content of the next one, `right`, and the parent loses that; of leaves, without the ID `removed`.
pub(super) fn merge(right: &Content, nodes: [u64; 3], removed: u32, separator: u32) -> Content {
    let mut log = Content { is_leaf: right.is_leaf, status: MERGE, ..Content::default() };
    log.pointers[..3].copy_from_slice(&nodes);
    log.pointers[3] = right.pointers[0];
    (log.ids[0], log.ids[1]) = (removed, separator);
    log
}

/// A node with one child gets a child of the node beside it.
pub(super) fn moved(nodes: [u64; 3], child: u64, separator: u32, is_first: bool) -> Content {
    let mut log = Content { status: MOVE, ..Content::default() };
    log.pointers[..3].copy_from_slice(&nodes);
    log.pointers[3] = child;
    (log.ids[0], log.ids[1]) = (separator, if is_first { FIRST } else { LAST });
    log
}

/// The content of a leaf and the next one, without an ID.
pub(super) fn joined_leaves(left: &Content, right: &Content, removed: u32) -> Content {
    let (mut left, mut right) = (*left, *right);
    for leaf in [&mut left, &mut right] {
        if let Some(position) = (0..leaf.count).find(|position| leaf.ids[*position] == removed) {
            leaf.remove_entry(position);
        }
    }
    left.joined_leaf(&right)
}

/// An inner node with one child, and another child beside that.
pub(super) fn with_moved(node: &Content, child: u64, separator: u32, is_first: bool) -> Content {
    // The first child of the node behind comes last here.
    if is_first {
        let mut node = *node;
        node.insert_child(1, separator, child);
        return node;
    }
    Content::of_two(child, separator, node.pointers[0])
}

/// A node that recovery may store.
struct Logged {
    offset: u64,
    node: Node,
}

impl Logged {
    /// Reads a node, and mends a torn line.
    fn read<M: Medium>(guard: &Guard<'_, M>, offset: u64) -> Result<Self> {
        let line = guard.node::<NodeLine>(offset)?.line.recover(guard);
        let node = Node(line.map_err(Error::torn(offset))?);
        node.validate(offset)?;
        Ok(Self { offset, node })
    }

    fn store<M: Medium>(&self, guard: &Guard<'_, M>, content: &Content) -> Result<()> {
        let (offset, node) = (self.offset, &self.node);
        // PERSIST: the log, and what the node leads to, is durable, as another of its nodes was stored after that; lost, the next
        // recovery stores it.
        let new = content.sealed(offset, node.parent());
        guard.node::<NodeLine>(offset)?.line.publish(guard, &node.0, &new.0)?;
        Ok(())
    }
}

fn unfit(offset: u64) -> Error {
    Error::corrupt(offset, "a node that does not fit to the log")
}

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Stores and flushes the log.
    pub(super) fn write_log(&self, guard: &Guard<'_, M>, state: &mut State, log: &Content) -> Result<()> {
        let line = &guard.node::<NodeLine>(self.log)?.line;
        state.log = line.publish(guard, &state.log, &log.sealed(self.log, 0).0)?;
        Ok(())
    }

    /// Finishes what a crash has cut off. Repeating it changes nothing.
    pub(super) fn finish_log(&self, guard: &Guard<'_, M>, state: &mut State) -> Result<()> {
        let log = Logged::read(guard, self.log)?.node;
        state.log = log.0;
        let content = Content::of(&log);
        let changed = match log.status() {
            0 => false,
            SPLIT => Self::finish_split(guard, &content)?,
            MERGE => Self::finish_merge(guard, &content)?,
            MOVE => Self::finish_move(guard, &content)?,
            _ => return Err(Error::corrupt(self.log, "a log that names no change")),
        };
        if changed {
            // PERSIST: the nodes are ordered before the log changes; lost, the next recovery stores them.
            guard.fence();
        }
        Ok(())
    }

    fn finish_split(guard: &Guard<'_, M>, log: &Content) -> Result<bool> {
        let [offset, new, parent, first, second] = log.pointers;
        let (node, parent) = (Logged::read(guard, offset)?, Logged::read(guard, parent)?);
        let is_split = if log.is_leaf { node.node.next() == new } else { node.node.count() < IDS_MAX };
        let has_new = parent.node.has_child(new);
        if is_split == has_new {
            return Ok(false);
        }
        let mut above = Content::of(&parent.node);
        let position = (0..=above.count).find(|position| above.pointers[*position] == offset);
        if !is_split && log.is_leaf {
            let mut left = Content::empty_leaf().with_next(new);
            left.insert_entry(0, log.ids[0], first);
            left.insert_entry(1, log.ids[1], second);
            node.store(guard, &left)?;
        } else if !is_split {
            node.store(guard, &Content::of(&node.node).split_inner(LEAF_ENTRIES).0)?;
        } else {
            let position = position.filter(|_| above.count < IDS_MAX && !above.is_leaf);
            above.insert_child(position.ok_or_else(|| unfit(parent.offset))? + 1, log.ids[2], new);
            parent.store(guard, &above)?;
        }
        Ok(true)
    }

    fn finish_merge(guard: &Guard<'_, M>, log: &Content) -> Result<bool> {
        let [left, right, parent, first, _] = log.pointers;
        let (node, parent) = (Logged::read(guard, left)?, Logged::read(guard, parent)?);
        let is_merged = if log.is_leaf { node.node.next() != right } else { node.node.has_child(first) };
        let has_right = parent.node.has_child(right);
        if is_merged != has_right {
            return Ok(false);
        }
        if is_merged {
            let mut above = Content::of(&parent.node);
            let position = (1..=above.count).find(|position| above.pointers[*position] == right);
            above.remove_child(position.ok_or_else(|| unfit(parent.offset))?);
            parent.store(guard, &above)?;
            return Ok(true);
        }
        // It is as it was: it is given back only after both others are durable.
        let other = Content::of(&Logged::read(guard, right)?.node);
        let content = Content::of(&node.node);
        let most = LEAF_ENTRIES + usize::from(log.is_leaf);
        let is_fit = content.is_leaf == log.is_leaf && other.is_leaf == log.is_leaf;
        if !is_fit || content.count + other.count > most {
            return Err(unfit(left));
        }
        let joined = match log.is_leaf {
            true => joined_leaves(&content, &other, log.ids[0]),
            false => content.joined_inner(log.ids[1], &other),
        };
        node.store(guard, &joined)?;
        Ok(true)
    }

    fn finish_move(guard: &Guard<'_, M>, log: &Content) -> Result<bool> {
        let [offset, beside, _, child, _] = log.pointers;
        let (node, beside) = (Logged::read(guard, offset)?, Logged::read(guard, beside)?);
        let (has_child, beside_has) = (node.node.has_child(child), beside.node.has_child(child));
        if has_child != beside_has {
            return Ok(false);
        }
        let content = Content::of(if has_child { &beside.node } else { &node.node });
        let is_first = log.ids[1] == FIRST;
        if has_child && content.count > 0 {
            let mut content = content;
            content.remove_child(if is_first { 0 } else { content.count });
            beside.store(guard, &content)?;
        } else if has_child || content.is_leaf || content.count != 0 {
            return Err(unfit(offset));
        } else {
            node.store(guard, &with_moved(&content, child, log.ids[0], is_first))?;
        }
        Ok(true)
    }
}
