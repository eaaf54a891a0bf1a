//! Bulk load: a whole tree from sorted input, published by the root's line.

use std::cell::{Cell, RefCell};

use super::layout::{IDS_MAX, LEAF_ENTRIES, LoadedNode, NodeContent};
use super::publish::NodeChange;
use super::record::{Fresh, offset_in};
use super::{CawbTree, TreeCounts};
use crate::kit::prelude::*;

/// A node that is written, and the ID of the first key below it.
type Loaded = (u64, u32);

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Fills an empty tree. The thread holds no lock and is not pinned while `next` runs.
    pub(super) fn load<'s>(&self, next: &'s mut NextEntry<'s>, fill: f64) -> Result<u64> {
        let guard = self.pool.peek();
        self.expect_empty(&guard, |_| Ok(()))?;
        let mut source = EncodedEntries::<M, C>::new(&guard, next);
        let mut fresh = Fresh::new(self, &guard);
        let mut counts = TreeCounts::default();
        let root = self.load_nodes(&mut source, &mut fresh, fill, &mut counts)?;
        if source.entries() == 0 {
            return Ok(0);
        }
        let lsn = self.expect_empty(&guard, |state| {
            self.write_log(&guard, state, &NodeContent::empty_leaf())?;
            // PERSIST: all nodes below the root, and the log, are ordered before the root; if this
            // is lost, the tree is empty.
            guard.fence();
            let mut change = NodeChange::of(self, &guard, [self.root]);
            change.publish(self.root, &LoadedNode::load(&guard, self.root)?, &root, 0)?;
            let lsn = guard.fence();
            self.versions.stamp_all(lsn);
            change.end(lsn);
            state.counts = counts;
            Ok(lsn)
        })?;
        fresh.published();
        let loaded = source.published();
        guard.wait_for(lsn)?;
        Ok(loaded)
    }

    /// Calls `run` with other writers kept out, if the tree is empty.
    fn expect_empty<R>(
        &self,
        guard: &Guard<'_, M>,
        run: impl FnOnce(&mut super::WriterState) -> Result<R>,
    ) -> Result<R> {
        let mut state = self.lock(guard)?;
        if state.counts.keys == 0 {
            return run(&mut state);
        }
        Self::settle(guard, state, self.versions.last_lsn())?;
        Err(ErrorKind::NotEmpty.into())
    }

    /// Writes all nodes but the root, whose content it returns.
    fn load_nodes(
        &self,
        source: &mut EncodedEntries<'_, '_, '_, M, C>,
        fresh: &mut Fresh<'_, '_, '_, M, C>,
        fill: f64,
        counts: &mut TreeCounts,
    ) -> Result<NodeContent> {
        let mut level = Vec::<Loaded>::new();
        // The last leaf that was filled.
        let last = Cell::new(NodeContent::empty_leaf());
        let fresh = RefCell::new(fresh);
        let allocate = || fresh.borrow_mut().allocate_node();
        let per_leaf = entries_per_leaf(LEAF_ENTRIES, fill);
        source.for_each_leaf(per_leaf, 0, allocate, |offset, next, entries| {
            let mut leaf = NodeContent::empty_leaf().with_next(next);
            let mut fresh = fresh.borrow_mut();
            for words in entries {
                // The source gives back the records of byte strings.
                let record = if C::TIES {
                    offset_in(words)
                } else {
                    fresh.record_of(words)?.1
                };
                leaf.insert_entry(leaf.count, fresh.id(words)?, record);
            }
            last.set(leaf);
            // A single leaf is the root.
            let offset = if offset == 0 && next != 0 {
                fresh.allocate_node()?
            } else {
                offset
            };
            level.push((offset, leaf.ids[0]));
            if offset == 0 {
                Ok(())
            } else {
                fresh.write_node(offset, &leaf, 0)
            }
        })?;
        let fresh = fresh.into_inner();
        *counts = TreeCounts {
            keys: source.entries(),
            leaves: level.len() as u64,
            ..*counts
        };
        if level.len() == 1 {
            return Ok(last.get());
        }
        // Children are spread evenly, so each node gets at least two.
        let most = entries_per_leaf(IDS_MAX, fill).max(3);
        loop {
            let nodes = level.len().div_ceil(most);
            counts.inner += nodes as u64;
            counts.levels += 1;
            if nodes == 1 {
                return Ok(Self::inner_of(&level));
            }
            let part = |number: usize| level.len() * number / nodes;
            let above = (0..nodes).map(|number| {
                let children = &level[part(number)..part(number + 1)];
                Ok((fresh.node(&Self::inner_of(children), 0)?, children[0].1))
            });
            level = above.collect::<Result<_>>()?;
        }
    }

    fn inner_of(children: &[Loaded]) -> NodeContent {
        let mut content = NodeContent::default();
        content.pointers[0] = children[0].0;
        for (position, (child, first)) in children.iter().enumerate().skip(1) {
            content.insert_child(position, *first, *child);
        }
        content
    }
}
