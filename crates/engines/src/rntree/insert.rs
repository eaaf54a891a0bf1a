//! Writes that leave the key present: insert, update, put.
//!
//! Record and entry are written and flushed outside of the leaf's lock, into an entry that was claimed by
//! compare-and-swap; under the lock only the slot line changes.

use medium::sync::Ordering;
use medium::{Lsn, Medium, Word, kernels};
use pool::{Guard, Result};
use std::cmp::Ordering as Compare;

use super::RnTree;
use super::find::Seen;
use super::layout::{Leaf, LeafRecord, Slots};
use crate::index::{Codec, Condition, EntryWords};
use crate::inner::HeapGuard;

/// A claimed entry, given back unless it is published.
struct Claim<'l, M: Medium> {
    record: &'l LeafRecord<M>,
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

/// What was written outside of the leaf for an operation, given back unless it is published.
struct Encoded<'g, 'p, M: Medium, C: Codec> {
    guard: &'g Guard<'p, M>,
    words: EntryWords,
    published: bool,
    codec: std::marker::PhantomData<C>,
}

impl<M: Medium, C: Codec> Drop for Encoded<'_, '_, M, C> {
    fn drop(&mut self) {
        if !self.published {
            C::discard(self.guard, self.words);
        }
    }
}

/// How an attempt ended.
enum Attempt {
    /// The operation is done: whether its condition held, and what to wait for.
    Done(bool, Lsn),
    /// Go on in this leaf.
    At(u32),
}

impl<M: Medium, C: Codec, const N: usize> RnTree<M, C, N> {
    /// Sets the value of `key` if `condition` holds. Two persists; none if a condition fails at first sight.
    pub(super) fn store(
        &self,
        key: C::Key<'_>,
        value: C::Value<'_>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<bool> {
        let hash = C::hash(key);
        let ranks = !matches!(condition, Condition::Present | Condition::Equals(_));
        let mut foreseen = None;
        if !C::TIES {
            // The misses of this look overlap with the persist of the operation before; a pin would wait for that.
            let guard = self.pool.peek();
            let peeked = self.peek(&guard, key, hash, |record, leaf| {
                Self::prefetch_for_write(&guard, record, leaf, ranks);
            })?;
            if !Self::holds(&guard, condition, peeked.words)? {
                return guard.wait_for(peeked.lsn).map(|()| false);
            }
            foreseen = Some(peeked);
        }
        let guard = self.pool.pin();
        let heap = self.inner.heap();
        let mut encoded: Option<Encoded<'_, '_, M, C>> = None;
        // A leaf that is now what it was then cannot be retired any more before this thread is done.
        foreseen = foreseen.filter(|peeked| self.leaves.get(peeked.index).is_still(peeked.version));
        let mut index = match &foreseen {
            Some(peeked) => peeked.index,
            None => self.inner.descend(key)?,
        };
        loop {
            let record = self.leaves.get(index);
            if foreseen.take().is_none() {
                Self::prefetch_for_write(&guard, record, Self::leaf(&guard, record)?, ranks);
                match self.foresee(&guard, &heap, record, key, hash, condition)? {
                    Some(Attempt::Done(held, lsn)) => return guard.wait_for(lsn).map(|()| held),
                    Some(Attempt::At(next)) => {
                        index = next;
                        continue;
                    }
                    None => {}
                }
            }
            let Some(entry) = record.claim(N) else {
                index = self.make_room(&guard, index, key)?;
                continue;
            };
            let claim = Claim { record, entry };
            let leaf = Self::leaf(&guard, record)?;
            if encoded.is_none() {
                let words = C::encode(&guard, key, value)?;
                let codec = std::marker::PhantomData;
                encoded = Some(Encoded { guard: &guard, words, published: false, codec });
            }
            let Some(encoded) = &mut encoded else { continue };
            write_entry(&guard, &leaf.entries[entry], encoded.words);
            // PERSIST: record and entry before the slot line that lists the entry; lost, nobody misses them.
            guard.fence();
            match self.publish_entry(&guard, &heap, index, claim, (key, hash), encoded, condition)? {
                Attempt::Done(held, lsn) => return guard.wait_for(lsn).map(|()| held),
                Attempt::At(next) => index = next,
            }
        }
    }

    /// Prefetches what a write will touch: the slot line, the entry that it will probably claim, and, if it has to rank
    /// the key, all entries.
    #[inline(always)]
    fn prefetch_for_write(guard: &Guard<'_, M>, record: &LeafRecord<M>, leaf: &Leaf<N>, ranks: bool) {
        leaf.slots.prefetch(guard);
        let free = (!record.claimed.load(Ordering::Relaxed)).trailing_zeros() as usize;
        kernels::prefetch_write(&leaf.entries[free.min(N - 1)]);
        if ranks {
            kernels::prefetch_lines(&leaf.entries);
        }
    }

