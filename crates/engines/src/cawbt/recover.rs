//! Making and opening trees: the survey of all nodes, which fills the table of IDs.

use std::time::Instant;

use medium::Medium;
use medium::sync::{AtomicU64, Mutex, Ordering};
use pool::{Guard, Pool, ROOT_WORDS, TreeRoot};

use super::find::too_deep;
use super::layout::{Content, LEAF_ENTRIES, Node, NodeLine};
use super::record::entry_at;
use super::{CawbTree, Counts, LEVELS_MAX, ROOT_LOG, ROOT_NODE, State, log};
use crate::index::{Codec, EntryWords};
use crate::{Error, Result};

/// Parts of the tree for each thread, so that threads end together.
const PARTS: usize = 16;

/// What a survey found below a node, or in a whole tree.
#[derive(Clone, Copy, Default)]
pub(super) struct Part {
    /// The ID of the first key; 0 if there is none.
    first: u32,
    counts: Counts,
    first_leaf: u64,
    /// The leaf that the last one links.
    next: u64,
    /// The entries of the first and the last key.
    ends: Option<[EntryWords; 2]>,
}

/// A node to be surveyed: its offset, the node above it, its level from the root.
#[derive(Clone, Copy)]
struct Task {
    offset: u64,
    parent: u64,
    level: usize,
}

/// A survey by one thread.
struct Surveyor<'s, 'p, M: Medium, C: Codec> {
    tree: &'s CawbTree<M, C>,
    guard: &'s Guard<'p, M>,
    /// How many nodes all threads may visit: more than fit in the pool are a circle.
    nodes_left: &'s AtomicU64,
    key: Vec<u8>,
    /// The IDs of the entries that it has met.
    ids: Vec<u32>,
    /// Whether something was stored that is not fenced.
    has_stored: bool,
}

impl<'s, 'p, M: Medium, C: Codec> Surveyor<'s, 'p, M, C> {
    fn new(tree: &'s CawbTree<M, C>, guard: &'s Guard<'p, M>, nodes_left: &'s AtomicU64) -> Self {
        Self { tree, guard, nodes_left, key: Vec::new(), ids: Vec::new(), has_stored: false }
    }

    /// Reads and verifies a node. After a crash it is mended and marked.
    fn visit(&mut self, task: Task) -> Result<Node> {
        let Task { offset, level, .. } = task;
        let left = self.nodes_left.fetch_sub(1, Ordering::Relaxed);
        if left == 0 || left > u64::MAX / 2 {
            return Err(Error::corrupt(offset, "nodes that run in a circle"));
        }
        if level > LEVELS_MAX {
            return Err(too_deep(offset));
        }
        let line = &self.guard.node::<NodeLine>(offset)?.line;
        let found = line.inspect(self.guard).map_err(Error::torn(offset))?;
        let node = Node(found.value);
        node.validate(offset)?;
        if self.tree.recovered_from_crash {
            if !found.is_whole {
                line.recover(self.guard).map_err(Error::torn(offset))?;
            }
            self.guard.mark_node(offset)?;
        } else if !found.is_whole {
            return Err(Error::corrupt(offset, "a torn line, and there was no crash"));
        }
        Ok(node)
    }

    /// Surveys a node and all below it; nodes at the level `parts_at` are those of `parts`.
    fn survey(
        &mut self,
        task: Task,
        parts_at: usize,
        parts: &mut dyn Iterator<Item = Result<Part>>,
    ) -> Result<Part> {
        if task.level == parts_at {
            return parts
                .next()
                .unwrap_or_else(|| Err(Error::corrupt(task.offset, "a node that was not there")));
        }
        let node = self.visit(task)?;
        if node.is_leaf() {
            return self.survey_leaf(task, &node);
        }
        let mut content = Content::of(&node);
        let mut all: Option<Part> = None;
        for (position, child) in node.pointers().enumerate() {
            let below = Task { offset: child, parent: task.offset, level: task.level + 1 };
            let part = self.survey(below, parts_at, parts)?;
            match &mut all {
                None => all = Some(part),
                Some(all) => {
                    self.join(all, part, task.offset)?;
                    content.ids[position - 1] = part.first;
                }
            }
        }
        let mut all = all.unwrap_or_default();
        all.counts.inner += 1;
        all.counts.levels += 1;
        self.mend_separators(task, &node, &content)?;
        Ok(all)
    }

