//! A store that compacts itself while nobody writes to it.

use std::time::Duration;

use engines::Result;

use crate::open_store::SharedStore;
use crate::store_duty::DutyEnd;
use crate::{CompactOptions, Store};

/// The most records a second that are moved.
const MOVES_PER_SECOND: u64 = 100_000;

/// How often a compaction that could not empty all slabs is made again. Its obstacle may be a reader
/// that is pinned, or an epoch that has not ended; the pause before each is twice as long.
const RETRIES_MAX: u32 = 6;

/// The moments that later turns need, each as the number of writes that had begun by then.
struct IdleState {
    /// In the last turn.
    seen: u64,
    /// When the store was compacted last. Nobody has written to a store that was just opened.
    compacted: u64,
    /// How often it was compacted again since the last write.
    retries: u32,
    /// The turns before the next try.
    turns_to_wait: u32,
}

/// Compacts the store whenever nobody has written to it for `pause`, if somebody has before. This is
/// the store's only handle.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) if the system starts no thread.
pub(crate) fn compact_when_idle(store: &Store, pause: Duration) -> Result<()> {
    let weak = store.inner.downgrade();
    let mut state = IdleState {
        seen: 0,
        compacted: 0,
        retries: 0,
        turns_to_wait: 0,
    };
    let turn = move |end: &DutyEnd| {
        let Some(inner) = SharedStore::for_duty(&weak) else {
            return;
        };
        // An error shows where a user meets it: a failed medium at the next write, damage at a
        // check, and an obstacle in the result of a compaction that a user asks for.
        let _ = state.attempt(&Store { inner }, end);
    };
    store.inner.begin_duty(pause, Box::new(turn))
}

impl IdleState {
    fn attempt(&mut self, store: &Store, end: &DutyEnd) -> Result<()> {
        let writes = store.inner.writes_begun();
        if self.seen != writes {
            self.seen = writes;
            self.retries = 0;
            self.turns_to_wait = 0;
            return Ok(());
        }
        if self.compacted == writes {
            return Ok(());
        }
        if self.turns_to_wait > 0 {
            self.turns_to_wait -= 1;
            return Ok(());
        }
        let options = CompactOptions::new().moves_per_second(MOVES_PER_SECOND);
        let end = end.clone();
        let goes_on = move |_| !end.is_asked_for();
        let done = medium::progress::watched(goes_on, || store.compact_with(options));
        let is_whole = done
            .as_ref()
            .is_ok_and(|done| done.unfinished.is_none() && done.slabs_kept == 0);
        if is_whole || done.is_err() || self.retries == RETRIES_MAX {
            // Also after an error it waits for the next write.
            self.compacted = writes;
        } else {
            self.retries += 1;
            self.turns_to_wait = 1 << self.retries;
        }
        done.map(drop)
    }
}
