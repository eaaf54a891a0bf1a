//! The durable Masstree: a trie of B+-trees whose nodes carry their undo log in the lines that
//! change.
//!
//! After Cohen, Aksun, Avni, Larus: *Fine-Grain Checkpointing with In-Cache-Line Logging*, ASPLOS
//! 2019, on the tree of Mao, Kohler, Morris: *Cache Craftiness for Fast Multicore Key-Value
//! Storage*, EuroSys 2012.
//!
//! ## Layout
//!
//! Everything is in the pool (`layout`): the anchor, border and interior nodes, records, the
//! external log. A key is cut into slices of eight bytes; each layer of the trie is a B+-tree over
//! one slice. The version of a node is volatile: the first touch after an open resets it. In a tree
//! of words, whose codec says that keys and values have eight bytes, there is one layer, and values
//! lie in the border nodes themselves (`cells`).
//!
//! ## Invariants
//!
//! 1. A border node's permutation lists its entries in ascending order of slice and class; slots
//!    that it does not list are free. A listed slot changes only by the update of its value, or
//!    while the dirty bit is set.
//! 2. A node covers the slices from one separator above it to the next. Nodes have no links to
//!    their neighbours: the next one is found by a descent to the upper bound of this one.
//! 3. Every change of an epoch can be undone, from a log in the same line or from the external log,
//!    which was durable before the change.
//! 4. Every operation lies in one epoch. At the end of an epoch all of its changes become durable,
//!    and then the number of the next one.
//! 5. An object that is freed in an epoch is not reused in it. A cell that was valid when the epoch
//!    began is not overwritten in it, unless its node is in the external log.
//!
//! ## Commit points
//!
//! | operation | persists | in memory | undone by |
//! | --- | --- | --- | --- |
//! | insert | 0 | the permutation lists the slot | permutation log |
//! | update | 0 | the value leads to the new record, or to the other cell | value log |
//! | remove | 0 | the permutation no longer lists the slot | permutation log |
//! | first update in a node after an open | 1 | the same | value log |
//! | second value in a line, insert after remove | 1 | the same | external log |
//! | first change of a node after 2^15 epochs | 1 | the same | external log |
//! | split, new layer, node emptied | 1 for each node that changes | root, parent or entry | external log |
//! | new run, new segment of the external log | 1 to 3 besides | the root of runs, the chain | its in-line log; nothing |
//! | all of an epoch | 3, more beside others | | the number of the running epoch, in the pool's prefix, of all trees |
//!
//! ## Recovery
//!
//! The epoch is added to the set of failed ones; nodes are restored from the external log; the ends
//! of the free queues and the root are restored; then the tree is usable. Every other node is
//! recovered when it is first touched, or by the sweep (`recover`, `sweep`). An open costs O(nodes
//! in the external log + runs).
//!
//! ## What a crash may leave behind
//!
//! In-line logs that were not applied yet; they name their epoch. Nothing else: objects that were
//! allocated in the failed epoch are free again, and objects that were freed in it are not free.
//!
//! ## Where this departs from the paper
//!
//! - *Listing 3*: a value log that is still free is written at its first use, also when the node's
//!   epoch is current (line 17 forgets it). At the first change in an epoch value logs of an
//!   earlier one are cleared, so that their sixteen bits never mean another epoch; a node left
//!   alone for 2^15 epochs goes to the external log.
//! - *Listing 4*: the old epoch is kept until the value logs were applied (line 24 overwrites it
//!   before line 26 needs it); a slot number beyond the node is skipped; permutation log and flags
//!   are reset.
//! - *Section 4.1, Figure 1*: the nodes' links to parent and neighbours are gone. Each split would
//!   have to log the neighbour and each split of an interior node half of its children. Parents and
//!   neighbours are found by descending once more.
//! - Keys of one slice may lie in several nodes: separators have a class, too. So nodes may be
//!   narrower than ten slots.
//! - *Section 4*: no `wbinvd`, which is privileged: the first change of a node in an epoch lists
//!   it, and the listed lines are flushed, most of them while writers go on (`kit::epochs`).
//! - *Section 4.1*: value buffers of words lie in the node, two a slot. They are still logged as
//!   pointers, in the packed form (`cells`).
//! - *Section 5*: free objects form a queue, not a stack, so that those freed in an epoch come
//!   last; and a shard takes free objects of other shards before it takes new space (`allocator`).
//!   Records hold the rest of the key, so there are no separate suffixes.
//! - The set of failed epochs is durable (`kit::epochs`).
//! - The trees of a pool share their epochs (`kit::epochs`).
//! - The paper has a log for each thread. Here each shard has one, so the number of threads does
//!   not matter.
//!
//! ## Parts
//!
//! Each row depends on the rows above it, and on none below.
//!
//! | part | files |
//! | --- | --- |
//! | words of the pool | `layout` `slice` `permutation` `value_log` `version` `options` |
//! | external log, allocator, which know no nodes | `shard` `external_log` `allocator` |
//! | the parts together; recovery | `core` `recover` `sweep` |
//! | access to nodes | `access` `record` `cells` `nodes` `in_line_log` |
//! | operations | `find` `get_many` `scan`; `split` `remove` `insert` `write` `load` `relocate`; `changed` `check` |
//!
//! Only `mod` and `entry` are generic over codecs, so the rest is compiled once for each medium.

