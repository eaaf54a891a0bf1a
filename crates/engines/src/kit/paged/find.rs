//! Descents and point reads.

use std::cmp::Ordering;
use std::ops::Range;

use crate::{Error, Result};
use medium::{Lsn, Medium, Word, kernels};
use pool::Guard;
use smallvec::SmallVec;

use super::log::Anchor;
use super::{Format, Item, NodeKind, Order, Paged, PagedNode, unchecked};
use crate::index::{Codec, EntryWords, Observed};
use crate::kit::bits;
use crate::kit::scan::{Tied, Way, WordBounds};

/// How many slots are read as one word.
const NARROW: usize = 8;
/// Keys that descend together.
const GROUP: usize = 16;
/// The bits of the root's word that count levels: nodes begin at lines.
const LEVELS: u64 = 0x3f;

/// An inner node on a path, and the position of the child that the path goes to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) offset: u64,
    pub(super) position: usize,
}

/// The inner nodes from the root to a leaf.
pub(super) type Path = SmallVec<[Step; 8]>;

/// The result of a search in a leaf.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// The live entries.
    pub(super) live: u64,
    /// Those whose first word is below the key's.
    pub(super) below: u64,
    /// Those whose first word is the key's.
    pub(super) tied: u64,
    /// The key's entry, and its slot.
    pub(super) found: Option<(usize, EntryWords)>,
}

/// The entries of a node that live, compared by their first words with a key.
#[derive(Clone, Copy)]
struct Compared {
    live: u64,
    /// Those whose first word is below the key's.
    below: u64,
    /// Those whose first word is the key's.
    tied: u64,
}

impl Look {
    fn compared(&self) -> Compared {
        Compared {
            live: self.live,
            below: self.below,
            tied: self.tied,
        }
    }

    pub(super) fn entry(&self) -> Option<EntryWords> {
        self.found.map(|(_, words)| words)
    }
}

impl<M: Medium, C: Codec, F: Format> Paged<M, C, F> {
    #[inline(always)]
    pub(super) fn anchor<'g>(&self, guard: &'g Guard<'_, M>) -> Result<Anchor<'g>> {
        Anchor::at(guard, self.anchor, F::LOG_WRITES_MAX)
    }

    /// The root, and the levels of inner nodes.
    #[inline(always)]
    pub(super) fn root(&self, guard: &Guard<'_, M>) -> Result<(u64, usize)> {
        match unchecked(self.anchor(guard)?.root.load(guard)) {
            Some(word) => Ok((word & !LEVELS, (word & LEVELS) as usize)),
            None => Err(Error::corrupt(
                self.anchor,
                "the word that leads to the root fails its check",
            )),
        }
    }

    /// The root's word.
    pub(super) fn root_word(offset: u64, levels: usize) -> Result<u64> {
        if levels as u64 > LEVELS {
            return Err(Error::corrupt(
                offset,
                "a tree with more levels than any pool has room for",
            ));
        }
        Ok(super::checked(offset | levels as u64))
    }

