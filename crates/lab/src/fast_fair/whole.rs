//! Operations on the whole tree: making and opening it, bulk loads, verification, figures, giving
//! back.

use std::time::Instant;

use engines::kit::latch::{Latch, Writing};
use engines::kit::paged::{checked, unchecked};
use engines::kit::prelude::*;
use medium::LINE_BYTES;
use std::marker::PhantomData;

use super::node::{FastFairNode, Low, NewNode};
use super::{ENTRIES_MAX, ENTRIES_MIN, ENTRY, FastFair, ROOT_ENTRIES, ROOT_OFFSET};

/// Where a node is, and its lower bound.
type Placed = (u64, Low);

/// A node of a level that a load has written, and its lower bound, as a word and as a key.
type Loaded = (u64, u64, Vec<u8>);

/// What a walk counts.
#[derive(Default)]
struct Counts {
    keys: u64,
    leaves: u64,
    inner: u64,
    /// Lower bounds that lie in an allocation of their own.
    low_keys: u64,
}

impl Counts {
    fn add(&mut self, level: u64, entries: usize, has_low_key: bool) {
        self.keys += entries as u64;
        if level == 0 {
            self.leaves += 1;
        } else {
            self.inner += 1;
        }
        if has_low_key {
            self.low_keys += 1;
        }
    }
}

impl<M: Medium, C: Codec> FastFair<M, C> {
    /// The tree at a root, not recovered.
    fn unopened(pool: &Pool<M>, words: &[u64; ROOT_WORDS]) -> Result<Self> {
        let entries = words[ROOT_ENTRIES];
        if !(ENTRIES_MIN..=ENTRIES_MAX).contains(&entries) {
            return Err(Error::corrupt(
                words[ROOT_OFFSET],
                format!("a tree with {entries} entries a node"),
            ));
        }
        Ok(Self {
            pool: pool.clone(),
            root: words[ROOT_OFFSET],
            entries: entries as usize,
            latch: Latch::new()?,
            is_unfinished: true,
            recovery_ns: 0,
            recovered_from_crash: false,
            codec: PhantomData,
        })
    }

    /// Calls `visit` with all nodes, level by level from the root on, each level from the left to
    /// the right: nodes that no parent leads to yet as well. It ends on any pool, damaged or not.
    fn walk<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        mut visit: impl FnMut(&FastFairNode<'g>) -> Result<()>,
    ) -> Result<()> {
        let mut first = self.root(guard)?;
        loop {
            chain(first.offset, |offset| {
                let node = self.node(guard, offset)?;
                if node.level != first.level {
                    return Err(Error::corrupt(offset, "a sibling on another level"));
                }
                visit(&node)?;
                node.sibling(guard)
            })?;
            if first.level == 0 {
                return Ok(());
            }
            first = self.child(guard, &first, 0)?;
        }
    }

