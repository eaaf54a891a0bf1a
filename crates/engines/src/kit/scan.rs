//! The cursor behind ranges.
//!
//! A cursor reads one batch of entries after the other. Between batches it holds nothing: no pin,
//! no lock, no node. Each batch starts from a key, by a new descent; or it goes on in the copy of a
//! leaf, if the batch before ended within that leaf, and the leaf has not changed since. So whatever was split or
//! merged meanwhile, each key is returned at most once and in order, and a key that is present for
//! the whole scan is returned.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Bound;

use crate::index::record::prefix_word;
use medium::{Lsn, Medium};
use pool::{Guard, Pool};

use crate::index::{Bounds, Codec, Direction, EntryWords, HashBits, Moved, Scan, VisitWords};
use crate::{Error, Result};

/// Entries of the first batch; each batch has twice as many as the one before.
const BATCH_ENTRIES_MIN: usize = 16;
/// Entries of the largest batch.
const BATCH_ENTRIES_MAX: usize = 256;
/// Bytes of keys and values after which a batch ends.
const BATCH_BYTES: usize = 1 << 20;
/// Records that are prefetched together.
const RECORDS_TOGETHER: usize = 8;

/// Steps of a binary search whose records are prefetched before it begins: seven records.
const SEARCH_STEPS_AHEAD: u32 = 3;

/// Stands for the lengths of an entry that cannot be read.
const DAMAGED: (usize, usize) = (usize::MAX, usize::MAX);

/// Some entries of a range, in the order of the scan, as bytes.
pub struct ScanBatch {
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
    /// The lengths of each key and its value; [`DAMAGED`] for an entry that cannot be read.
    lengths: VecDeque<(usize, usize)>,
    /// Why the damaged entries cannot be read.
    errors: VecDeque<Error>,
    entries_max: usize,
    /// The part of the range that is not read yet.
    rest: Bounds,
    direction: Direction,
    is_finished: bool,
    /// The LSN at which everything that was read for this batch and those before is durable.
    lsn: Lsn,
}

impl ScanBatch {
    /// The direction of the scan.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Where the scan goes on: the lower end of the part that is not read yet, or its upper end in
    /// a reverse scan.
    pub fn from(&self) -> &Bound<Vec<u8>> {
        if self.direction == Direction::Forward {
            &self.rest.lower
        } else {
            &self.rest.upper
        }
    }

    /// An empty batch with the same range, for another attempt.
    #[must_use]
    pub fn fresh(&self) -> Self {
        Self {
            bytes: Vec::new(),
            lengths: VecDeque::new(),
            errors: VecDeque::new(),
            entries_max: self.entries_max,
            rest: self.rest.clone(),
            direction: self.direction,
            is_finished: false,
            lsn: self.lsn,
        }
    }

    /// How many more entries it takes at most.
    pub fn room(&self) -> usize {
        self.entries_max.saturating_sub(self.lengths.len())
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
        self.errors.clear();
        self.is_finished = false;
    }

    /// Takes an entry whose key lies behind the ones before in the order of the scan, and begins
    /// with `word`. `copy` appends key and value to a buffer, and returns the length of the key.
    /// Returns whether the batch takes more. A key outside of the range is not taken; one beyond it
    /// ends the range.
    pub fn push(
        &mut self,
        word: u64,
        copy: impl FnOnce(&mut Vec<u8>) -> Result<usize>,
    ) -> Result<bool> {
        let start = self.bytes.len();
        let side_by_word = self.side_of(word);
        if let Some(side) = side_by_word
            && side.is_ne()
        {
            self.is_finished = side.is_gt();
            return Ok(!self.is_finished);
        }
        let key_length = copy(&mut self.bytes)?;
        let key = &self.bytes[start..start + key_length];
        let is_of_its_word = prefix_word(key) == word;
        // (For a key that is known to lie within the range, only one word of the copy is read back:
        // to read more, the processor would have to wait for the record.)
        if side_by_word.is_none() || !is_of_its_word {
            let side = self.side_of_key(key);
            if side.is_ne() {
                self.bytes.truncate(start);
                // In a damaged tree the record may have another key than its entry says. A scan
                // that took it might go back, and never end.
                self.is_finished = side.is_gt() && is_of_its_word;
                return Ok(!self.is_finished);
            }
        }
        let length = self.bytes.len() - start;
        if self.lengths.is_empty() {
            // The other entries are probably about as long.
            self.bytes
                .reserve((length * self.entries_max).min(BATCH_BYTES));
        }
        self.lengths.push_back((key_length, length - key_length));
        Ok(self.lengths.len() < self.entries_max && self.bytes.len() < BATCH_BYTES)
    }

