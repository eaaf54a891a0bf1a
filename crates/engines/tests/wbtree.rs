//! Tests of the wB+-Tree about space, durability and damaged pools. Most of it is about
//! `kit::paged`.

mod common;

use std::cell::Cell;
use std::ops::Bound;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use everleaf_engines::engine::{CodecKind, Engine, Opening, Visit};
use everleaf_engines::index::{Bounds, Condition, Direction, Index, LeftOut, WordIndex};
use everleaf_engines::kit::paged::{checked, unchecked};
use everleaf_engines::{Error, ErrorKind};
use medium::testing::Late;
use medium::testing::late::Release;
use medium::{Dax, DaxOptions, Instrumented, LineForm};
use pool::{Pool, PoolOptions, TreeRoot};

use common::content;

const PATIENCE: Duration = Duration::from_secs(20);
const SLOT_BITMAP: u64 = 0;
const BITMAP_ONLY: u64 = 1;
const SLOT_ONLY: u64 = 2;
/// In a node with a slot array and a bitmap: the words of the link and of the first entry's value.
const LINK: u64 = 9;
const FIRST_VALUE: u64 = 11;
/// The word of its bitmap, and there the bit that says that the slot array is valid.
const BITMAP: u64 = 8;
const VALID: u64 = 1;
/// In a bitmap-only leaf: the word of the link.
const LEAF_LINK: u64 = 1;

fn settings(design: u64, entries: u64) -> Opening {
    let settings = Engine::WBTREE
        .settings(&[("design", design), ("leaf-entries", entries)])
        .unwrap();
    Opening {
        settings,
        ..Opening::default()
    }
}

fn tree(pool: &Pool<Instrumented>, codec: CodecKind, design: u64, entries: u64) -> Arc<dyn Index> {
    let create = Engine::WBTREE.media().instrumented.create;
    create(pool, "tree".into(), codec, &settings(design, entries))
        .unwrap()
        .index
}

fn reopen(
    pool: &Pool<Instrumented>,
    root: &TreeRoot,
    codec: CodecKind,
) -> Result<Arc<dyn Index>, Error> {
    let open = Engine::WBTREE.media().instrumented.open;
    open(pool, root, codec, &Opening::default()).map(|tree| tree.index)
}

/// The damage that a salvage reports, and how many entries it finds.
fn salvaged(pool: &Pool<Instrumented>, root: &TreeRoot, codec: CodecKind) -> (Vec<LeftOut>, u64) {
    let mut entries = 0;
    let visit: &mut Visit<'_> = &mut |_, _| {
        entries += 1;
        true
    };
    let left_out = (Engine::WBTREE.media().instrumented.salvage)(pool, root, codec, visit);
    (left_out.unwrap().unwrap(), entries)
}

fn ram() -> Instrumented {
    Instrumented::new(Dax::plain(64 << 20).unwrap())
}

fn open(ram: &Instrumented, close_on_drop: bool) -> Pool<Instrumented> {
    Pool::open(
        ram.clone(),
        PoolOptions {
            close_on_drop,
            ..PoolOptions::default()
        },
    )
    .unwrap()
}

/// Keys whose first words tie, so that separators have tails.
fn key(number: u32) -> Vec<u8> {
    format!("one prefix for all {number:06}").into_bytes()
}

/// A word of the pool.
fn load(pool: &Pool<Instrumented>, offset: u64, word: u64) -> u64 {
    pool.pin().words(offset + 8 * word, 1).unwrap()[0].load(&pool.pin())
}

fn store(pool: &Pool<Instrumented>, offset: u64, word: u64, value: u64) {
    pool.pin().words(offset + 8 * word, 1).unwrap()[0].store(&pool.pin(), value);
}

/// The offset of the anchor, and of the root.
fn anchor_and_root(pool: &Pool<Instrumented>) -> (u64, u64) {
    let anchor = pool.trees().unwrap()[0].words[0];
    (anchor, unchecked(load(pool, anchor, 0)).unwrap() & !0x3f)
}

/// Whether the tree reaches all allocations of the pool.
fn expect_no_leak(pool: &Pool<Instrumented>, tree: &dyn Index) {
    assert_eq!(tree.check().unwrap(), []);
    pool.reclaim();
    assert_eq!(
        Some(pool.stat().allocations),
        tree.stat().unwrap().allocations
    );
}

