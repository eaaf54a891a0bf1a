//! The durable Masstree: a trie of B+-trees whose nodes carry their undo log in the lines that change.
//!
//! After Cohen, Aksun, Avni, Larus: *Fine-Grain Checkpointing with In-Cache-Line Logging*, ASPLOS 2019, on the tree of
//! Mao, Kohler, Morris: *Cache Craftiness for Fast Multicore Key-Value Storage*, EuroSys 2012.
//!
//! ## Layout
//!
//! Everything is in the pool (`layout`): the anchor, border and interior nodes, records, the external log. A key is cut into
//! slices of eight bytes; each layer of the trie is a B+-tree over one slice. The volatile word of a node (its version) is
//! made anew when it is touched first after an open. In a tree of words, whose codec says that keys and values have eight
//! bytes, there is one layer, and values lie in the border nodes themselves (`cells`).
//!
//! ## Invariants
//!
//! 1. A border node's permutation lists its entries in ascending order of slice and class; slots that it does not list are
//!    free. What it lists does not change but by the update of a value, or under the dirty bit.
//! 2. A node covers the slices from one separator above it to the next. Nodes have no links to their neighbours: the next
//!    one is found from above, by the end of what this one covers.
//! 3. What changes in an epoch can be undone from the line it lies in, or from the external log, which was durable before
//!    the change.
//! 4. Every operation lies in one epoch. At the end of an epoch all that changed in it is durable, then its number.
//! 5. What is freed in an epoch is not reused in it. Nor is the cell of a word overwritten that counted when the epoch began,
//!    but under the external log.
//!
//! ## Commit points
//!
//! | operation | persists | in memory | undone by |
//! | --- | --- | --- | --- |
//! | insert | 0 | the permutation lists the slot | permutation log |
//! | update | 0 | the value leads to the new record, or to the other cell | value log |
//! | remove | 0 | the permutation lists the slot no more | permutation log |
//! | first update in a node after an open | 1 | the same | value log |
//! | second value in a line, insert after remove | 1 | the same | external log |
//! | first change of a node after 2^15 epochs | 1 | the same | external log |
//! | split, new layer, node emptied | 1 for each node that changes | root, parent or entry | external log |
//! | new run, new segment of the external log | 1 to 3 besides | the root of runs, the chain | its in-line log; nothing |
//! | all of an epoch | 3, more beside others | | the number of the running epoch, in the anchor |
//!
//! ## Recovery
//!
//! Nodes in the external log are put back; the epoch is entered in the set of failed ones; ends of free queues and the root
//! are put back; from then on the tree is usable. Every other node is recovered when it is touched first, or by the sweep
//! (`recover`, `sweep`). An open costs O(nodes in the external log + runs).
//!
//! ## What a crash may leave behind
//!
//! In-line logs that nobody applied yet; they say of which epoch they are. Nothing else: what was allocated in the failed
//! epoch is free again, what was freed is not.
//!
//! ## Where this departs from the paper
//!
//! - *Listing 3*: a value log that is still free is written at its first use, also when the node's epoch is current (line 17
//!   forgets it). At the first change in an epoch value logs of an earlier one are cleared, so that their sixteen bits never
//!   mean another epoch; a node left alone for 2^15 epochs goes to the external log.
//! - *Listing 4*: the old epoch is kept until the value logs were applied (line 24 overwrites it before line 26 needs it);
//!   a slot that is none is skipped; permutation log and flags are made anew.
//! - *Section 4.1, Figure 1*: the nodes' links to parent and neighbours are gone. Each split would have to log the neighbour
//!   and each split of an interior node half of its children. Parents and neighbours are found by descending once more.
//! - Keys of one slice may lie in several nodes: separators have a class, too. So nodes may be narrower than ten slots.
//! - *Section 4*: no `wbinvd`, which is privileged: the first change of a node in an epoch lists it, and what is listed is
//!   flushed, most of it while others work (`epoch`).
//! - *Section 4.1*: value buffers of words lie in the node, two a slot. They are still logged as pointers, in the packed form
//!   (`cells`).
//! - *Section 5*: free objects form a queue, not a stack, so that those freed in an epoch come last; and one shard takes over
//!   what others have free before it takes new space (`allocator`). Records hold the key's rest, so there are no suffixes of
//!   their own.
//! - The failed epochs are a set that survives, of any number (`recover`).
//! - The paper's log is by thread; ours by shard, for as many threads as there are.

