//! Bulk load.

use engines::index::Index;
use engines::{Error, ErrorKind};
use rand::Rng;

use crate::harness::{Cell, Check, Closing, Failure, Kind, Seed, expect_no_leak, factor};
use crate::model::{Model, expect_equal};
use crate::threads::{key_of, value_of};

/// Loads the entries at `fill`.
fn load<'e>(
    tree: &dyn Index,
    entries: impl IntoIterator<Item = (&'e [u8], &'e [u8])>,
    fill: f64,
) -> engines::Result<u64> {
    let mut entries = entries.into_iter();
    let mut is_over = false;
    let mut next = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
        if is_over {
            return Err(ErrorKind::Setting {
                what: "the source of a load is called again after its end".to_owned(),
            }
            .into());
        }
        let Some(entry) = entries.next() else {
            is_over = true;
            return Ok(false);
        };
        key.clear();
        key.extend_from_slice(entry.0);
        value.clear();
        value.extend_from_slice(entry.1);
        Ok(true)
    };
    tree.bulk_load(&mut next, fill)
}

fn borrow(model: &Model) -> impl Iterator<Item = (&[u8], &[u8])> {
    model.iter().map(|(key, value)| (&key[..], &value[..]))
}

/// The first key is the smallest that there is.
fn model_of(kind: Kind, count: u32) -> Model {
    let key = |id| {
        if id == 0 && kind == Kind::Record {
            Vec::new()
        } else {
            key_of(kind, 3 * id)
        }
    };
    (0..count)
        .map(|id| (key(id), value_of(kind, 3 * id, id % 50)))
        .collect()
}

/// Any number of entries, any fill: all entries are present, in the expected number of leaves, and
/// writable afterwards.
pub fn bulk_load_at_every_fill(cell: &Cell, seed: Seed) -> Check {
    let capacity = cell.capacity as u32;
    let mut rng = seed.rng(1);
    let leaves = if factor() == 1 && capacity > 4 {
        15
    } else {
        40
    };
    let counts = [
        0,
        1,
        2,
        capacity - 1,
        capacity,
        capacity + 1,
        10 * capacity,
        leaves * capacity + 3,
    ];
    let fills = if factor() == 1 {
        &[0.5, 0.75, 1.0][..]
    } else {
        &[0.5, 0.6, 0.75, 0.9, 1.0]
    };
    for &fill in fills {
        for count in counts {
            let mut world = cell.world()?;
            let mut model = model_of(cell.kind, count);
            ensure_eq!(
                load(world.tree(), borrow(&model), fill)?,
                u64::from(count),
                "entries loaded"
            );
            expect_equal(world.tree(), &model)
                .map_err(|failure| Failure(format!("{count} at {fill}: {}", failure.0)))?;
            let per_leaf = ((f64::from(capacity) * fill) as u64).max(1);
            let leaves = world.tree().stat()?.leaves;
            let most = u64::from(count).div_ceil(per_leaf) + 2;
            ensure!(
                leaves <= most,
                "{count} entries at {fill} in {leaves} leaves, {most} are enough"
            );
            for _ in 0..count / 2 {
                let id = rng.random_range(0..3 * count);
                let key = key_of(cell.kind, id);
                let value = value_of(cell.kind, id, 51);
                if rng.random() {
                    world.tree().put(&key, &value)?;
                    model.insert(key, value);
                } else {
                    ensure_eq!(
                        world.tree().remove(&key)?,
                        model.remove(&key).is_some(),
                        "remove of {id}"
                    );
                }
            }
            world.reopen(Closing::Crash)?;
            expect_equal(world.tree(), &model)?;
            expect_no_leak(&mut *world)?;
        }
    }
    Ok(())
}

/// The error in a bulk load.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Trouble {
    Unsorted,
    Twice,
    BadKey,
    Source,
    Full,
}

/// Loads entries of which one is bad; returns the error.
fn load_with(tree: &dyn Index, kind: Kind, trouble: Trouble, at: u64) -> Result<Error, Failure> {
    let mut index = 0;
    let mut next = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
        let id = 2 * index as u32 + 10;
        *key = key_of(kind, id);
        *value = value_of(kind, id, 1);
        if index == at {
            match trouble {
                Trouble::Unsorted => *key = key_of(kind, id - 5),
                Trouble::Twice => *key = key_of(kind, id - 2),
                Trouble::BadKey => key.resize(70_000, b'x'),
                Trouble::Source => return Err(ErrorKind::InUse.into()),
                Trouble::Full => {}
            }
        }
        index += 1;
        Ok(index < at + 100 || trouble == Trouble::Full)
    };
    match tree.bulk_load(&mut next, 1.0) {
        Ok(count) => Err(Failure(format!(
            "{trouble:?} at {at}: loaded {count} entries"
        ))),
        Err(error) => Ok(error),
    }
}

/// Input out of order, a key too long, a source that fails, a full pool: a typed error, and the
/// tree is as empty as before. A tree with entries refuses.
pub fn bulk_load_is_all_or_nothing(cell: &Cell, seed: Seed) -> Check {
    let mut world = cell.limited(3 << 20)?;
    world.reopen(Closing::Clean)?;
    let mut before = world.stat().allocations;
    let mut rng = seed.rng(1);
    for trouble in [
        Trouble::Unsorted,
        Trouble::Twice,
        Trouble::BadKey,
        Trouble::Source,
        Trouble::Full,
    ] {
        for at in [1, cell.capacity as u64, rng.random_range(1..1000)] {
            let error = load_with(world.tree(), cell.kind, trouble, at)?;
            let right = match (trouble, error.kind()) {
                (Trouble::Unsorted | Trouble::Twice, ErrorKind::NotSorted { index }) => {
                    *index == at
                }
                (
                    Trouble::BadKey,
                    ErrorKind::KeyTooLong { length, .. } | ErrorKind::NotAWord { length, .. },
                ) => *length == 70_000,
                (Trouble::Source, ErrorKind::InUse)
                | (Trouble::Full, ErrorKind::PoolFull { .. }) => true,
                _ => false,
            };
            ensure!(right, "{trouble:?} at {at}: {error}");
            expect_equal(world.tree(), &Model::new())?;
            world.reopen(if at % 2 == 0 {
                Closing::Clean
            } else {
                Closing::Crash
            })?;
            expect_equal(world.tree(), &Model::new())?;
            let after = world.stat().allocations;
            if cell.keeps_space() {
                before = before.max(after);
            }
            ensure!(
                after <= before + 1,
                "{trouble:?} at {at} leaks {} allocations",
                after - before
            );
        }
    }
    let model = model_of(cell.kind, 500);
    let mut loaded = load(world.tree(), borrow(&model), 0.8);
    for _ in 0..8 {
        // An engine with epochs can reuse freed space only after the epoch has ended.
        if cell.keeps_space() && matches!(&loaded, Err(error) if error.is_full()) {
            world.tree().sync()?;
            loaded = load(world.tree(), borrow(&model), 0.8);
        }
    }
    ensure_eq!(loaded?, 500, "entries loaded at last");
    let again = load(world.tree(), borrow(&model), 0.8);
    ensure!(
        matches!(&again, Err(error) if matches!(error.kind(), ErrorKind::NotEmpty)),
        "a second load: {again:?}"
    );
    expect_equal(world.tree(), &model)?;
    expect_no_leak(&mut *world)
}
