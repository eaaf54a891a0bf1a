//! Copies of stores that are in use: backups, and stores that are read beside a process that writes.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use everleaf::{
    CodecKind, Durability, Engine, ErrorKind, LineStore, LogError, MediumChoice, MediumError,
    Options, Result, Store, TreeOptions, WordTree,
};

mod common;

use common::folder;

/// The variable with the pool that a child process of a test writes.
const POOL: &str = "EVERLEAF_TEST_BACKUP_POOL";
/// The variable with the pause between its writes, in milliseconds.
const PAUSE: &str = "EVERLEAF_TEST_BACKUP_PAUSE";
/// The variable with the engine of its trees.
const ENGINE: &str = "EVERLEAF_TEST_BACKUP_ENGINE";

fn options() -> Options {
    // The log is so small that checkpoints come all the time.
    Options::new()
        .medium(MediumChoice::File)
        .log_bytes(1 << 20)
        .recovery_threads(1)
}

/// Writes key after key, each into one tree first and then into the other, and prints the keys that
/// are durable.
#[test]
fn writer() {
    let Some(pool) = std::env::var_os(POOL) else {
        return;
    };
    let engine = std::env::var(ENGINE).unwrap();
    let pause: u64 = std::env::var(PAUSE).unwrap().parse().unwrap();
    let kind = TreeOptions {
        engine: Engine::from_name(&engine).unwrap(),
        codec: CodecKind::Word,
        ..TreeOptions::RECORDS
    };
    let store = options().open(pool).unwrap();
    let [first, second] = ["first", "second"].map(|name| {
        let tree = store.tree_with(name, kind).unwrap();
        tree.as_words().unwrap()
    });
    let mut output = std::io::stderr().lock();
    for key in 0_u64.. {
        // Old keys are written again, so that lines are checkpointed more than once.
        first.put(key / 2, key).unwrap();
        second.put(key / 2, key).unwrap();
        if key % 16 == 0 {
            if kind.engine.is_buffered() {
                store.sync().unwrap();
            }
            if writeln!(output, "{}", key + 1).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(pause));
        }
    }
}

/// The variables with the pool that a child process of a test copies, and the path of the copy.
const COPY: &str = "EVERLEAF_TEST_BACKUP_COPY";

#[test]
fn copier() {
    let Some(pool) = std::env::var_os(COPY) else {
        return;
    };
    options()
        .backup(&pool, Path::new(&pool).with_file_name("copy"))
        .unwrap();
}

/// A pool whose copy takes a while; and the files that lie beside it.
fn large_pool(folder: &Path) -> (PathBuf, impl Fn() -> Vec<PathBuf>) {
    let pool = folder.join("a.pool");
    let store = options().open(&pool).unwrap();
    let tree = store.tree("large").unwrap();
    for key in 0..LARGE {
        tree.put([key], vec![key; 1 << 20]).unwrap();
    }
    drop(tree);
    store.close().unwrap();
    let folder = folder.to_owned();
    (pool, move || {
        let names = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        names
            .filter(|path| {
                !path
                    .file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .starts_with("a.pool")
            })
            .collect()
    })
}

const LARGE: u8 = 60;

fn is_whole(copy: &Path) -> bool {
    let Ok(store) = options().create(false).open(copy) else {
        return false;
    };
    store
        .open_tree("large")
        .and_then(|tree| tree.len())
        .is_ok_and(|found| found == u64::from(LARGE))
}

#[test]
fn a_copy_that_was_cut_off_is_none_and_keeps_nobody_from_the_next_one() {
    let folder = folder();
    let (pool, others) = large_pool(folder.path());
    let copy = folder.path().join("copy");
    let mut cut_off = 0;
    for _ in 0..40 {
        let left = others().len();
        let mut child = Command::new(std::env::current_exe().unwrap());
        let mut child = child
            .args(["copier", "--exact"])
            .env(COPY, &pool)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while others().len() == left && child.try_wait().unwrap().is_none() {}
        child.kill().unwrap();
        let was_killed = !child.wait().unwrap().success();
        cut_off += u32::from(was_killed && others().len() > left);
        assert!(!copy.exists() || is_whole(&copy), "half a copy");
        let _ = std::fs::remove_file(&copy);
        if cut_off == 3 {
            break;
        }
    }
    assert!(cut_off > 0, "none was cut off");
    options().backup(&pool, &copy).unwrap();
    assert!(is_whole(&copy));
}

