use std::ops::Bound;

use engines::index::{WordCodec, WordIndex};
use medium::Dax;
use pool::PoolOptions;

use super::*;

/// The error after the last allowed attempt says that nothing was changed, and not that the tree is
/// corrupt.
#[test]
fn siblings_that_never_end_are_contention() {
    let pool = Pool::open(Dax::plain(64 << 20).unwrap(), PoolOptions::default()).unwrap();
    let mut tree =
        FastFair::<Dax, WordCodec>::create(&pool, "t".into(), &Opening::default()).unwrap();
    for key in 1..=3 {
        assert!(WordIndex::write_durably(&tree, key, Some(key), Condition::Absent).unwrap());
    }
    let guard = pool.pin();
    let leaf = tree.root(&guard).unwrap();
    leaf.publish_sibling(&guard, leaf.offset);
    let is_contended = |error: &Error, node: u64| {
        let is_kind = matches!(error.kind(), ErrorKind::Contended { .. });
        is_kind && error.offset() == Some(node)
    };
    let found = WordIndex::get(&tree, 9).unwrap_err();
    assert!(is_contended(&found, leaf.offset), "{found}");
    let bounds = Bounds {
        lower: Bound::Included(9_u64.to_be_bytes().to_vec()),
        ..Bounds::all()
    };
    let mut range = tree.range(bounds, Direction::Forward).unwrap();
    let passed = range
        .next_into(&mut Vec::new(), &mut Vec::new())
        .unwrap_err();
    assert!(is_contended(&passed, leaf.offset), "{passed}");
    drop(range);
    // A sibling that no parent leads to is entered in one, again and again.
    tree.is_unfinished = true;
    let written = WordIndex::write_durably(&tree, 9, Some(9), Condition::Absent).unwrap_err();
    assert!(is_contended(&written, tree.root), "{written}");
}
