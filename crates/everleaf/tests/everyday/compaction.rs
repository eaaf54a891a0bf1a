//! Compacting a store while it is in use: sparse slabs are emptied, and nothing else changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use everleaf::{
    CompactOptions, CompactStop, Engine, ErrorKind, MediumChoice, Options, Store, Tree, TreeOptions,
};

use crate::common::{folder, room};

/// Engines of which records are moved.
const MOVING: [Engine; 5] = [
    Engine::RNTREE,
    Engine::BZTREE,
    Engine::WBTREE,
    Engine::CAWBT,
    Engine::MASSTREE,
];
const ENTRIES: u32 = 20_000;
const VALUE_BYTES: usize = 300;

fn key(number: u32) -> [u8; 8] {
    u64::from(number.wrapping_mul(0x9e37_79b9)).to_be_bytes()
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; VALUE_BYTES]
}

fn is_kept(number: u32) -> bool {
    (number.wrapping_mul(0x85eb_ca6b) >> 16).is_multiple_of(32)
}

fn kept() -> impl Iterator<Item = u32> {
    (0..ENTRIES).filter(|number| is_kept(*number))
}

/// A tree of which few entries are left.
fn sparse_tree(store: &Store, engine: Engine) -> Tree {
    let kind = TreeOptions {
        engine,
        ..TreeOptions::RECORDS
    };
    let tree = store.tree_with("tree", kind).unwrap();
    for number in 0..ENTRIES {
        drop(tree.pending().put(key(number), value(number)).unwrap());
    }
    for number in (0..ENTRIES).filter(|number| !is_kept(*number)) {
        drop(tree.pending().remove(key(number)).unwrap());
    }
    store.sync().unwrap();
    tree
}

fn expect_kept(store: &Store, tree: &Tree) {
    for number in kept() {
        let found = tree.get(key(number)).unwrap();
        assert_eq!(found.unwrap().to_vec(), value(number), "{number}");
    }
    assert_eq!(tree.len().unwrap(), kept().count() as u64);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn room_of_removed_entries_comes_back() {
    for medium in [MediumChoice::Dax, MediumChoice::File] {
        for engine in MOVING {
            let what = (medium, engine.name);
            let folder = folder();
            let path = folder.path().join("pool");
            let options = Options::new().medium(medium);
            let store = options.open(&path).unwrap();
            let tree = sparse_tree(&store, engine);
            let before = room(&path);
            let compacted = store.compact().unwrap();
            assert!(compacted.unfinished.is_none(), "{what:?}: {compacted:?}");
            assert!(compacted.records_moved > 0, "{what:?}: {compacted:?}");
            assert!(compacted.trees_left.is_empty(), "{what:?}: {compacted:?}");
            let after = room(&path);
            assert!(after < before / 4, "{what:?}: {before}, then {after} bytes");
            expect_kept(&store, &tree);
            let again = store.compact().unwrap();
            assert!(again.records_moved < 50, "{what:?}: {again:?}");
            assert!(room(&path) <= after, "{what:?}: {} bytes", room(&path));
            drop(tree);
            store.close().unwrap();
            let store = options.open(&path).unwrap();
            expect_kept(&store, &store.open_tree("tree").unwrap());
        }
    }
}

#[test]
fn writers_go_on_meanwhile() {
    for engine in MOVING {
        let folder = folder();
        let path = folder.path().join("pool");
        let options = Options::new().medium(MediumChoice::File);
        let store = options.open(&path).unwrap();
        let tree = sparse_tree(&store, engine);
        let has_ended = AtomicBool::new(false);
        let last = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut round = 0_u32;
                while !has_ended.load(Ordering::Relaxed) || round < 3 {
                    round += 1;
                    for number in kept() {
                        let new = value(number.wrapping_add(round));
                        drop(tree.pending().put(key(number), new).unwrap());
                    }
                    store.sync().unwrap();
                }
                round
            });
            for _ in 0..3 {
                store.compact().unwrap();
            }
            has_ended.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        for number in kept() {
            let found = tree.get(key(number)).unwrap().unwrap();
            assert_eq!(found.to_vec(), value(number.wrapping_add(last)));
        }
        assert_eq!(store.check().unwrap(), []);
        drop(tree);
        store.close().unwrap();
        let store = options.open(&path).unwrap();
        assert_eq!(store.check().unwrap(), []);
    }
}

