//! The epochs of a pool: its trees begin and end them together, so that after a crash all are in
//! the state of one moment.
//!
//! A tree *joins* when it is opened and *leaves* when it is closed. The first tree that joins finds
//! out whether an epoch was running when the pool was last used; that epoch has failed. The last
//! tree that leaves notes that the running epoch has not failed. While a tree joins, no epoch ends.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use medium::sync::schedule::AccessKind;
use medium::sync::{AtomicBool, AtomicU64, Mutex, Ordering, SharedLock, hand_over};
use medium::{Lsn, Medium, MediumError};
use pool::{Guard, LostCopy, Pool};
use rustc_hash::FxHashMap;

use super::ticker::{SweepProgress, Ticker};
use super::words::{self, EpochState, FAILED_MAX};
use super::{TreeEpochs, take};
use crate::{ErrorKind, Result};

/// Failed epochs from which on an open sweeps at once.
pub(super) const FAILED_SWEPT_AT: usize = FAILED_MAX - 4;
/// No tree stays idle when the number of an epoch comes to a multiple of this. So what a tree renews
/// at such numbers ([`Member::at_begin`]) is renewed in time.
pub(crate) const IDLE_EPOCHS_MAX: u64 = 1 << 30;
/// The time between two steps of a sweep, for other threads to work.
const SWEEP_PAUSE: Duration = Duration::from_micros(50);

/// A tree that takes part in the epochs.
pub(crate) trait Member<M: Medium, S>: Send + Sync {
    /// Its shards, and the lists of changed lines.
    fn epochs(&self) -> &TreeEpochs<M, S>;

    /// To be called when an epoch begins. `last` is the one that the tree was in before. No operation
    /// is under way.
    fn at_begin(&self, guard: &Guard<'_, M>, last: u64, epoch: u64) -> Result<()>;

    /// Undoes some of the writes of failed epochs; returns whether there are more.
    fn sweep_some(&self) -> Result<bool>;
}

/// The epochs that the trees of a pool share.
pub(crate) struct PoolEpochs<M: Medium, S> {
    /// The trees that are not idle: those that take part in the end of the running epoch. Held while
    /// writers are stopped, until the next epoch runs: so no tree wakes up in between. It is taken
    /// before the lock of the members and before any shard.
    busy: Mutex<BusyTrees<M, S>>,
    members: Mutex<Members<M, S>>,
    /// Trees that may have writes of failed epochs.
    unswept: Mutex<Vec<Weak<dyn Member<M, S>>>>,
    /// The running epoch, for readers that take no lock.
    running: Arc<AtomicU64>,
    /// Held by a thread that ends an epoch and waits until that is durable: one end serves all threads
    /// that arrive meanwhile. It is taken before the lock of the state.
    turn: Mutex<()>,
    /// Held while an epoch begins or ends, and never during a wait for the disk. The holder may wait
    /// for a batch meanwhile.
    state: Mutex<PoolEpochState>,
    /// Batches hold it in shared mode, the end of an epoch in exclusive mode.
    batches: SharedLock,
    last_ended: LastEnded,
    /// A batch could not be finished, so no epoch ends any more.
    is_given_up: AtomicBool,
    /// Whether an end of an epoch has failed since all trees were last told that one is durable.
    is_failing: AtomicBool,
    /// Ends epochs. Begun by the first tree that asks for it.
    ticker: Mutex<Option<Ticker>>,
}

type BusyTrees<M, S> = Vec<Weak<dyn Member<M, S>>>;

/// The trees that take part, by the address of their epochs.
type Members<M, S> = FxHashMap<usize, Weak<dyn Member<M, S>>>;

/// The state that changes only at the beginning or the end of an epoch.
struct PoolEpochState {
    /// The content of the pool's words; the running epoch is 0 while there is no member.
    written: EpochState,
    /// The end of the last epoch.
    ended: Lsn,
    /// Whether the running epoch has to be ended even if no line is listed, because an attempt to
    /// end it failed.
    is_owed: bool,
    /// A tree was closed without the end of its epoch, which cannot end any more.
    is_cut_off: bool,
}

impl<M: Medium, S> Default for PoolEpochs<M, S> {
    fn default() -> Self {
        let state = PoolEpochState {
            written: EpochState::default(),
            ended: Lsn::DURABLE,
            is_owed: false,
            is_cut_off: false,
        };
        Self {
            busy: Mutex::default(),
            members: Mutex::default(),
            unswept: Mutex::default(),
            running: Arc::default(),
            turn: Mutex::default(),
            state: Mutex::new(state),
            batches: SharedLock::default(),
            last_ended: LastEnded::default(),
            is_given_up: AtomicBool::default(),
            is_failing: AtomicBool::default(),
            ticker: Mutex::default(),
        }
    }
}

/// An epoch that has ended, and need not be durable yet.
#[derive(Clone, Copy)]
struct EndedEpoch {
    /// The epoch that runs after it.
    next: u64,
    /// The LSN at which it is durable.
    lsn: Lsn,
}

/// The epochs of a pool of which no tree is open.
#[derive(Default)]
pub(crate) struct EpochsRead {
    /// 0 if there was none yet.
    pub(crate) running: u64,
    pub(crate) failed: Vec<u64>,
}

/// The epochs that a tree needs when it joins.
pub(crate) struct Joined<'s> {
    /// The first epoch in which it may write.
    pub(crate) first: u64,
    /// The failed epochs; 0 in free places.
    pub(crate) failed: &'s [u64],
    /// The last failed epoch for which the pool had no room.
    pub(crate) dropped: u64,
}