mod access;
mod allocator;
mod cells;
mod changed;
mod check;
mod copies;
mod core;
mod entry;
mod external_log;
mod find;
mod get_many;
mod in_line_log;
mod insert;
mod layout;
mod load;
mod nodes;
mod options;
mod permutation;
mod record;
mod recover;
mod relocate;
mod remove;
mod scan;
mod shard;
mod slice;
mod split;
#[cfg(all(test, not(loom)))]
mod stuck_tests;
mod sweep;
mod value_log;
mod version;
mod write;

pub(crate) use copies::{mend_epochs, visit_lost_words};
pub(crate) use entry::ENTRY;
pub use options::{MassTreeOptions, Mode};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use medium::{Lsn, Medium};
use pool::{Evacuate, NewTree, Pool, ROOT_WORDS, TreeRoot};

use self::core::Core;
use crate::engine::instrumented_trees;
use crate::index::{
    Bounds, Codec, Condition, Direction, EpochLength, EpochStat, Epochs, EvacuatedKeys, Index,
    IndexStat, LeftOut, Moved, NextEntry, Observed, OwnSpace, Part, Scan, Value, Violation,
    VisitWords, WordCodec, WordIndex, Written,
};
use crate::kit::epochs::in_batch::refuse_in_any_batch;
use crate::kit::epochs::ticker::Ticker;
use crate::{Error, Result};
use layout::{ROOT_ANCHOR, ROOT_TRANSIENT, ROOT_WIDTH, WIDTH_MAX};
use options::WIDTH_MIN;
use record::ValueKey;
use slice::Slice;