/// This also checks the files that appear there while the copy is made.
#[test]
fn a_copy_takes_nobodys_place() {
    let folder = folder();
    let (pool, others) = large_pool(folder.path());
    let copy = folder.path().join("copy");
    let store = options().open(&pool).unwrap();
    let mut refused = 0;
    for _ in 0..40 {
        let copied = std::thread::scope(|scope| {
            let copied = scope.spawn(|| store.backup(&copy));
            while others().is_empty() && !copied.is_finished() {}
            if let Ok(mut file) = std::fs::File::create_new(&copy) {
                file.write_all(b"mine").unwrap();
            }
            copied.join().unwrap()
        });
        if let Err(error) = copied {
            assert!(
                matches!(error.kind(), ErrorKind::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
            );
            assert_eq!(std::fs::read(&copy).unwrap(), b"mine");
            assert_eq!(
                others(),
                std::slice::from_ref(&copy),
                "nothing else is left"
            );
            refused += 1;
        }
        std::fs::remove_file(&copy).unwrap();
        if refused == 3 {
            break;
        }
    }
    assert!(refused > 0, "the place was never taken in between");
}

/// A process that writes.
struct Writer {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
    /// The number of writes to each tree that are known to be durable.
    acknowledged: u64,
}

impl Writer {
    fn start(pool: &Path, engine: Engine) -> Self {
        Self::with_pauses(pool, engine, 0)
    }

    /// Starts a process that pauses for this many milliseconds after every 16 writes.
    fn with_pauses(pool: &Path, engine: Engine, pause: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["writer", "--exact", "--nocapture"])
            .env(POOL, pool)
            .env(PAUSE, pause.to_string())
            .env(ENGINE, engine.name());
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self {
            child,
            said,
            acknowledged: 0,
        }
    }

    /// Waits until this many writes are durable.
    fn await_writes(&mut self, writes: u64) {
        let mut line = String::new();
        while self.acknowledged < writes {
            line.clear();
            let bytes = self.said.read_line(&mut line).unwrap();
            assert!(bytes > 0, "the writer ended by itself");
            self.acknowledged = line.trim().parse().unwrap_or(self.acknowledged);
        }
    }

    /// Waits for the last line that the writer had printed when it had made this many writes.
    fn catch_up(&mut self, writes: u64) {
        self.await_writes(writes.saturating_sub(1) / 16 * 16 + 1);
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Checks that the store is the state of one moment: both trees have no gap, and the second is at
/// most one write behind. Returns the number of writes to the first.
fn writes(store: &Store) -> u64 {
    try_writes(store).unwrap()
}

/// Does the same as [`writes`], in a store that may be overtaken.
fn try_writes(store: &Store) -> Result<u64> {
    assert_eq!(store.check()?, []);
    let count = |name: &str| -> Result<u64> {
        let tree: WordTree = store.word_tree(name)?;
        let entries: Vec<(u64, u64)> = tree.range(..).collect::<Result<_>>()?;
        for (place, (key, value)) in entries.iter().enumerate() {
            let is_last = place + 1 == entries.len();
            let whole =
                *key == place as u64 && (*value == 2 * key + 1 || is_last && *value == 2 * key);
            assert!(
                whole,
                "{name}: {key} = {value} at {place} of {}",
                entries.len()
            );
        }
        Ok(entries.last().map_or(0, |(_, value)| value + 1))
    };
    let first = count("first")?;
    let second = count("second")?;
    assert!(
        second == first || second + 1 == first,
        "{first} and {second} writes"
    );
    Ok(first)
}

#[test]
fn a_pool_that_another_process_writes_is_copied_and_that_notices_nothing() {
    let folder = folder();
    let pool = folder.path().join("a.pool");
    let mut writer = Writer::start(&pool, Engine::RNTREE);
    for number in 0..8 {
        // The copy must have the keys that the writer has printed by now. The writer goes on
        // meanwhile.
        writer.await_writes(2000 * (number + 1));
        let acknowledged = writer.acknowledged;
        assert!(matches!(
            options().open(&pool).unwrap_err().kind(),
            ErrorKind::Locked { .. }
        ));
        let target = folder.path().join(format!("copy {number}"));
        // On a busy machine the writer may reuse space of its log before the copy has read it.
        let bytes = (0..50).find_map(|_| match options().backup(&pool, &target) {
            Err(error) if matches!(error.medium(), Some(MediumError::Log(LogError::Overrun))) => {
                None
            }
            copied => Some(copied.unwrap()),
        });
        assert_eq!(Some(std::fs::metadata(&target).unwrap().len()), bytes);
        let copy = options().open(&target).unwrap();
        let found = writes(&copy);
        assert!(
            found >= acknowledged,
            "{found} writes in the copy, {acknowledged} acknowledged before"
        );
        copy.close().unwrap();
    }
    writer.kill();
    let left: Vec<PathBuf> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(
        left.iter()
            .all(|path| path.extension().is_none_or(|name| name != "spool")),
        "{left:?}"
    );
    // Then a copy of a pool that no process has open, and that was left by a crash.
    options().backup(&pool, folder.path().join("last")).unwrap();
    assert!(writes(&options().open(folder.path().join("last")).unwrap()) > 0);
}

fn reader() -> Options {
    options().read_only(true)
}

/// Opens a copy of a store beside its writer.
fn copied_beside(pool: &Path) -> Store {
    // On a busy machine the writer may reuse space of its log before the reader has read it.
    let opened = (0..50).find_map(|_| match reader().read_from_copy(true).open(pool) {
        Err(error) if matches!(error.medium(), Some(MediumError::Log(LogError::Overrun))) => None,
        opened => Some(opened.unwrap()),
    });
    opened.expect("the log is read before it is overwritten")
}

/// The writer goes on, is killed, comes back, and closes the pool: the copy shows the moment of its
/// open, and keeps no process out.
#[test]
fn a_copy_is_read_beside_a_writer_as_of_one_moment() {
    for engine in Engine::ALL {
        println!("{engine}");
        let folder = folder();
        let pool = folder.path().join("a.pool");
        let mut writer = Writer::start(&pool, *engine);
        let mut readers = Vec::new();
        for number in 1..4 {
            writer.await_writes(400 * number);
            let acknowledged = writer.acknowledged;
            let store = copied_beside(&pool);
            let found = writes(&store);
            assert!(
                found >= acknowledged,
                "{found} writes were read, {acknowledged} were acknowledged before"
            );
            readers.push((store, found));
        }
        let (last, found) = &readers[2];
        writer.await_writes(found + 100);
        let refused = last.word_tree("first").unwrap().put(1, 1).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::ReadOnly), "{refused}");
        let stat = last.stat().unwrap();
        assert!(
            stat.notes.iter().any(|note| note.contains("copy")),
            "{stat:?}"
        );
        let copy = folder.path().join("copy");
        last.backup(&copy).unwrap();
        assert_eq!(writes(&options().open(&copy).unwrap()), *found);
        writer.kill();
        // Another writer comes, moves and gives back what it can, and closes the pool.
        let store = options().open(&pool).unwrap();
        let last_write = writes(&store);
        for name in ["first", "second"] {
            store.open_tree(name).unwrap().clear().unwrap();
        }
        store.compact().unwrap();
        store.close().unwrap();
        for (store, found) in &readers {
            assert_eq!(writes(store), *found);
            assert!(*found <= last_write);
        }
        let names: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }
}

