//! Making and opening a tree.
//!
//! 1. PMwCAS rolls operations that a crash cut off forward or back. The tree is then in the state
//!    after a prefix of its operations.
//! 2. If the pool asks for it, all allocations that the tree reaches are marked, now or later
//!    (`mark`). The first step takes the same time for every size.

use std::time::Instant;

use medium::Medium;
use medium::sync::{AtomicU64, Ordering};
use pool::{NewTree, Pool, ROOT_WORDS, TreeRoot};

use super::image::{LeafSpace, Spares};
use super::layout::{Anchor, Pointer, leaf_bytes};
use super::reuse::Outgoing;
use super::{BzTree, BzTreeOptions, NodeSizes, StructureCounters};
use crate::Result;
use crate::index::Codec;
use crate::pmwcas::Pmwcas;

/// Root word 0: the offset of the anchor.
const ROOT_ANCHOR: usize = 0;
/// Root word 2: slots of PMwCAS. The others are those of `sizes`.
const ROOT_SLOTS: usize = 2;

const ANCHOR_BYTES: u64 = size_of::<Anchor>() as u64;

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// Makes an empty tree and enters it in the pool's root table. Durable when this returns.
    ///
    /// # Errors
    /// [`crate::ErrorKind::NodeSize`]: nodes cannot be of this size.
    pub fn create<'t>(
        pool: &Pool<M>,
        new: impl Into<NewTree<'t>>,
        options: BzTreeOptions,
    ) -> Result<Self> {
        let new = new.into();
        let sizes = options.nodes.unwrap_or_default().validated()?;
        let slots = options.operations_max.clamp(1, Pmwcas::SLOTS_MAX);
        let guard = pool.pin();
        let anchor = guard.allocate_lines(ANCHOR_BYTES as usize + Pmwcas::bytes(slots))?;
        let capacity = sizes.leaf_entries;
        let leaf = guard
            .allocate_lines(leaf_bytes(capacity))
            .inspect_err(|_| guard.free(anchor))?;
        let enter = || -> Result<TreeRoot> {
            Self::write_leaf(
                &guard,
                LeafSpace {
                    offset: leaf,
                    capacity,
                },
                &[],
            )?;
            let node = guard.node::<Anchor>(anchor)?;
            node.root.store(&guard, Pointer::leaf(leaf).0);
            guard.flush(node);
            Pmwcas::format(&guard, anchor + ANCHOR_BYTES, slots)?;
            // PERSIST: leaf, anchor and descriptors are ordered before the root that leads to them;
            // if this is lost, there is no tree yet. The fences of `create_tree` are another
            // guard's.
            guard.fence();
            let mut words = [0; ROOT_WORDS];
            words[ROOT_ANCHOR] = anchor;
            words[ROOT_SLOTS] = slots as u64;
            sizes.enter(&mut words);
            pool.create_tree(new, Self::ENGINE.0, C::ID, &words)
        };
        let root = enter().inspect_err(|_| {
            guard.free(leaf);
            guard.free(anchor);
        })?;
        Self::start(pool, &root, sizes, options.patience, false)
    }

    /// Opens a tree: finishes operations that a crash cut off. If the pool asks for a mark, marks
    /// the allocations that the tree reaches, unless the options leave that for later. O(1), or
    /// O(n) with the mark.
    ///
    /// # Errors
    /// [`ErrorKind::TreeMismatch`](crate::ErrorKind::TreeMismatch): it is another engine's, of
    /// another codec, or with nodes of other sizes;
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) names a damaged descriptor, or other
    /// damage.
    pub fn open(pool: &Pool<M>, root: &TreeRoot, options: BzTreeOptions) -> Result<Self> {
        let crashed = pool.needs_mark();
        let start = Instant::now();
        let sizes = options.nodes.unwrap_or_default();
        let nodes = [NodeSizes::of_root(root), sizes];
        root.demand(Self::ENGINE.0, C::ID, &nodes.map(|nodes| nodes.to_string()))?;
        sizes.validated()?;
        let mut tree = Self::start(pool, root, sizes, options.patience, crashed)?;
        if crashed && !options.mark_later {
            tree.mark_reached(&|| true)?;
        }
        tree.recovery_ns = start.elapsed().as_nanos() as u64;
        Ok(tree)
    }

    fn start(
        pool: &Pool<M>,
        root: &TreeRoot,
        sizes: NodeSizes,
        patience: u32,
        crashed: bool,
    ) -> Result<Self> {
        let anchor = root.words[ROOT_ANCHOR];
        let slots = root.words[ROOT_SLOTS] as usize;
        let guard = pool.pin();
        let pmwcas = Pmwcas::open(&guard, anchor + ANCHOR_BYTES, slots)?;
        Ok(Self::assembled(
            pool, pmwcas, anchor, sizes, patience, crashed,
        ))
    }

    /// A tree to be read without recovery, even if descriptors are damaged. It must not be changed,
    /// and its drop finishes nothing.
    pub(super) fn unrecovered(pool: &Pool<M>, root: &TreeRoot) -> Self {
        let anchor = root.words[ROOT_ANCHOR];
        let slots = root.words[ROOT_SLOTS] as usize;
        let pmwcas = Pmwcas::unrecovered::<M>(anchor.saturating_add(ANCHOR_BYTES), slots);
        let tree = Self::assembled(pool, pmwcas, anchor, NodeSizes::default(), 0, true);
        tree.destroyed.store(1, Ordering::Release);
        tree
    }

    fn assembled(
        pool: &Pool<M>,
        pmwcas: Pmwcas,
        anchor: u64,
        sizes: NodeSizes,
        patience: u32,
        crashed: bool,
    ) -> Self {
        Self {
            pool: pool.clone(),
            pmwcas,
            anchor,
            sizes,
            rooms: sizes.rooms(),
            counters: StructureCounters::default(),
            spares: Spares::default(),
            outgoing: Outgoing::default(),
            patience,
            destroyed: AtomicU64::new(0),
            recovery_ns: 0,
            recovered_from_crash: crashed,
            codec: std::marker::PhantomData,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
