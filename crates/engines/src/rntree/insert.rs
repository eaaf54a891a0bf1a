//! Writes that leave the key present: insert, update, put.
//!
//! A write goes through these steps; an attempt that finds a split, a merge or a full leaf starts
//! again.
//!
//! 1. *Find the leaf.* If the condition fails at first sight, the write ends, and nothing was
//!    allocated.
//! 2. *Claim* a free entry of the leaf by compare-and-swap.
//! 3. *Write* the record and the entry, and flush them. No lock is held.
//! 4. *Plan* the new slot line while the entry is being written back.
//! 5. *Fence*: record and entry are ordered before the slot line.
//! 6. *Lock* the leaf. If it has changed since step 4, plan again.
//! 7. *Publish* the new slot line: the commit point. Fence, update the leaf's volatile record,
//!    unlock.
//!
//! The write returns the LSN of step 7. Its caller waits for that before it acknowledges the write.

use std::cmp::Ordering as Compare;

use medium::sync::Ordering;
use medium::{Lsn, Medium, Word, kernels};
use pool::Guard;

use super::find::{LeafFinding, Purpose};
use super::layout::{EntrySum, Leaf, LeafRecord, Slots};
use super::order::{KeyDigits, Scale};
use super::{ENTRIES_MAX, RnTree};
use crate::Result;
use crate::index::{Codec, Condition, EntryWords, Written};
use crate::kit::bits;
use crate::kit::chain::HeapGuard;
use crate::kit::write::{Encoded, holds};

/// With more ties of order bytes than this, all entries are compared: each tie may be a cache miss.
const TIES_MAX: u32 = 4;

/// The digits of a leaf are chosen anew when they have failed this many times to part a new key from
/// more than [`TIES_MAX`] others. Choosing them reads all records of the leaf, and does not help keys
/// that crowd together whatever the digits are.
const FAILURES_MIN: u8 = 4;

/// A leaf gets no digits for the sake of a key longer than this: all its keys are copied.
const DIGITS_KEY_BYTES_MAX: usize = 1 << 10;

/// Adds a key: the write must know whether the key is present.
struct Insert;

impl Purpose for Insert {
    const CONFIRMS: bool = true;
    const CLAIMS: bool = true;
    const RANKS: bool = true;
}

/// Sets the value of a key, present or not.
struct Put;

impl Purpose for Put {
    const CONFIRMS: bool = false;
    const CLAIMS: bool = true;
    const RANKS: bool = true;
}

/// Sets the value of a key that is present. A matching fingerprint nearly always means that the key
/// is present; if it is not, the plan of step 4 notices.
struct Update;

impl Purpose for Update {
    const CONFIRMS: bool = false;
    const CLAIMS: bool = true;
    const RANKS: bool = false;
}

/// The arguments of a write, for all of its steps.
struct Request<'r, 'k, M: Medium, C: Codec> {
    guard: &'r Guard<'r, M>,
    heap: &'r HeapGuard<'r>,
    key: C::Key<'k>,
    hash: u16,
    condition: Condition<C::Value<'k>>,
}

impl<M: Medium, C: Codec> Request<'_, '_, M, C> {
    #[inline(always)]
    fn condition_holds(&self, found: Option<EntryWords>) -> Result<bool> {
        holds::<M, C>(self.guard, self.condition, found)
    }
}

/// A claimed entry of a leaf, given back unless it is published.
struct Claim<'l, M: Medium> {
    index: u32,
    leaf_record: &'l LeafRecord<M>,
    entry: usize,
}

impl<M: Medium> Claim<'_, M> {
    /// Keeps the entry claimed, because the slot line lists it now.
    fn published(self) {
        std::mem::forget(self);
    }
}

impl<M: Medium> Drop for Claim<'_, M> {
    fn drop(&mut self) {
        self.leaf_record.release(1 << self.entry);
    }
}

/// The result of step 1.
enum Destination {
    /// The leaf that covers the key, as of this version.
    Leaf { index: u32, version: u64 },
    /// The condition fails; the state that it rests on is durable at this LSN.
    ConditionFails { lsn: Lsn },
}

/// The result of planning, valid as long as the leaf has the same sequence.
enum WritePlan {
    /// The key belongs to this leaf, the next one.
    NextLeaf(u32),
    /// The condition fails; the state that it rests on is durable at this LSN.
    ConditionFails { sequence: u64, lsn: Lsn },
    /// Publish a new slot line.
    Publish(LeafChange),
}

