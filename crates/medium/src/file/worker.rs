//! The work in the background: one duty syncs, the other one checkpoints and fills the log with
//! zeros. The threads that do it are shared by all stores of the process.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Core, Durability};
use crate::presence::is_mapped;
use crate::{Duty, GivenDuty, MediumError, NextTurn};

/// A log to which nothing is appended for this long is sealed.
const IDLE: Duration = Duration::from_millis(100);
/// A log that has grown is cut down when nothing was appended for this long.
const LONG_IDLE: Duration = Duration::from_secs(1);
/// With deferred durability, writers wait while more than this is not durable.
const BACKLOG_BYTES_MAX: u64 = 8 << 20;
/// With deferred durability, a sync begins early when more than this is not durable.
const BACKLOG_BYTES_EARLY: u64 = BACKLOG_BYTES_MAX / 4;

/// The duties of an open pool.
#[derive(Debug)]
pub(super) struct Duties {
    sync: GivenDuty,
    checkpoint: GivenDuty,
}

thread_local! {
    /// Whether this thread is in the middle of a checkpoint duty.
    static CHECKPOINTS: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread as being in the middle of a checkpoint duty, until it is dropped.
struct WithinCheckpoint;

impl WithinCheckpoint {
    fn begin() -> Self {
        CHECKPOINTS.set(true);
        Self
    }
}

impl Drop for WithinCheckpoint {
    fn drop(&mut self) {
        CHECKPOINTS.set(false);
    }
}

impl Core {
    /// Asks for a turn of the sync duty.
    pub(super) fn wake(&self) {
        if let Some(duties) = self.duties.get() {
            duties.sync.ask();
        }
    }

    /// Arranges that a task is woken when everything up to `position` is durable. The sync duty
    /// syncs soon; without one, the calling thread syncs.
    pub(super) fn wake_when_durable(
        &self,
        position: u64,
        waker: &Waker,
        has_background: bool,
    ) -> Result<bool, MediumError> {
        if !has_background {
            self.settle(position)?;
            return Ok(false);
        }
        if self.is_at_rest(position) {
            return Ok(false);
        }
        let waits = self.commit.wake_when_durable(position, waker)?;
        if waits {
            self.awaited.fetch_max(position, Ordering::Relaxed);
            self.wake();
        }
        Ok(waits)
    }

    /// Wakes the tasks whose positions are durable, unless this thread is in the middle of a
    /// checkpoint duty: a waker may drop the last handle of the store, which unmaps the pool, and
    /// the duty may go on to use its memory. It wakes the tasks itself, at the end of its turn.
    pub(super) fn wake_tasks(&self) {
        if self.commit.has_ready() && !CHECKPOINTS.get() {
            self.commit.wake_ready();
        }
    }

    pub(super) fn wake_checkpointer(&self) {
        if let Some(duties) = self.duties.get() {
            duties.checkpoint.ask();
        }
    }

    /// Asks the checkpoint duty to make the log smaller: the other one must go on to sync.
    fn wake_to_shrink(&self) {
        self.is_idle.store(true, Ordering::Relaxed);
        self.wake_checkpointer();
    }

    fn is_log_grown(&self) -> bool {
        self.log.is_grown(self.pool_bytes.load(Ordering::Relaxed))
    }

    /// Ends the duties. A waker that drops the last handle of a store runs in a turn of one of them.
    /// That turn uses nothing but the core, which it owns, and then ends.
    pub(super) fn end_duties(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        if let Some(duties) = self.duties.get() {
            duties.sync.end();
            duties.checkpoint.end();
        }
    }

    /// For an operation that does not wait: waits only if the disk is far behind.
    pub(super) fn keep_up(&self, position: u64) -> Result<(), MediumError> {
        self.commit.failure()?;
        let behind = position.saturating_sub(self.commit.durable());
        if behind > BACKLOG_BYTES_MAX {
            return self.settle(position - BACKLOG_BYTES_MAX);
        }
        if behind > BACKLOG_BYTES_EARLY && !self.commit.is_led() {
            self.wake();
        }
        Ok(())
    }

    /// If nothing was appended behind `sealed`, has the next append ask for the sync duty.
    /// Returns whether that is so.
    fn doze(&self, sealed: u64) -> bool {
        let mut tail = self.tail.lock();
        tail.dozing = tail.appender.end() == sealed;
        tail.dozing
    }

    /// How long a write that no thread waits for may stay unsynced.
    fn tick(&self) -> Duration {
        match self.durability {
            Durability::Buffered(within) => within,
            Durability::Immediate => IDLE,
            Durability::OnSync => Duration::MAX,
        }
    }

    /// Asks the sync duty to seal the durable part of the log, if it would otherwise sleep for
    /// long.
    pub(super) fn seal_soon(&self) {
        if self.tick() > IDLE {
            self.wake();
        }
    }

    /// Gives pages back, makes an idle log smaller, checkpoints the log when it is half full, and
    /// fills it with zeros ahead of its end.
    fn work_on_log(&self) {
        if self.lines.private.is_due() {
            // All operations find a failure in `commit`.
            let _ = self.give_back();
        }
        if self.is_idle.swap(false, Ordering::Relaxed) {
            self.shrink_log();
        }
        // Another thread may have made room meanwhile.
        let used = self.end().saturating_sub(self.log.start());
        let capacity = self.log.capacity();
        // A checkpoint overtakes readers in other processes, so it waits as long as it can if there are any.
        let may_wait = || used <= capacity / 8 * 7 && is_mapped(self.pool.file());
        if used > capacity / 2 && !may_wait() {
            // All operations find a failure in `commit`.
            let _ = self.checkpoint();
        }
        while !self.is_closing.load(Ordering::Relaxed) {
            match self.fill_ahead() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.commit.fail(format!("syncing the log failed: {error}"));
                    break;
                }
            }
        }
    }

    /// Fills a part of the log with zeros; returns whether there is more to fill. Nothing is filled
    /// before the log is used.
    fn fill_ahead(&self) -> std::io::Result<bool> {
        if !self.marked.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let end = self.end();
        self.log.fill_ahead(end, self.fill_ahead_bytes(end))
    }
}

