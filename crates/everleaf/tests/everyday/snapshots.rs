//! Snapshots: the store as of one moment, whatever is written meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use everleaf::{
    Batch, Engine, Error, ErrorKind, MediumChoice, Options, Result, Snapshot, Store, Tree,
    TreeOptions, View,
};
use rand::rngs::SmallRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};

fn tree_of(store: &Store, engine: Engine) -> Result<Tree> {
    let kind = TreeOptions {
        engine,
        ..TreeOptions::RECORDS
    };
    store.tree_with(engine.name, kind)
}

/// Stores in memory, each with one tree.
fn each_engine(check: impl Fn(&Store, &Tree) -> Result<()>) -> Result<()> {
    for engine in Engine::ALL {
        let store = Store::in_memory()?;
        let tree = tree_of(&store, *engine)?;
        check(&store, &tree)?;
    }
    Ok(())
}

fn text(value: Option<everleaf::Value>) -> Option<String> {
    value.map(|value| String::from_utf8_lossy(&value).into_owned())
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn contents(view: &impl View, tree: &Tree) -> Result<Contents> {
    let mut found = Contents::new();
    for entry in view.iter(tree) {
        let (key, value) = entry?;
        found.insert(key.to_vec(), value.to_vec());
    }
    Ok(found)
}

#[test]
fn a_snapshot_keeps_what_was_there() -> Result<()> {
    each_engine(|store, tree| {
        tree.put("a", "1")?;
        tree.put("b", "1")?;
        let before = store.snapshot()?;
        tree.put("a", "2")?;
        tree.remove("b")?;
        tree.put("c", "2")?;
        let between = store.snapshot()?;
        tree.put("a", "3")?;
        tree.put("b", "3")?;
        tree.remove("c")?;

        assert_eq!(text(before.get(tree, "a")?).as_deref(), Some("1"));
        assert_eq!(text(before.get(tree, "b")?).as_deref(), Some("1"));
        assert_eq!(before.get(tree, "c")?, None);
        assert_eq!(text(between.get(tree, "a")?).as_deref(), Some("2"));
        assert!(!between.contains(tree, "b")?);
        assert_eq!(between.get_with(tree, "c", <[u8]>::len)?, Some(1));
        assert_eq!(text(tree.get("a")?).as_deref(), Some("3"));

        let many = before.get_many(tree, &["a", "b", "c"])?;
        let many: Vec<_> = many.into_iter().map(text).collect();
        assert_eq!(many, [Some("1".to_owned()), Some("1".to_owned()), None]);
        Ok(())
    })
}

/// Flips a bit of the only place in a file that has these bytes.
fn damage(path: &Path, bytes: &[u8]) {
    let content = fs::read(path).unwrap();
    let mut windows = content.windows(bytes.len());
    let at = windows.position(|window| window == bytes).unwrap();
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[bytes[0] ^ 4], at as u64).unwrap();
}

/// Keys with old values, and one without.
const KEYS: [&str; 4] = ["c", "b", "absent", "a"];

fn expect_old_values(view: &impl View, tree: &Tree) -> Result<()> {
    let many = view.get_many(tree, &KEYS)?;
    for (key, value) in KEYS.into_iter().zip(many) {
        assert_eq!(value, view.get(tree, key)?, "{key}");
        let old = (key != "absent").then(|| "an old value".to_owned());
        assert_eq!(text(value), old, "{key}");
    }
    Ok(())
}