/// Opens a store in place.
fn in_place(pool: &Path) -> Store {
    let store = reader().open(pool).unwrap();
    // A copy has a note.
    match store.stat() {
        Ok(stat) => assert_eq!(stat.notes, Vec::<String>::new()),
        Err(error) => assert!(is_overtaken(&error), "{error}"),
    }
    store
}

fn is_overtaken(error: &everleaf::Error) -> bool {
    matches!(error.kind(), ErrorKind::ViewTooOld { limit: None })
}

/// A store that is read in place shows one moment, or says that it was overtaken.
#[test]
fn a_store_is_read_in_place_beside_a_writer_until_it_is_overtaken() {
    for engine in Engine::ALL {
        let folder = folder();
        let pool = folder.path().join("a.pool");
        let mut writer = Writer::with_pauses(&pool, *engine, 4);
        writer.await_writes(100);
        let mut store = in_place(&pool);
        let mut read = 0;
        let mut overtaken = 0;
        for number in 1..10 {
            writer.await_writes(100 * number);
            let acknowledged = writer.acknowledged;
            store = store.refresh().unwrap();
            match try_writes(&store) {
                Ok(found) => {
                    assert!(found >= acknowledged, "{engine}: {found} of {acknowledged}");
                    read += 1;
                }
                Err(error) => {
                    assert!(is_overtaken(&error), "{engine}: {error}");
                    assert!(error.to_string().contains("refresh()"), "{error}");
                    overtaken += 1;
                }
            }
        }
        println!("{engine}: {read} read, {overtaken} overtaken");
        assert!(read > 0, "{engine}: each reader was overtaken");
        writer.kill();
        // Nothing overtakes a reader while no process writes.
        let store = in_place(&pool);
        let found = writes(&store);
        let again = options().open(&pool).unwrap();
        assert_eq!(writes(&again), found);
        again.close().unwrap();
        let error = try_writes(&store).unwrap_err();
        assert!(is_overtaken(&error), "{engine}: {error}");
        assert_eq!(writes(&store.refresh().unwrap()), found);
    }
}

