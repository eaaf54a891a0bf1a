//! The thread that ends epochs, and sweeps after a crash.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use medium::Process;
use medium::sync::{AtomicBool, Ordering};

use crate::{Error, Result};

/// The shortest epoch. With shorter ones most of the time would be spent on ending them.
const EPOCH_MIN: Duration = Duration::from_millis(1);
/// The longest epoch, for which the clock can still represent the end.
const EPOCH_MAX: Duration = Duration::from_secs(1 << 40);

/// The thread that ends epochs. It ends when this is dropped.
pub(crate) struct Ticker {
    thread: Option<JoinHandle<()>>,
    is_stopped: Arc<AtomicBool>,
    /// The process that has the thread.
    process: Process,
}

impl Ticker {
    /// Calls `sweep` at the beginning of each epoch, with a function that tells whether the time
    /// for sweeping is over, and then `end`. The first `sweep` begins at once, because an epoch may
    /// last longer than the tree is open.
    pub(crate) fn start(
        length: Duration,
        sweep: impl Fn(&dyn Fn() -> bool) + Send + 'static,
        end: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_stopped);
        let run = move || {
            while !stop.load(Ordering::Acquire) {
                let next = Instant::now() + length.clamp(EPOCH_MIN, EPOCH_MAX);
                let is_time = || Instant::now() >= next || stop.load(Ordering::Acquire);
                sweep(&is_time);
                while !is_time() {
                    std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
                }
                if !stop.load(Ordering::Acquire) {
                    end();
                }
            }
        };
        let thread = medium::start_thread("everleaf-epochs", run)
            .map_err(Error::io("start the thread that ends epochs"))?;
        Ok(Self {
            thread: Some(thread),
            is_stopped,
            process: Process::current(),
        })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // A child of a fork does not have the thread, and would wait for it for ever.
            std::mem::forget(self.thread.take());
            return;
        }
        self.is_stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
