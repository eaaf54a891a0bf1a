//! BzTree with nodes of other sizes, where space runs out, where a disk fails, and where threads
//! stop for ever.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use everleaf_engines::bztree::{BzTree, BzTreeOptions, NodeSizes, instrumented};
use everleaf_engines::engine::CodecKind;
use everleaf_engines::index::{Bounds, Condition, Direction, Index, RecordCodec};
use everleaf_engines::{Error, ErrorKind};
use medium::testing::Late;
use medium::testing::faulty::{Faults, Image, Machine, Which};
use medium::testing::late::Release;
use medium::{Dax, File, FileOptions, Instrumented, LineForm, Medium};
use pool::{Pool, PoolOptions, TreeRoot};

type Tree = Box<dyn Index>;

/// A tree of records.
fn create(pool: &Pool<Instrumented>, options: BzTreeOptions) -> Tree {
    instrumented::create(pool, "tree", CodecKind::Record, options).unwrap()
}

/// A tree of words.
fn create_words(pool: &Pool<Instrumented>) -> Tree {
    instrumented::create(pool, "tree", CodecKind::Word, small()).unwrap()
}

/// The only tree of a pool, which has records.
fn reopen(pool: &Pool<Instrumented>, options: BzTreeOptions) -> Tree {
    instrumented::open(pool, &pool.trees().unwrap()[0], CodecKind::Record, options).unwrap()
}

fn sizes_of(root: &TreeRoot) -> NodeSizes {
    BzTree::<Instrumented, RecordCodec>::sizes_of(root).unwrap()
}

/// Nodes as small as they can be.
fn small() -> BzTreeOptions {
    BzTreeOptions {
        nodes: Some(NodeSizes::of_leaf(4)),
        ..BzTreeOptions::default()
    }
}

const LIMIT_BYTES: u64 = 1 << 20;

fn open(ram: &Instrumented, close_on_drop: bool) -> Pool<Instrumented> {
    let options = PoolOptions {
        step_slabs_min: 1,
        close_on_drop,
        ..PoolOptions::default()
    };
    Pool::open(ram.clone(), options).unwrap()
}

/// Keys whose first words tie, so that separators have tails, which take space as well.
fn key(number: u32) -> Vec<u8> {
    format!("one prefix for all {number:06}").into_bytes()
}

/// Inserts keys until the pool is full for good; returns the keys that are present.
fn fill(tree: &dyn Index) -> Vec<u32> {
    let mut keys = Vec::new();
    let mut refused = 0;
    for step in 0.. {
        // Keys come in mixed order, so that leaves in all places are full when there is no space to
        // split them.
        let number = step * 7919 % 100_003;
        match tree.insert(&key(number), b"value") {
            Ok(done) => {
                assert!(done);
                keys.push(number);
            }
            Err(error) if error.is_full() => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if refused == 40 {
            break;
        }
    }
    keys
}

/// Whether the tree reaches all allocations of the pool.
fn expect_no_leak(ram: &Instrumented, pool: Pool<Instrumented>, tree: Tree) {
    assert!(tree.check().unwrap().is_empty());
    drop(tree);
    assert_eq!(pool.stat().frees_refused, 0);
    pool.close().unwrap();
    for crash in [false, true] {
        let pool = open(ram, !crash);
        let root = pool.trees().unwrap().remove(0);
        let tree = reopen(
            &pool,
            BzTreeOptions {
                nodes: Some(sizes_of(&root)),
                ..small()
            },
        );
        pool.finish_marking();
        let reached = tree.stat().unwrap().allocations;
        assert_eq!(
            Some(pool.stat().allocations),
            reached,
            "after a crash: {crash}"
        );
        // The next round opens it as after a crash.
        drop((tree, pool));
        if !crash {
            drop(open(ram, false));
        }
    }
}

#[test]
fn a_full_pool_freezes_no_leaf_for_good() {
    let ram = Instrumented::new(Dax::plain(LIMIT_BYTES).unwrap());
    let pool = open(&ram, true);
    let tree = create(&pool, small());
    let keys = fill(&*tree);
    assert!(keys.len() > 500, "{} keys", keys.len());
    // Operations that take no space succeed at the first attempt, in every leaf.
    for number in &keys {
        assert_eq!(
            tree.get(&key(*number)).unwrap().unwrap().as_slice(),
            b"value"
        );
    }
    for number in keys.iter().step_by(3) {
        assert!(tree.remove(&key(*number)).unwrap(), "{number}");
    }
    for number in keys.iter().skip(1).step_by(3) {
        assert!(tree.remove(&key(*number)).unwrap(), "{number}");
    }
    for number in keys.iter().skip(2).step_by(3) {
        assert_eq!(
            tree.get(&key(*number)).unwrap().unwrap().as_slice(),
            b"value"
        );
    }
    expect_no_leak(&ram, pool, tree);
}

#[test]
fn threads_in_a_full_pool_end() {
    let ram = Instrumented::new(Dax::plain(LIMIT_BYTES).unwrap());
    let pool = open(&ram, true);
    let tree = create(&pool, small());
    let keys = fill(&*tree);
    let full = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let tree = &*tree;
            let keys = &keys;
            let full = &full;
            scope.spawn(move || {
                for (step, number) in (0..)
                    .zip(keys.iter().cycle().skip(thread * keys.len() / 4))
                    .take(600)
                {
                    // The writes go to the same leaves: some free space, and others take it.
                    let fresh = number + 1_000_000 + thread as u32;
                    let outcome = match step % 4 {
                        0 => tree.insert(&key(fresh), b"another").map(drop),
                        1 => tree.put(&key(*number), b"other").map(drop),
                        2 => tree.update(&key(*number), b"third").map(drop),
                        _ => tree.remove(&key(*number)).map(drop),
                    };
                    match outcome {
                        Err(error) if error.is_full() && step % 4 != 3 => {
                            full.fetch_add(1, Ordering::Relaxed);
                        }
                        outcome => outcome.unwrap_or_else(|error| panic!("step {step}: {error}")),
                    }
                }
            });
        }
    });
    expect_no_leak(&ram, pool, tree);
}

