//! Damaged trees: which entries can still be read and written, and whether the damage is reported.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use everleaf::{
    CodecKind, Engine, LineStore, MediumChoice, Options, Part, Result, Store, TreeOptions,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use crate::common::{flipped, folder, opened};

/// A pool that was closed.
struct ClosedPool {
    folder: TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
}

/// A pool with one tree of records, each of which has its whole key.
fn pool_of(engine: Engine, key: impl Fn(u64) -> String) -> ClosedPool {
    let folder = folder();
    let path = folder.path().join("a.pool");
    let store = Options::new().open(&path).unwrap();
    let tree = store
        .tree_with(
            "t",
            TreeOptions {
                engine,
                ..TreeOptions::RECORDS
            },
        )
        .unwrap();
    (0..200).for_each(|number| tree.put(key(number), format!("value {number}")).unwrap());
    drop(tree);
    store.close().unwrap();
    let bytes = fs::read(&path).unwrap();
    ClosedPool {
        folder,
        path,
        bytes,
    }
}

/// The bytes with lengths that cannot be in the record that has this key; `None` if more than one
/// has it.
fn with_damaged_record(whole: &[u8], key: &str) -> Option<Vec<u8>> {
    let mut places = whole
        .windows(key.len())
        .enumerate()
        .filter(|(_, window)| *window == key.as_bytes());
    let (at, _) = places.next()?;
    if places.next().is_some() {
        return None;
    }
    let mut bytes = whole.to_vec();
    bytes[at - 8..at - 3].fill(0xff);
    Some(bytes)
}

/// A range of bztree once came to the entries before the damage again and again, in descending
/// order, and never behind it.
#[test]
fn a_range_of_bztree_leaves_out_what_is_damaged_and_nothing_else() -> Result<()> {
    let key = |number| format!("key {number:03}\0");
    let ClosedPool {
        folder: _folder,
        path,
        bytes: whole,
    } = pool_of(Engine::BZTREE, key);
    for damaged in [0, 50, 150, 199] {
        fs::write(&path, with_damaged_record(&whole, &key(damaged)).unwrap()).unwrap();
        let store = opened(&path)?;
        let tree = store.open_tree("t")?;
        let expected: Vec<String> = (0..200)
            .filter(|number| *number != damaged)
            .map(key)
            .collect();
        for is_forward in [true, false] {
            let mut range = tree.iter();
            let mut found = Vec::new();
            let mut errors = 0;
            while found.len() + errors < 1000 {
                let next = if is_forward {
                    range.next_entry()
                } else {
                    range.next_entry_back()
                };
                match next {
                    Ok(None) => break,
                    Ok(Some((key, _))) => found.push(String::from_utf8(key.to_vec()).unwrap()),
                    Err(error) => {
                        assert!(error.is_corrupt(), "{error}");
                        errors += 1;
                        range.skip_damage();
                    }
                }
            }
            if !is_forward {
                found.reverse();
            }
            assert_eq!(
                (errors, &found),
                (1, &expected),
                "{damaged}, forward: {is_forward}"
            );
        }
        // The damage affects only reads of keys with the same beginning.
        let behind = tree.range(key(damaged + 1)..).collect::<Result<Vec<_>>>()?;
        assert_eq!(behind.len() as u64, 199 - damaged);
        if let Some(last) = damaged.checked_sub(1) {
            assert_eq!(
                tree.range(..=key(last)).collect::<Result<Vec<_>>>()?.len() as u64,
                damaged
            );
        }
    }
    Ok(())
}

/// An operation that found damage after it had frozen a leaf once left the leaf frozen, and no
/// thread could write to it again.
#[test]
fn a_damaged_record_of_bztree_keeps_nobody_from_the_others_in_its_leaf() -> Result<()> {
    let key = |number| format!("a prefix that all share {number:03}");
    let ClosedPool {
        folder: _folder,
        path,
        bytes: whole,
    } = pool_of(Engine::BZTREE, key);
    let mut tried = 0;
    for damaged in (0..200).step_by(23) {
        // The key is not one that separates leaves, which would be there twice.
        let Some(bytes) = with_damaged_record(&whole, &key(damaged)) else {
            continue;
        };
        tried += 1;
        fs::write(&path, bytes).unwrap();
        let store = opened(&path)?;
        let tree = store.open_tree("t")?;
        // A key with the same fingerprint in the same leaf differs only in the whole key, which
        // cannot be read.
        let is_hidden = |number: u64| tree.get(key(number)).is_err();
        let mut hidden = 0;
        for put in [true, false] {
            for number in (0..200).filter(|number| *number != damaged) {
                if is_hidden(number) {
                    hidden += 1;
                    continue;
                }
                let key = key(number);
                let written = if put {
                    tree.put(key, "another")
                } else {
                    tree.remove(key).map(drop)
                };
                written.unwrap_or_else(|error| panic!("{damaged}, {number}, put: {put}: {error}"));
            }
        }
        assert!(is_hidden(damaged) && hidden < 10, "{damaged}: {hidden}");
    }
    assert!(tried > 4, "{tried} keys");
    Ok(())
}

