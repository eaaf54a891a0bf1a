//! The barrier between epochs: who works holds a share, who ends the epoch holds all of them.
//!
//! Everybody works with a share of the tree, whose lock he holds for the time of one operation; the epoch he finds then
//! is the one that he works in. To end an epoch means to hold all shares: nobody works then. Nobody starves: a lock
//! goes to who has waited for it for long, and who ends epochs holds them for a bounded time. Readers who hold no share
//! look at the epoch's number before and after.
//!
//! Who holds a share may try to enter others, to take space from them; he waits for none of these.
//!
//! Who comes while the shares are being taken waits until all are, although some are free: else the processors would be
//! busy with those who work on, and who holds the last share, or waits for it, would get none.
//!
//! Who holds a share for longer than one operation (a batch, a bulk load) says so before. Who ends the epoch waits for him
//! first, and takes no share before: all others work meanwhile. Nobody else begins to hold one for long then, or the epoch
//! might never end. (Before that, each phase that begins waits for those who hold one for long, too; phases are few.)
//!
//! What he does meanwhile may wait for somebody else's operation. So nobody waits for his share as long as there is another one:
//! who finds all shares busy *queues* for one that is not held for long, and says so before he looks whether it still is not;
//! who begins to hold it for long says that before he looks who queues, and lets those go first. One of the two sees the other.
//! Who finds all of them held for long queues for his own, and goes before whoever holds that for long next.
//!
//! An epoch has *phases*, and each share is in one of them. When a phase begins, each share is locked in turn, what it
//! lists is taken, and it is in the next phase from then on. So what is marked as listed in a phase is on the list of some
//! share that was in that phase; and when all shares were locked, whatever was changed in the phase before has been taken.
//! (One number for all shares would not do: who sees the new one before his share is taken would mark as listed in the new
//! phase what is taken, and flushed, with the old one.)

use medium::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, fence, pause, yield_now};

/// The shares, and what runs. The model tests put another share in place of the tree's.
pub(super) struct Barrier<S> {
    running: AtomicU64,
    /// Whether the shares are being taken: a hint, nothing rests on it.
    is_stopping: AtomicBool,
    /// Held while they are. Not the gate: who waits for those who hold a share for long has that, too.
    stopping: Mutex<()>,
    /// Held by who begins to hold a share for long, and by who waits until nobody does.
    gate: Mutex<()>,
    shares: Box<[Share<S>]>,
    /// How many of them are worked with, the first ones.
    worked_with: usize,
}

struct Share<S> {
    /// Odd while it is held for long: made so behind the gate, and even by the holder, before he gives the share back.
    holds: AtomicU32,
    /// How many queue for it who go before the next to hold it for long: by the parity of that hold's number.
    queued: [AtomicU32; 2],
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

/// Says that a share is held for long. Dropped before its pass.
pub(super) struct Long<'b> {
    holds: &'b AtomicU32,
}

