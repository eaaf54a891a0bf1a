//! Threads that all stores of a process share for their work in the background.
//!
//! A store has *duties*, such as syncing its log. A duty is asleep until it is due: because it was
//! asked for, or at a moment that it named itself. One thread at a time, the *keeper*, waits for the
//! next duty that is due. It appoints another keeper, takes its turn at the duty, and then waits
//! with the others.
//!
//! At most [`RUNNING_MAX`] duties run at a time, so while their disks answer, any number of stores
//! have four threads. A duty whose disk hangs keeps its thread. So a turn that has lasted for
//! [`PATIENCE`] does not count any more, and a duty that has been due for [`DELAY_MAX`] runs in any
//! case, if need be in one more thread. A disk that hangs, or many that are slow, therefore delay no
//! other store by more than that. Threads that are not needed end after [`LINGER`].
//!
//! The threads exist only while there are duties. In the child of a fork they begin anew
//! ([`begin_anew`]).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::made_once::MadeOnce;
use crate::start_thread;

/// At most this number of duties run at a time, not counted those that take long.
const RUNNING_MAX: usize = 3;
/// A turn that lasts longer than this takes long.
const PATIENCE: Duration = Duration::from_millis(50);
/// A duty that has been due for this long runs in any case.
const DELAY_MAX: Duration = Duration::from_millis(100);
/// A thread that is not needed for this long ends.
const LINGER: Duration = Duration::from_secs(2);

/// Work that is done again and again in the background.
pub trait Duty: Send + Sync + 'static {
    /// Does what is due now, and returns when the next turn is. No two turns of a duty run at the
    /// same time.
    fn turn(&self) -> NextTurn;
}

/// When a duty is due next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextTurn {
    /// When it is asked for.
    WhenAsked,
    /// At this moment, or earlier if it is asked for.
    At(Instant),
    /// Never: the duty has ended.
    Never,
}

impl NextTurn {
    /// After this time. A moment that the clock cannot represent never comes.
    pub fn after(pause: Duration) -> Self {
        Instant::now()
            .checked_add(pause)
            .map_or(Self::WhenAsked, Self::At)
    }
}

thread_local! {
    static IS_IN_TURN: Cell<bool> = const { Cell::new(false) };
}

/// The threads of this process.
static WORKERS: MadeOnce<Workers> = MadeOnce::new();

/// Forgets, in the child of a fork, the threads of its parent. For the handler of forks: it takes no
/// lock and allocates nothing.
pub(crate) fn begin_anew() {
    WORKERS.forget();
}

/// A duty that was given to the threads. Dropping it does not end the duty.
pub struct GivenDuty {
    number: u64,
    is_asked: Arc<AtomicBool>,
    workers: &'static Workers,
}

impl std::fmt::Debug for GivenDuty {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_tuple("GivenDuty")
            .field(&self.number)
            .finish()
    }
}

impl GivenDuty {
    /// Gives a duty to the threads of this process. `first` is its first turn.
    ///
    /// # Errors
    /// If there is no thread yet, and the system gives none.
    pub fn new(duty: Arc<dyn Duty>, first: NextTurn) -> io::Result<Self> {
        WORKERS.get_or_make(Workers::default).add(duty, first)
    }

    /// Has the duty run soon. What the caller did before is seen by that turn.
    pub fn ask(&self) {
        // ORDER: pairs with the swap before a turn.
        if !self.is_asked.swap(true, Ordering::AcqRel) {
            self.workers.note_asked(self.number);
        }
    }

    /// Ends the duty, and waits for the end of a turn that is under way, unless the calling thread
    /// is in the middle of it. There is no turn after this.
    pub fn end(&self) {
        self.workers.end(self.number);
    }
}

/// The state of a duty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// It waits until it is asked for, or until this moment.
    Asleep(NextTurn),
    /// It is due, and no thread has taken it.
    Due,
    /// This thread runs it.
    Running(ThreadId),
}

struct Enlisted {
    duty: Arc<dyn Duty>,
    is_asked: Arc<AtomicBool>,
    phase: Phase,
}

#[derive(Default)]
struct Roster {
    number_last: u64,
    duties: BTreeMap<u64, Enlisted>,
    /// The duties that sleep until a moment.
    timed: BTreeSet<(Instant, u64)>,
    /// The duties that are due, and since when, the oldest first.
    due: VecDeque<(u64, Instant)>,
    /// The duties that run, and since when.
    running: BTreeMap<u64, Instant>,
    threads: usize,
    /// Those of the threads that were started and have not begun.
    starting: usize,
    has_keeper: bool,
    /// Threads that neither run a duty nor are the keeper.
    spare: usize,
}

