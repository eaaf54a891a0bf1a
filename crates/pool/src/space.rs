//! Space: slabs of 64 KiB, cut into slots of one size class or spanned by one large allocation.
//!
//! **Allocation costs no persist of its own.** The record of slots in use is volatile. After a
//! crash it is rebuilt by marking everything that the trees reach; after a clean close it is read
//! from bitmaps. Only these are durable:
//!
//! - the *high-water mark*: no slab above it was ever published from; it moves in large steps;
//! - each slab's *class word*, durable before the first publish from the slab (a slab is opened
//!   with a fence);
//! - the *clean flag*, which says that the bitmaps are right; it is cleared before the first
//!   allocation after an open.
//!
//! A crash therefore leaks nothing.
//!
//! **The old generation** consists of the allocations from before the last open. Which of them are
//! in use is found out while trees already work: by the mark after a crash, otherwise from the
//! bitmaps. Until that ends ([`Space::finish_marking`]), threads allocate from fresh slabs above
//! the old high-water mark, and old allocations that are freed wait. So an open takes O(1). It also
//! makes the mark simple: no old space is allocated again meanwhile, so each tree walks its keys
//! once and marks the allocations that it finds. An allocation that the walk misses was removed
//! before the walk got there, and is marked when it is retired.

mod bitmaps;
mod evacuation;
mod left_alone;
mod release;
mod set_aside;
mod usage;

use std::collections::BTreeSet;

use crossbeam_utils::CachePadded;
use medium::arena::Arena;
use medium::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, thread_number};
use medium::{Medium, MediumGuard, volatile};

use self::evacuation::EVACUATED;
pub use self::evacuation::{Evacuate, Evacuation, Unevacuated};
use self::left_alone::LEFT_ALONE;
pub use self::usage::Usage;
use crate::class::{BITMAP_WORDS_MAX, CLASSES, Class};
use crate::header::{StateWord, checked, unchecked};
use crate::limits::{ALLOCATION_BYTES_MAX, SLAB_BYTES};
use crate::options::PoolOptions;
use crate::{Error, ErrorKind, Result};

/// Bytes at the head of a large span, before its allocation.
const SPAN_HEADER_BYTES: u64 = 64;
/// Class word of a span's first slab: this plus the number of slabs.
const SPAN: u64 = 1 << 16;
/// The most slabs in a span.
const SPAN_SLABS_MAX: u64 = (ALLOCATION_BYTES_MAX as u64 + SPAN_HEADER_BYTES).div_ceil(SLAB_BYTES);
/// Threads spread over this many shards, each with its own open slab per class.
const SHARDS: usize = 8;
/// A full slab is offered for allocation again when one in this many of its slots is free.
const REOPEN_FRACTION: u32 = 32;
/// Reading the bitmaps of this many slabs is cheap.
const SMALL_SLABS: u32 = 128;
/// The file grows by a sixteenth of its length within these bounds.
const STEP_SLABS_MAX: u32 = 1024;

volatile! {
    /// The volatile record of a slab.
    struct Slab {
        /// Class index + 1, or `SPAN` plus the slabs of a span; 0 while free.
        class: AtomicU64,
        /// One of the constants below.
        state: AtomicU64,
        /// Slots in use (in a span: whether it is).
        used: AtomicU64,
        /// Bit i: slot i is in use.
        bitmap: [AtomicU64; BITMAP_WORDS_MAX],
    }
}

/// The slab is old, and its slots in use are not known yet; or it was never used. The value is 0,
/// so an open need not write each slab's record.
const UNMARKED: u64 = 0;
/// Some shard allocates from it.
const OPEN: u64 = 1;
/// All slots were in use when its shard left it.
const FULL: u64 = 2;
/// On its class's list of slabs with free slots.
const PARTIAL: u64 = 3;
/// Part of a span.
const SPANNED: u64 = 4;
/// On the free list.
const FREE: u64 = 5;

/// Slabs without an owner.
struct Unowned {
    free: BTreeSet<u32>,
    /// Free slabs whose room on the disk was not given back to the medium.
    unreleased: BTreeSet<u32>,
    /// The first slab that was never used.
    next: u32,
    /// The durable high-water mark.
    high_water: u32,
    partial: [Vec<u32>; CLASSES],
    /// Slabs on those lists of which no slot was in use when they were put here.
    emptied: BTreeSet<u32>,
    /// The slabs that threads have set aside, by the threads' numbers.
    set_aside: Vec<(usize, BTreeSet<u32>)>,
}

