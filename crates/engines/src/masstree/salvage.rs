//! What can be read of a tree that is open and damaged somewhere.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::rc::Rc;

use crate::index::record::KEY_BYTES_MAX;
use medium::Medium;

use super::Core;
use super::access::{HEIGHT_MAX, NodeRef, Stop, View, Walk};
use super::cells::{Value, no_cell};
use super::layout::{Anchor, Border, Interior, OFFSET_MASK, nibble};
use super::permutation::Permutation;
use super::scan::{Found, no_word};
use super::slice::{LAYER, LONGER, Slice};
use crate::index::Violation;
use crate::kit::salvage::{Salvage, what_of};
use crate::{Error, Result};

/// A node of a layer, so many levels below its root, and what it may hold, if the separators are sound.
struct Node {
    pointer: u64,
    level: usize,
    prefix: Rc<[u8]>,
    low: Option<Slice>,
    high: Option<Slice>,
}

/// What is gone to: the next one last.
enum Task {
    Node(Node),
    /// An entry of the border node at `offset`.
    Entry {
        offset: u64,
        slot: usize,
        prefix: Rc<[u8]>,
    },
    /// An entry of the border node at `offset`, or a layer below, whose slice cannot be its own.
    Misplaced {
        offset: u64,
    },
}

impl Node {
    fn offset(&self) -> u64 {
        self.pointer & OFFSET_MASK
    }
}

impl Task {
    fn root(pointer: u64, prefix: Rc<[u8]>) -> Self {
        Self::Node(Node { pointer, level: 0, prefix, low: None, high: None })
    }
}

impl<M: Medium> Core<M> {
    /// Calls `visit` with the entries that can be read, in ascending order of keys, until it returns `false`; nobody else is at
    /// work meanwhile. Returns what was left out, and if that is nothing, what is damaged all the same: a node that has lost
    /// count of its entries says nothing of them. O(n).
    pub(super) fn salvage(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<Vec<Violation>> {
        // What `visit` might wait for is refused, as in a batch.
        let _mark = self.begin_batch()?;
        let _shards = self.stop();
        let mut view = self.look();
        view.has_pass = true;
        let root = view.guard.node::<Anchor>(self.anchor)?.root.value.load(&view.guard);
        let mut salvage = Salvage::new(visit);
        let mut tasks = vec![Task::root(root, Rc::new([]))];
        let mut nodes = HashSet::new();
        while let Some(task) = tasks.pop() {
            match task {
                Task::Node(place) => {
                    let offset = place.offset();
                    let opened = if nodes.insert(offset) {
                        view.open_node(&place, &mut tasks)
                    } else {
                        Err(Error::corrupt(offset, "two ways lead to it").into())
                    };
                    if let Err(stop) = opened {
                        let what = what_of(&error_of(stop, offset));
                        salvage.leave_out(offset, format!("a node and all below it: {what}"));
                    }
                }
                Task::Entry { offset, slot, prefix } => {
                    let read = view.read_slot(offset, slot, &prefix);
                    if !salvage.entry(offset, read.map_err(|stop| error_of(stop, offset))) {
                        return Ok(salvage.finish());
                    }
                }
                Task::Misplaced { offset } => {
                    salvage.leave_out(offset, "an entry, or all below it, out of order".to_owned());
                }
            }
        }
        let left_out = salvage.finish();
        if left_out.is_empty() {
            return Ok(self.survey_stopped()?.violations);
        }
        Ok(left_out)
    }
}

fn error_of(stop: Stop, offset: u64) -> Error {
    stop.error_or(|| Error::corrupt(offset, "it changes"))
}

impl<M: Medium> View<'_, M> {
    /// Adds what is to be gone to for a node.
    fn open_node(&self, place: &Node, tasks: &mut Vec<Task>) -> Walk<()> {
        if place.level >= HEIGHT_MAX || place.prefix.len() > KEY_BYTES_MAX {
            return Err(Error::corrupt(place.offset(), "deeper than a tree can be").into());
        }
        match self.node(place.pointer)? {
            NodeRef::Border(node) => self.open_border(node, place, tasks),
            NodeRef::Interior(node) => self.open_interior(node, place, tasks),
        }
    }