/// A durable Masstree. Epoch durability: after a crash the tree, with all others of its pool, is as
/// it was at the end of the last epoch that was completed; `sync` completes one.
pub struct MassTree<M: Medium, C: Codec> {
    /// The thread that ends the epochs of a transient tree; the durable trees of a pool share one.
    /// It stops before the tree is closed.
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
    /// [`ErrorKind::Setting`](crate::ErrorKind::Setting) if nodes cannot have this number of
    /// entries; [`ErrorKind::WithinEpoch`](crate::ErrorKind::WithinEpoch) within an epoch.
    pub fn create<'t>(
        pool: &Pool<M>,
        new: impl Into<NewTree<'t>>,
        options: MassTreeOptions,
    ) -> Result<Self> {
        let new = new.into();
        options.check_width()?;
        refuse_in_any_batch::<M>()?;
        let core = Core::create(pool, &options, Self::ARE_WORDS)?;
        let mut words = [0; ROOT_WORDS];
        words[ROOT_ANCHOR] = core.anchor;
        words[ROOT_WIDTH] = core.width as u64;
        words[ROOT_TRANSIENT] = u64::from(options.mode == Mode::Transient);
        let made = core
            .begin()
            .and_then(|()| pool.create_tree(new, Self::ENGINE.0, C::ID, &words));
        if made.is_err() && core.give_back().is_err() {
            pool.leave_unclean();
        }
        made.and_then(|_| Self::start(core, &options))
    }

    /// Opens a tree; after a crash usable at once. The width of its nodes is the one it was made
    /// with. O(nodes in the external log), and O(slabs) unless the mark is left for later.
    ///
    /// # Errors
    /// [`ErrorKind::TreeMismatch`](crate::ErrorKind::TreeMismatch) if the tree is of another kind
    /// or width; [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a part that recovery needs is
    /// damaged; [`ErrorKind::WithinEpoch`](crate::ErrorKind::WithinEpoch) within an epoch.
    pub fn open(pool: &Pool<M>, root: &TreeRoot, options: MassTreeOptions) -> Result<Self> {
        let nodes = |width, mode| format!("{width} keys a node{mode}");
        let made = width_of(root)?;
        let options = MassTreeOptions {
            width: options.width.or(Some(made)),
            ..options
        };
        // A transient tree is lost with its process, so no options open it.
        let found = if root.words[ROOT_TRANSIENT] == 0 {
            ""
        } else {
            ", transient and closed"
        };
        let wanted = if options.mode == Mode::Transient {
            ", transient"
        } else {
            ""
        };
        let nodes = [nodes(made, found), nodes(options.node_width(), wanted)];
        root.demand(Self::ENGINE.0, C::ID, &nodes)?;
        options.check_width()?;
        refuse_in_any_batch::<M>()?;
        Self::start(
            Core::open(pool, root.words[ROOT_ANCHOR], &options, Self::ARE_WORDS)?,
            &options,
        )
    }

    fn start(core: Arc<Core<M>>, options: &MassTreeOptions) -> Result<Self> {
        let ticker = match options.epoch {
            EpochLength::Manual => None,
            EpochLength::Every(length) => core.start_ticker(length)?,
        };
        let close_cleanly = options.close_cleanly && options.mode != Mode::Transient;
        Ok(Self {
            ticker,
            core,
            close_cleanly,
            codec: PhantomData,
        })
    }
}

/// The width of the nodes of a tree in a pool.
///
/// # Errors
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if no tree can have it.
pub(crate) fn width_of(root: &TreeRoot) -> Result<usize> {
    let width = root.words[ROOT_WIDTH] as usize;
    if (WIDTH_MIN..=WIDTH_MAX).contains(&width) {
        return Ok(width);
    }
    Err(Error::corrupt(
        root.words[ROOT_ANCHOR],
        format!("nodes of {width} entries"),
    ))
}

impl<M: Medium, C: Codec> Drop for MassTree<M, C> {
    fn drop(&mut self) {
        self.ticker = None;
        if !self.core.pool.process().is_current() {
            // The epoch is the parent's.
            return;
        }
        // An error leaves the last epoch incomplete, as a crash does.
        let _ = self.core.close(self.close_cleanly);
    }
}

