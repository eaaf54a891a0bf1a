//! Damage to RNTree's leaves: every byte of every leaf, changed in several ways, gives a typed
//! error or has no effect. Every operation must keep the checks valid: these tests also find a
//! check that is wrong without damage.

use everleaf_engines::engine::{CodecKind, Engine};
use everleaf_engines::index::{Bounds, Condition, Direction, Index};
use everleaf_engines::rntree::{RnTreeOptions, instrumented};
use medium::testing::late::Late;
use medium::{Dax, Instrumented, LineForm, Medium};
use pool::{Pool, PoolOptions, TreeRoot};

use crate::common::{Entries, content};

fn of_leaf(leaf_entries: usize) -> RnTreeOptions {
    RnTreeOptions {
        recovery_threads: 1,
        leaf_entries,
        ..RnTreeOptions::default()
    }
}
const LINE: u64 = 64;

/// One of some keys, which fill some leaves.
fn key_of(leaf_entries: usize, number: u64) -> [u8; 8] {
    (number % (6 * leaf_entries as u64 + 5))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .to_be_bytes()
}

/// Inserts, updates and removes, with splits, merges and recycled entries in between, each followed
/// by a check.
fn grown(pool: &Pool<Instrumented>, codec: CodecKind, leaf_entries: usize) -> Box<dyn Index> {
    let tree = instrumented::create(pool, "tree", codec, of_leaf(leaf_entries)).unwrap();
    let key_of = |number| key_of(leaf_entries, number);
    let scale = leaf_entries as u64;
    let apply = |step: u64| {
        let key = key_of((step * 40_503) >> 4);
        let value = (step % 11).to_be_bytes();
        let _held = match step % 7 {
            0..4 => tree.put(&key, &value).map(|()| true),
            4 => tree.remove(&key_of(step)),
            5 => tree.update(&key, &value),
            _ => tree.write_durably(&key, None, Condition::Equals(&value)),
        }
        .unwrap();
        let violations = tree.check().unwrap();
        assert!(
            violations.is_empty(),
            "after step {step}: {}",
            violations[0]
        );
    };
    (0..60 + 20 * scale).for_each(apply);
    // Merges, down to a few leaves.
    for number in 0..2 * scale {
        tree.remove(&key_of(number)).unwrap();
    }
    (1000..1030 + 4 * scale).for_each(apply);
    tree
}

/// The lines and entries of the leaves: where each lies, and the entries that its slots list.
fn leaves(pool: &Pool<Instrumented>, root: &TreeRoot) -> Vec<(u64, Vec<u64>)> {
    let guard = pool.pin();
    let mut offset = root.words[0];
    let mut leaves = Vec::new();
    while offset != 0 {
        let line = |offset| {
            guard
                .words(offset, 8)
                .unwrap()
                .iter()
                .map(|word| word.load(&guard))
                .collect()
        };
        let mut words: Vec<u64> = line(offset);
        let tag = |words: &[u64]| words[0] >> 62;
        if guard.medium().line_form() == LineForm::Twin {
            let second = line(offset - LINE);
            if (tag(&words) + 1) % 4 == tag(&second) {
                words = second;
            }
        }
        let count = words[0] >> 48 & 63;
        let slot = |position: u64| words[1 + position as usize / 8] >> (8 * (position % 8)) & 63;
        leaves.push((offset, (0..count).map(slot).collect()));
        offset = words[0] & ((1 << 48) - LINE);
    }
    leaves
}

/// Whether `check` notices damage to an open tree; if not, nothing has changed.
fn is_found(tree: &dyn Index, entries: &Entries, at: &str) -> bool {
    match tree.check() {
        Ok(violations) if violations.is_empty() => {
            assert_eq!(content(tree).unwrap(), *entries, "{at}: not noticed");
            false
        }
        Ok(_) => true,
        Err(error) if error.is_corrupt() => true,
        Err(error) => panic!("{at}: {error}"),
    }
}

/// Whether an open notices damage; if not, `check` finds it, or nothing has changed.
fn is_refused(
    pool: &Pool<Instrumented>,
    root: &TreeRoot,
    codec: CodecKind,
    leaf_entries: usize,
    entries: &Entries,
    at: &str,
) -> bool {
    match instrumented::open(pool, root, codec, of_leaf(leaf_entries)) {
        Ok(tree) => {
            is_found(&*tree, entries, at);
            false
        }
        Err(error) if error.is_corrupt() => true,
        Err(error) => panic!("{at}: {error}"),
    }
}

