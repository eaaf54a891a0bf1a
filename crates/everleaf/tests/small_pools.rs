//! Small pools: what they write and sync, the size of their logs, and their threads.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use everleaf::{Engine, MediumChoice, Options, Result, Store, TreeOptions};
use medium::file::Io;

mod common;

use common::{folder, run_again};

fn options() -> Options {
    Options::new().medium(MediumChoice::File)
}

fn kind_of(engine: Engine) -> TreeOptions {
    TreeOptions {
        engine,
        ..TreeOptions::RECORDS
    }
}

fn log_of(pool: &Path) -> PathBuf {
    PathBuf::from(format!("{}.log", pool.display()))
}

/// The calls on the files of one store.
#[derive(Clone, Default, Debug)]
struct Calls {
    /// `pool` or `log` for each sync, in their order.
    syncs: Vec<&'static str>,
    written_bytes: u64,
}

/// The calls by the path of the pool.
static CALLS: Mutex<BTreeMap<PathBuf, Calls>> = Mutex::new(BTreeMap::new());

/// Takes the calls that were counted for a pool.
fn take_calls(pool: &Path) -> Calls {
    CALLS.lock().unwrap().remove(pool).unwrap_or_default()
}

/// A file whose syncs and written bytes are counted.
#[derive(Debug)]
struct CountedFile {
    io: Arc<dyn Io>,
    pool: PathBuf,
    name: &'static str,
}

fn counted(io: Arc<dyn Io>) -> Arc<dyn Io> {
    let link = format!("/proc/self/fd/{}", io.file().as_raw_fd());
    let path = fs::read_link(link).unwrap();
    let (pool, name) = if path.extension().is_some_and(|extension| extension == "log") {
        (path.with_extension(""), "log")
    } else {
        (path, "pool")
    };
    Arc::new(CountedFile { io, pool, name })
}

impl CountedFile {
    fn count(&self, count: impl FnOnce(&mut Calls)) {
        let mut calls = CALLS.lock().unwrap();
        count(calls.entry(self.pool.clone()).or_default());
    }
}

impl Io for CountedFile {
    fn file(&self) -> &fs::File {
        self.io.file()
    }

    fn length(&self) -> std::io::Result<u64> {
        self.io.length()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.io.read(buffer, offset)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        let written = self.io.write(bytes, offset)?;
        self.count(|calls| calls.written_bytes += written as u64);
        Ok(written)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.count(|calls| calls.syncs.push(self.name));
        self.io.sync()
    }

    fn allocate(&self, start: u64, end: u64) -> std::io::Result<()> {
        self.io.allocate(start, end)
    }

    fn punch(&self, start: u64, end: u64) -> std::io::Result<()> {
        self.io.punch(start, end)
    }

    fn truncate(&self, length: u64) -> std::io::Result<()> {
        self.io.truncate(length)
    }
}

/// 9.2 MiB were once written, most of them zeros of the log.
#[test]
fn a_put_into_a_new_pool_writes_at_most_300_kib() -> Result<()> {
    let folder = folder();
    let path = folder.path().join("a.pool");
    let store = options().through(counted).open(&path)?;
    store.tree("main")?.put("key", "value")?;
    store.close()?;
    let written = take_calls(&path).written_bytes;
    println!("{written} bytes");
    assert!(written > 0 && written <= 300 << 10, "{written} bytes");
    Ok(())
}

/// Three syncs at each open and six at each close were there once, whether or not anything was
/// written.
#[test]
fn the_syncs_of_open_put_and_close_are_those_that_order_needs() -> Result<()> {
    for engine in Engine::ALL {
        let folder = folder();
        let path = folder.path().join("a.pool");
        let kind = kind_of(*engine);
        let store = options().open(&path)?;
        store.tree_with("main", kind)?.put("key", "old")?;
        store.close()?;

        let options = options().through(counted);
        let store = options.open(&path)?;
        let tree = store.open_tree("main")?;
        assert_eq!(take_calls(&path).syncs, [""; 0], "open, {engine:?}");
        tree.put("key", "new")?;
        if engine.contract == everleaf::Contract::Epoch {
            store.sync()?;
        }
        // The log's header; the pool, which names the log; the entry in the log.
        let put = take_calls(&path).syncs;
        assert_eq!(put[..3], ["log", "pool", "log"], "put, {engine:?}");
        drop(tree);
        take_calls(&path);
        store.close()?;
        // The bitmaps in the log; all lines in the pool; the log, which is empty; the pool, which
        // needs no log.
        let close = take_calls(&path).syncs;
        let expected = ["log", "pool", "log", "pool"];
        assert!(close.ends_with(&expected), "close, {engine:?}: {close:?}");
        println!("{engine:?}: put {put:?}, close {close:?}");
        let value = options.open(&path)?.open_tree("main")?.get("key")?;
        assert_eq!(value.as_deref(), Some(&b"new"[..]));
    }
    Ok(())
}

