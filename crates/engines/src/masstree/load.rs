//! Bulk load: nodes filled from sorted input, published by one store of the root.
//!
//! The load writes into runs of its own, to which the tree's chain of runs does not lead. It may
//! last for many epochs, and holds none of them while the source runs:
//!
//! 1. The source gives some entries; the load holds nothing.
//! 2. Within one epoch, these are written. They become durable with that epoch.
//! 3. After the last entry the load joins the tree, within one epoch: its runs enter the chain, and
//!    its root takes the place of the empty one. If that epoch fails, the tree is empty, and a mark
//!    does not reach the runs, so they are free.

use medium::Medium;

use super::access::{NodeRef, TreeAccess, Walk};
use super::core::Core;
use super::layout::{Border, OFFSET_MASK};
use super::permutation::Permutation;
use super::record::Record;
use super::shard::{OwnRuns, Work};
use super::slice::{LAYER, LONGER, Slice};
use crate::index::{NextEntry, check_entry};
use crate::kit::epochs::in_batch::refuse_in_any_batch;
use crate::kit::load::{Source, entries_per_leaf};
use crate::kit::shared_prefix::count_shared;
use crate::{Error, ErrorKind, Result};

/// The bytes of keys and values that are written within one epoch; the last entry may exceed them.
const STEP_BYTES: usize = 64 << 10;

/// A layer that is being filled.
#[derive(Default)]
struct Layer {
    /// Entries of the border node that is next.
    entries: Vec<(Slice, u64)>,
    /// For each level, from the border nodes up, the nodes that are written and have no parent yet,
    /// with their first slices.
    levels: Vec<Vec<(Slice, u64)>>,
}

/// A load. If it is dropped before it has joined the tree, its runs go back to the pool.
struct Load<'l, M: Medium> {
    core: &'l Core<M>,
    runs: OwnRuns,
    /// Entries of a border node.
    per_node: usize,
    /// The layers of the last key.
    layers: Vec<Layer>,
    /// The last key that was written.
    last: Vec<u8>,
    /// Entries that the source gave, and that are not written yet. The first `waiting` are in use.
    read: Vec<(Vec<u8>, Vec<u8>)>,
    waiting: usize,
}

impl<M: Medium> Drop for Load<'_, M> {
    fn drop(&mut self) {
        if self.runs.all.is_empty() {
            return;
        }
        // The running epoch still has lines of the runs to flush.
        if !std::thread::panicking() && self.core.advance().is_ok() {
            let guard = self.core.pool.peek();
            self.runs.all.drain(..).for_each(|run| guard.free(run));
        } else {
            self.core.pool.leave_unclean();
        }
    }
}

impl<M: Medium> Core<M> {
    /// Fills an empty tree. A crash leaves all or nothing.
    pub(super) fn load(&self, next: &mut NextEntry<'_>, fill: f64) -> Result<u64> {
        refuse_in_any_batch::<M>()?;
        let mut load = Load {
            core: self,
            runs: OwnRuns::default(),
            per_node: entries_per_leaf(self.width, fill),
            layers: vec![Layer::default()],
            last: Vec::new(),
            read: Vec::new(),
            waiting: 0,
        };
        let mut source = Source::new(next);
        load.run(&mut source)
            .map_err(|stop| stop.error_or(|| ErrorKind::NotEmpty.into()))?;
        Ok(source.entries())
    }
}

impl<M: Medium> TreeAccess<'_, M> {
    /// The root of the tree, if that has no key.
    fn empty_root(&self) -> Walk<(u64, &Border)> {
        let root = self.anchor()?.root.value.load(&self.guard);
        if let NodeRef::Border(node) = self.node(root)?
            && Permutation(node.permutation.load(&self.guard)).count(self.core.width) == 0
        {
            return Ok((root, node));
        }
        Err(ErrorKind::NotEmpty.into())
    }
}

