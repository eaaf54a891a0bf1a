//! Keys and values of types: their bytes sort as they do, trees of them are maps, and a tree opens with
//! the types that it was made with.

mod derives;
mod opens;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Debug;

use everleaf::{Engine, Key, Result, Store, TreeOptions};
use proptest::prelude::*;

fn bytes(key: &(impl Key + ?Sized)) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    bytes
}

/// Both keys are decoded to the same values, and sort as `order` says: alone, and as the first part
/// of a tuple.
fn expect_order<K: Key + Clone>(
    one: &K,
    other: &K,
    order: Ordering,
    is_same: impl Fn(&K, &K) -> bool,
) {
    for key in [one, other] {
        assert!(is_same(&K::decode(&bytes(key)).unwrap(), key));
        let (first, last) = <(K, u8)>::decode(&bytes(&(key.clone(), 7_u8))).unwrap();
        assert!(is_same(&first, key) && last == 7);
    }
    assert_eq!(bytes(one).cmp(&bytes(other)), order);
    let pair = |key: &K, last: u8| bytes(&(key.clone(), last));
    assert_eq!(
        pair(one, 1).cmp(&pair(other, 0)),
        order.then(Ordering::Greater)
    );
    assert_eq!(
        pair(one, 0).cmp(&pair(other, 1)),
        order.then(Ordering::Less)
    );
}

fn expect_ord<K: Key + Ord + Clone + Debug>(one: &K, other: &K) {
    expect_order(one, other, one.cmp(other), PartialEq::eq);
}

proptest! {
    #[test]
    fn bytes_sort_as_keys_do(
        words in any::<[u64; 2]>(), signed in any::<[i64; 2]>(), wide in any::<[i128; 2]>(), small in any::<[i8; 2]>(),
        texts in any::<[String; 2]>(), flags in any::<[bool; 2]>(), letters in any::<[char; 2]>(),
        few in proptest::array::uniform2(proptest::collection::vec(0..3_u8, 0..4)),
        maybe in any::<[Option<u16>; 2]>(), parts in any::<[(Option<String>, i16, Vec<u8>, u32); 2]>(),
    ) {
        expect_ord(&words[0], &words[1]);
        expect_ord(&signed[0], &signed[1]);
        expect_ord(&wide[0], &wide[1]);
        expect_ord(&small[0], &small[1]);
        expect_ord(&texts[0], &texts[1]);
        expect_ord(&flags[0], &flags[1]);
        expect_ord(&letters[0], &letters[1]);
        expect_ord(&few[0], &few[1]);
        expect_ord(&maybe[0], &maybe[1]);
        expect_ord(&parts[0], &parts[1]);
        expect_ord(&(few[0].clone(), few[1].clone()), &(few[1].clone(), few[0].clone()));
        expect_ord(&[few[0].len() as u8, 3], &[few[1].len() as u8, 2]);
    }

    #[test]
    fn bytes_of_floats_sort_in_total_order(one in any::<[u64; 2]>(), other in any::<[u32; 2]>()) {
        let [first, second] = one.map(f64::from_bits);
        expect_order(&first, &second, first.total_cmp(&second), |one, other| one.to_bits() == other.to_bits());
        let [first, second] = other.map(f32::from_bits);
        expect_order(&first, &second, first.total_cmp(&second), |one, other| one.to_bits() == other.to_bits());
    }

    #[test]
    fn any_bytes_are_a_key_or_none(any in proptest::collection::vec(any::<u8>(), 0..20)) {
        fn expect<K: Key>(any: &[u8]) {
            if let Some(key) = K::decode(any) {
                assert_eq!(bytes(&key), any);
            }
        }
        expect::<u32>(&any);
        expect::<f64>(&any);
        expect::<String>(&any);
        expect::<(String, Option<Vec<u8>>)>(&any);
        expect::<(bool, char, i8)>(&any);
        expect::<((u8, Vec<u8>), Option<(String, ())>)>(&any);
    }
}

