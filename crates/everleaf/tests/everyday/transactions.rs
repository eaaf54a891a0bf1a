//! Transactions: the anomalies of the public catalogues of isolation tests, none of which may
//! happen, and what a user sees of commits, conflicts and rollbacks.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use everleaf::{
    Engine, Error, ErrorKind, MediumChoice, Options, Result, Store, Transaction, TreeOptions,
    TypedTree, View,
};

/// A store with two trees of different engines, each with the keys 1 and 2.
struct Catalogue {
    store: Store,
    trees: [TypedTree<u32, u64>; 2],
}

impl Catalogue {
    fn of(engines: [Engine; 2]) -> Result<Self> {
        let store = Store::in_memory()?;
        let tree = |name: &str, engine| -> Result<TypedTree<u32, u64>> {
            let kind = TreeOptions {
                engine,
                ..TreeOptions::RECORDS
            };
            let tree = store.typed_with(name, kind)?;
            tree.put(&1, &10)?;
            tree.put(&2, &20)?;
            Ok(tree)
        };
        let trees = [tree("one", engines[0])?, tree("other", engines[1])?];
        Ok(Self { store, trees })
    }

    /// Runs a test over each pair of engines.
    fn each(test: impl Fn(&Self) -> Result<()>) -> Result<()> {
        for one in Engine::ALL {
            for other in Engine::ALL {
                test(&Self::of([*one, *other])?)?;
            }
        }
        Ok(())
    }

    fn one(&self) -> &TypedTree<u32, u64> {
        &self.trees[0]
    }

    fn other(&self) -> &TypedTree<u32, u64> {
        &self.trees[1]
    }

    fn begin(&self) -> Result<Transaction> {
        self.store.begin()
    }
}

fn is_conflict(committed: Result<()>) -> bool {
    match committed {
        Ok(()) => false,
        Err(error) => {
            assert!(
                matches!(error.kind(), ErrorKind::Conflict { .. }),
                "{error}"
            );
            assert!(error.is_retryable());
            true
        }
    }
}

/// Two transactions write the same keys in opposite orders: the writes of one come before all writes
/// of the other.
#[test]
fn g0_write_cycles() -> Result<()> {
    Catalogue::each(|it| {
        let [mut first, mut second] = [it.begin()?, it.begin()?];
        first.put(it.one(), &1, &11)?;
        second.put(it.one(), &1, &12)?;
        second.put(it.other(), &2, &22)?;
        first.put(it.other(), &2, &21)?;
        first.commit()?;
        second.commit()?;
        assert_eq!(it.one().get(&1)?, Some(12));
        assert_eq!(it.other().get(&2)?, Some(22));
        Ok(())
    })
}

/// Nothing of a transaction that is undone is seen.
#[test]
fn g1a_aborted_reads() -> Result<()> {
    Catalogue::each(|it| {
        let mut undone = it.begin()?;
        undone.put(it.one(), &1, &101)?;
        let reader = it.begin()?;
        assert_eq!(reader.get(it.one(), &1)?, Some(10));
        drop(undone);
        assert_eq!(reader.get(it.one(), &1)?, Some(10));
        assert_eq!(it.one().get(&1)?, Some(10));
        Ok(())
    })
}

/// A value that its transaction overwrites is never seen.
#[test]
fn g1b_intermediate_reads() -> Result<()> {
    Catalogue::each(|it| {
        let mut writer = it.begin()?;
        writer.put(it.one(), &1, &101)?;
        let reader = it.begin()?;
        assert_eq!(reader.get(it.one(), &1)?, Some(10));
        writer.put(it.one(), &1, &11)?;
        assert_eq!(writer.get(it.one(), &1)?, Some(11));
        writer.commit()?;
        assert_eq!(reader.get(it.one(), &1)?, Some(10));
        reader.commit()?;
        assert_eq!(it.one().get(&1)?, Some(11));
        Ok(())
    })
}

