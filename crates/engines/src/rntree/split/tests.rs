//! Splits that are stopped before the parent knows the new leaf. Splits that are stopped at a fence
//! are in `tests/rntree_stopped`.

use std::time::{Duration, Instant};

use medium::Dax;
use pool::{Pool, PoolOptions};

use crate::index::{Bounds, Codec, Direction, Index, RecordCodec, WordCodec};
use crate::rntree::{RnTree, RnTreeOptions};

const PATIENCE: Duration = Duration::from_secs(20);
/// For a thread that is to be stopped, and is not.
const TIME_TO_GO_WRONG: Duration = Duration::from_millis(50);

/// Waits until something has become so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

fn number(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

fn is_added(tree: &dyn Index, key: u64) -> bool {
    tree.insert(&number(key), &number(key + 1)).unwrap()
}

fn value_of(tree: &dyn Index, key: u64) -> Option<u64> {
    tree.get(&number(key))
        .unwrap()
        .map(|value| u64::from_be_bytes(value[..].try_into().unwrap()))
}

fn ranged(tree: &dyn Index, bounds: Bounds, direction: Direction) -> Vec<u64> {
    let mut scan = tree.range(bounds, direction).unwrap();
    let mut key = Vec::new();
    let mut value = Vec::new();
    let mut keys = Vec::new();
    while scan.next_into(&mut key, &mut value).unwrap() {
        keys.push(u64::from_be_bytes(key[..].try_into().unwrap()));
        assert!(keys.len() < 1000, "a range that does not end");
    }
    keys
}

/// Inserts `splits` in turn, each into a last leaf that is full, and stops them between the publish
/// of their split and the update of the parent; calls `meanwhile` with the keys of the tree. This
/// thread has the right to change inner nodes meanwhile: the splits wait for it.
fn stop_before_the_parent_is_updated<C: Codec>(splits: &[u64], meanwhile: fn(&dyn Index, &[u64]))
where
    RnTree<Dax, C>: Index,
{
    let pool = Pool::open(Dax::plain(1 << 26).unwrap(), PoolOptions::default()).unwrap();
    let options = RnTreeOptions {
        recovery_threads: 1,
        leaf_entries: 4,
        ..RnTreeOptions::default()
    };
    let rntree = RnTree::<Dax, C>::create(&pool, "tree", options).unwrap();
    let tree: &dyn Index = &rntree;
    // Three leaves: 10, 30; 40; 70 to 100, and the last is full.
    for key in 1..=10 {
        assert!(is_added(tree, 10 * key));
    }
    for key in [50, 60, 20] {
        assert!(tree.remove(&number(key)).unwrap());
    }
    let leaves = || tree.stat().unwrap().leaves;
    assert_eq!(leaves(), 3);
    let mut keys = vec![10, 30, 40, 70, 80, 90, 100];
    std::thread::scope(|scope| {
        let mut writers = Vec::new();
        let structure = rntree.inner.structure();
        for (done, key) in splits.iter().enumerate() {
            // Fills the leaf that is last now.
            while keys.len() < 7 + 2 * done {
                let next = keys.last().unwrap() + 10;
                assert!(is_added(tree, next));
                keys.push(next);
            }
            writers.push(scope.spawn(move || assert!(is_added(tree, *key))));
            until("a split is published", || leaves() == 4 + done as u64);
        }
        // Belongs to the leaf that was split first, and that stays locked until its parent knows of
        // the new leaf.
        let (begun, is_begun) = std::sync::mpsc::channel();
        writers.push(scope.spawn(move || {
            begun.send(()).unwrap();
            assert!(is_added(tree, 75));
        }));
        is_begun.recv().unwrap();
        meanwhile(tree, &keys);
        std::thread::sleep(TIME_TO_GO_WRONG);
        let is_one_finished = writers
            .iter()
            .any(std::thread::ScopedJoinHandle::is_finished);
        assert!(
            !is_one_finished,
            "a writer did not wait for the inner nodes"
        );
        drop(structure);
        for writer in writers {
            writer.join().unwrap();
        }
    });
    keys.extend(splits.iter().chain(&[75]));
    keys.sort_unstable();
    assert_eq!(tree.check().unwrap(), []);
    assert_eq!(ranged(tree, Bounds::all(), Direction::Forward), keys);
}

/// Everything that there is, and nothing else, is found; each way of looking is tried.
fn assert_is_found(tree: &dyn Index, keys: &[u64]) {
    for key in 0..200 {
        let expected = keys.contains(&key).then_some(key + 1);
        assert_eq!(value_of(tree, key), expected, "key {key}");
        let held = tree
            .compare_exchange(&number(key), Some(&number(7)), None)
            .unwrap();
        assert!(!held, "key {key} has a value that it never had");
        assert!(
            expected.is_none() || !is_added(tree, key),
            "key {key} was there twice"
        );
        assert!(
            expected.is_some() || !tree.update(&number(key), &number(7)).unwrap(),
            "key {key}"
        );
        assert!(
            expected.is_some() || !tree.remove(&number(key)).unwrap(),
            "key {key}"
        );
    }
    let numbers: Vec<_> = keys.iter().map(|key| number(*key)).collect();
    let wanted: Vec<&[u8]> = numbers.iter().map(<[u8; 8]>::as_slice).collect();
    assert!(tree.get_many(&wanted).unwrap().iter().all(Option::is_some));
    let reversed: Vec<u64> = keys.iter().rev().copied().collect();
    assert_eq!(ranged(tree, Bounds::all(), Direction::Forward), keys);
    assert_eq!(ranged(tree, Bounds::all(), Direction::Reverse), reversed);
    for key in keys {
        let from = Bounds {
            lower: std::ops::Bound::Included(number(*key).to_vec()),
            ..Bounds::all()
        };
        assert_eq!(
            ranged(tree, from, Direction::Forward)[0],
            *key,
            "a range from a key"
        );
        let to = Bounds {
            upper: std::ops::Bound::Included(number(*key).to_vec()),
            ..Bounds::all()
        };
        assert_eq!(
            ranged(tree, to, Direction::Reverse)[0],
            *key,
            "a range back from a key"
        );
    }
}

/// Algorithm 3 clears the splitting bit before the parent knows the new leaf: an operation
/// that arrives by the parent finds a leaf that is stable, and not the key.
#[test]
fn a_split_hides_nothing_before_its_parent_is_updated() {
    stop_before_the_parent_is_updated::<WordCodec>(&[85], assert_is_found);
    stop_before_the_parent_is_updated::<RecordCodec>(&[85], assert_is_found);
}

/// The parent is three splits behind: a reader or a writer that descends by it arrives up to three
/// leaves left of the key. (Readers that a split overtakes between parent and leaf are the
/// scheduler's part: `crates/sim/tests/engines/threads.rs`.)
#[test]
fn a_stale_parent_never_hides_a_key() {
    let meanwhile = |tree: &dyn Index, keys: &[u64]| {
        assert_is_found(tree, keys);
        let last = keys[keys.len() - 1];
        for _ in 0..20 {
            assert!(tree.remove(&number(last)).unwrap());
            assert_is_found(tree, &keys[..keys.len() - 1]);
            assert!(is_added(tree, last));
            assert!(tree.update(&number(last), &number(last + 1)).unwrap());
        }
        assert_is_found(tree, keys);
    };
    stop_before_the_parent_is_updated::<WordCodec>(&[85, 115, 135], meanwhile);
    stop_before_the_parent_is_updated::<RecordCodec>(&[85, 115, 135], meanwhile);
}