    /// The position of a key, in the order of the scan: `Less` before the range, `Equal` within,
    /// `Greater` behind it.
    fn side_of_key(&self, key: &[u8]) -> Ordering {
        let (is_before, is_behind) = match self.direction {
            Direction::Forward => (
                !self.rest.is_above_lower(key),
                !self.rest.is_below_upper(key),
            ),
            Direction::Reverse => (
                !self.rest.is_below_upper(key),
                !self.rest.is_above_lower(key),
            ),
        };
        if is_before {
            Ordering::Less
        } else if is_behind {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    }

    /// Whether all keys with this first word lie behind the range.
    pub fn is_behind(&self, word: u64) -> bool {
        self.side_of(word) == Some(Ordering::Greater)
    }

    /// The position of keys with this first word, in the order of the scan: see
    /// [`Bounds::side_of`].
    fn side_of(&self, word: u64) -> Option<Ordering> {
        let side = self.rest.side_of(word);
        if self.direction == Direction::Forward {
            side
        } else {
            side.map(Ordering::reverse)
        }
    }

    /// Takes an entry, as [`ScanBatch::push`] does, by its words. If the entry cannot be read, the
    /// scan returns the error at its place.
    fn push_entry<M: Medium, C: Codec>(
        &mut self,
        guard: &Guard<'_, M>,
        words: EntryWords,
        bits: HashBits,
    ) -> bool {
        let start = self.bytes.len();
        let pushed = self.push(words[0], |buffer| C::copy_entry(guard, words, bits, buffer));
        pushed.unwrap_or_else(|error| {
            self.bytes.truncate(start);
            let error = match self.last_key() {
                Some(last) => error.next_to_key(last),
                None => error,
            };
            self.lengths.push_back(DAMAGED);
            self.errors.push_back(error);
            true
        })
    }

    /// How many of some entries, in the order of the scan, lie before the range although their first
    /// words tie with that of its start: they need not be copied. `None` if a record on which that depends
    /// cannot be read. O(log n).
    fn count_before<M: Medium, C: Codec>(
        &self,
        guard: &Guard<'_, M>,
        entries: &[EntryWords],
        bits: HashBits,
    ) -> Option<usize> {
        let mut key = Vec::new();
        let mut is_before = |words: EntryWords| -> Option<bool> {
            if let Some(side) = self.side_of(words[0]) {
                return Some(side.is_lt());
            }
            key.clear();
            C::expect_key(guard, words).ok()?;
            C::copy_key(guard, words, &mut key).ok()?;
            // A damaged offset may lead to a sound record of another key.
            if !C::fits(words, C::key(&key).ok()?, bits) {
                return None;
            }
            Some(self.side_of_key(&key).is_lt())
        };
        // A range that comes from another leaf mostly begins with the first entry.
        let rest = match entries.split_first() {
            Some((first, rest)) if is_before(*first)? => rest,
            _ => return Some(0),
        };
        Self::prefetch_searched::<M, C>(guard, rest, SEARCH_STEPS_AHEAD);
        let mut low = 0;
        let mut high = rest.len();
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_before(rest[middle])? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(1 + low)
    }

    /// Prefetches the records that the first `steps` steps of a binary search may read, so that the
    /// search does not wait for one after the other.
    fn prefetch_searched<M: Medium, C: Codec>(
        guard: &Guard<'_, M>,
        entries: &[EntryWords],
        steps: u32,
    ) {
        if steps == 0 || entries.is_empty() {
            return;
        }
        let middle = entries.len() / 2;
        C::prefetch(guard, entries[middle]);
        Self::prefetch_searched::<M, C>(guard, &entries[..middle], steps - 1);
        Self::prefetch_searched::<M, C>(guard, &entries[middle + 1..], steps - 1);
    }

    /// Notes that the entries of the batch are durable at `lsn`.
    pub fn rests_on(&mut self, lsn: Lsn) {
        self.lsn = self.lsn.max(lsn);
    }

    /// Notes that the range ends with this batch.
    pub fn finish(&mut self) {
        self.is_finished = true;
    }

    /// Notes the key from which the scan goes on. Ends the range if no part of it lies behind the
    /// key.
    pub fn go_on_from(&mut self, from: Bound<Vec<u8>>) {
        let is_forward = self.direction == Direction::Forward;
        let (own, end) = match is_forward {
            true => (&mut self.rest.lower, &self.rest.upper),
            false => (&mut self.rest.upper, &self.rest.lower),
        };
        let both_included = matches!((&from, end), (Bound::Included(_), Bound::Included(_)));
        if let Bound::Included(from) | Bound::Excluded(from) = &from
            && let Bound::Included(end) | Bound::Excluded(end) = end
        {
            let order = if is_forward {
                from.cmp(end)
            } else {
                end.cmp(from)
            };
            self.is_finished |= order.is_gt() || order.is_eq() && !both_included;
        }
        *own = from;
    }

    /// Notes that the scan goes on behind the last key that was taken, unless the range ends
    /// before.
    pub fn go_on_behind_last(&mut self) {
        if !self.is_finished
            && let Some(last) = self.last_key()
        {
            let last = last.to_vec();
            self.go_on_from(Bound::Excluded(last));
        }
    }

    /// The last key that was taken, unless it was returned already.
    fn last_key(&self) -> Option<&[u8]> {
        let is_entry = |lengths: &&(usize, usize)| **lengths != DAMAGED;
        let (key_length, value_length) = *self.lengths.iter().rev().find(is_entry)?;
        let start = self.bytes.len() - key_length - value_length;
        Some(&self.bytes[start..start + key_length])
    }
}

/// A source of batches.
pub trait Batches: Send {
    /// Reads entries from [`ScanBatch::from`] on until [`ScanBatch::push`] wants no more, and says
    /// where the scan goes on, or that it ends. After an error the batch is read again.
    fn read(&mut self, batch: &mut ScanBatch) -> Result<()>;
}

/// A range being read.
pub struct Cursor<B> {
    source: B,
    batch: ScanBatch,
    /// Where the cursor's entry begins among the batch's bytes.
    position: usize,
    key_length: usize,
    value_length: usize,
}

impl<B: Batches> Cursor<B> {
    /// A cursor over the entries of `source` within `bounds`.
    pub fn new(source: B, bounds: Bounds, direction: Direction) -> Self {
        let (bytes, lengths, errors) = Default::default();
        let batch = ScanBatch {
            bytes,
            lengths,
            errors,
            entries_max: BATCH_ENTRIES_MIN,
            rest: bounds,
            direction,
            is_finished: false,
            lsn: Lsn::DURABLE,
        };
        Self {
            source,
            batch,
            position: 0,
            key_length: 0,
            value_length: 0,
        }
    }

