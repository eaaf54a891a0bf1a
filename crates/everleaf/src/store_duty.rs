//! Work that an open store does by itself, in the background, and the users of the store.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engines::{Error, Result};
use medium::{Duty, GivenDuty, NextTurn};

/// Whether the work is to end: also asked in the middle of a turn.
#[derive(Clone, Default)]
pub(crate) struct DutyEnd(Arc<AtomicBool>);

impl DutyEnd {
    pub(crate) fn is_asked_for(&self) -> bool {
        // ORDER: pairs with the store in `StoreDuty::end`.
        self.0.load(Ordering::Acquire)
    }
}

/// The work of one turn.
pub(crate) type DutyTurn = Box<dyn FnMut(&DutyEnd) + Send>;

/// Takes a turn after each pause.
struct RepeatedTurn {
    pause: Duration,
    end: DutyEnd,
    /// `None` during a turn, and once the work has ended, so that it holds nothing of the store any
    /// more.
    turn: Mutex<Option<DutyTurn>>,
}

impl RepeatedTurn {
    fn put(&self, work: Option<DutyTurn>) -> Option<DutyTurn> {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *turn, work)
    }
}

impl Duty for RepeatedTurn {
    fn turn(&self) -> NextTurn {
        // The lock is not held during the turn: the store may be closed within it.
        let Some(mut work) = self.put(None) else {
            return NextTurn::Never;
        };
        if !self.end.is_asked_for() {
            work(&self.end);
        }
        if self.end.is_asked_for() {
            return NextTurn::Never;
        }
        drop(self.put(Some(work)));
        NextTurn::after(self.pause)
    }
}

/// The work that a store does by itself, and the number of users that have a handle of the store.
///
/// Between its turns the work holds no handle. In a turn it may have handles; the last user ends the
/// work before the user's own handle goes
/// ([`SharedStore`](crate::open_store::SharedStore)).
pub(crate) struct StoreDuty {
    given: GivenDuty,
    repeated: Arc<RepeatedTurn>,
    users: AtomicUsize,
    writes: AtomicU64,
}

impl StoreDuty {
    /// Gives the work to the threads of the process. The store has one user.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the system starts no thread.
    pub(crate) fn begin(pause: Duration, turn: DutyTurn) -> Result<Self> {
        let repeated = Arc::new(RepeatedTurn {
            pause,
            end: DutyEnd::default(),
            turn: Mutex::new(Some(turn)),
        });
        let duty: Arc<dyn Duty> = Arc::clone(&repeated) as _;
        let given = GivenDuty::new(duty, NextTurn::after(pause))
            .map_err(Error::io("start a thread that works in the background"))?;
        Ok(Self {
            given,
            repeated,
            users: AtomicUsize::new(1),
            writes: AtomicU64::new(0),
        })
    }

    /// Counts a write to the store that begins.
    pub(crate) fn note_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// How many writes have begun.
    pub(crate) fn writes_begun(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
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

    /// Ends the work, and waits for its turn to end. Within a turn of any duty it does not wait: a
    /// waker that is called there may drop the last handle of a user, and the turn of this work may
    /// wait for that duty. The store is then closed at the end of this work's turn.
    pub(crate) fn end(&self) {
        self.repeated.end.0.store(true, Ordering::Release);
        if medium::is_in_turn() {
            self.given.ask();
            return;
        }
        self.given.end();
        drop(self.repeated.put(None));
    }
}

impl Drop for StoreDuty {
    fn drop(&mut self) {
        self.end();
    }
}
