//! Verification of everything that can be verified, and figures.

use std::collections::HashSet;

use crate::index::record::KEY_BYTES_MAX;
use medium::Medium;

use super::Core;
use super::access::{HEIGHT_MAX, NodeRef, View, Walk};
use super::cells::no_cell;
use super::layout::{Border, Interior, OFFSET_MASK, nibble};
use super::permutation::Permutation;
use super::record::Record;
use super::slice::{LAYER, LONGER, Slice};
use super::version::Version;
use crate::index::Violation;
use crate::{Error, Result};

/// Up to so many objects each is looked at for whether something else leads to it as well.
const OBJECTS_REMEMBERED: usize = 1 << 22;

/// A node to be looked at, and what it may hold.
#[derive(Clone, Copy)]
struct Task {
    pointer: u64,
    depth: usize,
    level: u32,
    low: Option<Slice>,
    high: Option<Slice>,
}

/// What a walk over the whole tree finds.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) violations: Vec<Violation>,
    pub(super) keys: u64,
    pub(super) borders: u64,
    pub(super) interiors: u64,
    pub(super) layers: u64,
    pub(super) height: u32,
    /// Nodes and records.
    objects: u64,
    seen: HashSet<u64>,
}

impl Survey {
    fn expect(&mut self, offset: u64, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(Violation { offset, what: what() });
        }
    }

    /// Counts an object; returns whether nothing else was seen to lead to it.
    fn reach(&mut self, offset: u64) -> bool {
        self.objects += 1;
        let is_new = self.seen.len() >= OBJECTS_REMEMBERED || self.seen.insert(offset);
        self.expect(offset, is_new, || "two ways lead to one object".to_owned());
        is_new
    }
}

impl<M: Medium> Core<M> {
    /// Walks the whole tree while nobody writes. O(n).
    pub(super) fn survey(&self) -> Result<Survey> {
        let _shards = self.stop();
        self.survey_stopped()
    }

    /// The same, where nobody writes.
    pub(super) fn survey_stopped(&self) -> Result<Survey> {
        let mut view = self.look();
        view.has_pass = true;
        let mut survey = Survey::default();
        let root = view.guard.node::<super::layout::Anchor>(self.anchor)?.root.value.load(&view.guard);
        let mut tasks = vec![Task { pointer: root, depth: 0, level: 0, low: None, high: None }];
        survey.layers = 1;
        let nodes_max = self.nodes_max(&view.guard);
        while let Some(task) = tasks.pop() {
            let nodes = survey.borders + survey.interiors;
            if nodes > nodes_max {
                survey.expect(self.anchor, false, || "the nodes form a circle".to_owned());
                break;
            }
            if let Err(stop) = view.survey_node(task, &mut survey, &mut tasks) {
                let error = stop.error_or(|| Error::corrupt(task.pointer, "a node that changes"));
                survey.expect(task.pointer & OFFSET_MASK, false, || error.to_string());
            }
        }
        match self.objects_taken(&view.guard, view.epoch) {
            Ok(taken) => {
                let reached = survey.objects;
                survey.expect(self.anchor, taken == reached || !survey.violations.is_empty(), || {
                    format!("{taken} objects are allocated, but {reached} are reached")
                });
            }
            Err(error) => survey.expect(self.anchor, false, || error.to_string()),
        }
        Ok(survey)
    }
}

