//! The durable Masstree: batches, bulk loads and the operations that wait for them, media that
//! fail, the cost of operations.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use everleaf_engines::engine::CodecKind;
use everleaf_engines::index::{Bounds, Condition, Direction, EpochLength, Index};
use everleaf_engines::masstree::{MassTreeOptions, Mode, instrumented};
use everleaf_engines::{Error, ErrorKind};
use medium::testing::faulty::{Faults, Image, Machine, Which};
use medium::{Dax, File, FileOptions, Instrumented, MediumError};
use pool::{Pool, PoolOptions};

type Tree = dyn Index;
type Call = fn(&Tree) -> Result<(), Error>;

fn options() -> MassTreeOptions {
    MassTreeOptions {
        epoch: EpochLength::Manual,
        width: Some(4),
        recovery_threads: 1,
        ..MassTreeOptions::default()
    }
}

fn pool_on(medium: Instrumented) -> Pool<Instrumented> {
    Pool::open(
        medium,
        PoolOptions {
            step_slabs_min: 1,
            ..PoolOptions::default()
        },
    )
    .unwrap()
}

fn pool(limit_bytes: u64) -> Pool<Instrumented> {
    pool_on(Instrumented::new(Dax::plain(limit_bytes).unwrap()))
}

/// A tree of records.
fn create(pool: &Pool<Instrumented>, options: MassTreeOptions) -> Box<Tree> {
    instrumented::create(pool, "tree", CodecKind::Record, options).unwrap()
}

/// A tree of words, with as large nodes as can be.
fn create_words(pool: &Pool<Instrumented>) -> Box<Tree> {
    let options = MassTreeOptions {
        width: None,
        ..options()
    };
    instrumented::create(pool, "tree", CodecKind::Word, options).unwrap()
}

/// The only tree of a pool, which has records.
fn open(pool: &Pool<Instrumented>, options: MassTreeOptions) -> Result<Box<Tree>, Error> {
    instrumented::open(pool, &pool.trees().unwrap()[0], CodecKind::Record, options)
}

fn tree(limit_bytes: u64) -> Box<Tree> {
    create(&pool(limit_bytes), options())
}

fn put(tree: &dyn Index, key: u64, value: &[u8]) -> Result<bool, Error> {
    tree.write_durably(&key.to_be_bytes(), Some(value), Condition::Always)
}

fn is_sound(tree: &dyn Index) -> bool {
    tree.check().unwrap().is_empty()
}

/// A time so long that a slow machine is no explanation.
const EVER: Duration = Duration::from_secs(60);

/// A load once held its epoch until its source had ended. Operations that end an epoch or hold
/// writers back waited for it, and were refused in the source itself.
#[test]
fn a_load_holds_up_nobody() {
    const ENTRIES: u64 = 100;
    let tree = &*tree(64 << 20);
    let before = tree.epochs().unwrap().epoch_stat().running;
    let mut keys = 0..ENTRIES;
    let mut is_over = false;
    let mut source = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
        assert!(!is_over, "a source is not called after its end");
        is_over = keys.is_empty();
        let Some(number) = keys.next() else {
            return Ok(false);
        };
        tree.sync()?;
        assert_eq!(tree.stat()?.keys, 0);
        assert!(is_sound(tree));
        tree.epochs().unwrap().within_epoch(&mut |_| {
            tree.write_durably(b"absent", None, Condition::Always)
                .map(drop)
        })?;
        std::thread::scope(|scope| {
            // More threads than shards.
            (0..9).for_each(|_| {
                drop(scope.spawn(|| assert!(!tree.update(b"absent", b"value").unwrap())));
            });
        });
        *key = number.to_be_bytes().to_vec();
        *value = b"value".to_vec();
        Ok(true)
    };
    assert_eq!(tree.bulk_load(&mut source, 1.0).unwrap(), ENTRIES);
    // An epoch without changes does not end.
    assert!(tree.epochs().unwrap().epoch_stat().running > before + ENTRIES / 20);
    assert!(is_sound(tree));
    assert_eq!(tree.len().unwrap(), ENTRIES);
}

/// A load that fails gives its runs back, whatever epochs have ended meanwhile.
#[test]
fn a_load_that_fails_late_takes_no_space() {
    let pool = pool(64 << 20);
    let tree = create(&pool, options());
    let before = pool.stat().allocations;
    for round in 0..3 {
        let mut keys = 0..10_000_u64;
        let mut source = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
            let number = keys.next().ok_or(ErrorKind::WithinEpoch)?;
            if number % 1000 == 0 {
                tree.sync()?;
            }
            *key = number.to_be_bytes().to_vec();
            *value = vec![7; 100];
            Ok(true)
        };
        let refused = tree.bulk_load(&mut source, 1.0).unwrap_err();
        assert!(
            matches!(refused.kind(), ErrorKind::WithinEpoch),
            "round {round}: {refused}"
        );
        assert_eq!(pool.stat().allocations, before, "round {round}");
    }
    assert!(is_sound(&*tree));
}

