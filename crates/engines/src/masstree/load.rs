//! Bulk load: nodes filled from sorted input, published by one store of the root.

use medium::Medium;

use super::access::{NodeRef, View, Walk};
use super::core::Core;
use super::layout::{Border, OFFSET_MASK};
use super::permutation::Permutation;
use super::record::Record;
use super::shard::Work;
use super::slice::{LAYER, LONGER, Slice};
use crate::index::NextEntry;
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

/// A load. If it is dropped before it is published, all that it has allocated is given back.
struct Load<'l, 'w, M: Medium> {
    view: &'l View<'l, M>,
    work: &'l mut Work<'w>,
    /// Entries of a node.
    per_node: usize,
    /// The layers of the last key.
    layers: Vec<Layer>,
    last: Vec<u8>,
    entries: u64,
    /// All that was allocated.
    made: Vec<u64>,
}

impl<M: Medium> Drop for Load<'_, '_, M> {
    fn drop(&mut self) {
        for object in self.made.drain(..) {
            // What cannot be given back is found by `check`; the error that led here matters more.
            let _ = self.view.free(self.work, object);
        }
    }
}

impl<M: Medium> Core<M> {
    /// Fills an empty tree. All of it lies in one epoch, which is held while the source runs; so a crash leaves all or
    /// nothing, and a source that would wait for the end of that epoch is refused.
    pub(super) fn load(&self, next: &mut NextEntry<'_>, fill: f64) -> Result<u64> {
        let _mark = self.begin_batch()?;
        let (view, mut work) = self.enter_for_long();
        let mut load = Load {
            view: &view,
            work: &mut work,
            per_node: entries_per_leaf(self.width, fill),
            layers: vec![Layer::default()],
            last: Vec::new(),
            entries: 0,
            made: Vec::new(),
        };
        load.run(next).map_err(|stop| stop.error_or(|| Error::NotEmpty))?;
        Ok(load.entries)
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
}

impl<M: Medium> Load<'_, '_, M> {
    fn run(&mut self, next: &mut NextEntry<'_>) -> Walk<()> {
        let view = self.view;
        view.empty_root()?;
        // A load that fills the pool leaves a run for interior nodes, too: no other object may take their place.
        let spare = view.allocate_interior(self.work)?;
        self.made.push(spare);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while next(&mut key, &mut value)? {
            if self.entries > 0 && key <= self.last {
                return Err(Error::NotSorted { index: self.entries }.into());
            }
            view.core.check_entry(&key, &value)?;
            view.guard.admit()?;
            self.add(&key, &value)?;
            std::mem::swap(&mut key, &mut self.last);
            self.entries += 1;
        }
        if self.entries == 0 {
            return Ok(());
        }
        let root = self.close_layers(0)?;
        // The node is locked before the root, as everywhere. A tree whose root has changed meanwhile counts as not empty.
        let (old, node) = view.empty_root()?;
        let mut old_lock = view.lock(&node.version)?;
        let lock = view.core.root.lock();
        if view.empty_root()?.0 != old {
            return Err(Error::NotEmpty.into());
        }
        // PERSIST: nothing; durable with the epoch, and undone by the log of the root if that fails.
        view.set_first_root(self.work, root)?;
        old_lock.delete();
        drop((old_lock, lock));
        self.made.clear();
        view.free(self.work, spare)?;
        view.free(self.work, old & OFFSET_MASK)
    }

    /// Adds an entry behind all that are there.
    fn add(&mut self, key: &[u8], value: &[u8]) -> Walk<()> {
        let view = self.view;
        // Layers whose prefix the key does not have are complete.
        let shared = key.iter().zip(&self.last).take_while(|(one, other)| one == other).count() / 8;
        self.close_layers(shared + 1)?;
        loop {
            let depth = self.layers.len() - 1;
            let slice = Slice::of(Slice::rest(key, depth));
            let entries = &mut self.layers[depth].entries;
            // A key before that shares this slice: both go a layer down.
            if let Some((before, record)) = entries.last_mut()
                && *before == slice
                && slice.class == LONGER
            {
                before.class = LAYER;
                let mut tail = Vec::new();
                Record::at(&view.guard, *record)?.copy_tail(&view.guard, 8 * (depth + 1), &mut tail)?;
                let entries = vec![(Slice::of(&tail), *record)];
                self.layers.push(Layer { entries, borders: Vec::new() });
                continue;
            }
            let is_full = entries.len() == self.per_node;
            let content = view.write_content(self.work, key, value)?;
            if !view.core.are_words {
                self.made.push(content);
            }
            if is_full {
                self.close_border(depth)?;
            }
            self.layers[depth].entries.push((slice, content));
            return Ok(());
        }
    }

    /// Writes the next border node of a layer.
    fn close_border(&mut self, depth: usize) -> Walk<()> {
        let layer = &mut self.layers[depth];
        let entries = std::mem::take(&mut layer.entries);
        let offset = self.view.new_border(self.work, &entries)?;
        self.made.push(offset);
        let first = Slice { class: entries[0].0.class.min(LONGER), ..entries[0].0 };
        layer.borders.push((first, offset));
        Ok(())
    }

    /// All layers from `depth` on are complete: writes their last nodes, each layer's root into the last entry of the layer above.
    /// Returns the last root.
    fn close_layers(&mut self, depth: usize) -> Walk<u64> {
        let mut root = 0;
        for depth in (depth..self.layers.len()).rev() {
            self.close_border(depth)?;
            let borders = std::mem::take(&mut self.layers[depth].borders);
            self.layers.truncate(depth);
            root = self.build_interiors(borders)?;
            if let Some(above) = self.layers.last_mut().and_then(|above| above.entries.last_mut()) {
                above.1 = root;
            }
        }
        Ok(root)
    }

    /// Writes the interior nodes above the border nodes of a layer; returns the root.
    fn build_interiors(&mut self, mut nodes: Vec<(Slice, u64)>) -> Walk<u64> {
        let (view, width) = (self.view, self.view.core.width);
        while nodes.len() > 1 {
            let mut above = Vec::with_capacity(nodes.len() / width + 1);
            // Parts of one size; the last one may have a single child.
            let per_node = nodes.len().div_ceil(nodes.len().div_ceil(width + 1));
            for children in nodes.chunks(per_node) {
                let offset = view.allocate_interior(self.work)?;
                self.made.push(offset);
                let separators: Vec<Slice> = children[1..].iter().map(|(slice, _)| *slice).collect();
                let pointers: Vec<u64> = children.iter().map(|(_, pointer)| *pointer).collect();
                above.push((children[0].0, view.fill_interior(self.work, offset, &separators, &pointers)?));
            }
            nodes = above;
        }
        Ok(nodes[0].1)
    }
}