/// The entries `keys`, for a bulk load.
fn source(
    keys: Vec<Vec<u8>>,
) -> impl FnMut(&mut Vec<u8>, &mut Vec<u8>) -> everleaf_engines::Result<bool> {
    let mut keys = keys.into_iter();
    move |into, value| {
        let Some(key) = keys.next() else {
            return Ok(false);
        };
        *into = key;
        *value = b"a value.".to_vec();
        Ok(true)
    }
}

#[test]
fn a_load_into_what_a_crash_left_without_entries_leaks_nothing() {
    let ram = ram();
    let pool = open(&ram, false);
    let made = tree(&pool, CodecKind::Record, BITMAP_ONLY, 4);
    (0..5).for_each(|number| assert!(made.insert(&key(number), b"value").unwrap()));
    assert_eq!(made.stat().unwrap().leaves, 2);
    drop(made);
    // The state is as if the last removes of both leaves had reached their commit, but not their
    // merge.
    let (_, root) = anchor_and_root(&pool);
    let first = unchecked(load(&pool, root, LINK)).unwrap();
    let second = unchecked(load(&pool, first, LEAF_LINK)).unwrap();
    for leaf in [first, second] {
        store(&pool, leaf, 0, 0);
    }
    drop(pool);

    let pool = open(&ram, true);
    let root = pool.trees().unwrap().remove(0);
    let tree = reopen(&pool, &root, CodecKind::Record).unwrap();
    pool.finish_marking();
    expect_no_leak(&pool, &*tree);
    assert_eq!(
        tree.bulk_load(&mut source((0..20).map(key).collect()), 1.0)
            .unwrap(),
        20
    );
    expect_no_leak(&pool, &*tree);
}

#[test]
fn a_load_that_is_overtaken_answers_when_that_is_durable() {
    let late = &Arc::new(Late::new(1 << 30, LineForm::Twin).unwrap());
    let pool = Pool::open(Instrumented::sharing(late), PoolOptions::default()).unwrap();
    let tree = tree(&pool, CodecKind::Word, SLOT_BITMAP, 4);
    std::thread::scope(|scope| {
        let tree = &tree;
        let mut calls = 0;
        let loader = scope.spawn(move || {
            let mut next = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
                calls += 1;
                if calls == 1 {
                    late.set_release(Release::Manual);
                    scope.spawn(move || tree.put(&[7; 8], &[7; 8]).unwrap());
                    assert!(late.until_waiting(1, PATIENCE));
                    *key = vec![8; 8];
                    *value = vec![8; 8];
                }
                Ok(calls == 1)
            };
            tree.bulk_load(&mut next, 1.0).unwrap_err()
        });
        let both_wait = late.until_waiting(2, PATIENCE);
        late.set_release(Release::Immediate);
        assert!(
            both_wait,
            "a load that is refused because of a key that a crash could take back"
        );
        assert!(matches!(loader.join().unwrap().kind(), ErrorKind::NotEmpty));
    });
}

#[test]
fn a_root_that_names_no_nodes_is_told_with_its_word() {
    let pool = open(&ram(), false);
    drop(tree(&pool, CodecKind::Word, SLOT_BITMAP, 4));
    let mut root = pool.trees().unwrap().remove(0);
    // A design that does not exist, and sizes that no node of the design has.
    for word in [0x304, 0x2, 0x3c, 0x208] {
        root.words[1] = word;
        let opened = reopen(&pool, &root, CodecKind::Word);
        for error in [
            opened.err().unwrap(),
            (Engine::WBTREE.settings_of)(&root).unwrap_err(),
        ] {
            let ErrorKind::Corrupt { offset, what } = error.kind() else {
                panic!("{error}")
            };
            assert_eq!(*offset, root.words[0]);
            assert!(
                what.contains("wbtree") && what.contains(&format!("{word:#x}")),
                "{what}"
            );
        }
    }
}

/// The counts of a tree: words stored, lines flushed, fences.
type Cost = [u64; 3];

