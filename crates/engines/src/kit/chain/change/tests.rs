use std::collections::BTreeMap;

use medium::arena::Arena;

use super::*;
use crate::index::{RecordCodec, WordCodec};

#[test]
fn nodes_that_come_to_nothing_are_given_back() {
    let mut tree = InnerTree::<RecordCodec>::new(1).unwrap();
    // An arena of a single step, so that the build runs out of tails.
    tree.tails = Some(Arena::new(1).unwrap());
    let most = (4 << 20) / size_of::<Tails>() as u32;
    let leaf = |number: u32| {
        (
            Separator {
                word: u64::from(number),
                tail: 0,
            },
            number,
        )
    };
    let leaves: Vec<_> = (1..=(most + 1) * CHILDREN_BUILT as u32).map(leaf).collect();
    for _ in 0..2 {
        assert!(tree.build(&leaves).is_err());
        assert_eq!(tree.nodes.bytes_used(), 0);
    }
    tree.build(&leaves[..CHILDREN_BUILT]).unwrap();
    assert_eq!(tree.height(), 1);
}

fn separator(word: u64) -> Separator {
    Separator { word, tail: 0 }
}

/// Which leaf the inner nodes lead to for the lower bound of each leaf, and just below it.
fn assert_leads(tree: &InnerTree<WordCodec>, leaves: &BTreeMap<u64, u32>) {
    let structure = tree.structure();
    let mut before = None;
    for (bound, leaf) in leaves {
        assert_eq!(tree.descend(*bound).unwrap(), *leaf);
        assert!(structure.leads_to(*bound, *leaf).unwrap() || leaves.len() == 1);
        if let Some(before) = before {
            assert_eq!(tree.descend(*bound - 1).unwrap(), before);
        }
        before = Some(*leaf);
    }
}

/// A merge once removed a leaf only if it was not the first child of its parent, and held the lock
/// of the inner nodes from choosing the leaf on. Now the leaf may have become a first child.
#[test]
fn leaves_removed_in_any_order_leave_the_others_reachable() {
    const LEAVES: u32 = 5000;
    // Coprime to the number of leaves: each order visits every leaf once.
    for stride in [1, 1237, 3001, 4999] {
        let tree = InnerTree::<WordCodec>::new(0).unwrap();
        let mut leaves: BTreeMap<u64, u32> = (0..LEAVES)
            .map(|leaf| (10 * u64::from(leaf), leaf))
            .collect();
        let bounds: Vec<_> = leaves
            .iter()
            .map(|(bound, leaf)| (separator(*bound), *leaf))
            .collect();
        tree.build(&bounds).unwrap();
        assert!(tree.height() > 2);
        for step in 0..u64::from(LEAVES) {
            let bound = 10 * (step * stride % u64::from(LEAVES));
            // Nothing lies before the first leaf.
            if bound == 0 {
                continue;
            }
            let removed = tree.structure().remove(bound).unwrap();
            assert_eq!(removed, separator(bound));
            leaves.remove(&bound);
            if step % 97 == 0 || leaves.len() < 200 {
                assert_leads(&tree, &leaves);
            }
        }
        assert_eq!(tree.height(), 0);
        assert_eq!(tree.descend(u64::MAX).unwrap(), 0);
    }
}
