//! The holes of the RNTree paper and of its published code, one named test each. What a crash must not do is the crash
//! explorer's part; here operations are stopped in their middle, at a fence.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everleaf_engines::index::{Condition, Index, WordCodec, WordIndex};
use everleaf_engines::rntree::{RnTree, RnTreeOptions};
use medium::{Late, LineForm};
use pool::{Pool, PoolOptions};

type Tree<const N: usize> = RnTree<Late, WordCodec, N>;

const PATIENCE: Duration = Duration::from_secs(20);

fn tree<const N: usize>(keys: impl IntoIterator<Item = u64>) -> (Pool<Late>, Tree<N>) {
    let pool = Pool::open(Late::new(1 << 30, LineForm::Twin).unwrap(), PoolOptions::default()).unwrap();
    let tree = Tree::create(&pool, "words", RnTreeOptions { recovery_threads: 1 }).unwrap();
    for key in keys {
        assert!(insert(&tree, key));
    }
    (pool, tree)
}

fn insert<const N: usize>(tree: &Tree<N>, key: u64) -> bool {
    WordIndex::write(tree, key, Some(key + 1), Condition::Absent).unwrap()
}

fn remove<const N: usize>(tree: &Tree<N>, key: u64) -> bool {
    WordIndex::write(tree, key, None, Condition::Present).unwrap()
}

fn get<const N: usize>(tree: &Tree<N>, key: u64) -> Option<u64> {
    WordIndex::get(tree, key).unwrap()
}

fn keys<const N: usize>(tree: &Tree<N>) -> Vec<u64> {
    let mut keys = Vec::new();
    (tree as &dyn WordIndex)
        .scan_each(0, |key, value| {
            assert_eq!(value, key + 1);
            keys.push(key);
            true
        })
        .unwrap();
    keys
}

fn assert_holds<const N: usize>(tree: &Tree<N>, expected: impl IntoIterator<Item = u64>) {
    let violations = tree.check().unwrap();
    assert!(violations.is_empty(), "{} violations, the first: {}", violations.len(), violations[0]);
    assert_eq!(keys(tree), expected.into_iter().collect::<Vec<_>>());
}

fn leaves<const N: usize>(tree: &Tree<N>) -> u64 {
    tree.stat().unwrap().leaves
}

/// Runs `operation` on a thread of its own up to its fence `further`, then `meanwhile`, then the rest.
fn stop_at_fence<const N: usize>(
    pool: &Pool<Late>,
    tree: &Tree<N>,
    further: usize,
    operation: impl Fn(&Tree<N>) + Send,
    meanwhile: impl FnOnce(),
) {
    pool.medium().hold_fence(further);
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || operation(tree));
        assert!(pool.medium().until_held(PATIENCE), "the operation has fewer fences");
        meanwhile();
        assert!(!worker.is_finished());
        pool.medium().let_go();
    });
}

#[test]
fn an_entry_claimed_before_a_split_is_published_in_the_leaf_that_covers_its_key() {
    // The key belongs to the upper half. Its writer has claimed and written an entry, and stops before the lock.
    let (pool, tree) = tree::<8>([10, 20, 30, 40, 50, 60]);
    stop_at_fence(
        &pool,
        &tree,
        0,
        |tree| assert!(insert(tree, 55)),
        || {
            assert!(insert(&tree, 25) && insert(&tree, 26));
            assert!(leaves(&tree) > 1, "no split");
            assert_eq!(get(&tree, 55), None);
        },
    );
    assert_holds(&tree, [10, 20, 25, 26, 30, 40, 50, 55, 60]);
}

