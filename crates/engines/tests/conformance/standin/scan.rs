//! Ranges of the stand-in.

use std::collections::BTreeMap;
use std::ops::Bound;

use engines::index::{Bounds, Codec, Direction, Scan};
use medium::Medium;
use pool::Result;
use pool::record::Record;

use super::{Flaw, Held, Standin, lock};

fn included(bounds: Bounds) -> Bounds {
    let included = |bound| match bound {
        Bound::Excluded(key) => Bound::Included(key),
        other => other,
    };
    Bounds { lower: included(bounds.lower), upper: included(bounds.upper) }
}

/// A range being read: goes on from the last key returned.
pub(super) struct StandinScan<'i, M: Medium, C> {
    tree: &'i Standin<M, C>,
    guard: pool::Guard<'i, M>,
    bounds: Bounds,
    direction: Direction,
    last: Option<Vec<u8>>,
    returned: usize,
}

impl<'i, M: Medium, C: Codec> StandinScan<'i, M, C> {
    pub(super) fn new(tree: &'i Standin<M, C>, bounds: Bounds, direction: Direction) -> Self {
        let bounds = if tree.flaw == Flaw::ExcludedIsIncluded { included(bounds) } else { bounds };
        Self { tree, guard: tree.pool.pin(), bounds, direction, last: None, returned: 0 }
    }

    fn within(&self, key: &[u8]) -> bool {
        self.bounds.is_above_lower(key) && self.bounds.is_below_upper(key)
    }

    /// The next entry of the map as it is now.
    fn find(&self, records: &BTreeMap<Vec<u8>, Held>) -> Option<(Vec<u8>, Held)> {
        let skip = match self.tree.flaw {
            Flaw::RangeCounts => self.returned,
            Flaw::ReverseSkipsTheFirst if self.returned == 0 && self.direction == Direction::Reverse => 1,
            _ => 0,
        };
        let last = self.last.as_ref().filter(|_| self.tree.flaw != Flaw::RangeCounts);
        let fits = |(key, _): &(&Vec<u8>, &Held)| self.within(key);
        // From the last key on, else from the range's near end on; what lies before that end is skipped.
        let found = match self.direction {
            Direction::Forward => {
                let from = last.map_or(self.bounds.lower.as_ref(), Bound::Excluded);
                records.range::<Vec<u8>, _>((from, Bound::Unbounded)).filter(fits).nth(skip)
            }
            Direction::Reverse => {
                let to = last.map_or(self.bounds.upper.as_ref(), Bound::Excluded);
                records.range::<Vec<u8>, _>((Bound::Unbounded, to)).rev().filter(fits).nth(skip)
            }
        };
        found.map(|(key, held)| (key.clone(), *held))
    }
}

impl<M: Medium, C: Codec> Scan for StandinScan<'_, M, C> {
    fn next_into(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        let found = self.find(&lock(&self.tree.state).records);
        let Some((next, held)) = found else { return Ok(false) };
        value.clear();
        let read =
            Record::at(&self.guard, held.record).and_then(|record| record.copy_value(&self.guard, value));
        if read.is_err() && self.tree.flaw == Flaw::DamageCircles {
            self.last = None;
            return Ok(true);
        }
        read?;
        key.clone_from(&next);
        self.returned += 1;
        self.last = Some(next);
        Ok(true)
    }
}
