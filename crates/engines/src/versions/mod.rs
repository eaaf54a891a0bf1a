//! Versions: what the trees of a store held at an earlier moment, for its *views*. A snapshot and a
//! transaction are views.
//!
//! Versions live in memory, and only while a view is open; nothing of this is ever durable, and no
//! engine knows of it. A write of a store without views loads one word more.
//!
//! # Words
//!
//! - A *stamp* is the number of a write in the order of all writes of the store. A batch has one
//!   stamp.
//! - A *change* is the value that a key held before a write, with the stamp of that write.
//! - A view has a stamp, too: it has all writes with stamps up to its own, and no other.
//!
//! # Writing
//!
//! While versions are on, a single write keeps its share of the stripe and locks its key. It reads
//! the value that it replaces. Then, in one step under the lock of the clock, it takes a stamp and
//! records the change; only then the engine publishes the write. A batch holds its stripes alone,
//! so it needs no locks of keys. A bulk load takes all stripes alone when its source has ended, and
//! records that its tree was empty.
//!
//! A value is kept only if a view may need it. A key that is written a million times while one old
//! view is open keeps one value.
//!
//! # Opening a view
//!
//! 1. Switch versions on.
//! 2. Wait for the writes that began before: a *grace period*. From here on every write sees the
//!    switch. (An opener that comes during the grace period of another waits for its end; one that
//!    finds versions switched on skips this step.)
//! 3. Under the lock of the clock: read the stamp S of the last write, and register the view.
//! 4. Wait until the writes with stamps up to S are published.
//!
//! Versions are switched off a second after the last view has closed, by the next write, and only
//! while no thread is between the steps 1 and 3.
//!
//! # Reading
//!
//! A view reads the tree first and the changes after it. If the key has a change with a stamp above
//! S, the oldest of these has the value; else the tree has. So it does not matter whether a write
//! is published before or after the tree is read: its change is there by then. Last, the view checks
//! that it was not ended meanwhile.
//!
//! # Committing
//!
//! A transaction is a batch, with one more check in the step that takes the stamp: no key and no
//! range that the transaction has read has a change with a stamp above S. So transactions are
//! strictly serialisable in the order of their stamps.
//!
//! # Forgetting
//!
//! Changes with stamps up to that of the oldest view are forgotten. If all changes take more memory
//! than the store allows, the oldest view is ended, and its reads fail with
//! [`ErrorKind::ViewTooOld`]. No write waits for a view.

mod changes;
mod clock;
mod fault;
mod merge;
mod read;
mod read_ranges;
mod read_set;
mod record;

use std::panic::Location;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use medium::sync::schedule::{Access, AccessKind};
use medium::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, pause, schedule};
use medium::{Medium, Process};

use self::clock::{Clock, Switch, ViewState};
use crate::{ErrorKind, Result};

pub use self::changes::{OldValue, Stamp, TreeVersions};
pub use self::clock::{OpenView, VersionsStat};
pub(crate) use self::fault::PlantedFault;
pub use self::fault::VersionsFault;
pub use self::merge::{BeneathState, MergeSource, MergedScan};
pub use self::read_set::{ReadSet, ReadSpan};
pub(crate) use self::record::{BatchChange, TransactionCheck, UnpublishedWrite};

/// Locks of keys.
const KEY_LOCKS: usize = if cfg!(loom) { 1 } else { 4096 };
/// How long versions stay on after the last view has closed.
const LINGER: Duration = Duration::from_secs(1);
/// Changes that are forgotten under one lock of the clock.
const FORGOTTEN_AT_ONCE: usize = 256;
/// How long a thread sleeps that waits for writes of others.
const WAIT: Duration = Duration::from_micros(50);
/// How often it spins before.
const SPINS_MAX: u32 = 100;

/// A tree, seen by a thread that waits for the writes that are under way.
pub trait WritesUnderWay: Send + Sync {
    /// Waits until all writes to the tree have ended that began before this was called. Bulk loads
    /// whose source has not ended do not count.
    fn wait_for_writes(&self);
}

