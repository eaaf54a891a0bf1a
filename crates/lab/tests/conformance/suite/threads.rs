//! Several threads on one tree.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, Ordering};

use engines::index::Index;
use rand::Rng;
use rand::rngs::SmallRng;

use crate::harness::{Cell, Check, Failure, Kind, Seed, expect_no_leak, expect_sound};

/// Threads in these tests: more than the processors of a small machine.
const THREADS: u32 = 4;

/// Runs `work` in several threads, which begin together, and returns the first failure.
pub fn in_threads(seed: Seed, work: impl Fn(u32, SmallRng) -> Check + Sync) -> Check {
    let begin = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let work = &work;
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    work(thread, seed.rng(u64::from(thread) + 100))
                })
            })
            .collect();
        let ended: Vec<Check> = threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| Err(Failure::of_panic(&*panic)))
            })
            .collect();
        ended.into_iter().collect()
    })
}

/// Key number `id`; neighbours differ in their last bytes only.
pub fn key_of(kind: Kind, id: u32) -> Vec<u8> {
    match kind {
        Kind::Word => u64::from(id).to_be_bytes().to_vec(),
        Kind::Record => format!("key/{id:07}").into_bytes(),
    }
}

/// The number of a key of [`key_of`].
pub fn id_of(kind: Kind, key: &[u8]) -> Result<u32, Failure> {
    let id = match kind {
        Kind::Word => key
            .try_into()
            .ok()
            .map(|bytes| u64::from_be_bytes(bytes) as u32),
        Kind::Record => std::str::from_utf8(key)
            .ok()
            .and_then(|key| key.strip_prefix("key/")?.parse().ok()),
    };
    id.filter(|id| key_of(kind, *id) == key)
        .ok_or_else(|| Failure(format!("a key that was never written: {key:?}")))
}

/// A value that names its key and a version.
pub fn value_of(kind: Kind, id: u32, version: u32) -> Vec<u8> {
    let word = u64::from(id) << 32 | u64::from(version);
    let mut value = word.to_be_bytes().to_vec();
    if kind == Kind::Record {
        value.extend(std::iter::repeat_n(version as u8, version as usize % 40));
    }
    value
}

/// The version in a value of [`value_of`].
pub fn version_of(kind: Kind, id: u32, value: &[u8]) -> Result<u32, Failure> {
    let word = value
        .first_chunk()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes));
    let version = word as u32;
    ensure!(
        value == value_of(kind, id, version),
        "key {id} has a value that was never written: {value:?}"
    );
    Ok(version)
}

/// The knowledge of one thread: its own keys exactly, and the newest version that it read of other
/// keys.
struct History<'t> {
    kind: Kind,
    tree: &'t dyn Index,
    own: BTreeMap<u32, u32>,
    seen: BTreeMap<u32, u32>,
    version: u32,
}

impl History<'_> {
    fn write(&mut self, id: u32, rng: &mut SmallRng) -> Check {
        self.version += 1;
        let key = key_of(self.kind, id);
        let value = value_of(self.kind, id, self.version);
        let current = self.own.get(&id).copied();
        let was = current.is_some();
        let written = match rng.random_range(0..5) {
            0 => {
                ensure_eq!(
                    self.tree.insert(&key, &value)?,
                    !was,
                    "insert of own key {id}"
                );
                !was
            }
            1 => {
                ensure_eq!(
                    self.tree.update(&key, &value)?,
                    was,
                    "update of own key {id}"
                );
                was
            }
            2 => {
                self.tree.put(&key, &value)?;
                true
            }
            3 => {
                let expected = current.map(|version| value_of(self.kind, id, version));
                let done = self
                    .tree
                    .compare_exchange(&key, expected.as_deref(), Some(&value))?;
                ensure!(
                    done,
                    "compare_exchange of own key {id} at version {current:?}"
                );
                true
            }
            _ => {
                ensure_eq!(self.tree.remove(&key)?, was, "remove of own key {id}");
                self.own.remove(&id);
                false
            }
        };
        if written {
            self.own.insert(id, self.version);
        }
        self.read(id)
    }

    fn read(&mut self, id: u32) -> Check {
        let found = self.tree.get(&key_of(self.kind, id))?;
        let version = found
            .map(|value| version_of(self.kind, id, &value))
            .transpose()?;
        self.judge(id, version)
    }

    fn judge(&mut self, id: u32, version: Option<u32>) -> Check {
        if id % THREADS == self.own_remainder() {
            ensure_eq!(version, self.own.get(&id).copied(), "own key {id}");
        } else if let Some(version) = version {
            let newest = self.seen.entry(id).or_insert(version);
            ensure!(
                version >= *newest,
                "key {id} went back from version {newest} to {version}"
            );
            *newest = version;
        }
        Ok(())
    }

    fn own_remainder(&self) -> u32 {
        self.version >> 24
    }
}

