//! Verification and salvage: one walk over all of a tree, in the order of keys, while no other
//! thread works.

use std::rc::Rc;

use medium::Medium;
use rustc_hash::FxHashSet;

use super::access::{HEIGHT_MAX, NodeRef, View, Walk};
use super::allocator::border_class;
use super::cells::{NO_CELL, NO_WORD};
use super::core::Core;
use super::layout::{Anchor, Border, Interior, OFFSET_MASK, nibble};
use super::permutation::Permutation;
use super::record::Record;
use super::slice::{LAYER, Slice};
use super::version::Version;
use crate::index::record::KEY_BYTES_MAX;
use crate::index::{LeftOut, Part, Violation};
use crate::kit::salvage::{Entry, Salvage, note_lost, what_of};
use crate::{Error, Result};

/// Of so many objects the walk remembers that it reached them, to find those that two pointers lead
/// to.
const OBJECTS_REMEMBERED: usize = 1 << 22;

/// A node, so many levels below the root of its layer, and what it may hold.
struct Place {
    pointer: u64,
    level: usize,
    /// What all keys of the layer begin with.
    prefix: Rc<[u8]>,
    low: Option<Slice>,
    high: Option<Slice>,
    /// Entries of a border node that the walk has gone through.
    done: usize,
}

impl Place {
    fn root(pointer: u64, prefix: Rc<[u8]>) -> Self {
        Self {
            pointer,
            level: 0,
            prefix,
            low: None,
            high: None,
            done: 0,
        }
    }
}

/// What a walk over the whole tree finds.
pub(super) struct Survey<'v> {
    /// What is damaged, but keeps no entry from being read.
    violations: Vec<Violation>,
    /// Takes the entries, and what cannot be read.
    salvage: Salvage<'v>,
    pub(super) keys: u64,
    pub(super) borders: u64,
    pub(super) height: u32,
    /// Nodes and records.
    objects: u64,
    seen: FxHashSet<u64>,
    /// Whether all objects were reached so far.
    is_sound: bool,
    /// Where the walk goes, the next one last.
    places: Vec<Place>,
}

impl Survey<'_> {
    fn expect(&mut self, offset: u64, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(Violation {
                offset,
                what: what(),
            });
        }
    }

    /// Counts an object; returns whether nothing else was seen to lead to it.
    fn reach(&mut self, offset: u64) -> bool {
        self.objects += 1;
        self.seen.len() >= OBJECTS_REMEMBERED || self.seen.insert(offset)
    }

    /// What keeps entries from being read, and what is damaged besides.
    pub(super) fn finish(self) -> (Vec<LeftOut>, Vec<Violation>) {
        (self.salvage.finish(), self.violations)
    }
}

