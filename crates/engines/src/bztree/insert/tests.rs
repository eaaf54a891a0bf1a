use super::*;
use crate::bztree::layout::ENTRIES_MAX;
use crate::bztree::testing::{leaf_of, tree};
use crate::index::Index;

/// A damaged leaf: its status counts one entry fewer than there are, or the metadata of its
/// first free entry is not empty.
#[test]
fn an_insert_refuses_an_entry_that_is_in_use_and_was_never_reserved() {
    let (pool, tree) = tree(ENTRIES_MAX);
    let key = [1; 8];
    assert!(tree.insert(&key, &key).unwrap());
    let guard = pool.pin();
    let leaf = leaf_of(&tree, &guard, key);
    let refuse = || {
        let refused = tree.insert(&[2; 8], &[2; 8]).unwrap_err().to_string();
        assert!(
            refused.contains(USED) && tree.get(&[2; 8]).unwrap().is_none(),
            "{refused}"
        );
        assert_eq!(tree.get(&key).unwrap().as_deref(), Some(&key[..]));
    };
    let status = &leaf.head[LEAF_STATUS];
    let whole = status.load(&guard);
    status.store(
        &guard,
        LeafStatus::of_sorted(0, LeafStatus(whole).capacity()).0,
    );
    (0..2).for_each(|_| refuse());
    status.store(&guard, whole);
    for (entry, bit) in [(1, 1), (2, 2), (3, 60)] {
        leaf.entry(&guard, entry).unwrap()[META].store(&guard, 1 << bit);
        assert!(!tree.check().unwrap().is_empty());
        refuse();
    }
    assert!(tree.check().unwrap().is_empty(), "each of them is ended");
    assert!(tree.insert(&[2; 8], &[2; 8]).unwrap());
}
