//! A transaction compares its reads with the writes that come while it commits.

use std::cell::Cell;
use std::ops::Bound;
use std::sync::Weak;

use medium::{Dax, Process, Sim};

use super::super::changes::ChangedLately;
use super::*;
use crate::ErrorKind;
use crate::index::{Bounds, Direction, Observed, Value};
use crate::versions::WritesUnderWay;

fn tree() -> Arc<TreeVersions> {
    TreeVersions::of_existing(&Versions::new::<Dax>(usize::MAX, Process::current()))
}

/// Writes keys in one batch.
fn write(tree: &Arc<TreeVersions>, keys: &[&[u8]]) {
    let changes: Vec<_> = keys.iter().map(|key| BatchChange { tree, key }).collect();
    let absent = |_| Ok(OldValue::ABSENT);
    drop(tree.store().record_batch(&changes, absent, None).unwrap());
}

/// Commits a transaction that has read the keys from "r" to "s", while `meanwhile` runs. Returns
/// whether it has found a conflict.
fn conflicts(meanwhile: impl Fn(&Arc<TreeVersions>)) -> bool {
    let tree = tree();
    let view = tree.store().open().unwrap();
    let mut reads = ReadSet::default();
    let from = Bound::Included(b"r".to_vec());
    let span = reads.begin_range(&tree, "tree", from, Direction::Forward);
    reads.extend_range(span, Bound::Excluded(b"s"));
    let check = TransactionCheck {
        view: &view,
        reads: &reads,
    };
    let own = BatchChange {
        tree: &tree,
        key: b"own",
    };
    // Old values are read between the first check and the step that takes the stamp.
    let read_old = |_| {
        meanwhile(&tree);
        Ok(OldValue::ABSENT)
    };
    let committed = tree.store().record_batch(&[own], read_old, Some(&check));
    let is_conflict = |error: &crate::Error| matches!(error.kind(), ErrorKind::Conflict { .. });
    committed.is_err_and(|error| is_conflict(&error))
}

#[test]
fn a_read_that_changes_before_the_stamp_is_a_conflict() {
    assert!(conflicts(|tree| write(tree, &[b"read"])));
    assert!(conflicts(|tree| write(tree, &[b"a", b"read", b"z"])));
    assert!(!conflicts(|tree| write(tree, &[b"a", b"s", b"z"])));
    assert!(!conflicts(|_| {}));
}

/// The list of the last changes does not hold all of them.
#[test]
fn a_read_that_changes_among_many_others_is_a_conflict() {
    let others: Vec<[u8; 2]> = (0..200).map(|number| [b'a', number]).collect();
    let others: Vec<&[u8]> = others.iter().map(<[u8; 2]>::as_slice).collect();
    let with_read: Vec<&[u8]> = std::iter::once(&b"read"[..])
        .chain(others.clone())
        .collect();
    assert!(conflicts(|tree| write(tree, &with_read)));
    assert!(!conflicts(|tree| write(tree, &others)));
}

/// They are compared before the lock of the clock is taken for the last time.
#[test]
fn a_read_that_changes_before_many_later_writes_is_a_conflict() {
    let many = |tree: &Arc<TreeVersions>| (0..100).for_each(|_| write(tree, &[b"a"]));
    assert!(conflicts(|tree| {
        write(tree, &[b"read"]);
        many(tree);
    }));
    assert!(!conflicts(many));
}

/// A list of changes that was forgotten does not pass for the whole.
#[test]
fn changes_that_were_forgotten_are_unknown() {
    let tree = tree();
    let first = tree.store().open().unwrap();
    write(&tree, &[b"read"]);
    let stamp = first.stamp();
    drop(first);
    let lately = tree.changed_lately(stamp, |_| true);
    assert!(matches!(lately, ChangedLately::Unknown));
}

/// A write that is told that no view is open announces its share, for which a transaction does not
/// wait.
#[test]
fn versions_stay_on_until_a_transaction_is_published() {
    // Nothing lingers on a scheduled medium.
    let tree = TreeVersions::of_existing(&Versions::new::<Sim>(usize::MAX, Process::current()));
    let view = tree.store().open().unwrap();
    let reads = ReadSet::default();
    let check = TransactionCheck {
        view: &view,
        reads: &reads,
    };
    let own = BatchChange {
        tree: &tree,
        key: b"own",
    };
    let absent = |_| Ok(OldValue::ABSENT);
    let committed = tree.store().record_batch(&[own], absent, Some(&check));
    drop(view);
    write(&tree, &[b"other"]);
    assert!(tree.store().is_on());
    drop(committed.unwrap());
    write(&tree, &[b"other"]);
    assert!(!tree.store().is_on());
}

/// Until a view is open, a write of the same key may be under way that has not seen the switch. So a
/// value that was read before could be older than the one that the write replaces.
#[test]
fn the_old_value_is_read_only_while_a_view_is_open() {
    let tree = tree();
    // Versions stay on after the view is closed.
    drop(tree.store().open().unwrap());
    assert!(tree.store().is_on());
    let never = || -> Result<OldValue> { panic!("no view is open") };
    drop(tree.store().record_write(&tree, b"key", never).unwrap());
    let never = |_| -> Result<OldValue> { panic!("no view is open") };
    let change = BatchChange {
        tree: &tree,
        key: b"key",
    };
    drop(tree.store().record_batch(&[change], never, None).unwrap());

    let _view = tree.store().open().unwrap();
    let is_read = Cell::new(false);
    let absent = || {
        is_read.set(true);
        Ok(OldValue::ABSENT)
    };
    drop(tree.store().record_write(&tree, b"key", absent).unwrap());
    assert!(is_read.get());
}

/// A tree whose writes under way are waited for.
struct AskedTree {
    versions: Arc<TreeVersions>,
    views: Mutex<Vec<usize>>,
}

impl WritesUnderWay for AskedTree {
    fn wait_for_writes(&self) {
        let views = self.versions.store().stat().views;
        self.views.lock().push(views);
    }
}

#[test]
fn a_view_is_registered_after_the_grace_period() {
    let asked = Arc::new(AskedTree {
        versions: tree(),
        views: Mutex::new(Vec::new()),
    });
    let store = asked.versions.store();
    let weak: Weak<dyn WritesUnderWay> = Arc::downgrade(&asked) as _;
    store.add_tree(weak);
    let first = store.open().unwrap();
    // There is no grace period while versions are on.
    drop(store.open().unwrap());
    drop(first);
    assert_eq!(*asked.views.lock(), [0]);
}

/// A range copies old values while writes wait.
#[test]
fn large_old_values_are_read_in_several_steps() {
    let tree = tree();
    let view = tree.store().open().unwrap();
    let stamp = view.stamp();
    let large = || {
        let value = Value::from_vec(vec![0; 300 << 10]);
        OldValue::of(Ok(Observed::durable(Some(value))))
    };
    for key in 0..10_u8 {
        drop(tree.store().record_write(&tree, &[key], large).unwrap());
    }
    for (direction, last) in [(Direction::Forward, 3), (Direction::Reverse, 6)] {
        let found = tree.changes_within(&Bounds::all(), direction, stamp, 256);
        assert_eq!(found.keys.len(), 4);
        assert_eq!(found.up_to.as_deref(), Some(&[last][..]));
    }
}
