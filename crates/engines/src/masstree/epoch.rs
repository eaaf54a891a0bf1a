//! Epochs: the list of what changed, the end of an epoch.
//!
//! A thread works with one of [`SHARDS`](super::layout::SHARDS) shards of the `barrier`. While all shards are locked, no
//! operation is under way, and no thread can reach what was freed.
//!
//! An operation lists the lines that it changes, each once a *phase*; a node notes which of its lines are listed. An epoch
//! ends in these steps:
//!
//! 1. A new phase begins. The lines of the previous phase are flushed and fenced while writers go on.
//! 2. Step 1 is repeated while the list shrinks quickly and is longer than a few hundred ranges.
//! 3. All shards are locked. The lines of the last phase are flushed and fenced.
//! 4. The number of the next epoch is published and fenced. The shards are unlocked.
//!
//! So the pause is the longest operation, the flush of what changed during the last flush, and two fences.
//!
//! On a medium whose fences are durable late, an epoch is one group of lines for each phase, a group for the number, and one
//! wait. The next epoch runs during the wait. That is safe: such a medium writes nothing back unasked, so changes of the next
//! epoch cannot be durable first.

use std::sync::atomic::Ordering;
use std::time::Instant;

use medium::sync::schedule::AccessKind;
use medium::sync::{MutexGuard, is_scheduled};
use medium::{LINE_BYTES, Medium};
use pool::Guard;

use super::access::{View, Work};
use super::allocator::{Limit, LinkSweep};
use super::external_log::LogCursor;
use super::layout::{Anchor, CLASSES, Logged, OFFSET_MASK, all_lines, checked};
use super::{Core, Mode};
use crate::{Error, Result};

/// What a thread needs to write: lists, limits of queues, a log. In lines of its own.
#[repr(align(128))]
pub(super) struct Shard {
    pub(super) index: usize,
    /// What changed: offset, and the number of lines in the bits that an offset leaves free; or which lines of a node.
    listed: Vec<u64>,
    /// The phase in which the line of a queue was listed.
    pub(super) queue_listed: [u64; CLASSES],
    /// How far a queue may be emptied in an epoch, where its own line does not say so.
    pub(super) limits: [Limit; CLASSES],
    pub(super) log: LogCursor,
    pub(super) swept: LinkSweep,
}

impl Shard {
    pub(super) fn new(index: usize) -> Self {
        Self {
            index,
            listed: Vec::new(),
            queue_listed: [0; CLASSES],
            limits: [Limit::default(); CLASSES],
            log: LogCursor::default(),
            swept: LinkSweep::default(),
        }
    }
}

/// Words for which a list keeps its memory from one epoch to the next, 256 KiB: a bulk load may list a gigabyte.
const LISTED_KEPT: usize = 1 << 15;

/// What was taken from lists.
#[derive(Default)]
struct Taken {
    few: Vec<u64>,
    /// Lists that were too long to keep their memory.
    many: Vec<Vec<u64>>,
}

impl Taken {
    fn take(&mut self, list: &mut Vec<u64>) {
        if list.capacity() > LISTED_KEPT {
            self.many.push(std::mem::take(list));
        } else {
            self.few.append(list);
        }
    }

    fn iter(&self) -> impl Iterator<Item = u64> {
        self.many.iter().flatten().chain(&self.few).copied()
    }

    fn len(&self) -> usize {
        self.many.iter().map(Vec::len).sum::<usize>() + self.few.len()
    }

    fn clear(&mut self) {
        self.many.clear();
        self.few.clear();
    }
}

/// Listed ranges that are few enough to be flushed during the pause.
const LISTED_IN_PAUSE: usize = 512;
/// The same under a scheduler, whose operations are as few: those of one operation.
const LISTED_IN_PAUSE_SCHEDULED: usize = 4;

/// Lines that one listed word can stand for.
const LINES_MAX: u64 = (1 << 19) - 1;

/// Packs a range of lines into a word: 44 bits of offset, 19 bits of length below a bit that is not set.
fn pack(offset: u64, bytes: u64) -> u64 {
    let first = offset / LINE_BYTES as u64;
    let lines = (offset + bytes).div_ceil(LINE_BYTES as u64) - first;
    first << 20 | lines.min(LINES_MAX)
}

fn unpack(listed: u64) -> (u64, usize) {
    ((listed >> 20) * LINE_BYTES as u64, (listed & LINES_MAX) as usize * LINE_BYTES / 8)
}

/// Set in a listed word that is for a node, whose lower bits say which of its lines changed.
const NODE: u64 = 1 << 19;