    /// A condition that already fails allocates nothing; the answer waits until what it saw is durable.
    #[inline(always)]
    fn foresee(
        &self,
        guard: &Guard<'_, M>,
        heap: &HeapGuard<'_>,
        record: &LeafRecord<M>,
        key: C::Key<'_>,
        hash: u16,
        condition: Condition<C::Value<'_>>,
    ) -> Result<Option<Attempt>> {
        if matches!(condition, Condition::Always) {
            return Ok(None);
        }
        let seen = match self.look(guard, heap, record, key, hash)? {
            Seen::Beyond(next) => return Ok(Some(Attempt::At(next))),
            Seen::Dead => return Ok(Some(Attempt::At(self.inner.descend(key)?))),
            Seen::Entry(_, words) => Some(words),
            Seen::Absent => None,
        };
        let holds = Self::holds(guard, condition, seen)?;
        Ok((!holds).then(|| Attempt::Done(false, record.lsn())))
    }

    /// Whether `condition` holds for a key with this entry.
    pub(super) fn holds(
        guard: &Guard<'_, M>,
        condition: Condition<C::Value<'_>>,
        entry: Option<EntryWords>,
    ) -> Result<bool> {
        Ok(match (condition, entry) {
            (Condition::Always, _) => true,
            (Condition::Absent, entry) => entry.is_none(),
            (Condition::Present, entry) => entry.is_some(),
            (Condition::Equals(_), None) => false,
            (Condition::Equals(value), Some(words)) => C::has_value(guard, words, value)?,
        })
    }

    /// Lists a written entry in the slot line, under the leaf's lock.
    #[expect(clippy::too_many_arguments, reason = "one step of `store`, cut out for its length")]
    #[inline(always)]
    fn publish_entry(
        &self,
        guard: &Guard<'_, M>,
        heap: &HeapGuard<'_>,
        index: u32,
        claim: Claim<'_, M>,
        (key, hash): (C::Key<'_>, u16),
        encoded: &mut Encoded<'_, '_, M, C>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<Attempt> {
        let record = claim.record;
        let lock = record.lock();
        // Between claim and lock the leaf may have been split or merged away: then the entry is in the wrong leaf.
        if LeafRecord::<M>::is_dead(record.version()) {
            drop(lock);
            LeafRecord::<M>::wait_for_successor();
            return Ok(Attempt::At(self.inner.descend(key)?));
        }
        if let Some(next) = Self::beyond(heap, record, key)? {
            return Ok(Attempt::At(next));
        }
        let live = record.live.load(Ordering::Relaxed);
        let old = self.look_among(guard, record, live, key, hash)?;
        if !Self::holds(guard, condition, old.map(|(_, words)| words))? {
            return Ok(Attempt::Done(false, record.lsn()));
        }
        let leaf = Self::leaf(guard, record)?;
        let slots = record.slots();
        let new = match old {
            Some((entry, _)) => match slots.position_of(entry) {
                Some(position) => slots.replaced(position, claim.entry as u8),
                None => return Err(self.damaged(index, "a live entry without a slot")),
            },
            None => {
                let position = self.rank(guard, leaf, &slots, live, key)?;
                slots.inserted(position, claim.entry as u8)
            }
        };
        // PERSIST: the entry is ordered before; lost, the leaf is as it was.
        let stored = leaf.slots.publish(guard, &slots.0, &new.0)?;
        let lsn = guard.fence();
        record.stamp(lsn);
        record.set_fingerprint(claim.entry, hash as u8);
        let (added, removed) = (1 << claim.entry, old.map_or(0, |(entry, _)| 1 << entry));
        record.change(&Slots(stored), || {
            // ORDER: pairs with the acquire in `look`: entry and fingerprint are visible with the bit.
            record.live.store((live | added) & !removed, Ordering::Release);
        });
        record.dead.store(record.dead.load(Ordering::Relaxed) | removed, Ordering::Relaxed);
        claim.publish();
        encoded.published = true;
        drop(lock);
        if let Some((_, words)) = old {
            C::retire(guard, words);
        }
        Ok(Attempt::Done(true, lsn))
    }

    /// How many of a leaf's keys are below `key`, which is not among them.
    fn rank(
        &self,
        guard: &Guard<'_, M>,
        leaf: &Leaf<N>,
        slots: &Slots,
        live: u64,
        key: C::Key<'_>,
    ) -> Result<usize> {
        let (below, equal) = guard.medium().compare_entries(Word::pairs(&leaf.entries), C::word(key));
        let mut low = (below & live).count_ones() as usize;
        if C::TIES {
            // Entries that tie are neighbours in the slot array.
            let mut high = low + (equal & live).count_ones() as usize;
            while low < high {
                let middle = usize::midpoint(low, high);
                let cells = &leaf.entries[slots.entry(middle)];
                let words = [cells[0].load(guard), cells[1].load(guard)];
                if C::compare_tie(guard, key, words)? == Compare::Greater {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
        }
        Ok(low)
    }
}

/// Writes and flushes an entry that is not published; the caller fences.
#[inline(always)]
pub(super) fn write_entry<M: Medium>(guard: &Guard<'_, M>, cells: &[Word; 2], words: EntryWords) {
    cells[0].store(guard, words[0]);
    cells[1].store(guard, words[1]);
    guard.flush(cells);
}
