//! The durable allocator (section 5 of the paper): nodes and records of one tree.
//!
//! The allocator takes *runs* from the pool: one slab of 64 KiB for objects of one class, or as many slabs as one large object
//! needs. The pool knows which slabs are taken; this allocator knows which objects in them are free. So after a crash only
//! the runs, which form a chain, have to be marked. A run goes back to the pool with the tree.
//!
//! Each shard has a queue of free objects for each class. Freed objects go to the tail; allocations come from the head, and
//! take only objects that were in the queue when the epoch began. So an object that a reader may still read is never reused.
//! A shard whose queue is empty takes objects from another shard's queue before it takes a run; otherwise threads that remove
//! what other threads inserted would fill the pool.
//!
//! The in-line log of the queue's ends lies in the queue's line. The link from an object to the next has its own in-line log,
//! in two words (section 5.1):
//!
//! ```text
//! link      bits 0..2 counter   4..48 next object          48..64 high half of the epoch
//! link log  bits 0..2 counter   4..48 link at its begin    48..64 low half of the epoch
//! ```
//!
//! The log is written first, with the next counter; then the link with the same counter. Counters that differ reveal a crash
//! between the two. The epoch has 32 bits. Every 2^30 epochs all links in queues are rewritten, so that an old epoch with the
//! same low bits is never mistaken for a failed one.

use std::sync::atomic::Ordering;

use medium::sync::is_scheduled;
use medium::sync::schedule::AccessKind;
use medium::{Medium, Word};
use pool::{ALLOCATION_BYTES_MAX, Guard, SLAB_BYTES};
use smallvec::SmallVec;

use super::Core;
use super::access::{Stop, View, Walk, Work};
use super::barrier::Pass;
use super::epoch::Shard;
use super::layout::{Anchor, CLASSES, OFFSET_MASK, Queue, SHARDS, checked, interior_bytes, unchecked};
use super::sweep::unless_damaged;
use crate::{Error, Result};

/// Bytes at the head of a run: its class, and the run before it, each with its check.
const RUN_HEADER_BYTES: u64 = 64;
/// Bytes of the pool's slab before a run.
const SLAB_LEAD_BYTES: u64 = 64;
/// Bytes of a run of one slab.
const RUN_BYTES: u64 = SLAB_BYTES - SLAB_LEAD_BYTES;
/// Epochs after which links are written anew: a quarter of what their epochs can tell apart, so that no harm is done if
/// that epoch fails, or is the first one of an open, which writes none.
const RENEWAL_EPOCHS: u64 = 1 << 30;

/// Objects that one shard takes over from another one at once.
const TAKEN_TOGETHER: usize = 64;
/// The same under a scheduler, whose trees are small.
const TAKEN_TOGETHER_SCHEDULED: usize = 2;
/// How often it tries again while all shards that have some are locked for short operations.
const TAKE_OVER_TRIES: usize = 64;

/// Links that a sweep visits before it unlocks the shard.
const LINKS_TOGETHER: u32 = 1024;

/// Sizes of objects. Nodes have a multiple of 64; border nodes of words have 576, the last takes the longest record.
const SIZES: [u32; CLASSES] = {
    let mut sizes = [0; CLASSES];
    let (mut index, mut size): (usize, u32) = (0, 32);
    while index < CLASSES - 1 {
        sizes[index] = size;
        // By 16 up to 128, then four steps per doubling up to a slab's half, the first of those from 512 in two, then
        // doubling.
        size += if size < 128 {
            16
        } else if size == 512 || size == 576 {
            64
        } else if size < 1 << 14 {
            1 << (size.ilog2() - 2)
        } else {
            size
        };
        index += 1;
    }
    sizes[CLASSES - 1] = ALLOCATION_BYTES_MAX as u32 - RUN_HEADER_BYTES as u32;
    sizes
};