/// Each thread has a part of the free space.
#[test]
fn threads_that_come_and_go_use_the_space_of_those_before() {
    const ROUNDS: usize = 12;
    let key = |number: u64| number.to_be_bytes();
    let pool = pool(256 << 20);
    let tree = &*create(&pool, options());
    let mut used = Vec::new();
    for _ in 0..ROUNDS {
        std::thread::scope(|scope| {
            scope.spawn(|| (0..5000).for_each(|number| tree.put(&key(number), &[7; 100]).unwrap()));
        });
        tree.sync().unwrap();
        std::thread::scope(|scope| {
            scope
                .spawn(|| (0..5000).for_each(|number| assert!(tree.remove(&key(number)).unwrap())));
        });
        tree.sync().unwrap();
        used.push(pool.stat().used_bytes);
    }
    assert!(is_sound(tree));
    // Each thread fills slabs of its own.
    assert!(used[ROUNDS - 1] < 2 * used[0], "{used:?}");
}

/// Two threads update keys, each for an epoch and a half, so that one of them still takes free
/// objects where the other one began to search for more.
#[test]
fn threads_that_take_turns_within_an_epoch_need_no_more_space() {
    let pool = pool(256 << 20);
    let tree = &*create(&pool, options());
    let mut used = Vec::new();
    std::thread::scope(|scope| {
        let workers = [0_u64, 1].map(|worker| {
            let (turn, turns) = channel::<()>();
            let (done, is_done) = channel::<()>();
            scope.spawn(move || {
                for round in 0.. {
                    if turns.recv().is_err() {
                        break;
                    }
                    let number =
                        |step: u64| (2 * (500 * (round % 2) + step) + worker).to_be_bytes();
                    (0..500).for_each(|step| tree.put(&number(step), &[7; 100]).unwrap());
                    done.send(()).unwrap();
                }
            });
            (turn, is_done)
        });
        for _ in 0..60 {
            for epoch in [[0, 0], [0, 1], [1, 1]] {
                for worker in epoch {
                    let (turn, is_done): &(Sender<()>, Receiver<()>) = &workers[worker];
                    turn.send(()).unwrap();
                    is_done.recv().unwrap();
                }
                tree.sync().unwrap();
            }
            used.push(pool.stat().used_bytes);
        }
    });
    assert!(is_sound(tree));
    assert!(used[59] <= used[9], "{used:?}");
}

/// The load had to remember 8 bytes for each record and each node.
#[test]
fn a_load_keeps_no_memory_when_its_epoch_has_ended() {
    let tree = tree(256 << 20);
    let mut keys = 0..300_000_u64;
    let mut source = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
        let Some(number) = keys.next() else {
            return Ok(false);
        };
        key.clear();
        value.clear();
        key.extend_from_slice(&number.to_be_bytes());
        Ok(true)
    };
    let kept = || tree.stat().unwrap().volatile_bytes;
    let before = kept();
    tree.bulk_load(&mut source, 1.0).unwrap();
    assert!(kept() > before + 8 * 300_000);
    tree.sync().unwrap();
    assert!(
        kept() <= before + (300 << 10),
        "{} bytes are kept, {before} before",
        kept()
    );
}

#[test]
fn a_sweep_begins_with_the_open_however_long_an_epoch_lasts() {
    let pool = pool(64 << 20);
    let crashing = MassTreeOptions {
        close_cleanly: false,
        ..options()
    };
    let tree = create(&pool, crashing);
    (0..1000_u64).for_each(|key| assert!(tree.insert(&key.to_be_bytes(), b"value").unwrap()));
    tree.sync().unwrap();
    assert!(tree.remove(&7_u64.to_be_bytes()).unwrap());
    drop(tree);
    let epoch = EpochLength::Every(Duration::from_secs(1 << 20));
    let tree = open(&pool, MassTreeOptions { epoch, ..options() }).unwrap();
    let start = Instant::now();
    while tree.epochs().unwrap().epoch_stat().is_sweeping {
        assert!(
            start.elapsed() < EVER,
            "{} keys were swept",
            tree.epochs().unwrap().epoch_stat().swept_keys
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(
        (
            tree.epochs().unwrap().epoch_stat().swept_keys,
            tree.len().unwrap()
        ),
        (1000, 1000)
    );
}

#[test]
fn a_batch_beyond_the_external_log_is_told_to_be_smaller() {
    const LOGGED: u64 = 1024 * 102;
    let pool = pool(1 << 30);
    let logging = MassTreeOptions {
        mode: Mode::Logging,
        ..options()
    };
    let tree = instrumented::create(&pool, "tree", CodecKind::Word, logging).unwrap();
    let mut keys = 0..4 * LOGGED + 400;
    let mut source = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
        let Some(number) = keys.next() else {
            return Ok(false);
        };
        key.clear();
        value.clear();
        key.extend_from_slice(&number.to_be_bytes());
        value.extend_from_slice(&number.to_be_bytes());
        Ok(true)
    };
    tree.bulk_load(&mut source, 1.0).unwrap();
    tree.sync().unwrap();
    let word = 7_u64.to_be_bytes();
    let mut written = 0;
    let ended = tree.epochs().unwrap().within_epoch(&mut |_| {
        (0..=LOGGED + 100).try_for_each(|node| {
            put(&*tree, 4 * node, &word)?;
            written = node + 1;
            Ok(())
        })
    });
    let error = ended.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::EpochFull { limit: LOGGED }),
        "{error}"
    );
    assert!(error.to_string().contains("further batches"), "{error}");
    assert_eq!(written, LOGGED);
    // By itself a write ends the epoch, and has all of the log again.
    tree.put(&(4 * LOGGED + 8).to_be_bytes(), &word).unwrap();
    assert_eq!(
        tree.get(&0_u64.to_be_bytes()).unwrap().unwrap().as_slice(),
        word
    );
}

