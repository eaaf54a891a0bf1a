//! Files of a store that are moved, removed or replaced while it is open; links, folders and
//! working directories that change; and who owns a store.

use std::collections::BTreeSet;
use std::fs;
use std::future::Future;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use everleaf::{
    DisplacedFile, Displacement, Engine, Error, ErrorKind, Grown, LineStore, MediumChoice,
    MediumError, Options, Pending, Store, Tree, TreeOptions,
};

mod common;

use common::{folder, run_again};

/// A new process holds for a moment the files that all tests have open, and their locks. So tests
/// that start one run alone.
static PROCESSES: RwLock<()> = RwLock::new(());

/// To be held by a test that starts no process.
fn beside_others() -> RwLockReadGuard<'static, ()> {
    // Another test may have failed.
    PROCESSES.read().unwrap_or_else(PoisonError::into_inner)
}

/// To be held by a test that starts a process.
fn alone() -> RwLockWriteGuard<'static, ()> {
    PROCESSES.write().unwrap_or_else(PoisonError::into_inner)
}

/// The variable with the folder of a test that runs again in a process of its own.
const AGAIN: &str = "EVERLEAF_TEST_FOLDER";

/// How long a test waits for something that happens within a second or two.
const PATIENCE: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options::new()
        .medium(MediumChoice::File)
        .line_store(LineStore::detect())
        // Large enough that no checkpoint writes to the pool's file while a test copies it.
        .log_bytes(2 << 20)
        .recovery_threads(1)
}

fn mapped() -> Options {
    Options::new()
        .medium(MediumChoice::Dax)
        .line_store(LineStore::detect())
}

