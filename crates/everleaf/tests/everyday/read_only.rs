//! Stores that are only read: whatever happened to the pool before, they show what an open for
//! writing would show, and no file changes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use everleaf::{
    Batch, CodecKind, Durability, Engine, ErrorKind, LineStore, MediumChoice, Options, Result,
    Store, TreeOptions,
};

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// A file as it was found.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Found {
    path: PathBuf,
    bytes: Vec<u8>,
    changed_s: i64,
    changed_ns: i64,
}

/// The files in a folder.
fn files(folder: &Path) -> Vec<Found> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let found = fs::metadata(&path).unwrap();
            let bytes = fs::read(&path).unwrap();
            Found {
                path,
                bytes,
                changed_s: found.mtime(),
                changed_ns: found.mtime_nsec(),
            }
        })
        .collect();
    files.sort();
    files
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Two trees of an engine, with splits, updates and removes. The second half of the writes need not
/// be durable.
fn fill(store: &Store, engine: Engine) -> Result<()> {
    for codec in CodecKind::ALL {
        let tree = store.tree_with(
            codec.name(),
            TreeOptions {
                engine,
                codec,
                ..TreeOptions::RECORDS
            },
        )?;
        for number in 0..2000 {
            tree.put(key(number), number.to_be_bytes())?;
            if number == 1000 {
                store.sync()?;
            }
            if number % 3 == 0 {
                assert!(tree.remove(key(number / 2))?);
            }
            if number % 3 == 1 {
                tree.put(key(number - 1), (2 * number).to_be_bytes())?;
            }
            if number % 3 == 2 {
                tree.put(key(number / 2 / 3 * 3), 7_u64.to_be_bytes())?;
            }
        }
    }
    Ok(())
}

fn content(store: &Store) -> Result<Vec<(String, Entries)>> {
    let mut trees = Vec::new();
    for tree in store.trees()? {
        let opened = store.open_tree(&tree.name)?;
        let entries = opened.iter().map(|entry| {
            let (key, value) = entry?;
            Ok((key.to_vec(), value.to_vec()))
        });
        trees.push((tree.name, entries.collect::<Result<Entries>>()?));
    }
    Ok(trees)
}

fn salvaged(store: &Store) -> Result<Vec<(String, Entries)>> {
    let mut trees = Vec::new();
    for tree in store.trees()? {
        let mut entries = Entries::new();
        let left_out = store.salvage(&tree.name, |key, value| {
            entries.push((key.to_vec(), value.to_vec()));
            true
        })?;
        assert_eq!(left_out, [], "{}", tree.name);
        trees.push((tree.name, entries));
    }
    Ok(trees)
}

/// Everything that would write is refused.
fn expect_refusals(store: &Store) -> Result<()> {
    let record = store.open_tree("record")?;
    let words = store.word_tree_of("word")?;
    let none = Vec::<([u8; 8], [u8; 8])>::new();
    let refused = [
        record.put("key", "value"),
        record.insert("key", "value").map(drop),
        record.update("key", "value").map(drop),
        record.remove("key").map(drop),
        record
            .compare_exchange("key", None, Some(b"value"))
            .map(drop),
        record.pending().put("key", "value").map(drop),
        record.pending().remove("key").map(drop),
        store.write(Batch::new().put(&record, "key", "value")),
        record.bulk_load(none, 1.0).map(drop),
        words.put(1, 2),
        words.compare_exchange(1, None, Some(2)).map(drop),
        words.pending().remove(1).map(drop),
        store.drop_tree("record"),
        store.rename_tree("record", "other"),
    ];
    for (number, result) in refused.into_iter().enumerate() {
        let error = result.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::ReadOnly),
            "write {number}: {error}"
        );
        assert_eq!(error.path(), Some(store.path()));
    }
    assert!(matches!(
        store.tree("new").unwrap_err().kind(),
        ErrorKind::NoSuchTree { .. }
    ));
    store.sync()
}

trait WordTreeOf {
    fn word_tree_of(&self, name: &str) -> Result<everleaf::WordTree>;
}

impl WordTreeOf for Store {
    fn word_tree_of(&self, name: &str) -> Result<everleaf::WordTree> {
        Ok(self.open_tree(name)?.as_words().expect("made as one"))
    }
}

fn reader(path: &Path) -> Result<Store> {
    Options::new().read_only(true).open(path)
}

