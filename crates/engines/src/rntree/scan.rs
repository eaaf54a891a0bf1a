//! Ranges: one consistent snapshot of a leaf after the other.
//!
//! A snapshot takes order, entries and next leaf at one moment. A key that is there for the whole scan is in the leaf
//! that covers it whenever that is read; a split moves keys to the right, where the scan has not been, and a merge
//! leaves the right leaf dead: who meets that descends again from where it was. So each key comes at most once.

use medium::sync::Ordering;
use medium::sync::pause;
use medium::{Medium, kernels};
use pool::{Guard, Result};
use std::ops::Bound;

use super::RnTree;
use super::layout::{ENTRIES_MAX, Leaf, LeafRecord, Slots};
use crate::index::{Bounds, Codec, Direction, EntryWords, Scan};
use crate::inner::{HeapGuard, InnerTree, Separator, Target};

/// How often a leaf is tried beside writers before a scan takes its lock.
const ATTEMPTS: u32 = 32;

/// Entries that a visit copies before it validates them: a scan may want no more.
const VISITED_TOGETHER: usize = 16;

/// Leaves behind the first that a scan prefetches together with it.
const LEAVES_AHEAD: usize = 2;

/// A leaf at one moment.
pub(super) struct Snapshot {
    pub(super) entries: [EntryWords; ENTRIES_MAX],
    pub(super) count: usize,
    pub(super) next: u32,
    high: u64,
}

