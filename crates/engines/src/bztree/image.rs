//! New nodes: their content, their space, and how they are installed in the tree.

use medium::Medium;
use medium::sync::{AtomicU64, Ordering};
use pool::Guard;
use smallvec::SmallVec;

use super::BzTree;
use super::find::{LEVELS_MAX, Separator, Step};
use super::layout::{
    INNER_HEADER, INNER_STATUS, Inner, InnerHeader, KEY, LEAF_STATUS, Leaf, LeafStatus, META, Meta,
    PAYLOAD, Pointer, inner_bytes, leaf_bytes, with_child_swapped,
};
use super::runs::{self, EntryRun};
use crate::index::{Codec, EntryWords};
use crate::kit::scan::expect_ascending;
use crate::kit::shared_prefix::count_shared;
use crate::pmwcas::{BadTarget, Commit, Descriptor, Recycling, Seen, VALUE_MASK};
use crate::{Error, Result};

/// An entry on its way from one leaf to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopiedEntry {
    pub(super) words: EntryWords,
    fingerprint: u8,
}

/// The entries of a frozen leaf, or of two.
pub(super) type Copies = EntryRun<CopiedEntry>;

/// The content of an inner node.
#[derive(Clone, Debug)]
pub(super) struct InnerImage {
    pub(super) level: usize,
    pub(super) separators: Vec<Separator>,
    pub(super) children: Vec<Pointer>,
}

impl InnerImage {
    /// The header of a node with this content, in a tree whose separators have tails or do not.
    pub(super) fn header(&self, has_tails: bool) -> InnerHeader {
        let count = self.separators.len();
        let words = self.separators.iter().map(|separator| separator.word);
        let tails = self.separators.iter().map(|separator| separator.tail);
        let tails = tails.take(if has_tails { count } else { 0 });
        InnerHeader::new(self.level, count).with_check(words, tails)
    }

    /// Splits off the upper half; returns the separator between the halves, which neither keeps.
    pub(super) fn split(&mut self) -> Result<(Separator, Self)> {
        let middle = self.separators.len() / 2;
        let upper = Self {
            level: self.level,
            separators: self.separators.split_off(middle + 1),
            children: self.children.split_off(middle + 1),
        };
        let between = self
            .separators
            .pop()
            .ok_or_else(|| Error::corrupt(0, "an inner node without children"))?;
        Ok((between, upper))
    }
}

/// Space kept for a pool that is full, so that merges, and consolidations that reclaim dead
/// entries, still succeed. They retire more than they take. 0 where there is none.
#[derive(Debug, Default)]
pub(super) struct Spares {
    leaf: AtomicU64,
    inner: AtomicU64,
}

/// Takes a spare, if there is one.
fn take(spare: &AtomicU64) -> Option<u64> {
    Some(spare.swap(0, Ordering::AcqRel)).filter(|offset| *offset != 0)
}

/// The error for words of a structural change that one operation cannot name together: a node is in
/// the tree twice.
fn damage(bad: BadTarget) -> Error {
    let offset = if let BadTarget::Twice(offset) = bad {
        offset
    } else {
        0
    };
    Error::corrupt(offset, bad.to_string())
}

/// Space for a leaf, and how many entries that has room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafSpace {
    pub(super) offset: u64,
    pub(super) capacity: usize,
}

/// Space that no thread can reach yet: freed on drop unless it is kept.
pub(super) struct NewNodes<'g, 'p, M: Medium> {
    guard: &'g Guard<'p, M>,
    offsets: SmallVec<[u64; 4]>,
}

impl<'g, 'p, M: Medium> NewNodes<'g, 'p, M> {
    pub(super) fn new(guard: &'g Guard<'p, M>) -> Self {
        Self {
            guard,
            offsets: SmallVec::new(),
        }
    }

    /// Owns an allocation.
    pub(super) fn own(&mut self, offset: u64) -> u64 {
        self.offsets.push(offset);
        offset
    }

