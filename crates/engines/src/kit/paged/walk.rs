//! Walks over all nodes: verification, figures, the mark, salvage, giving back.

use std::collections::HashSet;

use crate::index::record::prefix_word;
use crate::{Error, Result};
use medium::Medium;
use pool::{Guard, Pool, TreeRoot};

use super::change::Content;
use super::{Format, Item, Kind, Node, Paged};
use crate::index::{Codec, IndexStat, Violation};
use crate::kit::salvage::{Salvage, read_whole, what_of};
use crate::kit::walk::verify_entry;

/// A node on a walk through the whole tree.
pub(super) enum Visited<'n, 'g> {
    /// A leaf, and the separators around it.
    Leaf(Node<'g>, Option<Item>, Option<Item>),
    /// An inner node, before its children.
    Inner(Node<'g>, &'n Content),
    /// What cannot be visited, and what is below it.
    Damaged(u64, Error),
}

/// A node to go to: where it lies, its level, and the separators around it.
type Next = (u64, usize, Option<Item>, Option<Item>);

impl<M: Medium, C: Codec, F: Format> Paged<M, C, F> {
    /// Visits all nodes, parents first, children in their order, each once. O(nodes), whatever the damage.
    pub(super) fn walk<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        visit: &mut dyn FnMut(Visited<'_, 'g>) -> Result<()>,
    ) -> Result<()> {
        let (root, levels) = self.root(guard)?;
        let (mut todo, mut visited): (Vec<Next>, _) = (vec![(root, levels, None, None)], HashSet::new());
        while let Some((offset, level, low, high)) = todo.pop() {
            let node = match self.node(guard, offset, Self::kind_at(level)) {
                Ok(_) if !visited.insert(offset) => {
                    Err(Error::corrupt(offset, "a node that is reached twice"))
                }
                node => node,
            };
            match node.and_then(|node| Ok((node, self.children(guard, &node)?))) {
                Ok((node, None)) => visit(Visited::Leaf(node, low, high))?,
                Ok((node, Some((content, children)))) => {
                    visit(Visited::Inner(node, &content))?;
                    for (position, child) in children.into_iter().enumerate().rev() {
                        let below = position.checked_sub(1).map_or(low, |before| Some(content.items[before]));
                        let above = content.items.get(position).copied().or(high);
                        todo.push((child, level - 1, below, above));
                    }
                }
                Err(error) => visit(Visited::Damaged(offset, error))?,
            }
        }
        Ok(())
    }

    /// What an inner node holds, and the offsets of its children; `None` for a leaf.
    fn children(&self, guard: &Guard<'_, M>, node: &Node<'_>) -> Result<Option<(Content, Vec<u64>)>> {
        if node.kind == Kind::Leaf {
            return Ok(None);
        }
        let content = self.content(guard, node)?;
        let words =
            std::iter::once(node.link().load(guard)).chain(content.items.iter().map(|item| item.value));
        let children = words.map(|word| Self::offset_in(node, word)).collect::<Result<_>>()?;
        Ok(Some((content, children)))
    }

    /// Marks all that the tree reaches.
    pub(super) fn mark_reached(&self, guard: &Guard<'_, M>) -> Result<()> {
        self.pool.mark(self.anchor)?;
        self.walk(guard, &mut |visited| match visited {
            Visited::Leaf(leaf, ..) => {
                self.pool.mark(leaf.offset)?;
                if C::TIES {
                    self.entries(guard, &leaf)
                        .try_for_each(|item| C::mark(&self.pool, [item.word, item.value]))?;
                }
                Ok(())
            }
            Visited::Inner(node, content) => {
                self.pool.mark(node.offset)?;
                content.items.iter().filter(|item| item.tail != 0).try_for_each(|item| {
                    Self::offset_in(&node, item.tail)?;
                    C::mark(&self.pool, [item.word, item.tail])
                })
            }
            Visited::Damaged(_, error) => Err(error),
        })
    }

