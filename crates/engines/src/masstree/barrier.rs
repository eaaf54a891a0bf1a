//! The barrier between epochs: who works holds a share, who ends the epoch holds all of them.
//!
//! Everybody works with a share of the tree, whose lock he holds for the time of one operation; the epoch he finds then
//! is the one that he works in. To end an epoch means to hold all shares: nobody works then. Nobody starves: the locks are
//! fair, and who ends epochs holds them for a bounded time. Readers who hold no share look at the epoch's number before
//! and after.
//!
//! An epoch has *phases*. When one begins, each share is locked in turn, and what it lists is taken; so when all were
//! locked, whoever began in the phase before is done, and what he changed is listed, by him or by another one of his
//! phase.

use medium::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence};

/// The shares, and what runs. The model tests put another share in place of the tree's.
pub(super) struct Barrier<S> {
    running: AtomicU64,
    phase: AtomicU64,
    shares: Box<[Mutex<S>]>,
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
        let shares = shares.map(Mutex::new).collect();
        Self { running: AtomicU64::new(running), phase: AtomicU64::new(1), shares }
    }

    /// All shares, in order.
    pub(super) fn shares(&self) -> &[Mutex<S>] {
        &self.shares
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
        let share = self.lock_share(thread);
        let epoch = self.running();
        // ORDER: pairs with the release in `begin_phase`, which comes before the shares are locked.
        let phase = self.phase.load(Ordering::Acquire);
        Pass { share, epoch, phase }
    }

    fn lock_share(&self, thread: usize) -> MutexGuard<'_, S> {
        let own = thread % self.shares.len();
        let free =
            (0..self.shares.len()).find_map(|step| self.shares[(own + step) % self.shares.len()].try_lock());
        free.unwrap_or_else(|| self.shares[own].lock())
    }

    /// Begins a phase. When this returns, `take` had each share after the last operation of the phase before.
    pub(super) fn begin_phase(&self, mut take: impl FnMut(&mut S)) {
        // ORDER: pairs with the load in `enter`, by way of the shares' locks.
        self.phase.fetch_add(1, Ordering::Release);
        self.shares.iter().for_each(|share| take(&mut share.lock()));
    }

    /// Waits until nobody works; nobody does as long as the shares are held.
    pub(super) fn stop(&self) -> Vec<MutexGuard<'_, S>> {
        self.shares.iter().map(Mutex::lock).collect()
    }

    /// Begins an epoch, and with it a phase. The caller holds all shares.
    pub(super) fn begin(&self, epoch: u64) {
        // ORDER: pairs with the loads in `running` and `is_running`: who sees the new epoch sees all of the old one.
        self.running.store(epoch, Ordering::Release);
        self.phase.fetch_add(1, Ordering::Release);
    }
}
