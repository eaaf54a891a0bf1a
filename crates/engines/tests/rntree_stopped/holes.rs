//! The holes of the RNTree paper and of its published code, one named test each. Operations are
//! stopped in their middle, at a fence; the crash explorer tests the images that crashes leave
//! within a persist (`crates/sim/tests/engines/rntree_holes.rs`).
//!
//! The ten bugs of the published code, and the test for each:
//!
//! | bug | test |
//! | --- | --- |
//! | remove does not return on a leaf that others modify | `a_remove_returns_on_a_leaf_that_others_modify`, by the explorer |
//! | split detection is dead: a racing insert lands in the wrong leaf | `racing_inserts_land_in_the_leaf_that_covers_them`, by the explorer |
//! | an entry whose second check fails is lost, and writers spin | [`an_entry_whose_condition_failed_is_free_again`] |
//! | `next` lies outside of the flushed range | [`a_split_that_returned_has_its_link_on_the_medium`]; `a_split_flushes_the_link_to_its_leaf`, by the explorer |
//! | the split's undo log is valid before its content | `a_split_is_valid_only_after_its_content`, by the explorer |
//! | repair sets the next free entry one too low | [`a_recovered_tree_takes_entries_without_losing_any`] |
//! | insert overwrites an existing key | [`an_insert_overwrites_nothing`] |
//! | a scan takes no care of writers | [`a_scan_beside_splits_and_merges_returns_what_stays_once_and_in_order`] |
//! | nothing is ever freed | [`a_tree_emptied_by_removes_gives_its_space_back`] |
//! | a missing key reads before the slot array | [`a_find_of_a_missing_key_stays_within_the_slots`] |

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use everleaf_engines::engine::CodecKind;
use everleaf_engines::index::{Condition, Index, WordIndex};
use everleaf_engines::rntree::{RnTreeOptions, instrumented};
use medium::testing::Late;
use medium::testing::late::{LateImage, Release};
use medium::{Instrumented, LineForm, Lsn};
use pool::{Pool, PoolOptions};

fn of_leaf(leaf_entries: usize) -> RnTreeOptions {
    RnTreeOptions {
        recovery_threads: 1,
        leaf_entries,
        ..RnTreeOptions::default()
    }
}

const PATIENCE: Duration = Duration::from_secs(20);

/// A pool on a medium that is durable late.
fn pool() -> (Arc<Late>, Pool<Instrumented>) {
    let late = Arc::new(Late::new(1 << 30, LineForm::Twin).unwrap());
    let pool = Pool::open(Instrumented::sharing(&late), PoolOptions::default()).unwrap();
    (late, pool)
}

fn create(pool: &Pool<Instrumented>, codec: CodecKind, leaf_entries: usize) -> Box<dyn Index> {
    instrumented::create(pool, "tree", codec, of_leaf(leaf_entries)).unwrap()
}

/// A tree of words.
fn tree(leaf_entries: usize, keys: impl IntoIterator<Item = u64>) -> (Arc<Late>, Box<dyn Index>) {
    let (late, pool) = pool();
    let tree = create(&pool, CodecKind::Word, leaf_entries);
    for key in keys {
        assert!(insert(&*tree, key));
    }
    (late, tree)
}

fn words(tree: &dyn Index) -> &dyn WordIndex {
    tree.words().unwrap()
}

fn insert(tree: &dyn Index, key: u64) -> bool {
    words(tree)
        .write_durably(key, Some(key + 1), Condition::Absent)
        .unwrap()
}

fn remove(tree: &dyn Index, key: u64) -> bool {
    words(tree)
        .write_durably(key, None, Condition::Present)
        .unwrap()
}

fn get(tree: &dyn Index, key: u64) -> Option<u64> {
    words(tree).get(key).unwrap()
}

fn keys(tree: &dyn Index) -> Vec<u64> {
    let mut keys = Vec::new();
    words(tree)
        .scan_each(0, |key, value| {
            assert_eq!(value, key + 1);
            keys.push(key);
            true
        })
        .unwrap();
    keys
}

fn assert_holds(tree: &dyn Index, expected: impl IntoIterator<Item = u64>) {
    let violations = tree.check().unwrap();
    assert!(
        violations.is_empty(),
        "{} violations, the first: {}",
        violations.len(),
        violations[0]
    );
    assert_eq!(keys(tree), expected.into_iter().collect::<Vec<_>>());
}

