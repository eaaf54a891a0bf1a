//! Ranges: one consistent snapshot of a leaf after the other.
//!
//! A snapshot takes order, entries and next leaf at one moment. A key that is present for the whole
//! scan is in the leaf that covers it, whenever that is read. A split moves keys to the right,
//! where the scan has not been yet. A merge leaves the right leaf dead, and a scan that finds a
//! dead leaf descends again from its last key. So each key comes at most once.

use medium::sync::Ordering;
use medium::sync::pause;
use medium::{Lsn, Medium, kernels};
use pool::{Guard, Pool};

use super::RnTree;
use super::layout::{ENTRIES_MAX, Leaf, LeafRecord, Slots};
use crate::Result;
use crate::index::{Codec, Direction, EntryWords, Moved, VisitWords};
use crate::kit::chain::{DescentTarget, HeapGuard, InnerTree, Separator};
use crate::kit::scan::{Goal, LeafCopy, LeafVersion, Leaves, MovedNodes};

/// Attempts to read a leaf without its lock before a scan takes the lock.
const ATTEMPTS: u32 = 32;

/// Entries that a visit copies before it validates them: a scan may want no more.
const VISITED_TOGETHER: usize = 16;

/// Leaves behind the first that a scan prefetches together with it.
const LEAVES_AHEAD: usize = 2;

/// A leaf at one moment.
pub(super) struct LeafSnapshot {
    pub(super) entries: [EntryWords; ENTRIES_MAX],
    pub(super) count: usize,
    pub(super) next: u32,
    high: u64,
    /// The LSN at which it is durable.
    pub(super) lsn: Lsn,
    version: Option<LeafVersion>,
}