/// A range of rntree or masstree ends at the damage, and not before.
#[test]
fn what_lies_before_damage_and_behind_it_is_salvaged_from_a_tree_that_opens() -> Result<()> {
    let key = |number| format!("a prefix that all share {number:03}");
    // An open of cawbt reads all records.
    for engine in Engine::ALL
        .iter()
        .copied()
        .filter(|engine| *engine != Engine::CAWBT)
    {
        let ClosedPool {
            folder: _folder,
            path,
            bytes: whole,
        } = pool_of(engine, key);
        let mut bytes = whole.clone();
        // In a record of masstree the lengths come first, then the value, then the key.
        let value = b"value 120\0";
        let at = whole
            .windows(value.len())
            .position(|window| window == value)
            .unwrap();
        match engine.name() {
            "masstree" => bytes[at - 8..at].fill(0xff),
            _ => bytes = with_damaged_record(&whole, &key(120)).unwrap(),
        }
        fs::write(&path, bytes).unwrap();
        let store = opened(&path)?;
        let tree = store.open_tree("t")?;
        let before = tree.iter().take_while(Result::is_ok).count();
        assert!(
            before == 120 || engine == Engine::BZTREE,
            "{engine:?}: {before}"
        );
        let mut found = Vec::new();
        let left_out = store.salvage("t", |key, _| {
            found.push(String::from_utf8(key.to_vec()).unwrap());
            true
        })?;
        let expected: Vec<String> = (0..200).filter(|number| *number != 120).map(key).collect();
        assert_eq!(found, expected, "{engine:?}");
        assert_eq!(left_out.len(), 1, "{engine:?}: {left_out:?}");
        assert_eq!(left_out[0].part, Part::Entry, "{engine:?}: {left_out:?}");
        let mut visits = 0;
        store.salvage("t", |_, _| {
            visits += 1;
            visits < 3
        })?;
        assert_eq!(visits, 3, "{engine:?}");
        // The salvage holds no lock while it calls this. No thread has used some of these nodes
        // since the open.
        if engine == Engine::MASSTREE {
            store.salvage("t", |_, _| {
                store.sync().unwrap();
                tree.put("another", "value").unwrap();
                assert_eq!(tree.get("another").unwrap().as_deref(), Some(&b"value"[..]));
                store.sync().unwrap();
                false
            })?;
        }
    }
    Ok(())
}

#[test]
fn what_lies_before_damage_and_behind_it_is_salvaged_from_a_tree_that_does_not_open() -> Result<()>
{
    let key = |number| format!("a prefix that all share {number:03}");
    let ClosedPool {
        folder: _folder,
        path,
        bytes: whole,
    } = pool_of(Engine::CAWBT, key);
    let damaged = with_damaged_record(&whole, &key(120)).unwrap();
    let expected: Vec<String> = (0..200).filter(|number| *number != 120).map(key).collect();
    assert_eq!(salvaged(&path, &damaged)?, (expected, 1));
    let error = opened(&path)?.open_tree("t").unwrap_err();
    assert!(error.is_corrupt(), "{error}");
    Ok(())
}

/// The entries that are salvaged from the only tree of a pool with these bytes, and the parts that
/// are reported as missing.
fn salvaged(path: &Path, bytes: &[u8]) -> Result<(Vec<String>, usize)> {
    fs::write(path, bytes).unwrap();
    let mut found = Vec::new();
    let left_out = opened(path)?.salvage("t", |key, _| {
        found.push(String::from_utf8_lossy(key).into_owned());
        true
    })?;
    Ok((found, left_out.len()))
}

/// Because of a slice that was too high, all entries behind it were once left out; and a range
/// skipped those in its node without an error.
#[test]
fn a_damaged_slice_of_masstree_costs_its_own_entry() -> Result<()> {
    // Keys of one slice, where only the order shows which one is damaged; and longer keys, which
    // their records contain.
    for (rest, masks) in [("", &[0x80, 0x40][..]), (" goes on", &[0x80, 0x08])] {
        let key = |number: u64| format!("key {number:03}\0{rest}");
        let ClosedPool {
            folder: _folder,
            path,
            bytes: whole,
        } = pool_of(Engine::MASSTREE, key);
        let mut tried = 0;
        // Nothing records where the entries of the first node begin.
        for number in (14..199).step_by(3) {
            let slice =
                u64::from_be_bytes(key(number).as_bytes()[..8].try_into().unwrap()).to_le_bytes();
            let mut places = whole
                .windows(8)
                .enumerate()
                .filter(|(_, window)| *window == slice);
            // Keys that separate nodes, and entries that have moved to another node, have copies
            // elsewhere.
            let Some((at, _)) = places.next() else {
                continue;
            };
            if places.next().is_some() {
                continue;
            }
            let expected: Vec<String> =
                (0..200).filter(|other| *other != number).map(key).collect();
            for mask in masks {
                let bytes = flipped(&whole, &[at + 7], *mask);
                assert_eq!(
                    salvaged(&path, &bytes)?,
                    (expected.clone(), 1),
                    "{number}, {mask:x}"
                );
                let tree = opened(&path)?.open_tree("t")?;
                let (read, failed): (Vec<_>, Vec<_>) = tree.iter().partition(Result::is_ok);
                assert!(
                    read.len() >= 199 || !failed.is_empty(),
                    "{number}, {mask:x}: {} read",
                    read.len()
                );
                assert!(!tree.check()?.is_empty(), "{number}, {mask:x}");
            }
            tried += 1;
        }
        assert!(tried > 15, "{tried}");
    }
    Ok(())
}

