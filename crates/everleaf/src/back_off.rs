//! Pauses between attempts that other threads have spoiled.

use std::time::Duration;

/// The first pause that sleeps. The pauses double.
const SLEEP_MIN: Duration = Duration::from_micros(2);
/// The longest pause.
const SLEEP_MAX: Duration = Duration::from_millis(2);
/// Attempts after which a thread spins, for twice as long each time.
const SPINS: u32 = 6;
/// Attempts after which it lets other threads run.
const YIELDS: u32 = 4;

/// How a thread pauses before its next attempt: each time longer than the last time.
pub(crate) struct BackOff {
    /// Pauses of each kind that are left before it sleeps.
    spins_left: u32,
    yields_left: u32,
    sleep: Duration,
}

impl BackOff {
    /// For attempts that take a microsecond: it spins and yields before it sleeps.
    pub(crate) fn spinning() -> Self {
        Self {
            spins_left: SPINS,
            yields_left: YIELDS,
            sleep: SLEEP_MIN,
        }
    }

    /// For attempts that take longer.
    pub(crate) fn sleeping() -> Self {
        Self {
            spins_left: 0,
            yields_left: 0,
            sleep: SLEEP_MIN,
        }
    }

    pub(crate) fn pause(&mut self) {
        if self.spins_left > 0 {
            for _ in 0..1_u32 << (SPINS - self.spins_left) {
                std::hint::spin_loop();
            }
            self.spins_left -= 1;
            return;
        }
        if self.yields_left > 0 {
            std::thread::yield_now();
            self.yields_left -= 1;
            return;
        }
        std::thread::sleep(self.sleep);
        self.sleep = (2 * self.sleep).min(SLEEP_MAX);
    }
}
