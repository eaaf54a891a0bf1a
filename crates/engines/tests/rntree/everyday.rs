//! RNTree in ordinary use.

use std::collections::BTreeMap;

use everleaf_engines::engine::CodecKind;
use everleaf_engines::index::{Bounds, Condition, Direction, Index};
use everleaf_engines::rntree::{RnTreeOptions, instrumented};
use medium::testing::Late;
use medium::{Dax, Instrumented, LineForm};
use pool::{Pool, PoolOptions};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn pool() -> Pool<Instrumented> {
    Pool::open(
        Instrumented::new(Dax::plain(1 << 32).unwrap()),
        PoolOptions::default(),
    )
    .unwrap()
}

fn of_leaf(leaf_entries: usize) -> RnTreeOptions {
    RnTreeOptions {
        leaf_entries,
        ..RnTreeOptions::default()
    }
}

fn words(pool: &Pool<Instrumented>, leaf_entries: usize) -> Box<dyn Index> {
    instrumented::create(pool, "words", CodecKind::Word, of_leaf(leaf_entries)).unwrap()
}

fn records(pool: &Pool<Instrumented>) -> Box<dyn Index> {
    instrumented::create(pool, "records", CodecKind::Record, of_leaf(4)).unwrap()
}

fn collect(index: &dyn Index, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut scan = index.range(Bounds::all(), direction).unwrap();
    let mut key = Vec::new();
    let mut value = Vec::new();
    let mut all = Vec::new();
    while scan.next_into(&mut key, &mut value).unwrap() {
        all.push((key.clone(), value.clone()));
    }
    all
}

/// The words below `count`, for a bulk load.
fn ascending(
    count: u64,
) -> impl FnMut(&mut Vec<u8>, &mut Vec<u8>) -> everleaf_engines::Result<bool> {
    let mut keys = 0..count;
    move |key, value| {
        let Some(next) = keys.next() else {
            return Ok(false);
        };
        key.splice(.., next.to_be_bytes());
        value.splice(.., next.to_be_bytes());
        Ok(true)
    }
}

fn assert_clean(index: &dyn Index) {
    let violations = index.check().unwrap();
    assert!(
        violations.is_empty(),
        "{} violations, the first: {}",
        violations.len(),
        violations[0]
    );
}

/// Leaves beyond the first few thousand were once missing in the table of offsets that finds use:
/// the first find panicked.
#[test]
fn a_large_load_is_found_without_opening_it_again() {
    const KEYS: u64 = 600_000;
    let pool = pool();
    let tree = words(&pool, 56);
    let words = tree.words().unwrap();
    assert_eq!(tree.bulk_load(&mut ascending(KEYS), 1.0).unwrap(), KEYS);
    for key in (0..KEYS).step_by(997).chain([KEYS - 1]) {
        assert_eq!(words.get(key).unwrap(), Some(key));
        assert!(
            words
                .write_durably(key, Some(7), Condition::Present)
                .unwrap()
        );
    }
    assert!(
        words
            .write_durably(KEYS, Some(7), Condition::Absent)
            .unwrap()
    );
    let mut last = 0;
    words
        .scan_each(0, |key, _| {
            last = key;
            true
        })
        .unwrap();
    assert_eq!(last, KEYS);
    assert_clean(&*tree);
}

#[test]
fn a_hundred_thousand_words_come_and_go() {
    let pool = pool();
    let tree = words(&pool, 56);
    let words = tree.words().unwrap();
    let mix = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for i in 0..100_000 {
        assert!(
            words
                .write_durably(mix(i), Some(i), Condition::Absent)
                .unwrap()
        );
        assert!(
            !words
                .write_durably(mix(i), Some(7), Condition::Absent)
                .unwrap()
        );
    }
    assert_clean(&*tree);
    assert_eq!(tree.len().unwrap(), 100_000);
    for i in 0..100_000 {
        assert_eq!(words.get(mix(i)).unwrap(), Some(i));
        assert!(
            words
                .write_durably(mix(i), Some(i + 1), Condition::Equals(i))
                .unwrap()
        );
    }
    let keys: Vec<u64> = (0..1000).map(mix).collect();
    let mut values = vec![None; 1000];
    words.get_many(&keys, &mut values).unwrap();
    assert!(
        values
            .iter()
            .enumerate()
            .all(|(i, value)| *value == Some(i as u64 + 1))
    );
    let mut last = None;
    let mut count = 0;
    words
        .scan_each(0, |key, _| {
            assert!(last.is_none_or(|last| last < key));
            last = Some(key);
            count += 1;
            true
        })
        .unwrap();
    assert_eq!(count, 100_000);
    let full = pool.stat().used_bytes;
    for i in 0..100_000 {
        assert!(
            words
                .write_durably(mix(i), None, Condition::Present)
                .unwrap()
        );
    }
    assert_clean(&*tree);
    assert_eq!(tree.len().unwrap(), 0);
    assert!(
        tree.stat().unwrap().leaves < 4,
        "{} leaves",
        tree.stat().unwrap().leaves
    );
    drop(tree);
    assert!(full > 2_000_000);
}

