//! Epochs: the lists of changed lines, the end of an epoch, the set of epochs that failed.
//!
//! This module is independent of node layouts. A tree has a barrier and lists of its own
//! ([`TreeEpochs`]); all trees of a pool end their epochs together ([`PoolEpochs`]). A thread works
//! with a shard of the barrier. While all shards of a tree are locked, no operation on it is under
//! way, and no thread can reach freed memory.
//!
//! An operation lists the lines that it changes, each once a *phase*; a node notes which of its
//! lines are listed. An epoch ends in these steps:
//!
//! 1. A new phase begins. The lines of the previous phase are flushed and fenced while writers go
//!    on.
//! 2. Step 1 is repeated while the list shrinks quickly and is longer than a few hundred ranges.
//! 3. All shards of all trees that are not idle are locked. The lines of the last phase are flushed and fenced.
//! 4. The number of the next epoch is published and fenced. The shards are unlocked.
//!
//! So the pause lasts as long as the longest operation, the flush of the lines that changed during
//! the last flush, and two fences.
//!
//! A tree in which nothing changed for an epoch becomes *idle*. Steps 1 to 4 leave it out, so the end
//! of an epoch costs as much as the trees that are written to, however many others are open. The
//! next writer makes it busy again ([`PoolEpochs::wake`]).
//!
//! On a medium whose fences are durable late, an epoch is one group of lines for each phase, a
//! group for the number, and one wait. The next epoch runs during the wait. That is safe: such a
//! medium writes nothing back unasked, so changes of the next epoch cannot be durable first.
//!
//! A thread in a batch keeps its epoch from ending, so it must not wait for that end: [`in_batch`]
//! refuses operations that would.
//!
//! An epoch that was running when the process ended has *failed*. It stays in a set in the pool
//! until recovery has undone all of its writes.

pub(crate) mod barrier;
pub(crate) mod in_batch;
#[cfg(all(test, loom))]
mod loom_tests;
mod of_pool;
pub(crate) mod ticker;
mod words;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use medium::sync::schedule::{Access, AccessKind, reach};
use medium::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, is_scheduled};
use medium::{LINE_BYTES, Medium, VolatileWord};
use pool::{Guard, Pool};

use crate::Result;
use barrier::{Barrier, Pass};
use of_pool::FAILED_SWEPT_AT;
pub(crate) use of_pool::{
    IDLE_EPOCHS_MAX, Joined, Member, PoolEpochs, has_left, is_complete, lost_copies,
};

/// The state that a thread needs to write: the list of changed lines, and the state of the parts of
/// a tree. It lies in cache lines of its own.
#[repr(align(128))]
pub(crate) struct Shard<S> {
    pub(crate) index: usize,
    /// The changed lines.
    listed: Vec<u64>,
    pub(crate) own: S,
}

impl<S> Shard<S> {
    /// Bytes of memory that the list takes.
    pub(crate) fn volatile_bytes(&self) -> usize {
        size_of::<Self>() + 8 * self.listed.capacity()
    }
}

/// Words for which a list has memory when an epoch begins, 256 KiB at most: a bulk load may list a
/// gigabyte.
const LISTED_KEPT: usize = 1 << 15;

/// Takes a list, and leaves an empty one for as many words.
fn take(list: &mut Vec<u64>) -> Vec<u64> {
    let room = Vec::with_capacity(list.len().min(LISTED_KEPT));
    std::mem::replace(list, room)
}

/// Listed words that are few enough for their lines to be flushed during the pause.
const LISTED_IN_PAUSE: usize = 512;
/// The number under a scheduler, where few operations run: the words of one operation.
const LISTED_IN_PAUSE_SCHEDULED: usize = 4;

/// A word of a list: the offset of a line, and a bit for each of the sixteen lines from there on
/// that changed.
#[inline(always)]
fn pack(offset: u64, lines: u64) -> u64 {
    (offset / LINE_BYTES as u64) << LINES_BITS | lines
}

/// Adds all lines of some memory to a list.
#[inline(always)]
fn push(list: &mut Vec<u64>, offset: u64, bytes: u64) {
    let mut line = offset / LINE_BYTES as u64;
    let end = (offset + bytes).div_ceil(LINE_BYTES as u64);
    while line < end {
        let count = (end - line).min(LINES_BITS.into());
        list.push(line << LINES_BITS | ((1 << count) - 1));
        line += count;
    }
}

/// Bits of a word that say which lines it stands for. In a node's `listed` word the phase is above
/// them.
const LINES_BITS: u32 = 16;
const LINES_MASK: u64 = (1 << LINES_BITS) - 1;

/// All lines of a node of `bytes` bytes.
pub(crate) const fn all_lines(bytes: usize) -> u64 {
    (1 << (bytes / LINE_BYTES)) - 1
}