impl LeafSnapshot {
    pub(super) fn new() -> Self {
        Self {
            entries: [[0; 2]; ENTRIES_MAX],
            count: 0,
            next: 0,
            high: 0,
            lsn: Lsn::DURABLE,
            version: None,
        }
    }
}

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// Takes a snapshot; `false` if the leaf is dead. Prefetches the next leaf.
    #[inline]
    pub(super) fn snapshot(
        &self,
        guard: &Guard<'_, M>,
        index: u32,
        snapshot: &mut LeafSnapshot,
    ) -> Result<bool> {
        let leaf_record = self.leaves.get(index);
        let mut spins = 0;
        let mut attempts = 0;
        let mut lock = None;
        loop {
            let version = leaf_record.version();
            if LeafRecord::<M>::is_dead(version) {
                LeafRecord::<M>::wait();
                return Ok(false);
            }
            let Some(sequence) = leaf_record.sequence() else {
                pause(&mut spins);
                continue;
            };
            self.copy_leaf(guard, leaf_record, snapshot)?;
            if lock.is_some() || leaf_record.is_still_in(sequence) && leaf_record.is_still(version)
            {
                snapshot.version = Some(LeafVersion::OfLeaf {
                    index,
                    version,
                    sequence,
                });
                break;
            }
            attempts += 1;
            if attempts == ATTEMPTS {
                lock = Some(leaf_record.lock());
            }
        }
        drop(lock);
        // The LSN is read after the copy: the content that was copied is stamped with this LSN or
        // an earlier one.
        snapshot.lsn = guard.left_to_caller(leaf_record.lsn());
        Ok(true)
    }

    #[inline(always)]
    fn copy_leaf(
        &self,
        guard: &Guard<'_, M>,
        leaf_record: &LeafRecord<M>,
        snapshot: &mut LeafSnapshot,
    ) -> Result<()> {
        let leaf = Self::leaf(guard, leaf_record)?;
        kernels::prefetch_lines(&leaf.entries);
        let slots: Slots = leaf_record.slots();
        snapshot.high = leaf_record.high.load(Ordering::Acquire);
        snapshot.next = leaf_record.next();
        self.prefetch_next(guard, &slots, snapshot.next);
        // A copy that a change garbled fails to validate; here it must only stay in bounds.
        snapshot.count = slots.count().min(ENTRIES_MAX);
        for (position, words) in snapshot.entries[..snapshot.count].iter_mut().enumerate() {
            let cells = &leaf.entries[slots.entry(position).min(ENTRIES_MAX - 1)];
            *words = [cells[0].load(guard), cells[1].load(guard)];
        }
        Ok(())
    }

    /// Calls `visit` with the entries from `from` on, ascending, until it returns `false`. Not
    /// pinned, like point reads: however long the visits take, they do not keep memory from being
    /// reused.
    pub(super) fn visit_words(&self, from: u64, visit: &mut VisitWords<'_>) -> Result<Lsn>
    where
        C: for<'k> Codec<Key<'k> = u64>,
    {
        let guard = self.pool.peek();
        let mut progress = ScanProgress {
            resume: from,
            seen: Lsn::DURABLE,
        };
        let mut attempts = 0;
        loop {
            if attempts == ATTEMPTS {
                attempts = 0;
                if !self.visit_pinned(&mut progress, visit)? {
                    return Ok(progress.seen);
                }
            }
            guard.interleave_read(&self.inner);
            let (mut index, mut version) =
                self.inner
                    .descend_touching(progress.resume, |leaf, following| {
                        self.prefetch_whole_leaf(&guard, leaf);
                        for next in following.iter().take(LEAVES_AHEAD) {
                            self.prefetch_whole_leaf(&guard, next.load(Ordering::Relaxed));
                        }
                        self.leaves.peek(leaf).version()
                    })?;
            loop {
                match self.visit_leaf(&guard, index, version, &mut progress, visit)? {
                    LeafVisit::All(next, next_version) => {
                        index = next;
                        version = next_version;
                        attempts = 0;
                    }
                    LeafVisit::Enough => return Ok(progress.seen),
                    LeafVisit::Changed => break,
                }
            }
            attempts += 1;
        }
    }

    /// Visits the entries of one leaf from the position of the scan on, and moves the position
    /// behind them. `index` was the right leaf when it had `version`.
    #[inline(always)]
    fn visit_leaf(
        &self,
        guard: &Guard<'_, M>,
        index: u32,
        version: u64,
        progress: &mut ScanProgress,
        visit: &mut VisitWords<'_>,
    ) -> Result<LeafVisit> {
        let leaf_record = self.leaves.get(index);
        let Some(sequence) = leaf_record.sequence() else {
            pause(&mut 0);
            return Ok(LeafVisit::Changed);
        };
        let is_still = || leaf_record.is_still_in(sequence) && leaf_record.is_still(version);
        let slots = leaf_record.slots();
        let next = leaf_record.next();
        let leaf = match Self::leaf(guard, leaf_record) {
            Ok(leaf) if !LeafRecord::<M>::is_dead(version) => leaf,
            Err(error) if is_still() => return Err(error),
            _ => {
                LeafRecord::<M>::wait();
                return Ok(LeafVisit::Changed);
            }
        };
        let count = slots.count().min(ENTRIES_MAX);
        let listed = slots.listed();
        let cells_at =
            |position: usize| &leaf.entries[usize::from(listed[position]).min(ENTRIES_MAX - 1)];
        let key_at = |position: usize| cells_at(position)[0].load(guard);
        // The first entry that the scan has not seen. Often it is the first one of the leaf.
        let mut first = 0;
        if count > 0 && key_at(0) < progress.resume {
            let mut end = count;
            while first < end {
                let middle = usize::midpoint(first, end);
                if key_at(middle) < progress.resume {
                    first = middle + 1;
                } else {
                    end = middle;
                }
            }
        }
        let mut copied = [[0; 2]; VISITED_TOGETHER];
        let mut start = first;
        loop {
            let end = count.min(start + VISITED_TOGETHER);
            let entries = &mut copied[..end - start];
            for (position, words) in (start..end).zip(entries.iter_mut()) {
                let cells = cells_at(position);
                *words = [cells[0].load(guard), cells[1].load(guard)];
            }
            // The version is taken while it is certainly the next leaf.
            let next_version = if end == count {
                self.leaves.get(next).version()
            } else {
                0
            };
            let lsn = leaf_record.lsn();
            if !is_still() {
                return Ok(LeafVisit::Changed);
            }
            let lsn = guard.left_to_caller(lsn);
            progress.seen = progress.seen.max(lsn);
            if let Some([last, _]) = entries.last() {
                if !visit(entries, lsn) || *last == u64::MAX {
                    return Ok(LeafVisit::Enough);
                }
                progress.resume = last + 1;
            }
            if start == first {
                // The next leaf is prefetched only here, because the scan may have ended before.
                self.prefetch_next(guard, &slots, next);
            }
            if end == count {
                return Ok(if next == 0 {
                    LeafVisit::Enough
                } else {
                    LeafVisit::All(next, next_version)
                });
            }
            start = end;
        }
    }

    /// Visits a leaf, as [`RnTree::visit_leaf`] does, however often writers change it: takes the
    /// leaf's lock, which needs a pin. Both end before `visit` is called. Returns `false` if the
    /// scan is at its end.
    #[cold]
    fn visit_pinned(&self, progress: &mut ScanProgress, visit: &mut VisitWords<'_>) -> Result<bool>
    where
        C: for<'k> Codec<Key<'k> = u64>,
    {
        let mut snapshot = LeafSnapshot::new();
        let guard = self.pool.pin();
        let mut index = self.descend(&guard, progress.resume)?;
        loop {
            if !self.snapshot(&guard, index, &mut snapshot)? {
                index = self.descend(&guard, progress.resume)?;
                continue;
            }
            progress.seen = progress.seen.max(snapshot.lsn);
            if snapshot.next != 0 && progress.resume >= snapshot.high {
                index = snapshot.next;
            } else {
                break;
            }
        }
        drop(guard);
        let entries = &snapshot.entries[..snapshot.count];
        let entries = &entries[entries.partition_point(|[key, _]| *key < progress.resume)..];
        if let Some([last, _]) = entries.last() {
            if !visit(entries, snapshot.lsn) || *last == u64::MAX {
                return Ok(false);
            }
            progress.resume = last + 1;
        }
        progress.resume = progress.resume.max(snapshot.high);
        Ok(snapshot.next != 0)
    }

    /// Prefetches the next leaf, which arrives while this one is copied and visited.
    #[inline(always)]
    fn prefetch_next(&self, guard: &Guard<'_, M>, slots: &Slots, next: u32) {
        if next != 0 {
            self.leaves.get(next).prefetch_for_scan();
            if let Ok(next) = guard.node::<Leaf>(slots.next()) {
                kernels::prefetch_lines(&next.entries);
            }
        }
    }

    /// Prefetches all of a leaf, and of its record what a scan reads.
    #[inline(always)]
    fn prefetch_whole_leaf(&self, guard: &Guard<'_, M>, index: u32) {
        self.leaves.peek(index).prefetch_for_scan();
        if let Ok(leaf) = guard.node::<Leaf>(self.offsets.peek(index).load(Ordering::Relaxed)) {
            kernels::prefetch_lines(&leaf.entries);
        }
    }
}

/// The position of a scan of words.
struct ScanProgress {
    /// The key at which it goes on.
    resume: u64,
    /// The LSN at which everything that it has read is durable.
    seen: Lsn,
}

/// How a visit to a leaf ended.
enum LeafVisit {
    /// All of it was visited; the next leaf, and its version.
    All(u32, u64),
    /// The scan is at its end.
    Enough,
    /// The leaf changed meanwhile: descend again.
    Changed,
}

impl<M: Medium, C: Codec> Leaves<M, C> for RnTree<M, C> {
    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    const MOVED_NODES: MovedNodes = MovedNodes::LeavesBehindFirst;

    fn move_leaf(&self, low: &[u8]) -> Result<Moved> {
        self.relocate_leaf(C::bound(low))
    }

    fn copy_leaf(
        &self,
        guard: &Guard<'_, M>,
        goal: Goal<'_>,
        direction: Direction,
        leaf: &mut LeafCopy,
    ) -> Result<Lsn> {
        let mut seen = Lsn::DURABLE;
        // The pin keeps the separators in the heap, to which high keys lead.
        let heap = self.inner.heap();
        let mut snapshot = LeafSnapshot::new();
        let (low, high) = 'descend: loop {
            let (mut index, low) = self.locate(guard, goal)?;
            let mut low = self.separator_key(&heap, low)?;
            loop {
                if !self.snapshot(guard, index, &mut snapshot)? {
                    continue 'descend;
                }
                seen = seen.max(snapshot.lsn);
                leaf.offset = self.leaves.get(index).offset();
                if snapshot.next == 0 {
                    break 'descend (low, None);
                }
                let high = Separator(snapshot.high);
                let high = self.separator_key(&heap, Some(high))?;
                let is_covered = match goal {
                    Goal::First => true,
                    Goal::Last => false,
                    Goal::At(key) | Goal::UpTo(key) => {
                        high.as_deref().is_some_and(|high| key < high)
                    }
                    Goal::Below(key) => high.as_deref().is_some_and(|high| key <= high),
                };
                if is_covered {
                    break 'descend (low, high);
                }
                // The leaf was split since the descent: the keys are in the next one.
                index = snapshot.next;
                low = high;
            }
        };
        leaf.entries
            .extend_from_slice(&snapshot.entries[..snapshot.count]);
        leaf.end = if direction == Direction::Forward {
            high
        } else {
            low
        };
        leaf.version = snapshot.version;
        Ok(seen)
    }

    fn is_unchanged(&self, _guard: &Guard<'_, M>, version: LeafVersion) -> bool {
        let LeafVersion::OfLeaf {
            index,
            version,
            sequence,
        } = version
        else {
            return false;
        };
        let leaf_record = self.leaves.get(index);
        // ORDER: the caller is pinned. A record that was freed before the pin was retired after one
        // of both was raised, and the fence of the pin makes that visible here. One that is retired
        // later stays until the pin ends.
        leaf_record.is_still_in(sequence) && leaf_record.is_still(version)
    }
}

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// The leaf that a scan wants, unless it was split meanwhile, with the separator before it if
    /// that is known.
    fn locate(&self, guard: &Guard<'_, M>, goal: Goal<'_>) -> Result<(u32, Option<Separator>)> {
        let target = match goal {
            Goal::First => return Ok((self.head, None)),
            Goal::At(key) => return Ok((self.descend(guard, C::bound(key))?, None)),
            Goal::Last => DescentTarget::Last,
            Goal::Below(key) if !C::is_rounded(key) => DescentTarget::Below(C::bound(key)),
            Goal::UpTo(key) | Goal::Below(key) => DescentTarget::At(C::bound(key)),
        };
        guard.interleave_read(&self.inner);
        let place = self.inner.locate(target)?;
        Ok((place.leaf, place.low))
    }

    fn separator_key(
        &self,
        heap: &HeapGuard<'_>,
        separator: Option<Separator>,
    ) -> Result<Option<Vec<u8>>> {
        let Some(separator) = separator else {
            return Ok(None);
        };
        let mut key = Vec::new();
        InnerTree::<C>::copy_separator(heap, separator, &mut key)?;
        Ok(Some(key))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