impl<M: Medium> Load<'_, M> {
    fn run(&mut self, source: &mut Source<'_>) -> Walk<()> {
        // A load that fills the pool leaves a run for interior nodes, too: no other object may take
        // their place.
        let spare = self.within_epoch(|_, view, work| {
            view.empty_root()?;
            view.allocate_interior(work)
        })?;
        while self.read_some(source)? {
            self.core.pool.peek().await_memory().map_err(Error::from)?;
            self.within_epoch(Self::write_some)?;
        }
        if source.entries() == 0 {
            return Ok(());
        }
        self.within_epoch(|load, view, work| load.join(view, work, spare))
    }

    /// Runs a step within one epoch. Its allocations come from the runs of the load.
    fn within_epoch<R>(
        &mut self,
        step: impl FnOnce(&mut Self, &TreeAccess<'_, M>, &mut Work<'_>) -> Walk<R>,
    ) -> Walk<R> {
        let core = self.core;
        let (view, mut work) = core.enter();
        if core.epochs.are_over() {
            return Err(ErrorKind::InUse.into());
        }
        view.guard.admit()?;
        work.shard.own.loading = Some(std::mem::take(&mut self.runs));
        let result = step(self, &view, &mut work);
        self.runs = work.shard.own.loading.take().unwrap_or_default();
        result
    }

    /// Reads entries for a border node, or fewer if they are long; returns whether there were any.
    fn read_some(&mut self, source: &mut Source<'_>) -> Result<bool> {
        let mut bytes = 0;
        while self.waiting < self.per_node && bytes < STEP_BYTES {
            if self.read.len() == self.waiting {
                self.read.push(Default::default());
            }
            let (key, value) = &mut self.read[self.waiting];
            if !source.next_into(key, value)? {
                break;
            }
            check_entry(self.core.are_words, key, value)?;
            bytes += key.len() + value.len();
            self.waiting += 1;
        }
        Ok(self.waiting > 0)
    }

    fn write_some(&mut self, view: &TreeAccess<'_, M>, work: &mut Work<'_>) -> Walk<()> {
        let mut read = std::mem::take(&mut self.read);
        let waiting = std::mem::take(&mut self.waiting);
        for (key, value) in &mut read[..waiting] {
            self.add(view, work, key, value)?;
            std::mem::swap(key, &mut self.last);
        }
        self.read = read;
        Ok(())
    }

    /// Step 3.
    fn join(&mut self, view: &TreeAccess<'_, M>, work: &mut Work<'_>, spare: u64) -> Walk<()> {
        let root = self.close_layers(view, work, 0)?;
        // The node is locked before the root: all operations lock in this order. A tree whose root
        // has changed meanwhile counts as not empty.
        let (old, node) = view.empty_root()?;
        let mut old_lock = view.lock(&node.version)?;
        let lock = view.core.root.lock();
        if view.empty_root()?.0 != old {
            return Err(ErrorKind::NotEmpty.into());
        }
        let space = view.core.space(&view.guard);
        let left = space.join_runs(work)?;
        // PERSIST: nothing; durable with the epoch, and undone by the log of the root if that
        // fails.
        view.set_first_root(work, root)?;
        old_lock.delete();
        drop((old_lock, lock));
        left.chain([spare, old & OFFSET_MASK])
            .try_for_each(|object| view.free(work, object))
    }

    /// Adds an entry behind all others.
    fn add(
        &mut self,
        view: &TreeAccess<'_, M>,
        work: &mut Work<'_>,
        key: &[u8],
        value: &[u8],
    ) -> Walk<()> {
        // Layers whose prefix the key does not have are complete.
        let shared_slices = count_shared(key, &self.last) / 8;
        self.close_layers(view, work, shared_slices + 1)?;
        loop {
            let depth = self.layers.len() - 1;
            let slice = Slice::of(Slice::rest(key, depth));
            let entries = &mut self.layers[depth].entries;
            // The key before has the same slice: both go a layer down.
            if let Some((before, record)) = entries.last_mut()
                && *before == slice
                && slice.class == LONGER
            {
                before.class = LAYER;
                let mut tail = Vec::new();
                Record::at(&view.guard, *record)?.copy_tail(
                    &view.guard,
                    8 * (depth + 1),
                    &mut tail,
                )?;
                let entries = vec![(Slice::of(&tail), *record)];
                self.layers.push(Layer {
                    entries,
                    levels: Vec::new(),
                });
                continue;
            }
            let is_full = entries.len() == self.per_node;
            let content = view.write_content(work, key, value)?;
            if is_full {
                self.close_border(view, work, depth)?;
            }
            self.layers[depth].entries.push((slice, content));
            return Ok(());
        }
    }

    /// Writes the next border node of a layer.
    fn close_border(
        &mut self,
        view: &TreeAccess<'_, M>,
        work: &mut Work<'_>,
        depth: usize,
    ) -> Walk<()> {
        let entries = std::mem::take(&mut self.layers[depth].entries);
        let offset = view.new_border(work, &entries)?;
        let first = Slice {
            class: entries[0].0.class.min(LONGER),
            ..entries[0].0
        };
        self.layers[depth].add_node(view, work, (first, offset))
    }

    /// All layers from `depth` on are complete: writes their last nodes, each layer's root into the
    /// last entry of the layer above. Returns the last root.
    fn close_layers(
        &mut self,
        view: &TreeAccess<'_, M>,
        work: &mut Work<'_>,
        depth: usize,
    ) -> Walk<u64> {
        let mut root = 0;
        for depth in (depth..self.layers.len()).rev() {
            self.close_border(view, work, depth)?;
            root = self.layers[depth].close(view, work)?;
            self.layers.truncate(depth);
            if let Some(above) = self
                .layers
                .last_mut()
                .and_then(|above| above.entries.last_mut())
            {
                above.1 = root;
            }
        }
        Ok(root)
    }
}

