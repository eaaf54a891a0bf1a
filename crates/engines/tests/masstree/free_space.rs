//! Damage to pointers that lead to free space. The result is a typed error, or the space is used;
//! no entry is lost.

use everleaf_engines::masstree::MassTreeOptions;
use medium::{Dax, Instrumented};
use pool::Pool;

use crate::common::content;
use crate::damage::{
    OPTIONS, RUNS, SHARD_BYTES, SHARDS_BEGIN, SIZE_CLASSES, Tree, anchor, create, grown, image,
    is_corrupt, key, load, open_pool, reopen, restore, store,
};

/// Pointers to free space lead elsewhere: out of bounds, into the middle of an object, to
/// themselves. Either an error names the damage, or the space is used.
#[test]
fn free_space_that_is_none() {
    let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
    let pool = open_pool(&ram);
    let tree = grown(&pool, "tree", 400);
    (0..200).for_each(|number| assert!(tree.remove(&key(number)).unwrap()));
    tree.sync().unwrap();
    drop(tree);
    let anchor = anchor(&pool, "tree");
    let crashed = image(&pool);
    let first_queue = anchor + SHARDS_BEGIN + 64;
    // The words of the only shard in use: head, its log, tail, its log, fresh and its log; the runs
    // with theirs; and the link of each head.
    let queues = (0..SIZE_CLASSES)
        .flat_map(|class| (1..7).map(move |word| first_queue + 64 * class + 8 * word));
    let links = queues
        .clone()
        .step_by(6)
        .map(|head| crashed[head as usize / 8])
        .filter(|head| *head != 0);
    let words: Vec<u64> = queues
        .chain(RUNS.map(|word| anchor + word))
        .chain(links)
        .collect();
    for at in words
        .into_iter()
        .filter(|at| crashed[*at as usize / 8] != 0)
    {
        let right = crashed[at as usize / 8];
        for damage in [
            u64::MAX - 15,
            u64::MAX - 63,
            1 << 63 | right,
            1 << 47,
            right + 8,
            right + 16,
            16,
            64,
        ] {
            restore(&pool, &crashed);
            store(&pool, at, damage);
            let Ok(tree) = reopen(&pool, "tree") else {
                continue;
            };
            for number in 0..300 {
                let _ = tree.put(&key(number), &[7; 20][..number as usize % 20]);
                let _ = (number % 64 == 0).then(|| tree.sync());
            }
            (0..300).for_each(|number| drop(tree.remove(&key(number))));
            let _ = (tree.check(), tree.len(), content(&*tree));
            for word in 0..16 {
                // No thread takes the pool's header for a free object.
                assert_eq!(
                    load(&pool, 8 * word),
                    crashed[word as usize],
                    "{at} {damage}"
                );
            }
        }
    }
    restore(&pool, &crashed);
    assert!(reopen(&pool, "tree").unwrap().check().unwrap().is_empty());
}

const SHARDS: u64 = 8;

/// Removes `each` keys in each of as many threads as there are shards, so that most of them have
/// another shard than this thread.
fn remove_in_shards(tree: &Tree, each: u64) {
    for thread in 0..SHARDS {
        let remove = |number| assert!(tree.remove(&key(number)).unwrap());
        std::thread::scope(|scope| {
            drop(scope.spawn(move || (each * thread..each * (thread + 1)).for_each(remove)));
        });
    }
    tree.sync().unwrap();
}

/// The heads of the queues with free objects, of each shard that has taken no space from the pool.
fn heads_of_others(pool: &Pool<Instrumented>) -> Vec<Vec<u64>> {
    let first_queue = anchor(pool, "tree") + SHARDS_BEGIN + 64;
    let queues_of =
        |shard| (0..SIZE_CLASSES).map(move |class| first_queue + SHARD_BYTES * shard + 64 * class);
    let others =
        (0..SHARDS).filter(|shard| queues_of(*shard).all(|queue| load(pool, queue + 40) == 0));
    let heads = others.map(|shard| {
        queues_of(shard)
            .map(|queue| queue + 8)
            .filter(|head| load(pool, *head) != 0)
            .collect()
    });
    heads.filter(|heads: &Vec<u64>| !heads.is_empty()).collect()
}

/// Breaks the links of free objects in other shards: an insert that would take them returns an
/// error, and no entry is lost.
#[test]
fn damage_to_free_space_is_an_error_and_costs_no_entry() {
    let ram = Instrumented::new(Dax::plain(64 << 20).unwrap());
    let pool = &open_pool(&ram);
    let tree = &*create(
        pool,
        MassTreeOptions {
            shards: SHARDS as usize,
            ..OPTIONS
        },
    );
    (0..400).for_each(|number| tree.put(&key(number), b"value").unwrap());
    remove_in_shards(tree, 40);
    let mut model = content(tree).unwrap();
    let heads = heads_of_others(pool).concat();
    assert!(heads.len() > 7, "{}", heads.len());
    // The link of each head.
    heads
        .iter()
        .map(|head| load(pool, *head))
        .for_each(|head| store(pool, head, load(pool, head) | 1 << 47));
    let mut refused = 0;
    for number in 1000..3000 {
        match tree.put(&key(number), b"value") {
            Ok(()) => model.push((key(number), b"value".to_vec())),
            result => {
                assert!(is_corrupt(result));
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    tree.sync().unwrap();
    model.sort();
    assert_eq!(content(tree).unwrap(), model);
    assert!(
        model
            .iter()
            .all(|(key, value)| tree.get(key).unwrap().as_deref() == Some(value))
    );
}

/// In a full pool only the free objects of other shards are left. If these are damaged, no entry is
/// lost, and all can be removed.
#[test]
fn a_full_pool_with_damaged_free_space_loses_nothing() {
    let ram = Instrumented::new(Dax::plain(2 << 20).unwrap());
    let pool = &open_pool(&ram);
    let tree = &*create(
        pool,
        MassTreeOptions {
            shards: SHARDS as usize,
            ..OPTIONS
        },
    );
    let value = [7; 200];
    let keys = (0..1 << 20)
        .find(|number| tree.put(&key(*number), &value).is_err())
        .unwrap();
    let each = keys / (2 * SHARDS);
    remove_in_shards(tree, each);
    let heads = heads_of_others(pool).concat();
    assert!(!heads.is_empty());
    heads
        .iter()
        .for_each(|head| store(pool, *head, load(pool, *head) | 1 << 47));
    let put = (0..each * SHARDS).filter(|number| match tree.put(&key(*number), &value) {
        Ok(()) => true,
        Err(error) => {
            assert!(error.is_corrupt() || error.is_full(), "{error}");
            false
        }
    });
    let put = put.count() as u64;
    assert!(put < each * SHARDS);
    assert_eq!(tree.len().unwrap(), put + keys - each * SHARDS);
    (each * SHARDS..keys).for_each(|number| {
        assert_eq!(tree.get(&key(number)).unwrap().as_deref(), Some(&value[..]));
    });
}