/// A process has opened the pool, and its log holds nothing yet.
#[test]
fn a_store_is_read_in_place_beside_a_writer_that_has_written_nothing() {
    let folder = folder();
    let pool = folder.path().join("a.pool");
    let found = filled(&pool, MediumChoice::File, true);
    let writer = options().open(&pool).unwrap();
    let store = in_place(&pool);
    assert_eq!(writes(&store), found);
    let second = in_place(&pool);
    writer.word_tree("first").unwrap().put(0, 1).unwrap();
    let read = |store: &Store| store.word_tree("first")?.get(0);
    let error = read(&store).unwrap_err();
    assert!(is_overtaken(&error), "{error}");
    // Also after the pool was closed, and needs no log again.
    writer.close().unwrap();
    let error = read(&second).unwrap_err();
    assert!(is_overtaken(&error), "{error}");

    let writer = options().open(&pool).unwrap();
    let store = in_place(&pool);
    assert_eq!(read(&store).unwrap(), Some(1));
    writer.close().unwrap();
    assert_eq!(read(&store.refresh().unwrap()).unwrap(), Some(1));
}

/// The seconds that each part of the long test takes, if not 10.
const SECONDS: &str = "EVERLEAF_TEST_BESIDE_SECONDS";

/// A writer of a thousand puts a second does not notice readers, in place and from copies.
#[test]
#[ignore = "thorough: 20 s"]
fn a_steady_writer_keeps_its_rate_beside_readers() {
    let seconds = std::env::var(SECONDS).map_or(10, |seconds| seconds.parse().unwrap());
    let part = Duration::from_secs(seconds);
    let folder = tempfile::tempdir().unwrap();
    let pool = folder.path().join("a.pool");
    // The writer makes 32 puts, and pauses for 32 ms.
    let mut writer = Writer::with_pauses(&pool, Engine::RNTREE, 32);
    writer.await_writes(1000);
    let rate_since = |writes: u64, start: Instant, writer: &Writer| {
        (writer.acknowledged - writes) as f64 / start.elapsed().as_secs_f64()
    };
    let start = Instant::now();
    let begin = writer.acknowledged;
    while start.elapsed() < part {
        writer.await_writes(writer.acknowledged + 1);
    }
    let rate_alone = rate_since(begin, start, &writer);
    let start = Instant::now();
    let begin = writer.acknowledged;
    let mut read = 0;
    let mut overtaken = 0;
    while start.elapsed() < part {
        let store = reader().open(&pool).unwrap();
        match try_writes(&store) {
            Ok(found) => {
                assert!(found >= writer.acknowledged);
                read += 1;
            }
            Err(error) => {
                assert!(is_overtaken(&error), "{error}");
                overtaken += 1;
            }
        }
        let found = writes(&copied_beside(&pool));
        assert!(found >= writer.acknowledged);
        writer.catch_up(found);
        std::thread::sleep(Duration::from_millis(100));
    }
    let rate_beside = rate_since(begin, start, &writer);
    println!(
        "{rate_alone:.0} writes a second alone, {rate_beside:.0} beside readers: {read} in place, {overtaken} of these overtaken, \
         {} copies",
        read + overtaken
    );
    assert!(rate_beside > 0.9 * rate_alone);
    assert!(read > overtaken);
    writer.kill();
}