/// Packs lines of a node.
#[inline(always)]
fn pack_lines(offset: u64, lines: u64) -> u64 {
    (offset / LINE_BYTES as u64) << 20 | NODE | lines
}

/// Bits of a node's `listed` word that say which of its lines are listed. Above them is the phase in which they are.
const LINES_BITS: u32 = 16;
const LINES_MASK: u64 = (1 << LINES_BITS) - 1;

/// What a node's `listed` word becomes when these lines change in a phase, and which of them have to be listed.
#[inline(always)]
pub(super) fn note_lines(listed: u64, phase: u64, lines: u64) -> (u64, u64) {
    if listed >> LINES_BITS == phase {
        (listed | lines, lines & !listed)
    } else {
        (phase << LINES_BITS | lines, lines)
    }
}

/// Flushes lines of a node; returns how many they are.
fn flush_lines<M: Medium>(guard: &Guard<'_, M>, offset: u64, mut lines: u64) -> Result<u64> {
    const WORDS: usize = LINE_BYTES / 8;
    let count = u64::from(lines.count_ones());
    let words = guard.words(offset, (u64::BITS - lines.leading_zeros()) as usize * WORDS)?;
    while lines != 0 {
        let first = lines.trailing_zeros() as usize;
        let end = first + (lines >> first).trailing_ones() as usize;
        guard.flush_words(&words[first * WORDS..end * WORDS]);
        lines &= !0 << end;
    }
    Ok(count)
}

impl<M: Medium> Core<M> {
    /// Flushes what is listed: all that there is, whatever damage has listed besides.
    fn flush_listed(&self, guard: &Guard<'_, M>, listed: &Taken) -> Result<()> {
        let (mut lines, mut result) = (0, Ok(()));
        for packed in listed.iter() {
            let flushed = match unpack(packed) {
                (offset, _) if packed & NODE != 0 => flush_lines(guard, offset, packed & LINES_MASK),
                (offset, count) => guard.words(offset, count).map_err(Error::from).map(|words| {
                    guard.flush_words(words);
                    count as u64 / 8
                }),
            };
            match flushed {
                Ok(flushed) => lines += flushed,
                Err(error) => result = result.and(Err(error)),
            }
        }
        self.figures.lines_flushed.fetch_add(lines, Ordering::Relaxed);
        result
    }

    /// Flushes what the epoch has changed so far, while writers go on. Returns whether anything was flushed.
    fn flush_beside_others(&self, guard: &Guard<'_, M>) -> Result<bool> {
        let enough = if is_scheduled::<M>() { LISTED_IN_PAUSE_SCHEDULED } else { LISTED_IN_PAUSE };
        let (mut listed, mut before) = (Taken::default(), None);
        loop {
            self.reach_barrier(AccessKind::Store);
            self.barrier.begin_phase(|shard| listed.take(&mut shard.listed));
            listed.take(&mut self.touched.lock());
            let count = listed.len();
            if count == 0 {
                return Ok(before.is_some());
            }
            let flushed = self.flush_listed(guard, &listed);
            listed.clear();
            // What was flushed is listed no more; and what a medium does at a fence it does now, while others work.
            guard.fence();
            flushed?;
            // Writers that are as fast as this would keep it here.
            if count <= enough || before.is_some_and(|before| count > before / 2) {
                return Ok(true);
            }
            before = Some(count);
        }
    }

    /// Ends the running epoch: all operations before are durable when this returns.
    pub(super) fn advance(&self) -> Result<()> {
        if self.mode == Mode::Transient {
            self.advance_volatile();
            return Ok(());
        }
        let mut ended = self.ended.lock();
        if self.is_gone.load(Ordering::Acquire) {
            return Ok(());
        }
        let guard = self.pool.peek();
        // What was flushed before an error is fenced and listed no more, and waits for the end of the epoch all the same.
        let is_owed = self.is_owed.swap(true, Ordering::Relaxed);
        let something = self.flush_beside_others(&guard)? || is_owed;
        self.reach_barrier(AccessKind::Store);
        let gate = self.barrier.close_gate();
        let pause = Instant::now();
        // Goes when the shards are given back: to free memory may take long.
        let mut listed = Taken::default();
        let mut shards = self.barrier.stop(gate);
        for shard in &mut shards {
            listed.take(&mut shard.listed);
        }
        listed.take(&mut self.touched.lock());
        if !something && listed.len() == 0 {
            drop(shards);
            self.is_owed.store(false, Ordering::Relaxed);
            // Whoever ended the last epoch may have been told that it is not durable, and have told nobody.
            return Ok(guard.settle(*ended)?);
        }
        let flushed = self.flush_listed(&guard, &listed);
        guard.fence();
        flushed?;
        let next = self.barrier.running() + 1;
        let anchor = guard.node::<Anchor>(self.anchor)?;
        // PERSIST: all that changed in the epoch is ordered before; lost, the epoch has failed.
        anchor.running.publish(&guard, checked(next));
        *ended = guard.fence();
        self.is_owed.store(false, Ordering::Relaxed);
        self.begin(next, &mut shards);
        let renewed = self.renew_links(&guard, next);
        drop(shards);
        self.figures.count_pause(pause.elapsed());
        // The next epoch runs while this one is on its way.
        guard.settle(*ended)?;
        self.figures.epochs.fetch_add(1, Ordering::Relaxed);
        renewed
    }

