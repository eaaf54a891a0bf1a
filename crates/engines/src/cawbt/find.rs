//! Descents and point reads.

use std::cmp::Ordering;
use std::sync::atomic::Ordering as AtomicOrdering;

use medium::kernels;
use medium::sync::pause;
use smallvec::SmallVec;

use super::layout::{IDS_MAX, LoadedNode, NodeLine};
use super::{CawbTree, LEVELS_MAX};
use crate::kit::prelude::*;
use crate::kit::scan::{Tied, Way};

/// How often a reader tries before it keeps writers out.
const ATTEMPTS: usize = 256;
/// Keys that descend together.
const GROUP: usize = 16;

/// An inner node on a path, how many IDs it has, and the position of the child that the path goes
/// to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) offset: u64,
    pub(super) count: usize,
    pub(super) position: usize,
}

/// The inner nodes from the root to a leaf.
pub(super) type Path = SmallVec<[Step; 24]>;

/// A key's place, as a writer finds it.
pub(super) struct KeyPlace {
    pub(super) path: Path,
    /// The node above the leaf; 0 if the leaf is the root.
    pub(super) parent: u64,
    pub(super) leaf: u64,
    pub(super) node: LoadedNode,
    /// How many keys of the leaf are not above the key.
    pub(super) position: usize,
    /// The key's entry: that of the ID before the position.
    pub(super) found: Option<EntryWords>,
    /// The offset of the inner node that has the key's ID as a separator; 0 if none has.
    pub(super) separated: u64,
}

/// A reader on its way down: the node to read next, and the version that it had when the tree led
/// there.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) offset: u64,
    pub(super) version: u64,
}

/// The node that a reader has reached, the key's entry if it is a key's way, and whether the node
/// is the first one on its level.
pub(super) type Reached = (At, LoadedNode, Option<EntryWords>, bool);

/// The keys next to the way of a descent.
#[derive(Clone, Copy, Default)]
pub(super) struct Around {
    /// The greatest one that it left behind.
    below: Option<EntryWords>,
    /// The smallest one that it stayed below.
    above: Option<EntryWords>,
}

fn too_deep(offset: u64) -> Error {
    Error::corrupt(offset, "a tree with more levels than any tree has")
}