impl Snapshot {
    pub(super) fn new() -> Self {
        Self { entries: [[0; 2]; ENTRIES_MAX], count: 0, next: 0, high: 0 }
    }
}

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// Takes a snapshot, once it is durable; `false` if the leaf is dead. Prefetches the next leaf.
    #[inline]
    pub(super) fn snapshot(&self, guard: &Guard<'_, M>, index: u32, snapshot: &mut Snapshot) -> Result<bool> {
        let record = self.leaves.get(index);
        let (mut spins, mut attempts) = (0, 0);
        let mut lock = None;
        loop {
            let version = record.version();
            if LeafRecord::<M>::is_dead(version) {
                LeafRecord::<M>::wait();
                return Ok(false);
            }
            let Some(sequence) = record.sequence() else {
                pause(&mut spins);
                continue;
            };
            self.copy_leaf(guard, record, snapshot)?;
            if lock.is_some() || record.is_still_in(sequence) && record.is_still(version) {
                break;
            }
            attempts += 1;
            if attempts == ATTEMPTS {
                lock = Some(record.lock());
            }
        }
        drop(lock);
        guard.wait_for(record.lsn())?;
        Ok(true)
    }

    #[inline(always)]
    fn copy_leaf(&self, guard: &Guard<'_, M>, record: &LeafRecord<M>, snapshot: &mut Snapshot) -> Result<()> {
        let leaf = Self::leaf(guard, record)?;
        kernels::prefetch_lines(&leaf.entries);
        let slots: Slots = record.slots();
        snapshot.high = record.high.load(Ordering::Acquire);
        snapshot.next = record.next();
        self.prefetch_next(guard, &slots, snapshot.next);
        // What a change in between garbled fails to validate; it must only stay in bounds.
        snapshot.count = slots.count().min(ENTRIES_MAX);
        for (position, words) in snapshot.entries[..snapshot.count].iter_mut().enumerate() {
            let cells = &leaf.entries[slots.entry(position).min(ENTRIES_MAX - 1)];
            *words = [cells[0].load(guard), cells[1].load(guard)];
        }
        Ok(())
    }

    /// Calls `visit` with the entries from `from` on, ascending, until it returns `false`. Not pinned, as point reads are
    /// not: however long the visits take, they keep no memory from being reused.
    pub(super) fn visit_words(&self, from: u64, visit: &mut dyn FnMut(&[[u64; 2]]) -> bool) -> Result<()>
    where
        C: for<'k> Codec<Key<'k> = u64>,
    {
        let guard = self.pool.peek();
        let mut resume = from;
        let mut attempts = 0;
        loop {
            if attempts == ATTEMPTS {
                attempts = 0;
                if !self.visit_pinned(&mut resume, visit)? {
                    return Ok(());
                }
            }
            guard.interleave_read(&self.inner);
            let (mut index, mut version) = self.inner.descend_touching(resume, |leaf, following| {
                self.prefetch_whole_leaf(&guard, leaf);
                for next in following.iter().take(LEAVES_AHEAD) {
                    self.prefetch_whole_leaf(&guard, next.load(Ordering::Relaxed));
                }
                self.leaves.peek(leaf).version()
            })?;
            loop {
                match self.visit_leaf(&guard, (index, version), &mut resume, visit)? {
                    Visited::All(next, next_version) => {
                        (index, version) = (next, next_version);
                        attempts = 0;
                    }
                    Visited::Enough => return Ok(()),
                    Visited::Changed => break,
                }
            }
            attempts += 1;
        }
    }

    /// Visits the entries of one leaf from `resume` on, which goes with them. `index` was the right leaf when it had
    /// `version`.
    #[inline(always)]
    fn visit_leaf(
        &self,
        guard: &Guard<'_, M>,
        (index, version): (u32, u64),
        resume: &mut u64,
        visit: &mut dyn FnMut(&[[u64; 2]]) -> bool,
    ) -> Result<Visited> {
        let record = self.leaves.get(index);
        let Some(sequence) = record.sequence() else {
            pause(&mut 0);
            return Ok(Visited::Changed);
        };
        let is_still = || record.is_still_in(sequence) && record.is_still(version);
        let (slots, next) = (record.slots(), record.next());
        let leaf = match Self::leaf(guard, record) {
            Ok(leaf) if !LeafRecord::<M>::is_dead(version) => leaf,
            Err(error) if is_still() => return Err(error),
            _ => {
                LeafRecord::<M>::wait();
                return Ok(Visited::Changed);
            }
        };
        self.prefetch_next(guard, &slots, next);
        let count = slots.count().min(ENTRIES_MAX);
        let listed = slots.listed();
        let cells_at = |position: usize| &leaf.entries[usize::from(listed[position]).min(ENTRIES_MAX - 1)];
        let key_at = |position: usize| cells_at(position)[0].load(guard);
        let mut start = 0;
        if count > 0 && key_at(0) < *resume {
            let mut end = count;
            while start < end {
                let middle = usize::midpoint(start, end);
                if key_at(middle) < *resume { start = middle + 1 } else { end = middle }
            }
        }
        let mut copied = [[0; 2]; VISITED_TOGETHER];
        loop {
            let end = count.min(start + VISITED_TOGETHER);
            let entries = &mut copied[..end - start];
            for (position, words) in (start..end).zip(entries.iter_mut()) {
                let cells = cells_at(position);
                *words = [cells[0].load(guard), cells[1].load(guard)];
            }
            // Taken while it is certain that it is the next leaf.
            let next_version = if end == count { self.leaves.get(next).version() } else { 0 };
            let lsn = record.lsn();
            if !is_still() {
                return Ok(Visited::Changed);
            }
            guard.wait_for(lsn)?;
            if let Some([last, _]) = entries.last() {
                if !visit(entries) || *last == u64::MAX {
                    return Ok(Visited::Enough);
                }
                *resume = last + 1;
            }
            if end == count {
                return Ok(if next == 0 { Visited::Enough } else { Visited::All(next, next_version) });
            }
            start = end;
        }
    }

    /// As [`RnTree::visit_leaf`] for the leaf of `resume`, however busy its writers are: that takes a pin, for what is not
    /// pinned may not be locked. It ends before the visit. `false` if the scan is at its end.
    #[cold]
    fn visit_pinned(&self, resume: &mut u64, visit: &mut dyn FnMut(&[[u64; 2]]) -> bool) -> Result<bool>
    where
        C: for<'k> Codec<Key<'k> = u64>,
    {
        let mut snapshot = Snapshot::new();
        let guard = self.pool.pin();
        let mut index = self.descend(&guard, *resume)?;
        loop {
            if !self.snapshot(&guard, index, &mut snapshot)? {
                index = self.descend(&guard, *resume)?;
            } else if snapshot.next != 0 && *resume >= snapshot.high {
                index = snapshot.next;
            } else {
                break;
            }
        }
        drop(guard);
        let entries = &snapshot.entries[..snapshot.count];
        let entries = &entries[entries.partition_point(|[key, _]| key < resume)..];
        if let Some([last, _]) = entries.last() {
            if !visit(entries) || *last == u64::MAX {
                return Ok(false);
            }
            *resume = last + 1;
        }
        *resume = (*resume).max(snapshot.high);
        Ok(snapshot.next != 0)
    }

    /// Prefetches the next leaf, which arrives while this one is copied and visited.
    #[inline(always)]
    fn prefetch_next(&self, guard: &Guard<'_, M>, slots: &Slots, next: u32) {
        if next != 0 {
            kernels::prefetch_lines(self.leaves.get(next));
            if let Ok(next) = guard.node::<Leaf>(slots.next()) {
                kernels::prefetch_lines(&next.entries);
            }
        }
    }

    /// Prefetches all of a leaf and of its record.
    #[inline(always)]
    fn prefetch_whole_leaf(&self, guard: &Guard<'_, M>, index: u32) {
        kernels::prefetch_lines(self.leaves.peek(index));
        if let Ok(leaf) = guard.node::<Leaf>(self.offsets.peek(index).load(Ordering::Relaxed)) {
            kernels::prefetch_lines(&leaf.entries);
        }
    }
}