/// Two transactions do not each read what the other writes.
#[test]
fn g1c_circular_information_flow() -> Result<()> {
    Catalogue::each(|it| {
        let [mut first, mut second] = [it.begin()?, it.begin()?];
        first.put(it.one(), &1, &11)?;
        second.put(it.other(), &2, &22)?;
        assert_eq!(first.get(it.other(), &2)?, Some(20));
        assert_eq!(second.get(it.one(), &1)?, Some(10));
        assert!(!is_conflict(first.commit()));
        assert!(is_conflict(second.commit()));
        Ok(())
    })
}

/// A transaction that was seen once does not vanish for a reader.
#[test]
fn otv_observed_transaction_vanishes() -> Result<()> {
    Catalogue::each(|it| {
        let [mut first, mut second] = [it.begin()?, it.begin()?];
        first.put(it.one(), &1, &11)?;
        first.put(it.other(), &2, &19)?;
        second.put(it.one(), &1, &12)?;
        first.commit()?;
        let reader = it.begin()?;
        assert_eq!(reader.get(it.one(), &1)?, Some(11));
        second.put(it.other(), &2, &18)?;
        assert_eq!(reader.get(it.other(), &2)?, Some(19));
        second.commit()?;
        assert_eq!(reader.get(it.other(), &2)?, Some(19));
        assert_eq!(reader.get(it.one(), &1)?, Some(11));
        reader.commit()
    })
}

/// A range gives the same keys when it is read again, and a write that rests on it fails if a key
/// has come.
#[test]
fn pmp_predicate_many_preceders() -> Result<()> {
    Catalogue::each(|it| {
        let mut reader = it.begin()?;
        assert_eq!(reader.range(it.one(), 3..).count(), 0);
        let mut writer = it.begin()?;
        writer.put(it.one(), &3, &30)?;
        writer.commit()?;
        assert_eq!(reader.range(it.one(), 3..).count(), 0);
        reader.put(it.other(), &1, &0)?;
        assert!(is_conflict(reader.commit()));
        Ok(())
    })
}

/// No update is lost.
#[test]
fn p4_lost_update() -> Result<()> {
    Catalogue::each(|it| {
        let [mut first, mut second] = [it.begin()?, it.begin()?];
        let one = first.get(it.one(), &1)?.unwrap_or(0);
        let other = second.get(it.one(), &1)?.unwrap_or(0);
        first.put(it.one(), &1, &(one + 1))?;
        second.put(it.one(), &1, &(other + 1))?;
        first.commit()?;
        assert!(is_conflict(second.commit()));
        assert_eq!(it.one().get(&1)?, Some(11));
        Ok(())
    })
}

/// A transaction does not see one key before, and another one after a transaction that changes both.
#[test]
fn g_single_read_skew() -> Result<()> {
    Catalogue::each(|it| {
        let reader = it.begin()?;
        assert_eq!(reader.get(it.one(), &1)?, Some(10));
        let mut writer = it.begin()?;
        assert_eq!(writer.get(it.one(), &1)?, Some(10));
        assert_eq!(writer.get(it.other(), &2)?, Some(20));
        writer.put(it.one(), &1, &12)?;
        writer.put(it.other(), &2, &18)?;
        writer.commit()?;
        assert_eq!(reader.get(it.other(), &2)?, Some(20));
        reader.commit()?;

        // By a range, and with a write.
        let mut reader = it.begin()?;
        let evens =
            |tx: &Transaction| -> Result<u64> { tx.iter(it.one()).map(|entry| Ok(entry?.1)).sum() };
        assert_eq!(evens(&reader)?, 32);
        it.one().put(&2, &30)?;
        assert_eq!(evens(&reader)?, 32);
        reader.remove(it.other(), &1)?;
        assert!(is_conflict(reader.commit()));
        Ok(())
    })
}

/// Write skew: two transactions read the same keys, and each writes another one of them.
#[test]
fn g2_item_write_skew() -> Result<()> {
    Catalogue::each(|it| {
        let [mut first, mut second] = [it.begin()?, it.begin()?];
        for tx in [&first, &second] {
            assert_eq!(tx.get(it.one(), &1)?, Some(10));
            assert_eq!(tx.get(it.other(), &2)?, Some(20));
        }
        first.put(it.one(), &1, &11)?;
        second.put(it.other(), &2, &21)?;
        first.commit()?;
        assert!(is_conflict(second.commit()));
        Ok(())
    })
}