/// Syncs writes that no thread waits for, and seals the log when nothing follows them.
struct SyncDuty(Mutex<Syncer>);

impl Duty for SyncDuty {
    fn turn(&self) -> NextTurn {
        let mut syncer = self.0.lock();
        if syncer.core.commit.has_failed() {
            return NextTurn::WhenAsked;
        }
        syncer.turn();
        syncer.next_turn()
    }
}

/// See [`Core::work_on_log`].
struct CheckpointDuty(Arc<Core>);

impl Duty for CheckpointDuty {
    fn turn(&self) -> NextTurn {
        {
            let _within = WithinCheckpoint::begin();
            self.0.work_on_log();
        }
        self.0.commit.wake_ready();
        NextTurn::WhenAsked
    }
}

/// The state of the sync duty.
pub(super) struct Syncer {
    core: Arc<Core>,
    tick: Duration,
    /// Where the log ended at the last turn.
    seen: u64,
    /// Where the last seal ended.
    sealed: u64,
    /// When the last sync began, or later, when the first write after it was appended.
    begun: Instant,
    /// Whether the next append asks for the duty.
    dozes: bool,
    /// When something was last appended, as far as the duty saw.
    busy_at: Instant,
}

impl Syncer {
    /// The state for a log that ends at `opened_at` and is durable up to there.
    pub(super) fn new(core: Arc<Core>, opened_at: u64) -> Self {
        let now = Instant::now();
        let tick = core.tick();
        let dozes = false;
        Self {
            core,
            tick,
            seen: opened_at,
            sealed: opened_at,
            begun: now,
            dozes,
            busy_at: now,
        }
    }

    /// When the next turn is due.
    fn next_turn(&mut self) -> NextTurn {
        self.timeout().map_or(NextTurn::WhenAsked, NextTurn::after)
    }

    /// How long the duty may sleep; `None`: until something is appended.
    pub(super) fn timeout(&mut self) -> Option<Duration> {
        let core = &self.core;
        self.dozes = core.doze(self.sealed);
        if self.dozes {
            return core.is_log_grown().then_some(LONG_IDLE);
        }
        // The time of a write runs from the beginning of the last sync on, however long that sync
        // took.
        let all_durable = core.commit.durable() >= core.end();
        Some(if all_durable {
            self.tick.min(IDLE)
        } else {
            self.tick.saturating_sub(self.begun.elapsed())
        })
    }

    /// Syncs and seals if that is due.
    pub(super) fn turn(&mut self) {
        let core = &self.core;
        let end = core.end();
        if core.is_at_rest(end) {
            self.seen = end;
            self.sealed = end;
            return;
        }
        if core.awaited.load(Ordering::Relaxed) > core.commit.durable() {
            self.begun = Instant::now();
            // Tasks find a failure in `commit`.
            let _ = core.settle(end);
        }
        let behind = end.saturating_sub(core.commit.durable());
        if self.dozes && behind > 0 {
            // Something was just appended: its time begins now.
            self.begun = Instant::now();
            return;
        }
        let idle = end == self.seen;
        self.seen = end;
        if !idle {
            self.busy_at = Instant::now();
        }
        // This also holds if the duty was asked to seal: later writes keep their time.
        if behind == 0 || behind >= BACKLOG_BYTES_EARLY || self.begun.elapsed() >= self.tick {
            self.begun = Instant::now();
            // All operations find a failure in `commit`.
            let _ = core.settle(end);
        }
        if idle && self.sealed != end && core.commit.durable() == end {
            let end = core.seal();
            let _ = core.settle(end);
            self.seen = end;
            self.sealed = end;
        } else if idle && self.dozes && self.busy_at.elapsed() >= LONG_IDLE && core.is_log_grown() {
            core.wake_to_shrink();
            self.busy_at = Instant::now();
        }
    }
}

/// Gives the duties of a pool to the threads of the process.
pub(super) fn begin(core: &Arc<Core>) -> std::io::Result<()> {
    let mut syncer = Syncer::new(Arc::clone(core), core.end());
    let first = syncer.next_turn();
    let sync = GivenDuty::new(Arc::new(SyncDuty(Mutex::new(syncer))), first)?;
    let checkpoint = Arc::new(CheckpointDuty(Arc::clone(core)));
    let checkpoint = GivenDuty::new(checkpoint, NextTurn::WhenAsked).inspect_err(|_| {
        // The duty would keep the files open.
        sync.end();
    })?;
    let duties = Duties { sync, checkpoint };
    core.duties.set(duties).expect("duties are given once");
    Ok(())
}
