//! Processes: the copies that a fork makes, and how the owner of a file notices that it is one.
//!
//! A fork gives the child the memory of its parent, the parent's descriptors, and one of its
//! threads. A store that is copied so cannot work: its background threads do not exist, its locks
//! may be held by threads that do not exist, and its files belong to the parent. So three things
//! happen.
//!
//! 1. *Every store remembers its process* ([`Process`]). A word lies on a page that the system wipes
//!    in the child (`MADV_WIPEONFORK`, Linux 4.14). A store compares the word with the value that it
//!    found when it was opened; in a child the two differ. If the system cannot wipe the page, the
//!    handler of point 2 does.
//! 2. *A handler takes the parent's files away from the child*
//!    ([`descriptors`]). An open file description and the lock on it live as long as any copy of a
//!    descriptor, so a child that only sleeps would keep a pool locked after its parent has closed
//!    it.
//! 3. *State that all stores of a process share begins anew in the child*
//!    ([`crate::sync::begin_anew`]): the epochs in which threads of the parent were pinned, and the
//!    shares that they had announced. So do the threads that work in the background
//!    ([`crate::workers`]).
//!
//! Whatever belongs to a store of the parent is left as it is: a drop in the child joins no thread,
//! takes no lock, and writes to no file and to no memory that is shared with the parent.
//!
//! # What stays mapped
//!
//! A mapping keeps the open file description alive that it was made from, and with it the lock on
//! it. Therefore the lock of a pool, and the lock of a reader, are on descriptions of their own
//! ([`FileLock`], [`crate::presence`]), from which nothing is mapped, and the child keeps its copy of
//! the mappings. They are not withheld from the
//! child (`MADV_DONTFORK`): the child could then get other memory at the same addresses, and a
//! reference that was alive at the fork would lead into it.
//!
//! # Limits
//!
//! The system calls `clone` and `vfork` and the function `_Fork` run no handlers, so points 2 and 3
//! do not happen there. A `vfork`, which `std::process::Command` uses, is followed by an `exec`,
//! which closes all files of a pool.

mod descriptors;

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

pub use descriptors::FileLock;
pub(crate) use descriptors::{CoveredDescriptor, OwnFiles};

use crate::{sync, workers};

/// The process in which something was made.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    word: &'static AtomicU64,
    /// The content of the word in that process.
    number: u64,
}

/// A value of another process is used: the process was forked after the value was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forked;

/// The word that tells processes apart. It is 0 at first, and in the child of a fork; and then the
/// number of the process.
static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

/// The word, if the system gives no page that is wiped.
static UNWIPED_WORD: AtomicU64 = AtomicU64::new(0);

/// The number that was given last. A child goes on counting where its parent was, so it never has
/// the number of one of its ancestors. (It could have the process ID of one that has ended.)
static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// The process that calls this.
    pub fn current() -> Self {
        handle_forks();
        let word = word();
        Self {
            word,
            number: number_in(word),
        }
    }

    /// Whether this process is still the same, and not a child that was forked since.
    #[inline(always)]
    pub fn is_current(self) -> bool {
        self.word.load(Ordering::Relaxed) == self.number
    }

    /// Refuses a value of another process.
    ///
    /// # Errors
    /// [`Forked`].
    #[inline(always)]
    pub fn expect_current(self) -> Result<(), Forked> {
        if self.is_current() {
            Ok(())
        } else {
            Err(Forked)
        }
    }
}

/// The word, made when it is first asked for.
fn word() -> &'static AtomicU64 {
    let mut found = WORD.load(Ordering::Acquire);
    if found.is_null() {
        let made = wiped_page().unwrap_or(std::ptr::from_ref(&UNWIPED_WORD).cast_mut());
        let set = WORD.compare_exchange(
            std::ptr::null_mut(),
            made,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        found = match set {
            Ok(_) => made,
            // Another thread was faster. Its word counts, and the page of this one is not used.
            Err(other) => other,
        };
    }
    // SAFETY: a page that is never unmapped, aligned and zero at first; or a static.
    unsafe { &*found }
}

/// A page of zeros that the system wipes in each child; `None` if it has none.
fn wiped_page() -> Option<*mut AtomicU64> {
    let bytes = rustix::param::page_size();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh range at an address of the system's choice.
    let page =
        unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the page was just mapped, and no thread has a reference to it.
    let wiped = unsafe { madvise(page, bytes, Advice::LinuxWipeOnFork) };
    if wiped.is_err() {
        // SAFETY: as above.
        let _ = unsafe { munmap(page, bytes) };
        return None;
    }
    Some(page.cast())
}

/// The number of this process, which gets one when it first asks.
fn number_in(word: &AtomicU64) -> u64 {
    let found = word.load(Ordering::Relaxed);
    if found != 0 {
        return found;
    }
    let next = NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    match word.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => next,
        Err(other) => other,
    }
}

/// Has [`in_child`] called in each child of a fork. Two threads that ask for it at the same time may
/// have it called twice, which changes nothing.
fn handle_forks() {
    static ARE_HANDLED: AtomicBool = AtomicBool::new(false);
    if ARE_HANDLED.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: the handler makes only calls that are allowed in a child of a process with threads.
    let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    // If the system has no memory for it, the next open tries again.
    ARE_HANDLED.store(refused == 0, Ordering::Release);
}

/// The handler. It runs in the only thread of the child, before `fork` returns there. Any thread of
/// the parent may have been in the middle of anything, so the handler takes no lock, and neither
/// allocates memory nor frees any.
extern "C" fn in_child() {
    // SAFETY: the address of a variable of this thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let word = WORD.load(Ordering::Acquire);
    if !word.is_null() {
        // SAFETY: see `word`. If the system has wiped the page, the word is 0 already.
        unsafe { &*word }.store(0, Ordering::Relaxed);
    }
    descriptors::cover_all();
    sync::begin_anew();
    workers::begin_anew();
    // SAFETY: as above.
    unsafe { *errno = before };
}

#[cfg(all(test, not(loom)))]
mod tests;