    /// The entries of a leaf, in any order.
    fn entries<'n>(
        &self,
        guard: &'n Guard<'_, M>,
        leaf: &Node<'n>,
    ) -> impl Iterator<Item = Item> + use<'n, M, C, F> {
        let (leaf, mut live) = (*leaf, self.format.live(guard, leaf));
        std::iter::from_fn(move || {
            let slot = (live != 0).then(|| live.trailing_zeros() as usize)?;
            live &= live - 1;
            Some(leaf.item(guard, slot))
        })
    }

    /// Figures, once what they count is durable.
    pub(super) fn figures(&self) -> Result<IndexStat> {
        let guard = self.pool.pin();
        let writing = self.latch.write(&guard);
        let (mut keys, mut leaves, mut others) = (0, 0, 1);
        self.walk(&guard, &mut |visited| {
            match visited {
                Visited::Leaf(leaf, ..) => {
                    keys += u64::from(self.format.live(&guard, &leaf).count_ones());
                    leaves += 1;
                }
                Visited::Inner(_, content) => {
                    others += 1 + content.items.iter().filter(|item| item.tail != 0).count() as u64;
                }
                Visited::Damaged(_, error) => return Err(error),
            }
            Ok(())
        })?;
        let (levels, lsn) = (self.root(&guard)?.1, self.latch.last_lsn());
        drop(writing);
        guard.wait_for(lsn)?;
        Ok(IndexStat {
            keys,
            leaves,
            height: levels as u32,
            volatile_bytes: self.latch.bytes(),
            recovery_ns: self.recovery_ns,
            recovered_from_crash: self.recovered_from_crash,
            leaf_bytes: self.format.shape(Kind::Leaf).bytes(false) as u64,
            allocations: Some(leaves + others + if C::TIES { keys } else { 0 }),
            epochs: None,
        })
    }

    /// Verifies all nodes.
    pub(super) fn verify(&self) -> Result<Vec<Violation>> {
        let guard = self.pool.pin();
        let writing = self.latch.write(&guard);
        let (mut violations, mut last_key, mut link) = (Vec::new(), None, None);
        self.walk(&guard, &mut |visited| {
            let (offset, found) = match visited {
                Visited::Leaf(leaf, low, high) => {
                    let mut found = self.verify_leaf(&guard, &leaf, (low, high), &mut last_key);
                    if let (Ok(found), Some(link)) = (&mut found, link.filter(|link| *link != leaf.offset)) {
                        found.push(format!("the leaf before links {link:#x}"));
                    }
                    link = Self::offset_in(&leaf, leaf.link().load(&guard)).ok();
                    (leaf.offset, found)
                }
                Visited::Inner(node, content) => (node.offset, self.verify_inner(&guard, &node, content)),
                Visited::Damaged(offset, error) => (offset, Err(error)),
            };
            let found = found.unwrap_or_else(|error| vec![what_of(&error)]);
            violations.extend(found.into_iter().map(|what| Violation { offset, what }));
            Ok(())
        })?;
        if link != Some(0) {
            let what = "the last leaf links another one".to_owned();
            violations.push(Violation { offset: self.anchor, what });
        }
        drop(writing);
        Ok(violations)
    }

    fn verify_leaf(
        &self,
        guard: &Guard<'_, M>,
        leaf: &Node<'_>,
        (low, high): (Option<Item>, Option<Item>),
        last: &mut Option<Vec<u8>>,
    ) -> Result<Vec<String>> {
        let mut found: Vec<String> = self.format.fault(guard, leaf).map(str::to_owned).into_iter().collect();
        Self::offset_in(leaf, leaf.link().load(guard))?;
        let (mut low_key, mut high_key) = (Vec::new(), Vec::new());
        for (separator, key) in [(low, &mut low_key), (high, &mut high_key)] {
            separator.map_or(Ok(()), |separator| Self::copy_key(guard, Kind::Inner, separator, key))?;
        }
        for Item { word, value, .. } in self.content(guard, leaf)?.items {
            found.extend(verify_entry::<M, C>(guard, [word, value], last)?.map(str::to_owned));
            let key = last.as_deref().unwrap_or_default();
            if low.is_some() && key < &low_key[..] || high.is_some() && key >= &high_key[..] {
                found.push("an entry outside of the separators around its leaf".to_owned());
            }
        }
        Ok(found)
    }

    fn verify_inner(&self, guard: &Guard<'_, M>, node: &Node<'_>, content: &Content) -> Result<Vec<String>> {
        let mut found: Vec<String> = self.format.fault(guard, node).map(str::to_owned).into_iter().collect();
        let mut last: Option<Vec<u8>> = None;
        for item in &content.items {
            let mut key = Vec::new();
            Self::copy_key(guard, Kind::Inner, *item, &mut key)?;
            if last.as_ref().is_some_and(|last| *last >= key) {
                found.push("separators out of order".to_owned());
            }
            let is_sound = item.tail == 0
                || Self::offset_in(node, item.tail).is_ok() && C::is_sound(guard, [item.word, item.tail])?;
            if !is_sound || prefix_word(&key) != item.word {
                found.push("a separator that fails its check".to_owned());
            }
            last = Some(key);
        }
        Ok(found)
    }

    /// Reads what can be read of a tree, without opening it.
    pub(super) fn read_damaged(
        pool: &Pool<M>,
        root: &TreeRoot,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Vec<Violation>> {
        let tree = Self::of_root(pool, root)?;
        let (guard, mut salvage, mut goes_on) = (pool.pin(), Salvage::new(visit), true);
        let walked = tree.walk(&guard, &mut |visited| {
            match visited {
                Visited::Leaf(leaf, ..) if goes_on => {
                    let entries = tree.entries(&guard, &leaf);
                    let mut read: Vec<_> =
                        entries.map(|item| read_whole::<M, C>(&guard, [item.word, item.value])).collect();
                    // Those that cannot be read have no key to be sorted by.
                    read.sort_by(|one, other| match (one, other) {
                        (Ok((one, _)), Ok((other, _))) => one.cmp(other),
                        (one, other) => one.is_ok().cmp(&other.is_ok()),
                    });
                    goes_on = read.into_iter().all(|entry| salvage.entry(leaf.offset, entry));
                }
                Visited::Damaged(offset, error) if goes_on => {
                    salvage.leave_out(offset, format!("a node and all below it: {}", what_of(&error)));
                }
                _ => {}
            }
            Ok(())
        });
        if let Err(error) = walked {
            salvage.leave_out(tree.anchor, format!("all of the tree: {}", what_of(&error)));
        }
        Ok(salvage.finish())
    }

    /// Gives back all space.
    pub(super) fn give_back(&self) -> Result<()> {
        let guard = self.pool.pin();
        let mut offsets = vec![self.anchor];
        self.walk(&guard, &mut |visited| {
            match visited {
                Visited::Leaf(leaf, ..) => {
                    if C::TIES {
                        self.entries(&guard, &leaf)
                            .for_each(|item| C::discard(&guard, [item.word, item.value]));
                    }
                    offsets.push(leaf.offset);
                }
                Visited::Inner(node, content) => {
                    let tails = content.items.iter().filter(|item| item.tail != 0);
                    tails.for_each(|item| C::discard(&guard, [item.word, item.tail]));
                    offsets.push(node.offset);
                }
                // What cannot be visited stays taken.
                Visited::Damaged(..) => {}
            }
            Ok(())
        })?;
        offsets.into_iter().for_each(|offset| guard.free(offset));
        Ok(())
    }
}
