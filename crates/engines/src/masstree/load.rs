//! Bulk load: nodes filled from sorted input, published by one store of the root.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::index::record::check_lengths;
use medium::Medium;

use super::Core;
use super::access::{NodeRef, View, Walk, Work};
use super::layout::OFFSET_MASK;
use super::permutation::Permutation;
use super::record::Record;
use super::slice::{LAYER, LONGER, Slice};
use crate::index::NextEntry;
use crate::{Error, Result};

/// A layer that is being filled.
#[derive(Default)]
struct Layer {
    /// Entries of the border node that is next.
    entries: Vec<(Slice, u64)>,
    /// Border nodes that are written, with their first slices.
    borders: Vec<(Slice, u64)>,
}

/// What is written of a load before it is published.
struct Load {
    /// Entries of a node.
    per_node: usize,
    /// The layers of the last key.
    layers: Vec<Layer>,
    last: Vec<u8>,
    entries: u64,
    /// All that was allocated.
    made: Vec<u64>,
}

impl<M: Medium> Core<M> {
    /// Fills an empty tree. All of it lies in one epoch, which is held while the source runs; so a crash leaves all or
    /// nothing, and a source that would wait for the end of that epoch is refused.
    pub(super) fn load(
        &self,
        next: &mut NextEntry<'_>,
        fill: f64,
        check: impl Fn(&[u8], &[u8]) -> Result<()>,
    ) -> Result<u64> {
        let _mark = self.begin_batch()?;
        let (view, mut work, _long) = self.enter_for_long();
        let mut panicked = None;
        // The source may wait for others. What was allocated is given back if it panics, too.
        let next = &mut |key: &mut Vec<u8>, value: &mut Vec<u8>| {
            catch_unwind(AssertUnwindSafe(|| next(key, value))).unwrap_or_else(|payload| {
                panicked = Some(payload);
                Err(Error::NotEmpty)
            })
        };
        let per_node = ((self.width as f64 * fill.clamp(0.5, 1.0)).round() as usize).clamp(1, self.width);
        let mut load = Load { per_node, layers: Vec::new(), last: Vec::new(), entries: 0, made: Vec::new() };
        let done = view.load(&mut work, next, &check, &mut load);
        let error = match done {
            Ok(()) => return Ok(load.entries),
            Err(stop) => stop.error_or(|| Error::NotEmpty),
        };
        for object in load.made {
            // What cannot be given back is found by `check`; the error that led here matters more.
            let _ = view.free(&mut work, object);
        }
        match panicked {
            Some(payload) => resume_unwind(payload),
            None => Err(error),
        }
    }
}

