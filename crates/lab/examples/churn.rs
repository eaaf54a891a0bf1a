//! Prints what churn costs each engine: the room that the pool's file takes while keys live, are
//! overwritten and removed.
//!
//! ```text
//! cargo run --release -p everleaf-lab --example churn
//! ```

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use everleaf::{Engine, MediumChoice, Options, Result, Store, TreeOptions};

/// Live keys.
const KEYS: u64 = 200_000;
const VALUE_BYTES: usize = 100;
/// How often each key is overwritten.
const ROUNDS: u8 = 5;
const TREE: &str = "churn";

/// Bytes of the file that have room on the disk, in MiB.
fn room(path: &Path) -> String {
    let blocks = std::fs::metadata(path).map_or(0, |file| file.blocks());
    format!("{:.1}", (512 * blocks) as f64 / f64::from(1 << 20))
}

/// Keys in an order that differs from the order of keys.
fn keys(round: u8) -> impl Iterator<Item = [u8; 8]> {
    (0..KEYS).map(move |number| {
        ((number * 7_919 + u64::from(round) * 101) % KEYS)
            .wrapping_mul(0x9e37_79b9)
            .to_be_bytes()
    })
}

fn measure(engine: Engine, path: &Path) -> Result<Vec<String>> {
    let options = Options::new().medium(MediumChoice::File);
    let store = options.open(path)?;
    let kind = TreeOptions {
        engine,
        ..TreeOptions::RECORDS
    };
    let tree = store.tree_with(TREE, kind)?;
    let mut figures = Vec::new();
    let note = |store: &Store, figures: &mut Vec<String>| -> Result<()> {
        store.sync()?;
        figures.push(room(path));
        Ok(())
    };
    for round in 0..=ROUNDS {
        for key in keys(round) {
            drop(tree.pending().put(key, [round; VALUE_BYTES])?);
        }
        if round == 0 || round == ROUNDS {
            note(&store, &mut figures)?;
        }
    }
    store.compact()?;
    note(&store, &mut figures)?;
    // The pool that the command `compact` writes.
    let new = path.with_extension("new");
    let rewritten = options.open(&new)?;
    let entries = tree
        .iter()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
    rewritten
        .tree_with(TREE, kind)?
        .try_bulk_load::<_, _, everleaf::Error>(entries, 0.9)?;
    rewritten.close()?;
    figures.push(room(&new));
    for key in keys(0) {
        drop(tree.pending().remove(key)?);
    }
    note(&store, &mut figures)?;
    store.compact()?;
    note(&store, &mut figures)?;
    drop(tree);
    store.drop_tree(TREE)?;
    store.close()?;
    figures.push(room(path));
    Ok(figures)
}

fn main() -> Result<()> {
    println!(
        "MiB of the file on its disk: {KEYS} keys of 8 bytes, values of {VALUE_BYTES} bytes, each overwritten {ROUNDS} times\n\
         \n\
         | engine | loaded | overwritten | `Store::compact` | rewritten | all removed | `Store::compact` | dropped, closed |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for engine in [
        Engine::RNTREE,
        Engine::BZTREE,
        Engine::MASSTREE,
        Engine::WBTREE,
        Engine::CAWBT,
    ] {
        let folder = tempfile::tempdir().map_err(everleaf::Error::io("make a folder"))?;
        let figures = measure(engine, &folder.path().join("pool"))?;
        println!("| {} | {} |", engine.name, figures.join(" | "));
    }
    Ok(())
}