    /// A node.
    #[inline(always)]
    pub(super) fn node<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        offset: u64,
        kind: NodeKind,
    ) -> Result<PagedNode<'g>> {
        PagedNode::at(
            guard,
            offset,
            kind,
            self.format.shape(kind),
            Self::has_tails(kind),
        )
    }

    /// How many entries of a node live.
    #[inline(always)]
    pub(super) fn count(&self, guard: &Guard<'_, M>, node: &PagedNode<'_>) -> usize {
        kernels::count_ones(self.format.live(guard, node))
    }

    #[inline(always)]
    pub(super) fn has_tails(kind: NodeKind) -> bool {
        C::TIES && kind == NodeKind::Inner
    }

    /// The offset in a word that leads to a node.
    #[inline(always)]
    pub(super) fn offset_in(node: &PagedNode<'_>, word: u64) -> Result<u64> {
        match unchecked(word) {
            Some(offset) => Ok(offset),
            None => Err(Error::corrupt(
                node.offset,
                "a word that leads to a node fails its check",
            )),
        }
    }

    /// Refuses a leaf of zeros, which a lost page leaves: an empty leaf would have a link.
    #[inline(always)]
    pub(super) fn expect_entries(&self, guard: &Guard<'_, M>, leaf: &PagedNode<'_>) -> Result<()> {
        if self.format.live(guard, leaf) == 0 {
            Self::offset_in(leaf, leaf.link().load(guard))?;
        }
        Ok(())
    }

    /// The tail of a separator, or 0. An entry has none.
    #[inline(always)]
    pub(super) fn tail_of(node: &PagedNode<'_>, item: Item) -> Result<u64> {
        if item.tail != 0 {
            Self::offset_in(node, item.tail)?;
        }
        Ok(item.tail)
    }

    /// The order of the entries of a node that live.
    pub(super) fn order(
        &self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        live: u64,
    ) -> Result<Order> {
        if let Some(order) = self.format.order(guard, node) {
            return order.validated(live, node.offset);
        }
        match self.format.fault(guard, node) {
            // Otherwise a writer would give the damaged head a valid check.
            Some(what) => Err(Error::corrupt(node.offset, what)),
            None => Self::sorted(guard, node, live),
        }
    }

    /// The order of a node that does not keep it.
    fn sorted(guard: &Guard<'_, M>, node: &PagedNode<'_>, live: u64) -> Result<Order> {
        let keyed = bits(live).map(|slot| {
            let item = node.item(guard, slot);
            let key = if C::TIES {
                Self::key_of(guard, node.kind, item)?
            } else {
                Vec::new()
            };
            Ok((item.word, key, slot))
        });
        let mut keyed = keyed.collect::<Result<SmallVec<[_; 64]>>>()?;
        keyed.sort_unstable();
        Ok(Order::of(keyed.iter().map(|(.., slot)| *slot)))
    }

    /// The key of an entry, or a separator as a key.
    pub(super) fn key_of(guard: &Guard<'_, M>, kind: NodeKind, item: Item) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        if kind == NodeKind::Leaf || item.tail != 0 {
            let second = if kind == NodeKind::Leaf {
                item.value
            } else {
                item.tail
            };
            C::copy_key(guard, [item.word, second], &mut key)?;
            return Ok(key);
        }
        key.extend(item.word.to_be_bytes());
        // The key becomes the smallest one that has this word.
        while C::TIES && key.last() == Some(&0) {
            key.pop();
        }
        Ok(key)
    }

    /// The slot at a position of the order of a node.
    #[inline(always)]
    fn slot(
        &self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        live: u64,
        position: usize,
    ) -> Result<usize> {
        let slot = match self.format.slot(guard, node, position) {
            Some(slot) => slot,
            None => Self::sorted(guard, node, live)?.slot(position),
        };
        Self::within(node, slot)
    }

    /// Refuses a slot that the node does not have.
    #[inline(always)]
    fn within(node: &PagedNode<'_>, slot: usize) -> Result<usize> {
        if slot >= node.entries.len() {
            return Err(Error::corrupt(
                node.offset,
                "a slot beyond the node's entries",
            ));
        }
        Ok(slot)
    }

    /// Which live entries have a first word below the key's, and which have the key's.
    #[inline(always)]
    fn compare(&self, guard: &Guard<'_, M>, node: &PagedNode<'_>, word: u64) -> Compared {
        let live = self.format.live(guard, node);
        let (below, equal) = guard
            .medium()
            .compare_entries(Word::pairs(node.entries), word);
        Compared {
            live,
            below: below & live,
            tied: equal & live,
        }
    }

    /// Of the entries at the positions `tied`, whose first word is the key's: how many are below the
    /// key; with `or_equal`, below or equal. A binary search, whose last steps have all their slots
    /// in one word that is read once.
    fn rank_tied(
        &self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        live: u64,
        tied: Range<usize>,
        key: C::Key<'_>,
        or_equal: bool,
    ) -> Result<usize> {
        let first = tied.start;
        let mut low = 0;
        let mut high = tied.len();
        let mut narrow: Option<(usize, u64)> = None;
        while low < high {
            let middle = usize::midpoint(low, high);
            if narrow.is_none() && high - low <= NARROW {
                narrow = self
                    .format
                    .slots(guard, node, first + low)
                    .map(|slots| (low, slots));
            }
            let slot = match narrow {
                Some((from, slots)) => {
                    Self::within(node, (slots >> (8 * (middle - from)) & 0xff) as usize)?
                }
                None => self.slot(guard, node, live, first + middle)?,
            };
            let item = node.item(guard, slot);
            let second = if node.kind == NodeKind::Leaf {
                item.value
            } else {
                Self::tail_of(node, item)?
            };
            // No key with its word is below a separator without a tail.
            let order = match second {
                0 => Ordering::Greater,
                _ => C::compare_tie(guard, key, [item.word, second])?,
            };
            if order.is_gt() || or_equal && order.is_eq() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// How many entries a descent to a key leaves behind. The first words of the entries in `below`
    /// are below the key's; those of the entries in `tied` are equal, and the rest of the key
    /// decides.
    #[inline(always)]
    fn rank_among(
        &self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        compared: Compared,
        key: C::Key<'_>,
        which: Tied,
    ) -> Result<usize> {
        let Compared { live, below, tied } = compared;
        let first = kernels::count_ones(below);
        let count = kernels::count_ones(tied);
        Ok(match count {
            1.. if C::TIES && which != Tied::Behind => {
                first
                    + self.rank_tied(
                        guard,
                        node,
                        live,
                        first..first + count,
                        key,
                        which == Tied::UpTo,
                    )?
            }
            _ => first + if which == Tied::UpTo { count } else { 0 },
        })
    }

    /// The position of the child that a descent to a key goes to.
    #[inline(always)]
    fn rank(
        &self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        key: C::Key<'_>,
        which: Tied,
    ) -> Result<(u64, usize)> {
        let compared = self.compare(guard, node, C::word(key));
        Ok((
            compared.live,
            self.rank_among(guard, node, compared, key, which)?,
        ))
    }

    /// The child at a position of an inner node.
    #[inline(always)]
    pub(super) fn child(
        &self,
        guard: &Guard<'_, M>,
        node: &PagedNode<'_>,
        live: u64,
        position: usize,
    ) -> Result<u64> {
        let word = match position.checked_sub(1) {
            None => node.link().load(guard),
            Some(before) => node.entries[self.slot(guard, node, live, before)?][1].load(guard),
        };
        Self::offset_in(node, word)
    }

    /// The kind of a node that lies `level` levels above the leaves.
    #[inline(always)]
    pub(super) fn kind_at(level: usize) -> NodeKind {
        if level == 0 {
            NodeKind::Leaf
        } else {
            NodeKind::Inner
        }
    }

    /// Prefetches a node.
    #[inline(always)]
    pub(super) fn prefetch(&self, guard: &Guard<'_, M>, offset: u64, kind: NodeKind) {
        if let Ok(words) = guard.words(offset, self.format.shape(kind).words(false)) {
            kernels::prefetch_lines(words);
        }
    }

    /// Goes down to a leaf; calls `note` with each inner node on the way.
    #[inline(always)]
    pub(super) fn descend<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        way: &Way<C::Key<'_>>,
        mut note: impl FnMut(Step),
    ) -> Result<PagedNode<'g>> {
        let (mut offset, levels) = self.root(guard)?;
        for level in (0..levels).rev() {
            let node = self.node(guard, offset, NodeKind::Inner)?;
            let (live, position) = match way {
                Way::Key(key, which) => self.rank(guard, &node, *key, *which)?,
                Way::First => (0, 0),
                Way::Last => {
                    let live = self.format.live(guard, &node);
                    (live, kernels::count_ones(live))
                }
            };
            note(Step { offset, position });
            offset = self.child(guard, &node, live, position)?;
            self.prefetch(guard, offset, Self::kind_at(level));
        }
        self.node(guard, offset, NodeKind::Leaf)
    }

    /// Refuses the way to a leaf if damage may have led there: the first words of the separators of
    /// each inner node must ascend, and lie within the range of the node above, and the keys of the
    /// separators beside the child must be sound. Returns the first words of the keys that the leaf
    /// can have.
    pub(super) fn expect_path(&self, guard: &Guard<'_, M>, path: &[Step]) -> Result<WordBounds> {
        let mut range = WordBounds::default();
        for step in path {
            let node = self.node(guard, step.offset, NodeKind::Inner)?;
            let order = self.order(guard, &node, self.format.live(guard, &node))?;
            let mut last = None;
            for slot in order.slots() {
                let item = node.item(guard, slot);
                range.expect(step.offset, item.word)?;
                // A separator without a tail is the smallest key with its word.
                let is_above = last.is_none_or(|last| {
                    last < item.word || C::TIES && last == item.word && item.tail != 0
                });
                if !is_above {
                    return Err(Error::corrupt(step.offset, "separators out of order"));
                }
                last = Some(item.word);
            }
            let sound_word = |position: usize| -> Result<u64> {
                let item = node.item(guard, order.slot(position));
                if Self::tail_of(&node, item)? != 0 {
                    C::expect_key(guard, [item.word, item.tail])?;
                }
                Ok(item.word)
            };
            if step.position > order.count() {
                return Err(Error::corrupt(
                    step.offset,
                    "an inner node without this child",
                ));
            }
            let low = step.position.checked_sub(1);
            let high = Some(step.position).filter(|position| *position < order.count());
            range.low = low.map(sound_word).transpose()?.or(range.low);
            range.high = high.map(sound_word).transpose()?.or(range.high);
        }
        Ok(range)
    }

    /// Refuses the answer that a key is absent if damage may have led to the leaf that does not
    /// have it, or if the leaf has keys of another one.
    #[inline(never)]
    pub(super) fn expect_absent(
        &self,
        guard: &Guard<'_, M>,
        key: C::Key<'_>,
        leaf: &PagedNode<'_>,
    ) -> Result<()> {
        self.expect_entries(guard, leaf)?;
        if !guard.verifies() {
            return Ok(());
        }
        let mut path = Path::new();
        let again = self.descend(guard, &Way::Key(key, Tied::UpTo), |step| path.push(step))?;
        if again.offset != leaf.offset {
            // A writer came between, so this read does not count.
            return Ok(());
        }
        let range = self.expect_path(guard, &path)?;
        for slot in bits(self.format.live(guard, leaf)) {
            range.expect(leaf.offset, leaf.entries[slot][0].load(guard))?;
        }
        Ok(())
    }

    /// Looks for a key in a leaf.
    #[inline(always)]
    pub(super) fn look(
        &self,
        guard: &Guard<'_, M>,
        leaf: &PagedNode<'_>,
        key: C::Key<'_>,
    ) -> Result<Look> {
        let Compared { live, below, tied } = self.compare(guard, leaf, C::word(key));
        let mut look = Look {
            live,
            below,
            tied,
            found: None,
        };
        for slot in bits(tied) {
            let words = [C::word(key), leaf.entries[slot][1].load(guard)];
            let fits = |found: EntryWords| found == words;
            if !C::TIES || C::hash_of(words) == C::hash(key) && C::is_key(guard, key, words, fits)?
            {
                look.found = Some((slot, words));
                break;
            }
        }
        Ok(look)
    }

    /// The order of a leaf, and where in it a key is or would be.
    pub(super) fn place(
        &self,
        guard: &Guard<'_, M>,
        leaf: &PagedNode<'_>,
        look: &Look,
        key: C::Key<'_>,
    ) -> Result<(Order, usize)> {
        if !self.format.shape(NodeKind::Leaf).is_ordered {
            return Ok((Order::default(), 0));
        }
        let order = self.order(guard, leaf, look.live)?;
        Ok((
            order,
            self.rank_among(guard, leaf, look.compared(), key, Tied::Below)?,
        ))
    }

    /// Calls `use_entry` with the entry of a key. O(log n).
    #[inline(always)]
    pub fn find<R>(
        &self,
        key: C::Key<'_>,
        use_entry: impl FnOnce(&Guard<'_, M>, EntryWords) -> Result<R>,
    ) -> Result<Observed<Option<R>>> {
        // A record is read after the search, so its memory must not be reused: that takes a pin.
        // Words are part of the entry, which the search has copied.
        let guard = if C::TIES {
            self.pool.pin()
        } else {
            self.pool.peek()
        };
        let (found, lsn) = self.latch.read(&guard, |_| {
            let leaf = self.descend(&guard, &Way::Key(key, Tied::UpTo), |_| {})?;
            let found = self.look(&guard, &leaf, key)?.entry();
            if found.is_none() {
                self.expect_absent(&guard, key, &leaf)?;
            }
            Ok((found, self.latch.lsn(leaf.offset)))
        })?;
        let value = found.map(|words| use_entry(&guard, words)).transpose()?;
        let lsn = guard.left_to_caller(lsn);
        Ok(Observed { value, lsn })
    }

    /// Does the same as [`Paged::find`] for many keys, whose cache misses overlap: all descend
    /// together, level by level. Returns the LSN at which everything that was read is durable.
    pub fn find_many(
        &self,
        keys: &[C::Key<'_>],
        mut use_entry: impl FnMut(&Guard<'_, M>, usize, Option<EntryWords>) -> Result<()>,
    ) -> Result<Lsn> {
        let mut seen = Lsn::DURABLE;
        for (group, keys) in keys.chunks(GROUP).enumerate() {
            let guard = if C::TIES {
                self.pool.pin()
            } else {
                self.pool.peek()
            };
            let (found, lsn) = self
                .latch
                .read(&guard, |_| self.look_together(&guard, keys))?;
            seen = seen.max(guard.left_to_caller(lsn));
            for (position, words) in found.into_iter().enumerate().take(keys.len()) {
                use_entry(&guard, group * GROUP + position, words)?;
            }
        }
        Ok(seen)
    }

    /// The entries of a group of keys, and the LSN at which they are durable.
    fn look_together(
        &self,
        guard: &Guard<'_, M>,
        keys: &[C::Key<'_>],
    ) -> Result<([Option<EntryWords>; GROUP], Lsn)> {
        let (root, levels) = self.root(guard)?;
        let mut offsets = [root; GROUP];
        let mut found = [None; GROUP];
        let mut lsn = Lsn::DURABLE;
        for level in (0..levels).rev() {
            for (offset, key) in offsets.iter_mut().zip(keys) {
                let node = self.node(guard, *offset, NodeKind::Inner)?;
                let (live, position) = self.rank(guard, &node, *key, Tied::UpTo)?;
                *offset = self.child(guard, &node, live, position)?;
                self.prefetch(guard, *offset, Self::kind_at(level));
            }
        }
        for ((offset, key), found) in offsets.iter().zip(keys).zip(&mut found) {
            let leaf = self.node(guard, *offset, NodeKind::Leaf)?;
            *found = self.look(guard, &leaf, *key)?.entry();
            if found.is_none() {
                self.expect_absent(guard, *key, &leaf)?;
            }
            lsn = lsn.max(self.latch.lsn(*offset));
        }
        Ok((found, lsn))
    }
}
