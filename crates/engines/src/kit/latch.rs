//! A reader-writer lock that readers do not write to, and the LSNs of leaves.
//!
//! Writers hold a mutex. A writer raises the version before its first change and again after the
//! last one, so it is odd while anything changes. A reader's result is valid only if the version
//! was even and has not changed: it waits for writers that are at work, as with any reader-writer
//! lock, but readers share no line that they write. A reader that fails too often takes the mutex.
//!
//! The version stays odd until a change is ordered (its last fence). On media where it becomes
//! durable later, the LSN of each leaf's last change is noted, in stripes, and a reader waits for
//! it without the lock.

use crate::Result;
use medium::arena::Arena;
use medium::sync::{Atomic, Mutex, MutexGuard, Ordering, fence, pause};
use medium::{Lsn, Medium, volatile};
use pool::Guard;

/// How often a reader tries before it takes the mutex.
const ATTEMPTS: usize = 256;
/// Stripes of leaves.
const STRIPES: usize = 256;

volatile! {
    /// The words that readers read.
    struct Words<M> {
        version: Atomic<M>,
        lsns: [Atomic<M>; STRIPES],
    }
}

/// The lock.
pub struct Latch<M: 'static> {
    /// They lie in an arena, where words have the same numbers in each run under a scheduler.
    words: Arena<Words<M>>,
    writers: Mutex<()>,
}

/// The lock, held by a writer.
pub struct Writing<'l, M: Medium> {
    latch: &'l Latch<M>,
    _held: MutexGuard<'l, ()>,
}

impl<M: Medium> Latch<M> {
    /// A lock that no thread holds.
    pub fn new() -> Result<Self> {
        let words = Arena::new(1)?;
        words.allocate()?;
        Ok(Self {
            words,
            writers: Mutex::new(()),
        })
    }

    #[inline(always)]
    fn words(&self) -> &Words<M> {
        self.words.get(1)
    }

    /// Calls `look` with the version, again and again until no writer changed anything meanwhile.
    /// Only the last result counts; earlier ones, errors included, are dropped.
    #[inline(always)]
    pub fn read<T>(
        &self,
        guard: &Guard<'_, M>,
        mut look: impl FnMut(u64) -> Result<T>,
    ) -> Result<T> {
        let mut spins = 0;
        for _ in 0..ATTEMPTS {
            // ORDER: acquire pairs with the release at the end of a write: the writer's changes are
            // visible.
            let version = self.words().version.load(Ordering::Acquire);
            if version & 1 == 0 {
                let found = look(version);
                // ORDER: cells are stored with release after the version was raised: a reader that
                // has read such a store finds the version raised behind this fence.
                fence(Ordering::Acquire);
                if self.words().version.load(Ordering::Relaxed) == version {
                    return found;
                }
            }
            pause(&mut spins);
        }
        let _writing = self.write(guard);
        look(self.words().version.load(Ordering::Relaxed))
    }

    /// Whether no writer has changed anything since a read that got this version.
    pub fn is_still(&self, _guard: &Guard<'_, M>, version: u64) -> bool {
        // ORDER: the caller is pinned. A record that was freed before the pin was retired after the
        // version was raised, and the fence of the pin makes that visible here. One that is retired
        // later stays until the pin ends.
        self.words().version.load(Ordering::Acquire) == version
    }

    /// Keeps other writers out. Readers go on until [`Writing::change`].
    #[inline(always)]
    pub fn write(&self, guard: &Guard<'_, M>) -> Writing<'_, M> {
        guard.interleave(&self.writers);
        Writing {
            latch: self,
            _held: self.writers.lock(),
        }
    }

    /// Keeps writers out for a thread that changes nothing. Readers go on. A thread that takes the
    /// lock again and again gives it back with [`hand_over`](medium::sync::hand_over), so that a
    /// writer that waits comes next.
    pub fn keep_writers_out(&self, guard: &Guard<'_, M>) -> MutexGuard<'_, ()> {
        guard.interleave(&self.writers);
        self.writers.lock()
    }

    #[inline(always)]
    fn stripe(&self, offset: u64) -> &Atomic<M> {
        &self.words().lsns[(offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % STRIPES]
    }

    /// The LSN at which the last change of a leaf is durable.
    #[inline(always)]
    pub fn lsn(&self, offset: u64) -> Lsn {
        if M::LATE {
            Lsn(self.stripe(offset).load(Ordering::Acquire))
        } else {
            Lsn::DURABLE
        }
    }

    /// Bytes of volatile memory.
    pub fn volatile_bytes(&self) -> u64 {
        self.words.bytes_used()
    }

    /// The LSN at which all changes are durable.
    pub fn last_lsn(&self) -> Lsn {
        self.words()
            .lsns
            .iter()
            .map(|lsn| Lsn(lsn.load(Ordering::Acquire)))
            .max()
            .unwrap_or_default()
    }
}

impl<M: Medium> Writing<'_, M> {
    /// Begins a change: from here on readers wait.
    #[inline(always)]
    pub fn change(&self) {
        let version = self.latch.words().version.load(Ordering::Relaxed);
        if version & 1 == 0 {
            // The stores that follow are releases: none is seen before this one.
            self.latch
                .words()
                .version
                .store(version + 1, Ordering::Relaxed);
        }
    }

    /// Notes that a leaf has changed, and that this is durable at `lsn`.
    #[inline(always)]
    pub fn stamp(&self, offset: u64, lsn: Lsn) {
        if M::LATE {
            self.latch.stripe(offset).store(lsn.0, Ordering::Release);
        }
    }

    /// Lets the next writer in, then waits until everything up to `lsn` is durable.
    #[inline(always)]
    #[track_caller]
    pub fn settle(self, guard: &Guard<'_, M>, lsn: Lsn) -> Result<()> {
        drop(self);
        guard.wait_for(lsn)
    }

    /// Lets the next writer in, and leaves the wait for `lsn` to the caller of the operation.
    #[inline(always)]
    #[track_caller]
    pub fn end(self, guard: &Guard<'_, M>, lsn: Lsn) -> Lsn {
        drop(self);
        guard.left_to_caller(lsn)
    }

    /// Notes that every leaf has changed, and that this is durable at `lsn`.
    pub fn stamp_all(&self, lsn: Lsn) {
        self.latch
            .words()
            .lsns
            .iter()
            .for_each(|stripe| stripe.store(lsn.0, Ordering::Release));
    }
}

impl<M: Medium> Drop for Writing<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        let version = self.latch.words().version.load(Ordering::Relaxed);
        if version & 1 != 0 {
            // ORDER: pairs with the acquire at the start of a read.
            self.latch
                .words()
                .version
                .store(version + 1, Ordering::Release);
        }
    }
}