/// The present record of a key is damaged, and a view has the value that the key had before. A read
/// of many keys once failed where a read of each of them did not.
#[test]
fn get_many_takes_the_old_value_of_a_key_whose_record_is_damaged() -> Result<()> {
    for engine in Engine::ALL {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pool");
        // The store sees what is written to the file.
        let store = Options::new().medium(MediumChoice::Dax).open(&path)?;
        let tree = tree_of(&store, *engine)?;
        for key in ["a", "b", "c"] {
            tree.put(key, "an old value")?;
        }
        let snapshot = store.snapshot()?;
        let transaction = store.begin()?;
        let value = "a value that nothing else in the pool has";
        tree.put("b", value)?;
        damage(&path, value.as_bytes());
        assert!(tree.get("b").unwrap_err().is_corrupt(), "{}", engine.name);
        expect_old_values(&snapshot, &tree)?;
        expect_old_values(&transaction, &tree)?;
        // A view that has the damaged record.
        let later = store.snapshot()?;
        let error = later.get_many(&tree, &KEYS).unwrap_err();
        assert!(error.is_corrupt(), "{}: {error}", engine.name);
    }
    Ok(())
}

#[test]
fn ranges_of_a_snapshot_in_both_directions() -> Result<()> {
    each_engine(|store, tree| {
        let key = |number: u32| format!("{number:04}");
        for number in (0..2000).step_by(2) {
            tree.put(key(number), "old")?;
        }
        let snapshot = store.snapshot()?;
        let mut forward = snapshot.iter(tree);
        let mut back = snapshot.range(tree, "0100"..="1900").rev();
        let mut expected_back: Vec<u32> = (100..=1900).step_by(2).collect();
        for number in (0..2000).step_by(2) {
            let (found, value) = forward.next().expect("there are more")?;
            assert_eq!(
                (&*found, &*value),
                (key(number).as_bytes(), b"old".as_slice())
            );
            // Ahead of both ends, and behind them.
            tree.remove(key((number + 500) % 2000))?;
            tree.put(key((number + 301) % 2000), "new")?;
            tree.put(key((number + 1000) % 2000), "new")?;
            if let Some(expected) = expected_back.pop() {
                let (found, _) = back.next().expect("there are more")?;
                assert_eq!(&*found, key(expected).as_bytes());
            }
        }
        assert!(forward.next().is_none());
        assert!(back.next().is_none());
        drop((forward, back));

        let mut range = snapshot.range(tree, "0100"..);
        range.seek("1001");
        assert_eq!(&*range.next().expect("there are more")?.0, b"1002");
        let mut range = snapshot.range(tree, ..="1000");
        range.seek_back("0199");
        assert_eq!(&*range.next_back().expect("there are more")?.0, b"0198");
        let mut range = snapshot.range(tree, ..="1000");
        let last = range.next_bytes_back()?.expect("there are more");
        assert_eq!(last.0, b"1000");
        let first = range.next_bytes()?.expect("there are more");
        assert_eq!(first.0, b"0000");
        assert_eq!(snapshot.prefix(tree, "01").count(), 50);
        assert_eq!(&*snapshot.first(tree)?.expect("not empty").0, b"0000");
        assert_eq!(&*snapshot.last(tree)?.expect("not empty").0, b"1998");
        assert_eq!(
            &*snapshot.next_above(tree, "0100")?.expect("more").0,
            b"0102"
        );
        assert_eq!(
            &*snapshot.next_below(tree, "0100")?.expect("more").0,
            b"0098"
        );
        Ok(())
    })
}

#[test]
fn words_and_types_in_a_snapshot() -> Result<()> {
    let store = Store::in_memory()?;
    let words = store.word_tree("words")?;
    let typed = store.typed::<(String, i32), f64>("typed")?;
    words.put(7, 41)?;
    typed.put(&("roof".to_owned(), -1), &3.5)?;
    typed.put(&("yard".to_owned(), 0), &5.0)?;
    let snapshot = store.snapshot()?;
    words.put(7, 42)?;
    words.put(8, 1)?;
    typed.remove(&("roof".to_owned(), -1))?;

    assert_eq!(snapshot.get(&words, 7)?, Some(41));
    assert_eq!(snapshot.get_many(&words, &[7, 8])?, [Some(41), None]);
    let all: Vec<_> = snapshot.range(&words, 5..).collect::<Result<_>>()?;
    assert_eq!(all, [(7, 41)]);
    let roof: Vec<_> = snapshot.prefix(&typed, "roof").collect::<Result<_>>()?;
    assert_eq!(roof, [(("roof".to_owned(), -1), 3.5)]);
    assert_eq!(snapshot.iter(&typed).count(), 2);
    Ok(())
}

