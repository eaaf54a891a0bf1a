//! Shares of a [`SharedLock`] that cost no locked instruction.
//!
//! A locked instruction right behind a store fence waits for that fence, which costs a short write
//! a tenth of its time. So a thread *announces* its share by a plain store to a word of its own,
//! and a thread that wants the lock alone reads the words of all threads:
//!
//! | thread that shares | thread that wants the lock alone |
//! | --- | --- |
//! | 1. stores the lock's address to its word | 1. takes the lock, and says so in [`SharedLock::is_alone`] |
//! | 2. *light barrier* | 2. *heavy barrier* |
//! | 3. checks whether a thread has the lock alone; if so, clears its word and waits | 3. waits until no word has the lock's address |
//!
//! Each stores first and loads then, so at least one sees the other. The light barrier only keeps
//! the compiler from moving the load up; the heavy one (`membarrier`, a few microseconds) makes the
//! processors of all threads of the process execute a full barrier. Where the system has no
//! `membarrier`, nothing is announced.

use std::cell::Cell;
use std::sync::atomic::AtomicU8;

use crossbeam_utils::CachePadded;

use super::{AtomicU64, Ordering, SharedGuard, SharedLock, pause};
use crate::made_once::MadeOnce;

/// The word of one thread: the address of the lock that it shares, or 0. A thread announces one
/// share at a time.
pub(super) type AnnouncedWord = CachePadded<AtomicU64>;

/// A share of a [`SharedLock`], until it is dropped.
pub struct Share<'l>(ShareKind<'l>);

enum ShareKind<'l> {
    Announced(&'l AnnouncedWord),
    Locked { _until_dropped: SharedGuard<'l, ()> },
}

impl<'l> From<SharedGuard<'l, ()>> for Share<'l> {
    fn from(guard: SharedGuard<'l, ()>) -> Self {
        Self(ShareKind::Locked {
            _until_dropped: guard,
        })
    }
}

impl Share<'_> {
    /// Whether it was announced, so that a thread that wants the lock alone has to wait for it by
    /// [`wait_for_announced`].
    pub fn is_announced(&self) -> bool {
        matches!(self.0, ShareKind::Announced(_))
    }
}

impl Drop for Share<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let ShareKind::Announced(word) = self.0 {
            // ORDER: the thread that has the lock alone next sees what this thread did under its
            // share; its load is in `wait_for`.
            word.store(0, Ordering::Release);
        }
    }
}

impl SharedLock {
    /// A share of the lock, if no thread has it alone and the calling thread can announce one.
    #[inline(always)]
    pub fn announce(&self) -> Option<Share<'_>> {
        announce(own_word()?, self)
    }

    fn address(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }
}

#[inline(always)]
pub(super) fn announce<'l>(word: &'l AnnouncedWord, lock: &'l SharedLock) -> Option<Share<'l>> {
    if word.load(Ordering::Relaxed) != 0 {
        return None;
    }
    word.store(lock.address(), Ordering::Relaxed);
    light_barrier();
    let share = Share(ShareKind::Announced(word));
    // A share that is dropped clears the word.
    (!lock.is_alone()).then_some(share)
}

/// Waits until no thread has an announced share of these locks. The caller has all of them alone,
/// and may not touch what they guard before this returns. O(threads * log locks).
pub fn wait_for_announced<'l>(locks: impl Iterator<Item = &'l SharedLock>) {
    let mut addresses: Vec<_> = locks.map(SharedLock::address).collect();
    addresses.sort_unstable();
    let words = words().lock().all.clone();
    wait_for(words.into_iter(), &addresses);
}

pub(super) fn wait_for<'w>(
    words: impl Iterator<Item = &'w AnnouncedWord>,
    sorted_addresses: &[u64],
) {
    heavy_barrier();
    for word in words {
        let mut spins = 0;
        // ORDER: what the thread did with its share is seen; the store is in the drop of its
        // `Share`.
        while sorted_addresses
            .binary_search(&word.load(Ordering::Acquire))
            .is_ok()
        {
            pause(&mut spins);
        }
    }
}