/// Per key of 8+8 bytes: 25 bytes of the pool after random inserts, 17.5 after a full load, 7 of
/// volatile memory. With two copies of each line, 18.6 after a load.
#[test]
fn memory_stays_within_its_budget() {
    const KEYS: u64 = 1_000_000;
    let pool = pool();
    let per_key = |tree: &dyn Index, before: u64| {
        let bytes = [
            pool.stat().used_bytes - before,
            tree.stat().unwrap().volatile_bytes,
        ];
        bytes.map(|bytes| bytes as f64 / KEYS as f64)
    };
    let before = pool.stat().used_bytes;
    let tree = words(&pool, 56);
    let words = tree.words().unwrap();
    let mut random = SmallRng::seed_from_u64(7);
    for i in 0..KEYS {
        assert!(
            words
                .write_durably(random.random(), Some(i), Condition::Absent)
                .unwrap()
        );
    }
    let [used, volatile] = per_key(&*tree, before);
    assert!(
        used <= 25.0 && volatile <= 7.0,
        "{used} and {volatile} bytes a key after inserts"
    );
    let before = pool.stat().used_bytes;
    let tree = instrumented::create(&pool, "loaded", CodecKind::Word, of_leaf(56)).unwrap();
    assert_eq!(tree.bulk_load(&mut ascending(KEYS), 1.0).unwrap(), KEYS);
    let [used, volatile] = per_key(&*tree, before);
    assert!(
        used <= 17.5 && volatile <= 7.0,
        "{used} and {volatile} bytes a key after a load"
    );
    let twins = Instrumented::new(Late::new(1 << 30, LineForm::Twin).unwrap());
    let pool = Pool::open(twins, PoolOptions::default()).unwrap();
    let options = RnTreeOptions {
        recovery_threads: 1,
        ..of_leaf(56)
    };
    let tree = instrumented::create(&pool, "loaded", CodecKind::Word, options).unwrap();
    assert_eq!(tree.bulk_load(&mut ascending(KEYS), 1.0).unwrap(), KEYS);
    let used = pool.stat().used_bytes as f64 / KEYS as f64;
    assert!(
        used <= 18.7,
        "{used} bytes a key after a load of lines with two copies"
    );
}

#[test]
fn a_bulk_load_keeps_no_memory_from_being_reused_while_its_source_runs() {
    let pool = pool();
    let tree = words(&pool, 4);
    let other = records(&pool);
    let mut keys = ascending(20);
    let mut next = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
        std::thread::scope(|scope| {
            scope.spawn(|| (0..500_u64).for_each(|i| other.put(b"key", &i.to_be_bytes()).unwrap()));
        });
        pool.reclaim();
        keys(key, value)
    };
    assert_eq!(tree.bulk_load(&mut next, 1.0).unwrap(), 20);
    let allocations = pool.stat().allocations;
    assert!(
        allocations < 1000,
        "{allocations} allocations for 20 words and a record"
    );
}

/// Inner nodes that recovery or a load built are full. A node that was left with a single leaf once
/// could not give it back.
#[test]
fn a_loaded_tree_that_is_emptied_in_any_order_gives_its_leaves_back() {
    const KEYS: u64 = 200_000;
    type Order = fn(u64) -> u64;
    let orders: [Order; 3] = [|i| i, |i| KEYS - 1 - i, |i| i * 7919 % KEYS];
    for order in orders {
        let pool = pool();
        let tree = words(&pool, 56);
        let words = tree.words().unwrap();
        tree.bulk_load(&mut ascending(KEYS), 1.0).unwrap();
        for i in 0..KEYS {
            assert!(
                words
                    .write_durably(order(i), None, Condition::Present)
                    .unwrap()
            );
        }
        assert_eq!(tree.stat().unwrap().leaves, 1);
        assert_clean(&*tree);
        assert_eq!(tree.bulk_load(&mut |_, _| Ok(false), 1.0).unwrap(), 0);
    }
}

