//! Reading: borrowed values, ranges that seek and change threads, records that are verified,
//! pending results that are awaited.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use everleaf::{Engine, Error, ErrorKind, MediumChoice, Options, Result, Store, Tree, TreeOptions};
use tempfile::tempdir;

fn tree_of(store: &Store, engine: Engine) -> Result<Tree> {
    store.tree_with(
        engine.name,
        TreeOptions {
            engine,
            ..TreeOptions::RECORDS
        },
    )
}

#[test]
fn a_range_seeks_from_either_end() -> Result<()> {
    for engine in Engine::ALL {
        let store = Store::in_memory()?;
        let tree = tree_of(&store, *engine)?;
        (0..1000_u32).try_for_each(|number| tree.put((2 * number).to_be_bytes(), ""))?;
        let number = |entry: Option<Result<(everleaf::Value, everleaf::Value)>>| {
            entry.map(|entry| u32::from_be_bytes(entry.unwrap().0.as_slice().try_into().unwrap()))
        };
        let mut range = tree.range(100_u32.to_be_bytes()..=1501_u32.to_be_bytes());
        assert_eq!(
            (number(range.next()), number(range.next_back())),
            (Some(100), Some(1500))
        );
        range.seek(701_u32.to_be_bytes());
        assert_eq!(
            (number(range.next()), number(range.next())),
            (Some(702), Some(704))
        );
        range.seek(9_u32.to_be_bytes());
        assert_eq!(number(range.next()), Some(100));
        // Nothing is left at the other end; after a seek backwards there are entries again.
        range.seek(1500_u32.to_be_bytes());
        assert_eq!(number(range.next()), None);
        range.seek(9_u32.to_be_bytes());
        range.seek_back(801_u32.to_be_bytes());
        assert_eq!(number(range.next_back()), Some(800));
        range.seek(797_u32.to_be_bytes());
        assert_eq!(
            (number(range.next()), number(range.next())),
            (Some(798), None)
        );
        // Another thread goes on with it.
        range.seek_back(u32::MAX.to_be_bytes());
        range.seek(1496_u32.to_be_bytes());
        let rest = std::thread::scope(|scope| scope.spawn(move || range.count()).join().unwrap());
        assert_eq!(rest, 3, "{}", engine.name);
    }
    Ok(())
}

/// A range copies the entries of a leaf, and reads their records some at a time. Records that were
/// replaced or removed meanwhile must not be read: their memory may hold others by then.
#[test]
fn a_range_goes_on_with_what_its_leaf_holds_now() -> Result<()> {
    const KEYS: u32 = 200;
    /// Entries that a range reads at first.
    const READ_AHEAD: usize = 16;
    let key_of = |number: u32| format!("key {number:04}");
    for engine in Engine::ALL {
        for is_reverse in [false, true] {
            let store = Store::in_memory()?;
            let tree = tree_of(&store, *engine)?;
            for number in 0..KEYS {
                tree.put(key_of(number), "old")?;
            }
            let mut range = tree.iter();
            let mut next = || {
                let entry = if is_reverse {
                    range.next_back()
                } else {
                    range.next()
                };
                entry.transpose()
            };
            for _ in 0..READ_AHEAD {
                assert_eq!(&*next()?.expect("there are more").1, b"old");
            }
            for number in 0..KEYS {
                if number % 2 == 0 {
                    tree.put(key_of(number), "new")?;
                } else {
                    tree.remove(key_of(number))?;
                }
            }
            // Other entries take the memory of the records that are not used any more.
            let other = store.tree("other")?;
            for number in 0..10 * KEYS {
                other.put(format!("not {number:04}"), "bad")?;
            }
            let read_ahead = READ_AHEAD as u32;
            let mut expected: Vec<u32> = (0..KEYS).filter(|number| number % 2 == 0).collect();
            if is_reverse {
                expected.reverse();
                expected.retain(|number| *number < KEYS - read_ahead);
            } else {
                expected.retain(|number| *number >= read_ahead);
            }
            for number in expected {
                let (key, value) = next()?.expect("there are more");
                assert_eq!(&*key, key_of(number).as_bytes(), "{engine}");
                assert_eq!(&*value, b"new", "{engine}");
            }
            assert!(next()?.is_none(), "{engine}");
        }
    }
    Ok(())
}

