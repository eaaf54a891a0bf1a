//! Walking all nodes: verification, figures, giving back.

use std::cell::Cell;
use std::collections::HashSet;

use medium::Medium;
use medium::sync::Ordering;
use pool::Guard;

use super::BzTree;
use super::find::{LEVELS_MAX, Separator};
use super::image::InnerImage;
use super::layout::{EntryState, Leaf, LeafStatus, META, Meta, Pointer, leaf_bytes};
use crate::index::{Codec, EntryWords, IndexStat, Violation};
use crate::kit::salvage::what_of;
use crate::pmwcas::{Seen, VALUE_MASK};
use crate::{Error, Result};

/// A node on a walk through the whole tree.
pub(super) enum VisitedNode<'n> {
    /// A leaf, and the separators around it.
    Leaf(u64, Option<Separator>, Option<Separator>),
    /// An inner node, before its children.
    Inner(u64, &'n InnerImage),
    /// The pointer to a node that cannot be visited, nor can the nodes below it.
    Damaged(u64, Error),
}

/// The counts of a walk.
#[derive(Default)]
pub(super) struct WalkCounts {
    pub(super) keys: u64,
    pub(super) leaves: u64,
    /// Levels of inner nodes.
    pub(super) height: u32,
}

impl WalkCounts {
    fn add_leaf(&mut self, keys: usize) {
        self.keys += keys as u64;
        self.leaves += 1;
    }

    fn add_inner(&mut self, image: &InnerImage) {
        self.height = self.height.max(image.level as u32);
    }
}

