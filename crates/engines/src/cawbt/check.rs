//! Walks over all nodes: verification, salvage, giving back.

use std::collections::HashSet;

use medium::Medium;
use pool::{Guard, Pool, TreeRoot};

use super::layout::{Node, NodeLine};
use super::record::entry_at;
use super::{CawbTree, Counts, LEVELS_MAX};
use crate::index::{Codec, Violation};
use crate::kit::salvage::{Salvage, read_whole, what_of};
use crate::kit::walk::verify_entry;
use crate::registry::{Salvaged, Visit};
use crate::{Error, Result};

/// A node on a walk: its offset, its level from the root, and the separator before it.
#[derive(Clone, Copy)]
struct Visited {
    offset: u64,
    level: usize,
    low: u32,
}

/// How a walk reads a node.
type Read<'r> = dyn Fn(u64) -> Result<Node> + 'r;

impl<M: Medium, C: Codec> CawbTree<M, C> {
    fn read_sound(guard: &Guard<'_, M>, offset: u64) -> Result<Node> {
        let node = Node::load(guard, offset)?;
        node.validate(offset).map(|()| node)
    }

    /// As [`CawbTree::read_sound`], or the other copy of a twin line, if only that is sound.
    fn read_any(guard: &Guard<'_, M>, offset: u64) -> Result<Node> {
        Self::read_sound(guard, offset).or_else(|error| {
            let mut copies = guard.node::<NodeLine>(offset)?.line.copies(guard).map(Node);
            copies.find(|node| node.validate(offset).is_ok()).ok_or(error)
        })
    }

    /// Visits all nodes, parents first, children in their order, each once. O(nodes), whatever the damage.
    fn walk(&self, read: &Read<'_>, visit: &mut dyn FnMut(Visited, Result<Node>)) {
        let mut todo = vec![Visited { offset: self.root, level: 0, low: 0 }];
        let mut visited = HashSet::new();
        while let Some(at) = todo.pop() {
            let is_again = !visited.insert(at.offset) || at.level > LEVELS_MAX;
            let node = match is_again {
                true => Err(Error::corrupt(at.offset, "a node that is reached twice")),
                false => read(at.offset),
            };
            if let Ok(node) = node.as_ref()
                && !node.is_leaf()
            {
                let below = node.pointers().enumerate().rev().map(|(position, offset)| {
                    let low = position.checked_sub(1).map_or(at.low, |before| node.id(before));
                    Visited { offset, level: at.level + 1, low }
                });
                todo.extend(below);
            }
            visit(at, node);
        }
    }

    /// Verifies all nodes, records, and the table.
    pub(super) fn verify(&self) -> Result<Vec<Violation>> {
        let guard = self.pool.pin();
        let state = self.lock(&guard)?;
        let (mut violations, mut counts) = (Vec::new(), Counts::default());
        let (mut last_key, mut next, mut depth, mut ids) = (None, None, None, HashSet::new());
        self.walk(&|offset| Self::read_sound(&guard, offset), &mut |at, node| {
            let mut found = Vec::new();
            match node {
                Ok(node) if node.is_leaf() => {
                    counts.leaves += 1;
                    counts.keys += node.count() as u64;
                    counts.levels = at.level as u32;
                    if next.is_some_and(|next| next != at.offset) {
                        found.push("the leaf before links another one".to_owned());
                    }
                    if *depth.get_or_insert(at.level) != at.level {
                        found.push("a leaf that is not as far from the root as others".to_owned());
                    }
                    if at.low != 0 && at.low != node.id(0) || node.count() == 0 && at.level > 0 {
                        found.push("a separator that is not the first key to its right".to_owned());
                    }
                    next = Some(node.next());
                    for (position, record) in node.pointers().enumerate() {
                        let id = node.id(position);
                        let verified = self.verify_record(&guard, id, record, &mut last_key);
                        found.extend(verified.unwrap_or_else(|error| Some(what_of(&error))));
                        if !ids.insert(id) {
                            found.push("an ID that another entry has".to_owned());
                        }
                    }
                }
                Ok(_) => counts.inner += 1,
                Err(error) => found.push(what_of(&error)),
            }
            violations.extend(found.into_iter().map(|what| Violation { offset: at.offset, what }));
        });
        if next.is_some_and(|next| next != 0) {
            let what = "the last leaf links another one".to_owned();
            violations.push(Violation { offset: self.root, what });
        }
        if violations.is_empty() && counts != state.counts {
            let what = format!("the tree has {counts:?}, and it counted {:?}", state.counts);
            violations.push(Violation { offset: self.root, what });
        }
        if let Err(error) = Self::read_sound(&guard, self.log) {
            violations.push(Violation { offset: self.log, what: what_of(&error) });
        }
        Ok(violations)
    }

    fn verify_record(
        &self,
        guard: &Guard<'_, M>,
        id: u32,
        record: u64,
        last: &mut Option<Vec<u8>>,
    ) -> Result<Option<String>> {
        let words = entry_at::<M, C>(guard, record, &mut Vec::new())?;
        if words != self.ids.entry(id) {
            return Ok(Some("an entry that is not the one in the table".to_owned()));
        }
        Ok(verify_entry::<M, C>(guard, words, last)?.map(str::to_owned))
    }

    /// As [`Build::salvage_at`](crate::registry::Build::salvage_at). Follows the links of leaves where inner nodes lead no further.
    pub(super) fn salvage_of(pool: &Pool<M>, root: &TreeRoot, visit: &mut Visit<'_>) -> Salvaged {
        root.demand((Self::ENGINE.0, C::ID), &[String::new(), String::new()])?;
        let tree = Self::unopened(pool, &root.words)?;
        let (guard, mut salvage, mut goes_on) = (pool.pin(), Salvage::new(visit), true);
        let (mut damaged, mut read, mut next) = (Vec::new(), HashSet::new(), 0);
        // Reads a leaf, unless it was read, and returns the next one; 0 if there is nothing to follow.
        let mut read_leaf = |offset: u64| {
            if !read.insert(offset) || !goes_on {
                return 0;
            }
            let Some(node) = Self::read_any(&guard, offset).ok().filter(Node::is_leaf) else { return 0 };
            goes_on = node.pointers().all(|record| {
                let words = entry_at::<M, C>(&guard, record, &mut Vec::new());
                salvage.entry(offset, words.and_then(|words| read_whole::<M, C>(&guard, words)))
            });
            node.next()
        };
        tree.walk(&|offset| Self::read_any(&guard, offset), &mut |at, node| match node {
            Ok(node) if node.is_leaf() => {
                while next != 0 && next != at.offset {
                    next = read_leaf(next);
                }
                next = read_leaf(at.offset);
            }
            Ok(_) => {}
            Err(error) => damaged.push((at.offset, what_of(&error))),
        });
        while next != 0 {
            next = read_leaf(next);
        }
        for (offset, what) in damaged {
            salvage.leave_out(offset, format!("a node, and what only that leads to: {what}"));
        }
        Ok(Some(salvage.finish()))
    }

    /// Gives back all space. What cannot be visited stays taken.
    #[expect(clippy::unnecessary_wraps, reason = "other engines' fail where damage stops the walk")]
    pub(super) fn give_back(&self) -> Result<()> {
        let guard = self.pool.pin();
        self.walk(&|offset| Self::read_sound(&guard, offset), &mut |at, node| {
            let Ok(node) = node else { return };
            if node.is_leaf() {
                node.pointers().for_each(|record| guard.free(record));
            }
            guard.free_node(at.offset);
        });
        guard.free_node(self.log);
        Ok(())
    }
}