    fn refill(&mut self) -> Result<()> {
        self.position = 0;
        self.batch.clear();
        let mut read = self.source.read(&mut self.batch);
        if read.is_ok() {
            self.batch.entries_max = (2 * self.batch.entries_max).min(BATCH_ENTRIES_MAX);
        } else if self.batch.entries_max > 1 && read.as_ref().is_err_and(Error::is_corrupt) {
            // Entries before the damage are returned first.
            self.batch.clear();
            self.batch.entries_max = 1;
            read = self.source.read(&mut self.batch);
        }
        read.inspect_err(|_| self.batch.clear())
    }
}

impl<B: Batches> Scan for Cursor<B> {
    fn advance(&mut self) -> Result<bool> {
        self.position += self.key_length + self.value_length;
        self.key_length = 0;
        self.value_length = 0;
        loop {
            if let Some(lengths) = self.batch.lengths.pop_front() {
                if lengths == DAMAGED {
                    return self.batch.errors.pop_front().map_or(Ok(false), Err);
                }
                (self.key_length, self.value_length) = lengths;
                return Ok(true);
            }
            if self.batch.is_finished {
                return Ok(false);
            }
            self.refill()?;
        }
    }

    fn entry(&self) -> (&[u8], &[u8]) {
        let (key, rest) = self.batch.bytes[self.position..].split_at(self.key_length);
        (key, &rest[..self.value_length])
    }

