//! Making and opening trees.

use std::time::Instant;

use medium::sync::{AtomicU64, Mutex, Ordering};

use super::check::{NOT_FIRST, Stale, Survey};
use super::layout::{Content, Node, NodeLine};
use super::log::read_mended;
use super::record::{Fresh, entry_at};
use super::{CawbTree, ROOT_LOG, ROOT_NODE, State, log};
use crate::kit::prelude::*;

/// Leaves that one thread reads at a time, so that threads end together.
const CHUNK: usize = 4096;

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Makes an empty tree and enters it in the pool's root table. Durable when this returns.
    pub(super) fn create_at(pool: &Pool<M>, name: &str) -> Result<Self> {
        let (guard, mut words) = (pool.pin(), [0; ROOT_WORDS]);
        let mut tree = Self::unopened(pool, &words)?;
        let mut fresh = Fresh::new(&tree, &guard);
        words[ROOT_NODE] = fresh.node(&Content::empty_leaf(), 0)?;
        words[ROOT_LOG] = fresh.node(&log::nothing(), 0)?;
        // PERSIST: root node and log are ordered before the root that leads to them; lost, there is no tree.
        guard.fence();
        pool.create_tree(name, (Self::ENGINE.0, C::ID), &words)?;
        fresh.published();
        drop(fresh);
        (tree.root, tree.log) = (words[ROOT_NODE], words[ROOT_LOG]);
        let mut state = State { log: Node::load(&guard, tree.log)?.0, ..State::default() };
        state.counts.leaves = 1;
        tree.state = Mutex::new(state);
        Ok(tree)
    }

    /// Opens a tree of this kind, on so many threads.
    pub(super) fn open_at(pool: &Pool<M>, root: &TreeRoot, threads: usize) -> Result<Self> {
        let (start, guard, mut state) = (Instant::now(), pool.pin(), State::default());
        let mut tree = Self::unopened(pool, &root.words)?;
        tree.recovered_from_crash = pool.needs_mark();
        tree.finish_log(&guard, &mut state)?;
        if tree.recovered_from_crash {
            guard.mark_node(tree.log)?;
        }
        let Survey { counts, leaves, stale, violations } =
            tree.survey(&guard, &|offset| tree.read_recovered(&guard, offset));
        if let Some(violation) = violations.into_iter().next() {
            return Err(Error::corrupt(violation.offset, violation.what));
        }
        stale.into_iter().try_for_each(|stale| tree.mend(&guard, stale))?;
        let ids = tree.fill(&leaves, threads)?;
        if !tree.ids.resume(ids.iter().flatten().copied()) {
            return Err(Error::corrupt(tree.root, "two entries with one ID"));
        }
        state.counts = counts;
        tree.state = Mutex::new(state);
        tree.recovery_ns = start.elapsed().as_nanos() as u64;
        Ok(tree)
    }

    /// Reads and verifies a node. After a crash it is mended and marked.
    fn read_recovered(&self, guard: &Guard<'_, M>, offset: u64) -> Result<Node> {
        if self.recovered_from_crash {
            let node = read_mended(guard, offset)?;
            return guard.mark_node(offset).map(|()| node);
        }
        let found = guard.node::<NodeLine>(offset)?.line.inspect(guard).map_err(Error::torn(offset))?;
        if !found.is_whole {
            return Err(Error::corrupt(offset, "a torn line, and there was no crash"));
        }
        let node = Node(found.value);
        node.validate(offset).map(|()| node)
    }

    /// Replaces a separator by the first key to its right.
    fn mend(&self, guard: &Guard<'_, M>, (offset, separator, first): Stale) -> Result<()> {
        let node = Node::load(guard, offset)?;
        if !self.recovered_from_crash {
            return Err(Error::corrupt(offset, NOT_FIRST));
        }
        let mut content = Content::of(&node);
        content.replace_id(separator, first);
        let new = content.sealed(offset, node.parent());
        // PERSIST: nothing must precede; lost, the separator is replaced again.
        guard.node::<NodeLine>(offset)?.line.publish(guard, &node.0, &new.0)?;
        // PERSIST: ordered before the line is stored again.
        guard.fence();
        Ok(())
    }

    /// Puts the entries of all leaves into the table. Returns their IDs.
    fn fill(&self, leaves: &[u64], threads: usize) -> Result<Vec<Vec<u32>>> {
        let next = AtomicU64::new(0);
        let work = || -> Result<Vec<u32>> {
            let (guard, mut ids) = (self.pool.pin(), Vec::new());
            loop {
                let start = next.fetch_add(CHUNK as u64, Ordering::Relaxed) as usize;
                if start >= leaves.len() {
                    return Ok(ids);
                }
                self.fill_from(&guard, leaves, start, &mut ids)?;
            }
        };
        if threads <= 1 || leaves.len() <= CHUNK {
            return Ok(vec![work()?]);
        }
        std::thread::scope(|scope| {
            // If the system gives fewer threads, these do all the work.
            let helper = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
            let workers: Vec<_> = (1..threads).map_while(helper).collect();
            let mine = work();
            let theirs = workers.into_iter().map(|worker| match worker.join() {
                Ok(ids) => ids,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            std::iter::once(mine).chain(theirs).collect()
        })
    }

    /// Puts the entries of some leaves into the table, from `start` on, and verifies their order.
    fn fill_from(
        &self,
        guard: &Guard<'_, M>,
        leaves: &[u64],
        start: usize,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let (mut last, mut key) = (None::<EntryWords>, Vec::new());
        if let Some(before) = start.checked_sub(1) {
            let record = Node::load(guard, leaves[before])?.pointers().next_back();
            last = record.map(|record| entry_at::<M, C>(guard, record, &mut key)).transpose()?;
        }
        for (index, offset) in leaves[start..].iter().take(CHUNK).enumerate() {
            leaves.get(start + index + 2).into_iter().for_each(|ahead| Self::prefetch_node(guard, *ahead));
            let node = Node::load(guard, *offset)?;
            for (position, record) in node.pointers().enumerate() {
                let words = entry_at::<M, C>(guard, record, &mut key)?;
                // Of keys with the same first words the check tells.
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
        Ok(())
    }
}
