//! Batches: all writes or none, over trees of every engine.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everleaf::{
    Batch, DamagedPart, Engine, ErrorKind, MediumChoice, Options, Result, Store, Tree, TreeOptions,
    View,
};
use tempfile::{TempDir, tempdir};

fn tree_of(store: &Store, engine: Engine) -> Result<Tree> {
    store.tree_with(
        engine.name,
        TreeOptions {
            engine,
            ..TreeOptions::RECORDS
        },
    )
}

fn trees(store: &Store) -> Result<Vec<Tree>> {
    Engine::ALL
        .iter()
        .map(|engine| tree_of(store, *engine))
        .collect()
}

fn value(tree: &Tree, key: &str) -> Result<Option<String>> {
    Ok(tree
        .get(key)?
        .map(|value| String::from_utf8_lossy(&value).into_owned()))
}

#[test]
fn a_batch_over_trees_of_every_engine() -> Result<()> {
    for medium in [MediumChoice::Dax, MediumChoice::File] {
        let folder = tempdir().unwrap();
        let path = folder.path().join("a.pool");
        let options = Options::new().medium(medium);
        let store = options.open(&path)?;
        let all = trees(&store)?;
        let words = store.word_tree("words")?;
        let mut batch = Batch::new();
        for tree in &all {
            tree.put("old", "1")?;
            tree.put("gone", "1")?;
            batch
                .expect(tree, "old", Some(b"1"))
                .expect(tree, "new", None)
                .expect_present(tree, "gone");
            batch
                .put(tree, "old", "never seen")
                .put(tree, "old", "2")
                .put(tree, "new", "3");
            batch.put(tree, "gone", "never seen").remove(tree, "gone");
        }
        batch.put(words.as_tree(), 7_u64.to_be_bytes(), 8_u64.to_be_bytes());
        store.write(&batch)?;
        let is_done = |store: &Store| -> Result<()> {
            for tree in trees(store)? {
                assert_eq!(value(&tree, "old")?.as_deref(), Some("2"), "{tree:?}");
                assert_eq!(value(&tree, "new")?.as_deref(), Some("3"), "{tree:?}");
                assert_eq!(value(&tree, "gone")?, None, "{tree:?}");
            }
            assert_eq!(store.word_tree("words")?.get(7)?, Some(8));
            assert_eq!(store.check()?, []);
            Ok(())
        };
        is_done(&store)?;
        // The conditions do not hold any more, so nothing is written, not even to keys without a
        // condition.
        batch.put(&all[0], "other", "4");
        let error = store.write(&batch).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::ConditionFailed { tree, index: 0 } if tree == "rntree"),
            "{error}"
        );
        assert_eq!(value(&all[0], "other")?, None);
        is_done(&store)?;
        batch.clear();
        assert!(batch.is_empty());
        drop((all, words, batch));
        store.close()?;
        is_done(&options.open(&path)?)?;
    }
    Ok(())
}

#[test]
fn a_batch_that_cannot_be_is_refused_whole() -> Result<()> {
    let store = Store::in_memory()?;
    let other = Store::in_memory()?;
    let tree = store.tree("tree")?;
    let words = store.word_tree("words")?;
    let masstree = tree_of(&store, Engine::MASSTREE)?;
    let with = |batch: &mut Batch| store.write(batch.put(&tree, "key", "value"));
    let error = with(Batch::new().put(words.as_tree(), "seven", "1")).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NotAWord { .. }),
        "{error}"
    );
    let error = with(Batch::new().put(&tree, vec![0; 70_000], "1")).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::KeyTooLong { .. }),
        "{error}"
    );
    let error = with(Batch::new().put(&other.tree("other")?, "key", "1")).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::OfAnotherStore { name, .. } if name == "other"),
        "{error}"
    );
    let long = vec![0; 9 << 20];
    let error = with(
        Batch::new()
            .put(&tree, "one", &long)
            .put(&tree, "two", &long),
    )
    .unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::BatchTooLarge { what: "bytes", .. }),
        "{error}"
    );
    let mut many = Batch::new();
    for key in 0..10_001_u32 {
        many.put(&masstree, key.to_be_bytes(), "");
    }
    let error = with(&mut many).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::BatchTooLarge { limit: 10_000, .. }),
        "{error}"
    );
    assert_eq!(tree.len()? + words.len()? + masstree.len()?, 0);
    store.write(&Batch::new())
}

