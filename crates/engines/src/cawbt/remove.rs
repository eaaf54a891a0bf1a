//! Removes.

use medium::{Lsn, Medium};

use super::CawbTree;
use super::change::{Change, Writer};
use super::find::{Place, Step};
use super::layout::{Content, Node};
use super::record::retire;
use crate::index::{Codec, Condition};
use crate::kit::write::holds;
use crate::{Error, Result};

/// Leaves are merged that have so many keys together, or of which one has none.
const MERGED_MAX: usize = 2;

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Removes a key, if `condition` holds.
    pub(super) fn erase(&self, key: C::Key<'_>, condition: Condition<C::Value<'_>>) -> Result<bool> {
        let guard = self.pool.pin();
        guard.admit()?;
        let mut state = self.lock(&guard)?;
        let (lsn, id, record) = loop {
            let mut place = self.locate(&guard, key)?;
            let held = holds::<M, C>(&guard, condition, place.found)?;
            if place.found.is_none() || !held {
                let lsn = self.versions.lsn(place.leaf);
                drop(state);
                guard.wait_for(lsn)?;
                return Ok(held);
            }
            let mut writer = Writer { guard: &guard, state: &mut state };
            let (id, record) = (place.node.id(place.position - 1), place.node.pointer(place.position - 1));
            let left = place.node.count() - 1;
            let pair = if left < MERGED_MAX { self.to_be_merged(&writer, &place, left)? } else { None };
            let separated = place.separator.map(|level| place.path[level]);
            let lsn = match pair {
                Some(_) if self.settle(&mut writer, &mut place.path)? => continue,
                Some(pair) => self.merge_leaves(&mut writer, &mut place.path, pair, id, separated)?,
                None => self.take_out(&writer, &place, separated)?,
            };
            break (lsn, id, record);
        };
        state.counts.keys -= 1;
        self.ids.retire(&guard, id);
        drop(state);
        guard.wait_for(lsn)?;
        retire::<M, C>(&guard, record);
        Ok(true)
    }

    /// Removes an entry from its leaf, and its ID from the inner node that it separates.
    #[inline]
    fn take_out(&self, writer: &Writer<'_, '_, M>, place: &Place, separated: Option<Step>) -> Result<Lsn> {
        let guard = writer.guard;
        let (mut content, removed) = (Content::of(&place.node), place.node.id(place.position - 1));
        content.remove_entry(place.position - 1);
        let mut above = None;
        if let Some(step) = separated {
            let node = Node::load(guard, step.offset)?;
            let mut separators = Content::of(&node);
            // The leaf's first key now. Either line alone is a tree that recovery mends.
            separators.ids[..separators.count]
                .iter_mut()
                .filter(|id| **id == removed)
                .for_each(|id| *id = content.ids[0]);
            above = Some((step.offset, node, separators));
        }
        let concerned = std::iter::once(place.leaf).chain(above.map(|(offset, ..)| offset));
        let mut change = Change::of(self, guard, concerned);
        // PERSIST: nothing must precede; lost, the key is there.
        change.publish(place.leaf, &place.node, &content, place.parent())?;
        if let Some((offset, node, separators)) = &above {
            change.publish(*offset, node, separators, node.parent())?;
        }
        let lsn = guard.fence();
        change.end(lsn);
        Ok(lsn)
    }

    /// The leaf of a place and one beside it, in their order, if they are to be merged once the leaf has `left` keys.
    fn to_be_merged(
        &self,
        writer: &Writer<'_, '_, M>,
        place: &Place,
        left: usize,
    ) -> Result<Option<[(u64, Node); 2]>> {
        let Some(above) = place.path.last() else { return Ok(None) };
        let parent = Node::load(writer.guard, above.offset)?;
        let this = (place.leaf, place.node);
        let beside = |position: usize| -> Result<Option<(u64, Node)>> {
            let offset = parent.pointer(position);
            let node = Node::load(writer.guard, offset)?;
            let merges = left == 0 || left + node.count() <= MERGED_MAX;
            Ok((merges && node.is_leaf()).then_some((offset, node)))
        };
        if above.position < parent.count()
            && let Some(next) = beside(above.position + 1)?
        {
            return Ok(Some([this, next]));
        }
        match above.position.checked_sub(1).map(beside).transpose()?.flatten() {
            Some(before) => Ok(Some([before, this])),
            // The single leaf below a node that a crash has left so: it gets others first.
            None if left == 0 && parent.count() == 0 => Ok(Some([this, this])),
            None if left == 0 => Err(Error::corrupt(above.offset, "a leaf with nothing beside it")),
            None => Ok(None),
        }
    }
}