fn create_with(width: usize, mode: Mode) -> Result<(), Error> {
    let options = MassTreeOptions {
        mode,
        width: Some(width),
        ..options()
    };
    instrumented::create(&pool(16 << 20), "tree", CodecKind::Record, options).map(drop)
}

#[test]
fn no_node_is_so_wide_that_its_logs_lie_in_other_lines_than_its_values() {
    for (width, mode) in [
        (3, Mode::InLine),
        (15, Mode::InLine),
        (15, Mode::Logging),
        (16, Mode::Transient),
    ] {
        let error = create_with(width, mode).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Setting { .. }), "{error}");
        assert!(
            error
                .to_string()
                .contains(&format!("a node of {width} entries")),
            "{error}"
        );
    }
    for (width, mode) in [
        (4, Mode::InLine),
        (7, Mode::InLine),
        (14, Mode::Logging),
        (15, Mode::Transient),
    ] {
        create_with(width, mode).unwrap();
    }
}

#[test]
fn a_tree_opens_with_the_width_that_it_was_made_with() {
    let pool = pool(16 << 20);
    let of_width = |width| MassTreeOptions { width, ..options() };
    drop(create(&pool, of_width(Some(6))));
    drop(open(&pool, of_width(None)).unwrap());
    let error = open(&pool, of_width(Some(8))).err().unwrap();
    assert!(
        matches!(error.kind(), ErrorKind::TreeMismatch { .. }),
        "{error}"
    );
}

#[test]
fn what_would_wait_for_a_batch_is_refused_inside_of_it() {
    let other = tree(16 << 20);
    let tree = tree(16 << 20);
    let is_refused = |result: Result<(), Error>| {
        assert!(matches!(result.unwrap_err().kind(), ErrorKind::WithinEpoch));
    };
    let ended = tree.epochs().unwrap().within_epoch(&mut |_| {
        put(&*tree, 1, b"one")?;
        tree.put(b"key", b"value")?;
        is_refused(tree.sync());
        is_refused(tree.stat().map(drop));
        is_refused(tree.check().map(drop));
        is_refused(tree.epochs().unwrap().within_epoch(&mut |_| Ok(())));
        is_refused(tree.bulk_load(&mut |_, _| Ok(false), 1.0).map(drop));
        is_refused(other.sync());
        is_refused(other.stat().map(drop));
        is_refused(other.check().map(drop));
        is_refused(other.epochs().unwrap().sweep());
        other.put(b"key", b"value").map(drop)
    });
    ended.unwrap();
    let ended = other.bulk_load(&mut |_, _| Ok(false), 1.0);
    assert!(matches!(ended.unwrap_err().kind(), ErrorKind::NotEmpty));
    tree.put(b"key", b"value").unwrap();
    tree.sync().unwrap();
    assert_eq!((tree.len().unwrap(), other.len().unwrap()), (2, 1));
}

/// Each of two threads is in a batch of its own tree when it uses the other's.
fn in_batches_of_two_trees(
    shards: usize,
    run: fn(&Tree) -> Result<(), Error>,
) -> [Result<(), Error>; 2] {
    let make = || {
        Arc::<Tree>::from(create(
            &pool(16 << 20),
            MassTreeOptions {
                shards,
                ..options()
            },
        ))
    };
    let trees = [make(), make()];
    let barrier = Arc::new(std::sync::Barrier::new(2));
    let (done, is_done) = channel();
    // The threads are not joined: threads that wait for each other would wait for ever.
    for own in 0..2 {
        let trees = trees.clone();
        let barrier = Arc::clone(&barrier);
        let done = done.clone();
        std::thread::spawn(move || {
            let ended = trees[own].epochs().unwrap().within_epoch(&mut |_| {
                put(&*trees[own], 1, b"one")?;
                barrier.wait();
                let ended = run(&*trees[1 - own]);
                barrier.wait();
                ended
            });
            done.send(ended)
        });
    }
    std::array::from_fn(|_| {
        is_done
            .recv_timeout(EVER)
            .expect("two batches wait for each other")
    })
}

