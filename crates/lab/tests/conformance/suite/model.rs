//! Random operations, each compared with `BTreeMap`.

use std::collections::BTreeMap;

use engines::index::{Bounds, Condition, Direction, Index, WordIndex};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::generate::{Case, ConditionOf, Expected, Op, case, value};
use crate::harness::{
    Cell, Check, Failure, Kind, Seed, World, brief, collect, expect_no_leak, expect_sound,
};

/// The expected content of the tree.
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The number of cases in an ordinary run.
const CASES: u32 = 25;

/// Any operations, with reopening in between, have the same results as on a `BTreeMap`, and leak
/// nothing.
pub fn random_operations(cell: &Cell, seed: Seed) -> Check {
    let config = Config {
        cases: cell.cases(CASES),
        failure_persistence: None,
        max_shrink_iters: 3000,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed.bytes());
    let outcome = TestRunner::new_with_rng(config, rng).run(&case(cell), |case| {
        run_case(cell, &case).map_err(|failure| TestCaseError::fail(failure.0))
    });
    match outcome {
        Ok(()) => Ok(()),
        Err(TestError::Fail(reason, case)) => Err(Failure(format!("{reason}, after {case:?}"))),
        Err(TestError::Abort(reason)) => Err(Failure(format!("gave up: {reason}"))),
    }
}

/// Runs one case from an empty tree on.
pub fn run_case(cell: &Cell, case: &Case) -> Check {
    let mut world = cell.world()?;
    let mut model = Model::new();
    for (index, op) in case.ops.iter().enumerate() {
        apply(cell.kind, &mut *world, &mut model, case, op).map_err(|failure| {
            Failure(format!("operation {index}, {}: {}", brief(op), failure.0))
        })?;
    }
    expect_equal(world.tree(), &model)?;
    for key in &case.keys {
        ensure_eq!(
            get(world.tree(), key)?,
            model.get(key).cloned(),
            "get {}",
            brief(key)
        );
    }
    expect_no_leak(&mut *world)?;
    expect_equal(world.tree(), &model)
}

/// Checks that the tree has exactly the model's content, in every way to read it, and is sound.
pub fn expect_equal(tree: &dyn Index, model: &Model) -> Check {
    expect_sound(tree)?;
    for direction in [Direction::Forward, Direction::Reverse] {
        compare_range(tree, model, Bounds::all(), direction, usize::MAX)?;
    }
    ensure_eq!(tree.len()?, model.len() as u64, "len");
    ensure_eq!(tree.stat()?.keys, model.len() as u64, "keys in stat");
    ensure_eq!(tree.is_empty()?, model.is_empty(), "is_empty");
    Ok(())
}

fn get(tree: &dyn Index, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
    let mut buffer = b"stale".to_vec();
    let found = tree.get_into(key, &mut buffer)?;
    ensure!(
        found || buffer.is_empty(),
        "get_into found nothing and left {} bytes",
        buffer.len()
    );
    ensure_eq!(
        tree.get(key)?.map(|value| value.to_vec()),
        found.then(|| buffer.clone()),
        "get beside get_into"
    );
    Ok(found.then_some(buffer))
}

