//! Merging: a leaf that became small is merged with its left sibling, else with its right one,
//! under the same parent; inner nodes likewise.
//!
//! Both leaves are frozen, then one operation freezes the parent and installs a parent without one
//! of them in its own parent. If the parent is the root and would be left with one child, that
//! becomes the root.

use medium::Medium;
use pool::Guard;

use super::find::{DescentGoal, Path, Step};
use super::image::{Copies, InnerImage, NewNodes};
use super::layout::Pointer;
use super::{BzTree, NodeSizes};
use crate::Result;
use crate::index::Codec;
use crate::pmwcas::{Seen, VALUE_MASK};

/// Merges that one removal tries at most: each makes the tree smaller, but others may make it
/// larger meanwhile.
const MERGES_MAX: usize = 64;

/// Two neighbours under one parent, to be replaced by one node.
struct Pair<'p> {
    /// The path to the parent, which is its last step.
    path: &'p [Step],
    /// The parent's status and content.
    status: u64,
    image: InnerImage,
    /// The position of the left one.
    left: usize,
}

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// Merges the leaf that covers `key` if it is small, and then nodes above it that became small.
    pub(super) fn shrink(&self, guard: &Guard<'_, M>, key: C::Key<'_>) -> Result<()> {
        for _ in 0..MERGES_MAX {
            let (path, offset) =
                self.descend_path(guard, &DescentGoal::Key(key), &mut Seen::default())?;
            let status = self.leaf_status(guard, Self::leaf(guard, offset)?)?;
            if path.is_empty() || status.is_frozen() || status.live() > self.sizes.live_min() {
                return Ok(());
            }
            let merged = self.merge_leaf(guard, &path, offset, status.live())?;
            // A leaf without siblings can be merged once its parent has been.
            if !self.shrink_inner(guard, key)? && !merged {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Merges the leaf at the end of a path with a sibling; returns whether it did.
    fn merge_leaf(
        &self,
        guard: &Guard<'_, M>,
        path: &Path,
        offset: u64,
        live: usize,
    ) -> Result<bool> {
        let Some(step) = path.last() else {
            return Ok(false);
        };
        let Some((status, image)) = self.image(guard, step.offset)? else {
            return Ok(false);
        };
        if image.children.get(step.position) != Some(&Pointer::leaf(offset)) {
            return Ok(false);
        }
        let siblings = [step.position.checked_sub(1), Some(step.position + 1)];
        for sibling in siblings.into_iter().flatten() {
            let Some(pointer) = image
                .children
                .get(sibling)
                .filter(|pointer| pointer.is_leaf())
            else {
                continue;
            };
            let other = self.leaf_status(guard, Self::leaf(guard, pointer.offset())?)?;
            let together = live + other.kept();
            let NodeSizes { leaf_entries, .. } = self.sizes;
            if !other.is_frozen()
                && (together <= self.sizes.live_max() || live == 0 && together <= leaf_entries)
            {
                let left = sibling.min(step.position);
                return self.merge_leaves(
                    guard,
                    Pair {
                        path,
                        status,
                        image,
                        left,
                    },
                    together,
                );
            }
        }
        Ok(false)
    }

    /// Merges two leaves, which had `together` entries.
    fn merge_leaves(&self, guard: &Guard<'_, M>, pair: Pair<'_>, together: usize) -> Result<bool> {
        let mut new = NewNodes::new(guard);
        let merged = self.allocate_leaf(&mut new, together, true)?;
        let parent = self.allocate_inner(&mut new)?;
        let mut copies = Copies::new();
        let mut statuses = [0; 2];
        for (pointer, status) in pair.image.children[pair.left..].iter().zip(&mut statuses) {
            let leaf = Self::leaf(guard, pointer.offset())?;
            let frozen = self.freeze(guard, leaf)?;
            self.gather(guard, leaf, frozen, &mut copies)?;
            *status = frozen.0;
        }
        if copies.len() > merged.capacity {
            // Entries were added in between. The next thread that is to change one of these leaves
            // renews it.
            return Ok(false);
        }
        Self::write_leaf(guard, merged, &copies)?;
        self.install_merge(
            guard,
            new,
            pair,
            Pointer::leaf(merged.offset),
            parent,
            statuses,
        )
    }

    /// Installs `merged` in place of a pair of nodes, by a new parent. Freezes both nodes, which
    /// must still have these statuses; leaves are frozen already, and are now frozen for good.
    /// Returns whether it did.
    fn install_merge(
        &self,
        guard: &Guard<'_, M>,
        mut new: NewNodes<'_, '_, M>,
        pair: Pair<'_>,
        merged: Pointer,
        parent: u64,
        statuses: [u64; 2],
    ) -> Result<bool> {
        let Pair {
            path,
            status,
            mut image,
            left,
        } = pair;
        let Some((step, above)) = path.split_last() else {
            return Ok(false);
        };
        let mut swap = self.pmwcas.allocate();
        Self::freeze_inner(guard, &mut swap, step.offset, status)?;
        let old = [image.children[left], image.children[left + 1]];
        for (pointer, status) in old.into_iter().zip(statuses) {
            Self::freeze_for_good(guard, &mut swap, pointer, status)?;
        }
        let between = image.separators.remove(left);
        image.children.remove(left + 1);
        image.children[left] = merged;
        let becomes_root = above.is_empty() && image.children.len() == 1;
        let replacement = if becomes_root {
            merged
        } else {
            Pointer::inner(parent)
        };
        if !becomes_root {
            Self::write_inner(guard, parent, &image)?;
        }
        if !self.swap_child(
            guard,
            &mut swap,
            above,
            Pointer::inner(step.offset),
            replacement,
        )? {
            return Ok(false);
        }
        new.release(replacement.offset());
        let Some(commit) = self.attempt_swap(guard, swap)? else {
            return Ok(false);
        };
        if !becomes_root {
            new.release(merged.offset());
        }
        old.iter()
            .for_each(|pointer| self.retire(guard, pointer.offset()));
        // The separator of merged inner nodes lives on between their children.
        if between.tail != 0 && merged.is_leaf() {
            guard.retire(between.tail);
        }
        self.counters.merges.add();
        // There is no wait until the merge is durable: no answer rests on it.
        drop(commit);
        self.reuse(guard);
        self.refill_spares(guard);
        Ok(true)
    }

    /// Merges inner nodes on the way to `key` that have few children, from the lowest level up;
    /// returns whether it merged any.
    fn shrink_inner(&self, guard: &Guard<'_, M>, key: C::Key<'_>) -> Result<bool> {
        let mut any = false;
        for _ in 0..MERGES_MAX {
            let (path, _) =
                self.descend_path(guard, &DescentGoal::Key(key), &mut Seen::default())?;
            let mut merged = false;
            for depth in (1..path.len()).rev() {
                let children =
                    Self::header(guard, Self::inner(guard, path[depth].offset)?).separators() + 1;
                if children <= self.sizes.children_min()
                    && self.merge_inner(guard, &path[..depth], path[depth])?
                {
                    merged = true;
                    break;
                }
            }
            if !merged {
                break;
            }
            any = true;
        }
        Ok(any)
    }

    /// Merges an inner node with a sibling; `path` leads to its parent. Returns whether it did.
    fn merge_inner(&self, guard: &Guard<'_, M>, path: &[Step], child: Step) -> Result<bool> {
        let Some(step) = path.last() else {
            return Ok(false);
        };
        let Some((status, image)) = self.image(guard, step.offset)? else {
            return Ok(false);
        };
        if image.children.get(step.position) != Some(&Pointer::inner(child.offset)) {
            return Ok(false);
        }
        let count = |pointer: Pointer| -> Result<usize> {
            Ok(Self::header(guard, Self::inner(guard, pointer.offset())?).separators() + 1)
        };
        let mine = count(Pointer::inner(child.offset))?;
        let siblings = [step.position.checked_sub(1), Some(step.position + 1)];
        for sibling in siblings.into_iter().flatten() {
            let Some(pointer) = image
                .children
                .get(sibling)
                .filter(|pointer| !pointer.is_leaf())
            else {
                continue;
            };
            let together = mine + count(*pointer)?;
            let lonely = mine == 1 && together <= self.sizes.inner_children;
            if together <= self.sizes.children_merged() || lonely {
                let left = sibling.min(step.position);
                return self.merge_inners(
                    guard,
                    Pair {
                        path,
                        status,
                        image,
                        left,
                    },
                );
            }
        }
        Ok(false)
    }

    fn merge_inners(&self, guard: &Guard<'_, M>, pair: Pair<'_>) -> Result<bool> {
        let mut new = NewNodes::new(guard);
        let merged = new.allocate(Self::INNER_BYTES)?;
        let parent = new.allocate(Self::INNER_BYTES)?;
        let left = pair.image.children[pair.left];
        let right = pair.image.children[pair.left + 1];
        let Some((left_status, mut image)) = self.image(guard, left.offset())? else {
            return Ok(false);
        };
        let Some((right_status, upper)) = self.image(guard, right.offset())? else {
            return Ok(false);
        };
        if image.children.len() + upper.children.len() > self.sizes.inner_children
            || image.level != upper.level
        {
            return Ok(false);
        }
        image.separators.push(pair.image.separators[pair.left]);
        image.separators.extend(upper.separators);
        image.children.extend(upper.children);
        Self::write_inner(guard, merged, &image)?;
        let statuses = [left_status, right_status];
        self.install_merge(guard, new, pair, Pointer::inner(merged), parent, statuses)
    }

    /// The root that other threads see at this moment.
    pub(super) fn root_pointer(&self, guard: &Guard<'_, M>) -> Result<Pointer> {
        Ok(Pointer(
            self.pmwcas.read(guard, self.root(guard)?)? & VALUE_MASK,
        ))
    }
}
