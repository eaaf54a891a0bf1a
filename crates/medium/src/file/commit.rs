//! Group commit: many threads wait, one of them syncs for all.
//!
//! Whoever waits for a position that is not durable yet, while nobody syncs, becomes the leader: it writes what was
//! appended so far, syncs once, and wakes whom that served. Whoever comes meanwhile waits, and one of them leads next;
//! the next leader is woken before the others, so that the disk is never idle while there is work.
//!
//! **Gathering.** Threads that were served together come back together, a moment after one another. A leader that did
//! not wait for them would sync for itself alone, and they would have to wait for two syncs each. So it waits, for no
//! longer than a small part of a sync, until as many are there as were active around the last sync. How long at most may
//! be told instead.
//!
//! **Failure.** After a failed write or sync nobody knows what the disk holds: a second sync may succeed without having
//! written anything. So a failure is final; what was durable before stays acknowledged, and nothing else ever is. A leader
//! that panics is such a failure.

use std::sync::atomic::AtomicU64 as Figure;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::MediumError;
use crate::sync::thread::{self, Thread};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, spin_loop, yield_now};

/// How long a thread that waits alone for the end of a sync keeps its processor to itself.
const SPIN: Duration = Duration::from_micros(10);
/// How long it then goes on looking, whenever no other thread needs the processor, before it sleeps.
const YIELD_NS_MAX: u64 = 300_000;
/// It does that only if no more threads than these wait for syncs: of many the others have work for the processor.
const YIELDING_MAX: u64 = 4;
/// A leader gathers others for at most this part of what a sync takes.
const GATHER_FRACTION: u64 = 4;
/// And at most this long.
const GATHER_NS_MAX: u64 = 200_000;

#[derive(Debug, Default)]
struct Waiting {
    leading: bool,
    threads: Vec<(u64, Thread)>,
}

/// Sizes of groups in powers of two: entry i counts syncs of 2^i to 2^(i+1) - 1 groups.
pub(super) const SIZES: usize = 24;

/// What was synced so far.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) syncs: Figure,
    pub(super) groups: Figure,
    pub(super) groups_max: Figure,
    pub(super) sizes: [Figure; SIZES],
    pub(super) bytes: Figure,
}

/// How far the log is durable, and who waits for more.
#[derive(Debug, Default)]
pub(super) struct Commit {
    durable: CachePadded<AtomicU64>,
    /// How many threads came to wait since the last sync began.
    arrived: CachePadded<AtomicU64>,
    /// How many threads the last sync served, and those who came meanwhile.
    active: AtomicU64,
    /// What a sync takes, about.
    sync_ns: AtomicU64,
    /// How many leaders came to their end.
    led: AtomicU64,
    /// How long a leader gathers others at most, if that was told.
    gather_max: Option<Duration>,
    failed: AtomicBool,
    /// Why, if it has failed.
    failure: Mutex<String>,
    waiting: Mutex<Waiting>,
    pub(super) figures: Figures,
}

/// A leader at work. However that ends, those who wait are woken.
struct Leader<'c> {
    commit: &'c Commit,
    /// How many threads its sync is for.
    joined: u64,
    has_synced: bool,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if !self.has_synced {
            self.commit.fail("the thread that wrote the log panicked".to_owned());
        }
        self.commit.hand_over(self.joined);
    }
}

impl Commit {
    pub(super) fn new(durable: u64, gather_max: Option<Duration>) -> Self {
        Self { durable: CachePadded::new(AtomicU64::new(durable)), gather_max, ..Self::default() }
    }