mod access;
mod allocator;
mod barrier;
mod batch;
mod bound;
mod cells;
mod check;
mod entry;
mod epoch;
mod external_log;
mod find;
mod get_many;
mod in_line_log;
mod insert;
mod layout;
mod load;
#[cfg(all(test, loom))]
mod loom_tests;
mod permutation;
mod record;
mod recover;
mod remove;
mod salvage;
mod scan;
mod slice;
mod split;
#[cfg(all(test, not(loom)))]
mod stuck_tests;
mod sweep;
mod version;
mod words;

pub(crate) use entry::ENTRY;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use medium::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use medium::{Lsn, Medium};
use pool::{Pool, ROOT_WORDS, TreeRoot};

use crate::index::{
    Batch, Bounds, Codec, Condition, Direction, EpochLength, EpochStat, Epochs, Index, IndexStat, Measured,
    NextEntry, Scan, Value, Violation, WordCodec, WordIndex,
};
use crate::{Error, PoolError, Result};
use barrier::Barrier;
use epoch::Shard;
use layout::{
    Anchor, INTERIOR, SHARDS, WIDTH, WIDTH_MAX, WordBorder, border_bytes, border_words_logged, checked,
    interior_bytes, interior_words_logged, stamp, unchecked,
};
use recover::Failed;
use slice::Slice;
use sweep::Sweep;

/// The fewest slots of a border node.
const WIDTH_MIN: usize = 4;

/// Root word 0: the anchor.
const ROOT_ANCHOR: usize = 0;
/// Root word 1: the width of nodes.
const ROOT_WIDTH: usize = 1;
/// Root word 2: whether the tree is transient.
const ROOT_TRANSIENT: usize = 2;

/// Locks for the recovery of nodes, which are found by their offset.
const RECOVERY_LOCKS: usize = 64;

/// How changes are made undoable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// By in-line logs, and by the external log where they do not suffice: the paper's INCLL.
    #[default]
    InLine,
    /// By the external log alone: the paper's LOGGING.
    Logging,
    /// Not at all: the paper's MT+. The tree is lost with its process, and cannot be opened again.
    Transient,
}

/// How a tree is opened.
#[derive(Clone, Copy, Debug)]
pub struct MassTreeOptions {
    /// When epochs end: by default every 64 ms.
    pub epoch: EpochLength,
    /// How changes are made undoable.
    pub mode: Mode,
    /// The most entries of a node, for tests: at least 4, at most 14, or 15 in a transient tree. By default the most.
    pub width: Option<usize>,
    /// Threads that put nodes back from the external log.
    pub recovery_threads: usize,
    /// Threads that may write at once, at most 8. A thread more waits for another one's operation.
    pub shards: usize,
    /// Whether dropping the tree ends the epoch. Without, the next open recovers as after a crash: for tests.
    pub close_cleanly: bool,
    /// How long an operation waits for a locked node that does not change. Then it ends with [`Error::Contended`].
    pub patience: Duration,
    /// The epoch in which a new tree begins, and from which on an open goes on if the next one is earlier: for tests of what
    /// happens after many.
    pub first_epoch: u64,
}

impl Default for MassTreeOptions {
    fn default() -> Self {
        Self {
            epoch: EpochLength::default(),
            mode: Mode::InLine,
            width: None,
            recovery_threads: std::thread::available_parallelism().map_or(1, usize::from),
            shards: SHARDS,
            close_cleanly: true,
            patience: Duration::from_secs(10),
            first_epoch: 1,
        }
    }
}

impl MassTreeOptions {
    /// The most entries that a node of this mode has room for.
    fn width_max(&self) -> usize {
        if self.mode == Mode::Transient { WIDTH_MAX } else { WIDTH }
    }

    fn node_width(&self) -> usize {
        self.width.unwrap_or(self.width_max())
    }

    fn check_width(&self) -> Result<()> {
        let width = self.node_width();
        if (WIDTH_MIN..=self.width_max()).contains(&width) {
            return Ok(());
        }
        let max = self.width_max();
        Err(Error::Setting { what: format!("a node of {width} entries: a node has {WIDTH_MIN} to {max}") })
    }
}

