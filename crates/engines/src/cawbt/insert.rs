//! Inserts and updates.

use super::CawbTree;
use super::change::Writer;
use super::find::KeyPlace;
use super::layout::{LEAF_ENTRIES, NodeContent};
use super::record::{Fresh, retire};
use crate::kit::prelude::*;

impl<M: Medium, C: Codec> CawbTree<M, C> {
    /// Sets the value of a key, if `condition` holds.
    pub(super) fn store(
        &self,
        key: C::Key<'_>,
        value: C::Value<'_>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<Written> {
        let guard = self.pool.pin();
        guard.admit()?;
        let mut fresh = Fresh::new(self, &guard);
        // The record is written before the descent, so that it is written back while nodes are
        // read. If there is no space for it, the condition is checked first.
        let early = match condition {
            Condition::Equals(_) => None,
            _ => fresh.record(key, value, condition).ok(),
        };
        let mut state = self.lock(&guard)?;
        let mut writer = Writer {
            guard: &guard,
            state: &mut state,
        };
        let (mut place, held) = self.place_for(&mut writer, key, condition, false)?;
        if !held {
            let lsn = Self::end(&guard, state, self.versions.lsn(place.leaf));
            return Ok(Written::refused(lsn));
        }
        let (words, record) = early.map_or_else(|| fresh.record(key, value, condition), Ok)?;
        let (lsn, old) = match place.found {
            Some(_) => self
                .replace(&guard, &place, words, record)
                .map(|(lsn, old)| (lsn, Some(old)))?,
            None => (
                self.add(&mut writer, &mut fresh, &mut place, words, record)?,
                None,
            ),
        };
        state.counts.keys += u64::from(old.is_none());
        fresh.published();
        let lsn = Self::end(&guard, state, lsn);
        if let Some(old) = old {
            retire::<M, C>(&guard, old);
        }
        Ok(Written::done(lsn))
    }

    /// Gives a key that is present another record. Returns the old one.
    fn replace(
        &self,
        guard: &Guard<'_, M>,
        place: &KeyPlace,
        words: EntryWords,
        record: u64,
    ) -> Result<(Lsn, u64)> {
        let mut content = NodeContent::of(&place.node);
        let id = content.ids[place.position - 1];
        let pointer = &mut content.pointers[place.position - 1];
        let old = std::mem::replace(pointer, record);
        // PERSIST: the record is ordered before the leaf that leads to it; if this is lost, the old
        // value counts.
        guard.fence();
        // No reader waits: no ID changes.
        let lsn = self.store_one(guard, place.leaf, &place.node, &content, place.parent, &[])?;
        // A reader takes the value from the table, and after that the LSN of the node where it has
        // found the ID.
        self.versions.stamp(place.leaf, lsn);
        if place.separated != 0 {
            self.versions.stamp(place.separated, lsn);
        }
        self.ids.replace(id, words[1]);
        Ok((lsn, old))
    }

    /// Adds a key that is absent.
    fn add(
        &self,
        writer: &mut Writer<'_, '_, M>,
        fresh: &mut Fresh<'_, '_, '_, M, C>,
        place: &mut KeyPlace,
        words: EntryWords,
        record: u64,
    ) -> Result<Lsn> {
        let guard = writer.guard;
        let mut content = NodeContent::of(&place.node);
        if content.count > LEAF_ENTRIES {
            return Err(Error::corrupt(place.leaf, "a leaf with too many keys"));
        }
        content.insert_entry(place.position, fresh.id(words)?, record);
        if content.count <= LEAF_ENTRIES {
            // PERSIST: the record is ordered before the leaf that leads to it; if this is lost, the
            // key is absent.
            guard.fence();
            return self.store_one(
                guard,
                place.leaf,
                &place.node,
                &content,
                place.parent,
                &[place.leaf],
            );
        }
        let above = place.path.last().copied();
        let lsn = self.split(writer, fresh, place.leaf, &place.node, &content, above)?;
        if let Some(step) = place.path.last_mut() {
            step.count += 1;
        }
        // The key is added, so the insert does not return an error of this split. The next split
        // below finds it again.
        _ = self.split_full(writer, &mut place.path);
        Ok(lsn)
    }
}
