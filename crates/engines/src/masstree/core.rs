//! The parts of a tree of any codec; how it is made, opened, closed and destroyed.
//!
//! An open after a crash takes these steps. Each may be repeated after another crash.
//!
//! 1. The first tree of a pool to be opened adds the epoch that was running to the set of failed
//!    epochs, and begins the next one.
//! 2. The nodes that the tree's external log holds of the failed epoch are restored, in parallel,
//!    and made durable.
//! 3. The ends of the free queues and the root are restored from their in-line logs. The tree is
//!    usable.
//! 4. Every other node is recovered when it is first touched: its epoch word is older than this
//!    execution (`recover`).
//! 5. A background sweep touches the nodes that are left, and then empties the set of failed epochs
//!    (`sweep`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use medium::sync::{AtomicU64, Mutex};
use medium::{Medium, Word};
use pool::{Guard, Pool};
use rustc_hash::FxHashSet;

use super::allocator::TreeSpace;
use super::external_log::ExternalLog;
use super::layout::{
    Anchor, SHARDS_MAX, SHARDS_MIN, WordBorder, anchor_bytes, border_bytes, checked,
    durable_anchor_of, interior_bytes, load_twice, publish_twice, stamp,
};
use super::options::{MassTreeOptions, Mode};
use super::shard::Own;
use super::sweep::Sweep;
use crate::kit::epochs::in_batch::{BatchMark, refuse_in_any_batch};
use crate::kit::epochs::ticker::{SweepProgress, Ticker};
use crate::kit::epochs::{Joined, Member, PoolEpochs, Shards, TreeEpochs, has_left};
use crate::{Error, Result};

/// Locks for the recovery of nodes, which are found by their offset.
const RECOVERY_LOCKS: usize = 64;
/// After this many removals, a clean close finds out which runs are empty.
const MANY_FREED: u64 = 4096;

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
    pub(super) epochs: TreeEpochs<M, Own>,
    pub(super) log: ExternalLog,
    /// Held while the root of the first layer changes.
    pub(super) root: Mutex<()>,
    /// Held while the allocator adds a run.
    pub(super) runs: Mutex<()>,
    /// Runs that were taken out, and go to the pool when the epoch has ended.
    pub(super) leaving: Mutex<Vec<u64>>,
    /// Runs that are to be emptied.
    pub(super) evacuated: Mutex<Arc<FxHashSet<u64>>>,
    /// How far the background sweep has come.
    sweep: Mutex<Sweep>,
    pub(super) recovery_locks: [Mutex<()>; RECOVERY_LOCKS],
    /// How long an operation waits for a node that does not change.
    pub(super) patience: Duration,
    /// Changes that an in-line log took.
    pub(super) in_line_logs: AtomicU64,
    pub(super) swept_keys: AtomicU64,
    pub(super) nodes_restored: u64,
    pub(super) recovery_ns: u64,
    pub(super) recovered_from_crash: bool,
    /// Whether the tree is not open, and damage hides how many shards it has or which epochs
    /// failed. Then it is not known which objects are free and which nodes are to be recovered.
    pub(super) is_doubtful: bool,
}

impl<M: Medium> Core<M> {
    /// The parts of a tree with `count` shards. This process writes from epoch `first` on; writes
    /// of the `failed` epochs may be left.
    fn new(
        pool: &Pool<M>,
        anchor: u64,
        count: usize,
        first: u64,
        failed: Vec<u64>,
        options: &MassTreeOptions,
        are_words: bool,
    ) -> Self {
        const { assert!(size_of::<WordBorder>() <= 1024 && interior_bytes() <= border_bytes(false)) };
        let are_durable = options.mode != Mode::Transient;
        let shards = Shards {
            count,
            worked_with: options.shards.clamp(1, count),
            are_durable,
        };
        Self {
            pool: pool.clone(),
            anchor,
            mode: options.mode,
            width: options.node_width(),
            are_words,
            stamp: stamp(first),
            epochs: TreeEpochs::new(pool, &shards, first, failed),
            log: ExternalLog::new(anchor, count, options.node_width(), are_words),
            root: Mutex::new(()),
            runs: Mutex::new(()),
            leaving: Mutex::new(Vec::new()),
            evacuated: Mutex::default(),
            sweep: Mutex::new(Sweep::default()),
            recovery_locks: std::array::from_fn(|_| Mutex::new(())),
            patience: options.patience,
            in_line_logs: AtomicU64::new(0),
            swept_keys: AtomicU64::new(0),
            nodes_restored: 0,
            recovery_ns: 0,
            recovered_from_crash: false,
            is_doubtful: false,
        }
    }