/// Two transactions read the same range, find nothing, and each adds a key to it.
#[test]
fn g2_anti_dependency_cycles() -> Result<()> {
    Catalogue::each(|it| {
        let [mut first, mut second] = [it.begin()?, it.begin()?];
        let is_free = |tx: &Transaction, range: std::ops::Range<u32>| {
            tx.range(it.one(), range).next().is_none()
        };
        assert!(is_free(&first, 3..9));
        assert!(is_free(&second, 3..9));
        first.put(it.one(), &3, &30)?;
        second.put(it.one(), &4, &42)?;
        first.commit()?;
        assert!(is_conflict(second.commit()));
        Ok(())
    })
}

/// The part of a range that was not read does not count; look-ahead does not, either.
#[test]
fn a_range_counts_as_far_as_it_was_read() -> Result<()> {
    Catalogue::each(|it| {
        for key in 3..100 {
            it.one().put(&key, &0)?;
        }
        let write_beside = |key: u32| it.one().put(&key, &1);
        // Forward, up to 10.
        for (key, expected) in [(9, true), (10, true), (11, false)] {
            let mut tx = it.begin()?;
            let last = tx
                .range(it.one(), 4..)
                .take(7)
                .last()
                .expect("there are more")?;
            assert_eq!(last.0, 10);
            tx.put(it.other(), &1, &1)?;
            write_beside(key)?;
            assert_eq!(is_conflict(tx.commit()), expected, "{key}");
        }
        // Back, down to 90.
        for (key, expected) in [(99, true), (90, true), (89, false)] {
            let mut tx = it.begin()?;
            let last = tx
                .iter(it.one())
                .rev()
                .take(10)
                .last()
                .expect("there are more")?;
            assert_eq!(last.0, 90);
            tx.put(it.other(), &1, &1)?;
            write_beside(key)?;
            assert_eq!(is_conflict(tx.commit()), expected, "{key}");
        }
        // A seek begins another interval.
        for (key, expected) in [(20, true), (30, false), (50, true), (51, false)] {
            let mut tx = it.begin()?;
            let mut range = tx.range(it.one(), 20..60);
            range.next().expect("there are more")?;
            range.seek(&50);
            range.next().expect("there are more")?;
            drop(range);
            tx.put(it.other(), &1, &1)?;
            write_beside(key)?;
            assert_eq!(is_conflict(tx.commit()), expected, "{key}");
        }
        // To its end: also where no key was.
        it.one().remove(&70)?;
        for (key, expected) in [(70, true), (71, false)] {
            let mut tx = it.begin()?;
            assert_eq!(tx.range(it.one(), 60..71).count(), 10);
            tx.put(it.other(), &1, &1)?;
            write_beside(key)?;
            assert_eq!(is_conflict(tx.commit()), expected, "{key}");
            it.one().remove(&70)?;
        }
        // An own write that comes first hides what lies behind it.
        let mut tx = it.begin()?;
        tx.put(it.one(), &70, &7)?;
        assert_eq!(
            tx.range(it.one(), 70..).next().expect("it is there")?,
            (70, 7)
        );
        tx.put(it.other(), &1, &1)?;
        write_beside(71)?;
        assert!(!is_conflict(tx.commit()));
        Ok(())
    })
}

