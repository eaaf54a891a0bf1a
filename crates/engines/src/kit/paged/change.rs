//! Splits and merges.

use crate::Result;
use crate::index::record;
use medium::Medium;
use pool::Guard;
use smallvec::SmallVec;

use super::find::{Path, Step};
use super::log::Redo;
use super::{Format, Item, NodeKind, Order, Paged, PagedNode, checked};
use crate::index::Codec;
use crate::kit::latch::Writing;
use crate::kit::write::Unpublished;

/// The content of a node, in order.
pub(super) struct Content {
    pub(super) live: u64,
    pub(super) order: Order,
    pub(super) items: SmallVec<[Item; 64]>,
}

impl Content {
    /// The items with tails.
    pub(super) fn tailed(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| item.tail != 0)
    }
}

impl<M: Medium, C: Codec, F: Format> Paged<M, C, F> {
    /// Reads the content of a node.
    pub(super) fn content(&self, guard: &Guard<'_, M>, node: &PagedNode<'_>) -> Result<Content> {
        let live = self.format.live(guard, node);
        let order = self.order(guard, node, live)?;
        let items = order.slots().map(|slot| node.item(guard, slot)).collect();
        Ok(Content { live, order, items })
    }

    /// Allocates a node.
    pub(super) fn allocate(
        &self,
        space: &mut Unpublished<'_, '_, M>,
        kind: NodeKind,
    ) -> Result<u64> {
        space.allocate_lines(self.format.shape(kind).bytes(Self::has_tails(kind)))
    }

    /// Writes and flushes a node that nothing leads to.
    pub(super) fn write_node(
        &self,
        guard: &Guard<'_, M>,
        offset: u64,
        kind: NodeKind,
        link: u64,
        items: &[Item],
    ) -> Result<()> {
        let node = self.node(guard, offset, kind)?;
        items
            .iter()
            .enumerate()
            .for_each(|(slot, item)| node.store_item(guard, slot, *item));
        let head = self.format.head(kind, &Order::of(0..items.len()));
        node.head
            .iter()
            .zip(head)
            .for_each(|(word, value)| word.store(guard, value));
        node.link().store(guard, checked(link));
        guard.flush_words(node.head);
        guard.flush_words(node.entries[..items.len()].as_flattened());
        guard.flush_words(&node.tails[..items.len().min(node.tails.len())]);
        Ok(())
    }

    /// A separator between two entries of leaves, which leads to the leaf `right`.
    pub(super) fn separate(
        guard: &Guard<'_, M>,
        space: &mut Unpublished<'_, '_, M>,
        below: Item,
        above: Item,
        right: u64,
    ) -> Result<Item> {
        let mut tail = 0;
        if C::TIES && below.word == above.word {
            let above = [above.word, above.value];
            C::expect_key(guard, above)?;
            let mut key = Vec::new();
            C::copy_key(guard, above, &mut key)?;
            tail = checked(space.adopt(record::write(guard, &key, &[])?));
        }
        Ok(Item {
            word: above.word,
            value: checked(right),
            tail,
        })
    }

    /// Makes room in a full leaf. If nodes above it are full as well, splits the uppermost of
    /// these; the caller must then try again.
    pub(super) fn make_room(
        &self,
        guard: &Guard<'_, M>,
        writing: &Writing<'_, M>,
        path: &Path,
        leaf: &PagedNode<'_>,
        is_last: bool,
    ) -> Result<()> {
        let mut node = *leaf;
        for Step { offset, position } in path.iter().rev() {
            let parent = self.node(guard, *offset, NodeKind::Inner)?;
            if self.count(guard, &parent) < parent.entries.len() {
                return self.split(guard, writing, node, is_last, Some((parent, *position)));
            }
            node = parent;
        }
        self.split(guard, writing, node, is_last, None)
    }