impl<M: Medium> View<'_, M> {
    fn survey_node(&self, task: Task, survey: &mut Survey, tasks: &mut Vec<Task>) -> Walk<()> {
        let offset = task.pointer & OFFSET_MASK;
        // A node that was seen is not gone through once more: what lies below it may lead back to it.
        if !survey.reach(offset) {
            return Ok(());
        }
        let is_within = task.level < HEIGHT_MAX as u32 && 8 * task.depth <= KEY_BYTES_MAX;
        survey.expect(offset, is_within, || format!("level {} of layer {}", task.level, task.depth));
        if !is_within {
            return Ok(());
        }
        let node = self.node(task.pointer)?;
        // It has a meaning in this execution only; but nobody works now.
        let is_at_rest = Version::now(&self.guard, node.version()).is_at_rest();
        survey.expect(offset, is_at_rest, || "a node that is locked or deleted".to_owned());
        match node {
            NodeRef::Border(node) => {
                survey.borders += 1;
                if task.depth == 0 {
                    survey.height = survey.height.max(task.level);
                }
                self.survey_border(node, task, survey, tasks)
            }
            NodeRef::Interior(node) => {
                survey.interiors += 1;
                self.survey_interior(node, task, survey, tasks);
                Ok(())
            }
        }
    }

    fn survey_interior(&self, node: &Interior, task: Task, survey: &mut Survey, tasks: &mut Vec<Task>) {
        let offset = task.pointer & OFFSET_MASK;
        let claimed = node.shape.load(&self.guard) & 15;
        survey.expect(offset, claimed <= self.core.width as u64, || format!("{claimed} separators"));
        let parts = self.parts(node);
        let mut low = task.low;
        for (index, child) in parts.children.iter().enumerate() {
            let high = parts.separators.get(index).copied().or(task.high);
            let is_ordered = low.zip(high).is_none_or(|(low, high)| low < high);
            survey.expect(offset, is_ordered, || format!("separator {index} is out of order"));
            tasks.push(Task { pointer: *child, level: task.level + 1, low, high, ..task });
            low = high;
        }
    }

    fn survey_border(
        &self,
        node: &Border,
        task: Task,
        survey: &mut Survey,
        tasks: &mut Vec<Task>,
    ) -> Walk<()> {
        let offset = task.pointer & OFFSET_MASK;
        let permutation = Permutation(node.permutation.load(&self.guard));
        survey.expect(offset, permutation.is_sound(self.core.width), || {
            format!("permutation {:x}", permutation.0)
        });
        let mut last = None;
        let are_words = self.core.are_words;
        for position in 0..permutation.count(self.core.width) {
            let slot = permutation.slot(position);
            let slice = self.slice_of(node, slot);
            let class = nibble(node.classes.load(&self.guard), slot);
            let value = node.values.value(slot).load(&self.guard);
            let is_class = if are_words { class == 8 } else { class <= LAYER };
            survey.expect(offset, is_class, || format!("slot {slot} has class {class}"));
            let is_ordered = last.is_none_or(|last| last < slice);
            survey.expect(offset, is_ordered, || format!("position {position} is out of order"));
            let is_inside =
                task.low.is_none_or(|low| low <= slice) && task.high.is_none_or(|high| slice < high);
            survey.expect(offset, is_inside, || format!("position {position} belongs to another node"));
            last = Some(slice);
            if are_words {
                survey.keys += 1;
                let cell = self.load_cell(node, slot, value);
                survey.expect(offset, cell.is_some(), || no_cell(offset).to_string());
                continue;
            }
            if class == LAYER {
                survey.layers += 1;
                let depth = task.depth + 1;
                tasks.push(Task { pointer: value, depth, level: 0, low: None, high: None });
                continue;
            }
            survey.keys += 1;
            survey.reach(value);
            let record = Record::at(&self.guard, value)?;
            if class == LONGER {
                let bytes = slice.word.to_be_bytes();
                let has_key = record.key_length() > 8 * (task.depth + 1)
                    && record.has_part(&self.guard, 8 * task.depth, &bytes)?;
                survey.expect(offset, has_key, || format!("slot {slot} has another key, or none"));
            }
            let is_padded = record.is_padded(&self.guard)?;
            survey.expect(value, is_padded, || "a key or a value that is not padded with zeros".to_owned());
            record.copy_value(&self.guard, &mut Vec::new())?;
        }
        let needs_key = task.depth > 0 || task.level > 0;
        survey.expect(offset, !needs_key || permutation.count(self.core.width) > 0, || {
            "an empty node".to_owned()
        });
        Ok(())
    }
}