/// A wrong separator once cost all entries on one side of it, because it was trusted.
#[test]
fn one_damaged_word_of_masstree_costs_no_more_than_an_entry_or_two() -> Result<()> {
    let key = |number: u64| format!("key {number:03}\0");
    let ClosedPool {
        folder: _folder,
        path,
        bytes: whole,
    } = pool_of(Engine::MASSTREE, key);
    let keys: BTreeSet<String> = (0..200).map(key).collect();
    let mut tried = 0;
    for number in (0..200).step_by(7) {
        let slice = u64::from_be_bytes(key(number).as_bytes().try_into().unwrap()).to_le_bytes();
        let places = whole
            .windows(8)
            .enumerate()
            .filter(|(_, window)| *window == slice);
        for (at, _) in places {
            // The damage changes the last digit, then the first letter.
            for (byte, mask) in [(1, 1), (1, 2), (7, 0x80), (7, 0x40)] {
                let (found, missing) = salvaged(&path, &flipped(&whole, &[at + byte], mask))?;
                let what = format!("{number}, byte {byte} at {at}, {mask:x}: {missing} missing");
                assert!(found.is_sorted_by(|one, next| one < next), "{what}");
                let (own, others): (Vec<_>, Vec<_>) =
                    found.iter().partition(|key| keys.contains(*key));
                assert!(
                    own.len() >= 198 && others.len() <= 1,
                    "{what}: {} found, and {others:?}",
                    own.len()
                );
                assert!(
                    own.len() == 200 || missing > 0 || others.len() == 1,
                    "{what}"
                );
                tried += 1;
            }
        }
    }
    assert!(tried > 100, "{tried}");
    Ok(())
}

/// Whether a word says, as the permutation of a border node does, which of 14 slots come in which
/// order.
fn is_permutation(word: u64) -> bool {
    let seen = (1..15).fold(0_u32, |seen, position| {
        seen | 1 << (word >> (4 * position) & 15)
    });
    (2..15).contains(&(word & 15)) && seen == (1 << 14) - 1
}