    /// Splits a node below a parent that has room, at a position of its children; or the root.
    fn split(
        &self,
        guard: &Guard<'_, M>,
        writing: &Writing<'_, M>,
        node: PagedNode<'_>,
        is_last: bool,
        parent: Option<(PagedNode<'_>, usize)>,
    ) -> Result<()> {
        let Content { order, items, .. } = self.content(guard, &node)?;
        let mut space = Unpublished::new(guard);
        let right = self.allocate(&mut space, node.kind)?;
        let link = Self::offset_in(&node, node.link().load(guard))?;
        // The last leaf keeps most of its entries: ascending keys then fill leaves.
        let part = if is_last && link == 0 { 8 } else { 2 };
        let kept = match node.kind {
            NodeKind::Leaf => items.len() - (items.len() / part).max(1),
            NodeKind::Inner => items.len() / 2,
        };
        let (separator, left_link) = if node.kind == NodeKind::Leaf {
            self.write_node(guard, right, NodeKind::Leaf, link, &items[kept..])?;
            let separator = Self::separate(guard, &mut space, items[kept - 1], items[kept], right)?;
            (separator, checked(right))
        } else {
            // Its separator moves up, with its tail.
            let first_child = Self::offset_in(&node, items[kept].value)?;
            self.write_node(
                guard,
                right,
                NodeKind::Inner,
                first_child,
                &items[kept + 1..],
            )?;
            (
                Item {
                    value: checked(right),
                    ..items[kept]
                },
                checked(link),
            )
        };
        let mut redo = Redo::default();
        match parent {
            Some((parent, position)) => {
                let above = self.order(guard, &parent, self.format.live(guard, &parent))?;
                self.format
                    .insert_separator(guard, &parent, above, position, separator, &mut redo);
            }
            None => {
                let (old, levels) = self.root(guard)?;
                let root = self.allocate(&mut space, NodeKind::Inner)?;
                self.write_node(guard, root, NodeKind::Inner, old, &[separator])?;
                redo.set(
                    guard,
                    self.anchor(guard)?.root,
                    Self::root_word(root, levels + 1)?,
                );
            }
        }
        redo.set_head(
            guard,
            &node,
            self.format
                .head(node.kind, &Order::of(order.slots().take(kept))),
        );
        redo.set(guard, node.link(), left_link);
        writing.change();
        let lsn = redo.commit(guard, &self.anchor(guard)?)?;
        space.published();
        writing.stamp(node.offset, lsn);
        writing.stamp(right, lsn);
        Ok(())
    }

    /// Merges a leaf that has `count` entries left with its neighbours, if they have few entries,
    /// too; then the nodes above it.
    pub(super) fn shrink(
        &self,
        guard: &Guard<'_, M>,
        writing: &Writing<'_, M>,
        path: &Path,
        mut count: usize,
    ) -> Result<()> {
        let is_short =
            |count: usize, kind: NodeKind| count <= (self.format.shape(kind).entries / 4).max(1);
        if !is_short(count, NodeKind::Leaf) {
            return Ok(());
        }
        let mut kind = NodeKind::Leaf;
        let mut steps = path.iter().rev();
        while is_short(count, kind)
            && let Some(Step { offset, position }) = steps.next()
        {
            let parent = self.node(guard, *offset, NodeKind::Inner)?;
            count = self.count(guard, &parent);
            // In a damaged tree the leaf may be the parent as well, which then has fewer children
            // than it had.
            let mut position = (*position).min(count);
            loop {
                if position > 0 && self.merge(guard, writing, &parent, position - 1, kind)? {
                    position -= 1;
                } else if position >= count
                    || !self.merge(guard, writing, &parent, position, kind)?
                {
                    break;
                }
                count -= 1;
            }
            kind = NodeKind::Inner;
        }
        self.lower_root(guard, writing)
    }

    /// Merges the children at a position of a node and at the next one, if both fit in one node and
    /// leave it room.
    fn merge(
        &self,
        guard: &Guard<'_, M>,
        writing: &Writing<'_, M>,
        parent: &PagedNode<'_>,
        position: usize,
        kind: NodeKind,
    ) -> Result<bool> {
        let live = self.format.live(guard, parent);
        let child = |position| self.node(guard, self.child(guard, parent, live, position)?, kind);
        let left = child(position)?;
        let right = child(position + 1)?;
        let counts = [self.count(guard, &left), self.count(guard, &right)];
        let capacity = left.entries.len();
        let pulled = usize::from(kind == NodeKind::Inner);
        let room = if counts.contains(&0) {
            capacity
        } else {
            capacity / 2 + pulled
        };
        if counts[0] + counts[1] + pulled > room {
            return Ok(false);
        }
        self.format.mend(guard, &left, || writing.change());
        let above = self.order(guard, parent, live)?;
        let separator = parent.item(guard, above.slot(position));
        Self::tail_of(parent, separator)?;
        let [mut one, other] = [self.content(guard, &left)?, self.content(guard, &right)?];
        let link = right.link().load(guard);
        let first = (kind == NodeKind::Inner).then_some(Item {
            value: link,
            ..separator
        });
        for item in first.into_iter().chain(other.items) {
            let slot = (!one.live).trailing_zeros() as usize;
            left.write_item(guard, slot, item);
            one.live |= 1 << slot;
            one.order.insert(one.order.count(), slot);
        }
        let mut redo = Redo::default();
        redo.set_head(guard, &left, self.format.head(kind, &one.order));
        if kind == NodeKind::Leaf {
            redo.set(guard, left.link(), link);
        }
        self.format
            .remove_separator(guard, parent, above, position, &mut redo);
        writing.change();
        let lsn = redo.commit(guard, &self.anchor(guard)?)?;
        writing.stamp(left.offset, lsn);
        guard.retire(right.offset);
        if kind == NodeKind::Leaf && separator.tail != 0 {
            C::retire(guard, [separator.word, separator.tail]);
        }
        Ok(true)
    }

    /// Replaces a root that has a single child by the child.
    fn lower_root(&self, guard: &Guard<'_, M>, writing: &Writing<'_, M>) -> Result<()> {
        loop {
            let (offset, levels) = self.root(guard)?;
            let root = self.node(guard, offset, Self::kind_at(levels))?;
            if levels == 0 || self.count(guard, &root) != 0 {
                return Ok(());
            }
            let child = Self::offset_in(&root, root.link().load(guard))?;
            let anchor = self.anchor(guard)?;
            let mut redo = Redo::default();
            redo.set(guard, anchor.root, Self::root_word(child, levels - 1)?);
            writing.change();
            redo.commit(guard, &anchor)?;
            guard.retire(offset);
        }
    }
}
