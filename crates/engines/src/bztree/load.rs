//! Bulk load: a whole tree from sorted input, installed by one operation on the root.

use medium::Medium;
use pool::Guard;

use super::find::Separator;
use super::image::{CopiedEntry, InnerImage, NewNodes};
use super::layout::Pointer;
use super::{BzTree, NodeSizes};
use crate::index::{Codec, EntryWords, NextEntry};
use crate::kit::load::{EncodedEntries, entries_per_leaf};
use crate::{ErrorKind, Result};

/// Nodes and records of a load that are not reachable yet.
struct Load<'g, 'p, 's, M: Medium, C: Codec> {
    guard: &'g Guard<'p, M>,
    source: EncodedEntries<'g, 'p, 's, M, C>,
    nodes: NewNodes<'g, 'p, M>,
    /// Nodes of one level, each with the separator before it.
    level: Vec<(Separator, Pointer)>,
}

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// Fills an empty tree, whose root must be a leaf. (A tree that became empty by removals has
    /// such a root, unless its leaves could not be merged.) The thread is not pinned while `next`
    /// runs, so memory that other threads retire is freed meanwhile.
    pub(super) fn load<'s>(&self, next: &'s mut NextEntry<'s>, fill: f64) -> Result<u64> {
        self.empty_root(&self.pool.pin())?;
        // No other thread can reach the new nodes.
        let guard = self.pool.peek();
        let source = EncodedEntries::new(&guard, next);
        let mut load = Load {
            guard: &guard,
            source,
            nodes: NewNodes::new(&guard),
            level: Vec::new(),
        };
        self.write_leaves(&mut load, fill)?;
        if load.source.entries() == 0 {
            return Ok(0);
        }
        while load.level.len() > 1 {
            self.write_level(&mut load, fill)?;
        }
        let Some((_, root)) = load.level.pop() else {
            return Ok(0);
        };
        // PERSIST: all new nodes are ordered before the root that leads to them; the operation's
        // own fences belong to another guard.
        guard.fence();
        self.install_loaded(load, root)
    }

    /// Replaces the empty root by that of a load; returns the entries.
    fn install_loaded(&self, mut load: Load<'_, '_, '_, M, C>, root: Pointer) -> Result<u64> {
        let guard = self.pool.pin();
        // The root may be another empty leaf by now.
        let old = self.empty_root(&guard)?;
        // A frozen leaf takes no more entries. If another thread replaces it first, this load
        // fails.
        let leaf = Self::leaf(&guard, old.offset())?;
        let frozen = self.freeze(&guard, leaf)?;
        if frozen.live() > 0 {
            return self.refuse(&guard);
        }
        let mut swap = self.pmwcas.allocate();
        Self::bury_leaf(&guard, &mut swap, leaf, frozen)?;
        self.swap_child(&guard, &mut swap, &[], old, root)?;
        load.nodes.release(root.offset());
        let Some(commit) = self.attempt_swap(&guard, swap)? else {
            return self.refuse(&guard);
        };
        load.nodes.keep();
        let entries = load.source.published();
        commit.wait(&guard)?;
        Ok(entries)
    }

    /// The root, if it is a leaf without entries.
    fn empty_root(&self, guard: &Guard<'_, M>) -> Result<Pointer> {
        let root = self.root_pointer(guard)?;
        if !root.is_leaf() {
            return self.refuse(guard);
        }
        let status = self.leaf_status(guard, Self::leaf(guard, root.offset())?)?;
        if status.live() > 0 {
            self.refuse(guard)
        } else {
            Ok(root)
        }
    }

    /// The error for a tree that has entries, once these are durable.
    fn refuse<T>(&self, guard: &Guard<'_, M>) -> Result<T> {
        self.pmwcas.settle_all(guard)?;
        Err(ErrorKind::NotEmpty.into())
    }

    /// Writes and flushes entries, leaf by leaf.
    fn write_leaves(&self, load: &mut Load<'_, '_, '_, M, C>, fill: f64) -> Result<()> {
        let per_leaf = entries_per_leaf(self.sizes.leaf_entries, fill);
        let mut copies: Vec<CopiedEntry> = Vec::with_capacity(per_leaf);
        let mut before = None;
        while let Some(words) = load.source.next_entry()? {
            if copies.len() == per_leaf {
                before = self.close_leaf(load, before, &mut copies)?;
            }
            copies.push(Self::copied(words, load.source.key()?));
        }
        if !copies.is_empty() {
            self.close_leaf(load, before, &mut copies)?;
        }
        Ok(())
    }

    /// Writes a leaf with `copies`, behind the entry `before`; returns its last entry.
    fn close_leaf(
        &self,
        load: &mut Load<'_, '_, '_, M, C>,
        before: Option<EntryWords>,
        copies: &mut Vec<CopiedEntry>,
    ) -> Result<Option<EntryWords>> {
        let room = copies.len() + self.sizes.free_entries;
        let place = self.allocate_room(&mut load.nodes, room, copies.len())?;
        Self::write_leaf(load.guard, place, copies)?;
        let separator = match before {
            Some(before) => Self::separate(load.guard, &mut load.nodes, before, copies[0].words)?,
            None => Separator { word: 0, tail: 0 },
        };
        load.level.push((separator, Pointer::leaf(place.offset)));
        let last = copies.last().map(|copied| copied.words);
        copies.clear();
        Ok(last)
    }

    /// Replaces the nodes of a level by the inner nodes above them.
    fn write_level(&self, load: &mut Load<'_, '_, '_, M, C>, fill: f64) -> Result<()> {
        let below = std::mem::take(&mut load.level);
        let NodeSizes {
            inner_children: most,
            ..
        } = self.sizes;
        let most = ((most as f64 * fill.clamp(0.5, 1.0)).round() as usize).clamp(3, most);
        let level = match below[0].1 {
            pointer if pointer.is_leaf() => 1,
            pointer => {
                Self::header(load.guard, Self::inner(load.guard, pointer.offset())?).level() + 1
            }
        };
        // Children are spread evenly. An inner node has room for three or more, so none is left
        // with one.
        let nodes = below.len().div_ceil(most);
        for number in 0..nodes {
            let start = below.len() * number / nodes;
            let end = below.len() * (number + 1) / nodes;
            let image = InnerImage {
                level,
                separators: below[start + 1..end]
                    .iter()
                    .map(|(separator, _)| *separator)
                    .collect(),
                children: below[start..end].iter().map(|(_, child)| *child).collect(),
            };
            let offset = load.nodes.allocate(Self::INNER_BYTES)?;
            Self::write_inner(load.guard, offset, &image)?;
            load.level.push((below[start].0, Pointer::inner(offset)));
        }
        Ok(())
    }
}
