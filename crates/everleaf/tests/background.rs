//! The work that an open leaves for later: stores are used while a thread finds out which space is
//! in use.

use std::ops::Deref;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use everleaf::{Engine, ErrorKind, Options, Store, Tree, TreeOptions};
use tempfile::TempDir;

const WORDS: TreeOptions = TreeOptions {
    engine: Engine::BZTREE,
    ..TreeOptions::WORDS
};
const RECORDS: TreeOptions = TreeOptions {
    engine: Engine::BZTREE,
    ..TreeOptions::RECORDS
};

/// The engines whose trees mark what they reach while they are in use.
const MARKING_LATER: [Engine; 3] = [Engine::BZTREE, Engine::WBTREE, Engine::MASSTREE];
/// Those of them whose mark takes so long that it can be watched.
const MARKING_SLOWLY: [Engine; 2] = [Engine::BZTREE, Engine::WBTREE];

/// Enough for more slabs than an open reads itself.
const KEYS: u64 = 300_000;

/// Held by each test while it runs.
static RUNNING: RwLock<()> = RwLock::new(());

/// A folder for a test, beside others or alone.
struct Folder<Running> {
    folder: TempDir,
    _running: Running,
}

impl<Running> Folder<Running> {
    fn new(running: Running) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        Self {
            folder,
            _running: running,
        }
    }
}

impl<Running> Deref for Folder<Running> {
    type Target = TempDir;

    fn deref(&self) -> &TempDir {
        &self.folder
    }
}

fn folder() -> Folder<RwLockReadGuard<'static, ()>> {
    Folder::new(RUNNING.read().unwrap_or_else(PoisonError::into_inner))
}

/// For a test that needs all the space of its pool: retired space is not free while a thread of
/// another test is pinned.
fn folder_alone() -> Folder<RwLockWriteGuard<'static, ()>> {
    Folder::new(RUNNING.write().unwrap_or_else(PoisonError::into_inner))
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn fill(store: &Store, name: &str, options: TreeOptions, keys: u64) -> Tree {
    let tree = store.tree_with(name, options).unwrap();
    for number in 0..keys {
        assert!(tree.insert(key(number), number.to_be_bytes()).unwrap());
    }
    tree
}

/// Opens the store as after a crash: the last handle was dropped without closing.
fn crashed(folder: &TempDir) -> Store {
    Options::new()
        .close_cleanly(false)
        .open(folder.path().join("pool"))
        .unwrap()
}

fn work(tree: &Tree) {
    for number in 0..2000 {
        assert_eq!(
            tree.get(key(number)).unwrap().unwrap().as_slice(),
            number.to_be_bytes()
        );
        match number % 4 {
            0 => assert!(tree.remove(key(number)).unwrap()),
            1 => assert!(tree.update(key(number), b"changed!").unwrap()),
            2 => assert!(tree.insert(key(KEYS + number), b"inserted").unwrap()),
            _ => tree.put(key(number), b"replaced").unwrap(),
        }
    }
    for number in 2000..2500 {
        assert!(tree.contains(key(number)).unwrap());
    }
}

/// The allocations in use when retired space is free again. That takes until all pinned threads
/// have unpinned, those of other tests included; reads advance it.
fn freed(store: &Store, tree: &Tree) -> u64 {
    let allocations = || store.stat().unwrap().allocations;
    let mut least = allocations();
    let mut rounds = 0;
    while rounds < 10 {
        (0..1000).for_each(|number| drop(tree.get(key(number)).unwrap()));
        std::thread::sleep(Duration::from_millis(20));
        let now = allocations();
        rounds = if now < least { 0 } else { rounds + 1 };
        least = now.min(least);
    }
    least
}

#[test]
fn a_store_works_while_it_marks() {
    for engine in MARKING_SLOWLY {
        expect_work_while_marking(engine);
    }
}

