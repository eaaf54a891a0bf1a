use medium::Dax;
use pool::Pool;

use super::*;
use crate::ErrorKind;
use crate::bztree::find::DescentGoal;
use crate::bztree::layout::{
    ENTRIES_MAX, FROZEN, INNER_HEADER, INNER_STATUS, Inner, InnerHeader, LEAF_STATUS,
};
use crate::bztree::testing::{self, TestTree};
use crate::index::{Condition, Index, WordIndex};

fn tree(keys: u64) -> (Pool<Dax>, TestTree) {
    let (pool, tree) = testing::tree(4);
    for key in 1..=keys {
        assert!(WordIndex::write_durably(&tree, 10 * key, Some(key), Condition::Absent).unwrap());
    }
    (pool, tree)
}

fn root<'g>(tree: &TestTree, guard: &'g Guard<'_, Dax>) -> &'g Inner {
    TestTree::inner(guard, tree.root_pointer(guard).unwrap().offset()).unwrap()
}

fn is_corrupt<T>(outcome: &Result<T>) -> bool {
    outcome.as_ref().is_err_and(Error::is_corrupt)
}

/// Each node has the same child five times, so there are 5^9 paths: a walk must not take them
/// all.
#[test]
fn a_tree_that_shares_children_is_damaged_and_not_walked_for_ever() {
    let (pool, tree) = tree(3);
    let guard = pool.pin();
    let mut below = tree.root_pointer(&guard).unwrap();
    for level in 1..=9 {
        let offset = guard.allocate_lines(TestTree::INNER_BYTES).unwrap();
        let inner = TestTree::inner(&guard, offset).unwrap();
        inner
            .keys
            .iter()
            .zip(1_u64..)
            .take(4)
            .for_each(|(cell, key)| cell.store(&guard, 100 * key));
        inner.keys[INNER_HEADER].store(&guard, InnerHeader::new(level, 4).0);
        inner.keys[INNER_STATUS].store(&guard, 0);
        inner.children[..5]
            .iter()
            .for_each(|cell| cell.store(&guard, below.0));
        below = Pointer::inner(offset);
    }
    tree.root(&guard).unwrap().store(&guard, below.0);
    assert!(is_corrupt(&tree.count()), "counted");
    assert!(!tree.verify().unwrap().is_empty());
    assert!(
        is_corrupt(&tree.figures())
            && is_corrupt(&tree.allocations())
            && is_corrupt(&tree.give_back())
    );
}

#[test]
fn a_leaf_that_is_reached_twice_is_reported_and_not_freed_twice() {
    let (pool, tree) = tree(20);
    let guard = pool.pin();
    let mut inner = root(&tree, &guard);
    while TestTree::header(&guard, inner).level() > 1 {
        let child = Pointer(inner.children[0].load(&guard));
        inner = TestTree::inner(&guard, child.offset()).unwrap();
    }
    // The leaf has no entries, so that none of them is out of place.
    let twice = TestTree::leaf(&guard, Pointer(inner.children[0].load(&guard)).offset()).unwrap();
    let entries = twice.entries(&guard, 4).unwrap();
    entries
        .iter()
        .for_each(|cells| cells[META].store(&guard, 0));
    twice.head.iter().for_each(|word| word.store(&guard, 0));
    twice.head[LEAF_STATUS].store(&guard, LeafStatus::of_sorted(0, 4).0);
    assert!(tree.verify().unwrap().is_empty());
    inner.children[1].store(&guard, inner.children[0].load(&guard));
    let violations = tree.verify().unwrap();
    assert!(
        violations
            .iter()
            .any(|violation| violation.what.contains("twice")),
        "{violations:?}"
    );
    assert!(is_corrupt(&tree.give_back()));
    assert_eq!(pool.stat().frees_refused, 0);
}