    fn lsn(&self) -> Lsn {
        self.batch.lsn
    }

    fn entries_ahead(&self) -> usize {
        self.batch.lengths.len()
    }

    fn last_key_ahead(&self) -> Option<&[u8]> {
        self.batch.last_key()
    }
}

/// The leaf that a scan wants to read.
#[derive(Clone, Copy, Debug)]
pub enum Goal<'k> {
    /// The first one.
    First,
    /// The last one.
    Last,
    /// The one that covers this key. The bytes need not be a key of the codec.
    At(&'k [u8]),
    /// The one that covers this key, or the greatest key below it if the bytes are no key of the
    /// codec.
    UpTo(&'k [u8]),
    /// The one that covers the greatest keys below this one.
    Below(&'k [u8]),
}

impl<'k> Goal<'k> {
    /// The descent to the leaf.
    pub fn way<C: Codec>(self) -> Way<C::Key<'k>> {
        match self {
            Goal::First => Way::First,
            Goal::Last => Way::Last,
            // The bound of bytes that are too short for a word is the first word above them.
            Goal::UpTo(key) if !C::TIES && key.len() < 8 => Way::Key(C::bound(key), Tied::Behind),
            Goal::Below(key) if !C::is_rounded(key) => {
                let is_smallest = key.len() <= 8 && key.last() != Some(&0);
                Way::Key(
                    C::bound(key),
                    if is_smallest {
                        Tied::Behind
                    } else {
                        Tied::Below
                    },
                )
            }
            Goal::At(key) | Goal::UpTo(key) | Goal::Below(key) => {
                Way::Key(C::bound(key), Tied::UpTo)
            }
        }
    }

    /// The position of the leaf among `leaves` leaves. `around` returns the position of the leaf
    /// that covers the greatest keys below a key, and of the one that covers the key.
    pub fn position<C: Codec>(
        self,
        leaves: usize,
        around: impl Fn(C::Key<'_>) -> Result<[usize; 2]>,
    ) -> Result<usize> {
        Ok(match self {
            Goal::First => 0,
            Goal::Last => leaves - 1,
            Goal::Below(key) if !C::is_rounded(key) => around(C::bound(key))?[0],
            Goal::At(key) | Goal::UpTo(key) | Goal::Below(key) => around(C::bound(key))?[1],
        })
    }
}

/// Which separators with a key's first word a descent to the key leaves behind.
#[derive(Clone, Copy, PartialEq)]
pub enum Tied {
    /// Those that are not above the key.
    UpTo,
    /// Those below the key, which is not the smallest one with its first word.
    Below,
    /// None.
    Behind,
}

/// Where a descent goes.
pub enum Way<K> {
    /// To the leaf that covers a key, or those next below it.
    Key(K, Tied),
    /// To the first leaf.
    First,
    /// To the last leaf.
    Last,
}

/// The version by which an engine finds out whether a leaf has changed since it was copied.
#[derive(Clone, Copy, Debug)]
pub enum LeafVersion {
    /// The versions of the leaf with this index.
    OfLeaf {
        /// The leaf's index.
        index: u32,
        /// The version that changes when entries are recycled, and when the leaf is.
        version: u64,
        /// The version of its order, its bounds and its next leaf.
        sequence: u64,
    },
    /// The version of the whole tree.
    OfTree(u64),
}

/// A leaf at one moment.
#[derive(Default)]
pub struct LeafCopy {
    /// Its offset in the pool.
    pub offset: u64,
    /// Its entries, in ascending order.
    pub entries: Vec<EntryWords>,
    /// The bound at which a scan leaves the leaf: the lower bound of the next leaf for a forward
    /// scan, its own lower bound for a reverse scan; `None` at the end of the tree.
    pub end: Option<Vec<u8>>,
    /// Its version. `None` if the engine cannot tell whether the leaf has changed since.
    pub version: Option<LeafVersion>,
}

impl LeafCopy {
    /// Makes it a copy of no leaf. Its memory is used again.
    fn clear(&mut self) {
        self.entries.clear();
        self.end = None;
        self.version = None;
    }
}

/// Refuses entries of the leaf at an offset whose first words are not in ascending order. A scan
/// would leave out some of them.
#[inline]
pub fn expect_ascending(entries: &[EntryWords], leaf: u64) -> Result<()> {
    if entries.is_sorted_by_key(|[word, _]| *word) {
        return Ok(());
    }
    Err(Error::corrupt(leaf, "entries out of order"))
}

/// The first words that the keys of a node can have, ends included; `None` if an end is open.
#[derive(Clone, Copy, Default, Debug)]
pub struct WordBounds {
    /// The least one.
    pub low: Option<u64>,
    /// The greatest one.
    pub high: Option<u64>,
}

impl WordBounds {
    /// Refuses a node at `offset` that has a key or a separator with a word outside of the range.
    ///
    /// # Errors
    /// Corrupt.
    #[inline]
    pub fn expect(self, offset: u64, word: u64) -> Result<()> {
        if self.low.is_some_and(|low| word < low) || self.high.is_some_and(|high| word > high) {
            return Err(Error::corrupt(
                offset,
                "a node with keys outside of the range that its parent gives it",
            ));
        }
        Ok(())
    }
}

/// The nodes that an engine moves out of slabs that are to be emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MovedNodes {
    /// None.
    None,
    /// All leaves but the first one.
    LeavesBehindFirst,
    /// All leaves and inner nodes.
    All,
}

/// A tree whose leaves can be copied one at a time.
pub trait Leaves<M: Medium, C: Codec>: Sync {
    /// The tree's pool.
    fn pool(&self) -> &Pool<M>;

    /// The bits of the hash that the entries of a copied leaf have.
    const HASH_BITS: HashBits = HashBits::ALL;

    /// The nodes that [`Leaves::move_leaf`] moves.
    const MOVED_NODES: MovedNodes = MovedNodes::None;

    /// Moves the leaf with the lower bound `low` if it lies in a slab that is to be emptied
    /// ([`pool::Evacuation`]), or merges it with a leaf beside it; does the same with inner nodes
    /// above it, if the engine moves these. Does not wait.
    ///
    /// # Errors
    /// [`ErrorKind::PoolFull`](crate::ErrorKind::PoolFull) if there is no room for the copy; those of
    /// damage and of a failed medium.
    fn move_leaf(&self, low: &[u8]) -> Result<Moved> {
        let _ = low;
        Ok(Moved::NotEvacuated)
    }

    /// Copies a leaf. Returns the LSN at which its content is durable.
    fn copy_leaf(
        &self,
        guard: &Guard<'_, M>,
        goal: Goal<'_>,
        direction: Direction,
        leaf: &mut LeafCopy,
    ) -> Result<Lsn>;

    /// Whether a leaf has not changed since it had this version ([`LeafCopy::version`]). If it has
    /// not, the records of the copied entries stay in use until the pin of `guard` ends. Does not
    /// wait.
    fn is_unchanged(&self, _guard: &Guard<'_, M>, _version: LeafVersion) -> bool {
        false
    }

    /// Calls `visit` with the entries of a tree of words from `from` on, ascending and leaf by
    /// leaf, until it returns `false`. Returns the LSN at which everything that was read is
    /// durable.
    fn visit_words(&self, mut from: u64, visit: &mut VisitWords<'_>) -> Result<Lsn> {
        let mut seen = Lsn::DURABLE;
        loop {
            let mut leaf = LeafCopy::default();
            let goal = from.to_be_bytes();
            let lsn = self.copy_leaf(
                &self.pool().pin(),
                Goal::At(&goal),
                Direction::Forward,
                &mut leaf,
            )?;
            expect_ascending(&leaf.entries, leaf.offset)?;
            seen = seen.max(lsn);
            let entries = &leaf.entries[leaf.entries.partition_point(|[key, _]| *key < from)..];
            if !entries.is_empty() && !visit(entries, lsn) {
                return Ok(seen);
            }
            match leaf.end.as_deref().map(prefix_word) {
                None => return Ok(seen),
                Some(end) if end > from => from = end,
                Some(_) => return Err(Error::corrupt(leaf.offset, "separators out of order")),
            }
        }
    }
}

/// Prefetches the records of entries that are read one after the other.
///
/// Records mostly lie in different pages, and a prefetch waits until the processor has found the
/// address of its page in the page tables. The processor searches for several addresses at a time
/// only if the prefetches follow each other closely. So the records of a group of entries are
/// prefetched one directly after the other.
struct RecordsAhead<'e, C> {
    entries: &'e [EntryWords],
    kinds: PhantomData<fn() -> C>,
}

impl<'e, C: Codec> RecordsAhead<'e, C> {
    fn new(entries: &'e [EntryWords]) -> Self {
        Self {
            entries,
            kinds: PhantomData,
        }
    }