    fn open_interior(&self, node: &Interior, place: &Node, tasks: &mut Vec<Task>) -> Walk<()> {
        let claimed = node.shape.load(&self.guard) & 15;
        if claimed > self.core.width as u64 {
            return Err(Error::corrupt(place.offset(), format!("{claimed} separators")).into());
        }
        let parts = self.parts(node);
        for (index, child) in parts.children.iter().enumerate().rev() {
            tasks.push(Task::Node(Node {
                pointer: *child,
                level: place.level + 1,
                prefix: Rc::clone(&place.prefix),
                low: index.checked_sub(1).map(|before| parts.separators[before]).or(place.low),
                high: parts.separators.get(index).copied().or(place.high),
            }));
        }
        Ok(())
    }

    fn open_border(&self, node: &Border, place: &Node, tasks: &mut Vec<Task>) -> Walk<()> {
        let (offset, prefix) = (place.offset(), &place.prefix);
        let permutation = Permutation(node.permutation.load(&self.guard));
        if !permutation.is_sound(self.core.width) {
            return Err(Error::corrupt(offset, "a permutation that is none").into());
        }
        let slots: Vec<_> =
            (0..permutation.count(self.core.width)).map(|position| permutation.slot(position)).collect();
        let slices: Vec<_> = slots.iter().map(|slot| self.slice_of(node, *slot)).collect();
        let classes = node.classes.load(&self.guard);
        let are_layers: Vec<_> =
            slots.iter().map(|slot| !self.core.are_words && nibble(classes, *slot) == LAYER).collect();
        let misplaced = misplaced(&slices, &are_layers, place.low, place.high);
        for (position, slot) in slots.into_iter().enumerate().rev() {
            tasks.push(if misplaced[position] {
                Task::Misplaced { offset }
            } else if are_layers[position] {
                let prefix = [&**prefix, &slices[position].word.to_be_bytes()].concat().into();
                Task::root(node.values.value(slot).load(&self.guard), prefix)
            } else {
                Task::Entry { offset, slot, prefix: Rc::clone(prefix) }
            });
        }
        Ok(())
    }

    /// The key and the value in a slot of a border node.
    fn read_slot(&self, offset: u64, slot: usize, prefix: &[u8]) -> Walk<(Vec<u8>, Vec<u8>)> {
        let node = self.border(offset)?;
        let class = nibble(node.classes.load(&self.guard), slot);
        let mut content = node.values.value(slot).load(&self.guard);
        if self.core.are_words {
            if class != 8 {
                return Err(no_word(offset).into());
            }
            content = self.load_cell(node, slot, content).ok_or_else(|| no_cell(offset))?;
        } else if class > LONGER {
            return Err(Error::corrupt(offset, format!("slot {slot} has class {class}")).into());
        }
        let found = Found { prefix, slice: self.slice_of(node, slot), content };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        found.copy_key(self, &mut key)?;
        let content = found.value(self)?;
        if let Value::Record(record) = &content {
            if class == LONGER && !record.has_part(&self.guard, 0, &key)? {
                return Err(Error::corrupt(offset, "its record has another key").into());
            }
            if !record.is_padded(&self.guard)? {
                return Err(Error::corrupt(offset, "its record is not padded with zeros").into());
            }
        }
        content.copy(&self.guard, &mut value)?;
        Ok((key, value))
    }
}

/// Which slices of a node are out of order: the fewest without which the others are in order. And a layer that alone lies out of
/// the node's range: if its slice is wrong, all keys in it would be in the way of those behind it. (If a separator is, that
/// costs this layer.)
fn misplaced(slices: &[Slice], are_layers: &[bool], low: Option<Slice>, high: Option<Slice>) -> Vec<bool> {
    let is_out =
        |slice: &Slice| low.is_some_and(|low| *slice < low) || high.is_some_and(|high| *slice >= high);
    // Of each slice, how many there are in the longest order that it ends, and the one before it there. Of two that are as
    // long, the one whose end is within the range.
    let mut orders: Vec<(usize, Option<usize>)> = Vec::new();
    let worth =
        |orders: &[(usize, Option<usize>)], index: usize| (Reverse(orders[index].0), is_out(&slices[index]));
    for (index, slice) in slices.iter().enumerate() {
        let below = (0..index).filter(|before| slices[*before] < *slice);
        let before = below.min_by_key(|before| worth(&orders, *before));
        orders.push((before.map_or(1, |before| orders[before].0 + 1), before));
    }
    let mut misplaced = vec![true; slices.len()];
    let mut at = (0..slices.len()).min_by_key(|index| worth(&orders, *index));
    while let Some(index) = at {
        misplaced[index] = false;
        at = orders[index].1;
    }
    let mut out = (0..slices.len()).filter(|index| is_out(&slices[*index]));
    if let (Some(index), None) = (out.next(), out.next()) {
        misplaced[index] |= are_layers[index];
    }
    misplaced
}
