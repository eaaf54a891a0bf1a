//! The durable allocator (section 5 of the paper): nodes and records of one tree.
//!
//! The allocator takes *runs* from the pool: one slab of 64 KiB for objects of one class, or as
//! many slabs as one large object needs. The pool knows which slabs are taken; this allocator knows
//! which objects in them are free. So after a crash only the runs, which form a chain, have to be
//! marked. A run goes back to the pool when all of its objects are free (`give_back`), or with the
//! tree.
//!
//! Each shard has a queue of free objects for each class. Freed objects go to the tail; allocations
//! come from the head, and take only objects that were in the queue when the epoch began. So an
//! object that a reader may still read is never reused. A shard whose queue is empty takes from
//! another shard's queue all that was free when the epoch began, before it takes a run; otherwise
//! threads that remove what other threads inserted would fill the pool.
//!
//! The in-line log of the queue's ends lies in the queue's line. The link from an object to the
//! next has its own in-line log, in two words (section 5.1):
//!
//! ```text
//! link      bits 0..2 counter   4..48 next object          48..64 high half of the epoch
//! link log  bits 0..2 counter   4..48 link at its begin    48..64 low half of the epoch
//! ```
//!
//! The log is written first, with the next counter; then the link with the same counter. Counters
//! that differ reveal a crash between the two. The epoch has 32 bits. Every 2^30 epochs all links
//! are rewritten, so that an old epoch with the same low bits is never mistaken for a failed one.

mod evacuation;
mod give_back;
mod own_runs;

use medium::sync::schedule::AccessKind;
use medium::sync::{Mutex, is_scheduled};
use medium::{Medium, Word};
use pool::{ALLOCATION_BYTES_MAX, Guard, SLAB_BYTES};
use rustc_hash::FxHashSet;

pub(super) use self::evacuation::run_of_object;
use super::layout::{
    Anchor, CLASSES, OFFSET_MASK, Queue, ShardArea, border_bytes, checked, shard_area, unchecked,
};
use super::shard::{Limit, Own, Parked, Work};
use crate::kit::epochs::{IDLE_EPOCHS_MAX, TreeEpochs};
use crate::{Error, ErrorKind, Result};

/// Bytes at the head of a run: its class, the run before it, the anchor of its tree, and the
/// in-line log of the run before it: its old value and the epoch. Each with its check.
const RUN_HEADER_BYTES: u64 = 64;
/// Bytes of the pool's slab before a run.
const SLAB_LEAD_BYTES: u64 = 64;
/// Bytes of a run of one slab.
const RUN_BYTES: u64 = SLAB_BYTES - SLAB_LEAD_BYTES;
/// Epochs after which all links are rewritten: a quarter of the epochs that 32 bits distinguish. So
/// one rewriting may be left out, because its epoch fails, or is the first one after an open.
const RENEWAL_EPOCHS: u64 = IDLE_EPOCHS_MAX;

/// How often a shard tries again while those that have free objects are locked for short
/// operations.
const TRIES: usize = 64;

/// The first of the two classes of border nodes. No other object is in them: so the sweep knows a
/// node by its run.
const BORDER: usize = CLASSES - 2;

/// Sizes of objects. The longest record has the last size before those of border nodes.
const SIZES: [u32; CLASSES] = {
    let mut sizes = [0; CLASSES];
    let mut index: usize = 0;
    let mut size: u32 = 32;
    while index < BORDER - 1 {
        sizes[index] = size;
        // By 16 up to 128, then four steps per doubling up to 16 KiB, then doubling.
        let step = if size < 1 << 14 {
            1 << (size.ilog2() - 2)
        } else {
            size
        };
        size += if size < 128 { 16 } else { step };
        index += 1;
    }
    sizes[BORDER - 1] = ALLOCATION_BYTES_MAX as u32 - RUN_HEADER_BYTES as u32;
    sizes[BORDER] = border_bytes(false) as u32;
    sizes[BORDER + 1] = border_bytes(true) as u32;
    sizes
};

