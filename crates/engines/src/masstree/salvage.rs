//! What can be read of a tree that is open and damaged somewhere.

use std::collections::HashSet;
use std::rc::Rc;

use medium::Medium;
use pool::record::KEY_BYTES_MAX;
use pool::{Error, Result};

use super::Core;
use super::access::{HEIGHT_MAX, NodeRef, Stop, View, Walk};
use super::cells::{Value, no_cell};
use super::layout::{Anchor, Border, Interior, OFFSET_MASK, nibble};
use super::permutation::Permutation;
use super::scan::{Found, no_word};
use super::slice::{LAYER, LONGER};
use crate::index::{Salvage, Violation, what_of};

/// What is gone to: the next one last.
enum Task {
    /// A node of a layer, so many levels below its root.
    Node { pointer: u64, level: usize, prefix: Rc<[u8]> },
    /// An entry of the border node at `offset`.
    Entry { offset: u64, slot: usize, prefix: Rc<[u8]> },
}

impl<M: Medium, const W: usize> Core<M, W> {
    /// Calls `visit` with the entries that can be read, in ascending order of keys, until it returns `false`; nobody else is at
    /// work meanwhile. Returns what was left out. O(n).
    pub(super) fn salvage(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<Vec<Violation>> {
        // What `visit` might wait for is refused, as in a batch.
        let _mark = self.begin_batch()?;
        let _shards = self.stop();
        let mut view = self.look();
        view.has_pass = true;
        let root = view.guard.node::<Anchor>(self.anchor)?.root.value.load(&view.guard);
        let mut salvage = Salvage::new(visit);
        let mut tasks = vec![Task::Node { pointer: root, level: 0, prefix: Rc::new([]) }];
        let mut nodes = HashSet::new();
        while let Some(task) = tasks.pop() {
            match task {
                Task::Node { pointer, level, prefix } => {
                    let offset = pointer & OFFSET_MASK;
                    let opened = if nodes.insert(offset) {
                        view.open_node(pointer, level, &prefix, &mut tasks)
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
                        break;
                    }
                }
            }
        }
        Ok(salvage.left_out)
    }
}

fn error_of(stop: Stop, offset: u64) -> Error {
    stop.error_or(|| Error::corrupt(offset, "it changes"))
}

impl<M: Medium, const W: usize> View<'_, M, W> {
    /// Adds what is to be gone to for the node that `pointer` leads to.
    fn open_node(&self, pointer: u64, level: usize, prefix: &Rc<[u8]>, tasks: &mut Vec<Task>) -> Walk<()> {
        let offset = pointer & OFFSET_MASK;
        if level >= HEIGHT_MAX || prefix.len() > KEY_BYTES_MAX {
            return Err(Error::corrupt(offset, "deeper than a tree can be").into());
        }
        match self.node(pointer)? {
            NodeRef::Border(node) => self.open_border(node, offset, prefix, tasks),
            NodeRef::Interior(node) => self.open_interior(node, (offset, level), prefix, tasks),
        }
    }

    fn open_interior(
        &self,
        node: &Interior<W>,
        (offset, level): (u64, usize),
        prefix: &Rc<[u8]>,
        tasks: &mut Vec<Task>,
    ) -> Walk<()> {
        let claimed = node.shape.load(&self.guard) & 15;
        if claimed > W as u64 {
            return Err(Error::corrupt(offset, format!("{claimed} separators")).into());
        }
        let below =
            |pointer: &u64| Task::Node { pointer: *pointer, level: level + 1, prefix: Rc::clone(prefix) };
        tasks.extend(self.parts(node).children.iter().rev().map(below));
        Ok(())
    }

    fn open_border(
        &self,
        node: &Border<W>,
        offset: u64,
        prefix: &Rc<[u8]>,
        tasks: &mut Vec<Task>,
    ) -> Walk<()> {
        let permutation = Permutation(node.permutation.load(&self.guard));
        if !permutation.is_sound(W) {
            return Err(Error::corrupt(offset, "a permutation that is none").into());
        }
        for position in (0..permutation.count(W)).rev() {
            let slot = permutation.slot(position, W);
            let is_layer = !self.core.are_words && nibble(node.classes.load(&self.guard), slot) == LAYER;
            tasks.push(if is_layer {
                let slice = self.slice_of(node, slot);
                let prefix = [&**prefix, &slice.word.to_be_bytes()].concat().into();
                Task::Node { pointer: node.values.words[slot].load(&self.guard), level: 0, prefix }
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
        let mut content = node.values.words[slot].load(&self.guard);
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
        if let Value::Record(record) = &content
            && !record.is_padded(&self.guard)?
        {
            return Err(Error::corrupt(offset, "its record fails its check").into());
        }
        content.copy(&self.guard, &mut value)?;
        Ok((key, value))
    }
}
