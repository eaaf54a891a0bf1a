//! Bulk load: a whole tree from sorted input, published by the root's word.

use crate::{ErrorKind, Result};
use medium::Medium;
use pool::Guard;

use super::log::Redo;
use super::walk::Visited;
use super::{Format, Item, NodeKind, Paged, checked};
use crate::index::{Codec, NextEntry};
use crate::kit::latch::Writing;
use crate::kit::load::{EncodedEntries, entries_per_leaf};
use crate::kit::write::Unpublished;

impl<M: Medium, C: Codec, F: Format> Paged<M, C, F> {
    /// Fills an empty tree. The thread is not pinned while `next` runs, so memory that other
    /// threads retire meanwhile is freed.
    pub(super) fn load<'s>(&self, next: &'s mut NextEntry<'s>, fill: f64) -> Result<u64> {
        self.lock_empty(&self.pool.pin()).map(drop)?;
        // No other thread reaches these nodes yet.
        let guard = self.pool.peek();
        let mut source = EncodedEntries::<M, C>::new(&guard, next);
        let mut nodes = Unpublished::new(&guard);
        let mut tails = Unpublished::new(&guard);
        let mut level: Vec<(Item, u64)> = Vec::new();
        let first = self.allocate(&mut nodes, NodeKind::Leaf)?;
        let per_leaf = entries_per_leaf(self.format.shape(NodeKind::Leaf).entries, fill);
        let allocate = || self.allocate(&mut nodes, NodeKind::Leaf);
        let mut before: Option<Item> = None;
        source.for_each_leaf(per_leaf, first, allocate, |offset, link, entries| {
            let items: Vec<Item> = entries
                .into_iter()
                .map(|[word, value]| Item {
                    word,
                    value,
                    tail: 0,
                })
                .collect();
            self.write_node(&guard, offset, NodeKind::Leaf, link, &items)?;
            let separator = match (before, items.first()) {
                (Some(before), Some(first)) => {
                    Self::separate(&guard, &mut tails, before, *first, offset)?
                }
                _ => Item {
                    word: 0,
                    value: checked(offset),
                    tail: 0,
                },
            };
            level.push((separator, offset));
            before = items.last().copied();
            Ok(())
        })?;
        if source.entries() == 0 {
            return Ok(0);
        }
        let mut levels = 0;
        while level.len() > 1 {
            level = self.load_level(&guard, &mut nodes, &level, fill)?;
            levels += 1;
        }
        let root = Self::root_word(level[0].1, levels)?;
        let pinned = self.pool.pin();
        let (writing, old) = self.lock_empty(&pinned)?;
        let anchor = self.anchor(&guard)?;
        let mut redo = Redo::default();
        redo.set(&guard, anchor.root, root);
        writing.change();
        let lsn = redo.commit(&guard, &anchor)?;
        writing.stamp_all(lsn);
        nodes.published();
        tails.published();
        let loaded = source.published();
        writing.settle(&guard, lsn)?;
        for offset in old {
            pinned.retire(offset);
        }
        Ok(loaded)
    }

    /// Writes the inner nodes above a level of nodes, each with the separator before it.
    fn load_level(
        &self,
        guard: &Guard<'_, M>,
        nodes: &mut Unpublished<'_, '_, M>,
        below: &[(Item, u64)],
        fill: f64,
    ) -> Result<Vec<(Item, u64)>> {
        let most = self.format.shape(NodeKind::Inner).entries + 1;
        let most = entries_per_leaf(most, fill).max(3);
        // Children are spread evenly. Nodes have room for three or more, so none is left with one
        // child.
        let count = below.len().div_ceil(most);
        let mut level = Vec::with_capacity(count);
        for number in 0..count {
            let children = &below[below.len() * number / count..below.len() * (number + 1) / count];
            let separators: Vec<Item> = children[1..]
                .iter()
                .map(|(separator, _)| *separator)
                .collect();
            let offset = self.allocate(nodes, NodeKind::Inner)?;
            self.write_node(guard, offset, NodeKind::Inner, children[0].1, &separators)?;
            level.push((
                Item {
                    value: checked(offset),
                    ..children[0].0
                },
                offset,
            ));
        }
        Ok(level)
    }

    /// Locks an empty tree. Returns the lock and all of the tree's space except for the anchor.
    /// Refuses a tree that has entries, once they are durable.
    fn lock_empty(&self, guard: &Guard<'_, M>) -> Result<(Writing<'_, M>, Vec<u64>)> {
        let writing = self.latch.write(guard);
        let mut offsets = Vec::new();
        let walked = self.walk(guard, &mut |visited| {
            match visited {
                Visited::Leaf(leaf, ..) if self.count(guard, &leaf) != 0 => {
                    return Err(ErrorKind::NotEmpty.into());
                }
                Visited::Leaf(leaf, ..) => offsets.push(leaf.offset),
                Visited::Inner(node, content) => {
                    offsets.push(node.offset);
                    for item in content.tailed() {
                        offsets.push(Self::offset_in(&node, item.tail)?);
                    }
                }
                Visited::Damaged(_, error) => return Err(error),
            }
            Ok(())
        });
        if let Err(error) = walked {
            writing.settle(guard, self.latch.last_lsn())?;
            return Err(error);
        }
        Ok((writing, offsets))
    }
}
