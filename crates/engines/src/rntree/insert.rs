//! Writes that leave the key present: insert, update, put.
//!
//! Record and entry are written and flushed outside of the leaf's lock, into an entry that was
//! claimed by compare-and-swap; under the lock only the slot line changes. The new slot line is
//! computed while the entry is being written back, and again under the lock if the leaf has changed
//! since.

use medium::sync::Ordering;
use medium::{Lsn, Medium, Word, kernels};
use pool::Guard;
use std::cmp::Ordering as Compare;

use super::find::{Purpose, Seen};
use super::layout::{EntrySum, Leaf, LeafRecord, Slots};
use super::order::Scale;
use super::{ENTRIES_MAX, RnTree};
use crate::Result;
use crate::index::{Codec, Condition, EntryWords};
use crate::kit::bits;
use crate::kit::chain::HeapGuard;
use crate::kit::write::{Encoded, holds};

/// With more ties of order bytes than this, all entries are compared: each tie may be a cache miss.
const TIES_MAX: u32 = 4;

/// To add a key: the write must know whether the key is present.
struct Insert;

impl Purpose for Insert {
    const CONFIRMS: bool = true;
    const CLAIMS: bool = true;
    const RANKS: bool = true;
}

/// To set the value of a key, present or not.
struct Put;

impl Purpose for Put {
    const CONFIRMS: bool = false;
    const CLAIMS: bool = true;
    const RANKS: bool = true;
}

/// To set the value of a key that is present. A matching fingerprint nearly always means that it
/// is; if not, the write notices while the entry is being written back.
struct Update;

impl Purpose for Update {
    const CONFIRMS: bool = false;
    const CLAIMS: bool = true;
    const RANKS: bool = false;
}

/// A claimed entry, given back unless it is published.
struct Claim<'l, M: Medium> {
    record: &'l LeafRecord<M>,
    index: u32,
    entry: usize,
}

impl<M: Medium> Drop for Claim<'_, M> {
    fn drop(&mut self) {
        self.record.release(1 << self.entry);
    }
}

impl<M: Medium> Claim<'_, M> {
    fn publish(self) {
        std::mem::forget(self);
    }
}

/// Where a write goes.
enum Place {
    /// To this leaf, as it is at this version.
    Leaf(u32, u64),
    /// Nowhere: its condition does not hold. That is durable at this LSN.
    Fails(Lsn),
}

/// What a write does to a leaf.
enum Plan {
    /// The key belongs to this one, the next.
    Beyond(u32),
    /// Its condition does not hold. That is durable at this LSN.
    Fails { sequence: u64, lsn: Lsn },
    /// It lists the claimed entry, instead of `old` if the key is there.
    Publish {
        sequence: u64,
        live: u64,
        old: Option<(usize, EntryWords)>,
        slots: Slots,
        new: Slots,
    },
}

impl Plan {
    /// Whether it can be carried out unchanged. The caller holds the leaf's lock.
    #[inline(always)]
    fn holds_in<M: Medium>(&self, record: &LeafRecord<M>) -> bool {
        matches!(self, Self::Publish { sequence, .. } if record.is_still_in(*sequence))
    }
}