/// The versions of a store.
pub struct Versions {
    /// Whether writes record what they change. Changed under the lock of the clock.
    is_on: AtomicBool,
    clock: Mutex<Clock>,
    key_locks: OnceLock<Box<[Mutex<()>]>>,
    trees: Mutex<OpenTrees>,
    /// The most bytes of memory that the changes may take.
    bytes_max: usize,
    /// How long versions stay on after the last view has closed.
    linger: Duration,
    /// The stamp of a batch that could not be finished; `u64::MAX` if there is none.
    unfinished: AtomicU64,
    /// A view that was probably forgotten, and of which no warning was given yet.
    forgotten: Mutex<Option<OpenView>>,
    has_forgotten: AtomicBool,
    faults: PlantedFault,
    process: Process,
}

impl std::fmt::Debug for Versions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Versions").finish_non_exhaustive()
    }
}

/// The open trees of a store.
#[derive(Default)]
struct OpenTrees {
    trees: Vec<Weak<dyn WritesUnderWay>>,
    /// Closed trees are taken out of the list when it has this many entries.
    taken_out_at: usize,
    /// How many trees were opened.
    opened: u64,
}

impl OpenTrees {
    /// Adds a tree. O(1), amortised.
    fn add(&mut self, tree: Weak<dyn WritesUnderWay>) {
        if self.trees.len() >= self.taken_out_at {
            self.trees.retain(|tree| tree.strong_count() > 0);
            self.taken_out_at = 2 * self.trees.len() + 16;
        }
        self.trees.push(tree);
    }
}

/// A view of a store as of one moment, until it is dropped.
#[derive(Debug)]
pub struct StoreView {
    versions: Arc<Versions>,
    state: Arc<ViewState>,
}

/// A thread that opens a view and has not registered it yet: versions stay on.
struct Opener<'v> {
    versions: &'v Versions,
}

impl Drop for Opener<'_> {
    fn drop(&mut self) {
        self.versions.lock_clock().openers -= 1;
    }
}

/// While this lives, no view is open, and none is opened: a tree may be dropped or renamed.
#[derive(Debug)]
pub struct WithoutViews<'v> {
    versions: &'v Versions,
}

impl Drop for WithoutViews<'_> {
    fn drop(&mut self) {
        self.versions.lock_clock().tree_changers -= 1;
    }
}

impl Versions {
    /// The versions of a store on the medium `M`, whose changes may take this much memory, in bytes.
    pub fn new<M: Medium>(bytes_max: usize, process: Process) -> Arc<Self> {
        Self::with_faults::<M>(bytes_max, process, PlantedFault::default())
    }

    /// Versions with a fault, for tests.
    #[cfg(feature = "sim")]
    #[doc(hidden)]
    pub fn with_fault<M: Medium>(
        bytes_max: usize,
        process: Process,
        fault: VersionsFault,
    ) -> Arc<Self> {
        Self::with_faults::<M>(bytes_max, process, PlantedFault::of(fault))
    }

    fn with_faults<M: Medium>(
        bytes_max: usize,
        process: Process,
        faults: PlantedFault,
    ) -> Arc<Self> {
        // A schedule must not depend on the time.
        let linger = if M::SCHEDULED { Duration::ZERO } else { LINGER };
        Arc::new(Self {
            is_on: AtomicBool::new(false),
            clock: Mutex::new(Clock::new(faults)),
            key_locks: OnceLock::new(),
            trees: Mutex::default(),
            bytes_max,
            linger,
            unfinished: AtomicU64::new(Stamp::MAX),
            forgotten: Mutex::default(),
            has_forgotten: AtomicBool::new(false),
            faults,
            process,
        })
    }