#[test]
fn a_batch_over_engines_is_in_a_snapshot_wholly_or_not_at_all() -> Result<()> {
    let store = Store::in_memory()?;
    let trees: Vec<Tree> = Engine::ALL
        .iter()
        .map(|engine| tree_of(&store, *engine))
        .collect::<Result<_>>()?;
    let write = |round: u32| {
        let mut batch = Batch::new();
        for tree in &trees {
            batch.put(tree, "round", round.to_be_bytes());
            // One key comes and one goes in each round.
            batch.put(tree, format!("key {:08}", round + 1), "");
            batch.remove(tree, format!("key {round:08}"));
        }
        store.write(&batch)
    };
    write(0)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let written = (1..1500).try_for_each(write);
            is_over.store(true, Ordering::Release);
            written
        });
        let reader = || -> Result<u32> {
            let mut snapshots = 0;
            let mut last = 0;
            while !is_over.load(Ordering::Acquire) || snapshots == 0 {
                let snapshot = store.snapshot()?;
                let mut rounds = Vec::new();
                for tree in &trees {
                    let value = snapshot.get(tree, "round")?.expect("it is in each round");
                    let round = u32::from_be_bytes(*value.first_chunk().expect("a round"));
                    let keys: Vec<_> = snapshot.prefix(tree, "key ").collect::<Result<_>>()?;
                    let key = format!("key {:08}", round + 1);
                    assert_eq!(keys.len(), 1, "{keys:?}");
                    assert_eq!(&*keys[0].0, key.as_bytes());
                    rounds.push(round);
                }
                assert!(rounds.iter().all(|round| *round == rounds[0]), "{rounds:?}");
                assert!(rounds[0] >= last);
                last = rounds[0];
                snapshots += 1;
            }
            Ok(snapshots)
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        for reader in readers {
            assert!(reader.join().unwrap()? > 0);
        }
        writer.join().unwrap()
    })
}

/// Random single writes, batches and loads by several threads; each snapshot gives the same answers
/// for as long as it lives, whichever way it is asked.
fn check_snapshots_of(engine: Engine) -> Result<()> {
    let store = Store::in_memory()?;
    let tree = tree_of(&store, engine)?;
    let key = |number: u32| format!("key {number:03}");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let write = |seed: u64| -> Result<()> {
            let mut random = SmallRng::seed_from_u64(seed);
            while !is_over.load(Ordering::Acquire) {
                let number = random.random_range(0..200);
                let value = random.next_u32().to_string();
                match random.random_range(0..10) {
                    0..4 => tree.put(key(number), value)?,
                    4..7 => drop(tree.remove(key(number))?),
                    _ => {
                        let mut batch = Batch::new();
                        for _ in 0..random.random_range(1..8) {
                            let number = random.random_range(0..200);
                            batch.put(&tree, key(number), &value);
                            batch.remove(&tree, key(199 - number));
                        }
                        store.write(&batch)?;
                    }
                }
            }
            Ok(())
        };
        let check = |seed: u64| -> Result<()> {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut kept: Vec<(Snapshot, Contents)> = Vec::new();
            for _ in 0..150 {
                let snapshot = store.snapshot()?;
                let found = contents(&snapshot, &tree)?;
                kept.push((snapshot, found));
                if kept.len() > 5 {
                    kept.swap_remove(random.random_range(0..5));
                }
                for (snapshot, expected) in &kept {
                    let number = random.random_range(0..200);
                    let value = snapshot.get(&tree, key(number))?;
                    assert_eq!(
                        value.as_deref(),
                        expected.get(key(number).as_bytes()).map(Vec::as_slice)
                    );
                    let back: Vec<_> = snapshot
                        .iter(&tree)
                        .rev()
                        .map(|entry| entry.map(|entry| (entry.0.to_vec(), entry.1.to_vec())))
                        .collect::<Result<_>>()?;
                    assert!(
                        back.iter()
                            .map(|entry| (&entry.0, &entry.1))
                            .eq(expected.iter().rev())
                    );
                }
            }
            Ok(())
        };
        let writers = [1, 2].map(|seed| scope.spawn(move || write(seed)));
        let checkers = [3, 4].map(|seed| scope.spawn(move || check(seed)));
        let checked: Vec<_> = checkers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        is_over.store(true, Ordering::Release);
        for writer in writers {
            writer.join().unwrap()?;
        }
        checked.into_iter().try_for_each(|checked| checked.unwrap())
    })?;
    assert_eq!(store.stat()?.versions.views, 0);
    assert_eq!(store.stat()?.versions.keys, 0);
    assert_eq!(store.stat()?.versions.bytes, 0);
    Ok(())
}