/// The allocator of a pool.
pub(crate) struct Space {
    slabs: Arena<Slab>,
    shards: [CachePadded<Mutex<[u32; CLASSES]>>; SHARDS],
    unowned: Mutex<Unowned>,
    step_slabs_min: u32,
    /// Slabs below this are old and are not allocated from before it is known what is in use; 0
    /// from then on.
    unmarked_below: AtomicU32,
    /// Whether the pool was closed cleanly before this open, so that bitmaps that pass their checks
    /// are right.
    was_closed: bool,
    /// 1 while the use of the old slabs is to be read from bitmaps.
    has_bitmaps: AtomicU32,
    /// Old allocations that were freed before it was known what is in use; `None` if this open will
    /// not find out.
    early_frees: Mutex<Option<Vec<u64>>>,
    /// Allocations marked so far.
    marked: AtomicU64,
    /// Refused frees: their offset was no allocation.
    frees_refused: AtomicU64,
    /// Nothing is freed any more.
    keeps_all: AtomicBool,
    /// Whether a bitmap was found that fails its check.
    has_damaged_bitmap: AtomicBool,
    /// Whether a close has begun to write the bitmaps.
    has_written_bitmaps: AtomicBool,
    /// How many evacuations are under way.
    evacuations: AtomicU32,
    /// Slabs whose class word is damaged.
    left_alone: Mutex<BTreeSet<u32>>,
}

fn slab_of(offset: u64) -> u32 {
    (offset / SLAB_BYTES) as u32
}

fn slab_start(slab: u32) -> u64 {
    u64::from(slab) * SLAB_BYTES
}

impl Space {
    fn new(high_water: u32, next: u32, was_closed: bool, options: &PoolOptions) -> Result<Self> {
        let capacity = options
            .slabs_max
            .max(high_water.saturating_add(1))
            .min(u32::MAX - 1);
        let partial = std::array::from_fn(|_| Vec::new());
        let (free, unreleased, emptied, set_aside) = Default::default();
        let unowned = Unowned {
            free,
            unreleased,
            next,
            high_water,
            partial,
            emptied,
            set_aside,
        };
        let space = Self {
            slabs: Arena::new(capacity)?,
            shards: std::array::from_fn(|_| CachePadded::new(Mutex::new([0; CLASSES]))),
            unowned: Mutex::new(unowned),
            step_slabs_min: options.step_slabs_min,
            was_closed,
            unmarked_below: AtomicU32::new(0),
            has_bitmaps: AtomicU32::new(0),
            early_frees: Mutex::new(Some(Vec::new())),
            marked: AtomicU64::new(0),
            frees_refused: AtomicU64::new(0),
            keeps_all: AtomicBool::new(false),
            has_damaged_bitmap: AtomicBool::new(false),
            has_written_bitmaps: AtomicBool::new(false),
            evacuations: AtomicU32::new(0),
            left_alone: Mutex::new(BTreeSet::new()),
        };
        space.know_slabs(high_water)?;
        Ok(space)
    }

    /// The space of a new pool: slab 0 holds the prefix.
    pub(crate) fn create(options: &PoolOptions) -> Result<Self> {
        Self::new(1, 1, false, options)
    }

    /// The space of an existing pool: to be read from the bitmaps if the pool was closed cleanly,
    /// otherwise to be marked. O(1). If the high-water mark is damaged, all of the file may be in
    /// use, because the file grows before the mark rises. The mark of the trees then tells which
    /// part is.
    pub(crate) fn open<M: Medium>(
        guard: &MediumGuard<'_, M>,
        options: &PoolOptions,
    ) -> Result<Self> {
        let length = guard.medium().extent().length();
        let known = StateWord::HighWater.load(guard).ok();
        let high_water = known.unwrap_or(length / SLAB_BYTES);
        if high_water == 0 || high_water * SLAB_BYTES > length {
            let what = format!(
                "{high_water} slabs in use, but the file has {length} bytes; it was truncated"
            );
            return Err(Error::corrupt(length, what));
        }
        let high_water = high_water as u32;
        let clean = known.is_some() && StateWord::Clean.load(guard).unwrap_or(0) == 1;
        let space = Self::new(high_water, high_water, clean, options)?;
        space.unmarked_below.store(
            if high_water > 1 { high_water } else { 0 },
            Ordering::Release,
        );
        space
            .has_bitmaps
            .store(u32::from(clean && high_water > 1), Ordering::Release);
        Ok(space)
    }