    /// Ends an epoch of a tree that is not durable: what was freed may be reused.
    fn advance_volatile(&self) {
        let _ended = self.ended.lock();
        let mut shards = self.stop();
        self.begin(self.barrier.running() + 1, &mut shards);
        self.figures.epochs.fetch_add(1, Ordering::Relaxed);
    }

    /// Locks all shards: no operation is under way while they are held.
    pub(super) fn stop(&self) -> Vec<MutexGuard<'_, Shard>> {
        self.reach_barrier(AccessKind::Store);
        self.barrier.stop(self.barrier.close_gate())
    }

    /// Bytes of memory beside the pool's.
    pub(super) fn volatile_bytes(&self) -> u64 {
        let lists = self.barrier.shards().map(|shard| {
            let shard = shard.lock();
            size_of::<Shard>() + 8 * shard.listed.capacity() + shard.log.volatile_bytes()
        });
        let lists = lists.sum::<usize>() + 8 * self.touched.lock().capacity();
        (size_of::<Self>() + lists + size_of_val(&*self.failed)) as u64
    }

    fn begin(&self, next: u64, shards: &mut [MutexGuard<'_, Shard>]) {
        self.reach_barrier(AccessKind::Store);
        for shard in shards {
            shard.log.rewind();
        }
        self.barrier.begin(next);
    }

    /// Lists memory that a recovery has put back.
    pub(super) fn list_touched(&self, offset: u64, bytes: u64) {
        self.touched.lock().push(pack(offset, bytes));
    }

    /// Lists lines of a node that a recovery has put back.
    pub(super) fn list_touched_lines(&self, offset: u64, lines: u64) {
        self.touched.lock().push(pack_lines(offset, lines));
    }
}

impl<M: Medium> View<'_, M> {
    /// Lists memory that changed, to be flushed before the epoch ends.
    #[inline(always)]
    pub(super) fn list(&self, work: &mut Work<'_>, offset: u64, bytes: u64) {
        self.list_in(&mut work.shard, offset, bytes);
    }

    /// As [`View::list`], with a shard that is locked.
    #[inline(always)]
    pub(super) fn list_in(&self, shard: &mut Shard, offset: u64, bytes: u64) {
        if self.core.mode != Mode::Transient {
            shard.listed.push(pack(offset, bytes));
        }
    }

    /// Lists lines of a locked node, those that are not listed already.
    #[inline(always)]
    pub(super) fn list_node(
        &self,
        work: &mut Work<'_>,
        pointer: u64,
        listed: &medium::VolatileWord,
        lines: u64,
    ) {
        let old = listed.get().load(Ordering::Relaxed);
        let (new, due) = note_lines(old, work.phase, lines);
        if due != 0 && self.core.mode != Mode::Transient {
            listed.get().store(new, Ordering::Relaxed);
            work.shard.listed.push(pack_lines(pointer & OFFSET_MASK, due));
        }
    }

    /// Lists a node of so many bytes that was made just now.
    pub(super) fn list_new(
        &self,
        work: &mut Work<'_>,
        offset: u64,
        listed: &medium::VolatileWord,
        bytes: usize,
    ) {
        listed.start(&self.guard, work.phase << LINES_BITS | all_lines(bytes));
        self.list(work, offset, bytes as u64);
    }

    /// Lists the line of the root and the runs, unless it is listed already.
    pub(super) fn list_cells(&self, work: &mut Work<'_>) {
        if self.core.cells_listed.swap(work.phase, Ordering::Relaxed) != work.phase {
            self.list(work, self.core.anchor + 64, 64);
        }
    }

    /// Sets a word that has an in-line log. The caller serialises.
    pub(super) fn set_logged(&self, cell: &Logged, value: u64) {
        if cell.epoch.load(&self.guard) != self.epoch {
            // The order of these stores, to one line, is the order in which they are durable.
            cell.old.store(&self.guard, cell.value.load(&self.guard));
            cell.epoch.store(&self.guard, self.epoch);
        }
        cell.value.store(&self.guard, value);
    }
}