impl Drop for Long<'_> {
    fn drop(&mut self) {
        self.holds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether a share is held for long, by its `holds`.
fn is_long(holds: u32) -> bool {
    holds & 1 == 1
}

/// The parity of the next hold's number.
fn next_hold(holds: u32) -> usize {
    (holds.div_ceil(2) & 1) as usize
}

impl<S> Barrier<S> {
    /// At least one share, of which as many are worked with; the others are held with them, and used when they are free.
    pub(super) fn new(running: u64, shares: impl Iterator<Item = S>, worked_with: usize) -> Self {
        let share = |content| Share {
            holds: AtomicU32::new(0),
            queued: [AtomicU32::new(0), AtomicU32::new(0)],
            phase: AtomicU64::new(1),
            content: Mutex::new(content),
        };
        let shares: Box<[_]> = shares.map(share).collect();
        Self {
            running: AtomicU64::new(running),
            is_stopping: AtomicBool::new(false),
            stopping: Mutex::new(()),
            gate: Mutex::new(()),
            shares,
            worked_with,
        }
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

    /// The thread's own share.
    #[inline(always)]
    fn own(&self, thread: usize) -> &Share<S> {
        &self.shares[thread % self.worked_with]
    }

    /// The shares that are worked with, from the thread's own on.
    fn beginning_with_own(&self, thread: usize) -> impl Iterator<Item = &Share<S>> {
        let (before, from) = self.shares[..self.worked_with].split_at(thread % self.worked_with);
        from.iter().chain(before)
    }

    /// A share for an operation: the thread's own, or another one that is free, or will be soon.
    pub(super) fn enter(&self, thread: usize) -> Pass<'_, S> {
        if self.is_stopping.load(Ordering::Relaxed) {
            self.wait_until_stopped();
        }
        self.own(thread).try_enter(self).unwrap_or_else(|| self.enter_other(thread))
    }

    #[cold]
    fn wait_until_stopped(&self) {
        drop(self.stopping.lock());
    }

    #[cold]
    fn enter_other(&self, thread: usize) -> Pass<'_, S> {
        let free = self.beginning_with_own(thread).find_map(|share| share.try_enter(self));
        free.unwrap_or_else(|| self.enter_busy(thread))
    }

    /// As [`Barrier::enter`], where no share was free.
    pub(super) fn enter_busy(&self, thread: usize) -> Pass<'_, S> {
        loop {
            let soon = self.beginning_with_own(thread).find_map(|share| share.queue(self, false));
            if let Some(pass) = soon.or_else(|| self.own(thread).queue(self, true)) {
                return pass;
            }
        }
    }

    /// As [`Barrier::enter`], but waits for nobody who holds a share for long: `None` if only those are left.
    pub(super) fn enter_beside_long(&self, thread: usize) -> Option<Pass<'_, S>> {
        loop {
            let free = self.beginning_with_own(thread).find_map(|share| share.try_enter(self));
            if free.is_some() || self.beginning_with_own(thread).all(Share::is_held_long) {
                return free;
            }
            yield_now();
        }
    }

    /// A share that suits, if there is one; waits for those that others work with, last for those that are held for long.
    pub(super) fn enter_suitable(&self, suits: impl Fn(&S) -> bool) -> Option<Pass<'_, S>> {
        let mut late = Vec::new();
        for share in &self.shares {
            match share.queue(self, false) {
                Some(pass) if suits(&pass.share) => return Some(pass),
                Some(_) => {}
                None => late.push(share),
            }
        }
        late.into_iter().map(|share| share.pass(self, share.content.lock())).find(|pass| suits(&pass.share))
    }

    /// A share for longer than an operation. Waits while an epoch ends, or is about to.
    pub(super) fn enter_for_long(&self, thread: usize) -> (Pass<'_, S>, Long<'_>) {
        loop {
            let gate = self.gate.lock();
            if let Some(share) = self.beginning_with_own(thread).find(|share| !share.is_held_long()) {
                // Before it is: nobody queues for it from now on. Whoever has the gate next sees it.
                let holds = share.holds.fetch_add(1, Ordering::Relaxed);
                // ORDER: pairs with the fence in `queue`: who is not seen here sees that the share is held.
                fence(Ordering::SeqCst);
                let mut spins = 0;
                while share.queued[next_hold(holds)].load(Ordering::Relaxed) > 0 {
                    pause(&mut spins);
                }
                let pass = share.pass(self, share.content.lock());
                return (pass, Long { holds: &share.holds });
            }
            drop(gate);
            drop(self.own(thread).content.lock());
        }
    }

    /// Each share that is wanted, by its index, and free just now.
    pub(super) fn enter_free(&self, is_wanted: impl Fn(usize) -> bool) -> impl Iterator<Item = Pass<'_, S>> {
        let wanted = self.shares.iter().enumerate().filter(move |(index, _)| is_wanted(*index));
        wanted.filter_map(|(_, share)| share.try_enter(self))
    }

    /// Begins a phase. When this returns, `take` had each share after its last operation of the phase before.
    pub(super) fn begin_phase(&self, mut take: impl FnMut(&mut S)) {
        for share in &self.shares {
            let mut content = share.content.lock();
            share.phase.fetch_add(1, Ordering::Relaxed);
            take(&mut content);
        }
    }

    /// Waits until nobody holds a share for long, while all others work; nobody begins to as long as the gate is closed.
    pub(super) fn close_gate(&self) -> MutexGuard<'_, ()> {
        let gate = self.gate.lock();
        // Nobody begins to hold one for long, so none of these is held for long when all were free once.
        for share in self.shares.iter().filter(|share| share.is_held_long()) {
            drop(share.content.lock());
        }
        gate
    }

    /// Waits until nobody works; nobody does as long as the shares are held.
    pub(super) fn stop(&self, _gate: MutexGuard<'_, ()>) -> Vec<MutexGuard<'_, S>> {
        let _stopping = self.stopping.lock();
        self.is_stopping.store(true, Ordering::Relaxed);
        let shares = self.shares.iter().map(|share| share.content.lock()).collect();
        self.is_stopping.store(false, Ordering::Relaxed);
        shares
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
    fn is_held_long(&self) -> bool {
        is_long(self.holds.load(Ordering::Relaxed))
    }

    /// Waits for a share that is not held for long; or, if `in_any_case`, until whoever holds it is done. `None` if it is held
    /// for long, or another one begins to hold it so.
    fn queue<'b>(&'b self, barrier: &Barrier<S>, in_any_case: bool) -> Option<Pass<'b, S>> {
        let holds = self.holds.load(Ordering::Relaxed);
        if is_long(holds) && !in_any_case {
            return None;
        }
        let queued = &self.queued[next_hold(holds)];
        queued.fetch_add(1, Ordering::Relaxed);
        // ORDER: pairs with the fence in `enter_for_long`: who does not see there that this one queues is seen here.
        fence(Ordering::SeqCst);
        let is_as_before = self.holds.load(Ordering::Relaxed) == holds;
        let pass = is_as_before.then(|| self.pass(barrier, self.content.lock()));
        queued.fetch_sub(1, Ordering::Relaxed);
        pass
    }

    fn try_enter<'b>(&'b self, barrier: &Barrier<S>) -> Option<Pass<'b, S>> {
        self.content.try_lock().map(|content| self.pass(barrier, content))
    }

    fn pass<'b>(&self, barrier: &Barrier<S>, share: MutexGuard<'b, S>) -> Pass<'b, S> {
        Pass { share, epoch: barrier.running(), phase: self.phase.load(Ordering::Relaxed) }
    }
}
