//! The starting point of unit tests of several parts.

use medium::Dax;
use pool::{Guard, Pool, PoolOptions};

use super::layout::Leaf;
use super::{BzTree, BzTreeOptions, NodeSizes};
use crate::index::{Codec, WordCodec};
use crate::pmwcas::Seen;

pub(super) type TestTree = BzTree<Dax, WordCodec>;

/// An empty tree of words in memory, whose leaves have room for `leaf_entries` entries.
pub(super) fn tree(leaf_entries: usize) -> (Pool<Dax>, TestTree) {
    tree_of(leaf_entries)
}

/// An empty tree in memory, whose leaves have room for `leaf_entries` entries.
pub(super) fn tree_of<C: Codec>(leaf_entries: usize) -> (Pool<Dax>, BzTree<Dax, C>) {
    let options = PoolOptions {
        close_on_drop: false,
        ..PoolOptions::default()
    };
    let pool = Pool::open(Dax::plain(1 << 24).unwrap(), options).unwrap();
    let nodes = Some(NodeSizes::of_leaf(leaf_entries));
    let tree = BzTree::create(
        &pool,
        "tree",
        BzTreeOptions {
            nodes,
            ..BzTreeOptions::default()
        },
    )
    .unwrap();
    (pool, tree)
}

/// The leaf that covers a key.
pub(super) fn leaf_of<'g>(tree: &TestTree, guard: &'g Guard<'_, Dax>, key: [u8; 8]) -> Leaf<'g> {
    let key = WordCodec::key(&key).unwrap();
    TestTree::leaf(
        guard,
        tree.descend(guard, key, &mut Seen::default()).unwrap(),
    )
    .unwrap()
}
