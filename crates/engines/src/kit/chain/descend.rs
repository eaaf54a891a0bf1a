//! From the root to a leaf.

use std::cmp::Ordering as Compare;

use medium::kernels;
use medium::sync::{AtomicU32, Ordering, spin_loop};

use super::node::InnerNode;
use super::{HeapGuard, InnerTree, Separator, unpack};
use crate::Result;
use crate::index::Codec;
use crate::kit::shared_prefix::{compare_beginning, word_behind};

/// The goal of a descent.
#[derive(Clone, Copy, Debug)]
pub enum DescentTarget<K> {
    /// The leaf that covers a key.
    At(K),
    /// The leaf that covers the keys just below a key.
    Below(K),
    /// The last leaf.
    Last,
}

/// Where a descent ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DescentEnd {
    /// The leaf.
    pub leaf: u32,
    /// The lower bound of its keys; `None` for the first leaf.
    pub low: Option<Separator>,
}

/// How many descents are interleaved.
pub const GROUP: usize = 16;

impl<C: Codec> InnerTree<C> {
    /// The leaf that covers `key`, or one to the left of it that has just been split. O(log n).
    #[inline]
    pub fn descend(&self, key: C::Key<'_>) -> Result<u32> {
        Ok(self.locate(DescentTarget::At(key))?.leaf)
    }

    /// Descends as [`InnerTree::descend`] does, and calls `touch` with the leaf while the inner
    /// nodes are certain to lead there. A reader that is not pinned must take the leaf's version at
    /// that moment. (If the descent read a node that changed meanwhile, `touch` may get a wrong
    /// index; the descent then starts again and drops the result.) `touch` also gets the leaves
    /// that follow under the same parent. These may be out of date, so they may only be prefetched.
    #[inline(always)]
    pub fn descend_touching<T>(
        &self,
        key: C::Key<'_>,
        touch: impl Fn(u32, &[AtomicU32]) -> T,
    ) -> Result<(u32, T)> {
        let heap = self.heap();
        loop {
            if let Some((place, touched)) =
                self.try_locate(&heap, DescentTarget::At(key), &touch)?
            {
                return Ok((place.leaf, touched));
            }
            spin_loop();
        }
    }

    /// The leaf for `target`, with its lower bound. O(log n).
    #[inline]
    pub fn locate(&self, target: DescentTarget<C::Key<'_>>) -> Result<DescentEnd> {
        let heap = self.heap();
        loop {
            if let Some((place, ())) = self.try_locate(&heap, target, &|_, _| ())? {
                return Ok(place);
            }
            spin_loop();
        }
    }

    /// One attempt; `None` if a node changed meanwhile.
    #[inline(always)]
    fn try_locate<T>(
        &self,
        heap: &HeapGuard<'_>,
        target: DescentTarget<C::Key<'_>>,
        touch: &impl Fn(u32, &[AtomicU32]) -> T,
    ) -> Result<Option<(DescentEnd, T)>> {
        let root = self.root.load(Ordering::Acquire);
        let (mut index, mut level) = unpack(root);
        let mut place = DescentEnd {
            leaf: index,
            low: None,
        };
        if level == 0 {
            let touched = touch(index, &[]);
            return Ok((self.root.load(Ordering::Acquire) == root).then_some((place, touched)));
        }
        let mut node = self.nodes.get(index);
        let mut version = node.stable_version();
        if self.root.load(Ordering::Acquire) != root {
            return Ok(None);
        }
        loop {
            let position = match self.position(heap, node, index, target) {
                Ok(position) => position,
                // A node that seems damaged may just be changing.
                Err(_) if !node.is_still(version) => return Ok(None),
                Err(error) => return Err(error),
            };
            if position > 0 {
                place.low = Some(self.load_separator(node, index, position - 1));
            }
            index = node.child(position);
            level -= 1;
            if level == 0 {
                place.leaf = index;
                let following = node
                    .children
                    .get(position + 1..=node.separators())
                    .unwrap_or_default();
                let touched = touch(index, following);
                return Ok(if node.is_still(version) {
                    Some((place, touched))
                } else {
                    None
                });
            }
            // A node that was freed and reused on a lower level may have leaves for children.
            let child = self.nodes.peek(index);
            kernels::prefetch_lines(child);
            let child_version = child.stable_version();
            // Validated only now: if the node had changed before the child's version was taken, the
            // child could be the wrong one.
            if !node.is_still(version) {
                return Ok(None);
            }
            node = child;
            version = child_version;
        }
    }