/// A write that is visible when the wait for it fails stays visible until the process ends: other
/// threads may have read it.
#[test]
fn a_disk_that_fails_takes_nothing_from_the_tree() {
    type Operation = fn(&dyn Index) -> Result<bool, Error>;
    const SMALL_LEAVES: [u32; 5] = [2, 3, 6, 7, 8];
    let operations: [(&str, u32, &[u32], Operation); 7] = [
        ("an insert", 1, &[], |tree| tree.insert(&key(5), b"value")),
        ("a put", 1, &[], |tree| {
            tree.put(&key(1), b"another").map(|()| true)
        }),
        ("an update", 4, &[], |tree| tree.update(&key(1), b"another")),
        ("a split", 4, &[], |tree| tree.insert(&key(5), b"value")),
        ("a consolidation", 4, &[3, 4], |tree| {
            tree.insert(&key(5), b"value")
        }),
        ("a merge", 8, &SMALL_LEAVES, |tree| tree.remove(&key(1))),
        ("a load", 0, &[], |tree| {
            let mut number = 0;
            let mut next = |into: &mut Vec<u8>, value: &mut Vec<u8>| {
                number += 1;
                *into = key(number);
                *value = b"value".to_vec();
                Ok(number < 30)
            };
            tree.bulk_load(&mut next, 1.0).map(|_| true)
        }),
    ];
    for (name, keys, removed, operation) in operations {
        // In an operation of two steps the second one may fail.
        for sync in 0..3 {
            let machine = Machine::new(&Image::default());
            let options = FileOptions {
                mark_offset: pool::MEDIUM_LINE,
                background: false,
                ..FileOptions::default()
            };
            let file =
                File::open(machine.io(Which::Pool), machine.io(Which::Log), options).unwrap();
            let options = PoolOptions {
                close_on_drop: false,
                ..PoolOptions::default()
            };
            let pool = Pool::open(Instrumented::new(file), options).unwrap();
            let tree = create(&pool, small());
            for number in 1..=keys {
                assert!(tree.insert(&key(number), b"value").unwrap());
            }
            for number in removed {
                assert!(tree.remove(&key(*number)).unwrap());
            }
            machine.set_faults(Faults {
                sync: Some(sync),
                ..Faults::default()
            });
            let outcome = operation(&*tree);
            let is_failure = matches!(&outcome, Err(error) if error.medium().is_some());
            assert!(sync > 0 || is_failure, "{name}: {outcome:?}");
            // Each allocation was freed once: a second free would be refused.
            tree.destroy().unwrap();
            assert_eq!(pool.stat().frees_refused, 0, "{name}, sync {sync}");
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(20);

/// Lets the held thread go on, even if the test fails meanwhile.
struct LetGo<'m>(&'m Late);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// A pool on a medium that is durable late.
fn on_late() -> (Arc<Late>, Pool<Instrumented>) {
    let late = Arc::new(Late::new(1 << 24, LineForm::Single).unwrap());
    let pool = Pool::open(Instrumented::sharing(&late), PoolOptions::default()).unwrap();
    (late, pool)
}

fn keys_of(tree: &dyn Index) -> Vec<Vec<u8>> {
    let mut scan = tree.range(Bounds::all(), Direction::Forward).unwrap();
    let mut key = Vec::new();
    let mut value = Vec::new();
    let mut keys = Vec::new();
    while scan.next_into(&mut key, &mut value).unwrap() {
        keys.push(key.clone());
    }
    keys
}

/// Stops `operation` at its fence `further`, on a tree of eight keys without those `removed`; then
/// `meanwhile` must come to its end on another thread. `false` if the operation has fewer fences.
fn beside_one_that_stopped(
    operations_max: usize,
    removed: &[u32],
    further: usize,
    operation: fn(&dyn Index),
    meanwhile: fn(&dyn Index),
) -> bool {
    let (late, pool) = on_late();
    let tree = &*create(
        &pool,
        BzTreeOptions {
            operations_max,
            ..small()
        },
    );
    for number in 1..=8 {
        assert!(tree.insert(&key(10 * number), b"value").unwrap());
    }
    for number in removed {
        assert!(tree.remove(&key(*number)).unwrap());
    }
    let stopped = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            // An allocation holds a lock of the pool, and fences when it takes a fresh slab. This
            // comes before the test: from then on the tree has slabs of its own.
            (1..40).for_each(|number| tree.put(&key(1_000 + number), b"space").unwrap());
            assert!((1..40).all(|number| tree.remove(&key(1_000 + number)).unwrap()));
            late.hold_fence(further);
            operation(tree);
        });
        let _let_go = LetGo(&late);
        let deadline = Instant::now() + PATIENCE;
        while !late.until_held(Duration::from_millis(1)) {
            assert!(Instant::now() < deadline, "neither held nor done");
            if worker.is_finished() {
                return false;
            }
        }
        let other = scope.spawn(|| meanwhile(tree));
        while !other.is_finished() {
            assert!(
                Instant::now() < deadline,
                "who goes on waits for one that stopped, at its fence {further}"
            );
            std::thread::yield_now();
        }
        assert!(!worker.is_finished());
        true
    });
    assert!(tree.check().unwrap().is_empty());
    stopped
}