impl<M: Medium, C: Codec> Index for MassTree<M, C> {
    fn engine(&self) -> &'static str {
        Self::ENGINE.1
    }

    fn codec(&self) -> &'static str {
        C::NAME
    }

    fn read_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Observed<bool>> {
        value.clear();
        C::key(key)?;
        let found = self.core.find(key, |view, found| {
            value.clear();
            found.copy_of(&view.guard, ValueKey::Given(key), value)
        });
        // A failed attempt may have left objects to give back.
        if !matches!(found, Ok(Some(()))) {
            value.clear();
        }
        let found = found.map_err(|error| error.of_key(key))?;
        Ok(Observed::durable(found.is_some()))
    }

    /// A write is durable with its epoch, so only [`Epochs::sync`] waits for it.
    fn write(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        condition: Condition<&[u8]>,
    ) -> Result<Written> {
        C::key(key)?;
        if let Some(value) = value {
            C::value(value)?;
        }
        let held = self
            .core
            .write(key, value, condition)
            .map_err(|error| error.of_key(key))?;
        let lsn = Lsn::DURABLE;
        Ok(Written { held, lsn })
    }

    fn read_many(&self, keys: &[&[u8]]) -> Result<Observed<Vec<Option<Value>>>> {
        let mut values = Vec::with_capacity(keys.len());
        self.core.find_many(
            keys,
            |key| Slice::of(key),
            |key| {
                values.push(Index::read(self, key)?.value);
                Ok(())
            },
        )?;
        Ok(Observed::durable(values))
    }

    fn cursor<'i>(&'i self, bounds: Bounds, direction: Direction) -> Result<Box<dyn Scan + 'i>> {
        Ok(Box::new(scan::RangeBatches::cursor(
            &self.core, bounds, direction,
        )))
    }

    fn wait(&self, lsn: Lsn) -> Result<()> {
        self.core.pool.peek().wait_for(lsn)
    }

    fn mark(&self, _go_on: &dyn Fn() -> bool) -> Result<bool> {
        self.core.mark_space()?;
        Ok(true)
    }

    fn len(&self) -> Result<u64> {
        self.core.count()
    }

    fn bulk_load(&self, next: &mut NextEntry<'_>, fill: f64) -> Result<u64> {
        self.core.load(next, fill)
    }

    fn check(&self) -> Result<Vec<Violation>> {
        refuse_in_any_batch::<M>()?;
        let (left_out, violations) = self.core.survey(&mut |_, _| true)?.finish();
        Ok(left_out
            .into_iter()
            .map(Violation::from)
            .chain(violations)
            .collect())
    }

    fn salvage(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<Option<Vec<LeftOut>>> {
        refuse_in_any_batch::<M>()?;
        self.core.salvage(visit).map(Some)
    }

    fn stat(&self) -> Result<IndexStat> {
        refuse_in_any_batch::<M>()?;
        // The figures are read before the survey, because the survey recovers nodes, too.
        let epochs = self.epoch_stat();
        let visit = &mut |_: &[u8], _: &[u8]| true;
        let survey = self.core.survey(visit)?;
        let keys = survey.keys;
        let leaves = survey.borders;
        let height = survey.height;
        // Without the nodes that cannot be read, the figures would be too small.
        if let Some(node) = survey
            .finish()
            .0
            .into_iter()
            .find(|left_out| left_out.part == Part::Node)
        {
            return Err(Error::corrupt(node.offset, node.what));
        }
        Ok(IndexStat {
            keys,
            leaves,
            height,
            volatile_bytes: self.core.volatile_bytes(),
            recovery_ns: self.core.recovery_ns,
            recovered_from_crash: self.core.recovered_from_crash,
            leaf_bytes: self.core.border_bytes() as u64,
            allocations: None,
            epochs: Some(epochs),
        })
    }

    fn begin_evacuation(&self, choice: Evacuate) -> Result<u64> {
        refuse_in_any_batch::<M>()?;
        self.core.begin_evacuation(choice)
    }

    fn own_space(&self) -> Result<OwnSpace> {
        self.core.own_space()
    }

    fn end_evacuation(&self) {
        self.core.end_evacuation();
    }

    fn find_evacuated(&self, evacuated: &mut EvacuatedKeys) -> Result<()> {
        self.core.find_evacuated(evacuated)
    }

    fn move_record(&self, key: &[u8]) -> Result<Moved> {
        self.core
            .move_record(key)
            .map_err(|error| error.of_key(key))
    }

    fn reclaim(&self) {
        // In a batch the end of the epoch would wait for the batch. A damaged tree keeps its space;
        // `check` tells of the damage.
        if refuse_in_any_batch::<M>().is_ok() {
            let _ = self.core.give_back_runs();
        }
    }

    fn destroy(&self) -> Result<()> {
        // No other thread uses the tree.
        self.core.give_back()
    }

    fn words(&self) -> Option<&dyn WordIndex> {
        if Self::ARE_WORDS { Some(self) } else { None }
    }

    fn epochs(&self) -> Option<&dyn Epochs> {
        Some(self)
    }
}

