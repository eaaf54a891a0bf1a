//! Holes: units of a file that have no room on the disk.
//!
//! A store through a mapping to a hole of a full disk is a signal, not an error; so may be a load, where the file system has its
//! files in memory. So what is a hole is known without a look at it, and a hole gets room before it is used again.

use std::collections::BTreeSet;
use std::ops::Range;

use parking_lot::Mutex;
use rustix::fs::{SeekFrom, seek};

use crate::file::Io;
use crate::mapping::{MapError, not_allocated};
use crate::{MediumError, RELEASE_BYTES};

/// The holes of a file.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    /// By the number of the unit.
    units: Mutex<BTreeSet<u64>>,
}

/// The units that lie in a range wholly.
pub(crate) fn units_of(start: u64, end: u64) -> Range<u64> {
    start.div_ceil(RELEASE_BYTES)..end / RELEASE_BYTES
}

impl Holes {
    /// Finds the holes of a file of `length` bytes, and calls `part` with those that are not whole units.
    pub(crate) fn find(
        file: &std::fs::File,
        length: u64,
        mut part: impl FnMut(u64, u64) -> Result<(), MediumError>,
    ) -> Result<Self, MediumError> {
        let (mut found, mut position) = (BTreeSet::new(), 0);
        // A system that does not tell of holes has none.
        while let Ok(hole) = seek(file, SeekFrom::Hole(position)) {
            if hole >= length {
                break;
            }
            position = seek(file, SeekFrom::Data(hole)).map_or(length, |data| data.min(length));
            let units = units_of(hole, position);
            if units.is_empty() {
                part(hole, position)?;
                continue;
            }
            for (start, end) in [(hole, units.start * RELEASE_BYTES), (units.end * RELEASE_BYTES, position)] {
                if start < end {
                    part(start, end)?;
                }
            }
            found.extend(units);
        }
        Ok(Self { units: Mutex::new(found) })
    }

    pub(crate) fn has(&self, offset: u64) -> bool {
        self.units.lock().contains(&(offset / RELEASE_BYTES))
    }

    /// The unit of this offset is no hole, or must not be taken for one.
    pub(crate) fn forget(&self, offset: u64) {
        self.units.lock().remove(&(offset / RELEASE_BYTES));
    }

    /// Nothing is known beyond `length`.
    pub(crate) fn cut(&self, length: u64) {
        self.units.lock().split_off(&(length / RELEASE_BYTES));
    }

    /// Punches whole units out of the file. What the file system cannot do stays undone.
    pub(crate) fn punch(&self, io: &dyn Io, start: u64, end: u64) {
        let mut units = self.units.lock();
        if io.punch(start, end).is_ok() {
            units.extend(units_of(start, end));
        }
    }

    /// Gives holes in a range room on the disk again.
    pub(crate) fn fill(&self, io: &dyn Io, start: u64, end: u64) -> Result<(), MediumError> {
        let mut units = self.units.lock();
        let within = units_of(start, end);
        if units.range(within.clone()).next().is_none() {
            return Ok(());
        }
        io.allocate(start, end).map_err(|error| {
            let length = io.length();
            let fails = |source| MapError { action: "measure a file of", bytes: end, source }.into();
            length.map_or_else(fails, |length| not_allocated(error, length, length, io.file()))
        })?;
        units.retain(|unit| !within.contains(unit));
        Ok(())
    }
}