/// Epochs end without a tree that nobody writes to. A batch that begins with that tree lies in the
/// epoch that runs in the whole pool nevertheless.
#[test]
fn an_idle_tree_is_left_out_of_the_ends_of_epochs() {
    let pool = pool(16 << 20);
    let [idle, busy] = ["idle", "busy"]
        .map(|name| instrumented::create(&pool, name, CodecKind::Record, options()).unwrap());
    let ends = |tree: &Tree| tree.epochs().unwrap().epoch_stat().epochs;
    let sync = || busy.epochs().unwrap().sync().unwrap();
    put(&*idle, 1, b"one").unwrap();
    put(&*busy, 1, b"one").unwrap();
    sync();
    // In the next epoch nothing changes in the tree.
    put(&*busy, 2, b"two").unwrap();
    sync();
    let before = [ends(&*idle), ends(&*busy)];
    for key in 3..13 {
        put(&*busy, key, b"more").unwrap();
        sync();
    }
    assert_eq!([ends(&*idle), ends(&*busy)], [before[0], before[1] + 10]);

    let running = busy.epochs().unwrap().running();
    assert_eq!(idle.epochs().unwrap().running(), running);
    let mut epoch = 0;
    let batch = idle.epochs().unwrap().within_epoch(&mut |number| {
        epoch = number;
        put(&*idle, 2, b"two").map(drop)
    });
    batch.unwrap();
    assert_eq!(epoch, running);
    sync();
    assert_eq!(ends(&*idle), before[0] + 1);
    assert!(is_sound(&*idle) && is_sound(&*busy));
}

#[test]
fn two_batches_do_not_wait_for_each_other() {
    let is_refused = |ended: &Result<(), Error>| {
        ended
            .as_ref()
            .is_err_and(|error| matches!(error.kind(), ErrorKind::WithinEpoch))
    };
    let of_all: [Call; 3] = [
        |tree| tree.sync(),
        |tree| tree.check().map(drop),
        |tree| tree.stat().map(drop),
    ];
    for run in of_all {
        assert!(in_batches_of_two_trees(8, run).iter().all(is_refused));
    }
    let write: Call = |tree| tree.put(b"key", b"value").map(drop);
    assert!(in_batches_of_two_trees(8, write).iter().all(Result::is_ok));
    // A write in a batch takes a shard for its own time only.
    assert!(in_batches_of_two_trees(1, write).iter().all(Result::is_ok));
    // A pool that is full: no room is made.
    let full: Call = |tree| {
        (0..1_000_000_u64).try_for_each(|key| tree.put(&key.to_be_bytes(), &[7; 900]).map(drop))
    };
    for ended in in_batches_of_two_trees(8, full) {
        assert!(ended.unwrap_err().is_full());
    }
}

#[test]
fn a_batch_in_a_full_pool_fails_and_leaves_a_tree_that_goes_on() {
    let tree = tree(1 << 20);
    let mut written = 0;
    let ended = tree.epochs().unwrap().within_epoch(&mut |_| {
        (0..).try_for_each(|key| {
            put(&*tree, key, &[7; 100])?;
            written = key + 1;
            Ok(())
        })
    });
    assert!(ended.unwrap_err().is_full());
    assert!(written > 1000, "{written} keys");
    assert!(is_sound(&*tree));
    assert_eq!(tree.len().unwrap(), written);
    // Three of four keys of each node are removed: that needs no log, which would take space.
    // Objects that are freed in an epoch are reused in a later one.
    let freed = (0..written).filter(|key| key % 4 != 0);
    let removed = freed
        .filter(|key| tree.remove(&key.to_be_bytes()).is_ok_and(|held| held))
        .count() as u64;
    assert!(removed > written / 4, "{removed} of {written} removed");
    tree.sync().unwrap();
    let ended = tree.epochs().unwrap().within_epoch(&mut |_| {
        (0..written)
            .filter(|key| key % 4 == 0)
            .take(removed as usize / 2)
            .try_for_each(|key| {
                assert!(put(&*tree, key, &[8; 100])?);
                Ok(())
            })
    });
    ended.unwrap();
    assert!(is_sound(&*tree));
    assert_eq!(tree.len().unwrap(), written - removed);
}

#[test]
fn a_batch_that_ends_by_an_error_or_a_panic_ends() {
    let tree = tree(16 << 20);
    for is_panic in [false, true] {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            tree.epochs().unwrap().within_epoch(&mut |_| {
                put(&*tree, 1, b"kept")?;
                assert!(!is_panic, "on purpose");
                Err(ErrorKind::InUse.into())
            })
        }));
        assert_eq!(ended.is_err(), is_panic);
        if let Ok(ended) = ended {
            assert!(matches!(ended.unwrap_err().kind(), ErrorKind::InUse));
        }
        // Earlier writes stay, and nothing waits for the batch.
        assert_eq!(
            tree.get(&1_u64.to_be_bytes()).unwrap().unwrap().as_slice(),
            b"kept"
        );
        tree.put(b"key", b"value").unwrap();
        tree.sync().unwrap();
        tree.epochs()
            .unwrap()
            .within_epoch(&mut |_| {
                tree.write_durably(&1_u64.to_be_bytes(), None, Condition::Always)
                    .map(drop)
            })
            .unwrap();
        assert!(is_sound(&*tree));
    }
}

