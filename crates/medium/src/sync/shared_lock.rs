//! A shared-exclusive lock without poisoning, for which a scheduler can wait.

use super::{AtomicBool, Ordering, schedule};

#[cfg(loom)]
use loom::sync::RwLockWriteGuard as Alone;
#[cfg(not(loom))]
use parking_lot::RwLockWriteGuard as Alone;

#[cfg(loom)]
pub use loom::sync::RwLockReadGuard as SharedGuard;
#[cfg(not(loom))]
pub use parking_lot::RwLockReadGuard as SharedGuard;

/// How long [`SharedLock::try_lock`] waits, and holds up those that want to share the lock.
#[cfg(not(loom))]
const WAIT: std::time::Duration = std::time::Duration::from_millis(1);

/// A lock that guards no value. A thread that waits for it alone holds up those that want to share
/// it. Under a scheduler, a thread that finds it locked lets the others run: a thread that was
/// stopped may hold it.
#[derive(Debug, Default)]
pub struct SharedLock {
    #[cfg(not(loom))]
    inner: parking_lot::RwLock<()>,
    #[cfg(loom)]
    inner: loom::sync::RwLock<()>,
    /// Whether a thread has the lock alone, for those that announce a share.
    is_alone: AtomicBool,
}

/// A [`SharedLock`] alone, until this is dropped. Announced shares have to be waited for
/// ([`wait_for_announced`](super::wait_for_announced)).
pub struct ExclusiveGuard<'l> {
    is_alone: &'l AtomicBool,
    _guard: Alone<'l, ()>,
}

impl Drop for ExclusiveGuard<'_> {
    fn drop(&mut self) {
        // ORDER: a thread that announces a share sees what this one did; its load is in
        // `SharedLock::is_alone`.
        self.is_alone.store(false, Ordering::Release);
    }
}

impl SharedLock {
    fn alone<'l>(&'l self, guard: Alone<'l, ()>) -> ExclusiveGuard<'l> {
        self.is_alone.store(true, Ordering::Relaxed);
        ExclusiveGuard {
            is_alone: &self.is_alone,
            _guard: guard,
        }
    }

    #[inline(always)]
    pub(super) fn is_alone(&self) -> bool {
        self.is_alone.load(Ordering::Acquire)
    }
}

#[cfg(not(loom))]
impl SharedLock {
    /// Waits for a share of the lock. A thread that has one must not ask for another.
    #[inline]
    pub fn share(&self) -> SharedGuard<'_, ()> {
        match self.inner.try_read() {
            Some(guard) => guard,
            None => wait(|| self.inner.try_read(), || self.inner.read()),
        }
    }

    /// A share of the lock, if no thread has it alone or waits for that.
    #[inline]
    pub fn try_share(&self) -> Option<SharedGuard<'_, ()>> {
        self.inner.try_read()
    }

    /// The lock alone, unless others have it for longer than a millisecond.
    pub fn try_lock(&self) -> Option<ExclusiveGuard<'_>> {
        if !schedule::is_running() {
            let guard = self.inner.try_write_for(WAIT)?;
            return Some(self.alone(guard));
        }
        if let Some(guard) = self.inner.try_write() {
            return Some(self.alone(guard));
        }
        schedule::contend();
        let guard = self.inner.try_write()?;
        Some(self.alone(guard))
    }

    /// Waits for the lock alone.
    #[inline]
    pub fn lock(&self) -> ExclusiveGuard<'_> {
        let guard = self.inner.try_write();
        self.alone(guard.unwrap_or_else(|| wait(|| self.inner.try_write(), || self.inner.write())))
    }
}

#[cfg(not(loom))]
#[cold]
fn wait<G>(attempt: impl Fn() -> Option<G>, park: impl FnOnce() -> G) -> G {
    while schedule::is_running() {
        schedule::contend();
        if let Some(guard) = attempt() {
            return guard;
        }
    }
    park()
}

#[cfg(loom)]
impl SharedLock {
    /// Waits for a share of the lock.
    pub fn share(&self) -> SharedGuard<'_, ()> {
        self.inner.read().expect("no thread panicked")
    }

    /// A share of the lock, if it is free.
    pub fn try_share(&self) -> Option<SharedGuard<'_, ()>> {
        self.inner.try_read().ok()
    }

    /// The lock alone, if it is free.
    pub fn try_lock(&self) -> Option<ExclusiveGuard<'_>> {
        self.inner.try_write().ok().map(|guard| self.alone(guard))
    }

    /// Waits for the lock alone.
    pub fn lock(&self) -> ExclusiveGuard<'_> {
        self.alone(self.inner.write().expect("no thread panicked"))
    }
}