    /// Calls `visit` with all nodes and the live entries of leaves.
    fn walk_entries(
        &self,
        guard: &Guard<'_, M>,
        mut visit: impl FnMut(&FastFairNode<'_>, &[EntryWords]) -> Result<()>,
    ) -> Result<()> {
        let mut entries = Vec::new();
        self.walk(guard, |node| {
            entries.clear();
            if node.level == 0 {
                self.copy_entries(guard, node, &mut entries)?;
            }
            visit(node, &entries)
        })
    }

    /// After a crash: takes copies out, then marks the space in use. Until that is marked no record
    /// is used again.
    fn mark_reached(&self, guard: &Guard<'_, M>) -> Result<()> {
        self.walk(guard, |node| self.cut_copies(guard, node))?;
        // PERSIST: the copies are gone before a record is used again; if this is lost, they are
        // taken out again.
        guard.fence();
        self.pool.mark(self.root)?;
        self.walk_entries(guard, |node, entries| {
            let low = node.low(guard);
            self.pool.mark(node.offset)?;
            if low[1] != 0 {
                C::mark(&self.pool, low)?;
            }
            entries
                .iter()
                .try_for_each(|words| C::mark(&self.pool, *words))
        })
    }

    /// Figures, once the counted state is durable.
    pub(super) fn figures(&self) -> Result<IndexStat> {
        let guard = self.pool.pin();
        let writing = self.latch.write(&guard);
        let mut counts = Counts::default();
        self.walk_entries(&guard, |node, entries| {
            counts.add(node.level, entries.len(), node.low(&guard)[1] != 0);
            Ok(())
        })?;
        let anchor = 1;
        let nodes = counts.leaves + counts.inner + anchor;
        let records = if C::TIES { counts.keys } else { 0 };
        let height = self.root(&guard)?.level as u32;
        writing.settle(&guard, self.latch.last_lsn())?;
        Ok(IndexStat {
            keys: counts.keys,
            leaves: counts.leaves,
            height,
            volatile_bytes: self.latch.volatile_bytes(),
            recovery_ns: self.recovery_ns,
            recovered_from_crash: self.recovered_from_crash,
            leaf_bytes: FastFairNode::bytes(self.entries) as u64,
            allocations: Some(nodes + counts.low_keys + records),
            ..IndexStat::default()
        })
    }

    /// Verifies all nodes.
    pub(super) fn verify(&self) -> Result<Vec<Violation>> {
        let guard = self.pool.pin();
        let _writing = self.latch.write(&guard);
        let mut violations = Vec::new();
        let mut last = None;
        let walked = self.walk(&guard, |node| {
            let mut found = |what: &str| {
                violations.push(Violation {
                    offset: node.offset,
                    what: what.to_owned(),
                });
            };
            let mut entries = Vec::new();
            let low = Self::key_of_low(&guard, node.low(&guard))?;
            let end = self.copy_entries(&guard, node, &mut entries)?;
            if end.as_ref().is_some_and(|end| *end <= low) {
                found("a sibling that is not above it");
            }
            for words in entries {
                if node.level > 0 {
                    let child = unchecked(words[1]).unwrap_or(0);
                    if self.node(&guard, child)?.low(&guard)[0] != words[0] {
                        found("a child with another lower bound");
                    }
                    continue;
                }
                if let Some(what) = verify_entry::<M, C>(&guard, words, &mut last)? {
                    found(what);
                }
                if last.as_ref().is_some_and(|key| *key < low) {
                    found("an entry below the lower bound of its leaf");
                }
            }
            Ok(())
        });
        match walked {
            Err(error) if error.is_corrupt() => {
                violations.push(Violation {
                    offset: self.root,
                    what: error.what(),
                });
            }
            walked => walked?,
        }
        Ok(violations)
    }

    /// Gives back all space. Nodes that cannot be reached stay taken.
    pub(super) fn give_back(&self) -> Result<()> {
        let guard = self.pool.pin();
        let mut nodes = Vec::new();
        let walked = self.walk_entries(&guard, |node, entries| {
            entries.iter().for_each(|words| C::discard(&guard, *words));
            nodes.push((node.offset, node.low(&guard)));
            Ok(())
        });
        for (offset, low) in nodes {
            guard.free(offset);
            if low[1] != 0 {
                C::discard(&guard, low);
            }
        }
        guard.free(self.root);
        walked.or_else(|error| {
            if error.is_corrupt() {
                Ok(())
            } else {
                Err(error)
            }
        })
    }

    /// Retires a node that nothing leads to any more.
    pub(super) fn retire_node(guard: &Guard<'_, M>, offset: u64, low: Low) {
        guard.retire(offset);
        if low[1] != 0 {
            C::retire(guard, low);
        }
    }

    /// Fills an empty tree.
    pub(super) fn load<'s>(&self, next: &'s mut NextEntry<'s>, fill: f64) -> Result<u64> {
        self.lock_empty(&self.pool.pin()).map(drop)?;
        // No other thread reaches these nodes yet.
        let guard = self.pool.peek();
        let mut source = EncodedEntries::<M, C>::new(&guard, next);
        let mut nodes = Unpublished::new(&guard);
        let mut tails = Unpublished::new(&guard);
        let allocate = |nodes: &mut Unpublished<'_, '_, M>| {
            nodes.allocate_lines(FastFairNode::bytes(self.entries))
        };
        let first = allocate(&mut nodes)?;
        let mut level: Vec<Loaded> = Vec::new();
        let per_leaf = entries_per_leaf(self.entries, fill);
        source.for_each_leaf(
            per_leaf,
            first,
            || allocate(&mut nodes),
            |offset, sibling, entries| {
                let mut key = Vec::new();
                let low = match entries.first() {
                    Some(first) if !level.is_empty() => {
                        C::copy_key(&guard, *first, &mut key)?;
                        Self::bound(&guard, &mut tails, first[0], &key)?
                    }
                    _ => [0; 2],
                };
                let content = NewNode {
                    level: 0,
                    low,
                    sibling,
                    first_child: 0,
                    entries: &entries,
                };
                self.node(&guard, offset)?.write(&guard, &content);
                level.push((offset, low[0], key));
                Ok(())
            },
        )?;
        if source.entries() == 0 {
            return Ok(0);
        }
        for height in 1.. {
            if level.len() == 1 {
                break;
            }
            level = self.load_level(&guard, &mut nodes, &mut tails, height, &level, fill)?;
        }
        let pinned = self.pool.pin();
        let (writing, old) = self.lock_empty(&pinned)?;
        // PERSIST: the nodes are ordered before the word that leads to them; if this is lost, the
        // tree is empty.
        guard.fence();
        writing.change();
        let lsn = self.publish_root(&guard, level[0].0)?;
        writing.stamp_all(lsn);
        nodes.published();
        tails.published();
        let loaded = source.published();
        writing.settle(&guard, lsn)?;
        for (offset, low) in old {
            Self::retire_node(&pinned, offset, low);
        }
        Ok(loaded)
    }

