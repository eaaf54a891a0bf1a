//! Walks over all nodes: verification, figures, salvage, giving back.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use crate::index::record::prefix_word;
use crate::{Error, Result};
use medium::Medium;
use pool::{Guard, Pool, TreeRoot};

use super::change::Content;
use super::{Format, Item, NodeKind, Paged, PagedNode, checked, unchecked};
use crate::index::{Codec, EntryWords, IndexStat, LeftOut, Part, Violation};
use crate::kit::bits;
use crate::kit::salvage::{Leafy, Led, what_of};
use crate::kit::walk::verify_entry;

/// A node on a walk through the whole tree.
pub(super) enum Visited<'n, 'g> {
    /// A leaf, and the separators around it.
    Leaf(PagedNode<'g>, Option<Item>, Option<Item>),
    /// An inner node, before its children.
    Inner(PagedNode<'g>, &'n Content),
    /// The offset of a node that cannot be visited, nor the nodes below it; and the reason.
    Damaged(u64, Error),
}

/// An allocation that a tree leads to.
enum Reached {
    /// A node, by its offset.
    Node(u64),
    /// The record of an entry, or the tail of a separator.
    Record(EntryWords),
}

/// A node that is to be visited.
struct UnvisitedNode {
    parent: u64,
    /// The word that leads to it.
    word: u64,
    level: usize,
    /// The separators around it.
    low: Option<Item>,
    high: Option<Item>,
}

impl<M: Medium, C: Codec, F: Format> Paged<M, C, F> {
    /// Visits all nodes, parents first, children in their order, each once. O(nodes), whatever the
    /// damage.
    pub(super) fn walk<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        visit: &mut dyn FnMut(Visited<'_, 'g>) -> Result<()>,
    ) -> Result<()> {
        let (root, levels) = self.root(guard)?;
        let mut unvisited = vec![UnvisitedNode {
            parent: self.anchor,
            word: checked(root),
            level: levels,
            low: None,
            high: None,
        }];
        let mut visited = HashSet::new();
        while let Some(next) = unvisited.pop() {
            let Some(offset) = unchecked(next.word) else {
                let what = "a word that leads to a node fails its check";
                let error = Error::corrupt(next.parent, what);
                visit(Visited::Damaged(next.parent, error))?;
                continue;
            };
            let is_again = !visited.insert(offset);
            match self.visit_node(guard, offset, Self::kind_at(next.level), is_again) {
                Ok((node, None)) => visit(Visited::Leaf(node, next.low, next.high))?,
                Ok((node, Some(content))) => {
                    visit(Visited::Inner(node, &content))?;
                    for position in (0..=content.items.len()).rev() {
                        let before = position.checked_sub(1).map(|before| content.items[before]);
                        let above = content.items.get(position).copied();
                        unvisited.push(UnvisitedNode {
                            parent: offset,
                            word: before.map_or(node.link().load(guard), |item| item.value),
                            level: next.level - 1,
                            low: before.or(next.low),
                            high: above.or(next.high),
                        });
                    }
                }
                Err(error) => visit(Visited::Damaged(offset, error))?,
            }
        }
        Ok(())
    }