/// How a visit to a leaf ended.
enum Visited {
    /// All of it was visited; what follows, and its version.
    All(u32, u64),
    /// No more is wanted, or there is no more.
    Enough,
    /// The leaf changed meanwhile: descend again.
    Changed,
}

/// A range being read.
pub(super) struct RangeScan<'i, M: Medium, C: Codec> {
    tree: &'i RnTree<M, C>,
    guard: Guard<'i, M>,
    heap: HeapGuard<'i>,
    direction: Direction,
    /// The end that the scan goes towards.
    end: Bounds,
    /// Where the scan stands: the next key lies beyond this.
    from: Bound<Vec<u8>>,
    snapshot: Box<Snapshot>,
    /// The entries of the snapshot that are still to come.
    ahead: std::ops::Range<usize>,
    /// The leaf to read next, if it is known; otherwise descend from `from`.
    next: Option<u32>,
    /// Whether a forward scan has met an entry beyond `from` since it last descended: so are all that follow.
    is_beyond: bool,
    finished: bool,
}

impl<'i, M: Medium, C: Codec> RangeScan<'i, M, C> {
    pub(super) fn new(tree: &'i RnTree<M, C>, bounds: Bounds, direction: Direction) -> Self {
        let from = match direction {
            Direction::Forward => bounds.lower.clone(),
            Direction::Reverse => bounds.upper.clone(),
        };
        let (guard, heap) = (tree.pool.pin(), tree.inner.heap());
        let snapshot = Box::new(Snapshot::new());
        Self {
            tree,
            guard,
            heap,
            direction,
            end: bounds,
            from,
            snapshot,
            ahead: 0..0,
            next: None,
            is_beyond: false,
            finished: false,
        }
    }