/// Who holds a claim is not pinned: the claim alone keeps the leaf where it is.
#[test]
fn a_leaf_with_a_claimed_entry_is_not_merged_away() {
    let (pool, tree) = tree::<4>([10, 20, 30, 40, 50]);
    assert_eq!(leaves(&tree), 2);
    remove(&tree, 30);
    let before = keys(&tree);
    stop_at_fence(
        &pool,
        &tree,
        0,
        |tree| assert!(insert(tree, 55)),
        || {
            for key in &before[..3] {
                assert!(remove(&tree, *key));
            }
            assert_eq!(leaves(&tree), 2, "merged under a writer");
        },
    );
    assert_holds(&tree, [50, 55]);
    assert!(remove(&tree, 50));
    assert_eq!(leaves(&tree), 1, "nothing was in the way of a merge");
    assert_holds(&tree, [55]);
}

/// An unpublished claim survives recycling: nobody else gets its entry.
#[test]
fn a_claimed_entry_is_not_recycled() {
    let (pool, tree) = tree::<8>([10, 20, 30]);
    stop_at_fence(
        &pool,
        &tree,
        0,
        |tree| assert!(insert(tree, 15)),
        || {
            for _ in 0..50 {
                assert!(WordIndex::write(&tree, 20, Some(21), Condition::Present).unwrap());
            }
        },
    );
    assert_holds(&tree, [10, 15, 20, 30]);
}

#[test]
fn readers_and_scans_pass_a_split_whose_parent_is_not_updated_yet() {
    let (pool, tree) = tree::<8>([10, 20, 30, 40, 50, 60, 70, 80]);
    // The third fence is that of the old leaf's slot line: the new leaf is linked, nobody but the chain knows it.
    for fence in 0..2 {
        let key = 45 + fence as u64;
        let known = keys(&tree);
        stop_at_fence(
            &pool,
            &tree,
            fence,
            |tree| assert!(insert(tree, key)),
            || {
                assert!(known.iter().all(|key| get(&tree, *key) == Some(key + 1)));
                assert_eq!(get(&tree, 46 - fence as u64 + 100), None);
            },
        );
    }
    assert_holds(&tree, [10, 20, 30, 40, 45, 46, 50, 60, 70, 80]);
}

/// A reader with a stale parent, for a long time: it arrives left of the key, again and again, while leaves split.
#[test]
fn a_stale_parent_never_hides_a_key() {
    let (_pool, tree) = tree::<4>([0]);
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tree, finished) = (&tree, &finished);
        let readers: Vec<_> = (0..2)
            .map(|seed: u64| {
                scope.spawn(move || {
                    let mut reads = seed;
                    while !finished.load(Ordering::SeqCst) {
                        // Key 0 and every key below the last insert are there all the time.
                        assert_eq!(get(tree, 0), Some(1));
                        reads += 1;
                    }
                    reads
                })
            })
            .collect();
        for key in 1..20_000u64 {
            let key = key.reverse_bits() >> 40;
            if insert(tree, key) {
                assert_eq!(get(tree, key), Some(key + 1), "just inserted");
            }
        }
        finished.store(true, Ordering::SeqCst);
        assert!(readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>() > 1);
    });
    assert!(tree.check().unwrap().is_empty());
}

#[test]
fn a_reader_never_waits_for_a_writer_and_sees_nothing_early() {
    // Stopped between publishing the slot line and its fence being over: the writer holds the leaf's lock.
    let (pool, tree) = tree::<8>([10, 20, 30]);
    stop_at_fence(
        &pool,
        &tree,
        1,
        |tree| assert!(insert(tree, 25)),
        || {
            assert_eq!(get(&tree, 20), Some(21));
            assert_eq!(get(&tree, 25), None);
            assert_eq!(keys(&tree), [10, 20, 30]);
        },
    );
    assert_holds(&tree, [10, 20, 25, 30]);
}

#[test]
fn an_odd_leaf_keeps_its_last_entry_when_it_splits() {
    let (_pool, tree) = tree::<7>([70, 10, 60, 20, 50, 30, 40]);
    assert_eq!(leaves(&tree), 1);
    assert!(insert(&tree, 35));
    assert_eq!(leaves(&tree), 2);
    assert_holds(&tree, [10, 20, 30, 35, 40, 50, 60, 70]);
}