/// What is counted.
#[derive(Default)]
struct Figures {
    epochs: AtomicU64,
    nodes_logged: AtomicU64,
    in_line_logs: AtomicU64,
    lines_flushed: AtomicU64,
    pause_ns: AtomicU64,
    pause_ns_max: AtomicU64,
    swept_keys: AtomicU64,
}

impl Figures {
    fn count_pause(&self, pause: Duration) {
        let ns = pause.as_nanos() as u64;
        self.pause_ns.fetch_add(ns, Ordering::Relaxed);
        self.pause_ns_max.fetch_max(ns, Ordering::Relaxed);
    }
}

/// A tree of byte strings, whatever its codec.
struct Core<M: Medium> {
    pool: Pool<M>,
    /// Where the anchor is.
    anchor: u64,
    mode: Mode,
    /// The most entries of a border node, and separators of an interior one.
    width: usize,
    /// Whether keys and values are words: then a border node has the values in its cells.
    are_words: bool,
    /// The words that the external log keeps: of a border node, and of an interior one.
    logged: [u128; 2],
    /// The first epoch of this execution: nodes of earlier ones are not touched yet.
    first: u64,
    /// Its stamp in the epoch words of nodes.
    stamp: u64,
    /// The phase in which the line of the root and the runs was listed.
    cells_listed: AtomicU64,
    barrier: Barrier<Shard>,
    /// Nodes that were recovered, as the shards list what changed.
    touched: Mutex<Vec<u64>>,
    /// The end of the last epoch; held while an epoch ends.
    ended: Mutex<Lsn>,
    /// Whether the running epoch has something to end, though nothing may be listed: an attempt to end it failed. Changed by
    /// who holds `ended`.
    is_owed: AtomicBool,
    root: Mutex<()>,
    runs: Mutex<()>,
    recovery_locks: [Mutex<()>; RECOVERY_LOCKS],
    /// The failed epochs, as the open found them.
    failed: Failed,
    /// Whether nodes of theirs may be left.
    any_failed: AtomicBool,
    /// The tree was destroyed; its memory belongs to others.
    is_gone: AtomicBool,
    patience: Duration,
    figures: Figures,
    nodes_restored: u64,
    recovery_ns: u64,
    recovered_from_crash: bool,
}

impl<M: Medium> Core<M> {
    fn new(pool: &Pool<M>, anchor: u64, first: u64, options: &MassTreeOptions, are_words: bool) -> Self {
        const { assert!(size_of::<WordBorder>() <= 1024) };
        const { assert!(interior_bytes() <= border_bytes(false)) };
        // All of them, as each has its own free objects and log, whoever works.
        let barrier = Barrier::new(first, (0..SHARDS).map(Shard::new), options.shards.clamp(1, SHARDS));
        Self {
            pool: pool.clone(),
            anchor,
            mode: options.mode,
            width: options.node_width(),
            logged: [
                border_words_logged(options.node_width(), are_words),
                interior_words_logged(options.node_width()),
            ],
            are_words,
            first,
            stamp: stamp(first),
            cells_listed: AtomicU64::new(0),
            barrier,
            touched: Mutex::new(Vec::new()),
            ended: Mutex::new(Lsn::DURABLE),
            is_owed: AtomicBool::new(false),
            root: Mutex::new(()),
            runs: Mutex::new(()),
            recovery_locks: std::array::from_fn(|_| Mutex::new(())),
            any_failed: AtomicBool::new(false),
            failed: Failed::new(),
            is_gone: AtomicBool::new(false),
            patience: options.patience,
            figures: Figures::default(),
            nodes_restored: 0,
            recovery_ns: 0,
            recovered_from_crash: false,
        }
    }

    /// Bytes of a border node.
    #[inline(always)]
    fn border_bytes(&self) -> usize {
        border_bytes(self.are_words)
    }

    /// Bytes of the node that a pointer leads to.
    fn node_bytes(&self, pointer: u64) -> usize {
        if pointer & INTERIOR == 0 { self.border_bytes() } else { interior_bytes() }
    }

    /// The words of the node that a pointer leads to which the external log keeps, each a bit.
    fn words_logged(&self, pointer: u64) -> u128 {
        self.logged[usize::from(pointer & INTERIOR != 0)]
    }