/// The last epoch that has ended, for readers that take no lock.
#[derive(Debug, Default)]
struct LastEnded {
    epoch: AtomicU64,
    /// The LSN at which it is durable.
    lsn: AtomicU64,
}

impl LastEnded {
    /// Notes the end of an epoch. The caller holds the lock of the state.
    fn note(&self, epoch: u64, lsn: Lsn) {
        self.lsn.store(lsn.0, Ordering::Relaxed);
        // ORDER: pairs with the acquire in `is_durable`: a reader of the epoch finds its LSN, or a
        // later one.
        self.epoch.store(epoch, Ordering::Release);
    }

    fn is_durable<M: Medium>(&self, pool: &Pool<M>, epoch: u64) -> bool {
        self.epoch.load(Ordering::Acquire) >= epoch
            && pool
                .peek()
                .is_durable(Lsn(self.lsn.load(Ordering::Relaxed)))
    }
}

impl<M: Medium, S: Send + 'static> PoolEpochs<M, S> {
    /// The epochs of a pool.
    pub(crate) fn of(pool: &Pool<M>) -> Arc<Self> {
        pool.epochs()
    }

    /// The epochs that the pool records, for reading a tree that is not opened.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if both copies of their numbers are
    /// damaged.
    pub(crate) fn read(pool: &Pool<M>) -> Result<EpochsRead> {
        let written = words::read(&pool.peek())?;
        let is_used = |epoch: &u64| *epoch != 0;
        Ok(EpochsRead {
            running: written.running,
            failed: written.failed.into_iter().filter(is_used).collect(),
        })
    }

    /// Writes a lost copy of the numbers of epochs anew, and returns the report of it. If a tree has
    /// written the copy since, as `was_lost` says, that becomes durable, too: the first numbers of a
    /// session are not, as long as nothing else is written. The caller fences, and waits until that is
    /// durable.
    pub(crate) fn mend(&self, guard: &Guard<'_, M>, was_lost: bool) -> Result<Option<LostCopy>> {
        // Only a thread that holds this lock writes the numbers.
        let _state = self.state.lock();
        if was_lost {
            words::flush(guard)?;
        }
        let Some((copy, lost)) = words::lost_copy(guard)? else {
            return Ok(None);
        };
        words::mend(guard, copy)?;
        Ok(Some(lost))
    }

    /// Adds the tree that `open` makes or recovers. Its first epoch is `first` or a later one.
    pub(crate) fn join<T: Member<M, S> + 'static>(
        &self,
        pool: &Pool<M>,
        first: u64,
        open: impl FnOnce(&Joined<'_>) -> Result<Arc<T>>,
    ) -> Result<Arc<T>> {
        let turn = self.turn.lock();
        let mut state = self.state.lock();
        let mut ended = None;
        if state.written.running == 0 {
            state.resume(pool, first)?;
            self.running.store(state.written.running, Ordering::Release);
        } else {
            // If the tree was open before, all writes of that time then lie in ended epochs.
            let end = self.end(&mut state, pool, Some(first));
            ended = Some(end.inspect_err(|_| self.note_failed())?);
        }
        let EpochState {
            running,
            ref failed,
            dropped,
            ..
        } = state.written;
        let tree = open(&Joined {
            first: running,
            failed,
            dropped,
        });
        match &tree {
            Ok(tree) => self.add(tree),
            Err(_) => self.close_if_empty(&mut state, pool)?,
        }
        drop(state);
        let settled = ended.map_or(Ok(()), |ended| self.settle(pool, ended));
        drop(turn);
        wake_tasks(pool, ended)?;
        settled?;
        tree
    }

    /// Adds a tree, which is busy.
    fn add<T: Member<M, S> + 'static>(&self, tree: &Arc<T>) {
        let member: Weak<T> = Arc::downgrade(tree);
        let mut busy = self.busy.lock();
        busy.push(member.clone());
        let mut members = self.members.lock();
        members.insert(key_of(tree.epochs()), member.clone());
        drop(members);
        drop(busy);
        if tree.epochs().any_failed() {
            self.unswept.lock().push(member);
        }
    }

    /// Makes a tree busy that was idle when the caller saw it: from now on it takes part in the end
    /// of epochs. The caller holds no shard. A thread in a batch may call this: while it waits for the
    /// lock of the busy trees, no other thread waits for batches with that lock.
    pub(super) fn wake(&self, epochs: &TreeEpochs<M, S>) {
        epochs.reach(AccessKind::Store);
        let mut busy = self.busy.lock();
        // Only a thread that holds this lock changes whether a tree is idle.
        if !epochs.barrier.is_idle() {
            return;
        }
        let shards = epochs.barrier.stop();
        let members = self.members.lock();
        let member = members.get(&key_of(epochs)).cloned();
        drop(members);
        let last = epochs.barrier.running();
        let running = self.running();
        epochs.begin_again(running);
        // The epochs of a tree that has left do not end any more.
        let Some(member) = member else {
            return;
        };
        // The memory of a tree that is over may be in use for something else.
        if !epochs.are_over()
            && let Some(tree) = member.upgrade()
        {
            // An error here is one of damage, which the next operation on the links finds, too.
            drop(tree.at_begin(&epochs.pool.peek(), last, running));
        }
        busy.push(member);
        drop(shards);
    }

    /// The number of the running epoch, which changes with it.
    pub(super) fn running_number(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.running)
    }

    /// The running epoch: at least the one in which the caller has last written to any of the trees.
    fn running(&self) -> u64 {
        // ORDER: pairs with the release in `end`.
        self.running.load(Ordering::Acquire)
    }

    /// Removes a tree. Its epoch ends if the tree is closed cleanly.
    pub(crate) fn leave(
        &self,
        pool: &Pool<M>,
        epochs: &TreeEpochs<M, S>,
        is_clean: bool,
    ) -> Result<()> {
        let turn = self.turn.lock();
        // The epoch is durable before the tree leaves: otherwise the pool could be noted as closed
        // without it.
        let ended = if is_clean {
            self.end_and_settle(pool, None).map(Some)
        } else {
            Ok(None)
        };
        let mut state = self.state.lock();
        state.is_cut_off |= !is_clean || ended.is_err();
        self.forget(epochs);
        let closed = self.close_if_empty(&mut state, pool);
        drop(state);
        drop(turn);
        self.stop_ticker();
        wake_tasks(pool, ended?)?;
        closed
    }

    /// Removes a tree whose memory is given back. No operation on it is under way, and none begins
    /// any more. Does not wait for batches of other trees.
    pub(crate) fn leave_for_good(&self, pool: &Pool<M>, epochs: &TreeEpochs<M, S>) -> Result<()> {
        if !self.forget(epochs) {
            return Ok(());
        }
        let closed = self.close_if_empty(&mut self.state.lock(), pool);
        self.stop_ticker();
        closed
    }

    /// Stops the work that ends epochs, if there is no tree any more. The caller holds no lock, since
    /// that work may be about to end an epoch.
    fn stop_ticker(&self) {
        let mut ticker = self.ticker.lock();
        let stopped = if self.members.lock().is_empty() {
            ticker.take()
        } else {
            None
        };
        drop(ticker);
        drop(stopped);
    }

    /// Ends the epoch that runs at the call: all operations before are durable when this returns.
    /// One end serves all threads that wait for it. `epochs` are those of any tree that takes part.
    pub(crate) fn advance(&self, pool: &Pool<M>, epochs: &TreeEpochs<M, S>) -> Result<()> {
        epochs.reach(AccessKind::Load);
        let epoch = self.running();
        let turn = self.turn.lock();
        let ended = self.end_and_settle(pool, Some((epochs, epoch)));
        // The turn goes to the thread that has waited longest. If threads that come back got it
        // first, the others would not see that their epoch has ended.
        hand_over(turn);
        wake_tasks(pool, Some(ended?))
    }

    /// Ends the running epoch, and waits until that is durable. `asked` is a tree that has to take
    /// part, and the epoch that has to end. The caller holds the turn, and wakes tasks when it does
    /// not any more.
    fn end_and_settle(
        &self,
        pool: &Pool<M>,
        asked: Option<(&TreeEpochs<M, S>, u64)>,
    ) -> Result<EndedEpoch> {
        let mut state = self.state.lock();
        let mut is_ended = false;
        if let Some((epochs, epoch)) = asked {
            self.expect_member(epochs)?;
            is_ended = state.written.running > epoch;
        }
        let ended = if is_ended {
            // Another thread has ended it, perhaps without waiting for the disk.
            state.last_end()
        } else {
            let end = self.end(&mut state, pool, None);
            end.inspect_err(|_| self.note_failed())?
        };
        drop(state);
        self.settle(pool, ended)?;
        Ok(ended)
    }

    /// Waits until the end of an epoch is durable, and notes in all trees whether it is. The caller
    /// holds the turn, which a waker may need: no task is woken.
    fn settle(&self, pool: &Pool<M>, ended: EndedEpoch) -> Result<()> {
        let settled = pool.peek().settle_without_waking(ended.lsn);
        match settled {
            Ok(()) => self.note_durable(ended),
            Err(_) => self.note_failed(),
        }
        settled
    }

    /// Calls `run` while the tree of `epochs` takes part, and does not leave.
    pub(crate) fn while_member<R>(
        &self,
        epochs: &TreeEpochs<M, S>,
        run: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let _state = self.state.lock();
        self.expect_member(epochs)?;
        run()
    }

    /// Refuses a tree that has left: no epoch makes its changes durable any more. The caller holds
    /// the lock of the state.
    ///
    /// The sweep in the background may go on for a moment after a tree was closed. What it restores
    /// then is lost, so it must not note that nothing is left to be restored.
    fn expect_member(&self, epochs: &TreeEpochs<M, S>) -> Result<()> {
        if self.members.lock().contains_key(&key_of(epochs)) {
            Ok(())
        } else {
            Err(has_left().into())
        }
    }

    /// Whether an epoch has ended and is durable, even if no thread has waited for that. Does not
    /// wait.
    pub(crate) fn is_durable(&self, pool: &Pool<M>, epoch: u64) -> bool {
        self.last_ended.is_durable(pool, epoch)
    }

    /// Runs a batch within the running epoch, whose number it gets: the epoch does not end
    /// meanwhile. `run` must not wait for the end of an epoch. `epochs` are those of a tree that
    /// takes part.
    pub(crate) fn within_epoch<R>(
        &self,
        epochs: &TreeEpochs<M, S>,
        run: impl FnOnce(u64) -> R,
    ) -> R {
        epochs.reach(AccessKind::Load);
        let _batch = self.batches.share();
        run(self.running())
    }

    /// Ends an epoch, if it still runs: all writes in it are ordered when this returns. Returns the
    /// LSN at which it is durable.
    pub(crate) fn complete(&self, pool: &Pool<M>, epoch: u64) -> Result<Lsn> {
        let mut state = self.state.lock();
        if state.written.running <= epoch {
            let end = self.end(&mut state, pool, Some(epoch + 1));
            end.inspect_err(|_| self.note_failed())?;
        }
        Ok(state.ended)
    }

    /// Ends no epoch from now on. To be called within a batch.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
    }

    /// Whether an epoch may end.
    fn expect_whole(&self, state: &PoolEpochState) -> Result<()> {
        if self.is_given_up.load(Ordering::Acquire) {
            return Err(ErrorKind::BatchUnfinished.into());
        }
        if state.is_cut_off {
            let what = "a tree was closed without the end of its epoch".to_owned();
            return Err(MediumError::Failed(what).into());
        }
        Ok(())
    }

    /// Forgets the failed epochs before `swept`: no tree has writes of them any more.
    pub(crate) fn forget_failed(&self, pool: &Pool<M>, swept: u64) -> Result<()> {
        let mut state = self.state.lock();
        if state.written.running == 0 {
            return Ok(());
        }
        for failed in &mut state.written.failed {
            if *failed < swept {
                *failed = 0;
            }
        }
        words::write_failed(&pool.peek(), &state.written)
    }

    /// Has a thread in the background sweep, and end epochs of this length, until the last tree
    /// leaves.
    pub(crate) fn start_ticker(self: &Arc<Self>, length: Duration) -> Result<()> {
        let mut ticker = self.ticker.lock();
        if ticker.is_none() {
            let sweeping = Arc::downgrade(self);
            let ending = Arc::downgrade(self);
            let sweep = move |is_time: &dyn Fn() -> bool| {
                sweeping
                    .upgrade()
                    .map_or(SweepProgress::Finished, |epochs| {
                        epochs.sweep_until(is_time)
                    })
            };
            // An error here occurs again in `sync`, which returns it.
            let end = move || {
                if let Some(epochs) = ending.upgrade() {
                    drop(epochs.advance_any());
                }
            };
            *ticker = Some(Ticker::start(length, sweep, end)?);
        }
        Ok(())
    }

    /// Sweeps the trees until it is time for something else, or nothing is left to do.
    fn sweep_until(&self, is_time: &dyn Fn() -> bool) -> SweepProgress {
        let unswept = self.unswept.lock().clone();
        for tree in unswept.iter().filter_map(Weak::upgrade) {
            // After an error the sweep goes on in the next epoch.
            while tree.sweep_some().unwrap_or(false) {
                if is_time() {
                    return SweepProgress::Unfinished;
                }
                std::thread::sleep(SWEEP_PAUSE);
            }
        }
        self.unswept.lock().retain(|tree| {
            tree.upgrade()
                .is_some_and(|tree| tree.epochs().any_failed())
        });
        SweepProgress::Finished
    }

    /// Ends the running epoch, as [`PoolEpochs::advance`] does, if there is a tree.
    fn advance_any(&self) -> Result<()> {
        let any = self.members.lock().values().find_map(Weak::upgrade);
        match any {
            Some(member) => self.advance(&member.epochs().pool, member.epochs()),
            None => Ok(()),
        }
    }

    /// The trees that are not idle.
    fn busy_trees(&self) -> Vec<Arc<dyn Member<M, S>>> {
        self.busy.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Removes a tree. Returns whether it was the last one.
    fn forget(&self, epochs: &TreeEpochs<M, S>) -> bool {
        let is_other = |tree: &Arc<dyn Member<M, S>>| !std::ptr::eq(tree.epochs(), epochs);
        let mut busy = self.busy.lock();
        busy.retain(|tree| tree.upgrade().as_ref().is_some_and(is_other));
        let mut members = self.members.lock();
        members.remove(&key_of(epochs));
        // A tree whose creation failed has not left.
        if members.values().all(|tree| tree.strong_count() == 0) {
            members.clear();
        }
        members.is_empty()
    }

    /// Notes that the running epoch has not failed, if no tree takes part any more and all have
    /// ended their epoch.
    fn close_if_empty(&self, state: &mut PoolEpochState, pool: &Pool<M>) -> Result<()> {
        if state.written.running == 0 || !self.members.lock().is_empty() {
            return Ok(());
        }
        state.written.running = 0;
        let is_cut_off =
            std::mem::take(&mut state.is_cut_off) || self.is_given_up.load(Ordering::Acquire);
        if is_cut_off {
            Ok(())
        } else {
            words::write_clean(&pool.peek())
        }
    }

    /// Notes in the trees that an epoch is durable. Idle ones need not know
    /// ([`PoolEpochs::is_durable`]).
    fn note_durable(&self, ended: EndedEpoch) {
        // ORDER: pairs with the release in `note_failed`: the trees were told of the failure before.
        if self.is_failing.swap(false, Ordering::Acquire) {
            self.for_each_tree(|tree| tree.epochs().note_durable(ended.next));
            return;
        }
        for tree in self.busy_trees() {
            tree.epochs().note_durable(ended.next);
        }
    }

    /// Notes in all trees that an epoch could not be ended.
    fn note_failed(&self) {
        self.for_each_tree(|tree| tree.epochs().note_failed());
        // The trees are told first. Otherwise another thread could take the flag back in between, and
        // idle trees would count as failing for ever.
        self.is_failing.store(true, Ordering::Release);
    }

    fn for_each_tree(&self, note: impl Fn(&dyn Member<M, S>)) {
        let members = self.members.lock();
        let trees: Vec<_> = members.values().filter_map(Weak::upgrade).collect();
        drop(members);
        for tree in trees {
            note(&*tree);
        }
    }

    /// Ends the running epoch if anything changed in it, or if `wanted` names the epoch that is to run
    /// next, or an earlier one. When this returns, the end is ordered before all later stores; it need
    /// not be durable yet. The steps:
    ///
    /// 1. Flush what can be flushed while writers go on.
    /// 2. Wait for the batches, and stop the writers of all trees.
    /// 3. Flush the other changed lines, and fence.
    /// 4. Publish the number of the next epoch, and let the writers go on in it.
    fn end(
        &self,
        state: &mut PoolEpochState,
        pool: &Pool<M>,
        wanted: Option<u64>,
    ) -> Result<EndedEpoch> {
        self.expect_whole(state)?;
        let guard = pool.peek();
        // After an error the flushed lines are in no list any more. This flag makes the next
        // attempt end the epoch nevertheless.
        let was_owed = std::mem::replace(&mut state.is_owed, true);
        let last = state.written.running;
        let next = wanted.unwrap_or(0).max(last + 1);
        if last / IDLE_EPOCHS_MAX != next / IDLE_EPOCHS_MAX {
            self.for_each_tree(|tree| self.wake(tree.epochs()));
        }
        let mut has_flushed = false;
        let trees = self.busy_trees();
        for tree in &trees {
            has_flushed |= tree.epochs().flush_beside_others(&guard)?;
        }
        // Batches end first, while other writers go on.
        TreeEpochs::<M, S>::reach_any(AccessKind::Store);
        drop(trees);
        let _no_batch = self.batches.lock();
        self.expect_whole(state)?;
        let pause = Instant::now();
        let mut busy = self.busy.lock();
        let trees: Vec<_> = busy.iter().filter_map(Weak::upgrade).collect();
        // The lists are dropped after the shards are unlocked, since freeing memory may take long.
        let mut listed = Vec::with_capacity(trees.len());
        let mut stopped = Vec::with_capacity(trees.len());
        for tree in &trees {
            let mut shards = tree.epochs().barrier.stop();
            let mut of_tree: Vec<_> = shards
                .iter_mut()
                .map(|shard| take(&mut shard.listed))
                .collect();
            of_tree.push(take(&mut tree.epochs().touched.lock()));
            listed.push(of_tree);
            stopped.push(shards);
        }
        let has_changed = has_flushed || !listed.iter().flatten().all(Vec::is_empty);
        if !has_changed && !was_owed && wanted.is_none() {
            rest(&mut busy, &trees, &listed);
            drop(stopped);
            state.is_owed = false;
            return Ok(state.last_end());
        }
        let mut flushed = Ok(());
        for (tree, listed) in trees.iter().zip(&listed) {
            flushed = flushed.and(tree.epochs().flush_listed(&guard, listed));
        }
        guard.fence();
        flushed?;
        words::write_running(&guard, next)?;
        state.ended = guard.fence();
        state.written.running = next;
        state.is_owed = false;
        self.last_ended.note(next - 1, state.ended);
        // ORDER: pairs with the acquire in `running`. A thread that works in the next epoch has seen a
        // tree begin it, which comes after this store.
        self.running.store(next, Ordering::Release);
        let mut begun = Ok(());
        // The memory of a tree that was dropped meanwhile may be in use for something else.
        for tree in trees.iter().filter(|tree| !tree.epochs().are_over()) {
            tree.epochs().begin(next);
            begun = begun.and(tree.at_begin(&guard, last, next));
        }
        rest(&mut busy, &trees, &listed);
        drop(stopped);
        drop(busy);
        for tree in &trees {
            tree.epochs().figures.count_pause(pause.elapsed());
        }
        begun.map(|()| state.last_end())
    }
}

