//! Refusals of the system: of locks, threads, syncs of folders, files.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use everleaf::{
    Engine, ErrorKind, LineStore, LogError, MediumChoice, MediumError, Options, TreeOptions,
};
use medium::file::Io;
use medium::testing::refusal::{Refusal, SystemCall, grant, refuse};
use medium::testing::{FileCall, Hooked, Then};
use rustix::io::Errno;

mod common;

use common::{folder, run_again};

fn options() -> Options {
    Options::new()
        .medium(MediumChoice::File)
        .log_bytes(64 << 10)
        .recovery_threads(1)
}

fn mapped() -> Options {
    Options::new()
        .medium(MediumChoice::Dax)
        .line_store(LineStore::detect())
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn refuse_from(call: Option<SystemCall>, after: u64, errno: Errno) {
    refuse(Some(Refusal { call, after, errno }));
}

#[test]
fn a_file_system_without_locks_is_told_and_no_pool_is_left() {
    for options in [options(), mapped()] {
        let folder = folder();
        let path = folder.path().join("a.pool");
        refuse_from(Some(SystemCall::Lock), 0, Errno::NOLCK);
        let error = options.open(&path).unwrap_err();
        refuse(None);
        assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}");
        assert!(error.to_string().contains("locks"), "{error}");
        assert_eq!(names_in(folder.path()), BTreeSet::new());
        // A pool that was there stays.
        let store = options.open(&path).unwrap();
        store.tree("t").unwrap().put("key", "value").unwrap();
        store.close().unwrap();
        refuse_from(Some(SystemCall::Lock), 0, Errno::NOLCK);
        options.open(&path).unwrap_err();
        refuse(None);
        assert_eq!(
            options
                .open(&path)
                .unwrap()
                .tree("t")
                .unwrap()
                .len()
                .unwrap(),
            1
        );
    }
}

#[test]
fn a_folder_that_cannot_be_synced_is_a_note() {
    for options in [options(), mapped()] {
        let folder = folder();
        let path = folder.path().join("a.pool");
        refuse_from(Some(SystemCall::SyncFolder), 0, Errno::INVAL);
        let store = options.open(&path).unwrap();
        store.tree("t").unwrap().put("key", "value").unwrap();
        let notes = store.stat().unwrap().notes;
        store.close().unwrap();
        refuse(None);
        assert!(
            matches!(&notes[..], [note] if note.contains("folders")),
            "{notes:?}"
        );
        let store = options.open(&path).unwrap();
        assert_eq!(store.tree("t").unwrap().len().unwrap(), 1);
    }
    // Elsewhere there is no note, and another error is one.
    let folder = folder();
    let path = folder.path().join("a.pool");
    assert_eq!(
        options().open(&path).unwrap().stat().unwrap().notes,
        Vec::<String>::new()
    );
    let store = options().open(&path).unwrap();
    refuse_from(Some(SystemCall::SyncFolder), 0, Errno::IO);
    let error = store.tree("t").unwrap_err();
    refuse(None);
    assert!(
        error.to_string().contains("durable in its folder"),
        "{error}"
    );
    store.close().unwrap_err();
    assert_eq!(
        names_in(folder.path()),
        BTreeSet::from(["a.pool".to_owned()])
    );
}

/// Names the folder of the stores, in the process that opens them.
const STORES: &str = "EVERLEAF_TEST_THREADS";