/// Changes every byte of every leaf: all its bits, one of them, and `patterns` other patterns.
fn every_byte(medium: Instrumented, codec: CodecKind, leaf_entries: usize, patterns: usize) {
    let form = medium.line_form();
    let pool = Pool::open(medium, PoolOptions::default()).unwrap();
    let tree = grown(&pool, codec, leaf_entries);
    let entries = content(&*tree).unwrap();
    let root = pool.trees().unwrap().remove(0);
    let is_refused = |at: &str| is_refused(&pool, &root, codec, leaf_entries, &entries, at);
    assert!(!is_refused("undamaged"));
    let all = leaves(&pool, &root);
    assert!(
        all.len() > 2 && all.iter().any(|leaf| leaf.1.len() < leaf_entries),
        "{} leaves",
        all.len()
    );
    let mut refused = 0;
    let mut places = 0;
    for (leaf, listed) in all {
        let start = if form == LineForm::Twin {
            leaf - LINE
        } else {
            leaf
        };
        for byte in start..leaf + LINE + 16 * leaf_entries as u64 {
            let entry = byte.checked_sub(leaf + LINE).map(|at| at / 16);
            // Only one copy of a twin line counts.
            let says_something =
                entry.map_or(form == LineForm::Single, |entry| listed.contains(&entry));
            for mask in [1 << (byte / 8 % 8), 0xff, 0x41, 0xc0, 0x80]
                .into_iter()
                .take(1 + patterns)
            {
                let guard = pool.pin();
                let word = &guard.words(byte & !7, 1).unwrap()[0];
                let before = word.load(&guard);
                let damaged = before ^ mask << (8 * (byte % 8));
                word.store(&guard, damaged);
                let at = format!(
                    "byte {} of leaf {leaf:#x} xor {mask:#x}",
                    byte.cast_signed() - leaf.cast_signed()
                );
                let is_refused = is_refused(&at);
                assert!(is_refused || !says_something, "{at}: opened");
                assert_eq!(word.load(&guard), damaged, "{at}: an open wrote there");
                assert!(
                    is_found(&*tree, &entries, &at) || !says_something,
                    "{at}: not found by check"
                );
                word.store(&guard, before);
                refused += u32::from(is_refused);
                places += 1;
            }
        }
    }
    assert!(!is_refused("put right"));
    assert!(refused > places / 3, "{refused} of {places}");
}

fn twins() -> Instrumented {
    Instrumented::new(Late::new(1 << 30, LineForm::Twin).unwrap())
}

fn singles() -> Instrumented {
    Instrumented::new(Dax::plain(1 << 30).unwrap())
}

#[test]
fn every_byte_of_a_small_leaf_of_words() {
    every_byte(singles(), CodecKind::Word, 4, 4);
    every_byte(twins(), CodecKind::Word, 4, 4);
}

#[test]
fn every_byte_of_a_small_leaf_of_records() {
    every_byte(singles(), CodecKind::Record, 4, 4);
    every_byte(twins(), CodecKind::Record, 4, 4);
}

#[test]
fn every_byte_of_a_large_leaf() {
    every_byte(singles(), CodecKind::Word, 56, 0);
    every_byte(twins(), CodecKind::Record, 56, 0);
}

/// A pool with one tree.
struct Ascending {
    pool: Pool<Instrumented>,
    tree: Box<dyn Index>,
    root: TreeRoot,
}

/// A pool of words in single lines, where entry `n` is the `n`th key that was inserted, with a tree
/// of full leaves: 10 to 40 in the first, the rest behind.
fn ascending(keys: u64) -> Ascending {
    let pool = Pool::open(singles(), PoolOptions::default()).unwrap();
    let tree = instrumented::create(&pool, "tree", CodecKind::Word, of_leaf(4)).unwrap();
    (1..=keys).for_each(|key| assert!(is_added(&*tree, 10 * key)));
    let root = pool.trees().unwrap().remove(0);
    Ascending { pool, tree, root }
}

fn is_added(tree: &dyn Index, key: u64) -> bool {
    tree.insert(&key.to_be_bytes(), &key.to_be_bytes()).unwrap()
}