/// Values are lent from a buffer of the thread; a reader may read another one meanwhile.
#[test]
fn values_are_lent_also_one_within_another() -> Result<()> {
    for engine in Engine::ALL {
        let store = Store::in_memory()?;
        let tree = tree_of(&store, *engine)?;
        tree.put("a", "one")?;
        tree.put("b", vec![7; 2 << 20])?;
        let lengths = tree.get_with("a", |one| {
            let other = tree.get_with("b", <[u8]>::len).unwrap();
            (one.to_vec(), other)
        })?;
        assert_eq!(lengths, Some((b"one".to_vec(), Some(2 << 20))));
        assert_eq!(tree.get_with("c", <[u8]>::len)?, None);
    }
    Ok(())
}

/// A flipped bit of a value is a wrong value for a store that does not verify what it reads.
#[test]
fn a_record_that_is_damaged_is_an_error_where_reads_are_verified() -> Result<()> {
    for engine in Engine::ALL {
        let folder = tempdir().unwrap();
        let path = folder.path().join("a.pool");
        let value = b"a value that nothing else in the pool has";
        let store = Store::open(&path)?;
        tree_of(&store, *engine)?.put("a key longer than a word", value)?;
        tree_of(&store, *engine)?.put("key", "sound")?;
        tree_of(&store, *engine)?.put("a key longer than two", "behind")?;
        store.close()?;
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes
            .windows(value.len())
            .position(|bytes| bytes == value)
            .unwrap();
        bytes[at + 3] ^= 4;
        std::fs::write(&path, bytes).unwrap();
        for verify in [false, true] {
            let store = Options::new().verify(verify).open(&path)?;
            let tree = tree_of(&store, *engine)?;
            let found = [
                tree.get("a key longer than a word").map(drop),
                tree.iter().try_for_each(|entry| entry.map(drop)),
            ];
            for found in found {
                let is_corrupt =
                    found.is_err_and(|error| matches!(error.kind(), ErrorKind::Corrupt { .. }));
                assert_eq!(is_corrupt, verify, "{}", engine.name);
            }
            assert_eq!(tree.get("key")?.as_deref(), Some(b"sound".as_slice()));
            // Where a range begins and ends may depend on the damaged key. Then it is an error too.
            let first = tree.range("a key longer than b"..).next().unwrap();
            match first {
                Ok((_, value)) => assert_eq!(value.as_slice(), b"behind", "{}", engine.name),
                Err(error) => assert!(verify && error.is_corrupt(), "{}", engine.name),
            }
            let before = tree.range("a key longer".."a key longer than a").next();
            if let Some(entry) = before {
                assert!(verify && entry.is_err(), "{}", engine.name);
            }
        }
    }
    Ok(())
}

/// Bytes around a value that belong to its record, or to the records beside it.
const AROUND: usize = 64;

/// Flips a bit of each byte of a record, and of what lies beside it. Every get and every range is
/// right, or an error that names the key.
#[test]
fn a_read_is_right_or_an_error_whatever_bit_of_a_record_flips() -> Result<()> {
    let value = b"a value that nothing else in the pool has";
    let keys = [
        "a key with much in common: 1",
        "a key with much in common: 2",
        "short",
    ];
    for engine in Engine::ALL {
        let folder = tempdir().unwrap();
        let path = folder.path().join("a.pool");
        let store = Store::open(&path)?;
        let tree = tree_of(&store, *engine)?;
        for key in keys {
            tree.put(key, value)?;
        }
        drop(tree);
        store.close()?;
        let sound = std::fs::read(&path).unwrap();
        let at = sound
            .windows(value.len())
            .position(|bytes| bytes == value)
            .unwrap();
        let mut errors = 0;
        for position in at - AROUND..at + value.len() + AROUND {
            let mut bytes = sound.clone();
            bytes[position] ^= 1 << (position % 8);
            std::fs::write(&path, bytes).unwrap();
            let store = Options::new().read_only(true).open(&path)?;
            let Ok(tree) = store.open_tree(engine.name) else {
                // The byte is that of a node beside the record.
                continue;
            };
            let place = format!(
                "{}, byte {}",
                engine.name,
                position.wrapping_sub(at).cast_signed()
            );
            for key in keys {
                match tree.get(key) {
                    Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "{place}, {key}"),
                    Err(error) => {
                        errors += 1;
                        assert!(error.is_corrupt(), "{place}: {error}");
                        assert!(error.to_string().contains(key), "{place}: {error}");
                    }
                }
            }
            let mut range = tree.iter();
            for key in keys {
                // A range ends with its first error.
                let Ok((found, content)) = range.next().unwrap() else {
                    break;
                };
                assert_eq!(found.as_slice(), key.as_bytes(), "{place}");
                assert_eq!(content.as_slice(), value, "{place}");
            }
        }
        // The header, the key where the record holds it, and the value.
        assert!(errors > value.len(), "{}: {errors}", engine.name);
    }
    Ok(())
}

