//! Verification and salvage: one walk over all of a tree, in the order of keys, while no other
//! thread works.
//!
//! The walk of a salvage is cut into rounds ([`Core::salvage`]): it holds all shards while it reads
//! some entries, and none while it calls `visit` with them. The caller may do anything in `visit`,
//! so it may wait for another thread; that thread may wait for this tree.

use std::cell::RefCell;
use std::rc::Rc;

use medium::Medium;
use rustc_hash::FxHashSet;

use super::access::{HEIGHT_MAX, NodeRef, TreeAccess, Walk};
use super::allocator::border_class;
use super::cells::{NO_CELL, NO_WORD};
use super::core::Core;
use super::layout::{Anchor, Border, Interior, OFFSET_MASK, nibble};
use super::permutation::Permutation;
use super::record::Record;
use super::slice::{LAYER, LONGER, Slice};
use super::version::Version;
use crate::index::record::{KEY_BYTES_MAX, prefix_word};
use crate::index::{LeftOut, Part, Violation};
use crate::kit::salvage::{OwnedEntry, Salvage, note_lost, what_of};
use crate::{Error, ErrorKind, Result};

/// The most objects of which the walk remembers that it reached them, to find those that two
/// pointers lead to.
const OBJECTS_REMEMBERED: usize = 1 << 22;

/// A round of a salvage ends after this many entries, or this many bytes of them.
const ROUND_ENTRIES: usize = 1 << 10;
const ROUND_BYTES: usize = 1 << 20;

/// A node, its level below the root of its layer, and the keys that it may hold.
struct NodeToCheck {
    pointer: u64,
    level: usize,
    /// The bytes with which all keys of the layer begin.
    prefix: Rc<[u8]>,
    low: Option<Slice>,
    high: Option<Slice>,
    /// Entries of a border node that the walk has gone through.
    done: usize,
    /// Whether an earlier round came here, and stopped at this node or below it.
    is_resumed: bool,
}

impl NodeToCheck {
    fn root(pointer: u64, prefix: Rc<[u8]>) -> Self {
        Self {
            pointer,
            level: 0,
            prefix,
            low: None,
            high: None,
            done: 0,
            is_resumed: false,
        }
    }
}

/// How far a walk has come.
struct Position {
    /// The bytes with which all keys of the layer begin.
    prefix: Rc<[u8]>,
    /// The slice of the last entry that was read there. `None` in a layer that was not yet read.
    last: Option<Slice>,
}

/// Where in a layer a walk goes on.
#[derive(Clone, Copy)]
struct Resume {
    /// All entries before this slice were read.
    slice: Slice,
    /// Whether the walk stopped in the layer to which this slice leads. Otherwise the entry of this
    /// slice was read as well.
    is_below: bool,
}

impl Position {
    /// Where the walk goes on in the layer whose keys begin with `prefix`; `None` to read all of
    /// it.
    fn resume_in(&self, prefix: &[u8]) -> Option<Resume> {
        let below = self.prefix.strip_prefix(prefix)?;
        if below.is_empty() {
            return Some(Resume {
                slice: self.last?,
                is_below: false,
            });
        }
        let slice = Slice {
            word: prefix_word(below),
            class: LONGER,
        };
        Some(Resume {
            slice,
            is_below: true,
        })
    }
}

/// Entries that a round of a salvage has read, in ascending order of keys.
#[derive(Default)]
struct Round {
    entries: Vec<OwnedEntry>,
    bytes: usize,
}

impl Round {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.entries.push((key.to_vec(), value.to_vec()));
        self.bytes += key.len() + value.len();
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= ROUND_ENTRIES || self.bytes >= ROUND_BYTES
    }

    /// Calls `visit` with the entries. Returns whether it wants more.
    fn hand_over(self, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> bool {
        self.entries.iter().all(|(key, value)| visit(key, value))
    }
}

/// The findings of a walk over the whole tree.
pub(super) struct Survey<'v> {
    /// Damage because of which no entry is lost.
    violations: Vec<Violation>,
    /// Takes the entries, and the damage because of which some cannot be read.
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
    places: Vec<NodeToCheck>,
    /// The place that was read last; `None` at the beginning.
    position: Option<Position>,
    /// The epoch in which `seen` was begun.
    epoch: u64,
}

