//! Group commit: many threads wait, one of them syncs for all.
//!
//! A thread that waits for a position of the log while no thread syncs becomes the *leader*:
//!
//! 1. It waits a moment for other threads (gathering).
//! 2. It writes everything that was appended so far, and syncs once.
//! 3. It wakes the next leader, then the threads whose positions are durable now. The next leader
//!    comes first, so that the disk is busy while there is work.
//!
//! **Gathering.** Threads that one sync served write again at about the same time. A leader that
//! did not wait for them would sync for itself alone, and each of them would wait for two syncs. So
//! the leader waits until as many threads are there as around the last sync, but only for a small
//! part of what a sync takes, or for as long as the options say.
//!
//! **Failure.** After a failed write or sync the content of the disk is unknown: a second sync may
//! succeed without writing anything. So a failure is final. Writes that were durable before stay
//! acknowledged, and no write is acknowledged after it. A leader that panics counts as a failure.
//! So does a file of the pool that has lost its name.
//!
//! **Tasks.** An async task waits without a thread: it leaves a waker. A waker may drop the last
//! handle of the store, and with it this commit's medium. So wakers are collected while a thread
//! leads, and called once it does not any more ([`GroupCommit::wake_ready`]).

use std::cell::Cell;
use std::sync::atomic::AtomicU64 as Figure;
use std::task::Waker;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::MediumError;
use crate::folder::DisplacedFile;
use crate::sync::thread::{self, Thread};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, spin_loop, yield_now};

/// How long a thread that waits alone for the end of a sync keeps its processor to itself.
const SPIN: Duration = Duration::from_micros(10);
/// How long it then polls at most, yielding the processor, before it sleeps.
const YIELD_NS_MAX: u64 = 300_000;
/// Threads poll for that long only if at most this many wait for syncs: more threads have other
/// work for the processor.
const YIELDING_MAX: u64 = 4;
/// A leader gathers others for at most one part in this many of the duration of a sync.
const GATHER_FRACTION: u64 = 4;
/// A leader gathers others for at most this long.
const GATHER_NS_MAX: u64 = 200_000;

#[derive(Debug, Default)]
struct Waiting {
    leading: bool,
    threads: Vec<(u64, Thread)>,
}

/// An async task that waits, while no thread does.
#[derive(Debug)]
struct Task {
    position: u64,
    waker: Waker,
}

thread_local! {
    /// Whether this thread holds a lock that a waker could need, and so wakes no task.
    static WAKES_NO_TASK: Cell<bool> = const { Cell::new(false) };
}

/// Calls `run`, which wakes no task. The tasks that become ready meanwhile wait for the next call of
/// [`GroupCommit::wake_ready`] by any thread.
pub(super) fn without_waking<R>(run: impl FnOnce() -> R) -> R {
    /// Its drop lets the thread wake tasks again, also after a panic.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            WAKES_NO_TASK.set(self.0);
        }
    }
    let _restore = Restore(WAKES_NO_TASK.replace(true));
    run()
}

/// Why nothing is acknowledged any more.
#[derive(Clone, Debug, Default)]
enum CommitFailure {
    #[default]
    None,
    /// A write or a sync failed, or a thread panicked: in words.
    Failed(String),
    /// A file of the pool has lost its name.
    Displaced(DisplacedFile),
}

/// Sizes of groups in powers of two: entry i counts syncs of 2^i to 2^(i+1) - 1 groups.
pub(super) const SIZES: usize = 24;

/// Figures of all syncs so far.
#[derive(Debug, Default)]
pub(super) struct SyncFigures {
    pub(super) syncs: Figure,
    pub(super) groups: Figure,
    pub(super) groups_max: Figure,
    pub(super) sizes: [Figure; SIZES],
    pub(super) bytes: Figure,
}

/// How far the log is durable, and the threads that wait for more.
#[derive(Debug, Default)]
pub(super) struct GroupCommit {
    durable: CachePadded<AtomicU64>,
    /// How many threads have begun to wait since the last sync began.
    arrived: CachePadded<AtomicU64>,
    /// How many threads the last sync served, and how many arrived during it.
    active: AtomicU64,
    /// The duration of a sync: a moving average.
    sync_ns: AtomicU64,
    /// How many leaders have finished.
    led: AtomicU64,
    /// How long a leader gathers other threads at most, if the options say so.
    gather_max: Option<Duration>,
    failed: AtomicBool,
    /// Why it has failed, if it has.
    failure: Mutex<CommitFailure>,
    waiting: Mutex<Waiting>,
    /// Tasks to be woken when a position is durable.
    tasks: Mutex<Vec<Task>>,
    /// Tasks whose positions are durable, and that are not woken yet.
    ready: Mutex<Vec<Waker>>,
    /// Whether there may be any of them.
    has_ready: AtomicBool,
    pub(super) figures: SyncFigures,
}

