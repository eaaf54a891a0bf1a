//! Which space is in use, as far as that is known: for a salvage, which searches for nodes that no
//! other node leads to.
//!
//! If one bitmap of a pool that was closed cleanly is damaged, all trees must mark, which a damaged
//! tree cannot. The other bitmaps still record the slots in use at the close, and nothing is
//! allocated from their slabs before the mark ends.

use std::ops::RangeInclusive;

use medium::Medium;
use medium::sync::Ordering;

use super::bitmaps::bitmap_check;
use super::left_alone::LEFT_ALONE;
use super::{MediumGuard, SPAN, SPAN_SLABS_MAX, Space, slab_of, slab_start};
use crate::Result;
use crate::class::{BITMAP_WORD, Class};
use crate::header::unchecked;
use crate::limits::SLAB_BYTES;

/// The known use of a slab.
pub(super) enum SlabUse {
    /// No part of it is in use.
    Free,
    /// It begins a span of this many slabs; 0 inside of a span.
    Span(u32),
    /// It is cut into slots of a class. The bitmap has the slots in use; `None` if they are not
    /// known.
    Cut(Class, Option<Vec<u64>>),
    /// Its class word is damaged.
    Damaged,
}

fn has_slot(bitmap: &[u64], slot: u32) -> bool {
    bitmap[slot as usize / 64] >> (slot % 64) & 1 == 1
}

/// Which space is in use, as far as that is known.
pub struct Usage<'s> {
    space: &'s Space,
    /// The use of old slabs, if it was not known when this was made.
    old: Vec<SlabUse>,
}

impl Space {
    /// The use of an old slab by its head. `end` is the first slab that is not old.
    pub(super) fn head<M: Medium>(
        &self,
        guard: &MediumGuard<'_, M>,
        slab: u32,
        end: u32,
    ) -> Result<SlabUse> {
        if guard.medium().is_hole(slab_start(slab)) {
            return Ok(SlabUse::Free);
        }
        let word = guard.words(slab_start(slab), 1)?[0].load(guard);
        if word == 0 && Self::is_blank(guard, slab)? {
            return Ok(SlabUse::Free);
        }
        let Some(class_word) = unchecked(word) else {
            return Ok(SlabUse::Damaged);
        };
        let span = class_word.wrapping_sub(SPAN);
        if (1..=SPAN_SLABS_MAX).contains(&span) && u64::from(slab) + span <= u64::from(end) {
            return Ok(SlabUse::Span(span as u32));
        }
        let Some(class) = Class::from_index(class_word.wrapping_sub(1)) else {
            return Ok(SlabUse::Free);
        };
        let words = guard.words(slab_start(slab), BITMAP_WORD + class.bitmap_words())?;
        let bitmap: Vec<u64> = words[BITMAP_WORD..]
            .iter()
            .map(|word| word.load(guard))
            .collect();
        let is_known = self.was_closed && words[1].load(guard) == bitmap_check(&bitmap);
        Ok(SlabUse::Cut(class, is_known.then_some(bitmap)))
    }

    /// The use of a slab that is not old, or whose use is known by now.
    fn known_head(&self, slab: u32) -> SlabUse {
        let known = self.slabs.get(slab);
        let class = known.class.load(Ordering::Acquire);
        if known.state.load(Ordering::Relaxed) == LEFT_ALONE {
            return SlabUse::Damaged;
        }
        if let Some(slabs) = class.checked_sub(SPAN) {
            return SlabUse::Span(slabs as u32);
        }
        let Some(class) = Class::from_index(class.wrapping_sub(1)) else {
            return SlabUse::Free;
        };
        let words = known.bitmap[..class.bitmap_words()].iter();
        SlabUse::Cut(
            class,
            Some(words.map(|word| word.load(Ordering::Acquire)).collect()),
        )
    }

    /// Which space is in use. O(slabs).
    pub(crate) fn usage<M: Medium>(&self, guard: &MediumGuard<'_, M>) -> Result<Usage<'_>> {
        let end = self.unmarked_below.load(Ordering::Acquire);
        let mut old = Vec::new();
        while old.len() < end as usize {
            let head = match old.len() {
                0 => SlabUse::Free,
                slab => self.head(guard, slab as u32, end)?,
            };
            let inside = if let SlabUse::Span(slabs) = head {
                slabs as usize - 1
            } else {
                0
            };
            old.push(head);
            old.extend((0..inside).map(|_| SlabUse::Span(0)));
        }
        Ok(Usage { space: self, old })
    }
}

impl Usage<'_> {
    /// Calls `see` with the known use of a slab.
    fn with_head<R>(&self, slab: u32, see: impl FnOnce(&SlabUse) -> R) -> R {
        match self.old.get(slab as usize) {
            Some(head) => see(head),
            None => see(&self.space.known_head(slab)),
        }
    }

    /// Whether the allocation at an offset was freed: then its content may be whole, but is
    /// outdated.
    #[must_use]
    pub fn is_free(&self, offset: u64) -> bool {
        let slab = slab_of(offset);
        slab < self.space.slabs.len()
            && self.with_head(slab, |head| match head {
                SlabUse::Free => true,
                SlabUse::Cut(class, Some(bitmap)) => class
                    .slot_at(offset % SLAB_BYTES)
                    .is_some_and(|slot| !has_slot(bitmap, slot)),
                SlabUse::Span(_) | SlabUse::Cut(_, None) | SlabUse::Damaged => false,
            })
    }

    /// The offsets of allocations of these classes that are in use or may be, each with whether its
    /// use is known. A slab whose class word is damaged may be cut into any of them.
    pub(crate) fn places(&self, classes: RangeInclusive<usize>) -> Vec<(u64, bool)> {
        let mut places = Vec::new();
        let mut add = |slab: u32, class: Class, bitmap: Option<&[u64]>| {
            let slots = (0..class.slots())
                .filter(|slot| bitmap.is_none_or(|bitmap| has_slot(bitmap, *slot)));
            places.extend(
                slots.map(|slot| (slab_start(slab) + class.slot_offset(slot), bitmap.is_some())),
            );
        };
        for slab in 1..self.space.unowned.lock().next {
            self.with_head(slab, |head| match head {
                SlabUse::Cut(class, bitmap) if classes.contains(&class.index()) => {
                    add(slab, *class, bitmap.as_deref());
                }
                SlabUse::Damaged => {
                    let classes = classes
                        .clone()
                        .filter_map(|index| Class::from_index(index as u64));
                    classes.for_each(|class| add(slab, class, None));
                }
                _ => {}
            });
        }
        places.sort_unstable();
        places.dedup();
        places
    }
}