    /// Whether the pool was closed cleanly before this open.
    pub(crate) fn was_closed(&self) -> bool {
        self.was_closed
    }

    /// Whether the use of the old slabs is not known yet.
    pub(crate) fn has_old(&self) -> bool {
        self.unmarked_below.load(Ordering::Acquire) != 0
    }

    /// Whether there are so few old slabs that reading their bitmaps takes no longer than beginning
    /// a thread for it.
    pub(crate) fn is_small(&self) -> bool {
        self.unmarked_below.load(Ordering::Relaxed) <= SMALL_SLABS
    }

    /// Whether the trees must mark what they reach.
    pub(crate) fn needs_mark(&self) -> bool {
        self.has_old() && self.has_bitmaps.load(Ordering::Acquire) == 0
    }

    /// Whether an offset lies in an old slab.
    fn is_old(&self, offset: u64) -> bool {
        slab_of(offset) < self.unmarked_below.load(Ordering::Acquire)
    }

    /// Writes the high-water mark anew if it is damaged, as it is in a new pool. The caller has
    /// cleared the clean flag, and fences. Returns whether it was damaged.
    pub(crate) fn mend_high_water<M: Medium>(&self, guard: &MediumGuard<'_, M>) -> Result<bool> {
        let is_damaged = StateWord::HighWater.load(guard).is_err();
        if is_damaged {
            // PERSIST: the clean flag was cleared in the same line before; if this is lost, the
            // mark is still damaged.
            StateWord::HighWater.publish(guard, u64::from(self.unowned.lock().high_water))?;
        }
        Ok(is_damaged)
    }

    /// Makes records for all slabs below `high_water`.
    fn know_slabs(&self, high_water: u32) -> Result<()> {
        Ok(self.slabs.reach(high_water.saturating_sub(1))?)
    }

    fn class_word<M: Medium>(guard: &MediumGuard<'_, M>, slab: u32) -> Result<u64> {
        if guard.medium().is_hole(slab_start(slab)) {
            return Ok(0);
        }
        // A class word that fails its check was never durable, so nothing was published from the
        // slab. Or it is damaged: then a tree reaches into the slab (`left_alone`).
        Ok(unchecked(guard.words(slab_start(slab), 1)?[0].load(guard)).unwrap_or(0))
    }

    /// The class of an old slab, read when it is first asked for. The first word of a slab is a
    /// class word only if an allocation begins in the slab: inside of a span all words are data.
    fn old_class<M: Medium>(&self, guard: &MediumGuard<'_, M>, slab: u32) -> Result<u64> {
        let known = self.slabs.get(slab);
        let class = known.class.load(Ordering::Relaxed);
        if class != 0 || known.state.load(Ordering::Relaxed) != UNMARKED {
            return Ok(class);
        }
        let class = Self::class_word(guard, slab)?;
        let below = self.unmarked_below.load(Ordering::Relaxed);
        let span = class.wrapping_sub(SPAN);
        let valid = Class::from_index(class.wrapping_sub(1)).is_some()
            || (1..=SPAN_SLABS_MAX).contains(&span) && u64::from(slab) + span <= u64::from(below);
        known
            .class
            .store(if valid { class } else { 0 }, Ordering::Relaxed);
        Ok(if valid { class } else { 0 })
    }

    fn sort_in(unowned: &mut Unowned, known: &Slab, slab: u32, class: Class, used: u32) {
        let state = if used == 0 {
            unowned.add_free(slab);
            FREE
        } else if used < class.slots() {
            unowned.partial[class.index()].push(slab);
            PARTIAL
        } else {
            FULL
        };
        known.state.store(state, Ordering::Relaxed);
    }

    fn claim_span(&self, first: u32, slabs: u32) {
        for slab in first..first + slabs {
            self.slabs.get(slab).state.store(SPANNED, Ordering::Relaxed);
            self.slabs.get(slab).class.store(0, Ordering::Relaxed);
            self.slabs.get(slab).used.store(1, Ordering::Relaxed);
        }
        self.slabs
            .get(first)
            .class
            .store(SPAN + u64::from(slabs), Ordering::Relaxed);
    }

