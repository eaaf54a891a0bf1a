//! The parts of a tree of any codec; how it is made, opened, closed and destroyed.
//!
//! An open after a crash takes these steps. Each may be repeated after another crash.
//!
//! 1. The nodes that the external log holds of the failed epoch are restored, in parallel, and made durable.
//! 2. The epoch is added to the set of failed epochs, and the next epoch begins.
//! 3. The ends of the free queues and the root are restored from their in-line logs. The tree is usable.
//! 4. Every other node is recovered when it is first touched: its epoch word is older than this execution (`recover`).
//! 5. A background sweep touches the nodes that are left, and then empties the set of failed epochs (`sweep`).

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use medium::Medium;
use medium::sync::{AtomicU64, Mutex};
use pool::{Guard, Pool};

use super::allocator::Space;
use super::epochs::{Epochs, Shards};
use super::external_log::ExternalLog;
use super::layout::{
    Anchor, SHARDS_MAX, WordBorder, anchor_bytes, border_bytes, checked, interior_bytes, load_twice, stamp,
};
use super::options::{MassTreeOptions, Mode};
use super::shard::Own;
use crate::{Error, Result};

/// Locks for the recovery of nodes, which are found by their offset.
const RECOVERY_LOCKS: usize = 64;

/// A tree of byte strings, of any codec.
pub(super) struct Core<M: Medium> {
    pub(super) pool: Pool<M>,
    /// Where the anchor is.
    pub(super) anchor: u64,
    pub(super) mode: Mode,
    /// The most entries of a border node, and separators of an interior one.
    pub(super) width: usize,
    /// Whether keys and values are words: then a border node has the values in its cells.
    pub(super) are_words: bool,
    /// The stamp in the epoch words of nodes that this execution has touched.
    pub(super) stamp: u64,
    pub(super) epochs: Epochs<M, Own>,
    pub(super) log: ExternalLog,
    /// Held while the root of the first layer changes.
    pub(super) root: Mutex<()>,
    /// Held while the allocator adds a run.
    runs: Mutex<()>,
    pub(super) recovery_locks: [Mutex<()>; RECOVERY_LOCKS],
    /// How long an operation waits for a node that does not change.
    pub(super) patience: Duration,
    /// Changes that an in-line log took.
    pub(super) in_line_logs: AtomicU64,
    pub(super) swept_keys: AtomicU64,
    pub(super) nodes_restored: u64,
    pub(super) recovery_ns: u64,
    pub(super) recovered_from_crash: bool,
}

impl<M: Medium> Core<M> {
    fn new(
        pool: &Pool<M>,
        anchor: u64,
        epochs: Epochs<M, Own>,
        log: ExternalLog,
        options: &MassTreeOptions,
        are_words: bool,
    ) -> Self {
        const { assert!(size_of::<WordBorder>() <= 1024 && interior_bytes() <= border_bytes(false)) };
        Self {
            pool: pool.clone(),
            anchor,
            mode: options.mode,
            width: options.node_width(),
            are_words,
            stamp: stamp(epochs.first),
            epochs,
            log,
            root: Mutex::new(()),
            runs: Mutex::new(()),
            recovery_locks: std::array::from_fn(|_| Mutex::new(())),
            patience: options.patience,
            in_line_logs: AtomicU64::new(0),
            swept_keys: AtomicU64::new(0),
            nodes_restored: 0,
            recovery_ns: 0,
            recovered_from_crash: false,
        }
    }

    /// Bytes of a border node.
    #[inline(always)]
    pub(super) fn border_bytes(&self) -> usize {
        border_bytes(self.are_words)
    }