#[test]
fn a_store_that_is_only_read_syncs_nothing_and_stays_as_it_was() -> Result<()> {
    for engine in Engine::ALL {
        let folder = folder();
        let path = folder.path().join("a.pool");
        let kind = kind_of(*engine);
        let store = options().open(&path)?;
        let tree = store.tree_with("main", kind)?;
        for number in 0..2000_u32 {
            drop(tree.pending().put(number.to_be_bytes(), [7; 100])?);
        }
        drop(tree);
        store.close()?;
        let before = fs::read(&path).unwrap();

        let store = options().through(counted).open(&path)?;
        let tree = store.open_tree("main")?;
        assert_eq!(tree.len()?, 2000);
        let value = tree.get(7_u32.to_be_bytes())?;
        assert_eq!(value.as_deref(), Some(&[7; 100][..]));
        assert!(!tree.remove("no such key")?);
        store.sync()?;
        // Longer than the work in the background waits before it seals a log, or ends an epoch.
        std::thread::sleep(Duration::from_millis(250));
        drop(tree);
        store.close()?;
        assert_eq!(take_calls(&path).syncs, [""; 0], "{engine:?}");
        assert!(!log_of(&path).exists(), "{engine:?}");
        assert!(
            fs::read(&path).unwrap() == before,
            "{engine:?}: the file changed"
        );

        // A handle that is dropped closes the store in the same way.
        let store = options().through(counted).open(&path)?;
        drop(store);
        assert_eq!(take_calls(&path).syncs, [""; 0], "{engine:?}");
        assert!(
            !options().open(&path)?.stat()?.recovery.after_crash,
            "{engine:?}"
        );
    }
    Ok(())
}

fn log_bytes(store: &Store) -> u64 {
    let log = store.stat().unwrap().log.unwrap();
    log.log_capacity_bytes
}

/// The log of a pool with one entry once had 32 MiB.
#[test]
fn the_log_of_a_small_pool_is_small_and_grows_as_it_is_used() -> Result<()> {
    let folder = folder();
    let path = folder.path().join("a.pool");
    let store = options().open(&path)?;
    let tree = store.tree("main")?;
    tree.put("key", "value")?;
    assert_eq!(log_bytes(&store), 64 << 10);
    let file_bytes = fs::metadata(log_of(&path)).unwrap().len();
    assert!(file_bytes < 100 << 10, "{file_bytes} bytes");

    let value = vec![7; 4096];
    let mut largest = 0;
    for number in 0..6000_u64 {
        drop(tree.pending().put(number.to_be_bytes(), &value)?);
        if number % 100 == 0 {
            largest = largest.max(log_bytes(&store));
        }
    }
    store.sync()?;
    assert!(largest >= 1 << 20, "{largest} bytes");

    // When nothing is written, the log becomes no larger than a new one would be.
    let new = store.stat()?.file_bytes / 8;
    let begin = Instant::now();
    while log_bytes(&store) > new.next_multiple_of(4096) {
        assert!(begin.elapsed() < LONG, "{} bytes", log_bytes(&store));
        std::thread::sleep(Duration::from_millis(50));
    }
    tree.put("key", "after the log was cut")?;
    drop(tree);
    store.close()?;

    let store = options().open(&path)?;
    let value = store.tree("main")?.get("key")?;
    assert_eq!(value.as_deref(), Some(&b"after the log was cut"[..]));
    Ok(store.close()?)
}

/// Longer than any wait that does not fail.
const LONG: Duration = Duration::from_secs(60);
/// Names the folder of the stores, in the process that opens them.
const STORES: &str = "EVERLEAF_TEST_STORES";

/// The threads of this process that work in the background.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("everleaf")).count()
}

/// They took 3.2 GB of logs and 201 threads.
#[test]
fn a_hundred_stores_take_four_threads_and_little_log() -> Result<()> {
    let Some(place) = env::var_os(STORES) else {
        // Other tests of this program have threads, too.
        let folder = folder();
        let again = Command::new(env::current_exe().unwrap());
        let name = "a_hundred_stores_take_four_threads_and_little_log";
        run_again(again, STORES, folder.path(), name);
        return Ok(());
    };
    let place = PathBuf::from(place);
    let mut stores = Vec::new();
    for number in 0..100 {
        let path = place.join(format!("{number}.pool"));
        let kind = kind_of(Engine::ALL[number % Engine::ALL.len()]);
        let store = options().open(path)?;
        let tree = store.tree_with("main", kind)?;
        tree.put("key", "value")?;
        stores.push((store, tree));
    }
    let mut most = 0;
    for round in 0..20_u32 {
        for (_, tree) in &stores {
            drop(tree.pending().put(round.to_be_bytes(), "value")?);
        }
        std::thread::sleep(Duration::from_millis(20));
        most = most.max(threads());
    }
    let logs: u64 = stores.iter().map(|(store, _)| log_bytes(store)).sum();
    println!("{most} threads, {} KiB of logs", logs >> 10);
    assert!(most <= 4, "{most} threads");
    assert!(logs <= 50 << 20, "{logs} bytes");
    Ok(())
}