/// Space for the worst case is set aside first.
#[test]
fn a_full_pool_refuses_a_batch_before_anything_is_written() -> Result<()> {
    for engine in Engine::ALL {
        let folder = tempdir().unwrap();
        let store = Options::new()
            .limit_bytes(4 << 20)
            .open(folder.path().join("a.pool"))?;
        let tree = tree_of(&store, *engine)?;
        let mut batch = Batch::new();
        let mut written = 0_u32;
        let error = loop {
            batch.clear();
            for key in 50 * written..50 * (written + 1) {
                batch.put(&tree, key.to_be_bytes(), [7; 300]);
            }
            match store.write(&batch) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(error.is_full(), "{}: {error}", engine.name);
        assert!(written > 10, "{}: {written}", engine.name);
        assert_eq!(
            (tree.len()?, store.check()?),
            (50 * u64::from(written), Vec::new()),
            "{}",
            engine.name
        );
        // Removals make room.
        (0..25 * written).try_for_each(|key| tree.remove(key.to_be_bytes()).map(drop))?;
        store.sync()?;
        store.write(&batch)?;
        assert_eq!(store.check()?, []);
    }
    Ok(())
}

/// Threads move amounts between accounts in trees of three engines, while others write to other
/// keys. No amount gets lost.
#[test]
fn transfers_of_many_threads_keep_the_sum() -> Result<()> {
    const ACCOUNTS: usize = 9;
    const AMOUNT: i64 = 100;
    let store = Store::in_memory()?;
    let trees: Vec<Tree> = [Engine::RNTREE, Engine::MASSTREE, Engine::BZTREE]
        .map(|engine| tree_of(&store, engine))
        .into_iter()
        .collect::<Result<_>>()?;
    let account = |number: usize| (&trees[number % 3], format!("account {number}"));
    let amount = |number: usize| -> Result<i64> {
        let (tree, key) = account(number);
        let bytes = tree
            .get(key)?
            .and_then(|value| value.as_slice().try_into().ok());
        Ok(bytes.map_or(0, i64::from_be_bytes))
    };
    for number in 0..ACCOUNTS {
        let (tree, key) = account(number);
        tree.put(key, AMOUNT.to_be_bytes())?;
    }
    let retries = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let transfer = |thread: usize| -> Result<()> {
            let mut batch = Batch::new();
            for step in 0..150 {
                let from = (thread + step) % ACCOUNTS;
                let to = (thread * 5 + step * 2 + 1) % ACCOUNTS;
                if from == to {
                    continue;
                }
                loop {
                    let before = [amount(from)?, amount(to)?];
                    batch.clear();
                    for (number, before, change) in [(from, before[0], -1), (to, before[1], 1)] {
                        let (tree, key) = account(number);
                        batch.expect(tree, &key, Some(&before.to_be_bytes()));
                        batch.put(tree, &key, (before + change).to_be_bytes());
                    }
                    match store.write(&batch) {
                        Err(error) if matches!(error.kind(), ErrorKind::ConditionFailed { .. }) => {
                            retries.fetch_add(1, Ordering::Relaxed);
                        }
                        written => break written?,
                    }
                }
                trees[step % 3].put(format!("{thread} {step}"), "beside")?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..4)
            .map(|thread| scope.spawn(move || transfer(thread)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap())
    })?;
    let sum = (0..ACCOUNTS).map(amount).sum::<Result<i64>>()?;
    assert_eq!(
        sum,
        (0..ACCOUNTS).map(|_| AMOUNT).sum::<i64>(),
        "after {retries:?} retries"
    );
    assert_eq!(store.check()?, []);
    Ok(())
}

/// A batch on a disk waits once, however many trees it has.
#[test]
fn a_batch_waits_for_the_disk_once() -> Result<()> {
    let folder = tempdir().unwrap();
    let options = Options::new().medium(MediumChoice::File).manual_epochs();
    let store = options.open(folder.path().join("a.pool"))?;
    let syncs = |store: &Store| store.stat().unwrap().log.unwrap().syncs;
    let all = trees(&store)?;
    let mut batch = Batch::new();
    for (tree, key) in all
        .iter()
        .flat_map(|tree| (0..20_u32).map(move |key| (tree, key)))
    {
        batch.put(tree, key.to_be_bytes(), "value");
    }
    store.sync()?;
    let before = syncs(&store);
    store.write(&batch)?;
    assert_eq!(syncs(&store), before + 1);
    let pending = store.write_pending(&batch)?;
    assert_eq!(syncs(&store), before + 1);
    pending.clone().wait()?;
    assert_eq!(syncs(&store), before + 2);
    assert!(pending.is_durable());
    Ok(())
}

fn put_if(store: &Store, expected: Option<&str>, value: &str) -> Result<()> {
    let read = tree_of(store, Engine::MASSTREE)?;
    let written = tree_of(store, Engine::RNTREE)?;
    let mut batch = Batch::new();
    batch
        .expect(&read, "key", expected.map(str::as_bytes))
        .put(&written, "key", value);
    store.write(&batch)
}

const BY_EPOCHS: TreeOptions = TreeOptions {
    engine: Engine::MASSTREE,
    ..TreeOptions::RECORDS
};

fn store_of_manual_epochs(folder: &TempDir) -> Result<Store> {
    let options = Options::new().manual_epochs();
    options.open(folder.path().join("a.pool"))
}

fn epochs(store: &Store) -> Result<u64> {
    let tree = tree_of(store, Engine::MASSTREE)?;
    Ok(tree.epoch_stat().unwrap().epochs)
}

/// A transient tree is lost with its process, and has epochs of its own. A batch once took these for
/// those of the pool, so a crash could leave a part of its writes, or none of what it had read.
#[test]
fn a_transient_tree_takes_no_other_tree_out_of_its_epoch() -> Result<()> {
    let folder = tempdir().unwrap();
    let store = store_of_manual_epochs(&folder)?;
    let transient = store.tree_with("transient", BY_EPOCHS.with("mode", 2)?)?;
    let by_epochs = tree_of(&store, Engine::MASSTREE)?;
    let immediate = tree_of(&store, Engine::RNTREE)?;

    let before = epochs(&store)?;
    let mut batch = Batch::new();
    for tree in [&transient, &by_epochs, &immediate] {
        batch.put(tree, "key", "1");
    }
    store.write(&batch)?;
    assert_eq!(epochs(&store)?, before + 1, "writes to all three");

    by_epochs.put("key", "2")?;
    let before = epochs(&store)?;
    let mut batch = Batch::new();
    batch
        .put(&transient, "key", "2")
        .expect(&by_epochs, "key", Some(b"2"))
        .put(&immediate, "key", "2");
    store.write(&batch)?;
    assert_eq!(epochs(&store)?, before + 1, "a condition");

    by_epochs.put("key", "3")?;
    let before = epochs(&store)?;
    let mut transaction = store.begin()?;
    assert!(transaction.get(&by_epochs, "key")?.is_some());
    assert!(transaction.get(&transient, "key")?.is_some());
    transaction.put(&immediate, "key", "3")?;
    transaction.commit()?;
    assert_eq!(epochs(&store)?, before + 1, "a transaction");

    let before = epochs(&store)?;
    let mut batch = Batch::new();
    batch
        .put(&by_epochs, "key", "4")
        .put(&transient, "key", "4");
    store.write_pending(&batch)?.wait()?;
    assert_eq!(epochs(&store)?, before + 1, "a pending batch");

    let before = epochs(&store)?;
    let mut batch = Batch::new();
    batch
        .put(&transient, "key", "5")
        .put(&immediate, "key", "5");
    store.write(&batch)?;
    assert_eq!(epochs(&store)?, before, "no write needs an epoch");
    for tree in [&transient, &by_epochs, &immediate] {
        assert!(tree.get("key")?.is_some());
    }
    Ok(())
}

/// Epochs end without a tree that nobody writes to, whose own number stays behind. A transaction that
/// read such a tree after another one could commit although a crash would take back its first read.
#[test]
fn a_transaction_that_reads_an_idle_tree_last_rests_on_the_running_epoch() -> Result<()> {
    let folder = tempdir().unwrap();
    let store = store_of_manual_epochs(&folder)?;
    let idle = store.tree_with("idle", BY_EPOCHS)?;
    let busy = tree_of(&store, Engine::MASSTREE)?;
    let immediate = tree_of(&store, Engine::RNTREE)?;
    idle.put("key", "1")?;
    store.sync()?;
    for value in ["1", "2", "3"] {
        busy.put("key", value)?;
        store.sync()?;
    }
    busy.put("key", "4")?;

    let before = epochs(&store)?;
    let mut transaction = store.begin()?;
    assert!(transaction.get(&busy, "key")?.is_some());
    assert!(transaction.get(&idle, "key")?.is_some());
    transaction.put(&immediate, "key", "4")?;
    transaction.commit()?;
    assert_eq!(epochs(&store)?, before + 1);
    Ok(())
}

/// All writes of a batch are immediate, and its condition has read a tree that is durable by epochs.
/// The batch once survived a crash that took back what it had read.
#[test]
fn a_crash_leaves_no_batch_without_what_it_has_read() -> Result<()> {
    for medium in [MediumChoice::Dax, MediumChoice::File] {
        let folder = tempdir().unwrap();
        let path = folder.path().join("a.pool");
        let options = Options::new()
            .medium(medium)
            .manual_epochs()
            .close_cleanly(false);
        let mut before = None;
        for (number, state) in [Some("inserted"), Some("updated"), None]
            .into_iter()
            .enumerate()
        {
            let store = options.open(&path)?;
            let read = tree_of(&store, Engine::MASSTREE)?;
            assert_eq!(value(&read, "key")?.as_deref(), before);
            match state {
                Some(state) => read.put("key", state)?,
                None => assert!(read.remove("key")?),
            }
            let begun = epochs(&store)?;
            put_if(&store, state, &format!("batch {number}"))?;
            let ended = epochs(&store)? - begun;
            drop(read);
            // The running epoch fails.
            drop(store);

            let store = options.open(&path)?;
            let read = tree_of(&store, Engine::MASSTREE)?;
            let written = tree_of(&store, Engine::RNTREE)?;
            assert_eq!(
                value(&written, "key")?,
                Some(format!("batch {number}")),
                "the batch returned"
            );
            assert_eq!(value(&read, "key")?.as_deref(), state, "{medium:?}");
            assert_eq!(ended, 1, "epochs that the batch has ended");
            before = state;
        }
    }
    Ok(())
}

/// A batch need not end an epoch for a state whose epoch has ended, not even if an open has touched
/// the node since.
#[test]
fn a_batch_on_a_state_whose_epoch_has_ended_ends_no_epoch() -> Result<()> {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let options = Options::new().manual_epochs().close_cleanly(false);
    let store = options.open(&path)?;
    tree_of(&store, Engine::MASSTREE)?.put("key", "kept")?;
    store.sync()?;
    let begun = epochs(&store)?;
    put_if(&store, Some("kept"), "1")?;
    assert_eq!(epochs(&store)?, begun);
    // The crash takes this back, and no batch has read it.
    tree_of(&store, Engine::MASSTREE)?.put("key", "lost")?;
    let refused = put_if(&store, Some("kept"), "2").unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::ConditionFailed { .. }),
        "{refused}"
    );
    assert_eq!(epochs(&store)?, begun);
    drop(store);

    let store = options.open(&path)?;
    let begun = epochs(&store)?;
    put_if(&store, Some("kept"), "3")?;
    assert_eq!(epochs(&store)?, begun);
    let written = tree_of(&store, Engine::RNTREE)?;
    assert_eq!(value(&written, "key")?.as_deref(), Some("3"));
    Ok(())
}