/// Damages the keys of some records. A short range in either direction returns all keys that it
/// should, or an error. A reverse range of `cawbt` once lost leaves: it verified the records on the
/// way to its end, and went another way.
#[test]
fn a_short_range_is_whole_or_an_error_beside_a_damaged_key() -> Result<()> {
    const KEYS: usize = 2000;
    const TOGETHER: usize = 20;
    let key_of = |number: usize| format!("a key with much in common: {number:04}");
    for engine in Engine::ALL {
        let folder = tempdir().unwrap();
        let path = folder.path().join("a.pool");
        let store = Store::open(&path)?;
        let tree = tree_of(&store, *engine)?;
        for number in 0..KEYS {
            // Neighbours are put at different times, so that a leaf that is not sorted has them at
            // different places.
            tree.put(key_of(number * 1237 % KEYS), "value")?;
        }
        drop(tree);
        store.close()?;
        let sound = std::fs::read(&path).unwrap();
        for damaged in (7..KEYS).step_by(61) {
            let key = key_of(damaged);
            let mut bytes = sound.clone();
            let padded_length = key.len().next_multiple_of(8);
            for at in 8..sound.len() - 2 * padded_length {
                // A record of the entry has the value behind the key, or before it. Others are
                // separators, which are parts of nodes.
                let is_of_entry = sound[at + padded_length..].starts_with(b"value")
                    || sound[at - 8..].starts_with(b"value");
                if sound[at..].starts_with(key.as_bytes()) && is_of_entry {
                    bytes[at + key.len() - 3] ^= 4;
                }
            }
            assert!(bytes != sound, "{}, key {damaged}", engine.name);
            std::fs::write(&path, bytes).unwrap();
            let store = Options::new().read_only(true).open(&path)?;
            let Ok(tree) = store.open_tree(engine.name) else {
                continue;
            };
            for first in (0..KEYS - TOGETHER).step_by(TOGETHER) {
                let last = first + TOGETHER - 1;
                let range = || tree.range(key_of(first)..=key_of(last));
                let forward: Result<Vec<_>> = range().collect();
                let reverse: Result<Vec<_>> = range().rev().collect();
                for (name, read) in [("forward", forward), ("reverse", reverse)] {
                    let Ok(entries) = read else {
                        continue;
                    };
                    let place = format!("{}, key {damaged}, {name} from {first}", engine.name);
                    assert_eq!(entries.len(), TOGETHER, "{place}");
                }
            }
        }
    }
    Ok(())
}

