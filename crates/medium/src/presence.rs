//! How readers tell a writer that they map the pool's file: by a shared lock on a byte far behind its
//! end. A load beyond the end of a mapped file ends the process, so a writer does not cut a file that
//! is mapped, and gives no room of it back.
//!
//! The lock belongs to an open file and not to a process (`F_OFD_SETLK`). A mapping keeps its file
//! open, so the lock lasts as long as the mapping, and ends with the process, however that ends. It
//! keeps no process from writing: `flock` and this lock do not know each other. (On NFS they do. There
//! a reader beside a writer gets no such lock.)

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

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
fn set_lock(file: &File, kind: libc::c_int) -> io::Result<()> {
    let lock = lock_of_byte(kind);
    // SAFETY: the descriptor is open, and the call reads `lock`, which outlives it.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
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

/// Says that `file` is mapped, from now on until it and all mappings of it are closed.
///
/// # Errors
/// If a writer is just cutting the file, or the file system has no such locks.
pub(crate) fn say_mapped(file: &File) -> io::Result<()> {
    set_lock(file, libc::F_RDLCK)
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
