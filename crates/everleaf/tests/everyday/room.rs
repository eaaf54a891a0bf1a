//! The room that a pool's file takes: the room of removed entries is given back, and taken again.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everleaf::{Engine, MediumChoice, Options, Store, TreeOptions};
use medium::file::Disk;
use medium::testing::{FileCall, Hooked, Then};

use crate::common::{folder, room};

const ENTRIES: u32 = 20_000;
const MIB: u64 = 1 << 20;

fn options(medium: MediumChoice) -> Options {
    Options::new().medium(medium)
}

fn key(number: u32) -> [u8; 8] {
    u64::from(number.wrapping_mul(0x9e37_79b9)).to_be_bytes()
}

fn fill(store: &Store, name: &str, kind: TreeOptions, value: u8) {
    let tree = store.tree_with(name, kind).unwrap();
    (0..ENTRIES).for_each(|number| drop(tree.pending().put(key(number), [value; 200]).unwrap()));
    store.sync().unwrap();
}

/// Every engine on every medium that has a file.
fn cases() -> impl Iterator<Item = (MediumChoice, TreeOptions)> {
    let engines = [
        Engine::RNTREE,
        Engine::BZTREE,
        Engine::MASSTREE,
        Engine::WBTREE,
        Engine::CAWBT,
    ];
    let kinds = engines.map(|engine| TreeOptions {
        engine,
        ..TreeOptions::RECORDS
    });
    let media = [MediumChoice::Dax, MediumChoice::File].into_iter();
    media.flat_map(move |medium| kinds.map(|kind| (medium, kind)))
}

struct NewStore {
    folder: tempfile::TempDir,
    path: PathBuf,
    store: Store,
}

fn new_store(medium: MediumChoice) -> NewStore {
    let folder = folder();
    let path = folder.path().join("pool");
    let store = options(medium).open(&path).unwrap();
    NewStore {
        folder,
        path,
        store,
    }
}

fn expect_whole(store: &Store, name: &str, value: u8) {
    let tree = store.open_tree(name).unwrap();
    (0..ENTRIES).for_each(|number| {
        assert_eq!(
            tree.get(key(number)).unwrap().unwrap().to_vec(),
            [value; 200]
        );
    });
    assert_eq!(store.check().unwrap(), []);
}

/// A file once stayed at its greatest size, except for a free tail that a close cut off.
#[test]
fn what_a_dropped_tree_took_comes_back_and_is_used_again() {
    for (medium, kind) in cases() {
        let what = (medium, kind.engine.name);
        let NewStore {
            folder: _folder,
            path,
            store,
        } = new_store(medium);
        fill(&store, "large", kind, 1);
        // It holds the end of the file.
        fill(&store, "kept", kind, 2);
        store.sync().unwrap();
        store.drop_tree("large").unwrap();
        store.compact().unwrap();
        let half = room(&path);
        let length = std::fs::metadata(&path).unwrap().len();
        assert!(
            half < length * 2 / 3,
            "{what:?}: {half} of {length} bytes take room"
        );
        expect_whole(&store, "kept", 2);
        store.close().unwrap();
        assert!(room(&path) <= half + MIB, "{what:?}");
        let store = options(medium).open(&path).unwrap();
        expect_whole(&store, "kept", 2);
        assert!(room(&path) <= half + MIB, "{what:?}: an open fills holes");
        // Until then the store knows only the slabs behind the last one to be free.
        store.finish_recovery();
        fill(&store, "large", kind, 3);
        assert!(
            std::fs::metadata(&path).unwrap().len() < length + 2 * MIB,
            "{what:?}: holes are not used"
        );
        expect_whole(&store, "large", 3);
        expect_whole(&store, "kept", 2);
        store.drop_tree("large").unwrap();
        store.drop_tree("kept").unwrap();
        store.compact().unwrap();
        assert!(
            room(&path) < 4 * MIB,
            "{what:?}: {} bytes of an empty store",
            room(&path)
        );
        fill(&store, "large", kind, 4);
        expect_whole(&store, "large", 4);
        store.close().unwrap();
        expect_whole(&options(medium).open(&path).unwrap(), "large", 4);
    }
}

#[test]
fn what_was_removed_from_a_tree_comes_back() {
    for (medium, kind) in cases() {
        let what = (medium, kind.engine.name);
        let NewStore {
            folder: _folder,
            path,
            store,
        } = new_store(medium);
        fill(&store, "tree", kind, 1);
        store.compact().unwrap();
        let full = room(&path);
        let tree = store.open_tree("tree").unwrap();
        (0..ENTRIES).for_each(|number| drop(tree.pending().remove(key(number)).unwrap()));
        drop(tree);
        store.sync().unwrap();
        let before = room(&path);
        let back = store.compact().unwrap().bytes_freed();
        let left = room(&path);
        assert!(left <= full / 2, "{what:?}: {full}, then {left} bytes");
        // Meanwhile checkpoints of a file give room back, and take some.
        let is_all = if medium == MediumChoice::File {
            back > 0
        } else {
            back == before - left
        };
        assert!(is_all, "{what:?}: {back} bytes of {}", before - left);
        fill(&store, "tree", kind, 2);
        expect_whole(&store, "tree", 2);
        store.close().unwrap();
        expect_whole(&options(medium).open(&path).unwrap(), "tree", 2);
    }
}