/// All slots may be taken by stopped threads: readers need none.
#[test]
fn readers_do_not_wait_for_a_thread_that_stopped() {
    type Operation = fn(&dyn Index);
    let operations: [Operation; 4] = [
        |tree| assert!(tree.insert(&key(15), b"new").unwrap()),
        |tree| assert!(tree.update(&key(10), b"new").unwrap()),
        |tree| assert!(tree.remove(&key(20)).unwrap()),
        |tree| tree.put(&key(85), b"new").unwrap(),
    ];
    for operation in operations {
        let mut further = 0;
        while beside_one_that_stopped(1, &[], further, operation, |tree| {
            let value = tree.get(&key(10)).unwrap().unwrap();
            assert!([&b"value"[..], b"new"].contains(&value.as_slice()));
            assert_eq!(tree.get(&key(30)).unwrap().unwrap().as_slice(), b"value");
            assert_eq!(tree.get(&key(35)).unwrap().map(|_| ()), None);
            assert!((7..=9).contains(&keys_of(tree).len()));
            assert!(!tree.insert(&key(40), b"there").unwrap());
        }) {
            further += 1;
        }
        assert!(further >= 3, "{further} fences");
    }
}

/// A thread that finds the operation of a stopped thread completes it, or undoes it, and goes on.
#[test]
fn writers_do_not_wait_for_a_thread_that_stopped() {
    type Operation = fn(&dyn Index);
    let operations: [(&[u32], Operation); 5] = [
        (&[], |tree| assert!(tree.insert(&key(15), b"new").is_ok())),
        (&[], |tree| assert!(tree.update(&key(10), b"new").is_ok())),
        (&[], |tree| assert!(tree.remove(&key(20)).is_ok())),
        (&[], |tree| tree.put(&key(85), b"new").unwrap()),
        (&[20, 30, 60, 70, 80], |tree| {
            assert!(tree.remove(&key(10)).is_ok());
        }),
    ];
    for (removed, operation) in operations {
        let mut further = 0;
        while beside_one_that_stopped(8, removed, further, operation, |tree| {
            for number in 1..90 {
                tree.put(&key(number), b"other").unwrap();
            }
            assert_eq!(keys_of(tree).len(), 89);
            for number in 1..90 {
                assert!(tree.remove(&key(number)).unwrap(), "{number}");
            }
            assert_eq!(keys_of(tree).len(), 0);
        }) {
            further += 1;
        }
        assert!(further >= 3, "{further} fences");
    }
}

