//! Descents and point reads.

use std::cmp::Ordering;

use medium::sync::pause;
use medium::{Lsn, Medium, kernels};
use pool::Guard;
use smallvec::SmallVec;

use super::layout::{IDS_MAX, Node, NodeLine};
use super::{CawbTree, LEVELS_MAX};
use crate::index::{Codec, EntryWords};
use crate::{Error, Result};

/// How often a reader tries before it keeps writers out.
const ATTEMPTS: usize = 256;
/// Keys that descend together.
const GROUP: usize = 16;

/// Where a descent goes.
#[derive(Clone, Copy)]
pub(super) enum Way<K> {
    /// To the leaf that covers a key.
    Key(K),
    /// To the leaf that covers the greatest keys below a key.
    Below(K),
    /// To the first leaf.
    First,
    /// To the last leaf.
    Last,
}

/// An inner node on a path, how many IDs it has, and the position of the child that the path goes to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) offset: u64,
    pub(super) count: usize,
    pub(super) position: usize,
}

/// The inner nodes from the root to a leaf.
pub(super) type Path = SmallVec<[Step; 24]>;

/// A key's place, as a writer finds it.
pub(super) struct Place {
    pub(super) path: Path,
    pub(super) leaf: u64,
    pub(super) node: Node,
    /// How many keys of the leaf are not above the key.
    pub(super) position: usize,
    /// The key's entry: that of the ID before the position.
    pub(super) found: Option<EntryWords>,
    /// The level of the inner node that has the key's ID as a separator.
    pub(super) separator: Option<usize>,
}

impl Place {
    /// The offset of the node above the leaf; 0 if the leaf is the root.
    pub(super) fn parent(&self) -> u64 {
        self.path.last().map_or(0, |step| step.offset)
    }
}

/// A reader on its way down: the node to read next, and the version that it had when the tree led there.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) offset: u64,
    pub(super) version: u64,
}

/// Where a step of a reader leads.
enum Next {
    Child(At),
    /// To the end: the key's entry, and when it is durable.
    End(Option<EntryWords>, Lsn),
}

