//! The scenes: each function is one, and runs in a process of its own.

use std::fs::{self, File};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engines::engine::{Host, Opening};
use engines::index::EpochLength;
use everleaf::{
    Batch, CodecKind, Engine, ErrorKind, MediumChoice, Options, Pending, Store, TreeOptions,
};
use medium::testing::forked::{ChildEnd, ChildEnding, ForkedChild, fork};
use medium::{Dax, DaxOptions};
use pool::{Pool, PoolOptions};

use crate::handles::{Handles, Site, block_on, expect_sound, trees};
use crate::refusals;

/// A scene, for each medium.
#[derive(Clone, Copy)]
pub struct Scene {
    pub name: &'static str,
    pub media: &'static [MediumChoice],
    pub run: fn(&Site),
}

macro_rules! scenes {
    ($($name:ident on $media:expr),* $(,)?) => {
        [$(Scene { name: stringify!($name), media: $media, run: $name }),*]
    };
}

const FILES: &[MediumChoice] = &[MediumChoice::File, MediumChoice::Dax];
const ALL: &[MediumChoice] = &[MediumChoice::File, MediumChoice::Dax, MediumChoice::Ram];

pub const SCENES: [Scene; 14] = scenes![
    a_child_is_refused on ALL,
    a_child_drops_beside_writers on ALL,
    a_child_only_ends on ALL,
    a_child_has_no_file_of_its_parent on FILES,
    an_idle_child_keeps_no_pool_locked on FILES,
    a_child_of_a_killed_parent_keeps_no_pool_locked on FILES,
    a_child_of_a_reader on FILES,
    an_idle_child_of_a_reader_keeps_no_file_long on FILES,
    a_child_of_a_store_that_recovers on FILES,
    a_child_has_stores_of_its_own on ALL,
    a_child_opens_the_pool_after_its_parent on FILES,
    two_generations on ALL,
    a_pool_without_a_store on &[MediumChoice::Dax],
    a_pool_without_a_store_stays_as_it_was on &[MediumChoice::Dax],
];

const NAME: &str = "a.pool";
const OTHER: &str = "b.pool";
const THIRD: &str = "c.pool";

/// Keys of a tree whose mark takes a while.
const LARGE: u64 = 500_000;

/// Children of a scene that forks while other threads work.
const ROUNDS: usize = 20;

#[track_caller]
fn expect_done(child: ForkedChild) {
    assert_eq!(child.wait(), ChildEnd::Code(0));
}

#[track_caller]
fn in_child(work: impl FnOnce()) {
    expect_done(fork(ChildEnding::AtOnce, work));
}

/// Two processes that tell each other how far they are.
struct Signals {
    receiver: PipeReader,
    sender: PipeWriter,
}

impl Signals {
    fn new() -> Self {
        let (receiver, sender) = pipe().unwrap();
        Self { receiver, sender }
    }

    fn send(&self) {
        (&self.sender).write_all(&[0]).unwrap();
    }

    fn receive(&self) {
        (&self.receiver).read_exact(&mut [0]).unwrap();
    }
}

