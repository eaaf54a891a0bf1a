//! A folder with pools, and all that a program may have of a store.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use everleaf::{
    Batch, Engine, MediumChoice, Options, Pending, Snapshot, Store, Transaction, Tree, TreeOptions,
    TypedTree, View as _, WordTree,
};
use tempfile::TempDir;

/// A folder with pools on one medium.
pub struct Site {
    medium: MediumChoice,
    folder: TempDir,
}

impl Site {
    pub fn new(medium: MediumChoice) -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        Self {
            medium,
            folder: folder.unwrap(),
        }
    }

    pub fn has_files(&self) -> bool {
        self.medium != MediumChoice::Ram
    }

    pub fn options(&self) -> Options {
        Options::new().medium(self.medium)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn open(&self, name: &str) -> Store {
        self.options().open(self.path(name)).unwrap()
    }
}

/// The tree of records of each engine.
pub fn trees(store: &Store) -> Vec<Tree> {
    let tree = |engine: &Engine| {
        let options = TreeOptions {
            engine: *engine,
            ..TreeOptions::RECORDS
        };
        store.tree_with(engine.name, options).unwrap()
    };
    Engine::ALL.iter().map(tree).collect()
}

/// Handles of one store, and results of it that are under way.
pub struct Handles {
    pub store: Store,
    pub trees: Vec<Tree>,
    pub words: WordTree,
    pub typed: TypedTree<String, u64>,
    pub batch: Batch,
    pub pending: Vec<Pending<()>>,
    pub snapshot: Snapshot,
    pub transaction: Transaction,
}

impl Handles {
    /// Opens a store with trees of all engines, and writes to each.
    pub fn open(site: &Site, name: &str) -> Self {
        let store = site.open(name);
        let trees = trees(&store);
        let words = store.word_tree("words").unwrap();
        let typed = store.typed("typed").unwrap();
        let mut batch = Batch::new();
        let mut pending = Vec::new();
        for number in 0..100 {
            words.put(number, number).unwrap();
            typed.put(&number.to_string(), &number).unwrap();
        }
        for tree in &trees {
            for number in 0..100 {
                tree.put(format!("key {number:03}"), "value").unwrap();
            }
            batch.put(tree, "batch", "value");
            pending.push(tree.pending().put("pending", "value").unwrap());
        }
        let snapshot = store.snapshot().unwrap();
        let mut transaction = store.begin().unwrap();
        assert!(transaction.get(&words, 1).unwrap().is_some());
        transaction.put(&words, 2000, 2000).unwrap();
        Self {
            store,
            trees,
            words,
            typed,
            batch,
            pending,
            snapshot,
            transaction,
        }
    }

    /// Goes on in the process that opened the store, and closes it. The pool is sound and has all
    /// entries.
    pub fn finish(self, site: &Site, name: &str) {
        for tree in &self.trees {
            tree.put("later", "value").unwrap();
        }
        self.store.write(&self.batch).unwrap();
        Pending::wait_all(self.pending).unwrap();
        assert_eq!(self.snapshot.iter(&self.words).count(), 100);
        self.transaction.commit().unwrap();
        drop(self.snapshot);
        self.words.put(1000, 1000).unwrap();
        self.store.sync().unwrap();
        expect_sound(&self.store, 103);
        drop((self.trees, self.words, self.typed, self.batch));
        self.store.close().unwrap();
        if site.has_files() {
            let store = site.open(name);
            expect_sound(&store, 103);
            store.close().unwrap();
        }
    }
}

/// The store has no damage, and each tree of records as many entries.
#[track_caller]
pub fn expect_sound(store: &Store, entries: usize) {
    let violations = store.check().unwrap();
    assert!(violations.is_empty(), "{violations:?}");
    for tree in trees(store) {
        let found: BTreeMap<_, _> = tree.iter().collect::<everleaf::Result<_>>().unwrap();
        assert_eq!(found.len(), entries, "{tree:?}");
    }
}

/// Wakes a thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