impl<M: Medium, C: Codec> CawbTree<M, C> {
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
        node: &LoadedNode,
        key: C::Key<'_>,
    ) -> Result<(usize, Option<EntryWords>)> {
        let word = C::word(key);
        if !C::TIES {
            // Without a branch, which would be mispredicted: it may be any of three or four keys.
            let mut position = 0;
            let mut last = [0, 0];
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

    /// The position of the child that a descent by any way takes, and the key's entry: see
    /// [`CawbTree::rank`].
    #[inline(always)]
    fn rank_way(
        &self,
        guard: &Guard<'_, M>,
        node: &LoadedNode,
        way: &Way<C::Key<'_>>,
    ) -> Result<(usize, Option<EntryWords>)> {
        match *way {
            Way::First => Ok((0, None)),
            Way::Last => Ok((node.count(), None)),
            Way::Key(key, Tied::UpTo) => self.rank(guard, node, key),
            Way::Key(key, _) => {
                let (position, found) = self.rank(guard, node, key)?;
                Ok((position - usize::from(found.is_some()), None))
            }
        }
    }

    /// The place of a key. The caller keeps other writers out.
    pub(super) fn locate(&self, guard: &Guard<'_, M>, key: C::Key<'_>) -> Result<KeyPlace> {
        let mut path = Path::new();
        let mut separated = 0;
        let mut offset = self.root;
        loop {
            let node = LoadedNode::load(guard, offset)?;
            if node.is_leaf() {
                let (position, found) = self.rank(guard, &node, key)?;
                let parent = path.last().map_or(0, |step: &Step| step.offset);
                return Ok(KeyPlace {
                    path,
                    parent,
                    leaf: offset,
                    node,
                    position,
                    found,
                    separated,
                });
            }
            (0..IDS_MAX).for_each(|position| Self::prefetch_node(guard, node.pointer(position)));
            let (position, found) = self.rank(guard, &node, key)?;
            if found.is_some() {
                separated = offset;
            }
            if path.len() == LEVELS_MAX {
                return Err(too_deep(offset));
            }
            path.push(Step {
                offset,
                count: node.count(),
                position,
            });
            offset = node.pointer(position);
        }
    }

    /// Calls `attempt` again while it returns `None`, which means that a writer came between. An
    /// error counts only if no writer is at work.
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
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        self.expect_whole()?;
        Err(ErrorKind::Contended { offset: self.root }.into())
    }

    /// The root, at its version.
    fn at_root(&self) -> Option<At> {
        self.versions.of(self.root).map(|version| At {
            offset: self.root,
            version,
        })
    }

    /// Goes from a node that was read to another one that it leads to; `None` if one of them
    /// changes or has changed.
    pub(super) fn go_on(&self, from: At, offset: u64) -> Option<At> {
        // The version is taken while the parent has not changed, so it is the version of the child
        // that the parent means.
        let version = self.versions.of(offset)?;
        self.is_still(from).then_some(At { offset, version })
    }
    pub(super) fn is_still(&self, at: At) -> bool {
        self.versions.is_still(at.offset, at.version)
    }

    /// Goes down to a leaf; if `stops`, to a node that has the key's ID. A key that is a separator
    /// is found in the inner node: the table has its entry. `None` if a writer came between. The
    /// caller has to validate the result.
    #[inline(always)]
    pub(super) fn descend(
        &self,
        guard: &Guard<'_, M>,
        way: &Way<C::Key<'_>>,
        stops: bool,
    ) -> Result<Option<Reached>> {
        self.descend_with(guard, way, stops, |_, _| {})
    }

    /// Goes down to a leaf, and notes the keys next to the way: see [`CawbTree::expect_around`].
    #[inline(always)]
    pub(super) fn descend_noting(
        &self,
        guard: &Guard<'_, M>,
        way: &Way<C::Key<'_>>,
        around: &mut Around,
    ) -> Result<Option<Reached>> {
        *around = Around::default();
        self.descend_with(guard, way, false, |node, position| {
            // Keys in lower nodes are closer.
            if position > 0 {
                around.below = Some(self.ids.entry(node.id(position - 1)));
            }
            if position < node.count() {
                around.above = Some(self.ids.entry(node.id(position)));
            }
        })
    }

    /// Does the same as [`CawbTree::descend`], and calls `note` with each node, and how many of its
    /// keys the way leaves behind.
    #[inline(always)]
    fn descend_with(
        &self,
        guard: &Guard<'_, M>,
        way: &Way<C::Key<'_>>,
        stops: bool,
        mut note: impl FnMut(&LoadedNode, usize),
    ) -> Result<Option<Reached>> {
        let Some(mut at) = self.at_root() else {
            return Ok(None);
        };
        let mut is_first = true;
        for _ in 0..=LEVELS_MAX {
            let node = LoadedNode::load(guard, at.offset)?;
            if !node.is_leaf() {
                (0..IDS_MAX)
                    .for_each(|position| Self::prefetch_node(guard, node.pointer(position)));
            }
            let (position, found) = self.rank_way(guard, &node, way)?;
            note(&node, position);
            if node.is_leaf() || stops && found.is_some() {
                return Ok(Some((at, node, found, is_first)));
            }
            is_first &= position == 0;
            let Some(child) = self.go_on(at, node.pointer(position)) else {
                return Ok(None);
            };
            at = child;
        }
        Err(too_deep(at.offset))
    }

    /// In a pool that verifies reads: refuses a descent whose result rests on the key of a damaged
    /// record. A read that concludes from the descent that a key is absent, or where a range
    /// begins, calls this afterwards.
    ///
    /// Nodes have checks, and their keys were in order when they were written. So the way is right
    /// if its key lies between the two keys next to it. A wrong key farther away may have decided
    /// some comparisons, but not the result.
    pub(super) fn expect_around(
        &self,
        guard: &Guard<'_, M>,
        way: &Way<C::Key<'_>>,
        around: Around,
    ) -> Result<()> {
        let Way::Key(key, _) = *way else {
            return Ok(());
        };
        if !C::TIES || !guard.verifies() {
            return Ok(());
        }
        // Where first words differ they decide. The open took them from the records.
        let has_wrong_words = self.damaged_key.load(AtomicOrdering::Relaxed) != 0;
        for entry in [around.below, around.above].into_iter().flatten() {
            if has_wrong_words || entry[0] == C::word(key) {
                C::expect_key(guard, entry)?;
            }
        }
        Ok(())
    }

    /// Does [`CawbTree::expect_around`] for a key that was not found.
    fn expect_keys_on_way(&self, guard: &Guard<'_, M>, way: &Way<C::Key<'_>>) -> Result<()> {
        if !C::TIES || !guard.verifies() {
            return Ok(());
        }
        let mut around = Around::default();
        self.read(guard, || {
            let Some((at, ..)) = self.descend_noting(guard, way, &mut around)? else {
                return Ok(None);
            };
            Ok(self.is_still(at).then_some(()))
        })?;
        self.expect_around(guard, way, around)
    }

    /// The entry of a key, and the LSN at which it is durable.
    fn look(&self, guard: &Guard<'_, M>, key: C::Key<'_>) -> Result<(Option<EntryWords>, Lsn)> {
        let looked = self.read(guard, || {
            let Some((at, _, found, _)) =
                self.descend(guard, &Way::Key(key, Tied::UpTo), self.is_search_fast)?
            else {
                return Ok(None);
            };
            // The LSN is loaded after the entry, so it is that of the entry or of a later one.
            let lsn = self.versions.lsn(at.offset);
            Ok(self.is_still(at).then_some((found, lsn)))
        })?;
        if looked.0.is_none() {
            // The key that belongs to that record is not known: it may be this one.
            let damaged = self.damaged_key.load(AtomicOrdering::Relaxed);
            if damaged != 0 {
                return Err(Error::corrupt(damaged, "a record that fails its check"));
            }
            self.expect_keys_on_way(guard, &Way::Key(key, Tied::UpTo))?;
        }
        Ok(looked)
    }

    /// Access for a reader. The record of an entry is read after the descent, so it must not be
    /// reused meanwhile.
    fn open_for_read(&self) -> Guard<'_, M> {
        if C::TIES {
            self.pool.pin()
        } else {
            self.pool.peek()
        }
    }

    /// Calls `use_entry` with the entry of a key. O(log n).
    pub(super) fn find<R>(
        &self,
        key: C::Key<'_>,
        use_entry: impl FnOnce(&Guard<'_, M>, EntryWords) -> Result<R>,
    ) -> Result<Observed<Option<R>>> {
        let guard = self.open_for_read();
        let (found, lsn) = self.look(&guard, key)?;
        let value = match found {
            Some(words) => Some(use_entry(&guard, words)?),
            None => None,
        };
        let lsn = guard.left_to_caller(lsn);
        Ok(Observed { value, lsn })
    }

    /// Does the same as [`CawbTree::find`] for many keys, whose cache misses overlap. Returns the
    /// LSN at which everything that was read is durable.
    pub(super) fn find_many(
        &self,
        keys: &[C::Key<'_>],
        mut use_entry: impl FnMut(&Guard<'_, M>, usize, Option<EntryWords>) -> Result<()>,
    ) -> Result<Lsn> {
        let mut seen = Lsn::DURABLE;
        for (group, keys) in keys.chunks(GROUP).enumerate() {
            let guard = self.open_for_read();
            self.prefetch_ways(&guard, keys);
            for (position, key) in keys.iter().enumerate() {
                let (words, lsn) = self.look(&guard, *key)?;
                seen = seen.max(guard.left_to_caller(lsn));
                use_entry(&guard, group * GROUP + position, words)?;
            }
        }
        Ok(seen)
    }

    /// Loads all nodes on the ways to some keys into the cache, level by level. The values that it
    /// reads are not used.
    fn prefetch_ways(&self, guard: &Guard<'_, M>, keys: &[C::Key<'_>]) {
        let mut nodes = [Some(self.root); GROUP];
        for _ in 0..LEVELS_MAX {
            let loaded = nodes.map(|offset| LoadedNode::load(guard, offset?).ok());
            loaded
                .iter()
                .flatten()
                .for_each(|node| (0..IDS_MAX).for_each(|id| self.ids.prefetch(node.id(id))));
            for ((offset, node), key) in nodes.iter_mut().zip(loaded).zip(keys) {
                let inner = node.filter(|node| !node.is_leaf());
                *offset = inner
                    .and_then(|node| Some(node.pointer(self.rank(guard, &node, *key).ok()?.0)));
                offset
                    .iter()
                    .for_each(|offset| Self::prefetch_node(guard, *offset));
            }
            if nodes[..keys.len()].iter().all(Option::is_none) {
                return;
            }
        }
    }
}