impl<'v> Survey<'v> {
    fn new(salvage: Salvage<'v>) -> Self {
        Self {
            violations: Vec::new(),
            salvage,
            keys: 0,
            borders: 0,
            height: 0,
            objects: 0,
            seen: FxHashSet::default(),
            is_sound: true,
            places: Vec::new(),
            position: None,
            epoch: 0,
        }
    }

    /// Goes from the root of the tree to where the walk stopped, because other threads may have
    /// changed nodes since.
    fn resume(&mut self, root: u64, epoch: u64) {
        if self.epoch != epoch {
            // Nodes that were freed in the earlier epoch may be in use again, elsewhere.
            self.seen.clear();
            self.epoch = epoch;
        }
        self.places.clear();
        self.places.push(NodeToCheck {
            is_resumed: self.resume_in(&[]).is_some(),
            ..NodeToCheck::root(root, Rc::new([]))
        });
    }

    fn resume_in(&self, prefix: &[u8]) -> Option<Resume> {
        self.position.as_ref()?.resume_in(prefix)
    }

    /// Where in the layer of a node the walk goes on; `None` to read all of the node.
    fn resume_at(&self, place: &NodeToCheck) -> Option<Resume> {
        if place.is_resumed {
            self.resume_in(&place.prefix)
        } else {
            None
        }
    }

    fn expect(&mut self, offset: u64, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(Violation {
                offset,
                what: what(),
            });
        }
    }

    /// Counts an object; returns whether the walk reaches it for the first time.
    fn reach(&mut self, offset: u64) -> bool {
        self.objects += 1;
        self.seen.len() >= OBJECTS_REMEMBERED || self.seen.insert(offset)
    }

    /// Damage because of which entries cannot be read, and other damage.
    pub(super) fn finish(self) -> (Vec<LeftOut>, Vec<Violation>) {
        (self.salvage.finish(), self.violations)
    }
}