const _: () =
    assert!(SIZES[6] == 128 && SIZES[BORDER - 2] == 1 << 24 && SIZES[BORDER - 1] > 1 << 24);

/// The class of an object of `bytes` bytes, other than a border node. [`BORDER`] if no class is so
/// large.
fn class_of(bytes: usize) -> usize {
    SIZES[..BORDER].partition_point(|size| (*size as usize) < bytes)
}

/// The class of border nodes.
pub(super) fn border_class(are_words: bool) -> usize {
    BORDER + usize::from(are_words)
}

/// Where the run of an object begins.
fn run_of(object: u64) -> u64 {
    object / SLAB_BYTES * SLAB_BYTES + SLAB_LEAD_BYTES
}

/// Whether a run holds many objects of this class.
fn is_shared(class: usize) -> bool {
    2 * u64::from(SIZES[class]) <= RUN_BYTES - RUN_HEADER_BYTES
}

/// Bytes of a run that hold objects.
pub(super) fn run_bytes(class: usize) -> u64 {
    if is_shared(class) {
        RUN_BYTES - RUN_HEADER_BYTES
    } else {
        SIZES[class].into()
    }
}

/// Whether there is an object at that offset, if it lies in a run of this class.
#[inline(always)]
fn is_place(object: u64, class: usize) -> bool {
    let within = object.wrapping_sub(run_of(object & OFFSET_MASK) + RUN_HEADER_BYTES);
    object >= SLAB_BYTES
        && within <= run_bytes(class) - u64::from(SIZES[class])
        && (within as u32).is_multiple_of(SIZES[class])
}

/// The class in the header of a run.
fn class_of_run<M: Medium>(guard: &Guard<'_, M>, run: u64) -> Result<Option<usize>> {
    let class = unchecked(guard.words(run, 1)?[0].load(guard));
    Ok(class
        .filter(|class| *class < CLASSES as u64)
        .map(|class| class as usize))
}

const LINK_MASK: u64 = OFFSET_MASK;
const COUNTER: u64 = 3;

/// Both words of an object's link.
#[derive(Clone, Copy)]
struct Link {
    link: u64,
    log: u64,
}

impl Link {
    fn load<M: Medium>(guard: &Guard<'_, M>, words: &[Word]) -> Self {
        Self {
            link: words[0].load(guard),
            log: words[1].load(guard),
        }
    }

    fn is_whole(self) -> bool {
        (self.link ^ self.log) & COUNTER == 0
    }

    /// The epoch of the last change: the last one up to `running` with these 32 bits.
    fn epoch(self, running: u64) -> u64 {
        let low = (self.link >> 48 << 16 | self.log >> 48) as u32;
        running.wrapping_sub(u64::from((running as u32).wrapping_sub(low)))
    }

    /// The next object, and whether its log is of the running epoch.
    fn next(self, running: u64, failed: impl Fn(u64) -> bool) -> (u64, bool) {
        if !self.is_whole() {
            return (self.log & LINK_MASK, false);
        }
        let epoch = self.epoch(running);
        let word = if failed(epoch) { self.log } else { self.link };
        (word & LINK_MASK, epoch == running)
    }
}

/// The allocator of a tree, in use by one thread.
pub(super) struct TreeSpace<'v, M: Medium> {
    pub(super) anchor: u64,
    /// Held while a run is added.
    pub(super) runs: &'v Mutex<()>,
    pub(super) guard: &'v Guard<'v, M>,
    pub(super) epochs: &'v TreeEpochs<M, Own>,
}

/// Objects of a run, of one class.
pub(super) struct Objects {
    pub(super) class: usize,
    first: u64,
    count: u64,
}

impl Iterator for Objects {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let object = self.first;
        self.count = self.count.checked_sub(1)?;
        self.first += u64::from(SIZES[self.class]);
        Some(object)
    }
}

