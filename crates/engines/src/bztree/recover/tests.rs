use medium::Dax;
use pool::PoolOptions;

use super::*;
use crate::engine::Build;
use crate::index::{Condition, WordCodec, WordIndex};
use crate::pmwcas::plant;

type TestTree = BzTree<Dax, WordCodec>;

fn small() -> BzTreeOptions {
    BzTreeOptions {
        nodes: Some(NodeSizes::of_leaf(4)),
        ..BzTreeOptions::default()
    }
}

#[test]
fn a_tree_with_a_damaged_descriptor_is_refused_by_its_name() {
    let options = PoolOptions {
        close_on_drop: false,
        ..PoolOptions::default()
    };
    let pool = Pool::open(Dax::plain(1 << 20).unwrap(), options).unwrap();
    let tree = TestTree::create(&pool, "tree", small()).unwrap();
    assert!(WordIndex::write_durably(&tree, 1, Some(2), Condition::Absent).unwrap());
    drop(tree);
    let root = pool.trees().unwrap().remove(0);
    let guard = pool.pin();
    let anchor = root.words[ROOT_ANCHOR];
    let place = anchor + ANCHOR_BYTES;
    let before = guard
        .words(anchor, 2)
        .unwrap()
        .iter()
        .map(|word| word.load(&guard))
        .collect::<Vec<_>>();
    let end = pool.stat().file_bytes;
    for (offsets, what) in [
        (&[anchor, end][..], "outside of the pool"),
        (&[anchor, 1 << 50], "outside of the pool"),
        (&[anchor, anchor], "overlap"),
        (&[anchor + 8, anchor], "overlap"),
        (&[], "without words"),
    ] {
        plant(&guard, place, offsets);
        let error = TestTree::open(&pool, &root, small())
            .err()
            .expect(what)
            .to_string();
        assert!(
            error.contains("PMwCAS descriptor 1: ") && error.contains(what),
            "{error}"
        );
    }
    // A damaged descriptor is refused, and the words that it names are not touched.
    assert!(
        guard
            .words(anchor, 2)
            .unwrap()
            .iter()
            .zip(before.iter().copied())
            .all(|(word, old)| word.load(&guard) == old)
    );
    // The salvage finds everything except the words that hold the damaged descriptor's name.
    let salvage = || {
        let mut saved = Vec::new();
        let left_out = TestTree::salvage_at(&pool, &root, &mut |key, value| {
            saved.push([key, value].map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap())));
            true
        });
        (saved, left_out.unwrap().unwrap())
    };
    plant(&guard, place, &[anchor, end]);
    assert_eq!(salvage(), (vec![[1, 2]], Vec::new()));
    let cells = guard.words(anchor, 1).unwrap();
    let name = 1 << 63 | 5 << 26 | 1;
    cells[0].store(&guard, name);
    let (saved, left_out) = salvage();
    assert!(saved.is_empty() && left_out.len() == 1, "{left_out:?}");
    assert!(
        left_out[0].what.contains("all of the tree: ") && left_out[0].what.contains("outside"),
        "{left_out:?}"
    );
    cells[0].store(&guard, before[0]);
    let meta = &guard.words(Pointer(before[0]).offset() + 64, 1).unwrap()[0];
    let whole = meta.load(&guard);
    meta.store(&guard, name);
    let (saved, left_out) = salvage();
    assert!(saved.is_empty() && left_out.len() == 1, "{left_out:?}");
    assert!(
        left_out[0].what.contains("an entry: PMwCAS descriptor 1"),
        "{left_out:?}"
    );
    meta.store(&guard, whole);
    plant(&guard, place, &[anchor]);
    let tree = TestTree::open(&pool, &root, small()).unwrap();
    assert_eq!(WordIndex::get(&tree, 1).unwrap(), Some(2));
}
