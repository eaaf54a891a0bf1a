//! The log: one line, which describes a change of several nodes before it is made.
//!
//! ```text
//! status   1 split            2 merge                      3 move
//! node     the one            the left one                 one with a single child
//! other    the new one        the right one                a child of the second
//! second   the parent         the parent                   the node beside it
//! spare    records 0 and 1    first child of `other`,      the parent
//!            of a leaf        and the inner node that
//!                             has `removed` as separator
//! IDs      0 and 1 of a leaf  `removed`, separator         separators before and after
//!          2: separator                                    1: `other` comes last; 2: first
//! ```
//!
//! ```text
//! status   4 relocation of a leaf
//! node     the leaf before it
//! other    its copy
//! second   the parent
//! spare    the leaf
//! IDs      none
//! ```
//!
//! The line has the form of a node; that of leaves has the leaf's bit.
//!
//! 1. New nodes, the record and the log are flushed; a fence.
//! 2. Node, second, and a node further up that loses a separator, are stored and flushed; a fence.
//!
//! Recovery can tell whether node and second were stored. If neither was, the first fence may not
//! have been complete, and nothing has happened. If one was, the first fence was complete, and
//! recovery stores the other. If both were, there is nothing to do. That stays true after further
//! operations: only operations that write a new log change the pointers by which recovery tells
//! this. Separators are not in the log: recovery compares each with the first key to its right.

use super::layout::{IDS_MAX, LoadedNode, NodeContent, NodeLine};
use super::publish::NodeChange;
use super::{CawbTree, WriterState};
use crate::kit::prelude::*;

const SPLIT: u64 = 1;
const MERGE: u64 = 2;
const MOVE: u64 = 3;
const RELOCATION: u64 = 4;

/// A node is split: it keeps the content `left`, and the parent gets the new node with the
/// separator before it.
pub(super) fn split(
    left: &NodeContent,
    [node, new, parent]: [u64; 3],
    separator: u32,
) -> NodeContent {
    let pointers = [node, new, parent, left.pointers[0], left.pointers[1]];
    let ids = [left.ids[0], left.ids[1], separator, 0];
    NodeContent {
        is_leaf: left.is_leaf,
        status: SPLIT,
        ids,
        pointers,
        ..NodeContent::default()
    }
}

/// A node gets the content of the next one, which the parent loses; of leaves, without the ID
/// `removed`. `next` is the next one's content, `separated` the inner node that has the ID as a
/// separator.
pub(super) fn merge(
    next: &NodeContent,
    [node, other, parent, separated]: [u64; 4],
    [removed, separator]: [u32; 2],
) -> NodeContent {
    let pointers = [node, other, parent, next.pointers[0], separated];
    let ids = [removed, separator, 0, 0];
    NodeContent {
        is_leaf: next.is_leaf,
        status: MERGE,
        ids,
        pointers,
        ..NodeContent::default()
    }
}

/// A node with a single child gets `child`, the first or the last one of the node beside it. The
/// parent's separator is replaced.
pub(super) fn moved(
    [node, child, beside, parent]: [u64; 4],
    separators: [u32; 2],
    is_last: bool,
) -> NodeContent {
    let ids = [separators[0], separators[1], if is_last { 1 } else { 2 }, 0];
    NodeContent {
        status: MOVE,
        ids,
        pointers: [node, child, beside, 0, parent],
        ..NodeContent::default()
    }
}

/// A leaf is replaced by its copy: the leaf before it links to the copy, and the parent leads there.
pub(super) fn relocation([before, copy, parent, leaf]: [u64; 4]) -> NodeContent {
    NodeContent {
        is_leaf: true,
        status: RELOCATION,
        pointers: [before, copy, parent, leaf, 0],
        ..NodeContent::default()
    }
}

