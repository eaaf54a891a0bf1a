//! BzTree where space runs out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use everleaf_engines::bztree::{BzTree, BzTreeOptions};
use everleaf_engines::index::{Index, RecordCodec};
use medium::Ram;
use pool::{Error, Pool, PoolOptions};

type Tree = BzTree<Arc<Ram>, RecordCodec, 4>;

const LIMIT_BYTES: u64 = 1 << 20;

fn open(ram: &Arc<Ram>, close_on_drop: bool) -> Pool<Arc<Ram>> {
    let options = PoolOptions { step_slabs_min: 1, close_on_drop, ..PoolOptions::default() };
    Pool::open(Arc::clone(ram), options).unwrap()
}

/// Keys whose first words tie, so that separators have tails, which take space as well.
fn key(number: u32) -> Vec<u8> {
    format!("one prefix for all {number:06}").into_bytes()
}

/// Inserts keys until the pool is full for good; returns those that are there.
fn fill(tree: &Tree) -> Vec<u32> {
    let (mut keys, mut refused) = (Vec::new(), 0);
    for step in 0.. {
        // From all sides, so that leaves everywhere are full when there is no space to split them.
        let number = step * 7919 % 100_003;
        match tree.insert(&key(number), b"value") {
            Ok(done) => {
                assert!(done);
                keys.push(number);
            }
            Err(error) if matches!(error.root(), Error::PoolFull { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if refused == 40 {
            break;
        }
    }
    keys
}

/// Whether the tree reaches all that is allocated.
fn expect_no_leak(ram: &Arc<Ram>, pool: Pool<Arc<Ram>>, tree: Tree) {
    assert!(tree.check().unwrap().is_empty());
    drop(tree);
    assert_eq!(pool.stat().frees_refused, 0);
    pool.close().unwrap();
    for crash in [false, true] {
        let pool = open(ram, !crash);
        let root = pool.trees().unwrap().remove(0);
        let tree = Tree::open(&pool, &root, BzTreeOptions::default()).unwrap();
        pool.finish_marking();
        assert_eq!(pool.stat().allocations, tree.allocations().unwrap(), "after a crash: {crash}");
        // The next round opens it as after a crash.
        drop((tree, pool));
        if !crash {
            drop(open(ram, false));
        }
    }
}

#[test]
fn a_full_pool_freezes_no_leaf_for_good() {
    let ram = Arc::new(Ram::new(LIMIT_BYTES).unwrap());
    let pool = open(&ram, true);
    let tree = Tree::create(&pool, "tree", BzTreeOptions::default()).unwrap();
    let keys = fill(&tree);
    assert!(keys.len() > 500, "{} keys", keys.len());
    // What takes no space is done at the first attempt, in every leaf.
    for number in &keys {
        assert_eq!(tree.get(&key(*number)).unwrap().unwrap().as_slice(), b"value");
    }
    for number in keys.iter().step_by(3) {
        assert!(tree.remove(&key(*number)).unwrap(), "{number}");
    }
    for number in keys.iter().skip(1).step_by(3) {
        assert!(tree.remove(&key(*number)).unwrap(), "{number}");
    }
    for number in keys.iter().skip(2).step_by(3) {
        assert_eq!(tree.get(&key(*number)).unwrap().unwrap().as_slice(), b"value");
    }
    expect_no_leak(&ram, pool, tree);
}

#[test]
fn threads_in_a_full_pool_end() {
    let ram = Arc::new(Ram::new(LIMIT_BYTES).unwrap());
    let pool = open(&ram, true);
    let tree = Tree::create(&pool, "tree", BzTreeOptions::default()).unwrap();
    let keys = fill(&tree);
    let full = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (tree, keys, full) = (&tree, &keys, &full);
            scope.spawn(move || {
                for (step, number) in (0..).zip(keys.iter().cycle().skip(thread * keys.len() / 4)).take(600) {
                    // Writes in the same leaves: what frees space beside what takes it.
                    let fresh = number + 1_000_000 + thread as u32;
                    let outcome = match step % 4 {
                        0 => tree.insert(&key(fresh), b"another").map(drop),
                        1 => tree.put(&key(*number), b"other").map(drop),
                        2 => tree.update(&key(*number), b"third").map(drop),
                        _ => tree.remove(&key(*number)).map(drop),
                    };
                    match outcome {
                        Err(error) if matches!(error.root(), Error::PoolFull { .. }) && step % 4 != 3 => {
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