/// Changes the value of the entry of `key`, behind the tree's back.
fn damage(pool: &Pool<Instrumented>, root: &TreeRoot, key: u64) {
    let guard = pool.pin();
    for (leaf, listed) in leaves(pool, root) {
        for entry in listed {
            let words = guard.words(leaf + LINE + 16 * entry, 2).unwrap();
            if words[0].load(&guard) == key {
                return words[1].store(&guard, words[1].load(&guard) ^ 1 << 20);
            }
        }
    }
    panic!("key {key} is in no leaf");
}

/// Changes the first word of a leaf's slot line: the next leaf in bits 6 to 47, the number of slots
/// in bits 48 to 53.
fn relink(pool: &Pool<Instrumented>, leaf: u64, change: impl FnOnce(u64) -> u64) {
    let guard = pool.pin();
    let word = &guard.words(leaf, 1).unwrap()[0];
    word.store(&guard, change(word.load(&guard)));
}

/// The keys that are salvaged, and the leaves with entries that are left out.
fn salvaged(pool: &Pool<Instrumented>, root: &TreeRoot) -> (Vec<u64>, Vec<u64>) {
    let mut keys = Vec::new();
    let left_out = (Engine::RNTREE.media().instrumented.salvage)(
        pool,
        root,
        CodecKind::Word,
        &mut |key, _| {
            keys.push(u64::from_be_bytes(key.try_into().unwrap()));
            true
        },
    );
    (
        keys,
        left_out
            .unwrap()
            .unwrap()
            .into_iter()
            .map(|violation| violation.offset)
            .collect(),
    )
}

#[test]
fn salvage_goes_on_behind_a_leaf_whose_slots_are_none() {
    let Ascending {
        pool,
        tree: _tree,
        root,
    } = ascending(12);
    let all = leaves(&pool, &root);
    assert_eq!(all.len(), 4);
    relink(&pool, all[1].0, |word| word ^ 63 << 48);
    // The line with the next leaf fails its check, and so do the entries. The leaves behind it are
    // found in their slab.
    let (keys, left_out) = salvaged(&pool, &root);
    assert_eq!(keys, [10, 20, 30, 70, 80, 90, 100, 110, 120]);
    assert_eq!(left_out, [all[2].0, all[1].0, all[1].0]);
    // If the number of entries is too large for a leaf, nothing is read beyond the leaf's end.
    relink(&pool, all[1].0, |word| word | 63 << 48);
    assert_eq!(salvaged(&pool, &root).1, left_out);
}

#[test]
fn salvage_looks_past_damaged_tags() {
    let Ascending {
        pool,
        tree: _tree,
        root,
    } = ascending(12);
    let all = leaves(&pool, &root);
    relink(&pool, all[1].0, |word| word ^ 1 << 63);
    assert!(instrumented::open(&pool, &root, CodecKind::Word, of_leaf(4)).is_err());
    let keys: Vec<u64> = (1..=12).map(|key| 10 * key).collect();
    assert_eq!(salvaged(&pool, &root), (keys, vec![]));
}

#[test]
fn salvage_finds_the_leaves_behind_one_that_leads_back_or_out_of_the_pool() {
    let Ascending {
        pool,
        tree: _tree,
        root,
    } = ascending(12);
    let all = leaves(&pool, &root);
    let next = |offset: u64| move |word: u64| (word >> 48 << 48) | offset | (word % LINE);
    let rest = vec![10, 20, 30, 40, 50, 60, 100, 110, 120];
    for wrong in [all[0].0, all[1].0, all[2].0, 1 << 40, LINE] {
        relink(&pool, all[2].0, next(wrong));
        assert_eq!(
            salvaged(&pool, &root),
            (rest.clone(), vec![all[3].0, all[2].0, all[2].0])
        );
    }
    relink(&pool, all[2].0, next(all[3].0));
    assert_eq!(salvaged(&pool, &root).0.len(), 12);
}

/// A check and an open find the damage, in this one leaf only.
fn assert_is_damaged(pool: &Pool<Instrumented>, root: &TreeRoot, tree: &dyn Index) {
    assert_eq!(tree.check().unwrap().len(), 1);
    let opened = instrumented::open(pool, root, CodecKind::Word, of_leaf(4));
    assert!(matches!(opened.map(drop), Err(error) if error.is_corrupt()));
}