fn log_of(pool: &Path) -> PathBuf {
    PathBuf::from(format!("{}.log", pool.display()))
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn put(tree: &Tree, keys: std::ops::Range<u64>) {
    for number in keys {
        tree.put(key(number), "value").unwrap();
    }
}

fn keys_of(tree: &Tree) -> BTreeSet<u64> {
    let number = |key: &[u8]| u64::from_be_bytes(key.try_into().unwrap());
    tree.iter().map(|entry| number(&entry.unwrap().0)).collect()
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn displaced(error: &Error) -> &DisplacedFile {
    match error.medium() {
        Some(MediumError::Displaced(file)) => file,
        _ => panic!("{error}"),
    }
}

/// Writes until a write fails. Returns the keys that were acknowledged, and the error.
fn write_until_refused(tree: &Tree, from: u64) -> (BTreeSet<u64>, Error) {
    let start = Instant::now();
    let mut acknowledged = BTreeSet::new();
    for number in from.. {
        match tree.put(key(number), "value") {
            Ok(()) => acknowledged.insert(number),
            Err(error) => return (acknowledged, error),
        };
        assert!(start.elapsed() < PATIENCE, "no write was refused");
        std::thread::sleep(Duration::from_millis(1));
    }
    unreachable!("there are more numbers")
}

/// A copy of the files of a pool, as a killed process would leave them.
fn killed(pool: &Path, to: &Path) -> PathBuf {
    let copy = to.join("killed.pool");
    fs::copy(pool, &copy).unwrap();
    fs::copy(log_of(pool), log_of(&copy)).unwrap();
    copy
}

/// The log of the second store was once removed by the close of the first one, and what it had
/// acknowledged was lost when its process was killed.
#[test]
fn a_store_leaves_the_files_alone_that_took_the_place_of_its_own() {
    let _shared = beside_others();
    for closes in [true, false] {
        for is_written in [true, false] {
            let folder = folder();
            let path = folder.path().join("a.pool");
            options().open(&path).unwrap().close().unwrap();
            let first = options().open(&path).unwrap();
            if is_written {
                put(&first.tree("t").unwrap(), 0..10);
            }
            fs::remove_file(&path).unwrap();
            fs::remove_file(log_of(&path)).unwrap();
            let second = options().open(&path).unwrap();
            let tree = second.tree("t").unwrap();
            put(&tree, 0..501);
            if closes {
                let failed = first.close().unwrap_err();
                let file = displaced(&failed.error);
                assert_eq!(file.how, Displacement::Removed);
                assert_eq!(file.path, path);
                // The store can still be read, and copied.
                let copy = folder.path().join("copy");
                failed.store.backup(&copy).unwrap();
                if is_written {
                    let tree = failed.store.tree("t").unwrap();
                    assert_eq!(keys_of(&tree), (0..10).collect());
                    let copy = options().open(&copy).unwrap();
                    assert_eq!(keys_of(&copy.tree("t").unwrap()), (0..10).collect());
                }
            } else {
                drop(first);
            }
            put(&tree, 501..510);
            let elsewhere = self::folder();
            let copy = killed(&path, elsewhere.path());
            let copy = options().open(&copy).unwrap();
            assert_eq!(keys_of(&copy.tree("t").unwrap()), (0..510).collect());
            assert_eq!(copy.check().unwrap(), []);
            drop(tree);
            second.close().unwrap();
            assert!(!log_of(&path).exists());
        }
    }
}

#[test]
fn a_store_whose_folder_is_renamed_goes_on_and_closes_right() {
    let _shared = beside_others();
    for options in [options(), mapped()] {
        let folder = folder();
        let old = folder.path().join("old");
        let new = folder.path().join("new");
        fs::create_dir(&old).unwrap();
        let store = options.open(old.join("a.pool")).unwrap();
        let tree = store.tree("t").unwrap();
        put(&tree, 0..10);
        fs::rename(&old, &new).unwrap();
        // Another store may begin at the old path.
        fs::create_dir(&old).unwrap();
        let other = options.open(old.join("a.pool")).unwrap();
        put(&other.tree("t").unwrap(), 0..20);
        let start = Instant::now();
        for number in 10.. {
            tree.put(key(number), vec![7; 20_000]).unwrap();
            let is_long = number > 200 && start.elapsed() > Duration::from_millis(1500);
            if is_long {
                put(&tree, number + 1..10_000);
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(store.compact().is_ok());
        drop(tree);
        store.close().unwrap();
        assert_eq!(names_in(&new), BTreeSet::from(["a.pool".to_owned()]));
        let store = options.open(new.join("a.pool")).unwrap();
        assert!(!store.recovery().after_crash);
        assert_eq!(keys_of(&store.tree("t").unwrap()), (0..10_000).collect());
        other.close().unwrap();
        let other = options.open(old.join("a.pool")).unwrap();
        assert_eq!(keys_of(&other.tree("t").unwrap()), (0..20).collect());
    }
}

/// A change of the files of an open store, and the place of its entries afterwards.
struct Scene {
    name: &'static str,
    /// Changes the files of the pool at this path.
    change: fn(&Path),
    expected: (Grown, Displacement),
    /// Where the pool is afterwards, if it still is anywhere.
    pool: Option<&'static str>,
}

const SCENES: [Scene; 7] = [
    Scene {
        name: "the log is removed",
        change: |pool| fs::remove_file(log_of(pool)).unwrap(),
        expected: (Grown::Log, Displacement::Removed),
        pool: Some("a.pool"),
    },
    Scene {
        name: "the log is moved",
        change: |pool| fs::rename(log_of(pool), pool.with_file_name("log")).unwrap(),
        expected: (Grown::Log, Displacement::Moved),
        pool: Some("a.pool"),
    },
    Scene {
        name: "the log is replaced by a copy of it",
        change: |pool| {
            let copy = pool.with_file_name("copy");
            fs::copy(log_of(pool), &copy).unwrap();
            fs::rename(&copy, log_of(pool)).unwrap();
        },
        expected: (Grown::Log, Displacement::Removed),
        pool: None,
    },
    Scene {
        name: "the pool is moved",
        change: |pool| fs::rename(pool, pool.with_file_name("b.pool")).unwrap(),
        expected: (Grown::Pool, Displacement::Moved),
        pool: Some("b.pool"),
    },
    Scene {
        name: "pool and log are moved to another folder",
        change: |pool| {
            let other = pool.with_file_name("other");
            fs::create_dir(&other).unwrap();
            fs::rename(pool, other.join("a.pool")).unwrap();
            fs::rename(log_of(pool), other.join("a.pool.log")).unwrap();
        },
        expected: (Grown::Pool, Displacement::Moved),
        pool: Some("other/a.pool"),
    },
    Scene {
        name: "the pool is replaced by a copy of it",
        change: |pool| {
            let copy = pool.with_file_name("copy");
            fs::copy(pool, &copy).unwrap();
            fs::rename(&copy, pool).unwrap();
        },
        expected: (Grown::Pool, Displacement::Removed),
        pool: None,
    },
    Scene {
        name: "the pool is removed",
        change: |pool| fs::remove_file(pool).unwrap(),
        expected: (Grown::Pool, Displacement::Removed),
        pool: None,
    },
];

#[test]
fn a_store_that_has_lost_a_file_refuses_writes_and_loses_nothing_it_acknowledged() {
    let _shared = beside_others();
    for Scene {
        name,
        change,
        expected,
        pool,
    } in SCENES
    {
        let folder = folder();
        let path = folder.path().join("a.pool");
        let store = options().open(&path).unwrap();
        let tree = store.tree("t").unwrap();
        put(&tree, 0..100);
        change(&path);
        let (acknowledged, error) = write_until_refused(&tree, 100);
        let file = displaced(&error);
        assert_eq!((file.file, file.how), expected, "{name}");
        let of_file = match expected.0 {
            Grown::Pool => path.clone(),
            Grown::Log => log_of(&path),
            Grown::Memory => unreachable!("no file of a store"),
        };
        assert_eq!(file.path, of_file, "{name}");
        let text = error.to_string();
        assert!(text.contains(of_file.to_str().unwrap()), "{name}: {text}");
        // Reads go on, and a copy has everything.
        let all: BTreeSet<u64> = (0..100).chain(acknowledged).collect();
        assert_eq!(keys_of(&tree), all, "{name}");
        let copy = folder.path().join("copy.pool");
        store.backup(&copy).unwrap();
        let copy = options().open(&copy).unwrap();
        assert_eq!(keys_of(&copy.tree("t").unwrap()), all, "{name}");
        assert_eq!(copy.check().unwrap(), [], "{name}");
        // The pool itself has everything as well, also if the process is killed now.
        if let Some(pool) = pool {
            let elsewhere = self::folder();
            let killed = elsewhere.path().join("killed.pool");
            let pool = folder.path().join(pool);
            fs::copy(&pool, &killed).unwrap();
            if log_of(&pool).exists() {
                fs::copy(log_of(&pool), log_of(&killed)).unwrap();
            }
            let killed = options().open(&killed).unwrap();
            assert_eq!(keys_of(&killed.tree("t").unwrap()), all, "{name}");
        }
        drop(tree);
        let failed = store.close().unwrap_err();
        displaced(&failed.error);
        assert_eq!(keys_of(&failed.store.tree("t").unwrap()), all, "{name}");
        drop(failed);
        if let Some(pool) = pool {
            let store = options().open(folder.path().join(pool)).unwrap();
            assert_eq!(keys_of(&store.tree("t").unwrap()), all, "{name}");
            assert_eq!(store.check().unwrap(), [], "{name}");
        }
    }
}

/// A close notices at once what a sync notices only within a second.
#[test]
fn a_close_notices_files_that_were_moved_a_moment_before() {
    let _shared = beside_others();
    for Scene {
        name,
        change,
        expected,
        pool,
    } in SCENES
    {
        let folder = folder();
        let path = folder.path().join("a.pool");
        let store = options().open(&path).unwrap();
        put(&store.tree("t").unwrap(), 0..100);
        change(&path);
        let closed = store.close();
        match expected.0 {
            Grown::Pool => {
                let failed = closed.unwrap_err();
                assert_eq!(displaced(&failed.error).how, expected.1, "{name}");
            }
            // Everything is in the pool's file, and the log is not needed any more.
            Grown::Log => closed.unwrap(),
            Grown::Memory => unreachable!("no file of a store"),
        }
        if let Some(pool) = pool {
            let store = options().open(folder.path().join(pool)).unwrap();
            assert_eq!(
                keys_of(&store.tree("t").unwrap()),
                (0..100).collect(),
                "{name}"
            );
        }
    }
}

#[test]
fn mapped_memory_that_has_lost_its_name_is_told_at_growth_and_close() {
    let _shared = beside_others();
    let folder = folder();
    let path = folder.path().join("a.pool");
    let other = folder.path().join("b.pool");
    let store = mapped().open(&path).unwrap();
    let tree = store.tree("t").unwrap();
    put(&tree, 0..100);
    fs::rename(&path, &other).unwrap();
    let start = Instant::now();
    let error = loop {
        if let Err(error) = tree.put("large", vec![7; 1 << 20]) {
            break error;
        }
        assert!(start.elapsed() < PATIENCE, "the pool does not grow");
    };
    assert_eq!(displaced(&error).path, path);
    // Without growth, writes go on.
    put(&tree, 100..110);
    tree.remove("large").unwrap();
    drop(tree);
    let failed = store.close().unwrap_err();
    assert_eq!(displaced(&failed.error).how, Displacement::Moved);
    let tree = failed.store.tree("t").unwrap();
    put(&tree, 110..120);
    drop(tree);
    drop(failed);
    let store = mapped().open(&other).unwrap();
    assert!(store.recovery().after_crash);
    assert_eq!(keys_of(&store.tree("t").unwrap()), (0..120).collect());
    assert_eq!(store.check().unwrap(), []);
}

fn this_program() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

#[test]
fn a_working_directory_that_changes_changes_nothing() {
    let Some(folder) = std::env::var_os(AGAIN).map(PathBuf::from) else {
        let _alone = alone();
        let folder = folder();
        return run_again(
            this_program(),
            AGAIN,
            folder.path(),
            "a_working_directory_that_changes_changes_nothing",
        );
    };
    let here = folder.join("here");
    let there = folder.join("there");
    fs::create_dir(&here).unwrap();
    fs::create_dir(&there).unwrap();
    std::env::set_current_dir(&here).unwrap();
    let store = options().open("a.pool").unwrap();
    // A file of the same name whose size must not count.
    std::env::set_current_dir(&there).unwrap();
    fs::write("a.pool", "notes").unwrap();
    let tree = store.tree("t").unwrap();
    for number in 0..2000 {
        tree.put(key(number), vec![7; 1000]).unwrap();
    }
    for number in 100..2000 {
        tree.remove(key(number)).unwrap();
    }
    drop(tree);
    let blocks = || 512 * fs::metadata(here.join("a.pool")).unwrap().blocks();
    let before = blocks();
    let freed = store.compact().unwrap().bytes_freed();
    assert!(freed > 500_000, "{freed}");
    assert_eq!(before - blocks(), freed);
    store.backup("copy.pool").unwrap();
    // The replacement has no log of its own.
    let new = options().open("new.pool").unwrap();
    put(&new.tree("t").unwrap(), 0..3);
    new.close().unwrap();
    let reader = options().read_only(true).open("copy.pool").unwrap();
    std::env::set_current_dir(&folder).unwrap();
    reader.backup("second.pool").unwrap();
    drop(reader);
    store.close_and_replace("there/new.pool").unwrap();
    assert_eq!(fs::read_to_string("there/a.pool").unwrap(), "notes");
    for (path, count) in [
        ("here/a.pool", 3),
        ("there/copy.pool", 100),
        ("second.pool", 100),
    ] {
        let store = options().open(path).unwrap();
        assert_eq!(store.tree("t").unwrap().len().unwrap(), count, "{path}");
    }
    assert_eq!(names_in(&here), BTreeSet::from(["a.pool".to_owned()]));
}

/// The log of such a pool once lay beside the link at first, and beside the file from then on.
#[test]
fn a_link_to_a_file_that_is_missing_makes_the_pool_where_it_leads() {
    let _shared = beside_others();
    let folder = folder();
    let far = folder.path().join("far");
    let link = folder.path().join("link");
    fs::create_dir(&far).unwrap();
    symlink("far/a.pool", &link).unwrap();
    let log = everleaf::log_path(&link);
    let store = options().open(&link).unwrap();
    put(&store.tree("t").unwrap(), 0..10);
    let both = ["a.pool", "a.pool.log"].map(str::to_owned);
    assert_eq!(names_in(&far), BTreeSet::from(both));
    assert!(log.exists());
    let elsewhere = self::folder();
    let copy = killed(&far.join("a.pool"), elsewhere.path());
    let copy = options().open(copy).unwrap();
    assert_eq!(keys_of(&copy.tree("t").unwrap()), (0..10).collect());
    store.close().unwrap();
    assert_eq!(names_in(&far), BTreeSet::from(["a.pool".to_owned()]));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    // The folder to which the next link leads is missing.
    symlink("nowhere/a.pool", folder.path().join("bad")).unwrap();
    let error = options().open(folder.path().join("bad")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}");
    let names = ["bad", "far", "link"].map(str::to_owned);
    assert_eq!(names_in(folder.path()), BTreeSet::from(names));
}

#[test]
fn a_store_has_three_descriptors_and_shares_its_folder() {
    let Some(folder) = std::env::var_os(AGAIN).map(PathBuf::from) else {
        let _alone = alone();
        let folder = folder();
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""]);
        command.arg(std::env::current_exe().unwrap());
        return run_again(
            command,
            AGAIN,
            folder.path(),
            "a_store_has_three_descriptors_and_shares_its_folder",
        );
    };
    let files_open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let path = |number: usize| folder.join(format!("{number}.pool"));
    let before = files_open();
    let mut stores = Vec::new();
    for number in 0..10 {
        stores.push(options().open(path(number)).unwrap());
        assert_eq!(files_open(), before + 3 * (number + 1) + 1);
    }
    let error = loop {
        match options().open(path(stores.len())) {
            Ok(store) => stores.push(store),
            Err(error) => break error,
        }
        assert!(stores.len() < 64, "no limit");
    };
    let text = error.to_string();
    assert!(text.contains("64 files open"), "{text}");
    assert!(text.contains("`ulimit -n`"), "{text}");
    // The failed creation leaves nothing. The listing needs a descriptor.
    let last = path(stores.len());
    stores.truncate(5);
    assert!(!last.exists() && !log_of(&last).exists());
    drop(stores);
    assert_eq!(files_open(), before);
    let mapped_stores = [0, 1].map(|number| mapped().open(path(number)).unwrap());
    assert_eq!(files_open(), before + 5);
    drop(mapped_stores);
    // The lock of a reader needs a descriptor of its own, which the child of a fork does not keep.
    let readers = [0, 1].map(|number| options().read_only(true).open(path(number)).unwrap());
    assert_eq!(files_open(), before + 7);
    drop(readers);
    assert_eq!(files_open(), before);
}

/// Writes of all engines, polled once and dropped: what waits for them owns no store.
#[test]
fn nothing_but_its_handles_keeps_a_store_open() {
    let _shared = beside_others();
    let folder = folder();
    let path = folder.path().join("a.pool");
    for round in 0..300 {
        let engine = Engine::ALL[round % Engine::ALL.len()];
        let store = options().open(&path).unwrap();
        let kind = TreeOptions {
            engine,
            ..TreeOptions::RECORDS
        };
        let tree = store.tree_with(engine.name(), kind).unwrap();
        let mut polled = Vec::new();
        for number in 0..8 {
            let mut write = tree.pending().put(key(number), "value").unwrap();
            let mut context = Context::from_waker(Waker::noop());
            if Pin::new(&mut write).poll(&mut context).is_pending() {
                polled.push(write);
            }
        }
        if round % 2 == 0 {
            // All of them have answered by now.
            store.sync().unwrap();
        }
        drop(polled);
        drop(tree);
        store
            .close()
            .unwrap_or_else(|failed| panic!("round {round}, {}: {failed}", engine.name()));
        // The next round finds no lock.
    }
}

/// A task that owns its future, as the tasks of some executors do: each waker of it owns it.
struct OwningTask(Mutex<Option<Pending<()>>>);

impl OwningTask {
    fn poll(self: &Arc<Self>) -> bool {
        let waker = Waker::from(Arc::clone(self));
        let mut future = self.0.lock().unwrap();
        let polled = future
            .as_mut()
            .map(|future| pin!(future).poll(&mut Context::from_waker(&waker)));
        matches!(polled, Some(Poll::Pending))
    }
}

impl Wake for OwningTask {
    fn wake(self: Arc<Self>) {}
}

/// The thread that wakes a task may be the last to own it, and with it the store, also one that
/// compacts itself.
#[test]
fn a_waker_may_drop_the_last_handle_of_a_store() {
    let _shared = beside_others();
    let own_work = options().compact_when_idle(Duration::ZERO);
    for options in [options(), own_work] {
        let folder = folder();
        let path = folder.path().join("a.pool");
        let mut pending = 0;
        for round in 0..200 {
            let store = options.open(&path).unwrap();
            let tree = store.tree("t").unwrap();
            let write = tree.pending().put(key(round), "value").unwrap();
            let task = Arc::new(OwningTask(Mutex::new(Some(write))));
            pending += u32::from(task.poll());
            drop(task);
            drop(tree);
            drop(store);
            // The store is closed in the background now, if the write was pending.
            let start = Instant::now();
            let store = loop {
                match options.open(&path) {
                    Ok(store) => break store,
                    Err(error) => {
                        assert!(matches!(error.kind(), ErrorKind::Locked { .. }), "{error}");
                    }
                }
                assert!(start.elapsed() < PATIENCE, "the store is never closed");
                std::thread::sleep(Duration::from_millis(1));
            };
            assert!(!store.recovery().after_crash);
            assert_eq!(store.tree("t").unwrap().len().unwrap(), round + 1);
            store.close().unwrap();
        }
        assert!(pending > 0, "every write was durable at once");
    }
}

#[test]
fn a_store_that_is_removed_leaves_nothing_and_nothing_else() {
    let _shared = beside_others();
    for options in [options(), mapped()] {
        let folder = folder();
        let path = folder.path().join("a.pool");
        let store = options.open(&path).unwrap();
        let tree = store.tree("t").unwrap();
        put(&tree, 0..10);
        let failed = store.remove_files().unwrap_err();
        assert!(matches!(failed.error.kind(), ErrorKind::InUse), "{failed}");
        put(&tree, 10..20);
        drop(tree);
        failed.store.remove_files().unwrap();
        assert_eq!(names_in(folder.path()), BTreeSet::new());
        // Other files at the same place stay.
        let store: Store = options.open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::remove_file(log_of(&path)).ok();
        fs::write(&path, "notes").unwrap();
        fs::write(log_of(&path), "more notes").unwrap();
        store.remove_files().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "notes");
        assert_eq!(fs::read_to_string(log_of(&path)).unwrap(), "more notes");
    }
}