const _: () = assert!(
    SIZES[6] == 128
        && SIZES[15] == 576
        && SIZES[CLASSES - 2] < SIZES[CLASSES - 1]
        && SIZES[CLASSES - 2] >= 1 << 24
);

/// The class of an object of so many bytes.
fn class_of(bytes: usize) -> usize {
    SIZES.partition_point(|size| (*size as usize) < bytes)
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
    if is_shared(class) { RUN_BYTES - RUN_HEADER_BYTES } else { SIZES[class].into() }
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
    Ok(class.filter(|class| *class < CLASSES as u64).map(|class| class as usize))
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
        Self { link: words[0].load(guard), log: words[1].load(guard) }
    }

    fn is_whole(self) -> bool {
        (self.link ^ self.log) & COUNTER == 0
    }

    /// The last epoch up to `running` that this can be of.
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

/// The last object that may be taken from a queue in an epoch; 0 when none may.
#[derive(Clone, Copy, Default)]
pub(super) struct Limit {
    epoch: u64,
    object: u64,
}

/// How far the free queues of a shard are swept.
#[derive(Default)]
pub(super) struct LinkSweep {
    class: usize,
    /// Where the queue of this class goes on; 0 before its head. Whoever takes that object, leads on to the next.
    object: u64,
    /// Objects that are done: a damaged queue may be a circle.
    objects: u64,
    /// How many it takes until it is asked again whether there can be as many.
    asked_at: u64,
}

impl LinkSweep {
    /// The object at which the sweep is has been done, or taken; 0 follows the last one.
    fn lead_to(&mut self, next: u64) {
        (self.object, self.objects) = (next, self.objects + 1);
        if next == 0 {
            self.end_class();
        }
    }

    fn end_class(&mut self) {
        *self = Self { class: self.class + 1, ..Self::default() };
    }
}

impl<M: Medium> Core<M> {
    /// The next object after one in a queue.
    fn load_link(&self, guard: &Guard<'_, M>, object: u64, running: u64) -> Result<u64> {
        let words = guard.words(object, 2)?;
        Ok(Link::load(guard, words).next(running, |epoch| self.has_failed(epoch)).0)
    }

    /// The object behind one in a queue; 0 if that is its tail.
    #[inline(always)]
    fn load_behind(&self, guard: &Guard<'_, M>, queue: &Queue, object: u64, running: u64) -> Result<u64> {
        if object == queue.tail.load(guard) { Ok(0) } else { self.load_link(guard, object, running) }
    }

    /// Sets the next object.
    fn store_link(&self, guard: &Guard<'_, M>, object: u64, next: u64, running: u64) -> Result<()> {
        let words = guard.words(object, 2)?;
        let current = Link::load(guard, words);
        let (old, is_logged) = current.next(running, |epoch| self.has_failed(epoch));
        let mut counter = current.link & COUNTER;
        if !is_logged {
            counter = (counter + 1) & COUNTER;
            // The log first: both lie in one line, so in this order they are durable.
            words[1].store(guard, old | counter | (running & 0xffff) << 48);
        }
        words[0].store(guard, next | counter | (running >> 16 & 0xffff) << 48);
        Ok(())
    }

    /// Writes an object's link anew.
    fn renew_link(&self, guard: &Guard<'_, M>, object: u64, next: u64, running: u64) -> Result<()> {
        self.store_link(guard, object, next, running)?;
        self.list_touched(object, 16);
        Ok(())
    }

    /// Calls `visit` with each object in a queue, of which there may be so many.
    fn visit_queue(
        &self,
        guard: &Guard<'_, M>,
        queue: &Queue,
        running: u64,
        objects_max: &mut u64,
        visit: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let mut object = queue.head.load(guard);
        while object != 0 {
            let Some(others) = objects_max.checked_sub(1) else {
                return Err(Error::corrupt(object, "the free objects form a circle"));
            };
            *objects_max = others;
            let next = self.load_behind(guard, queue, object, running)?;
            visit(object)?;
            object = next;
        }
        Ok(())
    }

