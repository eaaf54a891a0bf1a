//! How large a tree's nodes are: chosen when it is made, and stored in its root.

use pool::{ROOT_WORDS, TreeRoot};

use super::layout::{CHILDREN_MAX, ENTRIES_MAX, ENTRY_BYTES, leaf_bytes};
use crate::{ErrorKind, Result};

/// Root word 1: the most entries of a leaf.
const ROOT_ENTRIES: usize = 1;
/// Root word 3: free entries of a new leaf.
const ROOT_FREE: usize = 3;
/// Root word 4: the most children of an inner node.
const ROOT_CHILDREN: usize = 4;

/// How large a tree's nodes are. Fixed when the tree is made.
///
/// A leaf takes 64 bytes, and 24 for each entry that it has room for. A new leaf holds sorted
/// entries and some free ones. When it is full it is replaced by a leaf with the same number of
/// free entries, or, if that would be too large, by two leaves. The upper of the two has twice as
/// many free entries, because keys often arrive in ascending order. Fewer free entries mean smaller
/// leaves that are mostly sorted, and that are replaced more often.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct NodeSizes {
    /// The most entries of a leaf: 4 to 56, as 56 fingerprints and the leaf's status fill one line.
    /// Default: 56, which take 1,408 bytes.
    pub leaf_entries: usize,
    /// The fewest free entries of a new leaf: 1 to three quarters of `leaf_entries`. There are more
    /// if the allocation has room for them. Default: 12 of 56, so that the lower half of a split
    /// takes a KiB, and the upper half has the largest size.
    pub free_entries: usize,
    /// The most children of an inner node, which takes a KiB however many it has: 4 to 63. Default:
    /// 63.
    pub inner_children: usize,
}

impl Default for NodeSizes {
    fn default() -> Self {
        Self::of_leaf(ENTRIES_MAX)
    }
}

impl NodeSizes {
    /// Leaves of at most this many entries, with the default's proportion of free ones. Inner nodes
    /// have few children where leaves have less than 16 entries, so that small trees are deep.
    #[must_use]
    pub const fn of_leaf(leaf_entries: usize) -> Self {
        let free_entries = if leaf_entries < 5 {
            1
        } else {
            leaf_entries.saturating_mul(3) / 14
        };
        let inner_children = if leaf_entries < 16 { 5 } else { CHILDREN_MAX };
        Self {
            leaf_entries,
            free_entries,
            inner_children,
        }
    }

    /// The sizes that a root names.
    pub(super) fn of_root(root: &TreeRoot) -> Self {
        let [leaf_entries, free_entries, inner_children] =
            [ROOT_ENTRIES, ROOT_FREE, ROOT_CHILDREN].map(|word| root.words[word] as usize);
        Self {
            leaf_entries,
            free_entries,
            inner_children,
        }
    }

    /// Writes them into a root.
    pub(super) fn enter(self, words: &mut [u64; ROOT_WORDS]) {
        words[ROOT_ENTRIES] = self.leaf_entries as u64;
        words[ROOT_FREE] = self.free_entries as u64;
        words[ROOT_CHILDREN] = self.inner_children as u64;
    }

    /// Refuses sizes that are out of bounds.
    ///
    /// # Errors
    /// [`ErrorKind::NodeSize`] names the size and its bounds.
    pub fn validated(self) -> Result<Self> {
        let free_max = self.leaf_entries.saturating_mul(3) / 4;
        let bounds = [
            ("entries a leaf", self.leaf_entries, 4, ENTRIES_MAX),
            ("free entries of a new leaf", self.free_entries, 1, free_max),
            (
                "children of an inner node",
                self.inner_children,
                4,
                CHILDREN_MAX,
            ),
        ];
        match bounds
            .into_iter()
            .find(|(_, size, least, most)| !(least..=most).contains(&size))
        {
            Some((what, size, least, most)) => Err(ErrorKind::NodeSize {
                what,
                size,
                least,
                most,
            }
            .into()),
            None => Ok(self),
        }
    }

    /// A leaf with more live entries than this is split instead of consolidated.
    pub(super) fn live_max(self) -> usize {
        self.leaf_entries - self.free_entries
    }

    /// A leaf with at most this many live entries is to be merged.
    pub(super) fn live_min(self) -> usize {
        self.leaf_entries / 4
    }

    /// An inner node with at most this many children is to be merged.
    pub(super) fn children_min(self) -> usize {
        (self.inner_children / 4).max(2)
    }

    /// Children that two inner nodes may have together to be merged.
    pub(super) fn children_merged(self) -> usize {
        self.inner_children - self.inner_children / 4
    }

    /// The rooms that leaves can have: for each number of entries, how many fit into the allocation
    /// for them.
    pub(super) fn rooms(self) -> Rooms {
        Rooms(std::array::from_fn(|entries| {
            let bytes = pool::lines_taken(leaf_bytes(entries.min(self.leaf_entries)));
            ((bytes - leaf_bytes(0)) / ENTRY_BYTES).min(self.leaf_entries) as u8
        }))
    }
}

/// The rooms that leaves of a tree can have.
#[derive(Debug)]
pub(super) struct Rooms([u8; ENTRIES_MAX + 1]);

impl Rooms {
    /// The room of a leaf that is allocated for `entries` entries, or the largest room if that is
    /// smaller.
    pub(super) fn room(&self, entries: usize) -> usize {
        usize::from(self.0[entries.min(ENTRIES_MAX)])
    }

    /// The rooms for `entries` entries or more, in ascending order.
    pub(super) fn from(&self, entries: usize) -> impl Iterator<Item = usize> {
        let larger = |room: &usize| Some(self.room(*room + 1)).filter(|larger| larger > room);
        std::iter::successors(Some(self.room(entries)), larger)
    }
}

impl std::fmt::Display for NodeSizes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            leaf_entries,
            free_entries,
            inner_children,
        } = self;
        write!(
            formatter,
            "{leaf_entries} entries a leaf, {free_entries} free in a new one, {inner_children} children"
        )
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
