//! Ranges while the tree changes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use engines::index::{Bounds, Direction, Index};
use rand::Rng;
use rand::rngs::SmallRng;

use crate::harness::{Cell, Check, Failure, Kind, Seed, expect_no_leak, expect_sound};
use crate::threads::{id_of, in_threads, key_of, value_of, version_of};

/// Keys whose number is a multiple of this are never changed.
const STABLE: u32 = 4;

fn fill(tree: &dyn Index, kind: Kind, ids: u32) -> Check {
    for id in (0..ids).step_by(STABLE as usize) {
        ensure!(
            tree.insert(&key_of(kind, id), &value_of(kind, id, 0))?,
            "insert of key {id}"
        );
    }
    Ok(())
}

/// Inserts, updates or removes a key that is not stable.
fn disturb(tree: &dyn Index, kind: Kind, ids: u32, rng: &mut SmallRng) -> Check {
    let id = rng.random_range(0..ids / STABLE) * STABLE + rng.random_range(1..STABLE);
    let key = key_of(kind, id);
    match rng.random_range(0..5) {
        0 | 1 => drop(tree.insert(&key, &value_of(kind, id, rng.random_range(0..90)))?),
        2 => drop(tree.update(&key, &value_of(kind, id, rng.random_range(0..90)))?),
        _ => drop(tree.remove(&key)?),
    }
    Ok(())
}

/// The entries that a scan has returned so far.
struct Seen {
    kind: Kind,
    direction: Direction,
    last: Option<Vec<u8>>,
    stable: BTreeSet<u32>,
}

impl Seen {
    fn new(kind: Kind, direction: Direction) -> Self {
        Self {
            kind,
            direction,
            last: None,
            stable: BTreeSet::new(),
        }
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Check {
        if let Some(last) = &self.last {
            let ordered = if self.direction == Direction::Forward {
                &last[..] < key
            } else {
                &last[..] > key
            };
            ensure!(ordered, "{:?}: {key:?} follows {last:?}", self.direction);
        }
        self.last = Some(key.to_vec());
        let id = id_of(self.kind, key)?;
        version_of(self.kind, id, value)?;
        if id % STABLE == 0 {
            self.stable.insert(id);
        }
        Ok(())
    }

    /// Whether all stable keys from `from` to below `to` came.
    fn judge(&self, from: u32, to: u32) -> Check {
        let wanted: BTreeSet<u32> = (from..to).filter(|id| id % STABLE == 0).collect();
        let missing: Vec<_> = wanted.difference(&self.stable).collect();
        let beyond: Vec<_> = self.stable.difference(&wanted).collect();
        ensure!(
            missing.is_empty(),
            "{:?} {from}..{to} misses keys {missing:?}",
            self.direction
        );
        ensure!(
            beyond.is_empty(),
            "{:?} {from}..{to} also has keys {beyond:?}",
            self.direction
        );
        Ok(())
    }
}

fn random_range(ids: u32, rng: &mut SmallRng) -> (u32, u32, Direction) {
    let one = rng.random_range(0..=ids);
    let other = rng.random_range(0..=ids);
    let direction = if rng.random() {
        Direction::Forward
    } else {
        Direction::Reverse
    };
    if rng.random_bool(0.3) {
        (0, ids, direction)
    } else {
        (one.min(other), one.max(other), direction)
    }
}

fn bounds(kind: Kind, from: u32, to: u32) -> Bounds {
    Bounds::of(&(key_of(kind, from)..key_of(kind, to)))
}

fn scan_once(tree: &dyn Index, kind: Kind, ids: u32, rng: &mut SmallRng) -> Check {
    let (from, to, direction) = random_range(ids, rng);
    let mut seen = Seen::new(kind, direction);
    if let Some(words) = tree.words()
        && rng.random()
    {
        let mut seen = Seen::new(kind, Direction::Forward);
        let mut outcome = Ok(());
        words.scan_each(u64::from(from), |key, value| {
            if key >= u64::from(to) {
                return false;
            }
            outcome = seen.add(&key.to_be_bytes(), &value.to_be_bytes());
            outcome.is_ok()
        })?;
        outcome?;
        return seen.judge(from, to);
    }
    let mut scan = tree.range(bounds(kind, from, to), direction)?;
    let mut key = Vec::new();
    let mut value = Vec::new();
    while scan.next_into(&mut key, &mut value)? {
        seen.add(&key, &value)?;
    }
    seen.judge(from, to)
}

/// Two threads write, two read ranges in both directions: in order, no key twice, no stable key
/// missing. Checks meanwhile find no violation.
pub fn ranges_beside_writers(cell: &Cell, seed: Seed) -> Check {
    let ids = 200 * cell.capacity as u32 / 4;
    let mut world = cell.world()?;
    let tree = world.tree();
    let kind = cell.kind;
    fill(tree, kind, ids)?;
    let scanning = AtomicU32::new(2);
    let writes = AtomicU32::new(0);
    in_threads(seed, |thread, mut rng| {
        if thread >= 2 {
            while scanning.load(Ordering::Relaxed) > 0 {
                disturb(tree, kind, ids, &mut rng)?;
                writes.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(());
        }
        let mut scans = 0;
        let mut outcome = Ok(());
        // Scans without concurrent writes test nothing.
        while outcome.is_ok()
            && (scans < cell.cases(30) || writes.load(Ordering::Relaxed) < cell.cases(5_000))
        {
            outcome = scan_once(tree, kind, ids, &mut rng);
            scans += 1;
            if scans % 8 == 0 && outcome.is_ok() {
                outcome = expect_sound(tree);
            }
        }
        scanning.fetch_sub(1, Ordering::Relaxed);
        outcome
    })?;
    expect_sound(tree)?;
    expect_no_leak(&mut *world)
}

/// Between two steps of a range its own thread may write, to the same leaf too: a range holds no
/// lock.
pub fn a_range_holds_no_lock(cell: &Cell, seed: Seed) -> Check {
    let ids = 50 * cell.capacity as u32 / 4;
    let mut world = cell.world()?;
    let tree = world.tree();
    let kind = cell.kind;
    fill(tree, kind, ids)?;
    let mut rng = seed.rng(1);
    for _ in 0..cell.cases(20) {
        let (from, to, direction) = random_range(ids, &mut rng);
        let mut seen = Seen::new(kind, direction);
        let mut scan = tree.range(bounds(kind, from, to), direction)?;
        let mut key = Vec::new();
        let mut value = Vec::new();
        while scan.next_into(&mut key, &mut value)? {
            seen.add(&key, &value)?;
            for _ in 0..rng.random_range(0..4) {
                disturb(tree, kind, ids, &mut rng)?;
            }
            if rng.random_bool(0.1) {
                // Removes and inserts the key just returned, and its neighbour.
                let id = id_of(kind, &key)?;
                for beside in [id, id + 1].into_iter().filter(|id| id % STABLE != 0) {
                    let _ = tree.remove(&key_of(kind, beside))?;
                    tree.put(&key_of(kind, beside), &value_of(kind, beside, 1))?;
                }
            }
        }
        seen.judge(from, to)
            .map_err(|failure| Failure(format!("writing between the steps: {}", failure.0)))?;
    }
    expect_sound(tree)?;
    expect_no_leak(&mut *world)
}