/// The damage was once not reported.
#[test]
fn entries_that_a_node_of_masstree_has_lost_count_of_are_said_to_be_missing() -> Result<()> {
    let ClosedPool {
        folder: _folder,
        path,
        bytes: whole,
    } = pool_of(Engine::MASSTREE, |number| format!("key {number:03}"));
    let mut lost = 0;
    for at in (0..whole.len()).step_by(8) {
        let word = u64::from_le_bytes(whole[at..][..8].try_into().unwrap());
        if is_permutation(word) {
            let mut bytes = whole.clone();
            bytes[at..at + 8].copy_from_slice(&(word - 1).to_le_bytes());
            let (found, missing) = salvaged(&path, &bytes)?;
            assert_eq!(
                found.len() < 200,
                missing > 0,
                "{at}: {} found",
                found.len()
            );
            lost += usize::from(missing > 0);
        }
    }
    assert!(lost > 10, "{lost}");
    Ok(())
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Damages to each pool of twin lines. (`cargo xtask damage` is about lines with one copy.)
const ROUNDS: u64 = 120;
const LINE: usize = 64;
const PAGE: usize = 4096;
const KINDS: [&str; 6] = [
    "a bit",
    "a byte",
    "a word",
    "a line of zeros",
    "a page of zeros",
    "two lines swapped",
];

/// Damages bytes that are in use. Returns where.
fn damage(bytes: &mut [u8], kind: usize, rng: &mut SmallRng) -> [usize; 2] {
    let mut used = |size: usize| loop {
        let at = rng.random_range(0..bytes.len() / size) * size;
        if bytes[at..at + size].iter().any(|byte| *byte != 0) {
            break at;
        }
    };
    let at = used([8, 8, 8, LINE, PAGE, LINE][kind]);
    let other = used(LINE);
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

fn open_emulated(path: &Path) -> Result<Store> {
    Options::new()
        .create(false)
        .medium(MediumChoice::Dax)
        .open(path)
}

/// Returns the content of the tree if no operation reports damage. Then writes to it.
fn content(path: &Path) -> Result<Option<Entries>> {
    let store = open_emulated(path)?;
    let tree = store.open_tree("t")?;
    if !tree.check()?.is_empty() {
        return Ok(None);
    }
    let found: Entries = tree
        .iter()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
        .collect::<Result<_>>()?;
    for (key, value) in found.iter().step_by(7) {
        tree.remove(key)?;
        tree.put(key, value)?;
    }
    Ok(Some(found))
}

/// Checks that the salvaged entries are all entries, or that missing parts are reported.
fn is_salvage_honest(path: &Path, sound: &Entries) -> bool {
    let Ok(store) = open_emulated(path) else {
        return true;
    };
    let mut found = Entries::new();
    let left_out = store.salvage("t", |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        found.len() < 10 * sound.len()
    });
    left_out.is_err() || left_out.is_ok_and(|left_out| !left_out.is_empty()) || found == *sound
}

/// How many entries are in only one of the two.
fn differences(one: &Entries, other: &Entries) -> usize {
    let missing =
        |from: &Entries, of: &Entries| from.iter().filter(|entry| !of.contains(entry)).count();
    missing(one, other) + missing(other, one)
}

#[test]
fn no_damage_of_twin_lines_of_cawbt_is_silent() {
    let [mut noticed, mut harmless, mut torn] = [[0; KINDS.len()]; 3];
    for case in 0..4_u64 {
        let codec = [CodecKind::Record, CodecKind::Word][case as usize & 1];
        let is_closed = case & 2 != 0;
        let options = TreeOptions {
            engine: Engine::CAWBT,
            codec,
            ..TreeOptions::RECORDS
        };
        let folder = folder();
        let mut sound = Entries::new();
        let path = folder.path().join("a.pool");
        let copy = folder.path().join("b.pool");
        let made = Options::new()
            .medium(MediumChoice::Dax)
            .line_store(LineStore::Twin);
        let store = made.open(&path).unwrap();
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
            let mut bytes = whole.clone();
            let mut rng = SmallRng::seed_from_u64(seed);
            let kind = (round % KINDS.len() as u64) as usize;
            let at = damage(&mut bytes, kind, &mut rng);
            let what = format!(
                "{codec:?}, closed: {is_closed}, seed {seed}: {} at {at:x?}",
                KINDS[kind]
            );
            fs::write(&copy, &bytes).unwrap();
            // After a crash a damaged copy may be one that the crash tore: the node is as it was
            // before its last change.
            assert!(
                is_salvage_honest(&copy, &sound) || !is_closed,
                "{what}: a salvage"
            );
            fs::write(&copy, &bytes).unwrap();
            match content(&copy) {
                Ok(Some(found)) if found == sound => harmless[kind] += 1,
                Ok(Some(found)) => {
                    let changes = differences(&found, &sound);
                    assert!(!is_closed && changes <= 4, "{what}: {changes} changes");
                    torn[kind] += 1;
                }
                _ => noticed[kind] += 1,
            }
        }
    }
    for (kind, name) in KINDS.into_iter().enumerate() {
        let [noticed, harmless, torn] = [noticed[kind], harmless[kind], torn[kind]];
        println!("{name}: {noticed} noticed, {harmless} harmless, {torn} taken for a torn store");
    }
    assert!(noticed.iter().all(|count| *count > 0));
}

/// Entries of the pools below: many leaves, in some slabs.
const MANY: u64 = 20_000;

