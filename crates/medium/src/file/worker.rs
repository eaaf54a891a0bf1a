//! The threads in the background: one syncs, one checkpoints and fills the log with zeros.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Core, Durability};
use crate::MediumError;

/// How long nothing may be appended before what is there is sealed.
const IDLE: Duration = Duration::from_millis(100);
/// The log is filled with zeros so far ahead of its end; logs of tests are small.
pub(super) const FILL_AHEAD_BYTES: u64 = if cfg!(test) { 512 << 10 } else { 8 << 20 };
/// With deferred durability, who writes waits when so much is not durable.
const BACKLOG_BYTES_MAX: u64 = 8 << 20;
/// And a sync begins early when so much is not durable.
const BACKLOG_BYTES_EARLY: u64 = BACKLOG_BYTES_MAX / 4;

/// What the threads are told.
#[derive(Debug, Default)]
pub(super) struct Signal {
    stop: bool,
    sync: bool,
    checkpoint: bool,
}

impl Core {
    /// Wakes the syncing thread.
    pub(super) fn wake(&self) {
        self.signal.lock().sync = true;
        self.signalled.notify_all();
    }

    pub(super) fn wake_checkpointer(&self) {
        self.signal.lock().checkpoint = true;
        self.signalled.notify_all();
    }

    /// Tells the threads to end.
    pub(super) fn stop(&self) {
        self.signal.lock().stop = true;
        self.signalled.notify_all();
    }

    /// A wait where durability is deferred: nothing is waited for, unless the disk is far behind.
    pub(super) fn defer(&self, position: u64) -> Result<(), MediumError> {
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

    /// Waits for the signal that `take` takes, at most `timeout` if there is one. Whether to go on.
    fn wait_for(&self, timeout: Option<Duration>, take: impl Fn(&mut Signal) -> bool) -> bool {
        // One that is beyond all time is none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut signal = self.signal.lock();
        while !signal.stop && !take(&mut signal) {
            match deadline {
                Some(deadline) => {
                    if self.signalled.wait_until(&mut signal, deadline).timed_out() {
                        break;
                    }
                }
                None => self.signalled.wait(&mut signal),
            }
        }
        !signal.stop
    }

    /// Sleeps until something is appended, if nothing is to be done. Whether it may sleep so.
    fn doze(&self) -> bool {
        let mut tail = self.tail.lock();
        let idle = tail.appender.end() <= self.commit.durable();
        tail.dozing = idle;
        idle
    }

    /// How long what nobody waits for may stay as it is.
    fn tick(&self) -> Duration {
        match self.durability {
            Durability::Buffered(within) => within,
            Durability::Immediate => IDLE,
            Durability::OnSync => Duration::MAX,
        }
    }

    /// All was made durable. If the syncing thread would not look for long, it is to seal that.
    pub(super) fn seal_soon(&self) {
        if self.tick() > IDLE {
            self.wake();
        }
    }

    /// Syncs what nobody waits for, and seals what nothing follows.
    fn run_syncer(&self, opened_at: u64) {
        let tick = self.tick();
        let take = |signal: &mut Signal| std::mem::take(&mut signal.sync);
        let (mut seen, mut sealed) = (opened_at, opened_at);
        let mut begun = Instant::now();
        loop {
            // What was appended since the last sync began has its time from then on, however long that sync took.
            let timeout = if seen == sealed && self.doze() {
                None
            } else if self.commit.durable() >= self.end() {
                Some(tick.min(IDLE))
            } else {
                Some(tick.saturating_sub(begun.elapsed()))
            };
            if !self.wait_for(timeout, take) || self.commit.has_failed() {
                return;
            }
            if timeout.is_none() && self.commit.durable() < self.end() {
                // Something was just appended; it has its time, unless much follows.
                begun = Instant::now();
                continue;
            }
            let end = self.end();
            let idle = end == seen;
            seen = end;
            let behind = end.saturating_sub(self.commit.durable());
            // Woken to seal, it leaves what already follows its time.
            if behind == 0 || behind >= BACKLOG_BYTES_EARLY || begun.elapsed() >= tick {
                begun = Instant::now();
                // A failure is kept where all will find it.
                let _ = self.settle(end);
            }
            if idle && sealed != end && self.commit.durable() == end {
                let end = self.seal();
                let _ = self.settle(end);
                (seen, sealed) = (end, end);
            }
        }
    }

    /// Brings home what the log holds when it is half full, and fills it with zeros ahead of its end.
    fn run_checkpointer(&self) {
        let take = |signal: &mut Signal| std::mem::take(&mut signal.checkpoint);
        loop {
            loop {
                match self.log.fill_ahead(self.end(), FILL_AHEAD_BYTES) {
                    Ok(true) if self.signal.lock().stop => return,
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => return self.commit.fail(format!("syncing the log failed: {error}")),
                }
            }
            if !self.wait_for(None, take) {
                return;
            }
            // What goes home meanwhile may be more than there was.
            if self.end().saturating_sub(self.log.start()) > self.log.capacity() / 2 {
                // A failure is kept where all will find it.
                let _ = self.checkpoint();
            }
        }
    }
}

/// Starts the threads.
pub(super) fn start(core: &Arc<Core>) -> std::io::Result<Vec<std::thread::JoinHandle<()>>> {
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let (syncing, filling, opened_at) = (Arc::clone(core), Arc::clone(core), core.end());
    let syncer = thread("everleaf-sync").spawn(move || syncing.run_syncer(opened_at))?;
    match thread("everleaf-home").spawn(move || filling.run_checkpointer()) {
        Ok(checkpointer) => Ok(vec![syncer, checkpointer]),
        Err(error) => {
            // Or it would keep the files open, and with them the lock.
            core.stop();
            let _ = syncer.join();
            Err(error)
        }
    }
}