/// The cost of an operation on one key, in a tree of `count` even keys that is a single leaf.
fn cost(design: u64, entries: u64, count: u64, operation: impl FnOnce(&dyn WordIndex)) -> Cost {
    let dax = Dax::new(tempfile::tempfile().unwrap(), DaxOptions::default()).unwrap();
    let pool = Pool::open(Instrumented::new(dax).counted(), PoolOptions::default()).unwrap();
    let tree = tree(&pool, CodecKind::Word, design, entries);
    let words = tree.words().unwrap();
    for key in 1..=count {
        assert!(
            words
                .write_durably(2 * key, Some(key), Condition::Absent)
                .unwrap()
        );
    }
    let before = pool.medium().counts().unwrap();
    operation(words);
    let spent = pool.medium().counts().unwrap() - before;
    [spent.words_stored, spent.lines_flushed, spent.fences]
}

/// The cost of an insert and a remove at the first key, in the middle and at the last key of a leaf
/// with this many entries.
fn costs(design: u64, entries: u64, count: u64) -> ([Cost; 3], [Cost; 3]) {
    let inserts = [1, count + (count + 1) % 2, 2 * count + 1].map(|key| {
        cost(design, entries, count, |tree| {
            assert!(tree.write_durably(key, Some(1), Condition::Absent).unwrap());
        })
    });
    let removes = [1, (count / 2).max(1), count].map(|key| {
        cost(design, entries, count, |tree| {
            assert!(
                tree.write_durably(2 * key, None, Condition::Always)
                    .unwrap()
            );
        })
    });
    (inserts, removes)
}

/// The slides' Table 3 for m entries of a leaf: words written, flushes and fences of an insert
/// without splits and of a remove without merges. Their eighths of words and 64ths of lines, of the
/// slot array, are whole ones here.
fn slides(design: u64, m: u64) -> (Cost, Cost) {
    match design {
        SLOT_BITMAP => {
            // 0.125 m + 4.25, m / 64 + 3 1/32, 3: of these (m + 2) / 8 and (m + 2) / 64 are the
            // slot array.
            let insert = [4 + (m + 2).div_ceil(8), 3 + (m + 2).div_ceil(64), 3];
            (insert, [2 + m.div_ceil(8), 2 + m.div_ceil(64), 3])
        }
        _ => ([3, 2, 2], [1, 1, 1]),
    }
}

/// Designs whose numbers are the slides', wherever the key is.
#[test]
fn one_word_commits_cost_what_the_slides_say() {
    for (design, entries, counts) in [(BITMAP_ONLY, 63, [1, 28, 62]), (SLOT_ONLY, 7, [1, 4, 6])] {
        for count in counts {
            let (insert, remove) = slides(design, count);
            assert_eq!(
                costs(design, entries, count),
                ([insert; 3], [remove; 3]),
                "{count} entries"
            );
        }
    }
}

/// At the front all slots move, at the cost that the slides give. In other places it costs fewer
/// words, because words of the slot array that stay the same are not stored.
#[test]
fn slots_and_bitmap_cost_no_more_than_the_slides_say() {
    for (count, inserts, removes) in [
        (12, [6, 6, 6], [4, 4, 4]),
        (28, [8, 8, 6], [6, 6, 4]),
        (58, [12, 10, 6], [10, 8, 4]),
    ] {
        let (insert, remove) = slides(SLOT_BITMAP, count);
        let with = |slides: Cost, words: [u64; 3]| words.map(|words| [words, slides[1], slides[2]]);
        let found = costs(SLOT_BITMAP, 59, count);
        assert_eq!(
            found,
            (with(insert, inserts), with(remove, removes)),
            "{count} entries"
        );
        assert_eq!(
            (found.0[0], found.1[0]),
            (insert, remove),
            "{count} entries, at the front"
        );
    }
}

/// Whether an operation ends in time.
fn ends(run: impl FnOnce() + Send + 'static) -> bool {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        run();
        done.send(()).unwrap();
    });
    ended.recv_timeout(PATIENCE).is_ok()
}