/// A batch waits for a load of one of its trees. The source of the load would wait for itself.
#[test]
fn a_batch_waits_for_a_load() -> Result<()> {
    for engine in Engine::ALL {
        let store = Store::in_memory()?;
        let tree = tree_of(&store, *engine)?;
        let other = store.tree("other")?;
        let mut both = Batch::new();
        both.expect(&tree, 99_u32.to_be_bytes(), Some(b"value"))
            .put(&tree, "key", "value");
        std::thread::scope(|scope| {
            let mut waiting = None;
            let entry = |number: u32| {
                let error = store.write(&both).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::InLoadSource), "{error}");
                other.put(number.to_be_bytes(), "value").unwrap();
                // While it waits, others may write one by one.
                waiting.get_or_insert_with(|| scope.spawn(|| store.write(&both)));
                assert!(!tree.update("key", "value").unwrap());
                (number.to_be_bytes(), "value")
            };
            assert_eq!(tree.bulk_load((0..100).map(entry), 1.0)?, 100);
            waiting.map_or(Ok(()), |waiting| waiting.join().unwrap())
        })?;
        assert_eq!((tree.len()?, other.len()?), (101, 100));
    }
    Ok(())
}

/// A batch finds a damaged record in one of its trees. Until the tree is mended no write is
/// accepted, however often the store is opened, and the writes of the batch are not lost.
#[test]
fn a_batch_that_meets_damage_stays_half_done() -> Result<()> {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let options = Options::new().medium(MediumChoice::Dax);
    let store = options.open(&path)?;
    for name in ["sound", "damaged"] {
        store
            .tree(name)?
            .put("key of the record", format!("old value in {name}"))?;
    }
    store.close()?;
    let mut bytes = std::fs::read(&path).unwrap();
    let place =
        |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|found| found == what);
    // A key of 17 bytes takes three words, and the word before it has both lengths.
    let damaged = place(&bytes, b"old value in damaged").unwrap() - 32;
    bytes[damaged..damaged + 6].fill(0xff);
    std::fs::write(&path, &bytes).unwrap();

    let store = options.open(&path)?;
    assert!(!store.recovery().after_crash);
    let sound = store.tree("sound")?;
    let damaged = store.tree("damaged")?;
    let mut batch = Batch::new();
    batch
        .put(&sound, "key of the record", "value of the batch")
        .put(&damaged, "key of the record", "lost");
    assert!(store.write(&batch).unwrap_err().is_corrupt());
    // Half of the batch is there, so no snapshot is.
    let refused = store.snapshot().unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::BatchUnfinished),
        "{refused}"
    );
    drop((batch, sound, damaged, store));
    for _ in 0..3 {
        let store = options.open(&path)?;
        assert!(store.recovery().after_crash);
        assert_eq!(
            store.recovery().damaged.len(),
            1,
            "{:?}",
            store.recovery().damaged
        );
        let sound = store.tree("sound")?;
        assert_eq!(
            value(&sound, "key of the record")?.as_deref(),
            Some("value of the batch")
        );
        let is_refused = |refused: Result<()>| {
            refused.is_err_and(|error| matches!(error.kind(), ErrorKind::BatchUnfinished))
        };
        assert!(is_refused(sound.put("another key", "1")));
        // If the damaged tree could be dropped, the rest of the batch might go to another tree in
        // its place.
        assert!(
            is_refused(store.drop_tree("damaged"))
                && is_refused(store.tree("another tree").map(drop))
        );
    }

    // The same damage, in the record of the batch that no tree has taken over.
    let mut bytes = std::fs::read(&path).unwrap();
    let lost = place(&bytes, b"lost").unwrap();
    bytes[lost] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let store = options.open(&path)?;
    let damage = &store.recovery().damaged[0];
    assert_eq!(damage.part, DamagedPart::Batch);
    assert_eq!(damage.part.to_string(), "(a batch)");
    assert!(damage.what.contains("fails its check"), "{damage:?}");
    let sound = store.tree("sound")?;
    assert_eq!(
        value(&sound, "key of the record")?.as_deref(),
        Some("value of the batch")
    );
    Ok(())
}

