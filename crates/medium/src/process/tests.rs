use std::fs::{self, File};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::{FdFlags, fcntl_getfd};
use rustix::process::{Resource, Rlimit, setrlimit};

use super::*;
use crate::file::{Disk, Io};
use crate::presence::{Presence, is_mapped};
use crate::sync::{SharedLock, pin, wait_for_announced, while_words_are_locked};
use crate::testing::forked::{ChildEnd, ChildEnding, fork};
use crate::{Dax, DaxOptions, FileOptions, Medium, random_id};

const DONE: ChildEnd = ChildEnd::Code(0);

fn in_child(work: impl FnOnce()) {
    // Otherwise there is no handler before the first file is open.
    handle_forks();
    assert_eq!(fork(ChildEnding::AtOnce, work).wait(), DONE);
}

/// A new file, which is removed when this is dropped.
struct TestFile {
    path: PathBuf,
    file: File,
}

impl TestFile {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("everleaf-{:x}", random_id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .unwrap();
        Self { path, file }
    }

    fn lock(&self) -> FileLock {
        let lock = FileLock::beside(&self.file, &self.path).unwrap().unwrap();
        flock(lock.file(), FlockOperation::NonBlockingLockExclusive).unwrap();
        lock
    }

    /// Whether another process could lock it.
    fn is_free(&self) -> bool {
        let other = File::open(&self.path).unwrap();
        flock(&other, FlockOperation::NonBlockingLockShared).is_ok()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[test]
fn a_child_is_another_process_and_so_is_its_child() {
    let parent = Process::current();
    assert!(parent.is_current() && Process::current().is_current());
    in_child(|| {
        assert_eq!(parent.expect_current(), Err(Forked));
        let child = Process::current();
        assert!(child.is_current() && !parent.is_current());
        in_child(|| {
            assert!(!child.is_current() && !parent.is_current());
            let grandchild = Process::current();
            assert!(grandchild.is_current() && !child.is_current() && !parent.is_current());
        });
        assert!(child.is_current());
    });
    assert!(parent.is_current());
}

/// The page is wiped also where no handler runs.
#[test]
fn the_system_wipes_the_page() {
    let page = wiped_page().unwrap();
    // SAFETY: a page that is never unmapped, aligned and zero at first.
    let word = unsafe { &*page };
    word.store(1, Ordering::Relaxed);
    in_child(|| assert_eq!(word.load(Ordering::Relaxed), 0));
    assert_eq!(word.load(Ordering::Relaxed), 1);
}

#[test]
fn a_registered_descriptor_is_nothing_in_a_child() {
    let test = TestFile::new();
    let mut registered = Vec::new();
    // More than one part of the table.
    for _ in 0..100 {
        let file = File::open(&test.path).unwrap();
        registered.push((CoveredDescriptor::of(file.as_raw_fd()), file));
    }
    in_child(|| {
        for (_, file) in &registered {
            assert!(file.metadata().unwrap().file_type().is_char_device());
            assert!(fcntl_getfd(file).unwrap().contains(FdFlags::CLOEXEC));
        }
        assert!(test.file.metadata().unwrap().is_file());
        let new = File::open(&test.path).unwrap();
        assert!(
            registered
                .iter()
                .all(|(_, file)| file.as_raw_fd() != new.as_raw_fd())
        );
    });
    for (covered, file) in registered.drain(..50) {
        drop(covered);
        in_child(|| assert!(file.metadata().unwrap().is_file()));
    }
}

/// A child that sleeps until it is let go.
struct IdleChildren {
    is_ready: PipeReader,
    ready: PipeWriter,
    is_over: PipeReader,
    over: PipeWriter,
}

impl IdleChildren {
    fn new() -> Self {
        let (is_ready, ready) = pipe().unwrap();
        let (is_over, over) = pipe().unwrap();
        Self {
            is_ready,
            ready,
            is_over,
            over,
        }
    }

    /// Makes one; it has run the handler when this returns.
    fn fork(&self) {
        let child = fork(ChildEnding::AtOnce, || {
            (&self.ready).write_all(&[0]).unwrap();
            let _ = (&self.is_over).read(&mut [0]);
        });
        (&self.is_ready).read_exact(&mut [0]).unwrap();
        // It outlives this process, if that ends.
        std::mem::forget(child);
    }

    /// Lets one end.
    fn let_go(&self) {
        (&self.over).write_all(&[0]).unwrap();
    }
}

#[test]
fn a_child_that_may_open_no_file_keeps_no_lock() {
    let test = TestFile::new();
    let idle = IdleChildren::new();
    // In a process of its own, whose limit bothers no other test.
    in_child(|| {
        let lock = test.lock();
        let limit = Rlimit {
            current: Some(64),
            maximum: Some(64),
        };
        setrlimit(Resource::Nofile, limit).unwrap();
        let mut open = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            open.push(file);
        }
        idle.fork();
        // This process ends as if it was killed: nothing is dropped.
        std::mem::forget(lock);
    });
    assert!(test.is_free());
    idle.let_go();
}

/// An open file description is locked as long as there is a descriptor or a mapping of it.
#[test]
fn an_idle_child_does_not_keep_the_lock_of_a_parent_that_is_killed() {
    let test = TestFile::new();
    let idle = IdleChildren::new();
    in_child(|| {
        let lock = test.lock();
        test.file.set_len(4096).unwrap();
        let file = test.file.try_clone().unwrap();
        let dax = Dax::new(file, DaxOptions::default()).unwrap();
        idle.fork();
        // This process ends as if it was killed: nothing is dropped.
        std::mem::forget((dax, lock));
    });
    assert!(test.is_free());
    idle.let_go();
}

/// The child may not have run its handler yet when the parent unlocks.
#[test]
fn a_lock_ends_with_its_drop_though_a_copy_of_the_descriptor_is_open() {
    let test = TestFile::new();
    let lock = test.lock();
    let copy = lock.file().try_clone().unwrap();
    drop(lock);
    assert!(test.is_free());
    drop(copy);
}

#[test]
fn a_drop_in_a_child_unlocks_nothing_and_unregisters_nothing_of_the_parent() {
    let test = TestFile::new();
    let lock = test.lock();
    let mut copy = Some(lock);
    in_child(|| drop(copy.take()));
    assert!(!test.is_free());
    drop(copy);
    assert!(test.is_free());
}

/// Which is how an open tells its own process from one of the same number in another container.
#[test]
fn a_file_that_is_open_elsewhere_in_this_process_is_known() {
    let test = TestFile::new();
    let other = TestFile::new();
    let _other_lock = other.lock();
    let second = || FileLock::beside(&test.file, &test.path).unwrap().unwrap();
    assert!(!second().is_open_elsewhere_here());
    let held = test.lock();
    assert!(second().is_open_elsewhere_here());
    // A child does not keep the files of its parent.
    in_child(|| assert!(!second().is_open_elsewhere_here()));
    drop(held);
    assert!(!second().is_open_elsewhere_here());
}

#[test]
fn a_path_that_leads_elsewhere_is_not_locked() {
    let test = TestFile::new();
    let other = TestFile::new();
    assert!(FileLock::beside(&test.file, &other.path).unwrap().is_none());
    fs::remove_file(&other.path).unwrap();
    assert!(FileLock::beside(&test.file, &other.path).unwrap().is_none());
    let only_read = File::open(&test.path).unwrap();
    let lock = FileLock::beside(&only_read, &test.path).unwrap().unwrap();
    let flags = rustix::fs::fcntl_getfl(lock.file()).unwrap();
    assert!(!flags.contains(OFlags::RDWR));
}

/// Another thread of the parent is pinned, and has left a call.
#[test]
fn epochs_begin_anew_in_a_child() {
    let called = Arc::new(AtomicBool::new(false));
    let (is_pinned, pinned) = channel();
    let (end, is_over) = channel::<()>();
    let of_parent = Arc::clone(&called);
    let thread = std::thread::spawn(move || {
        let pin = pin();
        pin.defer(move || of_parent.store(true, Ordering::Relaxed));
        pin.flush();
        is_pinned.send(()).unwrap();
        let _ = is_over.recv();
    });
    pinned.recv().unwrap();
    // This thread has a participant.
    drop(pin());
    in_child(|| {
        let of_child = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&of_child);
        pin().defer(move || set.store(true, Ordering::Relaxed));
        for _ in 0..10_000 {
            pin().flush();
        }
        assert!(of_child.load(Ordering::Relaxed), "a call of the child");
        assert!(!called.load(Ordering::Relaxed), "a call of the parent");
    });
    drop(end);
    thread.join().unwrap();
}