/// The file is cut while readers map it: a load beyond its end would end the process.
#[test]
fn no_cut_of_the_file_ends_a_process_that_reads_it() {
    for medium in [MediumChoice::File, MediumChoice::Dax] {
        let folder = folder();
        let pool = folder.path().join("a.pool");
        // Every processor can store lines of this form to mapped memory.
        let options = options().medium(medium).line_store(LineStore::Twin);
        let store = options.open(&pool).unwrap();
        let tree = store.tree("large").unwrap();
        for key in 0..16_u8 {
            tree.put([key], vec![key; 1 << 20]).unwrap();
        }
        drop(tree);
        store.close().unwrap();
        let length = || std::fs::metadata(&pool).unwrap().len();
        let full = length();
        let store = reader().open(&pool).unwrap();
        let tree = store.open_tree("large").unwrap();
        let compacted = || {
            let writer = options.open(&pool).unwrap();
            writer.open_tree("large").unwrap().clear().unwrap();
            writer.compact().unwrap();
            writer.close().unwrap();
        };
        compacted();
        for key in 0..16_u8 {
            let error = tree.get([key]).unwrap_err();
            assert!(is_overtaken(&error), "{medium:?}: {error}");
        }
        assert_eq!(length(), full, "{medium:?}");
        drop((tree, store));
        compacted();
        assert!(length() < full, "{medium:?}: nothing keeps the file long");
    }
}

/// A checkpoint would overtake the reader, so the writer lets its log grow beyond the size of the pool.
#[test]
fn the_log_grows_for_a_reader_in_place() {
    let folder = folder();
    let pool = folder.path().join("a.pool");
    filled(&pool, MediumChoice::File, true);
    let writer = Options::new()
        .medium(MediumChoice::File)
        .open(&pool)
        .unwrap();
    let words = writer.word_tree("first").unwrap();
    words.put(0, 1).unwrap();
    let store = in_place(&pool);
    let first = store.word_tree("first").unwrap();
    let file_bytes = std::fs::metadata(&pool).unwrap().len();
    let log = || writer.stat().unwrap().log.unwrap();
    while log().log_bytes < 2 * file_bytes {
        for number in 0..500 {
            words.put(number % 50, number).unwrap();
        }
    }
    assert_eq!(first.get(0).unwrap(), Some(1));
    let log = log();
    assert_eq!(log.checkpoints, 0);
    assert!(log.log_capacity_bytes > file_bytes);
}

/// Neither the end of the pool nor a process that comes is hidden from a reader of a closed pool.
#[test]
fn a_reader_of_a_closed_pool_is_overtaken_by_any_writer() {
    for medium in [MediumChoice::File, MediumChoice::Dax] {
        let folder = folder();
        let pool = folder.path().join("a.pool");
        let found = filled(&pool, medium, true);
        let store = reader().open(&pool).unwrap();
        let another = reader().open(&pool).unwrap();
        assert_eq!(writes(&store), found);
        assert_eq!(writes(&another), found);
        let writer = options().medium(medium).open(&pool).unwrap();
        writer.open_tree("first").unwrap().clear().unwrap();
        for result in [
            try_writes(&store),
            store.trees().map(|_| 0),
            store.stat().map(|_| 0),
            store.open_tree("none").map(|_| 0),
            store.lost_copies().map(|_| 0),
            store.salvage("first", |_, _| true).map(|_| 0),
            another.open_tree("first").map(|_| 0),
        ] {
            let error = result.unwrap_err();
            assert!(is_overtaken(&error), "{medium:?}: {error}");
        }
        writer.close().unwrap();
        assert_eq!(writes_of(&store.refresh().unwrap(), "first"), 0);
    }
}

fn writes_of(store: &Store, name: &str) -> u64 {
    store.open_tree(name).unwrap().len().unwrap()
}

/// Fills a pool, and leaves it as its process closes it, or as if it had been killed.
fn filled(path: &Path, medium: MediumChoice, is_closed: bool) -> u64 {
    let store = options()
        .medium(medium)
        .close_cleanly(is_closed)
        .open(path)
        .unwrap();
    let [first, second] = ["first", "second"].map(|name| store.word_tree(name).unwrap());
    for key in 0..100 {
        first.put(key / 2, key).unwrap();
        second.put(key / 2, key).unwrap();
    }
    100
}

#[test]
fn a_store_that_is_read_from_a_copy_keeps_no_writer_out() {
    let folder = folder();
    for (medium, is_closed) in [
        (MediumChoice::File, true),
        (MediumChoice::File, false),
        (MediumChoice::Dax, true),
        (MediumChoice::Dax, false),
    ] {
        println!("{medium:?}, closed cleanly: {is_closed}");
        let pool = folder.path().join(format!("{medium:?} {is_closed}"));
        let found = filled(&pool, medium, is_closed);
        let store = reader().read_from_copy(true).open(&pool).unwrap();
        let writer = options().medium(medium).open(&pool).unwrap();
        writer.open_tree("first").unwrap().clear().unwrap();
        assert_eq!(writes(&store), found);
        writer.close().unwrap();
        assert_eq!(writes(&store), found);
        let copy = folder.path().join(format!("copy {medium:?} {is_closed}"));
        store.backup(&copy).unwrap();
        assert_eq!(writes(&options().open(&copy).unwrap()), found);
    }
}