    /// The allocator in use.
    #[inline(always)]
    pub(super) fn space<'v>(&'v self, guard: &'v Guard<'v, M>) -> Space<'v, M> {
        Space { anchor: self.anchor, runs: &self.runs, guard, epochs: &self.epochs }
    }

    /// A new tree without a root. The root table leads to it only after its first epoch.
    pub(super) fn create(pool: &Pool<M>, options: &MassTreeOptions, are_words: bool) -> Result<Self> {
        // Besides the shards that threads are spread over, one is for batches.
        let count = options.shards.clamp(1, SHARDS_MAX - 1) + 1;
        let guard = pool.peek();
        let anchor = guard.allocate_lines(anchor_bytes(count))?;
        let words = guard.words(anchor, anchor_bytes(count) / 8)?;
        words.iter().for_each(|word| word.store(&guard, 0));
        let shards = &guard.node::<Anchor>(anchor)?.shards;
        shards.iter().for_each(|word| word.store(&guard, checked(count as u64)));
        guard.flush_words(words);
        // The root table leads to the anchor only after this fence and the first epoch.
        guard.fence();
        let are_durable = options.mode != Mode::Transient;
        let shards = Shards { count, worked_with: count - 1, are_durable };
        let epochs = Epochs::new(pool, anchor, &shards, options.first_epoch.max(1));
        let log = ExternalLog::new(anchor, count, options.node_width(), are_words);
        Ok(Self::new(pool, anchor, epochs, log, options, are_words))
    }

    /// A tree that exists, as it is: nothing of it is recovered, and nothing is to be written.
    pub(super) fn unopened(
        pool: &Pool<M>,
        anchor: u64,
        options: &MassTreeOptions,
        are_words: bool,
    ) -> Result<Self> {
        let guard = pool.peek();
        let cells = guard.node::<Anchor>(anchor)?;
        let (damaged, epochs) = (|| Error::corrupt(anchor, "its anchor"), &cells.epochs);
        let running = load_twice(&guard, [&epochs.running, &epochs.running_again], damaged);
        let count = load_twice(&guard, cells.shards.each_ref(), damaged);
        let count = count.ok().flatten().map_or(2, |count| (count as usize).clamp(2, SHARDS_MAX));
        let shards = Shards { count, worked_with: count - 1, are_durable: true };
        let epochs = Epochs::new(pool, anchor, &shards, running.ok().flatten().unwrap_or(1));
        let log = ExternalLog::new(anchor, count, options.node_width(), are_words);
        Ok(Self::new(pool, anchor, epochs, log, options, are_words))
    }

    /// Opens a tree that exists.
    pub(super) fn open(
        pool: &Pool<M>,
        anchor: u64,
        options: &MassTreeOptions,
        are_words: bool,
    ) -> Result<Self> {
        let start = Instant::now();
        let guard = pool.peek();
        let cells = guard.node::<Anchor>(anchor)?;
        let damaged = || Error::corrupt(anchor, "the number of shards is damaged");
        let count = load_twice(&guard, cells.shards.each_ref(), damaged)?.map_or(0, |count| count as usize);
        if !(2..=SHARDS_MAX).contains(&count) {
            return Err(damaged());
        }
        let worked_with = options.shards.clamp(1, count - 1);
        let shards = Shards { count, worked_with, are_durable: options.mode != Mode::Transient };
        let log = ExternalLog::new(anchor, count, options.node_width(), are_words);
        let mut restored = 0;
        let (epochs, has_failed) = Epochs::open(pool, anchor, &shards, options.first_epoch, |epoch| {
            restored = log.restore(pool, epoch, options.recovery_threads)?;
            Ok(())
        })?;
        let mut core = Self::new(pool, anchor, epochs, log, options, are_words);
        if core.epochs.has_failed(cells.root.epoch.load(&guard)) {
            cells.root.restore(&guard);
            core.epochs.list_touched(guard.offset_of(&cells.root), size_of_val(&cells.root) as u64);
        }
        core.space(&guard).recover()?;
        for shard in core.epochs.barrier.shards() {
            let mut shard = shard.lock();
            shard.own.log.segments = core.log.segments(&guard, shard.index)?;
        }
        (core.nodes_restored, core.recovered_from_crash) = (restored, has_failed);
        if pool.needs_mark() {
            core.space_taken(&guard)?.into_iter().try_for_each(|offset| pool.mark(offset))?;
        }
        if core.epochs.is_sweep_due() {
            // After an error the background sweep tries again; meanwhile the tree is usable, as after any crash.
            let _ = core.sweep();
        }
        core.recovery_ns = start.elapsed().as_nanos() as u64;
        Ok(core)
    }

    /// All that was taken from the pool.
    fn space_taken(&self, guard: &Guard<'_, M>) -> Result<Vec<u64>> {
        let mut taken: Vec<u64> = self.space(guard).runs()?.into_iter().map(|(run, _)| run).collect();
        for shard in 0..self.epochs.barrier.shards().len() {
            taken.extend(self.log.segments(guard, shard)?);
        }
        taken.push(self.anchor);
        Ok(taken)
    }

    /// Gives all space back to the pool; the tree is not used again.
    pub(super) fn give_back(&self) -> Result<()> {
        let _shards = self.epochs.stop_for_good();
        let guard = self.pool.peek();
        self.space_taken(&guard)?.into_iter().for_each(|offset| guard.free(offset));
        Ok(())
    }

    /// Ends the running epoch: all operations before are durable when this returns.
    pub(super) fn advance(&self) -> Result<()> {
        self.epochs.advance(|guard, next| self.space(guard).renew_links(next))
    }

    /// If the last end of an epoch has failed, as in the background, tries again: so a writer is told.
    #[inline(always)]
    pub(super) fn end_failed(&self) -> Result<()> {
        if self.epochs.is_failing() && !self.is_in_any_batch() { self.advance() } else { Ok(()) }
    }

    /// Ends the epoch. The next one has not failed when the tree is opened again. Epochs that failed before stay in their set until
    /// a sweep has come to its end.
    pub(super) fn close(&self) -> Result<()> {
        self.advance()?;
        self.epochs.close()
    }

    /// Bytes of memory beside the pool's.
    pub(super) fn volatile_bytes(&self) -> u64 {
        let shards = self.epochs.barrier.shards().map(|shard| {
            let shard = shard.lock();
            shard.volatile_bytes() + 8 * shard.own.log.segments.capacity()
        });
        (size_of::<Self>() + shards.sum::<usize>() + self.epochs.volatile_bytes()) as u64
    }

    pub(super) fn count_in_line_log(&self) {
        self.in_line_logs.fetch_add(1, Ordering::Relaxed);
    }
}