impl<M: Medium, C: Codec> Epochs for MassTree<M, C> {
    fn sync(&self) -> Result<()> {
        refuse_in_any_batch::<M>()?;
        self.core.advance()
    }

    fn within_epoch(&self, run: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        self.core.end_failed()?;
        self.core.within_epoch(run)
    }

    fn complete(&self, epoch: u64) -> Result<Lsn> {
        match self.core.shared() {
            Some(epochs) => epochs.complete(&self.core.pool, epoch),
            None => Ok(Lsn::DURABLE),
        }
    }

    fn give_up(&self) {
        if let Some(epochs) = self.core.shared() {
            epochs.give_up();
        }
    }

    /// A change of another key counts as well, if it changed a node on the way to this key.
    fn has_changed(&self, key: &[u8]) -> Result<bool> {
        C::key(key)?;
        self.core.has_changed(key)
    }

    fn is_transient(&self) -> bool {
        self.core.mode == Mode::Transient
    }

    fn running(&self) -> u64 {
        self.core.epochs.running_for_all()
    }

    fn is_durable(&self, epoch: u64) -> bool {
        self.core.epochs.is_durable(epoch)
            || self
                .core
                .shared()
                .is_some_and(|epochs| epochs.is_durable(&self.core.pool, epoch))
    }

    fn sweep(&self) -> Result<()> {
        refuse_in_any_batch::<M>()?;
        self.core.sweep()
    }

    fn epoch_stat(&self) -> EpochStat {
        let figures = &self.core.epochs.figures;
        EpochStat {
            running: self.core.epochs.running_for_all(),
            epochs: figures.epochs.load(Ordering::Relaxed),
            nodes_logged: self.core.log.nodes.load(Ordering::Relaxed),
            in_line_logs: self.core.in_line_logs.load(Ordering::Relaxed),
            lines_flushed: figures.lines_flushed.load(Ordering::Relaxed),
            pause_ns: figures.pause_ns.load(Ordering::Relaxed),
            pause_ns_max: figures.pause_ns_max.load(Ordering::Relaxed),
            nodes_restored: self.core.nodes_restored,
            is_sweeping: self.core.epochs.any_failed(),
            is_failing: self.core.epochs.is_failing(),
            swept_keys: self.core.swept_keys.load(Ordering::Relaxed),
        }
    }
}

impl<M: Medium, C: Codec> WordIndex for MassTree<M, C> {
    #[inline]
    fn read(&self, key: u64) -> Result<Observed<Option<u64>>> {
        let found = self
            .core
            .find(&key.to_be_bytes(), |view, found| found.word(&view.guard))?;
        Ok(Observed::durable(found))
    }

    fn write(&self, key: u64, value: Option<u64>, condition: Condition<u64>) -> Result<Written> {
        let value = value.map(u64::to_be_bytes);
        let condition = condition.map(u64::to_be_bytes);
        let held = self.core.write(
            &key.to_be_bytes(),
            value.as_ref().map(|value| &value[..]),
            condition.as_ref().map(|value| &value[..]),
        )?;
        let lsn = Lsn::DURABLE;
        Ok(Written { held, lsn })
    }

    fn read_many(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<Lsn> {
        let mut values = values.iter_mut();
        self.core.find_many(
            keys,
            |key| Slice::of(&key.to_be_bytes()),
            |key| {
                if let Some(value) = values.next() {
                    *value = WordIndex::read(self, *key)?.value;
                }
                Ok(())
            },
        )?;
        Ok(Lsn::DURABLE)
    }

    fn visit(&self, from: u64, visit: &mut VisitWords<'_>) -> Result<Lsn> {
        self.core.visit_words(from, visit)?;
        Ok(Lsn::DURABLE)
    }

    fn wait(&self, lsn: Lsn) -> Result<()> {
        Index::wait(self, lsn)
    }
}

instrumented_trees!(MassTree, MassTreeOptions);