#[test]
fn leaves_that_are_linked_in_a_circle_end_a_scan() {
    for keys in [&[][..], &[5], &[5, 900]] {
        let pool = open(&ram(), false);
        let tree = tree(&pool, CodecKind::Word, BITMAP_ONLY, 4);
        for key in keys {
            assert!(tree.insert(&u64::to_be_bytes(*key), &[1; 8]).unwrap());
        }
        let (_, leaf) = anchor_and_root(&pool);
        store(&pool, leaf, LEAF_LINK, checked(leaf));
        let scan = move || drop(tree.words().unwrap().scan(6, &mut |_| true));
        assert!(ends(scan), "{keys:?}: a scan that does not end");
    }
}

#[test]
fn an_inner_node_that_is_its_own_child_is_survived() {
    let pool = open(&ram(), false);
    let tree = tree(&pool, CodecKind::Word, SLOT_BITMAP, 4);
    for key in 0..5_u64 {
        assert!(tree.insert(&key.to_be_bytes(), &[1; 8]).unwrap());
    }
    let (_, root) = anchor_and_root(&pool);
    let separator = load(&pool, root, FIRST_VALUE - 1);
    // The separator is an entry of the leaf that the node is for itself; removed there, it is
    // removed from the parent.
    store(&pool, root, FIRST_VALUE, checked(root));
    let _ = tree.remove(&separator.to_be_bytes());
    assert_eq!(
        load(&pool, root, 0) & 0xff,
        0,
        "more slots than the node has"
    );
    let _ = tree.check();
}

#[test]
fn a_salvage_says_that_a_change_was_under_way() {
    let pool = open(&ram(), false);
    let made = tree(&pool, CodecKind::Word, SLOT_ONLY, 3);
    for key in 0..5_u64 {
        assert!(made.insert(&key.to_be_bytes(), &[1; 8]).unwrap());
    }
    drop(made);
    let root = pool.trees().unwrap().remove(0);
    assert_eq!(salvaged(&pool, &root, CodecKind::Word), (vec![], 5));
    let (anchor, _) = anchor_and_root(&pool);
    store(&pool, anchor, 1, 0x1234_5678_0000_0003);
    let (left_out, entries) = salvaged(&pool, &root, CodecKind::Word);
    assert_eq!(
        (left_out.len(), left_out[0].offset, entries),
        (1, anchor, 5)
    );
    assert!(
        reopen(&pool, &root, CodecKind::Word)
            .err()
            .unwrap()
            .is_corrupt()
    );
}

#[test]
fn a_salvage_leaves_out_only_what_a_damaged_word_leads_to() {
    let pool = open(&ram(), false);
    let made = tree(&pool, CodecKind::Word, SLOT_BITMAP, 4);
    for key in 0..8_u64 {
        assert!(made.insert(&key.to_be_bytes(), &[1; 8]).unwrap());
    }
    drop(made);
    let (_, root) = anchor_and_root(&pool);
    let value = load(&pool, root, FIRST_VALUE);
    store(&pool, root, FIRST_VALUE, value ^ 1 << 20);
    let (left_out, entries) = salvaged(&pool, &pool.trees().unwrap()[0], CodecKind::Word);
    assert!(
        left_out.len() == 1 && left_out[0].offset == root,
        "{left_out:?}"
    );
    assert!((4..8).contains(&entries), "{entries} entries");
}

/// A writer would give the damaged bitmap a valid check; an open after a crash would free the
/// record that it does not name.
#[test]
fn a_damaged_head_of_a_leaf_is_noticed_and_costs_no_entry() {
    let ram = ram();
    let entry = 1 << 3;
    let pool = open(&ram, false);
    let made = tree(&pool, CodecKind::Record, SLOT_BITMAP, 8);
    (0..5).for_each(|number| assert!(made.insert(&key(number), b"value").unwrap()));
    let (_, leaf) = anchor_and_root(&pool);
    let bitmap = load(&pool, leaf, BITMAP);
    assert!(bitmap & VALID != 0 && bitmap & entry != 0);
    store(&pool, leaf, BITMAP, bitmap & !VALID & !entry);
    assert!(made.insert(&key(9), b"value").unwrap_err().is_corrupt());
    assert!(made.remove(&key(0)).unwrap_err().is_corrupt());
    store(&pool, leaf, BITMAP, bitmap & !entry);
    drop((made, pool));
    let pool = open(&ram, false);
    let root = pool.trees().unwrap().remove(0);
    assert!(
        reopen(&pool, &root, CodecKind::Record)
            .err()
            .unwrap()
            .is_corrupt()
    );
    let (left_out, entries) = salvaged(&pool, &root, CodecKind::Record);
    assert!(
        left_out.len() == 1 && left_out[0].offset == leaf,
        "{left_out:?}"
    );
    assert_eq!(entries, 5);
}

