//! Space: a full pool, an emptied tree, leaks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};

use engines::ErrorKind;
use engines::index::{Index, MoveCount};
use pool::Evacuate;
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::harness::{
    Cell, Check, Closing, Failure, Kind, Seed, World, expect_no_leak, expect_sound, factor,
};
use crate::model::{Model, expect_equal};
use crate::threads::{in_threads, key_of, value_of};

/// Small enough to be full soon, large enough for some slabs of each size.
const LIMIT_BYTES: u64 = 2 << 20;

/// Threads that work beside a mover.
const WORKERS: u32 = 3;

/// Evacuations after which the space of removed records must be free.
const EVACUATIONS: u32 = 100;

/// Attempts after which retired memory must be free.
const ATTEMPTS: u32 = 100_000;

/// Inserts random keys until the pool is full; then some more, which may or may not fit.
fn fill_up(tree: &dyn Index, kind: Kind, model: &mut Model, seed: Seed) -> Check {
    let mut rng = seed.rng(1);
    let mut refused = 0;
    while refused < 50 {
        let id = rng.random_range(0..100_000_000 / 16);
        let key = key_of(kind, id);
        let value = value_of(kind, id, id % 90);
        match tree.insert(&key, &value) {
            Ok(done) => ensure_eq!(
                done,
                model.insert(key, value).is_none(),
                "insert of key {id}"
            ),
            Err(error) => {
                ensure!(
                    matches!(error.kind(), ErrorKind::PoolFull { limit, .. } if *limit <= LIMIT_BYTES),
                    "a full pool says: {error}"
                );
                ensure_eq!(tree.get(&key)?, None, "the key that was refused");
                refused += 1;
            }
        }
        ensure!(
            model.len() < 1_000_000,
            "a pool of {LIMIT_BYTES} bytes that is never full"
        );
    }
    Ok(())
}

/// Repeats a write that a full pool may refuse, until it succeeds.
fn insist(world: &dyn World, what: &str, write: impl FnMut() -> engines::Result<bool>) -> Check {
    if fits(world, ATTEMPTS, what, write)? {
        return Ok(());
    }
    Err(Failure(format!(
        "{what}: still full after half of all keys were removed"
    )))
}