/// The operations also work with the width and in the mode that exist only for comparisons.
#[test]
fn without_logs_the_tree_is_the_same_map() {
    let pool = pool(64 << 20);
    let transient = MassTreeOptions {
        mode: Mode::Transient,
        width: None,
        ..options()
    };
    let tree = create(&pool, transient);
    let mut model = BTreeMap::new();
    let mut state = 3_u64;
    for step in 0..60_000_u32 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let number = state >> 33;
        let mut key = format!("{:05}", number % 3000).into_bytes();
        key.resize(5 + number as usize % 3 * 8, b'-');
        // More inserts than removes at first, then the other way round.
        let removes = 1 + u64::from(step > 30_000) * 2;
        if number / 3000 % 4 < removes {
            assert_eq!(tree.remove(&key).unwrap(), model.remove(&key).is_some());
        } else {
            let value = step.to_be_bytes();
            assert_eq!(
                tree.insert(&key, &value).unwrap(),
                !model.contains_key(&key)
            );
            model.entry(key).or_insert(value);
        }
        if step % 1000 == 0 {
            tree.sync().unwrap();
        }
        if step % 20_000 == 0 {
            assert!(is_sound(&*tree));
        }
    }
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut scan = tree.range(Bounds::all(), direction).unwrap();
        let mut key = Vec::new();
        let mut value = Vec::new();
        let mut found = Vec::new();
        while scan.next_into(&mut key, &mut value).unwrap() {
            found.push((key.clone(), value.clone()));
        }
        if direction == Direction::Reverse {
            found.reverse();
        }
        let expected = model
            .iter()
            .map(|(key, value)| (key.clone(), value.to_vec()));
        assert!(found.into_iter().eq(expected));
    }
    assert!(is_sound(&*tree));
}

/// The persists in the table of the module: none, or one if a node goes to the external log.
#[test]
fn operations_take_no_fence_but_for_the_external_log() {
    let medium = Instrumented::new(Dax::plain(64 << 20).unwrap()).counted();
    let pool = pool_on(medium.clone());
    let tree = create_words(&pool);
    let word = |word: u64| word.to_be_bytes();
    // Nodes have about 7 entries, so that there is room; and there is free space of each size.
    (0..200).for_each(|key| assert!(tree.insert(&word(10 * key), &word(key)).unwrap()));
    (0..200)
        .filter(|key| key % 2 == 0)
        .for_each(|key| assert!(tree.remove(&word(10 * key)).unwrap()));
    tree.sync().unwrap();
    let fences = |run: &dyn Fn() -> Result<bool, Error>| {
        let before = medium.counts().unwrap().fences;
        assert!(run().unwrap());
        medium.counts().unwrap().fences - before
    };
    for epoch in 0..5 {
        let key = word(10 * (2 * epoch + 51));
        let own = word(10 * (2 * epoch + 51) + 1);
        assert_eq!(fences(&|| tree.insert(&own, &word(1))), 0, "insert");
        assert_eq!(fences(&|| tree.update(&key, &word(2))), 0, "update");
        assert_eq!(
            fences(&|| tree.update(&key, &word(3))),
            0,
            "the same value again"
        );
        assert_eq!(fences(&|| Ok(tree.get(&key)?.is_some())), 0, "get");
        assert_eq!(fences(&|| tree.remove(&own)), 0, "remove");
        assert_eq!(
            fences(&|| tree.insert(&own, &word(1))),
            1,
            "insert after a remove"
        );
        assert_eq!(
            fences(&|| tree.update(&own, &word(2))),
            0,
            "whatever follows in that epoch"
        );
        assert_eq!(fences(&|| tree.remove(&own)), 0, "and this");
        assert_eq!(
            fences(&|| tree.sync().map(|()| true)),
            3,
            "the end of an epoch, two of them in the pause"
        );
    }
}

/// Space that was freed through one shard is found through another one, even if fewer shards are
/// used than before.
#[test]
fn a_tree_that_is_opened_for_fewer_threads_has_all_of_its_space() {
    let fill = |tree: &Tree, keys: std::ops::Range<u64>| {
        keys.take_while(|key| tree.put(&key.to_be_bytes(), &[7; 100]).is_ok())
            .count() as u64
    };
    let all = fill(&*tree(4 << 20), 0..1_000_000);
    let pool = pool(4 << 20);
    let of_shards = |shards| MassTreeOptions {
        shards,
        ..options()
    };
    let tree = create(&pool, of_shards(8));
    std::thread::scope(|scope| {
        // The threads run one after the other, each with a shard of its own.
        for keys in [0..2 * all / 5, 2 * all / 5..4 * all / 5] {
            let fill = &fill;
            let tree = &*tree;
            let part = move || {
                assert_eq!(fill(tree, keys.clone()), keys.end - keys.start);
                keys.clone()
                    .for_each(|key| assert!(tree.remove(&key.to_be_bytes()).unwrap()));
            };
            scope.spawn(part).join().unwrap();
        }
    });
    tree.sync().unwrap();
    drop(tree);
    let tree = open(&pool, of_shards(1)).unwrap();
    let again = fill(&*tree, 0..1_000_000);
    assert!(10 * again > 8 * all, "{again} keys of {all}");
    assert!(is_sound(&*tree));
}