/// The new value of a node's `listed` word when these lines change in a phase, and the lines that
/// have to be listed.
#[inline(always)]
pub(crate) fn note_lines(listed: u64, phase: u64, lines: u64) -> (u64, u64) {
    if listed >> LINES_BITS == phase {
        (listed | lines, lines & !listed)
    } else {
        (phase << LINES_BITS | lines, lines)
    }
}

/// Flushes the lines of a listed word; returns how many they are.
fn flush_lines<M: Medium>(guard: &Guard<'_, M>, listed: u64) -> Result<u64> {
    const WORDS: usize = LINE_BYTES / 8;
    let offset = (listed >> LINES_BITS) * LINE_BYTES as u64;
    let mut lines = listed & LINES_MASK;
    let count = u64::from(lines.count_ones());
    let words = guard.words(offset, (u64::BITS - lines.leading_zeros()) as usize * WORDS)?;
    while lines != 0 {
        let first = lines.trailing_zeros() as usize;
        let end = first + (lines >> first).trailing_ones() as usize;
        guard.flush_words(&words[first * WORDS..end * WORDS]);
        lines &= !0 << end;
    }
    Ok(count)
}

/// The counters.
#[derive(Default)]
pub(crate) struct EpochCounters {
    /// Epochs in whose ends the tree took part.
    pub(crate) epochs: AtomicU64,
    /// How often the tree became busy again.
    wakes: AtomicU64,
    pub(crate) lines_flushed: AtomicU64,
    pub(crate) pause_ns: AtomicU64,
    pub(crate) pause_ns_max: AtomicU64,
}

impl EpochCounters {
    /// Counts the end of an epoch, for which writers were held up this long.
    fn count_pause(&self, pause: Duration) {
        let pause_ns = pause.as_nanos() as u64;
        self.pause_ns.fetch_add(pause_ns, Ordering::Relaxed);
        self.pause_ns_max.fetch_max(pause_ns, Ordering::Relaxed);
    }
}

/// The shards of a tree: how many, how many of them threads are spread over, and whether epochs end
/// durably.
pub(crate) struct Shards {
    pub(crate) count: usize,
    pub(crate) worked_with: usize,
    pub(crate) are_durable: bool,
}

/// The state of a tree's epochs. `S` is the state that its parts keep in each shard.
pub(crate) struct TreeEpochs<M: Medium, S> {
    pool: Pool<M>,
    /// The running epoch of the pool; 0 for a tree that does not share the pool's epochs.
    running_in_pool: Arc<AtomicU64>,
    /// Whether the end of an epoch makes its changes durable.
    are_durable: bool,
    pub(crate) barrier: Barrier<Shard<S>>,
    /// The lines that a recovery has changed, in the form of a shard's list.
    touched: Mutex<Vec<u64>>,
    /// No epoch of the tree ends any more: its memory was given back.
    is_over: AtomicBool,
    /// The last epoch that is durable.
    durable: AtomicU64,
    /// Whether the last end of an epoch has failed.
    is_failing: AtomicBool,
    /// The first epoch in which this process has written to the tree.
    pub(crate) first: u64,
    /// Failed epochs whose writes may not all have been undone when the tree was opened.
    failed: Vec<u64>,
    /// Whether some of their writes may not be undone yet.
    any_failed: AtomicBool,
    pub(crate) figures: EpochCounters,
}

impl<M: Medium, S: Default + Send + 'static> TreeEpochs<M, S> {
    /// Epochs that begin with `first`, for a tree in which writes of `failed` epochs may be left.
    pub(crate) fn new(pool: &Pool<M>, shards: &Shards, first: u64, failed: Vec<u64>) -> Self {
        let shard = |index| Shard {
            index,
            listed: Vec::new(),
            own: S::default(),
        };
        let running_in_pool = if shards.are_durable {
            PoolEpochs::<M, S>::of(pool).running_number()
        } else {
            Arc::default()
        };
        Self {
            pool: pool.clone(),
            running_in_pool,
            are_durable: shards.are_durable,
            barrier: Barrier::new(first, (0..shards.count).map(shard), shards.worked_with),
            touched: Mutex::new(Vec::new()),
            is_over: AtomicBool::new(false),
            durable: AtomicU64::new(first - 1),
            is_failing: AtomicBool::new(false),
            first,
            any_failed: AtomicBool::new(!failed.is_empty()),
            failed,
            figures: EpochCounters::default(),
        }
    }
}