/// Algorithm 3 rewrites slots that it still reads, and takes the separator by physical position: both show where
/// entries were written in another order than that of their keys.
#[test]
fn a_split_goes_by_the_order_of_keys_not_of_entries() {
    let mut orders = [[0u64; 8]; 3];
    orders[0] = [80, 70, 60, 50, 40, 30, 20, 10];
    orders[1] = [40, 80, 10, 70, 20, 60, 30, 50];
    orders[2] = [10, 80, 20, 70, 30, 60, 40, 50];
    for order in orders {
        let (_pool, tree) = tree::<8>(order);
        assert!(insert(&tree, 45));
        assert_holds(&tree, [10, 20, 30, 40, 45, 50, 60, 70, 80]);
    }
}

/// Algorithm 3 resets neither `nlogs` and `plogs` nor the transient slot array.
#[test]
fn both_halves_of_a_split_take_entries_at_once() {
    let (_pool, tree) = tree::<8>([10, 20, 30, 40, 50, 60, 70, 80]);
    for key in [45, 11, 12, 13, 71, 72, 73, 14, 74] {
        assert!(insert(&tree, key));
        assert_eq!(get(&tree, key), Some(key + 1));
    }
    assert_holds(&tree, [10, 11, 12, 13, 14, 20, 30, 40, 45, 50, 60, 70, 71, 72, 73, 74, 80]);
}

/// Algorithm 1 ignores the result of the conditional update; the published insert overwrites an existing key.
#[test]
fn a_condition_that_fails_changes_nothing() {
    let (_pool, tree) = tree::<8>([10]);
    assert!(!WordIndex::write(&tree, 10, Some(99), Condition::Absent).unwrap());
    assert!(!WordIndex::write(&tree, 11, Some(99), Condition::Present).unwrap());
    assert!(!WordIndex::write(&tree, 10, Some(99), Condition::Equals(10)).unwrap());
    assert!(!remove(&tree, 11));
    assert_holds(&tree, [10]);
}

/// Two inserts of one key, both past their first look: one of them holds.
#[test]
fn a_condition_that_fails_under_the_lock_changes_nothing_either() {
    let (pool, tree) = tree::<8>([10]);
    stop_at_fence(
        &pool,
        &tree,
        0,
        |tree| assert!(!WordIndex::write(tree, 20, Some(99), Condition::Absent).unwrap()),
        || assert!(insert(&tree, 20)),
    );
    assert_holds(&tree, [10, 20]);
}

/// In the published code an allocated entry whose second check fails is lost, the leaf never reaches its split, and
/// writers wait for ever.
#[test]
fn an_entry_whose_condition_failed_is_free_again() {
    let (pool, tree) = tree::<4>([10]);
    for round in 0..20 {
        let key = 100 + round;
        stop_at_fence(
            &pool,
            &tree,
            0,
            |tree| assert!(!WordIndex::write(tree, key, Some(99), Condition::Absent).unwrap()),
            || assert!(insert(&tree, key)),
        );
        assert!(remove(&tree, key));
    }
    assert!(insert(&tree, 20) && insert(&tree, 30) && insert(&tree, 40));
    assert_eq!(leaves(&tree), 1);
    assert_holds(&tree, [10, 20, 30, 40]);
}

/// Algorithm 4 has no return; a missing key makes the published search read before the slot array.
#[test]
fn a_find_returns_also_for_keys_below_above_and_between() {
    let (_pool, tree) = tree::<4>([]);
    assert_eq!(get(&tree, 0), None);
    assert_eq!(get(&tree, u64::MAX), None);
    let (_pool, tree) = self::tree::<4>((1..100).map(|key| 10 * key));
    assert!([0, 5, 15, 985, 991, u64::MAX].iter().all(|key| get(&tree, *key).is_none()));
    assert!((1..100).all(|key| get(&tree, 10 * key) == Some(10 * key + 1)));
    assert!(WordIndex::write(&tree, u64::MAX, Some(7), Condition::Absent).unwrap());
    assert_eq!(get(&tree, u64::MAX), Some(7));
}

