//! What concerns the whole tree: making and opening it, bulk loads, verification, figures, giving back.

use std::collections::HashSet;
use std::time::Instant;

use engines::kit::latch::Latch;
use engines::kit::paged::checked;
use engines::kit::prelude::*;
use medium::LINE_BYTES;
use std::marker::PhantomData;

use super::node::{Content, Low, Node};
use super::{ENTRIES_MAX, ENTRIES_MIN, ENTRY, FastFair, ROOT_ENTRIES, ROOT_OFFSET};

/// A node of a level that a load has written, and its lower bound.
type Loaded = (u64, u64, Option<Vec<u8>>);

impl<M: Medium, C: Codec> FastFair<M, C> {
    /// The tree at a root, not recovered.
    fn unopened(pool: &Pool<M>, words: &[u64; ROOT_WORDS]) -> Result<Self> {
        let entries = words[ROOT_ENTRIES];
        if !(ENTRIES_MIN..=ENTRIES_MAX).contains(&entries) {
            return Err(Error::corrupt(0, "a root that names no size of nodes"));
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

    /// Calls `visit` with all nodes, level by level from the root on, each level from the left to the right: nodes that no parent
    /// leads to yet as well. Comes to an end on any pool.
    fn walk<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        mut visit: impl FnMut(&Node<'g>) -> Result<()>,
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

    /// Calls `visit` with all nodes and the entries of leaves that live.
    fn walk_entries(
        &self,
        guard: &Guard<'_, M>,
        mut visit: impl FnMut(&Node<'_>, &[EntryWords]) -> Result<()>,
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

    fn mark_reached(&self, guard: &Guard<'_, M>) -> Result<()> {
        self.pool.mark(self.root)?;
        self.walk_entries(guard, |node, entries| {
            let low = node.low(guard);
            self.pool.mark(node.offset)?;
            if low[1] != 0 {
                C::mark(&self.pool, low)?;
            }
            entries.iter().try_for_each(|words| C::mark(&self.pool, *words))
        })
    }

    /// Figures, once what they count is durable.
    pub(super) fn figures(&self) -> Result<IndexStat> {
        let guard = self.pool.pin();
        let writing = self.latch.write(&guard);
        let (mut keys, mut leaves, mut others) = (0, 0, 1);
        self.walk_entries(&guard, |node, entries| {
            keys += entries.len() as u64;
            leaves += u64::from(node.level == 0);
            others += u64::from(node.level > 0) + u64::from(node.low(&guard)[1] != 0);
            Ok(())
        })?;
        let height = self.root(&guard)?.level as u32;
        writing.settle(&guard, self.latch.last_lsn())?;
        Ok(IndexStat {
            keys,
            leaves,
            height,
            volatile_bytes: self.latch.volatile_bytes(),
            recovery_ns: self.recovery_ns,
            recovered_from_crash: self.recovered_from_crash,
            leaf_bytes: Node::bytes(self.entries) as u64,
            allocations: Some(leaves + others + if C::TIES { keys } else { 0 }),
            ..IndexStat::default()
        })
    }

    /// Verifies all nodes.
    pub(super) fn verify(&self) -> Result<Vec<Violation>> {
        let guard = self.pool.pin();
        let _writing = self.latch.write(&guard);
        let (mut violations, mut last, mut above) = (Vec::new(), None, HashSet::new());
        let mut level = self.root(&guard)?.level;
        let mut children = HashSet::new();
        let walked = self.walk(&guard, |node| {
            if node.level != level {
                (level, above) = (node.level, std::mem::take(&mut children));
            }
            above.remove(&node.offset);
            let mut found = |what: &str| {
                violations.push(Violation { offset: node.offset, what: what.to_owned() });
            };
            let (mut entries, low) = (Vec::new(), Self::key_of_low(&guard, node.low(&guard))?);
            let end = self.copy_entries(&guard, node, &mut entries)?;
            if end.as_ref().is_some_and(|end| *end <= low) {
                found("a sibling that is not above it");
            }
            if node.level > 0 {
                for position in 0..=node.used(&guard) {
                    let child = self.child(&guard, node, position)?;
                    children.insert(child.offset);
                    let first_or_dead =
                        position == 0 || node.is_dead(&guard, position - 1, node.used(&guard));
                    if !first_or_dead && child.low(&guard)[0] != node.words(&guard, position - 1)[0] {
                        found("a child with another lower bound");
                    }
                }
                return Ok(());
            }
            for words in entries {
                verify_entry::<M, C>(&guard, words, &mut last)?.into_iter().for_each(&mut found);
                if last.as_ref().is_some_and(|key| *key < low) {
                    found("an entry below the lower bound of its leaf");
                }
            }
            Ok(())
        });
        if let Err(error) = walked {
            violations.push(Violation { offset: self.root, what: error.to_string() });
        } else if !above.is_empty() {
            violations.push(Violation { offset: self.root, what: "a child that is no sibling".to_owned() });
        }
        Ok(violations)
    }

    /// Gives back all space. What cannot be reached stays taken.
    pub(super) fn give_back(&self) -> Result<()> {
        let guard = self.pool.pin();
        let mut nodes = Vec::new();
        let walked = self.walk_entries(&guard, |node, entries| {
            entries.iter().for_each(|words| C::discard(&guard, *words));
            nodes.push((node.offset, node.low(&guard)));
            Ok(())
        });
        nodes.into_iter().for_each(|(offset, low)| Self::free_node(&guard, offset, low));
        guard.free(self.root);
        walked.or_else(|error| if error.is_corrupt() { Ok(()) } else { Err(error) })
    }

    fn free_node(guard: &Guard<'_, M>, offset: u64, low: Low) {
        guard.free(offset);
        if low[1] != 0 {
            C::discard(guard, low);
        }
    }

    /// Fills an empty tree.
    pub(super) fn load<'s>(&self, next: &'s mut NextEntry<'s>, fill: f64) -> Result<u64> {
        self.demand_empty(&self.pool.pin())?;
        // What is written nobody else reaches.
        let guard = self.pool.peek();
        let mut source = Sorted::<M, C>::new(&guard, next);
        let (mut nodes, mut tails) = (Unpublished::new(&guard), Unpublished::new(&guard));
        let allocate = |nodes: &mut Unpublished<'_, '_, M>| nodes.allocate_lines(Node::bytes(self.entries));
        let first = allocate(&mut nodes)?;
        let mut level: Vec<Loaded> = Vec::new();
        let mut before = None;
        let per_leaf = entries_per_leaf(self.entries, fill);
        source.for_each_leaf(
            per_leaf,
            first,
            || allocate(&mut nodes),
            |offset, sibling, entries| {
                let word = if level.is_empty() { 0 } else { entries.first().map_or(0, |words| words[0]) };
                let mut tied = None;
                if C::TIES && !level.is_empty() && before == Some(word) {
                    C::copy_key(&guard, entries[0], tied.insert(Vec::new()))?;
                }
                let low = Self::bound(&guard, &mut tails, word, tied.as_deref())?;
                let content = Content { level: 0, low, sibling, first_child: 0, entries: &entries };
                self.node(&guard, offset)?.write(&guard, &content);
                before = entries.last().map(|words| words[0]);
                level.push((offset, word, tied));
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
            level = self.load_level(&guard, (&mut nodes, &mut tails), height, &level, fill)?;
        }
        let pinned = self.pool.pin();
        let writing = self.latch.write(&pinned);
        let mut old = Vec::new();
        self.walk_entries(&pinned, |node, entries| {
            old.push((node.offset, node.low(&pinned)));
            if entries.is_empty() { Ok(()) } else { Err(Error::NotEmpty) }
        })?;
        // PERSIST: the nodes are ordered before the word that leads to them; lost, the tree is empty.
        guard.fence();
        writing.change();
        let lsn = self.publish_root(&guard, level[0].0)?;
        writing.stamp_all(lsn);
        nodes.published();
        tails.published();
        let loaded = source.published();
        writing.settle(&guard, lsn)?;
        for (offset, low) in old {
            pinned.retire(offset);
            if low[1] != 0 {
                C::retire(&pinned, low);
            }
        }
        Ok(loaded)
    }

    /// Writes the inner nodes above a level of nodes.
    fn load_level(
        &self,
        guard: &Guard<'_, M>,
        (nodes, tails): (&mut Unpublished<'_, '_, M>, &mut Unpublished<'_, '_, M>),
        height: u64,
        below: &[Loaded],
        fill: f64,
    ) -> Result<Vec<Loaded>> {
        let most = entries_per_leaf(self.entries + 1, fill).max(3);
        // Spread evenly: as they take three or more, none is left with one child.
        let count = below.len().div_ceil(most);
        let offsets = (0..count).map(|_| nodes.allocate_lines(Node::bytes(self.entries)));
        let offsets = offsets.collect::<Result<Vec<_>>>()?;
        let mut level = Vec::with_capacity(count);
        for (number, offset) in offsets.iter().enumerate() {
            let children = &below[below.len() * number / count..below.len() * (number + 1) / count];
            let entries: Vec<EntryWords> =
                children[1..].iter().map(|(child, word, _)| [*word, checked(*child)]).collect();
            let (first_child, word, tied) = &children[0];
            let content = Content {
                level: height,
                low: Self::bound(guard, tails, *word, tied.as_deref())?,
                sibling: offsets.get(number + 1).copied().unwrap_or(0),
                first_child: *first_child,
                entries: &entries,
            };
            self.node(guard, *offset)?.write(guard, &content);
            level.push((*offset, *word, tied.clone()));
        }
        Ok(level)
    }

    /// Refuses a tree that has entries, once they are durable.
    fn demand_empty(&self, guard: &Guard<'_, M>) -> Result<()> {
        let writing = self.latch.write(guard);
        let walked = self.walk_entries(
            guard,
            |_, entries| {
                if entries.is_empty() { Ok(()) } else { Err(Error::NotEmpty) }
            },
        );
        writing.settle(guard, self.latch.last_lsn())?;
        walked
    }
}

impl<M: Medium, C: Codec> Build<M> for FastFair<M, C>
where
    Self: MaybeWords,
{
    fn create(pool: &Pool<M>, name: &str, opening: &Opening) -> Result<Self> {
        let (guard, mut words) = (pool.pin(), [0; ROOT_WORDS]);
        let mut space = Unpublished::new(&guard);
        words[ROOT_OFFSET] = space.allocate_lines(LINE_BYTES)?;
        words[ROOT_ENTRIES] = opening.settings.get(0).unwrap_or(ENTRY.full.leaf_entries as u64);
        let mut tree = Self::unopened(pool, &words)?;
        let leaf = tree.node(&guard, space.allocate_lines(Node::bytes(tree.entries))?)?;
        leaf.write(&guard, &Content { level: 0, low: [0; 2], sibling: 0, first_child: 0, entries: &[] });
        guard.node::<Word>(tree.root)?.publish(&guard, checked(leaf.offset));
        // PERSIST: the leaf and the word that leads to it are ordered before the root; lost, there is no tree.
        guard.fence();
        pool.create_tree(name, (ENTRY.id, C::ID), &words)?;
        space.published();
        tree.is_unfinished = false;
        Ok(tree)
    }

    fn open(pool: &Pool<M>, root: &TreeRoot, opening: &Opening) -> Result<Self> {
        let start = Instant::now();
        let made = root.words[ROOT_ENTRIES];
        let entries = [made, opening.settings.get(0).unwrap_or(made)];
        root.demand((ENTRY.id, C::ID), &entries.map(|entries| format!("{entries} entries a node")))?;
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

    fn salvage_at(pool: &Pool<M>, root: &TreeRoot, visit: &mut Visit<'_>) -> Salvaged {
        let (guard, tree) = (pool.pin(), Self::unopened(pool, &root.words)?);
        let mut first = tree.root(&guard)?;
        while first.level > 0 {
            first = tree.child(&guard, &first, 0)?;
        }
        let read = |offset| {
            let (leaf, mut entries) = (tree.node(&guard, offset)?, Vec::new());
            let copied = tree.copy_entries(&guard, &leaf, &mut entries);
            Ok((leaf.sibling(&guard)?, copied.map(|_| entries)))
        };
        Ok(Some(salvage_chain::<M, C>(&guard, first.offset, visit, read)))
    }
}
