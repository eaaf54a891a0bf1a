//! Runs that are to be emptied, so that they go back to the pool.
//!
//! All shards are locked while runs are chosen. In each queue the free objects of these runs go
//! behind the others, and none is taken from there on: the queue notes in memory where they begin
//! ([`Parked`]). So the order of a queue changes, and nothing else: each store is logged as those of
//! operations are, and no object is lost if the epoch fails or the process ends.

use medium::Medium;
use medium::sync::MutexGuard;
use pool::{Evacuate, SLAB_BYTES};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    BORDER, Limit, Own, Parked, RUN_HEADER_BYTES, SIZES, SLAB_LEAD_BYTES, TreeSpace, class_of,
    is_shared, run_bytes, run_of,
};
use crate::Result;
use crate::index::OwnSpace;
use crate::kit::epochs::Shard;
use crate::masstree::layout::{CLASSES, interior_bytes};

/// Of the objects of a run that is to be emptied at most seven eighths are in use.
const USED_NUMERATOR: u64 = 7;
const USED_DENOMINATOR: u64 = 8;

/// The run of an object.
pub(in crate::masstree) fn run_of_object(object: u64) -> u64 {
    run_of(object)
}

/// A queue, and the free objects in it.
struct QueueContent {
    shard: usize,
    class: usize,
    objects: Vec<u64>,
}

/// A run of records.
#[derive(Clone, Copy)]
struct RecordRun {
    run: u64,
    class: usize,
    used: u64,
    free: u64,
}

impl<M: Medium> TreeSpace<'_, M> {
    /// Chooses runs of records that are to be emptied, and keeps allocations away from them.
    /// Returns them. No writes of failed epochs are left. O(runs + free objects).
    pub(in crate::masstree) fn park_sparse_runs(
        &self,
        shards: &mut [MutexGuard<'_, Shard<Own>>],
        choice: Evacuate,
    ) -> Result<FxHashSet<u64>> {
        let running = self.epochs.barrier.running();
        let mut seen = FxHashSet::default();
        let mut queues = Vec::new();
        let mut carving = FxHashSet::default();
        for shard in 0..shards.len() {
            for class in 0..CLASSES {
                let queue = self.queue(shard, class)?;
                let fresh = queue.fresh.load(self.guard);
                if fresh != 0 {
                    carving.insert(run_of(fresh));
                }
                let objects = self.objects_free_in(queue, running, &mut seen)?;
                queues.push(QueueContent {
                    shard,
                    class,
                    objects,
                });
            }
        }
        let mut free = FxHashMap::<u64, u64>::default();
        for object in seen {
            *free.entry(run_of(object)).or_default() += 1;
        }
        let mut runs = Vec::new();
        let class_of_inner_nodes = class_of(interior_bytes());
        for (run, class) in self.runs()? {
            let holds_nodes = class >= BORDER || class == class_of_inner_nodes;
            if holds_nodes || !is_shared(class) || carving.contains(&run) {
                continue;
            }
            let objects = run_bytes(class) / u64::from(SIZES[class]);
            let free = free.get(&run).copied().unwrap_or(0).min(objects);
            runs.push(RecordRun {
                run,
                class,
                used: objects - free,
                free,
            });
        }
        let chosen = match choice {
            Evacuate::All => runs.iter().map(|run| run.run).collect(),
            Evacuate::Sparse => choose_sparse(runs),
        };
        for queue in &queues {
            let own = &mut shards[queue.shard].own;
            self.park_queue(own, queue, &chosen, running)?;
        }
        Ok(chosen)
    }

    /// Bytes of the slabs of all runs, by what these hold. O(runs).
    pub(in crate::masstree) fn bytes_of_runs(&self) -> Result<OwnSpace> {
        let class_of_inner_nodes = class_of(interior_bytes());
        let mut space = OwnSpace::default();
        for (_, class) in self.runs()? {
            let slabs =
                (run_bytes(class) + RUN_HEADER_BYTES + SLAB_LEAD_BYTES).div_ceil(SLAB_BYTES);
            let holds_nodes = class >= BORDER || class == class_of_inner_nodes;
            let bytes = if holds_nodes {
                &mut space.node_bytes
            } else {
                &mut space.record_bytes
            };
            *bytes += slabs * SLAB_BYTES;
        }
        Ok(space)
    }

    /// Puts the free objects of chosen runs behind the others of their queue.
    fn park_queue(
        &self,
        own: &mut Own,
        content: &QueueContent,
        chosen: &FxHashSet<u64>,
        running: u64,
    ) -> Result<()> {
        let guard = self.guard;
        let class = content.class;
        let objects = &content.objects;
        let is_kept = |object: &u64| !chosen.contains(&run_of(*object));
        own.parked[class] = Parked::None;
        if objects.iter().all(is_kept) {
            return Ok(());
        }
        let queue = self.queue(content.shard, class)?;
        let limit = self.limit(own, running, class, queue);
        let takeable = objects
            .iter()
            .position(|object| *object == limit)
            .map_or(0, |last| last + 1);
        let last_takeable = objects[..takeable].iter().rfind(|object| is_kept(object));
        own.limits[class] = Limit {
            epoch: running,
            object: last_takeable.copied().unwrap_or(0),
        };
        own.parked[class] = match objects.iter().rfind(|object| is_kept(object)) {
            Some(last) => Parked::Behind(*last),
            None => Parked::All,
        };
        let mut order: Vec<u64> = objects.iter().copied().filter(is_kept).collect();
        order.extend(objects.iter().copied().filter(|object| !is_kept(object)));
        if order == *objects {
            return Ok(());
        }
        self.log_ends(queue, running);
        let mut old_next = FxHashMap::default();
        for pair in objects.windows(2) {
            old_next.insert(pair[0], pair[1]);
        }
        for pair in order.windows(2) {
            if old_next.get(&pair[0]) != Some(&pair[1]) {
                self.store_link(pair[0], pair[1], running)?;
                self.epochs.list_touched(pair[0], 16);
            }
        }
        queue.head.store(guard, order[0]);
        queue.tail.store(guard, order[order.len() - 1]);
        self.epochs.list_touched(guard.offset_of(queue), 64);
        Ok(())
    }
}

/// The emptiest runs of each class, as far as their objects in use fit into the free objects of the
/// others.
fn choose_sparse(mut runs: Vec<RecordRun>) -> FxHashSet<u64> {
    let mut room = FxHashMap::<usize, u64>::default();
    for run in &runs {
        *room.entry(run.class).or_default() += run.free;
    }
    runs.sort_unstable_by_key(|run| (run.class, run.used, run.run));
    let mut chosen = FxHashSet::default();
    for RecordRun {
        run,
        class,
        used,
        free,
    } in runs
    {
        let room = room.entry(class).or_default();
        let is_dense = used * USED_DENOMINATOR > (used + free) * USED_NUMERATOR;
        // An empty run goes back to the pool without this.
        if used == 0 || is_dense || room.saturating_sub(free) < used {
            continue;
        }
        // The free objects of the run are no room any more, and its others take some.
        *room -= free + used;
        chosen.insert(run);
    }
    chosen
}
