//! Bulk load: a whole tree from sorted input, published by the root's line.

use medium::Medium;
use pool::Guard;

use super::change::Change;
use super::layout::{Content, IDS_MAX, LEAF_ENTRIES, Node};
use super::record::{Fresh, offset_in};
use super::{CawbTree, Counts, log};
use crate::index::{Codec, NextEntry};
use crate::kit::load::{Sorted, entries_per_leaf};
use crate::{Error, Result};

/// A node that is written, and the ID of the first key below it.
type Loaded = (u64, u32);

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Fills an empty tree. No lock is held, and nothing is pinned, while `next` runs.
    pub(super) fn load<'s>(&self, next: &'s mut NextEntry<'s>, fill: f64) -> Result<u64> {
        let guard = self.pool.peek();
        self.expect_empty(&guard, |_| Ok(()))?;
        let (mut source, mut fresh) = (Sorted::<M, C>::new(&guard, next), Fresh::new(self, &guard));
        let mut counts = Counts::default();
        let root = self.load_nodes(&mut source, &mut fresh, fill, &mut counts)?;
        if source.entries() == 0 {
            return Ok(0);
        }
        let lsn = self.expect_empty(&guard, |state| {
            self.write_log(&guard, state, &log::nothing())?;
            // PERSIST: all below the root, and the log, is ordered before the root; lost, the tree is empty.
            guard.fence();
            let mut change = Change::of(self, &guard, [self.root]);
            change.publish(self.root, &Node::load(&guard, self.root)?, &root, 0)?;
            let lsn = guard.fence();
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
        run: impl FnOnce(&mut super::State) -> Result<R>,
    ) -> Result<R> {
        let mut state = self.lock(guard)?;
        if state.counts.keys == 0 {
            return run(&mut state);
        }
        self.settle_all(guard, state)?;
        Err(Error::NotEmpty)
    }

    /// Writes all nodes but the root, whose content it returns.
    fn load_nodes(
        &self,
        source: &mut Sorted<'_, '_, '_, M, C>,
        fresh: &mut Fresh<'_, '_, '_, M, C>,
        fill: f64,
        counts: &mut Counts,
    ) -> Result<Content> {
        let per_leaf = entries_per_leaf(LEAF_ENTRIES, fill);
        let mut level: Vec<Loaded> = Vec::new();
        let mut leaf = Self::load_leaf(source, fresh, per_leaf)?;
        let mut behind = Self::load_leaf(source, fresh, per_leaf)?;
        (counts.keys, counts.leaves) = (leaf.count as u64, 1);
        if behind.count == 0 {
            return Ok(leaf);
        }
        let mut offset = fresh.allocate_node()?;
        loop {
            let next = if behind.count == 0 { 0 } else { fresh.allocate_node()? };
            fresh.write_node(offset, &leaf.with_next(next), 0)?;
            level.push((offset, leaf.ids[0]));
            if next == 0 {
                break;
            }
            (leaf, offset) = (behind, next);
            behind = Self::load_leaf(source, fresh, per_leaf)?;
        }
        (counts.keys, counts.leaves, counts.levels) = (source.entries(), level.len() as u64, 1);
        // Two of three or four children stay, whatever the number.
        let most = entries_per_leaf(IDS_MAX, fill).max(3);
        while level.len() > most {
            let nodes = level.len().div_ceil(most);
            let parts =
                (0..nodes).map(|number| level.len() * number / nodes..level.len() * (number + 1) / nodes);
            let mut above = Vec::with_capacity(nodes);
            for part in parts {
                let offset = fresh.allocate_node()?;
                fresh.write_node(offset, &Self::inner_of(&level[part.clone()]), 0)?;
                above.push((offset, level[part.start].1));
            }
            counts.inner += nodes as u64;
            counts.levels += 1;
            level = above;
        }
        counts.inner += 1;
        Ok(Self::inner_of(&level))
    }

    /// The next leaf; without entries at the end.
    fn load_leaf(
        source: &mut Sorted<'_, '_, '_, M, C>,
        fresh: &mut Fresh<'_, '_, '_, M, C>,
        entries: usize,
    ) -> Result<Content> {
        let mut content = Content::empty_leaf();
        while content.count < entries
            && let Some(words) = source.next_entry()?
        {
            // The source gives back the records of byte strings.
            let record = if C::TIES { offset_in(words) } else { fresh.record_of(words)?.1 };
            content.insert_entry(content.count, fresh.id(words)?, record);
        }
        Ok(content)
    }

    fn inner_of(children: &[Loaded]) -> Content {
        let mut content = Content::default();
        content.pointers[0] = children[0].0;
        for (position, (child, first)) in children.iter().enumerate().skip(1) {
            content.insert_child(position, *first, *child);
        }
        content
    }
}
