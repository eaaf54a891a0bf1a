//! Walks over all nodes: the survey behind opens and checks, salvage, giving back.

use std::ops::RangeInclusive;

use medium::LINE_BYTES;

use super::layout::{LEAF_ENTRIES, Node, NodeLine};
use super::record::entry_at;
use super::{CawbTree, Counts, LEVELS_MAX};
use crate::kit::prelude::*;
use crate::kit::salvage::what_of;

pub(super) const NOT_FIRST: &str = "a separator that is not the first key to its right";

/// A node on a walk.
#[derive(Clone, Copy)]
struct Visited {
    offset: u64,
    /// Its level, from the root on.
    level: usize,
    /// The separator before it, 0 if there is none, and the node that has it.
    low: u32,
    low_at: u64,
}

/// A separator that is not the first key to its right: the node that has it, the separator, and that key.
pub(super) type Stale = (u64, u32, u32);

/// What there is in a tree.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) counts: Counts,
    /// In the order of their keys.
    pub(super) leaves: Vec<u64>,
    pub(super) stale: Vec<Stale>,
    pub(super) violations: Vec<Violation>,
}

/// How a walk reads a node.
type Read<'r> = dyn Fn(u64) -> Result<Node> + 'r;

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Reads and verifies a node.
    fn read_sound(guard: &Guard<'_, M>, offset: u64) -> Result<Node> {
        let node = Node::load(guard, offset)?;
        node.validate(offset).map(|()| node)
    }

    /// As [`CawbTree::read_sound`], or the other copy of a twin line, if only that is sound.
    fn read_any(guard: &Guard<'_, M>, offset: u64) -> Result<Node> {
        Self::read_sound(guard, offset).or_else(|error| {
            let mut copies = guard.node::<NodeLine>(offset)?.line.copies(guard).map(Node);
            copies.find(|node| node.validate(offset).is_ok()).ok_or(error)
        })
    }

    /// Visits all nodes, parents first, children in their order, each once. O(nodes), whatever the damage.
    fn walk(&self, guard: &Guard<'_, M>, read: &Read<'_>, visit: &mut dyn FnMut(Visited, Result<Node>)) {
        let mut todo = vec![Visited { offset: self.root, level: 0, low: 0, low_at: 0 }];
        let lines = guard.medium().extent().length() as usize / LINE_BYTES;
        let mut visited = vec![0_u64; lines.div_ceil(64)];
        while let Some(at) = todo.pop() {
            let line = at.offset as usize / LINE_BYTES;
            let (word, bit) = (line / 64, 1 << (line % 64));
            let is_again = visited.get(word).is_some_and(|word| word & bit != 0) || at.level > LEVELS_MAX;
            let node = match is_again {
                true => Err(Error::corrupt(at.offset, "a node that is reached twice")),
                false => read(at.offset),
            };
            visited.get_mut(word).into_iter().for_each(|word| *word |= bit);
            if let Ok(node) = node.as_ref()
                && !node.is_leaf()
            {
                for (position, offset) in node.pointers().enumerate().rev() {
                    Self::prefetch_node(guard, offset);
                    let (level, before) = (at.level + 1, position.checked_sub(1));
                    let (low, low_at) =
                        before.map_or((at.low, at.low_at), |before| (node.id(before), at.offset));
                    todo.push(Visited { offset, level, low, low_at });
                }
            }
            visit(at, node);
        }
    }

    /// Visits and verifies all nodes, but not what leaves lead to.
    pub(super) fn survey(&self, guard: &Guard<'_, M>, read: &Read<'_>) -> Survey {
        let (mut survey, mut next, mut depth) = (Survey::default(), None, None);
        self.walk(guard, read, &mut |at, node| {
            let mut found = |what: String| survey.violations.push(Violation { offset: at.offset, what });
            let node = match node {
                Ok(node) => node,
                Err(error) => return found(what_of(&error)),
            };
            *survey.counts.of_kind(node.is_leaf()) += 1;
            if !node.is_leaf() {
                return;
            }
            if next.is_some_and(|next| next != at.offset) {
                found("the leaf before links another one".to_owned());
            }
            if *depth.get_or_insert(at.level) != at.level {
                found("a leaf that is not as far from the root as others".to_owned());
            }
            if node.count() > LEAF_ENTRIES || node.count() == 0 && at.level > 0 {
                found(format!("a leaf with {} keys", node.count()));
            }
            if at.low != 0 && at.low != node.id(0) {
                survey.stale.push((at.low_at, at.low, node.id(0)));
            }
            next = Some(node.next());
            survey.counts.keys += node.count() as u64;
            survey.leaves.push(at.offset);
        });
        survey.counts.levels = depth.unwrap_or(0) as u32;
        if next.is_some_and(|next| next != 0) {
            let what = "the last leaf links another one".to_owned();
            survey.violations.push(Violation { offset: self.root, what });
        }
        survey
    }

    /// Verifies all nodes, records, and the table.
    pub(super) fn verify(&self) -> Result<Vec<Violation>> {
        let guard = self.pool.pin();
        let state = self.lock(&guard)?;
        let Survey { counts, leaves, stale, mut violations } =
            self.survey(&guard, &|offset| Self::read_sound(&guard, offset));
        let mut found = |offset: u64, what: String| violations.push(Violation { offset, what });
        stale.iter().for_each(|(offset, ..)| found(*offset, NOT_FIRST.to_owned()));
        let mut last_key = None;
        for offset in leaves {
            let node = Node::load(&guard, offset)?;
            for (position, record) in node.pointers().enumerate() {
                match self.verify_record(&guard, node.id(position), record, &mut last_key) {
                    Ok(what) => what.into_iter().for_each(|what| found(offset, what.to_owned())),
                    Err(error) => found(offset, what_of(&error)),
                }
            }
        }
        if let Err(error) = Self::read_sound(&guard, self.log) {
            found(self.log, what_of(&error));
        }
        if violations.is_empty() && counts != state.counts {
            let what = format!("the tree has {counts:?}, and it counted {:?}", state.counts);
            violations.push(Violation { offset: self.root, what });
        }
        Ok(violations)
    }

    fn verify_record(
        &self,
        guard: &Guard<'_, M>,
        id: u32,
        record: u64,
        last: &mut Option<Vec<u8>>,
    ) -> Result<Option<&'static str>> {
        let words = entry_at::<M, C>(guard, record, &mut Vec::new())?;
        if words != self.ids.entry(id) {
            return Ok(Some("an entry that is not the one in the table"));
        }
        verify_entry::<M, C>(guard, words, last)
    }

    /// Gives back all space. What cannot be visited stays taken.
    #[expect(clippy::unnecessary_wraps, reason = "other engines' fail where damage stops the walk")]
    pub(super) fn give_back(&self) -> Result<()> {
        let guard = self.pool.pin();
        self.walk(&guard, &|offset| Self::read_sound(&guard, offset), &mut |at, node| {
            let Ok(node) = node else { return };
            if node.is_leaf() {
                node.pointers().for_each(|record| guard.free(record));
            }
            guard.free_node(at.offset);
        });
        guard.free_node(self.log);
        Ok(())
    }
}

impl<M: Medium, C: Codec> Leafy<M, C> for CawbTree<M, C> {
    const IS_CHECKED: bool = true;
    const HAS_LINE: bool = true;

    fn at_root(pool: &Pool<M>, root: &TreeRoot) -> Result<Self> {
        root.demand((Self::ENGINE.0, C::ID), &[String::new(), String::new()])?;
        Self::unopened(pool, &root.words)
    }

    fn leaf_bytes(&self) -> RangeInclusive<usize> {
        LINE_BYTES..=LINE_BYTES
    }

    fn leaves(&self, guard: &Guard<'_, M>) -> (Vec<u64>, Vec<Violation>) {
        let survey = self.survey(guard, &|offset| Self::read_any(guard, offset));
        (survey.leaves, survey.violations)
    }

    fn entries(&self, guard: &Guard<'_, M>, leaf: u64) -> Result<Vec<Result<EntryWords>>> {
        let node = Self::read_any(guard, leaf)?;
        let records = node.pointers().filter(|_| node.is_leaf());
        Ok(records.map(|record| entry_at::<M, C>(guard, record, &mut Vec::new())).collect())
    }
}
