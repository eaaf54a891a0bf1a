//! The leaf, in the pool and beside it.
//!
//! ```text
//! in the pool: 64 + 16 * 56 = 960 bytes; a twin line's second copy lies in the 64 bytes before
//!   0  slot line   bits 0..6 slot check | 6..48 next leaf's offset | 48..54 count | 54..62 check | 62, 63 the medium's
//!                  bytes 8..64 slots: entries in key order
//!  64  entries     56 pairs of words: first word of the key, value or record
//!
//! in memory, 256 bytes: nothing volatile lies in the pool
//!   0  version     bit 0 locked, bit 1 dead, from bit 2 a count of recyclings
//!   8  live        entries that point reads may return
//!  16  claimed     entries that are allocated: live, dead, or not published yet
//!  24  dead        entries that were live; free as soon as no reader can be in them
//!  32  high        keys from here on are in the next leaf (a word, or a separator's tail)
//!  40  offset      of the leaf in the pool
//!  48  lsn         of the last change, for media that are durable late
//!  56  next        index of the next leaf, 0 for none
//!  64  fingerprints, one byte per entry; the last 8 bytes are the sequence that scans and planned
//!                writes retry on
//! 128  slots       the transient slot array: the slot line as it was last made durable
//! 192  orders      one order byte per entry; the last 8 bytes are their scale. For writers
//! ```
//!
//! The *check* covers the slot line and the entries that it lists: the exclusive or of all their
//! bytes is [`SEED`], where each entry is rotated by its number, and its second word once more. The
//! sum is linear, so a write updates it from the old and the new entry alone: it reads no further
//! entry, and earlier damage stays detectable. A damaged slot may list another entry with the same
//! sum: so the slots and their count have a check of their own, the exclusive or of the line's
//! bytes without the checks. Together they detect every change of a single byte, and 255 of 256
//! other damages.

use medium::sync::{Atomic, Ordering, fence, load_all, pause, yield_now};
use medium::{Line, LineValue, Lsn, Medium, Word, kernels, node, volatile};
use pool::Guard;

use super::order::Scale;
use crate::index::EntryWords;
use crate::{Error, Result};

/// The most entries of a leaf: a slot line has 56 slots.
pub const ENTRIES_MAX: usize = 56;

node! {
    /// A leaf. It has room for [`ENTRIES_MAX`] entries; a tree may use fewer
    /// ([`RnTreeOptions`](super::RnTreeOptions)).
    pub(super) struct Leaf {
        pub(super) slots: Line,
        pub(super) entries: [[Word; 2]; ENTRIES_MAX],
    }
}

const _: () = {
    assert!(std::mem::offset_of!(Leaf, slots) == 0);
    assert!(std::mem::offset_of!(Leaf, entries) == 64);
    assert!(size_of::<Leaf>() == 960);
    assert!(align_of::<Leaf>() == 64);
};

impl Leaf {
    /// The words of the entry that `slots` list at `position`.
    pub(super) fn entry<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        slots: &Slots,
        position: usize,
    ) -> EntryWords {
        let cells = &self.entries[slots.entry(position).min(ENTRIES_MAX - 1)];
        [cells[0].load(guard), cells[1].load(guard)]
    }

    /// The part of the check that comes from the entries which `slots` list from `position` on.
    pub(super) fn sum<M: Medium>(
        &self,
        guard: &Guard<'_, M>,
        slots: &Slots,
        position: usize,
    ) -> EntrySum {
        (position..slots.count()).fold(EntrySum::default(), |sum, position| {
            sum.with(slots.entry(position), self.entry(guard, slots, position))
        })
    }
}

