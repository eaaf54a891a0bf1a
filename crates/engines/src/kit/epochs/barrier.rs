//! The barrier between epochs.
//!
//! There are a few *shards*. A writer locks one of them for the time of one operation, and then
//! reads the number of the epoch in which it works. To end an epoch, a thread locks all shards:
//! then no operation is under way. Readers without a shard read the number of the epoch before and
//! after (`access`).
//!
//! 1. *Normal operation.* A thread takes its own shard, or another one that is free, or else waits
//!    for its own one.
//! 2. *End of an epoch* ([`Barrier::stop`]). A thread that arrives while the shards are being
//!    locked waits until all are, even if its shard is free. Otherwise it would keep the processor
//!    from the thread that holds the last shard.
//!
//! An epoch has *phases*, for flushing dirty lines while writers work. When a phase begins, each
//! shard in turn is locked, its list of dirty nodes is taken, and its phase number is raised. So a
//! node that was listed in a phase is in the list of a shard that was in this phase. One phase
//! number for all shards would not do: a writer could read the new number before its shard was
//! emptied, and would take a node for listed that was just flushed.
//!
//! A thread that holds a shard may try to lock others, for free space, but waits for none.
//!
//! A tree that nobody writes to is *idle*: epochs end without it, and its number stays behind. Only a
//! thread that holds all shards makes it idle ([`Barrier::rest`]) or busy ([`Barrier::wake`]). So a
//! thread that has locked a shard, and finds the tree busy, works in an epoch that does not end
//! before it unlocks the shard. If it finds the tree idle, it unlocks the shard, and wakes the tree.

use medium::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, fence};

/// The shards and the running epoch. Generic so that the loom tests can use a small shard.
pub(crate) struct Barrier<S> {
    running: AtomicU64,
    /// Whether epochs end without this tree. Changes while all shards are locked.
    is_idle: AtomicBool,
    /// Whether the shards are being locked. A hint: nothing depends on it.
    is_stopping: AtomicBool,
    /// Held while the shards are being locked.
    stopping: Mutex<()>,
    shards: Box<[ShardLock<S>]>,
    /// How many of the first shards threads are spread over.
    worked_with: usize,
}

struct ShardLock<S> {
    /// Changes under the lock only.
    phase: AtomicU64,
    content: Mutex<S>,
}

/// A locked shard. The epoch does not end while this lives.
pub(crate) struct Pass<'b, S> {
    pub(crate) shard: MutexGuard<'b, S>,
    pub(crate) epoch: u64,
    /// The shard's phase. A node that is listed in it need not be listed again.
    pub(crate) phase: u64,
}

impl<S> Barrier<S> {
    /// A barrier whose threads are spread over the first `worked_with` shards.
    pub(crate) fn new(running: u64, shards: impl Iterator<Item = S>, worked_with: usize) -> Self {
        let shard = |content| ShardLock {
            phase: AtomicU64::new(1),
            content: Mutex::new(content),
        };
        Self {
            running: AtomicU64::new(running),
            is_idle: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            stopping: Mutex::new(()),
            shards: shards.map(shard).collect(),
            worked_with,
        }
    }

    /// All shards, in order.
    pub(crate) fn shards(&self) -> impl ExactSizeIterator<Item = &Mutex<S>> {
        self.shards.iter().map(|shard| &shard.content)
    }

    /// The running epoch.
    #[inline(always)]
    pub(crate) fn running(&self) -> u64 {
        // ORDER: pairs with the release in `begin`: everything that was written in earlier epochs
        // is visible.
        self.running.load(Ordering::Acquire)
    }

    /// Whether an epoch still runs. If so, no memory that the caller has read since
    /// [`Barrier::running`] returned the epoch was reused.
    #[inline(always)]
    pub(crate) fn is_running(&self, epoch: u64) -> bool {
        // ORDER: pairs with the release of a writer that reused memory, in a later epoch. The loads
        // before this fence, relaxed ones in kernels, stay before it.
        fence(Ordering::Acquire);
        self.running.load(Ordering::Acquire) == epoch
    }

