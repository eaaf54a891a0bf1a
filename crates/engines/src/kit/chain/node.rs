//! One inner node.
//!
//! ```text
//!   0  keys      32 words: those of the separators, ascending; the last is never used
//! 256  children  32 indices of 4 bytes
//! 384  version   bit 0: being changed; the rest counts changes
//! 392  counts    bits 0..32 separators, children are one more | 32..64 bytes of the prefix
//! 400  prefix    6 words: some bytes with which all separators begin, for codecs whose first words tie
//! ```
//!
//! The words of the separators are those behind the prefix ([`SharedPrefix`]). A new node has no prefix
//! if the first words of its separators differ.

use medium::sync::{AtomicU32, AtomicU64, Ordering, fence, spin_loop};
use medium::volatile;

use super::Separator;
use crate::kit::shared_prefix::{SHARED_BYTES_MAX, SHARED_WORDS, SharedPrefix};

/// The most children of a node.
#[cfg(not(loom))]
pub const CHILDREN_MAX: usize = 32;
/// A node small enough for model checking.
#[cfg(loom)]
pub const CHILDREN_MAX: usize = 4;

volatile! {
    /// Separators and children, with a version for optimistic readers.
    pub(super) struct InnerNode {
        pub(super) keys: [AtomicU64; CHILDREN_MAX],
        pub(super) children: [AtomicU32; CHILDREN_MAX],
        version: AtomicU64,
        counts: AtomicU64,
        prefix: [AtomicU64; SHARED_WORDS],
    }
}

volatile! {
    /// The tails of one node's separators.
    pub(super) struct Tails {
        pub(super) tails: [AtomicU64; CHILDREN_MAX],
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(std::mem::offset_of!(InnerNode, keys) == 0);
    assert!(std::mem::offset_of!(InnerNode, children) == 256);
    assert!(std::mem::offset_of!(InnerNode, version) == 384);
    assert!(std::mem::offset_of!(InnerNode, prefix) == 400);
    assert!(size_of::<InnerNode>() == 448);
};

const CHANGING: u64 = 1;
const PREFIX_SHIFT: u32 = 32;

impl InnerNode {
    /// Waits until no thread changes the node, and returns the version.
    #[inline(always)]
    pub(super) fn stable_version(&self) -> u64 {
        loop {
            // ORDER: pairs with the release in `unlock`: later loads see that change or a newer
            // one.
            let version = self.version.load(Ordering::Acquire);
            if version & CHANGING == 0 {
                return version;
            }
            spin_loop();
        }
    }

    /// Whether nothing was changed since `version` was taken.
    #[inline(always)]
    pub(super) fn is_still(&self, version: u64) -> bool {
        // ORDER: pairs with the fence in `lock`: if an earlier load saw a change, this load sees
        // the new version.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// The number of separators; never more than a node has room for, even if it is read during a
    /// change.
    #[inline(always)]
    pub(super) fn separators(&self) -> usize {
        (self.counts.load(Ordering::Relaxed) as u32 as usize).min(CHILDREN_MAX - 1)
    }

    /// The length of the prefix; never more than a node has room for, even if it is read during a
    /// change.
    #[inline(always)]
    pub(super) fn prefix_length(&self) -> usize {
        ((self.counts.load(Ordering::Relaxed) >> PREFIX_SHIFT) as usize).min(SHARED_BYTES_MAX)
    }

    /// One word of the prefix.
    #[inline(always)]
    pub(super) fn shared_word(&self, index: usize) -> u64 {
        self.prefix[index].load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn child(&self, position: usize) -> u32 {
        self.children[position].load(Ordering::Relaxed)
    }

    /// Begins a change; changes are serialised by the caller. Idempotent.
    pub(super) fn lock(&self) {
        // No other thread changes the version, so a load and a store would do. But `loom` misses the
        // races of such a store with earlier loads of other threads.
        self.version.fetch_or(CHANGING, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Ends a change.
    pub(super) fn unlock(&self) {
        let version = self.version.fetch_or(CHANGING, Ordering::Relaxed);
        self.version
            .store((version | CHANGING) + 1, Ordering::Release);
    }
}

/// A separator of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeSeparator {
    /// The word of its key behind the node's prefix. In a tree whose first words tie it means nothing
    /// before the image has found its words.
    pub(super) word: u64,
    pub(super) separator: Separator,
}

/// A node's content, to be changed.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeImage {
    pub(super) prefix: SharedPrefix,
    pub(super) separators: Vec<NodeSeparator>,
    pub(super) children: Vec<u32>,
}

impl NodeImage {
    /// The content of a node that no other thread changes.
    pub(super) fn of(node: &InnerNode, tails: Option<&Tails>) -> Self {
        let count = node.separators();
        let separator = |index: usize| {
            let word = node.keys[index].load(Ordering::Relaxed);
            NodeSeparator {
                word,
                separator: match tails {
                    Some(tails) => Separator(tails.tails[index].load(Ordering::Relaxed)),
                    None => Separator(word),
                },
            }
        };
        let prefix = match tails {
            Some(_) => SharedPrefix::from_words(
                node.prefix_length(),
                std::array::from_fn(|index| node.shared_word(index)),
            ),
            None => SharedPrefix::default(),
        };
        Self {
            prefix,
            separators: (0..count).map(separator).collect(),
            children: (0..=count).map(|index| node.child(index)).collect(),
        }
    }

    /// Stores the content into a node that is locked, or not reachable yet.
    pub(super) fn store(&self, node: &InnerNode, tails: Option<&Tails>) {
        debug_assert!(
            self.children.len() == self.separators.len() + 1 && self.children.len() <= CHILDREN_MAX
        );
        for (index, NodeSeparator { word, separator }) in self.separators.iter().enumerate() {
            node.keys[index].store(*word, Ordering::Relaxed);
            if let Some(tails) = tails {
                tails.tails[index].store(separator.0, Ordering::Relaxed);
            }
        }
        if tails.is_some() {
            for (cell, word) in node.prefix.iter().zip(self.prefix.words()) {
                cell.store(word, Ordering::Relaxed);
            }
        }
        for (cell, child) in node.children.iter().zip(&self.children) {
            cell.store(*child, Ordering::Relaxed);
        }
        let separators = self.separators.len() as u64;
        let prefix_length = self.prefix.length() as u64;
        node.counts.store(
            separators | prefix_length << PREFIX_SHIFT,
            Ordering::Relaxed,
        );
    }

    /// Splits off the upper half; returns the separator between the halves, which neither keeps.
    pub(super) fn split(&mut self) -> (Separator, Self) {
        let middle = self.separators.len() / 2;
        let upper = Self {
            prefix: self.prefix,
            separators: self.separators.split_off(middle + 1),
            children: self.children.split_off(middle + 1),
        };
        let between = self.separators.pop().expect("a full node");
        (between.separator, upper)
    }
}
