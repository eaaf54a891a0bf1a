//! Changes of structure: adding a leaf, removing a leaf, building the whole tree.

use std::cmp::Ordering as Compare;

use medium::sync::{MutexGuard, Ordering};

use super::node::{InnerNode, NodeImage, NodeSeparator, Tails};
use super::{CHILDREN_MAX, HeapGuard, InnerTree, Separator, pack, unpack};
use crate::Result;
use crate::index::Codec;
use crate::kit::shared_prefix::{SHARED_BYTES_MAX, SharedPrefix};

/// Children of a node that is built: fewer than fit, so that there is room for splits.
const CHILDREN_BUILT: usize = CHILDREN_MAX - CHILDREN_MAX / 8;
/// A node with fewer children is merged with a neighbour, if both fit in a node with room to spare;
/// otherwise it takes some of the neighbour's. No node may have a single child: the removal of a
/// first child needs the separator of the second one.
const CHILDREN_MIN: usize = if CHILDREN_MAX < 8 {
    2
} else {
    CHILDREN_MAX / 4
};
const CHILDREN_MERGED_MAX: usize = CHILDREN_MAX - CHILDREN_MAX / 4;

/// The right to change the structure.
pub struct Structure<'t, C: Codec> {
    tree: &'t InnerTree<C>,
    _serial: MutexGuard<'t, ()>,
}

/// A node on the path to a leaf, and the position of the child on the path.
struct Step {
    node: u32,
    position: usize,
    image: NodeImage,
}

impl Step {
    /// The child on the path.
    fn child(&self) -> u32 {
        self.image.children[self.position]
    }
}

/// The step with the lower bound of the leaf at the end of a path: the lowest step whose child on the
/// path is not the first one. The leaf has a leaf before it.
fn bounded_step(steps: &[Step]) -> usize {
    steps
        .iter()
        .rposition(|step| step.position > 0)
        .expect("a leaf with a leaf before it has a separator")
}

/// Nodes that are locked until this is dropped: a reader that validates has seen none of their
/// changes, or all.
struct LockedNodes<'t, C: Codec> {
    tree: &'t InnerTree<C>,
    indices: Vec<u32>,
}

impl<'t, C: Codec> LockedNodes<'t, C> {
    fn new(tree: &'t InnerTree<C>) -> Self {
        Self {
            tree,
            indices: Vec::new(),
        }
    }

    fn lock(&mut self, index: u32) {
        self.tree.nodes.get(index).lock();
        self.indices.push(index);
    }

    /// Locks a node, and gives it another content.
    fn store(&mut self, index: u32, image: &NodeImage) {
        self.lock(index);
        let (node, tails) = self.tree.node_and_tails(index);
        image.store(node, tails);
    }
}

impl<C: Codec> Drop for LockedNodes<'_, C> {
    fn drop(&mut self) {
        for index in &self.indices {
            self.tree.nodes.get(*index).unlock();
        }
    }
}

/// How a node that had few children was changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mended {
    /// It has enough, or no neighbour.
    Not,
    /// It took some of its neighbour's children; the separator between the two has changed.
    Evened,
    /// It was merged with its neighbour: the parent has one child less.
    Merged,
}

/// Two leaves that follow each other under one parent. A thread that does not hold the structure
/// must ask the leaves themselves whether they still do.
#[derive(Clone, Copy)]
pub struct Neighbours {
    /// The left one.
    pub left: u32,
    /// The right one.
    pub right: u32,
}