/// A child that has begun, and does nothing until it is killed.
fn idle_child() -> ForkedChild {
    let begun = Signals::new();
    let child = fork(ChildEnding::AtOnce, || {
        begun.send();
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    begun.receive();
    child
}

/// Everything that a program can call.
fn a_child_is_refused(site: &Site) {
    for ending in [ChildEnding::AtOnce, ChildEnding::WithDestructors] {
        let handles = Handles::open(site, NAME);
        let trees = handles.trees.clone();
        let mut ranges: Vec<_> = trees.iter().map(|tree| tree.iter()).collect();
        for range in &mut ranges {
            range.next().unwrap().unwrap();
        }
        let mut copy = Some((handles, ranges));
        let child = fork(ending, || {
            let (handles, ranges) = copy.take().unwrap();
            refusals::expect_all(handles, ranges);
        });
        expect_done(child);
        let (handles, ranges) = copy.unwrap();
        for mut range in ranges {
            let (key, _) = range.next().unwrap().unwrap();
            assert_eq!(&*key, b"key 001");
        }
        drop(trees);
        handles.finish(site, NAME);
        if site.has_files() {
            fs::remove_file(site.path(NAME)).unwrap();
        }
    }
}

/// Threads of the parent hold locks, are pinned, and wait for syncs when the child begins.
fn a_child_drops_beside_writers(site: &Site) {
    let handles = Handles::open(site, NAME);
    let is_over = AtomicBool::new(false);
    let store = handles.store.clone();
    let of_writers = handles.trees.clone();
    let mut copy = Some(handles);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for tree in &of_writers {
                        let open = store.open_tree(tree.name()).unwrap();
                        open.put("key 050", "another value").unwrap();
                    }
                    store.sync().unwrap();
                }
            });
        }
        for _ in 0..ROUNDS {
            for ending in [ChildEnding::AtOnce, ChildEnding::WithDestructors] {
                let child = fork(ending, || {
                    let handles = copy.take().unwrap();
                    let refused = handles.trees[0].put("key", "value").unwrap_err();
                    assert!(matches!(refused.kind(), ErrorKind::Forked));
                    drop(handles);
                    let own = Store::in_memory().unwrap();
                    own.tree("t").unwrap().put("key", "value").unwrap();
                });
                expect_done(child);
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop((of_writers, store));
    copy.unwrap().finish(site, NAME);
}

/// A child ends with handles that it never used.
fn a_child_only_ends(site: &Site) {
    let handles = Handles::open(site, NAME);
    for ending in [ChildEnding::AtOnce, ChildEnding::WithDestructors] {
        expect_done(fork(ending, || {}));
        handles.trees[0].put("key 001", "value").unwrap();
    }
    handles.finish(site, NAME);
}

/// Neither the pool nor its log nor the lock.
fn a_child_has_no_file_of_its_parent(site: &Site) {
    let count_open = || {
        let mut count = 0;
        for entry in fs::read_dir("/proc/self/fd").unwrap() {
            // The descriptor by which the list is read is closed by now.
            let opened = fs::read_link(entry.unwrap().path());
            // A child may keep the descriptor of the folder, which has no lock.
            let is_in_folder =
                opened.is_ok_and(|path| path.parent() == Some(site.path("").as_path()));
            count += usize::from(is_in_folder);
        }
        count
    };
    let handles = Handles::open(site, NAME);
    assert!(count_open() >= 2);
    in_child(|| assert_eq!(count_open(), 0));
    handles.finish(site, NAME);
    assert_eq!(count_open(), 0);
}

fn an_idle_child_keeps_no_pool_locked(site: &Site) {
    let handles = Handles::open(site, NAME);
    let child = idle_child();
    handles.finish(site, NAME);
    // Another process.
    in_child(|| {
        let store = site.open(NAME);
        expect_sound(&store, 103);
        store.close().unwrap();
    });
    child.kill();
}

/// The parent unlocks nothing, as it is killed. Its child has the lock's descriptor and the mappings
/// of the pool.
fn a_child_of_a_killed_parent_keeps_no_pool_locked(site: &Site) {
    let begun = Signals::new();
    let over = Signals::new();
    in_child(|| {
        let handles = Handles::open(site, NAME);
        handles.store.sync().unwrap();
        let child = fork(ChildEnding::AtOnce, || {
            begun.send();
            over.receive();
        });
        begun.receive();
        // Neither of them is dropped before the process ends.
        std::mem::forget((handles, child));
    });
    let store = site.open(NAME);
    assert!(store.recovery().after_crash);
    expect_sound(&store, 101);
    store.close().unwrap();
    over.send();
}

/// The child has the mapping of a reader, and not the lock that keeps a writer from cutting the file.
fn an_idle_child_of_a_reader_keeps_no_file_long(site: &Site) {
    let store = site.open(NAME);
    let tree = store.tree("large").unwrap();
    for key in 0..8_u8 {
        tree.put([key], vec![key; 1 << 20]).unwrap();
    }
    drop(tree);
    store.close().unwrap();
    let length = || fs::metadata(site.path(NAME)).unwrap().len();
    let full = length();
    let reader = site
        .options()
        .read_only(true)
        .open(site.path(NAME))
        .unwrap();
    assert_eq!(reader.open_tree("large").unwrap().len().unwrap(), 8);
    let compact = || {
        let store = site.open(NAME);
        store.open_tree("large").unwrap().clear().unwrap();
        store.compact().unwrap();
        store.close().unwrap();
    };
    let child = idle_child();
    compact();
    assert_eq!(length(), full, "a reader maps the file");
    drop(reader);
    compact();
    assert!(length() < full, "the child keeps the reader's lock");
    child.kill();
}

fn a_child_of_a_reader(site: &Site) {
    Handles::open(site, NAME).finish(site, NAME);
    let reader = site
        .options()
        .read_only(true)
        .open(site.path(NAME))
        .unwrap();
    let tree = reader.tree("rntree").unwrap();
    in_child(|| {
        let refused = tree.get("key 001").unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Forked));
        assert!(matches!(
            reader.sync().unwrap_err().kind(),
            ErrorKind::Forked
        ));
        let own = Options::new()
            .read_only(true)
            .open(site.path(NAME))
            .unwrap();
        expect_readable(&own);
    });
    let child = idle_child();
    expect_readable(&reader);
    drop((tree, reader));
    let writer = site.open(NAME);
    expect_sound(&writer, 103);
    writer.close().unwrap();
    child.kill();
}

