//! The tree on its own: counts of splits, models, reopening, damage, threads.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use medium::testing::late::{Late, Release};
use medium::{Dax, LineForm};
use pool::{Pool, PoolOptions};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::CawbTree;
use super::change::Writer;
use super::layout::{IDS_MAX, LEAF_ENTRIES, LoadedNode, NodeContent, NodeLine};
use super::record::Fresh;
use crate::engine::{Build, Engine, Opening};
use crate::index::record::prefix_word;
use crate::index::{
    Bounds, Codec, Condition, Direction, Index, MaybeWords, Measured, RecordCodec, WordCodec,
    WordIndex,
};
use crate::kit::scan::{Tied, Way};

fn pool() -> Pool<Dax> {
    Pool::open(Dax::plain(1 << 36).unwrap(), PoolOptions::default()).unwrap()
}

fn on(threads: usize) -> Opening {
    Opening {
        threads,
        ..Opening::default()
    }
}

fn splits(tree: &impl Measured) -> u64 {
    tree.counters()
        .iter()
        .find(|(name, _)| *name == "splits")
        .unwrap()
        .1
}

/// The splits are counted as in section 5.2 of the paper.
#[test]
fn sequential_inserts_make_as_many_splits_as_in_the_paper() {
    let tree =
        CawbTree::<Dax, WordCodec>::create(&pool(), "t".into(), &Opening::default()).unwrap();
    for key in 0..500_000 {
        assert!(WordIndex::write_durably(&tree, key, Some(key * 3), Condition::Absent).unwrap());
    }
    assert_eq!(splits(&tree), 374_986);
    assert_eq!(tree.check().unwrap(), []);
}

/// Without the fast search, keys that are separators are found in the leaf.
#[test]
fn a_find_without_the_fast_search_finds_the_same() {
    let settings = Engine::CAWBT.parse_settings(["fast-search=off"]).unwrap();
    let opening = Opening { settings, ..on(2) };
    let pool = pool();
    let tree = CawbTree::<Dax, WordCodec>::create(&pool, "t".into(), &opening).unwrap();
    for key in 0..2000 {
        assert!(WordIndex::write_durably(&tree, key, Some(key * 3), Condition::Absent).unwrap());
    }
    let is_at_leaf = |tree: &CawbTree<Dax, WordCodec>, key| {
        let guard = tree.pool.peek();
        let reached = tree
            .descend(&guard, &Way::Key(key, Tied::UpTo), tree.is_search_fast)
            .unwrap();
        reached.unwrap().1.is_leaf()
    };
    let expect_all = |tree: &CawbTree<Dax, WordCodec>| {
        (0..2000).for_each(|key| assert_eq!(WordIndex::get(tree, key).unwrap(), Some(key * 3)));
        assert_eq!(WordIndex::get(tree, 2000).unwrap(), None);
    };
    expect_all(&tree);
    assert!((0..2000).all(|key| is_at_leaf(&tree, key)));
    drop(tree);
    let root = pool.trees().unwrap().remove(0);
    let tree = CawbTree::<Dax, WordCodec>::open(&pool, &root, &opening).unwrap();
    assert!((0..2000).all(|key| is_at_leaf(&tree, key)));
    drop(tree);
    let tree = CawbTree::<Dax, WordCodec>::open(&pool, &root, &on(2)).unwrap();
    expect_all(&tree);
    assert!((0..2000).filter(|key| is_at_leaf(&tree, *key)).count() < 1100);
}

fn bytes_of<C: Codec>(key: u64) -> Vec<u8> {
    // Records have several lengths, and some keys have the same first word.
    match (C::TIES, key % 3) {
        (false, _) => key.to_be_bytes().to_vec(),
        (true, 0) => [b"the same word".as_slice(), &key.to_be_bytes()].concat(),
        (true, _) => format!("{key:05}").into_bytes(),
    }
}

