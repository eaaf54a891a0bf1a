//! Removes.

use crate::Result;
use medium::Medium;

use super::find::Path;
use super::{Format, Paged};
use crate::index::{Codec, Condition, Written};
use crate::kit::scan::{Tied, Way};
use crate::kit::write::holds;

impl<M: Medium, C: Codec, F: Format> Paged<M, C, F> {
    /// Removes a key, if `condition` holds.
    pub fn erase(&self, key: C::Key<'_>, condition: Condition<C::Value<'_>>) -> Result<Written> {
        let guard = self.pool.pin();
        guard.admit()?;
        let writing = self.latch.write(&guard);
        let mut path = Path::new();
        let leaf = self.descend(&guard, &Way::Key(key, Tied::UpTo), |step| path.push(step))?;
        self.format.mend(&guard, &leaf, || writing.change());
        let look = self.look(&guard, &leaf, key)?;
        if look.found.is_none() {
            self.expect_absent(&guard, key, &leaf)?;
        }
        let held = holds::<M, C>(&guard, condition, look.entry())?;
        let (slot, old) = match look.found {
            Some(found) if held => found,
            _ => {
                let lsn = writing.end(&guard, self.latch.lsn(leaf.offset));
                return Ok(Written { held, lsn });
            }
        };
        let (order, position) = self.place(&guard, &leaf, &look, key)?;
        writing.change();
        let lsn = self.format.remove(&guard, &leaf, order, position, slot);
        writing.stamp(leaf.offset, lsn);
        let merged = self.shrink(&guard, &writing, &path, self.count(&guard, &leaf));
        let lsn = writing.end(&guard, lsn);
        C::retire(&guard, old);
        merged.map(|()| Written::done(lsn))
    }
}
