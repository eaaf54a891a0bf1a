//! Optimistic lock coupling under every interleaving and every weak ordering. See `medium::sync`
//! for how to run it.

use loom::thread;
use medium::sync::model;

use super::node::{NodeImage, NodeSeparator};
use super::{InnerTree, Separator};
use crate::index::WordCodec;
use std::sync::Arc;

type Tree = InnerTree<WordCodec>;

fn separator(word: u64) -> Separator {
    Separator(word)
}

/// A tree whose leaf `i` begins at key `10 * i`.
fn tree(leaves: u32) -> Arc<Tree> {
    let tree = Tree::new(0).unwrap();
    let leaves: Vec<_> = (0..leaves)
        .map(|leaf| (separator(10 * u64::from(leaf)), leaf))
        .collect();
    tree.build(&leaves).unwrap();
    Arc::new(tree)
}

#[test]
fn a_descent_beside_an_insert_ends_at_the_old_leaf_or_the_new_one() {
    model(|| {
        let tree = tree(3);
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || tree.structure().insert(30, separator(30), 3).unwrap())
        };
        let found = tree.descend(35).unwrap();
        assert!(found == 2 || found == 3, "{found}");
        writer.join().unwrap();
        assert_eq!(tree.descend(35).unwrap(), 3);
    });
}

#[test]
fn a_descent_beside_a_split_of_the_root_is_never_lost() {
    model(|| {
        // The node is full: a fifth child splits it.
        let tree = tree(4);
        assert_eq!(tree.height(), 1);
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || tree.structure().insert(40, separator(40), 4).unwrap())
        };
        assert_eq!(tree.descend(35).unwrap(), 3);
        writer.join().unwrap();
        assert_eq!((tree.height(), tree.descend(45).unwrap()), (2, 4));
    });
}

#[test]
fn a_descent_beside_a_removal_ends_at_the_leaf_or_the_one_before() {
    model(|| {
        let tree = tree(3);
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                let mut structure = tree.structure();
                let neighbours = structure.neighbours(20).unwrap().unwrap();
                assert_eq!(neighbours.right, 2);
                assert_eq!(structure.remove(20).unwrap(), separator(20));
            })
        };
        let found = tree.descend(25).unwrap();
        assert!(found == 1 || found == 2, "{found}");
        assert_eq!(tree.descend(5).unwrap(), 0);
        writer.join().unwrap();
        assert_eq!(tree.descend(25).unwrap(), 1);
    });
}

/// The leaf is the first child of its parent, which is the first child of its own: the separator two
/// levels above the parent rises. A reader that has passed that separator must not go on to the
/// second child, whose keys begin above its key.
#[test]
fn a_descent_beside_the_removal_of_a_first_child_never_ends_right_of_the_key() {
    model(|| {
        let tree = tree(17);
        assert_eq!(tree.height(), 3);
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                assert_eq!(tree.structure().remove(60).unwrap(), separator(60));
            })
        };
        let found = tree.descend(65).unwrap();
        assert!(found == 5 || found == 6, "{found}");
        writer.join().unwrap();
        assert_eq!(tree.descend(65).unwrap(), 5);
        assert_eq!(tree.descend(70).unwrap(), 7);
    });
}

/// A reader that is not pinned may read a node that is retired and reused meanwhile.
#[test]
fn a_reader_never_takes_a_node_for_what_it_was_in_another_life() {
    model(|| {
        let tree = tree(1);
        let image = |first: u32| NodeImage {
            separators: vec![NodeSeparator {
                word: 10,
                separator: separator(10),
            }],
            children: vec![first, first + 1],
            ..NodeImage::default()
        };
        let index = tree.new_node(&image(1)).unwrap();
        let version = tree.nodes.get(index).stable_version();
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                tree.nodes.free(index);
                assert_eq!(tree.new_node(&image(3)).unwrap(), index);
            })
        };
        let node = tree.nodes.get(index);
        let child = node.child(node.separators());
        assert!(
            child == 2 || !node.is_still(version),
            "{child} is of another life"
        );
        writer.join().unwrap();
    });
}
