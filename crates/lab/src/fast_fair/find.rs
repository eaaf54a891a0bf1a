//! Descents, point reads, copies of leaves.

use std::cmp::Ordering;

use engines::kit::scan::{Tied, Way};
use medium::kernels;
use smallvec::SmallVec;

use super::FastFair;
use super::node::{FastFairNode, Low};
use engines::kit::latch::Writing;
use engines::kit::paged::unchecked;
use engines::kit::prelude::*;

/// The most siblings that a descent passes: each crash in a row may leave one that no parent leads
/// to.
const MOVES_MAX: usize = 1 << 10;

/// An inner node on a path, and the position of the child that the path goes to.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) offset: u64,
    pub(super) position: usize,
}

/// The inner nodes from the root to a leaf.
pub(super) type Path = SmallVec<[Step; 8]>;

/// The result of a search in a leaf.
pub(super) struct LeafSearch {
    pub(super) used: usize,
    /// Where the key is or would be.
    pub(super) position: usize,
    pub(super) found: Option<EntryWords>,
    /// Whether no entry is above the key.
    is_last: bool,
}

impl<M: Medium, C: Codec> FastFair<M, C> {
    #[inline(always)]
    pub(super) fn node<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        offset: u64,
    ) -> Result<FastFairNode<'g>> {
        FastFairNode::at(guard, offset, self.entries, C::TIES)
    }

    #[inline(always)]
    pub(super) fn root<'g>(&self, guard: &'g Guard<'_, M>) -> Result<FastFairNode<'g>> {
        match unchecked(guard.node::<Word>(self.root)?.load(guard)) {
            Some(offset) => self.node(guard, offset),
            None => Err(Error::corrupt(
                self.root,
                "the word that leads to the root fails its check",
            )),
        }
    }

    /// The child at a position.
    #[inline(always)]
    pub(super) fn child<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        node: &FastFairNode<'_>,
        position: usize,
    ) -> Result<FastFairNode<'g>> {
        let child = self.node(guard, node.child(guard, position)?)?;
        if child.level.checked_add(1) != Some(node.level) {
            return Err(Error::corrupt(
                child.offset,
                "a node on another level than its parent says",
            ));
        }
        Ok(child)
    }

    /// A lower bound as a key.
    pub(super) fn key_of_low(guard: &Guard<'_, M>, low: Low) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        if !C::TIES || low[1] != 0 {
            C::copy_key(guard, low, &mut key)?;
        }
        Ok(key)
    }

    /// The key of an entry of a node.
    pub(super) fn key_of(
        &self,
        guard: &Guard<'_, M>,
        level: u64,
        words: EntryWords,
    ) -> Result<Vec<u8>> {
        let [word, value] = words;
        if level > 0 {
            let damaged = || Error::corrupt(value, "a word that leads to a node fails its check");
            let tail = match C::TIES {
                true => self
                    .node(guard, unchecked(value).ok_or_else(damaged)?)?
                    .low(guard)[1],
                false => 0,
            };
            return Self::key_of_low(guard, [word, tail]);
        }
        let mut key = Vec::new();
        C::copy_key(guard, words, &mut key)?;
        Ok(key)
    }

    /// Whether a descent goes to a node with this lower bound or further right.
    #[inline(always)]
    fn passes(guard: &Guard<'_, M>, way: &Way<C::Key<'_>>, [word, tail]: Low) -> Result<bool> {
        let Way::Key(key, which) = *way else {
            return Ok(matches!(way, Way::Last));
        };
        Ok(match C::word(key).cmp(&word) {
            Ordering::Equal if C::TIES && which != Tied::Behind => {
                // The bound of the leftmost node has no record, and no key is below it.
                let order = if tail == 0 {
                    Ordering::Greater
                } else {
                    C::compare_tie(guard, key, [word, tail])?
                };
                order.is_gt() || which == Tied::UpTo && order.is_eq()
            }
            Ordering::Equal => which == Tied::UpTo,
            order => order.is_gt(),
        })
    }

    /// The sibling of a node, if a descent goes there or further right.
    #[inline(always)]
    fn right_of<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        node: &FastFairNode<'_>,
        way: &Way<C::Key<'_>>,
    ) -> Result<Option<FastFairNode<'g>>> {
        let sibling = node.sibling(guard)?;
        if sibling == 0 {
            return Ok(None);
        }
        let right = self.node(guard, sibling)?;
        if right.level != node.level {
            return Err(Error::corrupt(sibling, "a sibling on another level"));
        }
        Ok(Self::passes(guard, way, right.low(guard))?.then_some(right))
    }

    /// The position of the child that a descent goes to, and how many entries are in use. A dead
    /// entry also leads to the child that covers its keys, so it makes no difference.
    #[inline(always)]
    fn rank(
        &self,
        guard: &Guard<'_, M>,
        node: &FastFairNode<'_>,
        way: &Way<C::Key<'_>>,
    ) -> Result<(usize, usize)> {
        let used = node.used(guard);
        let (key, which) = match way {
            Way::First => return Ok((0, used)),
            Way::Last => return Ok((used, used)),
            Way::Key(key, which) => (*key, *which),
        };
        let (below, equal) = guard
            .medium()
            .compare_entries(Word::pairs(node.entries), C::word(key));
        let in_use = (1_u64 << used) - 1;
        let mut passed = in_use
            & if which == Tied::UpTo || C::TIES {
                below | equal
            } else {
                below
            };
        while C::TIES && passed & equal != 0 {
            let last = passed.ilog2() as usize;
            let tail = self.child(guard, node, last + 1)?.low(guard)[1];
            if equal >> last & 1 == 0
                || Self::passes(guard, way, [node.words(guard, last)[0], tail])?
            {
                break;
            }
            passed &= !(1 << last);
        }
        Ok((
            passed.checked_ilog2().map_or(0, |last| last as usize + 1),
            used,
        ))
    }

    /// Goes down to a leaf. A reader moves right where a parent does not lead to a node yet. A
    /// writer, which notes its path and makes nodes whole on its way, stops there: the sibling that
    /// is to be entered in the parent comes with the node. Unless it is to be exact, a descent may
    /// end in a leaf whose sibling has the key, if no entry of the leaf is above the key.
    #[inline(always)]
    pub(super) fn descend<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        way: &Way<C::Key<'_>>,
        mut writer: Option<(&Writing<'_, M>, &mut Path)>,
        is_exact: bool,
    ) -> Result<(FastFairNode<'g>, Option<FastFairNode<'g>>)> {
        let mut node = self.root(guard)?;
        let mut moves = 0;
        loop {
            if let Some((writing, _)) = &writer {
                self.mend(guard, writing, &node);
            }
            let is_leaf = node.level == 0;
            let (position, used) = if is_leaf {
                (0, 0)
            } else {
                self.rank(guard, &node, way)?
            };
            // The keys of a sibling are above all entries.
            if (self.is_unfinished || if is_leaf { is_exact } else { position == used })
                && let Some(right) = self.right_of(guard, &node, way)?
            {
                if writer.is_some() {
                    return Ok((node, Some(right)));
                }
                moves += 1;
                if moves > MOVES_MAX {
                    return Err(ErrorKind::Contended {
                        offset: node.offset,
                    }
                    .into());
                }
                node = right;
                continue;
            }
            if is_leaf {
                return Ok((node, None));
            }
            if let Some((_, path)) = &mut writer {
                path.push(Step {
                    offset: node.offset,
                    position,
                });
            }
            node = self.child(guard, &node, position)?;
            if node.level == 0 {
                kernels::prefetch_lines(node.entries);
            }
        }
    }

    /// Searches a leaf for a key.
    #[inline(always)]
    pub(super) fn look(
        &self,
        guard: &Guard<'_, M>,
        leaf: &FastFairNode<'_>,
        key: C::Key<'_>,
    ) -> Result<LeafSearch> {
        let used = leaf.used(guard);
        let in_use = (1_u64 << used) - 1;
        let (below, equal) = guard
            .medium()
            .compare_entries(Word::pairs(leaf.entries), C::word(key));
        let below = below & in_use;
        let tied = equal & in_use;
        let mut look = LeafSearch {
            used,
            position: below.count_ones() as usize,
            found: None,
            is_last: below | tied == in_use,
        };
        if !C::TIES {
            // Of two entries with the key the last one lives.
            let last = tied.checked_ilog2().map(|last| last as usize);
            look.position = last.unwrap_or(look.position);
            look.found = last.map(|last| leaf.words(guard, last));
            return Ok(look);
        }
        for index in bits(tied) {
            if leaf.is_dead(guard, index, used) {
                continue;
            }
            let words = leaf.words(guard, index);
            match C::compare_tie(guard, key, words)? {
                Ordering::Less => break,
                Ordering::Equal => {
                    look.position = index;
                    look.found = Some(words);
                    break;
                }
                Ordering::Greater => look.position = index + 1,
            }
        }
        Ok(look)
    }

    /// Searches for a key in a leaf and its siblings, if the key may be above all entries of the
    /// leaf.
    #[inline(always)]
    pub(super) fn look_right<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        mut leaf: FastFairNode<'g>,
        key: C::Key<'_>,
    ) -> Result<(FastFairNode<'g>, LeafSearch)> {
        for _ in 0..MOVES_MAX {
            let look = self.look(guard, &leaf, key)?;
            if look.found.is_some() || !look.is_last {
                return Ok((leaf, look));
            }
            match self.right_of(guard, &leaf, &Way::Key(key, Tied::UpTo))? {
                Some(right) => leaf = right,
                None => return Ok((leaf, look)),
            }
        }
        Err(ErrorKind::Contended {
            offset: leaf.offset,
        }
        .into())
    }

    /// Calls `use_entry` with the entry of a key, O(log n).
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
            let (leaf, _) = self.descend(&guard, &Way::Key(key, Tied::UpTo), None, false)?;
            let (leaf, look) = self.look_right(&guard, leaf, key)?;
            Ok((look.found, self.latch.lsn(leaf.offset)))
        })?;
        let value = match found {
            Some(words) => Some(use_entry(&guard, words)?),
            None => None,
        };
        let lsn = guard.left_to_caller(lsn);
        Ok(Observed { value, lsn })
    }

    /// Does the same as [`FastFair::find`] for many keys, one after the other.
    pub fn find_many(
        &self,
        keys: &[C::Key<'_>],
        mut use_entry: impl FnMut(&Guard<'_, M>, usize, Option<EntryWords>) -> Result<()>,
    ) -> Result<Lsn> {
        let mut lsn = Lsn::DURABLE;
        let guard = self.pool.pin();
        for (position, key) in keys.iter().enumerate() {
            let found = self.find(*key, |_, words| Ok(words))?;
            use_entry(&guard, position, found.value)?;
            lsn = lsn.max(found.lsn);
        }
        Ok(lsn)
    }

    /// Visits the entries of a tree of words: see [`Leaves::visit_words`].
    pub fn visit_words(&self, from: u64, visit: &mut VisitWords<'_>) -> Result<Lsn> {
        Leaves::visit_words(self, from, visit)
    }

    /// The live entries of a node, in order, and the lower bound of its sibling.
    pub(super) fn copy_entries(
        &self,
        guard: &Guard<'_, M>,
        node: &FastFairNode<'_>,
        entries: &mut Vec<EntryWords>,
    ) -> Result<Option<Vec<u8>>> {
        let sibling = node.sibling(guard)?;
        let end = match sibling {
            0 => None,
            _ => Some(Self::key_of_low(
                guard,
                self.node(guard, sibling)?.low(guard),
            )?),
        };
        let used = node.used(guard);
        let live = (0..used).filter(|index| !node.is_dead(guard, *index, used));
        entries.clear();
        entries.extend(live.map(|index| node.words(guard, index)));
        Ok(end)
    }
}

impl<M: Medium, C: Codec> Leaves<M, C> for FastFair<M, C> {
    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    fn copy_leaf(
        &self,
        guard: &Guard<'_, M>,
        goal: Goal<'_>,
        direction: Direction,
        copy: &mut LeafCopy,
    ) -> Result<Lsn> {
        let way = goal.way::<C>();
        let lsn = self.latch.read(guard, |_| {
            let (leaf, _) = self.descend(guard, &way, None, true)?;
            copy.offset = leaf.offset;
            copy.end = self.copy_entries(guard, &leaf, &mut copy.entries)?;
            if direction == Direction::Reverse {
                let low = leaf.low(guard);
                copy.end = (low != [0; 2])
                    .then(|| Self::key_of_low(guard, low))
                    .transpose()?;
            }
            Ok(self.latch.lsn(leaf.offset))
        })?;
        Ok(guard.left_to_caller(lsn))
    }
}
