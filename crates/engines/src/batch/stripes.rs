//! The stripes of a tree: locks that keep single writes and batches apart.
//!
//! A single write holds the stripe of its key in shared mode until its commit is ordered, and then
//! waits for durability without it. A batch holds the stripes of all its keys in exclusive mode
//! until it is done. A bulk load holds none while its source runs: single writes go on, and batches
//! wait until the load is over. When the source has ended, the load takes all stripes of its tree in
//! exclusive mode. Readers take none.
//!
//! A write that holds its stripes asks whether a view is open ([`crate::versions`]). If so, it
//! records what it replaces.
//!
//! # Transactions and announced shares
//!
//! Most shares are announced ([`wait_for_announced`]), and a batch that waits for those pays for a
//! barrier on all processors. A transaction does not:
//!
//! 1. Its view is open, so the grace period after the switch is over: every write that holds a
//!    share was told that a view is open, or asks after it has announced its share.
//! 2. Versions stay on until the transaction is published ([`Versions::is_on`]).
//! 3. A write that is told so gives its announced share back, waits for a locked one, which the lock
//!    of the transaction excludes, and asks again.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use medium::sync::{
    ExclusiveGuard, Mutex, Share, SharedLock, pause, schedule, thread_number_beside,
    wait_for_announced,
};
use medium::{Lsn, Medium, Process};
use pool::{BatchSlots, Evacuate, Pool};

use crate::engine::AnyTree;
use crate::index::record::prefix_word;
use crate::index::{
    Bounds, Condition, Direction, Epochs, EvacuatedKeys, Index, IndexStat, LeftOut, Measured,
    Moved, NextEntry, Observed, OwnSpace, Scan, Value, Violation, VisitWords, WordIndex, Written,
};
use crate::versions::{
    OldValue, StoreView, TreeVersions, UnpublishedWrite, Versions, VersionsFault, WritesUnderWay,
};
use crate::{ErrorKind, Result};

/// How long a batch waits before it checks again whether a load is over.
const WAIT: Duration = Duration::from_millis(1);

/// Stripes of a tree. A batch of a few hundred keys locks most of them.
const STRIPES: usize = 64;

/// The stripes of one tree.
#[derive(Debug)]
pub struct Stripes {
    stripes: [CachePadded<SharedLock>; STRIPES],
    /// The threads that load the tree, by their numbers.
    loaders: Mutex<Vec<usize>>,
    /// Whether a scheduler may decide which thread goes on: it knows no announced shares.
    may_be_scheduled: bool,
}

impl Stripes {
    /// The stripes of a tree on the medium `M`, held by no thread.
    pub fn new<M: Medium>() -> Self {
        Self {
            stripes: std::array::from_fn(|_| CachePadded::default()),
            loaders: Mutex::default(),
            may_be_scheduled: M::SCHEDULED,
        }
    }

    /// The stripe of a key. The key of a tree of words is given as its eight bytes. Several keys
    /// have the same stripe.
    #[inline]
    pub(super) fn of(key: &[u8]) -> usize {
        let rest = if key.len() > 8 {
            prefix_word(&key[key.len() - 8..]).rotate_left(25)
        } else {
            0
        };
        Self::of_word(prefix_word(key) ^ rest)
    }