/// A thread of the parent finds out which space is in use.
fn a_child_of_a_store_that_recovers(site: &Site) {
    let options = site.options().close_cleanly(false);
    let kind = TreeOptions {
        engine: Engine::BZTREE,
        ..TreeOptions::WORDS
    };
    let store = options.open(site.path(NAME)).unwrap();
    let tree = store.tree_with("large", kind).unwrap();
    let words = tree.as_words().unwrap();
    words
        .bulk_load((0..LARGE).map(|key| (key, key)), 1.0)
        .unwrap();
    drop((words, tree, store));
    let store = site.open(NAME);
    let mut copy = Some(store);
    in_child(|| {
        let store = copy.take().unwrap();
        store.finish_recovery();
        assert!(store.stat().is_err());
    });
    let store = copy.unwrap();
    store.finish_recovery();
    assert_eq!(store.word_tree("large").unwrap().len().unwrap(), LARGE);
    assert!(store.check().unwrap().is_empty());
    store.close().unwrap();
}

#[track_caller]
fn expect_readable(store: &Store) {
    assert!(store.tree("rntree").unwrap().contains("key 001").unwrap());
}

/// The child uses stores as if there was no parent.
fn a_child_has_stores_of_its_own(site: &Site) {
    let handles = Handles::open(site, NAME);
    let is_over = AtomicBool::new(false);
    let of_writers = handles.trees.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for tree in &of_writers {
                    tree.put("key 050", "another value").unwrap();
                    tree.iter().for_each(|entry| drop(entry.unwrap()));
                }
            }
        });
        for round in 0..ROUNDS {
            let name = format!("{round}.pool");
            in_child(|| {
                use_store(site, &name);
                if site.has_files() {
                    let locked = site.options().open(site.path(NAME)).unwrap_err();
                    assert!(matches!(locked.kind(), ErrorKind::Locked { .. }));
                }
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop(of_writers);
    handles.finish(site, NAME);
}

/// Opens a new store, and uses its threads, locks and epochs.
fn use_store(site: &Site, name: &str) {
    let store = site.open(name);
    let trees = trees(&store);
    for tree in &trees {
        for number in 0..300 {
            tree.put(format!("{number}"), [7_u8; 100]).unwrap();
        }
        let pending = tree.pending().put("awaited", "value").unwrap();
        block_on(pending).unwrap();
        let waited = tree.pending().remove("awaited").unwrap();
        assert_eq!(Pending::wait_all([waited]).unwrap(), [true]);
        assert_eq!(tree.remove_range(..).unwrap(), 300);
    }
    let mut batch = Batch::new();
    for tree in &trees {
        batch.put(tree, "key", "value");
    }
    store.write(&batch).unwrap();
    store.sync().unwrap();
    store.compact().unwrap();
    store.drop_tree("unknown").unwrap_err();
    expect_sound(&store, 1);
    drop((trees, batch));
    store.close().unwrap();
    if site.has_files() {
        let store = site.open(name);
        expect_sound(&store, 1);
        store.finish_recovery();
    }
}

fn a_child_opens_the_pool_after_its_parent(site: &Site) {
    let closed = Signals::new();
    let handles = Handles::open(site, NAME);
    let child = fork(ChildEnding::WithDestructors, || {
        closed.receive();
        let store = site.open(NAME);
        expect_sound(&store, 103);
        store
            .tree("rntree")
            .unwrap()
            .put("of the child", "")
            .unwrap();
        // The parent's handles are still refused.
        let refused = handles.words.get(1).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Forked));
        store.close().unwrap();
    });
    handles.finish(site, NAME);
    closed.send();
    expect_done(child);
    let store = site.open(NAME);
    assert!(
        store
            .tree("rntree")
            .unwrap()
            .contains("of the child")
            .unwrap()
    );
}

