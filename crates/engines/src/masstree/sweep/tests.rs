//! Sweeps after a crash.

use medium::Instrumented;
use std::collections::BTreeMap;
use std::sync::Arc;

use medium::Dax;
use pool::{Pool, PoolOptions};

use super::super::{MassTree, MassTreeOptions};
use super::*;
use crate::index::{Bounds, Direction, EpochLength, Epochs, Index, RecordCodec};

type Tree = MassTree<Instrumented, RecordCodec>;

const OPTIONS: fn() -> MassTreeOptions = || MassTreeOptions {
    epoch: EpochLength::Manual,
    width: Some(4),
    recovery_threads: 1,
    // The state is as after a crash at which everything was written back.
    close_cleanly: false,
    ..MassTreeOptions::default()
};

fn put(tree: &Tree, key: u64, value: u64) {
    tree.put(&key.to_be_bytes(), &value.to_be_bytes()).unwrap();
}

fn remove(tree: &Tree, key: u64) {
    assert!(tree.remove(&key.to_be_bytes()).unwrap());
}

fn content(tree: &Tree) -> BTreeMap<u64, u64> {
    let mut scan = tree.range(Bounds::all(), Direction::Forward).unwrap();
    let mut key = Vec::new();
    let mut value = Vec::new();
    let mut found = BTreeMap::new();
    let number = |bytes: &[u8]| u64::from_be_bytes(*bytes.first_chunk().unwrap());
    while scan.next_into(&mut key, &mut value).unwrap() {
        found.insert(number(&key), number(&value));
    }
    found
}

fn reopen(pool: &Pool<Instrumented>) -> Tree {
    Tree::open(pool, &pool.trees().unwrap()[0], OPTIONS()).unwrap()
}

/// A tree whose last epoch failed, with many free objects whose links are of that epoch.
fn crashed(pool: &Pool<Instrumented>) -> Tree {
    let tree = Tree::create(pool, "tree", OPTIONS()).unwrap();
    (0..20_000).for_each(|key| put(&tree, key, key));
    tree.sync().unwrap();
    (100..20_000).for_each(|key| remove(&tree, key));
    tree.sync().unwrap();
    (100..9_000).for_each(|key| put(&tree, key, 7));
    (100..9_000).rev().for_each(|key| remove(&tree, key));
    drop(tree);
    reopen(pool)
}

fn pool() -> Pool<Instrumented> {
    let options = PoolOptions {
        step_slabs_min: 1,
        close_on_drop: false,
        ..PoolOptions::default()
    };
    Pool::open(Instrumented::new(Dax::plain(64 << 20).unwrap()), options).unwrap()
}

/// Writers wait during a step, so a step is short.
#[test]
fn a_step_goes_through_some_objects_not_through_all_of_them() {
    let pool = pool();
    let tree = crashed(&pool);
    let mut sweep = Sweep::default();
    let mut steps = 0;
    while tree.core.sweep_on(&mut sweep).unwrap() {
        steps += 1;
    }
    assert!(steps > 20_000 / 1024, "{steps} steps");
    assert!(!tree.epoch_stat().is_sweeping && tree.check().unwrap().is_empty());
}

/// Between two steps objects are taken and given back that the next one goes on with.
#[test]
fn free_objects_are_taken_and_given_back_between_the_steps_of_a_sweep() {
    let pool = pool();
    let mut tree = crashed(&pool);
    let mut model: BTreeMap<u64, u64> = (0..100).map(|key| (key, key)).collect();
    let mut sweep = Sweep::default();
    let mut round = 0_u64;
    while tree.core.sweep_on(&mut sweep).unwrap() {
        round += 1;
        let first = 30_000 + round * 1000;
        for key in first..first + 1000 * (round % 3) {
            put(&tree, key, round);
            model.insert(key, round);
        }
        let last = model.len().saturating_sub(1500);
        for key in model
            .keys()
            .copied()
            .skip(100)
            .take(last.min(900))
            .collect::<Vec<_>>()
        {
            remove(&tree, key);
            model.remove(&key);
        }
        if round.is_multiple_of(4) {
            tree.sync().unwrap();
        }
    }
    assert!(round > 20, "{round} rounds");
    for _ in 0..3 {
        assert!(tree.check().unwrap().is_empty());
        assert_eq!(content(&tree), model);
        (50_000..53_000).for_each(|key| put(&tree, key, 1));
        drop(tree);
        tree = reopen(&pool);
    }
}

/// The sweep in the background may hold a tree for a moment after it was closed. The nodes that it
/// restores then are written in no epoch that ends, so the next open has to restore them again.
#[test]
fn a_sweep_that_goes_on_after_the_close_forgets_no_failed_epoch() {
    for close_cleanly in [false, true] {
        let pool = pool();
        drop(crashed(&pool));
        let options = MassTreeOptions {
            close_cleanly,
            ..OPTIONS()
        };
        let tree = Tree::open(&pool, &pool.trees().unwrap()[0], options).unwrap();
        let core = Arc::clone(&tree.core);
        let mut sweep = Sweep::default();
        assert!(core.sweep_on(&mut sweep).unwrap());
        drop(tree);
        while let Ok(true) = core.sweep_on(&mut sweep) {}
        assert!(core.epochs.any_failed(), "closed cleanly: {close_cleanly}");
        drop(core);
        let tree = reopen(&pool);
        let is_sweeping = tree.epoch_stat().is_sweeping;
        assert!(is_sweeping, "closed cleanly: {close_cleanly}");
        tree.core.sweep().unwrap();
        assert!(tree.check().unwrap().is_empty());
    }
}

/// The memory of a dropped tree may be in use for something else.
#[test]
fn a_sweep_writes_nothing_into_a_dropped_tree() {
    let pool = pool();
    let tree = crashed(&pool);
    let core = Arc::clone(&tree.core);
    tree.destroy().unwrap();
    assert!(core.forget_failed().is_err());
}
