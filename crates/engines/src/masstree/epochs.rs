//! Epochs: the list of what changed, the end of an epoch, the set of epochs that failed.
//!
//! Nothing here knows a tree. A thread works with a shard of the `barrier`. While all shards are locked, no operation is under way,
//! and no thread can reach what was freed.
//!
//! An operation lists the lines that it changes, each once a *phase*; a node notes which of its lines are listed. An epoch
//! ends in these steps:
//!
//! 1. A new phase begins. The lines of the previous phase are flushed and fenced while writers go on.
//! 2. Step 1 is repeated while the list shrinks quickly and is longer than a few hundred ranges.
//! 3. All shards are locked. The lines of the last phase are flushed and fenced.
//! 4. The number of the next epoch is published and fenced. The shards are unlocked.
//!
//! So the pause is the longest operation, the flush of what changed during the last flush, and two fences.
//!
//! On a medium whose fences are durable late, an epoch is one group of lines for each phase, a group for the number, and one
//! wait. The next epoch runs during the wait. That is safe: such a medium writes nothing back unasked, so changes of the next
//! epoch cannot be durable first.
//!
//! An epoch that was running when the process ended has *failed*. It stays in a set in the pool until nothing is left that was
//! written in it (`sweep`).

mod failed;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use medium::sync::schedule::{Access, AccessKind, reach};
use medium::sync::{Mutex, MutexGuard, is_scheduled};
use medium::{LINE_BYTES, Lsn, Medium, VolatileWord};
use pool::{Guard, Pool};

use super::barrier::{Barrier, Pass};
use super::layout::{EpochWords, FAILED_MAX, all_lines, checked, load_twice};
use crate::Result;

/// Failed epochs from which on an open sweeps at once.
const FAILED_SWEPT_AT: usize = FAILED_MAX - 4;

/// What a thread needs to write: the list of what changed, and what the parts of a tree keep. In lines of its own.
#[repr(align(128))]
pub(super) struct Shard<S> {
    pub(super) index: usize,
    /// What changed.
    listed: Vec<u64>,
    pub(super) own: S,
}

impl<S> Shard<S> {
    /// Bytes of memory that the list takes.
    pub(super) fn volatile_bytes(&self) -> usize {
        size_of::<Self>() + 8 * self.listed.capacity()
    }
}

/// Words for which a list has memory when an epoch begins, 256 KiB at most: a bulk load may list a gigabyte.
const LISTED_KEPT: usize = 1 << 15;

/// Takes a list, and leaves an empty one for as many words.
fn take(list: &mut Vec<u64>) -> Vec<u64> {
    let room = Vec::with_capacity(list.len().min(LISTED_KEPT));
    std::mem::replace(list, room)
}

/// Listed words that are few enough for their lines to be flushed during the pause.
const LISTED_IN_PAUSE: usize = 512;
/// The same under a scheduler, whose operations are as few: those of one operation.
const LISTED_IN_PAUSE_SCHEDULED: usize = 4;

/// A word of a list: a line, and which of the sixteen lines from there on changed.
#[inline(always)]
fn pack(offset: u64, lines: u64) -> u64 {
    (offset / LINE_BYTES as u64) << LINES_BITS | lines
}

/// Adds all lines of some memory to a list.
#[inline(always)]
fn push(list: &mut Vec<u64>, offset: u64, bytes: u64) {
    let (mut line, end) = (offset / LINE_BYTES as u64, (offset + bytes).div_ceil(LINE_BYTES as u64));
    while line < end {
        let count = (end - line).min(LINES_BITS.into());
        list.push(line << LINES_BITS | ((1 << count) - 1));
        line += count;
    }
}

/// Bits of a word that say which lines it stands for. In a node's `listed` word the phase is above them.
const LINES_BITS: u32 = 16;
const LINES_MASK: u64 = (1 << LINES_BITS) - 1;

/// What a node's `listed` word becomes when these lines change in a phase, and which of them have to be listed.
#[inline(always)]
pub(super) fn note_lines(listed: u64, phase: u64, lines: u64) -> (u64, u64) {
    if listed >> LINES_BITS == phase {
        (listed | lines, lines & !listed)
    } else {
        (phase << LINES_BITS | lines, lines)
    }
}

/// Flushes the lines of a listed word; returns how many they are.
fn flush_lines<M: Medium>(guard: &Guard<'_, M>, listed: u64) -> Result<u64> {
    const WORDS: usize = LINE_BYTES / 8;
    let (offset, mut lines) = ((listed >> LINES_BITS) * LINE_BYTES as u64, listed & LINES_MASK);
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

/// What is counted.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) epochs: AtomicU64,
    pub(super) lines_flushed: AtomicU64,
    pub(super) pause_ns: AtomicU64,
    pub(super) pause_ns_max: AtomicU64,
}

/// The shards of new epochs: how many, how many of them threads are spread over, and whether they end durably.
pub(super) struct Shards {
    pub(super) count: usize,
    pub(super) worked_with: usize,
    pub(super) are_durable: bool,
}

