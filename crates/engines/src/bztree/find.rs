//! Descents and point reads. Readers see through operations that are under way, and never wait.

use std::cmp::Ordering as Compare;

use medium::{Lsn, Medium, Word, kernels};
use pool::Guard;
use smallvec::SmallVec;

use super::BzTree;
use super::layout::{
    Anchor, ENTRIES_MAX, EntryState, INNER_HEADER, INNER_STATUS, Inner, InnerHeader, KEY,
    LEAF_STATUS, Leaf, LeafStatus, META, Meta, PAYLOAD, Pointer,
};
use crate::index::{Codec, EntryWords, Observed};
use crate::kit::bits;
use crate::kit::scan::WordBounds;
use crate::pmwcas::{Seen, VALUE_MASK};
use crate::{Error, Result};

/// Keys that descend together.
const GROUP: usize = 16;

/// Inner nodes have levels below this. No pool has room for more: a split or a load makes an inner
/// node, of a KiB, only for two or more nodes below it.
pub(super) const LEVELS_MAX: usize = 64;

const _: () = assert!(1_u128 << (LEVELS_MAX - 2 + 10) > 1 << 48);

/// An inner node on a path, and the child that the path goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) offset: u64,
    pub(super) position: usize,
}

/// The inner nodes from the root to a leaf.
pub(super) type Path = SmallVec<[Step; 8]>;

/// The inner nodes of a path whose checks were found to hold.
pub(super) type VerifiedNodes = SmallVec<[u64; 8]>;

/// Where a descent goes.
pub(super) enum DescentGoal<'k, K> {
    /// To the leaf that covers a key.
    Key(K),
    /// To the first leaf.
    First,
    /// To the leaf that covers the keys next below these bytes; if the flag is set, to the one that
    /// covers the bytes themselves.
    Below(&'k [u8], bool),
    /// To the last leaf.
    Last,
}

/// A separator: no key right of it is below it. With tail 0 it is the smallest key that has this
/// word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Separator {
    pub(super) word: u64,
    pub(super) tail: u64,
}