/// Whether a full pool accepts a write, if it is repeated.
fn fits(
    world: &dyn World,
    attempts: u32,
    what: &str,
    mut write: impl FnMut() -> engines::Result<bool>,
) -> Result<bool, Failure> {
    for _ in 0..attempts {
        match write() {
            Ok(done) => {
                ensure!(done, "{what} returned false");
                return Ok(true);
            }
            Err(error) if error.is_full() => {
                // Another pool's readers may hold the epoch back for a moment.
                world.reclaim();
                std::thread::yield_now();
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// Nodes of full size on a slow medium take seconds for each engine: they are filled and emptied
/// where `EVERLEAF_CASES` asks for more, as `cargo xtask thorough` does.
fn is_for_thorough(cell: &Cell) -> bool {
    cell.slowness > 1 && cell.capacity > 4 && factor() == 1
}

/// A pool at its limit returns an error and loses nothing. Reads and removes still work, and
/// removes make room again.
pub fn a_full_pool_loses_nothing(cell: &Cell, seed: Seed) -> Check {
    if is_for_thorough(cell) {
        return Ok(());
    }
    let part = if factor() == 1 {
        cell.slowness.clamp(2, 3)
    } else {
        cell.slowness.min(3)
    };
    let limit_bytes = LIMIT_BYTES / u64::from(part);
    let mut world = cell.limited(limit_bytes)?;
    let mut model = Model::new();
    fill_up(world.tree(), cell.kind, &mut model, seed)?;
    // A leaf limited to 4 entries takes as much space as a full-size one; and a tree with an
    // allocator of its own takes a slab for each size, which is much in so small a pool. On a busy
    // machine space that splits have freed may still be held for readers.
    let bytes_per_key_max = match (cell.capacity, cell.keeps_space()) {
        (4, _) => 1600,
        (_, true) => 800,
        (_, false) => 400,
    };
    ensure!(
        model.len() as u64 > limit_bytes / bytes_per_key_max,
        "full after {} keys",
        model.len()
    );
    expect_equal(world.tree(), &model)?;
    if cell.kind == Kind::Record {
        let error = world.tree().insert(b"long", &vec![1; 3 << 20]).err();
        let full = error.as_ref().is_some_and(engines::Error::is_full);
        ensure!(full, "a value longer than the pool: {error:?}");
    }
    let mut keys: Vec<_> = model.keys().cloned().collect();
    keys.shuffle(&mut seed.rng(2));
    let (gone, kept) = keys.split_at(keys.len() / 2);
    for key in gone {
        ensure!(world.tree().remove(key)?, "remove from a full pool");
        model.remove(key);
    }
    for (number, key) in (0..).zip(kept) {
        let value = value_of(cell.kind, number, number % 40);
        insist(&*world, "update", || world.tree().update(key, &value))?;
        model.insert(key.clone(), value);
    }
    // A leaf of `bztree` is changed by a copy, which needs a free node; removed records make room
    // for one only when they leave a slab empty. See docs/engines/bztree.md, "Limits".
    let (attempts, mut more) = match world.tree().engine() {
        "bztree" => (100, kept),
        _ => (ATTEMPTS, &[][..]),
    };
    for (number, key) in (0..).zip(&gone[..gone.len() / 4]) {
        let value = value_of(cell.kind, number, number % 40);
        while !fits(&*world, attempts, "insert", || {
            world.tree().insert(key, &value)
        })? {
            let Some((another, rest)) = more.split_first() else {
                return Err(Failure(
                    "insert: still full after keys were removed".to_owned(),
                ));
            };
            ensure!(world.tree().remove(another)?, "remove from a full pool");
            model.remove(another);
            more = rest;
        }
        model.insert(key.clone(), value);
    }
    expect_equal(world.tree(), &model)?;
    for how in [Closing::Crash, Closing::Clean] {
        world.reopen(how)?;
        expect_equal(world.tree(), &model)?;
    }
    expect_no_leak(&mut *world)
}

/// Filled and emptied repeatedly, in any order of removal, a tree ends with few leaves and
/// allocations and little volatile memory, and the pool does not grow.
pub fn an_emptied_tree_gives_its_space_back(cell: &Cell, seed: Seed) -> Check {
    if is_for_thorough(cell) {
        return Ok(());
    }
    let count = 300 * cell.capacity as u32 / 4;
    let mut world = cell.world()?;
    world.reopen(Closing::Clean)?;
    let mut start = world.stat();
    let mut high_water = 0;
    for round in 0..cell.cases(5).max(2).into() {
        let tree = world.tree();
        let mut rng = seed.rng(round);
        let mut ids: Vec<u32> = (0..count).collect();
        if round % 2 == 0 {
            ids.shuffle(&mut rng);
        }
        for id in &ids {
            ensure!(
                tree.insert(&key_of(cell.kind, *id), &value_of(cell.kind, *id, 9))?,
                "insert of key {id}"
            );
        }
        ensure!(
            tree.stat()?.leaves > 5,
            "{} keys in {} leaves",
            count,
            tree.stat()?.leaves
        );
        match round {
            0 => ids.sort_unstable(),
            1 => ids.reverse(),
            _ => ids.shuffle(&mut rng),
        }
        for id in &ids {
            ensure!(tree.remove(&key_of(cell.kind, *id))?, "remove of key {id}");
        }
        expect_equal(tree, &Model::new())?;
        let stat = tree.stat()?;
        ensure!(
            stat.leaves <= 4,
            "round {round}: an empty tree has {} leaves",
            stat.leaves
        );
        world.reopen(if round % 2 == 0 {
            Closing::Clean
        } else {
            Closing::Crash
        })?;
        let pool = world.stat();
        let tree = world.tree().stat()?;
        if cell.keeps_space() && round == 0 {
            start = pool.clone();
        }
        ensure!(
            pool.allocations <= start.allocations + 4,
            "round {round}: {} allocations in an empty tree, {} at the start",
            pool.allocations,
            start.allocations
        );
        ensure!(
            pool.used_bytes <= start.used_bytes + (256 << 10),
            "round {round}: {} bytes used by an empty tree, {} at the start",
            pool.used_bytes,
            start.used_bytes
        );
        ensure!(
            tree.volatile_bytes <= 256 << 10,
            "{} volatile bytes of an empty tree",
            tree.volatile_bytes
        );
        if round == 0 {
            high_water = pool.high_water_bytes.max(2 << 20);
        }
        ensure!(
            pool.high_water_bytes <= 2 * high_water,
            "the pool grows to {} bytes",
            pool.high_water_bytes
        );
    }
    Ok(())
}

/// A tree that is removed gives all of its space back; others keep theirs.
pub fn a_removed_tree_gives_its_space_back(cell: &Cell, seed: Seed) -> Check {
    let mut world = cell.world()?;
    let mut model = Model::new();
    for id in 0..200 {
        let key = key_of(cell.kind, id);
        let value = value_of(cell.kind, id, 7);
        world.tree().insert(&key, &value)?;
        model.insert(key, value);
    }
    let before = world.stat().allocations;
    let mut rng = seed.rng(1);
    for how in [Closing::Clean, Closing::Crash] {
        world.add("passing")?;
        for _ in 0..2000 {
            let id = rng.random_range(0..1000);
            world
                .named("passing")
                .put(&key_of(cell.kind, id), &value_of(cell.kind, id, id % 60))?;
        }
        let meanwhile = world.stat().allocations;
        ensure!(
            meanwhile > before + if cell.keeps_space() { 2 } else { 10 },
            "{meanwhile} allocations with two trees, {before} with one"
        );
        world.destroy("passing")?;
        expect_equal(world.tree(), &model)?;
        world.reopen(how)?;
        expect_equal(world.tree(), &model)?;
        let after = world.stat().allocations;
        ensure!(
            after <= before,
            "{after} allocations without the tree, {before} before it"
        );
        expect_no_leak(&mut *world)?;
    }
    Ok(())
}

/// A condition that fails allocates nothing; after writes of several threads exactly the reachable
/// space is allocated.
pub fn nothing_leaks(cell: &Cell, seed: Seed) -> Check {
    let ids = 40 * cell.capacity as u32 / 4;
    let mut world = cell.world()?;
    let tree = world.tree();
    let kind = cell.kind;
    for id in (0..ids).step_by(2) {
        tree.insert(&key_of(kind, id), &value_of(kind, id, 1))?;
    }
    let before = world.stat().allocations;
    for id in 0..ids {
        let key = key_of(kind, id);
        let value = value_of(kind, id, 2);
        let done = if id % 2 == 0 {
            tree.insert(&key, &value)?
        } else {
            tree.update(&key, &value)?
        };
        ensure!(!done, "a condition that does not hold");
        ensure!(
            !tree.compare_exchange(&key, Some(&value), Some(&value))?,
            "a value that is not there"
        );
        ensure!(
            !tree.compare_exchange(&key, Some(&value), None)?,
            "a value that is not there"
        );
    }
    let after = world.stat().allocations;
    ensure!(
        after == before,
        "conditions that failed changed the allocations from {before} to {after}"
    );
    in_threads(seed, |thread, mut rng| {
        for _ in 0..cell.cases(4000) {
            let id = rng.random_range(0..ids);
            let key = key_of(kind, id);
            let value = value_of(kind, id, rng.random_range(0..200));
            match rng.random_range(0..6) {
                0 | 1 => drop(tree.insert(&key, &value)?),
                2 => tree.put(&key, &value)?,
                3 => {
                    let current = tree.get(&key)?;
                    let _ = tree.compare_exchange(&key, current.as_deref(), Some(&value))?;
                }
                _ if thread == 0 => drop(tree.update(&key, &value)?),
                _ => drop(tree.remove(&key)?),
            }
        }
        Ok(())
    })?;
    expect_sound(tree)?;
    expect_no_leak(&mut *world)
}

/// Moves the records of the main tree out of the slabs of an evacuation, and gives their space back.
fn evacuate(world: &dyn World, choice: Evacuate) -> Result<MoveCount, Failure> {
    let evacuation = world.evacuate(choice, &BTreeSet::new());
    let mut count = MoveCount::default();
    world
        .tree()
        .evacuate(choice, &mut count, &mut |_| Ok(true))?;
    world.tree().wait(count.lsn)?;
    world.reclaim();
    drop(evacuation);
    Ok(count)
}

/// The work of one thread beside a mover: it writes its own keys, and finds them as it left them.
fn work_beside_mover(tree: &dyn Index, cell: &Cell, thread: u32, mut rng: SmallRng) -> Check {
    let kind = cell.kind;
    let keys = 10 * cell.capacity as u32 / 4;
    let mut versions = BTreeMap::new();
    for version in 0..cell.cases(3000) {
        let id = thread + WORKERS * rng.random_range(0..keys);
        let key = key_of(kind, id);
        let known = versions
            .get(&id)
            .map(|version| value_of(kind, id, *version));
        ensure_eq!(
            tree.get(&key)?.map(|value| value.to_vec()),
            known,
            "key {id}"
        );
        if rng.random_bool(0.3) {
            ensure_eq!(tree.remove(&key)?, known.is_some(), "remove of key {id}");
            versions.remove(&id);
        } else {
            let value = value_of(kind, id, version);
            let done = tree.compare_exchange(&key, known.as_deref(), Some(&value))?;
            ensure!(done, "compare_exchange of key {id}");
            versions.insert(id, version);
        }
    }
    Ok(())
}

/// While threads read and write, another one moves all records, again and again: the threads see
/// nothing of that, and nothing leaks.
pub fn records_move_while_threads_work(cell: &Cell, seed: Seed) -> Check {
    let mut world = cell.world()?;
    let working = AtomicU32::new(WORKERS);
    let tree = world.tree();
    let moved = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS)
            .map(|thread| {
                let working = &working;
                scope.spawn(move || {
                    let rng = seed.rng(u64::from(thread));
                    let worked = work_beside_mover(tree, cell, thread, rng);
                    working.fetch_sub(1, Ordering::Relaxed);
                    worked
                })
            })
            .collect();
        let mut moved = 0;
        let mut failure = None;
        let mut has_ended = false;
        // The last time, all threads have ended before.
        while !has_ended {
            has_ended = working.load(Ordering::Relaxed) == 0;
            match evacuate(&*world, Evacuate::All) {
                Ok(count) => moved += count.moved,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        for thread in threads {
            let worked = thread
                .join()
                .unwrap_or_else(|panic| Err(Failure::of_panic(&*panic)));
            if let Err(error) = worked {
                failure = failure.or(Some(error));
            }
        }
        match failure {
            Some(failure) => Err(failure),
            None => Ok(moved),
        }
    })?;
    if cell.kind == Kind::Record && !cell.keeps_space() {
        ensure!(moved > 0, "no record was moved");
    }
    expect_sound(tree)?;
    expect_no_leak(&mut *world)
}

/// Of many records few are left, and are brought together. Space comes back for records of another
/// size; a crash loses nothing.
pub fn sparse_slabs_are_emptied(cell: &Cell, seed: Seed) -> Check {
    const KEYS: u32 = 400;
    const VALUE_BYTES: usize = 3000;
    if cell.kind == Kind::Word {
        return Ok(());
    }
    let mut world = cell.world()?;
    let mut model = Model::new();
    let value_of = |id: u32| vec![id as u8; VALUE_BYTES];
    for id in 0..KEYS {
        world.tree().insert(&key_of(cell.kind, id), &value_of(id))?;
    }
    let full = world.stat().used_bytes;
    let mut ids: Vec<u32> = (0..KEYS).collect();
    ids.shuffle(&mut seed.rng(1));
    let (kept, gone) = ids.split_at(KEYS as usize / 20);
    for id in gone {
        ensure!(
            world.tree().remove(&key_of(cell.kind, *id))?,
            "remove of key {id}"
        );
    }
    for id in kept {
        model.insert(key_of(cell.kind, *id), value_of(*id));
    }
    let removed = gone.len() as u64 * VALUE_BYTES as u64;
    let mut moved = 0;
    let mut left = full;
    // Another pool's readers may hold the epoch back for a while, so that removed records take space.
    for _ in 0..EVACUATIONS {
        world.reclaim();
        moved += evacuate(&*world, Evacuate::Sparse)?.moved;
        left = world.stat().used_bytes;
        if left + removed / 2 < full {
            break;
        }
    }
    ensure!(moved > 0, "no record was moved");
    ensure!(
        left + removed / 2 < full,
        "{full} bytes were used, {left} are after {removed} bytes were removed"
    );
    expect_equal(world.tree(), &model)?;
    for how in [Closing::Crash, Closing::Clean] {
        world.reopen(how)?;
        expect_equal(world.tree(), &model)?;
        evacuate(&*world, Evacuate::All)?;
        expect_equal(world.tree(), &model)?;
    }
    expect_no_leak(&mut *world)
}