#[test]
fn records_with_long_common_prefixes_stay_in_order() {
    let pool = pool();
    let tree = records(&pool);
    let mut model = BTreeMap::new();
    for i in 0..3000u32 {
        let key = format!("/usr/share/{}", i.wrapping_mul(2_654_435_761) % 4096).into_bytes();
        let value = vec![i as u8; (i % 70) as usize];
        tree.put(&key, &value).unwrap();
        model.insert(key, value);
        if i % 3 == 0 {
            let key = format!("/usr/share/{}", i % 4096).into_bytes();
            assert_eq!(tree.remove(&key).unwrap(), model.remove(&key).is_some());
        }
    }
    assert_clean(&*tree);
    let expected: Vec<_> = model.into_iter().collect();
    assert_eq!(collect(&*tree, Direction::Forward), expected);
    assert_eq!(
        collect(&*tree, Direction::Reverse),
        expected.into_iter().rev().collect::<Vec<_>>()
    );
}

/// A lock whose attempt failed was once released all the same, and with it the lock of its holder.
#[test]
fn a_lock_that_was_not_taken_is_not_released() {
    let pool = pool();
    let tree = words(&pool, 56);
    let words = tree.words().unwrap();
    let keys = 3000;
    for i in 0..keys {
        assert!(
            words
                .write_durably(i * 7919 % 65537, Some(i), Condition::Absent)
                .unwrap()
        );
    }
    std::thread::scope(|scope| {
        for seed in 1..=4u64 {
            scope.spawn(move || {
                let mut random = seed;
                for i in 0..100_000 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let key = (random % keys) * 7919 % 65537;
                    assert!(
                        words
                            .write_durably(key, Some(i), Condition::Present)
                            .unwrap()
                    );
                }
            });
        }
    });
    assert_clean(&*tree);
}

/// When two leaves became three, a check once reached the third through the second before the inner
/// nodes led to it.
#[test]
fn a_check_beside_leaves_that_are_shared_finds_them_settled() {
    const KEYS: u64 = 64;
    let pool = pool();
    let tree = words(&pool, 4);
    let words = tree.words().unwrap();
    let checking = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let checking = &checking;
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(seed);
                while checking.load(std::sync::atomic::Ordering::Relaxed) {
                    let value = random.random_bool(0.6).then_some(seed);
                    words
                        .write_durably(random.random_range(0..KEYS), value, Condition::Always)
                        .unwrap();
                }
            });
        }
        let found: Vec<_> = (0..50_000).flat_map(|_| tree.check().unwrap()).collect();
        checking.store(false, std::sync::atomic::Ordering::Relaxed);
        assert!(
            found.is_empty(),
            "{} violations, the first: {}",
            found.len(),
            found[0]
        );
    });
}

#[test]
fn a_bulk_load_holds_no_lock_while_its_source_runs() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let pool = pool();
        let tree = words(&pool, 4);
        let mut count = 0_u64;
        let mut next = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
            assert_clean(&*tree);
            assert_eq!(
                (tree.len().unwrap(), collect(&*tree, Direction::Reverse)),
                (0, Vec::new())
            );
            count += 1;
            *key = count.to_be_bytes().to_vec();
            *value = vec![7; 8];
            Ok(count <= 50)
        };
        assert_eq!(tree.bulk_load(&mut next, 1.0).unwrap(), 50);
        assert_clean(&*tree);
        assert_eq!(tree.len().unwrap(), 50);
        // Writers that come meanwhile get the lock first.
        let other = instrumented::create(&pool, "other", CodecKind::Word, of_leaf(4)).unwrap();
        let mut is_first = true;
        let mut next = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
            let write = || other.put(&[9; 8], &[9; 8]).unwrap();
            std::thread::scope(|scope| scope.spawn(write).join().unwrap());
            *key = vec![1; 8];
            *value = vec![1; 8];
            Ok(std::mem::take(&mut is_first))
        };
        let refused = other.bulk_load(&mut next, 1.0).unwrap_err();
        assert!(matches!(
            refused.kind(),
            everleaf_engines::ErrorKind::NotEmpty
        ));
        assert_eq!(
            collect(&*other, Direction::Forward),
            [(vec![9; 8], vec![9; 8])]
        );
        assert_clean(&*other);
        done.send(()).unwrap();
    });
    is_done
        .recv_timeout(std::time::Duration::from_secs(60))
        .expect("a load that failed, or hangs");
}