fn leaves(tree: &dyn Index) -> u64 {
    tree.stat().unwrap().leaves
}

/// Lets the stopped thread go on, even if the test fails meanwhile.
struct LetGo<'m>(&'m Late);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.set_release(Release::Immediate);
        self.0.let_go();
    }
}

/// Ends the process if a test does not: a thread that spins cannot be stopped, and a scope waits
/// for it.
struct Deadline(
    #[expect(dead_code, reason = "dropped, it tells that the test has ended")] mpsc::Sender<()>,
);

impl Deadline {
    fn begin() -> Self {
        let (alive, ended) = mpsc::channel();
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        std::thread::spawn(move || {
            if ended.recv_timeout(3 * PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{name} hangs");
                std::process::abort();
            }
        });
        Self(alive)
    }
}

/// Runs `operation` on a thread of its own up to its fence `further`, then `meanwhile`, then the
/// rest.
fn stop_at_fence(
    late: &Late,
    tree: &dyn Index,
    further: usize,
    operation: &(dyn Fn(&dyn Index) + Sync),
    meanwhile: &mut dyn FnMut(),
) {
    let _deadline = Deadline::begin();
    late.hold_fence(further);
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || operation(tree));
        let _let_go = LetGo(late);
        assert!(late.until_held(PATIENCE), "the operation has fewer fences");
        meanwhile();
        assert!(!worker.is_finished());
    });
}

/// Waits until `is_so` returns true.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// A share once held the lock of the inner nodes across the fences of its new leaves and of the line
/// that links them. All other splits of the tree waited for these persists.
#[test]
fn a_split_does_not_wait_for_the_persists_of_leaves_that_share() {
    // The fences of the share: the new leaves, and the line that links them.
    for further in 0..2 {
        let _deadline = Deadline::begin();
        // Keys in ascending order fill the leaves but for one entry, and 24 fills the first one. So
        // that has a right neighbour to share with, and the last leaf has none.
        let (late, tree) = tree(8, (0..1000).step_by(10).chain([24]));
        let tree = &*tree;
        let are_ready = Barrier::new(3);
        let is_holding = AtomicBool::new(false);
        let is_held = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _let_go = LetGo(&late);
            let sharing = scope.spawn(|| {
                // A slab of the thread's own, which a share need not fetch then.
                assert!((2000..2020).all(|key| insert(tree, key)));
                are_ready.wait();
                until("the test is ready", || is_holding.load(Ordering::Acquire));
                assert!(insert(tree, 25));
            });
            let splitting = scope.spawn(|| {
                assert!((3000..3020).all(|key| insert(tree, key)));
                are_ready.wait();
                until("a share is held", || is_held.load(Ordering::Acquire));
                assert!((4000..4040).all(|key| insert(tree, key)));
            });
            are_ready.wait();
            late.hold_fence(further);
            is_holding.store(true, Ordering::Release);
            assert!(late.until_held(PATIENCE), "the insert has fewer fences");
            is_held.store(true, Ordering::Release);
            until("a split waits for the fence of a share", || {
                splitting.is_finished()
            });
            assert!(!sharing.is_finished());
        });
        let mut expected: Vec<u64> = (0..1000).step_by(10).chain([24, 25]).collect();
        expected.sort_unstable();
        let others = (2000..2020).chain(3000..3020).chain(4000..4040);
        assert_holds(tree, expected.into_iter().chain(others));
    }
}

/// A merge once held the lock of the inner nodes across the fences of the entries that it moves and
/// of the line that lists them. All splits of the tree waited for these persists.
#[test]
fn a_split_does_not_wait_for_the_persists_of_leaves_that_merge() {
    // Fence 0 is that of the remove itself.
    for further in 1..3 {
        let _deadline = Deadline::begin();
        // Keys in ascending order fill the leaves but for one entry: the first leaf has 0 to 60, the
        // second one 70 to 130.
        let (late, tree) = tree(8, (0..1000).step_by(10));
        for key in [70, 80, 90, 100, 110, 0, 10, 20, 30] {
            assert!(remove(&*tree, key));
        }
        let leaves_before = leaves(&*tree);
        late.hold_fence(further);
        std::thread::scope(|scope| {
            // Leaves 50 and 60 in the first leaf, which takes 120 and 130 from the second.
            let merging = scope.spawn(|| assert!(remove(&*tree, 40)));
            let _let_go = LetGo(&late);
            assert!(late.until_held(PATIENCE), "the remove has fewer fences");
            let splitting = scope.spawn(|| (1000..1040).all(|key| insert(&*tree, key)));
            until("a split waits for the fence of a merge", || {
                splitting.is_finished()
            });
            assert!(!merging.is_finished());
        });
        let kept = [50, 60].into_iter().chain((120..1000).step_by(10));
        assert_holds(&*tree, kept.chain(1000..1040));
        // 40 keys in ascending order fill at least four leaves.
        assert!(leaves(&*tree) >= leaves_before + 3);
    }
}