impl Layer {
    /// Adds a border node. Of a level that has children for more than two parents, the first ones
    /// get theirs.
    fn add_node<M: Medium>(
        &mut self,
        view: &TreeAccess<'_, M>,
        work: &mut Work<'_>,
        node: (Slice, u64),
    ) -> Walk<()> {
        let mut level = 0;
        let mut node = node;
        loop {
            if level == self.levels.len() {
                self.levels.push(Vec::new());
            }
            let nodes = &mut self.levels[level];
            let per_node = view.core.width + 1;
            nodes.push(node);
            if nodes.len() <= 2 * per_node {
                return Ok(());
            }
            let children: Vec<_> = nodes.drain(..per_node).collect();
            node = parent_of(view, work, &children)?;
            level += 1;
        }
    }

    /// Writes the last interior nodes; returns the root.
    fn close<M: Medium>(&mut self, view: &TreeAccess<'_, M>, work: &mut Work<'_>) -> Walk<u64> {
        let mut levels = std::mem::take(&mut self.levels).into_iter();
        let mut nodes = levels.next().unwrap_or_default();
        loop {
            let above = levels.next();
            if above.is_none()
                && let [(_, root)] = nodes[..]
            {
                return Ok(root);
            }
            let mut parents = above.unwrap_or_default();
            // The parts have one size; the last one may have a single child.
            let per_node = nodes
                .len()
                .div_ceil(nodes.len().div_ceil(view.core.width + 1));
            for children in nodes.chunks(per_node) {
                parents.push(parent_of(view, work, children)?);
            }
            nodes = parents;
        }
    }
}

/// An interior node above these nodes, with its first slice.
fn parent_of<M: Medium>(
    view: &TreeAccess<'_, M>,
    work: &mut Work<'_>,
    children: &[(Slice, u64)],
) -> Walk<(Slice, u64)> {
    let offset = view.allocate_interior(work)?;
    let separators: Vec<Slice> = children[1..].iter().map(|(slice, _)| *slice).collect();
    let pointers: Vec<u64> = children.iter().map(|(_, pointer)| *pointer).collect();
    Ok((
        children[0].0,
        view.fill_interior(work, offset, &separators, &pointers)?,
    ))
}