volatile! {
    /// The volatile record of a leaf.
    pub(super) struct LeafRecord<M> {
        version: Atomic<M>,
        pub(super) live: Atomic<M>,
        pub(super) claimed: Atomic<M>,
        pub(super) dead: Atomic<M>,
        pub(super) high: Atomic<M>,
        offset: Atomic<M>,
        lsn: Atomic<M>,
        next: Atomic<M>,
        fingerprints: [Atomic<M>; 8],
        slots: [Atomic<M>; 8],
        orders: [Atomic<M>; 8],
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(std::mem::offset_of!(LeafRecord<medium::Dax>, fingerprints) == 64);
    assert!(std::mem::offset_of!(LeafRecord<medium::Dax>, slots) == 128);
    assert!(std::mem::offset_of!(LeafRecord<medium::Dax>, orders) == 192);
    assert!(size_of::<LeafRecord<medium::Dax>>() == 256);
};

const LOCKED: u64 = 1;
const DEAD: u64 = 2;
const RECYCLING: u64 = 4;
/// The word of the fingerprint line that counts changes of the transient slots.
const SEQUENCE: usize = 7;
/// The word of the line of order bytes that holds their scale.
const SCALE: usize = 7;

/// The check of slots and count alone. It lies where the next leaf's offset, a multiple of 64, has
/// zeros.
const SLOT_CHECK_MASK: u64 = 0x3f;
const NEXT_MASK: u64 = ((1 << 48) - 1) & !SLOT_CHECK_MASK;
const COUNT_SHIFT: u32 = 48;
const COUNT_MASK: u64 = 0x3f;
const CHECK_SHIFT: u32 = 54;
const CHECK_MASK: u64 = 0xff << CHECK_SHIFT;
/// Not 0, so that a leaf of zeros fails its check.
const SEED: u64 = 0xa5;
pub(super) const FAILS_CHECK: &str = "the slots and entries of a leaf fail their check";

/// All of the first `count` bits.
pub(super) const fn low_bits(count: usize) -> u64 {
    if count >= 64 {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

/// The content of a slot line, with or without the medium's tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slots(pub(super) LineValue);

impl Slots {
    /// The slots of a new leaf: they list entries 0, 1, 2, ..., which are `count` and have this
    /// `sum`.
    pub(super) fn identity(count: usize, next: u64, sum: EntrySum) -> Self {
        let mut slots = Self(LineValue([0; 8])).with(0, next);
        for entry in 0..count {
            slots = slots.inserted(entry, entry as u8);
        }
        slots.sealed_with(SEED ^ sum.0)
    }

    /// These slots with a valid check. It is computed from `before`, whose check is right, and from
    /// `change`, the sum of the entries that differ. Slots are sealed before they are published.
    #[inline(always)]
    pub(super) fn sealed(self, before: &Self, change: EntrySum) -> Self {
        self.sealed_with(before.sum() ^ change.0)
    }

    #[inline(always)]
    fn sealed_with(mut self, rest: u64) -> Self {
        self.0.0[0] &= !(CHECK_MASK | SLOT_CHECK_MASK);
        self.0.0[0] |= self.slot_check();
        // Bit n of the check lies at the position of bit n of a byte, so it takes part in the sum
        // of these bits.
        self.0.0[0] |= u64::from(fold(self.sum() ^ rest).rotate_left(2)) << CHECK_SHIFT;
        self
    }

    /// The check that the slots and their count must have.
    #[inline(always)]
    fn slot_check(&self) -> u64 {
        let checks = self.0.0[0] & (CHECK_MASK | SLOT_CHECK_MASK);
        let folded = u64::from(fold(self.sum() ^ checks));
        // The six bits are folded from all eight, because the bits of the next leaf's offset lie
        // anywhere in a byte.
        (folded ^ folded >> 6) & SLOT_CHECK_MASK
    }

    /// The exclusive or of the line's words.
    #[inline(always)]
    fn sum(&self) -> u64 {
        self.0.0.iter().fold(0, |sum, word| sum ^ word) & !medium::TAG_MASK
    }

    pub(super) fn count(&self) -> usize {
        ((self.0.0[0] >> COUNT_SHIFT) & COUNT_MASK) as usize
    }

    /// The offset of the next leaf; 0 for none.
    pub(super) fn next(&self) -> u64 {
        self.0.0[0] & NEXT_MASK
    }

    /// The first `count` slots, and another next leaf.
    pub(super) fn with(mut self, count: usize, next: u64) -> Self {
        self.0.0[0] = self.0.0[0] & medium::TAG_MASK | next | (count as u64) << COUNT_SHIFT;
        self
    }

    #[inline(always)]
    pub(super) fn entry(&self, position: usize) -> usize {
        (self.0.0[1 + position / 8] >> (8 * (position % 8)) & COUNT_MASK) as usize
    }

    /// The entries in the order of their keys, as bytes; those from `count` on mean nothing.
    #[inline(always)]
    pub(super) fn listed(&self) -> [u8; ENTRIES_MAX] {
        let mut listed = [0; ENTRIES_MAX];
        for (bytes, word) in listed.as_chunks_mut::<8>().0.iter_mut().zip(&self.0.0[1..]) {
            *bytes = (word & !medium::TAG_MASK).to_le_bytes();
        }
        listed
    }

    /// With `entry` inserted at `position`.
    pub(super) fn inserted(self, position: usize, entry: u8) -> Self {
        Self(kernels::insert_slot(&self.0, position, entry)).with(self.count() + 1, self.next())
    }

    /// Without the entry at `position`.
    pub(super) fn removed(self, position: usize) -> Self {
        Self(kernels::remove_slot(&self.0, position)).with(self.count() - 1, self.next())
    }

    /// With `entry` at `position` in place of the entry there.
    pub(super) fn replaced(mut self, position: usize, entry: u8) -> Self {
        let shift = 8 * (position % 8);
        let word = &mut self.0.0[1 + position / 8];
        *word = *word & !(COUNT_MASK << shift) | u64::from(entry) << shift;
        self
    }

    /// Where `entry` is listed.
    pub(super) fn position_of(&self, entry: usize) -> Option<usize> {
        kernels::find_slot(&self.0, self.count(), entry as u8)
    }

    /// Bit i: entry i is listed.
    pub(super) fn bitmap(&self) -> u64 {
        (0..self.count()).fold(0, |bits, position| bits | 1 << self.entry(position))
    }

    /// Refuses slots whose check does not fit to the entries that they list.
    pub(super) fn verify(&self, entries: EntrySum, offset: u64) -> Result<()> {
        self.verify_line(offset)?;
        let fits = fold(self.sum() ^ entries.0 ^ SEED) == 0;
        if fits {
            Ok(())
        } else {
            Err(Error::corrupt(offset, FAILS_CHECK))
        }
    }

    /// Refuses slots that fail the check of the line alone, with the next leaf; and a line of
    /// zeros, which a lost page leaves: without entries the check is [`SEED`].
    pub(super) fn verify_line(&self, offset: u64) -> Result<()> {
        let first = self.0.0[0] & !medium::TAG_MASK;
        let fits = first & SLOT_CHECK_MASK == self.slot_check() && first != 0;
        if fits {
            Ok(())
        } else {
            Err(Error::corrupt(offset, FAILS_CHECK))
        }
    }

    /// Refuses slots that no leaf of `entries` entries can have.
    pub(super) fn validate(&self, entries: usize, offset: u64) -> Result<()> {
        if self.count() > entries {
            return Err(Error::corrupt(
                offset,
                format!("a leaf with {} slots", self.count()),
            ));
        }
        let bitmap = self.bitmap();
        if bitmap & !low_bits(entries) != 0 || bitmap.count_ones() as usize != self.count() {
            return Err(Error::corrupt(
                offset,
                "slots that list no entry, or one twice",
            ));
        }
        Ok(())
    }
}

/// The part of entries in the check of the slots that list them. Adding an entry twice removes it
/// again.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct EntrySum(u64);

impl EntrySum {
    /// With the entry of this number.
    #[inline(always)]
    pub(super) fn with(self, entry: usize, words: EntryWords) -> Self {
        // Rotated, so that equal words, and equal damage in several entries, do not cancel out.
        Self(self.0 ^ (words[0] ^ words[1].rotate_left(1)).rotate_left(entry as u32))
    }
}

/// The exclusive or of a word's bytes.
#[inline(always)]
fn fold(word: u64) -> u8 {
    let half = word ^ word >> 32;
    let quarter = half ^ half >> 16;
    (quarter ^ quarter >> 8) as u8
}

/// A lock on a leaf, held until dropped. Never held across a wait for durability.
pub(super) struct LeafLock<'l, M: Medium> {
    leaf_record: &'l LeafRecord<M>,
}

impl<M: Medium> Drop for LeafLock<'_, M> {
    fn drop(&mut self) {
        let version = self.leaf_record.version.load(Ordering::Relaxed);
        // ORDER: pairs with the acquire in `try_lock`: the next holder sees all changes of this
        // one.
        self.leaf_record
            .version
            .store(version & !LOCKED, Ordering::Release);
    }
}

impl<M: Medium> LeafRecord<M> {
    /// Prefetches the lines that a scan reads: all except the order bytes.
    #[inline(always)]
    pub(super) fn prefetch_for_scan(&self) {
        kernels::prefetch_read(&self.version);
        kernels::prefetch_read(&self.fingerprints);
        kernels::prefetch_read(&self.slots);
    }

    /// Gives a record its first content. No other thread can reach it.
    pub(super) fn reset(&self, offset: u64, slots: &Slots, next: u32, high: u64, lsn: Lsn) {
        // The version continues from the record's former leaf, so that a reader of that leaf cannot
        // validate.
        let version = self.version.load(Ordering::Relaxed);
        // ORDER: pairs with the acquire in `version`: a thread that sees the new version sees that
        // the inner nodes no longer lead to the former leaf.
        self.version
            .store((version & !(LOCKED | DEAD)) + RECYCLING, Ordering::Release);
        // ORDER: pairs with the fence in `is_still`, for readers that are not pinned.
        fence(Ordering::Release);
        let live = slots.bitmap();
        self.claimed.store(live, Ordering::Relaxed);
        self.dead.store(0, Ordering::Relaxed);
        self.offset.store(offset, Ordering::Relaxed);
        self.lsn.store(lsn.0, Ordering::Relaxed);
        self.next.store(u64::from(next), Ordering::Relaxed);
        self.high.store(high, Ordering::Relaxed);
        self.store_slots(slots);
        self.rescale(Scale::FLAT, []);
        self.live.store(live, Ordering::Release);
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// Waits for the leaf's lock.
    pub(super) fn lock(&self) -> LeafLock<'_, M> {
        let mut spins = 0;
        loop {
            if let Some(lock) = self.try_lock() {
                return lock;
            }
            pause(&mut spins);
        }
    }

    pub(super) fn try_lock(&self) -> Option<LeafLock<'_, M>> {
        let version = self.version.load(Ordering::Relaxed);
        if version & LOCKED != 0 {
            return None;
        }
        // ORDER: acquire pairs with the release in `LeafLock::drop`.
        let locked = self.version.compare_exchange(
            version,
            version | LOCKED,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        // A `LeafLock` is made only with the lock: without it, its drop would release the lock of
        // another thread.
        match locked {
            Ok(_) => Some(LeafLock { leaf_record: self }),
            Err(_) => None,
        }
    }

    /// The version that a reader validates with [`LeafRecord::is_still`]. Locking does not change
    /// it.
    #[inline(always)]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire) & !LOCKED
    }

    /// Whether no entry was recycled, and the leaf did not die, since `version` was taken.
    #[inline(always)]
    pub(super) fn is_still(&self, version: u64) -> bool {
        // ORDER: pairs with the release in `recycle`: a reader that saw a recycled entry sees the
        // raised version.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) & !LOCKED == version
    }

    /// Whether a version is that of a leaf that was merged away.
    pub(super) fn is_dead(version: u64) -> bool {
        version & DEAD != 0
    }

    /// Waits a moment for the writer that changes a leaf, before the caller reads the leaf again.
    /// If the leaf is dead, the caller descends again after the wait: the inner nodes lead to a
    /// dead leaf until the thread that merges or replaces it has removed it from them.
    #[cold]
    pub(super) fn wait() {
        // The writer may wait for a persist, or for a processor.
        yield_now();
    }

    /// Marks the leaf as merged away, or removes the mark. Under the lock.
    pub(super) fn set_dead(&self, dead: bool) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(
            if dead {
                version | DEAD
            } else {
                version & !DEAD
            },
            Ordering::Release,
        );
    }

    /// Allocates a free entry; `None` if there is none. Lock-free.
    pub(super) fn claim(&self, entries: usize) -> Option<usize> {
        let mut claimed = self.claimed.load(Ordering::Relaxed);
        loop {
            let entry = (!claimed & low_bits(entries)).trailing_zeros();
            if entry == 64 {
                return None;
            }
            // ORDER: acquire pairs with the release in `recycle`: the raised version precedes the
            // stores to the claimed entry.
            let new = claimed | 1 << entry;
            match self.claimed.compare_exchange_weak(
                claimed,
                new,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(entry as usize),
                Err(found) => claimed = found,
            }
        }
    }

    /// Forbids claims until the next [`LeafRecord::reset`], so that the leaf can be retired. Does
    /// nothing and returns `false` if claims are outstanding: a thread that holds a claim, and has
    /// found the version unchanged since, relies on the leaf staying. Under the lock.
    pub(super) fn close(&self) -> bool {
        let settled = self.live.load(Ordering::Relaxed) | self.dead.load(Ordering::Relaxed);
        self.claimed
            .compare_exchange(settled, u64::MAX, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Undoes [`LeafRecord::close`].
    pub(super) fn reopen(&self) {
        let settled = self.live.load(Ordering::Relaxed) | self.dead.load(Ordering::Relaxed);
        self.claimed.store(settled, Ordering::Release);
    }

    /// Gives entries back that were claimed and never published.
    pub(super) fn release(&self, entries: u64) {
        self.claimed.fetch_and(!entries, Ordering::Release);
    }

    /// Frees the dead entries. Costs no copy and no persist. Under the lock.
    ///
    /// The version is raised before they can be claimed again, so a reader that still reads one
    /// retries; a later reader does not find them in `live`.
    pub(super) fn recycle(&self) {
        let dead = self.dead.load(Ordering::Relaxed);
        if dead == 0 {
            return;
        }
        self.raise_version();
        self.dead.store(0, Ordering::Relaxed);
        self.release(dead);
    }

    /// Makes readers of the leaf try again. Under the lock.
    pub(super) fn raise_version(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + RECYCLING, Ordering::Release);
    }

    /// Which entries have this fingerprint, live or not.
    #[inline(always)]
    pub(super) fn matches(&self, fingerprint: u8) -> u64 {
        kernels::match_byte(Atomic::read_together(&self.fingerprints), fingerprint)
    }

    /// The fingerprint of an entry.
    pub(super) fn fingerprint(&self, entry: usize) -> u8 {
        byte_of(&self.fingerprints, entry)
    }

    /// Sets the fingerprint of an entry that is not live yet. Under the lock.
    pub(super) fn set_fingerprint(&self, entry: usize, fingerprint: u8) {
        set_byte(&self.fingerprints, entry, fingerprint);
    }

    /// The scale of the order bytes.
    #[inline(always)]
    pub(super) fn scale(&self) -> Scale {
        Scale(self.orders[SCALE].load(Ordering::Relaxed))
    }

    /// Which entries, live or not, have an order byte below that of a key's number, and which tie
    /// with it.
    #[inline(always)]
    pub(super) fn compare_orders(&self, number: u64) -> (u64, u64) {
        let order = self.scale().order(number);
        kernels::compare_bytes(Atomic::read_together(&self.orders), order)
    }

    /// The order byte of an entry.
    pub(super) fn order(&self, entry: usize) -> u8 {
        byte_of(&self.orders, entry)
    }

    /// Sets the order byte of an entry whose key has this number. Under the lock.
    pub(super) fn set_order(&self, entry: usize, number: u64) {
        set_byte(&self.orders, entry, self.scale().order(number));
    }

    /// Gives these entries, each with the number of its key, order bytes on a new scale, and all
    /// others 0. Under the lock.
    pub(super) fn rescale(&self, scale: Scale, numbers: impl IntoIterator<Item = (usize, u64)>) {
        let mut orders = [[0_u8; 8]; 8];
        let bytes = orders.as_flattened_mut();
        for (entry, number) in numbers {
            bytes[entry] = scale.order(number);
        }
        let mut line = LineValue(orders.map(u64::from_le_bytes));
        line.0[SCALE] = scale.0;
        Atomic::store_together(&self.orders, &line);
    }

    /// Prefetches the lines that a point read needs.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        kernels::prefetch_read(&self.version);
        kernels::prefetch_read(&self.fingerprints);
    }

    /// Prefetches the lines that a write needs besides.
    #[inline(always)]
    pub(super) fn prefetch_for_write(&self) {
        kernels::prefetch_write(&self.slots);
        kernels::prefetch_write(&self.orders);
    }

    /// The transient slots, for the holder of the lock.
    pub(super) fn slots(&self) -> Slots {
        Slots(LineValue(load_all(Atomic::read_together(&self.slots))))
    }

    fn store_slots(&self, slots: &Slots) {
        Atomic::store_together(&self.slots, &slots.0);
    }

    /// Changes the transient slots and, in `change`, the fields that belong to them: one change for
    /// scans and planned writes. Under the lock.
    #[inline(always)]
    pub(super) fn change(&self, slots: &Slots, rest: impl FnOnce()) {
        let sequence = self.fingerprints[SEQUENCE].load(Ordering::Relaxed);
        self.fingerprints[SEQUENCE].store(sequence | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.store_slots(slots);
        rest();
        // ORDER: pairs with the acquire in `sequence`.
        self.fingerprints[SEQUENCE].store((sequence | 1) + 1, Ordering::Release);
    }

    /// Changes the leaf to one that ends sooner: keys from `high` on are in `next` and behind it.
    /// Under the lock.
    pub(super) fn shorten(&self, slots: &Slots, next: u32, high: u64) {
        self.change(slots, || {
            // Next before high, high before live: a reader that misses an entry because it moved
            // goes on to the next leaf, and finds that.
            self.set_next(next);
            // ORDER: pairs with the acquire in `beyond`.
            self.high.store(high, Ordering::Release);
            self.live.store(slots.bitmap(), Ordering::Release);
        });
    }

    /// Changes an empty leaf to the first one of many. Readers of keys in these leaves wait
    /// meanwhile. Under the lock.
    pub(super) fn lead(&self, slots: &Slots, next: u32, high: u64) {
        self.set_dead(true);
        self.shorten(slots, next, high);
        // The version is raised while the leaf is dead, so no version from before validates
        // afterwards.
        self.raise_version();
        self.set_dead(false);
    }

    /// Changes the leaf to one that has taken over the entries of `right`, and ends where `right`
    /// does. Under both locks.
    pub(super) fn extend(&self, slots: &Slots, right: &Self) {
        self.change(slots, || {
            self.live.store(slots.bitmap(), Ordering::Release);
            // ORDER: readers load these three in the same order. A reader of old entries and the
            // new high key would miss entries of the right leaf; one of the old high key and the
            // new next leaf would skip it. Neither finds an unchanged version.
            self.raise_version();
            self.high
                .store(right.high.load(Ordering::Relaxed), Ordering::Release);
            self.raise_version();
            self.set_next(right.next());
        });
    }

    /// The sequence that scans and planned writes retry on; `None` during a change.
    pub(super) fn sequence(&self) -> Option<u64> {
        let sequence = self.fingerprints[SEQUENCE].load(Ordering::Acquire);
        (sequence & 1 == 0).then_some(sequence)
    }

    /// Whether slots, next leaf and high key are those of `sequence`.
    pub(super) fn is_still_in(&self, sequence: u64) -> bool {
        // ORDER: pairs with the fence in `change`.
        fence(Ordering::Acquire);
        self.fingerprints[SEQUENCE].load(Ordering::Relaxed) == sequence
    }

    /// The index of the next leaf, 0 for none.
    pub(super) fn next(&self) -> u32 {
        self.next.load(Ordering::Acquire) as u32
    }

    /// Sets the next leaf. Under the lock.
    pub(super) fn set_next(&self, next: u32) {
        self.next.store(u64::from(next), Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn lsn(&self) -> Lsn {
        if M::LATE {
            Lsn(self.lsn.load(Ordering::Acquire))
        } else {
            Lsn::DURABLE
        }
    }

    /// Stamps the leaf with the LSN of the change that readers see from now on. Under the lock,
    /// before `live` changes.
    #[inline(always)]
    pub(super) fn stamp(&self, lsn: Lsn) {
        if M::LATE {
            self.lsn.store(lsn.0, Ordering::Release);
        }
    }
}

/// One byte of a line.
fn byte_of<M: Medium>(line: &[Atomic<M>; 8], index: usize) -> u8 {
    (line[index / 8].load(Ordering::Relaxed) >> (8 * (index % 8))) as u8
}

/// Sets one byte of a line that no other thread writes.
fn set_byte<M: Medium>(line: &[Atomic<M>; 8], index: usize, byte: u8) {
    let shift = 8 * (index % 8);
    let word = &line[index / 8];
    let cleared = word.load(Ordering::Relaxed) & !(0xff << shift);
    word.store(cleared | u64::from(byte) << shift, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