    /// A new tree, durable but for its entry in the root table.
    fn create(pool: &Pool<M>, options: &MassTreeOptions, are_words: bool) -> Result<Self> {
        let guard = pool.peek();
        let offset = guard.allocate(size_of::<Anchor>())?;
        let core = Self::new(pool, offset, options.first_epoch.max(1), options, are_words);
        core.make(&guard).inspect_err(|_| {
            let _ = core.give_back();
        })?;
        Ok(core)
    }

    fn make(&self, guard: &pool::Guard<'_, M>) -> Result<()> {
        let words = guard.words(self.anchor, size_of::<Anchor>() / 8)?;
        words.iter().for_each(|word| word.store(guard, 0));
        guard.flush_words(words);
        // The root table leads here only after this and the first epoch.
        guard.fence();
        let made = {
            let (view, mut work) = self.enter();
            view.new_border(&mut work, &[]).and_then(|root| {
                view.set_logged(&view.anchor()?.root, root);
                view.list_cells(&mut work);
                view.begin_log(&mut work)
            })
        };
        made.map_err(|stop| stop.error_or(|| Error::corrupt(self.anchor, "a new tree that is not empty")))?;
        self.advance()
    }

    /// Opens a tree that exists: see `recover`.
    fn open(pool: &Pool<M>, anchor_offset: u64, options: &MassTreeOptions, are_words: bool) -> Result<Self> {
        let start = Instant::now();
        let guard = pool.peek();
        let anchor = guard.node::<Anchor>(anchor_offset)?;
        let running = unchecked(anchor.running.load(&guard)).filter(|running| (1..1 << 47).contains(running));
        let Some(running) = running else {
            return Err(Error::corrupt(anchor_offset, "the number of the running epoch is damaged"));
        };
        let was_closed = anchor.clean.load(&guard) == checked(1);
        let mut failed = Self::read_failed(&guard, anchor_offset)?;
        if failed.iter().any(|(_, last)| *last > running) {
            return Err(Error::corrupt(anchor_offset, "an epoch has failed that never began"));
        }
        let mut core = Self::new(pool, anchor_offset, running, options, are_words);
        if !was_closed {
            core.nodes_restored = core.restore(running, options.recovery_threads)?;
            Self::fail(&guard, anchor_offset, running, &mut failed)?;
        }
        // PERSIST: what failed is in the set, and the log is applied; lost, that is done once more. Not clean before it
        // begins: both words lie in one line. Whatever is durable later is so after this, so nobody has to wait.
        anchor.clean.store(&guard, checked(0));
        core.first = options.first_epoch.max(running + 1);
        core.stamp = stamp(core.first);
        anchor.running.publish(&guard, checked(core.first));
        guard.fence();
        core.barrier.begin(core.first);
        core.any_failed.store(!failed.is_empty(), Ordering::Release);
        core.failed = failed;
        core.recover_cells(&guard)?;
        core.adopt_segments(&guard)?;
        core.recovered_from_crash = !was_closed;
        if pool.needs_mark() {
            core.mark(&guard)?;
        }
        if core.is_sweep_due() {
            // What fails is tried again; meanwhile the tree is as usable as after any crash.
            let _ = core.sweep();
        }
        core.recovery_ns = start.elapsed().as_nanos() as u64;
        Ok(core)
    }

    /// Calls `visit` with all that was taken from the pool.
    fn visit_space(
        &self,
        guard: &pool::Guard<'_, M>,
        visit: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        self.visit_runs(guard, &mut |run, _| visit(run))?;
        for shard in 0..SHARDS {
            for segment in self.log_segments(guard, shard)? {
                visit(segment)?;
            }
        }
        visit(self.anchor)
    }

    fn mark(&self, guard: &pool::Guard<'_, M>) -> Result<()> {
        self.visit_space(guard, &mut |offset| Ok(self.pool.mark(offset)?))
    }

    /// Gives all space back to the pool; the tree is not used again.
    fn give_back(&self) -> Result<()> {
        let _ended = self.ended.lock();
        let _shards = self.stop();
        self.is_gone.store(true, Ordering::Release);
        let guard = self.pool.peek();
        let mut offsets = Vec::new();
        self.visit_space(&guard, &mut |offset| {
            offsets.push(offset);
            Ok(())
        })?;
        offsets.into_iter().for_each(|offset| guard.free(offset));
        Ok(())
    }