#[test]
fn a_snapshot_does_not_change_beside_writers() -> Result<()> {
    Engine::ALL.iter().copied().try_for_each(check_snapshots_of)
}

#[test]
fn a_tree_that_was_made_later_is_empty_in_a_snapshot() -> Result<()> {
    each_engine(|store, _| {
        let snapshot = store.snapshot()?;
        let later = store.tree("later")?;
        later.put("key", "value")?;
        assert_eq!(snapshot.get(&later, "key")?, None);
        assert_eq!(snapshot.get_many(&later, &["key"])?, [None]);
        assert_eq!(snapshot.iter(&later).count(), 0);
        assert_eq!(store.snapshot()?.iter(&later).count(), 1);
        Ok(())
    })
}

#[test]
fn a_bulk_load_is_one_change() -> Result<()> {
    each_engine(|store, tree| {
        tree.put("early", "1")?;
        let with_early = store.snapshot()?;
        tree.remove("early")?;
        let empty = store.snapshot()?;
        let entries = (0..5000_u32).map(|number| (number.to_be_bytes(), "loaded"));
        let mut range = with_early.iter(tree);
        tree.bulk_load(entries, 1.0)?;
        tree.put("late", "2")?;
        let loaded = store.snapshot()?;
        tree.clear()?;
        tree.bulk_load([("again", "3")], 1.0)?;

        assert_eq!(&*range.next().expect("one entry")?.0, b"early");
        assert!(range.next().is_none());
        assert_eq!(with_early.iter(tree).rev().count(), 1);
        assert!(with_early.contains(tree, "early")?);
        assert!(!with_early.contains(tree, 7_u32.to_be_bytes())?);
        assert_eq!(empty.iter(tree).count(), 0);
        assert!(!empty.contains(tree, "late")?);
        assert_eq!(loaded.iter(tree).count(), 5001);
        assert!(loaded.contains(tree, 4999_u32.to_be_bytes())?);
        assert!(!loaded.contains(tree, "again")?);
        Ok(())
    })
}

#[test]
fn a_load_that_finds_an_entry_while_a_snapshot_is_open() -> Result<()> {
    each_engine(|store, tree| {
        let snapshot = store.snapshot()?;
        let mut number = 0_u32;
        let entries = std::iter::from_fn(|| {
            number += 1;
            (number < 100).then(|| (number.to_be_bytes(), "loaded"))
        });
        let other = tree.clone();
        let mut is_written = false;
        let entries = entries.inspect(move |_| {
            if !is_written {
                is_written = true;
                let other = other.clone();
                let written = thread::spawn(move || other.put("between", "1"));
                written.join().unwrap().unwrap();
            }
        });
        let refused = tree.bulk_load(entries, 1.0).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::NotEmpty), "{refused}");
        assert_eq!(snapshot.iter(tree).count(), 0);
        assert_eq!(store.snapshot()?.iter(tree).count(), 1);
        Ok(())
    })
}

