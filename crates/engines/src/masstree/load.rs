//! Bulk load: nodes filled from sorted input, published by one store of the root.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use medium::Medium;

use super::access::{NodeRef, View, Walk};
use super::core::Core;
use super::layout::{Border, OFFSET_MASK};
use super::permutation::Permutation;
use super::record::Record;
use super::shard::Work;
use super::slice::{LAYER, LONGER, Slice};
use crate::index::NextEntry;
use crate::index::record::check_lengths;
use crate::kit::load::entries_per_leaf;
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
        let (view, mut work) = self.enter_for_long();
        let per_node = entries_per_leaf(self.width, fill);
        let mut load = Load { per_node, layers: Vec::new(), last: Vec::new(), entries: 0, made: Vec::new() };
        // What was allocated is given back if the source panics, too.
        let done = catch_unwind(AssertUnwindSafe(|| view.load(&mut work, next, &check, &mut load)));
        if let Ok(Ok(())) = done {
            return Ok(load.entries);
        }
        for object in load.made {
            // What cannot be given back is found by `check`; the error that led here matters more.
            let _ = view.free(&mut work, object);
        }
        match done {
            Ok(Err(stop)) => Err(stop.error_or(|| Error::NotEmpty)),
            Ok(Ok(())) => Ok(load.entries),
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl<M: Medium> View<'_, M> {
    /// The root of the tree, if that has no key.
    fn empty_root(&self) -> Walk<(u64, &Border)> {
        let root = self.anchor()?.root.value.load(&self.guard);
        if let NodeRef::Border(node) = self.node(root)?
            && Permutation(node.permutation.load(&self.guard)).count(self.core.width) == 0
        {
            return Ok((root, node));
        }
        Err(Error::NotEmpty.into())
    }

    fn load(
        &self,
        work: &mut Work<'_>,
        next: &mut NextEntry<'_>,
        check: &impl Fn(&[u8], &[u8]) -> Result<()>,
        load: &mut Load,
    ) -> Walk<()> {
        self.empty_root()?;
        // A load that fills the pool leaves a run for interior nodes, too: no other object may take their place.
        let spare = self.allocate_interior(work)?;
        load.made.push(spare);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while next(&mut key, &mut value)? {
            if load.entries > 0 && key <= load.last {
                return Err(Error::NotSorted { index: load.entries }.into());
            }
            check_lengths(&key, &value)?;
            check(&key, &value)?;
            self.guard.admit()?;
            self.load_entry(work, load, &key, &value)?;
            std::mem::swap(&mut key, &mut load.last);
            load.entries += 1;
        }
        if load.entries == 0 {
            return self.free(work, spare);
        }
        let root = self.close_layers(work, load, 0)?;
        // The node is locked before the root, as everywhere. A tree whose root has changed meanwhile counts as not empty.
        let (old, node) = self.empty_root()?;
        let mut old_lock = self.lock(&node.version)?;
        let lock = self.core.root.lock();
        if self.empty_root()?.0 != old {
            return Err(Error::NotEmpty.into());
        }
        // PERSIST: nothing; durable with the epoch, and undone by the log of the root if that fails.
        self.set_first_root(work, root)?;
        old_lock.delete();
        drop((old_lock, lock));
        load.made.clear();
        self.free(work, spare)?;
        self.free(work, old & OFFSET_MASK)
    }

    /// Adds an entry behind all that are there.
    fn load_entry(&self, work: &mut Work<'_>, load: &mut Load, key: &[u8], value: &[u8]) -> Walk<()> {
        // Layers whose prefix the key does not have are complete.
        let shared = key.iter().zip(&load.last).take_while(|(one, other)| one == other).count() / 8;
        match load.layers.len() {
            0 => load.layers.push(Layer::default()),
            layers if layers > shared + 1 => _ = self.close_layers(work, load, shared + 1)?,
            _ => {}
        }
        loop {
            let depth = load.layers.len() - 1;
            let slice = Slice::of(Slice::rest(key, depth));
            let layer = &mut load.layers[depth];
            // A key before that shares this slice: both go a layer down.
            if let Some((before, record)) = layer.entries.last_mut()
                && *before == slice
                && slice.class == LONGER
            {
                before.class = LAYER;
                let mut tail = Vec::new();
                Record::at(&self.guard, *record)?.copy_tail(&self.guard, 8 * (depth + 1), &mut tail)?;
                let entries = vec![(Slice::of(&tail), *record)];
                load.layers.push(Layer { entries, borders: Vec::new() });
                continue;
            }
            let content = self.write_content(work, key, slice, value)?;
            if !self.core.are_words {
                load.made.push(content);
            }
            if layer.entries.len() == load.per_node {
                self.close_border(work, layer, &mut load.made)?;
            }
            layer.entries.push((slice, content));
            return Ok(());
        }
    }

    /// Writes the next border node of a layer.
    fn close_border(&self, work: &mut Work<'_>, layer: &mut Layer, made: &mut Vec<u64>) -> Walk<()> {
        let entries = std::mem::take(&mut layer.entries);
        let offset = self.new_border(work, &entries)?;
        made.push(offset);
        let first = Slice { class: entries[0].0.class.min(LONGER), ..entries[0].0 };
        layer.borders.push((first, offset));
        Ok(())
    }

    /// Layers from `depth` on are complete: the last entry of the layer above each leads to it. Returns the root of the last one.
    fn close_layers(&self, work: &mut Work<'_>, load: &mut Load, depth: usize) -> Walk<u64> {
        let mut root = 0;
        for layer in load.layers.drain(depth..).rev() {
            root = self.build_layer(work, layer, (root, &mut load.made))?;
        }
        if let Some(entry) = load.layers.last_mut().and_then(|above| above.entries.last_mut()) {
            entry.1 = root;
        }
        Ok(root)
    }

    /// Writes the last border node of a layer, whose last entry leads to the layer `below` if there is one, and the interior nodes
    /// above; returns the root.
    fn build_layer(
        &self,
        work: &mut Work<'_>,
        mut layer: Layer,
        (below, made): (u64, &mut Vec<u64>),
    ) -> Walk<u64> {
        if let Some(last) = layer.entries.last_mut().filter(|_| below != 0) {
            last.1 = below;
        }
        self.close_border(work, &mut layer, made)?;
        let mut nodes = layer.borders;
        while nodes.len() > 1 {
            let mut above = Vec::with_capacity(nodes.len() / self.core.width + 1);
            // Parts of one size; the last one may have a single child.
            let per_node = nodes.len().div_ceil(nodes.len().div_ceil(self.core.width + 1));
            for children in nodes.chunks(per_node) {
                let offset = self.allocate_interior(work)?;
                made.push(offset);
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