/// Writes of other threads may become durable at any time, and so may later ones.
fn expect_a_reader_waits_for_nobody(medium: &Late, tree: &dyn Index) {
    medium.set_release(Release::Manual);
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(tree.update(&key(2), b"new").unwrap()));
        assert!(medium.until_waiting(1, PATIENCE));
        let reader = scope.spawn(|| {
            tree.get(&key(30))
                .unwrap()
                .map(|value| value.as_slice().to_vec())
        });
        let deadline = Instant::now() + PATIENCE;
        while !reader.is_finished() && medium.waiting().len() < 2 && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let is_done = reader.is_finished();
        medium.set_release(Release::Immediate);
        assert!(is_done, "a reader of what is durable waits for what is not");
        assert_eq!(reader.join().unwrap().as_deref(), Some(&b"value"[..]));
    });
}

/// If no writer has waited, nodes and entries do not count as durable.
#[test]
fn a_reader_waits_for_nothing_but_what_it_has_seen() {
    let (late, pool) = on_late();
    let tree = create(&pool, small());
    let splits = || {
        tree.counters()
            .iter()
            .find(|(name, _)| *name == "splits")
            .unwrap()
            .1
    };
    late.set_release(Release::Manual);
    for number in 1..=32 {
        let written = tree.write(&key(number), Some(b"value"), Condition::Absent);
        assert!(written.unwrap().held);
    }
    assert!(splits() > 1);
    late.release_all();
    expect_a_reader_waits_for_nobody(&late, &*tree);

    let crashed =
        Arc::new(Late::from_image(&late.durable_image(), 1 << 24, LineForm::Single).unwrap());
    let pool = Pool::open(Instrumented::sharing(&crashed), PoolOptions::default()).unwrap();
    let tree = reopen(&pool, small());
    pool.finish_marking();
    expect_a_reader_waits_for_nobody(&crashed, &*tree);
}

/// A remove that a crash can undo is no answer, even if nothing in the leaf leads to the key any
/// more.
#[test]
fn a_reader_waits_for_a_remove_that_is_not_durable() {
    let (late, pool) = on_late();
    let tree = create(&pool, small());
    assert!(tree.insert(&key(1), b"value").unwrap());
    late.set_release(Release::Manual);
    let expect_a_reader_waits = |waiting: usize| {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| tree.get(&key(1)).unwrap().is_none());
            let waits = late.until_waiting(waiting, PATIENCE);
            late.set_release(Release::Immediate);
            assert!(waits, "answered from a remove that is not durable");
            assert!(reader.join().unwrap());
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(tree.remove(&key(1)).unwrap()));
        assert!(late.until_waiting(1, PATIENCE));
        expect_a_reader_waits(2);
    });
    // A remove that returns before it is durable.
    assert!(tree.insert(&key(1), b"value").unwrap());
    late.set_release(Release::Manual);
    let removed = tree.write(&key(1), None, Condition::Present);
    assert!(removed.unwrap().held);
    expect_a_reader_waits(1);
}