    /// Bytes of a border node.
    #[inline(always)]
    pub(super) fn border_bytes(&self) -> usize {
        border_bytes(self.are_words)
    }

    /// The allocator in use.
    #[inline(always)]
    pub(super) fn space<'v>(&'v self, guard: &'v Guard<'v, M>) -> TreeSpace<'v, M> {
        TreeSpace {
            anchor: self.anchor,
            runs: &self.runs,
            guard,
            epochs: &self.epochs,
        }
    }

    /// A new tree without a root. The root table leads to it only after its first epoch.
    pub(super) fn create(
        pool: &Pool<M>,
        options: &MassTreeOptions,
        are_words: bool,
    ) -> Result<Arc<Self>> {
        let count = options.shards.clamp(SHARDS_MIN, SHARDS_MAX);
        let make = |first: u64| {
            let guard = pool.peek();
            let anchor = guard.allocate_lines(anchor_bytes(count))?;
            let words = guard.words(anchor, anchor_bytes(count) / 8)?;
            words.iter().for_each(|word| word.store(&guard, 0));
            let cells = guard.node::<Anchor>(anchor)?;
            cells
                .shards
                .iter()
                .for_each(|cell| cell.store(&guard, checked(count as u64)));
            let epochs = cells.restored.iter().chain(&cells.swept);
            epochs.for_each(|cell| cell.store(&guard, checked(first)));
            guard.flush_words(words);
            // The root table leads to the anchor only after this fence and the first epoch.
            guard.fence();
            Ok(Arc::new(Self::new(
                pool,
                anchor,
                count,
                first,
                Vec::new(),
                options,
                are_words,
            )))
        };
        if options.mode == Mode::Transient {
            return make(options.first_epoch.max(1));
        }
        PoolEpochs::of(pool).join(pool, options.first_epoch, |joined| make(joined.first))
    }

    /// A tree that exists, without recovery. It must not be written.
    pub(super) fn unopened(
        pool: &Pool<M>,
        anchor: u64,
        options: &MassTreeOptions,
        are_words: bool,
    ) -> Result<Self> {
        let guard = pool.peek();
        let cells = guard.node::<Anchor>(anchor)?;
        let damaged = || Error::corrupt(anchor, "its anchor");
        // Damage is no error here: a salvage reads what is left without these numbers, and notes
        // that some of it may be old.
        let count = match load_twice(&guard, cells.shards.each_ref(), damaged) {
            Ok(Some(count)) if (SHARDS_MIN..=SHARDS_MAX).contains(&(count as usize)) => {
                Some(count as usize)
            }
            Ok(_) | Err(_) => None,
        };
        let known = PoolEpochs::<M, Own>::read(pool).ok();
        let is_doubtful = count.is_none() || known.is_none();
        let count = count.unwrap_or(SHARDS_MIN);
        let epochs = known.unwrap_or_default();
        let running = epochs.running.max(1);
        let mut core = Self::new(
            pool,
            anchor,
            count,
            running,
            epochs.failed,
            options,
            are_words,
        );
        core.is_doubtful = is_doubtful;
        Ok(core)
    }

    /// Opens a tree that exists.
    pub(super) fn open(
        pool: &Pool<M>,
        anchor: u64,
        options: &MassTreeOptions,
        are_words: bool,
    ) -> Result<Arc<Self>> {
        let start = Instant::now();
        let core = PoolEpochs::of(pool).join(pool, options.first_epoch, |joined| {
            let mut core = Self::recover(pool, anchor, options, are_words, joined)?;
            core.recovery_ns = start.elapsed().as_nanos() as u64;
            Ok(Arc::new(core))
        })?;
        if core.epochs.is_sweep_due() {
            // After an error the background sweep tries again; meanwhile the tree is usable, as
            // after any crash.
            let _ = core.sweep();
        }
        Ok(core)
    }

    /// Steps 2 and 3 of an open.
    fn recover(
        pool: &Pool<M>,
        anchor: u64,
        options: &MassTreeOptions,
        are_words: bool,
        joined: &Joined<'_>,
    ) -> Result<Self> {
        let guard = pool.peek();
        let cells = guard.node::<Anchor>(anchor)?;
        let damaged = || Error::corrupt(anchor, "the anchor is damaged");
        let word =
            |cells: &[Word; 2]| load_twice(&guard, cells.each_ref(), damaged)?.ok_or_else(damaged);
        let count = word(&cells.shards)? as usize;
        let restored = word(&cells.restored)?;
        let swept = word(&cells.swept)?;
        if !(SHARDS_MIN..=SHARDS_MAX).contains(&count) {
            return Err(damaged());
        }
        if swept <= joined.dropped {
            let what =
                "the pool has forgotten failed epochs that the tree was not opened to recover from";
            return Err(Error::corrupt(anchor, what));
        }
        let failed: Vec<u64> = joined
            .failed
            .iter()
            .copied()
            .filter(|epoch| *epoch >= swept.max(1))
            .collect();
        let unrestored: Vec<u64> = failed
            .iter()
            .copied()
            .filter(|epoch| *epoch >= restored)
            .collect();
        let mut core = Self::new(
            pool,
            anchor,
            count,
            joined.first,
            failed,
            options,
            are_words,
        );
        for epoch in &unrestored {
            core.nodes_restored += core.log.restore(pool, *epoch, options.recovery_threads)?;
        }
        core.recovered_from_crash = !unrestored.is_empty();
        if core.recovered_from_crash {
            // PERSIST: the nodes are restored; if this is lost, they are restored once more, and
            // the log is still as it was.
            publish_twice(&guard, &cells.restored, joined.first);
            // This comes before the first entry of the log in a new epoch.
            guard.fence();
        }
        if core.epochs.has_failed(cells.root.epoch.load(&guard)) {
            cells.root.restore(&guard);
            core.epochs.list_touched(
                guard.offset_of(&cells.root),
                size_of_val(&cells.root) as u64,
            );
        }
        core.space(&guard).recover()?;
        for shard in core.epochs.barrier.shards() {
            let mut shard = shard.lock();
            shard.own.log.segments = core.log.segments(&guard, shard.index)?;
        }
        if pool.needs_mark() && !options.mark_later {
            core.mark_space()?;
        }
        Ok(core)
    }

    /// Marks all space that was taken from the pool, beside writers. Runs that are taken from the
    /// pool meanwhile are new, and need no mark. O(slabs).
    pub(super) fn mark_space(&self) -> Result<()> {
        // Runs that leave the chain are marked as well: they are freed later. While this lock is
        // held, no run leaves.
        let leaving = self.leaving.lock();
        if self.epochs.are_over() {
            return Ok(());
        }
        let guard = self.pool.peek();
        let taken = {
            let _serial = self.runs.lock();
            self.space_taken(&guard)?
        };
        for offset in taken.iter().chain(&*leaving) {
            self.pool.mark(*offset)?;
        }
        Ok(())
    }

    /// All space that was taken from the pool.
    fn space_taken(&self, guard: &Guard<'_, M>) -> Result<Vec<u64>> {
        let mut taken: Vec<u64> = self
            .space(guard)
            .runs()?
            .into_iter()
            .map(|(run, _)| run)
            .collect();
        for shard in 0..self.epochs.barrier.shards().len() {
            taken.extend(self.log.segments(guard, shard)?);
        }
        taken.push(self.anchor);
        Ok(taken)
    }

    /// Gives all space back to the pool; the tree is not used again.
    pub(super) fn give_back(&self) -> Result<()> {
        // No mark is under way, and none begins.
        let _leaving = self.leaving.lock();
        let shards = self.epochs.stop_for_good();
        let guard = self.pool.peek();
        let freed = self.space_taken(&guard).map(|taken| {
            for at in taken {
                guard.free(at);
            }
        });
        drop(shards);
        // The tree leaves even if it is damaged: the thread that ends epochs stops with the last
        // tree.
        let left = self.shared().map_or(Ok(()), |epochs| {
            epochs.leave_for_good(&self.pool, &self.epochs)
        });
        freed.and(left)
    }

    /// Gives runs back to the pool of which all objects are free, and ends the epoch for that. No
    /// operation runs while the free objects are counted. O(runs + free objects).
    pub(super) fn give_back_runs(&self) -> Result<()> {
        let mut leaving = self.leaving.lock();
        if self.epochs.any_failed() {
            self.sweep()?;
        }
        let mut shards = self.epochs.stop();
        if self.epochs.are_over() {
            return Ok(());
        }
        let guard = self.pool.peek();
        leaving.extend(self.space(&guard).take_out_empty_runs(&mut shards)?);
        drop(shards);
        if !leaving.is_empty() {
            self.advance()?;
            leaving.drain(..).for_each(|run| guard.free(run));
        }
        Ok(())
    }

    /// The epochs that a durable tree shares with the others of its pool.
    pub(super) fn shared(&self) -> Option<Arc<PoolEpochs<M, Own>>> {
        (self.mode != Mode::Transient).then(|| PoolEpochs::of(&self.pool))
    }

    /// Ends the running epoch: all operations before, on all trees of the pool, are durable when
    /// this returns.
    pub(super) fn advance(&self) -> Result<()> {
        match self.shared() {
            Some(epochs) => epochs.advance(&self.pool, &self.epochs),
            None => {
                self.epochs.advance_alone();
                Ok(())
            }
        }
    }

    /// Runs a batch with the number of the running epoch, which does not end meanwhile. In a
    /// transient tree epochs do not matter, and the number is 0.
    pub(super) fn within_epoch(&self, run: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        let _mark = BatchMark::batch::<M>()?;
        match self.shared() {
            Some(epochs) => epochs.within_epoch(&self.epochs, run),
            None => run(0),
        }
    }

    /// Has a thread in the background end epochs of this length. Returns what stops it if the tree
    /// has epochs of its own.
    pub(super) fn start_ticker(self: &Arc<Self>, length: Duration) -> Result<Option<Ticker>> {
        if let Some(epochs) = self.shared() {
            return epochs.start_ticker(length).map(|()| None);
        }
        let weak = Arc::downgrade(self);
        let end = move || {
            if let Some(core) = weak.upgrade() {
                core.epochs.advance_alone();
            }
        };
        Ticker::start(length, |_| SweepProgress::Finished, end).map(Some)
    }

    /// Ends the tree's part in epochs. If `is_clean`, the running epoch ends first, so it has not
    /// failed when the tree is opened again. Epochs that failed before stay in their set until a
    /// sweep has come to its end.
    pub(super) fn close(&self, is_clean: bool) -> Result<()> {
        match self.shared() {
            Some(epochs) if !self.epochs.are_over() => {
                let freed: u64 = self
                    .epochs
                    .barrier
                    .shards()
                    .map(|shard| shard.lock().own.freed)
                    .sum();
                if is_clean && freed >= MANY_FREED {
                    // A damaged tree keeps its space; `check` tells of the damage.
                    let _ = self.give_back_runs();
                }
                epochs.leave(&self.pool, &self.epochs, is_clean)
            }
            _ => Ok(()),
        }
    }

    /// Notes that this tree has no writes of failed epochs any more. If that is so in all trees,
    /// the pool forgets these epochs.
    pub(super) fn forget_failed(&self) -> Result<()> {
        let Some(epochs) = self.shared() else {
            self.note_swept()?;
            self.epochs.forget_failed();
            return Ok(());
        };
        epochs.while_member(&self.epochs, || self.note_swept())?;
        self.epochs.forget_failed();
        let guard = self.pool.peek();
        let mut least = self.epochs.first;
        for anchor in self.pool.trees()?.iter().filter_map(durable_anchor_of) {
            let damaged = || Error::corrupt(anchor, "the anchor is damaged");
            let swept = load_twice(
                &guard,
                guard.node::<Anchor>(anchor)?.swept.each_ref(),
                damaged,
            )?;
            least = least.min(swept.unwrap_or(0));
        }
        epochs.forget_failed(&self.pool, least)
    }

    /// Writes into the anchor that no writes of failed epochs are left.
    fn note_swept(&self) -> Result<()> {
        let guard = self.pool.peek();
        let lsn = {
            // While the shards are locked, the tree is not dropped.
            let _shards = self.epochs.stop();
            if self.epochs.are_over() {
                return Err(has_left().into());
            }
            // PERSIST: no node and no link of a failed epoch is left; if this is lost, the next open
            // searches for them once more.
            publish_twice(
                &guard,
                &guard.node::<Anchor>(self.anchor)?.swept,
                self.epochs.first,
            );
            guard.fence()
        };
        guard.settle(lsn)
    }

    /// If the last end of an epoch has failed, which may have been in the background, tries again,
    /// so that a writer gets the error.
    #[inline(always)]
    pub(super) fn end_failed(&self) -> Result<()> {
        if self.epochs.is_failing() && refuse_in_any_batch::<M>().is_ok() {
            self.advance()
        } else {
            Ok(())
        }
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

impl<M: Medium> Member<M, Own> for Core<M> {
    fn epochs(&self) -> &TreeEpochs<M, Own> {
        &self.epochs
    }

    fn at_begin(&self, guard: &Guard<'_, M>, last: u64, epoch: u64) -> Result<()> {
        self.space(guard).renew_links(last, epoch)
    }

    fn sweep_some(&self) -> Result<bool> {
        self.sweep_on(&mut self.sweep.lock())
    }
}