/// A page that is lost leaves zeros.
#[test]
fn a_leaf_of_zeros_is_an_error_for_reads_of_one_key_and_of_many() {
    for design in [SLOT_BITMAP, BITMAP_ONLY, SLOT_ONLY] {
        let pool = open(&ram(), false);
        let tree = tree(&pool, CodecKind::Record, design, 4);
        (0..3).for_each(|number| assert!(tree.insert(&key(number), b"value").unwrap()));
        let (_, leaf) = anchor_and_root(&pool);
        (0..=LINK).for_each(|word| store(&pool, leaf, word, 0));
        assert!(tree.get(&key(1)).unwrap_err().is_corrupt(), "{design}");
        let many = [key(0), key(1)];
        let found = tree.get_many(&[&many[0], &many[1]]);
        assert!(found.is_err_and(|error| error.is_corrupt()), "{design}");
    }
}

/// A slot array with two slots in each other's place lists the same entries.
#[test]
fn a_range_refuses_a_leaf_whose_slots_are_swapped() {
    let pool = open(&ram(), false);
    let tree = tree(&pool, CodecKind::Record, SLOT_BITMAP, 8);
    for key in ["a", "b", "c", "d"] {
        assert!(tree.insert(key.as_bytes(), b"value").unwrap());
    }
    let (_, leaf) = anchor_and_root(&pool);
    let slots = load(&pool, leaf, 0);
    let byte = |position: u64| slots >> (8 * position) & 0xff;
    let difference = byte(2) ^ byte(3);
    store(&pool, leaf, 0, slots ^ difference << 16 ^ difference << 24);
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut range = tree.range(Bounds::all(), direction).unwrap();
        let error = range
            .next_into(&mut Vec::new(), &mut Vec::new())
            .unwrap_err();
        let ErrorKind::Corrupt { offset, .. } = error.kind() else {
            panic!("{error}")
        };
        assert_eq!(*offset, leaf, "{direction:?}");
    }
}

/// The keys of a range, or the error at which it ends.
fn keys_of(tree: &dyn Index, direction: Direction) -> Result<Vec<Vec<u8>>, Error> {
    let mut range = tree.range(Bounds::all(), direction)?;
    let mut keys = Vec::new();
    let mut key = Vec::new();
    while range.next_into(&mut key, &mut Vec::new())? {
        keys.push(key.clone());
        assert!(keys.len() <= 1000, "a range without an end");
    }
    Ok(keys)
}