/// The epochs of a pool's owner. `S` is what the owner keeps in each shard.
pub(super) struct Epochs<M: Medium, S> {
    pool: Pool<M>,
    /// Where the pool has [`EpochWords`].
    words: u64,
    /// Whether the end of an epoch makes durable what changed in it.
    are_durable: bool,
    pub(super) barrier: Barrier<Shard<S>>,
    /// What a recovery has changed, as the shards list what changed.
    touched: Mutex<Vec<u64>>,
    /// The end of the last epoch; held while an epoch ends.
    ended: Mutex<Lsn>,
    /// Whether the running epoch has something to end, though nothing may be listed: an attempt to end it failed. Changed by the
    /// thread that holds `ended`.
    is_owed: AtomicBool,
    /// No epoch ends any more: the memory belongs to others.
    is_over: AtomicBool,
    /// The last epoch that is durable.
    durable: AtomicU64,
    /// Whether the last end of an epoch has failed.
    is_failing: AtomicBool,
    /// The first epoch of this execution.
    pub(super) first: u64,
    /// Failed epochs, as the open found them.
    failed: Vec<u64>,
    /// Whether something of failed epochs may be left.
    any_failed: AtomicBool,
    pub(super) figures: Figures,
}

impl<M: Medium, S: Default> Epochs<M, S> {
    /// Epochs that begin with `first`. The caller has written zeros to [`EpochWords`].
    pub(super) fn new(pool: &Pool<M>, words: u64, shards: &Shards, first: u64) -> Self {
        let shard = |index| Shard { index, listed: Vec::new(), own: S::default() };
        Self {
            pool: pool.clone(),
            words,
            are_durable: shards.are_durable,
            barrier: Barrier::new(first, (0..shards.count).map(shard), shards.worked_with),
            touched: Mutex::new(Vec::new()),
            ended: Mutex::new(Lsn::DURABLE),
            is_owed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            durable: AtomicU64::new(first - 1),
            is_failing: AtomicBool::new(false),
            first,
            failed: Vec::new(),
            any_failed: AtomicBool::new(false),
            figures: Figures::default(),
        }
    }
}

impl<M: Medium, S> Epochs<M, S> {
    /// Tells a scheduler that the thread is about to lock one shard or read the epoch (a load), or to lock all shards or change
    /// the epoch (a store).
    #[inline(always)]
    fn reach(&self, kind: AccessKind) {
        if is_scheduled::<M>() {
            reach(Access::something::<Self>(kind));
        }
    }

    /// The running epoch.
    #[inline(always)]
    pub(super) fn running(&self) -> u64 {
        self.barrier(AccessKind::Load).running()
    }

    /// The barrier, for a thread that is about to lock shards, or to read the epoch: see [`Epochs::reach`].
    #[inline(always)]
    pub(super) fn barrier(&self, kind: AccessKind) -> &Barrier<Shard<S>> {
        self.reach(kind);
        &self.barrier
    }