// Passes. A tree that is idle becomes busy first.
impl<M: Medium, S: Send + 'static> TreeEpochs<M, S> {
    /// Locks a shard for an operation of a thread, as [`Barrier::enter`] does.
    #[inline(always)]
    pub(crate) fn enter(&self, thread: usize) -> Pass<'_, Shard<S>> {
        loop {
            let pass = self.barrier(AccessKind::Load).enter(thread);
            if !self.barrier.is_idle() {
                return pass;
            }
            drop(pass);
            self.wake();
        }
    }

    /// Locks the first shard for which `suits` returns true, if there is one.
    pub(crate) fn enter_suitable(
        &self,
        suits: impl Fn(&Shard<S>) -> bool,
    ) -> Option<Pass<'_, Shard<S>>> {
        loop {
            let pass = self
                .barrier(AccessKind::Load)
                .enter_suitable(|shard| suits(shard))?;
            if !self.barrier.is_idle() {
                return Some(pass);
            }
            drop(pass);
            self.wake();
        }
    }

    /// Locks all shards: no operation is under way while they are held.
    pub(crate) fn stop(&self) -> Vec<MutexGuard<'_, Shard<S>>> {
        loop {
            self.reach(AccessKind::Store);
            let shards = self.barrier.stop();
            if !self.barrier.is_idle() {
                return shards;
            }
            drop(shards);
            self.wake();
        }
    }

    /// Locks all shards, as [`TreeEpochs::stop`] does. No operation begins any more, even when they
    /// are unlocked.
    pub(crate) fn stop_for_good(&self) -> Vec<MutexGuard<'_, Shard<S>>> {
        let shards = self.stop();
        self.is_over.store(true, Ordering::Release);
        shards
    }

    /// Ends the running epoch of a tree that is not durable.
    pub(crate) fn advance_alone(&self) {
        let _shards = self.stop();
        if !self.are_over() {
            self.begin(self.barrier.running() + 1);
        }
    }

    #[cold]
    fn wake(&self) {
        PoolEpochs::of(&self.pool).wake(self);
    }
}

impl<M: Medium, S> TreeEpochs<M, S> {
    /// Tells a scheduler that the thread is about to lock one shard or read the epoch (a load), or
    /// to lock all shards or change the epoch (a store).
    #[inline(always)]
    fn reach(&self, kind: AccessKind) {
        Self::reach_any(kind);
    }

    /// The same, for any trees of the pool: to a scheduler their epochs are one place.
    #[inline(always)]
    fn reach_any(kind: AccessKind) {
        if is_scheduled::<M>() {
            reach(Access::something::<Self>(kind));
        }
    }

    /// The epoch of the tree: the running one, or an earlier one if the tree is idle. Nothing changed
    /// in the tree since that epoch began.
    #[inline(always)]
    pub(crate) fn running(&self) -> u64 {
        self.barrier(AccessKind::Load).running()
    }

    /// The epoch that runs in the whole pool, also if the tree is idle.
    pub(crate) fn running_for_all(&self) -> u64 {
        // ORDER: pairs with the release at the end of an epoch.
        let in_pool = self.running_in_pool.load(Ordering::Acquire);
        self.running().max(in_pool)
    }

    /// The barrier, for a thread that is about to lock shards, or to read the epoch: see
    /// [`TreeEpochs::reach`].
    #[inline(always)]
    pub(crate) fn barrier(&self, kind: AccessKind) -> &Barrier<Shard<S>> {
        self.reach(kind);
        &self.barrier
    }

    /// Whether [`TreeEpochs::stop_for_good`] was called.
    pub(crate) fn are_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Whether writes of failed epochs may be left.
    #[inline]
    pub(crate) fn any_failed(&self) -> bool {
        self.any_failed.load(Ordering::Acquire)
    }

    /// Whether an epoch failed. The set is empty but for the time between a crash and the end of
    /// the sweep.
    #[inline]
    pub(crate) fn has_failed(&self, epoch: u64) -> bool {
        self.any_failed() && self.failed.contains(&epoch)
    }

    /// Notes that no write of a failed epoch is left.
    pub(crate) fn forget_failed(&self) {
        self.any_failed.store(false, Ordering::Release);
    }

    /// Whether an open should sweep before it returns.
    pub(crate) fn is_sweep_due(&self) -> bool {
        self.failed.len() >= FAILED_SWEPT_AT
    }

    /// Bytes of memory beside the shards'.
    pub(crate) fn volatile_bytes(&self) -> usize {
        8 * self.touched.lock().capacity() + size_of_val(&*self.failed)
    }

    /// Flushes all listed lines. If damage has listed lines that the pool does not have, the others
    /// are flushed nevertheless.
    fn flush_listed(&self, guard: &Guard<'_, M>, listed: &[Vec<u64>]) -> Result<()> {
        let mut lines = 0;
        let mut result = Ok(());
        for listed in listed.iter().flatten() {
            match flush_lines(guard, *listed) {
                Ok(flushed) => lines += flushed,
                Err(error) => result = result.and(Err(error)),
            }
        }
        self.figures
            .lines_flushed
            .fetch_add(lines, Ordering::Relaxed);
        result
    }