/// In a process of its own: the stores of a process share their threads.
#[test]
fn threads_that_cannot_be_started_are_errors_or_done_without() {
    let Some(place) = env::var_os(STORES) else {
        let folder = folder();
        let again = Command::new(env::current_exe().unwrap());
        let name = "threads_that_cannot_be_started_are_errors_or_done_without";
        return run_again(again, STORES, folder.path(), name);
    };
    let place = PathBuf::from(place);
    let path = place.join("a.pool");
    refuse_from(Some(SystemCall::StartThread), 0, Errno::AGAIN);
    let error = options().open(&path).unwrap_err();
    refuse(None);
    let Some(MediumError::Log(LogError::Io { action, .. })) = error.medium() else {
        panic!("{error}")
    };
    assert_eq!(*action, "start a thread");
    assert!(error.to_string().contains("`ulimit -u`"), "{error}");
    assert_eq!(names_in(&place), BTreeSet::new());

    // On mapped memory only epochs need a thread; the other trees of the store do not.
    let kind = TreeOptions {
        engine: Engine::MASSTREE,
        ..TreeOptions::RECORDS
    };
    let store = mapped().open(place.join("mapped.pool")).unwrap();
    refuse_from(Some(SystemCall::StartThread), 0, Errno::AGAIN);
    let error = store.tree_with("epochs", kind).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}");
    store.tree("t").unwrap().put("key", "value").unwrap();
    refuse(None);
    let tree = store.tree_with("epochs", kind).unwrap();
    tree.put("key", "value").unwrap();
    drop(tree);
    store.close().unwrap();

    let store = options().open(&path).unwrap();
    let tree = store.tree_with("epochs", kind).unwrap();
    tree.put("key", "value").unwrap();
    store.sync().unwrap();
    drop(tree);
    for number in 0..3000_u32 {
        let tree = store.tree("t").unwrap();
        tree.put(number.to_be_bytes(), vec![7; 3000]).unwrap();
    }
    store.close().unwrap();
    // The bitmaps are read without a thread. Both trees are there. The threads that the stores
    // share have not ended yet.
    refuse_from(Some(SystemCall::StartThread), 0, Errno::AGAIN);
    let store = options().open(&path).unwrap();
    refuse(None);
    assert_eq!(store.open_tree("epochs").unwrap().len().unwrap(), 1);
    let before = store.stat().unwrap();
    assert_eq!((before.marked, before.recovery.damaged), (None, Vec::new()));
    let tree = store.open_tree("t").unwrap();
    for number in 0..3000_u32 {
        tree.remove(number.to_be_bytes()).unwrap();
    }
    for number in 0..3000_u32 {
        tree.put(number.to_be_bytes(), vec![7; 3000]).unwrap();
    }
    // Space is reused.
    let after = store.stat().unwrap();
    assert!(
        after.file_bytes < before.file_bytes * 3 / 2,
        "{} after {}",
        after.file_bytes,
        before.file_bytes
    );
    assert_eq!(store.check().unwrap(), []);
}

/// Files whose calls count as calls of the system.
fn counted(io: Arc<dyn Io>) -> Arc<dyn Io> {
    let hook = |call| match call {
        FileCall::Read => Ok(Then::Go),
        _ => grant(SystemCall::Counted).map(|()| Then::Go),
    };
    Arc::new(Hooked::deciding(io, hook))
}

/// Every call of the thread that makes a pool fails once, and all calls after it.
#[test]
fn a_creation_that_fails_anywhere_leaves_no_file() {
    for options in [options().through(counted), mapped()] {
        for errno in [Errno::IO, Errno::NOSPC, Errno::NOLCK, Errno::MFILE] {
            let mut failed = 0;
            loop {
                let folder = folder();
                let path = folder.path().join("a.pool");
                refuse_from(None, failed, errno);
                let opened = options.open(&path);
                refuse(None);
                let Err(error) = opened else {
                    break;
                };
                assert_eq!(
                    names_in(folder.path()),
                    BTreeSet::new(),
                    "after {failed} calls, {errno:?}: {error}"
                );
                // The place is free for the next pool.
                options.open(&path).unwrap();
                failed += 1;
            }
            assert!(failed >= 3, "only {failed} calls, {errno:?}");
        }
    }
}

static INTERRUPTIONS: AtomicU64 = AtomicU64::new(0);

/// Files of which two of three syncs are interrupted by a signal.
fn interrupted(io: Arc<dyn Io>) -> Arc<dyn Io> {
    let hook = |call| {
        if call == FileCall::Sync
            && !INTERRUPTIONS
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(3)
        {
            return Err(Errno::INTR.into());
        }
        Ok(Then::Go)
    };
    Arc::new(Hooked::deciding(io, hook))
}

#[test]
fn a_sync_that_is_interrupted_is_made_again() {
    let folder = folder();
    let path = folder.path().join("a.pool");
    let store = options().through(interrupted).open(&path).unwrap();
    let tree = store.tree("t").unwrap();
    for number in 0..100_u32 {
        tree.put(number.to_be_bytes(), vec![7; 2000]).unwrap();
    }
    drop(tree);
    store.backup(folder.path().join("copy")).unwrap();
    store.close().unwrap();
    assert!(INTERRUPTIONS.load(Ordering::Relaxed) > 300);
    let store = options().open(&path).unwrap();
    assert_eq!(store.tree("t").unwrap().len().unwrap(), 100);
}