#[test]
fn a_batch_removes_the_keys_of_a_range() -> Result<()> {
    let store = Store::in_memory()?;
    for tree in trees(&store)? {
        for key in ["a", "b", "c", "d"] {
            tree.put(key, "old")?;
        }
        let keys = || -> Result<String> {
            let mut keys = String::new();
            for entry in &tree {
                keys += &String::from_utf8_lossy(&entry?.0);
            }
            Ok(keys)
        };
        let mut batch = Batch::new();
        batch
            .expect(&tree, "b", Some(b"old"))
            .expect_present(&tree, "c");
        // Only what comes before the removal is removed with it.
        batch.put(&tree, "bb", "gone").remove_range(&tree, "b".."d");
        batch.put(&tree, "c", "new").remove_range(&tree, "x"..);
        assert_eq!(batch.len(), 4);
        store.write(&batch)?;
        assert_eq!(keys()?, "acd");
        assert_eq!(value(&tree, "c")?.as_deref(), Some("new"));

        // The conditions are about the state before.
        let refused = store.write_pending(&batch).unwrap_err();
        assert!(
            matches!(refused.kind(), ErrorKind::ConditionFailed { tree: name, index: 0 } if name == tree.name()),
            "{refused}"
        );
        let mut all = Batch::new();
        all.expect(&tree, "b", None).remove_range(&tree, ..);
        store.write_pending(&all)?.wait()?;
        assert!(tree.is_empty()? && !all.is_empty());
        all.clear();
        assert!(all.is_empty());
        store.write(&all)?;
    }
    let types = store.typed::<u32, u32>("types")?;
    let mut batch = Batch::new();
    batch.remove_range(types.as_tree(), ..);
    let refused = store.write(&batch).unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::TypedTree { .. }),
        "{refused}"
    );
    Ok(())
}