#[test]
fn a_transaction_sees_its_own_writes() -> Result<()> {
    Catalogue::each(|it| {
        for key in 3..20 {
            it.one().put(&key, &0)?;
        }
        let mut tx = it.begin()?;
        tx.put(it.one(), &5, &55)?;
        tx.put(it.one(), &100, &1)?;
        assert!(tx.remove(it.one(), &7)?);
        assert!(!tx.remove(it.one(), &7)?);
        assert!(!tx.insert(it.one(), &8, &1)?);
        assert!(tx.insert(it.one(), &7, &77)?);
        assert!(tx.update(it.one(), &7, &78)?);
        assert!(!tx.update(it.one(), &200, &1)?);
        assert!(tx.remove(it.one(), &9)?);
        assert!(tx.compare_exchange(it.one(), &10, Some(&0), Some(&1))?);
        assert!(!tx.compare_exchange(it.one(), &10, Some(&0), Some(&2))?);
        assert!(tx.compare_exchange(it.one(), &11, Some(&0), None)?);
        assert!(tx.compare_exchange(it.one(), &300, None, Some(&3))?);

        let values = tx.get_many(it.one(), &[&5, &6, &7, &9, &100])?;
        assert_eq!(values, [Some(55), Some(0), Some(78), None, Some(1)]);
        let expected: Vec<(u32, u64)> = [(5, 55), (6, 0), (7, 78), (8, 0), (10, 1), (12, 0)].into();
        let forward: Vec<_> = tx.range(it.one(), 5..=12).collect::<Result<_>>()?;
        assert_eq!(forward, expected);
        let back: Vec<_> = tx.range(it.one(), 5..=12).rev().collect::<Result<_>>()?;
        assert!(back.iter().rev().eq(&expected));
        assert_eq!(tx.last(it.one())?, Some((300, 3)));
        assert_eq!(tx.next_below(it.one(), &300)?, Some((100, 1)));
        // Nothing of it is there for others.
        assert_eq!(it.one().get(&5)?, Some(0));
        tx.commit()?;
        let committed: Vec<_> = it.one().range(5..=12).collect::<Result<_>>()?;
        assert_eq!(committed, expected);
        Ok(())
    })
}

#[test]
fn reads_alone_never_conflict() -> Result<()> {
    Catalogue::each(|it| {
        let tx = it.begin()?;
        assert_eq!(tx.get(it.one(), &1)?, Some(10));
        assert_eq!(tx.iter(it.one()).count(), 2);
        it.one().put(&1, &11)?;
        it.one().put(&3, &11)?;
        tx.commit()
    })
}

#[test]
fn a_write_of_a_key_that_was_not_read_conflicts_with_nothing() -> Result<()> {
    Catalogue::each(|it| {
        let mut tx = it.begin()?;
        tx.put(it.one(), &1, &1)?;
        it.one().put(&1, &2)?;
        tx.commit()?;
        assert_eq!(it.one().get(&1)?, Some(1));
        Ok(())
    })
}

#[test]
fn a_bulk_load_conflicts_with_reads_of_its_tree() -> Result<()> {
    Catalogue::each(|it| {
        it.one().clear()?;
        let mut tx = it.begin()?;
        assert_eq!(tx.get(it.one(), &7)?, None);
        tx.put(it.other(), &1, &1)?;
        it.one().bulk_load([(7, 7)], 1.0)?;
        let refused = tx.commit().unwrap_err();
        assert!(
            matches!(refused.kind(), ErrorKind::Conflict { key: None, .. }),
            "{refused}"
        );
        Ok(())
    })
}

#[test]
fn the_error_of_a_conflict_names_the_key() -> Result<()> {
    let store = Store::in_memory()?;
    let [read, written] = [store.tree("read")?, store.tree("written")?];
    let conflict = |change: &dyn Fn(&Transaction) -> Result<()>, key: &str| -> Result<Error> {
        let mut tx = store.begin()?;
        change(&tx)?;
        tx.put(&written, "key", "value")?;
        read.put(key, "meanwhile")?;
        Ok(tx.commit().unwrap_err())
    };
    let by_key = conflict(&|tx| tx.get(&read, "ada").map(drop), "ada")?;
    assert!(
        by_key.to_string().contains("key \"ada\" of tree \"read\""),
        "{by_key}"
    );
    let in_range = conflict(
        &|tx| {
            tx.range(&read, "b".."c")
                .try_for_each(|entry| entry.map(drop))
        },
        "bob",
    )?;
    assert!(in_range.to_string().contains("\"bob\""), "{in_range}");
    Ok(())
}

#[test]
fn the_closure_runs_until_it_commits() -> Result<()> {
    let store = Store::in_memory()?;
    let counter = store.word_tree("counter")?;
    let runs = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let counted = store.transaction(|tx| {
                        runs.fetch_add(1, Ordering::Relaxed);
                        let count = tx.get(&counter, 0)?.unwrap_or(0);
                        tx.put(&counter, 0, count + 1)
                    });
                    counted.unwrap();
                }
            });
        }
    });
    assert_eq!(counter.get(0)?, Some(2000));
    assert!(runs.into_inner() >= 2000);
    Ok(())
}