#[test]
fn a_bulk_load_keeps_no_memory_from_being_reused_while_its_source_runs() {
    let pool = open(&Instrumented::new(Dax::plain(16 << 20).unwrap()), true);
    let made = |name| instrumented::create(&pool, name, CodecKind::Record, small()).unwrap();
    let tree = made("tree");
    let other = made("other");
    let mut left = 0..20_u64;
    let mut next = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
        std::thread::scope(|scope| {
            scope.spawn(|| (0..500_u64).for_each(|i| other.put(b"key", &i.to_be_bytes()).unwrap()));
        });
        pool.reclaim();
        let entry = left.next();
        if let Some(number) = entry {
            *key = number.to_be_bytes().to_vec();
            value.clone_from(key);
        }
        Ok(entry.is_some())
    };
    assert_eq!(tree.bulk_load(&mut next, 1.0).unwrap(), 20);
    let allocations = pool.stat().allocations;
    assert!(
        allocations < 1000,
        "{allocations} allocations for 21 records"
    );
    assert!(tree.check().unwrap().is_empty());
}

#[test]
fn a_source_that_empties_the_tree_it_is_loaded_into_is_no_obstacle() {
    let pool = open(&Instrumented::new(Dax::plain(16 << 20).unwrap()), true);
    let tree = create(&pool, small());
    let mut left = 0..3;
    let mut next = |key: &mut Vec<u8>, _: &mut Vec<u8>| {
        // Each of these renews the tree's only leaf.
        for number in 0..20_u32 {
            assert!(tree.insert(&number.to_be_bytes(), b"").unwrap());
            assert!(tree.remove(&number.to_be_bytes()).unwrap());
        }
        let entry = left.next();
        *key = vec![entry.unwrap_or(0)];
        Ok(entry.is_some())
    };
    assert_eq!(tree.bulk_load(&mut next, 1.0).unwrap(), 3);
    assert_eq!(tree.len().unwrap(), 3);
    let mut full = |_: &mut Vec<u8>, _: &mut Vec<u8>| Ok(false);
    assert!(matches!(
        tree.bulk_load(&mut full, 1.0).unwrap_err().kind(),
        ErrorKind::NotEmpty
    ));
}

/// Whatever the number of words: a consolidation, a split and a merge take three persists beside
/// those of the insert or the remove that they are done for.
#[test]
fn each_change_of_the_structure_takes_three_persists() {
    let medium = Instrumented::new(Dax::plain(64 << 20).unwrap()).counted();
    let pool = Pool::open(medium.clone(), PoolOptions::default()).unwrap();
    let tree = create_words(&pool);
    let changes = || -> Vec<u64> {
        let counted: BTreeMap<_, _> = tree.counters().into_iter().collect();
        ["consolidations", "splits", "merges"]
            .iter()
            .map(|what| counted[what])
            .collect()
    };
    // The test takes the minimum for each kind, because now and then a slab is opened, or space is
    // given back.
    let mut fences = BTreeMap::new();
    for step in 0..6_000_u64 {
        let key = (step * 7_919 % 1_000).to_be_bytes();
        let before = changes();
        let counted = medium.counts().unwrap();
        let removes = step % 3 == 0 || step > 5_000;
        if removes {
            tree.remove(&key)
        } else {
            tree.insert(&key, &key)
        }
        .unwrap();
        let taken = (medium.counts().unwrap() - counted).fences;
        let changed: Vec<u64> = changes()
            .iter()
            .zip(before)
            .map(|(now, before)| now - before)
            .collect();
        let least = fences.entry((removes, changed)).or_insert(taken);
        *least = taken.min(*least);
    }
    for (removes, changed) in [(false, [1, 0, 0]), (false, [0, 1, 0]), (true, [0, 0, 1])] {
        assert_eq!(
            fences.get(&(removes, changed.to_vec())),
            Some(&6),
            "{changed:?} in {fences:?}"
        );
    }
}

/// The leaf became small when its neighbour was too full for a merge. The neighbour is not too full
/// any more.
#[test]
fn an_insert_that_renews_a_small_leaf_merges_it_as_a_remove_does() {
    let pool = open(&Instrumented::new(Dax::plain(LIMIT_BYTES).unwrap()), true);
    let tree = create_words(&pool);
    let insert = |key: u64| assert!(tree.insert(&key.to_be_bytes(), &[0; 8]).unwrap());
    let remove = |key: u64| assert!(tree.remove(&key.to_be_bytes()).unwrap());
    for key in [10, 20, 30, 40, 50, 25, 60, 70] {
        insert(key);
    }
    for key in [20, 30, 25, 60, 70] {
        remove(key);
    }
    assert_eq!(tree.stat().unwrap().leaves, 2);
    insert(15);
    assert_eq!(tree.stat().unwrap().leaves, 1);
    assert!(tree.check().unwrap().is_empty());
    assert_eq!(keys_of(&*tree), [10_u64, 15, 40, 50].map(u64::to_be_bytes));
}