#[test]
fn an_entry_claimed_before_a_split_is_published_in_the_leaf_that_covers_its_key() {
    // The key belongs to the upper half. Its writer has claimed and written an entry, and stops
    // before the lock.
    let (late, tree) = tree(8, [10, 20, 30, 40, 50, 60]);
    stop_at_fence(
        &late,
        &*tree,
        0,
        &|tree| assert!(insert(tree, 55)),
        &mut || {
            assert!(insert(&*tree, 25) && insert(&*tree, 26));
            assert!(leaves(&*tree) > 1, "no split");
            assert_eq!(get(&*tree, 55), None);
        },
    );
    assert_holds(&*tree, [10, 20, 25, 26, 30, 40, 50, 55, 60]);
}

/// A thread that holds a claim is not pinned: the claim alone keeps the leaf from being retired.
#[test]
fn a_leaf_with_a_claimed_entry_is_not_merged_away() {
    let (late, tree) = tree(4, [10, 20, 30, 40, 50]);
    assert_eq!(leaves(&*tree), 2);
    remove(&*tree, 30);
    let before = keys(&*tree);
    stop_at_fence(
        &late,
        &*tree,
        0,
        &|tree| assert!(insert(tree, 55)),
        &mut || {
            for key in &before[..3] {
                assert!(remove(&*tree, *key));
            }
            assert_eq!(leaves(&*tree), 2, "merged under a writer");
        },
    );
    assert_holds(&*tree, [50, 55]);
    assert!(remove(&*tree, 50));
    assert_eq!(leaves(&*tree), 1, "nothing was in the way of a merge");
    assert_holds(&*tree, [55]);
}

/// An unpublished claim survives recycling: no other thread gets its entry.
#[test]
fn a_claimed_entry_is_not_recycled() {
    let (late, tree) = tree(8, [10, 20, 30]);
    stop_at_fence(
        &late,
        &*tree,
        0,
        &|tree| assert!(insert(tree, 15)),
        &mut || {
            for _ in 0..50 {
                assert!(
                    words(&*tree)
                        .write_durably(20, Some(21), Condition::Present)
                        .unwrap()
                );
            }
        },
    );
    assert_holds(&*tree, [10, 15, 20, 30]);
}

#[test]
fn a_reader_never_waits_for_a_writer_and_sees_nothing_early() {
    // Stopped between publishing the slot line and its fence being over: the writer holds the
    // leaf's lock.
    let (late, tree) = tree(8, [10, 20, 30]);
    stop_at_fence(
        &late,
        &*tree,
        1,
        &|tree| assert!(insert(tree, 25)),
        &mut || {
            assert_eq!(get(&*tree, 20), Some(21));
            assert_eq!(get(&*tree, 25), None);
            assert_eq!(keys(&*tree), [10, 20, 30]);
        },
    );
    assert_holds(&*tree, [10, 20, 25, 30]);
}

#[test]
fn an_odd_leaf_keeps_its_last_entry_when_it_splits() {
    let (_, tree) = tree(7, [70, 10, 60, 20, 50, 30, 40]);
    assert_eq!(leaves(&*tree), 1);
    assert!(insert(&*tree, 35));
    assert_eq!(leaves(&*tree), 2);
    assert_holds(&*tree, [10, 20, 30, 35, 40, 50, 60, 70]);
}

/// Algorithm 3 rewrites slots that it still reads: where entries lie in descending order, the upper
/// half's slots come first.
#[test]
fn a_split_reads_no_slot_that_it_has_overwritten() {
    let (_, tree) = tree(8, [80, 70, 60, 50, 40, 30, 20, 10]);
    assert!(insert(&*tree, 45));
    assert_holds(&*tree, [10, 20, 30, 40, 45, 50, 60, 70, 80]);
}