/// The words of all threads. A thread that ends leaves its word to the next one that begins.
#[derive(Default)]
struct AnnouncedWords {
    all: Vec<&'static AnnouncedWord>,
    free: Vec<&'static AnnouncedWord>,
}

/// The words of this process, made when they are first asked for. The child of a fork forgets those
/// of its parent: a thread that it does not have may hold their mutex, and the words of such threads
/// are never cleared.
static WORDS: MadeOnce<parking_lot::Mutex<AnnouncedWords>> = MadeOnce::new();

fn words() -> &'static parking_lot::Mutex<AnnouncedWords> {
    WORDS.get_or_make(parking_lot::Mutex::default)
}

/// Forgets the words of the parent's threads, in the child of a fork.
pub(super) fn begin_anew() {
    WORDS.forget();
    OWN_WORD.set(None);
}

/// Calls `work` while the list of words is locked, as it may be when a process forks.
#[cfg(test)]
pub(crate) fn while_words_are_locked(work: impl FnOnce()) {
    let _locked = words().lock();
    work();
}

thread_local! {
    /// The word of this thread, from its first share on. It has no destructor, so that the handler
    /// of a fork may set it.
    static OWN_WORD: Cell<Option<&'static AnnouncedWord>> = const { Cell::new(None) };
    static GIVE_BACK: GiveBack = const { GiveBack };
}

/// Gives the word of a thread back when the thread ends.
struct GiveBack;

impl Drop for GiveBack {
    fn drop(&mut self) {
        if let Some(word) = OWN_WORD.take() {
            words().lock().free.push(word);
        }
    }
}

#[inline(always)]
fn own_word() -> Option<&'static AnnouncedWord> {
    OWN_WORD.get().or_else(first_word)
}

/// Gives the calling thread a word. A thread that wants a lock alone takes it first, and then reads
/// the list of words, under the mutex. So if this word is not in the list yet, the calling thread
/// gets the mutex later, and sees that the lock is taken.
#[cold]
fn first_word() -> Option<&'static AnnouncedWord> {
    // A thread that is ending has given its word back. It takes the lock without one.
    let is_ending = GIVE_BACK.try_with(|_| ()).is_err();
    if is_ending || !has_membarrier() {
        return None;
    }
    let mut words = words().lock();
    let word = words
        .free
        .pop()
        .unwrap_or_else(|| Box::leak(Box::default()));
    if !words.all.iter().any(|other| std::ptr::eq(*other, word)) {
        words.all.push(word);
    }
    OWN_WORD.set(Some(word));
    Some(word)
}

/// Whether the system has the heavy barrier, for which a process registers once. Two threads may
/// register at the same time: neither waits for the other, which the child of a fork may not have.
/// Loom has no barrier: its atomics live as long as one run of a model, and the words of threads
/// live longer.
fn has_membarrier() -> bool {
    use rustix::thread::{MembarrierCommand, membarrier};
    const UNKNOWN: u8 = 0;
    const REFUSED: u8 = 1;
    const REGISTERED: u8 = 2;
    static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
    let mut state = STATE.load(Ordering::Relaxed);
    if state == UNKNOWN {
        let is_registered =
            !cfg!(loom) && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        state = if is_registered { REGISTERED } else { REFUSED };
        STATE.store(state, Ordering::Relaxed);
    }
    state == REGISTERED
}

/// Keeps the compiler from moving a load up before a store. The heavy barrier does the rest.
#[cfg(not(loom))]
#[inline(always)]
fn light_barrier() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// A full barrier on the processor of every thread of the process.
#[cfg(not(loom))]
fn heavy_barrier() {
    use rustix::thread::{MembarrierCommand, membarrier};
    if has_membarrier() {
        // If memory is short, the system may refuse the fast barrier, but not the slow one.
        let barrier = membarrier(MembarrierCommand::PrivateExpedited);
        barrier
            .or_else(|_| membarrier(MembarrierCommand::Global))
            .expect("the process is registered");
    }
}

/// Loom knows no barrier of other threads: each thread executes its own.
#[cfg(loom)]
fn light_barrier() {
    super::fence(Ordering::SeqCst);
}

#[cfg(loom)]
fn heavy_barrier() {
    super::fence(Ordering::SeqCst);
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
