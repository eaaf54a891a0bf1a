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
    let separator = tree.separator(b"one for all", b"one for all").unwrap();
    let leaves: Vec<_> = (1..=(most + 1) * CHILDREN_BUILT as u32)
        .map(|number| (separator, number))
        .collect();
    for _ in 0..2 {
        assert!(tree.build(&leaves).is_err());
        assert_eq!(tree.nodes.bytes_used(), 0);
    }
    tree.build(&leaves[..CHILDREN_BUILT]).unwrap();
    assert_eq!(tree.height(), 1);
}

fn separator(word: u64) -> Separator {
    Separator(word)
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

/// Keys as people have them, ascending.
fn keys_with_shared_beginnings() -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    for number in 0..700_u32 {
        // Some differ in their first byte, many behind 14 bytes, or behind more than a node leaves out.
        keys.push((number * 11 % 251).to_be_bytes()[3..].to_vec());
        keys.push(format!("tenant42/user/{:08x}", number.wrapping_mul(0x9e37_79b1)).into_bytes());
        keys.push(format!("tenant{}/invoice/{}", number % 8, number).into_bytes());
        keys.push(format!("{}{number}", "deep/".repeat(12)).into_bytes());
        // They differ only in length.
        keys.push(vec![0; number as usize % 30]);
        keys.push([b"tenant42/user/", &vec![0; number as usize % 60][..]].concat());
    }
    keys.sort();
    keys.dedup();
    // The first leaf has no lower bound.
    keys.retain(|key| !key.is_empty());
    keys
}

/// A removal and an entry of each leaf, in an order that visits all parts of the tree.
#[test]
fn descents_part_keys_that_share_their_beginnings() {
    let keys = keys_with_shared_beginnings();
    let tree = InnerTree::<RecordCodec>::new(0).unwrap();
    let mut leaves = BTreeMap::from([(Vec::new(), 0)]);
    let assert_leads = |leaves: &BTreeMap<Vec<u8>, u32>, probe: &[u8]| {
        let (_, leaf) = leaves.range(..=probe.to_vec()).next_back().unwrap();
        assert_eq!(tree.descend(probe).unwrap(), *leaf, "{probe:?}");
        let below = leaves.range(..probe.to_vec()).next_back();
        let (_, before) = below.unwrap_or((&Vec::new(), &0));
        let place = tree
            .locate(super::super::DescentTarget::Below(probe))
            .unwrap();
        assert_eq!(place.leaf, *before, "below {probe:?}");
    };
    let assert_all = |leaves: &BTreeMap<Vec<u8>, u32>| {
        for key in &keys {
            assert_leads(leaves, key);
            assert_leads(leaves, &key[..key.len() / 2]);
            assert_leads(leaves, &[&key[..], b"\0"].concat());
            assert_leads(leaves, &[&key[..key.len() - 1], b"~"].concat());
        }
    };
    let mut order: Vec<_> = (0..keys.len()).collect();
    order.sort_by_key(|position| (*position as u32).wrapping_mul(0x9e37_79b1));
    for position in &order {
        let key = &keys[*position];
        let separator = tree.separator(key, key).unwrap();
        let leaf = 1 + *position as u32;
        tree.structure().insert(key, separator, leaf).unwrap();
        leaves.insert(key.clone(), leaf);
    }
    assert!(tree.height() > 1);
    assert_all(&leaves);
    let built = InnerTree::<RecordCodec>::new(0).unwrap();
    let bounds: Vec<_> = leaves
        .iter()
        .map(|(key, leaf)| (built.separator(key, key).unwrap(), *leaf))
        .collect();
    built.build(&bounds).unwrap();
    for key in &keys {
        assert_eq!(built.descend(key).unwrap(), leaves[key]);
    }
    for (step, position) in order.iter().rev().enumerate() {
        let key = &keys[*position];
        let removed = tree.structure().remove(key).unwrap();
        tree.retire_separator(removed);
        leaves.remove(key);
        if step % 401 == 0 || leaves.len() == 40 {
            assert_all(&leaves);
        }
    }
    assert_eq!(tree.height(), 0);
}

/// A key of one tenant, by its number.
fn key_of_one_tenant(number: u32) -> Vec<u8> {
    format!("tenant42/user/{:08x}", number.wrapping_mul(0x9e37_79b1)).into_bytes()
}

/// A tree of one node, whose leaf `i` begins at the key of one tenant with the number `i`.
fn tree_of_one_tenant(separators: u32) -> InnerTree<RecordCodec> {
    let tree = InnerTree::<RecordCodec>::new(0).unwrap();
    for number in 1..=separators {
        let key = key_of_one_tenant(number);
        let separator = tree.separator(&key, &key).unwrap();
        tree.structure().insert(&key, separator, number).unwrap();
    }
    assert_eq!(tree.height(), 1);
    tree
}

fn root_image(tree: &InnerTree<RecordCodec>) -> NodeImage {
    let (root, _) = unpack(tree.root.load(Ordering::Relaxed));
    tree.image(root)
}

/// A node parts the keys of one tenant by their words alone: the prefix is made for that.
#[test]
fn a_node_of_keys_with_one_beginning_has_no_two_equal_words() {
    let tree = tree_of_one_tenant(CHILDREN_MAX as u32 - 1);
    let image = root_image(&tree);
    assert_eq!(image.separators.len(), CHILDREN_MAX - 1);
    assert!(image.prefix.length() > 0);
    assert!(
        image
            .separators
            .is_sorted_by(|one, next| one.word < next.word)
    );
}

/// A separator that does not begin as the others of its node do takes the prefix away, also if the
/// words behind the prefix seem to order it.
#[test]
fn a_separator_without_the_prefix_of_its_node_is_found_where_it_belongs() {
    const OTHERS: u32 = 20;
    const OUTSIDER: u32 = 99;
    for outsider in [
        &b"a"[..],
        b"abcdefghij7~~~~~~",
        b"tenant4",
        b"tenant42",
        b"tenant41/user/7fffffff",
        b"tenant43/user/7fffffff",
        b"z",
        b"zzzzzzzzzz7\0\0\0\0\0\0",
    ] {
        let tree = tree_of_one_tenant(OTHERS);
        assert!(root_image(&tree).prefix.length() > 0);
        let separator = tree.separator(outsider, outsider).unwrap();
        tree.structure()
            .insert(outsider, separator, OUTSIDER)
            .unwrap();
        let mut leaves: BTreeMap<_, _> = (1..=OTHERS)
            .map(|number| (key_of_one_tenant(number), number))
            .collect();
        leaves.insert(outsider.to_vec(), OUTSIDER);
        for (key, leaf) in &leaves {
            assert_eq!(tree.descend(key).unwrap(), *leaf, "{outsider:?} {key:?}");
        }
    }
}
