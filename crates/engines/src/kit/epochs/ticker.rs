//! The work in the background that ends epochs, and sweeps after a crash.

use std::sync::Arc;
use std::time::{Duration, Instant};

use medium::sync::{AtomicBool, Mutex, Ordering};
use medium::{Duty, GivenDuty, NextTurn, Process};

use crate::{Error, Result};

/// The shortest epoch. With shorter ones most of the time would be spent on ending them.
const EPOCH_MIN: Duration = Duration::from_millis(1);
/// The longest epoch, for which the clock can still represent the end.
const EPOCH_MAX: Duration = Duration::from_secs(1 << 40);
/// A sweep leaves its thread to other work after this long.
const SWEEP_MAX: Duration = Duration::from_millis(10);

/// Whether a sweep has more to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SweepProgress {
    Unfinished,
    Finished,
}

/// Ends epochs until it is dropped.
pub(crate) struct Ticker {
    duty: GivenDuty,
    is_stopped: Arc<AtomicBool>,
    /// The process that does the work.
    process: Process,
}

/// The duty of a [`Ticker`].
struct EndEpochs<S, E> {
    length: Duration,
    /// When the running epoch is to end.
    next_end: Mutex<Instant>,
    is_stopped: Arc<AtomicBool>,
    sweep: S,
    end: E,
}

impl<S, E> Duty for EndEpochs<S, E>
where
    S: Fn(&dyn Fn() -> bool) -> SweepProgress + Send + Sync + 'static,
    E: Fn() + Send + Sync + 'static,
{
    fn turn(&self) -> NextTurn {
        let mut next_end = self.next_end.lock();
        if Instant::now() >= *next_end {
            (self.end)();
            *next_end = Instant::now() + self.length;
        }
        let pause = (Instant::now() + SWEEP_MAX).min(*next_end);
        let is_time = || Instant::now() >= pause || self.is_stopped.load(Ordering::Acquire);
        match (self.sweep)(&is_time) {
            SweepProgress::Unfinished => NextTurn::At(pause),
            SweepProgress::Finished => NextTurn::At(*next_end),
        }
    }
}

impl Ticker {
    /// Calls `end` whenever an epoch has lasted this long; and until then `sweep`, with a function
    /// that tells whether the time for sweeping is over. The first `sweep` begins at once, because
    /// an epoch may last longer than the tree is open.
    pub(crate) fn start(
        length: Duration,
        sweep: impl Fn(&dyn Fn() -> bool) -> SweepProgress + Send + Sync + 'static,
        end: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self> {
        let length = length.clamp(EPOCH_MIN, EPOCH_MAX);
        let now = Instant::now();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let duty = EndEpochs {
            length,
            next_end: Mutex::new(now + length),
            is_stopped: Arc::clone(&is_stopped),
            sweep,
            end,
        };
        let duty = GivenDuty::new(Arc::new(duty), NextTurn::At(now))
            .map_err(Error::io("start the thread that ends epochs"))?;
        Ok(Self {
            duty,
            is_stopped,
            process: Process::current(),
        })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        // A child of a fork does not have the threads, and would wait for them for ever.
        if self.process.is_current() {
            self.is_stopped.store(true, Ordering::Release);
            self.duty.end();
        }
    }
}