#[test]
fn many_transactions_are_waited_for_together() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("a.pool"))?;
    let counter = store.word_tree("counter")?;
    let mut pending = Vec::new();
    for _ in 0..100 {
        pending.push(store.transaction_pending(|tx| {
            let count = tx.get(&counter, 0)?.unwrap_or(0);
            tx.put(&counter, 0, count + 1)?;
            Ok::<_, Error>(count)
        })?);
    }
    let counts = everleaf::Pending::wait_all(pending)?;
    assert!(counts.into_iter().eq(0..100));
    assert_eq!(counter.get(0)?, Some(100));
    Ok(())
}

#[test]
fn the_bound_of_attempts() -> Result<()> {
    let store = Options::new().transaction_attempts(3).open_in_memory()?;
    let counter = store.word_tree("counter")?;
    let runs = Cell::new(0);
    let refused = store
        .transaction(|tx| {
            runs.set(runs.get() + 1);
            let count = tx.get(&counter, 0)?.unwrap_or(0);
            counter.put(0, count + 10)?;
            tx.put(&counter, 0, count + 1)
        })
        .unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::Conflict { .. }),
        "{refused}"
    );
    assert_eq!(runs.get(), 3);
    Ok(())
}

#[derive(Debug)]
enum Own {
    Refused(u64),
    Everleaf(Error),
}

impl From<Error> for Own {
    fn from(error: Error) -> Self {
        Self::Everleaf(error)
    }
}

#[test]
fn an_error_and_a_panic_undo_a_transaction() -> Result<()> {
    let store = Store::in_memory()?;
    let tree = store.word_tree("tree")?;
    let refused = store.transaction(|tx| {
        tx.put(&tree, 1, 1)?;
        Err::<(), _>(Own::Refused(7))
    });
    match refused.unwrap_err() {
        Own::Refused(number) => assert_eq!(number, 7),
        Own::Everleaf(error) => panic!("{error}"),
    }
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        store.transaction(|tx| {
            tx.put(&tree, 2, 2)?;
            assert!(tx.is_empty(), "the closure panics");
            Ok::<_, Error>(())
        })
    }));
    assert!(panicked.is_err());
    assert!(tree.is_empty()?);
    assert_eq!(store.stat()?.versions.views, 0);
    Ok(())
}

#[test]
fn a_transaction_that_is_too_old_is_run_again() -> Result<()> {
    let store = Options::new().versions_bytes_max(10_000).open_in_memory()?;
    let tree = store.tree("tree")?;
    for number in 0..100_u32 {
        tree.put(number.to_be_bytes(), vec![1; 1000])?;
    }
    let runs = Cell::new(0);
    let read = store.transaction(|tx| {
        runs.set(runs.get() + 1);
        if runs.get() == 1 {
            for number in 0..100_u32 {
                tree.put(number.to_be_bytes(), vec![2; 1000])?;
            }
        }
        tx.put(&tree, "done", "")?;
        tx.get_with(&tree, 50_u32.to_be_bytes(), |value| value[0])
    })?;
    assert_eq!((read, runs.get()), (Some(2), 2));
    assert!(tree.contains("done")?);
    Ok(())
}

