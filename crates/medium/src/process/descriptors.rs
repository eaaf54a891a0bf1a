//! The descriptors that the child of a fork does not keep.
//!
//! The child's handler puts `/dev/null` over each of them. A number that was merely closed would be
//! given to the next file that the child opens, and a drop of the parent's value, or a call with its
//! number, would reach that file.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, flock};

use super::Process;
use crate::made_once::MadeOnce;

/// Stands for no descriptor.
const NONE: RawFd = -1;
/// Descriptors in a part of the table.
const PART_DESCRIPTORS: usize = 62;

/// A part of the table of all registered descriptors. The table only grows, and is read without a
/// lock: a thread that the child does not have could hold it.
struct TablePart {
    descriptors: [AtomicI32; PART_DESCRIPTORS],
    next: MadeOnce<TablePart>,
}

static TABLE: TablePart = TablePart::new();

/// The table of the descriptors by which readers say that they map a file. They are no sign that a
/// pool is open for writing.
static READERS: TablePart = TablePart::new();

impl TablePart {
    const fn new() -> Self {
        Self {
            descriptors: [const { AtomicI32::new(NONE) }; PART_DESCRIPTORS],
            next: MadeOnce::new(),
        }
    }

    /// Takes a free place for a descriptor.
    fn take(&'static self, descriptor: RawFd) -> Option<&'static AtomicI32> {
        self.descriptors.iter().find(|place| {
            let taken =
                place.compare_exchange(NONE, descriptor, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        })
    }
}

/// A descriptor that is covered in each child of a fork, until this is dropped. It is dropped before
/// the file is closed: the number may stand for another file afterwards.
#[derive(Debug)]
pub(crate) struct CoveredDescriptor {
    place: &'static AtomicI32,
}

impl CoveredDescriptor {
    /// Registers a descriptor.
    pub(crate) fn of(descriptor: RawFd) -> Self {
        Self::within(&TABLE, descriptor)
    }

    /// Registers the descriptor by which a reader says that it maps a file.
    pub(crate) fn of_reader(descriptor: RawFd) -> Self {
        Self::within(&READERS, descriptor)
    }

    fn within(table: &'static TablePart, descriptor: RawFd) -> Self {
        super::handle_forks();
        let mut part = table;
        loop {
            if let Some(place) = part.take(descriptor) {
                return Self { place };
            }
            part = part.next.get_or_make(TablePart::new);
        }
    }
}

impl Drop for CoveredDescriptor {
    fn drop(&mut self) {
        self.place.store(NONE, Ordering::Release);
    }
}

/// Two open files that are covered in each child of a fork, and the process that has them.
#[derive(Debug)]
pub(crate) struct OwnFiles {
    _covered: [CoveredDescriptor; 2],
    pub(crate) process: Process,
}

impl OwnFiles {
    /// Registers two files of this process.
    pub(crate) fn of(files: [&fs::File; 2]) -> Self {
        Self {
            _covered: files.map(|file| CoveredDescriptor::of(file.as_raw_fd())),
            process: Process::current(),
        }
    }
}

/// A file that is open a second time, for a lock on it.
///
/// The descriptor from which a file is read, written and mapped has no lock, so no copy of it, and
/// no mapping of a child, keeps the file locked. The drop unlocks the file before it closes it: the
/// lock then ends at once, even if a child has a copy of the descriptor because its handler has not
/// run yet.
#[derive(Debug)]
pub struct FileLock {
    // It goes before the file.
    _covered: CoveredDescriptor,
    file: fs::File,
    process: Process,
}

impl FileLock {
    /// Opens the file at `path` again, to be locked; `None` if `path` does not lead to `file` any
    /// more. It is registered before it is locked, so every child that is forked later is without
    /// it.
    ///
    /// # Errors
    /// If the system does not open the file.
    pub fn beside(file: &fs::File, path: &Path) -> io::Result<Option<Self>> {
        // On some file systems a file that is to be locked alone must be open for writing.
        let is_written = fcntl_getfl(file)?.contains(OFlags::RDWR);
        let opened = fs::OpenOptions::new()
            .read(true)
            .write(is_written)
            // Opening a pipe would block.
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(path);
        match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => Self::on(opened?, file),
        }
    }

    /// Takes a file that was opened only to be locked; `None` if it is another one than `file`.
    ///
    /// # Errors
    /// If the system does not tell which files these are.
    pub fn on(again: fs::File, file: &fs::File) -> io::Result<Option<Self>> {
        let lock = Self {
            _covered: CoveredDescriptor::of(again.as_raw_fd()),
            file: again,
            process: Process::current(),
        };
        let expected = file.metadata()?;
        let found = lock.file.metadata()?;
        let is_same = expected.dev() == found.dev() && expected.ino() == found.ino();
        Ok(is_same.then_some(lock))
    }

    /// The file, for the calls that lock it. Nothing is to be mapped from it.
    pub fn file(&self) -> &fs::File {
        &self.file
    }

    /// Whether this process has the same file open in another place: in a store, or for another
    /// lock. `false` if the system does not tell. O(open stores).
    pub fn is_open_elsewhere_here(&self) -> bool {
        let Ok(own) = self.file.metadata() else {
            return false;
        };
        let mut part = Some(&TABLE);
        while let Some(found) = part {
            for place in &found.descriptors {
                let descriptor = place.load(Ordering::Acquire);
                if descriptor == NONE || descriptor == self.file.as_raw_fd() {
                    continue;
                }
                // Another thread may close the descriptor meanwhile. Its number is only looked up.
                let other = fs::metadata(format!("/proc/self/fd/{descriptor}"));
                if other.is_ok_and(|other| other.dev() == own.dev() && other.ino() == own.ino()) {
                    return true;
                }
            }
            part = found.next.get();
        }
        false
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // The lock of a parent is the parent's.
        if self.process.is_current() {
            // If that fails, the lock ends when the file is closed.
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// Covers all registered descriptors, in the child of a fork.
pub(super) fn cover_all() {
    let mut cover = None;
    for table in [&TABLE, &READERS] {
        let mut part = Some(table);
        while let Some(found) = part {
            for place in &found.descriptors {
                let descriptor = place.load(Ordering::Acquire);
                if descriptor != NONE {
                    cover = Some(covered_by(cover, descriptor));
                }
            }
            part = found.next.get();
        }
    }
    if let Some(Cover::Spare(null)) = cover {
        // SAFETY: opened by `covered_by`, and used nowhere else.
        let _ = unsafe { libc::close(null) };
    }
}

/// A descriptor of nothing, of which others become copies.
#[derive(Clone, Copy)]
enum Cover {
    /// It has a number of its own.
    Spare(RawFd),
    /// It has the number of a descriptor that had to be covered.
    InPlace(RawFd),
}

/// Covers one descriptor. Returns the cover, for the next one.
fn covered_by(cover: Option<Cover>, descriptor: RawFd) -> Cover {
    let cover = match cover {
        Some(cover) => cover,
        None => match open_nothing() {
            NONE => {
                // No number is free.
                // SAFETY: the descriptor of a file of the parent, which the child must not use.
                let _ = unsafe { libc::close(descriptor) };
                match open_nothing() {
                    opened if opened == descriptor => return Cover::InPlace(opened),
                    opened => Cover::Spare(opened),
                }
            }
            opened => Cover::Spare(opened),
        },
    };
    let (Cover::Spare(nothing) | Cover::InPlace(nothing)) = cover;
    // SAFETY: as above. Like the descriptor itself, the copy is closed by an `exec`.
    while unsafe { libc::dup3(nothing, descriptor, libc::O_CLOEXEC) } < 0 {
        // SAFETY: the address of a variable of this thread.
        if unsafe { *libc::__errno_location() } != libc::EINTR {
            // Without a cover the descriptor is closed: the parent's lock must not live on.
            // SAFETY: as above.
            let _ = unsafe { libc::close(descriptor) };
            break;
        }
    }
    cover
}

/// A descriptor of `/dev/null` or, where that is missing, of a counter that nothing counts with;
/// [`NONE`] if the process may have no more descriptors.
fn open_nothing() -> RawFd {
    // SAFETY: a path that ends with a zero byte.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if null >= 0 {
        return null;
    }
    // SAFETY: it has no memory of this process.
    unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }
}