#[test]
fn a_snapshot_is_opened_within_a_load_and_within_a_salvage() -> Result<()> {
    each_engine(|store, tree| {
        let mut snapshots = Vec::new();
        let entries = (0..10_u32).map(|number| {
            snapshots.push(store.snapshot());
            (number.to_be_bytes(), "loaded")
        });
        tree.bulk_load(entries, 1.0)?;
        for snapshot in snapshots {
            assert_eq!(snapshot?.iter(tree).count(), 0);
        }
        let mut counts = Vec::new();
        store.salvage(tree.name(), |_, _| {
            counts.push(store.snapshot().map(|snapshot| snapshot.iter(tree).count()));
            true
        })?;
        assert_eq!(counts.len(), 10);
        for count in counts {
            assert_eq!(count?, 10);
        }
        Ok(())
    })
}

#[test]
fn a_tree_stays_while_a_snapshot_is_open() -> Result<()> {
    let store = Store::in_memory()?;
    store.tree("tree")?.put("key", "value")?;
    let snapshot = store.snapshot()?;
    let dropped = store.drop_tree("tree").unwrap_err();
    assert!(matches!(dropped.kind(), ErrorKind::InUse), "{dropped}");
    let renamed = store.rename_tree("tree", "other").unwrap_err();
    assert!(matches!(renamed.kind(), ErrorKind::InUse), "{renamed}");
    assert!(renamed.to_string().contains("snapshot"), "{renamed}");
    drop(snapshot);
    store.rename_tree("tree", "other")?;
    store.drop_tree("other")
}

#[test]
fn a_hot_key_under_an_old_snapshot_keeps_one_value() -> Result<()> {
    let store = Store::in_memory()?;
    let tree = store.tree("tree")?;
    tree.put("hot", "first")?;
    let old = store.snapshot()?;
    for round in 0..1000_u32 {
        tree.put("hot", round.to_be_bytes())?;
        // Snapshots that are gone leave nothing behind.
        if round % 10 == 0 {
            let short = store.snapshot()?;
            tree.put("hot", "meanwhile")?;
            assert_eq!(
                short.get(&tree, "hot")?.as_deref(),
                Some(&round.to_be_bytes()[..])
            );
        }
    }
    assert_eq!(old.get(&tree, "hot")?.as_deref(), Some(b"first".as_slice()));
    let stat = store.stat()?.versions;
    assert_eq!((stat.views, stat.keys), (1, 1));
    assert!(stat.bytes < 1000, "{stat:?}");
    Ok(())
}

#[test]
fn the_oldest_snapshot_ends_when_old_values_take_too_much_memory() -> Result<()> {
    let options = Options::new().versions_bytes_max(100_000);
    let store = options.open_in_memory()?;
    let tree = store.tree("tree")?;
    for number in 0..100_u32 {
        tree.put(number.to_be_bytes(), vec![1; 2000])?;
    }
    let old = store.snapshot()?;
    let mut range = old.iter(&tree);
    range.next().expect("there are more")?;
    for number in 0..30_u32 {
        tree.put(number.to_be_bytes(), "new")?;
    }
    let young = store.snapshot()?;
    for number in 30..60_u32 {
        tree.put(number.to_be_bytes(), "new")?;
    }
    let is_too_old = |error: Error| {
        assert!(
            matches!(
                error.kind(),
                ErrorKind::ViewTooOld {
                    limit: Some(100_000)
                }
            ),
            "{error}"
        );
        assert!(error.is_retryable());
    };
    is_too_old(old.get(&tree, 7_u32.to_be_bytes()).unwrap_err());
    is_too_old(range.next().expect("an error").unwrap_err());
    assert_eq!(
        young
            .get(&tree, 40_u32.to_be_bytes())?
            .map(|value| value.len()),
        Some(2000)
    );
    assert_eq!(young.iter(&tree).count(), 100);
    let stat = store.stat()?.versions;
    assert_eq!(stat.views, 1);
    assert!(stat.bytes <= 100_000, "{stat:?}");
    drop(range);
    drop((old, young));
    assert_eq!(store.stat()?.versions, everleaf::VersionsStat::default());
    Ok(())
}

