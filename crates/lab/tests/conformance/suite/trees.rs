//! Several trees in one pool, and trees opened with wrong options.

use engines::ErrorKind;
use rand::Rng;

use crate::harness::{Cell, Check, Closing, MAIN, Seed, expect_no_leak};
use crate::model::{Model, expect_equal};
use crate::threads::{key_of, value_of};

/// Three trees hold different values under the same keys, and keep them across reopening.
pub fn trees_do_not_mix(cell: &Cell, seed: Seed) -> Check {
    let names = [MAIN, "second", "third"];
    let mut world = cell.world()?;
    world.add(names[1])?;
    world.add(names[2])?;
    let again = world.add(names[1]);
    ensure!(
        match again.as_ref().map_err(engines::Error::kind) {
            Err(ErrorKind::TreeExists { name }) => name == "second",
            _ => false,
        },
        "a second second: {again:?}"
    );
    let mut models = [Model::new(), Model::new(), Model::new()];
    let mut rng = seed.rng(1);
    for how in [
        Closing::Clean,
        Closing::Crash,
        Closing::Crash,
        Closing::Clean,
    ] {
        for _ in 0..cell.cases(1000) {
            let which = rng.random_range(0..3);
            let id = rng.random_range(0..300);
            let key = key_of(cell.kind, id);
            let value = value_of(cell.kind, id, which as u32);
            let tree = world.named(names[which]);
            if rng.random_bool(0.6) {
                ensure_eq!(
                    tree.insert(&key, &value)?,
                    !models[which].contains_key(&key),
                    "insert of {id}"
                );
                models[which].entry(key).or_insert(value);
            } else {
                ensure_eq!(
                    tree.remove(&key)?,
                    models[which].remove(&key).is_some(),
                    "remove of {id}"
                );
            }
        }
        world.reopen(how)?;
        for (name, model) in names.iter().zip(&models) {
            expect_equal(world.named(name), model)?;
        }
    }
    expect_no_leak(&mut *world)
}

/// A tree refuses to be opened with another codec or another capacity, and is not changed.
pub fn a_tree_opens_only_as_what_it_is(cell: &Cell, _seed: Seed) -> Check {
    let mut world = cell.world()?;
    let mut model = Model::new();
    for id in 0..100 {
        let key = key_of(cell.kind, id);
        let value = value_of(cell.kind, id, 3);
        world.tree().insert(&key, &value)?;
        model.insert(key, value);
    }
    let nodes = cell.other_nodes();
    let others = cell.engine.settings(nodes.settings)?;
    for (kind, settings, capacity) in [
        (cell.kind.other(), cell.settings, cell.capacity),
        (cell.kind, others, nodes.leaf_entries),
    ] {
        // An engine whose nodes have one size has no others.
        if kind == cell.kind && settings == cell.settings {
            continue;
        }
        match world.try_open_as(kind, settings) {
            Ok(()) => ensure!(
                false,
                "{:?}/{} opens as {kind:?}/{capacity}",
                cell.kind,
                cell.capacity
            ),
            Err(error) => ensure!(
                matches!(error.kind(), ErrorKind::TreeMismatch { name, .. } if name == MAIN),
                "opened as {kind:?}/{capacity}: {error}"
            ),
        }
    }
    world.reopen(Closing::Crash)?;
    expect_equal(world.tree(), &model)?;
    expect_no_leak(&mut *world)
}