    /// Ends the epoch for good: it has not failed when the tree is opened next. Nodes of those that had stay in their set until
    /// a sweep has come to its end.
    fn close(&self) -> Result<()> {
        self.advance()?;
        if self.is_gone.load(Ordering::Acquire) {
            return Ok(());
        }
        let guard = self.pool.peek();
        // PERSIST: the last epoch is complete, and nothing was written since; lost, an empty epoch has failed.
        guard.node::<Anchor>(self.anchor)?.clean.publish(&guard, checked(1));
        Ok(guard.drain()?)
    }
}

/// The shortest epoch: there is to be time for something else, too.
const EPOCH_MIN: Duration = Duration::from_millis(1);

/// The thread that ends epochs.
struct Ticker {
    thread: Option<JoinHandle<()>>,
    is_stopped: Arc<AtomicBool>,
}

impl Ticker {
    fn start<M: Medium>(core: &Arc<Core<M>>, length: Duration) -> Result<Self> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (weak, stop) = (Arc::downgrade(core), Arc::clone(&is_stopped));
        let thread = std::thread::Builder::new()
            .name("everleaf-epochs".to_owned())
            .spawn(move || Self::run(&weak, &stop, length))
            .map_err(|source| {
                Error::Pool(PoolError::Io { action: "start the thread that ends epochs", source })
            })?;
        Ok(Self { thread: Some(thread), is_stopped })
    }

    fn run<M: Medium>(core: &Weak<Core<M>>, stop: &AtomicBool, length: Duration) {
        let mut sweep = Some(Sweep::default());
        loop {
            // None is beyond all time.
            let next = Instant::now().checked_add(length.max(EPOCH_MIN));
            let is_time = || next.is_none_or(|next| Instant::now() < next) && !stop.load(Ordering::Acquire);
            // At once after an open: an epoch may be longer than the tree is open.
            while sweep.is_some() && is_time() {
                let Some(core) = core.upgrade() else { return };
                match core.sweep_on(sweep.get_or_insert_default()) {
                    Ok(true) => {}
                    Ok(false) => sweep = None,
                    // It goes on there after the next epoch.
                    Err(_) => break,
                }
            }
            while is_time() {
                match next {
                    Some(next) => std::thread::park_timeout(next.saturating_duration_since(Instant::now())),
                    None => std::thread::park(),
                }
            }
            let Some(core) = core.upgrade() else { return };
            if stop.load(Ordering::Acquire) {
                return;
            }
            // What fails here fails again in `sync`, which can say so.
            let _ = core.advance();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// A durable Masstree. Epoch durability: after a crash the tree is as it was at the end of
/// the last epoch that was completed; [`Index::sync`] completes one.
pub struct MassTree<M: Medium, C: Codec> {
    // Stops before the tree is closed.
    ticker: Option<Ticker>,
    core: Arc<Core<M>>,
    close_cleanly: bool,
    codec: PhantomData<fn() -> C>,
}

impl<M: Medium, C: Codec> MassTree<M, C> {
    /// The engine's number in a pool's root table, and its name.
    pub const ENGINE: (u16, &'static str) = (ENTRY.id, ENTRY.name);
    const ARE_WORDS: bool = C::ID == WordCodec::ID;

    /// Makes an empty tree and enters it in the pool's root table. Durable when this returns.
    ///
    /// # Errors
    /// [`Error::Setting`] if a node cannot have so many entries.
    pub fn create(pool: &Pool<M>, name: &str, options: MassTreeOptions) -> Result<Self> {
        options.check_width()?;
        let core = Core::create(pool, &options, Self::ARE_WORDS)?;
        let mut words = [0; ROOT_WORDS];
        (words[ROOT_ANCHOR], words[ROOT_WIDTH]) = (core.anchor, core.width as u64);
        words[ROOT_TRANSIENT] = u64::from(options.mode == Mode::Transient);
        if let Err(error) = pool.create_tree(name, (Self::ENGINE.0, C::ID), &words) {
            if core.give_back().is_err() {
                pool.leave_unclean();
            }
            return Err(error.into());
        }
        Self::start(core, &options)
    }

    /// Opens a tree; after a crash usable at once. The width of its nodes is the one it was made with. O(nodes in the external
    /// log + slabs).
    ///
    /// # Errors
    /// [`PoolError::TreeMismatch`] if the tree is of another kind or width; [`PoolError::Corrupt`] if what recovery rests on is
    /// damaged.
    pub fn open(pool: &Pool<M>, root: &TreeRoot, options: MassTreeOptions) -> Result<Self> {
        let nodes = |width, mode| format!("{width} keys a node{mode}");
        let made = width_of(root)?;
        let options = MassTreeOptions { width: options.width.or(Some(made)), ..options };
        // What was transient is gone, so nothing opens it.
        let found = if root.words[ROOT_TRANSIENT] == 0 { "" } else { ", transient and closed" };
        let wanted = if options.mode == Mode::Transient { ", transient" } else { "" };
        let nodes = [nodes(made, found), nodes(options.node_width(), wanted)];
        root.demand((Self::ENGINE.0, C::ID), &nodes)?;
        options.check_width()?;
        Self::start(Core::open(pool, root.words[ROOT_ANCHOR], &options, Self::ARE_WORDS)?, &options)
    }

    fn start(core: Core<M>, options: &MassTreeOptions) -> Result<Self> {
        let core = Arc::new(core);
        let ticker = match options.epoch {
            EpochLength::Manual => None,
            EpochLength::Every(length) => Some(Ticker::start(&core, length)?),
        };
        let close_cleanly = options.close_cleanly && options.mode != Mode::Transient;
        Ok(Self { ticker, core, close_cleanly, codec: PhantomData })
    }

    /// Recovers what is left of failed epochs now, instead of when it is touched. O(n) after a crash, else O(1).
    pub fn sweep(&self) -> Result<()> {
        self.core.refuse_in_any_batch()?;
        self.core.sweep()
    }

    fn check_entry(key: &[u8], value: &[u8]) -> Result<()> {
        C::key(key)?;
        C::value(value)?;
        Ok(())
    }
}

/// The width of the nodes of a tree in a pool.
///
/// # Errors
/// [`PoolError::Corrupt`] if no tree can have it.
pub(crate) fn width_of(root: &TreeRoot) -> Result<usize> {
    let width = root.words[ROOT_WIDTH] as usize;
    if (WIDTH_MIN..=WIDTH_MAX).contains(&width) {
        return Ok(width);
    }
    Err(Error::corrupt(root.words[ROOT_ANCHOR], format!("nodes of {width} entries")))
}

impl<M: Medium, C: Codec> Drop for MassTree<M, C> {
    fn drop(&mut self) {
        self.ticker = None;
        if self.close_cleanly {
            // An error leaves the last epoch incomplete, as a crash does.
            let _ = self.core.close();
        }
    }
}

impl<M: Medium, C: Codec> Index for MassTree<M, C> {
    fn engine(&self) -> &'static str {
        Self::ENGINE.1
    }

    fn codec(&self) -> &'static str {
        C::NAME
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        C::key(key)?;
        let found = self.core.find(key, |view, found| {
            value.clear();
            found.copy(&view.guard, value)
        });
        // A look that was overtaken may have left something.
        if !matches!(found, Ok(Some(()))) {
            value.clear();
        }
        Ok(found?.is_some())
    }

    fn write(&self, key: &[u8], value: Option<&[u8]>, condition: Condition<&[u8]>) -> Result<bool> {
        C::key(key)?;
        if let Some(value) = value {
            C::value(value)?;
        }
        self.core.write(key, value, condition)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        let mut values = Vec::with_capacity(keys.len());
        self.core.find_many(
            keys,
            |key| Slice::of(key),
            |key| {
                values.push(Index::get(self, key)?);
                Ok(())
            },
        )?;
        Ok(values)
    }

    fn range<'i>(&'i self, bounds: Bounds, direction: Direction) -> Result<Box<dyn Scan + 'i>> {
        Ok(Box::new(scan::RangeBatches::cursor(&self.core, bounds, direction)))
    }

    fn len(&self) -> Result<u64> {
        self.core.count()
    }

    fn bulk_load(&self, next: &mut NextEntry<'_>, fill: f64) -> Result<u64> {
        self.core.load(next, fill, Self::check_entry)
    }

    fn check(&self) -> Result<Vec<Violation>> {
        self.core.refuse_in_any_batch()?;
        Ok(self.core.survey()?.violations)
    }

    fn salvage(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<Option<Vec<Violation>>> {
        self.core.salvage(visit).map(Some)
    }

    fn stat(&self) -> Result<IndexStat> {
        self.core.refuse_in_any_batch()?;
        // Before the survey, which touches what the sweep would.
        let epochs = self.epoch_stat();
        let survey = self.core.survey()?;
        Ok(IndexStat {
            keys: survey.keys,
            leaves: survey.borders,
            height: survey.height,
            volatile_bytes: self.core.volatile_bytes(),
            recovery_ns: self.core.recovery_ns,
            recovered_from_crash: self.core.recovered_from_crash,
            leaf_bytes: self.core.border_bytes() as u64,
            allocations: None,
            epochs: Some(epochs),
        })
    }

    fn destroy(&self) -> Result<()> {
        // Nobody else uses the tree, so no other batch of it is waited for.
        self.core.refuse_in_batch()?;
        self.core.give_back()
    }

    fn words(&self) -> Option<&dyn WordIndex> {
        if Self::ARE_WORDS { Some(self) } else { None }
    }

    fn epochs(&self) -> Option<&dyn Epochs> {
        Some(self)
    }

    fn measured(&self) -> Option<&dyn Measured> {
        Some(self)
    }
}