/// The published remove compares a version that never changes, and does not return on a leaf that was modified
/// meanwhile.
#[test]
fn a_remove_returns_on_a_leaf_that_others_modify() {
    let (_pool, tree) = tree::<8>(0..8);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let tree = &tree;
            scope.spawn(move || {
                for _ in 0..5000 {
                    for key in [2 * thread, 2 * thread + 1] {
                        assert!(remove(tree, key));
                        assert!(insert(tree, key));
                    }
                }
            });
        }
    });
    assert_holds(&tree, 0..8);
}

/// In the published code split detection is dead: a racing insert can land in the wrong leaf.
#[test]
fn racing_inserts_land_in_the_leaf_that_covers_them() {
    for round in 0..20 {
        let (_pool, tree) = tree::<4>([]);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let tree = &tree;
                scope.spawn(move || {
                    (0..200).for_each(|key| {
                        assert!(insert(tree, (4 * key + thread).wrapping_mul(7919 + round) % 1009));
                    });
                });
            }
        });
        assert_eq!(tree.len().unwrap(), 800);
        assert!(tree.check().unwrap().is_empty());
    }
}

/// In the published code a scan takes no care of writers.
#[test]
fn a_scan_beside_splits_and_merges_returns_what_stays_once_and_in_order() {
    let (_pool, tree) = tree::<4>((0..200).map(|key| 10 * key));
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tree, finished) = (&tree, &finished);
        scope.spawn(move || {
            for round in 0..60 {
                (0..200).for_each(|key| assert!(insert(tree, 10 * key + 1 + round % 9)));
                (0..200).for_each(|key| assert!(remove(tree, 10 * key + 1 + round % 9)));
            }
            finished.store(true, Ordering::SeqCst);
        });
        while !finished.load(Ordering::SeqCst) {
            let seen = keys(tree);
            assert!(seen.is_sorted_by(|left, right| left < right));
            assert!(seen.iter().filter(|key| *key % 10 == 0).count() == 200);
        }
    });
    assert_holds(&tree, (0..200).map(|key| 10 * key));
}

/// In the published code nothing is ever freed.
#[test]
fn a_tree_emptied_by_removes_gives_its_space_back() {
    let (pool, tree) = tree::<56>([]);
    let empty = pool.stat().allocations;
    (0..20_000).for_each(|key| assert!(insert(&tree, key)));
    (0..20_000).for_each(|key| assert!(remove(&tree, key)));
    pool.reclaim();
    assert_eq!(leaves(&tree), 1);
    assert_eq!(pool.stat().allocations, empty);
}

/// The published repair sets the next free entry one too low, so that the next insert overwrites a live record; and the
/// next leaf is outside of the flushed range.
#[test]
fn a_recovered_tree_takes_entries_without_losing_any() {
    let (pool, tree) = tree::<4>((0..50).map(|key| 10 * key));
    let image = pool.medium().durable_image();
    drop(tree);
    let medium = Late::from_image(&image, 1 << 30, LineForm::Twin).unwrap();
    let crashed = Pool::open(medium, PoolOptions::default()).unwrap();
    assert!(crashed.needs_mark());
    let root = crashed.trees().unwrap().remove(0);
    let tree = Tree::<4>::open(&crashed, &root, RnTreeOptions { recovery_threads: 1 }).unwrap();
    crashed.finish_marking();
    assert_holds(&tree, (0..50).map(|key| 10 * key));
    (0..50).for_each(|key| assert!(insert(&tree, 10 * key + 5)));
    assert_holds(&tree, (0..100).map(|key| 5 * key));
}