    #[inline(always)]
    fn of_word(word: u64) -> usize {
        (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - STRIPES.ilog2())) as usize
    }

    /// A share of a stripe that is announced, if the calling thread can announce one.
    #[inline(always)]
    fn announce(&self, stripe: usize) -> Option<Share<'_>> {
        if self.may_be_scheduled {
            return None;
        }
        self.stripes[stripe].announce()
    }

    fn wait_for_share(&self, stripe: usize) -> Share<'_> {
        let share = Share::from(self.stripes[stripe].share());
        Versions::reach_switch();
        share
    }

    /// Begins a load of the tree: from now on batches wait until it is over.
    fn begin_load(&self) -> Loader<'_> {
        self.loaders.lock().push(self.thread_number());
        let loader = Loader { stripes: self };
        // A batch that has not seen the load has its stripes, and is waited for.
        for stripe in &self.stripes {
            drop(stripe.share());
        }
        loader
    }

    /// Locks all stripes in exclusive mode, and waits for the writes that hold them.
    fn lock_all(&self) -> Vec<ExclusiveGuard<'_>> {
        let locked = self.stripes.iter().map(|stripe| stripe.lock()).collect();
        wait_for_writes((0..STRIPES).map(|stripe| (self, stripe)));
        locked
    }

    /// Waits for all writes that hold a stripe now. Those that begin later need not be waited for.
    fn wait_for_holders(&self) {
        for stripe in &self.stripes {
            drop(stripe.lock());
        }
        wait_for_writes((0..STRIPES).map(|stripe| (self, stripe)));
    }

    fn thread_number(&self) -> usize {
        thread_number_beside(self.may_be_scheduled)
    }

    /// Whether the calling thread loads the tree, and calls from the source of the load.
    pub(super) fn is_loader(&self) -> bool {
        self.loaders.lock().contains(&self.thread_number())
    }

    /// Whether a thread loads the tree.
    fn is_loaded(&self) -> bool {
        !self.loaders.lock().is_empty()
    }

    /// Waits until no thread loads the tree. The calling thread holds no stripe of any tree: the
    /// source of the load may need it.
    pub(super) fn wait_for_loads(&self) {
        let mut spins = 0;
        while self.is_loaded() {
            if self.may_be_scheduled && schedule::is_running() {
                pause(&mut spins);
            } else {
                std::thread::sleep(WAIT);
            }
        }
    }

    /// Locks the stripe in exclusive mode; `None` if the tree is being loaded. A thread takes
    /// several in ascending order, and then waits for the writes that hold them in shared mode
    /// ([`wait_for_writes`]).
    pub(super) fn lock(&self, stripe: usize) -> Option<ExclusiveGuard<'_>> {
        loop {
            let locked = self.stripes[stripe].try_lock();
            // A load is listed before it waits for the stripes. So either it is seen here, or it
            // waits for this batch.
            if self.is_loaded() {
                return None;
            }
            if locked.is_some() {
                return locked;
            }
        }
    }
}

/// Waits for the end of all single writes that began before the calling thread locked these
/// stripes, or before it had locked and released them.
pub(super) fn wait_for_writes<'s>(stripes: impl Iterator<Item = (&'s Stripes, usize)>) {
    let mut stripes = stripes.peekable();
    // A scheduler knows no announced shares.
    let is_announced = |(stripes, _): &(&Stripes, usize)| !stripes.may_be_scheduled;
    if stripes.peek().is_some_and(is_announced) {
        wait_for_announced(stripes.map(|(stripes, stripe)| &*stripes.stripes[stripe]));
    }
}

/// A thread that loads a tree, until this is dropped.
struct Loader<'s> {
    stripes: &'s Stripes,
}

impl Drop for Loader<'_> {
    fn drop(&mut self) {
        let own = self.stripes.thread_number();
        let mut loaders = self.stripes.loaders.lock();
        if let Some(index) = loaders.iter().position(|loader| *loader == own) {
            loaders.swap_remove(index);
        }
    }
}

/// A pool whose writers wait while written pages take too much memory.
trait Throttled: Send + Sync {
    /// Waits while written pages take too much memory.
    fn await_memory(&self) -> Result<()>;
}

impl<M: Medium> Throttled for Pool<M> {
    fn await_memory(&self) -> Result<()> {
        Ok(self.peek().await_memory()?)
    }
}

/// A write that the gate has let in by a locked share.
struct Entered<'g> {
    /// Its share of the stripe of its key.
    share: Share<'g>,
    /// Whether it records what it replaces, because a view may be open.
    is_recorded: bool,
}

/// The gate that writes to a tree pass: they hold stripes, and record what they replace if a view
/// is open.
struct Gate {
    stripes: Stripes,
    /// The slots of the pool's batches. They record that a batch could not be finished.
    batch_slots: Arc<BatchSlots>,
    /// The pool, if its writes may be held back.
    throttled: Option<Box<dyn Throttled>>,
    versions: Arc<TreeVersions>,
    /// The same as `versions.store()`; it is here as well because that saves each write a load.
    store_versions: Arc<Versions>,
}