fn expect_equal<C: Codec>(tree: &CawbTree<Dax, C>, model: &BTreeMap<Vec<u8>, Vec<u8>>)
where
    CawbTree<Dax, C>: MaybeWords,
{
    assert_eq!(tree.check().unwrap(), []);
    assert_eq!(tree.len().unwrap(), model.len() as u64);
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
        assert!(
            found
                .iter()
                .map(|(key, value)| (key, value))
                .eq(model.iter()),
            "{direction:?}"
        );
    }
    for (key, value) in model {
        assert_eq!(tree.get(key).unwrap().as_deref(), Some(value.as_slice()));
        let bounds = Bounds {
            lower: Bound::Excluded(key.clone()),
            upper: Bound::Unbounded,
        };
        let mut scan = tree.range(bounds, Direction::Forward).unwrap();
        let mut above = Vec::new();
        let mut of_it = Vec::new();
        let is_there = scan.next_into(&mut above, &mut of_it).unwrap();
        let next = model
            .range((Bound::Excluded(key.clone()), Bound::Unbounded))
            .next();
        assert_eq!(is_there.then_some((&above, &of_it)), next);
    }
}

fn run<C: Codec>(seed: u64)
where
    CawbTree<Dax, C>: MaybeWords,
{
    println!("seed {seed}");
    let pool = pool();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut model = BTreeMap::new();
    let mut tree = CawbTree::<Dax, C>::create(&pool, "t".into(), &Opening::default()).unwrap();
    for round in 0..12 {
        // Grows, then shrinks.
        let inserts = if round % 4 < 2 { 8 } else { 2 };
        for _ in 0..400 {
            let key = bytes_of::<C>(rng.random_range(0..600));
            let value = rng.random::<u64>().to_be_bytes();
            match rng.random_range(0..10) {
                number if number < inserts => {
                    let done = tree.insert(&key, &value).unwrap();
                    assert_eq!(done, !model.contains_key(&key));
                    model.entry(key).or_insert(value.to_vec());
                }
                9 => {
                    assert_eq!(tree.update(&key, &value).unwrap(), model.contains_key(&key));
                    model.entry(key).and_modify(|old| *old = value.to_vec());
                }
                _ => assert_eq!(tree.remove(&key).unwrap(), model.remove(&key).is_some()),
            }
        }
        expect_equal(&tree, &model);
        drop(tree);
        let root = pool.trees().unwrap().remove(0);
        tree = CawbTree::open(&pool, &root, &on(1 + round % 3)).unwrap();
        expect_equal(&tree, &model);
    }
    for key in std::mem::take(&mut model).into_keys() {
        assert!(tree.remove(&key).unwrap());
    }
    expect_equal(&tree, &model);
    assert_eq!(tree.stat().unwrap().leaves, 1);
}

#[test]
fn trees_of_words_are_as_the_model_and_stay_so() {
    (0..4).for_each(run::<WordCodec>);
}

#[test]
fn trees_of_records_are_as_the_model_and_stay_so() {
    (0..4).for_each(run::<RecordCodec>);
}

#[test]
fn loads_of_any_length() {
    for count in (0..70).chain([1000, 4097]) {
        for fill in [0.5, 0.8, 1.0] {
            let pool = pool();
            let tree =
                CawbTree::<Dax, WordCodec>::create(&pool, "t".into(), &Opening::default()).unwrap();
            let mut model = BTreeMap::new();
            let mut numbers = 0..count;
            let mut next = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
                let Some(number) = numbers.next() else {
                    return Ok(false);
                };
                *key = bytes_of::<WordCodec>(number * 5);
                *value = bytes_of::<WordCodec>(number);
                model.insert(key.clone(), value.clone());
                Ok(true)
            };
            assert_eq!(tree.bulk_load(&mut next, fill).unwrap(), count);
            expect_equal(&tree, &model);
            let mut ids = 0..;
            model.retain(|key, _| ids.next().unwrap() % 3 == 0 || !tree.remove(key).unwrap());
            expect_equal(&tree, &model);
        }
    }
}