/// Separators of the root become words that break their order, one after the other. Reads once went
/// to a wrong leaf and said that a key was absent, and a reverse range left out all keys below.
#[test]
fn separators_out_of_order_are_errors_and_never_wrong_answers() {
    for design in [SLOT_BITMAP, SLOT_ONLY] {
        let pool = open(&ram(), false);
        pool.verify_reads();
        let tree = tree(&pool, CodecKind::Word, design, 4);
        let key = |number: u64| number.to_be_bytes();
        let numbers = 1..=150;
        for number in numbers.clone() {
            assert!(tree.insert(&key(2 * number), &[1; 8]).unwrap());
        }
        let keys: Vec<_> = numbers.map(|number| key(2 * number).to_vec()).collect();
        let (anchor, root) = anchor_and_root(&pool);
        assert!(
            unchecked(load(&pool, anchor, 0)).unwrap() & 0x3f > 1,
            "levels"
        );
        let entries = if design == SLOT_BITMAP { 10 } else { 2 };
        // The slots in their order: the first byte is their number.
        let slots = load(&pool, root, 0);
        let words: Vec<u64> = (1..=slots & 0xff)
            .map(|position| entries + 2 * (slots >> (8 * position) & 0xff))
            .collect();
        let separators: Vec<u64> = words.iter().map(|word| load(&pool, root, *word)).collect();
        assert!(separators.len() > 1, "{design}: {separators:?}");
        let mut errors = 0;
        for (position, word) in words.iter().copied().enumerate() {
            let right = separators[position];
            for wrong in [0, separators[0], 1 << 50] {
                store(&pool, root, word, wrong);
                let what = format!("{design}, {right} becomes {wrong}");
                let mut changed = separators.clone();
                changed[position] = wrong;
                // A wrong separator that keeps the order is not noticed by reads.
                let is_ordered = changed.is_sorted_by(|one, next| one < next);
                for key in &keys {
                    match tree.get(key) {
                        Ok(found) => assert!(found.is_some() || is_ordered, "{what}: {key:x?}"),
                        Err(error) => {
                            assert!(error.is_corrupt(), "{what}: {error}");
                            errors += 1;
                        }
                    }
                    if let Ok(found) = tree.get_many(&[key]) {
                        assert!(found[0].is_some() || is_ordered, "{what}: {key:x?}");
                    }
                }
                for direction in [Direction::Forward, Direction::Reverse] {
                    if let Ok(mut found) = keys_of(&*tree, direction) {
                        found.sort_unstable();
                        assert!(found == keys || is_ordered, "{what}, {direction:?}");
                    }
                }
                store(&pool, root, word, right);
            }
        }
        assert!(errors > 0);
        assert_eq!(tree.check().unwrap(), []);
    }
}

/// A leaf may be empty for a while, for example after a crash: a scan goes on behind it.
#[test]
fn a_scan_passes_an_empty_leaf() {
    let pool = open(&ram(), false);
    let tree = tree(&pool, CodecKind::Word, BITMAP_ONLY, 4);
    (0..12_u64).for_each(|key| assert!(tree.insert(&key.to_be_bytes(), &[1; 8]).unwrap()));
    let (_, root) = anchor_and_root(&pool);
    let second = unchecked(load(&pool, root, FIRST_VALUE)).unwrap();
    let emptied = u64::from(load(&pool, second, 0).count_ones());
    store(&pool, second, 0, 0);
    let mut seen = 0;
    let visit = &mut |entries: &[[u64; 2]]| {
        seen += entries.len() as u64;
        true
    };
    tree.words().unwrap().scan(0, visit).unwrap();
    assert!(
        emptied > 0 && seen == 12 - emptied,
        "{seen} of 12, {emptied} taken out"
    );
}

#[test]
fn ascending_keys_fill_leaves() {
    for (design, entries) in [(SLOT_BITMAP, 59), (BITMAP_ONLY, 63), (SLOT_ONLY, 7)] {
        let pool = open(&ram(), false);
        let records = tree(&pool, CodecKind::Record, design, entries);
        (0..3000).for_each(|number| assert!(records.insert(&key(number), b"value").unwrap()));
        let leaves = records.stat().unwrap().leaves;
        assert!(
            leaves * entries < 3000 * 5 / 4,
            "{leaves} leaves of {entries} entries"
        );
    }
}

#[test]
fn a_reverse_scan_from_bytes_that_are_too_short_for_a_word_begins_below_them() {
    let pool = open(&ram(), false);
    let tree = tree(&pool, CodecKind::Word, SLOT_ONLY, 3);
    for first in 0..60_u8 {
        assert!(tree.insert(&[first, 0, 0, 0, 0, 0, 0, 0], &[1; 8]).unwrap());
    }
    for first in 1..60_u8 {
        for upper in [
            Bound::Included(vec![first]),
            Bound::Excluded(vec![first, 0, 0]),
        ] {
            let bounds = Bounds {
                upper,
                ..Bounds::all()
            };
            let mut scan = tree.range(bounds, Direction::Reverse).unwrap();
            let mut key = Vec::new();
            let mut value = Vec::new();
            assert!(scan.next_into(&mut key, &mut value).unwrap());
            assert_eq!(key[0], first - 1);
        }
    }
}