/// The count of a tree's keys stays right while a batch removes them all, and another thread adds
/// some.
#[test]
fn a_batch_removes_the_keys_that_are_there_when_it_is_written() -> Result<()> {
    const KEYS: u32 = 4000;
    let store = Store::in_memory()?;
    let keys = store.typed::<u32, ()>("keys")?;
    let count = store.typed::<(), u32>("count")?;
    let is_right = || -> Result<bool> {
        let view = store.snapshot()?;
        let counted = view.get(&count, &())?.unwrap_or(0);
        Ok(view.iter(&keys).count() as u32 == counted)
    };
    let is_done = AtomicUsize::new(0);
    std::thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            for key in 0..KEYS {
                let added = store.transaction(|tx| {
                    tx.put(&keys, &key, &())?;
                    tx.increment(&count, &(), 1)
                });
                added.unwrap();
            }
            is_done.store(1, Ordering::Relaxed);
        });
        let mut batch = Batch::new();
        batch.remove_range(&keys, ..).put(&count, &(), &0);
        while is_done.load(Ordering::Relaxed) == 0 {
            // Meanwhile there are so many keys that some are added while the range is read.
            std::thread::sleep(Duration::from_micros(500));
            store.write(&batch)?;
            assert!(is_right()?);
        }
        Ok(())
    })?;
    assert!(is_right()?);
    Ok(())
}