    /// Writes all links in queues anew when their epochs are about to lose their meaning, of each queue as far as it is not
    /// damaged. All shards are locked.
    pub(super) fn renew_links(&self, guard: &Guard<'_, M>, running: u64) -> Result<()> {
        if !running.is_multiple_of(RENEWAL_EPOCHS) {
            return Ok(());
        }
        let anchor = guard.node::<Anchor>(self.anchor)?;
        let all = self.objects_max(guard);
        for queue in anchor.queues.iter().flatten() {
            let mut objects_max = all;
            unless_damaged(self.visit_queue(guard, queue, running, &mut objects_max, &mut |object| {
                let next = self.load_link(guard, object, running)?;
                self.renew_link(guard, object, next, running)
            }))?;
        }
        Ok(())
    }

    /// Puts the ends of all queues back to where the last completed epoch had them.
    pub(super) fn recover_queues(&self, guard: &Guard<'_, M>) -> Result<()> {
        let anchor = guard.node::<Anchor>(self.anchor)?;
        for queue in anchor.queues.iter().flatten() {
            let epoch = queue.epoch.load(guard);
            if epoch == 0 || !self.has_failed(epoch) {
                continue;
            }
            for (value, old) in [
                (&queue.head, &queue.head_old),
                (&queue.tail, &queue.tail_old),
                (&queue.fresh, &queue.fresh_old),
            ] {
                value.store(guard, old.load(guard));
            }
            // The epoch stays: until it is forgotten, a crash puts the same back once more.
            self.list_touched(guard.offset_of(queue), 64);
        }
        Ok(())
    }

    /// Goes on writing links of failed epochs anew, in all queues of a shard, each as far as it is not damaged. Returns
    /// whether there is more to do.
    pub(super) fn sweep_links(&self, view: &View<'_, M>, shard: &mut Shard) -> Result<bool> {
        let anchor = view.guard.node::<Anchor>(self.anchor)?;
        let Some(queue) = anchor.queues[shard.index].get(shard.swept.class) else { return Ok(false) };
        let swept = self.sweep_queue(view, queue, &mut shard.swept);
        if swept.is_err() {
            shard.swept.end_class();
        }
        unless_damaged(swept)?;
        Ok(true)
    }