pub(super) fn too_deep(offset: u64) -> Error {
    Error::corrupt(offset, "a tree with more levels than any tree has")
}

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Hints the processor to load the children of a node.
    #[inline(always)]
    fn prefetch_children(guard: &Guard<'_, M>, node: &Node) {
        for position in 0..IDS_MAX {
            Self::prefetch_node(guard, node.pointer(position));
        }
    }

    #[inline(always)]
    pub(super) fn prefetch_node(guard: &Guard<'_, M>, offset: u64) {
        if let Ok(node) = guard.node::<NodeLine>(offset) {
            kernels::prefetch_read(node);
        }
    }

    /// How many keys of a node are not above a key, and the key's entry, if one of them is the key.
    #[inline(always)]
    fn rank(
        &self,
        guard: &Guard<'_, M>,
        node: &Node,
        key: C::Key<'_>,
    ) -> Result<(usize, Option<EntryWords>)> {
        let word = C::word(key);
        if !C::TIES {
            // Without a branch: which of three or four keys it is, no processor foretells.
            let (mut position, mut last) = (0, [0, 0]);
            for index in 0..IDS_MAX {
                let id = node.id(index);
                let entry = self.ids.entry(id);
                let is_passed = id != 0 && entry[0] <= word;
                position += usize::from(is_passed);
                last = if is_passed { entry } else { last };
            }
            return Ok((position, (position > 0 && last[0] == word).then_some(last)));
        }
        for position in 0..node.count() {
            let entry = self.ids.entry(node.id(position));
            let order = match word.cmp(&entry[0]) {
                Ordering::Equal => C::compare_tie(guard, key, entry)?,
                order => order,
            };
            match order {
                Ordering::Less => return Ok((position, None)),
                Ordering::Equal => return Ok((position + 1, Some(entry))),
                Ordering::Greater => {}
            }
        }
        Ok((node.count(), None))
    }

    /// As [`CawbTree::rank`], for any way.
    pub(super) fn rank_way(
        &self,
        guard: &Guard<'_, M>,
        node: &Node,
        way: &Way<C::Key<'_>>,
    ) -> Result<(usize, Option<EntryWords>)> {
        match way {
            Way::Key(key) => self.rank(guard, node, *key),
            Way::Below(key) => {
                let (position, found) = self.rank(guard, node, *key)?;
                Ok((position - usize::from(found.is_some()), None))
            }
            Way::First => Ok((0, None)),
            Way::Last => Ok((node.count(), None)),
        }
    }

    /// The place of a key. The caller keeps other writers out.
    #[inline(always)]
    pub(super) fn locate(&self, guard: &Guard<'_, M>, key: C::Key<'_>) -> Result<Place> {
        let (mut path, mut separator, mut offset) = (Path::new(), None, self.root);
        loop {
            let node = Node::load(guard, offset)?;
            if node.is_leaf() {
                let (position, found) = self.rank(guard, &node, key)?;
                return Ok(Place { path, leaf: offset, node, position, found, separator });
            }
            Self::prefetch_children(guard, &node);
            let (position, found) = self.rank(guard, &node, key)?;
            if found.is_some() {
                separator = Some(path.len());
            }
            if path.len() == LEVELS_MAX {
                return Err(too_deep(offset));
            }
            path.push(Step { offset, count: node.count(), position });
            offset = node.pointer(position);
        }
    }

    /// Calls `attempt` until no writer comes between, which `None` says. An error counts only if no writer is at work.
    #[inline(always)]
    pub(super) fn read<T>(
        &self,
        guard: &Guard<'_, M>,
        mut attempt: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let mut spins = 0;
        for _ in 0..ATTEMPTS {
            match attempt() {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => pause(&mut spins),
                Err(_) => break,
            }
        }
        guard.interleave(&self.state);
        let _writers_wait = self.state.lock();
        attempt()?.ok_or(Error::contended(self.root))
    }

    /// The root, at its version.
    #[inline(always)]
    pub(super) fn at_root(&self) -> Option<At> {
        self.versions.of(self.root).map(|version| At { offset: self.root, version })
    }

    /// Goes from a node that was read to another one that it leads to; `None` if one of them changes or has changed.
    #[inline(always)]
    pub(super) fn go_on(&self, from: At, offset: u64) -> Option<At> {
        // The version is taken while the node that leads there is as it was: it is that of the node meant.
        let version = self.versions.of(offset)?;
        self.is_still(from).then_some(At { offset, version })
    }

    #[inline(always)]
    pub(super) fn is_still(&self, at: At) -> bool {
        self.versions.is_still(at.offset, at.version)
    }

    /// Looks for a key in a node. A key that is a separator is found in the inner node: the table has its entry.
    #[inline(always)]
    fn step(&self, guard: &Guard<'_, M>, at: At, node: &Node, key: C::Key<'_>) -> Result<Option<Next>> {
        let (position, found) = self.rank(guard, node, key)?;
        if found.is_none() && !node.is_leaf() {
            return Ok(self.go_on(at, node.pointer(position)).map(Next::Child));
        }
        // Loaded after the entry, so it is that of the entry or of a later one.
        let lsn = self.versions.lsn(at.offset);
        Ok(self.is_still(at).then_some(Next::End(found, lsn)))
    }

    #[inline(always)]
    fn look(&self, guard: &Guard<'_, M>, key: C::Key<'_>) -> Result<Option<(Option<EntryWords>, Lsn)>> {
        let Some(mut at) = self.at_root() else { return Ok(None) };
        for _ in 0..=LEVELS_MAX {
            let node = Node::load(guard, at.offset)?;
            if !node.is_leaf() {
                Self::prefetch_children(guard, &node);
            }
            match self.step(guard, at, &node, key)? {
                Some(Next::Child(child)) => at = child,
                Some(Next::End(found, lsn)) => return Ok(Some((found, lsn))),
                None => return Ok(None),
            }
        }
        Err(too_deep(at.offset))
    }

    /// Access for a reader. The record of an entry is read after the descent, so it must not be reused meanwhile.
    #[inline(always)]
    pub(super) fn open_for_read(&self) -> Guard<'_, M> {
        if C::TIES { self.pool.pin() } else { self.pool.peek() }
    }

    /// Calls `use_entry` with the entry of a key, once what was read is durable. O(log n).
    #[inline(always)]
    pub(super) fn find<R>(
        &self,
        key: C::Key<'_>,
        use_entry: impl FnOnce(&Guard<'_, M>, EntryWords) -> Result<R>,
    ) -> Result<Option<R>> {
        let guard = self.open_for_read();
        let (found, lsn) = self.read(&guard, || self.look(&guard, key))?;
        guard.wait_for(lsn)?;
        found.map(|words| use_entry(&guard, words)).transpose()
    }

    /// As [`CawbTree::find`] for many keys, whose cache misses overlap: all descend together, level by level.
    pub(super) fn find_many(
        &self,
        keys: &[C::Key<'_>],
        mut use_entry: impl FnMut(&Guard<'_, M>, usize, Option<EntryWords>) -> Result<()>,
    ) -> Result<()> {
        for (group, keys) in keys.chunks(GROUP).enumerate() {
            let guard = self.open_for_read();
            let mut found = self.look_together(&guard, keys);
            for (position, key) in keys.iter().enumerate() {
                let (words, lsn) = match found[position].take() {
                    Some(end) => end,
                    None => self.read(&guard, || self.look(&guard, *key))?,
                };
                guard.wait_for(lsn)?;
                use_entry(&guard, group * GROUP + position, words)?;
            }
        }
        Ok(())
    }

    /// The entries of a group of keys; `None` for a key that a writer or damage came in the way of.
    fn look_together(
        &self,
        guard: &Guard<'_, M>,
        keys: &[C::Key<'_>],
    ) -> [Option<(Option<EntryWords>, Lsn)>; GROUP] {
        let (mut ends, mut ways) = ([None; GROUP], [self.at_root(); GROUP]);
        for _ in 0..=LEVELS_MAX {
            let mut nodes = [None; GROUP];
            for ((node, way), _) in nodes.iter_mut().zip(&mut ways).zip(keys) {
                *node = way.and_then(|at| Node::load(guard, at.offset).ok());
                if let Some(node) = node {
                    (0..IDS_MAX).for_each(|position| self.ids.prefetch(node.id(position)));
                }
            }
            for (index, key) in keys.iter().enumerate() {
                let (Some(at), Some(node)) = (ways[index].take(), &nodes[index]) else { continue };
                match self.step(guard, at, node, *key) {
                    Ok(Some(Next::Child(child))) => {
                        Self::prefetch_node(guard, child.offset);
                        ways[index] = Some(child);
                    }
                    Ok(Some(Next::End(found, lsn))) => ends[index] = Some((found, lsn)),
                    Ok(None) | Err(_) => {}
                }
            }
            if ways.iter().take(keys.len()).all(Option::is_none) {
                break;
            }
        }
        ends
    }
}
