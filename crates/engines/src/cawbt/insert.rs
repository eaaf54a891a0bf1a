//! Inserts and updates.

use medium::{Lsn, Medium};
use pool::Guard;

use super::CawbTree;
use super::change::{Change, Writer};
use super::find::Place;
use super::layout::{Content, LEAF_ENTRIES};
use super::record::{Fresh, retire};
use crate::Result;
use crate::index::{Codec, Condition, EntryWords};
use crate::kit::write::holds;

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Gives a key this value, if `condition` holds.
    pub(super) fn store(
        &self,
        key: C::Key<'_>,
        value: C::Value<'_>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<bool> {
        let guard = self.pool.pin();
        guard.admit()?;
        let mut fresh = Fresh::new(self, &guard);
        // Before the descent: the record is written back while nodes are read. If there is no space for it, the condition comes first.
        let early = match condition {
            Condition::Equals(_) => None,
            _ => fresh.record(key, value).ok(),
        };
        let mut state = self.lock(&guard)?;
        let (mut place, record) = loop {
            let mut place = self.locate(&guard, key)?;
            if !holds::<M, C>(&guard, condition, place.found)? {
                let lsn = self.versions.lsn(place.leaf);
                drop(state);
                guard.wait_for(lsn)?;
                return Ok(false);
            }
            let splits = place.found.is_none() && place.node.count() >= LEAF_ENTRIES;
            if splits && self.settle(&mut Writer { guard: &guard, state: &mut state }, &mut place.path)? {
                continue;
            }
            let record = early.map_or_else(|| fresh.record(key, value), Ok)?;
            if splits {
                Self::reserve(&mut fresh, &place.path)?;
            }
            break (place, record);
        };
        let mut writer = Writer { guard: &guard, state: &mut state };
        let (lsn, old) = match place.found {
            Some(_) => self.replace(&guard, &place, record).map(|(lsn, old)| (lsn, Some(old)))?,
            None => (self.add(&mut writer, &mut fresh, &mut place, record)?, None),
        };
        fresh.published();
        drop(state);
        guard.wait_for(lsn)?;
        old.into_iter().for_each(|old| retire::<M, C>(&guard, old));
        Ok(true)
    }

    /// Gives a key that is there another record. Returns the old one.
    #[inline]
    fn replace(
        &self,
        guard: &Guard<'_, M>,
        place: &Place,
        (words, record): (EntryWords, u64),
    ) -> Result<(Lsn, u64)> {
        let mut content = Content::of(&place.node);
        let (id, pointer) = (content.ids[place.position - 1], &mut content.pointers[place.position - 1]);
        let old = std::mem::replace(pointer, record);
        // PERSIST: the record is ordered before the leaf that leads to it; lost, the old value counts.
        guard.fence();
        // No reader waits: no ID changes.
        let mut change = Change::of(self, guard, []);
        change.publish(place.leaf, &place.node, &content, place.parent())?;
        let lsn = guard.fence();
        change.end(lsn);
        // A reader takes the value from the table, and after that the LSN of the node where it has met the ID.
        self.versions.stamp(place.leaf, lsn);
        if let Some(level) = place.separator {
            self.versions.stamp(place.path[level].offset, lsn);
        }
        self.ids.replace(id, words[1]);
        Ok((lsn, old))
    }

    /// Adds a key that is not there.
    #[inline]
    fn add(
        &self,
        writer: &mut Writer<'_, '_, M>,
        fresh: &mut Fresh<'_, '_, '_, M, C>,
        place: &mut Place,
        (words, record): (EntryWords, u64),
    ) -> Result<Lsn> {
        let guard = writer.guard;
        let mut content = Content::of(&place.node);
        let id = fresh.id(words)?;
        content.insert_entry(place.position, id, record);
        let lsn = if content.count > LEAF_ENTRIES {
            self.split_leaf(writer, fresh, place, &content)?
        } else {
            // PERSIST: the record is ordered before the leaf that leads to it; lost, the key is absent.
            guard.fence();
            let mut change = Change::of(self, guard, [place.leaf]);
            change.publish(place.leaf, &place.node, &content, place.parent())?;
            let lsn = guard.fence();
            change.end(lsn);
            lsn
        };
        writer.state.counts.keys += 1;
        Ok(lsn)
    }
}