/// Sizes of nodes: leaves that are small and mostly sorted, as large as can be and mostly free, and
/// in between.
const SIZES: [NodeSizes; 4] = [
    NodeSizes {
        leaf_entries: 9,
        free_entries: 1,
        inner_children: 4,
    },
    NodeSizes {
        leaf_entries: 24,
        free_entries: 12,
        inner_children: 63,
    },
    NodeSizes {
        leaf_entries: 40,
        free_entries: 2,
        inner_children: 17,
    },
    NodeSizes {
        leaf_entries: 56,
        free_entries: 1,
        inner_children: 63,
    },
];

#[test]
fn trees_of_any_node_sizes_keep_what_they_are_given() {
    for nodes in SIZES {
        let ram = Instrumented::new(Dax::plain(16 << 20).unwrap());
        let pool = open(&ram, true);
        let options = BzTreeOptions {
            nodes: Some(nodes),
            ..small()
        };
        let tree = create(&pool, options);
        let mut model = BTreeMap::new();
        for step in 0..20_000_u32 {
            // Grows, stays, becomes empty, and then grows in order.
            let number = if step > 18_000 {
                step
            } else {
                step.wrapping_mul(2_654_435_761) >> 20
            };
            let removes = step % 3 == 0 || (12_000..18_000).contains(&step);
            let key = key(number);
            let value = step.to_be_bytes().to_vec();
            if removes {
                assert_eq!(
                    tree.remove(&key).unwrap(),
                    model.remove(&key).is_some(),
                    "{nodes}, step {step}"
                );
            } else {
                tree.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        let counted: BTreeMap<_, _> = tree.counters().into_iter().collect();
        // If half of a leaf is to be free, a full leaf is split.
        let grows = 2 * nodes.free_entries < nodes.leaf_entries;
        for what in ["splits", "merges", "consolidations"]
            .iter()
            .take(if grows { 3 } else { 2 })
        {
            assert!(counted[what] > 0, "{nodes}: no {what}");
        }
        let entries = |tree: &dyn Index| {
            let mut all = BTreeMap::new();
            let mut entry = (Vec::new(), Vec::new());
            let mut scan = tree.range(Bounds::all(), Direction::Forward).unwrap();
            while scan.next_into(&mut entry.0, &mut entry.1).unwrap() {
                all.insert(entry.0.clone(), entry.1.clone());
            }
            all
        };
        assert_eq!(entries(&*tree), model, "{nodes}");
        let stat = tree.stat().unwrap();
        assert_eq!(stat.leaf_bytes, 64 + 24 * nodes.leaf_entries as u64);
        assert!(
            stat.leaves as usize * nodes.leaf_entries >= model.len(),
            "{nodes}: {stat:?}"
        );
        expect_no_leak(&ram, pool, tree);
        let pool = open(&ram, true);
        let tree = reopen(&pool, options);
        pool.finish_marking();
        assert_eq!(entries(&*tree), model, "{nodes}, opened again");
    }
}

#[test]
fn a_tree_is_opened_with_the_node_sizes_it_was_made_with() {
    let with = |nodes| BzTreeOptions { nodes, ..small() };
    let pool = open(&Instrumented::new(Dax::plain(LIMIT_BYTES).unwrap()), true);
    let refused = instrumented::create(
        &pool,
        "tree",
        CodecKind::Record,
        with(Some(NodeSizes::of_leaf(57))),
    );
    let refused = refused.err().unwrap();
    assert!(
        matches!(
            refused.kind(),
            ErrorKind::NodeSize {
                size: 57,
                least: 4,
                most: 56,
                ..
            }
        ),
        "{refused}"
    );
    assert!(pool.trees().unwrap().is_empty());
    drop(create(&pool, with(Some(SIZES[0]))));
    let root = pool.trees().unwrap().remove(0);
    assert_eq!(sizes_of(&root), SIZES[0]);
    assert!(
        reopen(&pool, with(Some(SIZES[0])))
            .insert(&key(1), b"")
            .unwrap()
    );
    let free = NodeSizes {
        free_entries: 2,
        ..SIZES[0]
    };
    for nodes in [
        SIZES[1],
        free,
        NodeSizes {
            inner_children: 5,
            ..SIZES[0]
        },
        NodeSizes::of_leaf(4),
    ] {
        let refused = instrumented::open(&pool, &root, CodecKind::Record, with(Some(nodes)))
            .err()
            .unwrap();
        assert!(
            matches!(refused.kind(), ErrorKind::TreeMismatch { .. }),
            "{refused}"
        );
        let refused = refused.to_string();
        let sizes = [nodes, SIZES[0]].map(|nodes| nodes.to_string());
        assert!(
            sizes.iter().all(|nodes| refused.contains(nodes)),
            "{refused}"
        );
    }
}

/// The names of operations whose descriptors have not been given back, in the form in which words
/// hold them; and for each the content that the test stores in such a word.
fn names_left(pool: &Pool<Instrumented>) -> Vec<u64> {
    let guard = pool.pin();
    let anchor = pool.trees().unwrap()[0].words[0];
    let status = |index: u64| guard.words(anchor + 64 + 256 * index, 1).unwrap()[0].load(&guard);
    (0..126)
        .filter(|index| status(*index) & 3 != 0)
        .map(|index| 1 << 63 | (status(index) >> 6 & ((1 << 35) - 1)) << 26 | index)
        .collect()
}

/// A thread's last descriptor stays as it was as long as no operation uses its slot. The leaf whose
/// words it named is replaced meanwhile, and its memory used for a record. Recovery must not change
/// the record, whatever value it has.
#[test]
fn values_that_look_like_names_are_left_alone_by_recovery() {
    assert!((0..252).take_while(|which| is_left_alone(*which)).count() > 0);
}

/// Runs the test with values that equal the leftover name of this number; `false` if there are
/// fewer names.
fn is_left_alone(which: usize) -> bool {
    let ram = Instrumented::new(Dax::plain(16 << 20).unwrap());
    let pool = open(&ram, false);
    let tree = create(&pool, small());
    (0..40).for_each(|number| tree.put(&key(10 * number), b"value").unwrap());
    // These are the last operations of two threads that have ended: one succeeded, one failed.
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(tree.update(&key(200), b"last").unwrap()));
    });
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(tree.insert(&key(201), b"last").unwrap()));
    });
    // All leaves there are replaced, and free memory is used again.
    (0..400).for_each(|number| tree.put(&key(number), b"other").unwrap());
    (0..400).for_each(|number| assert!(tree.remove(&key(number)).unwrap()));
    (0..3).for_each(|_| pool.reclaim());
    let names = names_left(&pool);
    let Some(name) = names.get(which) else {
        return false;
    };
    let mut model = BTreeMap::new();
    let value = name.to_le_bytes().repeat(19);
    for number in 1_000..2_000 {
        // The record is as long as a leaf.
        tree.put(&key(number), &value).unwrap();
        model.insert(key(number), value.clone());
    }
    // The pool is left as by a crash.
    std::mem::forget(tree);
    drop(pool);
    let pool = open(&ram, false);
    let tree = reopen(&pool, small());
    for (key, value) in &model {
        assert_eq!(tree.get(key).unwrap().unwrap().as_slice(), value, "{key:?}");
    }
    assert!(tree.check().unwrap().is_empty());
    true
}