    #[inline(always)]
    fn load_separator(&self, node: &InnerNode, index: u32, position: usize) -> Separator {
        let cell = match &self.tails {
            Some(tails) => &tails.get(index).tails[position],
            None => &node.keys[position],
        };
        Separator(cell.load(Ordering::Relaxed))
    }

    /// The child to follow.
    #[inline(always)]
    fn position(
        &self,
        heap: &HeapGuard<'_>,
        node: &InnerNode,
        index: u32,
        target: DescentTarget<C::Key<'_>>,
    ) -> Result<usize> {
        let count = node.separators();
        let (key, wanted) = match target {
            DescentTarget::At(key) if !C::TIES => {
                return Ok(kernels::rank_le(&node.keys, count, C::word(key)));
            }
            DescentTarget::Below(key) if !C::TIES => {
                return Ok(kernels::rank_lt(&node.keys, count, C::word(key)));
            }
            DescentTarget::Last => return Ok(count),
            DescentTarget::At(key) => (key, Compare::Less),
            DescentTarget::Below(key) => (key, Compare::Equal),
        };
        let bytes = C::tie_bytes(key);
        let prefix_length = node.prefix_length();
        if prefix_length > 0 {
            let shared_word = |index| node.shared_word(index);
            match compare_beginning(bytes, prefix_length, shared_word) {
                Compare::Less => return Ok(0),
                Compare::Equal => {}
                Compare::Greater => return Ok(count),
            }
        }
        // Separators with equal words are told apart by their tails.
        let word = word_behind(bytes, prefix_length);
        let mut low = kernels::rank_lt(&node.keys, count, word);
        let mut high = kernels::rank_le(&node.keys, count, word).max(low);
        while low < high {
            let middle = usize::midpoint(low, high);
            let separator = self.load_separator(node, index, middle);
            // Stops at the first separator above the key, or not below it.
            if Self::compare_tail(heap, key, separator.0)? <= wanted {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }

    /// The leaves of up to [`GROUP`] keys, level by level for all, so that their cache misses
    /// overlap. If a key gets leaf 0, the caller must descend for it alone.
    #[inline]
    pub fn descend_many(&self, keys: &[C::Key<'_>], leaves: &mut [u32]) -> Result<()> {
        let heap = self.heap();
        let root = self.root.load(Ordering::Acquire);
        let (index, level) = unpack(root);
        leaves.fill(index);
        if level == 0 {
            return Ok(());
        }
        let mut versions = [self.nodes.get(index).stable_version(); GROUP];
        if self.root.load(Ordering::Acquire) != root {
            leaves.fill(0);
            return Ok(());
        }
        for level in (0..level).rev() {
            for ((key, leaf), version) in keys.iter().zip(leaves.iter_mut()).zip(&mut versions) {
                if *leaf == 0 {
                    continue;
                }
                let node = self.nodes.get(*leaf);
                let child = match self.position(&heap, node, *leaf, DescentTarget::At(*key)) {
                    Ok(position) => node.child(position),
                    Err(_) => 0,
                };
                if level == 0 || child == 0 {
                    *leaf = if node.is_still(*version) { child } else { 0 };
                    continue;
                }
                // Loads only the child's version; its other lines are being prefetched.
                let child_node = self.nodes.peek(child);
                kernels::prefetch_lines(child_node);
                let child_version = child_node.stable_version();
                *leaf = if node.is_still(*version) { child } else { 0 };
                *version = child_version;
            }
        }
        Ok(())
    }
}