/// Another thread of the parent has announced a share, and a second one holds the list of all words.
#[test]
fn announced_shares_begin_anew_in_a_child() {
    let lock = SharedLock::default();
    let (is_announced, announced) = channel();
    let (end, is_over) = channel::<()>();
    std::thread::scope(|scope| {
        let lock = &lock;
        scope.spawn(move || {
            let share = lock.announce();
            is_announced.send(share.is_some()).unwrap();
            let _ = is_over.recv();
        });
        if !announced.recv().unwrap() {
            // The system has no barrier for it.
            return;
        }
        while_words_are_locked(|| {
            in_child(|| {
                let alone = lock.lock();
                wait_for_announced(std::iter::once(lock));
                drop(alone);
                assert!(lock.announce().is_some());
            });
        });
        drop(end);
    });
}

#[test]
fn a_child_has_other_random_numbers() {
    // The library has its keys by now.
    let _ = random_id();
    let (mut reader, writer) = pipe().unwrap();
    in_child(|| (&writer).write_all(&random_id().to_ne_bytes()).unwrap());
    let mut of_child = [0; 16];
    reader.read_exact(&mut of_child).unwrap();
    assert_ne!(u128::from_ne_bytes(of_child), random_id());
}

/// A child has none of the threads that the medium would wait for.
#[test]
fn a_file_medium_that_is_dropped_in_a_child_goes_on_in_the_parent() {
    let test = TestFile::new();
    let log = TestFile::new();
    let disk = |test: &TestFile| -> Arc<dyn Io> { Arc::new(Disk(test.file.try_clone().unwrap())) };
    let medium = crate::File::open(disk(&test), disk(&log), FileOptions::default()).unwrap();
    let mut copy = Some(medium);
    in_child(|| drop(copy.take()));
    let medium = copy.unwrap();
    medium.grow(1 << 20).unwrap();
    medium.finish().unwrap();
    assert_eq!(test.file.metadata().unwrap().len(), 1 << 20);
}

