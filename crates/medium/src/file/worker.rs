//! The background threads: one syncs, the other one checkpoints and fills the log with zeros.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use super::{Core, Durability};
use crate::{MediumError, start_thread};

/// A log to which nothing is appended for this long is sealed.
const IDLE: Duration = Duration::from_millis(100);
/// A log that has grown is cut down when nothing was appended for this long.
const LONG_IDLE: Duration = Duration::from_secs(1);
/// With deferred durability, writers wait while more than this is not durable.
const BACKLOG_BYTES_MAX: u64 = 8 << 20;
/// With deferred durability, a sync begins early when more than this is not durable.
const BACKLOG_BYTES_EARLY: u64 = BACKLOG_BYTES_MAX / 4;

/// The requests to the background threads.
#[derive(Debug, Default)]
pub(super) struct Signal {
    stop: bool,
    sync: bool,
    checkpoint: bool,
}

impl Core {
    /// Wakes the syncing thread.
    pub(super) fn wake(&self) {
        self.signal.change(|signal| signal.sync = true);
    }

    /// Arranges that a task is woken when everything up to `position` is durable. The syncing
    /// thread syncs soon; without one, the calling thread syncs.
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
        let waits = self.commit.wake_when_durable(position, waker)?;
        if waits {
            self.awaited.fetch_max(position, Ordering::Relaxed);
            self.wake();
        }
        Ok(waits)
    }

    /// Wakes the tasks whose positions are durable, unless this is the thread that checkpoints: a
    /// waker may drop the last handle of the store, which unmaps the pool, and that thread may go
    /// on to use its memory. It wakes the tasks itself, at the end of its round.
    pub(super) fn wake_tasks(&self) {
        if self.commit.has_ready() && self.checkpointer.get() != Some(&thread::current().id()) {
            self.commit.wake_ready();
        }
    }

    pub(super) fn wake_checkpointer(&self) {
        self.signal.change(|signal| signal.checkpoint = true);
    }

    /// Asks the thread that checkpoints to make the log smaller: the other one must go on to sync.
    fn wake_to_shrink(&self) {
        self.is_idle.store(true, Ordering::Relaxed);
        self.wake_checkpointer();
    }

    /// Tells the threads to end.
    pub(super) fn stop(&self) {
        self.signal.change(|signal| signal.stop = true);
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

    /// Waits for the signal that `take` takes, at most `timeout`. Returns `false` if the thread is
    /// to end.
    fn wait_for(&self, timeout: Option<Duration>, take: impl Fn(&mut Signal) -> bool) -> bool {
        // A timeout beyond the end of the clock is none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut signal = self.signal.lock();
        while !signal.stop && !take(&mut signal) {
            match deadline {
                Some(deadline) if Instant::now() >= deadline => break,
                Some(deadline) => signal = self.signal.wait_until(signal, deadline),
                None => signal = self.signal.wait(signal),
            }
        }
        !signal.stop
    }

    /// If nothing was appended behind `sealed`, has the next append wake the syncing thread.
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

    /// Asks the syncing thread to seal the durable part of the log, if it would otherwise sleep for
    /// long.
    pub(super) fn seal_soon(&self) {
        if self.tick() > IDLE {
            self.wake();
        }
    }

    /// Syncs writes that no thread waits for, and seals the log when nothing follows them.
    fn run_syncer(&self, opened_at: u64) {
        let mut syncer = Syncer::new(self, opened_at);
        loop {
            let timeout = syncer.timeout();
            let take = |signal: &mut Signal| std::mem::take(&mut signal.sync);
            if !self.wait_for(timeout, take) || self.commit.has_failed() {
                return;
            }
            syncer.turn();
        }
    }

    /// Checkpoints the log when it is half full, and fills it with zeros ahead of its end.
    fn run_checkpointer(&self) {
        // No other thread sets it.
        let _ = self.checkpointer.set(thread::current().id());
        let take = |signal: &mut Signal| std::mem::take(&mut signal.checkpoint);
        loop {
            loop {
                match self
                    .log
                    .fill_ahead(self.end(), self.log.sizes.fill_ahead_bytes)
                {
                    Ok(true) if self.signal.lock().stop => return,
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        return self.commit.fail(format!("syncing the log failed: {error}"));
                    }
                }
            }
            if !self.wait_for(None, take) {
                return;
            }
            if self.lines.private.is_due() {
                // All operations find a failure in `commit`.
                let _ = self.give_back();
            }
            if self.is_idle.swap(false, Ordering::Relaxed) {
                self.shrink_log();
            }
            // Another thread may have made room meanwhile.
            if self.end().saturating_sub(self.log.start()) > self.log.capacity() / 2 {
                // All operations find a failure in `commit`.
                let _ = self.checkpoint();
            }
            // A waker may drop the last handle of the store; the loop then ends at its next wait.
            self.commit.wake_ready();
        }
    }
}

/// The state of the syncing thread.
pub(super) struct Syncer<'c> {
    core: &'c Core,
    tick: Duration,
    /// Where the log ended at the last turn.
    seen: u64,
    /// Where the last seal ended.
    sealed: u64,
    /// When the last sync began, or later, when the first write after it was appended.
    begun: Instant,
    /// Whether the next append wakes the thread.
    dozes: bool,
    /// When something was last appended, as far as the thread saw.
    busy_at: Instant,
}

impl<'c> Syncer<'c> {
    /// The state for a log that ends at `opened_at` and is durable up to there.
    pub(super) fn new(core: &'c Core, opened_at: u64) -> Self {
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

    /// How long the thread may sleep; `None`: until something is appended.
    pub(super) fn timeout(&mut self) -> Option<Duration> {
        let core = self.core;
        self.dozes = core.doze(self.sealed);
        if self.dozes {
            return core.log.is_grown().then_some(LONG_IDLE);
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
        let core = self.core;
        let end = core.end();
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
        // This also holds if the thread was woken to seal: later writes keep their time.
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
        } else if idle && self.dozes && self.busy_at.elapsed() >= LONG_IDLE && core.log.is_grown() {
            core.wake_to_shrink();
            self.busy_at = Instant::now();
        }
    }
}

/// Starts the threads.
pub(super) fn start(core: &Arc<Core>) -> std::io::Result<Vec<std::thread::JoinHandle<()>>> {
    let syncing = Arc::clone(core);
    let filling = Arc::clone(core);
    let opened_at = core.end();
    let syncer = start_thread("everleaf-sync", move || syncing.run_syncer(opened_at))?;
    match start_thread("everleaf-ckpt", move || filling.run_checkpointer()) {
        Ok(checkpointer) => Ok(vec![syncer, checkpointer]),
        Err(error) => {
            // The thread would keep the files open.
            core.stop();
            let _ = syncer.join();
            Err(error)
        }
    }
}
