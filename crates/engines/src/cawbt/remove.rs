//! Removes.

use super::CawbTree;
use super::change::Writer;
use super::find::KeyPlace;
use super::layout::{LoadedNode, MERGED_MAX, NodeContent};
use super::publish::NodeChange;
use super::record::retire;
use crate::kit::prelude::*;

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Removes a key, if `condition` holds.
    pub(super) fn erase(
        &self,
        key: C::Key<'_>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<Written> {
        let guard = self.pool.pin();
        guard.admit()?;
        let mut state = self.lock(&guard)?;
        let mut writer = Writer {
            guard: &guard,
            state: &mut state,
        };
        let (mut place, held) = self.place_for(&mut writer, key, condition, true)?;
        if place.found.is_none() || !held {
            let lsn = Self::end(&guard, state, self.versions.lsn(place.leaf));
            return Ok(Written { held, lsn });
        }
        let id = place.node.id(place.position - 1);
        let record = place.node.pointer(place.position - 1);
        let lsn = match (
            self.to_be_merged(&guard, &place)?,
            place.path.last().copied(),
        ) {
            (Some(position), Some(above)) => {
                let lsn = self.merge(&mut writer, above, position, id, place.separated)?;
                place
                    .path
                    .iter_mut()
                    .next_back()
                    .iter_mut()
                    .for_each(|step| step.count -= 1);
                // The key is removed, so the remove does not return an error of this merge. The
                // next merge below finds it again.
                _ = self.merge_single(&mut writer, &mut place.path);
                lsn
            }
            _ => self.take_out(&guard, &place, id)?,
        };
        state.counts.keys -= 1;
        self.ids.retire(&guard, id);
        let lsn = Self::end(&guard, state, lsn);
        retire::<M, C>(&guard, record);
        Ok(Written::done(lsn))
    }

    /// Removes an entry from its leaf, and its ID from the inner node that has it as a separator.
    fn take_out(&self, guard: &Guard<'_, M>, place: &KeyPlace, removed: u32) -> Result<Lsn> {
        let content = NodeContent::of(&place.node).without(removed);
        let separated = place.separated;
        let above = if separated == 0 {
            None
        } else {
            Some(LoadedNode::load(guard, separated)?)
        };
        let concerned = [place.leaf, separated]
            .into_iter()
            .take(1 + usize::from(separated != 0));
        let mut change = NodeChange::of(self, guard, concerned);
        // PERSIST: nothing must precede; if this is lost, the key is still there.
        change.publish(place.leaf, &place.node, &content, place.parent)?;
        if let Some(node) = &above {
            let separators = NodeContent::of(node).with_separator(removed, content.ids[0]);
            // PERSIST: nothing must precede; if this is lost, recovery finds that the separator is
            // not the first key to its right.
            change.publish(separated, node, &separators, node.parent())?;
        }
        let lsn = guard.fence();
        change.end(lsn);
        Ok(lsn)
    }

    /// Whether a leaf is to be merged once it has lost a key: the position of the left one of two
    /// leaves below the parent.
    fn to_be_merged(&self, guard: &Guard<'_, M>, place: &KeyPlace) -> Result<Option<usize>> {
        let left = place.node.count() - 1;
        if left >= MERGED_MAX {
            return Ok(None);
        }
        let Some(above) = place.path.last() else {
            return Ok(None);
        };
        let parent = LoadedNode::load(guard, above.offset)?;
        let next = above.position;
        let before = above.position.checked_sub(1);
        let pairs = [
            (next < above.count).then_some((next, next + 1)),
            before.map(|before| (before, before)),
        ];
        for (position, beside) in pairs.into_iter().flatten() {
            if left == 0
                || left + LoadedNode::load(guard, parent.pointer(beside))?.count() <= MERGED_MAX
            {
                return Ok(Some(position));
            }
        }
        match left {
            0 => Err(Error::corrupt(
                above.offset,
                "a leaf with nothing beside it",
            )),
            _ => Ok(None),
        }
    }
}