    /// Locks all shards: no operation is under way while they are held.
    pub(super) fn stop(&self) -> Vec<MutexGuard<'_, Shard<S>>> {
        self.reach(AccessKind::Store);
        self.barrier.stop(self.barrier.close_gate())
    }

    /// As [`Epochs::stop`], and no epoch ends any more.
    pub(super) fn stop_for_good(&self) -> Vec<MutexGuard<'_, Shard<S>>> {
        let _ended = self.ended.lock();
        let shards = self.stop();
        self.is_over.store(true, Ordering::Release);
        shards
    }

    /// Whether [`Epochs::stop_for_good`] was called.
    pub(super) fn are_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Whether something of failed epochs may be left.
    #[inline]
    pub(super) fn any_failed(&self) -> bool {
        self.any_failed.load(Ordering::Acquire)
    }

    /// Whether an epoch failed. The set is empty but for the time between a crash and the end of the sweep.
    #[inline]
    pub(super) fn has_failed(&self, epoch: u64) -> bool {
        self.any_failed() && self.failed.contains(&epoch)
    }

    /// Whether an open should sweep before it returns.
    pub(super) fn is_sweep_due(&self) -> bool {
        self.failed.len() >= FAILED_SWEPT_AT
    }

    /// Bytes of memory beside the shards'.
    pub(super) fn volatile_bytes(&self) -> usize {
        8 * self.touched.lock().capacity() + size_of_val(&*self.failed)
    }

    /// Flushes all listed lines. If damage has listed lines that the pool does not have, the others are flushed nevertheless.
    fn flush_listed(&self, guard: &Guard<'_, M>, listed: &[Vec<u64>]) -> Result<()> {
        let (mut lines, mut result) = (0, Ok(()));
        for listed in listed.iter().flatten() {
            match flush_lines(guard, *listed) {
                Ok(flushed) => lines += flushed,
                Err(error) => result = result.and(Err(error)),
            }
        }
        self.figures.lines_flushed.fetch_add(lines, Ordering::Relaxed);
        result
    }

    /// Flushes what the epoch has changed so far, while writers go on. Returns whether anything was flushed.
    fn flush_beside_others(&self, guard: &Guard<'_, M>) -> Result<bool> {
        let enough = if is_scheduled::<M>() { LISTED_IN_PAUSE_SCHEDULED } else { LISTED_IN_PAUSE };
        let mut before = None;
        loop {
            let mut listed = Vec::new();
            self.reach(AccessKind::Store);
            self.barrier.begin_phase(|shard| listed.push(take(&mut shard.listed)));
            listed.push(take(&mut self.touched.lock()));
            let count: usize = listed.iter().map(Vec::len).sum();
            if count == 0 {
                return Ok(before.is_some());
            }
            let flushed = self.flush_listed(guard, &listed);
            // The flushed lines are in no list any more, so they are fenced here. A fence costs less here than in the pause.
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
    pub(super) fn is_durable(&self, epoch: u64) -> bool {
        self.durable.load(Ordering::Acquire) >= epoch
    }

    /// Whether the last end of an epoch has failed.
    #[inline(always)]
    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    /// Ends the running epoch: all operations before are durable when this returns. `at_end` gets the number of the next epoch
    /// while no operation is under way.
    pub(super) fn advance(&self, at_end: impl FnOnce(&Guard<'_, M>, u64) -> Result<()>) -> Result<()> {
        let ended = self.end(at_end);
        self.is_failing.store(ended.is_err(), Ordering::Relaxed);
        ended
    }

    fn end(&self, at_end: impl FnOnce(&Guard<'_, M>, u64) -> Result<()>) -> Result<()> {
        let mut ended = self.ended.lock();
        if self.are_over() {
            return Ok(());
        }
        let guard = self.pool.peek();
        if !self.are_durable {
            let _shards = self.stop();
            self.begin(self.barrier.running() + 1);
            return Ok(());
        }
        // After an error the flushed lines are in no list any more. This flag makes the next attempt end the epoch nevertheless.
        let is_owed = self.is_owed.swap(true, Ordering::Relaxed);
        let something = self.flush_beside_others(&guard)? || is_owed;
        self.reach(AccessKind::Store);
        let gate = self.barrier.close_gate();
        let pause = Instant::now();
        // Dropped after the shards are unlocked: to free memory may take long.
        let mut listed = Vec::new();
        let mut shards = self.barrier.stop(gate);
        listed.extend(shards.iter_mut().map(|shard| take(&mut shard.listed)));
        listed.push(take(&mut self.touched.lock()));
        if !something && listed.iter().all(Vec::is_empty) {
            drop(shards);
            self.is_owed.store(false, Ordering::Relaxed);
            // The last epoch may not be durable yet, or may have failed to become so: this caller is told, too.
            return guard.settle(*ended);
        }
        let flushed = self.flush_listed(&guard, &listed);
        guard.fence();
        flushed?;
        let next = self.barrier.running() + 1;
        // PERSIST: all that changed in the epoch is ordered before; lost, the epoch has failed.
        let cells = guard.node::<EpochWords>(self.words)?;
        cells.running_again.store(&guard, checked(next));
        cells.running.publish(&guard, checked(next));
        *ended = guard.fence();
        self.is_owed.store(false, Ordering::Relaxed);
        self.begin(next);
        let at_end = at_end(&guard, next);
        drop(shards);
        let pause_ns = pause.elapsed().as_nanos() as u64;
        self.figures.pause_ns.fetch_add(pause_ns, Ordering::Relaxed);
        self.figures.pause_ns_max.fetch_max(pause_ns, Ordering::Relaxed);
        // The next epoch runs while this one becomes durable.
        guard.settle(*ended)?;
        self.durable.fetch_max(next - 1, Ordering::Release);
        at_end
    }

    /// Begins an epoch. All shards are locked.
    fn begin(&self, next: u64) {
        self.reach(AccessKind::Store);
        self.barrier.begin(next);
        self.figures.epochs.fetch_add(1, Ordering::Relaxed);
    }

    /// Lists memory that a recovery has changed.
    pub(super) fn list_touched(&self, offset: u64, bytes: u64) {
        push(&mut self.touched.lock(), offset, bytes);
    }

    /// Lists lines of a node that a recovery has changed.
    pub(super) fn list_touched_lines(&self, offset: u64, lines: u64) {
        self.touched.lock().push(pack(offset, lines));
    }

    /// Lists memory that changed, to be flushed before the epoch ends.
    #[inline(always)]
    pub(super) fn list(&self, shard: &mut Shard<S>, offset: u64, bytes: u64) {
        if self.are_durable {
            push(&mut shard.listed, offset, bytes);
        }
    }

    /// Lists lines of a locked node, those that are not listed already.
    #[inline(always)]
    pub(super) fn list_node(
        &self,
        pass: &mut Pass<'_, Shard<S>>,
        offset: u64,
        listed: &VolatileWord,
        lines: u64,
    ) {
        let old = listed.get().load(Ordering::Relaxed);
        let (new, due) = note_lines(old, pass.phase, lines);
        if due != 0 && self.are_durable {
            listed.get().store(new, Ordering::Relaxed);
            pass.shard.listed.push(pack(offset, due));
        }
    }

    /// Lists a node of so many bytes that was made just now.
    pub(super) fn list_new(
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