/// A removal that empties a node logs the node above, which takes space. In a full pool the thread
/// takes that space from a thread that has some.
#[test]
fn a_full_pool_is_emptied_by_threads_that_had_no_part_in_filling_it() {
    let tree = tree(2 << 20);
    let one_after_the_other = |run: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| scope.spawn(run).join().unwrap());
    };
    let is_full = |key: &u64| matches!(tree.put(&key.to_be_bytes(), &[7; 100]), Err(error) if error.is_full());
    one_after_the_other(&|| assert!((0..1_000_000).any(|key| is_full(&key))));
    let keys = tree.len().unwrap();
    for part in 0..8 {
        one_after_the_other(&|| {
            for key in keys * part / 8..keys * (part + 1) / 8 {
                assert!(
                    tree.remove(&key.to_be_bytes()).unwrap(),
                    "key {key} of {keys}"
                );
            }
        });
    }
    assert_eq!(tree.len().unwrap(), 0);
    assert!(is_sound(&*tree));
}

/// A tree that has logged nothing yet has a log, too.
#[test]
fn a_pool_that_a_load_has_filled_is_emptied() {
    let pool = pool(2 << 20);
    let tree = create(&pool, options());
    let entries = |number: u64| {
        let mut keys = 0..number;
        move |key: &mut Vec<u8>, value: &mut Vec<u8>| {
            let Some(number) = keys.next() else {
                return Ok(false);
            };
            *key = number.to_be_bytes().to_vec();
            *value = vec![7; 100];
            Ok(true)
        }
    };
    let keys = tree.bulk_load(&mut entries(4000), 1.0).unwrap();
    tree.sync().unwrap();
    let guard = pool.peek();
    while guard.allocate(65_472).is_ok() {}
    for key in 0..keys {
        assert!(
            tree.remove(&key.to_be_bytes()).unwrap(),
            "key {key} of {keys}"
        );
    }
    assert!(is_sound(&*tree));
}

/// A key whose state differs from that at the last end of an epoch has changed, whatever splits and
/// removals of nodes and layers came with it. After an end, and after an open, no key has.
fn compare_changes(codec: CodecKind, key: fn(u64) -> Vec<u8>) {
    const KEYS: u64 = 60;
    const ROUNDS: u64 = 40;
    let pool = pool(16 << 20);
    let options = MassTreeOptions {
        close_cleanly: false,
        ..options()
    };
    let mut tree = instrumented::create(&pool, "tree", codec, options).unwrap();
    let mut random = 1_u64;
    let mut ended = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut now = ended.clone();
        let has_changed = |tree: &Tree, number| {
            let epochs = tree.epochs().unwrap();
            epochs.has_changed(&key(number)).unwrap()
        };
        for number in 0..KEYS {
            assert!(!has_changed(&*tree, number), "key {number}, round {round}");
        }
        // Some rounds only put, some remove all keys in order.
        let removes_all = round % 4 == 3;
        for step in 0..KEYS {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let number = if removes_all {
                step
            } else {
                (random >> 33) % KEYS
            };
            let is_put = round.is_multiple_of(4) || (random >> 20).is_multiple_of(2);
            if is_put && !removes_all {
                let value = (ROUNDS * step + round).to_be_bytes();
                tree.put(&key(number), &value).unwrap();
                now.insert(number, value);
            } else {
                tree.remove(&key(number)).unwrap();
                now.remove(&number);
            }
            for number in 0..KEYS {
                if now.get(&number) != ended.get(&number) {
                    assert!(has_changed(&*tree, number), "key {number}, round {round}");
                }
            }
        }
        if round % 3 == 0 {
            drop(tree);
            let root = &pool.trees().unwrap()[0];
            tree = instrumented::open(&pool, root, codec, options).unwrap();
        } else {
            tree.sync().unwrap();
            ended = now;
        }
    }
    assert!(is_sound(&*tree));
}

#[test]
fn an_epoch_knows_the_keys_that_it_has_changed() {
    compare_changes(CodecKind::Record, |number| number.to_be_bytes().to_vec());
    compare_changes(CodecKind::Word, |number| number.to_be_bytes().to_vec());
    // Several layers, which come and go.
    compare_changes(CodecKind::Record, |number| {
        let prefix = "prefix--".repeat(number as usize % 3);
        format!("{prefix}{:02}", number / 3).into_bytes()
    });
}