/// Splits the leaf of a new key or, if a level is given, the inner node there on the way to it. The
/// nodes above are not changed, so the tree is as after a crash.
fn split_alone(tree: &CawbTree<Dax, WordCodec>, key: u64, level: Option<usize>) {
    let guard = tree.pool.pin();
    let mut fresh_key = 0;
    let mut state = tree.lock(&guard).unwrap();
    let mut fresh = Fresh::new(tree, &guard);
    let place = tree.locate(&guard, key).unwrap();
    let (offset, node, content, above) = if let Some(level) = level {
        let offset = place.path[level].offset;
        let node = LoadedNode::load(&guard, offset).unwrap();
        (offset, node, NodeContent::of(&node), place.path[level - 1])
    } else {
        let mut content = NodeContent::of(&place.node);
        let (words, record) = fresh.record(key, key, Condition::Always).unwrap();
        content.insert_entry(place.position, fresh.id(words).unwrap(), record);
        fresh_key = 1;
        (place.leaf, place.node, content, *place.path.last().unwrap())
    };
    let mut writer = Writer {
        guard: &guard,
        state: &mut state,
    };
    tree.split(
        &mut writer,
        &mut fresh,
        offset,
        &node,
        &content,
        Some(above),
    )
    .unwrap();
    writer.state.counts.keys += fresh_key;
}

/// A full pool, or a crash, leaves nodes full; a node and its parent may be full at once. When the
/// parent is split, the node may have another one.
#[test]
fn a_full_node_below_a_full_node_is_split() {
    for first in [70_000, 80_000, 90_000, 100_000, 110_000, 120_000] {
        let pool = pool();
        let tree =
            CawbTree::<Dax, WordCodec>::create(&pool, "t".into(), &Opening::default()).unwrap();
        let mut keys = 200_u64;
        let insert = |key: u64| {
            assert!(WordIndex::write_durably(&tree, key, Some(key), Condition::Absent).unwrap());
        };
        (0..keys).for_each(|key| insert(1000 * key));
        let guard = pool.pin();
        let path = |key: u64| tree.locate(&guard, key).unwrap().path;
        let level = path(first).len() - 1;
        assert!(level >= 2, "the parent is not the root");
        // Gives a node above leaves five children.
        let fill = |mut key: u64| {
            let mut added = 0;
            while path(key)[level].count < IDS_MAX {
                key += 1;
                added += 1;
                if tree.locate(&guard, key).unwrap().node.count() < LEAF_ENTRIES {
                    insert(key);
                } else {
                    split_alone(&tree, key, None);
                }
            }
            added
        };
        keys += fill(first);
        let parent = LoadedNode::load(&guard, path(first)[level - 1].offset).unwrap();
        let beside = path(first)[level - 1].position.checked_sub(1).unwrap_or(1);
        let mut leaf = LoadedNode::load(&guard, parent.pointer(beside)).unwrap();
        while !leaf.is_leaf() {
            leaf = LoadedNode::load(&guard, leaf.pointer(0)).unwrap();
        }
        let mut second = tree.ids.entry(leaf.id(0))[0];
        while path(first)[level - 1].count < IDS_MAX {
            let added = fill(second);
            split_alone(&tree, second, Some(level));
            keys += added;
            second += added;
        }
        assert_eq!(path(first)[level].count, IDS_MAX, "both are full");
        for key in first + 500..first + 510 {
            insert(key);
            keys += 1;
        }
        assert_eq!(tree.check().unwrap(), []);
        assert_eq!(tree.len().unwrap(), keys);
    }
}

/// A damaged inner node costs no key: salvage finds the leaves below it in the slabs. A damaged
/// leaf costs its own keys.
#[test]
fn salvage_reads_what_is_whole() {
    let pool = pool();
    let tree = CawbTree::<Dax, WordCodec>::create(&pool, "t".into(), &Opening::default()).unwrap();
    for key in 0..200_u64 {
        assert!(WordIndex::write_durably(&tree, key, Some(key + 1), Condition::Absent).unwrap());
    }
    let guard = pool.pin();
    let root = LoadedNode::load(&guard, tree.root).unwrap();
    let inner = LoadedNode::load(&guard, root.pointer(1)).unwrap();
    let mut leaf = inner.pointer(0);
    while let Some(node) =
        Some(LoadedNode::load(&guard, leaf).unwrap()).filter(|node| !node.is_leaf())
    {
        leaf = node.pointer(1);
    }
    let keys: Vec<u64> = (0..2)
        .map(|position| {
            tree.ids
                .entry(LoadedNode::load(&guard, leaf).unwrap().id(position))[0]
        })
        .collect();
    drop(tree);
    let tree_root = pool.trees().unwrap().remove(0);
    let salvage = || {
        let mut found = Vec::new();
        let visit = &mut |key: &[u8], value: &[u8]| {
            found.push((prefix_word(key), prefix_word(value)));
            true
        };
        let left_out = CawbTree::<Dax, WordCodec>::salvage_at(&pool, &tree_root, visit)
            .unwrap()
            .unwrap();
        (found, left_out.len())
    };
    let all: Vec<_> = (0..200).map(|key| (key, key + 1)).collect();
    assert_eq!(salvage(), (all.clone(), 0));
    for (damaged, lost) in [(root.pointer(1), &[][..]), (leaf, &keys)] {
        let word = &guard.words(damaged + 16, 1).unwrap()[0];
        let sound = word.load(&guard);
        word.store(&guard, sound ^ 0x100);
        assert!(
            CawbTree::<Dax, WordCodec>::open(&pool, &tree_root, &on(1))
                .is_err_and(|error| error.is_corrupt())
        );
        let (found, left_out) = salvage();
        let rest: Vec<_> = all
            .iter()
            .copied()
            .filter(|(key, _)| !lost.contains(key))
            .collect();
        assert_eq!(found, rest, "{damaged:#x}");
        assert!(left_out > 0);
        word.store(&guard, sound);
    }
    CawbTree::<Dax, WordCodec>::open(&pool, &tree_root, &on(2)).unwrap();
}

