//! A mutex without poisoning that a scheduler can wait for.

use super::schedule;

#[cfg(loom)]
pub use loom::sync::MutexGuard;
#[cfg(not(loom))]
pub use parking_lot::MutexGuard;

/// A mutex. Under a scheduler, a thread that finds it locked lets the others run: a thread that was
/// stopped may hold it.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    #[cfg(not(loom))]
    inner: parking_lot::Mutex<T>,
    #[cfg(loom)]
    inner: loom::sync::Mutex<T>,
}

/// Unlocks, and gives the lock to the thread that has waited longest.
#[cfg(not(loom))]
pub fn hand_over<T>(guard: MutexGuard<'_, T>) {
    MutexGuard::unlock_fair(guard);
}

/// Unlocks. Loom tries every order of the waiting threads.
#[cfg(loom)]
pub fn hand_over<T>(guard: MutexGuard<'_, T>) {
    drop(guard);
}

#[cfg(not(loom))]
impl<T> Mutex<T> {
    /// A mutex that is free.
    pub const fn new(value: T) -> Self {
        Self {
            inner: parking_lot::Mutex::new(value),
        }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.inner.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        while schedule::is_running() {
            schedule::contend();
            if let Some(guard) = self.inner.try_lock() {
                return guard;
            }
        }
        self.inner.lock()
    }

    /// The lock, if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock()
    }
}

#[cfg(loom)]
impl<T> Mutex<T> {
    /// A mutex that is free.
    pub fn new(value: T) -> Self {
        Self {
            inner: loom::sync::Mutex::new(value),
        }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.inner.lock().expect("no thread panicked")
    }

    /// The lock, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock().ok()
    }
}