/// Links of free objects identify their epoch for 2^32 epochs. They are rewritten more often than
/// that, so one rewriting may be missed: here by an open that begins with that very epoch.
#[test]
fn links_keep_their_epochs_where_a_renewal_was_missed() {
    let pool = pool(16 << 20);
    let open = |first_epoch, close_cleanly| {
        let options = MassTreeOptions {
            first_epoch,
            close_cleanly,
            ..options()
        };
        if pool.trees().unwrap().is_empty() {
            create(&pool, options)
        } else {
            open(&pool, options).unwrap()
        }
    };
    let end_epoch = |tree: &Tree, next: u64| {
        tree.put(b"last", &next.to_be_bytes()).unwrap();
        tree.sync().unwrap();
        assert_eq!(tree.epochs().unwrap().epoch_stat().running, next);
    };
    let tree = open((1 << 31) - 2, true);
    (0..100_u64).for_each(|key| tree.put(&key.to_be_bytes(), b"value").unwrap());
    end_epoch(&*tree, 1 << 31);
    // Links of this very epoch.
    (0..100_u64).for_each(|key| assert!(tree.remove(&key.to_be_bytes()).unwrap()));
    end_epoch(&*tree, (1 << 31) + 1);
    drop(tree);
    drop(open(1 << 32, true));
    let tree = open((1 << 32) + (1 << 30) - 1, true);
    end_epoch(&*tree, (1 << 32) + (1 << 30));
    end_epoch(&*tree, (1 << 32) + (1 << 30) + 1);
    drop(tree);
    // An epoch that cannot be distinguished from that of the links fails.
    let tree = open(3 * (1 << 31) - 1, false);
    end_epoch(&*tree, 3 * (1 << 31));
    assert!(is_sound(&*tree));
    drop(tree);
    assert!(is_sound(&*open(1, false)));
}

/// A word that changes is flushed with the line of its pointer, that of its cell and the header;
/// not all of its node.
#[test]
fn the_end_of_an_epoch_flushes_the_lines_that_changed() {
    let pool = pool(16 << 20);
    let tree = create_words(&pool);
    let word = |word: u64| word.to_be_bytes();
    (0..10).for_each(|key| assert!(tree.insert(&word(10 * key), &word(key)).unwrap()));
    tree.sync().unwrap();
    let lines = |run: &dyn Fn() -> Result<bool, Error>| {
        let before = tree.epochs().unwrap().epoch_stat().lines_flushed;
        assert!(run().unwrap());
        tree.sync().unwrap();
        tree.epochs().unwrap().epoch_stat().lines_flushed - before
    };
    assert_eq!(
        lines(&|| tree.insert(&word(5), &word(5))),
        4,
        "the slice, too"
    );
    assert_eq!(lines(&|| tree.remove(&word(5))), 1, "the permutation");
    assert_eq!(lines(&|| tree.update(&word(20), &word(6))), 3);
    assert_eq!(
        lines(&|| tree.update(&word(30), &word(7))),
        3,
        "the log of the last epoch lies in the same line"
    );
    assert_eq!(lines(&|| tree.remove(&word(40))), 2, "and is cleared");
    let both = || Ok(tree.update(&word(20), &word(8))? && tree.update(&word(30), &word(9))?);
    assert_eq!(lines(&both), 3, "by the external log");
    assert_eq!(tree.get(&word(20)).unwrap().unwrap().as_slice(), word(8));
    assert_eq!(tree.get(&word(30)).unwrap().unwrap().as_slice(), word(9));
}

fn on_file(machine: &Arc<Machine>) -> Pool<Instrumented> {
    let options = FileOptions {
        log_bytes: 1 << 20,
        mark_offset: pool::MEDIUM_LINE,
        background: false,
        ..FileOptions::default()
    };
    let file = File::open(machine.io(Which::Pool), machine.io(Which::Log), options).unwrap();
    pool_on(Instrumented::new(file))
}

#[test]
fn a_sync_after_a_disk_has_failed_is_an_error() {
    let machine = Machine::new(&Image::default());
    let pool = on_file(&machine);
    let tree = create(&pool, options());
    tree.put(b"key", b"value").unwrap();
    machine.set_faults(Faults {
        sync: Some(0),
        ..Faults::default()
    });
    let has_failed = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(
            matches!(error.medium(), Some(MediumError::Failed(_))),
            "{error}"
        );
    };
    has_failed(tree.sync());
    // The epoch has ended, and nothing was written since: but it is not durable.
    has_failed(tree.sync());
    has_failed(tree.put(b"other", b"value").map(drop));
    has_failed(
        tree.epochs()
            .unwrap()
            .within_epoch(&mut |_| put(&*tree, 1, b"value").map(drop)),
    );
    has_failed(tree.sync());
    // The entries can be read.
    assert_eq!(tree.get(b"key").unwrap().unwrap().as_slice(), b"value");
}