/// Entries that move to another leaf get a new check there: damage would be hidden from then on.
#[test]
fn a_split_launders_no_damage() {
    // The damage lies in the part that would stay, and then in the part that would move.
    for damaged in [10, 40] {
        let Ascending { pool, tree, root } = ascending(4);
        damage(&pool, &root, damaged);
        let refused = tree.insert(&25_u64.to_be_bytes(), &[7; 8]);
        assert!(
            matches!(&refused, Err(error) if error.is_corrupt()),
            "{refused:?}"
        );
        assert_eq!(tree.len().unwrap(), 4);
        assert_is_damaged(&pool, &root, &*tree);
    }
}

#[test]
fn a_share_launders_no_damage() {
    // 10, 20, 25, 30 and 40, 50: a full leaf, and one with room to share.
    for damaged in [20, 30, 40, 50] {
        let Ascending { pool, tree, root } = ascending(5);
        assert!(is_added(&*tree, 25));
        assert_eq!(tree.stat().unwrap().leaves, 2);
        damage(&pool, &root, damaged);
        let added = tree.insert(&15_u64.to_be_bytes(), &15_u64.to_be_bytes());
        // A neighbour that is damaged is left alone: then the leaf splits without it.
        assert_eq!(added.is_ok(), damaged >= 40, "{added:?}");
        assert_is_damaged(&pool, &root, &*tree);
    }
}

#[test]
fn a_merge_launders_no_damage() {
    for damaged in [10, 40] {
        let Ascending { pool, tree, root } = ascending(5);
        assert!(
            tree.remove(&50_u64.to_be_bytes()).unwrap()
                && tree.remove(&20_u64.to_be_bytes()).unwrap()
        );
        damage(&pool, &root, damaged);
        assert!(tree.remove(&30_u64.to_be_bytes()).unwrap());
        assert_is_damaged(&pool, &root, &*tree);
        // The right leaf is left alone if it is damaged; the left one keeps its damage, with more
        // entries.
        assert_eq!(
            tree.stat().unwrap().leaves,
            if damaged == 40 { 2 } else { 1 }
        );
    }
}

/// An insert into a leaf whose order bytes were made with the key of a damaged record was listed before
/// the key below it, with a valid check: a split between the two would have hidden it from gets.
#[test]
fn a_damaged_key_decides_no_place_of_another() {
    let key_of = |number: u64| format!("8 bytes:k{number:02}").into_bytes();
    let pool = Pool::open(singles(), PoolOptions::default()).unwrap();
    pool.verify_reads();
    let tree = instrumented::create(&pool, "tree", CodecKind::Record, of_leaf(56)).unwrap();
    for number in 0..30 {
        tree.put(&key_of(2 * number), b"value").unwrap();
    }
    drop(tree);
    let root = pool.trees().unwrap().remove(0);
    let guard = pool.pin();
    let damaged = u64::from_le_bytes(*b"k12\0\0\0\0\0");
    for (leaf, listed) in leaves(&pool, &root) {
        for entry in listed {
            let record = guard.words(leaf + LINE + 16 * entry + 8, 1).unwrap()[0].load(&guard);
            let record_words = guard.words(record & ((1 << 48) - 1), 4).unwrap();
            for word in record_words {
                if word.load(&guard) == damaged {
                    word.store(&guard, u64::from_le_bytes(*b"k92\0\0\0\0\0"));
                }
            }
        }
    }
    drop(guard);
    // After an open the first insert makes the order bytes, and the second one uses them.
    let tree = instrumented::open(&pool, &root, CodecKind::Record, of_leaf(56)).unwrap();
    tree.put(&key_of(21), b"value").unwrap();
    tree.put(&key_of(31), b"value").unwrap();
    let mut scan = tree.range(Bounds::all(), Direction::Forward).unwrap();
    let mut found = Vec::new();
    let mut errors = 0;
    loop {
        match scan.advance() {
            Ok(true) => found.push(scan.entry().0.to_vec()),
            Ok(false) => break,
            Err(_) => errors += 1,
        }
    }
    assert_eq!((found.len(), errors), (31, 1));
    assert!(found.is_sorted(), "{found:?}");
}