/// A change of one leaf, not published yet.
struct LeafChange {
    /// The sequence of the leaf that the change was planned on.
    sequence: u64,
    /// The leaf's live entries before the change.
    live: u64,
    /// The entry that the key has had so far, and its words.
    replaced: Option<(usize, EntryWords)>,
    before: Slots,
    after: Slots,
}

/// Whether the planner holds the leaf's lock, or reads the leaf beside writers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Planning {
    Locked,
    Optimistic,
}

/// How one attempt of a write ended.
enum Attempt {
    Done(Written),
    /// The write starts again, in this leaf if it is known.
    Retry {
        leaf: Option<u32>,
    },
}

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// Sets the value of `key` if `condition` holds. Two persists; none if the condition fails at
    /// first sight.
    #[inline]
    pub(super) fn store<'k>(
        &self,
        key: C::Key<'k>,
        value: C::Value<'k>,
        condition: Condition<C::Value<'k>>,
    ) -> Result<Written> {
        match condition {
            Condition::Always if !C::TIES => self.store_as::<Put>(key, value, condition),
            Condition::Present if !C::TIES => self.store_as::<Update>(key, value, condition),
            _ => self.store_as::<Insert>(key, value, condition),
        }
    }

    /// [`RnTree::store`], compiled for each purpose.
    ///
    /// While a persist is under way the processor goes on only until some sixty stores are waiting,
    /// those to the stack included. So the steps are inlined, and this function makes as few stores
    /// as it can.
    #[inline(never)]
    fn store_as<'k, P: Purpose>(
        &self,
        key: C::Key<'k>,
        value: C::Value<'k>,
        condition: Condition<C::Value<'k>>,
    ) -> Result<Written> {
        // Without records to retire there is no pin: its fence would keep the processor from
        // overlapping the cache misses of this write with the last persist of the one before. The
        // claim keeps the leaf from being retired.
        let guard = if C::TIES {
            self.pool.pin()
        } else {
            self.pool.peek()
        };
        let heap = self.inner.heap();
        let hash = C::hash(key);
        let request = Request::<M, C> {
            guard: &guard,
            heap: &heap,
            key,
            hash,
            condition,
        };
        let mut encoded = Encoded::<M, C>::new(&guard, key, value, condition);
        let mut from = None;
        let written = loop {
            match self.attempt::<P>(&request, &mut encoded, from)? {
                Attempt::Done(written) => break written,
                // Without a pin the leaf may have been retired meanwhile: descend again.
                Attempt::Retry { leaf } => from = if C::TIES { leaf } else { None },
            }
        };
        let lsn = guard.left_to_caller(written.lsn);
        Ok(Written { lsn, ..written })
    }

    /// One attempt: the steps of the module's documentation.
    #[inline(always)]
    fn attempt<P: Purpose>(
        &self,
        request: &Request<'_, '_, M, C>,
        encoded: &mut Encoded<'_, '_, '_, '_, M, C>,
        from: Option<u32>,
    ) -> Result<Attempt> {
        let guard = request.guard;
        let (index, version) = match self.find_leaf::<P>(request, from)? {
            Destination::Leaf { index, version } => (index, version),
            Destination::ConditionFails { lsn } => return Ok(Attempt::Done(Written::refused(lsn))),
        };

        let leaf_record = self.leaves.get(index);
        let Some(entry) = leaf_record.claim(self.capacity) else {
            return self.make_room_for::<P>(request, index, version);
        };
        let claim = Claim {
            index,
            leaf_record,
            entry,
        };
        if !leaf_record.is_still(version) {
            return Ok(Attempt::Retry { leaf: None });
        }

        let leaf = Self::leaf(guard, leaf_record)?;
        let words = encoded.words()?;
        write_entry(guard, &leaf.entries[entry], words);

        // Errors are ignored here, because another writer may cause them. Under the lock the plan
        // is made again.
        let early = self
            .plan(request, &claim, words, Planning::Optimistic)
            .unwrap_or(None);
        if let Some(WritePlan::ConditionFails { sequence, lsn }) = early
            && leaf_record.is_still_in(sequence)
        {
            return Ok(Attempt::Done(Written::refused(lsn)));
        }

        // PERSIST: record and entry are ordered before the slot line that lists the entry; if this
        // is lost, the key is as it was.
        guard.fence();

        let attempt = self.publish_entry(request, claim, words, early)?;
        if let Attempt::Done(Written { held: true, .. }) = attempt {
            encoded.published();
        }
        Ok(attempt)
    }

    /// Splits or merges a full leaf, if the condition still holds.
    #[cold]
    fn make_room_for<P: Purpose>(
        &self,
        request: &Request<'_, '_, M, C>,
        index: u32,
        version: u64,
    ) -> Result<Attempt> {
        let leaf_record = self.leaves.get(index);
        if let Condition::Moved { .. } = request.condition
            && leaf_record.dead.load(Ordering::Relaxed) == 0
        {
            // The record stays, because a split would take more space than the move gives back.
            return Ok(Attempt::Done(Written::refused(leaf_record.lsn())));
        }
        // The fingerprint may have matched by chance, and then the leaf need not be split.
        if !P::CONFIRMS && !C::TIES {
            let peeked = self.peek::<Insert>(request.guard, request.key, request.hash)?;
            if !request.condition_holds(peeked.words)? {
                return Ok(Attempt::Done(Written::refused(peeked.lsn)));
            }
        }
        let leaf = self.make_room(index, version, request.key)?;
        Ok(Attempt::Retry { leaf })
    }

    /// The leaf to write to, searched from the leaf `from` on if that is known.
    #[inline(always)]
    fn find_leaf<P: Purpose>(
        &self,
        request: &Request<'_, '_, M, C>,
        from: Option<u32>,
    ) -> Result<Destination> {
        if C::TIES {
            self.find_leaf_pinned::<P>(request, from)
        } else {
            self.find_leaf_unpinned::<P>(request)
        }
    }

    /// [`RnTree::find_leaf`] for codecs whose entries hold the whole key and value.
    #[inline(always)]
    fn find_leaf_unpinned<P: Purpose>(
        &self,
        request: &Request<'_, '_, M, C>,
    ) -> Result<Destination> {
        let peeked = self.peek::<P>(request.guard, request.key, request.hash)?;
        let holds = match request.condition {
            Condition::Present if !P::CONFIRMS => peeked.candidates != 0,
            _ => request.condition_holds(peeked.words)?,
        };
        if holds {
            Ok(Destination::Leaf {
                index: peeked.index,
                version: peeked.version,
            })
        } else {
            Ok(Destination::ConditionFails { lsn: peeked.lsn })
        }
    }

    /// [`RnTree::find_leaf`] for codecs with records, under a pin.
    #[inline(always)]
    fn find_leaf_pinned<P: Purpose>(
        &self,
        request: &Request<'_, '_, M, C>,
        from: Option<u32>,
    ) -> Result<Destination> {
        let Request {
            guard,
            heap,
            key,
            hash,
            condition,
        } = *request;
        let reads_no_entry = matches!(condition, Condition::Always | Condition::Written(_));
        let mut index = match from {
            Some(index) => index,
            None => self.descend(guard, key)?,
        };
        loop {
            let leaf_record = self.leaves.get(index);
            let version = leaf_record.version();
            if LeafRecord::<M>::is_dead(version) {
                LeafRecord::<M>::wait();
                index = self.descend(guard, key)?;
                continue;
            }
            let number = self.number_of(index, leaf_record, key);
            Self::prefetch_for::<P>(guard, leaf_record, Self::leaf(guard, leaf_record)?, number);

            if reads_no_entry {
                let next = Self::beyond(heap, leaf_record, key);
                // A merge changes both high key and next leaf; a mix of old and new would lead too
                // far.
                if !leaf_record.is_still(version) {
                    continue;
                }
                let Some(next) = next? else {
                    return Ok(Destination::Leaf { index, version });
                };
                // ORDER: as in `peek`: the end of the split's change must be seen before the next
                // leaf.
                if leaf_record.sequence().is_none() {
                    LeafRecord::<M>::wait();
                } else {
                    // The search follows the chain: if the parent does not know the next leaf yet,
                    // a descent would lead back to this leaf.
                    index = next;
                }
                continue;
            }

            let found = match self.look(guard, heap, leaf_record, key, hash)? {
                LeafFinding::Entry(_, words) => Some(words),
                LeafFinding::Absent => None,
                LeafFinding::Beyond(next) => {
                    index = next;
                    continue;
                }
                LeafFinding::Dead => continue,
            };
            if request.condition_holds(found)? {
                return Ok(Destination::Leaf { index, version });
            }
            return Ok(Destination::ConditionFails {
                lsn: leaf_record.lsn(),
            });
        }
    }

    /// Prefetches the leaf's page; for a write also the entry that it will probably claim, and one
    /// of those that it will compare with the key.
    #[inline(always)]
    pub(super) fn prefetch_for<P: Purpose>(
        guard: &Guard<'_, M>,
        leaf_record: &LeafRecord<M>,
        leaf: &Leaf,
        number: u64,
    ) {
        if !P::CLAIMS {
            kernels::prefetch_read(&leaf.slots);
            return;
        }
        leaf_record.prefetch_for_write();
        leaf.slots.prefetch(guard);
        let first_free = leaf_record.claimed.load(Ordering::Relaxed).trailing_ones() as usize;
        kernels::prefetch_write(&leaf.entries[first_free.min(ENTRIES_MAX - 1)]);
        if P::RANKS {
            let (_, tied) = leaf_record.compare_orders(number);
            let tied = tied & leaf_record.live.load(Ordering::Relaxed);
            let first_tied = tied.trailing_zeros() as usize;
            kernels::prefetch_read(&leaf.entries[first_tied.min(ENTRIES_MAX - 1)]);
        }
    }

    /// Plans the new slot line of the claimed entry's leaf. `None` if that needs the leaf's lock.
    #[inline(always)]
    fn plan(
        &self,
        request: &Request<'_, '_, M, C>,
        claim: &Claim<'_, M>,
        words: EntryWords,
        planning: Planning,
    ) -> Result<Option<WritePlan>> {
        let Request {
            guard,
            heap,
            key,
            hash,
            ..
        } = *request;
        let leaf_record = claim.leaf_record;
        let Some(sequence) = leaf_record.sequence() else {
            return Ok(None);
        };
        if let Some(next) = Self::beyond(heap, leaf_record, key)? {
            return Ok(Some(WritePlan::NextLeaf(next)));
        }

        // ORDER: as in `look`: the live entries and their fingerprints are visible.
        let live = leaf_record.live.load(Ordering::Acquire);
        let candidates = leaf_record.matches(hash as u8) & live;
        let replaced = self.look_among(guard, leaf_record, candidates, key, hash)?;
        let old_words = replaced.map(|(_, words)| words);
        if !request.condition_holds(old_words)? {
            return Ok(Some(WritePlan::ConditionFails {
                sequence,
                lsn: leaf_record.lsn(),
            }));
        }

        let before = leaf_record.slots();
        let after = match replaced {
            Some((old, _)) => {
                let Some(position) = before.position_of(old) else {
                    return Err(self.damaged(claim.index, "a live entry without a slot"));
                };
                before.replaced(position, claim.entry as u8)
            }
            None => {
                let leaf = Self::leaf(guard, leaf_record)?;
                let Some(position) =
                    self.rank(guard, claim.index, leaf, &before, live, key, planning)?
                else {
                    return Ok(None);
                };
                let count = before.count();
                if position > count || count >= self.capacity {
                    // Read beside writers, count and rank need not fit together.
                    return match planning {
                        Planning::Optimistic => Ok(None),
                        Planning::Locked => {
                            Err(self.damaged(claim.index, "slots that miss live entries"))
                        }
                    };
                }
                before.inserted(position, claim.entry as u8)
            }
        };

        let mut sum = EntrySum::default().with(claim.entry, words);
        if let Some((old, words)) = replaced {
            sum = sum.with(old, words);
        }
        let after = after.sealed(&before, sum);
        Ok(Some(WritePlan::Publish(LeafChange {
            sequence,
            live,
            replaced,
            before,
            after,
        })))
    }

    /// Steps 6 and 7: lists the claimed entry in the slot line.
    #[inline(always)]
    fn publish_entry(
        &self,
        request: &Request<'_, '_, M, C>,
        claim: Claim<'_, M>,
        words: EntryWords,
        early: Option<WritePlan>,
    ) -> Result<Attempt> {
        let guard = request.guard;
        let leaf_record = claim.leaf_record;
        let lock = leaf_record.lock();

        // The claim keeps the leaf from being merged away (`LeafRecord::close`), but not from being
        // split. After a split the entry may be in the wrong leaf: then the plan is `NextLeaf`.
        let plan = match early {
            Some(WritePlan::Publish(change)) if leaf_record.is_still_in(change.sequence) => {
                Some(WritePlan::Publish(change))
            }
            _ => self.plan(request, &claim, words, Planning::Locked)?,
        };
        let change = match plan {
            Some(WritePlan::Publish(change)) => change,
            Some(WritePlan::ConditionFails { lsn, .. }) => {
                return Ok(Attempt::Done(Written::refused(lsn)));
            }
            Some(WritePlan::NextLeaf(next)) => return Ok(Attempt::Retry { leaf: Some(next) }),
            None => {
                return Ok(Attempt::Retry {
                    leaf: Some(claim.index),
                });
            }
        };

        let leaf = Self::leaf(guard, leaf_record)?;
        // PERSIST: the entry is ordered before; if this is lost, the leaf is as it was.
        let stored = Slots(
            leaf.slots
                .publish(guard, &change.before.0, &change.after.0)?,
        );

        let added = 1 << claim.entry;
        let removed = match change.replaced {
            Some((old, _)) => 1 << old,
            None => 0,
        };
        // These are set before the fence: only lock holders read them, or readers that find the
        // entry's bit in `live`.
        leaf_record.set_fingerprint(claim.entry, request.hash as u8);
        let number = self.number_of(claim.index, leaf_record, request.key);
        leaf_record.set_order(claim.entry, number);
        leaf_record.dead.store(
            leaf_record.dead.load(Ordering::Relaxed) | removed,
            Ordering::Relaxed,
        );

        let lsn = guard.fence();
        leaf_record.stamp(lsn);
        leaf_record.change(&stored, || {
            // ORDER: pairs with the acquire in `look`: entry and fingerprint are visible with the
            // bit.
            leaf_record
                .live
                .store((change.live | added) & !removed, Ordering::Release);
        });
        claim.published();
        drop(lock);

        if let Some((_, old_words)) = change.replaced {
            C::retire(guard, old_words);
        }
        Ok(Attempt::Done(Written::done(lsn)))
    }

    /// The number of the leaf's keys that are below `key`, which is not among them. `None` if that
    /// needs the leaf's lock.
    #[expect(
        clippy::too_many_arguments,
        reason = "passed in registers: see `store_as`"
    )]
    fn rank(
        &self,
        guard: &Guard<'_, M>,
        index: u32,
        leaf: &Leaf,
        slots: &Slots,
        live: u64,
        key: C::Key<'_>,
        planning: Planning,
    ) -> Result<Option<usize>> {
        let leaf_record = self.leaves.get(index);
        let word = C::word(key);
        let number = self.number_of(index, leaf_record, key);
        let (mut below, tied) = leaf_record.compare_orders(number);
        let mut equal = 0;
        let tied = tied & live;
        if tied.count_ones() <= TIES_MAX {
            for entry in bits(tied) {
                let other = leaf.entries[entry.min(ENTRIES_MAX - 1)][0].load(guard);
                below |= u64::from(other < word) << entry;
                equal |= u64::from(other == word) << entry;
            }
        } else {
            if planning == Planning::Optimistic {
                return Ok(None);
            }
            (below, equal) = guard
                .medium()
                .compare_entries(Word::pairs(&leaf.entries), word);
            let do_words_tie = (equal & live).count_ones() > TIES_MAX;
            if C::TIES && (do_words_tie || leaf_record.scale().is_of_digits()) {
                self.rescale_by_digits(guard, index, leaf, live, key);
            } else {
                self.rescale(guard, leaf_record, leaf, live, word);
            }
        }

        let lowest = (below & live).count_ones() as usize;
        if !C::TIES {
            return Ok(Some(lowest));
        }
        // Entries with the same first word are neighbours in the slot array: their records decide.
        let mut low = lowest;
        let mut high = lowest + (equal & live).count_ones() as usize;
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
        Ok(Some(low))
    }

    /// Fits the scale of the order bytes to the live keys and to the new `key`. If the new key lies
    /// at an end of the leaf, the scale leaves room for more keys there. The caller holds the
    /// leaf's lock.
    #[cold]
    fn rescale(
        &self,
        guard: &Guard<'_, M>,
        leaf_record: &LeafRecord<M>,
        leaf: &Leaf,
        live: u64,
        key: u64,
    ) {
        let mut words = Vec::with_capacity(ENTRIES_MAX);
        for (entry, cells) in leaf.entries.iter().enumerate() {
            if live & 1 << entry != 0 {
                words.push((entry, cells[0].load(guard)));
            }
        }
        leaf_record.rescale(scale_for(&words, key), words);
        // A writer that ranked a key meanwhile ranks it again.
        leaf_record.change(&leaf_record.slots(), || {});
    }

    /// Does the same as [`RnTree::rescale`] for a leaf whose first words tie: reads the keys of all
    /// live entries. Changes nothing the first times that the present digits do not part a new key
    /// from others, if a record is damaged, if the new key is long, or if the arena has no memory.
    #[cold]
    fn rescale_by_digits(
        &self,
        guard: &Guard<'_, M>,
        index: u32,
        leaf: &Leaf,
        live: u64,
        key: C::Key<'_>,
    ) {
        let leaf_record = self.leaves.get(index);
        let new_key = C::tie_bytes(key);
        if new_key.len() > DIGITS_KEY_BYTES_MAX || self.digits.reach(index).is_err() {
            return;
        }
        let leaf_digits = self.digits.get(index);
        if leaf_record.scale().is_of_digits() && leaf_digits.count_failure() < FAILURES_MIN {
            return;
        }
        let mut live_entries = Vec::with_capacity(ENTRIES_MAX);
        for (entry, cells) in leaf.entries.iter().enumerate() {
            if live & 1 << entry != 0 {
                let words = [cells[0].load(guard), cells[1].load(guard)];
                C::prefetch(guard, words);
                live_entries.push((entry, words));
            }
        }
        let mut keys = Vec::with_capacity(live_entries.len() + 1);
        for (_, words) in &live_entries {
            // An order byte that rests on a damaged key would misplace sound keys.
            match Self::sound_key(guard, *words) {
                Some(key) => keys.push(key),
                None => return,
            }
        }
        keys.push(new_key.to_vec());
        let digits = KeyDigits::of(&keys);
        let mut numbers = Vec::with_capacity(live_entries.len());
        for ((entry, _), key) in live_entries.iter().zip(&keys) {
            numbers.push((*entry, digits.number(key)));
        }
        let scale = scale_for(&numbers, digits.number(new_key));
        leaf_digits.store(&digits);
        leaf_record.rescale(scale.of_digits(), numbers);
        // A writer that ranked a key meanwhile ranks it again.
        leaf_record.change(&leaf_record.slots(), || {});
    }

    /// The key of an entry; `None` if it cannot be read, in a pool that verifies reads also if the
    /// record fails its check or has another key than the entry says.
    fn sound_key(guard: &Guard<'_, M>, words: EntryWords) -> Option<Vec<u8>> {
        C::expect_key(guard, words).ok()?;
        let mut bytes = Vec::new();
        C::copy_key(guard, words, &mut bytes).ok()?;
        let key = C::key(&bytes).ok()?;
        let is_its_key = C::word(key) == words[0] && C::hash(key) == C::hash_of(words);
        if guard.verifies() && !is_its_key {
            return None;
        }
        Some(bytes)
    }
}

/// The scale for a leaf whose keys have these numbers, with their entries, and for a new key. If the
/// new key lies at an end of the leaf, the scale leaves room for more keys there.
fn scale_for(numbers: &[(usize, u64)], new: u64) -> Scale {
    let live = || numbers.iter().map(|(_, number)| *number);
    let mut low = live().min().unwrap_or(u64::MAX);
    let mut high = live().max().unwrap_or(0);
    let margin = high.saturating_sub(low);
    if new < low {
        low = new.saturating_sub(margin);
    }
    if new > high {
        high = new.saturating_add(margin);
    }
    Scale::covering(low, high)
}

/// Writes and flushes an entry that is not published; the caller fences.
#[inline(always)]
pub(super) fn write_entry<M: Medium>(guard: &Guard<'_, M>, cells: &[Word; 2], words: EntryWords) {
    cells[0].store(guard, words[0]);
    cells[1].store(guard, words[1]);
    guard.flush(cells);
}