/// A thread in the background that could not end an epoch once dropped the error.
#[test]
fn a_write_is_told_that_an_epoch_could_not_be_ended_in_the_background() {
    let machine = Machine::new(&Image::default());
    let pool = on_file(&machine);
    let epoch = EpochLength::Every(Duration::from_millis(1));
    let tree = create(&pool, MassTreeOptions { epoch, ..options() });
    assert!(!tree.epochs().unwrap().epoch_stat().is_failing);
    machine.set_faults(Faults {
        sync: Some(0),
        ..Faults::default()
    });
    let _ = tree.put(b"key", b"value");
    let start = Instant::now();
    while !tree.epochs().unwrap().epoch_stat().is_failing {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "no epoch has failed"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    let error = tree.put(b"other", b"value").unwrap_err();
    assert!(
        matches!(error.medium(), Some(MediumError::Failed(_))),
        "{error}"
    );
}

/// A pending write asks whether its epoch is durable. An epoch that the creation of another tree has ended is
/// durable only when the disk has synced it.
#[test]
fn an_epoch_that_another_tree_ends_is_not_durable_if_the_disk_fails() {
    let machine = Machine::new(&Image::default());
    let pool = on_file(&machine);
    let tree = create(&pool, options());
    let epochs = tree.epochs().unwrap();
    let put = |key: &[u8]| {
        tree.put(key, b"value").unwrap();
        epochs.epoch_stat().running
    };
    let epoch = put(b"key");
    drop(instrumented::create(&pool, "other", CodecKind::Record, options()).unwrap());
    assert!(epochs.is_durable(epoch));
    let epoch = put(b"more");
    machine.set_faults(Faults {
        sync: Some(0),
        ..Faults::default()
    });
    assert!(instrumented::create(&pool, "third", CodecKind::Record, options()).is_err());
    assert!(!epochs.is_durable(epoch));
}

/// The first touch of a node stores only values that the next process does not need. So reads after
/// an open that has nothing to undo write nothing.
#[test]
fn reads_after_a_clean_close_write_nothing() {
    let machine = Machine::new(&Image::default());
    let word = |word: u64| word.to_be_bytes();
    {
        let pool = on_file(&machine);
        let tree = create_words(&pool);
        (0..10_000).for_each(|key| tree.put(&word(key), &word(key)).unwrap());
    }
    for _ in 0..3 {
        let pool = on_file(&machine);
        let root = pool.trees().unwrap().remove(0);
        let options = MassTreeOptions {
            width: None,
            ..options()
        };
        let tree = instrumented::open(&pool, &root, CodecKind::Word, options).unwrap();
        assert_eq!(tree.len().unwrap(), 10_000);
        tree.sync().unwrap();
        let lines = tree.epochs().unwrap().epoch_stat().lines_flushed;
        assert!(lines < 10, "{lines} lines");
        assert!(tree.update(&word(1), &word(2)).unwrap());
    }
}

/// Each batch of a range descends through all layers again. These nodes were once counted each
/// time, until the scan was taken for damage.
#[test]
fn ranges_of_keys_that_share_thousands_of_slices_come_to_their_end() {
    let tree = tree(256 << 20);
    let key = |number: u32| [&b"p".repeat(32 << 10)[..], &number.to_be_bytes()].concat();
    (0..200).for_each(|number| tree.put(&key(number), b"value").unwrap());
    assert_eq!(tree.len().unwrap(), 200);
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut scan = tree.range(Bounds::all(), direction).unwrap();
        let mut found = Vec::new();
        let mut value = Vec::new();
        let mut count = 0;
        while scan.next_into(&mut found, &mut value).unwrap() {
            let number = if direction == Direction::Forward {
                count
            } else {
                199 - count
            };
            assert!(found == key(number), "{number}");
            count += 1;
        }
        assert_eq!(count, 200);
    }
}

/// The nodes of such a load once stayed allocated, although nothing led to them.
#[test]
fn a_load_whose_source_panics_leaves_nothing_behind() {
    let tree = tree(16 << 20);
    let mut numbers = 0..500_u64;
    let source = &mut |key: &mut Vec<u8>, value: &mut Vec<u8>| {
        *key = numbers
            .next()
            .expect("the source panics")
            .to_be_bytes()
            .to_vec();
        *value = b"value".to_vec();
        Ok(true)
    };
    assert!(catch_unwind(AssertUnwindSafe(|| tree.bulk_load(source, 1.0))).is_err());
    assert!(is_sound(&*tree));
    assert_eq!(tree.len().unwrap(), 0);
    tree.sync().unwrap();
    (0..500_u64).for_each(|key| tree.put(&key.to_be_bytes(), b"value").unwrap());
    assert!(is_sound(&*tree));
}

/// Reads of a layer once began anew whenever the node above it changed, and finally took it for
/// damaged.
#[test]
fn a_layer_is_read_beside_changes_of_the_node_that_leads_to_it() {
    let tree = &*tree(64 << 20);
    let keys: Vec<_> = (0..3000)
        .map(|number| format!("a prefix{number:06}").into_bytes())
        .collect();
    keys.iter()
        .for_each(|key| assert!(tree.insert(key, b"value").unwrap()));
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changes = scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                assert!(tree.insert(b"another", b"value")? && tree.remove(b"another")?);
            }
            Ok::<_, Error>(())
        });
        let read = (0..20).map(|_| {
            let mut found = Vec::new();
            let mut key = Vec::new();
            let mut value = Vec::new();
            let mut range = tree.range(Bounds::prefix(b"a prefix"), Direction::Reverse)?;
            while range.next_into(&mut key, &mut value)? {
                found.push(key.clone());
            }
            Ok::<_, Error>((found, tree.len()?))
        });
        let read: Result<Vec<_>, _> = read.collect();
        is_over.store(true, Ordering::Relaxed);
        changes.join().unwrap().unwrap();
        for (found, entries) in read.unwrap() {
            assert!(
                found.iter().rev().eq(&keys),
                "{} of {}",
                found.len(),
                keys.len()
            );
            assert!([3000, 3001].contains(&entries), "{entries}");
        }
    });
}