    /// Records that a tree reaches the allocation at `offset`. Idempotent; any thread. Does nothing
    /// for allocations made since the open.
    pub(crate) fn mark<M: Medium>(&self, guard: &MediumGuard<'_, M>, offset: u64) -> Result<()> {
        let slab = slab_of(offset);
        if slab == 0 || slab >= self.slabs.len() {
            return Err(Error::corrupt(
                offset,
                "an offset outside of the space in use",
            ));
        }
        if !self.is_old(offset) {
            return Ok(());
        }
        if self.leave_alone(guard, offset)? {
            return Ok(());
        }
        let known = self.slabs.get(slab);
        let class = self.old_class(guard, slab)?;
        if let Some(slabs) = class.checked_sub(SPAN) {
            if offset != slab_start(slab) + SPAN_HEADER_BYTES {
                return Err(Error::corrupt(offset, "an offset inside of a large record"));
            }
            for part in slab..slab + slabs as u32 {
                let part = self.slabs.get(part);
                if part.used.load(Ordering::Relaxed) != 0
                    && part.state.load(Ordering::Relaxed) != SPANNED
                {
                    return Err(Error::corrupt(offset, "a large record over slots in use"));
                }
                part.state.store(SPANNED, Ordering::Relaxed);
                part.used.store(1, Ordering::Relaxed);
                if !std::ptr::eq(part, known) {
                    // The word that was read there as a class is data of the large record.
                    part.class.store(0, Ordering::Relaxed);
                }
            }
            return Ok(());
        }
        let class = Class::from_index(class.wrapping_sub(1));
        let slot = class.and_then(|class| class.slot_at(offset % SLAB_BYTES));
        let not_an_allocation = || Error::corrupt(offset, "an offset that is not an allocation");
        let slot = slot.ok_or_else(not_an_allocation)?;
        if known.state.load(Ordering::Relaxed) != UNMARKED {
            return Err(not_an_allocation());
        }
        let bit = 1 << (slot % 64);
        if known.bitmap[slot as usize / 64].fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            known.used.fetch_add(1, Ordering::Relaxed);
            self.marked.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Marks an old allocation that is about to be retired: it is still in use, and the mark of its
    /// tree may not have reached it.
    pub(crate) fn mark_retired<M: Medium>(&self, guard: &MediumGuard<'_, M>, offset: u64) {
        if self.is_old(offset) && self.needs_mark() {
            // An offset that is no allocation is refused when it is freed.
            let _ = self.mark(guard, offset);
        }
    }

    /// Records that the use of old slabs stays unknown until the next open: none of their space is
    /// reused until then.
    pub(crate) fn give_up_marking(&self) {
        *self.early_frees.lock() = None;
    }

    /// Whether a bitmap was found that fails its check.
    pub(crate) fn has_damaged_bitmap(&self) -> bool {
        self.has_damaged_bitmap.load(Ordering::Relaxed)
    }

    /// Ends the mark: all trees have marked, so allocations without a mark are free. Does nothing
    /// if the mark has ended or was given up.
    pub(crate) fn finish_marking(&self) {
        // The lock is held to the end, so that threads that free old allocations wait.
        let mut early_frees = self.early_frees.lock();
        let Some(early_frees) = early_frees.as_mut() else {
            return;
        };
        if !self.has_old() {
            return;
        }
        for offset in early_frees.drain(..) {
            self.free_marked(offset);
        }
        let mut unowned = self.unowned.lock();
        let mut rest = 0;
        for slab in 1..self.unmarked_below.load(Ordering::Acquire) {
            let known = self.slabs.get(slab);
            if Self::is_left_alone(known, &mut rest)
                || known.state.load(Ordering::Relaxed) == SPANNED
            {
                continue;
            }
            let used = known.used.load(Ordering::Relaxed) as u32;
            match Class::from_index(known.class.load(Ordering::Relaxed).wrapping_sub(1)) {
                Some(class) => Self::sort_in(&mut unowned, known, slab, class, used),
                None => {
                    known.state.store(FREE, Ordering::Relaxed);
                    unowned.add_free(slab);
                }
            }
        }
        self.has_bitmaps.store(0, Ordering::Release);
        self.unmarked_below.store(0, Ordering::Release);
    }

    /// Takes the mark of an allocation back; nothing if it has none.
    fn free_marked(&self, offset: u64) {
        let known = self.slabs.get(slab_of(offset));
        let class = known.class.load(Ordering::Relaxed);
        if let Some(slabs) = class.checked_sub(SPAN) {
            if known.state.load(Ordering::Relaxed) == SPANNED {
                for part in slab_of(offset)..slab_of(offset) + slabs as u32 {
                    let part = self.slabs.get(part);
                    part.state.store(UNMARKED, Ordering::Relaxed);
                    part.class.store(0, Ordering::Relaxed);
                    part.used.store(0, Ordering::Relaxed);
                }
            }
            return;
        }
        let class = Class::from_index(class.wrapping_sub(1));
        let Some(slot) = class.and_then(|class| class.slot_at(offset % SLAB_BYTES)) else {
            return;
        };
        let bit = 1 << (slot % 64);
        if known.bitmap[slot as usize / 64].fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
            known.used.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Notes an old allocation to be freed when it is known what is in use; `false` if that is
    /// known already.
    fn free_early(&self, offset: u64) -> bool {
        if !self.is_old(offset) || slab_of(offset) == 0 {
            return false;
        }
        let mut early_frees = self.early_frees.lock();
        let is_early = self.is_old(offset);
        if is_early && let Some(early_frees) = early_frees.as_mut() {
            early_frees.push(offset);
        }
        is_early
    }

    /// Space for `bytes` bytes, on line boundaries if asked. Its content is arbitrary.
    pub(crate) fn allocate<M: Medium>(
        &self,
        guard: &MediumGuard<'_, M>,
        bytes: usize,
        line_aligned: bool,
    ) -> Result<u64> {
        self.allocate_from(guard, thread_number::<M>() % SHARDS, bytes, line_aligned)
    }

    /// Does the same as [`Space::allocate`], for a thread of this shard.
    #[inline]
    pub(crate) fn allocate_from<M: Medium>(
        &self,
        guard: &MediumGuard<'_, M>,
        shard: usize,
        bytes: usize,
        line_aligned: bool,
    ) -> Result<u64> {
        let Some(class) = Class::of(bytes, line_aligned) else {
            return self.allocate_span(guard, bytes);
        };
        guard.interleave_memory();
        let allocated = self.allocate_slot(guard, class, &mut self.shards[shard].lock());
        if !matches!(&allocated, Err(error) if error.is_full()) {
            return allocated;
        }
        let mut shards = self.leave_open(Some(class));
        self.allocate_slot(guard, class, &mut shards[shard])
    }

    fn allocate_slot<M: Medium>(
        &self,
        guard: &MediumGuard<'_, M>,
        class: Class,
        open: &mut [u32; CLASSES],
    ) -> Result<u64> {
        loop {
            let slab = open[class.index()];
            if slab != 0 {
                if let Some(slot) = take_slot(self.slabs.get(slab), class) {
                    return Ok(slab_start(slab) + class.slot_offset(slot));
                }
                self.leave(slab, class);
            }
            open[class.index()] = 0;
            open[class.index()] = self.open_slab(guard, class)?;
        }
    }

    /// For a full pool: all shards leave the slabs of a class that they have open, and open slabs
    /// without a slot in use. Returns the locks of all shards; until they are dropped no shard
    /// opens a slab. The calling thread holds none of the locks before.
    fn leave_open(&self, class: Option<Class>) -> [MutexGuard<'_, [u32; CLASSES]>; SHARDS] {
        self.leave_where(|slab, index| {
            let own = class.is_some_and(|class| class.index() as u64 == index);
            own || self.slabs.get(slab).used.load(Ordering::SeqCst) == 0
        })
    }

    /// All shards leave all slabs that they have open. Returns the locks of all shards, as
    /// [`Space::leave_open`] does.
    fn leave_every_open(&self) -> [MutexGuard<'_, [u32; CLASSES]>; SHARDS] {
        self.leave_where(|_, _| true)
    }

    /// All shards leave the open slabs for which `leaves` returns `true`, given the slab and the
    /// index of its class.
    fn leave_where(
        &self,
        leaves: impl Fn(u32, u64) -> bool,
    ) -> [MutexGuard<'_, [u32; CLASSES]>; SHARDS] {
        let mut shards = self.shards.each_ref().map(|shard| shard.lock());
        for open in &mut shards {
            for (slab, index) in open.iter_mut().zip(0..) {
                if *slab != 0 && leaves(*slab, index) {
                    self.leave(*slab, Class::from_index(index).expect("one for each class"));
                    *slab = 0;
                }
            }
        }
        shards
    }

    /// A shard leaves a slab, usually because it found no free slot in it.
    fn leave(&self, slab: u32, class: Class) {
        let known = self.slabs.get(slab);
        known.state.store(FULL, Ordering::SeqCst);
        // Slots that were freed meanwhile saw an open slab and offered nothing.
        self.offer(slab, class);
    }

    /// Puts a full slab with enough free slots on the list of its class, and a listed slab with no
    /// slot in use on the list of empty slabs. Frees a slab that was to be emptied and is empty.
    fn offer(&self, slab: u32, class: Class) {
        let known = self.slabs.get(slab);
        let used = known.used.load(Ordering::SeqCst) as u32;
        // The thread that freed the last slot may be late: by now the slab can belong to another
        // class, with more slots in use.
        let worth_it = class.slots().saturating_sub(used) * REOPEN_FRACTION >= class.slots();
        let state = known.state.load(Ordering::SeqCst);
        let is_empty = used == 0 && (state == PARTIAL || state == EVACUATED);
        if !(worth_it && state == FULL || is_empty) {
            return;
        }
        let mut unowned = self.unowned.lock();
        if known.class.load(Ordering::SeqCst) != class.index() as u64 + 1 {
            return;
        }
        if known
            .state
            .compare_exchange(FULL, PARTIAL, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            unowned.partial[class.index()].push(slab);
        }
        // The thread that freed the last slot of a slab may have seen it full, just before the slab
        // was put on the list.
        if known.state.load(Ordering::SeqCst) == PARTIAL && known.used.load(Ordering::SeqCst) == 0 {
            unowned.emptied.insert(slab);
        }
        self.free_evacuated(&mut unowned, known, slab);
    }

    fn open_slab<M: Medium>(&self, guard: &MediumGuard<'_, M>, class: Class) -> Result<u32> {
        guard.interleave(&self.unowned);
        let mut unowned = self.unowned.lock();
        while let Some(slab) = unowned.partial[class.index()].pop() {
            let known = self.slabs.get(slab);
            // A slab that was given back meanwhile, or given to another class, left a stale entry.
            if known.class.load(Ordering::SeqCst) == class.index() as u64 + 1
                && known
                    .state
                    .compare_exchange(PARTIAL, OPEN, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok()
            {
                unowned.emptied.remove(&slab);
                return Ok(slab);
            }
        }
        let slab = match self.take_slabs(guard, &mut unowned, 1) {
            Ok(slab) => slab,
            Err(full) => return self.reopen_full(unowned.next, class).ok_or(full),
        };
        let known = self.slabs.get(slab);
        known
            .bitmap
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        known.used.store(0, Ordering::Relaxed);
        known
            .class
            .store(class.index() as u64 + 1, Ordering::SeqCst);
        known.state.store(OPEN, Ordering::SeqCst);
        // PERSIST: the writes that have left the slab empty are fenced before: otherwise the mark
        // after a crash could find their old records in a slab of another class. The high-water
        // mark is fenced before this slab is published from, too, and neither needs the other. Lost
        // after such a publish, the mark after a crash could not tell the slots apart.
        guard.words(slab_start(slab), 1)?[0].publish(guard, checked(class.index() as u64 + 1));
        guard.fence();
        Ok(slab)
    }

    /// Takes a slab with free slots that counts as full, or else one that is being emptied: while
    /// there was room it had too few free slots to be offered, but in a full pool every slot counts.
    /// O(slabs).
    fn reopen_full(&self, end: u32, class: Class) -> Option<u32> {
        self.reopen_from(FULL, end, class)
            .or_else(|| self.reopen_from(EVACUATED, end, class))
    }

    fn reopen_from(&self, state: u64, end: u32, class: Class) -> Option<u32> {
        (1..end).find(|slab| {
            let known = self.slabs.get(*slab);
            known.class.load(Ordering::SeqCst) == class.index() as u64 + 1
                && known.used.load(Ordering::SeqCst) < u64::from(class.slots())
                && known
                    .state
                    .compare_exchange(state, OPEN, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok()
        })
    }

    /// `count` adjacent slabs without an owner, or else from those that the thread has set aside.
    fn take_slabs<M: Medium>(
        &self,
        guard: &MediumGuard<'_, M>,
        unowned: &mut Unowned,
        count: u32,
    ) -> Result<u32> {
        self.take_unowned(guard, unowned, count).or_else(|full| {
            unowned
                .take_from_set_aside(thread_number::<M>(), count)
                .ok_or(full)
        })
    }

    fn take_unowned<M: Medium>(
        &self,
        guard: &MediumGuard<'_, M>,
        unowned: &mut Unowned,
        count: u32,
    ) -> Result<u32> {
        let mut run = find_run(&unowned.free, count);
        if run.is_none() && !unowned.emptied.is_empty() {
            self.free_emptied(unowned);
            run = find_run(&unowned.free, count);
        }
        if let Some(first) = run {
            let first = Self::reserve_one_of(guard, &unowned.free, first, count)?;
            (first..first + count).for_each(|slab| unowned.remove_free(slab));
            return Ok(first);
        }
        // Takes the free slabs just before the slabs that were never used, and as many of the
        // latter as are missing.
        let mut first = unowned.next;
        while unowned.free.contains(&(first - 1)) {
            first -= 1;
        }
        let end = first + count;
        if end > unowned.high_water {
            self.raise_high_water(guard, unowned, end)?;
        }
        Self::reserve(guard, first, unowned.next - first)?;
        (first..unowned.next).for_each(|slab| unowned.remove_free(slab));
        unowned.next = end;
        Ok(first)
    }

    /// Takes slabs from their classes in which no slot is in use; stale entries stay on the lists
    /// of these.
    fn free_emptied(&self, unowned: &mut Unowned) {
        while let Some(slab) = unowned.emptied.pop_first() {
            let known = self.slabs.get(slab);
            if known.used.load(Ordering::SeqCst) == 0
                && known
                    .state
                    .compare_exchange(PARTIAL, FREE, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok()
            {
                unowned.add_free(slab);
            }
        }
    }

    fn raise_high_water<M: Medium>(
        &self,
        guard: &MediumGuard<'_, M>,
        unowned: &mut Unowned,
        end: u32,
    ) -> Result<()> {
        let step = (unowned.high_water / 16).clamp(self.step_slabs_min, STEP_SLABS_MAX);
        let wanted = end.max(unowned.high_water + step);
        let mut high_water = wanted;
        // Near the limit the step shrinks, so that the last bytes are used too.
        let room = |high_water: u32| {
            guard.medium().grow(slab_start(high_water))?;
            // A growth that was cut short may have left a longer file, with holes.
            Self::reserve(guard, unowned.high_water, high_water - unowned.high_water)
        };
        while let Err(error) = room(high_water) {
            if high_water == end {
                return Err(error);
            }
            high_water = end.max(high_water - (high_water - end).div_ceil(2));
        }
        self.know_slabs(high_water)?;
        // PERSIST: the file has the length; if this is lost, slabs above the old mark would be
        // taken for unused. The fence comes before the caller unlocks `unowned`: another thread
        // then takes slabs below the new mark, and its fences do not cover this flush.
        StateWord::HighWater.publish(guard, u64::from(high_water))?;
        guard.fence();
        unowned.high_water = high_water;
        Ok(())
    }

    fn allocate_span<M: Medium>(&self, guard: &MediumGuard<'_, M>, bytes: usize) -> Result<u64> {
        let count = (bytes as u64 + SPAN_HEADER_BYTES).div_ceil(SLAB_BYTES);
        if count > SPAN_SLABS_MAX {
            return Err(ErrorKind::TooLong {
                bytes,
                limit: ALLOCATION_BYTES_MAX,
            }
            .into());
        }
        guard.interleave_memory();
        let taken = self.take_span(guard, count as u32);
        let first = match taken {
            Err(error) if error.is_full() => {
                drop(self.leave_open(None));
                self.take_span(guard, count as u32)?
            }
            taken => taken?,
        };
        // PERSIST: as in `open_slab`.
        guard.words(slab_start(first), 1)?[0].publish(guard, checked(SPAN + count));
        guard.fence();
        Ok(slab_start(first) + SPAN_HEADER_BYTES)
    }

    fn take_span<M: Medium>(&self, guard: &MediumGuard<'_, M>, count: u32) -> Result<u32> {
        let mut unowned = self.unowned.lock();
        let first = self.take_slabs(guard, &mut unowned, count)?;
        self.claim_span(first, count);
        Ok(first)
    }

    /// Gives back an allocation that no tree reaches any more. An offset that is no allocation
    /// (which a damaged pool may contain) is left alone and counted.
    pub(crate) fn free(&self, offset: u64) {
        if self.keeps_all.load(Ordering::Relaxed) {
            return;
        }
        if !self.free_early(offset) && self.try_free(offset).is_none() {
            self.frees_refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn try_free(&self, offset: u64) -> Option<()> {
        let slab = slab_of(offset);
        if slab == 0 || slab >= self.slabs.len() {
            return None;
        }
        let known = self.slabs.get(slab);
        let class_word = known.class.load(Ordering::Relaxed);
        if known.state.load(Ordering::Relaxed) == LEFT_ALONE {
            return Some(());
        }
        if class_word >= SPAN {
            return self.free_span(offset);
        }
        let class = Class::from_index(class_word.wrapping_sub(1))?;
        let slot = class.slot_at(offset % SLAB_BYTES)?;
        let bit = 1 << (slot % 64);
        if known.bitmap[slot as usize / 64].fetch_and(!bit, Ordering::SeqCst) & bit == 0 {
            return None;
        }
        known.used.fetch_sub(1, Ordering::SeqCst);
        self.offer(slab, class);
        Some(())
    }

    fn free_span(&self, offset: u64) -> Option<()> {
        let first = slab_of(offset);
        let mut unowned = self.unowned.lock();
        let known = self.slabs.get(first);
        let slabs = known.class.load(Ordering::Relaxed).checked_sub(SPAN)?;
        if offset != slab_start(first) + SPAN_HEADER_BYTES
            || known.state.load(Ordering::Relaxed) != SPANNED
        {
            return None;
        }
        for slab in first..first + slabs as u32 {
            let known = self.slabs.get(slab);
            known.class.store(0, Ordering::Relaxed);
            known.used.store(0, Ordering::Relaxed);
            known.state.store(FREE, Ordering::Relaxed);
            unowned.add_free(slab);
        }
        Some(())
    }

    /// From now on nothing is freed.
    pub(crate) fn keep_all(&self) {
        self.keeps_all.store(true, Ordering::Relaxed);
    }

    /// How many frees were refused because their offset was no allocation: damage, or a double
    /// free.
    pub(crate) fn frees_refused(&self) -> u64 {
        self.frees_refused.load(Ordering::Relaxed)
    }

    /// Bytes of slabs in use and the bytes of the file up to the high-water mark.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let unowned = self.unowned.lock();
        let used = (1..unowned.next)
            .filter(|slab| self.slabs.get(*slab).used.load(Ordering::Relaxed) != 0)
            .count();
        (
            (used as u64 + 1) * SLAB_BYTES,
            slab_start(unowned.high_water),
        )
    }

    /// Old allocations that were marked so far, and whether that goes on.
    pub(crate) fn mark_progress(&self) -> Option<u64> {
        self.needs_mark()
            .then(|| self.marked.load(Ordering::Relaxed))
    }

    /// How many allocations are in use, for tests of leaks.
    pub(crate) fn allocations(&self) -> u64 {
        let next = self.unowned.lock().next;
        let count = |slab: u32| {
            let known = self.slabs.get(slab);
            let class = known.class.load(Ordering::Relaxed);
            if class == 0 {
                0
            } else {
                known.used.load(Ordering::Relaxed)
            }
        };
        (1..next).map(count).sum()
    }
}

/// The first of `count` adjacent members.
fn find_run(free: &BTreeSet<u32>, count: u32) -> Option<u32> {
    let mut first = *free.first()?;
    let mut expected = first;
    for &slab in free {
        if slab != expected {
            first = slab;
        }
        expected = slab + 1;
        if expected - first == count {
            return Some(first);
        }
    }
    None
}

/// Takes a free slot; only the shard that opened the slab calls this.
fn take_slot(known: &Slab, class: Class) -> Option<u32> {
    if known.used.load(Ordering::SeqCst) as u32 == class.slots() {
        return None;
    }
    for index in 0..class.bitmap_words() {
        let word = &known.bitmap[index];
        let free = !word.load(Ordering::Relaxed) & valid_bits(class, index);
        if free != 0 {
            let bit = free.trailing_zeros();
            word.fetch_or(1 << bit, Ordering::SeqCst);
            known.used.fetch_add(1, Ordering::SeqCst);
            return Some(index as u32 * 64 + bit);
        }
    }
    None
}

/// The bits of bitmap word `index` that stand for slots.
fn valid_bits(class: Class, index: usize) -> u64 {
    let slots = class.slots() - 64 * index as u32;
    if slots >= 64 {
        u64::MAX
    } else {
        (1 << slots) - 1
    }
}