impl Gate {
    /// Lets a write to one key in, if it need not record what it replaces: no view is open, and the
    /// thread can announce its share. Otherwise the caller goes on with [`Gate::write_by_lock`]. The
    /// stripe is held in shared mode until the share is dropped, after the engine has ordered the
    /// write.
    #[inline(always)]
    fn enter_unrecorded(&self, stripe: usize) -> Result<Option<Share<'_>>> {
        // The stripe is not held meanwhile: a batch need not wait for this.
        if let Some(pool) = &self.throttled {
            pool.await_memory()?;
        }
        let Some(share) = self.stripes.announce(stripe) else {
            return Ok(None);
        };
        if self.store_versions.is_on() {
            // Transactions do not wait for announced shares.
            return Ok(None);
        }
        self.batch_slots.expect_whole()?;
        Ok(Some(share))
    }

    /// Lets the move of a record or of a node in. It changes no value, so nothing is recorded.
    fn enter(&self, stripe: usize) -> Result<Share<'_>> {
        match self.enter_unrecorded(stripe)? {
            Some(share) => Ok(share),
            None => Ok(self.enter_by_lock(stripe)?.share),
        }
    }

    /// Lets a write in by a locked share.
    #[cold]
    fn enter_by_lock(&self, stripe: usize) -> Result<Entered<'_>> {
        let versions = self.versions.store();
        let mut too_early = None;
        if versions.faults().has(VersionsFault::SwitchBeforeShare) {
            Versions::reach_switch();
            too_early = Some(versions.is_on());
            Versions::reach_switch();
        }
        let share = self.stripes.wait_for_share(stripe);
        let is_recorded = too_early.unwrap_or_else(|| versions.is_on());
        self.batch_slots.expect_whole()?;
        Ok(Entered { share, is_recorded })
    }

    /// A write to one key that [`Gate::enter_unrecorded`] has not let in. Records what it replaces, if
    /// a view is open.
    #[cold]
    fn write_by_lock<R>(
        &self,
        stripe: usize,
        key: &[u8],
        read_old: impl Fn() -> Result<OldValue>,
        write: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let Entered { share, is_recorded } = self.enter_by_lock(stripe)?;
        if is_recorded {
            self.write_recorded(share, key, read_old, write)
        } else {
            write()
        }
    }

    /// A write to one key, which records what it replaces. The calling thread has the share of the
    /// stripe.
    fn write_recorded<R>(
        &self,
        share: Share<'_>,
        key: &[u8],
        read_old: impl Fn() -> Result<OldValue>,
        write: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let versions = self.versions.store();
        let mut share = Some(share);
        let mut key_lock = versions.lock_key(&self.versions, key);
        if versions.faults().has(VersionsFault::PublishBeforeRecord) {
            let old = read_old()?;
            let written = write()?;
            versions.record_write(&self.versions, key, || Ok(old.clone()))?;
            return Ok(written);
        }
        let unpublished = versions.record_write(&self.versions, key, read_old)?;
        if versions.faults().has(VersionsFault::KeyLockEndsEarly) {
            key_lock = None;
        }
        if versions.faults().has(VersionsFault::ShareEndsEarly) {
            share = None;
        }
        let written = write();
        drop(unpublished);
        drop(key_lock);
        drop(share);
        versions.tell_forgotten();
        written
    }
}

impl WritesUnderWay for Gate {
    fn wait_for_writes(&self) {
        self.stripes.wait_for_holders();
    }
}

/// An open tree with its stripes. Each write goes through them; batches, which lock stripes
/// themselves, use the tree beneath ([`StripedTree::beneath`]).
///
/// In a child that was forked after the open, each operation is refused with
/// [`ErrorKind::Forked`](crate::ErrorKind::Forked) before it takes a lock or reads the pool, and the
/// tree has neither epochs nor counters. A cursor does not ask again.
pub struct StripedTree {
    tree: Arc<dyn Index>,
    words: Option<StripedWords>,
    gate: Arc<Gate>,
    process: Process,
}

/// A tree of words beneath the stripes of its [`StripedTree`].
pub struct StripedWords {
    tree: Arc<dyn WordIndex>,
    gate: Arc<Gate>,
    process: Process,
}

impl StripedTree {
    /// A tree of a pool, with stripes that no thread holds. All trees of a pool have the versions of
    /// one store.
    pub fn new<M: Medium>(pool: &Pool<M>, opened: AnyTree, versions: Arc<TreeVersions>) -> Self {
        let throttled: Option<Box<dyn Throttled>> = if M::LATE {
            Some(Box::new(pool.clone()))
        } else {
            None
        };
        let gate = Arc::new(Gate {
            stripes: Stripes::new::<M>(),
            batch_slots: Arc::clone(pool.batch_slots()),
            throttled,
            store_versions: Arc::clone(versions.store()),
            versions,
        });
        let weak: Weak<dyn WritesUnderWay> = Arc::downgrade(&gate) as _;
        gate.versions.store().add_tree(weak);
        let process = pool.process();
        let words = opened.words.map(|tree| StripedWords {
            tree,
            gate: Arc::clone(&gate),
            process,
        });
        Self {
            tree: opened.index,
            words,
            gate,
            process,
        }
    }

    /// The tree beneath the stripes.
    pub fn beneath(&self) -> &dyn Index {
        &*self.tree
    }