#[test]
fn the_write_that_exceeds_a_limit_fails() -> Result<()> {
    let store = Store::in_memory()?;
    let tree = store.tree("tree")?;
    let kind = TreeOptions {
        engine: Engine::MASSTREE,
        ..TreeOptions::WORDS
    };
    let by_epochs = store
        .tree_with("by epochs", kind)?
        .as_words()
        .expect("words");
    let mut tx = store.begin()?;
    for number in 0..15_u32 {
        tx.put(&tree, number.to_be_bytes(), vec![0; 1 << 20])?;
    }
    let fresh = store.tree("fresh")?;
    assert!(tx.put(&fresh, "key", vec![0; 2 << 20]).is_err());
    let refused = tx.put(&tree, "one more", vec![0; 2 << 20]).unwrap_err();
    assert!(
        matches!(
            refused.kind(),
            ErrorKind::BatchTooLarge { what: "bytes", .. }
        ),
        "{refused}"
    );
    // A write that is replaced does not count.
    for number in 0..15_u32 {
        tx.put(&tree, number.to_be_bytes(), "")?;
        tx.put(&tree, number.to_be_bytes(), vec![0; 1 << 20])?;
    }
    let refused = tx
        .put(&tree, 7_u32.to_be_bytes(), vec![0; 3 << 20])
        .unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::BatchTooLarge { .. }),
        "{refused}"
    );
    assert_eq!(
        tx.get_with(&tree, 7_u32.to_be_bytes(), <[u8]>::len)?,
        Some(1 << 20)
    );
    for number in 0..10_000 {
        tx.put(&by_epochs, number, number)?;
    }
    let refused = tx.put(&by_epochs, 10_000, 0).unwrap_err();
    assert!(
        matches!(
            refused.kind(),
            ErrorKind::BatchTooLarge { limit: 10_000, .. }
        ),
        "{refused}"
    );
    let refused = tx
        .put(&by_epochs.as_tree().clone(), "short", "x")
        .unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::NotAWord { .. }),
        "{refused}"
    );
    tx.commit()?;
    assert_eq!((tree.len()?, by_epochs.len()?), (15, 10_000));

    let other = Store::in_memory()?.tree("tree")?;
    let refused = store.begin()?.put(&other, "key", "value").unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::OfAnotherStore { .. }),
        "{refused}"
    );
    Ok(())
}