impl Roster {
    /// Puts a duty to sleep that is neither due nor running.
    fn sleep(&mut self, number: u64, next: NextTurn) {
        if let NextTurn::At(moment) = next {
            self.timed.insert((moment, number));
        }
        if let Some(enlisted) = self.duties.get_mut(&number) {
            enlisted.phase = Phase::Asleep(next);
        }
    }

    /// Makes a sleeping duty due.
    fn wake(&mut self, number: u64) {
        let Some(enlisted) = self.duties.get_mut(&number) else {
            return;
        };
        let Phase::Asleep(next) = enlisted.phase else {
            return;
        };
        enlisted.phase = Phase::Due;
        self.due.push_back((number, Instant::now()));
        if let NextTurn::At(moment) = next {
            self.timed.remove(&(moment, number));
        }
    }

    /// Makes the duties due whose moments have come.
    fn wake_timed(&mut self, now: Instant) {
        while let Some((moment, number)) = self.timed.first().copied() {
            if moment > now {
                break;
            }
            self.wake(number);
        }
    }

    /// Takes a duty that may run now.
    fn take_due(&mut self, now: Instant) -> Option<Turn> {
        let (number, since) = self.due.front().copied()?;
        let is_overdue = now.duration_since(since) >= DELAY_MAX;
        if self.count_short_turns(now) >= RUNNING_MAX && !is_overdue {
            return None;
        }
        self.due.pop_front();
        let enlisted = self.duties.get_mut(&number)?;
        enlisted.phase = Phase::Running(thread::current().id());
        self.running.insert(number, now);
        Some(Turn {
            number,
            duty: Arc::clone(&enlisted.duty),
            is_asked: Arc::clone(&enlisted.is_asked),
        })
    }

    /// The turns under way that have not taken long yet.
    fn count_short_turns(&self, now: Instant) -> usize {
        let is_short = |since: &&Instant| now.duration_since(**since) < PATIENCE;
        self.running.values().filter(is_short).count()
    }

    /// How long the keeper may sleep if it is not woken; `None`: for ever. No duty may run now.
    fn pause(&self, now: Instant) -> Option<Duration> {
        let mut moments: Vec<Instant> = Vec::new();
        moments.extend(self.timed.first().map(|(moment, _)| *moment));
        if let Some((_, since)) = self.due.front() {
            moments.push(*since + DELAY_MAX);
            // A turn that takes long by then lets the duty run.
            moments.extend(self.running.values().map(|since| *since + PATIENCE));
        }
        let later = moments.into_iter().filter(|moment| *moment > now);
        later
            .min()
            .map(|moment| moment.saturating_duration_since(now))
    }
}

/// A turn that a thread has taken.
struct Turn {
    number: u64,
    duty: Arc<dyn Duty>,
    is_asked: Arc<AtomicBool>,
}

/// The threads and their duties.
///
/// The condition variables are the standard library's, see [`Awaited`](crate::sync::Awaited).
#[derive(Default)]
struct Workers {
    roster: Mutex<Roster>,
    /// The keeper sleeps here.
    for_keeper: Condvar,
    /// Spare threads sleep here.
    for_spare: Condvar,
    /// Threads that end a duty sleep here.
    for_end: Condvar,
}

impl Workers {
    fn lock(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&'static self, duty: Arc<dyn Duty>, first: NextTurn) -> io::Result<GivenDuty> {
        let mut roster = self.lock();
        let kept = self.find_keeper(&mut roster);
        if roster.threads == 0 {
            kept?;
        }
        let is_asked = Arc::new(AtomicBool::new(false));
        roster.number_last += 1;
        let number = roster.number_last;
        let enlisted = Enlisted {
            duty,
            is_asked: Arc::clone(&is_asked),
            phase: Phase::Asleep(NextTurn::WhenAsked),
        };
        roster.duties.insert(number, enlisted);
        roster.sleep(number, first);
        Ok(GivenDuty {
            number,
            is_asked,
            workers: self,
        })
    }

    /// Starts a thread.
    fn start(&'static self, roster: &mut Roster) -> io::Result<()> {
        start_thread("everleaf-work", || self.work())?;
        roster.threads += 1;
        roster.starting += 1;
        Ok(())
    }

    fn note_asked(&'static self, number: u64) {
        let mut roster = self.lock();
        // A running duty finds at its end that it was asked for.
        roster.wake(number);
        // Without a keeper the duty runs when a thread has ended its turn.
        let _ = self.find_keeper(&mut roster);
    }

    fn end(&self, number: u64) {
        let mut roster = self.lock();
        loop {
            let Some(enlisted) = roster.duties.get(&number) else {
                return;
            };
            let is_running = matches!(enlisted.phase, Phase::Running(_));
            let is_own_turn = enlisted.phase == Phase::Running(thread::current().id());
            if !is_running || is_own_turn {
                break;
            }
            roster = self
                .for_end
                .wait(roster)
                .unwrap_or_else(PoisonError::into_inner);
        }
        roster.due.retain(|(due, _)| *due != number);
        roster.timed.retain(|(_, timed)| *timed != number);
        let ended = roster.duties.remove(&number);
        // Without any duty, the keeper does not sleep for ever.
        self.for_keeper.notify_one();
        drop(roster);
        // The duty may own what takes locks when it is dropped.
        drop(ended);
    }