/// Makes trees idle, and keeps the others as the busy ones. `listed` are the lines that each tree had
/// listed when the epoch ended. The caller holds all shards of the trees.
fn rest<M: Medium, S>(
    busy: &mut BusyTrees<M, S>,
    trees: &[Arc<dyn Member<M, S>>],
    listed: &[Vec<Vec<u64>>],
) {
    busy.clear();
    for (tree, listed) in trees.iter().zip(listed) {
        if tree.epochs().can_rest(listed) {
            tree.epochs().barrier.rest();
        } else {
            busy.push(Arc::downgrade(tree));
        }
    }
}

/// The key of a tree among the members.
fn key_of<M: Medium, S>(epochs: &TreeEpochs<M, S>) -> usize {
    std::ptr::from_ref(epochs).addr()
}

/// Wakes the tasks whose writes have become durable with the end of an epoch. The caller holds no lock:
/// a waker may drop the last handle of a tree, which then leaves.
fn wake_tasks<M: Medium>(pool: &Pool<M>, ended: Option<EndedEpoch>) -> Result<()> {
    match ended {
        Some(ended) => pool.peek().settle(ended.lsn),
        None => Ok(()),
    }
}

/// The tree was closed or dropped: an operation that needs its epochs fails.
pub(crate) fn has_left() -> MediumError {
    MediumError::Failed("the tree was closed meanwhile".to_owned())
}