    /// Whether epochs end without this tree. Certain only while a shard is locked.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed)
    }

    /// Makes the tree idle. The caller holds all shards.
    pub(crate) fn rest(&self) {
        self.is_idle.store(true, Ordering::Relaxed);
    }

    /// Makes the tree busy, in this epoch. The caller holds all shards. It notes the tree as a busy one
    /// before this epoch can end.
    pub(crate) fn wake(&self, epoch: u64) {
        self.begin(epoch);
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// Locks a shard for an operation: the thread's own, or another one that is free. Waits for its
    /// own if none is. The tree may be idle.
    pub(crate) fn enter(&self, thread: usize) -> Pass<'_, S> {
        if self.is_stopping.load(Ordering::Relaxed) {
            self.wait_until_stopped();
        }
        let own = thread % self.worked_with;
        self.shards[own]
            .try_enter(self)
            .unwrap_or_else(|| self.enter_other(own))
    }

    #[cold]
    fn wait_until_stopped(&self) {
        drop(self.stopping.lock());
    }

    #[cold]
    fn enter_other(&self, own: usize) -> Pass<'_, S> {
        let free = self.shards[..self.worked_with]
            .iter()
            .find_map(|shard| shard.try_enter(self));
        free.unwrap_or_else(|| self.shards[own].enter(self))
    }

    /// Locks the first shard for which `suits` returns true, if there is one. Waits for each shard
    /// in turn.
    pub(crate) fn enter_suitable(&self, suits: impl Fn(&S) -> bool) -> Option<Pass<'_, S>> {
        self.shards
            .iter()
            .map(|shard| shard.enter(self))
            .find(|pass| suits(&pass.shard))
    }

    /// Locks, one after the other, the shards that are wanted, by their indices, and that are free
    /// at that moment.
    pub(crate) fn enter_free(
        &self,
        is_wanted: impl Fn(usize) -> bool,
    ) -> impl Iterator<Item = Pass<'_, S>> {
        let wanted = self
            .shards
            .iter()
            .enumerate()
            .filter(move |(index, _)| is_wanted(*index));
        wanted.filter_map(|(_, shard)| shard.try_enter(self))
    }

    /// Begins a phase. `take` gets each shard after its last operation of the phase before.
    pub(crate) fn begin_phase(&self, mut take: impl FnMut(&mut S)) {
        for shard in &self.shards {
            let mut content = shard.content.lock();
            shard.phase.fetch_add(1, Ordering::Relaxed);
            take(&mut content);
        }
    }

    /// Locks all shards: no operation is under way while they are held.
    pub(crate) fn stop(&self) -> Vec<MutexGuard<'_, S>> {
        let _stopping = self.stopping.lock();
        self.is_stopping.store(true, Ordering::Relaxed);
        let shards = self
            .shards
            .iter()
            .map(|shard| shard.content.lock())
            .collect();
        self.is_stopping.store(false, Ordering::Relaxed);
        shards
    }

    /// Begins an epoch, and with it a phase. The caller holds all shards.
    pub(crate) fn begin(&self, epoch: u64) {
        // ORDER: pairs with the loads in `running` and `is_running`: a thread that sees the new
        // epoch sees all of the old one.
        self.running.store(epoch, Ordering::Release);
        for shard in &self.shards {
            shard.phase.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S> ShardLock<S> {
    fn enter<'b>(&'b self, barrier: &Barrier<S>) -> Pass<'b, S> {
        self.pass(barrier, self.content.lock())
    }

    fn try_enter<'b>(&'b self, barrier: &Barrier<S>) -> Option<Pass<'b, S>> {
        self.content
            .try_lock()
            .map(|content| self.pass(barrier, content))
    }

    fn pass<'b>(&self, barrier: &Barrier<S>, shard: MutexGuard<'b, S>) -> Pass<'b, S> {
        Pass {
            shard,
            epoch: barrier.running(),
            phase: self.phase.load(Ordering::Relaxed),
        }
    }
}