    /// Locks the clock. A yield point, as every access to the state of versions that other threads
    /// could notice.
    fn lock_clock(&self) -> MutexGuard<'_, Clock> {
        schedule::reach(Access::something::<Clock>(AccessKind::Store));
        self.clock.lock()
    }

    /// A yield point before [`Versions::is_on`]. On the way of single writes only a scheduled medium
    /// has it.
    pub(crate) fn reach_switch() {
        schedule::reach(Access::something::<Self>(AccessKind::Load));
    }

    /// Whether writes record what they change.
    ///
    /// A write asks after it has its share of a stripe, and a thread that opens a view waits for
    /// these shares after it has switched versions on. So a write that is answered `false` has
    /// ended before the view is registered. Versions stay on while a view is open, and until a
    /// transaction that has its stamp is published.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Notes an open tree.
    pub(crate) fn add_tree(&self, tree: Weak<dyn WritesUnderWay>) {
        self.trees.lock().add(tree);
    }

    /// A number for an open tree.
    fn next_tree(&self) -> u64 {
        let mut trees = self.trees.lock();
        trees.opened += 1;
        trees.opened
    }

    /// A stamp for something that is no write.
    fn next_stamp(&self) -> Stamp {
        let mut clock = self.lock_clock();
        clock.stamp += 1;
        clock.stamp
    }

    pub(crate) fn faults(&self) -> PlantedFault {
        self.faults
    }

    /// Opens a view of the present moment. Waits for the writes that are under way, but not for the
    /// sources of bulk loads. The calling thread must not have begun a write.
    ///
    /// # Errors
    /// [`ErrorKind::BatchUnfinished`]; [`ErrorKind::Forked`].
    #[track_caller]
    pub fn open(self: &Arc<Self>) -> Result<StoreView> {
        let opened_at = Location::caller();
        self.process.expect_current()?;
        let registered = self.lock_clock().register_if_on(opened_at);
        let state = match registered {
            Some(state) => state,
            None => self.switch_on_and_register(opened_at),
        };
        let view = StoreView {
            versions: Arc::clone(self),
            state,
        };
        if !self.faults.has(VersionsFault::NoWaitForPublished) {
            wait_until(|| !self.lock_clock().has_unpublished(view.state.stamp));
        }
        self.expect_finished_up_to(view.state.stamp)?;
        Ok(view)
    }

    /// Opens a view while versions are off, or while a tree is dropped.
    #[cold]
    fn switch_on_and_register(&self, opened_at: &'static Location<'static>) -> Arc<ViewState> {
        self.lock_clock().openers += 1;
        let _opener = Opener { versions: self };
        self.switch_on();
        self.register(opened_at)
    }

    /// Steps 1 and 2 of opening a view.
    fn switch_on(&self) {
        let is_first = {
            let mut clock = self.lock_clock();
            let is_first = clock.switch == Switch::Off;
            if is_first {
                clock.switch = Switch::Starting;
                schedule::reach(Access::something::<Self>(AccessKind::Store));
                // ORDER: the barrier of the grace period orders this before the loads of writes
                // that begin later.
                self.is_on.store(true, Ordering::SeqCst);
            }
            is_first
        };
        if is_first {
            self.wait_for_writes();
            let mut clock = self.lock_clock();
            clock.switch = Switch::On;
        } else if !self.faults.has(VersionsFault::OpenerSkipsGracePeriod) {
            wait_until(|| self.lock_clock().switch == Switch::On);
        }
    }

    /// The grace period: waits for the writes that may not have seen the switch.
    fn wait_for_writes(&self) {
        if self.faults.has(VersionsFault::NoGracePeriod) {
            return;
        }
        let trees: Vec<_> = {
            let trees = self.trees.lock();
            trees.trees.iter().filter_map(Weak::upgrade).collect()
        };
        for tree in trees {
            tree.wait_for_writes();
        }
    }

    /// Step 3 of opening a view.
    fn register(&self, opened_at: &'static Location<'static>) -> Arc<ViewState> {
        let mut registered = None;
        wait_until(|| {
            let mut clock = self.lock_clock();
            if clock.tree_changers > 0 {
                return false;
            }
            let stamp = clock.stamp;
            if self.faults.has(VersionsFault::RegisterLate) {
                drop(clock);
                clock = self.lock_clock();
            }
            registered = Some(clock.register(stamp, opened_at));
            true
        });
        registered.expect("the wait ends when it is registered")
    }

    /// Keeps views from being opened, for a thread that drops or renames a tree.
    ///
    /// # Errors
    /// [`ErrorKind::InUse`] if a view is open, or is being opened.
    pub fn without_views(&self) -> Result<WithoutViews<'_>> {
        let mut clock = self.lock_clock();
        if clock.has_views() || clock.openers > 0 {
            return Err(ErrorKind::InUse.into());
        }
        clock.tree_changers += 1;
        Ok(WithoutViews { versions: self })
    }

    /// Figures.
    pub fn stat(&self) -> VersionsStat {
        self.lock_clock().stat()
    }

    /// Lets no view open any more, and ends all: a batch could not be finished.
    pub(crate) fn refuse_views(&self) {
        self.unfinished.store(0, Ordering::Release);
    }

    /// Notes a view that was probably forgotten.
    fn note_forgotten(&self, view: OpenView) {
        *self.forgotten.lock() = Some(view);
        self.has_forgotten.store(true, Ordering::Release);
    }

    /// Tells a program that listens of a view that was probably forgotten. The calling thread holds
    /// no lock: the program may use the store.
    pub(crate) fn tell_forgotten(&self) {
        if !self.has_forgotten.load(Ordering::Relaxed) {
            return;
        }
        self.has_forgotten.store(false, Ordering::Relaxed);
        let forgotten = self.forgotten.lock().take();
        if let Some(view) = forgotten {
            tracing::warn!(
                opened_at = %view.opened_at,
                seconds = view.age.as_secs(),
                "a snapshot or transaction is open for long, and old values are kept for it; drop it"
            );
        }
    }

    /// Refuses views that ought to have a batch that could not be finished.
    fn expect_finished_up_to(&self, stamp: Stamp) -> Result<()> {
        let has_unfinished = self.unfinished.load(Ordering::Acquire) <= stamp;
        if has_unfinished && !self.faults.has(VersionsFault::UnfinishedIsNoObstacle) {
            return Err(ErrorKind::BatchUnfinished.into());
        }
        Ok(())
    }

    fn close(&self, view: &ViewState) {
        let mut has_more = {
            let mut clock = self.lock_clock();
            clock.unregister(view);
            clock.forget(FORGOTTEN_AT_ONCE)
        };
        // Writes need the lock of the clock, so much is forgotten in several steps.
        while has_more {
            has_more = self.lock_clock().forget(FORGOTTEN_AT_ONCE);
        }
        if self.linger.is_zero() {
            let mut clock = self.lock_clock();
            if self.faults.has(VersionsFault::OffInTwoSteps) && clock.is_idle_for(self.linger) {
                drop(clock);
                self.switch_off(&mut self.lock_clock());
                return;
            }
            self.switch_off_if_idle(&mut clock);
        }
    }

    /// Switches versions off, if no view was open for some time.
    fn switch_off_if_idle(&self, clock: &mut Clock) {
        if clock.is_idle_for(self.linger) {
            self.switch_off(clock);
        }
    }

    fn switch_off(&self, clock: &mut Clock) {
        clock.switch = Switch::Off;
        schedule::reach(Access::something::<Self>(AccessKind::Store));
        self.is_on.store(false, Ordering::Release);
    }
}

impl StoreView {
    /// Checks that the view still has all of its values.
    ///
    /// # Errors
    /// [`ErrorKind::ViewTooOld`], [`ErrorKind::BatchUnfinished`].
    pub fn expect_whole(&self) -> Result<()> {
        schedule::reach(Access::something::<ViewState>(AccessKind::Load));
        if self.state.has_ended() && !self.versions.faults.has(VersionsFault::NoLastCheck) {
            return Err(self.versions.too_old());
        }
        self.versions.expect_finished_up_to(self.state.stamp)
    }
}

impl Versions {
    #[cold]
    fn too_old(&self) -> crate::Error {
        ErrorKind::ViewTooOld {
            limit: Some(self.bytes_max),
        }
        .into()
    }
}

impl Drop for StoreView {
    fn drop(&mut self) {
        // In the child of a fork a thread of the parent may hold the lock.
        if self.versions.process.is_current() {
            self.versions.close(&self.state);
        }
    }
}

/// Waits for other threads, which may wait for a disk.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let mut spins = 0;
    while !is_so() {
        if spins < SPINS_MAX || schedule::is_running() {
            pause(&mut spins);
        } else {
            std::thread::sleep(WAIT);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