impl<C: Codec> InnerTree<C> {
    /// Waits for the right to change the structure. A thread holds it while it reads or changes
    /// inner nodes and the keys of their separators, for about a microsecond, and across no flush or
    /// fence.
    pub fn structure(&self) -> Structure<'_, C> {
        Structure {
            tree: self,
            _serial: self.structure.lock(),
        }
    }

    /// The right to change the structure, if no thread has it.
    pub fn try_structure(&self) -> Option<Structure<'_, C>> {
        Some(Structure {
            tree: self,
            _serial: self.structure.try_lock()?,
        })
    }

    fn node_and_tails(&self, index: u32) -> (&InnerNode, Option<&Tails>) {
        (
            self.nodes.get(index),
            self.tails.as_ref().map(|tails| tails.get(index)),
        )
    }

    fn image(&self, index: u32) -> NodeImage {
        let (node, tails) = self.node_and_tails(index);
        NodeImage::of(node, tails)
    }

    /// A new node, not reachable yet.
    pub(super) fn new_node(&self, image: &NodeImage) -> Result<u32> {
        let index = self.nodes.allocate()?;
        if let Some(tails) = &self.tails {
            tails.reach(index).inspect_err(|_| self.nodes.free(index))?;
        }
        let (node, tails) = self.node_and_tails(index);
        // A reader that still has the index of the node's former use must not validate the old
        // content, nor a mixture of old and new.
        node.lock();
        image.store(node, tails);
        node.unlock();
        Ok(index)
    }

    /// Gives the separators of an image words that part them. O(children), each a cache miss.
    fn find_words(heap: &HeapGuard<'_>, image: &mut NodeImage) -> Result<()> {
        if !C::TIES {
            return Ok(());
        }
        let mut keys = Vec::with_capacity(image.separators.len());
        for NodeSeparator { separator, .. } in &image.separators {
            let mut key = Vec::new();
            Self::copy_separator(heap, *separator, &mut key)?;
            keys.push(key);
        }
        image.prefix = SharedPrefix::that_parts(&keys);
        for (node_separator, key) in image.separators.iter_mut().zip(&keys) {
            node_separator.word = image.prefix.word_behind(key);
        }
        Ok(())
    }

    /// Adds a separator to an image. All words are found anew if it does not begin with the image's
    /// prefix, or if its word ties with a neighbour's and a longer prefix may part the two.
    fn insert_separator(
        heap: &HeapGuard<'_>,
        image: &mut NodeImage,
        position: usize,
        separator: Separator,
    ) -> Result<()> {
        let mut word = separator.0;
        let mut fits = true;
        if C::TIES {
            let mut key = Vec::new();
            Self::copy_separator(heap, separator, &mut key)?;
            word = image.prefix.word_behind(&key);
            let is_tied = |other: &NodeSeparator| other.word == word;
            let neighbours = position.saturating_sub(1)..image.separators.len().min(position + 1);
            let can_grow = image.prefix.length() < SHARED_BYTES_MAX;
            let is_parted = !image.separators[neighbours].iter().any(is_tied);
            fits = image.prefix.compare(&key).is_eq() && (is_parted || !can_grow);
        }
        image
            .separators
            .insert(position, NodeSeparator { word, separator });
        if fits {
            Ok(())
        } else {
            Self::find_words(heap, image)
        }
    }

    /// Replaces the separator before the child on the path, which is not the first child. Returns
    /// the old one.
    fn replace_separator(
        heap: &HeapGuard<'_>,
        step: &mut Step,
        separator: Separator,
    ) -> Result<Separator> {
        let before = step.position - 1;
        let old = step.image.separators.remove(before);
        Self::insert_separator(heap, &mut step.image, before, separator)?;
        Ok(old.separator)
    }

    /// The number of an image's separators that are not above a key.
    fn rank(heap: &HeapGuard<'_>, image: &NodeImage, key: C::Key<'_>) -> Result<usize> {
        let mut word = C::word(key);
        if C::TIES {
            let bytes = C::tie_bytes(key);
            match image.prefix.compare(bytes) {
                Compare::Less => return Ok(0),
                Compare::Equal => word = image.prefix.word_behind(bytes),
                Compare::Greater => return Ok(image.separators.len()),
            }
        }
        let mut rank = 0;
        for node_separator in &image.separators {
            let order = match word.cmp(&node_separator.word) {
                Compare::Equal if C::TIES => {
                    Self::compare_tail(heap, key, node_separator.separator.0)?
                }
                order => order,
            };
            if order.is_lt() {
                break;
            }
            rank += 1;
        }
        Ok(rank)
    }

    /// Builds all inner nodes over `leaves`, each with its lower bound; the first one's is not
    /// used. Replaces what was there; for a tree that no other thread uses yet, or under the lock
    /// of its only leaf.
    pub fn build(&self, leaves: &[(Separator, u32)]) -> Result<()> {
        let _serial = self.structure.lock();
        let mut made = Vec::new();
        let root = self.build_rows(leaves, &mut made).inspect_err(|_| {
            // No other thread has seen them.
            made.iter().for_each(|index| self.nodes.free(*index));
        })?;
        // ORDER: pairs with the acquire in `try_locate`.
        self.root.store(root, Ordering::Release);
        Ok(())
    }

    /// Builds the inner nodes over `leaves`, and adds them to `made`. Returns the root.
    fn build_rows(&self, leaves: &[(Separator, u32)], made: &mut Vec<u32>) -> Result<u64> {
        let heap = self.heap();
        let mut level = 0;
        let mut row = leaves.to_vec();
        while row.len() > 1 {
            let groups = row.len().div_ceil(CHILDREN_BUILT);
            let mut upper = Vec::with_capacity(groups);
            for group in 0..groups {
                let part = &row[group * row.len() / groups..(group + 1) * row.len() / groups];
                let unworded = |&(separator, _): &(Separator, u32)| NodeSeparator {
                    word: separator.0,
                    separator,
                };
                let mut image = NodeImage {
                    prefix: SharedPrefix::default(),
                    separators: part[1..].iter().map(unworded).collect(),
                    children: part.iter().map(|(_, child)| *child).collect(),
                };
                Self::find_words(&heap, &mut image)?;
                made.push(self.new_node(&image)?);
                upper.push((part[0].0, made[made.len() - 1]));
            }
            row = upper;
            level += 1;
        }
        Ok(pack(row[0].1, level))
    }
}