/// Reads and verifies a node, and mends a torn line: both of its copies hold the node then.
pub(super) fn read_mended<M: Medium>(guard: &Guard<'_, M>, offset: u64) -> Result<LoadedNode> {
    if let Ok(node) = LoadedNode::load_sound(guard, offset) {
        return Ok(node);
    }
    let line = &guard.node::<NodeLine>(offset)?.line;
    let value = line.recover(guard).map_err(Error::torn(offset))?;
    LoadedNode(value).validated(offset)?;
    // PERSIST: the torn copy is repaired; if this is lost, it is not sound, and is mended again.
    let node = LoadedNode(line.publish(guard, &value, &value)?);
    // PERSIST: ordered before the line is stored again.
    guard.fence();
    Ok(node)
}

fn unfit(offset: u64) -> Error {
    Error::corrupt(offset, "a node that does not fit a split or a merge")
}

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Stores and flushes the log. That of a change of the root, which is one store, is an empty
    /// leaf: recovery does nothing.
    pub(super) fn write_log(
        &self,
        guard: &Guard<'_, M>,
        state: &mut WriterState,
        log: &NodeContent,
    ) -> Result<()> {
        let line = &guard.node::<NodeLine>(self.log)?.line;
        state.log = line.publish(guard, &state.log, &log.sealed(self.log, 0).0)?;
        Ok(())
    }

    /// Splits or merges nodes as a new log says. The nodes and records that these lead to are
    /// flushed.
    pub(super) fn carry_out(
        &self,
        guard: &Guard<'_, M>,
        state: &mut WriterState,
        log: &NodeContent,
    ) -> Result<Lsn> {
        self.write_log(guard, state, log)?;
        // PERSIST: the new node, the record and the log are ordered before the nodes; if this is
        // lost, nothing happened.
        guard.fence();
        self.apply(guard, log, true)
    }

    /// Finishes a change that a crash has cut off. Repeating it changes nothing.
    pub(super) fn finish_log(&self, guard: &Guard<'_, M>, state: &mut WriterState) -> Result<()> {
        let log = read_mended(guard, self.log)?;
        state.log = log.0;
        if log.status() != 0 {
            self.apply(guard, &NodeContent::of(&log), false)?;
        }
        Ok(())
    }

    /// Stores the nodes that a log names: all if it is new, otherwise the rest if some were stored.
    fn apply(&self, guard: &Guard<'_, M>, log: &NodeContent, is_new: bool) -> Result<Lsn> {
        let [offset, other, second, first, further] = log.pointers;
        let node = read_mended(guard, offset)?;
        let beside = read_mended(guard, second)?;
        let is_stored = match (log.status, log.is_leaf) {
            (SPLIT, true) | (RELOCATION, _) => node.next() == other,
            (SPLIT, false) => node.count() < IDS_MAX,
            (MERGE, true) => node.next() != other,
            (MERGE, false) => node.position_of(first).is_some(),
            (MOVE, _) => node.position_of(other).is_some(),
            _ => return Err(Error::corrupt(self.log, "a log that names no change")),
        };
        let adds_other = log.status == SPLIT || log.status == RELOCATION;
        let is_second_stored = beside.position_of(other).is_some() == adds_other;
        if is_stored == is_second_stored && !is_new {
            return Ok(Lsn::DURABLE);
        }
        let further = if adds_other { 0 } else { further };
        // Readers of the leaf that is replaced go on in its copy.
        let replaced = if log.status == RELOCATION { first } else { 0 };
        let mut content = NodeContent::of(&node);
        if !is_stored {
            content = Self::first_of(guard, content, log)?;
        }
        let first = if log.status == MOVE {
            log.ids[1]
        } else {
            content.ids[0]
        };
        // This comes before any store: nodes that do not fit stay as they are.
        let beside_content = match is_second_stored {
            true => None,
            false => Some(Self::second_of(&beside, log, first).ok_or_else(|| unfit(second))?),
        };
        let further_node = match further {
            0 => None,
            _ if further == second => None,
            _ => Some(read_mended(guard, further)?),
        };
        let concerned = [offset, other, second, further, replaced]
            .into_iter()
            .filter(|offset| *offset != 0);
        let mut change = NodeChange::of(self, guard, concerned);
        if !is_stored {
            // PERSIST: the log, and the nodes and records that the node leads to, are ordered
            // before; if this is lost, recovery stores it if the second node was stored.
            let parent = match log.status {
                MOVE => further,
                RELOCATION => node.parent(),
                _ => second,
            };
            change.publish(offset, &node, &content, parent)?;
        }
        if let Some(content) = beside_content {
            // PERSIST: the same is ordered before as for the node; if this is lost, recovery stores
            // it if the node was stored.
            change.publish(second, &beside, &content, beside.parent())?;
        }
        if let Some(node) = further_node {
            let separators = NodeContent::of(&node).with_separator(log.ids[0], first);
            // PERSIST: the same is ordered before as for the node; if this is lost, recovery finds
            // that the separator is not the first key to its right.
            change.publish(further, &node, &separators, node.parent())?;
        }
        // PERSIST: the nodes are ordered before the log changes, and before the memory of a merged
        // node is reused; if this is lost, recovery stores the rest.
        let lsn = guard.fence();
        change.end(lsn);
        Ok(lsn)
    }

    /// The content that the node is to get.
    fn first_of(
        guard: &Guard<'_, M>,
        content: NodeContent,
        log: &NodeContent,
    ) -> Result<NodeContent> {
        match (log.status, log.is_leaf) {
            (SPLIT, false) => Ok(content.split().left),
            (SPLIT, true) => {
                let mut left = NodeContent::empty_leaf().with_next(log.pointers[1]);
                left.insert_entry(0, log.ids[0], log.pointers[3]);
                left.insert_entry(1, log.ids[1], log.pointers[4]);
                Ok(left)
            }
            (MERGE, _) => Self::joined(guard, &content, log),
            (RELOCATION, _) if content.is_leaf => Ok(content.with_next(log.pointers[1])),
            (RELOCATION, _) => Err(unfit(log.pointers[0])),
            _ if content.is_leaf || content.count > 0 => Err(unfit(log.pointers[0])),
            _ if log.ids[2] == 1 => Ok(NodeContent::of_two(
                content.pointers[0],
                log.ids[0],
                log.pointers[1],
            )),
            _ => Ok(NodeContent::of_two(
                log.pointers[1],
                log.ids[0],
                content.pointers[0],
            )),
        }
    }

    /// The content that the second node is to get; `None` if it does not fit. `first` replaces the
    /// removed key.
    fn second_of(second: &LoadedNode, log: &NodeContent, first: u32) -> Option<NodeContent> {
        let [node, other, ..] = log.pointers;
        let mut content = NodeContent::of(second);
        if log.status == SPLIT {
            let position = second.position_of(node)?;
            if content.count >= IDS_MAX {
                return None;
            }
            content.insert_child(position + 1, log.ids[2], other);
            return Some(content);
        }
        if log.status == RELOCATION {
            let position = second.position_of(log.pointers[3])?;
            content.pointers[position] = other;
            return Some(content);
        }
        let position = second.position_of(other)?;
        if content.count == 0 {
            return None;
        }
        content.remove_child(position);
        Some(if log.status == MERGE {
            content.with_separator(log.ids[0], first)
        } else {
            content
        })
    }

    /// The joined content of a node and the next one. The next one stays as it was until both
    /// others are durable.
    fn joined(guard: &Guard<'_, M>, left: &NodeContent, log: &NodeContent) -> Result<NodeContent> {
        let right = NodeContent::of(&read_mended(guard, log.pointers[1])?);
        let is_fit = left.is_leaf == log.is_leaf && right.is_leaf == log.is_leaf;
        if !is_fit || left.count + right.count + usize::from(!log.is_leaf) > IDS_MAX {
            return Err(unfit(log.pointers[0]));
        }
        if !log.is_leaf {
            return Ok(left.joined(log.ids[1], &right));
        }
        Ok(left
            .without(log.ids[0])
            .joined(0, &right.without(log.ids[0])))
    }
}
