//! Persists per operation, counted.

use engines::engine::Contract;

use crate::harness::{Cell, Check, Kind, Seed};
use crate::threads::{key_of, value_of};

/// Each operation takes the fences that its engine promises, or more if entries shift; one that
/// changes nothing takes none.
pub fn operations_keep_their_budget(cell: &Cell, _seed: Seed) -> Check {
    let (budget, shifts) = match cell.engine.contract {
        Contract::Immediate(budget) => (budget, false),
        Contract::Shifting(budget) => (budget, true),
        Contract::Epoch => return Ok(()),
    };
    let world = cell.world()?;
    let tree = world.tree();
    let kind = cell.kind;
    let Some(_) = world.counts() else {
        return Ok(());
    };
    let update = if kind == Kind::Word {
        budget.update_words
    } else {
        budget.update
    };
    let fences = || world.counts().map_or(0, |counts| counts.fences);
    // Half a leaf, so that nothing splits; the first keys open the slabs of their size.
    let warm = (cell.capacity as u32 / 4).max(1);
    let ids = (cell.capacity as u32 / 2).max(2);
    for id in 0..warm {
        tree.insert(&key_of(kind, id), &value_of(kind, id, 1))?;
    }
    for id in 0..warm {
        tree.update(&key_of(kind, id), &value_of(kind, id, 1))?;
    }
    let measure = |name: &str, budget: u64, run: &dyn Fn() -> engines::Result<bool>| -> Check {
        let before = fences();
        ensure!(run()?, "{name} returned false");
        let spent = fences() - before;
        let is_kept = if shifts && budget > 0 {
            spent >= budget
        } else {
            spent == budget
        };
        ensure!(
            is_kept,
            "{name} took {spent} fences, its budget is {budget}"
        );
        Ok(())
    };
    for id in warm..ids {
        let key = key_of(kind, id);
        let value = value_of(kind, id, 1);
        measure("insert", budget.insert, &|| tree.insert(&key, &value))?;
        measure("insert of a key that is there", 0, &|| {
            Ok(!tree.insert(&key, &value)?)
        })?;
    }
    for round in 0..20 {
        for id in 0..ids {
            let key = key_of(kind, id);
            let value = value_of(kind, id, 1);
            if round % 2 == 0 {
                measure("update", update, &|| tree.update(&key, &value))?;
            } else {
                let exchange = || tree.compare_exchange(&key, Some(&value), Some(&value));
                measure("compare_exchange", update, &exchange)?;
            }
        }
    }
    let key = key_of(kind, ids + 1);
    let value = value_of(kind, 1, 1);
    measure("get", 0, &|| Ok(tree.get(&key_of(kind, 0))?.is_some()))?;
    measure("get of an absent key", 0, &|| Ok(tree.get(&key)?.is_none()))?;
    measure("get_many", 0, &|| {
        Ok(tree.get_many(&[&key, &key_of(kind, 0)])?.len() == 2)
    })?;
    measure("len", 0, &|| Ok(tree.len()? == u64::from(ids)))?;
    measure("update of an absent key", 0, &|| {
        Ok(!tree.update(&key, &value)?)
    })?;
    for absent in ids + 2..ids + 600 {
        measure("update of an absent key", 0, &|| {
            Ok(!tree.update(&key_of(kind, absent), &value)?)
        })?;
    }
    measure("remove of an absent key", 0, &|| Ok(!tree.remove(&key)?))?;
    measure("a comparison that fails", 0, &|| {
        Ok(!tree.compare_exchange(&key, Some(&value), None)?)
    })?;
    for id in 1..ids {
        measure("remove", budget.remove, &|| tree.remove(&key_of(kind, id)))?;
    }
    Ok(())
}