/// Each thread writes its own keys, which lie between those of the others, and reads all of them:
/// own keys are as it left them, other keys never go back to an older version.
pub fn each_thread_reads_what_it_wrote(cell: &Cell, seed: Seed) -> Check {
    let mut world = cell.world()?;
    let ids = if cell.capacity == 4 { 200 } else { 1600 };
    let tree = world.tree();
    in_threads(seed, |thread, mut rng| {
        let mut history = History {
            kind: cell.kind,
            tree,
            own: BTreeMap::new(),
            seen: BTreeMap::new(),
            // Versions only grow, and their high byte names the thread.
            version: thread << 24,
        };
        for _ in 0..cell.cases(6000) {
            let id = rng.random_range(0..ids);
            match rng.random_range(0..8) {
                0..4 => history.write(id / THREADS * THREADS + thread, &mut rng)?,
                4..7 => history.read(id)?,
                _ => {
                    let keys: Vec<_> = (0..16)
                        .map(|step| key_of(cell.kind, (id + step) % ids))
                        .collect();
                    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                    for (step, value) in (0..).zip(tree.get_many(&keys)?) {
                        let id = (id + step) % ids;
                        let version = value
                            .map(|value| version_of(cell.kind, id, &value))
                            .transpose()?;
                        history.judge(id, version)?;
                    }
                }
            }
        }
        for id in (0..ids).filter(|id| id % THREADS == thread) {
            history.read(id)?;
        }
        Ok(())
    })?;
    expect_sound(world.tree())?;
    expect_no_leak(&mut *world)
}

/// Counters raised by `compare_exchange` from all threads end at the number of raises, while keys
/// beside them are inserted and removed.
pub fn contended_counters_sum_up(cell: &Cell, seed: Seed) -> Check {
    const COUNTERS: u32 = 4;
    const SPREAD: u32 = 100;
    let mut world = cell.world()?;
    let tree = world.tree();
    let kind = cell.kind;
    let raises = cell.cases(1500);
    let number = |count: u64| count.to_be_bytes();
    for counter in 0..COUNTERS {
        tree.insert(&key_of(kind, counter * SPREAD), &number(0))?;
    }
    in_threads(seed, |thread, mut rng| {
        for raise in 0..raises {
            let key = key_of(kind, rng.random_range(0..COUNTERS) * SPREAD);
            loop {
                let current = tree
                    .get(&key)?
                    .ok_or_else(|| Failure("a counter is gone".to_owned()))?;
                let count = u64::from_be_bytes(current[..].try_into()?);
                if tree.compare_exchange(&key, Some(&current), Some(&number(count + 1)))? {
                    break;
                }
            }
            // Neighbours, so that the counters' leaves split and merge meanwhile.
            let beside = rng.random_range(0..COUNTERS) * SPREAD + 1 + thread * 20 + raise % 20;
            if rng.random() {
                tree.put(&key_of(kind, beside), &number(1))?;
            } else {
                tree.remove(&key_of(kind, beside))?;
            }
        }
        Ok(())
    })?;
    let mut sum = 0;
    for counter in 0..COUNTERS {
        let value = tree.get(&key_of(kind, counter * SPREAD))?;
        let value = value.ok_or_else(|| Failure("a counter is gone".to_owned()))?;
        sum += u64::from_be_bytes(value[..].try_into()?);
    }
    ensure_eq!(sum, u64::from(THREADS * raises), "the sum of the counters");
    expect_sound(tree)?;
    expect_no_leak(&mut *world)
}

/// For each key, successful inserts and removes alternate, so their difference is 1 if the key is
/// present, and 0 otherwise.
pub fn inserts_and_removes_balance(cell: &Cell, seed: Seed) -> Check {
    let ids = 6 * cell.capacity as u32;
    let mut world = cell.world()?;
    let tree = world.tree();
    let kind = cell.kind;
    let balances: Vec<AtomicI64> = (0..ids).map(|_| AtomicI64::new(0)).collect();
    in_threads(seed, |thread, mut rng| {
        for round in 0..cell.cases(5000) {
            // In waves, so that the tree grows and shrinks.
            let filling = round / 500 % 2 == 0;
            let id = rng.random_range(0..ids);
            if rng.random_bool(if filling { 0.8 } else { 0.2 }) {
                if tree.insert(&key_of(kind, id), &value_of(kind, id, thread))? {
                    balances[id as usize].fetch_add(1, Ordering::Relaxed);
                }
            } else if tree.remove(&key_of(kind, id))? {
                balances[id as usize].fetch_sub(1, Ordering::Relaxed);
            }
        }
        Ok(())
    })?;
    let mut keys = 0;
    for (id, balance) in (0..).zip(&balances) {
        let there = tree.get(&key_of(kind, id))?.is_some();
        ensure_eq!(
            balance.load(Ordering::Relaxed),
            i64::from(there),
            "inserts less removes of key {id}"
        );
        keys += u64::from(there);
    }
    ensure_eq!(tree.len()?, keys, "len");
    expect_sound(tree)?;
    expect_no_leak(&mut *world)
}
