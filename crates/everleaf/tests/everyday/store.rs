//! The store as its users see it.

use std::ops::Bound;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use everleaf::{
    Bounds, Durability, Engine, ErrorKind, LineStore, MediumChoice, Options, Result, Store,
    Survives, TreeOptions,
};
use tempfile::TempDir;

fn folder() -> (TempDir, PathBuf) {
    // The folder lies in memory, if that is possible: a disk would sync thousands of times.
    let memory = std::path::Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    }
    .unwrap();
    let path = folder.path().join("a.pool");
    (folder, path)
}

fn key(number: u32) -> String {
    format!("key {number:06}")
}

#[test]
fn what_was_written_is_there_after_a_clean_close_and_after_a_crash() -> Result<()> {
    let (_folder, path) = folder();
    for clean in [true, false] {
        let store = Options::new().close_cleanly(clean).open(&path)?;
        let tree = store.tree("records")?;
        let words = store.word_tree("words")?;
        for number in 0..3000 {
            tree.put(key(number), format!("{clean} {number}"))?;
            words.put(u64::from(number), u64::from(number) << 1 | u64::from(clean))?;
        }
        for number in (0..3000).step_by(3) {
            tree.remove(key(number))?;
            words.remove(u64::from(number))?;
        }
        drop((tree, words, store));

        let store = Options::new().create(false).open(&path)?;
        assert_eq!(store.recovery().after_crash, !clean);
        assert_eq!(store.recovery().damaged, []);
        let tree = store.tree("records")?;
        let words = store.word_tree("words")?;
        for number in 0..3000 {
            let expected = (number % 3 != 0).then(|| format!("{clean} {number}"));
            assert_eq!(
                tree.get(key(number))?.as_deref(),
                expected.as_deref().map(str::as_bytes)
            );
            let expected = (number % 3 != 0).then_some(u64::from(number) << 1 | u64::from(clean));
            assert_eq!(words.get(u64::from(number))?, expected);
        }
        assert_eq!((tree.len()?, words.len()?), (2000, 2000));
        assert_eq!(store.check()?, []);
        store.stat()?;
    }
    Ok(())
}

#[test]
fn a_crash_leaks_nothing() -> Result<()> {
    let (_folder, path) = folder();
    let write = |clean| -> Result<u64> {
        let store = Options::new().close_cleanly(clean).open(&path)?;
        let tree = store.tree("t")?;
        (0..2000).try_for_each(|number| tree.put(key(number), vec![7; number as usize % 300]))?;
        (0..2000)
            .step_by(2)
            .try_for_each(|number| tree.remove(key(number)).map(drop))?;
        Ok(0)
    };
    let mut seen = Vec::new();
    for clean in [true, false, false, true] {
        write(clean)?;
        let store = Store::open(&path)?;
        let stat = store.stat()?;
        let tree = store.tree("t")?.stat()?;
        assert_eq!(
            stat.allocations,
            tree.leaves + tree.keys,
            "leaves and records, nothing else"
        );
        seen.push(stat.high_water_bytes);
    }
    assert!(
        seen[3] <= seen[0] + (2 << 20),
        "the file does not creep: {seen:?}"
    );
    Ok(())
}

#[test]
fn the_second_opener_is_told_who_is_first() -> Result<()> {
    let media = [MediumChoice::Dax, MediumChoice::File];
    for (first, second) in media
        .into_iter()
        .flat_map(|first| media.map(|second| (first, second)))
    {
        let (_folder, path) = folder();
        // Every processor can store lines of this form to mapped memory.
        let options = |medium| Options::new().medium(medium).line_store(LineStore::Twin);
        let [first, second] = [first, second].map(options);
        let store = first.open(&path)?;
        for engine in Engine::ALL.iter().copied() {
            let tree = store.tree_with(
                engine.name(),
                TreeOptions {
                    engine,
                    ..TreeOptions::RECORDS
                },
            )?;
            tree.put("still", "there")?;
        }
        let error = second.open(&path).unwrap_err();
        let me = std::process::id();
        assert!(
            matches!(error.kind(), ErrorKind::Locked { holder: Some(pid), .. } if *pid == me),
            "{error}"
        );
        let words = error.to_string();
        assert!(
            words.ends_with(&format!(
                "a.pool: process {me} (this one) has it open already; clone the `Store` instead of opening it again"
            )),
            "{error}"
        );
        store.close()?;
        let store = second.open(&path)?;
        for engine in Engine::ALL.iter().copied() {
            assert!(store.open_tree(engine.name())?.contains("still")?);
        }
        store.close()?;
    }
    Ok(())
}