    /// The life of a thread.
    fn work(&'static self) {
        let mut roster = self.lock();
        roster.starting -= 1;
        loop {
            if roster.has_keeper {
                let waited;
                roster.spare += 1;
                (roster, waited) = self
                    .for_spare
                    .wait_timeout(roster, LINGER)
                    .unwrap_or_else(PoisonError::into_inner);
                roster.spare -= 1;
                if waited.timed_out() && roster.has_keeper {
                    break;
                }
                continue;
            }
            roster.has_keeper = true;
            let turn;
            (roster, turn) = self.keep(roster);
            roster.has_keeper = false;
            let Some(turn) = turn else {
                // The spare threads end one after the other, as keepers: while there are threads,
                // one of them must find the next duty.
                self.for_spare.notify_one();
                break;
            };
            // If the system gives no thread, the next turns wait for the end of this one.
            let _ = self.find_keeper(&mut roster);
            drop(roster);
            let next = take_turn(&turn);
            let Turn {
                number,
                duty,
                is_asked,
            } = turn;
            // If the duty has ended meanwhile, this closes its files.
            drop(duty);
            roster = self.finish(number, &is_asked, next);
        }
        roster.threads -= 1;
    }

    /// Waits as the keeper for a duty that is due; `None` if there has been no duty for a while.
    fn keep<'w>(
        &'w self,
        mut roster: MutexGuard<'w, Roster>,
    ) -> (MutexGuard<'w, Roster>, Option<Turn>) {
        let mut idle_since = None;
        loop {
            let now = Instant::now();
            roster.wake_timed(now);
            let turn = roster.take_due(now);
            if turn.is_some() {
                return (roster, turn);
            }
            let pause = if roster.duties.is_empty() {
                let since = *idle_since.get_or_insert(now);
                if now.duration_since(since) >= LINGER {
                    return (roster, None);
                }
                Some(LINGER)
            } else {
                idle_since = None;
                roster.pause(now)
            };
            roster = match pause {
                Some(pause) => {
                    let waited = self.for_keeper.wait_timeout(roster, pause);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self
                    .for_keeper
                    .wait(roster)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Wakes the keeper; without one, finds a thread that becomes the keeper.
    ///
    /// # Errors
    /// If that needs another thread, and the system gives none.
    fn find_keeper(&'static self, roster: &mut Roster) -> io::Result<()> {
        if roster.has_keeper {
            self.for_keeper.notify_one();
        } else if roster.spare > 0 {
            self.for_spare.notify_one();
        } else if roster.starting == 0 {
            self.start(roster)?;
        }
        Ok(())
    }

    /// Notes the end of a turn.
    fn finish(
        &self,
        number: u64,
        is_asked: &AtomicBool,
        next: Option<NextTurn>,
    ) -> MutexGuard<'_, Roster> {
        let mut roster = self.lock();
        roster.running.remove(&number);
        match next {
            Some(next) if roster.duties.contains_key(&number) => {
                roster.sleep(number, next);
                // ORDER: pairs with the swap in `ask`.
                if is_asked.load(Ordering::Acquire) {
                    roster.wake(number);
                }
            }
            // It has ended during its turn.
            Some(_) => {}
            None => {
                let ended = roster.duties.remove(&number);
                drop(roster);
                // The duty may own what takes locks when it is dropped.
                drop(ended);
                roster = self.lock();
            }
        }
        self.for_end.notify_all();
        // The keeper sleeps until a moment that it computed before, and perhaps until a thread is
        // free.
        self.for_keeper.notify_one();
        roster
    }
}

/// Runs a duty; `None` if it has ended, or has panicked, which was reported where it happened. It
/// gets no turn any more.
fn take_turn(turn: &Turn) -> Option<NextTurn> {
    // ORDER: pairs with the swap in `ask`: this turn sees what its caller did before.
    turn.is_asked.swap(false, Ordering::AcqRel);
    let outer = IS_IN_TURN.replace(true);
    let next = catch_unwind(AssertUnwindSafe(|| turn.duty.turn())).ok();
    IS_IN_TURN.set(outer);
    match next {
        Some(NextTurn::Never) => None,
        next => next,
    }
}

/// Whether the calling thread is in the middle of a duty's turn. There it must not wait for another
/// duty, which may wait for this one.
pub fn is_in_turn() -> bool {
    IS_IN_TURN.get()
}

#[cfg(all(test, not(loom)))]
mod tests;
