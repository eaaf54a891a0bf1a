//! A value that background threads sleep for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A value behind a mutex, whose changes threads sleep for. Without poisoning.
///
/// It is the standard library's. The condition variables of `parking_lot` keep the threads of the
/// whole process in one table. A background thread almost always sleeps, so a fork could well find a
/// part of that table locked by a thread that the child does not have, and the background threads of
/// the child's own stores would never sleep and wake again.
#[derive(Debug, Default)]
pub struct Awaited<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Awaited<T> {
    /// A value.
    pub const fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Condvar::new(),
        }
    }

    /// Locks the value, to read it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the value, and wakes all threads that sleep for it.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Sleeps until the value changes, or for a shorter time.
    pub fn wait<'w>(&self, value: MutexGuard<'w, T>) -> MutexGuard<'w, T> {
        self.changed
            .wait(value)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the same as [`Awaited::wait`], but no longer than until `deadline`.
    pub fn wait_until<'w>(&self, value: MutexGuard<'w, T>, deadline: Instant) -> MutexGuard<'w, T> {
        let rest = deadline.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout(value, rest);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