/// In another container a process may have the number of this one.
#[test]
fn another_process_of_the_same_number_is_not_taken_for_this_one() -> Result<()> {
    let (_folder, path) = folder();
    Store::open(&path)?.close()?;
    // The file still has the number of this process, and the lock is of nobody whom it knows.
    let held = std::fs::File::open(&path).unwrap();
    held.lock().unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Locked { holder: None, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("another process is writing"));
    Ok(())
}

#[test]
fn a_handle_keeps_the_store_open_and_the_last_one_closes_it() -> Result<()> {
    let (_folder, path) = folder();
    let store = Store::open(&path)?;
    let tree = store.tree("t")?;
    let other = tree.clone();
    let failed = store.close().unwrap_err();
    assert!(matches!(failed.error.kind(), ErrorKind::InUse), "{failed}");
    assert_eq!(failed.error.path(), Some(path.as_path()));
    // The error has the store.
    failed.store.tree("u")?.put("the store", "is usable")?;
    drop(failed);
    drop(tree);
    assert!(matches!(
        Store::open(&path).unwrap_err().kind(),
        ErrorKind::Locked { .. }
    ));
    other.put("still", "usable")?;
    drop(other);
    let store = Store::open(&path)?;
    assert!(!store.recovery().after_crash);
    assert!(store.tree("t")?.contains("still")?);
    Ok(())
}

#[test]
fn a_tree_keeps_the_node_sizes_it_was_made_with() -> Result<()> {
    let (_folder, path) = folder();
    let any = TreeOptions {
        engine: Engine::BZTREE,
        ..TreeOptions::WORDS
    };
    let small = any.with("leaf-entries", 16)?.with("free-entries", 3)?;
    for reopened in [false, true] {
        let store = Store::open(&path)?;
        for options in [small, any] {
            let tree = store.tree_with("small", options)?;
            assert_eq!(
                tree.kind().to_string(),
                format!("{small}, inner-children 63")
            );
            assert_eq!(
                tree.insert(7_u64.to_be_bytes(), [0; 8])?,
                !reopened && options == small
            );
        }
        assert!(
            store
                .tree_with("usual", any)?
                .kind()
                .to_string()
                .contains("leaf-entries 56")
        );
        let error = store
            .tree_with("small", any.with("leaf-entries", 56)?)
            .unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::TreeMismatch { .. }),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .contains("leaf-entries 16, free-entries 3"),
            "{error}"
        );
        let error = any.with("leaf-entries", 3).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Setting { .. }), "{error}");
        assert!(
            error.to_string().contains("it takes a number from 4 to 56"),
            "{error}"
        );
        for engine in [Engine::RNTREE, Engine::MASSTREE] {
            let error = TreeOptions { engine, ..any }
                .with("inner-children", 16)
                .unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Setting { .. }), "{error}");
        }
        assert_eq!(store.trees()?.len(), 2);
    }
    Ok(())
}

#[test]
fn a_tree_is_opened_as_what_it_is() -> Result<()> {
    let (_folder, path) = folder();
    let store = Store::open(&path)?;
    store.tree("records")?;
    store.word_tree("words")?.put(1, 2)?;
    for reopened in [false, true] {
        let store = if reopened {
            Store::in_memory()?
        } else {
            store.clone()
        };
        if reopened {
            store.tree("records")?;
            store.word_tree("words")?;
        }
        let error = store.word_tree("records").unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::TreeMismatch { name, .. } if name == "records"),
            "{error}"
        );
        assert!(
            error.to_string().contains("record") && error.to_string().contains("word"),
            "{error}"
        );
        assert!(matches!(
            store.tree("words").unwrap_err().kind(),
            ErrorKind::TreeMismatch { .. }
        ));
    }
    // As byte strings, a tree of words takes exactly 8 bytes.
    let words = store.open_tree("words")?;
    assert_eq!(words.kind(), TreeOptions::WORDS);
    assert_eq!(
        words.get(1_u64.to_be_bytes())?.as_deref(),
        Some(2_u64.to_be_bytes().as_slice())
    );
    let error = words.put("short", 2_u64.to_be_bytes()).unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::NotAWord {
                what: "key",
                length: 5
            }
        ),
        "{error}"
    );
    assert!(matches!(
        store.open_tree("other").unwrap_err().kind(),
        ErrorKind::NoSuchTree { .. }
    ));
    drop(words);
    store.close()?;
    // The same holds when the tree is not open yet.
    let store = Store::open(&path)?;
    assert!(matches!(
        store.word_tree("records").unwrap_err().kind(),
        ErrorKind::TreeMismatch { .. }
    ));
    assert!(matches!(
        store.tree("words").unwrap_err().kind(),
        ErrorKind::TreeMismatch { .. }
    ));
    let names: Vec<_> = store
        .trees()?
        .into_iter()
        .map(|tree| (tree.name, tree.kind))
        .collect();
    let expected = [
        ("records".to_owned(), Some(TreeOptions::RECORDS)),
        ("words".to_owned(), Some(TreeOptions::WORDS)),
    ];
    assert_eq!(names, expected);
    Ok(())
}