impl<M: Medium> Core<M> {
    /// Calls `visit` with the entries that can be read, in ascending order of keys, until it
    /// returns `false`; no other thread works meanwhile. Where nodes do not lead to others, those
    /// are found in the slabs. Returns what was left out, or else what is damaged. O(n).
    pub(super) fn salvage(
        &self,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Vec<LeftOut>> {
        let mut all = |_: &[u8], _: &[u8]| true;
        let Survey { seen, salvage, .. } = self.survey(&mut all, Vec::new())?;
        if salvage.finish().is_empty() {
            let (_, violations) = self.survey(visit, Vec::new())?.finish();
            return Ok(violations.into_iter().map(LeftOut::unknown).collect());
        }
        let (lost, note) = self.lost(|object| !seen.contains(&object))?;
        let (mut left_out, _) = self.survey(visit, lost)?.finish();
        left_out.extend(note);
        Ok(left_out)
    }

    /// The entries of border nodes that are not free, and that nothing leads to. Touches no node,
    /// so the tree need not be open.
    pub(super) fn lost(
        &self,
        is_lost: impl Fn(u64) -> bool,
    ) -> Result<(Vec<Entry>, Option<LeftOut>)> {
        let _shards = self.epochs.stop();
        let view = self.view(self.epochs.running(), true);
        let space = self.space(&view.guard);
        let ((free, is_whole), runs) = (space.objects_known_free(view.epoch), space.objects());
        // Even an empty tree has a run, with its root; an anchor of zeros leads to none.
        let runs = runs.and_then(|runs| match runs.is_empty() {
            true => Err(Error::corrupt(self.anchor, "the anchor leads to no run")),
            false => Ok(runs),
        });
        let may_be_stale = !is_whole || runs.is_err() || self.epochs.any_failed();
        let runs = runs.or_else(|_| space.objects_in_slabs())?;
        let nodes = runs
            .into_iter()
            .filter(|run| run.class == border_class(self.are_words))
            .flatten();
        let mut lost = Vec::new();
        for offset in nodes.filter(|node| is_lost(*node) && !free.contains(node)) {
            view.read_alone(offset, &free, &mut lost);
        }
        let note = (!lost.is_empty()).then(|| note_lost(lost.len(), self.anchor, may_be_stale));
        Ok((lost, note))
    }

    pub(super) fn survey<'v>(
        &self,
        visit: &'v mut dyn FnMut(&[u8], &[u8]) -> bool,
        lost: Vec<Entry>,
    ) -> Result<Survey<'v>> {
        let _shards = self.epochs.stop();
        let view = self.view(self.epochs.running(), true);
        let root = view
            .guard
            .node::<Anchor>(self.anchor)?
            .root
            .value
            .load(&view.guard);
        let mut survey = Survey {
            violations: Vec::new(),
            salvage: Salvage::with_lost(visit, lost),
            keys: 0,
            borders: 0,
            height: 0,
            objects: 0,
            seen: FxHashSet::default(),
            is_sound: true,
            places: vec![Place::root(root, Rc::new([]))],
        };
        while let Some(place) = survey.places.pop() {
            let offset = place.pointer & OFFSET_MASK;
            if let Err(stop) = view.survey_node(place, &mut survey) {
                let what = what_of(&self.error_of(stop));
                survey.salvage.leave_out(
                    offset,
                    Part::Node,
                    format!("a node and all below it: {what}"),
                );
                survey.is_sound = false;
            }
        }
        match self.space(&view.guard).objects_taken(view.epoch) {
            Ok(taken) => {
                let reached = survey.objects;
                survey.expect(self.anchor, taken == reached || !survey.is_sound, || {
                    format!("{taken} objects are allocated, but {reached} are reached")
                });
            }
            Err(error) => survey.expect(self.anchor, false, || what_of(&error)),
        }
        Ok(survey)
    }
}