impl<M: Medium> Core<M> {
    /// Calls `visit` with the entries that can be read, in ascending order of keys, until it
    /// returns `false`. Where nodes do not lead to others, those are found in the slabs. Returns
    /// the damage that cost entries or, if there is none, other damage. Entries that other threads,
    /// or `visit`, write meanwhile may be left out. O(n).
    ///
    /// 1. A survey of the whole tree finds the damage, while no other thread works.
    /// 2. If the damage costs entries, the slabs are searched for nodes to which nothing leads.
    /// 3. In rounds: some entries are read, while no other thread works; then all shards are
    ///    unlocked, and `visit` is called.
    pub(super) fn salvage(
        &self,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Vec<LeftOut>> {
        let mut all = |_: &[u8], _: &[u8]| true;
        let Survey {
            seen,
            salvage,
            violations,
            ..
        } = self.survey(&mut all)?;
        let mut left_out: Vec<LeftOut> = violations.into_iter().map(LeftOut::unknown).collect();
        let mut lost = Vec::new();
        if !salvage.finish().is_empty() {
            left_out.clear();
            let (entries, note) = self.lost(|object| !seen.contains(&object))?;
            lost = entries;
            left_out.extend(note);
        }
        drop(seen);
        let mut found = self.salvage_in_rounds(lost, visit)?;
        found.append(&mut left_out);
        Ok(found)
    }

    /// Step 3 of [`Core::salvage`]. Returns the damage that cost entries.
    fn salvage_in_rounds(
        &self,
        lost: Vec<OwnedEntry>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Vec<LeftOut>> {
        let round = RefCell::new(Round::default());
        let mut keep = |key: &[u8], value: &[u8]| {
            round.borrow_mut().add(key, value);
            true
        };
        let mut survey = Survey::new(Salvage::with_lost(&mut keep, lost));
        loop {
            self.read_round(&mut survey, &round)?;
            let is_at_end = survey.places.is_empty();
            if !round.take().hand_over(visit) {
                let (left_out, _) = survey.finish();
                return Ok(left_out);
            }
            if is_at_end {
                break;
            }
        }
        // These are the last entries, which the salvage has held back to check whether they are in
        // order.
        let (left_out, _) = survey.finish();
        round.take().hand_over(visit);
        Ok(left_out)
    }

    /// Goes on with a walk until a round is full or all was read, while no other thread works.
    fn read_round(&self, survey: &mut Survey<'_>, round: &RefCell<Round>) -> Result<()> {
        let _shards = self.epochs.stop();
        if self.epochs.are_over() {
            return Err(ErrorKind::InUse.into());
        }
        let view = self.view(self.epochs.running(), true);
        survey.resume(view.root()?, view.epoch);
        while let Some(place) = survey.places.pop() {
            view.survey_place(place, survey);
            if round.borrow().is_full() {
                break;
            }
        }
        Ok(())
    }

    /// The entries of border nodes that are not free, and that nothing leads to. Touches no node,
    /// so the tree need not be open.
    pub(super) fn lost(
        &self,
        is_lost: impl Fn(u64) -> bool,
    ) -> Result<(Vec<OwnedEntry>, Option<LeftOut>)> {
        let _shards = self.epochs.stop();
        let view = self.view(self.epochs.running(), true);
        let space = self.space(&view.guard);
        let (free, is_whole) = space.objects_known_free(view.epoch);
        let runs = space.objects();
        // Even an empty tree has a run, with its root; an anchor of zeros leads to none.
        let runs = runs.and_then(|runs| match runs.is_empty() {
            true => Err(Error::corrupt(self.anchor, "the anchor leads to no run")),
            false => Ok(runs),
        });
        let may_be_stale =
            self.is_doubtful || !is_whole || runs.is_err() || self.epochs.any_failed();
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

    /// Walks over the whole tree, while no other thread works. Calls `visit` with the entries that
    /// can be read; all shards are locked, so it must not wait for another thread.
    pub(super) fn survey<'v>(
        &self,
        visit: &'v mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Survey<'v>> {
        let _shards = self.epochs.stop();
        let view = self.view(self.epochs.running(), true);
        let mut survey = Survey::new(Salvage::new(visit));
        survey.resume(view.root()?, view.epoch);
        while let Some(place) = survey.places.pop() {
            view.survey_place(place, &mut survey);
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

impl<M: Medium> TreeAccess<'_, M> {
    /// The pointer to the root of the tree.
    fn root(&self) -> Result<u64> {
        let anchor = self.guard.node::<Anchor>(self.core.anchor)?;
        Ok(anchor.root.value.load(&self.guard))
    }

    /// Surveys a node, as [`TreeAccess::survey_node`] does, and notes the damage at which that ended.
    fn survey_place(&self, place: NodeToCheck, survey: &mut Survey<'_>) {
        let offset = place.pointer & OFFSET_MASK;
        if let Err(stop) = self.survey_node(place, survey) {
            let what = what_of(&self.core.error_of(stop));
            survey.salvage.leave_out(
                offset,
                Part::Node,
                format!("a node and all below it: {what}"),
            );
            survey.is_sound = false;
        }
    }

    /// Goes through a node, up to its first layer. The nodes below it, and the rest of it, become
    /// the next places.
    fn survey_node(&self, place: NodeToCheck, survey: &mut Survey<'_>) -> Walk<()> {
        let offset = place.pointer & OFFSET_MASK;
        // The walk does not go through a node again: nodes below it may lead back to it.
        let is_first_visit = place.done == 0 && !place.is_resumed;
        if is_first_visit && !survey.reach(offset) {
            return Err(Error::corrupt(offset, "two ways lead to it").into());
        }
        if place.level >= HEIGHT_MAX || place.prefix.len() > KEY_BYTES_MAX {
            return Err(Error::corrupt(offset, "deeper than a tree can be").into());
        }
        let node = self.node(place.pointer)?;
        if is_first_visit {
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

    fn survey_interior(
        &self,
        node: &Interior,
        place: &NodeToCheck,
        survey: &mut Survey<'_>,
    ) -> Walk<()> {
        let offset = self.guard.offset_of(node);
        let claimed = node.shape.load(&self.guard) & 15;
        if claimed > self.core.width as u64 {
            return Err(Error::corrupt(offset, format!("{claimed} separators")).into());
        }
        let parts = self.parts(node);
        let resume = survey.resume_at(place);
        for (index, child) in parts.children.iter().enumerate().rev() {
            let low = index
                .checked_sub(1)
                .map(|before| parts.separators[before])
                .or(place.low);
            let high = parts.separators.get(index).copied().or(place.high);
            let is_resumed = match resume {
                // An earlier round has read all of the child.
                Some(resume) if high.is_some_and(|high| high <= resume.slice) => continue,
                Some(resume) => low.is_none_or(|low| low <= resume.slice),
                None => false,
            };
            let is_ordered = low.zip(high).is_none_or(|(low, high)| low < high);
            survey.expect(offset, is_ordered, || {
                format!("separator {index} is out of order")
            });
            let level = place.level + 1;
            let prefix = Rc::clone(&place.prefix);
            survey.places.push(NodeToCheck {
                pointer: *child,
                level,
                prefix,
                low,
                high,
                done: 0,
                is_resumed,
            });
        }
        Ok(())
    }

    fn survey_border(
        &self,
        node: &Border,
        place: NodeToCheck,
        survey: &mut Survey<'_>,
    ) -> Walk<()> {
        let offset = self.guard.offset_of(node);
        let permutation = Permutation(node.permutation.load(&self.guard));
        if !permutation.is_sound(self.core.width) {
            return Err(Error::corrupt(offset, format!("permutation {:x}", permutation.0)).into());
        }
        let count = permutation.count(self.core.width);
        let classes = node.classes.load(&self.guard);
        let resume = survey.resume_at(&place);
        if place.done == 0 && !place.is_resumed {
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
        let first = match resume {
            Some(resume) => {
                let slices = (0..count).map(slice_at);
                first_unread(slices, resume, |position| {
                    nibble(classes, permutation.slot(position)) == LAYER
                })
            }
            None => place.done,
        };
        for position in first..count {
            let slot = permutation.slot(position);
            let slice = slice_at(position);
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
                survey.position = Some(Position {
                    prefix: Rc::clone(&place.prefix),
                    last: Some(slice),
                });
                let content = node.values.value(slot).load(&self.guard);
                let is_new = self.core.are_words || survey.reach(content);
                survey.expect(content, is_new, || "two ways lead to one record".to_owned());
                survey.keys += 1;
                medium::progress::advance(1);
                let read = self.read_slot(node, slot, Some(&place.prefix));
                survey.is_sound &= read.is_ok();
                survey.salvage.entry(offset, read);
            } else if is_inside {
                let prefix: Rc<[u8]> = [&*place.prefix, &slice.word.to_be_bytes()].concat().into();
                // The first entry that this round reads leads to the layer in which the round before
                // stopped, if it stopped below this node.
                let is_resumed = position == first
                    && resume.is_some_and(|at| at.is_below && at.slice == slice)
                    && survey.resume_in(&prefix).is_some();
                if !is_resumed {
                    survey.position = Some(Position {
                        prefix: Rc::clone(&prefix),
                        last: None,
                    });
                }
                survey.places.push(NodeToCheck {
                    done: position + 1,
                    is_resumed: false,
                    ..place
                });
                survey.places.push(NodeToCheck {
                    is_resumed,
                    ..NodeToCheck::root(node.values.value(slot).load(&self.guard), prefix)
                });
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

    /// Adds the entries of a border node, wherever it lies in the tree. Damage in an entry costs
    /// only that entry. An entry whose record is free was removed.
    fn read_alone(&self, offset: u64, free: &FxHashSet<u64>, entries: &mut Vec<OwnedEntry>) {
        let Ok(node) = self.guard.node::<Border>(offset) else {
            return;
        };
        let permutation = Permutation(node.permutation.load(&self.guard));
        let width = self.core.width;
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
    fn read_slot(&self, node: &Border, slot: usize, prefix: Option<&[u8]>) -> Result<OwnedEntry> {
        let offset = self.guard.offset_of(node);
        let slice = self.slice_of(node, slot);
        let content = node.values.value(slot).load(&self.guard);
        let mut key = Vec::new();
        let mut value = Vec::new();
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

/// The first position of a border node that an earlier round has not read. `is_layer` says whether
/// the entry at a position leads to a layer.
fn first_unread(
    slices: impl Iterator<Item = Slice> + Clone,
    resume: Resume,
    is_layer: impl Fn(usize) -> bool,
) -> usize {
    match slices.clone().position(|slice| slice == resume.slice) {
        Some(position) if resume.is_below && is_layer(position) => position,
        Some(position) => position + 1,
        // Another thread has removed it.
        None => slices.take_while(|slice| *slice < resume.slice).count(),
    }
}
