//! The tree on its own: counts of splits, models, reopening, threads.

use std::collections::BTreeMap;
use std::ops::Bound;

use medium::Ram;
use pool::{Pool, PoolOptions};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::CawbTree;
use crate::index::{
    Bounds, Codec, Condition, Direction, Index, MaybeWords, Measured, RecordCodec, WordCodec, WordIndex,
};

fn pool() -> Pool<Ram> {
    Pool::open(Ram::new(1 << 36).unwrap(), PoolOptions::default()).unwrap()
}

fn splits(tree: &impl Measured) -> u64 {
    tree.counters().iter().find(|(name, _)| *name == "splits").unwrap().1
}

/// As the paper counts them (section 5.2).
#[test]
fn sequential_inserts_make_as_many_splits_as_in_the_paper() {
    let tree = CawbTree::<Ram, WordCodec>::create_at(&pool(), "t").unwrap();
    for key in 0..500_000 {
        assert!(WordIndex::write(&tree, key, Some(key * 3), Condition::Absent).unwrap());
    }
    assert_eq!(splits(&tree), 374_986);
    assert_eq!(tree.check().unwrap(), []);
}

fn bytes_of<C: Codec>(key: u64) -> Vec<u8> {
    // Records: of several lengths, some with the same first word.
    match (C::TIES, key % 3) {
        (false, _) => key.to_be_bytes().to_vec(),
        (true, 0) => [b"the same word".as_slice(), &key.to_be_bytes()].concat(),
        (true, _) => format!("{key:05}").into_bytes(),
    }
}

fn expect_equal<C: Codec>(tree: &CawbTree<Ram, C>, model: &BTreeMap<Vec<u8>, Vec<u8>>)
where
    CawbTree<Ram, C>: MaybeWords,
{
    assert_eq!(tree.check().unwrap(), []);
    assert_eq!(tree.len().unwrap(), model.len() as u64);
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut scan = tree.range(Bounds::all(), direction).unwrap();
        let (mut key, mut value, mut found) = (Vec::new(), Vec::new(), Vec::new());
        while scan.next_into(&mut key, &mut value).unwrap() {
            found.push((key.clone(), value.clone()));
        }
        if direction == Direction::Reverse {
            found.reverse();
        }
        assert!(found.iter().map(|(key, value)| (key, value)).eq(model.iter()), "{direction:?}");
    }
    for (key, value) in model {
        assert_eq!(tree.get(key).unwrap().as_deref(), Some(value.as_slice()));
        let bounds = Bounds { lower: Bound::Excluded(key.clone()), upper: Bound::Unbounded };
        let mut scan = tree.range(bounds, Direction::Forward).unwrap();
        let (mut above, mut of_it) = (Vec::new(), Vec::new());
        let is_there = scan.next_into(&mut above, &mut of_it).unwrap();
        let next = model.range((Bound::Excluded(key.clone()), Bound::Unbounded)).next();
        assert_eq!(is_there.then_some((&above, &of_it)), next);
    }
}

fn run<C: Codec>(seed: u64)
where
    CawbTree<Ram, C>: MaybeWords,
{
    println!("seed {seed}");
    let (pool, mut rng, mut model) = (pool(), SmallRng::seed_from_u64(seed), BTreeMap::new());
    let mut tree = CawbTree::<Ram, C>::create_at(&pool, "t").unwrap();
    for round in 0..12 {
        // Grows, then shrinks.
        let inserts = if round % 4 < 2 { 8 } else { 2 };
        for _ in 0..400 {
            let (key, value) = (bytes_of::<C>(rng.random_range(0..600)), rng.random::<u64>().to_be_bytes());
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
        tree = CawbTree::open_at(&pool, &root, 1 + round % 3).unwrap();
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
            let tree = CawbTree::<Ram, WordCodec>::create_at(&pool, "t").unwrap();
            let (mut model, mut numbers) = (BTreeMap::new(), 0..count);
            let mut next = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
                let Some(number) = numbers.next() else { return Ok(false) };
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