impl<M: Medium> View<'_, M> {
    /// Whether the tree has no key.
    fn is_empty(&self, root: u64) -> Walk<bool> {
        Ok(match self.node(root)? {
            NodeRef::Border(node) => {
                Permutation(node.permutation.load(&self.guard)).count(self.core.width) == 0
            }
            NodeRef::Interior(_) => false,
        })
    }

    fn load(
        &self,
        work: &mut Work<'_>,
        next: &mut NextEntry<'_>,
        check: &impl Fn(&[u8], &[u8]) -> Result<()>,
        load: &mut Load,
    ) -> Walk<()> {
        let anchor = self.anchor()?;
        if !self.is_empty(anchor.root.value.load(&self.guard))? {
            return Err(Error::NotEmpty.into());
        }
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while next(&mut key, &mut value)? {
            if load.entries > 0 && key <= load.last {
                return Err(Error::NotSorted { index: load.entries }.into());
            }
            check_lengths(&key, &value)?;
            check(&key, &value)?;
            self.guard.medium().admit()?;
            self.load_entry(work, load, &key, &value)?;
            std::mem::swap(&mut key, &mut load.last);
            load.entries += 1;
        }
        while load.layers.len() > 1 {
            self.close_layer(work, load)?;
        }
        let Some(layer) = load.layers.pop() else { return Ok(()) };
        let root = self.build_layer(work, load, layer)?;
        // The node before the root, as all others do. A tree whose root others have changed meanwhile counts as not empty.
        let old = anchor.root.value.load(&self.guard);
        if !self.is_empty(old)? {
            return Err(Error::NotEmpty.into());
        }
        let node = self.border(old)?;
        let mut old_lock = self.lock(&node.version)?;
        let lock = self.core.root.lock();
        if anchor.root.value.load(&self.guard) != old || !self.is_empty(old)? {
            return Err(Error::NotEmpty.into());
        }
        // PERSIST: nothing; durable with the epoch, and undone by the log of the root if that fails.
        self.set_logged(&anchor.root, root);
        self.list_cells(work);
        old_lock.delete();
        drop((old_lock, lock));
        load.made.clear();
        self.free(work, old & OFFSET_MASK)
    }

    /// Adds an entry behind all that are there.
    fn load_entry(&self, work: &mut Work<'_>, load: &mut Load, key: &[u8], value: &[u8]) -> Walk<()> {
        if load.layers.is_empty() {
            load.layers.push(Layer::default());
        }
        // Layers whose prefix the key does not have are complete.
        let shared = key.iter().zip(&load.last).take_while(|(one, other)| one == other).count() / 8;
        while load.layers.len() - 1 > shared {
            self.close_layer(work, load)?;
        }
        loop {
            let depth = load.layers.len() - 1;
            let slice = Slice::of(Slice::rest(key, depth));
            let before = load.layers[depth].entries.last().copied();
            match before.filter(|(before, _)| *before == slice && slice.class == LONGER) {
                None => {
                    let content = self.write_content(work, key, slice, value)?;
                    if !self.core.are_words {
                        load.made.push(content);
                    }
                    return self.load_slice(work, load, depth, (slice, content));
                }
                // The key before shares this slice: both go a layer down.
                Some((slice, record)) => {
                    let entries = &mut load.layers[depth].entries;
                    entries.pop();
                    entries.push((Slice { word: slice.word, class: LAYER }, 0));
                    let mut tail = Vec::new();
                    Record::at(&self.guard, record)?.copy_tail(&self.guard, 8 * (depth + 1), &mut tail)?;
                    load.layers.push(Layer::default());
                    load.layers[depth + 1].entries.push((Slice::of(&tail), record));
                }
            }
        }
    }

    fn load_slice(
        &self,
        work: &mut Work<'_>,
        load: &mut Load,
        depth: usize,
        entry: (Slice, u64),
    ) -> Walk<()> {
        if load.layers[depth].entries.len() == load.per_node {
            self.close_border(work, load, depth)?;
        }
        load.layers[depth].entries.push(entry);
        Ok(())
    }

    fn close_border(&self, work: &mut Work<'_>, load: &mut Load, depth: usize) -> Walk<()> {
        let entries = std::mem::take(&mut load.layers[depth].entries);
        let offset = self.new_border(work, &entries)?;
        load.made.push(offset);
        let first = Slice { class: entries[0].0.class.min(LONGER), ..entries[0].0 };
        load.layers[depth].borders.push((first, offset));
        Ok(())
    }

    /// The lowest layer is complete: the last entry of the layer above leads to it.
    fn close_layer(&self, work: &mut Work<'_>, load: &mut Load) -> Walk<()> {
        let Some(layer) = load.layers.pop() else { return Ok(()) };
        let root = self.build_layer(work, load, layer)?;
        if let Some(entry) = load.layers.last_mut().and_then(|above| above.entries.last_mut()) {
            entry.1 = root;
        }
        Ok(())
    }

    /// Writes the last border node of a layer and the interior nodes above; returns the root.
    fn build_layer(&self, work: &mut Work<'_>, load: &mut Load, layer: Layer) -> Walk<u64> {
        load.layers.push(layer);
        let depth = load.layers.len() - 1;
        self.close_border(work, load, depth)?;
        let mut nodes = load.layers.pop().map(|layer| layer.borders).unwrap_or_default();
        while nodes.len() > 1 {
            let mut above = Vec::with_capacity(nodes.len() / self.core.width + 1);
            // As even as parts of one size are; the last may have a single child.
            let per_node = nodes.len().div_ceil(nodes.len().div_ceil(self.core.width + 1));
            for children in nodes.chunks(per_node) {
                let offset = self.allocate_interior(work)?;
                load.made.push(offset);
                let separators: Vec<Slice> = children[1..].iter().map(|(slice, _)| *slice).collect();
                let pointers: Vec<u64> = children.iter().map(|(_, pointer)| *pointer).collect();
                let pointer = self.fill_interior(work, offset, &separators, &pointers)?;
                above.push((children[0].0, pointer));
            }
            nodes = above;
        }
        Ok(nodes[0].1)
    }
}