/// The copies of the epochs' numbers that are lost.
///
/// # Errors
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the file ends before them.
pub(crate) fn lost_copies<M: Medium>(guard: &Guard<'_, M>) -> Result<Vec<LostCopy>> {
    let mut lost = Vec::new();
    lost.extend(words::lost_copy(guard)?.map(|(_, copy)| copy));
    Ok(lost)
}

/// Whether an epoch of a pool has ended, and not failed. To be called before any tree is opened,
/// since that may begin another epoch.
///
/// # Errors
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if both copies of the epochs' numbers are
/// damaged.
pub(crate) fn is_complete<M: Medium>(pool: &Pool<M>, epoch: u64) -> Result<bool> {
    let written = words::read(&pool.peek())?;
    Ok(epoch < written.running && !written.failed.contains(&epoch))
}

impl PoolEpochState {
    /// The end of the last epoch.
    fn last_end(&self) -> EndedEpoch {
        EndedEpoch {
            next: self.written.running,
            lsn: self.ended,
        }
    }

    /// Goes on with the epochs of an earlier process, with `first` or a later one. If an epoch was
    /// running, it has failed.
    fn resume<M: Medium>(&mut self, pool: &Pool<M>, first: u64) -> Result<()> {
        let guard = pool.peek();
        let mut written = words::read(&guard)?;
        let EpochState {
            running,
            is_clean,
            mut failed,
            ..
        } = written;
        if running != 0 && !is_clean && !failed.contains(&running) {
            // Takes a free place, or else the place of the oldest failed epoch.
            if let Some(place) = failed.iter_mut().min() {
                if *place != 0 {
                    // This happens only if a damaged tree was not opened for long. A tree that
                    // needs the dropped epoch cannot be opened any more.
                    written.dropped = *place;
                    words::write_dropped(&guard, &written)?;
                }
                *place = running;
            }
            written.failed = failed;
        }
        // The failed epoch is written before the number of the next one: otherwise it would seem to
        // have ended.
        words::write_failed(&guard, &written)?;
        written.running = first.max(running + 1);
        words::write_running(&guard, written.running)?;
        // Every later store becomes durable after this, so there is nothing to wait for. If there is
        // none, this may be lost.
        self.ended = guard.fence_at_rest();
        self.written = written;
        self.is_owed = false;
        Ok(())
    }
}