fn two_generations(site: &Site) {
    let parent = Handles::open(site, NAME);
    in_child(|| {
        let child = Handles::open(site, OTHER);
        in_child(|| {
            for handles in [&parent, &child] {
                let refused = handles.words.put(1, 2).unwrap_err();
                assert!(matches!(refused.kind(), ErrorKind::Forked));
            }
            Handles::open(site, THIRD).finish(site, THIRD);
            assert!(parent.words.get(1).is_err() && child.words.get(1).is_err());
        });
        let idle = idle_child();
        assert!(parent.words.get(1).is_err());
        child.finish(site, OTHER);
        idle.kill();
    });
    parent.finish(site, NAME);
}

/// The layers below the store are of use without one.
fn a_pool_without_a_store(site: &Site) {
    // A thread of the parent ends epochs.
    drop_pool_in_child(site, EpochLength::Every(Duration::from_millis(1)));
}

/// No thread of the parent writes to the pool.
fn a_pool_without_a_store_stays_as_it_was(site: &Site) {
    drop_pool_in_child(site, EpochLength::Manual);
}

fn drop_pool_in_child(site: &Site, epoch: EpochLength) {
    let opening = Opening {
        epoch,
        ..Opening::default()
    };
    let path = site.path(NAME);
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    let dax = Dax::new(file, DaxOptions::default()).unwrap();
    let pool = Pool::open(dax, PoolOptions::default()).unwrap();
    let mut trees = Vec::new();
    for engine in Engine::ALL {
        let factory = Dax::factory(&engine.media);
        let made = (factory.create)(&pool, engine.name.into(), CodecKind::Record, &opening);
        trees.push(made.unwrap().index);
    }
    for tree in &trees {
        tree.put(b"before", b"value").unwrap();
    }
    let bytes = fs::read(&path).unwrap();
    let mut of_child = Some((trees, pool));
    in_child(|| drop(of_child.take()));
    let is_same = bytes == fs::read(&path).unwrap();
    assert!(
        is_same || epoch != EpochLength::Manual,
        "the child wrote to the pool"
    );
    let (trees, pool) = of_child.unwrap();
    for tree in &trees {
        tree.put(b"after", b"value").unwrap();
        assert!(tree.check().unwrap().is_empty());
    }
    drop(trees);
    pool.close().unwrap();
    let store = Options::new()
        .medium(MediumChoice::Dax)
        .open(&path)
        .unwrap();
    expect_sound(&store, 2);
}