/// A leader at work. Its drop wakes the waiting threads, also after a panic.
struct Leader<'c> {
    commit: &'c GroupCommit,
    /// How many threads its sync is for.
    joined: u64,
    has_synced: bool,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if !self.has_synced {
            self.commit
                .fail("the thread that wrote the log panicked".to_owned());
        }
        self.commit.hand_over(self.joined);
        if !self.has_synced {
            // The thread panics, and does not return to the code that wakes tasks.
            self.commit.wake_ready();
        }
    }
}

impl GroupCommit {
    pub(super) fn new(durable: u64, gather_max: Option<Duration>) -> Self {
        Self {
            durable: CachePadded::new(AtomicU64::new(durable)),
            gather_max,
            ..Self::default()
        }
    }

    #[inline(always)]
    pub(super) fn durable(&self) -> u64 {
        // ORDER: pairs with the release in `advance`: the code behind this load relies on the sync.
        self.durable.load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(super) fn has_failed(&self) -> bool {
        // ORDER: pairs with the release in `fail`.
        self.failed.load(Ordering::Acquire)
    }

    /// Whether a thread is syncing now.
    pub(super) fn is_led(&self) -> bool {
        self.waiting.lock().leading
    }

    /// Records a failure: from now on nothing is acknowledged.
    pub(super) fn fail(&self, why: String) {
        self.fail_by(CommitFailure::Failed(why));
    }

    /// Records that a file of the pool has lost its name: from now on nothing is acknowledged.
    pub(super) fn fail_displaced(&self, displaced: DisplacedFile) {
        self.fail_by(CommitFailure::Displaced(displaced));
    }

    fn fail_by(&self, why: CommitFailure) {
        // The first failure is the cause of the others.
        {
            let mut failure = self.failure.lock();
            if !self.has_failed() {
                *failure = why;
                // ORDER: pairs with the acquire in `has_failed`.
                self.failed.store(true, Ordering::Release);
            }
        }
        let waiting = std::mem::take(&mut self.waiting.lock().threads);
        for (_, thread) in waiting {
            thread.unpark();
        }
        self.collect_ready(u64::MAX);
        self.wake_ready();
    }

    /// Whether the failure is that a file of the pool has lost its name.
    pub(super) fn is_displaced(&self) -> bool {
        self.has_failed() && matches!(*self.failure.lock(), CommitFailure::Displaced(_))
    }

    /// Arranges that a task is woken when everything up to `position` is durable, or after a
    /// failure. Returns `false` if it is durable already.
    pub(super) fn wake_when_durable(
        &self,
        position: u64,
        waker: &Waker,
    ) -> Result<bool, MediumError> {
        let mut tasks = self.tasks.lock();
        // This is read under the lock, which `advance` and `fail` take after they have changed it.
        if self.durable() >= position {
            return Ok(false);
        }
        self.failure()?;
        let is_known = |task: &Task| task.position == position && task.waker.will_wake(waker);
        if !tasks.iter().any(is_known) {
            tasks.push(Task {
                position,
                waker: waker.clone(),
            });
        }
        Ok(true)
    }

    /// Collects the tasks that wait for positions up to this one, to be woken.
    fn collect_ready(&self, durable: u64) {
        let mut tasks = self.tasks.lock();
        if tasks.is_empty() {
            return;
        }
        let mut ready = self.ready.lock();
        tasks.retain(|task| {
            let waits = task.position > durable;
            if !waits {
                ready.push(task.waker.clone());
            }
            waits
        });
        self.has_ready.store(!ready.is_empty(), Ordering::Release);
    }

    /// Whether there may be tasks to wake whose positions are durable.
    #[inline(always)]
    pub(super) fn has_ready(&self) -> bool {
        // ORDER: pairs with the release in `collect_ready`. The list itself is read under its lock.
        self.has_ready.load(Ordering::Acquire)
    }

    /// Wakes the tasks whose positions are durable. A waker may drop the last handle of the store,
    /// so the caller neither leads nor uses the memory of the pool afterwards, unless it holds a
    /// handle itself.
    pub(super) fn wake_ready(&self) {
        if !self.has_ready() || WAKES_NO_TASK.get() {
            return;
        }
        let ready = {
            let mut ready = self.ready.lock();
            self.has_ready.store(false, Ordering::Release);
            std::mem::take(&mut *ready)
        };
        for waker in ready {
            waker.wake();
        }
    }

    pub(super) fn failure(&self) -> Result<(), MediumError> {
        if !self.has_failed() {
            return Ok(());
        }
        match self.failure.lock().clone() {
            // The flag is set under this lock, together with the cause.
            CommitFailure::None => Ok(()),
            CommitFailure::Failed(why) => Err(MediumError::Failed(why)),
            CommitFailure::Displaced(file) => Err(MediumError::Displaced(file)),
        }
    }

    /// Records that everything up to `position` is durable. The caller wakes tasks later, by
    /// [`GroupCommit::wake_ready`].
    pub(super) fn advance(&self, position: u64) {
        self.durable.fetch_max(position, Ordering::Release);
        self.collect_ready(position);
    }

    /// Counts a sync.
    pub(super) fn count(&self, groups: u64, bytes: u64) {
        let figures = &self.figures;
        figures.syncs.fetch_add(1, Ordering::Relaxed);
        figures.groups.fetch_add(groups, Ordering::Relaxed);
        figures.groups_max.fetch_max(groups, Ordering::Relaxed);
        figures.bytes.fetch_add(bytes, Ordering::Relaxed);
        let size = (groups.max(1).ilog2() as usize).min(SIZES - 1);
        figures.sizes[size].fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until everything up to `position` is durable. If no thread leads, this one does:
    /// `sync` writes and syncs all that is appended, and calls [`GroupCommit::advance`] or
    /// [`GroupCommit::fail`].
    pub(super) fn settle(&self, position: u64, sync: &dyn Fn()) -> Result<(), MediumError> {
        if self.durable() >= position {
            return Ok(());
        }
        self.arrived.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        if waiting.leading && waiting.threads.is_empty() {
            let led = self.led.load(Ordering::Relaxed);
            drop(waiting);
            self.spin(position, led);
            waiting = self.waiting.lock();
        }
        loop {
            if self.durable() >= position {
                return Ok(());
            }
            self.failure()?;
            if waiting.leading {
                let me = thread::current();
                let id = me.id();
                waiting.threads.push((position, me));
                drop(waiting);
                thread::park();
                waiting = self.waiting.lock();
                // After a spurious wake-up the entry is still there.
                waiting.threads.retain(|(_, thread)| thread.id() != id);
            } else {
                waiting.leading = true;
                drop(waiting);
                self.lead(sync);
                waiting = self.waiting.lock();
            }
        }
    }

    /// Polls for the end of the sync that is under way, for about as long as a sync takes: on a
    /// fast disk, sleeping and waking up cost a good part of that. If the sync does not serve this
    /// thread, the thread leads the next one at once.
    fn spin(&self, position: u64, led: u64) {
        if cfg!(loom) {
            // Loom has no clock.
            return;
        }
        let start = Instant::now();
        let sync_ns = self.sync_ns.load(Ordering::Relaxed);
        let patience = if self.active.load(Ordering::Relaxed) <= YIELDING_MAX {
            SPIN.max(Duration::from_nanos(
                (sync_ns + sync_ns / 2).min(YIELD_NS_MAX),
            ))
        } else {
            SPIN
        };
        while self.durable() < position
            && self.led.load(Ordering::Relaxed) == led
            && !self.has_failed()
        {
            match start.elapsed() {
                elapsed if elapsed >= patience => break,
                elapsed if elapsed >= SPIN => yield_now(),
                _ => spin_loop(),
            }
        }
    }

    fn lead(&self, sync: &dyn Fn()) {
        self.gather();
        let joined = self.arrived.swap(0, Ordering::Relaxed);
        let mut leader = Leader {
            commit: self,
            joined,
            has_synced: false,
        };
        let start = Instant::now();
        sync();
        leader.has_synced = true;
        let ns = start.elapsed().as_nanos() as u64;
        let about = self.sync_ns.load(Ordering::Relaxed);
        self.sync_ns.store(
            if about == 0 {
                ns
            } else {
                about - about / 8 + ns / 8
            },
            Ordering::Relaxed,
        );
    }

    /// Calls `work` as a leader that syncs nothing, unless another thread leads.
    pub(super) fn lead_if_free(&self, work: &dyn Fn()) {
        {
            let mut waiting = self.waiting.lock();
            if waiting.leading || self.has_failed() {
                return;
            }
            waiting.leading = true;
        }
        let mut leader = Leader {
            commit: self,
            joined: 0,
            has_synced: false,
        };
        work();
        leader.has_synced = true;
    }

    /// Ends a leader whose sync was for `joined` threads: wakes the threads it served, and the next
    /// leader.
    fn hand_over(&self, joined: u64) {
        let durable = if self.has_failed() {
            u64::MAX
        } else {
            self.durable()
        };
        let mut waiting = self.waiting.lock();
        waiting.leading = false;
        self.led.fetch_add(1, Ordering::Relaxed);
        let (served, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut waiting.threads)
            .into_iter()
            .partition(|(position, _)| *position <= durable);
        waiting.threads = rest;
        let next = waiting.threads.pop();
        drop(waiting);
        // Threads that arrived during the sync were not served by it.
        self.active.store(
            joined + self.arrived.load(Ordering::Relaxed),
            Ordering::Relaxed,
        );
        next.into_iter()
            .chain(served)
            .for_each(|(_, thread)| thread.unpark());
    }

    /// Waits a moment for threads that are about to arrive.
    fn gather(&self) {
        let expected = self.active.load(Ordering::Relaxed);
        let patience = match self.gather_max {
            Some(duration) => duration,
            None => {
                let part_ns = self.sync_ns.load(Ordering::Relaxed) / GATHER_FRACTION;
                Duration::from_nanos(part_ns.min(GATHER_NS_MAX))
            }
        };
        let start = Instant::now();
        while self.arrived.load(Ordering::Relaxed) < expected && start.elapsed() < patience {
            // The others may need this processor.
            yield_now();
        }
    }
}
