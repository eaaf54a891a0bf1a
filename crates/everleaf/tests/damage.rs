//! Damage of several sizes to pools of an engine that promises to notice it: the content is what it was, or somebody is told.

use std::fs;
use std::path::Path;

use everleaf::{Codec, Engine, LineStore, MediumChoice, Options, Result, TreeOptions};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

mod common;

use common::folder;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Damages to each pool.
const ROUNDS: u64 = 120;
const LINE: usize = 64;
const PAGE: usize = 4096;
const KINDS: [&str; 6] = ["a bit", "a byte", "a word", "a line of zeros", "a page of zeros", "two lines swapped"];

/// Damages bytes that are in use. Returns where.
fn damage(bytes: &mut [u8], kind: usize, rng: &mut SmallRng) -> [usize; 2] {
    let mut used = |size: usize| loop {
        let at = rng.random_range(0..bytes.len() / size) * size;
        if bytes[at..at + size].iter().any(|byte| *byte != 0) {
            break at;
        }
    };
    let (at, other) = (used([8, 8, 8, LINE, PAGE, LINE][kind]), used(LINE));
    match kind {
        0 => bytes[at + rng.random_range(0..8)] ^= 1 << rng.random_range(0..8),
        1 => bytes[at + rng.random_range(0..8)] ^= rng.random_range(1..=255),
        2 => bytes[at..at + 8].copy_from_slice(&rng.random::<u64>().to_le_bytes()),
        3 => bytes[at..at + LINE].fill(0),
        4 => bytes[at..at + PAGE].fill(0),
        _ => (0..LINE).for_each(|byte| bytes.swap(at + byte, other + byte)),
    }
    [at, other]
}

fn open(path: &Path) -> Result<everleaf::Store> {
    Options::new().create(false).medium(MediumChoice::Dax).open(path)
}

/// The content of the tree, if nothing tells of damage. Then writes to it.
fn content(path: &Path, options: TreeOptions) -> Result<Option<Entries>> {
    let store = open(path)?;
    let tree = store.tree_with("t", options)?;
    if !tree.check()?.is_empty() {
        return Ok(None);
    }
    let found: Entries =
        tree.iter().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect::<Result<_>>()?;
    for (key, value) in found.iter().step_by(7) {
        tree.remove(key)?;
        tree.put(key, value)?;
    }
    Ok(Some(found))
}

/// Every entry is among those that were there, or it is said that something is missing.
fn expect_salvage(path: &Path, sound: &Entries, what: &str) {
    let Ok(store) = open(path) else { return };
    let mut found = Vec::new();
    let left_out = store.salvage("t", |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        found.len() < 10 * sound.len()
    });
    if let Ok(left_out) = left_out {
        let is_all = sound.iter().all(|entry| found.contains(entry));
        assert!(is_all || !left_out.is_empty(), "{what}: {} salvaged, nothing left out", found.len());
        assert!(found.iter().all(|entry| sound.contains(entry)), "{what}: a salvaged entry that was not there");
    }
}

#[test]
fn no_damage_of_cawbt_is_silent() {
    let (mut noticed, mut harmless) = ([0; KINDS.len()], [0; KINDS.len()]);
    for case in 0..8_u64 {
        let codec = [Codec::Record, Codec::Word][case as usize & 1];
        let (is_twin, is_closed) = (case & 2 != 0, case & 4 != 0);
        let options = TreeOptions { engine: Engine::CAWBT, codec, ..TreeOptions::RECORDS };
        let (folder, mut sound) = (folder(), Entries::new());
        let (path, copy) = (folder.path().join("a.pool"), folder.path().join("b.pool"));
        let form = if is_twin { LineStore::Twin } else { LineStore::Movdir64b };
        let Ok(store) = Options::new().medium(MediumChoice::Dax).line_store(form).open(&path) else { continue };
        let tree = store.tree_with("t", options).unwrap();
        for number in 0..400_u64 {
            let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            tree.put(key, number.to_be_bytes()).unwrap();
            if number % 3 == 0 {
                tree.remove(key).unwrap();
            } else {
                sound.push((key.to_vec(), number.to_be_bytes().to_vec()));
            }
        }
        sound.sort();
        drop(tree);
        if is_closed {
            store.close().unwrap();
        }
        let whole = fs::read(&path).unwrap();
        for round in 0..ROUNDS {
            let seed = 1000 * case + round;
            let (mut bytes, mut rng) = (whole.clone(), SmallRng::seed_from_u64(seed));
            let kind = (round % KINDS.len() as u64) as usize;
            let at = damage(&mut bytes, kind, &mut rng);
            let what = format!("{codec:?}, twin: {is_twin}, closed: {is_closed}, seed {seed}: {} at {at:x?}", KINDS[kind]);
            fs::write(&copy, &bytes).unwrap();
            expect_salvage(&copy, &sound, &what);
            fs::write(&copy, &bytes).unwrap();
            match content(&copy, options) {
                Ok(Some(found)) => {
                    assert!(found == sound, "{what}: {} entries of {}", found.len(), sound.len());
                    harmless[kind] += 1;
                }
                _ => noticed[kind] += 1,
            }
        }
    }
    for ((kind, noticed), harmless) in KINDS.into_iter().zip(noticed).zip(harmless) {
        println!("{kind}: {noticed} noticed, {harmless} harmless, 0 silent");
    }
    assert!(noticed.iter().all(|count| *count > 0));
}
