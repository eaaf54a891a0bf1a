//! Keys and values at their limits, and one byte beyond.

use engines::index::record::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use engines::index::{Bounds, Direction, Index};
use engines::{Error, ErrorKind};
use rand::seq::SliceRandom;

use crate::harness::{Cell, Check, Closing, Kind, Seed, brief, collect, expect_no_leak, factor};
use crate::model::{Model, expect_equal};

const KEY_LENGTHS: [usize; 15] = [
    0,
    1,
    7,
    8,
    9,
    15,
    16,
    17,
    63,
    64,
    65,
    4096,
    65_535,
    KEY_BYTES_MAX - 1,
    KEY_BYTES_MAX,
];
const VALUE_LENGTHS: [usize; 13] = [
    0,
    1,
    7,
    8,
    9,
    23,
    24,
    25,
    1000,
    65_392,
    65_472,
    (1 << 20) + 3,
    VALUE_BYTES_MAX,
];

/// Every length up to the limits is stored and found, before and after reopening; one more is a
/// typed error.
pub fn lengths_up_to_the_limits(cell: &Cell, _seed: Seed) -> Check {
    // Values of 16 MiB take long, and lengths have little to do with the size of nodes.
    if cell.capacity > 4 && factor() == 1 {
        return Ok(());
    }
    let mut world = cell.world()?;
    let mut model = Model::new();
    if cell.kind == Kind::Word {
        words_are_eight_bytes(world.tree())?;
        return expect_equal(world.tree(), &model);
    }
    for length in KEY_LENGTHS {
        model.insert(vec![b'k'; length], format!("{length}").into_bytes());
    }
    // A value of 16 MiB takes long on a slow medium.
    let longest = if cell.slowness > 1 && factor() == 1 {
        VALUE_BYTES_MAX - 1
    } else {
        VALUE_BYTES_MAX
    };
    for length in VALUE_LENGTHS
        .into_iter()
        .filter(|length| *length <= longest)
    {
        model.insert(
            format!("value of {length}").into_bytes(),
            vec![length as u8 | 1; length],
        );
    }
    for (key, value) in &model {
        ensure!(
            world.tree().insert(key, value)?,
            "insert of {} + {} bytes",
            key.len(),
            value.len()
        );
    }
    expect_equal(world.tree(), &model)?;
    beyond_the_limits(world.tree())?;
    for how in [Closing::Clean, Closing::Crash] {
        world.reopen(how)?;
        expect_equal(world.tree(), &model)?;
    }
    // Long ones replace short ones, and the other way round.
    for (key, value) in &mut model {
        *value = if value.len() > 1000 {
            b"short".to_vec()
        } else {
            vec![7; 70_000]
        };
        ensure!(
            world.tree().update(key, value)?,
            "update of a key of {} bytes",
            key.len()
        );
    }
    expect_equal(world.tree(), &model)?;
    expect_no_leak(&mut *world)
}

/// The error of a write.
fn refused<T: std::fmt::Debug>(
    result: engines::Result<T>,
    what: &str,
) -> Result<Error, crate::harness::Failure> {
    match result {
        Ok(done) => Err(crate::harness::Failure(format!(
            "{what} was not refused: {done:?}"
        ))),
        Err(error) => Ok(error),
    }
}

fn beyond_the_limits(tree: &dyn Index) -> Check {
    let key = vec![b'k'; KEY_BYTES_MAX + 1];
    let value = vec![0; VALUE_BYTES_MAX + 1];
    let tries = [
        ("insert", tree.insert(&key, b"v")),
        ("put", tree.put(&key, b"v").map(|()| true)),
        (
            "compare_exchange",
            tree.compare_exchange(&key, None, Some(b"v")),
        ),
    ];
    for (what, result) in tries {
        let error = refused(result, what)?;
        let right = matches!(error.kind(), ErrorKind::KeyTooLong { length, limit }
            if *length == key.len() && *limit == KEY_BYTES_MAX);
        ensure!(right, "{what} of a key too long: {error}");
    }
    let tries = [
        ("insert", tree.insert(b"new", &value)),
        ("update", tree.update(b"", &value)),
        ("put", tree.put(b"new", &value).map(|()| true)),
        (
            "compare_exchange",
            tree.compare_exchange(b"new", None, Some(&value)),
        ),
    ];
    for (what, result) in tries {
        let error = refused(result, what)?;
        let right = matches!(error.kind(), ErrorKind::ValueTooLong { length, limit }
            if *length == value.len() && *limit == VALUE_BYTES_MAX);
        ensure!(right, "{what} of a value too long: {error}");
    }
    // A key too long is in no tree: both `false` and an error are right.
    ensure!(
        !matches!(tree.get(&key), Ok(Some(_))),
        "a key too long was found"
    );
    ensure!(
        !matches!(tree.remove(&key), Ok(true)),
        "a key too long was removed"
    );
    ensure!(
        !matches!(tree.update(&key, b"v"), Ok(true)),
        "a key too long was updated"
    );
    ensure_eq!(tree.get(b"new")?, None, "a refused key");
    Ok(())
}