    /// Replaces separators that are not the first keys to their right.
    fn mend_separators(&mut self, task: Task, node: &Node, content: &Content) -> Result<()> {
        let new = content.sealed(task.offset, task.parent);
        if (0..content.count).all(|position| node.id(position) == content.ids[position]) {
            return Ok(());
        }
        if !self.tree.recovered_from_crash {
            return Err(Error::corrupt(task.offset, "a separator that is not the first key to its right"));
        }
        // PERSIST: nothing must precede; lost, the separator is replaced again.
        self.guard.node::<NodeLine>(task.offset)?.line.publish(self.guard, &node.0, &new.0)?;
        self.has_stored = true;
        Ok(())
    }

    /// Adds a part to the one before it.
    fn join(&self, all: &mut Part, part: Part, above: u64) -> Result<()> {
        if all.next != part.first_leaf {
            return Err(Error::corrupt(part.first_leaf, "the leaf before links another one"));
        }
        if all.counts.levels != part.counts.levels {
            return Err(Error::corrupt(above, "leaves that are not equally far from the root"));
        }
        if let (Some([_, last]), Some([first, _])) = (all.ends, part.ends) {
            self.expect_order(part.first_leaf, last, first)?;
        }
        all.counts.keys += part.counts.keys;
        all.counts.leaves += part.counts.leaves;
        all.counts.inner += part.counts.inner;
        all.next = part.next;
        all.ends = all.ends.zip(part.ends).map(|(one, other)| [one[0], other[1]]);
        Ok(())
    }

    fn expect_order(&self, leaf: u64, below: EntryWords, above: EntryWords) -> Result<()> {
        let is_ordered = match below[0].cmp(&above[0]) {
            std::cmp::Ordering::Equal if C::TIES => {
                let mut key = Vec::new();
                C::copy_key(self.guard, below, &mut key)?;
                C::compare_tie(self.guard, C::key(&key)?, above)?.is_lt()
            }
            order => order.is_lt(),
        };
        if is_ordered { Ok(()) } else { Err(Error::corrupt(leaf, "entries out of order")) }
    }

    /// Puts the entries of a leaf into the table.
    fn survey_leaf(&mut self, task: Task, node: &Node) -> Result<Part> {
        let count = node.count();
        if count > LEAF_ENTRIES || count == 0 && task.level > 0 {
            return Err(Error::corrupt(task.offset, format!("a leaf with {count} keys")));
        }
        CawbTree::<M, C>::prefetch_node(self.guard, node.next());
        let mut part =
            Part { first: node.id(0), first_leaf: task.offset, next: node.next(), ..Part::default() };
        for position in 0..count {
            let (id, record) = (node.id(position), node.pointer(position));
            let words = entry_at::<M, C>(self.guard, record, &mut self.key)?;
            if let Some([_, last]) = part.ends {
                self.expect_order(task.offset, last, words)?;
            }
            part.ends = Some([part.ends.map_or(words, |ends| ends[0]), words]);
            if self.tree.recovered_from_crash {
                self.tree.pool.mark(record)?;
            }
            self.tree.ids.set(id, words)?;
            self.ids.push(id);
        }
        part.counts = Counts { keys: count as u64, leaves: 1, ..Counts::default() };
        Ok(part)
    }

