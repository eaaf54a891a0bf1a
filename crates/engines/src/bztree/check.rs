//! Walking all nodes: verification, figures, giving back.

use medium::Medium;
use medium::sync::Ordering;
use pool::{Error, Guard, Result};

use super::BzTree;
use super::find::{LEVELS_MAX, Seen, Separator};
use super::image::InnerImage;
use super::layout::{EntryState, Leaf, LeafStatus, META, Meta, Pointer};
use crate::index::{Codec, EntryWords, IndexStat, Violation};
use crate::pmwcas::VALUE_MASK;

/// A node on a walk through the whole tree.
pub(super) enum Visited<'n> {
    /// A leaf, and the separators around it.
    Leaf(u64, Option<Separator>, Option<Separator>),
    /// An inner node, before its children.
    Inner(u64, &'n InnerImage),
}

/// A node to go to: its pointer, its level, and the separators around it.
type Next = (Pointer, usize, Option<Separator>, Option<Separator>);

impl<M: Medium, C: Codec, const N: usize> BzTree<M, C, N> {
    /// Visits all nodes, parents first, children in their order. Beside writers each node is as it was when its parent was
    /// read, or later.
    pub(super) fn walk(
        &self,
        guard: &Guard<'_, M>,
        visit: &mut dyn FnMut(Visited<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut todo: Vec<Next> = vec![(self.root_pointer(guard)?, LEVELS_MAX, None, None)];
        while let Some((pointer, level, low, high)) = todo.pop() {
            if pointer.is_leaf() {
                visit(Visited::Leaf(pointer.offset(), low, high))?;
                continue;
            }
            let image = self.image_of(guard, pointer, level)?;
            visit(Visited::Inner(pointer.offset(), &image))?;
            for (position, child) in image.children.iter().enumerate().rev() {
                Self::expect_kind(*child, image.level)?;
                let below = position.checked_sub(1).map_or(low, |before| Some(image.separators[before]));
                let above = image.separators.get(position).copied().or(high);
                todo.push((*child, image.level, below, above));
            }
        }
        Ok(())
    }

    /// The content of an inner node below one of `level`, frozen or not.
    fn image_of(&self, guard: &Guard<'_, M>, pointer: Pointer, level: usize) -> Result<InnerImage> {
        let inner = Self::inner(guard, pointer.offset())?;
        let header = Self::header(guard, inner);
        let image = InnerImage {
            level: Self::next_level(header, level, pointer)?,
            separators: (0..header.separators())
                .map(|position| Self::separator(guard, inner, position))
                .collect::<Result<_>>()?,
            children: (0..=header.separators())
                .map(|position| Ok(Pointer(self.pmwcas.read(guard, &inner.children[position])? & VALUE_MASK)))
                .collect::<Result<_>>()?,
        };
        Ok(image)
    }

    /// The entries of a leaf that are visible.
    pub(super) fn visible(&self, guard: &Guard<'_, M>, leaf: &Leaf<N>) -> Result<Vec<(usize, EntryWords)>> {
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
        self.walk(&guard, &mut |visited| {
            let offset = match visited {
                Visited::Leaf(offset, ..) | Visited::Inner(offset, _) => offset,
            };
            let verified = match visited {
                Visited::Leaf(_, low, high) => self.verify_leaf(&guard, offset, low, high),
                Visited::Inner(_, image) => Self::verify_inner(&guard, image),
            };
            match verified {
                Ok(found) => violations.extend(found.into_iter().map(|what| Violation { offset, what })),
                Err(error) => violations.push(Violation { offset, what: error.to_string() }),
            }
            Ok(())
        })?;
        Ok(violations)
    }

    fn verify_inner(guard: &Guard<'_, M>, image: &InnerImage) -> Result<Vec<String>> {
        let (mut found, mut last) = (Vec::new(), None);
        for (position, separator) in image.separators.iter().enumerate() {
            let mut key = Vec::new();
            Self::copy_separator(guard, *separator, &mut key)?;
            if C::TIES && pool::record::prefix_word(&key) != separator.word {
                found.push(format!("the word of separator {position} is not its key's"));
            }
            if last.is_some_and(|last| last >= key) {
                found.push(format!("separator {position} is not above the one before"));
            }
            last = Some(key);
        }
        Ok(found)
    }

    /// Verifies a leaf until it has not changed meanwhile: every change of it changes its status, for good.
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
            let found = self.verify_leaf_at(guard, (leaf, status), low, high);
            let is_sound = found.as_ref().is_ok_and(Vec::is_empty);
            if is_sound || self.leaf_status(guard, leaf)? == status {
                return found;
            }
        }
    }

    fn verify_leaf_at(
        &self,
        guard: &Guard<'_, M>,
        (leaf, status): (&Leaf<N>, LeafStatus),
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
        for (entry, cells) in leaf.entries.iter().enumerate() {
            let state = Meta(self.pmwcas.read(guard, &cells[META])? & VALUE_MASK).state();
            if entry < status.count() {
                states[0] += usize::from(Self::is_pending(state));
                states[1] += usize::from(state == EntryState::Gone);
            } else {
                expect(Self::is_pending(state), &|| {
                    format!("entry {entry} was never reserved, but is {state:?}")
                });
            }
        }
        let counted = [status.pending(), status.dead()];
        expect(states == counted, &|| {
            format!("the status counts {counted:?} entries pending and dead, there are {states:?}")
        });
        let bound = |separator: Option<Separator>| -> Result<Option<Vec<u8>>> {
            let Some(separator) = separator else { return Ok(None) };
            let mut key = Vec::new();
            Self::copy_separator(guard, separator, &mut key)?;
            Ok(Some(key))
        };
        let (low, high) = (bound(low)?, bound(high)?);
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
            expect(C::word(searched) == words[0], &|| format!("the word of entry {entry} is not its key's"));
            expect(C::hash(searched) as u8 == leaf.fingerprint(guard, entry), &|| {
                format!("the fingerprint of entry {entry} is not its key's")
            });
            expect(C::is_sound(guard, words)?, &|| format!("the record of entry {entry} fails its check"));
            let in_order = entry >= status.sorted() || keys.last().is_none_or(|last| *last < key);
            expect(in_order, &|| format!("entry {entry} is not above the one before"));
            keys.push(key);
        }
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        expect(keys.len() == count, &|| "a key is there twice".to_owned());
        Ok(found)
    }

    /// Keys, leaves, levels of inner nodes.
    pub(super) fn count(&self) -> Result<(u64, u64, u32)> {
        let guard = self.pool.pin();
        let (mut keys, mut leaves, mut height) = (0, 0, 0);
        self.walk(&guard, &mut |visited| {
            match visited {
                Visited::Leaf(offset, ..) => {
                    keys += self.leaf_status(&guard, Self::leaf(&guard, offset)?)?.live() as u64;
                    leaves += 1;
                }
                Visited::Inner(_, image) => height = height.max(image.level as u32),
            }
            Ok(())
        })?;
        Ok((keys, leaves, height))
    }

    /// How many allocations of the pool the tree reaches or keeps in reserve: for tests of leaks. O(n).
    pub fn allocations(&self) -> Result<u64> {
        let guard = self.pool.pin();
        let mut reached = 1;
        self.walk(&guard, &mut |visited| {
            reached += 1;
            match visited {
                Visited::Leaf(offset, ..) if C::TIES => {
                    reached += self.visible(&guard, Self::leaf(&guard, offset)?)?.len();
                }
                Visited::Leaf(..) => {}
                Visited::Inner(_, image) => {
                    reached += image.separators.iter().filter(|separator| separator.tail != 0).count();
                }
            }
            Ok(())
        })?;
        Ok(reached as u64 + self.count_spares())
    }

    pub(super) fn figures(&self) -> Result<IndexStat> {
        let (keys, leaves, height) = self.count()?;
        Ok(IndexStat {
            keys,
            leaves,
            height,
            volatile_bytes: self.pmwcas.volatile_bytes(),
            recovery_ns: self.recovery_ns,
            recovered_from_crash: self.recovered_from_crash,
            leaf_bytes: size_of::<Leaf<N>>() as u64,
            allocations: Some(self.allocations()?),
            epochs: None,
        })
    }

    /// Frees everything at once: the caller says that nobody else uses the tree, and that it is gone from the root table.
    pub(super) fn give_back(&self) -> Result<()> {
        let guard = self.pool.pin();
        let mut offsets = vec![self.anchor];
        self.walk(&guard, &mut |visited| {
            match visited {
                Visited::Leaf(offset, ..) => {
                    for (_, words) in self.visible(&guard, Self::leaf(&guard, offset)?)? {
                        C::discard(&guard, words);
                    }
                    offsets.push(offset);
                }
                Visited::Inner(offset, image) => {
                    offsets.push(offset);
                    let tails = image.separators.iter().map(|separator| separator.tail);
                    offsets.extend(tails.filter(|tail| *tail != 0));
                }
            }
            Ok::<(), Error>(())
        })?;
        // The descriptors go with the anchor: they are nobody's to write any more.
        self.destroyed.store(1, Ordering::Release);
        offsets.into_iter().for_each(|offset| guard.free(offset));
        Ok(())
    }
}