    /// Called before the entry at `position` is read; positions ascend from 0.
    #[inline(always)]
    fn prefetch_before<M: Medium>(&self, guard: &Guard<'_, M>, position: usize) {
        if position == 0 {
            self.prefetch_first_lines(guard, 0);
            self.prefetch_first_lines(guard, RECORDS_TOGETHER);
            self.prefetch_rests(guard, 0);
        }
        // The first lines of two groups are on the way, and the rests of one, when a group is read.
        if position.is_multiple_of(RECORDS_TOGETHER) {
            self.prefetch_first_lines(guard, position + 2 * RECORDS_TOGETHER);
            self.prefetch_rests(guard, position + RECORDS_TOGETHER);
        }
    }

    /// The entries from a position on whose records are fetched together.
    fn group(&self, position: usize) -> &'e [EntryWords] {
        let end = self.entries.len().min(position + RECORDS_TOGETHER);
        self.entries.get(position..end).unwrap_or_default()
    }

    fn prefetch_first_lines<M: Medium>(&self, guard: &Guard<'_, M>, position: usize) {
        for words in self.group(position) {
            C::prefetch(guard, *words);
        }
    }

    /// Prefetches the lines behind the first ones, which say how long the records are.
    fn prefetch_rests<M: Medium>(&self, guard: &Guard<'_, M>, position: usize) {
        for words in self.group(position) {
            C::prefetch_rest(guard, *words);
        }
    }
}

