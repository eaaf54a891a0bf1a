//! Runs that go back to the pool, because all of their objects are free.
//!
//! 1. All shards are locked. Runs whose objects are all free are taken out of the chain of runs,
//!    and their objects out of the queues. Every store is logged as those of operations are: if the
//!    epoch fails, everything is as it was, and nothing in the runs was overwritten.
//! 2. The epoch ends. No thread can reach the objects any more, and no crash brings them back.
//! 3. The pool takes the runs. If a crash comes before, its mark does not reach them, so they are
//!    free as well.

use medium::Medium;
use medium::sync::MutexGuard;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Limit, Own, Parked, TreeSpace, run_of};
use crate::kit::epochs::Shard;
use crate::masstree::layout::{Anchor, CLASSES, checked, unchecked};
use crate::{Error, Result};

/// Words in the header of a run.
const BEFORE: usize = 1;
const BEFORE_OLD: usize = 3;
const EPOCH: usize = 4;

impl<M: Medium> TreeSpace<'_, M> {
    /// The run before one in the chain.
    pub(super) fn before(&self, run: u64) -> Result<u64> {
        let header = self.guard.words(run, 8)?;
        let word = |index: usize| unchecked(header[index].load(self.guard));
        let epoch = word(EPOCH);
        let before = if epoch.is_some_and(|epoch| self.epochs.has_failed(epoch)) {
            BEFORE_OLD
        } else {
            BEFORE
        };
        match word(before) {
            Some(before) if epoch.is_some() => Ok(before),
            _ => Err(Error::corrupt(run, "the header of a run is damaged")),
        }
    }

    fn set_before(&self, run: u64, before: u64, running: u64) -> Result<()> {
        let header = self.guard.words(run, 8)?;
        if header[EPOCH].load(self.guard) != checked(running) {
            header[BEFORE_OLD].store(self.guard, header[BEFORE].load(self.guard));
            // These stores go to one line, so they become durable in this order.
            header[EPOCH].store(self.guard, checked(running));
        }
        header[BEFORE].store(self.guard, checked(before));
        self.epochs.list_touched(run, 64);
        Ok(())
    }

    /// Restores the chain of runs as the last completed epoch had it. No run leaves it before, since
    /// that needs a sweep. O(runs).
    pub(in crate::masstree) fn recover_chain(&self) -> Result<()> {
        for (run, _) in self.runs()? {
            let before = self.before(run)?;
            let header = self.guard.words(run, 8)?;
            if header[BEFORE].load(self.guard) != checked(before) {
                // The epoch in the log stays. Until the failed epoch is forgotten, an open after a
                // further crash restores the same again.
                header[BEFORE].store(self.guard, checked(before));
                self.epochs.list_touched(run, 64);
            }
        }
        Ok(())
    }

    /// Step 1. Returns the runs that were taken out. No writes of failed epochs are left. O(runs +
    /// free objects).
    pub(in crate::masstree) fn take_out_empty_runs(
        &self,
        shards: &mut [MutexGuard<'_, Shard<Own>>],
    ) -> Result<Vec<u64>> {
        let running = self.epochs.barrier.running();
        let runs = self.runs()?;
        let mut seen = FxHashSet::default();
        let mut queues = Vec::new();
        let mut free = FxHashMap::<u64, u64>::default();
        for shard in 0..shards.len() {
            for class in 0..CLASSES {
                let objects =
                    self.objects_free_in(self.queue(shard, class)?, running, &mut seen)?;
                objects
                    .iter()
                    .for_each(|object| *free.entry(run_of(*object)).or_default() += 1);
                queues.push((shard, class, objects));
            }
        }
        let carved = self.objects_of(runs.clone())?;
        let is_empty = |run: &u64, count: u64| count > 0 && free.get(run) == Some(&count);
        let counted = runs
            .iter()
            .zip(carved)
            .filter(|((run, _), objects)| is_empty(run, objects.count));
        let empty: FxHashSet<u64> = counted.map(|((run, _), _)| *run).collect();
        if empty.is_empty() {
            return Ok(Vec::new());
        }
        for (shard, class, objects) in queues {
            self.filter_queue(
                &mut shards[shard].own,
                shard,
                class,
                &objects,
                &empty,
                running,
            )?;
        }
        let kept: Vec<u64> = runs
            .iter()
            .map(|(run, _)| *run)
            .filter(|run| !empty.contains(run))
            .collect();
        let last = &self.guard.node::<Anchor>(self.anchor)?.runs;
        if runs.first().map(|(run, _)| *run) != kept.first().copied() {
            last.set(self.guard, running, kept.first().copied().unwrap_or(0));
            self.epochs
                .list_touched(self.guard.offset_of(last), size_of_val(last) as u64);
        }
        for (index, run) in kept.iter().enumerate() {
            let before = kept.get(index + 1).copied().unwrap_or(0);
            if self.before(*run)? != before {
                self.set_before(*run, before, running)?;
            }
        }
        Ok(empty.into_iter().collect())
    }

    /// Takes the objects of `empty` runs out of a queue, which holds `objects`.
    fn filter_queue(
        &self,
        own: &mut Own,
        shard: usize,
        class: usize,
        objects: &[u64],
        empty: &FxHashSet<u64>,
        running: u64,
    ) -> Result<()> {
        let guard = self.guard;
        let queue = self.queue(shard, class)?;
        let is_kept = |object: &u64| !empty.contains(&run_of(*object));
        let fresh = queue.fresh.load(guard);
        let fresh_left = if fresh == 0 || is_kept(&fresh) {
            fresh
        } else {
            0
        };
        if fresh_left == fresh && objects.iter().all(is_kept) {
            return Ok(());
        }
        let limit = self.limit(own, running, class, queue);
        let takeable = objects
            .iter()
            .position(|object| *object == limit)
            .map_or(0, |last| last + 1);
        let limit = objects[..takeable]
            .iter()
            .rfind(|object| is_kept(object))
            .copied()
            .unwrap_or(0);
        own.limits[class] = Limit {
            epoch: running,
            object: limit,
        };
        if let Parked::Behind(last) = own.parked[class] {
            // It may lie in a run that leaves.
            let before = objects.iter().position(|object| *object == last);
            let unparked = &objects[..before.map_or(0, |position| position + 1)];
            own.parked[class] = match unparked.iter().rfind(|object| is_kept(object)) {
                Some(last) => Parked::Behind(*last),
                None => Parked::All,
            };
        }
        self.log_ends(queue, running);
        let mut last = 0;
        for (index, object) in objects
            .iter()
            .enumerate()
            .filter(|(_, object)| is_kept(object))
        {
            // The one before it in the queue leads to it already.
            if last != 0 && objects[index - 1] != last {
                self.store_link(last, *object, running)?;
                self.epochs.list_touched(last, 16);
            }
            last = *object;
        }
        queue.head.store(
            guard,
            objects
                .iter()
                .find(|object| is_kept(object))
                .copied()
                .unwrap_or(0),
        );
        queue.tail.store(guard, last);
        queue.fresh.store(guard, fresh_left);
        self.epochs.list_touched(guard.offset_of(queue), 64);
        Ok(())
    }
}
