//! How readers tell a writer that they map the pool's file: by a shared lock on a byte far behind its
//! end. A load beyond the end of a mapped file ends the process, so a writer does not cut a file that
//! is mapped, and gives no room of it back.
//!
//! The lock belongs to an open file and not to a process (`F_OFD_SETLK`). The reader opens the file a
//! second time for it, because the child of a fork keeps the mapping, and with it the open file that is
//! mapped: a lock on that one would last as long as the child. The lock ends with the process, however
//! that ends. It keeps no process from writing: `flock` and this lock do not know each other. (On NFS
//! they do. There a reader beside a writer gets no such lock.)

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

use crate::Process;
use crate::process::CoveredDescriptor;

/// The byte that is locked: no file is so long.
const BYTE: i64 = 1 << 62;

/// A lock of this kind on the byte.
fn lock_of_byte(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: BYTE,
        l_len: 1,
        l_pid: 0,
    }
}

/// Locks the byte, or frees it.
fn set_lock(file: &impl AsFd, kind: libc::c_int) -> io::Result<()> {
    let lock = lock_of_byte(kind);
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, and the call reads `lock`, which outlives it.
    let result = unsafe { libc::fcntl(descriptor, libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether an error says that another open file has the lock.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

/// The lock of a reader, until this is dropped. The child of a fork does not have it.
#[derive(Debug)]
pub(crate) struct Presence<F: AsFd = File> {
    // It goes before the file.
    _covered: CoveredDescriptor,
    file: F,
    process: Process,
}

impl<F: AsFd> Presence<F> {
    /// Says that a file is read, which nothing is mapped from.
    ///
    /// # Errors
    /// If a writer is just cutting the file, or the file system has no such locks.
    pub(crate) fn of_unmapped(file: F) -> io::Result<Self> {
        let presence = Self {
            // A child that is forked after the lock is taken must not have it.
            _covered: CoveredDescriptor::of_reader(file.as_fd().as_raw_fd()),
            file,
            process: Process::current(),
        };
        set_lock(&presence.file, libc::F_RDLCK)?;
        Ok(presence)
    }
}

impl Presence {
    /// Says that `mapped` is mapped. `again` is the same file, opened once more for this.
    ///
    /// # Errors
    /// If a writer is just cutting the file, or the file system has no such locks, or `again` is
    /// another file.
    pub(crate) fn beside(again: File, mapped: &File) -> io::Result<Self> {
        let expected = mapped.metadata()?;
        let found = again.metadata()?;
        if expected.dev() != found.dev() || expected.ino() != found.ino() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Self::of_unmapped(again)
    }
}

impl<F: AsFd> Drop for Presence<F> {
    fn drop(&mut self) {
        // The lock of a parent is the parent's.
        if self.process.is_current() {
            // If that fails, the lock ends when the file is closed.
            let _ = set_lock(&self.file, libc::F_UNLCK);
        }
    }
}

/// Calls `cut` unless a reader maps the file; no reader begins meanwhile. Returns whether it was
/// called.
///
/// # Errors
/// The error of `cut`.
pub(crate) fn unless_mapped(file: &File, cut: impl FnOnce() -> io::Result<()>) -> io::Result<bool> {
    match set_lock(file, libc::F_WRLCK) {
        Err(error) if is_taken(&error) => return Ok(false),
        // If the file system has no such locks, no reader maps the file.
        Ok(()) | Err(_) => {}
    }
    let result = cut();
    // If this fails, readers read a copy until the file is closed.
    let _ = set_lock(file, libc::F_UNLCK);
    result.map(|()| true)
}

/// Whether a reader maps the file.
pub(crate) fn is_mapped(file: &File) -> bool {
    let mut lock = lock_of_byte(libc::F_WRLCK);
    // SAFETY: the descriptor is open, and the call writes to `lock`, which outlives it.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    result == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
}