/// A record that was overwritten with zeros is damage, and not an entry of an empty key.
#[test]
fn zeros_are_no_record() {
    let pool = pool();
    let tree =
        CawbTree::<Dax, RecordCodec>::create(&pool, "t".into(), &Opening::default()).unwrap();
    assert!(tree.insert(b"key", b"value").unwrap());
    let guard = pool.pin();
    let record = LoadedNode::load(&guard, tree.root).unwrap().pointer(0);
    guard
        .words(record, 3)
        .unwrap()
        .iter()
        .for_each(|word| word.store(&guard, 0));
    drop(tree);
    let tree_root = pool.trees().unwrap().remove(0);
    let visit = &mut |key: &[u8], _: &[u8]| panic!("an entry of {key:?}");
    let left_out = CawbTree::<Dax, RecordCodec>::salvage_at(&pool, &tree_root, visit)
        .unwrap()
        .unwrap();
    assert_eq!(left_out.len(), 1);
}

/// Several threads find the same as one thread in a large tree, also with damage at each level: a
/// changed word, or a node that has the wrong children.
#[test]
fn threads_survey_as_one_does() {
    let pool = pool();
    let tree = CawbTree::<Dax, WordCodec>::create(&pool, "t".into(), &Opening::default()).unwrap();
    for key in 0..20_000 {
        assert!(WordIndex::write_durably(&tree, key, Some(key), Condition::Absent).unwrap());
    }
    let survey = |threads| tree.survey(threads, &LoadedNode::load_sound).unwrap();
    let sound = survey(1);
    assert!(sound.counts.levels > 7 && sound.violations.is_empty() && sound.stale.is_empty());
    assert_eq!(sound.counts, tree.state.lock().counts);
    for threads in 2..5 {
        let other = survey(threads);
        assert!(
            other.leaves == sound.leaves
                && other.counts == sound.counts
                && other.violations.is_empty()
        );
    }
    let guard = pool.pin();
    let mut rng = SmallRng::seed_from_u64(11);
    for round in 0..300 {
        let mut path = Vec::new();
        let mut offset = tree.root;
        for _ in 0..round % sound.counts.levels {
            path.push(offset);
            let node = LoadedNode::load(&guard, offset).unwrap();
            offset = node.pointer(rng.random_range(0..=node.count()));
        }
        let line = &guard.node::<NodeLine>(offset).unwrap().line;
        let node = LoadedNode::load(&guard, offset).unwrap();
        let mut damaged = NodeContent::of(&node);
        let position = rng.random_range(0..=node.count());
        match round % 3 {
            0 => damaged.pointers.swap(0, 1),
            1 => damaged.pointers[position] = tree.root,
            _ => damaged.pointers[position] = path.pop().unwrap_or(offset),
        }
        let mut damaged = damaged.sealed(offset, 0);
        damaged.0.0[7] ^= u64::from(round % 7 == 0) << 20;
        line.publish(&guard, &node.0, &damaged.0).unwrap();
        for threads in [1, 3] {
            assert!(
                !survey(threads).violations.is_empty(),
                "round {round}, {threads} threads"
            );
        }
        line.publish(&guard, &damaged.0, &node.0).unwrap();
    }
    assert_eq!(tree.check().unwrap(), []);
}