    #[inline(always)]
    pub(super) fn durable(&self) -> u64 {
        // ORDER: pairs with the release in `advance`: who sees it acts on what is durable.
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

    /// Nothing is acknowledged any more.
    pub(super) fn fail(&self, why: String) {
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
        waiting.into_iter().for_each(|(_, thread)| thread.unpark());
    }

    pub(super) fn failure(&self) -> Result<(), MediumError> {
        if self.has_failed() { Err(MediumError::Failed(self.failure.lock().clone())) } else { Ok(()) }
    }

    /// Everything up to `position` is durable.
    pub(super) fn advance(&self, position: u64) {
        self.durable.fetch_max(position, Ordering::Release);
    }

    /// Counts a sync of so many groups and bytes.
    pub(super) fn count(&self, groups: u64, bytes: u64) {
        let figures = &self.figures;
        figures.syncs.fetch_add(1, Ordering::Relaxed);
        figures.groups.fetch_add(groups, Ordering::Relaxed);
        figures.groups_max.fetch_max(groups, Ordering::Relaxed);
        figures.bytes.fetch_add(bytes, Ordering::Relaxed);
        let size = (groups.max(1).ilog2() as usize).min(SIZES - 1);
        figures.sizes[size].fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until everything up to `position` is durable, or leads: then `sync` writes and syncs all that is appended,
    /// and calls [`Commit::advance`] or [`Commit::fail`].
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
                // Woken by somebody else, it is still there.
                waiting.threads.retain(|(_, thread)| thread.id() != id);
            } else {
                waiting.leading = true;
                drop(waiting);
                self.lead(sync);
                waiting = self.waiting.lock();
            }
        }
    }

    /// Looks for the end of the sync that is under way, for about as long as it takes: to sleep and to be woken takes a
    /// good part of a sync of a fast disk. If it does not serve this thread, nobody leads afterwards, and this one can
    /// at once.
    fn spin(&self, position: u64, led: u64) {
        if cfg!(loom) {
            // A model has no time.
            return;
        }
        let start = Instant::now();
        let sync_ns = self.sync_ns.load(Ordering::Relaxed);
        let patience = if self.active.load(Ordering::Relaxed) <= YIELDING_MAX {
            SPIN.max(Duration::from_nanos((sync_ns + sync_ns / 2).min(YIELD_NS_MAX)))
        } else {
            SPIN
        };
        while self.durable() < position && self.led.load(Ordering::Relaxed) == led && !self.has_failed() {
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
        let mut leader = Leader { commit: self, joined, has_synced: false };
        let start = Instant::now();
        sync();
        leader.has_synced = true;
        let ns = start.elapsed().as_nanos() as u64;
        let about = self.sync_ns.load(Ordering::Relaxed);
        self.sync_ns.store(if about == 0 { ns } else { about - about / 8 + ns / 8 }, Ordering::Relaxed);
    }

    /// The end of a leader, whose sync was for `joined` threads: wakes whom it served, and one who leads next.
    fn hand_over(&self, joined: u64) {
        let durable = if self.has_failed() { u64::MAX } else { self.durable() };
        let mut waiting = self.waiting.lock();
        waiting.leading = false;
        self.led.fetch_add(1, Ordering::Relaxed);
        let (served, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut waiting.threads).into_iter().partition(|(position, _)| *position <= durable);
        waiting.threads = rest;
        let next = waiting.threads.pop();
        drop(waiting);
        // Those who came during the sync are others than those it served.
        self.active.store(joined + self.arrived.load(Ordering::Relaxed), Ordering::Relaxed);
        next.into_iter().chain(served).for_each(|(_, thread)| thread.unpark());
    }

    /// Waits a moment for those who are about to come.
    fn gather(&self) {
        let expected = self.active.load(Ordering::Relaxed);
        let usual = || {
            Duration::from_nanos((self.sync_ns.load(Ordering::Relaxed) / GATHER_FRACTION).min(GATHER_NS_MAX))
        };
        let patience = self.gather_max.unwrap_or_else(usual);
        let start = Instant::now();
        while self.arrived.load(Ordering::Relaxed) < expected && start.elapsed() < patience {
            // Those who are to come may need the processor.
            yield_now();
        }
    }
}
