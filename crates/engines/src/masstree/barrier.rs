//! The barrier between epochs: who works holds a share, who ends the epoch holds all of them.
//!
//! Everybody works with a share of the tree, whose lock he holds for the time of one operation; the epoch he finds then
//! is the one that he works in. To end an epoch means to hold all shares: nobody works then. Nobody starves: the locks are
//! fair, and who ends epochs holds them for a bounded time. Readers who hold no share look at the epoch's number before
//! and after.
//!
//! An epoch has *phases*, and each share is in one of them. When a phase begins, each share is locked in turn, what it
//! lists is taken, and it is in the next phase from then on. So what is marked as listed in a phase is on the list of some
//! share that was in that phase; and when all shares were locked, whatever was changed in the phase before has been taken.
//! (One number for all shares would not do: who sees the new one before his share is taken would mark as listed in the new
//! phase what is taken, and flushed, with the old one.)

use medium::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence};

/// The shares, and what runs. The model tests put another share in place of the tree's.
pub(super) struct Barrier<S> {
    running: AtomicU64,
    shares: Box<[Share<S>]>,
}

struct Share<S> {
    /// Changes under the lock only, which orders it.
    phase: AtomicU64,
    content: Mutex<S>,
}

/// A share, and with it the epoch: it does not end as long as this lives.
pub(super) struct Pass<'b, S> {
    pub(super) share: MutexGuard<'b, S>,
    pub(super) epoch: u64,
    /// The phase: what is listed in it need not be listed again.
    pub(super) phase: u64,
}

impl<S> Barrier<S> {
    /// At least one share.
    pub(super) fn new(running: u64, shares: impl Iterator<Item = S>) -> Self {
        let share = |content| Share { phase: AtomicU64::new(1), content: Mutex::new(content) };
        Self { running: AtomicU64::new(running), shares: shares.map(share).collect() }
    }

    /// All shares, in order.
    pub(super) fn shares(&self) -> impl Iterator<Item = &Mutex<S>> {
        self.shares.iter().map(|share| &share.content)
    }

    /// The running epoch.
    #[inline(always)]
    pub(super) fn running(&self) -> u64 {
        // ORDER: pairs with the release in `begin`: what was done in the epochs before is visible.
        self.running.load(Ordering::Acquire)
    }

    /// Whether an epoch still runs, so that nothing that was read since [`Barrier::running`] told of it was reused.
    #[inline(always)]
    pub(super) fn is_running(&self, epoch: u64) -> bool {
        // ORDER: pairs with the release of whoever reused what was read, who had seen a later epoch. What was read before
        // was read before this; kernels load relaxed.
        fence(Ordering::Acquire);
        self.running.load(Ordering::Acquire) == epoch
    }

    /// A share for an operation: the thread's own, or another one that is free.
    pub(super) fn enter(&self, thread: usize) -> Pass<'_, S> {
        let (own, count) = (thread % self.shares.len(), self.shares.len());
        let free = (0..count).find_map(|step| self.shares[(own + step) % count].try_enter(self));
        free.unwrap_or_else(|| self.shares[own].pass(self, self.shares[own].content.lock()))
    }

    /// Each share that is free just now.
    pub(super) fn enter_free(&self) -> impl Iterator<Item = Pass<'_, S>> {
        self.shares.iter().filter_map(|share| share.try_enter(self))
    }

    /// Begins a phase. When this returns, `take` had each share after its last operation of the phase before.
    pub(super) fn begin_phase(&self, mut take: impl FnMut(&mut S)) {
        for share in &self.shares {
            let mut content = share.content.lock();
            share.phase.fetch_add(1, Ordering::Relaxed);
            take(&mut content);
        }
    }

    /// Waits until nobody works; nobody does as long as the shares are held.
    pub(super) fn stop(&self) -> Vec<MutexGuard<'_, S>> {
        self.shares().map(Mutex::lock).collect()
    }

    /// Begins an epoch, and with it a phase. The caller holds all shares.
    pub(super) fn begin(&self, epoch: u64) {
        // ORDER: pairs with the loads in `running` and `is_running`: who sees the new epoch sees all of the old one.
        self.running.store(epoch, Ordering::Release);
        for share in &self.shares {
            share.phase.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S> Share<S> {
    fn try_enter<'b>(&'b self, barrier: &Barrier<S>) -> Option<Pass<'b, S>> {
        self.content.try_lock().map(|content| self.pass(barrier, content))
    }

    fn pass<'b>(&self, barrier: &Barrier<S>, share: MutexGuard<'b, S>) -> Pass<'b, S> {
        Pass { share, epoch: barrier.running(), phase: self.phase.load(Ordering::Relaxed) }
    }
}