/// `len` counts only keys that a crash leaves.
#[test]
fn what_is_counted_is_durable() {
    let medium = Late::new(1 << 30, LineForm::Single).unwrap();
    let patience = Duration::from_secs(20);
    let pool = Pool::open(medium, PoolOptions::default()).unwrap();
    let tree = CawbTree::<Late, WordCodec>::create(&pool, "t".into(), &Opening::default()).unwrap();
    pool.medium().set_release(Release::Manual);
    let counted = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(WordIndex::write_durably(&tree, 5, Some(1), Condition::Absent).unwrap());
        });
        assert!(pool.medium().until_waiting(1, patience));
        scope.spawn(|| {
            assert_eq!(tree.len().unwrap(), 1);
            counted.store(true, Ordering::Relaxed);
        });
        assert!(pool.medium().until_waiting(2, patience));
        assert!(!counted.load(Ordering::Relaxed));
        pool.medium().release_all();
        pool.medium().set_release(Release::Immediate);
    });
    assert!(counted.load(Ordering::Relaxed));
}

/// The table grows with the keys, not with the inserts.
#[test]
fn ids_are_used_again() {
    // The pool waits for no readers: readers of other tests would keep IDs, too.
    let options = PoolOptions {
        reclaim_by_epoch: false,
        ..PoolOptions::default()
    };
    let pool = Pool::open(Dax::plain(1 << 36).unwrap(), options).unwrap();
    let tree = CawbTree::<Dax, WordCodec>::create(&pool, "t".into(), &Opening::default()).unwrap();
    for round in 0..100_000_u64 {
        assert!(WordIndex::write_durably(&tree, round, Some(round), Condition::Absent).unwrap());
        assert!(
            round < 10
                || WordIndex::write_durably(&tree, round - 10, None, Condition::Present).unwrap()
        );
    }
    // The memory of the tree itself, and of two batches of IDs.
    let bytes = tree.stat().unwrap().volatile_bytes;
    assert!(bytes < 32 << 10, "{bytes} bytes");
    assert_eq!(tree.check().unwrap(), []);
}

/// Readers of keys that stay find them, and scans are in order, whatever is split and merged around
/// them.
#[test]
fn readers_beside_a_writer() {
    let tree =
        CawbTree::<Dax, WordCodec>::create(&pool(), "t".into(), &Opening::default()).unwrap();
    for key in (0..4000).step_by(8) {
        assert!(WordIndex::write_durably(&tree, key, Some(key), Condition::Absent).unwrap());
    }
    let is_over = AtomicBool::new(false);
    let read = |seed: u64| {
        let mut rng = SmallRng::seed_from_u64(seed);
        while !is_over.load(Ordering::Relaxed) {
            let keys: [u64; 20] = std::array::from_fn(|_| rng.random_range(0..500) * 8);
            let mut values = [None; 20];
            assert_eq!(WordIndex::get(&tree, keys[0]).unwrap(), Some(keys[0]));
            WordIndex::get_many(&tree, &keys, &mut values).unwrap();
            assert_eq!(values, keys.map(Some));
            let mut next = keys[0];
            let visit = &mut |entries: &[[u64; 2]]| {
                for [key, value] in entries {
                    assert!(key % 8 != 0 || *key == next, "{key} where {next} should be");
                    assert_eq!(key, value);
                    next += if key % 8 == 0 { 8 } else { 0 };
                }
                next < keys[0] + 400
            };
            WordIndex::scan(&tree, keys[0], visit).unwrap();
        }
    };
    std::thread::scope(|scope| {
        let read = &read;
        (0..2).for_each(|seed| drop(scope.spawn(move || read(seed))));
        let mut rng = SmallRng::seed_from_u64(7);
        for round in 0..60_000_u64 {
            let key = rng.random_range(0..4000);
            if key % 8 == 0 {
                WordIndex::write_durably(&tree, key, Some(key), Condition::Present).unwrap();
            } else {
                let value = (round / 8000 % 2 == 0).then_some(key);
                WordIndex::write_durably(&tree, key, value, Condition::Always).unwrap();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(tree.check().unwrap(), []);
}
