//! Writes: single entries; splits and merges without a log (FAIR), and how writers finish those
//! that a crash has cut off.

use engines::index::record;
use engines::kit::latch::Writing;
use engines::kit::paged::checked;
use engines::kit::prelude::*;
use engines::kit::scan::{Tied, Way};

use super::FastFair;
use super::find::{Path, Step};
use super::node::{FastFairNode, Low, NewNode};

/// Changes that one write finishes at most: in a sound tree there are not more, as each is left by
/// a crash of its own.
const FINISHED_MAX: usize = 256;

impl<M: Medium, C: Codec> FastFair<M, C> {
    /// Goes down to the leaf of a key, with the path. Changes on the way that a crash has cut off
    /// are finished first.
    fn descend_to_write<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        writing: &Writing<'_, M>,
        key: C::Key<'_>,
    ) -> Result<(FastFairNode<'g>, Path)> {
        for _ in 0..FINISHED_MAX {
            let mut path = Path::new();
            let way = Way::Key(key, Tied::UpTo);
            match self.descend(guard, &way, Some((writing, &mut path)), false)? {
                (leaf, None) => return Ok((leaf, path)),
                (node, Some(right)) => self.finish(guard, writing, &path, &node, &right)?,
            }
        }
        Err(ErrorKind::Contended { offset: self.root }.into())
    }

    /// Sets the value of a key, if `condition` holds.
    pub fn store(
        &self,
        key: C::Key<'_>,
        value: C::Value<'_>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<Written> {
        let guard = self.pool.pin();
        guard.admit()?;
        let mut new = Encoded::<M, C>::new(&guard, key, value, condition);
        let writing = self.latch.write(&guard);
        let (leaf, look) = loop {
            let (leaf, path) = self.descend_to_write(&guard, &writing, key)?;
            let look = self.look(&guard, &leaf, key)?;
            if !holds::<M, C>(&guard, condition, look.found)? {
                let lsn = writing.end(&guard, self.latch.lsn(leaf.offset));
                return Ok(Written::refused(lsn));
            }
            if look.found.is_some() || look.used < leaf.entries.len() {
                break (leaf, look);
            }
            self.make_room(&guard, &writing, &path, &leaf)?;
        };
        let words = new.words()?;
        if C::TIES {
            // PERSIST: the record is ordered before the word that leads to it; if this is lost, the
            // operation did not happen.
            guard.fence();
        }
        writing.change();
        let lsn = match look.found {
            Some(_) => {
                leaf.entries[look.position][1].publish(&guard, words[1]);
                guard.fence()
            }
            None => leaf.insert(&guard, look.used, look.position, words),
        };
        new.published();
        writing.stamp(leaf.offset, lsn);
        let lsn = writing.end(&guard, lsn);
        if let Some(old) = look.found {
            C::retire(&guard, old);
        }
        Ok(Written::done(lsn))
    }

    /// Removes a key, if `condition` holds.
    pub fn erase(&self, key: C::Key<'_>, condition: Condition<C::Value<'_>>) -> Result<Written> {
        let guard = self.pool.pin();
        guard.admit()?;
        let writing = self.latch.write(&guard);
        let (leaf, path) = self.descend_to_write(&guard, &writing, key)?;
        let look = self.look(&guard, &leaf, key)?;
        let held = holds::<M, C>(&guard, condition, look.found)?;
        let old = match look.found {
            Some(old) if held => old,
            _ => {
                let lsn = writing.end(&guard, self.latch.lsn(leaf.offset));
                return Ok(Written { held, lsn });
            }
        };
        writing.change();
        let lsn = leaf.remove(&guard, look.used, look.position);
        writing.stamp(leaf.offset, lsn);
        // The key is removed, so the remove does not return an error of this merge. The next remove
        // there finds it again.
        _ = self.shrink(&guard, &writing, &path, look.used - 1);
        let lsn = writing.end(&guard, lsn);
        C::retire(&guard, old);
        Ok(Written::done(lsn))
    }

    /// Takes the dead entry out of a node, if a crash may have left one.
    pub(super) fn mend(
        &self,
        guard: &Guard<'_, M>,
        writing: &Writing<'_, M>,
        node: &FastFairNode<'_>,
    ) {
        let used = node.used(guard);
        if self.is_unfinished
            && let Some(dead) = (0..used).find(|index| node.is_dead(guard, *index, used))
        {
            writing.change();
            node.remove(guard, used, dead);
        }
    }

    /// Takes entries out of a node that the sibling has as well, from a split or a merge that a
    /// crash has cut off. While there are any, no record may be used again, as they name the
    /// records of the sibling's.
    pub(super) fn cut_copies(&self, guard: &Guard<'_, M>, node: &FastFairNode<'_>) -> Result<()> {
        let sibling = node.sibling(guard)?;
        if sibling != 0 {
            let end = Self::key_of_low(guard, self.node(guard, sibling)?.low(guard))?;
            let used = node.used(guard);
            let mut kept = used;
            // The last entry may be dead.
            while kept > 0
                && (node.is_dead(guard, kept - 1, used)
                    || self.key_of(guard, node.level, node.words(guard, kept - 1))? >= end)
            {
                kept -= 1;
            }
            if kept < used {
                node.truncate(guard, used, kept);
            }
        }
        Ok(())
    }

    /// Finishes a split that a crash has cut off: enters a node in the parent of its sibling on the
    /// left, the last one of the path, or in a new root; makes room there if there is none.
    fn finish(
        &self,
        guard: &Guard<'_, M>,
        writing: &Writing<'_, M>,
        path: &[Step],
        left: &FastFairNode<'_>,
        right: &FastFairNode<'_>,
    ) -> Result<()> {
        let Some((step, above)) = path.split_last() else {
            let mut space = Unpublished::new(guard);
            let root = self.new_root(guard, &mut space, left, right)?;
            // PERSIST: the root is ordered before the word that leads to it; if this is lost, the
            // old root and its sibling are the tree.
            guard.fence();
            writing.change();
            self.publish_root(guard, root)?;
            space.published();
            return Ok(());
        };
        let parent = self.node(guard, step.offset)?;
        if parent.used(guard) == parent.entries.len() {
            return self.make_room(guard, writing, above, &parent);
        }
        writing.change();
        self.enter(guard, *step, right)
    }

    /// Enters a node in a parent that has room, behind a position of its children.
    fn enter(&self, guard: &Guard<'_, M>, step: Step, right: &FastFairNode<'_>) -> Result<()> {
        let parent = self.node(guard, step.offset)?;
        let used = parent.used(guard);
        let low = right.low(guard)[0];
        let word_at = |index: usize| (index < used).then(|| parent.words(guard, index)[0]);
        let before = step.position.checked_sub(1).and_then(word_at);
        let is_in_order = before.is_none_or(|word| word <= low)
            && word_at(step.position).is_none_or(|word| low <= word);
        if !is_in_order || used == parent.entries.len() || step.position > used {
            return Err(Error::corrupt(
                right.offset,
                "a sibling with another lower bound than its parent allows",
            ));
        }
        parent.insert(guard, used, step.position, [low, checked(right.offset)]);
        Ok(())
    }

    /// Writes and flushes a root above the old one and its sibling.
    fn new_root(
        &self,
        guard: &Guard<'_, M>,
        space: &mut Unpublished<'_, '_, M>,
        left: &FastFairNode<'_>,
        right: &FastFairNode<'_>,
    ) -> Result<u64> {
        let root = self.node(
            guard,
            space.allocate_lines(FastFairNode::bytes(self.entries))?,
        )?;
        let level = left.level + 1;
        let low = [0; 2];
        let first_child = left.offset;
        let entries = [[right.low(guard)[0], checked(right.offset)]];
        root.write(
            guard,
            &NewNode {
                level,
                low,
                sibling: 0,
                first_child,
                entries: &entries,
            },
        );
        Ok(root.offset)
    }

    /// Leads to another root; durable at the LSN.
    pub(super) fn publish_root(&self, guard: &Guard<'_, M>, root: u64) -> Result<Lsn> {
        guard.node::<Word>(self.root)?.publish(guard, checked(root));
        Ok(guard.fence())
    }

    /// Makes room in a full node. If nodes above it are full as well, splits the uppermost of
    /// these; the caller must then try again.
    fn make_room(
        &self,
        guard: &Guard<'_, M>,
        writing: &Writing<'_, M>,
        path: &[Step],
        node: &FastFairNode<'_>,
    ) -> Result<()> {
        let mut node = *node;
        for (index, step) in path.iter().enumerate().rev() {
            let parent = self.node(guard, step.offset)?;
            if parent.used(guard) < parent.entries.len() {
                return self.split(guard, writing, &node, &path[..=index]);
            }
            node = parent;
        }
        self.split(guard, writing, &node, &[])
    }

    /// Splits a full node: the sibling is written, then reached from the node, then the node is
    /// cut, then the parent leads to the sibling. If a crash leaves some of these steps out,
    /// descents go on to the sibling, and a writer does the rest.
    fn split(
        &self,
        guard: &Guard<'_, M>,
        writing: &Writing<'_, M>,
        node: &FastFairNode<'_>,
        path: &[Step],
    ) -> Result<()> {
        let used = node.used(guard);
        let entries: Vec<EntryWords> = (0..used).map(|index| node.words(guard, index)).collect();
        let mut space = Unpublished::new(guard);
        let kept = used.div_ceil(2).min(used.saturating_sub(1));
        let right = self.node(
            guard,
            space.allocate_lines(FastFairNode::bytes(self.entries))?,
        )?;
        let key = self.key_of(guard, node.level, entries[kept])?;
        let low = Self::bound(guard, &mut space, entries[kept][0], &key)?;
        // The child at the bound is the sibling's first.
        let (first_child, moved) = match node.level {
            0 => (0, &entries[kept..]),
            _ => (node.child(guard, kept + 1)?, &entries[kept + 1..]),
        };
        let sibling = node.sibling(guard)?;
        right.write(
            guard,
            &NewNode {
                level: node.level,
                low,
                sibling,
                first_child,
                entries: moved,
            },
        );
        let root = match path {
            [] => Some(self.new_root(guard, &mut space, node, &right)?),
            _ => None,
        };
        // PERSIST: the sibling, and a root, are ordered before the words that lead to them; if this
        // is lost, nothing happened.
        guard.fence();
        writing.change();
        let lsn = node.publish_sibling(guard, right.offset);
        space.published();
        node.truncate(guard, used, kept);
        writing.stamp(node.offset, lsn);
        writing.stamp(right.offset, lsn);
        match (root, path.last()) {
            (Some(root), _) => self.publish_root(guard, root).map(drop),
            (None, Some(step)) => self.enter(guard, *step, &right),
            (None, None) => Ok(()),
        }
    }

    /// The lower bound of a node whose first key is this: in trees of records with a record of its
    /// own.
    pub(super) fn bound(
        guard: &Guard<'_, M>,
        space: &mut Unpublished<'_, '_, M>,
        word: u64,
        key: &[u8],
    ) -> Result<Low> {
        Ok([
            word,
            if C::TIES {
                space.adopt(record::write(guard, key, &[])?)
            } else {
                0
            },
        ])
    }

    /// Merges a leaf that has `count` entries left with its neighbours, if they have few entries,
    /// too; then the nodes above it.
    fn shrink(
        &self,
        guard: &Guard<'_, M>,
        writing: &Writing<'_, M>,
        path: &[Step],
        mut count: usize,
    ) -> Result<()> {
        for step in path.iter().rev() {
            if count > (self.entries / 4).max(1) {
                return Ok(());
            }
            let parent = self.node(guard, step.offset)?;
            count = parent.used(guard);
            let mut position = step.position.min(count);
            loop {
                if position > 0 && self.merge(guard, writing, &parent, position - 1)? {
                    position -= 1;
                } else if position >= count || !self.merge(guard, writing, &parent, position)? {
                    break;
                }
                count -= 1;
            }
        }
        self.lower_root(guard, writing)
    }

    /// Merges the children at a position of a node and at the next one, if both fit in one node and
    /// leave it room: the left one takes copies, the parent leads to the right one no more, then
    /// the left one goes on to the right one's sibling.
    fn merge(
        &self,
        guard: &Guard<'_, M>,
        writing: &Writing<'_, M>,
        parent: &FastFairNode<'_>,
        position: usize,
    ) -> Result<bool> {
        let children = [
            self.child(guard, parent, position)?,
            self.child(guard, parent, position + 1)?,
        ];
        for child in &children {
            self.mend(guard, writing, child);
        }
        let [left, right] = children;
        let counts = children.map(|child| child.used(guard));
        let pulled = usize::from(left.level > 0);
        let room = if counts.contains(&0) {
            self.entries
        } else {
            self.entries / 2 + pulled
        };
        // Between them may be one that no parent leads to yet.
        if left.sibling(guard)? != right.offset || counts[0] + counts[1] + pulled > room {
            return Ok(false);
        }
        let sibling = right.sibling(guard)?;
        let low = right.low(guard);
        let mut moved: Vec<EntryWords> = Vec::with_capacity(counts[1] + 1);
        if left.level > 0 {
            moved.push([low[0], checked(right.child(guard, 0)?)]);
        }
        moved.extend((0..counts[1]).map(|index| right.words(guard, index)));
        writing.change();
        left.append(guard, counts[0], &moved);
        parent.remove(guard, parent.used(guard), position);
        let lsn = left.publish_sibling(guard, sibling);
        writing.stamp(left.offset, lsn);
        Self::retire_node(guard, right.offset, low);
        Ok(true)
    }

    /// Replaces a root that has a single child by the child.
    fn lower_root(&self, guard: &Guard<'_, M>, writing: &Writing<'_, M>) -> Result<()> {
        loop {
            let root = self.root(guard)?;
            if root.level == 0 || root.used(guard) != 0 || root.sibling(guard)? != 0 {
                return Ok(());
            }
            let child = self.child(guard, &root, 0)?;
            writing.change();
            self.publish_root(guard, child.offset)?;
            guard.retire(root.offset);
        }
    }
}