/// The file as a reader maps it.
fn view_of(test: &TestFile) -> Dax {
    test.file.set_len(1 << 16).unwrap();
    let again = File::open(&test.path).unwrap();
    let mapped = File::open(&test.path).unwrap();
    let presence = Presence::beside(again, &mapped).unwrap();
    Dax::plain_view(&mapped, Some(presence)).unwrap()
}

/// The child has the mapping, and with it the file from which it was made.
#[test]
fn a_child_has_no_lock_of_a_reader() {
    let test = TestFile::new();
    let view = view_of(&test);
    assert!(is_mapped(&test.file));
    let (begun, child_begun) = std::io::pipe().unwrap();
    let child = fork(ChildEnding::AtOnce, || {
        (&child_begun).write_all(&[0]).unwrap();
        loop {
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
    });
    (&begun).read_exact(&mut [0]).unwrap();
    assert!(is_mapped(&test.file), "the parent has its lock");
    let lock = test.lock();
    assert!(!lock.is_open_elsewhere_here(), "a reader is no writer");
    drop(view);
    assert!(!is_mapped(&test.file), "the child has the lock");
    child.kill();
}

/// Its parent unlocks nothing before it ends.
#[test]
fn a_child_of_a_killed_reader_has_no_lock() {
    let test = TestFile::new();
    let (begun, child_begun) = std::io::pipe().unwrap();
    let (over, end) = std::io::pipe().unwrap();
    in_child(|| {
        let view = view_of(&test);
        let child = fork(ChildEnding::AtOnce, || {
            (&child_begun).write_all(&[0]).unwrap();
            (&over).read_exact(&mut [0]).unwrap();
        });
        (&begun).read_exact(&mut [0]).unwrap();
        assert!(is_mapped(&test.file));
        std::mem::forget((view, child));
    });
    assert!(!is_mapped(&test.file), "the child has the lock");
    (&end).write_all(&[0]).unwrap();
}