/// The batches of a tree with [`Leaves`].
pub struct LeafBatches<'i, T, M, C> {
    tree: &'i T,
    /// The leaf of the last batch. Its memory is used again.
    leaf: LeafCopy,
    /// Where the next batch begins in the entries of the leaf. `None` if it begins in another leaf.
    next_entry: Option<usize>,
    kinds: PhantomData<fn() -> (M, C)>,
}

impl<'i, T: Leaves<M, C>, M: Medium, C: Codec> LeafBatches<'i, T, M, C> {
    /// A cursor over the entries of a tree within `bounds`.
    pub fn cursor(tree: &'i T, bounds: Bounds, direction: Direction) -> Cursor<Self> {
        Cursor::new(
            Self {
                tree,
                leaf: LeafCopy::default(),
                next_entry: None,
                kinds: PhantomData,
            },
            bounds,
            direction,
        )
    }

    /// Where the batch begins in the copied leaf, if the batch before ended within it and the leaf
    /// has not changed. If it has, records of the copied entries may have been freed.
    fn go_on_in_leaf(&mut self, guard: &Guard<'_, M>) -> Option<usize> {
        let next_entry = self.next_entry.take()?;
        let version = self.leaf.version?;
        if self.tree.is_unchanged(guard, version) {
            Some(next_entry)
        } else {
            None
        }
    }