/// Values that no snapshot needs any more wait behind others. They go before a snapshot is ended.
#[test]
fn no_snapshot_ends_while_there_is_something_to_forget() -> Result<()> {
    let store = Options::new().versions_bytes_max(10_000).open_in_memory()?;
    let tree = store.tree("tree")?;
    tree.put("a", vec![1; 6000])?;
    tree.put("b", "")?;
    tree.put("c", vec![1; 6000])?;
    let first = store.snapshot()?;
    tree.put("a", "1")?;
    let second = store.snapshot()?;
    tree.put("a", vec![2; 6000])?;
    let third = store.snapshot()?;
    tree.put("b", "3")?;
    drop(first);
    drop(second);
    // The old values of `a` are of no use to the third one, and there is no room for all.
    tree.put("c", "4")?;
    assert_eq!(third.get(&tree, "c")?.map(|value| value.len()), Some(6000));
    Ok(())
}

/// With values of a mebibyte a range reads one entry at a time.
#[test]
fn ranges_of_large_values_beside_changes() -> Result<()> {
    each_engine(|store, tree| {
        for number in 0..10_u8 {
            tree.put([number], vec![number; 1 << 20])?;
        }
        let snapshot = store.snapshot()?;
        for number in 0..10_u8 {
            tree.put([number], [number])?;
        }
        for (number, entry) in snapshot.iter(tree).enumerate() {
            let (key, value) = entry?;
            assert_eq!((key[0], value.len()), (number as u8, 1 << 20));
        }
        assert_eq!(snapshot.iter(tree).rev().count(), 10);
        let debug = format!("{snapshot:?}");
        assert!(debug.len() < 1000, "{debug}");
        Ok(())
    })
}

#[test]
fn a_snapshot_of_a_store_that_is_only_read() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let store = Store::open(&path)?;
    store.tree("tree")?.put("key", "value")?;
    store.close().map_err(Error::from)?;
    let store = Options::new().read_only(true).open(&path)?;
    let tree = store.open_tree("tree")?;
    let snapshot = store.snapshot()?;
    assert!(snapshot.contains(&tree, "key")?);
    assert_eq!(snapshot.iter(&tree).count(), 1);
    Ok(())
}

#[test]
fn a_snapshot_refuses_a_tree_of_another_store() -> Result<()> {
    let store = Store::in_memory()?;
    let other = Store::in_memory()?.tree("tree")?;
    let refused = store.snapshot()?.get(&other, "key").unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::OfAnotherStore { .. }),
        "{refused}"
    );
    Ok(())
}

#[test]
fn a_snapshot_that_was_forgotten_is_named() -> Result<()> {
    let store = Store::in_memory()?;
    let line = line!() + 1;
    let _forgotten = store.snapshot()?;
    let oldest = store.stat()?.versions.oldest_view.expect("it is open");
    assert_eq!(oldest.opened_at.line(), line);
    assert!(
        oldest.opened_at.file().ends_with("snapshots.rs"),
        "{oldest:?}"
    );
    Ok(())
}

#[test]
fn a_snapshot_beside_a_compaction() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    for engine in Engine::ALL {
        let store = Store::open(folder.path().join(engine.name))?;
        let tree = tree_of(&store, *engine)?;
        let key = |number: u32| number.to_be_bytes();
        for number in 0..6_000 {
            drop(tree.pending().put(key(number), vec![1; 100])?);
            if number == 5_000 {
                store.sync()?;
            }
        }
        let snapshot = store.snapshot()?;
        for number in (0..6_000).filter(|number| number % 20 != 0) {
            tree.pending().remove(key(number))?.map(drop).peek();
        }
        store.sync()?;
        let before = contents(&snapshot, &tree)?;
        let compaction = store.compact()?;
        assert!(
            compaction.records_moved + compaction.nodes_moved > 0,
            "{engine}"
        );
        assert_eq!(before.len(), 6_000);
        assert!(contents(&snapshot, &tree)? == before);
        assert_eq!(store.snapshot()?.iter(&tree).count(), 300);
        drop(snapshot);
    }
    Ok(())
}
