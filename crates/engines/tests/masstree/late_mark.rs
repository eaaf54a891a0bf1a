//! The mark after a crash, if it comes after the open: it finds all space that the tree has taken
//! from the pool, and no other tree gets that space.

use everleaf_engines::engine::CodecKind;
use everleaf_engines::index::{Index, OwnSpace};
use everleaf_engines::masstree::{MassTreeOptions, instrumented};
use everleaf_engines::rntree::{self, RnTreeOptions};
use medium::{Dax, Instrumented};
use pool::{Pool, TreeRoot};

use crate::common::content;
use crate::damage::{OPTIONS, Tree, grown, key, open_pool};

/// More than the free slabs of these pools have room for.
const RECORDS: u64 = 2000;
const RECORD: [u8; 1000] = [7; 1000];
/// The numbers of keys whose records fill some runs.
const LARGE: std::ops::Range<u64> = 1000..1200;

fn memory() -> Instrumented {
    Instrumented::new(Dax::plain(64 << 20).unwrap())
}

fn root_of(pool: &Pool<Instrumented>, name: &str) -> TreeRoot {
    let mut roots = pool.trees().unwrap().into_iter();
    roots.find(|root| root.name == name).unwrap()
}

/// Opens a tree of a pool that needs a mark, and leaves its mark for later.
fn open_unmarked(pool: &Pool<Instrumented>, name: &str) -> Box<Tree> {
    assert!(pool.needs_mark());
    let options = MassTreeOptions {
        mark_later: true,
        ..OPTIONS
    };
    let root = root_of(pool, name);
    instrumented::open(pool, &root, CodecKind::Record, options).unwrap()
}

/// A tree of another engine that takes all slabs that are free.
fn take_free_space(pool: &Pool<Instrumented>) -> Box<dyn Index> {
    let options = RnTreeOptions::default();
    let taker = rntree::instrumented::create(pool, "taker", CodecKind::Record, options).unwrap();
    for number in 0..RECORDS {
        taker.put(&key(number), &RECORD).unwrap();
    }
    taker
}

fn bytes_of_records(tree: &Tree) -> u64 {
    let OwnSpace {
        record_bytes,
        node_bytes,
        ..
    } = tree.own_space().unwrap();
    record_bytes + node_bytes
}

/// Opens the pool once more, as after a crash, and checks both trees.
fn expect_whole_after_a_crash(ram: &Instrumented, entries: &[(Vec<u8>, Vec<u8>)]) {
    let pool = open_pool(ram);
    let tree = open_unmarked(&pool, "tree");
    let violations = tree.check().unwrap();
    assert!(violations.is_empty(), "{}", violations[0]);
    assert_eq!(content(&*tree).unwrap(), entries);
    let taker = root_of(&pool, "taker");
    let options = RnTreeOptions::default();
    let taker = rntree::instrumented::open(&pool, &taker, CodecKind::Record, options).unwrap();
    let violations = taker.check().unwrap();
    assert!(violations.is_empty(), "{}", violations[0]);
    for number in 0..RECORDS {
        let value = taker.get(&key(number)).unwrap();
        assert_eq!(value.as_deref(), Some(RECORD.as_slice()));
    }
}

/// The segments of the log are used again in later epochs.
#[test]
fn a_late_mark_finds_nodes_records_and_the_log() {
    let ram = memory();
    {
        let pool = open_pool(&ram);
        let tree = grown(&pool, "tree", 400);
        assert!(tree.own_space().unwrap().log_bytes > 0);
    }
    let entries = {
        let pool = open_pool(&ram);
        let tree = open_unmarked(&pool, "tree");
        assert!(tree.mark(&|| true).unwrap());
        pool.finish_marking();
        let _taker = take_free_space(&pool);
        for number in 0..400 {
            tree.put(&key(number), b"another value").unwrap();
            if number % 40 == 0 {
                tree.sync().unwrap();
            }
        }
        tree.sync().unwrap();
        content(&*tree).unwrap()
    };
    assert_eq!(entries.len(), 400);
    expect_whole_after_a_crash(&ram, &entries);
}

/// Empty runs leave a tree in an epoch that cannot end, so a crash gives them back to the tree.
/// Until then the mark is the only one that knows of them.
#[test]
fn a_late_mark_finds_runs_that_are_about_to_leave() {
    let ram = memory();
    {
        let pool = open_pool(&ram);
        let _other = grown(&pool, "other", 1);
        let tree = grown(&pool, "tree", 400);
        for number in LARGE {
            tree.put(&key(number), &RECORD).unwrap();
        }
        tree.sync().unwrap();
    }
    let entries = {
        let pool = open_pool(&ram);
        let tree = open_unmarked(&pool, "tree");
        let other = open_unmarked(&pool, "other");
        assert!(other.mark(&|| true).unwrap());
        // This forgets the epoch that the crash has cut off; no run is empty yet.
        tree.reclaim();
        let before = bytes_of_records(&*tree);
        for number in LARGE {
            assert!(tree.remove(&key(number)).unwrap());
        }
        tree.sync().unwrap();
        // It is closed as by a crash, so the epoch cannot end any more.
        drop(other);
        assert!(tree.sync().is_err());
        tree.reclaim();
        assert!(bytes_of_records(&*tree) < before);
        assert!(tree.mark(&|| true).unwrap());
        pool.finish_marking();
        let _taker = take_free_space(&pool);
        content(&*tree).unwrap()
    };
    assert_eq!(entries.len(), 400);
    expect_whole_after_a_crash(&ram, &entries);
}