    fn sweep_queue(&self, view: &View<'_, M>, queue: &Queue, swept: &mut LinkSweep) -> Result<()> {
        let (guard, running) = (&view.guard, view.epoch);
        // Whatever was in the queue when the sweep began is passed before as many were as there are objects.
        if swept.objects >= swept.asked_at.max(u64::from(LINKS_TOGETHER)) {
            swept.asked_at = 2 * swept.objects;
            if swept.objects >= self.objects_max(guard) {
                swept.end_class();
                return Ok(());
            }
        }
        let tail = queue.tail.load(guard);
        if swept.object == 0 {
            swept.object = queue.head.load(guard);
        }
        for _ in 0..LINKS_TOGETHER {
            let object = swept.object;
            if object == 0 {
                swept.end_class();
                return Ok(());
            }
            let link = Link::load(guard, guard.words(object, 2)?);
            let (next, _) = link.next(running, |epoch| self.has_failed(epoch));
            if !link.is_whole() || self.has_failed(link.epoch(running)) {
                self.renew_link(guard, object, next, running)?;
            }
            if object == tail {
                swept.end_class();
                return Ok(());
            }
            swept.lead_to(next);
            if swept.object == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Calls `visit` with the offset of each run.
    pub(super) fn visit_runs(
        &self,
        guard: &Guard<'_, M>,
        visit: &mut dyn FnMut(u64, usize) -> Result<()>,
    ) -> Result<()> {
        let mut run = guard.node::<Anchor>(self.anchor)?.runs.value.load(guard);
        let runs_max = guard.medium().extent().length() / SLAB_BYTES;
        for _ in 0..=runs_max {
            if run == 0 {
                return Ok(());
            }
            let before = unchecked(guard.words(run, 2)?[1].load(guard));
            let (Some(before), Some(class)) = (before, class_of_run(guard, run)?) else {
                return Err(Error::corrupt(run, "the header of a run is damaged"));
            };
            visit(run, class)?;
            run = before;
        }
        Err(Error::corrupt(run, "the runs form a circle"))
    }

    /// Objects that are taken: all that were ever carved out of runs, but for those in queues. Nobody allocates meanwhile.
    pub(super) fn objects_taken(&self, guard: &Guard<'_, M>, running: u64) -> Result<u64> {
        let anchor = guard.node::<Anchor>(self.anchor)?;
        let mut taken = self.objects_carved(guard)?;
        for queue in anchor.queues.iter().flatten() {
            self.visit_queue(guard, queue, running, &mut taken, &mut |_| Ok(()))?;
        }
        Ok(taken)
    }

    /// As many objects as there can be, whatever is damaged.
    fn objects_max(&self, guard: &Guard<'_, M>) -> u64 {
        self.objects_carved(guard).unwrap_or(guard.medium().extent().length() / u64::from(SIZES[0]))
    }

    /// Objects that were ever carved out of runs. O(slabs).
    fn objects_carved(&self, guard: &Guard<'_, M>) -> Result<u64> {
        let anchor = guard.node::<Anchor>(self.anchor)?;
        let mut carved = 0;
        let fresh = anchor.queues.iter().flatten().map(|queue| queue.fresh.load(guard));
        let fresh: Vec<u64> = fresh.filter(|fresh| *fresh != 0).collect();
        self.visit_runs(guard, &mut |run, class| {
            let first = run + RUN_HEADER_BYTES;
            let size = u64::from(SIZES[class]);
            let all = run_bytes(class) / size;
            let carving = fresh.iter().find(|fresh| run_of(**fresh) == run);
            carved += carving.map_or(all, |fresh| fresh.saturating_sub(first) / size);
            Ok(())
        })?;
        Ok(carved)
    }
}

impl<M: Medium> View<'_, M> {
    fn queue(&self, shard: usize, class: usize) -> Walk<&Queue> {
        Ok(&self.anchor()?.queues[shard % SHARDS][class])
    }

    /// Before a queue's line changes.
    fn log_queue(&self, shard: &mut Shard, phase: u64, class: usize, queue: &Queue) {
        if queue.epoch.load(&self.guard) != self.epoch {
            queue.head_old.store(&self.guard, queue.head.load(&self.guard));
            queue.tail_old.store(&self.guard, queue.tail.load(&self.guard));
            queue.fresh_old.store(&self.guard, queue.fresh.load(&self.guard));
            // The order of these stores, to one line, is the order in which they are durable.
            queue.epoch.store(&self.guard, self.epoch);
        }
        if shard.queue_listed[class] != phase {
            shard.queue_listed[class] = phase;
            self.list_in(shard, self.guard.offset_of(queue), 64);
        }
    }

    /// An object that was free when the epoch began, or a fresh one from a run that is there.
    fn take(&self, shard: &mut Shard, phase: u64, class: usize) -> Walk<Option<u64>> {
        let queue = self.queue(shard.index, class)?;
        match self.take_free(shard, phase, class, queue)? {
            None => self.take_fresh(shard, phase, class, queue),
            object => Ok(object),
        }
    }

    /// The last object that may be taken from a queue in this epoch: its tail when that began, or what was taken over
    /// last; 0 if none is left.
    #[inline(always)]
    fn limit(&self, shard: &Shard, class: usize, queue: &Queue) -> u64 {
        let limit = &shard.limits[class];
        if limit.epoch == self.epoch {
            return limit.object;
        }
        let is_logged = queue.epoch.load(&self.guard) == self.epoch;
        let (head, tail) =
            if is_logged { (&queue.head_old, &queue.tail_old) } else { (&queue.head, &queue.tail) };
        if head.load(&self.guard) == 0 { 0 } else { tail.load(&self.guard) }
    }

    /// An object that was free when the epoch began.
    #[inline(always)]
    fn take_free(&self, shard: &mut Shard, phase: u64, class: usize, queue: &Queue) -> Walk<Option<u64>> {
        let (head, limit) = (queue.head.load(&self.guard), self.limit(shard, class, queue));
        if head == 0 || limit == 0 {
            return Ok(None);
        }
        let next = self.behind(queue, class, head)?;
        self.prefetch_word(next);
        if head == shard.swept.object {
            shard.swept.lead_to(next);
        }
        self.log_queue(shard, phase, class, queue);
        queue.head.store(&self.guard, next);
        if head == limit || next == 0 {
            self.end_queue(shard, class);
        }
        Ok(Some(head))
    }

    /// Nothing more may be taken from a queue in this epoch.
    fn end_queue(&self, shard: &mut Shard, class: usize) {
        shard.limits[class] = Limit { epoch: self.epoch, object: 0 };
    }

    /// The object behind one in a queue; 0 if that is its tail.
    #[inline(always)]
    fn behind(&self, queue: &Queue, class: usize, object: u64) -> Walk<u64> {
        if !is_place(object, class) {
            return Err(Error::corrupt(object, "a free object that is none").into());
        }
        Ok(self.core.load_behind(&self.guard, queue, object, self.epoch)?)
    }

    /// A fresh object from a run that is there.
    fn take_fresh(&self, shard: &mut Shard, phase: u64, class: usize, queue: &Queue) -> Walk<Option<u64>> {
        let fresh = queue.fresh.load(&self.guard);
        if fresh == 0 {
            return Ok(None);
        }
        let size = u64::from(SIZES[class]);
        if !is_shared(class) || !is_place(fresh, class) {
            return Err(Error::corrupt(fresh, "fresh space that is no object").into());
        }
        let next = fresh + size;
        let is_last = next + size > run_of(fresh) + RUN_BYTES;
        self.log_queue(shard, phase, class, queue);
        queue.fresh.store(&self.guard, if is_last { 0 } else { next });
        Ok(Some(fresh))
    }

    /// Takes over some of what another shard had free when the epoch began; returns whether there was something. The
    /// own shard has nothing left of that.
    fn take_over(&self, work: &mut Work<'_>, class: usize) -> Walk<bool> {
        // A sweep goes through one shard after the other, and has to come by every object.
        if self.core.any_failed.load(Ordering::Acquire) {
            return Ok(false);
        }
        let (queues, own_index) = (&self.anchor()?.queues, work.shard.index);
        let own = &queues[own_index][class];
        let has_some = |index: usize| index != own_index && queues[index][class].head.load(&self.guard) != 0;
        let own_is_sound =
            || own.head.load(&self.guard) == 0 || self.is_object(own.tail.load(&self.guard), class);
        if !(0..SHARDS).any(has_some) || !own_is_sound() {
            return Ok(false);
        }
        let tries = if is_scheduled::<M>() { 1 } else { TAKE_OVER_TRIES };
        for _ in 0..tries {
            self.core.reach_barrier(AccessKind::Store);
            let mut busy = (0..SHARDS).filter(|index| has_some(*index)).count();
            for pass in self.core.barrier.enter_free(has_some) {
                busy = busy.saturating_sub(1);
                if self.take_over_from(pass, work, class)? {
                    return Ok(true);
                }
            }
            if busy == 0 {
                break;
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// Takes over some of what one other shard has free.
    fn take_over_from(&self, pass: Pass<'_, Shard>, work: &mut Work<'_>, class: usize) -> Walk<bool> {
        let Pass { shard: mut share, phase, .. } = pass;
        let (theirs, own) = (self.queue(share.index, class)?, self.queue(work.shard.index, class)?);
        let limit = self.limit(&share, class, theirs);
        let Some((first, last, rest)) = self.first_sound(theirs, class, limit) else { return Ok(false) };
        let own_head = own.head.load(&self.guard);
        self.log_queue(&mut share, phase, class, theirs);
        self.log_queue(&mut work.shard, work.phase, class, own);
        if own_head == 0 {
            own.tail.store(&self.guard, last);
        } else {
            self.link(work, last, own_head)?;
        }
        own.head.store(&self.guard, first);
        theirs.head.store(&self.guard, rest);
        if last == limit || rest == 0 {
            self.end_queue(&mut share, class);
        }
        work.shard.limits[class] = Limit { epoch: self.epoch, object: last };
        Ok(true)
    }

    /// The first and the last of some objects at the head of a queue, up to a limit, and what follows them: as far as
    /// that is sound, so that damage is not taken over.
    fn first_sound(&self, queue: &Queue, class: usize, limit: u64) -> Option<(u64, u64, u64)> {
        let together = if is_scheduled::<M>() { TAKEN_TOGETHER_SCHEDULED } else { TAKEN_TOGETHER };
        let (mut taken, mut next) = (SmallVec::<[u64; TAKEN_TOGETHER]>::new(), queue.head.load(&self.guard));
        if !self.is_object(limit, class) {
            return None;
        }
        while taken.len() < together && taken.last() != Some(&limit) && self.is_object(next, class) {
            let Ok(behind) = self.behind(queue, class, next) else { break };
            taken.push(next);
            next = behind;
            if taken.contains(&next) {
                // A circle.
                return None;
            }
        }
        Some((*taken.first()?, *taken.last()?, next))
    }

    /// Takes a run from the pool; returns its first object.
    fn add_run(&self, work: &mut Work<'_>, class: usize) -> Walk<u64> {
        let _serial = self.core.runs.lock();
        let anchor = self.anchor()?;
        let before = anchor.runs.value.load(&self.guard);
        if before & !OFFSET_MASK != 0 {
            return Err(Error::corrupt(self.core.anchor, "what leads to the runs is damaged").into());
        }
        // A run of its own begins where a slab does, so that its objects lead to it.
        let run = self.guard.allocate((RUN_HEADER_BYTES + run_bytes(class)) as usize)?;
        if run != run_of(run) {
            return Err(Error::corrupt(run, "the pool gave a run that does not begin a slab").into());
        }
        let header = self.guard.words(run, 8)?;
        header[0].store(&self.guard, checked(class as u64));
        header[1].store(&self.guard, checked(before));
        self.list(work, run, 64);
        self.set_logged(&anchor.runs, run);
        self.list_cells(work);
        Ok(run + RUN_HEADER_BYTES)
    }

    /// Space for an object. What it holds is arbitrary.
    pub(super) fn allocate(&self, work: &mut Work<'_>, bytes: usize) -> Walk<u64> {
        let class = class_of(bytes);
        if class >= CLASSES {
            return Err(Error::ValueTooLong { length: bytes, limit: ALLOCATION_BYTES_MAX }.into());
        }
        match self.take(&mut work.shard, work.phase, class)? {
            Some(object) => Ok(object),
            None => self.allocate_slowly(work, class),
        }
    }

    #[cold]
    fn allocate_slowly(&self, work: &mut Work<'_>, class: usize) -> Walk<u64> {
        if self.take_over(work, class)?
            && let Some(object) = self.take(&mut work.shard, work.phase, class)?
        {
            return Ok(object);
        }
        let full = match self.add_run(work, class) {
            Ok(first) => {
                if is_shared(class) {
                    let queue = self.queue(work.shard.index, class)?;
                    self.log_queue(&mut work.shard, work.phase, class, queue);
                    queue.fresh.store(&self.guard, first + u64::from(SIZES[class]));
                }
                return Ok(first);
            }
            Err(full @ Stop::Full(_)) => full,
            Err(other) => return Err(other),
        };
        // The pool is full: whatever is free, large enough and sound, in whichever shard nobody works with just now.
        let sound = |taken: Walk<Option<u64>>| match taken {
            Err(stop) if stop.is_corrupt() => Ok(None),
            taken => taken,
        };
        let is_line = SIZES[class].is_multiple_of(64);
        for class in (class..CLASSES).filter(|class| !is_line || SIZES[*class].is_multiple_of(64)) {
            if let Some(object) = sound(self.take(&mut work.shard, work.phase, class))? {
                return Ok(object);
            }
            self.core.reach_barrier(AccessKind::Store);
            for mut pass in self.core.barrier.enter_free(|_| true) {
                if let Some(object) = sound(self.take(&mut pass.shard, pass.phase, class))? {
                    return Ok(object);
                }
            }
        }
        Err(full)
    }

    /// The class of the object that begins there.
    fn class_at(&self, object: u64) -> Result<usize> {
        class_of_run(&self.guard, run_of(object))?
            .filter(|class| is_place(object, *class))
            .ok_or_else(|| Error::corrupt(object, "an object that is none"))
    }

    /// Whether an object of this class begins there.
    fn is_object(&self, object: u64, class: usize) -> bool {
        self.class_at(object).is_ok_and(|found| found == class)
    }

    /// Sets what follows an object in its queue.
    fn link(&self, work: &mut Work<'_>, object: u64, next: u64) -> Walk<()> {
        self.core.store_link(&self.guard, object, next, self.epoch)?;
        self.list(work, object, 16);
        Ok(())
    }

    /// Gives an object back. It is reused in a later epoch.
    pub(super) fn free(&self, work: &mut Work<'_>, object: u64) -> Walk<()> {
        let class = self.class_at(object)?;
        let queue = self.queue(work.shard.index, class)?;
        self.log_queue(&mut work.shard, work.phase, class, queue);
        let tail = queue.tail.load(&self.guard);
        if queue.head.load(&self.guard) == 0 {
            queue.head.store(&self.guard, object);
        } else if !self.is_object(tail, class) {
            return Err(Error::corrupt(tail, "the last free object is none").into());
        } else {
            self.link(work, tail, object)?;
        }
        queue.tail.store(&self.guard, object);
        Ok(())
    }

    /// Space for a border node.
    pub(super) fn allocate_border(&self, work: &mut Work<'_>) -> Walk<u64> {
        self.allocate(work, self.core.border_bytes())
    }

    /// Space for an interior node: of another class, so that these few and often read nodes lie together and the
    /// processor knows their pages. Among the border nodes each lies in a page of its own; there it goes if need be.
    pub(super) fn allocate_interior(&self, work: &mut Work<'_>) -> Walk<u64> {
        let (own, border) = (interior_bytes(), self.core.border_bytes());
        match self.allocate(work, if own < border { own } else { border + medium::LINE_BYTES }) {
            Err(Stop::Full(_)) => self.allocate_border(work),
            allocated => allocated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_a_run_hold_whole_objects() {
        let run = run_of(5 * SLAB_BYTES);
        for (class, size) in SIZES.iter().copied().map(u64::from).enumerate() {
            let objects = run + RUN_HEADER_BYTES..run + RUN_HEADER_BYTES + run_bytes(class);
            let slab = (5 * SLAB_BYTES..6 * SLAB_BYTES).step_by(16);
            let places: Vec<u64> = slab.filter(|object| is_place(*object, class)).collect();
            assert_eq!(places.len() as u64, run_bytes(class) / size);
            for object in places {
                assert!(objects.contains(&object) && object + size <= objects.end);
                assert!((0..64).all(|bit| (4..48).contains(&bit) || !is_place(object ^ 1 << bit, class)));
            }
            let outside = [0, 128, u64::MAX, u64::MAX - 15];
            assert!(outside.iter().all(|object| !is_place(*object, class)));
        }
    }
}