/// A reader that cannot do without the lock keeps a pool locked: the writer waits for its end.
#[test]
fn a_writer_waits_for_a_reader_with_the_lock_that_ends_soon() {
    let folder = folder();
    let pool = folder.path().join("a.pool");
    filled(&pool, MediumChoice::File, true);
    let store = options().open_damaged(&pool).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            drop(store);
        });
        options().open(&pool).unwrap();
    });
}

/// A snapshot of mapped memory is not to be had.
#[test]
fn a_pool_that_is_open_as_mapped_memory_is_not_read_beside_its_writer() {
    let folder = folder();
    let pool = folder.path().join("a.pool");
    filled(&pool, MediumChoice::Dax, true);
    let writer = options().medium(MediumChoice::Dax).open(&pool).unwrap();
    for from_copy in [false, true] {
        let refused = reader().read_from_copy(from_copy).open(&pool).unwrap_err();
        assert!(
            matches!(refused.kind(), ErrorKind::NotBeside { holder, .. } if *holder == Some(std::process::id())),
            "{refused}"
        );
        assert!(refused.to_string().contains("mapped memory"), "{refused}");
        assert!(refused.is_retryable());
    }
    writer.close().unwrap();
    reader().open(&pool).unwrap();
}

#[test]
fn a_copy_has_what_was_durable_and_leaves_nothing_behind_if_there_is_none() {
    let folder = folder();
    let [pool, copy] = ["a.pool", "copy"].map(|name| folder.path().join(name));
    // The holder has written nothing yet.
    let store = options()
        .durability(Durability::Buffered(Duration::from_secs(3600)))
        .open(&pool)
        .unwrap();
    let words = store.word_tree("first").unwrap();
    words.put(0, 0).unwrap();
    store.sync().unwrap();
    words.put(0, 1).unwrap();
    options().backup(&pool, &copy).unwrap();
    let found = options()
        .open(&copy)
        .unwrap()
        .word_tree("first")
        .unwrap()
        .get(0)
        .unwrap();
    // If durability is deferred, more writes than were synced may be durable.
    assert!(found.is_some(), "what was durable");
    let again = options().backup(&pool, &copy).unwrap_err();
    assert!(matches!(again.kind(), ErrorKind::Io { .. }), "{again}");
    drop((store, words));
    // The pool is open on a medium without a log.
    let other = folder.path().join("b.pool");
    let mapped = Options::new()
        .medium(MediumChoice::Dax)
        .open(&other)
        .unwrap();
    let none = options()
        .backup(&other, folder.path().join("none"))
        .unwrap_err();
    assert!(matches!(none.kind(), ErrorKind::NoBackup { .. }), "{none}");
    assert!(!folder.path().join("none").exists());
    drop(mapped);
    let missing = options()
        .backup(folder.path().join("no.pool"), folder.path().join("none"))
        .unwrap_err();
    assert!(matches!(missing.kind(), ErrorKind::NoSuchPool), "{missing}");
}

/// It looks like the log of a pool that is open, but a process that opens the pool as mapped memory
/// writes no log.
#[test]
fn a_log_that_a_killed_process_left_is_not_taken_for_that_of_mapped_memory() {
    let folder = folder();
    let path = folder.path().join("a.pool");
    let log = folder.path().join("a.pool.log");
    // Every processor can store lines of this form to mapped memory.
    options()
        .line_store(LineStore::Twin)
        .open(&path)
        .unwrap()
        .close()
        .unwrap();
    {
        // The process is killed before its first sync.
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let options = medium::FileOptions {
            mark_offset: pool::MEDIUM_LINE,
            background: false,
            ..medium::FileOptions::default()
        };
        let opened = medium::File::beside(file, &log, options).unwrap();
        let left = std::fs::read(&log).unwrap();
        drop(opened);
        std::fs::write(&log, left).unwrap();
    }
    let store = options().medium(MediumChoice::Dax).open(&path).unwrap();
    store.word_tree("first").unwrap().put(1, 1).unwrap();
    let error = options()
        .backup(&path, folder.path().join("copy"))
        .unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NoBackup { .. }),
        "{error}"
    );
    assert!(!folder.path().join("copy").exists());
}