    /// The same tree as a tree of words, if it is one: [`Index::words`] without a virtual call.
    #[inline(always)]
    pub fn as_words(&self) -> Option<&StripedWords> {
        self.words.as_ref()
    }

    /// The values of the tree at earlier moments.
    pub fn versions(&self) -> &Arc<TreeVersions> {
        &self.gate.versions
    }

    pub(super) fn stripes(&self) -> &Stripes {
        &self.gate.stripes
    }

    /// The value of `key` in a view of the store. Does not wait. O(log n).
    ///
    /// # Errors
    /// Those of [`StoreView::read`].
    pub fn read_at(&self, view: &StoreView, key: &[u8]) -> Result<Observed<Option<Value>>> {
        self.process.expect_current()?;
        view.read(&*self.tree, &self.gate.versions, key)
    }

    /// The values of many keys in a view of the store, in their order. Does not wait.
    ///
    /// # Errors
    /// Those of [`StoreView::read`].
    pub fn read_many_at(
        &self,
        view: &StoreView,
        keys: &[&[u8]],
    ) -> Result<Observed<Vec<Option<Value>>>> {
        self.process.expect_current()?;
        view.read_many(&*self.tree, &self.gate.versions, keys)
    }

    /// The entries of a view of the store within `bounds`. Does not wait.
    ///
    /// # Errors
    /// Those of [`StoreView::read`].
    pub fn cursor_at<'i>(
        &'i self,
        view: &'i StoreView,
        bounds: Bounds,
        direction: Direction,
    ) -> Result<Box<dyn Scan + 'i>> {
        self.process.expect_current()?;
        view.cursor(&*self.tree, &self.gate.versions, bounds, direction)
    }
}

/// The locks and the stamp of a load, from the end of its source until it is published.
#[derive(Default)]
struct LoadEnd<'s> {
    // Views wait for the load, and read the tree then, so it is published before the stripes are
    // released.
    unpublished: Option<UnpublishedWrite<'s>>,
    stripes: Vec<ExclusiveGuard<'s>>,
}

impl StripedTree {
    /// The epochs of the pool, if the tree has a part in them. A transient tree has epochs of its own.
    pub fn shared_epochs(&self) -> Option<&dyn Epochs> {
        self.epochs().filter(|epochs| !epochs.is_transient())
    }

    /// Takes what a load needs to be published: all stripes alone, and a stamp.
    fn end_load<'s>(&'s self, end: &mut LoadEnd<'s>) -> Result<()> {
        let versions = self.gate.versions.store();
        if !versions.faults().has(VersionsFault::LoadWithoutStripes) {
            end.stripes = self.gate.stripes.lock_all();
        }
        let is_too_early = versions.faults().has(VersionsFault::LoadBeforeEmpty);
        if is_too_early {
            self.record_load(end);
        }
        if !self.tree.is_empty()? {
            return Err(ErrorKind::NotEmpty.into());
        }
        if !is_too_early {
            self.record_load(end);
        }
        Ok(())
    }

    /// Takes the stamp of a load, if a view may be open.
    fn record_load<'s>(&'s self, end: &mut LoadEnd<'s>) {
        let versions = self.gate.versions.store();
        Versions::reach_switch();
        if !versions.is_on() {
            return;
        }
        let unpublished = versions.record_load(&self.gate.versions);
        if !versions.faults().has(VersionsFault::NoWaitForLoad) {
            end.unpublished = Some(unpublished);
        }
    }
}

