//! One operation in parts, each with its time, for figure 9 of the paper. No other operation uses
//! this code.

use std::time::Instant;

use medium::Medium;

use super::BzTree;
use super::insert::Attempt;
use crate::Result;
use crate::index::{Codec, Condition, Profile};
use crate::kit::write::Encoded;
use crate::pmwcas::Seen;

impl<M: Medium, C: Codec> BzTree<M, C> {
    /// Reads a key, or sets its value if it is there. Time outside of both parts is in the total
    /// alone: pinning, allocation, and all attempts of an update after the first one.
    pub(super) fn profiled<'k>(
        &self,
        key: C::Key<'k>,
        value: Option<C::Value<'k>>,
    ) -> Result<Profile> {
        let mut profile = Profile::default();
        let start = Instant::now();
        let guard = self.pool.pin();
        let mut seen = Seen::default();
        let pinned = Instant::now();
        let offset = self.descend(&guard, key, &mut seen)?;
        let descended = Instant::now();
        let leaf = Self::leaf(&guard, offset)?;
        // A read needs none of this.
        let status = value
            .map(|_| self.leaf_status_helping(&guard, leaf))
            .transpose()?;
        let found = self.look(&guard, leaf, key, &mut seen)?;
        let looked = Instant::now();
        profile.inner_ns = (descended - pinned).as_nanos() as u64;
        profile.leaf_ns = (looked - descended).as_nanos() as u64;
        if let Some(value) = value
            && let Some(status) = status
            && let Some(found) = found
        {
            let mut encoded = Encoded::<M, C>::new(&guard, key, value, Condition::Always);
            encoded.words()?;
            let encoding = Instant::now();
            let done = if status.is_frozen() {
                Attempt::Again
            } else {
                self.replace(&guard, leaf, status, &found, &mut encoded)?
            };
            profile.pmwcas_ns = encoding.elapsed().as_nanos() as u64;
            drop(encoded);
            drop(guard);
            let written = match done {
                Attempt::Done(written) => written,
                Attempt::Again => self.store(key, value, Condition::Present)?,
            };
            self.pool.peek().wait_for(written.lsn)?;
        } else {
            self.pmwcas.settle(&guard, &seen)?;
            drop(guard);
        }
        profile.total_ns = start.elapsed().as_nanos() as u64;
        Ok(profile)
    }
}
