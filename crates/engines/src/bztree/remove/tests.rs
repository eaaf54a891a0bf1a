use crate::bztree::layout::ENTRIES_MAX;
use crate::bztree::testing::{leaf_of, tree};
use crate::index::Index;

#[test]
fn no_search_goes_to_an_entry_that_was_removed() {
    let (pool, tree) = tree(ENTRIES_MAX);
    let key = [1; 8];
    let guard = pool.pin();
    for removed in 0..3 {
        assert!(tree.insert(&key, &key).unwrap() && tree.remove(&key).unwrap());
        let leaf = leaf_of(&tree, &guard, key);
        assert_eq!(tree.leaf_status(&guard, leaf).unwrap().dead(), removed + 1);
        assert!((0..=removed).all(|entry| leaf.fingerprint(&guard, entry) == 0));
    }
}