impl<C: Codec> Structure<'_, C> {
    /// The path to the leaf that covers `key`, from the root down.
    fn way(&self, key: C::Key<'_>) -> Result<Vec<Step>> {
        let heap = self.tree.heap();
        let (mut index, level) = unpack(self.tree.root.load(Ordering::Acquire));
        let mut steps = Vec::with_capacity(level as usize);
        for _ in 0..level {
            let image = self.tree.image(index);
            let position = InnerTree::<C>::rank(&heap, &image, key)?;
            let child = image.children[position];
            steps.push(Step {
                node: index,
                position,
                image,
            });
            index = child;
        }
        Ok(steps)
    }

    /// Adds leaf `right`, whose keys begin at `separator` (`key` is its key), after the leaf that
    /// was split.
    pub fn insert(&mut self, key: C::Key<'_>, separator: Separator, right: u32) -> Result<()> {
        let tree = self.tree;
        let heap = tree.heap();
        let mut steps = self.way(key)?;
        let mut added = Some((separator, right));
        // All memory is allocated first: if it ran out later, locked nodes would stay locked.
        let mut changed = Vec::new();
        let mut made = Vec::new();
        let give_back = |made: &[u32]| {
            let pin = medium::pin();
            made.iter()
                .for_each(|index| tree.nodes.retire(&pin, *index));
        };
        while let Some(mut step) = steps.pop() {
            let Some((separator, child)) = added.take() else {
                break;
            };
            InnerTree::<C>::insert_separator(&heap, &mut step.image, step.position, separator)
                .inspect_err(|_| give_back(&made))?;
            step.image.children.insert(step.position + 1, child);
            if step.image.children.len() > CHILDREN_MAX {
                let (middle, upper) = step.image.split();
                made.push(tree.new_node(&upper).inspect_err(|_| give_back(&made))?);
                added = made.last().map(|upper| (middle, *upper));
            }
            changed.push(step);
        }
        let mut root = None;
        if let Some((separator, child)) = added {
            let (old_root, level) = unpack(tree.root.load(Ordering::Relaxed));
            let mut image = NodeImage {
                children: vec![old_root, child],
                ..NodeImage::default()
            };
            let index = InnerTree::<C>::insert_separator(&heap, &mut image, 0, separator)
                .and_then(|()| tree.new_node(&image))
                .inspect_err(|_| give_back(&made))?;
            root = Some(pack(index, level + 1));
        }
        let mut locked = LockedNodes::new(tree);
        for step in &changed {
            locked.store(step.node, &step.image);
        }
        if let Some(root) = root {
            // ORDER: pairs with the acquire in `try_locate`; stored while the old root is locked,
            // so that a reader of the old root that missed this fails to validate.
            tree.root.store(root, Ordering::Release);
        }
        drop(locked);
        Ok(())
    }

    /// Whether the inner nodes lead to `leaf` for its lower bound `key`. They do not if there was no
    /// memory to enter it.
    pub fn leads_to(&self, key: C::Key<'_>, leaf: u32) -> Result<bool> {
        let steps = self.way(key)?;
        Ok(steps.last().is_some_and(|step| step.child() == leaf))
    }

    /// Replaces a leaf, to which the inner nodes lead for its lower bound `key`, by one whose lower
    /// bound is lower, but above the leaf before. Returns the separator that is no longer in use.
    pub fn replace(
        &mut self,
        key: C::Key<'_>,
        separator: Separator,
        leaf: u32,
    ) -> Result<Separator> {
        let mut steps = self.way(key)?;
        let parent = steps
            .last_mut()
            .expect("a leaf after another hangs in a node");
        let position = parent.position;
        parent.image.children[position] = leaf;
        let bounded = bounded_step(&steps);
        let heap = self.tree.heap();
        let old = InnerTree::<C>::replace_separator(&heap, &mut steps[bounded], separator)?;
        let parent = steps.len() - 1;
        let mut locked = LockedNodes::new(self.tree);
        locked.store(steps[parent].node, &steps[parent].image);
        if bounded != parent {
            locked.store(steps[bounded].node, &steps[bounded].image);
        }
        Ok(old)
    }

    /// Two leaves that follow each other under one parent, of which one covers `key`: candidates
    /// for a merge. `None` if the tree has a single leaf.
    pub fn neighbours(&self, key: C::Key<'_>) -> Result<Option<Neighbours>> {
        let steps = self.way(key)?;
        let Some(parent) = steps.last() else {
            return Ok(None);
        };
        let children = &parent.image.children;
        let Some(last_left) = children.len().checked_sub(2) else {
            return Ok(None);
        };
        let left = parent.position.min(last_left);
        Ok(Some(Neighbours {
            left: children[left],
            right: children[left + 1],
        }))
    }

    /// Removes the leaf to which the inner nodes lead for its lower bound `key`; it has a leaf
    /// before it, which covers its keys from now on. Returns the separator that is no longer in
    /// use. Needs no new node, so that it cannot fail after the leaves have been merged.
    pub fn remove(&mut self, key: C::Key<'_>) -> Result<Separator> {
        let heap = self.tree.heap();
        let mut steps = self.way(key)?;
        let mut step = steps.pop().expect("a leaf after another hangs in a node");
        let mut bounded = None;
        let removed = if step.position > 0 {
            step.image.children.remove(step.position);
            step.image.separators.remove(step.position - 1).separator
        } else {
            // The second child is the first one from now on. The separator of a first child lies in
            // a node above, so the second child's separator moves there.
            step.image.children.remove(0);
            let next = step.image.separators.remove(0).separator;
            let above = bounded_step(&steps);
            bounded = Some(above);
            InnerTree::<C>::replace_separator(&heap, &mut steps[above], next)?
        };
        // All is computed before a node is locked.
        let mut changed = Vec::new();
        let mut obsolete = Vec::new();
        while let Some(mut parent) = steps.pop() {
            let mended = self.mend_small(&heap, &step, &mut parent, &mut changed, &mut obsolete)?;
            if mended == Mended::Not {
                steps.push(parent);
                break;
            }
            step = parent;
            if mended == Mended::Evened {
                break;
            }
        }
        changed.push((step.node, step.image));
        let mut locked = LockedNodes::new(self.tree);
        for (index, image) in &changed {
            locked.store(*index, image);
        }
        // A reader of a node that is removed must not validate any more.
        for index in &obsolete {
            locked.lock(*index);
        }
        // The node whose separator has risen, and each node on the way down from there: a reader
        // that has passed that node's old separator must not go on to the second child, whose keys
        // begin above the reader's key. A node that has left the steps is locked already.
        if let Some(bounded) = bounded {
            for step in steps.get(bounded..).unwrap_or_default() {
                locked.store(step.node, &step.image);
            }
        }
        self.drop_roots_with_one_child(&mut obsolete);
        drop(locked);
        let pin = medium::pin();
        for index in obsolete {
            self.tree.nodes.retire(&pin, index);
        }
        Ok(removed)
    }

    /// Merges a node that has become small with a neighbour under the same parent, or gives it some
    /// of that one's children. Adds new contents of nodes to `changed`.
    fn mend_small(
        &self,
        heap: &HeapGuard<'_>,
        step: &Step,
        parent: &mut Step,
        changed: &mut Vec<(u32, NodeImage)>,
        obsolete: &mut Vec<u32>,
    ) -> Result<Mended> {
        if step.image.children.len() >= CHILDREN_MIN || parent.image.children.len() < 2 {
            return Ok(Mended::Not);
        }
        let left = parent.position.min(parent.image.children.len() - 2);
        let left_index = parent.image.children[left];
        let right_index = parent.image.children[left + 1];
        let image_of = |index: u32| {
            if index == step.node {
                step.image.clone()
            } else {
                self.tree.image(index)
            }
        };
        let mut merged = image_of(left_index);
        let right = image_of(right_index);
        let between = parent.image.separators.remove(left);
        merged.separators.push(between);
        merged.separators.extend(right.separators);
        merged.children.extend(right.children);
        let count = merged.children.len();
        if count > CHILDREN_MERGED_MAX {
            let half = count / 2;
            let mut right = NodeImage {
                prefix: SharedPrefix::default(),
                separators: merged.separators.split_off(half),
                children: merged.children.split_off(half),
            };
            let between = merged.separators.remove(half - 1).separator;
            InnerTree::<C>::insert_separator(heap, &mut parent.image, left, between)?;
            InnerTree::<C>::find_words(heap, &mut merged)?;
            InnerTree::<C>::find_words(heap, &mut right)?;
            changed.push((left_index, merged));
            changed.push((right_index, right));
            return Ok(Mended::Evened);
        }
        parent.image.children.remove(left + 1);
        InnerTree::<C>::find_words(heap, &mut merged)?;
        changed.push((left_index, merged));
        obsolete.push(right_index);
        Ok(Mended::Merged)
    }

    fn drop_roots_with_one_child(&self, obsolete: &mut Vec<u32>) {
        let (mut index, mut level) = unpack(self.tree.root.load(Ordering::Relaxed));
        while level > 0 {
            let image = self.tree.image(index);
            if image.children.len() > 1 {
                return;
            }
            obsolete.push(index);
            index = image.children[0];
            level -= 1;
            self.tree.root.store(pack(index, level), Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