#[test]
fn a_tree_is_opened_by_the_engine_that_it_was_made_with() -> Result<()> {
    let pairs = Engine::ALL
        .iter()
        .flat_map(|made| Engine::ALL.iter().map(|asked| (*made, *asked)));
    for (made, asked) in pairs.filter(|(made, asked)| made != asked) {
        let (_folder, path) = folder();
        let kind = |engine| TreeOptions {
            engine,
            ..TreeOptions::RECORDS
        };
        let refused = |store: &Store| {
            let error = store.tree_with("t", kind(asked)).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::TreeMismatch { name, .. } if name == "t"),
                "{error}"
            );
        };
        for clean in [true, false] {
            let store = Options::new().close_cleanly(clean).open(&path)?;
            if !clean {
                refused(&store);
            }
            store.tree_with("t", kind(made))?.put("still", "there")?;
            refused(&store);
            store.sync()?;
        }
        // The store is opened as after a crash.
        let store = Store::open(&path)?;
        refused(&store);
        assert!(store.open_tree("t")?.contains("still")?);
    }
    Ok(())
}

#[test]
fn names_of_trees_have_limits() -> Result<()> {
    let store = Store::in_memory()?;
    for name in ["", &"n".repeat(129)] {
        let error = store.tree(name).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::BadTreeName { limit: 128, .. }),
            "{error}"
        );
    }
    store.tree(&"n".repeat(128))?;
    store.tree("unicode, spaces\tand tabs: ä")?;
    Ok(())
}

/// More trees than the first bytes of the file have room for: the root table gets pages.
#[test]
fn hundreds_of_trees_are_made_found_renamed_and_dropped() -> Result<()> {
    const TREES: usize = 400;
    let options = TreeOptions {
        engine: Engine::WBTREE,
        ..TreeOptions::RECORDS
    };
    for clean in [true, false] {
        let (_folder, path) = folder();
        let store = Options::new().close_cleanly(clean).open(&path)?;
        for number in 0..TREES {
            let tree = store.tree_with(&format!("tree {number}"), options)?;
            tree.put("number", number.to_string())?;
        }
        let mut dropped = 0;
        for number in 0..TREES {
            let name = format!("tree {number}");
            match number % 3 {
                0 => {
                    store.drop_tree(&name)?;
                    dropped += 1;
                }
                1 => store.rename_tree(&name, &format!("renamed {number}"))?,
                _ => {}
            }
        }
        drop(store);

        let store = Store::open(&path)?;
        assert_eq!(store.recovery().after_crash, !clean);
        assert_eq!(store.trees()?.len(), TREES - dropped);
        for number in 0..TREES {
            let name = match number % 3 {
                1 => format!("renamed {number}"),
                _ => format!("tree {number}"),
            };
            let tree = store.open_tree(&name);
            if number % 3 == 0 {
                assert!(tree.unwrap_err().is_absent(), "{name}");
            } else {
                let value = tree?.get("number")?;
                assert_eq!(value.as_deref(), Some(number.to_string().as_bytes()));
            }
        }
        assert_eq!(store.check()?, []);
        store.close()?;
    }
    Ok(())
}

#[test]
fn keys_and_values_have_limits() -> Result<()> {
    let store = Store::in_memory()?;
    let tree = store.tree("t")?;
    let long_key = vec![1; everleaf::KEY_BYTES_MAX];
    let long_value = vec![2; everleaf::VALUE_BYTES_MAX];
    tree.put(&long_key, &long_value)?;
    tree.put("", "")?;
    assert_eq!(tree.get(&long_key)?.as_deref(), Some(long_value.as_slice()));
    assert_eq!(tree.get("")?.as_deref(), Some([].as_slice()));
    let error = tree
        .put([long_key.as_slice(), b"1"].concat(), "")
        .unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::KeyTooLong {
                length: 65_537,
                limit: 65_536
            }
        ),
        "{error}"
    );
    let error = tree
        .put("k", [long_value.as_slice(), b"1"].concat())
        .unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::ValueTooLong { .. }),
        "{error}"
    );
    assert_eq!(tree.len()?, 2);
    Ok(())
}