/// The caller ends a compaction early. (The explorer tries crashes in the middle of one.)
#[test]
fn a_compaction_reports_its_progress_and_can_be_ended() {
    let store = Store::in_memory().unwrap();
    let tree = sparse_tree(&store, Engine::RNTREE);
    let ended = medium::progress::watched(
        |_| false,
        || store.compact_with(CompactOptions::new().moves_per_second(1_000_000)),
    );
    let unfinished = ended.unwrap().unfinished;
    assert!(
        matches!(unfinished, Some(CompactStop::Interrupted)),
        "{unfinished:?}"
    );
    expect_kept(&store, &tree);
    let whole = store.compact().unwrap();
    assert!(whole.unfinished.is_none() && whole.records_moved > 0);
    expect_kept(&store, &tree);
}

/// A full pool loses nothing, and has room again.
#[test]
fn a_full_pool_is_compacted() {
    let folder = folder();
    let path = folder.path().join("pool");
    for engine in MOVING {
        let options = Options::new()
            .medium(MediumChoice::Dax)
            .limit_bytes(4 << 20);
        let store = options.open(&path).unwrap();
        let kind = TreeOptions {
            engine,
            ..TreeOptions::RECORDS
        };
        let tree = store.tree_with("tree", kind).unwrap();
        let mut count = 0;
        let full = loop {
            match tree.put(key(count), value(count)) {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
        };
        assert!(full.is_full(), "{full}");
        for number in (0..count).filter(|number| number % 10 != 0) {
            assert!(tree.remove(key(number)).unwrap());
        }
        let compacted = store.compact().unwrap();
        assert!(
            compacted.records_moved > 0,
            "{}: {compacted:?}",
            engine.name
        );
        for number in (0..count).step_by(10) {
            assert_eq!(
                tree.get(key(number)).unwrap().unwrap().to_vec(),
                value(number)
            );
        }
        // Values of another size find room.
        let other = vec![7; 20_000];
        for number in 0..30 {
            tree.put(format!("other {number}"), &other).unwrap();
        }
        assert_eq!(store.check().unwrap(), []);
        drop(tree);
        store.close().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}

/// Waits until a condition holds; for half a minute at most.
fn wait_until(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn a_store_compacts_itself_when_nobody_writes() {
    for engine in MOVING {
        let folder = folder();
        let path = folder.path().join("pool");
        let options = Options::new()
            .medium(MediumChoice::Dax)
            .compact_when_idle(Duration::from_millis(30));
        let store = options.open(&path).unwrap();
        let tree = sparse_tree(&store, engine);
        let records = kept().count() as u64 * VALUE_BYTES as u64;
        let limit = 8 * records;
        let is_small = wait_until(|| room(&path) < limit);
        assert!(is_small, "{}: {} bytes", engine.name, room(&path));
        expect_kept(&store, &tree);
        drop(tree);
        store.close().unwrap();
    }
}

/// The duty of the store has a handle of it at times, of which its users see nothing.
#[test]
fn a_store_that_compacts_itself_is_closed_by_its_last_user() {
    let folder = folder();
    let path = folder.path().join("pool");
    let options = Options::new()
        .medium(MediumChoice::Dax)
        .compact_when_idle(Duration::ZERO);
    for round in 0..60_u32 {
        let store = options.open(&path).unwrap();
        let another = store.clone();
        let tree = store.tree("tree").unwrap();
        for number in 0..300 {
            tree.put(key(number), value(number + round)).unwrap();
        }
        for number in (0..300).filter(|number| number % 9 != 0) {
            tree.remove(key(number)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(u64::from(round) / 2));
        drop(tree);
        let refused = store.close().unwrap_err();
        assert!(matches!(refused.error.kind(), ErrorKind::InUse));
        drop(another);
        if round % 2 == 0 {
            refused.store.close().unwrap();
        }
        // Otherwise the last handle is dropped here.
    }
    let store = options.open(&path).unwrap();
    assert_eq!(store.check().unwrap(), []);
}

/// Entries of the pool that is nearly full.
const KEYS: u32 = 6000;

/// Threads overwrite entries meanwhile: each new record finds room, and no old value is read.
#[test]
fn overwrites_find_room_during_a_slow_compaction() {
    let folder = folder();
    for engine in MOVING {
        let path = folder.path().join(engine.name);
        let options = Options::new()
            .medium(MediumChoice::Dax)
            .limit_bytes(4 << 20)
            .epoch(Duration::from_millis(5));
        let store = options.open(&path).unwrap();
        let kind = TreeOptions {
            engine,
            ..TreeOptions::RECORDS
        };
        let tree = store.tree_with("tree", kind).unwrap();
        for number in 0..KEYS {
            tree.put(key(number), value(number)).unwrap();
        }
        for number in (0..KEYS).filter(|number| number % 3 != 0) {
            assert!(tree.remove(key(number)).unwrap());
        }
        store.sync().unwrap();
        let has_ended = Arc::new(AtomicBool::new(false));
        std::thread::scope(|scope| {
            let goes_on = {
                let has_ended = Arc::clone(&has_ended);
                move |_| !has_ended.load(Ordering::Relaxed)
            };
            let slow = CompactOptions::new().moves_per_second(200);
            let store = &store;
            let mover = scope
                .spawn(move || medium::progress::watched(goes_on, || store.compact_with(slow)));
            for round in 0..20 {
                for number in (0..KEYS).step_by(3) {
                    let new = value(number.wrapping_add(round));
                    tree.put(key(number), new).unwrap();
                }
            }
            has_ended.store(true, Ordering::Relaxed);
            mover.join().unwrap().unwrap();
        });
        for number in (0..KEYS).step_by(3) {
            let found = tree.get(key(number)).unwrap().unwrap();
            assert_eq!(found.to_vec(), value(number.wrapping_add(19)));
        }
        assert_eq!(store.check().unwrap(), []);
        drop(tree);
        store.close().unwrap();
    }
}

/// Fills a pool, and removes two of three entries. While a compaction, which is so slow that it hardly
/// moves anything, keeps new records away from the slabs that it empties, half of the entries are put
/// back. They fit only if these slabs are used again in a full pool. Returns the first refusal.
fn put_back_beside_a_slow_compaction(engine: Engine) -> Option<String> {
    let folder = folder();
    let path = folder.path().join(engine.name);
    let options = Options::new()
        .medium(MediumChoice::Dax)
        .limit_bytes(4 << 20)
        .manual_epochs();
    let store = options.open(&path).unwrap();
    let kind = TreeOptions {
        engine,
        ..TreeOptions::RECORDS
    };
    let tree = store.tree_with("tree", kind).unwrap();
    let mut entries = 0;
    while let Ok(()) = tree.put(key(entries), value(entries)) {
        entries += 1;
        if entries % 500 == 0 {
            store.sync().unwrap();
        }
    }
    assert!(entries > 1000, "{}: {entries} entries", engine.name);
    let removed: Vec<u32> = (0..entries).filter(|number| number % 3 != 0).collect();
    for number in &removed {
        assert!(tree.remove(key(*number)).unwrap());
    }
    store.sync().unwrap();
    let has_begun = Arc::new(AtomicBool::new(false));
    let has_ended = Arc::new(AtomicBool::new(false));
    let mut refused = None;
    std::thread::scope(|scope| {
        let begun = Arc::clone(&has_begun);
        let ended = Arc::clone(&has_ended);
        let goes_on = move |_| {
            begun.store(true, Ordering::Relaxed);
            !ended.load(Ordering::Relaxed)
        };
        let slow = CompactOptions::new().moves_per_second(20);
        let store = &store;
        let mover =
            scope.spawn(move || medium::progress::watched(goes_on, || store.compact_with(slow)));
        assert!(wait_until(|| has_begun.load(Ordering::Relaxed)));
        for number in removed.iter().take(removed.len() / 2) {
            if let Err(error) = tree.put(key(*number), value(*number)) {
                refused = Some(format!("{}: {number} of {entries}: {error}", engine.name));
                break;
            }
        }
        has_ended.store(true, Ordering::Relaxed);
        // In a full pool it may find no room for copies.
        drop(mover.join().unwrap());
    });
    assert_eq!(store.check().unwrap(), []);
    refused
}

/// A full pool once refused records although there was room for them in the slabs, or in the runs of
/// `masstree`, that a compaction was about to empty.
#[test]
fn a_full_pool_takes_the_room_that_a_compaction_empties() {
    let mut refused = Vec::new();
    for engine in MOVING {
        refused.extend(put_back_beside_a_slow_compaction(engine));
    }
    assert!(refused.is_empty(), "{refused:#?}");
}
