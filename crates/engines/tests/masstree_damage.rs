//! Damage to what recovery of a Masstree rests on: the number of the running epoch, the set of failed epochs, the external
//! log. A typed error, a violation that `check` names, or nothing; never a panic, never a walk without an end.

mod common;

use std::sync::Arc;

use everleaf_engines::index::{Index, RecordCodec};
use everleaf_engines::masstree::{EpochLength, MassTree, MassTreeOptions};
use medium::Ram;
use pool::{Error, Pool, PoolOptions};

use common::content;

type Tree = MassTree<Arc<Ram>, RecordCodec, 4>;

const OPTIONS: MassTreeOptions = MassTreeOptions {
    epoch: EpochLength::Manual,
    mode: everleaf_engines::masstree::Mode::InLine,
    recovery_threads: 1,
    shards: 1,
    // As after a crash that came when all was written back.
    close_cleanly: false,
    first_epoch: 1,
};

/// Words of the anchor.
const RUNNING: usize = 0;
const FAILED: std::ops::Range<usize> = 16..72;
const LOG: usize = 72;
const VALUE: u64 = (1 << 48) - 1;

fn open_pool(ram: &Arc<Ram>) -> Pool<Arc<Ram>> {
    let options = PoolOptions { step_slabs_min: 1, close_on_drop: false, ..PoolOptions::default() };
    Pool::open(Arc::clone(ram), options).unwrap()
}

fn reopen(pool: &Pool<Arc<Ram>>, name: &str) -> Result<Tree, Error> {
    let root = pool.trees().unwrap().into_iter().find(|root| root.name == name).unwrap();
    Tree::open(pool, &root, OPTIONS)
}

fn anchor(pool: &Pool<Arc<Ram>>, name: &str) -> u64 {
    pool.trees().unwrap().into_iter().find(|root| root.name == name).unwrap().words[0]
}

fn load(pool: &Pool<Arc<Ram>>, offset: u64) -> u64 {
    let guard = pool.pin();
    guard.words(offset, 1).unwrap()[0].load(&guard)
}

fn store(pool: &Pool<Arc<Ram>>, offset: u64, value: u64) {
    let guard = pool.pin();
    guard.words(offset, 1).unwrap()[0].store(&guard, value);
}

fn key(number: u64) -> Vec<u8> {
    let mut key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
    key.extend_from_slice(&b"and a tail"[..number as usize % 10]);
    key
}

/// A tree of so many keys, each few in an epoch of their own.
fn grown(pool: &Pool<Arc<Ram>>, name: &str, keys: u64) -> Tree {
    let tree = Tree::create(pool, name, OPTIONS).unwrap();
    for number in 0..keys {
        tree.put(&key(number), &number.to_be_bytes()).unwrap();
        if number % 5 == 0 {
            tree.sync().unwrap();
        }
    }
    tree.sync().unwrap();
    tree
}

fn is_corrupt<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(error) if matches!(error.root(), Error::Corrupt { .. }))
}

#[test]
fn a_counter_of_epochs_that_lies() {
    let ram = Arc::new(Ram::new(64 << 20).unwrap());
    let pool = open_pool(&ram);
    let (tree, other) = (grown(&pool, "tree", 200), grown(&pool, "other", 2000));
    let before = content(&tree).unwrap();
    let cells = [anchor(&pool, "tree"), anchor(&pool, "other")];
    let [own, future] = cells.map(|offset| load(&pool, offset));
    assert!(own & VALUE < 100 && future & VALUE > 300);
    drop((tree, other));
    // A changed bit.
    for bit in 0..64 {
        store(&pool, cells[0], own ^ 1 << bit);
        assert!(is_corrupt(reopen(&pool, "tree")), "bit {bit}");
    }
    // From the future: nothing was under way, so nothing is lost, and the tree can be used.
    store(&pool, cells[0], future);
    let tree = reopen(&pool, "tree").unwrap();
    assert_eq!(content(&tree).unwrap(), before);
    tree.put(b"new", b"value").unwrap();
    tree.sync().unwrap();
    assert!(tree.check().unwrap().is_empty());
    drop(tree);
    // From the past: every node is from the future.
    store(&pool, cells[0], own);
    let said = reopen(&pool, "tree").and_then(|tree| {
        let found = content(&tree);
        let violations = tree.check()?;
        assert!(!violations.is_empty());
        found
    });
    assert!(is_corrupt(said));
}

