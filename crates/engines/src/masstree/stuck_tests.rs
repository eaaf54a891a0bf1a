//! An operation waits for a locked node, and gives up when no thread has changed the node for long.

use medium::Instrumented;
use std::mem::forget;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use medium::{Dax, VolatileWord};
use pool::{Pool, PoolOptions};

use super::layout::OFFSET_MASK;
use super::{MassTree, MassTreeOptions};
use crate::index::{Bounds, Direction, EpochLength, Epochs, Index, RecordCodec, WordCodec};
use crate::{Error, ErrorKind};

type Tree<C = RecordCodec> = MassTree<Instrumented, C>;

/// Bits of a node's version.
const LOCKED: u64 = 1;
const DIRTY: u64 = 2;
const DELETED: u64 = 4;

/// Longer than the tests hold a lock, and so short that they can wait for its end.
const PATIENCE: Duration = Duration::from_millis(200);

const OPTIONS: fn() -> MassTreeOptions = || MassTreeOptions {
    epoch: EpochLength::Manual,
    width: Some(4),
    recovery_threads: 1,
    close_cleanly: false,
    patience: PATIENCE,
    ..MassTreeOptions::default()
};

fn pool() -> Pool<Instrumented> {
    let options = PoolOptions {
        step_slabs_min: 1,
        close_on_drop: false,
        ..PoolOptions::default()
    };
    Pool::open(Instrumented::new(Dax::plain(64 << 20).unwrap()), options).unwrap()
}

/// A tree whose root is a border node.
fn tree<C: crate::index::Codec>(pool: &Pool<Instrumented>) -> Tree<C> {
    let tree = Tree::create(pool, "tree", OPTIONS()).unwrap();
    (0..3_u64).for_each(|key| put(&tree, key).unwrap());
    tree.sync().unwrap();
    tree
}

fn put<C: crate::index::Codec>(tree: &Tree<C>, key: u64) -> Result<(), Error> {
    tree.put(&key.to_be_bytes(), &key.to_be_bytes()).map(drop)
}

fn root<C: crate::index::Codec>(tree: &Tree<C>) -> u64 {
    let view = tree.core.look();
    view.anchor().unwrap().root.value.load(&view.guard)
}

fn version_of<'p>(guard: &'p pool::Guard<'_, Instrumented>, node: u64) -> &'p VolatileWord {
    guard
        .node::<VolatileWord>((node & OFFSET_MASK) + super::layout::VERSION)
        .unwrap()
}

/// Sets bits of a node's version, as damage may.
fn damage<C: crate::index::Codec>(tree: &Tree<C>, node: u64, bits: u64) {
    let guard = tree.core.pool.peek();
    let version = version_of(&guard, node);
    version.start(&guard, version.load(&guard, Ordering::Relaxed) | bits);
}

/// Expects an error that names a node.
fn names<T>(result: Result<T, Error>, node: u64) {
    let error = result.err().expect("an error");
    assert!(
        matches!(error.kind(), ErrorKind::Contended { offset } if *offset == node & OFFSET_MASK),
        "{error}"
    );
}

#[test]
fn a_writer_waits_while_another_thread_holds_the_lock() {
    let pool = pool();
    let tree: Tree = tree(&pool);
    let (view, work) = tree.core.enter();
    let lock = view.lock(version_of(&view.guard, root(&tree))).unwrap();
    thread::scope(|scope| {
        let writers = [4, 5].map(|key| {
            let tree = &tree;
            scope.spawn(move || put(tree, key))
        });
        thread::sleep(PATIENCE / 10);
        drop(lock);
        drop(work);
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
    });
    assert!(tree.check().unwrap().is_empty() && tree.len().unwrap() == 5);
}

#[test]
fn a_reader_waits_for_as_long_as_a_node_is_restructured() {
    let pool = pool();
    let tree: Tree = tree(&pool);
    let (view, work) = tree.core.enter();
    let mut lock = view.lock(version_of(&view.guard, root(&tree))).unwrap();
    lock.begin_change();
    thread::scope(|scope| {
        let reader = scope.spawn(|| tree.get(&1_u64.to_be_bytes()));
        thread::sleep(PATIENCE / 10);
        drop(lock);
        drop(work);
        assert!(reader.join().unwrap().unwrap().is_some());
    });
}

/// One of two waiting threads holds the lock that the other one waits for. Both operations end.
#[test]
fn a_thread_that_waits_for_a_waiting_thread_goes_on_behind_it() {
    let pool = pool();
    let tree: Tree = tree(&pool);
    (3..40).for_each(|key| put(&tree, key).unwrap());
    let root = root(&tree);
    let (view, work) = tree.core.enter();
    let lock = view.lock(version_of(&view.guard, root)).unwrap();
    thread::scope(|scope| {
        // Splits go up to the root; the thread that splits has locked the nodes below.
        let writers = [0, 1].map(|offset| {
            let tree = &tree;
            scope.spawn(move || (40..140).try_for_each(|key| put(tree, 2 * key + offset)))
        });
        thread::sleep(PATIENCE / 10);
        drop(lock);
        drop(work);
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
    });
    assert!(tree.check().unwrap().is_empty() && tree.len().unwrap() == 240);
}

#[test]
fn a_node_that_stays_locked_is_an_error_for_one_thread_and_for_two() {
    let pool = pool();
    let tree: Tree = tree(&pool);
    let root = root(&tree);
    let (view, work) = tree.core.enter();
    forget(view.lock(version_of(&view.guard, root)).unwrap());
    drop(work);
    names(put(&tree, 4), root);
    thread::scope(|scope| {
        let writers = [4, 5].map(|key| {
            let tree = &tree;
            scope.spawn(move || put(tree, key))
        });
        for writer in writers {
            names(writer.join().unwrap(), root);
        }
    });
    tree.within_epoch(&mut |_| {
        names(put(&tree, 4), root);
        thread::scope(|scope| names(scope.spawn(|| put(&tree, 4)).join().unwrap(), root));
        Ok(())
    })
    .unwrap();
    assert_eq!(tree.len().unwrap(), 3);
}

/// Each way to read a node that damage has marked as restructured or deleted: readers wait for it,
/// or start again.
#[test]
fn what_stays_dirty_or_deleted_is_an_error_for_readers() {
    let expect_errors = |bits| {
        let pool = pool();
        let tree: Tree = tree(&pool);
        let root = root(&tree);
        damage(&tree, root, bits);
        let key = 1_u64.to_be_bytes();
        names(tree.get(&key), root);
        names(tree.get_many(&[&key]), root);
        names(tree.len(), root);
        for direction in [Direction::Forward, Direction::Reverse] {
            let mut scan = tree.range(Bounds::all(), direction).unwrap();
            names(scan.next_into(&mut Vec::new(), &mut Vec::new()), root);
        }
        names(put(&tree, 1), root);
        names(tree.remove(&key), root);
        let violations = tree.check().unwrap();
        assert!(
            violations
                .iter()
                .any(|found| found.offset == root && found.what.contains("locked"))
        );
        let pool = self::pool();
        let tree: Tree<WordCodec> = self::tree(&pool);
        let root = self::root(&tree);
        damage(&tree, root, bits);
        names(tree.words().unwrap().scan(0, &mut |_| true), root);
    };
    // Each call waits for the whole patience, so the three cases run at once.
    thread::scope(|scope| {
        for bits in [DIRTY, DELETED, LOCKED | DIRTY | DELETED] {
            scope.spawn(move || expect_errors(bits));
        }
    });
}