#[test]
fn ranges_are_read_from_both_ends() -> Result<()> {
    let store = Store::in_memory()?;
    let tree = store.tree("t")?;
    for number in 0..500 {
        tree.insert(key(number), number.to_string())?;
    }
    let numbers = |range: everleaf::Range<'_>| -> Result<Vec<u32>> {
        range
            .map(|entry| Ok(std::str::from_utf8(&entry?.1).unwrap().parse().unwrap()))
            .collect()
    };
    let expect = |range: everleaf::Range<'_>, from: u32, to: u32| -> Result<()> {
        assert_eq!(numbers(range)?, (from..to).collect::<Vec<_>>());
        Ok(())
    };
    expect(tree.iter(), 0, 500)?;
    expect(tree.range(key(7)..key(300)), 7, 300)?;
    expect(tree.range(key(7)..=key(300)), 7, 301)?;
    expect(tree.range(key(490)..), 490, 500)?;
    expect(tree.range(..key(9)), 0, 9)?;
    expect(tree.range(..=key(9)), 0, 10)?;
    expect(
        tree.range((Bound::Excluded(key(4)), Bound::Excluded(key(6)))),
        5,
        6,
    )?;
    expect(tree.range(Bounds::all()), 0, 500)?;
    expect(tree.prefix("key 00012"), 120, 130)?;
    expect(tree.prefix("other"), 0, 0)?;
    expect(tree.range(key(300)..key(7)), 0, 0)?;
    assert_eq!(tree.range(key(300)..key(7)).rev().count(), 0);

    let mut range = tree.range(key(10)..key(20));
    let mut seen = Vec::new();
    for turn in 0.. {
        let entry = if turn % 3 == 0 {
            range.next_back()
        } else {
            range.next()
        };
        let Some(entry) = entry else { break };
        seen.push(String::from_utf8(entry?.1.to_vec()).unwrap());
    }
    assert_eq!(
        seen,
        ["19", "10", "11", "18", "12", "13", "17", "14", "15", "16"]
    );
    assert!(range.next().is_none() && range.next_back().is_none());
    assert_eq!(tree.iter().rev().count(), 500);
    let mut lent = tree.range(key(498)..);
    assert_eq!(
        lent.next_entry()?,
        Some((key(498).as_bytes(), b"498".as_slice()))
    );
    assert_eq!(
        lent.next_entry_back()?,
        Some((key(499).as_bytes(), b"499".as_slice()))
    );
    assert_eq!(lent.next_entry()?, None);
    Ok(())
}

#[test]
fn a_bulk_load_is_done_wholly_or_not_at_all() -> Result<()> {
    let store = Store::in_memory()?;
    let tree = store.tree("t")?;
    let error = tree.bulk_load([("b", "1"), ("a", "2")], 1.0).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NotSorted { index: 1 }),
        "{error}"
    );
    let lines = ["a 1", "b 2", "c", "d 4"];
    let parsed = lines.iter().map(|line| {
        line.split_once(' ')
            .ok_or(format!("no blank in {line:?}").into())
    });
    let failed: std::result::Result<u64, Box<dyn std::error::Error>> =
        tree.try_bulk_load(parsed, 0.8);
    assert_eq!(failed.unwrap_err().to_string(), "no blank in \"c\"");
    assert!(tree.is_empty()?);
    assert_eq!(
        store.stat()?.allocations,
        1,
        "what was written for nothing is given back"
    );
    assert_eq!(
        tree.bulk_load((0..5000).map(|number| (key(number), "x")), f64::NAN)?,
        5000
    );
    assert!(matches!(
        tree.bulk_load([("z", "")], 1.0).unwrap_err().kind(),
        ErrorKind::NotEmpty
    ));
    assert_eq!(tree.len()?, 5000);
    assert_eq!(store.check()?, []);
    Ok(())
}