/// Transfers over trees of all engines by transactions, single writes between them, and auditors.
#[test]
fn the_sum_of_all_accounts_stays() -> Result<()> {
    const ACCOUNTS: u64 = 20;
    for medium in [MediumChoice::Ram, MediumChoice::File] {
        let folder = tempfile::tempdir().unwrap();
        let store = Options::new()
            .medium(medium)
            .open(folder.path().join("a.pool"))?;
        let trees: Vec<TypedTree<u64, u64>> = Engine::ALL
            .iter()
            .map(|engine| {
                let kind = TreeOptions {
                    engine: *engine,
                    ..TreeOptions::RECORDS
                };
                store.typed_with(engine.name, kind)
            })
            .collect::<Result<_>>()?;
        for tree in &trees {
            for account in 0..ACCOUNTS {
                tree.put(&account, &100)?;
            }
        }
        let whole = trees.len() as u64 * ACCOUNTS * 100;
        let sum = |view: &dyn Fn(&TypedTree<u64, u64>) -> Result<u64>| -> Result<u64> {
            trees.iter().map(view).sum()
        };
        let transfers = AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..4_u64 {
                let store = &store;
                let trees = &trees;
                let transfers = &transfers;
                scope.spawn(move || {
                    let mut state = thread + 1;
                    let mut next = |below: u64| {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695);
                        (state >> 33) % below
                    };
                    for _ in 0..200 {
                        let from = &trees[next(trees.len() as u64) as usize];
                        let to = &trees[next(trees.len() as u64) as usize];
                        let accounts = [next(ACCOUNTS), next(ACCOUNTS)];
                        let amount = next(30);
                        let moved = store.transaction(|tx| {
                            let have = tx.get(from, &accounts[0])?.unwrap_or(0);
                            if have < amount {
                                return Ok::<_, Error>(false);
                            }
                            tx.put(from, &accounts[0], &(have - amount))?;
                            let has = tx.get(to, &accounts[1])?.unwrap_or(0);
                            tx.put(to, &accounts[1], &(has + amount))?;
                            Ok(true)
                        });
                        moved.unwrap();
                        transfers.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while transfers.load(Ordering::Relaxed) < 800 {
                let snapshot = store.snapshot()?;
                let found = sum(&|tree| snapshot.iter(tree).map(|entry| Ok(entry?.1)).sum())?;
                assert_eq!(found, whole);
            }
            Ok::<_, Error>(())
        })?;
        let found = sum(&|tree| tree.iter().map(|entry| Ok(entry?.1)).sum())?;
        assert_eq!(found, whole);
    }
    Ok(())
}

/// A transaction waits for no announced share, because single writes take locked ones beside views.
#[test]
fn single_writes_and_transactions_to_one_key_lose_nothing() -> Result<()> {
    const ADDITIONS: u64 = 30_000;
    let store = Store::in_memory()?;
    let counters = store.typed::<u32, u64>("counters")?;
    counters.put(&1, &0)?;
    // Versions are on, as beside the view of another thread.
    let view = store.snapshot()?;
    thread::scope(|scope| {
        let single = scope.spawn(|| -> Result<()> {
            for _ in 0..ADDITIONS {
                loop {
                    let current = counters.get(&1)?;
                    let next = current.map(|value| value + 1);
                    if counters.compare_exchange(&1, current.as_ref(), next.as_ref())? {
                        break;
                    }
                }
            }
            Ok(())
        });
        for _ in 0..ADDITIONS {
            store.transaction(|transaction| {
                let current = transaction.get(&counters, &1)?.unwrap_or(0);
                transaction.put(&counters, &1, &(current + 1))
            })?;
        }
        single.join().expect("the thread ends")
    })?;
    drop(view);
    assert_eq!(counters.get(&1)?, Some(2 * ADDITIONS));
    Ok(())
}

fn keys_of(tree: &TypedTree<u32, u64>) -> Result<Vec<u32>> {
    tree.iter().map(|entry| Ok(entry?.0)).collect()
}

#[test]
fn a_range_is_removed_within_a_transaction() -> Result<()> {
    Catalogue::each(|both| {
        let tree = both.one();
        for key in 3..=600 {
            tree.put(&key, &0)?;
        }
        let mut tx = both.begin()?;
        tx.put(tree, &10_000_u32, &0_u64)?;
        tx.put(tree, &20_000_u32, &0_u64)?;
        tx.remove(tree, &5_u32)?;
        // 2 to 600 without 5, and one key of its own.
        assert_eq!(tx.remove_range(tree, 2..20_000)?, 599);
        assert_eq!(tx.remove_range(tree, 2..20_000)?, 0);
        assert_eq!(tx.iter(tree).count(), 2);
        tx.put(tree, &7_u32, &1_u64)?;
        assert_eq!(tree.len()?, 600);
        tx.commit()?;
        assert_eq!(keys_of(tree)?, [1, 7, 20_000]);

        // A key that another write adds to the range is a conflict, one beside it is none.
        for (key, conflicts) in [(8, true), (30_000, false)] {
            let mut tx = both.begin()?;
            assert_eq!(tx.remove_range(tree, 2..20_000)?, 1);
            tree.put(&key, &0)?;
            assert_eq!(is_conflict(tx.commit()), conflicts, "{key}");
            tree.remove(&8)?;
        }
        assert_eq!(keys_of(tree)?, [1, 20_000, 30_000]);
        Ok(())
    })
}

#[test]
fn a_range_that_exceeds_the_limits_of_a_transaction_is_refused() -> Result<()> {
    let store = Store::in_memory()?;
    let kind = TreeOptions {
        engine: Engine::MASSTREE,
        ..TreeOptions::WORDS
    };
    let words = store.tree_with("words", kind)?.as_words().unwrap();
    words.bulk_load((0..10_001).map(|number| (number, number)), 1.0)?;
    let refused = store
        .transaction(|tx| tx.remove_range(&words, ..))
        .unwrap_err();
    assert!(
        matches!(
            refused.kind(),
            ErrorKind::BatchTooLarge { limit: 10_000, .. }
        ),
        "{refused}"
    );
    assert_eq!(words.len()?, 10_001);
    assert_eq!(
        store.transaction(|tx| tx.remove_range(&words, 1..))?,
        10_000
    );
    Ok(())
}

#[test]
fn numbers_are_counted_in_transactions_and_without() -> Result<()> {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 250;
    for engine in [Engine::RNTREE, Engine::MASSTREE] {
        let store = Store::in_memory()?;
        let records = TreeOptions {
            engine,
            ..TreeOptions::RECORDS
        };
        let words = TreeOptions {
            engine,
            ..TreeOptions::WORDS
        };
        let counters = store.typed_with::<String, u64>("counters", records)?;
        let words = store.tree_with("words", words)?.as_words().unwrap();
        let ids = store.typed_with::<u64, u64>("ids", records)?;
        let count = |thread: u64| -> Result<Vec<u64>> {
            let mut sums = Vec::new();
            for round in 0..ROUNDS {
                sums.push(counters.increment("single", 1)?);
                words.increment(1, 2)?;
                words.fetch_update(2, |old| Some(old.unwrap_or(0) + 1))?;
                if round % 5 == 0 {
                    store.transaction(|tx| {
                        let id = tx.increment(&counters, "next id", 1)?;
                        tx.increment(&words, 3, -1 + 2)?;
                        tx.fetch_update(&counters, "updated", |old| Some(old.unwrap_or(0) + 1))?;
                        // Two threads with one id would leave one entry less.
                        tx.put(&ids, &id, &thread)?;
                        Ok::<_, Error>(())
                    })?;
                }
            }
            Ok(sums)
        };
        let mut sums = Vec::new();
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for number in 0..THREADS {
                threads.push(scope.spawn(move || count(number)));
            }
            for thread in threads {
                sums.extend(thread.join().unwrap().unwrap());
            }
        });
        sums.sort_unstable();
        let all = THREADS * ROUNDS;
        assert!(sums.into_iter().eq(1..=all));
        assert_eq!(words.get_many(&[1, 2])?, [Some(2 * all), Some(all)]);
        let some = all / 5;
        assert_eq!((counters.get("next id")?, ids.len()?), (Some(some), some));
        assert_eq!(
            (counters.get("updated")?, words.get(3)?),
            (Some(some), Some(some))
        );
    }
    Ok(())
}