fn words_are_eight_bytes(tree: &dyn Index) -> Check {
    let word = [7; 8];
    for length in [0, 1, 7, 9, 16, 70_000] {
        let bytes = vec![7; length];
        let tries = [
            ("insert of a key", tree.insert(&bytes, &word)),
            ("put of a key", tree.put(&bytes, &word).map(|()| true)),
            ("insert of a value", tree.insert(&word, &bytes)),
            ("put of a value", tree.put(&word, &bytes).map(|()| true)),
        ];
        for (what, result) in tries {
            let error = refused(result, what)?;
            let right = matches!(error.kind(), ErrorKind::NotAWord { length: named, .. } if *named == length);
            ensure!(right, "{what} of {length} bytes: {error}");
        }
        ensure!(
            !matches!(tree.get(&bytes), Ok(Some(_))),
            "a key of {length} bytes was found"
        );
        ensure!(
            !matches!(tree.remove(&bytes), Ok(true)),
            "a key of {length} bytes was removed"
        );
    }
    Ok(())
}

/// Keys that differ only near their ends: more than fit in a leaf, so that separators must tell
/// them apart.
pub fn keys_that_nearly_tie(cell: &Cell, seed: Seed) -> Check {
    let mut world = cell.world()?;
    let mut keys: Vec<Vec<u8>> = Vec::new();
    if cell.kind == Kind::Word {
        for number in 0..150u64 {
            keys.extend(
                [number, u64::MAX - number, (1 << 63) - 75 + number]
                    .map(|key| key.to_be_bytes().to_vec()),
            );
        }
    } else {
        for length in 0..150 {
            keys.push([b"8 bytes:", &vec![0; length][..]].concat());
            keys.push([b"8 bytes:", &vec![0; length][..], &[1]].concat());
            keys.push(vec![0; length]);
        }
    }
    keys.sort();
    keys.dedup();
    keys.shuffle(&mut seed.rng(1));
    let mut model = Model::new();
    for (number, key) in keys.iter().enumerate() {
        let value = (number as u64).to_be_bytes().to_vec();
        ensure!(world.tree().insert(key, &value)?, "insert {}", brief(key));
        ensure!(
            !world.tree().insert(key, &value)?,
            "insert {} again",
            brief(key)
        );
        model.insert(key.clone(), value);
    }
    expect_equal(world.tree(), &model)?;
    for key in &keys {
        ensure_eq!(
            world.tree().get(key)?.map(|value| value.to_vec()),
            model.get(key).cloned(),
            "{}",
            brief(key)
        );
        let wanted: Vec<_> = model
            .range(key.clone()..)
            .take_while(|(other, _)| other.starts_with(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let found = collect(
            world.tree(),
            Bounds::prefix(key),
            Direction::Forward,
            keys.len(),
        )?;
        ensure_eq!(found, wanted, "prefix {}", brief(key));
    }
    world.reopen(Closing::Crash)?;
    expect_equal(world.tree(), &model)?;
    keys.shuffle(&mut seed.rng(2));
    for key in keys.iter().skip(keys.len() / 4) {
        ensure!(world.tree().remove(key)?, "remove {}", brief(key));
        model.remove(key);
    }
    expect_equal(world.tree(), &model)?;
    expect_no_leak(&mut *world)
}