#[test]
fn a_set_of_failed_epochs_that_is_damaged() {
    let ram = Arc::new(Ram::new(64 << 20).unwrap());
    let pool = open_pool(&ram);
    drop(grown(&pool, "tree", 200));
    // Epochs fail; nobody sweeps.
    for _ in 0..3 {
        drop(reopen(&pool, "tree").unwrap());
    }
    let anchor = anchor(&pool, "tree");
    let used: Vec<u64> =
        FAILED.map(|word| anchor + 8 * word as u64).filter(|at| load(&pool, *at) != 0).collect();
    assert_eq!(used.len(), 2, "one range");
    for at in used {
        let right = load(&pool, at);
        for bit in 0..64 {
            store(&pool, at, right ^ 1 << bit);
            assert!(is_corrupt(reopen(&pool, "tree")), "word {at:#x}, bit {bit}");
        }
        store(&pool, at, right);
    }
    assert_eq!(content(&reopen(&pool, "tree").unwrap()).unwrap().len(), 200);
}

/// All words in use.
fn image(pool: &Pool<Arc<Ram>>) -> Vec<u64> {
    let guard = pool.pin();
    let words = pool.stat().high_water_bytes as usize / 8;
    guard.words(0, words).unwrap().iter().map(|word| word.load(&guard)).collect()
}

fn restore(pool: &Pool<Arc<Ram>>, image: &[u64]) {
    let guard = pool.pin();
    let words = guard.words(0, image.len()).unwrap();
    words.iter().zip(image).for_each(|(word, value)| word.store(&guard, *value));
}

#[test]
fn an_external_log_that_is_cut_anywhere() {
    let ram = Arc::new(Ram::new(64 << 20).unwrap());
    let pool = open_pool(&ram);
    let tree = grown(&pool, "tree", 120);
    let before = content(&tree).unwrap();
    // An epoch of splits and emptied nodes.
    (200..240).for_each(|number| tree.put(&key(number), b"in vain").unwrap());
    (0..40).for_each(|number| assert!(tree.remove(&key(number)).unwrap()));
    let logged = tree.epochs().nodes_logged;
    assert!(logged > 20);
    let changed = content(&tree).unwrap();
    drop(tree);
    let anchor = anchor(&pool, "tree");
    let running = load(&pool, anchor + 8 * RUNNING as u64);
    let chain = anchor + 8 * LOG as u64;
    let segment = load(&pool, chain) & VALUE;
    let crashed = image(&pool);
    // The entries of this epoch: from the first line of the segment on, as long as they begin with its number.
    let (first, entry) = (segment / 8 + 8, (192 + 64) / 8);
    let entries =
        (0..200).take_while(|number| crashed[(first + number * entry) as usize] == running).count() as u64;
    assert!(entries > 20, "{entries} entries");
    let mut noticed = 0;
    for cut in (first..first + entries * entry).rev() {
        restore(&pool, &crashed);
        (cut..first + entries * entry).for_each(|word| store(&pool, 8 * word, 0));
        let fine = reopen(&pool, "tree").and_then(|tree| {
            let found = content(&tree);
            let violations = tree.check()?;
            // What a cut log cannot put back is in the way of what the lines put back, or it is all that changed.
            Ok(found? == before && violations.is_empty())
        });
        noticed += u64::from(fine.is_err());
    }
    println!("{entries} entries, {noticed} of {} cuts are errors", entries * entry);
    restore(&pool, &crashed);
    assert_eq!(content(&reopen(&pool, "tree").unwrap()).unwrap(), before);
    assert_ne!(before, changed);
    // The chain of its segments.
    for at in [chain, segment] {
        for bit in 0..64 {
            restore(&pool, &crashed);
            store(&pool, at, crashed[at as usize / 8] ^ 1 << bit);
            assert!(is_corrupt(reopen(&pool, "tree")), "link at {at:#x}, bit {bit}");
        }
    }
}