/// A clean close cuts off the free space behind the last slab in use; free space in between is kept
/// for later.
#[test]
fn a_clean_close_gives_the_free_tail_of_the_file_back() -> Result<()> {
    for medium in [MediumChoice::Dax, MediumChoice::File] {
        let (_folder, path) = folder();
        let options = Options::new().medium(medium);
        let length = || {
            std::fs::metadata(&path)
                .map(|metadata| metadata.len())
                .unwrap_or_default()
        };
        let store = options.open(&path)?;
        store.tree("keep")?.insert("a", "b")?;
        store.close()?;
        let small = length();
        let store = options.open(&path)?;
        let tree = store.tree("big")?;
        (0..3000).try_for_each(|number| tree.put(key(number), vec![1; 3000]))?;
        drop(tree);
        store.close()?;
        assert!(length() > 9_000_000, "{medium:?}: {} bytes", length());
        let store = options.open(&path)?;
        store.drop_tree("big")?;
        store.close()?;
        assert!(
            length() <= 2 * small,
            "{medium:?}: {} bytes, {small} before",
            length()
        );
        let store = options.open(&path)?;
        assert_eq!(
            store.tree("keep")?.get("a")?.as_deref(),
            Some(b"b".as_slice())
        );
        assert_eq!(store.check()?, []);
    }
    Ok(())
}

#[test]
fn a_dropped_tree_gives_its_space_back() -> Result<()> {
    let (_folder, path) = folder();
    for clean in [true, false] {
        let store = Options::new().close_cleanly(clean).open(&path)?;
        let keep = store.tree("keep")?;
        keep.insert("a", "b")?;
        let before = store.stat()?.allocations;
        let tree = store.tree("big")?;
        (0..3000).try_for_each(|number| tree.put(key(number), vec![1; number as usize]))?;
        assert!(matches!(
            store.drop_tree("big").unwrap_err().kind(),
            ErrorKind::InUse
        ));
        assert!(matches!(
            store.drop_tree("none").unwrap_err().kind(),
            ErrorKind::NoSuchTree { .. }
        ));
        drop(tree);
        store.drop_tree("big")?;
        assert_eq!(store.stat()?.allocations, before);
        assert!(matches!(
            store.open_tree("big").unwrap_err().kind(),
            ErrorKind::NoSuchTree { .. }
        ));
        drop((keep, store));
        let store = Store::open(&path)?;
        assert_eq!(store.stat()?.allocations, before);
        assert_eq!(store.trees()?.len(), 1);
        assert!(
            store.tree("big")?.is_empty()?,
            "a new tree of the same name is empty"
        );
        store.drop_tree("big")?;
        assert_eq!(store.check()?, []);
    }
    Ok(())
}

#[test]
fn threads_share_a_tree() -> Result<()> {
    let store = Store::in_memory()?;
    let tree = store.tree("t")?;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let tree = tree.clone();
            scope.spawn(move || {
                for number in 0..2000 {
                    assert!(tree.insert(key(number * 4 + thread), "x").unwrap());
                }
            });
        }
    });
    assert_eq!(tree.len()?, 8000);
    assert_eq!(
        tree.get_many(&[key(0), key(7999), key(8000)])?
            .iter()
            .flatten()
            .count(),
        2
    );
    assert_eq!(store.check()?, []);
    Ok(())
}

#[test]
fn memory_survives_nothing_and_says_so() -> Result<()> {
    let store = Store::in_memory()?;
    assert_eq!(store.survives(), Survives::Nothing);
    assert!(store.stat()?.medium.starts_with("ram"));
    let error = Options::new()
        .require(Survives::ProcessCrash)
        .open_in_memory()
        .unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NotDurable { .. }),
        "{error}"
    );
    Ok(())
}

/// An epoch is durable when it has ended, whatever durability operations of other trees have.
#[test]
fn epochs_become_durable_without_a_sync_by_hand() {
    let (_folder, path) = folder();
    let options = Options::new()
        .medium(MediumChoice::File)
        .durability(Durability::OnSync);
    let store = options.open(path).unwrap();
    let options = TreeOptions {
        engine: Engine::MASSTREE,
        ..TreeOptions::RECORDS
    };
    let tree = store.tree_with("tree", options).unwrap();
    let epochs = || tree.epoch_stat().unwrap().epochs;
    let before = epochs();
    let deadline = Instant::now() + Duration::from_secs(60);
    tree.put("key", "value").unwrap();
    while epochs() == before || store.stat().unwrap().log.unwrap().backlog_bytes > 0 {
        assert!(Instant::now() < deadline, "nothing is synced");
    }
}