/// A node that is to be visited: its pointer, its level, and the separators around it.
type Next = (Pointer, usize, Option<Separator>, Option<Separator>);

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// Visits all nodes, parents first, children in their order. Beside writers each node is as it
    /// was when its parent was read, or later. O(nodes), whatever the damage: separators lie within
    /// their node's range, so a node that several parents share is sound in one of its places at
    /// most.
    pub(super) fn walk(
        &self,
        guard: &Guard<'_, M>,
        visit: &mut dyn FnMut(VisitedNode<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut todo: Vec<Next> = vec![(self.root_pointer(guard)?, LEVELS_MAX, None, None)];
        while let Some((pointer, level, low, high)) = todo.pop() {
            let expected = if level == LEVELS_MAX && pointer.is_leaf() {
                1
            } else {
                level
            };
            if let Err(error) = Self::expect_kind(pointer, expected) {
                visit(VisitedNode::Damaged(pointer.offset(), error))?;
                continue;
            }
            if pointer.is_leaf() {
                visit(VisitedNode::Leaf(pointer.offset(), low, high))?;
                continue;
            }
            let image = match self.image_of(guard, pointer, level, low, high) {
                Ok(image) => image,
                Err(error) => {
                    visit(VisitedNode::Damaged(pointer.offset(), error))?;
                    continue;
                }
            };
            visit(VisitedNode::Inner(pointer.offset(), &image))?;
            for (position, child) in image.children.iter().enumerate().rev() {
                let below = position
                    .checked_sub(1)
                    .map_or(low, |before| Some(image.separators[before]));
                let above = image.separators.get(position).copied().or(high);
                todo.push((*child, image.level, below, above));
            }
        }
        Ok(())
    }

    /// The content of an inner node below one of `level`, frozen or not, whose separators are in
    /// order and between these.
    fn image_of(
        &self,
        guard: &Guard<'_, M>,
        pointer: Pointer,
        level: usize,
        low: Option<Separator>,
        high: Option<Separator>,
    ) -> Result<InnerImage> {
        let inner = Self::inner(guard, pointer.offset())?;
        let header = Self::header(guard, inner);
        let image = InnerImage {
            level: Self::next_level(header, level, pointer)?,
            separators: (0..header.separators())
                .map(|position| Self::separator(guard, inner, position))
                .collect::<Result<_>>()?,
            children: (0..=header.separators())
                .map(|position| {
                    Ok(Pointer(
                        self.pmwcas.read(guard, &inner.children[position])? & VALUE_MASK,
                    ))
                })
                .collect::<Result<_>>()?,
        };
        let ends = low
            .into_iter()
            .chain(image.separators.iter().copied())
            .chain(high);
        for (position, (one, next)) in ends.clone().zip(ends.skip(1)).enumerate() {
            if !Self::is_below(guard, one, next)? {
                let position = position + usize::from(low.is_none());
                let what = format!(
                    "separator {position} is not above the one before, or not in the node's range"
                );
                return Err(Error::corrupt(pointer.offset(), what));
            }
        }
        Ok(image)
    }

    /// Whether a separator is below another.
    fn is_below(guard: &Guard<'_, M>, one: Separator, other: Separator) -> Result<bool> {
        if one.word != other.word || !C::TIES {
            return Ok(one.word < other.word);
        }
        let mut below = Vec::new();
        let mut above = Vec::new();
        Self::copy_separator(guard, one, &mut below)?;
        Self::copy_separator(guard, other, &mut above)?;
        Ok(below < above)
    }

    /// The entries of a leaf that are visible.
    pub(super) fn visible(
        &self,
        guard: &Guard<'_, M>,
        leaf: Leaf<'_>,
    ) -> Result<Vec<(usize, EntryWords)>> {
        let mut visible = Vec::new();
        for entry in 0..self.leaf_status(guard, leaf)?.count() {
            let found = self.read_entry(guard, leaf, entry, &mut Seen::default())?;
            visible.extend(found.map(|found| (entry, found.words)));
        }
        Ok(visible)
    }

    /// Verifies all nodes, each as it is at some moment.
    pub(super) fn verify(&self) -> Result<Vec<Violation>> {
        let guard = self.pool.pin();
        let mut violations = Vec::new();
        let mut leaves = HashSet::new();
        self.walk(&guard, &mut |visited| {
            let (offset, verified) = match visited {
                VisitedNode::Leaf(offset, ..) if !leaves.insert(offset) => {
                    (offset, Ok(vec!["a leaf that is reached twice".to_owned()]))
                }
                VisitedNode::Leaf(offset, low, high) => {
                    (offset, self.verify_leaf(&guard, offset, low, high))
                }
                VisitedNode::Inner(offset, image) => {
                    (offset, Self::verify_inner(&guard, offset, image))
                }
                VisitedNode::Damaged(offset, error) => (offset, Err(error)),
            };
            match verified {
                Ok(found) => {
                    violations.extend(found.into_iter().map(|what| Violation { offset, what }));
                }
                Err(error) => violations.push(Violation {
                    offset,
                    what: what_of(&error),
                }),
            }
            Ok(())
        })?;
        Ok(violations)
    }

    /// Verifies the separators of an inner node, whose order is known.
    fn verify_inner(guard: &Guard<'_, M>, offset: u64, image: &InnerImage) -> Result<Vec<String>> {
        let mut found = Vec::new();
        if let Err(error) = Self::expect_separators(guard, Self::inner(guard, offset)?) {
            found.push(what_of(&error));
        }
        if !C::TIES {
            return Ok(found);
        }
        for (position, separator) in image.separators.iter().enumerate() {
            let mut key = Vec::new();
            Self::copy_separator(guard, *separator, &mut key)?;
            if crate::index::record::prefix_word(&key) != separator.word {
                found.push(format!("the word of separator {position} is not its key's"));
            }
        }
        Ok(found)
    }

    /// Verifies a leaf, again if a key was added or removed meanwhile, which changes the status. A
    /// replaced value does not change it; each value is verified as it is at some moment.
    fn verify_leaf(
        &self,
        guard: &Guard<'_, M>,
        offset: u64,
        low: Option<Separator>,
        high: Option<Separator>,
    ) -> Result<Vec<String>> {
        let leaf = Self::leaf(guard, offset)?;
        loop {
            let status = self.leaf_status(guard, leaf)?;
            let found = self.verify_leaf_at(guard, leaf, status, low, high);
            let is_sound = found.as_ref().is_ok_and(Vec::is_empty);
            if is_sound || self.leaf_status(guard, leaf)? == status {
                return found;
            }
        }
    }

    fn verify_leaf_at(
        &self,
        guard: &Guard<'_, M>,
        leaf: Leaf<'_>,
        status: LeafStatus,
        low: Option<Separator>,
        high: Option<Separator>,
    ) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut expect = |holds: bool, what: &dyn Fn() -> String| {
            if !holds {
                found.push(what());
            }
        };
        let mut states = [0; 2];
        for (entry, cells) in leaf.entries(guard, status.capacity())?.iter().enumerate() {
            let meta = Meta(self.pmwcas.read(guard, &cells[META])? & VALUE_MASK);
            let state = meta.state();
            if entry < status.count() {
                states[0] += usize::from(state == EntryState::Empty);
                states[1] += usize::from(state == EntryState::Gone);
            } else {
                expect(
                    meta == Meta::EMPTY && leaf.fingerprint(guard, entry) == 0,
                    &|| format!("entry {entry} was never reserved, but is in use"),
                );
            }
        }
        let counted = [status.pending(), status.dead()];
        expect(states == counted, &|| {
            format!("the status counts {counted:?} entries pending and dead, there are {states:?}")
        });
        let bound = |separator: Option<Separator>| -> Result<Option<Vec<u8>>> {
            let Some(separator) = separator else {
                return Ok(None);
            };
            let mut key = Vec::new();
            Self::copy_separator(guard, separator, &mut key)?;
            Ok(Some(key))
        };
        let low = bound(low)?;
        let high = bound(high)?;
        let mut keys = Vec::new();
        for (entry, words) in self.visible(guard, leaf)? {
            let mut key = Vec::new();
            C::copy_key(guard, words, &mut key)?;
            expect(low.as_ref().is_none_or(|low| *low <= key), &|| {
                format!("entry {entry} is below the leaf")
            });
            expect(high.as_ref().is_none_or(|high| *high > key), &|| {
                format!("entry {entry} is above the leaf")
            });
            let searched = C::key(&key)?;
            expect(C::word(searched) == words[0], &|| {
                format!("the word of entry {entry} is not its key's")
            });
            expect(
                Self::fingerprint(searched) == leaf.fingerprint(guard, entry),
                &|| format!("the fingerprint of entry {entry} is not its key's"),
            );
            // The offset has no hash beside it here.
            let is_offset = !C::TIES || words[1] >> 48 == 0;
            expect(is_offset, &|| {
                format!("there are bits above the offset of the record of entry {entry}")
            });
            expect(C::is_sound(guard, words)?, &|| {
                format!("the record of entry {entry} fails its check")
            });
            let in_order = entry >= status.sorted() || keys.last().is_none_or(|last| *last < key);
            expect(in_order, &|| {
                format!("entry {entry} is not above the one before")
            });
            keys.push(key);
        }
        let count = keys.len();
        medium::progress::advance(count as u64);
        keys.sort_unstable();
        keys.dedup();
        expect(keys.len() == count, &|| "a key is there twice".to_owned());
        Ok(found)
    }

    /// WalkCounts keys, leaves and levels of inner nodes; returns once the counted state is durable.
    pub(super) fn count(&self) -> Result<WalkCounts> {
        let guard = self.pool.pin();
        let mut counts = WalkCounts::default();
        self.walk(&guard, &mut |visited| {
            match visited {
                VisitedNode::Leaf(offset, ..) => {
                    let leaf = Self::leaf(&guard, offset)?;
                    counts.add_leaf(self.leaf_status(&guard, leaf)?.live());
                }
                VisitedNode::Inner(_, image) => counts.add_inner(image),
                VisitedNode::Damaged(_, error) => return Err(error),
            }
            Ok(())
        })?;
        self.pmwcas.settle_all(&guard)?;
        Ok(counts)
    }

    /// How many allocations of the pool the tree reaches or keeps in reserve: for tests of leaks.
    /// O(n).
    fn allocations(&self) -> Result<u64> {
        let guard = self.pool.pin();
        let anchor = 1;
        let reached = Cell::new(anchor);
        self.walk(&guard, &mut |visited| {
            let out_of_line = match visited {
                VisitedNode::Leaf(offset, ..) if C::TIES => {
                    self.visible(&guard, Self::leaf(&guard, offset)?)?.len()
                }
                VisitedNode::Leaf(..) => 0,
                VisitedNode::Inner(_, image) => image
                    .separators
                    .iter()
                    .filter(|separator| separator.tail != 0)
                    .count(),
                VisitedNode::Damaged(_, error) => return Err(error),
            };
            reached.set(reached.get() + 1 + out_of_line);
            Ok(())
        })?;
        Ok(reached.get() as u64 + self.count_spares() + self.count_outgoing())
    }

    pub(super) fn figures(&self) -> Result<IndexStat> {
        let counts = self.count()?;
        Ok(IndexStat {
            keys: counts.keys,
            leaves: counts.leaves,
            height: counts.height,
            volatile_bytes: self.pmwcas.volatile_bytes(),
            recovery_ns: self.recovery_ns,
            recovered_from_crash: self.recovered_from_crash,
            leaf_bytes: leaf_bytes(self.sizes.leaf_entries) as u64,
            allocations: Some(self.allocations()?),
            epochs: None,
        })
    }

    /// Frees everything at once. The caller promises that no other thread uses the tree, and that
    /// it is not in the root table.
    pub(super) fn give_back(&self) -> Result<()> {
        let guard = self.pool.pin();
        let mut nodes = vec![self.anchor];
        let mut leaves = Vec::new();
        self.walk(&guard, &mut |visited| {
            match visited {
                VisitedNode::Leaf(offset, ..) => leaves.push(offset),
                VisitedNode::Inner(offset, image) => {
                    nodes.push(offset);
                    let tails = image.separators.iter().map(|separator| separator.tail);
                    nodes.extend(tails.filter(|tail| *tail != 0));
                }
                VisitedNode::Damaged(_, error) => return Err(error),
            }
            Ok(())
        })?;
        leaves.sort_unstable();
        // All nodes are visited first: in a damaged tree a leaf may be in two places, and must not
        // be freed twice.
        if let Some(twice) = leaves.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::corrupt(twice[0], "a leaf that is reached twice"));
        }
        for offset in &leaves {
            for (_, words) in self.visible(&guard, Self::leaf(&guard, *offset)?)? {
                C::discard(&guard, words);
            }
        }
        // The descriptors are freed with the anchor, so no later drop may write to them.
        self.destroyed.store(1, Ordering::Release);
        nodes
            .into_iter()
            .chain(leaves)
            .for_each(|offset| guard.free(offset));
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