// Links and queues.
impl<M: Medium> TreeSpace<'_, M> {
    /// The next object after one in a queue.
    fn load_link(&self, object: u64, running: u64) -> Result<u64> {
        let link = Link::load(self.guard, self.guard.words(object, 2)?);
        Ok(link.next(running, |epoch| self.epochs.has_failed(epoch)).0)
    }

    /// Sets the next object.
    fn store_link(&self, object: u64, next: u64, running: u64) -> Result<()> {
        let guard = self.guard;
        let words = guard.words(object, 2)?;
        let current = Link::load(guard, words);
        let (old, is_logged) = current.next(running, |epoch| self.epochs.has_failed(epoch));
        let mut counter = current.link & COUNTER;
        if !is_logged {
            counter = (counter + 1) & COUNTER;
            // The log is stored first: both lie in one line, so they become durable in this order.
            words[1].store(guard, old | counter | (running & 0xffff) << 48);
        }
        words[0].store(guard, next | counter | (running >> 16 & 0xffff) << 48);
        Ok(())
    }

    /// Writes an object's link anew.
    fn renew_link(&self, object: u64, running: u64) -> Result<()> {
        self.store_link(object, self.load_link(object, running)?, running)?;
        self.epochs.list_touched(object, 16);
        Ok(())
    }

    /// Writes an object's link anew if it is of a failed epoch. No other thread works meanwhile.
    pub(super) fn sweep_link(&self, object: u64, running: u64) -> Result<()> {
        let link = Link::load(self.guard, self.guard.words(object, 2)?);
        if link.is_whole() && !self.epochs.has_failed(link.epoch(running)) {
            return Ok(());
        }
        self.renew_link(object, running)
    }

    /// Rewrites all links before their 32 bits of epoch become ambiguous. `last` is the epoch before
    /// the running one in which the tree took part. No other thread works meanwhile.
    pub(super) fn renew_links(&self, last: u64, running: u64) -> Result<()> {
        if last / RENEWAL_EPOCHS == running / RENEWAL_EPOCHS {
            return Ok(());
        }
        self.objects()?
            .into_iter()
            .flatten()
            .try_for_each(|object| self.renew_link(object, running))
    }

    #[inline(always)]
    fn queue(&self, shard: usize, class: usize) -> Result<&Queue> {
        let area = shard_area(self.anchor, shard);
        Ok(&self.guard.node::<ShardArea>(area)?.queues[class])
    }

    /// All queues.
    fn queues(&self) -> Result<impl Iterator<Item = &Queue>> {
        let area = |shard| self.guard.node::<ShardArea>(shard_area(self.anchor, shard));
        let areas = (0..self.epochs.barrier.shards().len())
            .map(area)
            .collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(areas.into_iter().flat_map(|area| &area.queues))
    }

    /// Restores the ends of all queues, and the last run, as the last completed epoch had them. The
    /// chain of runs is read as that epoch had it, and is restored by the sweep.
    pub(super) fn recover(&self) -> Result<()> {
        let runs = &self.guard.node::<Anchor>(self.anchor)?.runs;
        if self.epochs.has_failed(runs.epoch.load(self.guard)) {
            runs.restore(self.guard);
            self.epochs
                .list_touched(self.guard.offset_of(runs), size_of_val(runs) as u64);
        }
        for queue in self.queues()? {
            let epoch = queue.epoch.load(self.guard);
            if epoch == 0 || !self.epochs.has_failed(epoch) {
                continue;
            }
            for (value, old) in [
                (&queue.head, &queue.head_old),
                (&queue.tail, &queue.tail_old),
                (&queue.fresh, &queue.fresh_old),
            ] {
                value.store(self.guard, old.load(self.guard));
            }
            // The epoch in the log stays. Until the failed epoch is forgotten, an open after a
            // further crash restores the same again.
            self.epochs.list_touched(self.guard.offset_of(queue), 64);
        }
        Ok(())
    }

    /// All runs, with their classes, from the last one on.
    pub(super) fn runs(&self) -> Result<Vec<(u64, usize)>> {
        let guard = self.guard;
        let mut run = guard.node::<Anchor>(self.anchor)?.runs.value.load(guard);
        let runs_max = guard.medium().extent().length() / SLAB_BYTES;
        let mut runs = Vec::new();
        while run != 0 {
            let before = self.before(run)?;
            let Some(class) = class_of_run(guard, run)? else {
                return Err(Error::corrupt(run, "the header of a run is damaged"));
            };
            if runs.len() as u64 > runs_max {
                return Err(Error::corrupt(run, "the runs form a circle"));
            }
            runs.push((run, class));
            run = before;
        }
        Ok(runs)
    }

    /// All objects that were ever carved out of runs, run by run. O(slabs).
    pub(super) fn objects(&self) -> Result<Vec<Objects>> {
        self.objects_of(self.runs()?)
    }

    /// The objects of [`TreeSpace::objects`], for a tree whose chain of runs is damaged: its runs
    /// are searched for in the slabs of the pool.
    pub(super) fn objects_in_slabs(&self) -> Result<Vec<Objects>> {
        // A slab without a header may be a run whose header is damaged. Nodes of records can be
        // told from other memory, by their records; nodes of words cannot.
        let headless = border_class(false);
        let slabs = self.guard.medium().extent().length() / SLAB_BYTES;
        let mut runs = Vec::new();
        for slab in 1..slabs {
            let run = run_of(slab * SLAB_BYTES);
            // Whole slabs lie in the pool, so their words can be read: an error is no damage.
            let header = self.guard.words(run, 3)?;
            let class = match unchecked(header[2].load(self.guard)) {
                Some(anchor) if anchor != self.anchor => continue,
                Some(_) => class_of_run(self.guard, run)?.unwrap_or(headless),
                None => headless,
            };
            runs.push((run, class));
        }
        self.objects_of(runs)
    }

    fn objects_of(&self, runs: Vec<(u64, usize)>) -> Result<Vec<Objects>> {
        let fresh: Vec<u64> = self
            .queues()?
            .map(|queue| queue.fresh.load(self.guard))
            .collect();
        let objects = runs.into_iter().map(|(run, class)| {
            let first = run + RUN_HEADER_BYTES;
            let size = u64::from(SIZES[class]);
            let carving = fresh.iter().find(|fresh| run_of(**fresh) == run);
            let bytes = carving.map_or(run_bytes(class), |fresh| fresh.saturating_sub(first));
            Objects {
                class,
                first,
                count: bytes / size,
            }
        });
        Ok(objects.collect())
    }

    /// Objects in use: all that were ever carved out of runs, except for those in queues. No other
    /// thread works meanwhile.
    pub(super) fn objects_taken(&self, running: u64) -> Result<u64> {
        let carved = self
            .objects()?
            .iter()
            .map(|objects| objects.count)
            .sum::<u64>();
        Ok(carved.saturating_sub(self.objects_free(running)?.len() as u64))
    }

    /// The objects in queues. No other thread works meanwhile.
    pub(super) fn objects_free(&self, running: u64) -> Result<FxHashSet<u64>> {
        let mut free = FxHashSet::default();
        for queue in self.queues()? {
            self.objects_free_in(queue, running, &mut free)?;
        }
        Ok(free)
    }

    /// The objects of [`TreeSpace::objects_free`] in the undamaged parts of queues, and whether all
    /// queues are undamaged.
    pub(super) fn objects_known_free(&self, running: u64) -> (FxHashSet<u64>, bool) {
        let mut free = FxHashSet::default();
        let Ok(queues) = self.queues() else {
            return (free, false);
        };
        let is_whole = |queue| self.objects_free_in(queue, running, &mut free).is_ok();
        let broken = queues.map(is_whole).filter(|is_whole| !is_whole).count();
        (free, broken == 0)
    }

    /// The objects in a queue, in its order. They are added to those `seen` in other queues.
    fn objects_free_in(
        &self,
        queue: &Queue,
        running: u64,
        seen: &mut FxHashSet<u64>,
    ) -> Result<Vec<u64>> {
        let mut objects = Vec::new();
        let mut object = queue.head.load(self.guard);
        while object != 0 {
            if !seen.insert(object) {
                return Err(Error::corrupt(object, "the free objects form a circle"));
            }
            objects.push(object);
            let is_last = object == queue.tail.load(self.guard);
            object = if is_last {
                0
            } else {
                self.load_link(object, running)?
            };
        }
        Ok(objects)
    }
}

