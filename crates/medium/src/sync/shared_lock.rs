//! A lock that several threads share or one has alone, without poisoning, that a scheduler can wait for.

use super::schedule;

#[cfg(loom)]
pub use loom::sync::{RwLockReadGuard as SharedGuard, RwLockWriteGuard as ExclusiveGuard};
#[cfg(not(loom))]
pub use parking_lot::{RwLockReadGuard as SharedGuard, RwLockWriteGuard as ExclusiveGuard};

/// How long [`SharedLock::try_lock`] waits, and holds up those that want to share the lock.
#[cfg(not(loom))]
const WAIT: std::time::Duration = std::time::Duration::from_millis(1);

/// A lock that guards no value. A thread that waits for it alone holds up those that want to share it. Under a scheduler, a thread
/// that finds it locked lets the others run: a thread that was stopped may hold it.
#[derive(Debug, Default)]
pub struct SharedLock {
    #[cfg(not(loom))]
    inner: parking_lot::RwLock<()>,
    #[cfg(loom)]
    inner: loom::sync::RwLock<()>,
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
    pub fn try_lock(&self) -> Option<ExclusiveGuard<'_, ()>> {
        if schedule::is_running() {
            return self.inner.try_write().or_else(|| {
                schedule::contend();
                self.inner.try_write()
            });
        }
        self.inner.try_write_for(WAIT)
    }

    /// Waits for the lock alone.
    #[inline]
    pub fn lock(&self) -> ExclusiveGuard<'_, ()> {
        match self.inner.try_write() {
            Some(guard) => guard,
            None => wait(|| self.inner.try_write(), || self.inner.write()),
        }
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
    pub fn try_lock(&self) -> Option<ExclusiveGuard<'_, ()>> {
        self.inner.try_write().ok()
    }

    /// Waits for the lock alone.
    pub fn lock(&self) -> ExclusiveGuard<'_, ()> {
        self.inner.write().expect("no thread panicked")
    }
}