/// Makes a pool, reads it in every way, and compares with what an open for writing then shows.
fn read_and_compare(engine: Engine, options: &Options, is_closed: bool) -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let store = options.clone().close_cleanly(is_closed).open(&path)?;
    fill(&store, engine)?;
    drop(store);
    let before = files(folder.path());
    let store = reader(&path)?;
    let another = reader(&path)?;
    assert_eq!(store.recovery().after_crash, !is_closed);
    assert_eq!(store.check()?, []);
    let found = content(&store)?;
    assert_eq!(salvaged(&another)?, found);
    assert_eq!(content(&another)?, found);
    expect_refusals(&store)?;
    assert_eq!(content(&store)?, found);
    let stat = store.stat()?;
    assert!(
        stat.medium.starts_with("read-only") && stat.trees == 2 && stat.log.is_none(),
        "{stat:?}"
    );
    another.close()?;
    drop(store);
    assert!(
        files(folder.path()) == before,
        "{engine}: a file has changed"
    );

    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy.pool");
    let copied = Options::new().backup(&path, &copy)?;
    assert_eq!(copied, fs::metadata(&copy).unwrap().len());
    assert_eq!(content(&reader(&copy)?)?, found);
    reader(&path)?.backup(copies.path().join("another.pool"))?;
    assert_eq!(
        content(&Store::open(copies.path().join("another.pool"))?)?,
        found
    );
    assert!(
        files(folder.path()) == before,
        "{engine}: a file has changed by its backup"
    );

    let store = options.open(&path)?;
    assert_eq!(content(&store)?, found);
    Ok(store.close()?)
}

#[test]
fn a_reader_shows_what_a_writer_finds_and_changes_no_file() -> Result<()> {
    for engine in Engine::ALL {
        for medium in [MediumChoice::File, MediumChoice::Dax] {
            for line_store in [LineStore::detect(), LineStore::Twin] {
                for is_closed in [true, false] {
                    println!("{engine}, {medium:?}, {line_store}, closed cleanly: {is_closed}");
                    let options = Options::new().medium(medium).line_store(line_store);
                    let options = options.durability(Durability::OnSync).manual_epochs();
                    read_and_compare(*engine, &options, is_closed)?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_writer_is_told_that_readers_have_the_pool() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    fill(&Store::open(&path)?, Engine::RNTREE)?;
    let salvage = || Options::new().open_damaged(&path);
    let _reader = salvage()?;
    let _another = salvage()?;
    let error = Store::open(&path).unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Locked {
                readers: true,
                holder: None,
                ..
            }
        ),
        "{error}"
    );
    Ok(())
}

#[test]
fn what_is_no_pool_is_an_error_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    assert!(matches!(
        reader(&path).unwrap_err().kind(),
        ErrorKind::NoSuchPool
    ));
    assert!(matches!(
        reader(folder.path()).unwrap_err().kind(),
        ErrorKind::NotAPool { .. }
    ));
    fs::write(&path, "").unwrap();
    assert!(matches!(
        reader(&path).unwrap_err().kind(),
        ErrorKind::NotAPool { .. }
    ));
    fs::write(&path, vec![7; 100_000]).unwrap();
    assert!(matches!(
        reader(&path).unwrap_err().kind(),
        ErrorKind::NotAPool { .. }
    ));
    assert_eq!(fs::read(&path).unwrap(), vec![7; 100_000]);
    let in_memory = Options::new().read_only(true).open_in_memory().unwrap_err();
    assert!(
        in_memory.to_string().contains("nothing that could be read"),
        "{in_memory}"
    );
    let in_memory = Options::new()
        .read_only(true)
        .medium(MediumChoice::Ram)
        .open(&path)
        .unwrap_err();
    assert!(matches!(in_memory.kind(), ErrorKind::NotAPool { .. }));
    assert_eq!(files(folder.path()).len(), 1);
}

/// A pool whose log is missing, damaged or of another pool shows nothing to a reader either.
#[test]
fn a_reader_refuses_what_a_writer_refuses() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let store = Options::new()
        .medium(MediumChoice::File)
        .close_cleanly(false)
        .open(&path)?;
    fill(&store, Engine::RNTREE)?;
    drop(store);
    let log = everleaf::log_path(&path);
    let bytes = fs::read(&log).unwrap();
    fs::remove_file(&log).unwrap();
    assert!(
        reader(&path)
            .unwrap_err()
            .to_string()
            .contains("is missing")
    );
    let copier = Options::new().read_only(true).read_from_copy(true);
    let missing = copier.open(&path).unwrap_err();
    assert!(missing.to_string().contains("is missing"), "{missing}");
    fs::write(&log, &bytes[..bytes.len() / 2]).unwrap();
    assert!(
        reader(&path)
            .unwrap_err()
            .to_string()
            .contains("the log is damaged")
    );
    fs::write(&log, &bytes).unwrap();
    assert_eq!(reader(&path)?.check()?, []);
    Ok(())
}

/// The line that names the log is damaged. As for a writer, that is an error unless a medium
/// without a log is asked for.
#[test]
fn a_reader_that_asks_for_a_medium_without_a_log_needs_no_name_of_one() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let store = Options::new().medium(MediumChoice::Dax).open(&path)?;
    fill(&store, Engine::RNTREE)?;
    store.close()?;
    let mut bytes = fs::read(&path).unwrap();
    // Both halves of the line.
    for half in [0, 32] {
        bytes[pool::MEDIUM_LINE as usize + half] ^= 1;
    }
    fs::write(&path, &bytes).unwrap();
    assert!(
        reader(&path)
            .unwrap_err()
            .to_string()
            .contains("open it as mapped memory")
    );
    let asked = Options::new()
        .read_only(true)
        .medium(MediumChoice::Dax)
        .open(&path)?;
    assert_eq!(asked.check()?, []);
    assert!(fs::read(&path).unwrap() == bytes);
    Ok(())
}
