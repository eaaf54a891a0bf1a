//! Inserts and updates.

use crate::Result;
use medium::Medium;

use super::find::Path;
use super::{Format, Item, Paged};
use crate::index::{Codec, Condition, Written};
use crate::kit::scan::{Tied, Way};
use crate::kit::write::{Encoded, holds};

impl<M: Medium, C: Codec, F: Format> Paged<M, C, F> {
    /// Sets the value of a key, if `condition` holds.
    pub fn store(
        &self,
        key: C::Key<'_>,
        value: C::Value<'_>,
        condition: Condition<C::Value<'_>>,
    ) -> Result<Written> {
        let guard = self.pool.pin();
        guard.admit()?;
        let mut new = Encoded::<M, C>::new(&guard, key, value, condition);
        let writing = self.latch.write(&guard);
        let (leaf, look) = loop {
            let mut path = Path::new();
            let leaf = self.descend(&guard, &Way::Key(key, Tied::UpTo), |step| path.push(step))?;
            self.format.mend(&guard, &leaf, || writing.change());
            let look = self.look(&guard, &leaf, key)?;
            if !holds::<M, C>(&guard, condition, look.entry())? {
                if look.found.is_none() {
                    self.expect_absent(&guard, key, &leaf)?;
                }
                let lsn = writing.end(&guard, self.latch.lsn(leaf.offset));
                return Ok(Written::refused(lsn));
            }
            if look.found.is_some() || self.count(&guard, &leaf) < leaf.entries.len() {
                break (leaf, look);
            }
            // Whether the keys may come in ascending order, at the end of the tree.
            let is_last = look.below | look.tied == look.live;
            self.make_room(&guard, &writing, &path, &leaf, is_last)?;
        };
        let [word, value] = new.words()?;
        let item = Item {
            word,
            value,
            tail: 0,
        };
        let lsn = match look.found {
            Some((slot, _)) => {
                if C::TIES {
                    // PERSIST: the record is ordered before the word that leads to it; if this is
                    // lost, the old value counts.
                    guard.fence();
                }
                writing.change();
                leaf.entries[slot][1].publish(&guard, value);
                guard.fence()
            }
            None => {
                let (order, position) = self.place(&guard, &leaf, &look, key)?;
                writing.change();
                self.format.insert(&guard, &leaf, order, position, item)
            }
        };
        new.published();
        writing.stamp(leaf.offset, lsn);
        let lsn = writing.end(&guard, lsn);
        if let Some(old) = look.entry() {
            C::retire(&guard, old);
        }
        Ok(Written::done(lsn))
    }
}