    /// Writes the inner nodes above a level of nodes.
    fn load_level(
        &self,
        guard: &Guard<'_, M>,
        nodes: &mut Unpublished<'_, '_, M>,
        tails: &mut Unpublished<'_, '_, M>,
        height: u64,
        below: &[Loaded],
        fill: f64,
    ) -> Result<Vec<Loaded>> {
        let most = entries_per_leaf(self.entries + 1, fill).max(3);
        // Children are spread evenly. Nodes have room for three or more, so none is left with one.
        let count = below.len().div_ceil(most);
        let offsets = (0..count).map(|_| nodes.allocate_lines(FastFairNode::bytes(self.entries)));
        let offsets = offsets.collect::<Result<Vec<_>>>()?;
        let mut level = Vec::with_capacity(count);
        for (number, offset) in offsets.iter().enumerate() {
            let children = &below[below.len() * number / count..below.len() * (number + 1) / count];
            let entries: Vec<EntryWords> = children[1..]
                .iter()
                .map(|(child, word, _)| [*word, checked(*child)])
                .collect();
            let (first_child, word, key) = &children[0];
            let content = NewNode {
                level: height,
                low: if number == 0 {
                    [0; 2]
                } else {
                    Self::bound(guard, tails, *word, key)?
                },
                sibling: offsets.get(number + 1).copied().unwrap_or(0),
                first_child: *first_child,
                entries: &entries,
            };
            self.node(guard, *offset)?.write(guard, &content);
            level.push((*offset, *word, key.clone()));
        }
        Ok(level)
    }

    /// Locks an empty tree. Returns the lock and all nodes. Refuses a tree that has entries, once
    /// they are durable.
    fn lock_empty(&self, guard: &Guard<'_, M>) -> Result<(Writing<'_, M>, Vec<Placed>)> {
        let writing = self.latch.write(guard);
        let mut nodes = Vec::new();
        let walked = self.walk_entries(guard, |node, entries| {
            nodes.push((node.offset, node.low(guard)));
            if entries.is_empty() {
                Ok(())
            } else {
                Err(ErrorKind::NotEmpty.into())
            }
        });
        if let Err(error) = walked {
            writing.settle(guard, self.latch.last_lsn())?;
            return Err(error);
        }
        Ok((writing, nodes))
    }
}

impl<M: Medium, C: Codec> Build<M> for FastFair<M, C>
where
    Self: MaybeWords,
{
    fn create(pool: &Pool<M>, new: NewTree<'_>, opening: &Opening) -> Result<Self> {
        let guard = pool.pin();
        let mut words = [0; ROOT_WORDS];
        let mut space = Unpublished::new(&guard);
        words[ROOT_OFFSET] = space.allocate_lines(LINE_BYTES)?;
        words[ROOT_ENTRIES] = opening
            .settings
            .get(0)
            .unwrap_or(ENTRY.full.leaf_entries as u64);
        let mut tree = Self::unopened(pool, &words)?;
        let leaf = tree.node(
            &guard,
            space.allocate_lines(FastFairNode::bytes(tree.entries))?,
        )?;
        leaf.write(
            &guard,
            &NewNode {
                level: 0,
                low: [0; 2],
                sibling: 0,
                first_child: 0,
                entries: &[],
            },
        );
        guard
            .node::<Word>(tree.root)?
            .publish(&guard, checked(leaf.offset));
        // PERSIST: the leaf and the word that leads to it are ordered before the root; if this is
        // lost, there is no tree.
        guard.fence();
        pool.create_tree(new, ENTRY.id, C::ID, &words)?;
        space.published();
        tree.is_unfinished = false;
        Ok(tree)
    }

    fn open(pool: &Pool<M>, root: &TreeRoot, opening: &Opening) -> Result<Self> {
        let start = Instant::now();
        let made = root.words[ROOT_ENTRIES];
        let entries = [made, opening.settings.get(0).unwrap_or(made)];
        root.demand(
            ENTRY.id,
            C::ID,
            &entries.map(|entries| format!("{entries} entries a node")),
        )?;
        let mut tree = Self::unopened(pool, &root.words)?;
        let guard = pool.pin();
        tree.root(&guard)?;
        if pool.needs_mark() {
            tree.recovered_from_crash = true;
            tree.mark_reached(&guard)?;
        }
        drop(guard);
        tree.recovery_ns = start.elapsed().as_nanos() as u64;
        Ok(tree)
    }
}