// Allocation.
impl<M: Medium> TreeSpace<'_, M> {
    /// Logs the ends of a queue, and lists its line, before that changes.
    fn log_queue(&self, work: &mut Work<'_>, class: usize, queue: &Queue) {
        self.log_ends(queue, work.epoch);
        if work.shard.own.queue_listed[class] != work.phase {
            work.shard.own.queue_listed[class] = work.phase;
            self.epochs
                .list(&mut work.shard, self.guard.offset_of(queue), 64);
        }
    }

    /// Logs the ends of a queue in its line, before they change.
    #[inline(always)]
    fn log_ends(&self, queue: &Queue, running: u64) {
        let guard = self.guard;
        if queue.epoch.load(guard) != running {
            queue.head_old.store(guard, queue.head.load(guard));
            queue.tail_old.store(guard, queue.tail.load(guard));
            queue.fresh_old.store(guard, queue.fresh.load(guard));
            // These stores go to one line, so they become durable in this order.
            queue.epoch.store(guard, running);
        }
    }

    /// The last object that may be taken from a queue in this epoch: its tail when that began, or
    /// the last one that came from another shard; 0 if none is left. None that is parked.
    #[inline(always)]
    fn limit(&self, own: &Own, running: u64, class: usize, queue: &Queue) -> u64 {
        let limit = &own.limits[class];
        let guard = self.guard;
        if limit.epoch == running {
            return limit.object;
        }
        match own.parked[class] {
            Parked::None => {}
            Parked::Behind(last) => return last,
            Parked::All => return 0,
        }
        let is_logged = queue.epoch.load(guard) == running;
        let (head, tail) = if is_logged {
            (&queue.head_old, &queue.tail_old)
        } else {
            (&queue.head, &queue.tail)
        };
        if head.load(guard) == 0 {
            0
        } else {
            tail.load(guard)
        }
    }

    /// The object behind one in a queue; 0 if that is its tail.
    #[inline(always)]
    fn behind(&self, queue: &Queue, class: usize, object: u64, running: u64) -> Result<u64> {
        if !is_place(object, class) {
            return Err(Error::corrupt(
                object,
                "a free object where no object begins",
            ));
        }
        if object == queue.tail.load(self.guard) {
            Ok(0)
        } else {
            self.load_link(object, running)
        }
    }

    /// An object that was free when the epoch began, or a fresh one from the run that the shard is
    /// carving.
    fn take(&self, work: &mut Work<'_>, class: usize) -> Result<Option<u64>> {
        let queue = self.queue(work.shard.index, class)?;
        let head = queue.head.load(self.guard);
        let limit = self.limit(&work.shard.own, work.epoch, class, queue);
        if head == 0 || limit == 0 {
            return self.take_fresh(work, class, queue);
        }
        let next = self.behind(queue, class, head, work.epoch)?;
        if let Ok(words) = self.guard.words(next, 1) {
            words[0].prefetch();
        }
        self.log_queue(work, class, queue);
        queue.head.store(self.guard, next);
        if head == limit || next == 0 {
            work.shard.own.limits[class] = Limit {
                epoch: work.epoch,
                object: 0,
            };
        }
        work.shard.own.parked[class].lose(head);
        Ok(Some(head))
    }

    /// A fresh object from the run that the shard is carving.
    fn take_fresh(&self, work: &mut Work<'_>, class: usize, queue: &Queue) -> Result<Option<u64>> {
        let fresh = queue.fresh.load(self.guard);
        if fresh == 0 {
            return Ok(None);
        }
        let size = u64::from(SIZES[class]);
        if !is_shared(class) || !is_place(fresh, class) {
            return Err(Error::corrupt(fresh, "fresh space that is no object"));
        }
        let next = fresh + size;
        let is_last = next + size > run_of(fresh) + RUN_BYTES;
        self.log_queue(work, class, queue);
        queue
            .fresh
            .store(self.guard, if is_last { 0 } else { next });
        Ok(Some(fresh))
    }

    /// Takes from another shard all objects that were free when the epoch began; returns whether
    /// there were any. The own shard has none left.
    fn take_from_others(&self, work: &mut Work<'_>, class: usize) -> Result<bool> {
        let own = work.shard.index;
        let has_some = |shard: usize| {
            shard != own
                && self
                    .queue(shard, class)
                    .is_ok_and(|queue| queue.head.load(self.guard) != 0)
        };
        for _ in 0..if is_scheduled::<M>() { 1 } else { TRIES } {
            for mut other in self.epochs.barrier(AccessKind::Store).enter_free(has_some) {
                if self.take_from(&mut other, work, class)? {
                    return Ok(true);
                }
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    fn take_from(&self, other: &mut Work<'_>, work: &mut Work<'_>, class: usize) -> Result<bool> {
        let theirs = self.queue(other.shard.index, class)?;
        let own = self.queue(work.shard.index, class)?;
        let first = theirs.head.load(self.guard);
        let last = self.limit(&other.shard.own, other.epoch, class, theirs);
        if first == 0 || last == 0 {
            return Ok(false);
        }
        let rest = self.behind(theirs, class, last, work.epoch)?;
        self.log_queue(other, class, theirs);
        self.log_queue(work, class, own);
        match own.head.load(self.guard) {
            0 => own.tail.store(self.guard, last),
            head => self.link(work, last, head)?,
        }
        work.shard.own.parked[class].gain(last);
        other.shard.own.parked[class].lose(last);
        own.head.store(self.guard, first);
        theirs.head.store(self.guard, rest);
        other.shard.own.limits[class] = Limit {
            epoch: other.epoch,
            object: 0,
        };
        work.shard.own.limits[class] = Limit {
            epoch: work.epoch,
            object: last,
        };
        Ok(true)
    }

    /// Takes a run from the pool; returns its first object.
    fn add_run(&self, work: &mut Work<'_>, class: usize) -> Result<u64> {
        let _serial = self.runs.lock();
        let guard = self.guard;
        let runs = &guard.node::<Anchor>(self.anchor)?.runs;
        let before = runs.value.load(guard);
        if before & !OFFSET_MASK != 0 {
            return Err(Error::corrupt(
                self.anchor,
                "the word that leads to the runs is damaged",
            ));
        }
        let first = self.new_run(work, class, before)?;
        self.set_last_run(work, run_of(first))?;
        Ok(first)
    }

    /// Makes the chain of runs end with another one.
    fn set_last_run(&self, work: &mut Work<'_>, run: u64) -> Result<()> {
        let runs = &self.guard.node::<Anchor>(self.anchor)?.runs;
        runs.set(self.guard, work.epoch, run);
        self.epochs.list(
            &mut work.shard,
            self.guard.offset_of(runs),
            size_of_val(runs) as u64,
        );
        Ok(())
    }

    /// Takes a run from the pool that leads to the one `before`; returns its first object.
    fn new_run(&self, work: &mut Work<'_>, class: usize, before: u64) -> Result<u64> {
        let guard = self.guard;
        // A run begins where a slab does, so that the offset of an object gives its run.
        let run = guard.allocate((RUN_HEADER_BYTES + run_bytes(class)) as usize)?;
        if run != run_of(run) {
            return Err(Error::corrupt(
                run,
                "the pool gave a run that does not begin a slab",
            ));
        }
        let header = guard.words(run, 8)?;
        header[0].store(guard, checked(class as u64));
        header[1].store(guard, checked(before));
        header[2].store(guard, checked(self.anchor));
        // The old pointer to the run before is read only if the header has a later epoch.
        header[4].store(guard, checked(0));
        self.epochs.list(&mut work.shard, run, 64);
        Ok(run + RUN_HEADER_BYTES)
    }

    /// Space for an object other than a border node. Its content is arbitrary.
    pub(super) fn allocate(&self, work: &mut Work<'_>, bytes: usize) -> Result<u64> {
        let class = class_of(bytes);
        if class >= BORDER {
            return Err(ErrorKind::ValueTooLong {
                length: bytes,
                limit: ALLOCATION_BYTES_MAX,
            }
            .into());
        }
        self.allocate_class(work, class)
    }

    /// Space for an object of a class.
    pub(super) fn allocate_class(&self, work: &mut Work<'_>, class: usize) -> Result<u64> {
        if work.shard.own.loading.is_some() {
            return self.allocate_own(work, class);
        }
        match self.take(work, class)? {
            Some(object) => Ok(object),
            None => self.allocate_slowly(work, class),
        }
    }

    #[cold]
    fn allocate_slowly(&self, work: &mut Work<'_>, class: usize) -> Result<u64> {
        if self.take_from_others(work, class)?
            && let Some(object) = self.take(work, class)?
        {
            return Ok(object);
        }
        let first = match self.add_run(work, class) {
            Err(error) if error.is_full() => {
                // In a full pool every object counts, also one in a run that is to be emptied.
                work.shard.own.parked[class] = Parked::None;
                if let Some(object) = self.take(work, class)? {
                    return Ok(object);
                }
                return self.take_larger(work, class)?.ok_or(error);
            }
            first => first?,
        };
        if is_shared(class) {
            let queue = self.queue(work.shard.index, class)?;
            self.log_queue(work, class, queue);
            queue
                .fresh
                .store(self.guard, first + u64::from(SIZES[class]));
        }
        Ok(first)
    }

    /// A free object of a larger class, for a pool that is full. Border nodes have their class for
    /// themselves: the sweep knows a node by its run.
    fn take_larger(&self, work: &mut Work<'_>, class: usize) -> Result<Option<u64>> {
        for larger in class + 1..BORDER {
            let object = self.take(work, larger)?;
            if object.is_some() {
                return Ok(object);
            }
            if self.take_from_others(work, larger)? {
                return self.take(work, larger);
            }
        }
        Ok(None)
    }

    /// The class of the object that begins there.
    fn class_at(&self, object: u64) -> Result<usize> {
        class_of_run(self.guard, run_of(object))?
            .filter(|class| is_place(object, *class))
            .ok_or_else(|| Error::corrupt(object, "no object begins there"))
    }

    /// Sets what follows an object in its queue.
    fn link(&self, work: &mut Work<'_>, object: u64, next: u64) -> Result<()> {
        self.store_link(object, next, work.epoch)?;
        self.epochs.list(&mut work.shard, object, 16);
        Ok(())
    }

    /// Gives an object back. It is reused in a later epoch.
    pub(super) fn free(&self, work: &mut Work<'_>, object: u64) -> Result<()> {
        let class = self.class_at(object)?;
        let queue = self.queue(work.shard.index, class)?;
        self.log_queue(work, class, queue);
        let tail = queue.tail.load(self.guard);
        if queue.head.load(self.guard) == 0 {
            queue.head.store(self.guard, object);
        } else if is_place(tail, class) {
            self.link(work, tail, object)?;
        } else {
            return Err(Error::corrupt(
                tail,
                "the last free object where no object begins",
            ));
        }
        queue.tail.store(self.guard, object);
        work.shard.own.freed += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