/// Algorithm 3 takes the separator by physical position: the entry in the middle has another key
/// than the middle one.
#[test]
fn a_separator_is_the_middle_key_and_not_that_of_the_middle_entry() {
    for order in [
        [40, 80, 10, 70, 20, 60, 30, 50],
        [10, 80, 20, 70, 30, 60, 40, 50],
    ] {
        let (_, tree) = tree(8, order);
        assert!(insert(&*tree, 45));
        assert_eq!(leaves(&*tree), 2);
        // An operation that descends through the inner nodes arrives at the leaf that has and
        // covers the key.
        assert!(
            order.iter().all(|key| get(&*tree, *key) == Some(key + 1)),
            "{order:?}"
        );
        assert!(insert(&*tree, 46) && insert(&*tree, 54));
        assert_holds(&*tree, [10, 20, 30, 40, 45, 46, 50, 54, 60, 70, 80]);
    }
}

/// Algorithm 3 resets neither `nlogs` and `plogs` nor the transient slot array.
#[test]
fn both_halves_of_a_split_take_entries_at_once() {
    let (_, tree) = tree(8, [10, 20, 30, 40, 50, 60, 70, 80]);
    for key in [45, 11, 12, 13, 71, 72, 73, 14, 74] {
        assert!(insert(&*tree, key));
        assert_eq!(get(&*tree, key), Some(key + 1));
    }
    assert_holds(
        &*tree,
        [
            10, 11, 12, 13, 14, 20, 30, 40, 45, 50, 60, 70, 71, 72, 73, 74, 80,
        ],
    );
}

/// Algorithm 1 ignores the result of the conditional update.
#[test]
fn a_condition_that_fails_changes_nothing() {
    let (_, tree) = tree(8, [10]);
    assert!(
        !words(&*tree)
            .write_durably(11, Some(99), Condition::Present)
            .unwrap()
    );
    assert!(
        !words(&*tree)
            .write_durably(10, Some(99), Condition::Equals(10))
            .unwrap()
    );
    assert!(!remove(&*tree, 11));
    assert_holds(&*tree, [10]);
}

/// The published insert overwrites an existing key.
#[test]
fn an_insert_overwrites_nothing() {
    let (_, tree) = tree(8, [10, 20]);
    assert!(
        !words(&*tree)
            .write_durably(10, Some(99), Condition::Absent)
            .unwrap()
    );
    assert!(
        !words(&*tree)
            .write_durably(20, Some(99), Condition::Absent)
            .unwrap()
    );
    assert_holds(&*tree, [10, 20]);
}

/// Two inserts of one key, both past their first look: one of them holds.
#[test]
fn a_condition_that_fails_under_the_lock_changes_nothing_either() {
    let (late, tree) = tree(8, [10]);
    stop_at_fence(
        &late,
        &*tree,
        0,
        &|tree| {
            assert!(
                !words(tree)
                    .write_durably(20, Some(99), Condition::Absent)
                    .unwrap()
            );
        },
        &mut || assert!(insert(&*tree, 20)),
    );
    assert_holds(&*tree, [10, 20]);
}

/// In the published code an allocated entry whose second check fails is lost, the leaf never
/// reaches its split, and writers wait for ever.
#[test]
fn an_entry_whose_condition_failed_is_free_again() {
    let (late, tree) = tree(4, [10]);
    for round in 0..20 {
        let key = 100 + round;
        stop_at_fence(
            &late,
            &*tree,
            0,
            &|tree| {
                assert!(
                    !words(tree)
                        .write_durably(key, Some(99), Condition::Absent)
                        .unwrap()
                );
            },
            &mut || assert!(insert(&*tree, key)),
        );
        assert!(remove(&*tree, key));
    }
    assert!(insert(&*tree, 20) && insert(&*tree, 30) && insert(&*tree, 40));
    assert_eq!(leaves(&*tree), 1);
    assert_holds(&*tree, [10, 20, 30, 40]);
}