    /// A node, with its content if it is an inner one.
    fn visit_node<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        offset: u64,
        kind: NodeKind,
        is_again: bool,
    ) -> Result<(PagedNode<'g>, Option<Content>)> {
        if is_again {
            return Err(Error::corrupt(offset, "a node that is reached twice"));
        }
        let node = self.node(guard, offset, kind)?;
        let content = (kind == NodeKind::Inner)
            .then(|| self.content(guard, &node))
            .transpose()?;
        Ok((node, content))
    }

    /// Calls `visit` with each record and each node, a node's records before the node; or with the
    /// error if a node cannot be visited.
    fn reach(
        &self,
        guard: &Guard<'_, M>,
        visit: &mut dyn FnMut(Result<Reached>) -> Result<()>,
    ) -> Result<()> {
        self.walk(guard, &mut |visited| match visited {
            Visited::Leaf(leaf, ..) if C::TIES => match self.sound_content(guard, &leaf) {
                Ok(content) => {
                    for item in content.items {
                        visit(Ok(Reached::Record([item.word, item.value])))?;
                    }
                    visit(Ok(Reached::Node(leaf.offset)))
                }
                Err(error) => visit(Err(error)),
            },
            Visited::Leaf(leaf, ..) => visit(Ok(Reached::Node(leaf.offset))),
            Visited::Inner(node, content) => {
                for item in content.tailed() {
                    let tail = Self::offset_in(&node, item.tail);
                    visit(tail.map(|_| Reached::Record([item.word, item.tail])))?;
                }
                visit(Ok(Reached::Node(node.offset)))
            }
            Visited::Damaged(_, error) => visit(Err(error)),
        })
    }

    /// Figures, once the counted state is durable.
    pub(super) fn figures(&self) -> Result<IndexStat> {
        let guard = self.pool.pin();
        let writing = self.latch.write(&guard);
        let mut keys = 0;
        let mut leaves = 0;
        let mut others = 1;
        self.walk(&guard, &mut |visited| {
            match visited {
                Visited::Leaf(leaf, low, high) => {
                    keys += self.count_verified(&guard, &leaf, [low, high])?;
                    leaves += 1;
                }
                Visited::Inner(node, content) => {
                    let mut found = Vec::new();
                    self.verify_inner(&guard, &node, content, &mut found)?;
                    if let Some(what) = found.pop() {
                        return Err(Error::corrupt(node.offset, what));
                    }
                    others += 1 + content.tailed().count() as u64;
                }
                Visited::Damaged(_, error) => return Err(error),
            }
            Ok(())
        })?;
        let levels = self.root(&guard)?.1;
        writing.settle(&guard, self.latch.last_lsn())?;
        Ok(IndexStat {
            keys,
            leaves,
            height: levels as u32,
            volatile_bytes: self.latch.volatile_bytes(),
            recovery_ns: self.recovery_ns,
            recovered_from_crash: self.recovered_from_crash,
            leaf_bytes: self.format.shape(NodeKind::Leaf).bytes(false) as u64,
            allocations: Some(leaves + others + if C::TIES { keys } else { 0 }),
            ..IndexStat::default()
        })
    }

    /// The number of entries of a leaf, if its content without the records is sound.
    fn count_verified(
        &self,
        guard: &Guard<'_, M>,
        leaf: &PagedNode<'_>,
        [low, high]: [Option<Item>; 2],
    ) -> Result<u64> {
        Self::offset_in(leaf, leaf.link().load(guard))?;
        let items = self.sound_content(guard, leaf)?.items;
        let words = items.iter().map(|item| item.word);
        let ends = low
            .map(|low| low.word)
            .into_iter()
            .chain(words)
            .chain(high.map(|high| high.word));
        if !ends.is_sorted() {
            return Err(Error::corrupt(leaf.offset, "entries out of order"));
        }
        Ok(items.len() as u64)
    }

    /// Verifies all nodes.
    pub(super) fn verify(&self) -> Result<Vec<Violation>> {
        let guard = self.pool.pin();
        let _writing = self.latch.write(&guard);
        let mut violations = Vec::new();
        let mut last_key = None;
        let mut link = None;
        self.walk(&guard, &mut |visited| {
            let mut found = Vec::new();
            let (offset, verified) = match visited {
                Visited::Leaf(leaf, low, high) => {
                    if link.is_some_and(|link| link != leaf.offset) {
                        found.push("the leaf before links another one".to_owned());
                    }
                    link = Self::offset_in(&leaf, leaf.link().load(&guard)).ok();
                    (
                        leaf.offset,
                        self.verify_leaf(&guard, &leaf, [low, high], &mut last_key, &mut found),
                    )
                }
                Visited::Inner(node, content) => (
                    node.offset,
                    self.verify_inner(&guard, &node, content, &mut found),
                ),
                Visited::Damaged(offset, error) => {
                    // The next leaf of the walk need not be the one that the chain leads to.
                    link = None;
                    (offset, Err(error))
                }
            };
            found.extend(verified.err().map(|error| what_of(&error)));
            violations.extend(found.into_iter().map(|what| Violation { offset, what }));
            Ok(())
        })?;
        if link.is_some_and(|link| link != 0) {
            let what = "the last leaf links another one".to_owned();
            violations.push(Violation {
                offset: self.anchor,
                what,
            });
        }
        Ok(violations)
    }

    fn verify_leaf(
        &self,
        guard: &Guard<'_, M>,
        leaf: &PagedNode<'_>,
        around: [Option<Item>; 2],
        last: &mut Option<Vec<u8>>,
        found: &mut Vec<String>,
    ) -> Result<()> {
        found.extend(self.format.fault(guard, leaf).map(str::to_owned));
        Self::offset_in(leaf, leaf.link().load(guard))?;
        let key = |item: Option<Item>| {
            item.map(|item| Self::key_of(guard, NodeKind::Inner, item))
                .transpose()
        };
        let [low, high] = [key(around[0])?, key(around[1])?];
        for Item { word, value, .. } in self.content(guard, leaf)?.items {
            found.extend(verify_entry::<M, C>(guard, [word, value], last)?.map(str::to_owned));
            if low > *last || high.is_some() && *last >= high {
                found.push("an entry outside of the separators around its leaf".to_owned());
            }
        }
        Ok(())
    }

    fn verify_inner(
        &self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        content: &Content,
        found: &mut Vec<String>,
    ) -> Result<()> {
        found.extend(self.format.fault(guard, node).map(str::to_owned));
        let mut last = None;
        for item in &content.items {
            let key = Self::key_of(guard, NodeKind::Inner, *item)?;
            let is_sound = item.tail == 0
                || Self::offset_in(node, item.tail).is_ok()
                    && C::is_sound(guard, [item.word, item.tail])?;
            if !is_sound || prefix_word(&key) != item.word {
                found.push("a separator that fails its check".to_owned());
            }
            if last.as_ref().is_some_and(|last| *last >= key) {
                found.push("separators out of order".to_owned());
            }
            last = Some(key);
        }
        Ok(())
    }

    /// The content of a node, if its head passes its checks.
    fn sound_content(&self, guard: &Guard<'_, M>, node: &PagedNode<'_>) -> Result<Content> {
        match self.format.fault(guard, node) {
            Some(what) => Err(Error::corrupt(node.offset, what)),
            None => self.content(guard, node),
        }
    }

    /// Gives back all space. Nodes that cannot be visited stay taken.
    pub(super) fn give_back(&self) -> Result<()> {
        let guard = self.pool.pin();
        self.reach(&guard, &mut |reached| {
            match reached {
                Ok(Reached::Node(offset)) => guard.free(offset),
                Ok(Reached::Record(words)) => C::discard(&guard, words),
                Err(_) => {}
            }
            Ok(())
        })?;
        guard.free(self.anchor);
        Ok(())
    }
}

