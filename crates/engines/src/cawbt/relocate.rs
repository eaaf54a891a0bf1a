//! Nodes that move out of slabs that are to be emptied.
//!
//! An inner node moves by one store of its parent. A leaf moves by a change of its parent and of the
//! leaf before it, which the log describes. The root stays where it is, since the tree's root leads
//! to it.

use super::change::Writer;
use super::find::{KeyPlace, Step};
use super::layout::{LoadedNode, NodeContent};
use super::log;
use super::record::Fresh;
use super::scan::ENTRIES;
use super::{CawbTree, LEVELS_MAX};
use crate::index::Moved;
use crate::kit::prelude::*;

/// A leaf after the nodes on the way to it were moved.
struct VisitedLeaf {
    /// When the moves are durable; `None` if none was necessary.
    lsn: Option<Lsn>,
    entries: usize,
    /// The first key of the next leaf.
    next: Option<Vec<u8>>,
}

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Moves the nodes on the ways to as many leaves from the key `low` on as a scan reads at once,
    /// if they lie in slabs that are to be emptied.
    pub(super) fn relocate_nodes(&self, low: &[u8]) -> Result<Moved> {
        let guard = &self.pool.pin();
        guard.admit()?;
        let mut moved = Moved::NotEvacuated;
        let mut entries = 0;
        let mut next = Some(low.to_vec());
        while let Some(key) = next
            && entries <= ENTRIES
        {
            let leaf = self.relocate_way(guard, C::bound(&key))?;
            if let Some(lsn) = leaf.lsn {
                moved = Moved::Done(lsn);
            }
            entries += leaf.entries.max(1);
            next = leaf.next;
        }
        Ok(moved)
    }

    /// Moves the nodes on the way to a key. Other writers wait.
    fn relocate_way(&self, guard: &Guard<'_, M>, key: C::Key<'_>) -> Result<VisitedLeaf> {
        let mut state = self.lock(guard)?;
        let mut writer = Writer {
            guard,
            state: &mut state,
        };
        let mut lsn = None;
        let mut place = self.locate(guard, key)?;
        // Each round moves one node of the way.
        for _ in 0..=LEVELS_MAX {
            let is_evacuated = |step: &Step| guard.is_evacuated(step.offset);
            let inner = place.path.iter().skip(1).position(is_evacuated);
            if let Some(position) = inner {
                let depth = position + 1;
                let old = place.path[depth].offset;
                let above = place.path[depth - 1];
                lsn = Some(self.relocate_below(&mut writer, old, above)?);
            } else if let Some(above) = place.path.last().copied()
                && guard.is_evacuated(place.leaf)
            {
                lsn = Some(self.relocate_leaf(&mut writer, &place, above)?);
            } else {
                break;
            }
            place = self.locate(guard, key)?;
        }
        let mut next = None;
        if place.node.next() != 0 {
            let behind = LoadedNode::load(guard, place.node.next())?;
            if behind.count() != 0 {
                let first = self.ids.entry(behind.id(0));
                C::copy_key(guard, first, next.insert(Vec::new()))?;
            }
        }
        let entries = place.node.count();
        let lsn = lsn.map(|lsn| Self::end(guard, state, lsn));
        Ok(VisitedLeaf { lsn, entries, next })
    }

    /// Replaces the leaf of a place, which is not the root, by a copy.
    fn relocate_leaf(
        &self,
        writer: &mut Writer<'_, '_, M>,
        place: &KeyPlace,
        above: Step,
    ) -> Result<Lsn> {
        let guard = writer.guard;
        let Some(before) = self.leaf_before(guard, place)? else {
            return self.relocate_below(writer, place.leaf, above);
        };
        let mut fresh = Fresh::new(self, guard);
        let copy = fresh.node(&NodeContent::of(&place.node), above.offset)?;
        let log = log::relocation([before, copy, above.offset, place.leaf]);
        let lsn = self.carry_out(guard, writer.state, &log)?;
        fresh.published();
        guard.retire_node(place.leaf);
        Ok(lsn)
    }

    /// Replaces a node to which only its parent leads by a copy.
    fn relocate_below(&self, writer: &mut Writer<'_, '_, M>, old: u64, above: Step) -> Result<Lsn> {
        let guard = writer.guard;
        let parent = LoadedNode::load(guard, above.offset)?;
        let mut content = NodeContent::of(&parent);
        let Some(position) = parent.position_of(old) else {
            return Err(Error::corrupt(above.offset, "a child that is not there"));
        };
        let node = LoadedNode::load(guard, old)?;
        let mut fresh = Fresh::new(self, guard);
        let copy = fresh.node(&NodeContent::of(&node), above.offset)?;
        content.pointers[position] = copy;
        self.write_log(guard, writer.state, &NodeContent::empty_leaf())?;
        // PERSIST: the copy is ordered before the parent that leads to it, and the log, which may
        // name the old node, is empty before; if this is lost, nothing happened.
        guard.fence();
        let concerned = [above.offset, old, copy];
        let lsn = self.store_one(
            guard,
            above.offset,
            &parent,
            &content,
            parent.parent(),
            &concerned,
        )?;
        fresh.published();
        guard.retire_node(old);
        Ok(lsn)
    }

    /// The leaf before that of a place; `None` if it is the first one.
    fn leaf_before(&self, guard: &Guard<'_, M>, place: &KeyPlace) -> Result<Option<u64>> {
        let Some(step) = place.path.iter().rev().find(|step| step.position > 0) else {
            return Ok(None);
        };
        let mut node = LoadedNode::load(guard, step.offset)?;
        let mut position = step.position - 1;
        for _ in 0..=LEVELS_MAX {
            let offset = node.pointer(position);
            node = LoadedNode::load(guard, offset)?;
            if node.is_leaf() {
                return Ok(Some(offset));
            }
            position = node.count();
        }
        Err(Error::corrupt(
            step.offset,
            "a tree with more levels than any tree has",
        ))
    }
}