impl<M: Medium> View<'_, M> {
    /// Goes through a node, up to its first layer. What is below it, and the rest of it, become the
    /// next places.
    fn survey_node(&self, place: Place, survey: &mut Survey<'_>) -> Walk<()> {
        let offset = place.pointer & OFFSET_MASK;
        // A node that was seen is not gone through once more: what lies below it may lead back to
        // it.
        if place.done == 0 && !survey.reach(offset) {
            return Err(Error::corrupt(offset, "two ways lead to it").into());
        }
        if place.level >= HEIGHT_MAX || place.prefix.len() > KEY_BYTES_MAX {
            return Err(Error::corrupt(offset, "deeper than a tree can be").into());
        }
        let node = self.node(place.pointer)?;
        if place.done == 0 {
            // Versions are volatile, but no thread works now, so each must be at rest.
            let is_at_rest = Version::now(&self.guard, node.version()).is_at_rest();
            survey.expect(offset, is_at_rest, || {
                "a node that is locked or deleted".to_owned()
            });
        }
        match node {
            NodeRef::Border(node) => self.survey_border(node, place, survey),
            NodeRef::Interior(node) => self.survey_interior(node, &place, survey),
        }
    }

    fn survey_interior(&self, node: &Interior, place: &Place, survey: &mut Survey<'_>) -> Walk<()> {
        let (offset, claimed) = (
            self.guard.offset_of(node),
            node.shape.load(&self.guard) & 15,
        );
        if claimed > self.core.width as u64 {
            return Err(Error::corrupt(offset, format!("{claimed} separators")).into());
        }
        let parts = self.parts(node);
        for (index, child) in parts.children.iter().enumerate().rev() {
            let low = index
                .checked_sub(1)
                .map(|before| parts.separators[before])
                .or(place.low);
            let high = parts.separators.get(index).copied().or(place.high);
            let is_ordered = low.zip(high).is_none_or(|(low, high)| low < high);
            survey.expect(offset, is_ordered, || {
                format!("separator {index} is out of order")
            });
            let (level, prefix) = (place.level + 1, Rc::clone(&place.prefix));
            survey.places.push(Place {
                pointer: *child,
                level,
                prefix,
                low,
                high,
                done: 0,
            });
        }
        Ok(())
    }

    fn survey_border(&self, node: &Border, place: Place, survey: &mut Survey<'_>) -> Walk<()> {
        let offset = self.guard.offset_of(node);
        let permutation = Permutation(node.permutation.load(&self.guard));
        if !permutation.is_sound(self.core.width) {
            return Err(Error::corrupt(offset, format!("permutation {:x}", permutation.0)).into());
        }
        let (count, classes) = (
            permutation.count(self.core.width),
            node.classes.load(&self.guard),
        );
        if place.done == 0 {
            survey.borders += 1;
            let is_first = place.prefix.is_empty();
            survey.height = survey
                .height
                .max(if is_first { place.level as u32 } else { 0 });
            let may_be_empty = is_first && place.level == 0;
            if count == 0 && !may_be_empty {
                return Err(Error::corrupt(offset, "an empty node").into());
            }
        }
        let slice_at = |position| self.slice_of(node, permutation.slot(position));
        for position in place.done..count {
            let (slot, slice) = (permutation.slot(position), slice_at(position));
            let class = nibble(classes, slot);
            let is_class = if self.core.are_words {
                class == 8
            } else {
                class <= LAYER
            };
            survey.expect(offset, is_class, || {
                format!("slot {slot} has class {class}")
            });
            let above = if position + 1 < count {
                Some(slice_at(position + 1))
            } else {
                place.high
            };
            let is_inside =
                place.low.is_none_or(|low| low <= slice) && above.is_none_or(|above| slice < above);
            survey.expect(offset, is_inside, || {
                format!("position {position} is out of order")
            });
            if class != LAYER || self.core.are_words {
                let content = node.values.value(slot).load(&self.guard);
                let is_new = self.core.are_words || survey.reach(content);
                survey.expect(content, is_new, || "two ways lead to one record".to_owned());
                survey.keys += 1;
                medium::progress::advance(1);
                let read = self.read_slot(node, slot, Some(&place.prefix));
                survey.is_sound &= read.is_ok();
                if !survey.salvage.entry(offset, read) {
                    // No more are wanted.
                    (survey.is_sound, survey.places) = (false, Vec::new());
                    return Ok(());
                }
            } else if is_inside {
                let prefix = [&*place.prefix, &slice.word.to_be_bytes()].concat().into();
                survey.places.push(Place {
                    done: position + 1,
                    ..place
                });
                survey.places.push(Place::root(
                    node.values.value(slot).load(&self.guard),
                    prefix,
                ));
                return Ok(());
            } else {
                // If its slice is wrong, so are all keys of the layer, and they would displace
                // those behind it.
                survey
                    .salvage
                    .leave_out(offset, Part::Node, "a layer out of order".to_owned());
            }
        }
        Ok(())
    }

    /// Adds the entries of a border node, wherever it lies in the tree. What cannot be read costs
    /// its own entry; one whose record is free was removed.
    fn read_alone(&self, offset: u64, free: &FxHashSet<u64>, entries: &mut Vec<Entry>) {
        let Ok(node) = self.guard.node::<Border>(offset) else {
            return;
        };
        let (permutation, width) = (
            Permutation(node.permutation.load(&self.guard)),
            self.core.width,
        );
        let count = if permutation.is_sound(width) {
            permutation.count(width)
        } else {
            0
        };
        let slots = (0..count).map(|position| permutation.slot(position));
        let is_free = |slot| free.contains(&node.values.value(slot).load(&self.guard));
        let in_use = slots.filter(|slot| self.core.are_words || !is_free(*slot));
        entries.extend(in_use.filter_map(|slot| self.read_slot(node, slot, None).ok()));
    }

    /// The key and the value in a slot of a border node, below `prefix` unless that is not known: a
    /// record has all of its key.
    fn read_slot(&self, node: &Border, slot: usize, prefix: Option<&[u8]>) -> Result<Entry> {
        let (offset, slice) = (self.guard.offset_of(node), self.slice_of(node, slot));
        let content = node.values.value(slot).load(&self.guard);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        slice.append_to(&mut key);
        if self.core.are_words {
            let word = self
                .load_cell(node, slot, content)
                .ok_or_else(|| Error::corrupt(offset, NO_CELL))?;
            value.extend_from_slice(&word.to_be_bytes());
            return if slice.class == 8 {
                Ok((key, value))
            } else {
                Err(Error::corrupt(offset, NO_WORD))
            };
        }
        let record = Record::at(&self.guard, content)?;
        key = record.key(&self.guard)?.unwrap_or(key);
        record.copy_value(&self.guard, &mut value)?;
        let is_below = |prefix| {
            key.strip_prefix(prefix)
                .is_some_and(|rest| Slice::of(rest) == slice)
        };
        if prefix.is_none_or(is_below) && record.is_sound(&self.guard, &key, &value)? {
            return Ok((key, value));
        }
        Err(Error::corrupt(
            offset,
            "a record that fails its check, or of another key",
        ))
    }
}