impl<M: Medium, C: Codec, F: Format> Leafy<M, C> for Paged<M, C, F> {
    const IS_CHECKED: bool = false;

    fn at_root(pool: &Pool<M>, root: &TreeRoot) -> Result<Self> {
        root.demand(F::ENGINE.0, C::ID, &[String::new(), String::new()])?;
        Self::unopened(pool, &root.words)
    }

    fn leaf_bytes(&self) -> RangeInclusive<usize> {
        let bytes = self
            .format
            .shape(NodeKind::Leaf)
            .bytes(Self::has_tails(NodeKind::Leaf));
        bytes..=bytes
    }

    fn leaves(&self, guard: &Guard<'_, M>) -> Led {
        let mut led = Led::default();
        if self
            .anchor(guard)
            .is_ok_and(|anchor| anchor.is_changing(guard))
        {
            let what = "the redo log holds an unfinished change".to_owned();
            led.push(LeftOut::new(self.anchor, Part::Unknown, what));
        }
        let walked = self.walk(guard, &mut |visited| {
            match visited {
                Visited::Leaf(leaf, ..) => led.leaves.push(leaf.offset),
                Visited::Damaged(offset, error) => {
                    led.note(offset, Part::Node, "a node and all below it", &error);
                }
                Visited::Inner(..) => {}
            }
            Ok(())
        });
        if let Err(error) = walked {
            led.note(self.anchor, Part::Node, "all of the tree", &error);
        }
        led
    }

    fn entries(&self, guard: &Guard<'_, M>, leaf: u64) -> Result<Vec<Result<EntryWords>>> {
        let leaf = self.node(guard, leaf, NodeKind::Leaf)?;
        self.expect_entries(guard, &leaf)?;
        let mut live = self.format.live(guard, &leaf);
        let mut entries = Vec::new();
        if let Err(error) = self.sound_content(guard, &leaf) {
            // The bitmap or the slot array may be damaged, so entries that either of them lists may
            // be live.
            let listed = self
                .format
                .order(guard, &leaf)
                .map_or(0, |order| order.live());
            live |= listed & ((1 << leaf.entries.len()) - 1);
            entries.push(Err(error));
        }
        let items = bits(live).map(|slot| leaf.item(guard, slot));
        entries.extend(items.map(|item| Ok([item.word, item.value])));
        Ok(entries)
    }
}