/// A tree of Masstree once kept its runs until it was dropped.
#[test]
fn a_close_gives_back_what_was_removed() {
    for (medium, kind) in cases() {
        let NewStore {
            folder: _folder,
            path,
            store,
        } = new_store(medium);
        fill(&store, "tree", kind, 1);
        let tree = store.open_tree("tree").unwrap();
        (0..ENTRIES).for_each(|number| drop(tree.pending().remove(key(number)).unwrap()));
        drop(tree);
        store.close().unwrap();
        assert!(
            room(&path) < 2 * MIB,
            "{medium:?}, {}: {} bytes",
            kind.engine.name,
            room(&path)
        );
        let store = options(medium).open(&path).unwrap();
        fill(&store, "tree", kind, 2);
        expect_whole(&store, "tree", 2);
    }
}

/// On a full disk the first free slab may be a hole that gets no room, while a later one has kept
/// its own.
#[test]
fn a_full_disk_still_uses_free_slabs_that_kept_their_room() {
    let folder = folder();
    let file = |name| {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.path().join(name));
        Arc::new(Disk(file.unwrap()))
    };
    let full = Arc::new(AtomicBool::new(false));
    let hook = {
        let full = Arc::clone(&full);
        move |call| match call {
            FileCall::Allocate if full.load(Ordering::Relaxed) => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(Then::Go),
        }
    };
    let pool = Arc::new(Hooked::deciding(file("pool"), hook));
    let store = options(MediumChoice::File)
        .open_on(pool, file("pool.log"))
        .unwrap();
    let tree = store.tree("tree").unwrap();
    let value = vec![7; 64_000];
    for number in [1, 2, 3] {
        tree.put(key(number), &value).unwrap();
    }
    tree.remove(key(1)).unwrap();
    store.compact().unwrap();
    tree.remove(key(2)).unwrap();
    full.store(true, Ordering::Relaxed);
    tree.put(key(4), &value).unwrap();
    let error = tree.put(key(5), &value).unwrap_err();
    assert!(error.is_full(), "{error}");
    full.store(false, Ordering::Relaxed);
    tree.put(key(5), &value).unwrap();
    assert_eq!(store.check().unwrap(), []);
}

/// Some file systems call room that was never written a hole, and no longer do so once it was read.
/// Such a slab once counted as damaged.
#[test]
fn free_slabs_of_zeros_are_free_whether_or_not_they_are_holes() {
    const SLAB: usize = 1 << 16;
    for medium in [MediumChoice::Dax, MediumChoice::File] {
        let folder = folder();
        let path = folder.path().join("a.pool");
        let store = options(medium).open(&path).unwrap();
        let tree = store.tree("tree").unwrap();
        (1..=200).for_each(|number| tree.put(key(number), vec![7; 64_000]).unwrap());
        (1..200).for_each(|number| assert!(tree.remove(key(number)).unwrap()));
        drop(tree);
        // Records are free when no reader is pinned any more, and other tests of this process pin
        // threads, too.
        let deadline = Instant::now() + Duration::from_secs(30);
        while store.stat().unwrap().used_bytes > 40 * SLAB as u64 && Instant::now() < deadline {
            store.compact().unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        store.close().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let zeros = bytes[SLAB..]
            .chunks(SLAB)
            .filter(|slab| slab.iter().all(|byte| *byte == 0))
            .count();
        assert!(
            zeros > 150,
            "{medium:?}: {zeros} free slabs of {}",
            bytes.len() / SLAB
        );
        // The bytes are written as they are, so they are no holes.
        std::fs::write(&path, &bytes).unwrap();
        let store = options(medium).open(&path).unwrap();
        assert!(!store.recovery().after_crash);
        assert_eq!(store.check().unwrap(), []);
        let before = store.stat().unwrap().file_bytes;
        let tree = store.tree("tree").unwrap();
        (1..100).for_each(|number| tree.put(key(number), vec![8; 64_000]).unwrap());
        assert_eq!(
            store.stat().unwrap().file_bytes,
            before,
            "the free slabs are used again"
        );
        drop(tree);
        store.close().unwrap();
        // A slab in use is not all zeros, so a class word of zero in it is damaged.
        bytes = std::fs::read(&path).unwrap();
        let used = bytes
            .chunks(SLAB)
            .skip(1)
            .position(|slab| slab[64..].iter().any(|byte| *byte != 0));
        let at = SLAB * (used.unwrap() + 1);
        bytes[at..at + 8].fill(0);
        std::fs::write(&path, &bytes).unwrap();
        let store = options(medium).open(&path).unwrap();
        store.finish_recovery();
        let is_found = store.recovery().after_crash || !store.check().unwrap().is_empty();
        assert!(is_found, "{medium:?}");
    }
}
