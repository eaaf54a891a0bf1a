//! Makes and opens trees.

use std::time::Instant;

use medium::sync::{Mutex, Ordering};

use super::check::{NOT_FIRST, NodeSurvey, Stale};
use super::layout::{LoadedNode, NodeContent, NodeLine};
use super::log::read_mended;
use super::record::{Fresh, entry_at};
use super::{CawbTree, FAST_SEARCH, OFF, ROOT_LOG, ROOT_NODE, WriterState};
use crate::kit::map_on_threads;
use crate::kit::prelude::*;

/// Leaves that one thread reads at a time. The chunks are small, so that all threads end at about
/// the same time.
const CHUNK: usize = 4096;

impl<M: Medium, C: Codec> Build<M> for CawbTree<M, C>
where
    Self: MaybeWords,
{
    fn create(pool: &Pool<M>, new: NewTree<'_>, opening: &Opening) -> Result<Self> {
        let guard = pool.pin();
        let mut words = [0; ROOT_WORDS];
        let mut tree = Self::unopened(pool, &words)?;
        let mut fresh = Fresh::new(&tree, &guard);
        words[ROOT_NODE] = fresh.node(&NodeContent::empty_leaf(), 0)?;
        words[ROOT_LOG] = fresh.node(&NodeContent::empty_leaf(), 0)?;
        // PERSIST: root node and log are ordered before the root that leads to them; if this is
        // lost, there is no tree.
        guard.fence();
        pool.create_tree(new, Self::ENGINE.0, C::ID, &words)?;
        fresh.published();
        drop(fresh);
        tree.root = words[ROOT_NODE];
        tree.log = words[ROOT_LOG];
        tree.is_search_fast = opening.settings.get(FAST_SEARCH) != Some(OFF);
        let mut state = WriterState {
            log: LoadedNode::load(&guard, tree.log)?.0,
            ..WriterState::default()
        };
        state.counts.leaves = 1;
        tree.state = Mutex::new(state);
        Ok(tree)
    }

    fn open(pool: &Pool<M>, root: &TreeRoot, opening: &Opening) -> Result<Self> {
        root.demand(Self::ENGINE.0, C::ID, &[String::new(), String::new()])?;
        let start = Instant::now();
        let guard = pool.pin();
        let mut state = WriterState::default();
        let mut tree = Self::unopened(pool, &root.words)?;
        tree.is_search_fast = opening.settings.get(FAST_SEARCH) != Some(OFF);
        tree.recovered_from_crash = pool.needs_mark();
        tree.finish_log(&guard, &mut state)?;
        if tree.recovered_from_crash {
            guard.mark_node(tree.log)?;
        }
        let NodeSurvey {
            counts,
            leaves,
            stale,
            violations,
            ..
        } = tree.survey(opening.threads, &|guard, offset| {
            tree.read_recovered(guard, offset)
        })?;
        if let Some(violation) = violations.into_iter().next() {
            let left_out = violation.left_out;
            return Err(Error::corrupt(left_out.offset, left_out.what));
        }
        for separator in &stale {
            tree.mend(&guard, separator)?;
        }
        let chunks = leaves.len().div_ceil(CHUNK);
        let ids = map_on_threads(opening.threads, 0..chunks, |chunk| {
            tree.fill(&tree.pool.pin(), &leaves, chunk)
        })?;
        if !tree.ids.resume(ids.iter().flatten().copied()) {
            return Err(Error::corrupt(tree.root, "two entries with one ID"));
        }
        state.counts = counts;
        tree.state = Mutex::new(state);
        tree.recovery_ns = start.elapsed().as_nanos() as u64;
        Ok(tree)
    }

    fn salvage_at(pool: &Pool<M>, root: &TreeRoot, visit: &mut Visit<'_>) -> Salvaged {
        salvage_leaves::<M, C, Self>(pool, root, visit)
    }
}

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Reads and verifies a node. After a crash it is mended and marked.
    fn read_recovered(&self, guard: &Guard<'_, M>, offset: u64) -> Result<LoadedNode> {
        if !self.recovered_from_crash {
            return LoadedNode::load_sound(guard, offset);
        }
        let node = read_mended(guard, offset)?;
        guard.mark_node(offset).map(|()| node)
    }

    /// Replaces a separator by the first key to its right.
    fn mend(&self, guard: &Guard<'_, M>, stale: &Stale) -> Result<()> {
        let Stale {
            offset,
            separator,
            first,
        } = *stale;
        let node = LoadedNode::load(guard, offset)?;
        if !self.recovered_from_crash {
            return Err(Error::corrupt(offset, NOT_FIRST));
        }
        let new = NodeContent::of(&node)
            .with_separator(separator, first)
            .sealed(offset, node.parent());
        // PERSIST: nothing must precede; if this is lost, the separator is replaced again.
        guard
            .node::<NodeLine>(offset)?
            .line
            .publish(guard, &node.0, &new.0)?;
        // PERSIST: ordered before the line is stored again.
        guard.fence();
        Ok(())
    }

    /// Puts the entries of a chunk of the leaves into the table, and verifies their order. Returns
    /// their IDs.
    fn fill(&self, guard: &Guard<'_, M>, leaves: &[u64], chunk: usize) -> Result<Vec<u32>> {
        let mut last = None::<EntryWords>;
        let mut key = Vec::new();
        let mut ids = Vec::new();
        let start = chunk * CHUNK;
        if let Some(before) = start.checked_sub(1) {
            let record = LoadedNode::load(guard, leaves[before])?
                .pointers()
                .next_back();
            last = record
                .map(|record| entry_at::<M, C>(guard, record, &mut key))
                .transpose()?;
        }
        for (index, offset) in leaves[start..].iter().take(CHUNK).enumerate() {
            if let Some(ahead) = leaves.get(start + index + 2) {
                Self::prefetch_node(guard, *ahead);
            }
            let node = LoadedNode::load(guard, *offset)?;
            for (position, record) in node.pointers().enumerate() {
                let words = entry_at::<M, C>(guard, record, &mut key)?;
                if C::expect_key(guard, words).is_err() {
                    self.damaged_key.store(record, Ordering::Relaxed);
                }
                // `check` verifies the order of keys with equal first words.
                if last.is_some_and(|last| words[0] < last[0] || !C::TIES && words[0] == last[0]) {
                    return Err(Error::corrupt(*offset, "entries out of order"));
                }
                if self.recovered_from_crash {
                    self.pool.mark(record)?;
                }
                self.ids.set(node.id(position), words)?;
                ids.push(node.id(position));
                last = Some(words);
            }
        }
        Ok(ids)
    }
}