impl<M: Medium, C: Codec> Epochs for MassTree<M, C> {
    fn sync(&self) -> Result<()> {
        self.core.refuse_in_any_batch()?;
        self.core.advance()
    }

    fn batch(&self, run: &mut dyn FnMut(&dyn Batch) -> Result<()>) -> Result<()> {
        self.core.batch(&Self::check_entry, run)
    }

    fn epoch_stat(&self) -> EpochStat {
        let figures = &self.core.figures;
        EpochStat {
            running: self.core.barrier.running(),
            epochs: figures.epochs.load(Ordering::Relaxed),
            nodes_logged: figures.nodes_logged.load(Ordering::Relaxed),
            in_line_logs: figures.in_line_logs.load(Ordering::Relaxed),
            lines_flushed: figures.lines_flushed.load(Ordering::Relaxed),
            pause_ns: figures.pause_ns.load(Ordering::Relaxed),
            pause_ns_max: figures.pause_ns_max.load(Ordering::Relaxed),
            nodes_restored: self.core.nodes_restored,
            is_sweeping: self.core.any_failed.load(Ordering::Relaxed),
            swept_keys: figures.swept_keys.load(Ordering::Relaxed),
        }
    }
}

impl<M: Medium, C: Codec> Measured for MassTree<M, C> {
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let stat = self.epoch_stat();
        vec![
            ("epochs", stat.epochs),
            ("nodes_logged", stat.nodes_logged),
            ("in_line_logs", stat.in_line_logs),
            ("lines_flushed", stat.lines_flushed),
            ("pause_ns", stat.pause_ns),
        ]
    }
}

impl<M: Medium, C: Codec> WordIndex for MassTree<M, C> {
    #[inline]
    fn get(&self, key: u64) -> Result<Option<u64>> {
        self.core.find(&key.to_be_bytes(), |view, found| found.word(&view.guard))
    }

    fn write(&self, key: u64, value: Option<u64>, condition: Condition<u64>) -> Result<bool> {
        let key = key.to_be_bytes();
        let value = value.map(u64::to_be_bytes);
        let condition = condition.map(u64::to_be_bytes);
        let condition = condition.as_ref().map(|value| &value[..]);
        self.core.write(&key, value.as_ref().map(|value| &value[..]), condition)
    }

    fn get_many(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        let mut values = values.iter_mut();
        self.core.find_many(
            keys,
            |key| Slice::of(&key.to_be_bytes()),
            |key| {
                if let Some(value) = values.next() {
                    *value = WordIndex::get(self, *key)?;
                }
                Ok(())
            },
        )
    }

    fn scan(&self, from: u64, visit: &mut dyn FnMut(&[[u64; 2]]) -> bool) -> Result<()> {
        self.core.visit_words(from, visit)
    }
}
