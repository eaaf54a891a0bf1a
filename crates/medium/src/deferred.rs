//! Operations that return before they are durable.
//!
//! An engine ends each operation by waiting for its commit. A caller that wants to wait once for
//! many operations runs them through [`deferred`]: this thread's waits then only note their LSNs.
//! Fences still order. Code that needs more than order after a wait must check that the LSN is
//! durable.

use std::cell::Cell;

use crate::Lsn;
use crate::sync::schedule;

/// Threads of a scheduler, which all run on one thread of the system.
const SCHEDULED_MAX: usize = 8;

thread_local! {
    /// What this thread has to wait for, while it defers; `None` while it does not. The first one;
    /// each thread of a scheduler has one of the others.
    static DEFERRED: [Cell<Option<Lsn>>; 1 + SCHEDULED_MAX] = const { [const { Cell::new(None) }; 1 + SCHEDULED_MAX] };
}

/// Which one of [`DEFERRED`] is the calling thread's.
#[inline(always)]
fn own() -> usize {
    schedule::thread().map_or(0, |thread| 1 + usize::from(thread) % SCHEDULED_MAX)
}

/// Restores the state from before the call, also if the call panics.
struct Restore {
    own: usize,
    before: Option<Lsn>,
}

impl Drop for Restore {
    fn drop(&mut self) {
        DEFERRED.with(|deferred| deferred[self.own].set(self.before));
    }
}

/// Runs `call`, in which no wait of this thread waits. Returns what to wait for instead: the
/// greatest LSN that would have been waited for, [`Lsn::DURABLE`] if none was.
#[inline]
pub fn deferred<R>(call: impl FnOnce() -> R) -> (R, Lsn) {
    let own = own();
    let before = DEFERRED.with(|deferred| deferred[own].replace(Some(Lsn::DURABLE)));
    let restore = Restore { own, before };
    let result = call();
    let lsn = DEFERRED
        .with(|deferred| deferred[own].get())
        .unwrap_or_default();
    drop(restore);
    (result, lsn)
}

/// Whether waits are deferred; then `lsn` is noted.
#[inline(always)]
pub(crate) fn defer(lsn: Lsn) -> bool {
    DEFERRED.with(|deferred| {
        let own = &deferred[own()];
        let before = own.get();
        if let Some(before) = before {
            own.set(Some(before.max(lsn)));
        }
        before.is_some()
    })
}

#[cfg(test)]
mod tests;
