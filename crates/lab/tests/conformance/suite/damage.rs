//! Damaged pools: every meaningful byte flipped in turn.

use std::panic::{AssertUnwindSafe, catch_unwind};

use engines::ErrorKind;
use engines::index::{Bounds, Direction, Index};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::harness::{Cell, Check, Closing, Failure, Kind, Seed, World, collect, factor};
use crate::model::{Model, expect_equal};
use crate::threads::{key_of, value_of};

/// A scan of the small tree that returns more than this does not end.
const ENTRIES_MAX: usize = 10_000;

/// Some leaves, some separators, some records.
fn small_tree(cell: &Cell, world: &dyn World) -> Result<Model, Failure> {
    let mut model = Model::new();
    for id in 0..(3 * cell.capacity as u32).min(100) {
        let key = key_of(cell.kind, id * 7);
        let value = value_of(cell.kind, id * 7, id % 40);
        world.tree().insert(&key, &value)?;
        model.insert(key, value);
    }
    if cell.kind == Kind::Record {
        let key = b"a large one".to_vec();
        let value = vec![0xa5; 70_000];
        world.tree().insert(&key, &value)?;
        model.insert(key, value);
    }
    Ok(model)
}

/// Uses a pool as a user does. Any answer and any error is allowed.
fn use_tree(tree: &dyn Index, kind: Kind, rng: &mut SmallRng) -> Check {
    let tolerate = |result: Result<(), Failure>| match result {
        Err(failure) if !failure.0.starts_with("unexpected error") => Err(failure),
        _ => Ok(()),
    };
    let _ = tree.check();
    for direction in [Direction::Forward, Direction::Reverse] {
        tolerate(collect(tree, Bounds::all(), direction, ENTRIES_MAX).map(drop))?;
    }
    let _ = (tree.len(), tree.stat());
    for _ in 0..6 {
        let id = rng.random_range(0..100) * 7;
        let key = key_of(kind, id);
        let _ = tree.get(&key);
        let _ = tree.get_many(&[&key, &key_of(kind, id + 7)]);
        let _ = tree.put(&key_of(kind, id + 1), &value_of(kind, id, 5));
        let _ = tree.update(&key, &value_of(kind, id, 6));
        let _ = tree.remove(&key);
    }
    let _ = tree.remove(b"a large one");
    let _ = tree.check();
    tolerate(collect(tree, Bounds::all(), Direction::Forward, ENTRIES_MAX).map(drop))
}

/// Damage that `check` does not find must have changed nothing.
fn expect_noticed(tree: &dyn Index, model: &Model) -> Check {
    match tree.check() {
        Ok(violations) if violations.is_empty() => expect_equal(tree, model)
            .map_err(|failure| Failure(format!("damage that was not noticed: {}", failure.0))),
        _ => Ok(()),
    }
}

/// Opens a damaged pool, uses it, closes it, opens it again. The damage is to be noticed if there
/// is a `model`.
fn survive(world: &mut dyn World, kind: Kind, rng: &mut SmallRng, model: Option<&Model>) -> Check {
    if world.open().is_err() {
        return Ok(());
    }
    if let Some(model) = model {
        expect_noticed(world.tree(), model)?;
    }
    use_tree(world.tree(), kind, rng)?;
    // Retired memory is freed during operations, so this executes some.
    let _ = world.close(Closing::Clean);
    if world.open().is_ok() {
        let _ = collect(world.tree(), Bounds::all(), Direction::Forward, ENTRIES_MAX);
        let _ = world.close(Closing::Crash);
    }
    Ok(())
}

/// The places to flip: each byte of each word that is not zero, and of some that are.
fn places(image: &[u64], rng: &mut SmallRng) -> Vec<usize> {
    let mut places = Vec::new();
    for (index, word) in image.iter().enumerate() {
        // A few bytes inside the large record are enough.
        let filler = *word == 0xa5a5_a5a5_a5a5_a5a5;
        if *word != 0 && (!filler || rng.random_bool(0.001)) || rng.random_bool(0.0005) {
            places.extend(8 * index..8 * index + 8);
        }
    }
    places
}

/// A pool of an older or of a newer format is refused as such, and not changed.
pub fn another_format_version_is_refused(cell: &Cell, _seed: Seed) -> Check {
    let mut world = cell.limited(4 << 20)?;
    let model = small_tree(cell, &*world)?;
    world.close(Closing::Clean)?;
    let image = world.image();
    for version in [pool::FORMAT_VERSION - 1, pool::FORMAT_VERSION + 1] {
        let mut other = image.clone();
        // Both copies of the header: the version is word 1, the last word the checksum of those
        // before.
        for copy in [0, 0x1000 / 8] {
            other[copy + 1] = version.into();
            let bytes: Vec<u8> = other[copy..copy + 7]
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect();
            other[copy + 7] = crc32c::crc32c(&bytes).into();
        }
        world.set_image(&other);
        let opened = world.open();
        let refused = match opened.as_ref().map_err(engines::Error::kind) {
            Err(ErrorKind::Version { found, .. }) => *found == version,
            _ => false,
        };
        ensure!(refused, "a pool of format version {version}: {opened:?}");
    }
    world.set_image(&image);
    world.open()?;
    expect_equal(world.tree(), &model)
}

/// Flips bytes, one at a time and as many as the place has time for, of a pool that was closed
/// cleanly and of one that was not. The outcome must be the right answer or a typed error, or a
/// wrong answer if the engine promises no better; never a panic or a hang. With the byte restored
/// everything is as before.
pub fn every_flipped_byte_is_survived(cell: &Cell, seed: Seed) -> Check {
    let notices = cell.engine.notices_damage.contains(&cell.kind.codec());
    for how in [Closing::Clean, Closing::Crash] {
        let mut world = cell.limited(4 << 20)?;
        let model = small_tree(cell, &*world)?;
        world.close(how)?;
        let image = world.image();
        let mut rng = seed.rng(1);
        let mut places = places(&image, &mut rng);
        places.shuffle(&mut rng);
        places.truncate((cell.flips as usize).saturating_mul(factor() as usize));
        for place in places {
            let mut damaged = image.clone();
            let mask = if rng.random() {
                0xff
            } else {
                1 << rng.random_range(0..8)
            };
            damaged[place / 8] ^= mask << (8 * (place % 8));
            world.set_image(&damaged);
            // After a crash the copy of a twin line with another tag is one that the crash tore.
            let may_be_torn = how == Closing::Crash && place % 8 == 7 && mask & 0xc0 != 0;
            let noticed = if notices && !may_be_torn {
                Some(&model)
            } else {
                None
            };
            let at = format!("{how:?}, byte {place:#x} xor {mask:#x}");
            match catch_unwind(AssertUnwindSafe(|| {
                survive(&mut *world, cell.kind, &mut rng, noticed)
            })) {
                Ok(outcome) => {
                    outcome.map_err(|failure| Failure(format!("{at}: {}", failure.0)))?;
                }
                Err(panic) => {
                    return Err(Failure(format!("{at}: {}", Failure::of_panic(&*panic).0)));
                }
            }
        }
        world.set_image(&image);
        world.open()?;
        expect_equal(world.tree(), &model)?;
    }
    Ok(())
}