/// An entry that is visible.
#[derive(Clone, Copy, Debug)]
pub(super) struct VisibleEntry {
    pub(super) entry: usize,
    pub(super) meta: Meta,
    pub(super) payload: u64,
    pub(super) words: EntryWords,
}

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// The word that leads to the root.
    #[inline(always)]
    pub(super) fn root<'g>(&self, guard: &'g Guard<'_, M>) -> Result<&'g Word> {
        Ok(&guard.node::<Anchor>(self.anchor)?.root)
    }

    #[inline(always)]
    pub(super) fn leaf<'g>(guard: &'g Guard<'_, M>, offset: u64) -> Result<Leaf<'g>> {
        Leaf::at(guard, offset)
    }

    #[inline(always)]
    pub(super) fn inner<'g>(guard: &'g Guard<'_, M>, offset: u64) -> Result<&'g Inner> {
        Ok(guard.node::<Inner>(offset)?)
    }

    /// The tails of an inner node, for codecs whose keys can tie.
    pub(super) fn tails<'g>(guard: &'g Guard<'_, M>, inner: &Inner) -> Result<&'g [Word]> {
        let offset = guard.offset_of(inner) + size_of::<Inner>() as u64;
        Ok(guard.words(offset, if C::TIES { INNER_HEADER } else { 0 })?)
    }

    /// A leaf's status.
    #[inline(always)]
    pub(super) fn leaf_status(&self, guard: &Guard<'_, M>, leaf: Leaf<'_>) -> Result<LeafStatus> {
        let raw = self.pmwcas.read(guard, &leaf.head[LEAF_STATUS])?;
        LeafStatus(raw & VALUE_MASK).validated(leaf.offset)
    }

    /// A leaf's status, for a caller that is about to change the leaf: helps an operation that is
    /// under way there.
    #[inline(always)]
    pub(super) fn leaf_status_helping(
        &self,
        guard: &Guard<'_, M>,
        leaf: Leaf<'_>,
    ) -> Result<LeafStatus> {
        let raw = self.pmwcas.read_helping(guard, &leaf.head[LEAF_STATUS])?;
        LeafStatus(raw & VALUE_MASK).validated(leaf.offset)
    }

    /// An inner node's status.
    pub(super) fn inner_status(&self, guard: &Guard<'_, M>, inner: &Inner) -> Result<u64> {
        Ok(self.pmwcas.read(guard, &inner.keys[INNER_STATUS])? & VALUE_MASK)
    }

    #[inline(always)]
    pub(super) fn header(guard: &Guard<'_, M>, inner: &Inner) -> InnerHeader {
        InnerHeader(inner.keys[INNER_HEADER].load(guard))
    }

    pub(super) fn separator(
        guard: &Guard<'_, M>,
        inner: &Inner,
        position: usize,
    ) -> Result<Separator> {
        let word = inner.keys[position].load(guard);
        let tail = Self::tails(guard, inner)?
            .get(position)
            .map_or(0, |tail| tail.load(guard));
        Ok(Separator { word, tail })
    }

    /// Appends a separator as a key.
    pub(super) fn copy_separator(
        guard: &Guard<'_, M>,
        separator: Separator,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        if separator.tail != 0 {
            return C::copy_key(guard, [separator.word, separator.tail], buffer);
        }
        let bytes = separator.word.to_be_bytes();
        let end = if C::TIES {
            bytes
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |last| last + 1)
        } else {
            8
        };
        buffer.extend_from_slice(&bytes[..end]);
        Ok(())
    }

    /// How many of the first `count` words are at most `word`.
    #[inline(always)]
    fn rank_words(guard: &Guard<'_, M>, inner: &Inner, count: usize, word: u64) -> usize {
        let Some(lower) = inner.keys.first_chunk() else {
            return 0;
        };
        let Some(upper) = inner.keys.last_chunk() else {
            return 0;
        };
        if count > 32 && inner.keys[31].load(guard) <= word {
            return 32 + guard.medium().rank_le(Word::run(upper), count - 32, word);
        }
        guard
            .medium()
            .rank_le(Word::run(lower), count.min(32), word)
    }

    /// The position of the child that covers `key`.
    #[inline(always)]
    fn rank(guard: &Guard<'_, M>, inner: &Inner, count: usize, key: C::Key<'_>) -> Result<usize> {
        let word = C::word(key);
        let mut high = Self::rank_words(guard, inner, count, word);
        if !C::TIES {
            return Ok(high);
        }
        let mut low = if word == 0 {
            0
        } else {
            Self::rank_words(guard, inner, count, word - 1)
        };
        let tails = Self::tails(guard, inner)?;
        while low < high {
            let middle = usize::midpoint(low, high);
            let tail = tails[middle].load(guard);
            // With tail 0 the separator is the smallest key that has its word.
            if tail == 0 || C::compare_tie(guard, key, [word, tail])? != Compare::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The position of the child that covers the keys next below `key`, and `key` itself if it is
    /// `included`.
    fn rank_below(
        guard: &Guard<'_, M>,
        inner: &Inner,
        count: usize,
        key: &[u8],
        included: bool,
    ) -> Result<usize> {
        let mut low = 0;
        let mut high = count;
        let mut bytes = Vec::new();
        while low < high {
            let middle = usize::midpoint(low, high);
            bytes.clear();
            Self::copy_separator(guard, Self::separator(guard, inner, middle)?, &mut bytes)?;
            if bytes.as_slice() < key || included && bytes == key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The position of a child of an inner node.
    #[inline(always)]
    fn position(
        guard: &Guard<'_, M>,
        inner: &Inner,
        count: usize,
        goal: &DescentGoal<'_, C::Key<'_>>,
    ) -> Result<usize> {
        match goal {
            DescentGoal::Key(key) => Self::rank(guard, inner, count, *key),
            DescentGoal::First => Ok(0),
            DescentGoal::Below(key, included) => {
                Self::rank_below(guard, inner, count, key, *included)
            }
            DescentGoal::Last => Ok(count),
        }
    }

    /// Goes down to a leaf; calls `note` with each inner node on the way.
    #[inline(always)]
    fn go_down(
        &self,
        guard: &Guard<'_, M>,
        goal: &DescentGoal<'_, C::Key<'_>>,
        seen: &mut Seen,
        mut note: impl FnMut(Step),
    ) -> Result<u64> {
        let mut pointer = Pointer(self.pmwcas.observe(guard, self.root(guard)?, seen)?);
        let mut level = if pointer.is_leaf() { 1 } else { LEVELS_MAX };
        Self::expect_kind(pointer, level)?;
        while !pointer.is_leaf() {
            let inner = Self::inner(guard, pointer.offset())?;
            let header = Self::header(guard, inner);
            // Levels fall by one, so a descent ends whatever is damaged.
            level = Self::next_level(header, level, pointer)?;
            let position = Self::position(guard, inner, header.separators(), goal)?;
            note(Step {
                offset: pointer.offset(),
                position,
            });
            pointer = Pointer(
                self.pmwcas
                    .observe(guard, &inner.children[position], seen)?,
            );
            Self::expect_kind(pointer, level)?;
            Self::prefetch(guard, pointer);
        }
        Ok(pointer.offset())
    }

    /// The level of a node below one of `level`, or the root's.
    #[inline(always)]
    pub(super) fn next_level(header: InnerHeader, level: usize, pointer: Pointer) -> Result<usize> {
        let found = header.level();
        if found == 0 || found >= level || level != LEVELS_MAX && found != level - 1 {
            return Err(Error::corrupt(
                pointer.offset(),
                "an inner node of the wrong level",
            ));
        }
        Ok(found)
    }

    #[inline(always)]
    pub(super) fn expect_kind(pointer: Pointer, level: usize) -> Result<()> {
        if !pointer.is_sound() {
            return Err(Error::corrupt(
                pointer.offset(),
                "a pointer that fails its check leads there",
            ));
        }
        if pointer.is_leaf() != (level == 1) {
            return Err(Error::corrupt(
                pointer.offset(),
                "a node on the wrong level",
            ));
        }
        Ok(())
    }

    /// Prefetches the lines that a search reads first.
    #[inline(always)]
    fn prefetch(guard: &Guard<'_, M>, pointer: Pointer) {
        if pointer.is_leaf() {
            if let Ok(leaf) = Self::leaf(guard, pointer.offset()) {
                kernels::prefetch_read(leaf.head);
            }
        } else if let Ok(inner) = Self::inner(guard, pointer.offset()) {
            kernels::prefetch_lines(&inner.keys);
        }
    }

    /// The leaf that covers `key`. O(log n).
    #[inline(always)]
    pub(super) fn descend(
        &self,
        guard: &Guard<'_, M>,
        key: C::Key<'_>,
        seen: &mut Seen,
    ) -> Result<u64> {
        self.go_down(guard, &DescentGoal::Key(key), seen, |_| {})
    }

    /// The leaf of a goal, and the way there.
    pub(super) fn descend_path(
        &self,
        guard: &Guard<'_, M>,
        goal: &DescentGoal<'_, C::Key<'_>>,
        seen: &mut Seen,
    ) -> Result<(Path, u64)> {
        let mut path = Path::new();
        let leaf = self.go_down(guard, goal, seen, |step| path.push(step))?;
        Ok((path, leaf))
    }

    /// An entry's metadata and payload as they were at one moment; `None` unless it is visible.
    #[inline(always)]
    pub(super) fn read_entry(
        &self,
        guard: &Guard<'_, M>,
        leaf: Leaf<'_>,
        entry: usize,
        seen: &mut Seen,
    ) -> Result<Option<VisibleEntry>> {
        self.read_cells(guard, leaf.entry(guard, entry)?, entry, seen)
    }

    /// Does the same as `read_entry`, for the cells of an entry.
    #[inline(always)]
    pub(super) fn read_cells(
        &self,
        guard: &Guard<'_, M>,
        cells: &[Word; 3],
        entry: usize,
        seen: &mut Seen,
    ) -> Result<Option<VisibleEntry>> {
        loop {
            let meta = Meta(self.pmwcas.observe(guard, &cells[META], seen)?);
            if meta.state() != EntryState::Visible {
                return Ok(None);
            }
            let payload = self.pmwcas.observe(guard, &cells[PAYLOAD], seen)?;
            // Each update raises the version in the metadata: if it is unchanged, the payload
            // belongs to it.
            if self.pmwcas.read(guard, &cells[META])? & VALUE_MASK != meta.0 {
                continue;
            }
            let words = [cells[KEY].load(guard), Self::join(meta, payload)];
            return Ok(Some(VisibleEntry {
                entry,
                meta,
                payload,
                words,
            }));
        }
    }

    /// A value, from its two parts.
    #[inline(always)]
    fn join(meta: Meta, payload: u64) -> u64 {
        if C::TIES {
            payload
        } else {
            payload | meta.high() << 61
        }
    }

    /// The two parts of a value: the payload, and the bits for the metadata. A record's hash is
    /// left out: the fingerprint stands for it.
    #[inline(always)]
    pub(super) fn part(value: u64) -> (u64, u64) {
        if C::TIES {
            (value & ((1 << 48) - 1), 0)
        } else {
            (value & VALUE_MASK, value >> 61)
        }
    }

    /// The byte by which a key's entry is found in its leaf. 0 is kept for entries that hold no
    /// key.
    #[inline(always)]
    pub(super) fn fingerprint(key: C::Key<'_>) -> u8 {
        Self::fingerprint_of(C::hash(key))
    }

    /// The fingerprint of a key with this hash.
    #[inline(always)]
    fn fingerprint_of(hash: u16) -> u8 {
        (hash as u8).max(1)
    }

    /// The entries of a leaf that have a key's fingerprint, one bit each.
    #[inline(always)]
    fn matches(guard: &Guard<'_, M>, leaf: Leaf<'_>, key: C::Key<'_>) -> u64 {
        guard
            .medium()
            .match_byte(Word::run(leaf.head), Self::fingerprint(key))
            & ((1 << ENTRIES_MAX) - 1)
    }

    /// Refuses an inner node whose separators fail their check. They never change, so this holds at
    /// any time, for a node that was replaced, too. O(separators).
    pub(super) fn expect_separators(guard: &Guard<'_, M>, inner: &Inner) -> Result<()> {
        let header = Self::header(guard, inner);
        if !header.has_check() {
            return Ok(());
        }
        let count = header.separators();
        let tails = Self::tails(guard, inner)?;
        let words = inner.keys[..count].iter().map(|word| word.load(guard));
        let tails = tails.iter().take(count).map(|tail| tail.load(guard));
        if header.with_check(words, tails) == header {
            return Ok(());
        }
        Err(Error::corrupt(
            guard.offset_of(inner),
            "the separators of an inner node fail their check",
        ))
    }

    /// Refuses the way to a leaf if damage may have led there: each inner node must pass its check,
    /// must lie within the range of the one above, and the keys of the separators beside the child
    /// must be sound. The leaf's first entry must lie within the leaf's range.
    ///
    /// The way may be one that another thread has changed since: a node's separators and its range
    /// never change, and each child that it ever had covers the same keys.
    ///
    /// Nodes that `verified` names passed their checks a moment ago. Afterwards it names those of
    /// this path.
    pub(super) fn expect_way(
        &self,
        guard: &Guard<'_, M>,
        path: &[Step],
        leaf: u64,
        verified: &mut VerifiedNodes,
    ) -> Result<()> {
        let range = Self::expect_path(guard, path, verified)?;
        let leaf = Self::leaf(guard, leaf)?;
        if self.leaf_status(guard, leaf)?.count() == 0 {
            return Ok(());
        }
        match self.read_entry(guard, leaf, 0, &mut Seen::default())? {
            Some(first) => range.expect(leaf.offset, first.words[0]),
            None => Ok(()),
        }
    }

    /// Does the same as [`BzTree::expect_way`], for the inner nodes. Returns the first words of the
    /// keys that the leaf at the end of the path can have.
    pub(super) fn expect_path(
        guard: &Guard<'_, M>,
        path: &[Step],
        verified: &mut VerifiedNodes,
    ) -> Result<WordBounds> {
        let mut range = WordBounds::default();
        for (depth, step) in path.iter().enumerate() {
            let inner = Self::inner(guard, step.offset)?;
            if verified.get(depth) != Some(&step.offset) {
                Self::expect_separators(guard, inner)?;
            }
            let count = Self::header(guard, inner).separators();
            let separators = &inner.keys[..count];
            for end in separators.first().into_iter().chain(separators.last()) {
                range.expect(step.offset, end.load(guard))?;
            }
            let below = step.position.checked_sub(1);
            let above = Some(step.position).filter(|position| *position < count);
            if let Some(position) = below {
                range.low = Some(Self::sound_separator(guard, inner, position)?.word);
            }
            if let Some(position) = above {
                range.high = Some(Self::sound_separator(guard, inner, position)?.word);
            }
        }
        verified.clear();
        verified.extend(path.iter().map(|step| step.offset));
        Ok(range)
    }

    /// A separator whose key is sound.
    fn sound_separator(guard: &Guard<'_, M>, inner: &Inner, position: usize) -> Result<Separator> {
        let separator = Self::separator(guard, inner, position)?;
        if separator.tail != 0 {
            C::expect_key(guard, [separator.word, separator.tail])?;
        }
        Ok(separator)
    }

    /// Searches once more for a key that is not in the leaf at `offset`, by a way that is verified.
    /// Only if the leaf is the right one the key is absent.
    #[inline(never)]
    pub(super) fn look_again(
        &self,
        guard: &Guard<'_, M>,
        offset: u64,
        key: C::Key<'_>,
        seen: &mut Seen,
    ) -> Result<Option<VisibleEntry>> {
        let mut searched = offset;
        loop {
            let (path, leaf) = self.descend_path(guard, &DescentGoal::Key(key), seen)?;
            self.expect_way(guard, &path, leaf, &mut VerifiedNodes::new())?;
            if leaf == searched {
                return Ok(None);
            }
            // The leaf was replaced in between.
            let found = self.look(guard, Self::leaf(guard, leaf)?, key, seen)?;
            if found.is_some() {
                return Ok(found);
            }
            searched = leaf;
        }
    }

    /// Whether a key is absent that was not found in the leaf at `offset`; in a pool that verifies
    /// reads.
    pub(super) fn is_absent(
        &self,
        guard: &Guard<'_, M>,
        offset: u64,
        key: C::Key<'_>,
        seen: &mut Seen,
    ) -> Result<bool> {
        Ok(!guard.verifies() || self.look_again(guard, offset, key, seen)?.is_none())
    }

    /// Searches a leaf for `key`.
    ///
    /// The linearisation point is the load of the entry's metadata, or, where there is none, of the
    /// fingerprints; in a leaf that was replaced meanwhile it is the moment before the replacement:
    /// the leaf has not changed since.
    #[inline(always)]
    pub(super) fn look(
        &self,
        guard: &Guard<'_, M>,
        leaf: Leaf<'_>,
        key: C::Key<'_>,
        seen: &mut Seen,
    ) -> Result<Option<VisibleEntry>> {
        // The entry has no hash: the leaf has a part of it.
        let fits = |found: EntryWords| {
            found[0] == C::word(key)
                && Self::fingerprint_of(C::hash_of(found)) == Self::fingerprint(key)
        };
        for entry in bits(Self::matches(guard, leaf, key)) {
            if let Some(found) = self.read_entry(guard, leaf, entry, seen)?
                && found.words[0] == C::word(key)
                && C::is_key(guard, key, found.words, fits)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Calls `use_entry` with the entry of `key`. O(log n).
    #[inline(always)]
    pub(super) fn find<R>(
        &self,
        key: C::Key<'_>,
        use_entry: impl FnOnce(&Guard<'_, M>, EntryWords) -> Result<R>,
    ) -> Result<Observed<Option<R>>> {
        let guard = self.pool.pin();
        let mut seen = Seen::default();
        let leaf = self.descend(&guard, key, &mut seen)?;
        let mut found = self.look(&guard, Self::leaf(&guard, leaf)?, key, &mut seen)?;
        if found.is_none() && guard.verifies() {
            found = self.look_again(&guard, leaf, key, &mut seen)?;
        }
        let lsn = guard.left_to_caller(seen.lsn());
        let value = match found {
            Some(found) => Some(use_entry(&guard, found.words)?),
            None => None,
        };
        Ok(Observed { value, lsn })
    }

    /// Does the same as [`BzTree::find`] for many keys, whose cache misses overlap: all descend
    /// together, level by level. Returns the LSN at which everything that was read is durable.
    pub(super) fn find_many(
        &self,
        keys: &[C::Key<'_>],
        mut use_entry: impl FnMut(&Guard<'_, M>, usize, Option<EntryWords>) -> Result<()>,
    ) -> Result<Lsn> {
        let mut lsn = Lsn::DURABLE;
        for (group, keys) in keys.chunks(GROUP).enumerate() {
            let guard = self.pool.pin();
            let mut seen = Seen::default();
            let root = self.pmwcas.observe(&guard, self.root(&guard)?, &mut seen)?;
            let mut pointers = [Pointer(root); GROUP];
            let pointers = &mut pointers[..keys.len()];
            let mut level = LEVELS_MAX;
            while let Some(first) = pointers.first().filter(|pointer| !pointer.is_leaf()) {
                let header = Self::header(&guard, Self::inner(&guard, first.offset())?);
                level = Self::next_level(header, level, *first)?;
                for (pointer, key) in pointers.iter_mut().zip(keys) {
                    let inner = Self::inner(&guard, pointer.offset())?;
                    let position = Self::rank(
                        &guard,
                        inner,
                        Self::header(&guard, inner).separators(),
                        *key,
                    )?;
                    *pointer = Pointer(self.pmwcas.observe(
                        &guard,
                        &inner.children[position],
                        &mut seen,
                    )?);
                    Self::expect_kind(*pointer, level)?;
                    Self::prefetch(&guard, *pointer);
                }
            }
            for (pointer, key) in pointers.iter().zip(keys) {
                let leaf = Self::leaf(&guard, pointer.offset())?;
                let entry = Self::matches(&guard, leaf, *key).trailing_zeros() as usize;
                if entry < ENTRIES_MAX
                    && let Ok(cells) = leaf.entry(&guard, entry)
                {
                    kernels::prefetch_read(cells);
                }
            }
            for (position, (pointer, key)) in pointers.iter().zip(keys).enumerate() {
                let leaf = Self::leaf(&guard, pointer.offset())?;
                let mut found = self.look(&guard, leaf, *key, &mut seen)?;
                if found.is_none() && guard.verifies() {
                    found = self.look_again(&guard, leaf.offset, *key, &mut seen)?;
                }
                use_entry(
                    &guard,
                    group * GROUP + position,
                    found.map(|found| found.words),
                )?;
            }
            lsn = lsn.max(guard.left_to_caller(seen.lsn()));
        }
        Ok(lsn)
    }

    /// The separator above a leaf, if there is one: the lowest on its path.
    pub(super) fn upper_bound(guard: &Guard<'_, M>, path: &[Step]) -> Result<Option<Separator>> {
        for step in path.iter().rev() {
            let inner = Self::inner(guard, step.offset)?;
            if step.position < Self::header(guard, inner).separators() {
                return Self::separator(guard, inner, step.position).map(Some);
            }
        }
        Ok(None)
    }

    /// The separator below a leaf, if there is one.
    pub(super) fn lower_bound(guard: &Guard<'_, M>, path: &[Step]) -> Result<Option<Separator>> {
        let Some(step) = path.iter().rev().find(|step| step.position > 0) else {
            return Ok(None);
        };
        Self::separator(guard, Self::inner(guard, step.offset)?, step.position - 1).map(Some)
    }

    /// How the keys of two entries compare.
    pub(super) fn compare_entries(
        guard: &Guard<'_, M>,
        one: EntryWords,
        other: EntryWords,
    ) -> Result<Compare> {
        if !C::TIES || one[0] != other[0] {
            return Ok(one[0].cmp(&other[0]));
        }
        C::compare_tied(guard, one, other)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