impl Index for StripedTree {
    fn engine(&self) -> &'static str {
        self.tree.engine()
    }

    fn codec(&self) -> &'static str {
        self.tree.codec()
    }

    fn read_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Observed<bool>> {
        self.process.expect_current()?;
        self.tree.read_into(key, value)
    }

    fn read(&self, key: &[u8]) -> Result<Observed<Option<Value>>> {
        self.process.expect_current()?;
        self.tree.read(key)
    }

    fn write(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        condition: Condition<&[u8]>,
    ) -> Result<Written> {
        self.process.expect_current()?;
        let stripe = Stripes::of(key);
        if let Some(_share) = self.gate.enter_unrecorded(stripe)? {
            return self.tree.write(key, value, condition);
        }
        self.gate.write_by_lock(
            stripe,
            key,
            || OldValue::of(self.tree.read(key)),
            || self.tree.write(key, value, condition),
        )
    }

    fn read_many(&self, keys: &[&[u8]]) -> Result<Observed<Vec<Option<Value>>>> {
        self.process.expect_current()?;
        self.tree.read_many(keys)
    }

    fn cursor<'i>(&'i self, bounds: Bounds, direction: Direction) -> Result<Box<dyn Scan + 'i>> {
        self.process.expect_current()?;
        self.tree.cursor(bounds, direction)
    }

    fn wait(&self, lsn: Lsn) -> Result<()> {
        self.process.expect_current()?;
        self.tree.wait(lsn)
    }

    fn mark(&self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        self.process.expect_current()?;
        self.tree.mark(go_on)
    }

    fn len(&self) -> Result<u64> {
        self.process.expect_current()?;
        self.tree.len()
    }

    fn is_empty(&self) -> Result<bool> {
        self.process.expect_current()?;
        self.tree.is_empty()
    }

    fn bulk_load(&self, next: &mut NextEntry<'_>, fill: f64) -> Result<u64> {
        self.process.expect_current()?;
        if self.gate.stripes.is_loader() {
            return Err(ErrorKind::InLoadSource.into());
        }
        let _loader = self.gate.stripes.begin_load();
        self.gate.batch_slots.expect_whole()?;
        let mut end = LoadEnd::default();
        let mut next_or_end = |key: &mut Vec<u8>, value: &mut Vec<u8>| {
            let is_there = next(key, value)?;
            if !is_there {
                self.end_load(&mut end)?;
            }
            Ok(is_there)
        };
        self.tree.bulk_load(&mut next_or_end, fill)
    }

    fn check(&self) -> Result<Vec<Violation>> {
        self.process.expect_current()?;
        self.tree.check()
    }

    fn salvage(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<Option<Vec<LeftOut>>> {
        self.process.expect_current()?;
        self.tree.salvage(visit)
    }

    fn stat(&self) -> Result<IndexStat> {
        self.process.expect_current()?;
        self.tree.stat()
    }

    fn begin_evacuation(&self, choice: Evacuate) -> Result<u64> {
        self.process.expect_current()?;
        self.gate.batch_slots.expect_whole()?;
        self.tree.begin_evacuation(choice)
    }

    fn own_space(&self) -> Result<OwnSpace> {
        self.process.expect_current()?;
        self.tree.own_space()
    }

    fn end_evacuation(&self) {
        if self.process.is_current() {
            self.tree.end_evacuation();
        }
    }

    fn find_evacuated(&self, evacuated: &mut EvacuatedKeys) -> Result<()> {
        self.process.expect_current()?;
        self.tree.find_evacuated(evacuated)
    }

    fn move_record(&self, key: &[u8]) -> Result<Moved> {
        self.process.expect_current()?;
        let _share = self.gate.enter(Stripes::of(key))?;
        self.tree.move_record(key)
    }

    fn move_node(&self, low: &[u8]) -> Result<Moved> {
        self.process.expect_current()?;
        let _share = self.gate.enter(Stripes::of(low))?;
        self.tree.move_node(low)
    }

    fn reclaim(&self) {
        if self.process.is_current() {
            self.tree.reclaim();
        }
    }

    fn destroy(&self) -> Result<()> {
        self.process.expect_current()?;
        self.tree.destroy()
    }

    fn words(&self) -> Option<&dyn WordIndex> {
        match &self.words {
            Some(words) => Some(words),
            None => None,
        }
    }

    fn epochs(&self) -> Option<&dyn Epochs> {
        if !self.process.is_current() {
            return None;
        }
        self.tree.epochs()
    }

    fn measured(&self) -> Option<&dyn Measured> {
        if !self.process.is_current() {
            return None;
        }
        self.tree.measured()
    }
}

impl WordIndex for StripedWords {
    #[inline]
    fn read(&self, key: u64) -> Result<Observed<Option<u64>>> {
        self.process.expect_current()?;
        self.tree.read(key)
    }

    fn write(&self, key: u64, value: Option<u64>, condition: Condition<u64>) -> Result<Written> {
        self.process.expect_current()?;
        let stripe = Stripes::of_word(key);
        if let Some(_share) = self.gate.enter_unrecorded(stripe)? {
            return self.tree.write(key, value, condition);
        }
        self.gate.write_by_lock(
            stripe,
            &key.to_be_bytes(),
            || OldValue::of_word(self.tree.read(key)),
            || self.tree.write(key, value, condition),
        )
    }

    fn read_many(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<Lsn> {
        self.process.expect_current()?;
        self.tree.read_many(keys, values)
    }

    fn visit(&self, from: u64, visit: &mut VisitWords<'_>) -> Result<Lsn> {
        self.process.expect_current()?;
        self.tree.visit(from, visit)
    }

    fn wait(&self, lsn: Lsn) -> Result<()> {
        self.process.expect_current()?;
        self.tree.wait(lsn)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