    /// Reads the next leaf; `finished` is set after the last.
    fn refill(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => self.refill_forward(),
            Direction::Reverse => self.refill_reverse(),
        }
    }

    fn refill_forward(&mut self) -> Result<()> {
        let index = match self.next.take() {
            Some(index) => index,
            None => {
                self.is_beyond = false;
                let start = match &self.from {
                    Bound::Included(key) | Bound::Excluded(key) => key.as_slice(),
                    Bound::Unbounded => &[],
                };
                // A key of any bytes, also one that this codec could not store.
                self.tree.descend(&self.guard, C::bound(start))?
            }
        };
        if !self.tree.snapshot(&self.guard, index, &mut self.snapshot)? {
            return Ok(());
        }
        // A leaf that was split since the descent may lie wholly below `from`: then the next one is skipped in as well.
        let first = if self.is_beyond { 0 } else { self.count_below_start()? };
        self.ahead = first..self.snapshot.count;
        self.is_beyond |= !self.ahead.is_empty();
        match self.snapshot.next {
            0 => self.finished = true,
            next => self.next = Some(next),
        }
        Ok(())
    }

    fn refill_reverse(&mut self) -> Result<()> {
        let (included, key) = match &self.from {
            Bound::Included(key) => (true, Some(key)),
            Bound::Excluded(key) => (false, Some(key)),
            Bound::Unbounded => (false, None),
        };
        let (mut index, mut low) =
            self.tree.locate_from_above(&self.guard, key.map(Vec::as_slice), included)?;
        let mut low_key = Vec::new();
        if let Some(low) = low {
            InnerTree::<C>::copy_separator(&self.heap, low, &mut low_key)?;
        }
        loop {
            if !self.tree.snapshot(&self.guard, index, &mut self.snapshot)? {
                return Ok(());
            }
            if self.snapshot.next == 0 {
                break;
            }
            // A leaf that was split since the descent: its upper keys are in the next one.
            let high = Separator { word: self.snapshot.high, tail: self.snapshot.high };
            let mut high_key = Vec::new();
            InnerTree::<C>::copy_separator(&self.heap, high, &mut high_key)?;
            let is_covered = key.is_some_and(|key| if included { *key < high_key } else { *key <= high_key });
            if is_covered {
                break;
            }
            (index, low, low_key) = (self.snapshot.next, Some(high), high_key);
        }
        let last = self.count_below_start()?;
        self.ahead = 0..last;
        match low {
            Some(_) => self.from = Bound::Excluded(low_key),
            None => self.finished = true,
        }
        Ok(())
    }

    /// How many entries of the snapshot lie before `from` in key order: what a forward scan skips and a reverse scan
    /// keeps.
    fn count_below_start(&self) -> Result<usize> {
        let (key, included) = match (&self.from, self.direction) {
            (Bound::Unbounded, Direction::Forward) => return Ok(0),
            (Bound::Unbounded, Direction::Reverse) => return Ok(self.snapshot.count),
            (Bound::Included(key), Direction::Reverse) | (Bound::Excluded(key), Direction::Forward) => {
                (key, true)
            }
            (Bound::Excluded(key), Direction::Reverse) | (Bound::Included(key), Direction::Forward) => {
                (key, false)
            }
        };
        let (mut low, mut high) = (0, self.snapshot.count);
        let mut candidate = Vec::new();
        while low < high {
            let middle = usize::midpoint(low, high);
            candidate.clear();
            C::copy_key(&self.guard, self.snapshot.entries[middle], &mut candidate)?;
            if candidate < *key || included && candidate == *key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

impl<M: Medium, C: Codec> Scan for RangeScan<'_, M, C> {
    fn next_into(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        while self.ahead.is_empty() {
            if self.finished {
                return Ok(false);
            }
            self.refill()?;
        }
        let position = match self.direction {
            Direction::Forward => self.ahead.next(),
            Direction::Reverse => self.ahead.next_back(),
        };
        let words = self.snapshot.entries[position.unwrap_or_default()];
        key.clear();
        C::copy_key(&self.guard, words, key)?;
        let inside = match self.direction {
            Direction::Forward => self.end.is_below_upper(key),
            Direction::Reverse => self.end.is_above_lower(key),
        };
        if !inside {
            (self.ahead, self.finished) = (0..0, true);
            return Ok(false);
        }
        if self.direction == Direction::Forward {
            // Where to descend again, should the next leaf be dead; also what to skip then.
            match &mut self.from {
                Bound::Excluded(from) => from.clone_from(key),
                from => *from = Bound::Excluded(key.clone()),
            }
        }
        value.clear();
        C::copy_value(&self.guard, words, value)?;
        Ok(true)
    }
}

impl<M: Medium, C: Codec> RnTree<M, C> {
    /// The leaf that covers the keys up to `key`, or below it, or all; with its lower bound.
    fn locate_from_above(
        &self,
        guard: &Guard<'_, M>,
        key: Option<&[u8]>,
        included: bool,
    ) -> Result<(u32, Option<Separator>)> {
        let target = match key {
            None => Target::Last,
            Some(key) if included || C::is_rounded(key) => Target::At(C::bound(key)),
            Some(key) => Target::Below(C::bound(key)),
        };
        guard.interleave_read(&self.inner);
        let place = self.inner.locate(target)?;
        Ok((place.leaf, place.low))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use medium::Ram;
    use pool::{Pool, PoolOptions};

    use super::*;
    use crate::index::{Condition, WordCodec, WordIndex};
    use crate::rntree::RnTreeOptions;

    #[test]
    fn a_visit_that_is_pinned_goes_on_where_the_leaf_ends() {
        let pool = Pool::open(Ram::new(1 << 26).unwrap(), PoolOptions::default()).unwrap();
        let tree = RnTree::<Ram, WordCodec>::create(
            &pool,
            "t",
            RnTreeOptions { leaf_entries: 4, ..RnTreeOptions::default() },
        )
        .unwrap();
        let keys: Vec<u64> = (0..100).map(|key| 10 * key).chain([u64::MAX]).collect();
        for key in &keys {
            WordIndex::write(&tree, *key, Some(*key), Condition::Absent).unwrap();
        }
        for from in [0, 1, 10, 995, u64::MAX] {
            let (mut resume, mut visited) = (from, Vec::new());
            let mut visit = |entries: &[[u64; 2]]| {
                visited.extend(entries.iter().map(|[key, _]| *key));
                true
            };
            let steps =
                std::iter::from_fn(|| tree.visit_pinned(&mut resume, &mut visit).unwrap().then_some(()));
            assert!(steps.take(200).count() < 101, "from {from}");
            assert_eq!(visited, keys.iter().copied().filter(|key| *key >= from).collect::<Vec<_>>());
        }
        let mut resume = 0;
        assert!(!tree.visit_pinned(&mut resume, &mut |_| false).unwrap());
    }
}