    /// Orders what was stored, and returns the IDs of all entries.
    fn end(self) -> Vec<u32> {
        if self.has_stored {
            self.guard.fence();
        }
        self.ids
    }
}

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Makes an empty tree and enters it in the pool's root table. Durable when this returns.
    pub(super) fn create_at(pool: &Pool<M>, name: &str) -> Result<Self> {
        let guard = pool.pin();
        let mut nodes = Vec::new();
        let done = Self::create_nodes(pool, name, &guard, &mut nodes);
        done.inspect_err(|_| nodes.into_iter().for_each(|node| guard.free_node(node)))
    }

    fn create_nodes(pool: &Pool<M>, name: &str, guard: &Guard<'_, M>, nodes: &mut Vec<u64>) -> Result<Self> {
        let mut words = [0; ROOT_WORDS];
        for (root, content) in [(ROOT_NODE, Content::empty_leaf()), (ROOT_LOG, log::nothing())] {
            words[root] = guard.allocate_node(size_of::<NodeLine>())?;
            nodes.push(words[root]);
            let line = &guard.node::<NodeLine>(words[root])?.line;
            line.init(guard, &content.sealed(words[root], 0).0);
        }
        let tree = Self::unopened(pool, &words)?;
        // PERSIST: root node and log are ordered before the root that leads to them; lost, there is no tree.
        guard.fence();
        pool.create_tree(name, (Self::ENGINE.0, C::ID), &words)?;
        let mut state = tree.state.lock();
        state.log = Node::load(guard, tree.log)?.0;
        state.counts.leaves = 1;
        drop(state);
        Ok(tree)
    }

    /// Opens a tree of this kind.
    pub(super) fn open_at(pool: &Pool<M>, root: &TreeRoot, threads: usize) -> Result<Self> {
        let start = Instant::now();
        let mut tree = Self::unopened(pool, &root.words)?;
        tree.recovered_from_crash = pool.needs_mark();
        let guard = pool.pin();
        let mut state = State::default();
        tree.finish_log(&guard, &mut state)?;
        if tree.recovered_from_crash {
            guard.mark_node(tree.log)?;
        }
        let (part, ids) = tree.survey_all(&guard, threads)?;
        if part.next != 0 {
            return Err(Error::corrupt(tree.root, "the last leaf links another one"));
        }
        if !tree.ids.resume(ids.iter().flatten().copied()) {
            return Err(Error::corrupt(tree.root, "two entries with one ID"));
        }
        state.counts = part.counts;
        drop(guard);
        tree.state = Mutex::new(state);
        tree.recovery_ns = start.elapsed().as_nanos() as u64;
        Ok(tree)
    }

    /// Surveys the whole tree. Returns the IDs of all entries as well.
    fn survey_all(&self, guard: &Guard<'_, M>, threads: usize) -> Result<(Part, Vec<Vec<u32>>)> {
        let nodes = guard.medium().extent().length() / size_of::<NodeLine>() as u64;
        let nodes_left = AtomicU64::new(nodes);
        let root = Task { offset: self.root, parent: 0, level: 0 };
        let mut tasks = vec![root];
        while threads > 1 && tasks.len() < PARTS * threads {
            let Some(below) = Self::tasks_below(guard, &tasks) else { break };
            tasks = below;
        }
        let (parts_at, parts, mut ids) = match tasks[0].level {
            0 => (usize::MAX, Vec::new(), Vec::new()),
            level => {
                let (parts, ids) = self.survey_parts(&tasks, threads, &nodes_left);
                (level, parts, ids)
            }
        };
        let mut top = Surveyor::new(self, guard, &nodes_left);
        let all = top.survey(root, parts_at, &mut parts.into_iter());
        ids.push(top.end());
        Ok((all?, ids))
    }

    /// The children of nodes that are all inner ones.
    fn tasks_below(guard: &Guard<'_, M>, tasks: &[Task]) -> Option<Vec<Task>> {
        let mut below = Vec::new();
        for task in tasks {
            let node = Node::load(guard, task.offset).ok().filter(|node| !node.is_leaf())?;
            let (parent, level) = (task.offset, task.level + 1);
            below.extend(node.pointers().map(|offset| Task { offset, parent, level }));
        }
        Some(below)
    }

    /// Surveys parts of the tree on several threads.
    fn survey_parts(
        &self,
        tasks: &[Task],
        threads: usize,
        nodes_left: &AtomicU64,
    ) -> (Vec<Result<Part>>, Vec<Vec<u32>>) {
        let jobs = Mutex::new(tasks.iter().enumerate());
        let work = || {
            let (guard, mut parts) = (self.pool.pin(), Vec::new());
            let mut surveyor = Surveyor::new(self, &guard, nodes_left);
            loop {
                let job = jobs.lock().next();
                let Some((number, task)) = job else { return (parts, surveyor.end()) };
                parts.push((number, surveyor.survey(*task, usize::MAX, &mut std::iter::empty())));
            }
        };
        let done = std::thread::scope(|scope| {
            // If the system gives fewer threads, these do all the work.
            let helper = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
            let workers: Vec<_> = (1..threads).map_while(helper).collect();
            let mut done = vec![work()];
            done.extend(workers.into_iter().map(|worker| match worker.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            }));
            done
        });
        let (parts, ids): (Vec<_>, Vec<_>) = done.into_iter().unzip();
        let mut parts: Vec<_> = parts.into_iter().flatten().collect();
        parts.sort_unstable_by_key(|(number, _)| *number);
        (parts.into_iter().map(|(_, part)| part).collect(), ids)
    }
}
