//! RNTree on a medium that becomes durable late: no lock is held across a wait, and no reader
//! returns a value that a crash could take back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use everleaf_engines::engine::CodecKind;
use everleaf_engines::index::{Condition, Index};
use everleaf_engines::rntree::{RnTreeOptions, instrumented};
use medium::testing::Late;
use medium::testing::late::Release;
use medium::{Instrumented, LineForm};
use pool::{Pool, PoolOptions};

fn of_leaf(leaf_entries: usize) -> RnTreeOptions {
    RnTreeOptions {
        recovery_threads: 1,
        leaf_entries,
        ..RnTreeOptions::default()
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
const FORMS: [LineForm; 2] = [LineForm::Single, LineForm::Twin];

fn late(form: LineForm) -> Arc<Late> {
    Arc::new(Late::new(1 << 30, form).unwrap())
}

/// A pool that is not closed cleanly, so that its end is like a crash.
fn open(medium: &Arc<Late>) -> Pool<Instrumented> {
    let options = PoolOptions {
        close_on_drop: false,
        ..PoolOptions::default()
    };
    Pool::open(Instrumented::sharing(medium), options).unwrap()
}

/// A tree of words.
fn tree(late: &Arc<Late>, leaf_entries: usize, keys: u64) -> Box<dyn Index> {
    late.set_release(Release::Immediate);
    let tree =
        instrumented::create(&open(late), "words", CodecKind::Word, of_leaf(leaf_entries)).unwrap();
    let words = tree.words().unwrap();
    for key in 0..keys {
        assert!(
            words
                .write_durably(10 * key, Some(key), Condition::Absent)
                .unwrap()
        );
    }
    late.set_release(Release::Manual);
    tree
}

/// The entries that a crash at this moment would leave.
fn after_crash(late: &Late, leaf_entries: usize, form: LineForm) -> Vec<(u64, u64)> {
    let medium = Arc::new(Late::from_image(&late.durable_image(), 1 << 30, form).unwrap());
    medium.set_release(Release::Immediate);
    let crashed = open(&medium);
    let root = crashed.trees().unwrap().remove(0);
    let tree = instrumented::open(&crashed, &root, CodecKind::Word, of_leaf(leaf_entries)).unwrap();
    crashed.finish_marking();
    assert!(tree.check().unwrap().is_empty());
    let mut entries = Vec::new();
    tree.words()
        .unwrap()
        .scan_each(0, |key, value| {
            entries.push((key, value));
            true
        })
        .unwrap();
    entries
}

#[test]
fn no_lock_is_held_across_a_wait() {
    for form in FORMS {
        let late = late(form);
        let tree = tree(&late, 56, 10);
        let words = tree.words().unwrap();
        std::thread::scope(|scope| {
            // Ten writers write to one leaf. Were the lock held across the wait, only one would get
            // as far as waiting.
            for key in 0..10 {
                scope.spawn(move || {
                    assert!(
                        words
                            .write_durably(10 * key + 1, Some(7), Condition::Absent)
                            .unwrap()
                    );
                });
            }
            assert!(
                late.until_waiting(10, PATIENCE),
                "{form:?}: {:?} wait",
                late.waiting()
            );
            late.release_all();
        });
        assert_eq!(tree.len().unwrap(), 20);
    }
}

#[test]
fn a_reader_waits_for_what_a_crash_could_take_back() {
    for form in FORMS {
        let late = late(form);
        let tree = tree(&late, 56, 10);
        let words = tree.words().unwrap();
        let read = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let read = &read;
            scope.spawn(move || {
                assert!(
                    words
                        .write_durably(50, Some(99), Condition::Present)
                        .unwrap()
                );
            });
            assert!(late.until_waiting(1, PATIENCE));
            scope.spawn(move || read.store(words.get(50).unwrap().unwrap(), Ordering::SeqCst));
            // The reader waits, too, so no thread has returned the 99, which a crash at this moment
            // would take back.
            assert!(late.until_waiting(2, PATIENCE));
            assert_eq!(read.load(Ordering::SeqCst), 0);
            assert!(after_crash(&late, 56, form).contains(&(50, 5)));
            late.release_all();
        });
        assert_eq!(read.load(Ordering::SeqCst), 99);
        assert!(after_crash(&late, 56, form).contains(&(50, 99)));
    }
}

/// Scans, conditional writes that fail because of the value that they read, and the number of keys
/// also wait for the writes that they saw.
#[test]
fn scans_failed_conditions_and_counts_wait_for_what_they_saw() {
    let late = late(LineForm::Single);
    let tree = tree(&late, 56, 10);
    let words = tree.words().unwrap();
    let finished = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let tree = &*tree;
        let finished = &finished;
        scope.spawn(move || assert!(words.write_durably(55, Some(1), Condition::Absent).unwrap()));
        assert!(late.until_waiting(1, PATIENCE));
        scope.spawn(move || {
            words.scan_each(55, |key, _| key != 55).unwrap();
            finished.fetch_add(1, Ordering::SeqCst);
        });
        scope.spawn(move || {
            assert!(!words.write_durably(55, Some(2), Condition::Absent).unwrap());
            finished.fetch_add(1, Ordering::SeqCst);
        });
        scope.spawn(move || {
            assert!(!words.write_durably(55, None, Condition::Equals(3)).unwrap());
            finished.fetch_add(1, Ordering::SeqCst);
        });
        scope.spawn(move || {
            assert_eq!(tree.len().unwrap(), 11);
            finished.fetch_add(1, Ordering::SeqCst);
        });
        assert!(late.until_waiting(5, PATIENCE), "{:?} wait", late.waiting());
        assert_eq!(finished.load(Ordering::SeqCst), 0);
        late.release_all();
    });
    assert_eq!(finished.load(Ordering::SeqCst), 4);
}

/// Whatever prefix of the groups is durable, a crash leaves a prefix of one thread's operations:
/// through splits, shares, merges and the reuse of the space that they free.
#[test]
fn every_durable_prefix_is_a_prefix_of_the_operations() {
    for form in FORMS {
        let late = late(form);
        let tree = Arc::<dyn Index>::from(tree(&late, 4, 0));
        let start = late.fenced();
        let mut model = std::collections::BTreeMap::new();
        let mut states = vec![model.clone()];
        let operations: Vec<(u64, Option<u64>)> = (0..60)
            .map(|i| (i * 7 % 23, (i % 3 != 2).then_some(i)))
            .collect();
        for (key, value) in &operations {
            match value {
                Some(value) => model.insert(*key, *value),
                None => model.remove(key),
            };
            states.push(model.clone());
        }
        let worker = {
            let tree = Arc::clone(&tree);
            std::thread::spawn(move || {
                let words = tree.words().unwrap();
                for (key, value) in operations {
                    words.write_durably(key, value, Condition::Always).unwrap();
                }
            })
        };
        let mut released = start.0;
        let mut reached = 0;
        while !worker.is_finished() {
            if !late.until_waiting(1, Duration::from_millis(20)) {
                continue;
            }
            let entries = after_crash(&late, 4, form);
            let found = states[reached..]
                .iter()
                .position(|state| entries.iter().copied().eq(state.clone()));
            reached += found.unwrap_or_else(|| {
                panic!("{form:?}: after LSN {released}: {entries:?} is no state")
            });
            released += 1;
            late.release(medium::Lsn(released));
        }
        worker.join().unwrap();
        assert!(reached > 40, "only {reached} states were seen");
    }
}