fn key_of(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// A pool that was closed cleanly, of which two thirds of the entries were removed.
fn thinned(engine: Engine) -> ClosedPool {
    let folder = folder();
    let path = folder.path().join("a.pool");
    let store = Options::new().open(&path).unwrap();
    let tree = store
        .tree_with(
            "t",
            TreeOptions {
                engine,
                ..TreeOptions::RECORDS
            },
        )
        .unwrap();
    (0..3 * MANY).for_each(|number| tree.put(key_of(number), number.to_be_bytes()).unwrap());
    (MANY..3 * MANY).for_each(|number| assert!(tree.remove(key_of(number)).unwrap()));
    drop(tree);
    store.close().unwrap();
    let bytes = fs::read(&path).unwrap();
    ClosedPool {
        folder,
        path,
        bytes,
    }
}

/// A line that holds only the name, in both copies: all pointers to the tree are in other lines.
#[test]
fn a_tree_whose_name_is_lost_is_salvaged_under_the_number_of_its_slot() -> Result<()> {
    for engine in Engine::ALL.iter().copied() {
        let ClosedPool {
            folder: _folder,
            path,
            mut bytes,
        } = pool_of(engine, |number| format!("key {number:03}"));
        for table in [0x3000, 0xd800] {
            bytes[table + 0x40..table + 0x80].fill(0xa5);
        }
        fs::write(&path, bytes).unwrap();
        let store = opened(&path)?;
        let trees = store.trees()?;
        assert_eq!(trees[0].name, "damaged-slot-0", "{engine:?}");
        assert_eq!(trees[0].kind.map(|kind| kind.engine), Some(engine));
        assert!(store.open_tree("t").unwrap_err().is_corrupt() && !store.check()?.is_empty());
        let mut found = 0;
        store.salvage("damaged-slot-0", |_, value| {
            assert!(value.starts_with(b"value "));
            found += 1;
            true
        })?;
        assert_eq!(found, 200, "{engine:?}");
    }
    Ok(())
}

/// The number of entries that are read from a pool with a missing part, and the parts that are
/// reported.
fn saved_of_rest(path: &Path) -> Result<(u64, Vec<String>)> {
    let store = Options::new().open_damaged(path)?;
    let mut saved = 0;
    store.salvage("t", |key, value| {
        assert_eq!(key, key_of(u64::from_be_bytes(value.try_into().unwrap())));
        saved += 1;
        true
    })?;
    Ok((
        saved,
        store
            .recovery()
            .damaged
            .iter()
            .map(|damage| damage.what.clone())
            .collect(),
    ))
}

#[test]
fn what_is_left_of_a_file_that_was_cut_off_is_salvaged() -> Result<()> {
    for engine in Engine::ALL.iter().copied() {
        let ClosedPool {
            folder: _folder,
            path,
            bytes: whole,
        } = thinned(engine);
        assert_eq!(saved_of_rest(&path)?, (MANY, Vec::new()), "{engine:?}");
        fs::write(&path, &whole[..whole.len() / 2 + 77]).unwrap();
        assert!(Options::new().read_only(true).open(&path).is_err());
        let (saved, said) = saved_of_rest(&path)?;
        assert!(saved > MANY / 10 && saved < MANY, "{engine:?}: {saved}");
        assert!(
            said.iter().any(|what| what.contains("cut off")),
            "{engine:?}: {said:?}"
        );
        fs::write(&path, &whole[..1000]).unwrap();
        assert!(Options::new().open_damaged(&path).is_err());
    }
    Ok(())
}

/// A pool that was in use, beside its log; and the number of entries in it.
struct UsedPool {
    name: &'static str,
    pool: Vec<u8>,
    log: Vec<u8>,
    /// Entries that the pool and its log have together.
    entries: u64,
    /// Entries that the pool's file certainly has without its log.
    checkpointed: u64,
}

/// Puts entries in a tree of an engine.
fn put_all(store: &Store, engine: Engine, numbers: std::ops::Range<u64>) -> Result<()> {
    let options = TreeOptions {
        engine,
        ..TreeOptions::RECORDS
    };
    let tree = store.tree_with("t", options)?;
    for number in numbers {
        tree.put(key_of(number), number.to_be_bytes())?;
    }
    store.sync()
}

/// Pools of different ages, each as a crash would leave it.
fn used_pools(engine: Engine) -> Result<Vec<UsedPool>> {
    let folder = folder();
    let path = folder.path().join("a.pool");
    let log_path = everleaf::log_path(&path);
    let open = |log_bytes: u64| {
        let options = Options::new().medium(MediumChoice::File);
        options.log_bytes(log_bytes).open(&path)
    };
    // The log is read first. If a checkpoint ends in between, the pool's file is newer, and is
    // right all the same once the log is replayed.
    let taken = |name, entries, checkpointed| {
        let log = fs::read(&log_path).unwrap();
        let pool = fs::read(&path).unwrap();
        UsedPool {
            name,
            pool,
            log,
            entries,
            checkpointed,
        }
    };
    // No checkpoint runs in a log of this size.
    let large = 2 << 20;
    let mut pools = Vec::new();
    let store = open(large)?;
    put_all(&store, engine, 0..500)?;
    pools.push(taken("freshly made", 500, 0));
    put_all(&store, engine, 500..1000)?;
    store.close()?;
    let store = open(large)?;
    put_all(&store, engine, 1000..1500)?;
    pools.push(taken("closed and opened", 1500, 1000));
    store.close()?;
    let store = open(64 << 10)?;
    put_all(&store, engine, 1500..4000)?;
    pools.push(taken("long in use", 4000, 0));
    store.close()?;
    let copy = folder.path().join("b.pool");
    let crashed = pools.iter().find(|pool| pool.entries == 1500).unwrap();
    fs::write(&copy, &crashed.pool).unwrap();
    fs::write(everleaf::log_path(&copy), &crashed.log).unwrap();
    let options = Options::new().medium(MediumChoice::File);
    let store = options.log_bytes(large).open(&copy)?;
    put_all(&store, engine, 1500..2000)?;
    let log = fs::read(everleaf::log_path(&copy)).unwrap();
    pools.push(UsedPool {
        name: "crashed and opened",
        pool: fs::read(&copy).unwrap(),
        log,
        entries: 2000,
        checkpointed: 1000,
    });
    Ok(pools)
}

/// The entries that are read from the damaged pool at `path`, and what is said to be missing.
fn saved_of_damaged(path: &Path) -> Result<(u64, Vec<String>)> {
    let store = Options::new().open_damaged(path)?;
    if store.trees()?.is_empty() {
        let damaged = &store.recovery().damaged;
        return Ok((
            0,
            damaged.iter().map(|damage| damage.what.clone()).collect(),
        ));
    }
    saved_of_rest(path)
}

/// Puts a pool and its log at a path, and reads what is left there.
fn saved_of_files(path: &Path, pool: &[u8], log: &[u8]) -> Result<(u64, Vec<String>)> {
    fs::write(path, pool).unwrap();
    fs::write(everleaf::log_path(path), log).unwrap();
    saved_of_damaged(path)
}

/// Damages a log. The text names the damage.
type DamageLog = (&'static str, fn(&mut Vec<u8>));

/// Such a salvage once read nothing of a pool that was never checkpointed, and nothing of a log whose
/// header was damaged.
#[test]
fn a_pool_with_a_damaged_log_is_salvaged_at_any_age() -> Result<()> {
    // Each is done to all of the log, or to its header alone.
    let headers: [DamageLog; 3] = [
        ("zeros in both copies of the header", |log| {
            log[..0x2000].fill(0);
        }),
        ("256 bytes of both copies of the header", |log| {
            for copy in [0, 0x1000] {
                log[copy..copy + 256]
                    .iter_mut()
                    .for_each(|byte| *byte ^= 0xa5);
            }
        }),
        ("garbage in both copies of the header", |log| {
            log[..0x2000].fill(0xa5);
        }),
    ];
    let others: [DamageLog; 4] = [
        ("no log", Vec::clear),
        ("another file", |log| *log = b"not a log".to_vec()),
        ("half of the log", |log| log.truncate(log.len() / 2)),
        ("a damaged frame", |log| log[0x3000 + 5000] ^= 0x10),
    ];
    for engine in Engine::ALL.iter().copied() {
        let folder = folder();
        let path = folder.path().join("a.pool");
        let log_path = everleaf::log_path(&path);
        for used in used_pools(engine)? {
            for (number, (what_is_damaged, damage)) in headers.iter().chain(&others).enumerate() {
                let what = format!("{engine:?}, {}, {what_is_damaged}", used.name);
                let mut log = used.log.clone();
                damage(&mut log);
                fs::write(&path, &used.pool).unwrap();
                fs::write(&log_path, &log).unwrap();
                if log.is_empty() {
                    fs::remove_file(&log_path).unwrap();
                }
                let opened = Options::new().read_only(true).open(&path);
                let (saved, said) = saved_of_damaged(&path)?;
                if let Err(error) = opened {
                    let error = error.to_string();
                    let has_way_out = error.contains("salvage") || error.contains("move it away");
                    assert!(has_way_out, "{what}: {error}");
                    assert!(!said.is_empty(), "{what}: {saved} saved");
                } else if *what_is_damaged != "a damaged frame" {
                    // The damage costs nothing. A damaged frame may be taken for a torn tail, if no
                    // later one says that it was durable.
                    assert_eq!((saved, &said[..]), (used.entries, &[][..]), "{what}");
                }
                if number < headers.len() {
                    assert_eq!(saved, used.entries, "{what}: {said:?}");
                } else {
                    assert!(saved >= used.checkpointed, "{what}: {saved}: {said:?}");
                }
                // Nothing was written.
                assert!(fs::read(&path).unwrap() == used.pool, "{what}");
            }
        }
    }
    Ok(())
}

/// The newer copy of the header alone leads to the frames behind the last checkpoint.
#[test]
fn a_log_whose_newer_header_is_damaged_is_read_without_it() -> Result<()> {
    let folder = folder();
    let path = folder.path().join("a.pool");
    for used in used_pools(Engine::RNTREE)? {
        for copy in [0, 0x1000] {
            let mut log = used.log.clone();
            log[copy + 20] ^= 0x10;
            let (saved, said) = saved_of_files(&path, &used.pool, &log)?;
            let what = format!("{}, the copy at {copy:#x}: {said:?}", used.name);
            assert_eq!(saved, used.entries, "{what}");
        }
    }
    Ok(())
}

/// The line that names the log lies in one line of the pool's file.
#[test]
fn a_log_that_the_pool_does_not_name_any_more_is_read() -> Result<()> {
    let folder = folder();
    let path = folder.path().join("a.pool");
    for used in used_pools(Engine::RNTREE)? {
        let mut bytes = used.pool.clone();
        bytes[0x2040..0x2080].fill(0xa5);
        let (saved, said) = saved_of_files(&path, &bytes, &used.log)?;
        assert_eq!(saved, used.entries, "{}: {said:?}", used.name);
        assert_eq!(said.len(), 1, "{}: {said:?}", used.name);
    }
    Ok(())
}

/// The log of another pool is not replayed.
#[test]
fn a_foreign_log_is_left_out_of_a_salvage() -> Result<()> {
    let folder = folder();
    let path = folder.path().join("a.pool");
    let pools = used_pools(Engine::RNTREE)?;
    fs::write(&path, &pools[1].pool).unwrap();
    let other = used_pools(Engine::RNTREE)?;
    fs::write(everleaf::log_path(&path), &other[1].log).unwrap();
    let (saved, said) = saved_of_damaged(&path)?;
    assert_eq!(saved, 1000, "{said:?}");
    assert!(said[0].contains("left out"), "{said:?}");
    Ok(())
}

/// The 256 bytes at the place of the only header would cost everything.
#[test]
fn damaged_headers_cost_no_entry() -> Result<()> {
    for engine in Engine::ALL.iter().copied() {
        let ClosedPool {
            folder: _folder,
            path,
            bytes: whole,
        } = thinned(engine);
        // The last one is the state line, and the line that names the log.
        for copies in [&[0][..], &[0x1000], &[0, 0x1000], &[0x2000]] {
            let mut bytes = whole.clone();
            for copy in copies {
                bytes[*copy..copy + 256]
                    .iter_mut()
                    .for_each(|byte| *byte ^= 0xa5);
            }
            fs::write(&path, &bytes).unwrap();
            let is_lost = copies.len() == 2 || copies[0] == 0x2000;
            let opened = Options::new().read_only(true).open(&path);
            assert_eq!(opened.is_err(), is_lost, "{engine:?}, {copies:x?}");
            drop(opened);
            let (saved, said) = saved_of_rest(&path)?;
            assert_eq!(saved, MANY, "{engine:?}, {copies:x?}: {said:?}");
            assert_eq!(said.len(), usize::from(is_lost), "{said:?}");
        }
    }
    Ok(())
}

/// A check once called such a pool sound.
#[test]
fn a_lost_copy_is_reported_and_mended() -> Result<()> {
    let ClosedPool {
        folder: _folder,
        path,
        bytes: whole,
    } = pool_of(Engine::RNTREE, |number| format!("key {number:03}"));
    for at in [0, 0x1000, 0x3000, 0xd800] {
        let mut bytes = whole.clone();
        bytes[at..at + 256]
            .iter_mut()
            .for_each(|byte| *byte ^= 0xa5);
        fs::write(&path, &bytes).unwrap();
        let read = || Options::new().read_only(true).open(&path);
        let store = read()?;
        assert!(store.check()?.is_empty(), "{at:#x}");
        let lost = store.lost_copies()?;
        let of_copy = |copy: &everleaf::LostCopy| (at..at + 512).contains(&(copy.offset as usize));
        assert!(
            !lost.is_empty() && lost.iter().all(of_copy),
            "{at:#x}: {lost:?}"
        );
        assert!(matches!(
            store.mend_copies().unwrap_err().kind(),
            everleaf::ErrorKind::ReadOnly
        ));
        drop(store);
        assert!(fs::read(&path).unwrap() == bytes, "a check writes nothing");
        let store = opened(&path)?;
        assert_eq!(store.mend_copies()?, lost, "{at:#x}");
        assert!(store.lost_copies()?.is_empty());
        store.close()?;
        // The rest of a header's page is not in use.
        let used = if at < 0x2000 { 64 } else { 256 };
        assert!(fs::read(&path).unwrap()[at..at + used] == whole[at..at + used]);
        let store = read()?;
        assert!(store.lost_copies()?.is_empty() && store.check()?.is_empty());
        assert_eq!(store.open_tree("t")?.len()?, 200);
    }
    Ok(())
}

/// A tree of masstree rests on words that are kept twice. The open of the tree mends some of them, so
/// that no check found the damage any more.
#[test]
fn a_lost_word_of_masstree_is_reported_and_mended() -> Result<()> {
    let ClosedPool {
        folder: _folder,
        path,
        bytes: whole,
    } = pool_of(Engine::MASSTREE, |number| format!("key {number:03}"));
    // The first root word of the tree in slot 0 is the offset of its anchor.
    let root = 0x3000 + 8 * 18;
    let anchor = u64::from_le_bytes(whole[root..root + 8].try_into().unwrap());
    let anchor = (anchor & ((1 << 48) - 1)) as usize;
    // The running epoch, the one that was dropped, and a failed one.
    let epochs = [0x2200, 0x2800].map(|copy| [copy, copy + 16, copy + 64]);
    // The number of shards, the epochs of recovery, the first segment of a log.
    let words = [48, 64, 80, 128].map(|word| [anchor + word, anchor + word + 8]);
    for at in epochs.iter().flatten().chain(words.iter().flatten()) {
        let mut bytes = whole.clone();
        bytes[*at + 7] ^= 0xa5;
        bytes[*at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let read = || Options::new().read_only(true).open(&path);
        let store = read()?;
        assert!(store.check()?.is_empty(), "{at:#x}");
        let lost = store.lost_copies()?;
        let offsets: Vec<u64> = lost.iter().map(|copy| copy.offset).collect();
        let expected = match *at {
            0x2200..0x2800 => 0x2200,
            0x2800..0x3000 => 0x2800,
            word => word as u64,
        };
        assert_eq!(offsets, [expected], "{at:#x}: {lost:?}");
        drop(store);
        assert!(fs::read(&path).unwrap() == bytes, "a check writes nothing");
        let store = opened(&path)?;
        assert_eq!(store.open_tree("t")?.len()?, 200);
        assert_eq!(store.mend_copies()?, lost, "{at:#x}");
        assert!(store.lost_copies()?.is_empty());
        store.close()?;
        let store = read()?;
        assert_eq!(store.lost_copies()?, [], "{at:#x}");
        assert_eq!(store.check()?, [], "{at:#x}");
        assert_eq!(store.open_tree("t")?.len()?, 200);
    }
    Ok(())
}

/// The keys that damage costs are named by their neighbours.
#[test]
fn lost_keys_lie_between_the_keys_that_a_salvage_names() -> Result<()> {
    let key = |number| format!("a prefix that all share {number:03}");
    for engine in Engine::ALL.iter().copied() {
        let ClosedPool {
            folder: _folder,
            path,
            bytes: whole,
        } = pool_of(engine, key);
        for damaged in [0, 77, 199] {
            let bytes = if engine == Engine::MASSTREE {
                let value = format!("value {damaged}");
                let mut bytes = whole.clone();
                let at = whole
                    .windows(value.len())
                    .position(|window| window == value.as_bytes())
                    .unwrap();
                bytes[at - 8..at].fill(0xff);
                bytes
            } else {
                match with_damaged_record(&whole, &key(damaged)) {
                    Some(bytes) => bytes,
                    // The key separates leaves.
                    None => continue,
                }
            };
            fs::write(&path, bytes).unwrap();
            let left_out = opened(&path)?.salvage("t", |_, _| true)?;
            let what = format!("{engine:?}, {damaged}: {left_out:?}");
            let entries: Vec<_> = left_out
                .iter()
                .filter(|left_out| left_out.part == Part::Entry)
                .collect();
            assert_eq!(entries.len(), 1, "{what}");
            let keys = &entries[0].keys;
            let lost = key(damaged);
            let is_above = keys
                .above
                .as_deref()
                .is_none_or(|above| above < lost.as_bytes());
            let is_below = keys
                .below
                .as_deref()
                .is_none_or(|below| below > lost.as_bytes());
            assert!(is_above && is_below, "{what}");
            assert_eq!(keys.above.is_some(), damaged != 0, "{what}");
            assert_eq!(keys.below.is_some(), damaged != 199, "{what}");
            // These engines keep the entries of a leaf in order.
            if matches!(engine.name(), "rntree" | "cawbt" | "masstree") && damaged == 77 {
                let neighbours = [&keys.above, &keys.below].map(|key| key.as_deref().unwrap());
                assert_eq!(
                    neighbours,
                    [key(76).as_bytes(), key(78).as_bytes()],
                    "{what}"
                );
            }
        }
    }
    Ok(())
}

/// `stat` once called such a tree sound.
#[test]
fn a_line_of_zeros_in_a_node_of_wbtree_is_met_by_stat() {
    let ClosedPool {
        folder: _folder,
        path,
        bytes: whole,
    } = pool_of(Engine::WBTREE, |number| {
        format!("a prefix that all share {number:03}")
    });
    let mut met = 0;
    for at in (LINE..whole.len()).step_by(LINE) {
        if whole[at..][..LINE].iter().all(|byte| *byte == 0) {
            continue;
        }
        let mut bytes = whole.clone();
        bytes[at..][..LINE].fill(0);
        fs::write(&path, &bytes).unwrap();
        let Ok(store) = opened(&path) else { continue };
        let Ok(tree) = store.open_tree("t") else {
            continue;
        };
        let counted = tree.len();
        met += usize::from(counted.is_err());
        if let Ok(counted) = counted {
            assert_eq!(counted, 200, "{at:#x}");
        }
    }
    assert!(met > 10, "{met}");
}

/// The second state of a slot counts if the first one is damaged. It must not bring back a tree
/// whose nodes were freed.
#[test]
fn a_dropped_tree_does_not_come_back_where_the_state_of_its_slot_is_damaged() -> Result<()> {
    let ClosedPool {
        folder: _folder,
        path,
        bytes: before,
    } = pool_of(Engine::RNTREE, |number| format!("key {number:03}"));
    let damage = |mut bytes: Vec<u8>| {
        bytes[0x3000] ^= 1;
        fs::write(&path, bytes).unwrap();
    };
    damage(before);
    assert_eq!(
        opened(&path)?.tree("t")?.len()?,
        200,
        "a tree that was not dropped stays"
    );
    let store = opened(&path)?;
    store.drop_tree("t")?;
    store.close()?;
    damage(fs::read(&path).unwrap());
    assert!(opened(&path)?.trees()?.is_empty());
    Ok(())
}