/// Algorithm 4 has no return.
#[test]
fn a_find_returns_the_value_of_each_key() {
    let (_, tree) = tree(4, (1..100).map(|key| 10 * key));
    assert!((1..100).all(|key| get(&*tree, 10 * key) == Some(10 * key + 1)));
    assert!(
        words(&*tree)
            .write_durably(u64::MAX, Some(7), Condition::Absent)
            .unwrap()
    );
    assert_eq!(get(&*tree, u64::MAX), Some(7));
}

/// In the published code a missing key makes the search read before the slot array.
#[test]
fn a_find_of_a_missing_key_stays_within_the_slots() {
    let (_, tree) = tree(4, []);
    assert_eq!([get(&*tree, 0), get(&*tree, u64::MAX)], [None; 2]);
    let (_, tree) = self::tree(4, (1..100).map(|key| 10 * key));
    assert!(
        [0, 5, 15, 985, 991, u64::MAX]
            .iter()
            .all(|key| get(&*tree, *key).is_none())
    );
}

/// In the published code a scan takes no care of writers.
#[test]
fn a_scan_beside_splits_and_merges_returns_what_stays_once_and_in_order() {
    let _deadline = Deadline::begin();
    let (_, tree) = tree(4, (0..200).map(|key| 10 * key));
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let tree = &*tree;
        let finished = &finished;
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
    assert_holds(&*tree, (0..200).map(|key| 10 * key));
}

/// In the published code nothing is ever freed.
#[test]
fn a_tree_emptied_by_removes_gives_its_space_back() {
    let (_late, pool) = pool();
    let tree = create(&pool, CodecKind::Word, 56);
    let empty = pool.stat().allocations;
    (0..20_000).for_each(|key| assert!(insert(&*tree, key)));
    (0..20_000).for_each(|key| assert!(remove(&*tree, key)));
    pool.reclaim();
    assert_eq!(leaves(&*tree), 1);
    assert_eq!(pool.stat().allocations, empty);
}

/// In the published code the link to the next leaf is outside of the range that a split flushes. At
/// whichever fence of a split a crash comes, it keeps all keys; and when the insert that needed it
/// has returned, the new leaf is linked.
#[test]
fn a_split_that_returned_has_its_link_on_the_medium() {
    let _deadline = Deadline::begin();
    let old = [10, 20, 30, 40];
    let (late, tree) = tree(4, old);
    late.set_release(Release::Manual);
    let before = late.fenced();
    std::thread::scope(|scope| {
        let _let_go = LetGo(&late);
        scope.spawn(|| assert!(insert(&*tree, 25)));
        assert!(late.until_waiting(1, PATIENCE));
        let after = late.fenced();
        let mut leaves_left = Vec::new();
        for fenced in before.0..=after.0 {
            let left = after_crash(4, &late.image(Lsn(fenced)));
            let is_done = fenced == after.0;
            assert_holds(
                &*left,
                [10, 20, 25, 30, 40]
                    .into_iter()
                    .filter(|key| is_done || old.contains(key)),
            );
            leaves_left.push(leaves(&*left));
        }
        assert!(
            leaves_left.is_sorted() && leaves_left.first() == Some(&1),
            "{leaves_left:?}"
        );
        assert!(
            leaves_left.ends_with(&[2, 2, 2]),
            "the link comes before the entry: {leaves_left:?}"
        );
    });
}

/// The published repair sets the next free entry one too low, so that the next insert overwrites a
/// live record.
#[test]
fn a_recovered_tree_takes_entries_without_losing_any() {
    let (late, tree) = tree(4, (0..50).map(|key| 10 * key));
    let image = late.durable_image();
    drop(tree);
    let tree = after_crash(4, &image);
    assert_holds(&*tree, (0..50).map(|key| 10 * key));
    (0..50).for_each(|key| assert!(insert(&*tree, 10 * key + 5)));
    assert_holds(&*tree, (0..100).map(|key| 5 * key));
}

/// The tree that a crash left.
fn after_crash(leaf_entries: usize, image: &LateImage) -> Box<dyn Index> {
    let medium = Late::from_image(image, 1 << 30, LineForm::Twin).unwrap();
    let crashed = Pool::open(Instrumented::new(medium), PoolOptions::default()).unwrap();
    assert!(crashed.needs_mark());
    let root = crashed.trees().unwrap().remove(0);
    let tree = instrumented::open(&crashed, &root, CodecKind::Word, of_leaf(leaf_entries)).unwrap();
    crashed.finish_marking();
    tree
}