#[test]
fn a_typed_tree_is_a_map() -> Result<()> {
    let store = Store::in_memory()?;
    for engine in Engine::ALL {
        let name = engine.name();
        let kind = TreeOptions {
            engine: *engine,
            ..TreeOptions::RECORDS
        };
        store.typed_with::<(String, i32), f64>(name, kind)?;
        // The tree has the engine with which it was made.
        let tree = store.typed::<(String, i32), f64>(name)?;
        assert_eq!(tree.as_tree().kind().engine, *engine);
        let mut model = BTreeMap::new();
        for number in -50..50_i32 {
            let key = (
                ["roof", "yard", "cellar"][number.unsigned_abs() as usize % 3].to_owned(),
                number,
            );
            let value = f64::from(number) / 8.0;
            assert!(tree.insert(&key, &value)?);
            assert!(!tree.insert(&key, &0.0)?);
            model.insert(key, value);
        }
        let all: Vec<_> = tree.iter().collect::<Result<_>>()?;
        assert!(all.iter().map(|(key, value)| (key, value)).eq(&model));
        let yard: Vec<_> = tree.prefix("yard").rev().collect::<Result<_>>()?;
        assert!(
            yard.iter()
                .map(|(key, value)| (key, value))
                .eq(model.iter().rev().filter(|entry| entry.0.0 == "yard"))
        );
        let key = ("yard".to_owned(), 7);
        assert_eq!(
            tree.range(key.clone()..).count(),
            model.range(key.clone()..).count()
        );
        assert_eq!(tree.get(&key)?, Some(0.875));
        assert_eq!(
            tree.get_many([&key, &("yard".to_owned(), 8)])?,
            [Some(0.875), None]
        );
        assert_eq!(tree.replace(&key, &1.0)?, Some(0.875));
        assert!(tree.update(&key, &2.0)? && tree.contains(&key)?);
        assert!(tree.compare_exchange(&key, Some(&2.0), Some(&3.0))?);
        assert!(!tree.compare_exchange(&key, Some(&2.0), None)?);
        assert_eq!(
            tree.fetch_update(&key, |old| old.map(|old| old + 1.0))?,
            Some(3.0)
        );
        assert_eq!(tree.take(&key)?, Some(4.0));
        assert_eq!(tree.take(&key)?, None);
        model.remove(&key);
        assert_eq!(
            tree.next_above(&key)?,
            model
                .range(key.clone()..)
                .next()
                .map(|(key, value)| (key.clone(), *value))
        );
        assert_eq!(
            tree.next_below(&key)?,
            model
                .range(..key.clone())
                .next_back()
                .map(|(key, value)| (key.clone(), *value))
        );
        assert_eq!(
            (tree.first()?, tree.last()?),
            (tree.pop_first()?, tree.pop_last()?)
        );
        assert_eq!(tree.len()?, model.len() as u64 - 2);
        let roof = ("roof".to_owned(), i32::MIN)..=("roof".to_owned(), i32::MAX);
        assert_eq!(tree.remove_range(roof)?, 33);
        assert!(tree.clear()? > 0 && tree.is_empty()?);
        assert_eq!(tree.bulk_load(model.clone(), 1.0)?, model.len() as u64);
    }
    Ok(())
}

#[test]
fn threads_that_take_the_first_entry_get_each_once() -> Result<()> {
    const JOBS: u64 = 2000;
    let store = Store::in_memory()?;
    let queue = store.typed::<u64, u64>("queue")?;
    (0..JOBS).try_for_each(|job| queue.put(&job, &(job * job)))?;
    let taken: Vec<Vec<(u64, u64)>> = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                scope.spawn(move || {
                    std::iter::from_fn(|| queue.pop_first().transpose())
                        .collect::<Result<Vec<_>>>()
                        .unwrap()
                })
            })
            .collect();
        takers
            .into_iter()
            .map(|taker| taker.join().unwrap())
            .collect()
    });
    assert!(taken.iter().all(|jobs| jobs.is_sorted()));
    let mut all: Vec<_> = taken.into_iter().flatten().collect();
    all.sort_unstable();
    assert!(all.into_iter().eq((0..JOBS).map(|job| (job, job * job))));
    Ok(())
}