    /// Flushes the lines that the epoch has changed so far, while writers go on. Returns whether
    /// anything was flushed.
    fn flush_beside_others(&self, guard: &Guard<'_, M>) -> Result<bool> {
        let enough = if is_scheduled::<M>() {
            LISTED_IN_PAUSE_SCHEDULED
        } else {
            LISTED_IN_PAUSE
        };
        let mut before = None;
        loop {
            let mut listed = Vec::new();
            self.reach(AccessKind::Store);
            self.barrier
                .begin_phase(|shard| listed.push(take(&mut shard.listed)));
            listed.push(take(&mut self.touched.lock()));
            let count: usize = listed.iter().map(Vec::len).sum();
            if count == 0 {
                return Ok(before.is_some());
            }
            let flushed = self.flush_listed(guard, &listed);
            // The flushed lines are in no list any more, so they are fenced here. A fence costs
            // less here than in the pause.
            guard.fence();
            flushed?;
            // If writers list lines as fast as they are flushed, another round does not help.
            if count <= enough || before.is_some_and(|before| count > before / 2) {
                return Ok(true);
            }
            before = Some(count);
        }
    }

    /// Whether an epoch is complete and durable.
    pub(crate) fn is_durable(&self, epoch: u64) -> bool {
        self.durable.load(Ordering::Acquire) >= epoch
    }

    /// Whether the last end of an epoch has failed.
    #[inline(always)]
    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    /// Notes whether the end of the epochs before `running` has failed.
    fn note_durable(&self, running: u64) {
        self.is_failing.store(false, Ordering::Relaxed);
        self.durable.fetch_max(running - 1, Ordering::Release);
    }

    /// Notes that an epoch could not be ended.
    fn note_failed(&self) {
        self.is_failing.store(true, Ordering::Relaxed);
    }

    /// Begins an epoch. All shards are locked.
    fn begin(&self, next: u64) {
        self.reach(AccessKind::Store);
        self.barrier.begin(next);
        self.figures.epochs.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the tree busy, in this epoch: see [`Barrier::wake`].
    fn begin_again(&self, epoch: u64) {
        self.barrier.wake(epoch);
        self.figures.wakes.fetch_add(1, Ordering::Relaxed);
    }

    /// How many epochs have begun in the tree, those in which it woke up included.
    pub(crate) fn begun(&self) -> u64 {
        let ended = self.figures.epochs.load(Ordering::Relaxed);
        ended + self.figures.wakes.load(Ordering::Relaxed)
    }

    /// Whether the next epochs can end without the tree. `listed` are the lines that the tree had
    /// listed when the last epoch ended. All shards are locked.
    fn can_rest(&self, listed: &[Vec<u64>]) -> bool {
        listed.iter().all(Vec::is_empty) && self.touched.lock().is_empty() && !self.any_failed()
    }

    /// Lists memory that a recovery has changed.
    pub(crate) fn list_touched(&self, offset: u64, bytes: u64) {
        push(&mut self.touched.lock(), offset, bytes);
    }

    /// Lists lines of a node that a recovery has changed.
    pub(crate) fn list_touched_lines(&self, offset: u64, lines: u64) {
        self.touched.lock().push(pack(offset, lines));
    }

    /// Lists memory that changed, to be flushed before the epoch ends.
    #[inline(always)]
    pub(crate) fn list(&self, shard: &mut Shard<S>, offset: u64, bytes: u64) {
        if self.are_durable {
            push(&mut shard.listed, offset, bytes);
        }
    }

    /// Lists those of the lines of a locked node that are not listed already.
    #[inline(always)]
    pub(crate) fn list_node(
        &self,
        guard: &Guard<'_, M>,
        pass: &mut Pass<'_, Shard<S>>,
        offset: u64,
        listed: &VolatileWord,
        lines: u64,
    ) {
        let old = listed.load(guard, Ordering::Relaxed);
        let (new, due) = note_lines(old, pass.phase, lines);
        if due != 0 && self.are_durable {
            listed.store(guard, new, Ordering::Relaxed);
            pass.shard.listed.push(pack(offset, due));
        }
    }

    /// Lists a node of `bytes` bytes that was just made.
    pub(crate) fn list_new(
        &self,
        guard: &Guard<'_, M>,
        pass: &mut Pass<'_, Shard<S>>,
        offset: u64,
        listed: &VolatileWord,
        bytes: usize,
    ) {
        listed.start(guard, pass.phase << LINES_BITS | all_lines(bytes));
        self.list(&mut pass.shard, offset, bytes as u64);
    }
}