/// How an attempt ended.
enum Attempt {
    /// The operation is done: whether its condition held, and what to wait for.
    Done(bool, Lsn),
    /// Go on in this leaf.
    At(u32),
}

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// Sets the value of `key` if `condition` holds. Two persists; none if a condition fails at
    /// first sight.
    #[inline]
    pub(super) fn store(
        &self,
        key: C::Key<'_>,
        value: C::Value<'_>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<bool> {
        match condition {
            Condition::Always if !C::TIES => self.store_as::<Put>(key, value, Condition::Always),
            Condition::Present if !C::TIES => {
                self.store_as::<Update>(key, value, Condition::Present)
            }
            other => self.store_as::<Insert>(key, value, other),
        }
    }

    /// As [`RnTree::store`], compiled for each purpose. While a persist is under way the processor
    /// goes on only until some sixty stores are waiting, including those to the stack: so this
    /// function stores as little as it can.
    #[inline(never)]
    fn store_as<P: Purpose>(
        &self,
        key: C::Key<'_>,
        value: C::Value<'_>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<bool> {
        // No pin if there are no records to retire: the pin's fence would keep the processor from
        // overlapping the cache misses of this operation with the last persist of the one before.
        // The claim keeps the leaf from being retired.
        let guard = if C::TIES {
            self.pool.pin()
        } else {
            self.pool.peek()
        };
        let heap = self.inner.heap();
        let hash = C::hash(key);
        let mut encoded = Encoded::<M, C>::new(&guard, key, value, condition);
        let mut next = None;
        loop {
            let (index, version) =
                match self.place_for::<P>(&guard, &heap, next.take(), (key, hash), condition)? {
                    Place::Leaf(index, version) => (index, version),
                    Place::Fails(lsn) => {
                        guard.wait_for(lsn)?;
                        return Ok(false);
                    }
                };
            let record = self.leaves.get(index);
            let Some(entry) = record.claim(self.capacity) else {
                // Makes room only if the condition still holds.
                if let Some(lsn) = self.fails_after_all::<P>(&guard, (key, hash), condition)? {
                    guard.wait_for(lsn)?;
                    return Ok(false);
                }
                next = self.make_room(index, version, key)?.filter(|_| C::TIES);
                continue;
            };
            let claim = Claim {
                record,
                index,
                entry,
            };
            if !record.is_still(version) {
                continue;
            }
            let leaf = Self::leaf(&guard, record)?;
            let words = encoded.words()?;
            write_entry(&guard, &leaf.entries[entry], words);
            let plan = |locked| {
                self.plan(
                    &guard,
                    &heap,
                    (index, entry),
                    (key, hash),
                    words,
                    condition,
                    locked,
                )
            };
            // Meanwhile the entry is being written back. Errors are ignored: writers may cause
            // them, and the plan is then made again under the lock.
            let early = plan(false).ok().flatten();
            if let Some(Plan::Fails { sequence, lsn }) = early
                && record.is_still_in(sequence)
            {
                guard.wait_for(lsn)?;
                return Ok(false);
            }
            // PERSIST: record and entry before the slot line that lists the entry; lost, the key is
            // as it was.
            guard.fence();
            let attempt = self.publish_entry(&guard, claim, hash, words, early, plan)?;
            match attempt {
                Attempt::Done(held, lsn) => {
                    if held {
                        encoded.published();
                    }
                    guard.wait_for(lsn)?;
                    return Ok(held);
                }
                // Without a pin that leaf may have been retired.
                Attempt::At(index) => next = Some(index).filter(|_| C::TIES),
            }
        }
    }

    /// Checks again a condition that held at first sight. If it does not hold, returns the LSN by
    /// which that is durable.
    #[cold]
    fn fails_after_all<P: Purpose>(
        &self,
        guard: &Guard<'_, M>,
        (key, hash): (C::Key<'_>, u16),
        condition: Condition<C::Value<'_>>,
    ) -> Result<Option<Lsn>> {
        if P::CONFIRMS || C::TIES {
            return Ok(None);
        }
        let peeked = self.peek::<Insert>(guard, key, hash)?;
        Ok(if holds::<M, C>(guard, condition, peeked.words)? {
            None
        } else {
            Some(peeked.lsn)
        })
    }

    /// The leaf to write to, from `from` on if that is known, unless the condition fails at first
    /// sight: then nothing is allocated, and the caller waits until what was read is durable.
    #[inline(always)]
    fn place_for<P: Purpose>(
        &self,
        guard: &Guard<'_, M>,
        heap: &HeapGuard<'_>,
        from: Option<u32>,
        (key, hash): (C::Key<'_>, u16),
        condition: Condition<C::Value<'_>>,
    ) -> Result<Place> {
        if !C::TIES {
            let peeked = self.peek::<P>(guard, key, hash)?;
            let holds = match condition {
                Condition::Present if !P::CONFIRMS => peeked.candidates != 0,
                _ => holds::<M, C>(guard, condition, peeked.words)?,
            };
            return Ok(if holds {
                Place::Leaf(peeked.index, peeked.version)
            } else {
                Place::Fails(peeked.lsn)
            });
        }
        let mut index = match from {
            Some(index) => index,
            None => self.descend(guard, key)?,
        };
        loop {
            let record = self.leaves.get(index);
            let version = record.version();
            if LeafRecord::<M>::is_dead(version) {
                LeafRecord::<M>::wait();
                index = self.descend(guard, key)?;
                continue;
            }
            Self::prefetch_for::<P>(guard, record, Self::leaf(guard, record)?, key);
            if matches!(condition, Condition::Always | Condition::Written(_)) {
                let beyond = Self::beyond(heap, record, key);
                // A merge changes high key and next leaf; with one of each it would lead too far.
                if !record.is_still(version) {
                    continue;
                }
                // Goes on by the chain: if the parent does not know the next leaf, a new descent
                // would lead here again.
                match beyond? {
                    // ORDER: as in `peek`.
                    Some(_) if record.sequence().is_none() => LeafRecord::<M>::wait(),
                    Some(next) => index = next,
                    None => return Ok(Place::Leaf(index, version)),
                }
                continue;
            }
            let seen = match self.look(guard, heap, record, key, hash)? {
                Seen::Beyond(next) => {
                    index = next;
                    continue;
                }
                Seen::Dead => continue,
                Seen::Entry(_, words) => Some(words),
                Seen::Absent => None,
            };
            let holds = holds::<M, C>(guard, condition, seen)?;
            return Ok(if holds {
                Place::Leaf(index, version)
            } else {
                Place::Fails(record.lsn())
            });
        }
    }

    /// Prefetches the leaf's page; for a write also the entry that it will probably claim, and the
    /// entries that it compares with the key.
    #[inline(always)]
    pub(super) fn prefetch_for<P: Purpose>(
        guard: &Guard<'_, M>,
        record: &LeafRecord<M>,
        leaf: &Leaf,
        key: C::Key<'_>,
    ) {
        if !P::CLAIMS {
            return kernels::prefetch_read(&leaf.slots);
        }
        record.prefetch_for_write();
        leaf.slots.prefetch(guard);
        let free = (!record.claimed.load(Ordering::Relaxed)).trailing_zeros() as usize;
        kernels::prefetch_write(&leaf.entries[free.min(ENTRIES_MAX - 1)]);
        if P::RANKS {
            let (_, tied) = record.compare_orders(C::word(key));
            let tied = tied & record.live.load(Ordering::Relaxed);
            kernels::prefetch_read(
                &leaf.entries[(tied.trailing_zeros() as usize).min(ENTRIES_MAX - 1)],
            );
        }
    }

    /// Plans what a write does to a leaf. Without the lock the plan holds only as long as the leaf
    /// has the sequence in it; `None` if planning needs the lock, or the leaf is changing.
    #[expect(
        clippy::too_many_arguments,
        reason = "one step of `store`, which does it twice"
    )]
    #[inline(always)]
    fn plan(
        &self,
        guard: &Guard<'_, M>,
        heap: &HeapGuard<'_>,
        (index, entry): (u32, usize),
        (key, hash): (C::Key<'_>, u16),
        words: EntryWords,
        condition: Condition<C::Value<'_>>,
        locked: bool,
    ) -> Result<Option<Plan>> {
        let record = self.leaves.get(index);
        let Some(sequence) = record.sequence() else {
            return Ok(None);
        };
        if let Some(next) = Self::beyond(heap, record, key)? {
            return Ok(Some(Plan::Beyond(next)));
        }
        // ORDER: as in `look`.
        let live = record.live.load(Ordering::Acquire);
        let old = self.look_among(guard, record, record.matches(hash as u8) & live, key, hash)?;
        if !holds::<M, C>(guard, condition, old.map(|(_, words)| words))? {
            return Ok(Some(Plan::Fails {
                sequence,
                lsn: record.lsn(),
            }));
        }
        let slots = record.slots();
        let new = match old {
            Some((old, _)) => match slots.position_of(old) {
                Some(position) => slots.replaced(position, entry as u8),
                None => return Err(self.damaged(index, "a live entry without a slot")),
            },
            None => {
                let leaf = Self::leaf(guard, record)?;
                match self.rank(guard, (record, leaf), &slots, live, key, locked)? {
                    // Without the lock the count may be anything.
                    Some(position)
                        if position <= slots.count() && slots.count() < self.capacity =>
                    {
                        slots.inserted(position, entry as u8)
                    }
                    _ if locked => return Err(self.damaged(index, "slots that miss live entries")),
                    _ => return Ok(None),
                }
            }
        };
        let change = EntrySum::default().with(entry, words);
        let new = new.sealed(
            &slots,
            old.map_or(change, |(old, words)| change.with(old, words)),
        );
        Ok(Some(Plan::Publish {
            sequence,
            live,
            old,
            slots,
            new,
        }))
    }

    /// Lists a written entry in the slot line, under the leaf's lock: by the plan `early` if the
    /// leaf has not changed since, otherwise by a new `plan`.
    #[inline(always)]
    fn publish_entry(
        &self,
        guard: &Guard<'_, M>,
        claim: Claim<'_, M>,
        hash: u16,
        words: EntryWords,
        early: Option<Plan>,
        plan: impl Fn(bool) -> Result<Option<Plan>>,
    ) -> Result<Attempt> {
        let record = claim.record;
        let lock = record.lock();
        // The claim keeps the leaf from being merged away (`LeafRecord::close`), but not from being
        // split. After a split the entry may be in the wrong leaf: then the plan is `Beyond`.
        let plan = match early {
            Some(early) if early.holds_in(record) => Some(early),
            _ => plan(true)?,
        };
        let (live, old, slots, new) = match plan {
            Some(Plan::Publish {
                live,
                old,
                slots,
                new,
                ..
            }) => (live, old, slots, new),
            Some(Plan::Fails { lsn, .. }) => return Ok(Attempt::Done(false, lsn)),
            Some(Plan::Beyond(next)) => return Ok(Attempt::At(next)),
            // Under the lock there is always a plan; without one, try again.
            None => return Ok(Attempt::At(claim.index)),
        };
        let leaf = Self::leaf(guard, record)?;
        // PERSIST: the entry is ordered before; lost, the leaf is as it was.
        let stored = Slots(leaf.slots.publish(guard, &slots.0, &new.0)?);
        let (added, removed) = (1 << claim.entry, old.map_or(0, |(entry, _)| 1 << entry));
        // Before the fence, as only lock holders read these, or readers that find the entry's bit
        // in `live`.
        record.set_fingerprint(claim.entry, hash as u8);
        record.set_order(claim.entry, words[0]);
        record.dead.store(
            record.dead.load(Ordering::Relaxed) | removed,
            Ordering::Relaxed,
        );
        let lsn = guard.fence();
        record.stamp(lsn);
        record.change(&stored, || {
            // ORDER: pairs with the acquire in `look`: entry and fingerprint are visible with the
            // bit.
            record
                .live
                .store((live | added) & !removed, Ordering::Release);
        });
        claim.publish();
        drop(lock);
        if let Some((_, words)) = old {
            C::retire(guard, words);
        }
        Ok(Attempt::Done(true, lsn))
    }

    /// How many of a leaf's keys are below `key`, which is not among them. `None` if ranking needs
    /// the lock, and it is not held.
    fn rank(
        &self,
        guard: &Guard<'_, M>,
        (record, leaf): (&LeafRecord<M>, &Leaf),
        slots: &Slots,
        live: u64,
        key: C::Key<'_>,
        locked: bool,
    ) -> Result<Option<usize>> {
        let word = C::word(key);
        let (mut below, tied) = record.compare_orders(word);
        let (mut tied, mut equal) = (tied & live, 0);
        if tied.count_ones() > TIES_MAX {
            if !locked {
                return Ok(None);
            }
            (below, equal) = guard
                .medium()
                .compare_entries(Word::pairs(&leaf.entries), word);
            self.rescale(guard, (record, leaf), live, word);
            tied = 0;
        }
        for entry in bits(tied) {
            let other = leaf.entries[entry.min(ENTRIES_MAX - 1)][0].load(guard);
            below |= u64::from(other < word) << entry;
            equal |= u64::from(other == word) << entry;
        }
        let mut low = (below & live).count_ones() as usize;
        if C::TIES {
            // Entries that tie are neighbours in the slot array.
            let mut high = low + (equal & live).count_ones() as usize;
            while low < high {
                let middle = usize::midpoint(low, high);
                let cells = &leaf.entries[slots.entry(middle).min(ENTRIES_MAX - 1)];
                let words = [cells[0].load(guard), cells[1].load(guard)];
                if C::compare_tie(guard, key, words)? == Compare::Greater {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
        }
        Ok(Some(low))
    }
}

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// Fits the scale of the order bytes to the live keys and to the new `key`. If that lies at an
    /// end of the leaf, leaves room for more keys there. Under the leaf's lock.
    #[cold]
    fn rescale(
        &self,
        guard: &Guard<'_, M>,
        (record, leaf): (&LeafRecord<M>, &Leaf),
        live: u64,
        key: u64,
    ) {
        let keys = || {
            let entries = (0..ENTRIES_MAX).filter(|entry| live & 1 << entry != 0);
            entries.map(|entry| (entry, leaf.entries[entry][0].load(guard)))
        };
        let (low, high) = keys().fold((u64::MAX, 0), |(low, high), (_, key)| {
            (key.min(low), key.max(high))
        });
        let room = high.saturating_sub(low);
        let low = if key < low {
            key.saturating_sub(room)
        } else {
            low
        };
        let high = if key > high {
            key.saturating_add(room)
        } else {
            high
        };
        record.rescale(Scale::covering(low, high), keys());
        // A writer that ranked a key meanwhile ranks it again.
        record.change(&record.slots(), || {});
    }
}

/// Writes and flushes an entry that is not published; the caller fences.
#[inline(always)]
pub(super) fn write_entry<M: Medium>(guard: &Guard<'_, M>, cells: &[Word; 2], words: EntryWords) {
    cells[0].store(guard, words[0]);
    cells[1].store(guard, words[1]);
    guard.flush(cells);
}
