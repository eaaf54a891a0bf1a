//! A store that compacts itself while nobody writes to it.

use std::time::Duration;

use engines::Result;

use crate::open_store::SharedStore;
use crate::store_duty::DutyEnd;
use crate::{CompactOptions, Store};

/// The most records a second that are moved.
const MOVES_PER_SECOND: u64 = 100_000;

/// A store is compacted up to this number of times without a write between them. A second time,
/// because threads may have written during the first.
const TIMES_MAX: u32 = 2;

/// Figures that change while threads write to a store.
#[derive(Clone, Copy, PartialEq, Eq)]
struct WriteFigures {
    slab_changes: u64,
    /// First changes of nodes within epochs, of trees that are durable by epochs and are open.
    logged_in_epochs: u64,
}

/// What is known from earlier turns.
#[derive(Default)]
struct IdleState {
    /// The figures at the end of the last turn.
    seen: Option<WriteFigures>,
    /// How often the store is to be compacted before somebody writes to it again.
    times_left: u32,
}

/// Compacts the store whenever nobody has written to it for `pause`, if somebody has before. This is
/// the store's only handle.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) if the system starts no thread.
pub(crate) fn compact_when_idle(store: &Store, pause: Duration) -> Result<()> {
    let weak = store.inner.downgrade();
    let mut state = IdleState::default();
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
        let before = WriteFigures::of(store)?;
        let Some(seen) = self.seen.replace(before) else {
            return Ok(());
        };
        if seen != before {
            self.times_left = TIMES_MAX;
            return Ok(());
        }
        if self.times_left == 0 {
            return Ok(());
        }
        // After an obstacle or an error, too, it waits for the next write in the end.
        self.times_left -= 1;
        let options = CompactOptions::new().moves_per_second(MOVES_PER_SECOND);
        let end = end.clone();
        let goes_on = move |_| !end.is_asked_for();
        let compacted = medium::progress::watched(goes_on, || store.compact_with(options));
        self.seen = Some(WriteFigures::of(store)?);
        compacted.map(drop)
    }
}

impl WriteFigures {
    fn of(store: &Store) -> Result<Self> {
        let slab_changes = store.inner.backend()?.slab_changes();
        let mut logged_in_epochs = 0;
        for tree in store.inner.trees()?.values() {
            if let Some(epochs) = tree.index().epochs() {
                let stat = epochs.epoch_stat();
                logged_in_epochs += stat.in_line_logs + stat.nodes_logged;
            }
        }
        Ok(Self {
            slab_changes,
            logged_in_epochs,
        })
    }
}