#[test]
fn a_separator_outside_of_its_nodes_range_is_reported() {
    let (pool, tree) = tree(60);
    let guard = pool.pin();
    let top = root(&tree, &guard);
    assert!(TestTree::header(&guard, top).level() > 1);
    assert!(tree.verify().unwrap().is_empty());
    // The first child's range ends with the first separator of its parent.
    let child = TestTree::inner(&guard, Pointer(top.children[0].load(&guard)).offset()).unwrap();
    let last = TestTree::header(&guard, child).separators() - 1;
    let before = child.keys[last].load(&guard);
    child.keys[last].store(&guard, top.keys[0].load(&guard) + 1);
    expect_violation_at(&tree, guard.offset_of(child));
    child.keys[last].store(&guard, before);
    // The next child's range begins with it.
    let child = TestTree::inner(&guard, Pointer(top.children[1].load(&guard)).offset()).unwrap();
    child.keys[0].store(&guard, top.keys[0].load(&guard));
    expect_violation_at(&tree, guard.offset_of(child));
}

#[test]
fn a_leaf_with_more_entries_than_its_status_counts_is_damage_and_said_to_be_so() {
    let (pool, tree) = testing::tree(ENTRIES_MAX);
    for key in 1..=56 {
        assert!(WordIndex::write_durably(&tree, key, Some(key), Condition::Absent).unwrap());
    }
    let guard = pool.pin();
    let offset = tree.root_pointer(&guard).unwrap().offset();
    let cell = &TestTree::leaf(&guard, offset).unwrap().head[LEAF_STATUS];
    let full = LeafStatus(cell.load(&guard));
    let wrong = (0..8).fold(full, |status, _| status.buried());
    cell.store(&guard, wrong.0);
    let refused = WordIndex::write_durably(&tree, 60, Some(60), Condition::Absent).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("more entries than its status counts"),
        "{refused}"
    );
}

/// A frozen parent stands for one that other threads replace before each attempt to replace the
/// leaf.
#[test]
fn a_write_that_runs_out_of_attempts_is_contended_and_not_corrupt() {
    let (pool, tree) = tree(20);
    let guard = pool.pin();
    let (path, offset) = tree
        .descend_path(&guard, &DescentGoal::Last, &mut Seen::default())
        .unwrap();
    let leaf = TestTree::leaf(&guard, offset).unwrap();
    tree.freeze(&guard, leaf).unwrap();
    let status = &TestTree::inner(&guard, path.last().unwrap().offset)
        .unwrap()
        .keys[INNER_STATUS];
    let before = status.load(&guard);
    status.store(&guard, before | FROZEN);
    let is_contended = |outcome: Result<bool>| {
        outcome.is_err_and(|error| matches!(error.kind(), ErrorKind::Contended { .. }))
    };
    assert!(
        is_contended(WordIndex::write_durably(
            &tree,
            500,
            Some(1),
            Condition::Absent
        )),
        "insert"
    );
    assert!(
        is_contended(WordIndex::write_durably(
            &tree,
            200,
            Some(1),
            Condition::Present
        )),
        "update"
    );
    assert!(
        is_contended(WordIndex::write_durably(
            &tree,
            200,
            None,
            Condition::Present
        )),
        "remove"
    );
    assert_eq!(WordIndex::get(&tree, 200).unwrap(), Some(20));
    status.store(&guard, before);
    assert!(WordIndex::write_durably(&tree, 500, Some(1), Condition::Absent).unwrap());
}

/// Damage in the neighbour does not make the remove fail.
#[test]
fn a_remove_beside_a_damaged_leaf_is_done() {
    let (pool, tree) = tree(5);
    let guard = pool.pin();
    let inner = root(&tree, &guard);
    let leaf = |child: usize| {
        TestTree::leaf(&guard, Pointer(inner.children[child].load(&guard)).offset()).unwrap()
    };
    let keys: Vec<u64> = tree
        .visible(&guard, leaf(0))
        .unwrap()
        .iter()
        .map(|(_, words)| words[0])
        .collect();
    leaf(1).head[LEAF_STATUS].store(&guard, 0xff00);
    for key in &keys {
        let removed = WordIndex::write_durably(&tree, *key, None, Condition::Present);
        assert!(matches!(removed, Ok(true)), "{removed:?}");
        assert_eq!(WordIndex::get(&tree, *key).unwrap(), None);
    }
    assert!(is_corrupt(&tree.len()) && !tree.check().unwrap().is_empty());
}

/// Verifies the tree, and expects a violation at `offset`.
fn expect_violation_at(tree: &TestTree, offset: u64) {
    let violations = tree.verify().unwrap();
    assert!(
        violations
            .iter()
            .any(|violation| violation.offset == offset),
        "{violations:?}"
    );
}