fn expect_work_while_marking(engine: Engine) {
    let folder = folder();
    {
        let store = crashed(&folder);
        fill(&store, "words", TreeOptions { engine, ..WORDS }, KEYS);
        fill(
            &store,
            "records",
            TreeOptions { engine, ..RECORDS },
            KEYS / 4,
        );
    }
    let store = crashed(&folder);
    assert!(store.recovery().after_crash);
    let words = store.open_tree("words").unwrap();
    let records = store.open_tree("records").unwrap();
    work(&words);
    work(&records);
    store.finish_recovery();
    assert_eq!(store.stat().unwrap().marked, None);
    assert!(store.check().unwrap().is_empty());
    let allocations = freed(&store, &records);
    drop((words, records, store));
    // The use is found out once more, while no thread works: it is exactly the same.
    let store = crashed(&folder);
    store.finish_recovery();
    let found = store.stat().unwrap().allocations;
    // Spares of two trees, and the space that was retired last, were in use, and no tree reaches
    // them.
    assert!(
        found <= allocations && allocations - found < 200,
        "{allocations}, then {found}"
    );
    assert!(store.check().unwrap().is_empty());
}

#[test]
fn an_open_after_a_clean_close_works_at_once() {
    let folder = folder();
    let open = || Store::open(folder.path().join("pool")).unwrap();
    drop(fill(&open(), "words", WORDS, KEYS));
    let store = open();
    assert!(!store.recovery().after_crash);
    let tree = store.open_tree("words").unwrap();
    work(&tree);
    store.finish_recovery();
    let stat = store.stat().unwrap();
    drop(tree);
    store.close().unwrap();
    let store = open();
    store.finish_recovery();
    let again = store.stat().unwrap();
    assert!(again.allocations <= stat.allocations && stat.allocations - again.allocations < 100);
    assert!(store.check().unwrap().is_empty());
    assert_eq!(store.open_tree("words").unwrap().len().unwrap(), KEYS);
}

/// The store once did not report that no space was reused.
#[test]
fn a_damaged_bitmap_is_told_and_costs_a_mark_at_the_next_open() {
    let folder = folder();
    let path = folder.path().join("pool");
    drop(fill(&Store::open(&path).unwrap(), "words", WORDS, KEYS));
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - (64 << 10);
    bytes[last + 8] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let store = Store::open(&path).unwrap();
    store.finish_recovery();
    let tree = store.open_tree("words").unwrap();
    work(&tree);
    let found = store.check().unwrap();
    assert!(
        found
            .iter()
            .any(|found| found.offset == Some(last as u64) && found.tree.is_none()),
        "{found:?}"
    );
    let stat = store.stat().unwrap();
    assert_eq!(stat.recovery.damaged.len(), 1, "{stat:?}");
    drop(tree);
    store.close().unwrap();
    let store = Store::open(&path).unwrap();
    assert!(store.recovery().after_crash);
    store.finish_recovery();
    assert_eq!(store.check().unwrap(), []);
    assert_eq!(store.stat().unwrap().recovery.damaged, []);
}

/// Such damage once ended the mark of all trees, at every later open.
#[test]
fn a_damaged_class_word_is_told_and_costs_its_slab() {
    let folder = folder();
    let path = folder.path().join("pool");
    drop(fill(&Store::open(&path).unwrap(), "words", WORDS, KEYS));
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - (64 << 10);
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let is_class = |what: &str, offset: Option<u64>| {
        what.contains("the class word of a slab") && offset == Some(last as u64)
    };
    for open in 0..3 {
        let store = Store::open(&path).unwrap();
        assert_eq!(
            store.recovery().after_crash,
            open > 0,
            "until it is marked bitmaps are believed"
        );
        store.finish_recovery();
        let found = store.check().unwrap();
        assert!(
            matches!(&found[..], [one] if is_class(&one.what, one.offset)),
            "open {open}: {found:?}"
        );
        let damaged = store.stat().unwrap().recovery.damaged;
        assert!(
            matches!(&damaged[..], [one] if is_class(&one.what, Some(last as u64))),
            "{damaged:?}"
        );
        let tree = store.open_tree("words").unwrap();
        if open == 2 {
            work(&tree);
            // Splits of leaves take space that was found to be free, and none that is left alone.
            (0..KEYS).for_each(|number| {
                tree.put(key(2 * KEYS + number), number.to_be_bytes())
                    .unwrap();
            });
            (0..KEYS).for_each(|number| assert!(tree.remove(key(2 * KEYS + number)).unwrap()));
        }
        for number in 2500..KEYS {
            assert_eq!(
                tree.get(key(number)).unwrap().unwrap().as_slice(),
                number.to_be_bytes(),
                "{number}"
            );
        }
        assert_eq!(tree.len().unwrap(), KEYS);
        drop(tree);
        store.close().unwrap();
    }
}