/// Keys that are separators themselves: the smallest with their first words, and others.
#[test]
fn a_reverse_scan_of_records_passes_every_separator() {
    for design in [SLOT_BITMAP, BITMAP_ONLY, SLOT_ONLY] {
        let pool = open(&ram(), false);
        let tree = tree(&pool, CodecKind::Record, design, 3);
        let mut keys: Vec<Vec<u8>> = (0..50_u8).map(|first| vec![first, 1]).collect();
        keys.extend(
            (0..50_u8)
                .flat_map(|first| [vec![first], vec![first, 0], vec![first; 8], vec![first; 9]]),
        );
        keys.extend((0..50_u8).map(|first| vec![first, 1, 0, 0, 0, 0, 0, 0, 0, 7]));
        keys.sort_unstable();
        keys.dedup();
        keys.iter()
            .for_each(|key| assert!(tree.insert(key, b"value").unwrap()));
        for (position, from) in keys.iter().enumerate() {
            for (upper, below) in [
                (Bound::Included(from.clone()), position + 1),
                (Bound::Excluded(from.clone()), position),
            ] {
                let mut scan = tree
                    .range(
                        Bounds {
                            upper,
                            ..Bounds::all()
                        },
                        Direction::Reverse,
                    )
                    .unwrap();
                let mut key = Vec::new();
                let mut value = Vec::new();
                for wanted in keys[..below].iter().rev() {
                    assert!(scan.next_into(&mut key, &mut value).unwrap());
                    assert_eq!(&key, wanted);
                }
                assert!(!scan.next_into(&mut key, &mut value).unwrap());
            }
        }
    }
}

/// The effects of damaged bytes: `check` or a scan reported damage; nothing changed; a scan
/// returned wrong entries.
#[derive(Default, Debug)]
struct Shares {
    noticed: u32,
    harmless: u32,
    silent: u32,
}

/// Damages each byte of a tree in turn: each word that is not zero in the slabs of the tree.
fn damage(codec: CodecKind, design: u64, entries: u64) -> Shares {
    let pool = open(&ram(), false);
    let tree = tree(&pool, codec, design, entries);
    for number in 0..300_u64 {
        let number = number * 7919 % 100_003;
        let key = match codec {
            CodecKind::Word => number.to_be_bytes().to_vec(),
            _ => key(number as u32),
        };
        assert!(
            tree.insert(&key, &(number ^ 0x5a5a_5a5a).to_be_bytes())
                .unwrap()
        );
    }
    let sound = content(&*tree).unwrap();
    let mut shares = Shares::default();
    let first = anchor_and_root(&pool).0 & !0xffff;
    let last = pool.stat().high_water_bytes;
    for offset in (first..last)
        .step_by(8)
        .filter(|offset| offset % 0x1_0000 != 0)
    {
        let word = load(&pool, offset, 0);
        if word == 0 {
            continue;
        }
        for byte in 0..8 {
            let mask = if offset / 8 % 2 == 0 {
                0xff
            } else {
                1 << (offset / 16 % 8)
            };
            store(&pool, offset, 0, word ^ mask << (8 * byte));
            match (tree.check(), content(&*tree)) {
                (Ok(violations), Ok(found)) if violations.is_empty() && found == sound => {
                    shares.harmless += 1;
                }
                (Ok(violations), Ok(_)) if violations.is_empty() => shares.silent += 1,
                _ => shares.noticed += 1,
            }
        }
        store(&pool, offset, 0, word);
    }
    assert_eq!(content(&*tree).unwrap(), sound);
    shares
}

/// Prints the percentages for docs/engines/wbtree.md. Returns the number of bytes whose damage is
/// not noticed.
fn print_shares(
    name: &str,
    Shares {
        noticed,
        harmless,
        silent,
    }: Shares,
) -> u32 {
    let percent = |count: u32| 100.0 * f64::from(count) / f64::from(noticed + harmless + silent);
    let [noticed, harmless] = [noticed, harmless].map(percent);
    println!(
        "{name}: {noticed:.1}% noticed, {harmless:.1}% harmless, {:.1}% silent",
        percent(silent)
    );
    silent
}

#[test]
fn how_much_damage_is_silent_with_slots_and_bitmap() {
    let silent = print_shares(
        "slot+bitmap, record",
        damage(CodecKind::Record, SLOT_BITMAP, 59),
    );
    assert_eq!(silent, 0);
    print_shares(
        "slot+bitmap, word",
        damage(CodecKind::Word, SLOT_BITMAP, 59),
    );
}