/// `len` waits, as a get does: a count that includes a key which a crash takes back would be wrong.
#[test]
fn a_count_waits_for_what_it_saw() {
    let (late, pool) = on_late();
    let tree = create(&pool, small());
    late.set_release(Release::Manual);
    let counted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let tree = &*tree;
        let counted = &counted;
        scope.spawn(move || assert!(tree.insert(b"key", b"value").unwrap()));
        assert!(late.until_waiting(1, PATIENCE));
        scope.spawn(move || counted.store(tree.len().unwrap(), Ordering::SeqCst));
        assert!(late.until_waiting(2, PATIENCE));
        assert_eq!(counted.load(Ordering::SeqCst), 0);
        late.set_release(Release::Immediate);
    });
    assert_eq!(counted.load(Ordering::SeqCst), 1);
}

/// What a mark after a crash leaves of a tree, if leaves are split at `before` first, and at
/// `meanwhile` when it has come to the end of some leaf.
fn expect_a_sound_mark(leaves: u32, before: u32, meanwhile: [u32; 2]) {
    let ram = Instrumented::new(Dax::plain(4 << 20).unwrap());
    let pool = open(&ram, false);
    let tree = create(&pool, small());
    let keys: Vec<u32> = (0..60).map(|number| number * 10).collect();
    keys.iter()
        .for_each(|number| assert!(tree.insert(&key(*number), b"value").unwrap()));
    drop((tree, pool));
    let pool = open(&ram, false);
    let tree = reopen(
        &pool,
        BzTreeOptions {
            mark_later: true,
            ..small()
        },
    );
    let split = |number: u32| {
        (1..4).for_each(|step| assert!(tree.insert(&key(number * 10 + step), b"value").unwrap()));
        tree.reclaim();
    };
    split(before);
    let seen = Cell::new(0);
    let go_on = || {
        if seen.replace(seen.get() + 1) == leaves {
            for number in meanwhile {
                split(number);
            }
        }
        true
    };
    assert!(tree.mark(&go_on).unwrap());
    pool.finish_marking();
    // Memory that is taken for free is used.
    (1000..1200).for_each(|number| assert!(tree.insert(&key(number), b"value").unwrap()));
    let lost: Vec<_> = keys
        .iter()
        .filter(|number| !matches!(tree.get(&key(**number)), Ok(Some(_))))
        .collect();
    let what = format!("after {leaves} leaves, {before}, {meanwhile:?}");
    assert!(lost.is_empty(), "{what}: {lost:?} are lost");
    assert!(tree.check().unwrap().is_empty(), "{what}");
}