#[test]
fn a_store_closes_and_drops_trees_while_it_marks() {
    for engine in MARKING_LATER {
        expect_closes_and_drops_while_marking(engine);
    }
}

fn expect_closes_and_drops_while_marking(engine: Engine) {
    let folder = folder();
    let words = TreeOptions { engine, ..WORDS };
    drop(fill(&crashed(&folder), "words", words, KEYS));
    // At once: the mark is left to the next open.
    crashed(&folder).close().unwrap();
    let store = crashed(&folder);
    store.drop_tree("words").unwrap();
    let error = store.open_tree("words").err().unwrap();
    assert!(
        matches!(error.kind(), ErrorKind::NoSuchTree { .. }),
        "{error}"
    );
    assert!(store.stat().unwrap().allocations < 100);
    drop(store);
    let store = crashed(&folder);
    store.finish_recovery();
    assert_eq!(store.stat().unwrap().allocations, 0);
}

#[test]
fn a_full_store_waits_for_its_mark() {
    let folder = folder_alone();
    let path = folder.path().join("pool");
    let open = || {
        Options::new()
            .close_cleanly(false)
            .limit_bytes(16 << 20)
            .open(&path)
            .unwrap()
    };
    {
        let store = open();
        let tree = store.tree_with("words", WORDS).unwrap();
        let mut number = 0;
        while tree.insert(key(number), b"anything").is_ok() {
            number += 1;
        }
        for other in (0..number).filter(|other| other % 8 != 0) {
            assert!(tree.remove(key(other)).unwrap());
        }
    }
    // Nothing is free above the high-water mark: the space of removed entries must be found first.
    let store = open();
    let tree = store.open_tree("words").unwrap();
    for number in 1_000_000..1_050_000 {
        assert!(tree.insert(key(number), b"anything").unwrap());
    }
    assert!(store.check().unwrap().is_empty());
}

/// Both calls once waited for ever for their own thread's range.
#[test]
fn a_thread_that_holds_a_range_is_not_waited_for() {
    let folder = folder();
    let limited = Options::new().close_cleanly(false).limit_bytes(2 << 20);
    let open = || limited.clone().open(folder.path().join("pool")).unwrap();
    fill(&open(), "words", WORDS, 5000);
    let store = open();
    let words = store.open_tree("words").unwrap();
    let range = words.iter();
    let full = (5000..)
        .find_map(|number| words.insert(key(number), b"inserted").err())
        .unwrap();
    assert!(full.is_full(), "{full}");
    let other = store
        .tree("other")
        .map(drop)
        .and_then(|()| store.drop_tree("other"));
    assert!(
        other.is_err_and(|error| matches!(
            error.kind(),
            ErrorKind::InUse | ErrorKind::PoolFull { .. }
        ))
    );
    drop(range);
    store.finish_recovery();
}

/// An operation that a panic interrupted may name space that a clean close cuts off.
#[test]
fn a_store_dropped_by_a_panic_opens_as_after_a_crash() {
    let folder = folder();
    let path = folder.path().join("pool");
    let panicking = path.clone();
    let panicked = std::thread::spawn(move || {
        let store = Store::open(panicking).unwrap();
        let tree = fill(&store, "words", WORDS, 20_000);
        (1000..20_000).for_each(|number| assert!(tree.remove(key(number)).unwrap()));
        assert!(tree.is_empty().unwrap(), "the panic that is wanted");
    });
    assert!(panicked.join().is_err());
    let store = Store::open(&path).unwrap();
    assert!(store.recovery().after_crash);
    assert_eq!(
        store.tree_with("words", WORDS).unwrap().len().unwrap(),
        1000
    );
    assert!(store.check().unwrap().is_empty());
}