/// Two whole records of keys of one length are in each other's place, as after two lines were
/// swapped. Each entry then leads to the record of the other key.
#[test]
fn a_get_does_not_miss_a_key_whose_record_was_swapped_with_another() -> Result<()> {
    let keys = [
        "a key with much in common: 1",
        "a key with much in common: 2",
    ];
    // An entry of the others does not say more of a key than its record does.
    for engine in [Engine::RNTREE, Engine::WBTREE, Engine::BZTREE] {
        let folder = tempdir().unwrap();
        let path = folder.path().join("a.pool");
        let store = Store::open(&path)?;
        let tree = tree_of(&store, engine)?;
        for key in keys {
            tree.put(key, "value")?;
        }
        drop(tree);
        store.close()?;
        let mut bytes = std::fs::read(&path).unwrap();
        let places = keys.map(|key| {
            let mut found = bytes.windows(key.len());
            // The header is the word before the key.
            found.position(|bytes| bytes == key.as_bytes()).unwrap() - 8
        });
        let length = 8 + keys[0].len().next_multiple_of(8) + 8;
        let records = places.map(|at| bytes[at..at + length].to_vec());
        bytes[places[0]..][..length].copy_from_slice(&records[1]);
        bytes[places[1]..][..length].copy_from_slice(&records[0]);
        std::fs::write(&path, bytes).unwrap();
        let store = Options::new().read_only(true).open(&path)?;
        let tree = store.open_tree(engine.name)?;
        for key in keys {
            let found = tree.get(key);
            assert!(
                found.as_ref().is_err_and(Error::is_corrupt),
                "{}: {found:?}",
                engine.name
            );
        }
    }
    Ok(())
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn pending_results_are_awaited() -> Result<()> {
    for engine in Engine::ALL {
        let folder = tempdir().unwrap();
        let options = Options::new().medium(MediumChoice::File).manual_epochs();
        let store = options.open(folder.path().join("a.pool"))?;
        let tree = tree_of(&store, *engine)?;
        block_on(async {
            for round in 0..20_u32 {
                let pending = (0..10_u32).map(|key| {
                    tree.pending()
                        .put((10 * round + key).to_be_bytes(), "value")
                });
                for result in pending.collect::<Result<Vec<_>>>()? {
                    let again = result.clone();
                    result.await?;
                    assert!(again.is_durable());
                }
            }
            Ok::<_, Error>(())
        })?;
        assert_eq!(tree.len()?, 200);
    }
    Ok(())
}

#[test]
fn pending_forms_answer_as_those_that_wait() -> Result<()> {
    for engine in Engine::ALL {
        let folder = tempdir().unwrap();
        let options = Options::new().medium(MediumChoice::File).manual_epochs();
        let store = options.open(folder.path().join("a.pool"))?;
        let tree = tree_of(&store, *engine)?;
        let pending = tree.pending();
        assert_eq!(pending.replace("key", "1")?.wait()?, None);
        let old = pending.replace("key", "2")?.wait()?;
        assert_eq!(old.as_deref(), Some(b"1".as_slice()));
        assert!(pending.contains("key")?.wait()?);
        let longer = |old: Option<&[u8]>| old.map(|old| [old, b"3"].concat());
        let old = pending.fetch_update("key", longer)?.wait()?;
        assert_eq!(old.as_deref(), Some(b"2".as_slice()));
        // Nothing changes if the key is absent, and stays so.
        assert_eq!(pending.fetch_update("no key", longer)?.wait()?, None);
        let old = pending.take("key")?.wait()?;
        assert_eq!(old.as_deref(), Some(b"23".as_slice()));
        assert!(!pending.contains("key")?.wait()?);
        assert_eq!(pending.take("key")?.wait()?, None);

        for number in 0..4_u8 {
            tree.put([number], [number])?;
        }
        let key_of = |entry: Option<everleaf::Entry>| entry.map(|(key, _)| key[0]);
        assert_eq!(key_of(pending.first()?.wait()?), Some(0));
        assert_eq!(key_of(pending.last()?.wait()?), Some(3));
        assert_eq!(key_of(pending.next_above([1])?.wait()?), Some(2));
        assert_eq!(key_of(pending.next_below([1])?.wait()?), Some(0));
        assert_eq!(key_of(pending.next_above([3])?.wait()?), None);
        assert_eq!(key_of(pending.pop_first()?.wait()?), Some(0));
        assert_eq!(key_of(pending.pop_last()?.wait()?), Some(3));
        assert_eq!(tree.len()?, 2);
        assert_eq!(tree.clear()?, 2);
        assert_eq!(key_of(pending.pop_first()?.wait()?), None);

        let kind = TreeOptions {
            engine: *engine,
            ..TreeOptions::RECORDS
        };
        let hits = store.typed_with::<String, u64>("hits", kind)?;
        for count in 0..3 {
            let counted = hits.pending().fetch_update("a", |hits| {
                assert_eq!(hits.unwrap_or(0), count);
                Some(count + 1)
            })?;
            assert_eq!(counted.wait()?.unwrap_or(0), count);
        }
        assert_eq!(hits.pending().replace("b", &7)?.wait()?, None);
        let found = hits.pending().get_many(["a", "no key", "b"])?.wait()?;
        assert_eq!(found, [Some(3), None, Some(7)]);
        assert!(hits.pending().contains("b")?.wait()?);
        assert_eq!(
            hits.pending().last()?.wait()?,
            hits.pending().next_above("a")?.wait()?
        );
        assert_eq!(hits.pending().take("b")?.wait()?, Some(7));
        assert_eq!(hits.get("b")?, None);
    }
    Ok(())
}