/// After a crash the mark passes an inner node whose address was used again, and which has old
/// separators.
#[test]
fn a_mark_finds_the_separators_of_nodes_whose_space_was_used_again() {
    // The places of the nodes depend on all earlier allocations and frees.
    for leaves in 1..9 {
        for before in [1, 2 * leaves] {
            for first in 2 * leaves..2 * leaves + 3 {
                for second in first + 1..first + 7 {
                    if before != first && before != second {
                        expect_a_sound_mark(leaves, before, [first, second]);
                    }
                }
            }
        }
    }
}

/// A read of a leaf that is not sorted once took the bits above the offset of a record for a part
/// of the offset, and the check ignored them.
#[test]
fn bits_above_the_offset_of_a_record_are_found_and_cost_no_entry() {
    let ram = Instrumented::new(Dax::plain(LIMIT_BYTES).unwrap());
    let pool = open(&ram, true);
    let tree = create(&pool, BzTreeOptions::default());
    // Not in order, and tied in their first words.
    let keys = [3, 1, 2].map(key);
    keys.iter()
        .for_each(|key| assert!(tree.insert(key, b"value").unwrap()));
    let guard = pool.pin();
    let bytes = pool.medium().extent().length() - pool::SLAB_BYTES;
    let words = guard.words(pool::SLAB_BYTES, bytes as usize / 8).unwrap();
    let prefix = u64::from_be_bytes(*b"one pref");
    let entries = words
        .windows(2)
        .filter(|pair| pair[0].load(&guard) == prefix);
    let records: Vec<_> = entries.map(|pair| &pair[1]).collect();
    assert_eq!(records.len(), 3);
    for bit in 48..61 {
        for record in &records {
            let sound = record.load(&guard);
            record.store(&guard, sound ^ 1 << bit);
            assert!(!tree.check().unwrap().is_empty(), "bit {bit}");
            assert!(keys.iter().all(|key| tree.get(key).unwrap().is_some()));
            let mut scan = tree.range(Bounds::all(), Direction::Forward).unwrap();
            let mut count = 0;
            while scan.next_into(&mut Vec::new(), &mut Vec::new()).unwrap() {
                count += 1;
            }
            assert_eq!(count, 3, "bit {bit}");
            record.store(&guard, sound);
        }
    }
    assert!(tree.check().unwrap().is_empty());
}
