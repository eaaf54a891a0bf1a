use medium::Dax;

use super::*;
use crate::bztree::find::{DescentGoal, LEVELS_MAX};
use crate::bztree::testing::{TestTree, tree, tree_of};
use crate::index::{Index, RecordCodec, WordCodec};

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

/// Keys that begin with the same eight bytes.
fn tied_key(number: u32) -> Vec<u8> {
    format!("one prefix {number:04}").into_bytes()
}

/// A copy of a leaf is sorted for good. A damaged key would give it a wrong order, which nothing
/// would notice once the copy is made.
#[test]
fn a_leaf_is_not_sorted_by_a_damaged_key() {
    let (pool, tree) = tree_of::<RecordCodec>(8);
    pool.verify_reads();
    let guard = pool.pin();
    let numbers = [40, 10, 50, 20, 60, 30];
    for number in numbers {
        assert!(tree.insert(&tied_key(number), b"value").unwrap());
    }
    let root = tree.root_pointer(&guard).unwrap().offset();
    let leaf = Leaf::at(&guard, root).unwrap();
    let entries = tree.visible(&guard, leaf).unwrap();
    let record = entries[5].1[1] & ((1 << 48) - 1);
    // With the third word, the second of the key, it sorts before all others.
    let cell = &guard.words(record, 3).unwrap()[2];
    let right = cell.load(&guard);
    cell.store(&guard, right - 1);
    let mut refused = 0;
    for number in 100..110 {
        if let Err(error) = tree.insert(&tied_key(number), b"value") {
            assert!(error.is_corrupt(), "{error}");
            refused += 1;
        }
    }
    assert!(refused > 0, "the leaf is full, and cannot be copied");
    cell.store(&guard, right);
    assert_eq!(tree.check().unwrap(), []);
    for number in numbers {
        assert!(tree.get(&tied_key(number)).unwrap().is_some(), "{number}");
    }
    assert!(tree.insert(&tied_key(110), b"value").unwrap());
    assert_eq!(tree.check().unwrap(), []);
}

/// The separator between two leaves is made of keys of both.
#[test]
fn a_separator_is_not_made_of_a_damaged_key() {
    let (pool, tree) = tree_of::<RecordCodec>(8);
    pool.verify_reads();
    let guard = pool.pin();
    for number in [10, 20] {
        assert!(tree.insert(&tied_key(number), b"value").unwrap());
    }
    let root = tree.root_pointer(&guard).unwrap().offset();
    let entries = tree
        .visible(&guard, Leaf::at(&guard, root).unwrap())
        .unwrap();
    for (damaged, _) in entries.iter().enumerate() {
        let record = entries[damaged].1[1] & ((1 << 48) - 1);
        let cell = &guard.words(record, 3).unwrap()[2];
        let right = cell.load(&guard);
        cell.store(&guard, right ^ 1 << 40);
        let mut new = NewNodes::new(&guard);
        let between =
            BzTree::<Dax, RecordCodec>::separate(&guard, &mut new, entries[0].1, entries[1].1);
        assert!(between.is_err_and(|error| error.is_corrupt()), "{damaged}");
        cell.store(&guard, right);
    }
}