fn compare_range(
    tree: &dyn Index,
    model: &Model,
    bounds: Bounds,
    direction: Direction,
    limit: usize,
) -> Check {
    let within = |key: &[u8]| bounds.is_above_lower(key) && bounds.is_below_upper(key);
    let mut wanted: Vec<_> = model
        .iter()
        .filter(|(key, _)| within(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if direction == Direction::Reverse {
        wanted.reverse();
    }
    let name = format!("{direction:?} {}", brief(&bounds));
    let found = if limit >= wanted.len() {
        collect(tree, bounds, direction, wanted.len() + 1000)?
    } else {
        let mut scan = tree.range(bounds, direction)?;
        let mut found = Vec::new();
        for _ in 0..limit {
            let mut key = Vec::new();
            let mut value = Vec::new();
            ensure!(scan.next_into(&mut key, &mut value)?, "{name} ends early");
            found.push((key, value));
        }
        found
    };
    wanted.truncate(limit);
    if found != wanted {
        let at = found
            .iter()
            .zip(&wanted)
            .position(|(found, wanted)| found != wanted);
        let at = at.unwrap_or(found.len().min(wanted.len()));
        return Err(Failure(format!(
            "{name}: {} entries, should be {}; entry {at} is {}, should be {}",
            found.len(),
            wanted.len(),
            brief(&found.get(at)),
            brief(&wanted.get(at))
        )));
    }
    Ok(())
}

/// Applies one operation to both and compares the results.
fn apply(kind: Kind, world: &mut dyn World, model: &mut Model, case: &Case, op: &Op) -> Check {
    match op {
        Op::Reopen { how } => {
            world.reopen(*how)?;
            expect_equal(world.tree(), model)
        }
        Op::Insert { .. } | Op::Update { .. } | Op::Put { .. } | Op::Remove { .. } => {
            apply_simple(kind, world.tree(), model, case, op)
        }
        Op::CompareExchange { .. } | Op::Write { .. } => {
            apply_condition(kind, world.tree(), model, case, op)
        }
        Op::InsertRun { .. } | Op::RemoveRun { .. } => {
            apply_run(kind, world.tree(), model, case, op)
        }
        _ => apply_read(world.tree(), model, case, op),
    }
}

fn apply_simple(kind: Kind, tree: &dyn Index, model: &mut Model, case: &Case, op: &Op) -> Check {
    let (found, wanted) = match *op {
        Op::Insert { key, value: number } => {
            let key = case.key(key);
            let value = value(kind, number);
            (
                tree.insert(key, &value)?,
                model_write(model, key, Some(value), Condition::Absent),
            )
        }
        Op::Update { key, value: number } => {
            let key = case.key(key);
            let value = value(kind, number);
            (
                tree.update(key, &value)?,
                model_write(model, key, Some(value), Condition::Present),
            )
        }
        Op::Put { key, value: number } => {
            let key = case.key(key);
            let value = value(kind, number);
            tree.put(key, &value)?;
            (
                true,
                model_write(model, key, Some(value), Condition::Always),
            )
        }
        Op::Remove { key } => {
            let key = case.key(key);
            (
                tree.remove(key)?,
                model_write(model, key, None, Condition::Present),
            )
        }
        _ => unreachable!("other operations go elsewhere"),
    };
    ensure_eq!(found, wanted, "what it returned");
    Ok(())
}

/// The value that an expectation stands for; `None` for absent.
fn expected_value(kind: Kind, current: Option<&Vec<u8>>, expected: Expected) -> Option<Vec<u8>> {
    match expected {
        Expected::Absent => None,
        Expected::Current => Some(current.cloned().unwrap_or_else(|| value(kind, 17))),
        Expected::Value(number) => Some(value(kind, number)),
    }
}

fn apply_condition(kind: Kind, tree: &dyn Index, model: &mut Model, case: &Case, op: &Op) -> Check {
    let (found, wanted) = match *op {
        Op::CompareExchange { key, expected, new } => {
            let key = case.key(key);
            let new = new.map(|number| value(kind, number));
            let current = expected_value(kind, model.get(key), expected);
            let found = tree.compare_exchange(key, current.as_deref(), new.as_deref())?;
            let condition = current.map_or(Condition::Absent, Condition::Equals);
            (found, model_write(model, key, new, condition))
        }
        Op::Write {
            key,
            value: number,
            condition,
            words,
        } => {
            let key = case.key(key);
            let new = number.map(|number| value(kind, number));
            let condition = concrete(kind, model.get(key), condition);
            let found = match words_of(tree, words) {
                Some(tree) => write_words(tree, key, new.as_deref(), &condition)?,
                None => {
                    let condition = condition.as_ref().map(Vec::as_slice);
                    tree.write_durably(key, new.as_deref(), condition)?
                }
            };
            (found, model_write(model, key, new, condition))
        }
        _ => unreachable!("other operations go elsewhere"),
    };
    ensure_eq!(found, wanted, "what it returned");
    Ok(())
}

fn concrete(kind: Kind, current: Option<&Vec<u8>>, condition: ConditionOf) -> Condition<Vec<u8>> {
    match condition {
        Condition::Always | Condition::Written(_) | Condition::Moved { .. } => Condition::Always,
        Condition::Absent => Condition::Absent,
        Condition::Present => Condition::Present,
        Condition::Equals(expected) => {
            expected_value(kind, current, expected).map_or(Condition::Absent, Condition::Equals)
        }
    }
}

/// The word with these bytes.
pub fn word(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("8 bytes"))
}

fn write_words(
    tree: &dyn WordIndex,
    key: &[u8],
    new: Option<&[u8]>,
    condition: &Condition<Vec<u8>>,
) -> Result<bool, Failure> {
    Ok(tree.write_durably(
        word(key),
        new.map(word),
        condition.as_ref().map(|value| word(value)),
    )?)
}

fn model_write(
    model: &mut Model,
    key: &[u8],
    new: Option<Vec<u8>>,
    condition: Condition<Vec<u8>>,
) -> bool {
    let current = model.get(key);
    let holds = match condition {
        Condition::Always | Condition::Written(_) | Condition::Moved { .. } => true,
        Condition::Absent => current.is_none(),
        Condition::Present => current.is_some(),
        Condition::Equals(value) => current == Some(&value),
    };
    if holds {
        match new {
            Some(value) => model.insert(key.to_vec(), value),
            None => model.remove(key),
        };
    }
    holds
}

fn apply_run(kind: Kind, tree: &dyn Index, model: &mut Model, case: &Case, op: &Op) -> Check {
    match *op {
        Op::InsertRun {
            first,
            count,
            value: number,
        } => {
            for index in 0..count.min(case.keys.len()) {
                let key = case.key(first + index);
                let value = value(kind, number.wrapping_add(index as u32) | 16);
                let wanted = model_write(model, key, Some(value.clone()), Condition::Absent);
                ensure_eq!(tree.insert(key, &value)?, wanted, "insert {}", brief(&key));
            }
        }
        Op::RemoveRun { first, count } => {
            for index in 0..count.min(case.keys.len()) {
                let key = case.key(first + index);
                ensure_eq!(
                    tree.remove(key)?,
                    model.remove(key).is_some(),
                    "remove {}",
                    brief(&key)
                );
            }
        }
        _ => unreachable!("other operations go elsewhere"),
    }
    Ok(())
}

fn apply_read(tree: &dyn Index, model: &Model, case: &Case, op: &Op) -> Check {
    match op {
        Op::Get { key, words } => {
            let key = case.key(*key);
            let found = match words_of(tree, *words) {
                Some(tree) => tree
                    .get(word(key))?
                    .map(|value| value.to_be_bytes().to_vec()),
                None => get(tree, key)?,
            };
            ensure_eq!(found, model.get(key).cloned(), "get {}", brief(&key));
        }
        Op::GetMany { keys, words } => {
            let keys: Vec<&[u8]> = keys.iter().map(|key| case.key(*key)).collect();
            let wanted: Vec<_> = keys.iter().map(|key| model.get(*key).cloned()).collect();
            ensure_eq!(
                get_many(tree, &keys, *words)?,
                wanted,
                "get_many {}",
                brief(&keys)
            );
        }
        Op::Range {
            lower,
            upper,
            direction,
            limit,
        } => {
            compare_range(tree, model, case.bounds(lower, upper), *direction, *limit)?;
        }
        Op::Prefix {
            bytes,
            cut,
            direction,
        } => {
            let bytes = case.bytes(bytes);
            let bounds = Bounds::prefix(&bytes[..bytes.len().min(*cut)]);
            compare_range(tree, model, bounds, *direction, usize::MAX)?;
        }
        Op::WordScan { from, limit } => scan_words(tree, model, *from, *limit)?,
        Op::Len => ensure_eq!(tree.len()?, model.len() as u64, "len"),
        Op::Check => expect_sound(tree)?,
        _ => unreachable!("other operations go elsewhere"),
    }
    Ok(())
}

fn get_many(
    tree: &dyn Index,
    keys: &[&[u8]],
    words: bool,
) -> Result<Vec<Option<Vec<u8>>>, Failure> {
    let Some(tree) = words_of(tree, words) else {
        return Ok(tree
            .get_many(keys)?
            .into_iter()
            .map(|value| value.map(|value| value.to_vec()))
            .collect());
    };
    let keys: Vec<u64> = keys.iter().map(|key| word(key)).collect();
    let mut values = vec![Some(13); keys.len()];
    tree.get_many(&keys, &mut values)?;
    Ok(values
        .into_iter()
        .map(|value| value.map(|value| value.to_be_bytes().to_vec()))
        .collect())
}

fn scan_words(tree: &dyn Index, model: &Model, from: u64, limit: usize) -> Check {
    let Some(tree) = tree.words() else {
        return Ok(());
    };
    let wanted: Vec<_> = model
        .range(from.to_be_bytes().to_vec()..)
        .take(limit + 1)
        .map(|(key, value)| (word(key), word(value)))
        .collect();
    let mut found = Vec::new();
    tree.scan_each(from, |key, value| {
        found.push((key, value));
        found.len() <= limit
    })?;
    ensure_eq!(found, wanted, "scan from {from:#x}");
    Ok(())
}

/// The tree's interface for words, if that is to be used.
fn words_of(tree: &dyn Index, is_wanted: bool) -> Option<&dyn WordIndex> {
    if is_wanted { tree.words() } else { None }
}