    /// Space for a node.
    pub(super) fn allocate(&mut self, bytes: usize) -> Result<u64> {
        Ok(self.own(self.guard.allocate_lines(bytes)?))
    }

    /// Hands over the ownership of one allocation.
    pub(super) fn release(&mut self, offset: u64) {
        self.offsets.retain(|mine| *mine != offset);
    }

    /// All of them are reachable now: none is freed on drop.
    pub(super) fn keep(mut self) {
        self.offsets.clear();
    }
}

impl<M: Medium> Drop for NewNodes<'_, '_, M> {
    fn drop(&mut self) {
        self.offsets
            .drain(..)
            .for_each(|offset| self.guard.free(offset));
    }
}

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// Space for a leaf of this many entries. If the pool is full, space of any other size in which
    /// more than `least` fit: freed leaves serve only leaves of the same size, until a slab is
    /// empty.
    pub(super) fn allocate_room(
        &self,
        new: &mut NewNodes<'_, '_, M>,
        entries: usize,
        least: usize,
    ) -> Result<LeafSpace> {
        let mut place = |capacity: usize| {
            new.allocate(leaf_bytes(capacity))
                .map(|offset| LeafSpace { offset, capacity })
        };
        let wanted = self.rooms.room(entries);
        place(wanted).or_else(|error| {
            if !error.is_full() {
                return Err(error);
            }
            let mut others = self.rooms.from(least + 1).filter(|room| *room != wanted);
            others.find_map(|room| place(room).ok()).ok_or(error)
        })
    }

    /// Space for a leaf that replaces one or two others, with room for their entries and some free
    /// ones ([`BzTree::allocate_room`]). If the pool is full and `spared` is set, takes a spare:
    /// the replaced leaves give space back.
    pub(super) fn allocate_leaf(
        &self,
        new: &mut NewNodes<'_, '_, M>,
        entries: usize,
        spared: bool,
    ) -> Result<LeafSpace> {
        self.allocate_room(new, entries + self.sizes.free_entries, entries)
            .or_else(|error| {
                let spare = if spared {
                    take(&self.spares.leaf)
                } else {
                    None
                };
                let offset = new.own(spare.ok_or(error)?);
                Ok(LeafSpace {
                    offset,
                    capacity: self.sizes.leaf_entries,
                })
            })
    }

    /// Space for an inner node with fewer children than the one it replaces; a spare if the pool is
    /// full.
    pub(super) fn allocate_inner(&self, new: &mut NewNodes<'_, '_, M>) -> Result<u64> {
        let allocated = new.allocate(Self::INNER_BYTES);
        allocated.or_else(|error| {
            take(&self.spares.inner)
                .map(|spare| new.own(spare))
                .ok_or(error)
        })
    }

    /// Allocates missing spares, if the pool has room.
    pub(super) fn refill_spares(&self, guard: &Guard<'_, M>) {
        let Spares { leaf, inner } = &self.spares;
        for (spare, bytes) in [
            (leaf, leaf_bytes(self.sizes.leaf_entries)),
            (inner, Self::INNER_BYTES),
        ] {
            if spare.load(Ordering::Relaxed) == 0
                && let Ok(offset) = guard.allocate_lines(bytes)
                && spare
                    .compare_exchange(0, offset, Ordering::AcqRel, Ordering::Relaxed)
                    .is_err()
            {
                guard.free(offset);
            }
        }
    }

    /// Gives the spares back.
    pub(super) fn free_spares(&self, guard: &Guard<'_, M>) {
        let Spares { leaf, inner } = &self.spares;
        [leaf, inner]
            .into_iter()
            .filter_map(take)
            .for_each(|offset| guard.free(offset));
    }

    /// How many spares there are.
    pub(super) fn count_spares(&self) -> u64 {
        let Spares { leaf, inner } = &self.spares;
        [leaf, inner]
            .into_iter()
            .filter(|spare| spare.load(Ordering::Acquire) != 0)
            .count() as u64
    }

    /// Bytes of an inner node.
    pub(super) const INNER_BYTES: usize = inner_bytes(C::TIES);

    /// Freezes a leaf: it does not change any more, unless it is thawed. Not flushed: if a crash
    /// thaws it, it is an ordinary leaf, because its replacement becomes reachable only by an
    /// operation that makes the freeze durable. Returns the status.
    pub(super) fn freeze(&self, guard: &Guard<'_, M>, leaf: Leaf<'_>) -> Result<LeafStatus> {
        let cell = &leaf.head[LEAF_STATUS];
        loop {
            let raw = self.pmwcas.read_helping(guard, cell)?;
            let status = LeafStatus(raw & VALUE_MASK).validated(leaf.offset)?;
            if status.is_frozen() {
                return Ok(status);
            }
            let frozen = status.frozen();
            if cell.compare_exchange(guard, raw, frozen.0).is_ok() {
                return Ok(frozen);
            }
        }
    }

    /// Thaws the leaf at `offset` if it is frozen and still covers `key`: a leaf that cannot be
    /// replaced stays in use. Threads that are about to replace it fail. Returns the status, which
    /// is still frozen if the leaf was replaced.
    pub(super) fn thaw(
        &self,
        guard: &Guard<'_, M>,
        key: C::Key<'_>,
        offset: u64,
    ) -> Result<LeafStatus> {
        let leaf = Self::leaf(guard, offset)?;
        let cell = &leaf.head[LEAF_STATUS];
        let raw = self.pmwcas.read_helping(guard, cell)?;
        let status = LeafStatus(raw & VALUE_MASK).validated(offset)?;
        // The operation that replaces a leaf freezes it once more. So if the leaf is in the tree
        // after `status` was read, it has not been replaced as long as it has this status.
        if status.is_frozen()
            && self.descend(guard, key, &mut Seen::default())? == offset
            && cell.compare_exchange(guard, raw, status.thawed().0).is_ok()
        {
            return Ok(status.thawed());
        }
        Ok(status)
    }

    /// Adds the word that freezes a frozen leaf for good as it is replaced. The operation fails if
    /// the leaf was thawed since its `status` was read; once it has succeeded, the leaf can no
    /// longer be thawed.
    pub(super) fn bury_leaf<'g>(
        guard: &'g Guard<'_, M>,
        swap: &mut Descriptor<'g>,
        leaf: Leaf<'g>,
        status: LeafStatus,
    ) -> Result<()> {
        swap.add_word(guard, &leaf.head[LEAF_STATUS], status.0, status.frozen().0)
            .map_err(damage)?;
        Ok(())
    }

    /// Appends the visible entries of a leaf that was frozen with `status`, in the order of their
    /// keys. The order is that of the copy for good, so it must not rest on a damaged key.
    pub(super) fn gather(
        &self,
        guard: &Guard<'_, M>,
        leaf: Leaf<'_>,
        status: LeafStatus,
        copies: &mut Copies,
    ) -> Result<()> {
        let start = copies.len();
        let mut sorted = 0;
        for (entry, cells) in leaf.entries(guard, status.count())?.iter().enumerate() {
            if let Some(found) = self.read_cells(guard, cells, entry, &mut Seen::default())? {
                copies.push(CopiedEntry {
                    words: found.words,
                    fingerprint: leaf.fingerprint(guard, entry),
                });
            }
            if entry + 1 == status.sorted() {
                sorted = copies.len() - start;
            }
        }
        let words = copies[start..].iter().map(|copied| copied.words);
        Self::prefetch_compared(guard, words, sorted);
        let order = runs::sort(&mut copies[start..], sorted, |one, other| {
            Self::compare_entries(guard, one.words, other.words)
        })?;
        let entries: EntryRun<EntryWords> =
            copies[start..].iter().map(|copied| copied.words).collect();
        expect_ascending(&entries, leaf.offset)?;
        Self::expect_keys_beside(guard, &entries, order.late)
    }

    /// Writes and flushes a leaf that no thread can reach yet.
    pub(super) fn write_leaf(
        guard: &Guard<'_, M>,
        place: LeafSpace,
        copies: &[CopiedEntry],
    ) -> Result<()> {
        let LeafSpace { offset, capacity } = place;
        if copies.len() > capacity {
            return Err(Error::corrupt(offset, "a leaf that does not fit"));
        }
        let leaf = Self::leaf(guard, offset)?;
        let entries = leaf.entries(guard, capacity)?;
        let mut head = [0; 8];
        for (entry, copied) in copies.iter().enumerate() {
            head[entry / 8] |= u64::from(copied.fingerprint) << (8 * (entry % 8));
        }
        head[LEAF_STATUS] = LeafStatus::of_sorted(copies.len(), capacity).0;
        for (cell, word) in leaf.head.iter().zip(head) {
            cell.store(guard, word);
        }
        for (cells, copied) in entries.iter().zip(copies) {
            let (payload, high) = Self::part(copied.words[1]);
            cells[META].store(guard, Meta::visible(high, 0).0);
            cells[KEY].store(guard, copied.words[0]);
            cells[PAYLOAD].store(guard, payload);
        }
        for cells in &entries[copies.len()..] {
            // Readers of a free entry read only its metadata.
            cells[META].store(guard, Meta::EMPTY.0);
        }
        guard.flush_words(guard.words(offset, leaf_bytes(capacity) / 8)?);
        Ok(())
    }

    /// An entry that comes from elsewhere.
    pub(super) fn copied(words: EntryWords, key: C::Key<'_>) -> CopiedEntry {
        CopiedEntry {
            words,
            fingerprint: Self::fingerprint(key),
        }
    }

    /// The content of an inner node and the status it had before; `None` if it is frozen: it was
    /// replaced.
    ///
    /// # Errors
    /// The node fails its check: a copy would have a valid one.
    pub(super) fn image(
        &self,
        guard: &Guard<'_, M>,
        offset: u64,
    ) -> Result<Option<(u64, InnerImage)>> {
        let inner = Self::inner(guard, offset)?;
        // The status is read first: a child that is swapped meanwhile changes it.
        let status = self.inner_status(guard, inner)?;
        if status & super::layout::FROZEN != 0 {
            return Ok(None);
        }
        Self::expect_separators(guard, inner)?;
        let header = Self::header(guard, inner);
        let count = header.separators();
        // The vectors have room for one more, so that they are allocated only once.
        let mut separators = Vec::with_capacity(count + 1);
        let mut children = Vec::with_capacity(count + 2);
        for position in 0..count {
            separators.push(Self::separator(guard, inner, position)?);
        }
        for cell in inner.children.iter().take(count + 1) {
            children.push(Pointer(self.pmwcas.read(guard, cell)? & VALUE_MASK));
        }
        let image = InnerImage {
            level: header.level(),
            separators,
            children,
        };
        Ok(Some((status, image)))
    }

    /// Writes and flushes an inner node that no thread can reach yet.
    pub(super) fn write_inner(guard: &Guard<'_, M>, offset: u64, image: &InnerImage) -> Result<()> {
        let inner = Self::inner(guard, offset)?;
        let count = image.separators.len();
        if image.children.len() != count + 1 || count > INNER_HEADER {
            return Err(Error::corrupt(offset, "an inner node that does not fit"));
        }
        if image.level >= LEVELS_MAX {
            return Err(Error::corrupt(offset, "a tree of too many levels"));
        }
        for (cell, separator) in inner.keys.iter().zip(&image.separators) {
            cell.store(guard, separator.word);
        }
        inner.keys[INNER_HEADER].store(guard, image.header(C::TIES).0);
        inner.keys[INNER_STATUS].store(guard, 0);
        for (cell, child) in inner.children.iter().zip(&image.children) {
            cell.store(guard, child.0);
        }
        // Header and status lie in the last line of the keys, which is not to be flushed twice.
        let last_line = INNER_HEADER - INNER_HEADER % 8;
        guard.flush_words(&inner.keys[..count.min(last_line)]);
        guard.flush_words(&inner.keys[last_line..]);
        guard.flush_words(&inner.children[..=count]);
        if C::TIES {
            let tails = &Self::tails(guard, inner)?[..count];
            for (cell, separator) in tails.iter().zip(&image.separators) {
                cell.store(guard, separator.tail);
            }
            guard.flush_words(tails);
        }
        Ok(())
    }

    /// The shortest separator above `left` and not above `right`. Its record, if it has one,
    /// belongs to `new`.
    ///
    /// # Errors
    /// The separator would be made of a damaged key.
    pub(super) fn separate(
        guard: &Guard<'_, M>,
        new: &mut NewNodes<'_, '_, M>,
        left: EntryWords,
        right: EntryWords,
    ) -> Result<Separator> {
        if !C::TIES || left[0] != right[0] {
            return Ok(Separator {
                word: right[0],
                tail: 0,
            });
        }
        C::expect_key(guard, left)?;
        C::expect_key(guard, right)?;
        let mut below = Vec::new();
        let mut above = Vec::new();
        C::copy_key(guard, left, &mut below)?;
        C::copy_key(guard, right, &mut above)?;
        above.truncate(count_shared(&below, &above) + 1);
        let tail = new.own(crate::index::record::write(guard, &above, &[])?);
        Ok(Separator {
            word: right[0],
            tail,
        })
    }

    /// Adds the words by which the child at the end of a path is replaced: the parent's word and
    /// its status, or the root. The descriptor owns both nodes from now on. `false` if the parent
    /// was replaced, or has another child there.
    pub(super) fn swap_child<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        swap: &mut Descriptor<'g>,
        path: &[Step],
        old: Pointer,
        new: Pointer,
    ) -> Result<bool> {
        let Some(step) = path.last() else {
            swap.add_recycling(guard, self.root(guard)?, old.0, new.0, Recycling::FreeOne)
                .map_err(damage)?;
            return Ok(true);
        };
        let parent = Self::inner(guard, step.offset)?;
        let cell = &parent.children[step.position];
        let status = self.inner_status(guard, parent)?;
        if status & super::layout::FROZEN != 0
            || self.pmwcas.read(guard, cell)? & VALUE_MASK != old.0
        {
            return Ok(false);
        }
        swap.add_recycling(guard, cell, old.0, new.0, Recycling::FreeOne)
            .map_err(damage)?;
        // Changes the status, so that a copy of the parent that lacks this swap cannot be
        // installed.
        swap.add_word(
            guard,
            &parent.keys[INNER_STATUS],
            status,
            with_child_swapped(status),
        )
        .map_err(damage)?;
        Ok(true)
    }

    /// Executes an operation that replaces nodes; recycles the child's old node on success, the new
    /// one on failure.
    pub(super) fn attempt_swap(
        &self,
        guard: &Guard<'_, M>,
        swap: Descriptor<'_>,
    ) -> Result<Option<Commit>> {
        swap.attempt_with(guard, &[], |recycled| self.recycle(guard, recycled))
    }

    /// Adds the word by which an inner node is frozen, if its status is still this.
    pub(super) fn freeze_inner<'g>(
        guard: &'g Guard<'_, M>,
        swap: &mut Descriptor<'g>,
        offset: u64,
        status: u64,
    ) -> Result<()> {
        let inner: &Inner = Self::inner(guard, offset)?;
        swap.add_word(
            guard,
            &inner.keys[INNER_STATUS],
            status,
            status | super::layout::FROZEN,
        )
        .map_err(damage)?;
        Ok(())
    }

    /// Adds the word by which a node that is being replaced is frozen, if its status is still this.
    /// A leaf is frozen already.
    pub(super) fn freeze_for_good<'g>(
        guard: &'g Guard<'_, M>,
        swap: &mut Descriptor<'g>,
        old: Pointer,
        status: u64,
    ) -> Result<()> {
        if old.is_leaf() {
            return Self::bury_leaf(
                guard,
                swap,
                Self::leaf(guard, old.offset())?,
                LeafStatus(status),
            );
        }
        Self::freeze_inner(guard, swap, old.offset(), status)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
