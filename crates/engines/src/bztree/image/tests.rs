use super::*;
use crate::bztree::find::{DescentGoal, LEVELS_MAX};
use crate::bztree::testing::{TestTree, tree};
use crate::index::{Index, WordCodec};

/// A root that is too high is refused when it is written; every lower one can be read.
#[test]
fn a_tree_is_read_however_high_it_can_become() {
    let (pool, tree) = tree(4);
    let key = [1; 8];
    assert!(tree.insert(&key, &key).unwrap());
    let guard = pool.pin();
    let mut child = tree.root_pointer(&guard).unwrap();
    for level in 1..=LEVELS_MAX {
        let offset = guard.allocate_lines(TestTree::INNER_BYTES).unwrap();
        let image = InnerImage {
            level,
            separators: Vec::new(),
            children: vec![child],
        };
        let written = TestTree::write_inner(&guard, offset, &image);
        if level == LEVELS_MAX {
            assert!(written.unwrap_err().to_string().contains("too many levels"));
            continue;
        }
        written.unwrap();
        child = Pointer::inner(offset);
        tree.root(&guard).unwrap().store(&guard, child.0);
        assert!(tree.get(&key).unwrap().is_some(), "level {level}");
        assert_eq!(tree.len().unwrap(), 1);
    }
}

/// An entry that is added to a leaf outside of the tree would be lost.
#[test]
fn a_leaf_that_was_replaced_is_not_thawed() {
    let (pool, tree) = tree(4);
    assert!(tree.insert(&[1; 8], &[1; 8]).unwrap());
    let guard = pool.pin();
    let key = WordCodec::key(&[1; 8]).unwrap();
    let place = || {
        tree.descend_path(&guard, &DescentGoal::Key(key), &mut Seen::default())
            .unwrap()
    };
    let (path, old) = place();
    tree.renew_leaf(&guard, &path, old).unwrap();
    let (_, new) = place();
    assert_ne!(old, new);
    assert!(tree.thaw(&guard, key, old).unwrap().is_frozen());
    tree.freeze(&guard, TestTree::leaf(&guard, new).unwrap())
        .unwrap();
    assert!(!tree.thaw(&guard, key, new).unwrap().is_frozen());
}
