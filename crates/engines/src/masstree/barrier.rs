//! The barrier between epochs.
//!
//! The tree has a few *shards*. A writer locks one of them for the time of one operation; the epoch that it finds then is the
//! epoch it works in. To end an epoch, a thread locks all shards: then no operation is under way. Readers without a shard read
//! the number of the epoch before and after (`access`).
//!
//! 1. *Normal operation.* A thread takes its own shard, or another one that is free, or else queues for one.
//! 2. *End of an epoch* ([`Barrier::stop`]). Threads that arrive while the shards are being locked wait until all are, even if
//!    some are free. Otherwise they would keep the processors from the thread that holds the last shard.
//! 3. *Batches and bulk loads* hold a shard for longer than an operation, and announce it
//!    ([`Barrier::enter_for_long`]). The end of an epoch waits for them first, before it locks any shard, so that writers go on.
//!    No batch begins meanwhile: the gate is closed.
//!
//! A batch may wait for an operation of another thread. So no thread waits for a shard with a batch while there is another
//! shard. A queueing thread announces itself, then looks whether a batch has the shard; a batch announces itself, then waits
//! for those that queue. One of the two sees the other. If batches hold all shards, a thread queues for its own one, and goes
//! before the next batch there.
//!
//! An epoch has *phases*, for flushing dirty lines while writers work. When a phase begins, each shard in turn is locked, its
//! list of dirty nodes is taken, and its phase number is raised. So a node that was listed in a phase is in the list of a shard
//! that was in this phase. One phase number for all shards would not do: a writer could read the new number before its shard
//! was emptied, and would take a node for listed that was just flushed.
//!
//! A thread that holds a shard may try to lock others, for free space, but waits for none.

use medium::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, fence, pause, yield_now};

/// The shards and the running epoch. Generic so that the loom tests can use a small shard.
pub(super) struct Barrier<S> {
    running: AtomicU64,
    /// Whether the shards are being locked. A hint: nothing depends on it.
    is_stopping: AtomicBool,
    /// Held while the shards are being locked.
    stopping: Mutex<()>,
    /// Held by a batch while it begins, and by the end of an epoch.
    gate: Mutex<()>,
    shards: Box<[ShardLock<S>]>,
    /// How many of the first shards threads are spread over.
    worked_with: usize,
}

struct ShardLock<S> {
    /// Odd while a batch has the shard. Raised under the gate when a batch begins, and by the batch before it unlocks.
    holds: AtomicU32,
    /// Threads that queue and go before the next batch, by the parity of that batch's number.
    queued: [AtomicU32; 2],
    /// Changes under the lock only.
    phase: AtomicU64,
    content: Mutex<S>,
}

/// A locked shard. The epoch does not end while this lives.
pub(super) struct Pass<'b, S> {
    pub(super) shard: MutexGuard<'b, S>,
    pub(super) epoch: u64,
    /// The shard's phase. A node that is listed in it need not be listed again.
    pub(super) phase: u64,
}

/// A batch has a shard. Dropped before its pass.
pub(super) struct Long<'b> {
    holds: &'b AtomicU32,
}

