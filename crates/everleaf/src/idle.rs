//! A store that compacts itself while nobody writes to it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use engines::{Error, Result};
use medium::{Duty, GivenDuty, NextTurn};
use parking_lot::Mutex;

use crate::open_store::{OpenStore, SharedStore};
use crate::{CompactOptions, Store};

/// The most records a second that are moved.
const MOVES_PER_SECOND: u64 = 100_000;

/// Figures that change while threads write to a store.
#[derive(Clone, Copy, PartialEq, Eq)]
struct WriteFigures {
    slab_changes: u64,
    allocations: u64,
    /// First changes of nodes within epochs, of trees that are durable by epochs and are open.
    logged_in_epochs: u64,
}

/// What the duty knows from its last turn.
#[derive(Default)]
struct LastTurn {
    /// What it saw at its end.
    seen: Option<WriteFigures>,
    /// Whether the store has not been written to since it was compacted.
    is_compacted: bool,
}

struct IdleDuty {
    /// Leads nowhere once the duty has ended: the store is changed alone then.
    store: Mutex<Weak<OpenStore>>,
    pause: Duration,
    is_ended: Arc<AtomicBool>,
    last: Mutex<LastTurn>,
}

/// The duty of a store to compact itself, and the number of users that have a handle of the store.
///
/// Between its turns the duty holds nothing of the store. In a turn it holds the store; the last
/// user ends the duty before its own handle goes ([`SharedStore`]).
pub(crate) struct IdleCompaction {
    given: GivenDuty,
    duty: Arc<IdleDuty>,
    users: AtomicUsize,
}

impl IdleCompaction {
    /// Gives the duty of this store to the threads of the process. The store has one user.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the system starts no thread.
    pub(crate) fn begin(store: &Arc<OpenStore>, pause: Duration) -> Result<Self> {
        let duty = Arc::new(IdleDuty {
            store: Mutex::new(Arc::downgrade(store)),
            pause,
            is_ended: Arc::default(),
            last: Mutex::default(),
        });
        let shared: Arc<dyn Duty> = Arc::clone(&duty) as _;
        let given = GivenDuty::new(shared, NextTurn::after(pause))
            .map_err(Error::io("start a thread that compacts the store"))?;
        Ok(Self {
            given,
            duty,
            users: AtomicUsize::new(1),
        })
    }

    pub(crate) fn add_user(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether this was the last one.
    pub(crate) fn remove_user(&self) -> bool {
        // ORDER: what other users did with the store comes before its end.
        self.users.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub(crate) fn has_one_user(&self) -> bool {
        self.users.load(Ordering::Acquire) == 1
    }

    /// Ends the duty, and waits for its turn to end.
    pub(crate) fn end(&self) {
        self.duty.is_ended.store(true, Ordering::Release);
        self.given.end();
        *self.duty.store.lock() = Weak::new();
    }
}

impl Drop for IdleCompaction {
    fn drop(&mut self) {
        self.end();
    }
}

impl IdleDuty {
    fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Compacts the store if nobody has written to it since the last turn, but somebody before.
    fn attempt(&self, store: &Store) -> Result<()> {
        let mut last = self.last.lock();
        let before = WriteFigures::of(store)?;
        if last.seen != Some(before) {
            last.seen = Some(before);
            last.is_compacted = false;
            return Ok(());
        }
        if last.is_compacted {
            return Ok(());
        }
        let options = CompactOptions::new().moves_per_second(MOVES_PER_SECOND);
        let is_ended = Arc::clone(&self.is_ended);
        let goes_on = move |_| !is_ended.load(Ordering::Acquire);
        let compacted = medium::progress::watched(goes_on, || store.compact_with(options));
        // After an obstacle or an error it waits for the next write, too.
        last.is_compacted = true;
        last.seen = Some(WriteFigures::of(store)?);
        compacted.map(drop)
    }
}

impl Duty for IdleDuty {
    fn turn(&self) -> NextTurn {
        if self.is_ended() {
            return NextTurn::WhenAsked;
        }
        let Some(store) = self.store.lock().upgrade() else {
            return NextTurn::WhenAsked;
        };
        let store = Store {
            inner: SharedStore::for_duty(store),
        };
        // An error shows where a user meets it: a failed medium at the next write, damage at a
        // check, and an obstacle in the result of a compaction that a user asks for.
        let _ = self.attempt(&store);
        NextTurn::after(self.pause)
    }
}

impl WriteFigures {
    fn of(store: &Store) -> Result<Self> {
        let pool = store.inner.backend()?.stat();
        let mut logged_in_epochs = 0;
        for tree in store.inner.trees()?.values() {
            if let Some(epochs) = tree.index().epochs() {
                let stat = epochs.epoch_stat();
                logged_in_epochs += stat.in_line_logs + stat.nodes_logged;
            }
        }
        Ok(Self {
            slab_changes: pool.slab_changes,
            allocations: pool.allocations,
            logged_in_epochs,
        })
    }
}
