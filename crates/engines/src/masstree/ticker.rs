//! The thread that ends epochs, and sweeps after a crash.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use medium::Medium;
use medium::sync::{AtomicBool, Ordering};

use super::core::Core;
use super::sweep::Sweep;
use crate::{Error, Result};

/// The shortest epoch. With shorter ones most of the time would be spent on ending them.
const EPOCH_MIN: Duration = Duration::from_millis(1);
/// The longest epoch. The clock can say when it ends.
const EPOCH_MAX: Duration = Duration::from_secs(1 << 40);
/// The time between two steps of a sweep, for other threads to work.
const SWEEP_PAUSE: Duration = Duration::from_micros(50);

/// The thread that ends epochs. It ends when this is dropped.
pub(super) struct Ticker {
    thread: Option<JoinHandle<()>>,
    is_stopped: Arc<AtomicBool>,
}

impl Ticker {
    pub(super) fn start<M: Medium>(core: &Arc<Core<M>>, length: Duration) -> Result<Self> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (weak, stop) = (Arc::downgrade(core), Arc::clone(&is_stopped));
        let thread = std::thread::Builder::new()
            .name("everleaf-epochs".to_owned())
            .spawn(move || Self::run(&weak, &stop, length))
            .map_err(Error::io("start the thread that ends epochs"))?;
        Ok(Self { thread: Some(thread), is_stopped })
    }

    fn run<M: Medium>(core: &Weak<Core<M>>, stop: &AtomicBool, length: Duration) {
        let mut sweep = Some(Sweep::default());
        loop {
            let next = Instant::now() + length.clamp(EPOCH_MIN, EPOCH_MAX);
            let is_time = || Instant::now() < next && !stop.load(Ordering::Acquire);
            // Right after the open: an epoch may last longer than the tree is open.
            while sweep.is_some() && is_time() {
                let Some(core) = core.upgrade() else { return };
                match core.sweep_on(sweep.get_or_insert_default()) {
                    Ok(true) => std::thread::park_timeout(SWEEP_PAUSE),
                    Ok(false) => sweep = None,
                    // The sweep goes on after the next epoch.
                    Err(_) => break,
                }
            }
            while is_time() {
                std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
            }
            let Some(core) = core.upgrade() else { return };
            if stop.load(Ordering::Acquire) {
                return;
            }
            // After an error the next write tries again, and returns the error.
            let _ = core.advance();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