impl Drop for Long<'_> {
    fn drop(&mut self) {
        self.holds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether a batch has a shard, by its `holds`.
fn is_long(holds: u32) -> bool {
    holds & 1 == 1
}

/// The parity of the next batch's number.
fn next_hold(holds: u32) -> usize {
    (holds.div_ceil(2) & 1) as usize
}

impl<S> Barrier<S> {
    /// At least one shard. Threads are spread over the first `worked_with`; they use the others when those are free.
    pub(super) fn new(running: u64, shards: impl Iterator<Item = S>, worked_with: usize) -> Self {
        let shard = |content| ShardLock {
            holds: AtomicU32::new(0),
            queued: [AtomicU32::new(0), AtomicU32::new(0)],
            phase: AtomicU64::new(1),
            content: Mutex::new(content),
        };
        let shards: Box<[_]> = shards.map(shard).collect();
        Self {
            running: AtomicU64::new(running),
            is_stopping: AtomicBool::new(false),
            stopping: Mutex::new(()),
            gate: Mutex::new(()),
            shards,
            worked_with,
        }
    }

    /// All shards, in order.
    pub(super) fn shards(&self) -> impl Iterator<Item = &Mutex<S>> {
        self.shards.iter().map(|shard| &shard.content)
    }

    /// The running epoch.
    #[inline(always)]
    pub(super) fn running(&self) -> u64 {
        // ORDER: pairs with the release in `begin`: all that earlier epochs wrote is visible.
        self.running.load(Ordering::Acquire)
    }

    /// Whether an epoch still runs. Then nothing that the caller read since [`Barrier::running`] returned it was reused.
    #[inline(always)]
    pub(super) fn is_running(&self, epoch: u64) -> bool {
        // ORDER: pairs with the release of a writer that reused memory, in a later epoch. The loads before this fence, relaxed
        // ones in kernels, stay before it.
        fence(Ordering::Acquire);
        self.running.load(Ordering::Acquire) == epoch
    }

    /// The thread's own shard.
    #[inline(always)]
    fn own(&self, thread: usize) -> &ShardLock<S> {
        &self.shards[thread % self.worked_with]
    }

    /// The shards that threads are spread over, from the thread's own on.
    fn beginning_with_own(&self, thread: usize) -> impl Iterator<Item = &ShardLock<S>> {
        let (before, from) = self.shards[..self.worked_with].split_at(thread % self.worked_with);
        from.iter().chain(before)
    }

    /// Locks a shard for an operation: the thread's own, or another one that is free. Queues if none is.
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
        let free = self.beginning_with_own(thread).find_map(|shard| shard.try_enter(self));
        free.unwrap_or_else(|| self.enter_busy(thread))
    }

    /// As [`Barrier::enter`], when no shard was free.
    pub(super) fn enter_busy(&self, thread: usize) -> Pass<'_, S> {
        loop {
            let soon = self.beginning_with_own(thread).find_map(|shard| shard.queue(self, false));
            if let Some(pass) = soon.or_else(|| self.own(thread).queue(self, true)) {
                return pass;
            }
        }
    }

    /// As [`Barrier::enter`], but does not wait for batches: `None` if they hold all shards.
    pub(super) fn enter_beside_long(&self, thread: usize) -> Option<Pass<'_, S>> {
        loop {
            let free = self.beginning_with_own(thread).find_map(|shard| shard.try_enter(self));
            if free.is_some() || self.beginning_with_own(thread).all(ShardLock::is_held_long) {
                return free;
            }
            yield_now();
        }
    }

    /// Locks a shard that suits, if there is one. Waits for each in turn, and for those that batches hold last.
    pub(super) fn enter_suitable(&self, suits: impl Fn(&S) -> bool) -> Option<Pass<'_, S>> {
        let mut late = Vec::new();
        for shard in &self.shards {
            match shard.queue(self, false) {
                Some(pass) if suits(&pass.shard) => return Some(pass),
                Some(_) => {}
                None => late.push(shard),
            }
        }
        late.into_iter().map(|shard| shard.pass(self, shard.content.lock())).find(|pass| suits(&pass.shard))
    }

    /// Locks a shard for a batch. Waits while an epoch ends.
    pub(super) fn enter_for_long(&self, thread: usize) -> (Pass<'_, S>, Long<'_>) {
        loop {
            let gate = self.gate.lock();
            if let Some(shard) = self.beginning_with_own(thread).find(|shard| !shard.is_held_long()) {
                // From here on no thread begins to queue for it.
                let holds = shard.holds.fetch_add(1, Ordering::Relaxed);
                // ORDER: pairs with the fence in `queue`: a queueing thread that is not seen here sees the batch.
                fence(Ordering::SeqCst);
                let mut spins = 0;
                while shard.queued[next_hold(holds)].load(Ordering::Relaxed) > 0 {
                    pause(&mut spins);
                }
                let pass = shard.pass(self, shard.content.lock());
                return (pass, Long { holds: &shard.holds });
            }
            drop(gate);
            drop(self.own(thread).content.lock());
        }
    }

    /// Each shard that is wanted, by its index, and free just now.
    pub(super) fn enter_free(&self, is_wanted: impl Fn(usize) -> bool) -> impl Iterator<Item = Pass<'_, S>> {
        let wanted = self.shards.iter().enumerate().filter(move |(index, _)| is_wanted(*index));
        wanted.filter_map(|(_, shard)| shard.try_enter(self))
    }

    /// Begins a phase. `take` gets each shard after its last operation of the phase before.
    pub(super) fn begin_phase(&self, mut take: impl FnMut(&mut S)) {
        for shard in &self.shards {
            let mut content = shard.content.lock();
            shard.phase.fetch_add(1, Ordering::Relaxed);
            take(&mut content);
        }
    }

    /// Waits until no batch is under way, while writers go on. No batch begins while the gate is held.
    pub(super) fn close_gate(&self) -> MutexGuard<'_, ()> {
        let gate = self.gate.lock();
        // No batch begins, so when each of these was free once, no batch is left.
        for shard in self.shards.iter().filter(|shard| shard.is_held_long()) {
            drop(shard.content.lock());
        }
        gate
    }

    /// Locks all shards: no operation is under way while they are held.
    pub(super) fn stop(&self, _gate: MutexGuard<'_, ()>) -> Vec<MutexGuard<'_, S>> {
        let _stopping = self.stopping.lock();
        self.is_stopping.store(true, Ordering::Relaxed);
        let shards = self.shards.iter().map(|shard| shard.content.lock()).collect();
        self.is_stopping.store(false, Ordering::Relaxed);
        shards
    }

    /// Begins an epoch, and with it a phase. The caller holds all shards.
    pub(super) fn begin(&self, epoch: u64) {
        // ORDER: pairs with the loads in `running` and `is_running`: a thread that sees the new epoch sees all of the old one.
        self.running.store(epoch, Ordering::Release);
        for shard in &self.shards {
            shard.phase.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S> ShardLock<S> {
    fn is_held_long(&self) -> bool {
        is_long(self.holds.load(Ordering::Relaxed))
    }

    /// Waits for a shard. `None` if a batch holds it, unless `in_any_case`, or if another batch begins there.
    fn queue<'b>(&'b self, barrier: &Barrier<S>, in_any_case: bool) -> Option<Pass<'b, S>> {
        let holds = self.holds.load(Ordering::Relaxed);
        if is_long(holds) && !in_any_case {
            return None;
        }
        let queued = &self.queued[next_hold(holds)];
        queued.fetch_add(1, Ordering::Relaxed);
        // ORDER: pairs with the fence in `enter_for_long`: a batch that does not see this thread queue is seen here.
        fence(Ordering::SeqCst);
        let is_as_before = self.holds.load(Ordering::Relaxed) == holds;
        let pass = is_as_before.then(|| self.pass(barrier, self.content.lock()));
        queued.fetch_sub(1, Ordering::Relaxed);
        pass
    }

    fn try_enter<'b>(&'b self, barrier: &Barrier<S>) -> Option<Pass<'b, S>> {
        self.content.try_lock().map(|content| self.pass(barrier, content))
    }

    fn pass<'b>(&self, barrier: &Barrier<S>, shard: MutexGuard<'b, S>) -> Pass<'b, S> {
        Pass { shard, epoch: barrier.running(), phase: self.phase.load(Ordering::Relaxed) }
    }
}