#[test]
fn a_counter_stays_within_its_type() -> Result<()> {
    let store = Store::in_memory()?;
    let small = store.typed::<u8, i8>("small")?;
    let words = store.word_tree("words")?;
    assert_eq!(small.increment(&1, 127)?, 127);
    assert_eq!(small.increment(&2, -128)?, -128);
    words.put(1, u64::MAX)?;
    let refused = [
        small.increment(&1, 1).err(),
        small.increment(&2, -1).err(),
        small.increment(&3, i64::MAX).err(),
        words.increment(1, 1).err(),
        words.increment(2, -1).err(),
        store.transaction(|tx| tx.increment(&small, &1_u8, 1)).err(),
        store.transaction(|tx| tx.increment(&words, 1, 1)).err(),
    ];
    for (number, error) in refused.into_iter().enumerate() {
        let error = error.unwrap_or_else(|| panic!("increment {number} was not refused"));
        assert!(
            matches!(error.kind(), ErrorKind::CounterOverflow { .. }),
            "{error}"
        );
    }
    assert_eq!((small.get(&1)?, small.get(&3)?), (Some(127), None));
    assert_eq!((words.get(1)?, words.get(2)?), (Some(u64::MAX), None));
    Ok(())
}

#[test]
fn an_update_within_a_transaction_may_remove_the_key_or_leave_it_absent() -> Result<()> {
    let store = Store::in_memory()?;
    let tree = store.tree("tree")?;
    tree.put("a", "1")?;
    store.transaction(|tx| {
        let old = tx.fetch_update(&tree, "a", |_| None)?;
        assert_eq!(old.as_deref(), Some(b"1".as_slice()));
        assert_eq!(tx.fetch_update(&tree, "b", |_| None)?, None);
        assert_eq!(tx.len(), 1);
        let twice = |old: Option<everleaf::Value>| old.map(|old| [&*old, &*old].concat().into());
        assert_eq!(tx.fetch_update(&tree, "c", twice)?, None);
        tx.put(&tree, "c", "x")?;
        tx.fetch_update(&tree, "c", twice)?;
        Ok::<_, Error>(())
    })?;
    assert_eq!((tree.get("a")?, tree.len()?), (None, 1));
    assert_eq!(tree.get("c")?.as_deref(), Some(b"xx".as_slice()));
    Ok(())
}
