//! Operations that return before they are durable.
//!
//! An engine ends each operation by waiting for its commit. A caller that wants to wait once for many
//! operations runs them through [`deferred`]: this thread's waits then only note their LSNs. Fences still
//! order. Code that needs more than order after a wait must check that the LSN is durable.

use std::cell::Cell;

use crate::Lsn;

thread_local! {
    /// What this thread has to wait for, while it defers; `None` while it does not.
    static DEFERRED: Cell<Option<Lsn>> = const { Cell::new(None) };
}

/// Restores the state from before the call, also if the call panics.
struct Restore(Option<Lsn>);

impl Drop for Restore {
    fn drop(&mut self) {
        DEFERRED.set(self.0);
    }
}

/// Runs `call`, in which no wait of this thread waits. Returns what to wait for instead: the greatest LSN that would have
/// been waited for, [`Lsn::DURABLE`] if none was.
#[inline]
pub fn deferred<R>(call: impl FnOnce() -> R) -> (R, Lsn) {
    let restore = Restore(DEFERRED.replace(Some(Lsn::DURABLE)));
    let result = call();
    let lsn = DEFERRED.get().unwrap_or_default();
    drop(restore);
    (result, lsn)
}

/// Whether waits are deferred; then `lsn` is noted.
#[inline(always)]
pub(crate) fn defer(lsn: Lsn) -> bool {
    match DEFERRED.get() {
        Some(before) => {
            DEFERRED.set(Some(before.max(lsn)));
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests;