    /// Copies the leaf in which the batch begins. Returns the position of the first entry there that
    /// does not lie before the range.
    fn copy_leaf(&mut self, guard: &Guard<'_, M>, batch: &mut ScanBatch) -> Result<usize> {
        let goal = match (batch.direction, batch.from()) {
            (Direction::Forward, Bound::Unbounded) => Goal::First,
            (Direction::Reverse, Bound::Unbounded) => Goal::Last,
            (Direction::Forward, Bound::Included(key) | Bound::Excluded(key)) => Goal::At(key),
            (Direction::Reverse, Bound::Included(key)) => Goal::UpTo(key),
            (Direction::Reverse, Bound::Excluded(key)) => Goal::Below(key),
        };
        let leaf = &mut self.leaf;
        leaf.clear();
        let lsn = self.tree.copy_leaf(guard, goal, batch.direction, leaf)?;
        expect_ascending(&leaf.entries, leaf.offset)?;
        batch.rests_on(lsn);
        if batch.direction == Direction::Reverse {
            leaf.entries.reverse();
        }
        let is_before = |words: &EntryWords| batch.side_of(words[0]) == Some(Ordering::Less);
        let first = leaf.entries.partition_point(is_before);
        let tied = batch.count_before::<M, C>(guard, &leaf.entries[first..], T::HASH_BITS);
        // If a record cannot be read, the scan comes to it, and returns the error at its place.
        Ok(first + tied.unwrap_or(0))
    }
}

impl<T: Leaves<M, C>, M: Medium, C: Codec> Batches for LeafBatches<'_, T, M, C> {
    fn read(&mut self, batch: &mut ScanBatch) -> Result<()> {
        let guard = self.tree.pool().pin();
        let first = match self.go_on_in_leaf(&guard) {
            Some(next_entry) => next_entry,
            None => self.copy_leaf(&guard, batch)?,
        };
        let leaf = &mut self.leaf;
        let entries = &leaf.entries[first..];
        let records = RecordsAhead::<C>::new(&entries[..entries.len().min(batch.room())]);
        for (position, words) in entries.iter().enumerate() {
            records.prefetch_before(&guard, position);
            if batch.push_entry::<M, C>(&guard, *words, T::HASH_BITS) {
                continue;
            }
            // The batch is full, or the range ends.
            batch.go_on_behind_last();
            self.next_entry = Some(first + position + 1);
            return Ok(());
        }
        let Some(end) = leaf.end.take() else {
            batch.finish();
            return Ok(());
        };
        let goes_on = match (batch.from(), batch.direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(from) | Bound::Excluded(from), Direction::Forward) => end > *from,
            (Bound::Included(from), Direction::Reverse) => end <= *from,
            (Bound::Excluded(from), Direction::Reverse) => end < *from,
        };
        if !goes_on {
            return Err(Error::corrupt(leaf.offset, "separators out of order"));
        }
        batch.go_on_from(match batch.direction {
            Direction::Forward => Bound::Included(end),
            Direction::Reverse => Bound::Excluded(end),
        });
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