#[test]
fn how_much_damage_is_silent_with_the_bitmap_alone() {
    print_shares(
        "bitmap-only, record",
        damage(CodecKind::Record, BITMAP_ONLY, 63),
    );
    print_shares(
        "bitmap-only, word",
        damage(CodecKind::Word, BITMAP_ONLY, 63),
    );
}

#[test]
fn how_much_damage_is_silent_with_slots_alone() {
    print_shares("slot-only, record", damage(CodecKind::Record, SLOT_ONLY, 7));
    print_shares("slot-only, word", damage(CodecKind::Word, SLOT_ONLY, 7));
}

/// Fills leaves of four with keys that are 10 apart, and opens the tree as after a crash, with the
/// mark left for later.
fn unmarked(codec: CodecKind, keys: u32) -> (Pool<Instrumented>, Arc<dyn Index>) {
    let ram = ram();
    let pool = open(&ram, false);
    let tree = tree(&pool, codec, SLOT_BITMAP, 4);
    for number in 0..keys {
        assert!(
            tree.insert(&number_key(codec, 10 * number), b"a value.")
                .unwrap()
        );
    }
    drop((tree, pool));
    let pool = open(&ram, false);
    assert!(pool.needs_mark());
    let root = pool.trees().unwrap().remove(0);
    let opening = Opening {
        mark_later: true,
        ..Opening::default()
    };
    let open = Engine::WBTREE.media().instrumented.open;
    let tree = open(&pool, &root, codec, &opening).unwrap().index;
    (pool, tree)
}

/// A key of a tree of words, or one whose first word ties with all others.
fn number_key(codec: CodecKind, number: u32) -> Vec<u8> {
    if codec == CodecKind::Word {
        return u64::from(number).to_be_bytes().to_vec();
    }
    key(number)
}

/// Between two leaves of the mark, writers split leaves and inner nodes or merge them, before and
/// behind the place that the mark has come to. It still finds all that stays.
#[test]
fn a_mark_beside_splits_and_merges_finds_all_that_stays() {
    const KEYS: u32 = 120;
    for codec in [CodecKind::Word, CodecKind::Record] {
        for leaves in (1..20).step_by(3) {
            for first in (0..KEYS).step_by(17) {
                for is_split in [true, false] {
                    let (pool, tree) = unmarked(codec, KEYS);
                    let change = || {
                        for number in first..(first + 20).min(KEYS) {
                            let place = 10 * number;
                            if is_split {
                                for step in 1..4 {
                                    let new = number_key(codec, place + step);
                                    assert!(tree.insert(&new, b"a value.").unwrap());
                                }
                            } else if number % 8 != 0 {
                                assert!(tree.remove(&number_key(codec, place)).unwrap());
                            }
                        }
                    };
                    let marked = Cell::new(0);
                    let go_on = || {
                        marked.set(marked.get() + 1);
                        if marked.get() == leaves {
                            change();
                        }
                        true
                    };
                    assert!(tree.mark(&go_on).unwrap());
                    pool.finish_marking();
                    let before = content(&*tree).unwrap();
                    // Space that the mark left for free is used, and only that.
                    for number in 1000..1200 {
                        let new = number_key(codec, 10 * number);
                        assert!(tree.insert(&new, b"another.").unwrap());
                    }
                    let what = format!("{codec:?}, {leaves} leaves, {first}, {is_split}");
                    assert_eq!(tree.check().unwrap(), [], "{what}");
                    let mut after = content(&*tree).unwrap();
                    after.truncate(before.len());
                    assert!(after == before, "{what}");
                }
            }
        }
    }
}

/// The open of a crashed tree once walked the whole tree, though the caller left the mark for later.
#[test]
fn an_open_after_a_crash_reads_no_leaf() {
    let (pool, tree) = unmarked(CodecKind::Record, 2000);
    // Only the anchor and the root were read: no allocation is marked yet.
    assert_eq!(pool.stat().marked, Some(0));
    assert!(tree.mark(&|| true).unwrap());
    assert_eq!(pool.stat().marked, tree.stat().unwrap().allocations);
}
