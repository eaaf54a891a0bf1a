//! Holes: units of a file that have no room on the disk.
//!
//! If the disk is full, a store through a mapping to a hole raises a signal and returns no error.
//! On a file system in memory a load may, too. So the medium keeps the set of holes, and gives a
//! hole room on the disk before a thread accesses it again.

use std::ops::Range;

use parking_lot::Mutex;
use rangemap::RangeSet;
use rustix::fs::{SeekFrom, seek};

use crate::error::{MapError, MediumError, not_allocated};
use crate::io::Io;
use crate::presence::unless_mapped;

/// The unit in which a medium gives room on its disk back: 64 KiB.
pub const RELEASE_BYTES: u64 = 1 << 16;

/// The holes of a file.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    /// The numbers of the units. They are kept as ranges, because a sparse file may have more units
    /// than fit in memory.
    units: Mutex<RangeSet<u64>>,
}

/// The units that lie in a range wholly.
pub(crate) fn units_of(start: u64, end: u64) -> Range<u64> {
    start.div_ceil(RELEASE_BYTES)..end / RELEASE_BYTES
}

impl Holes {
    /// Finds the holes of a file of `length` bytes, and calls `part` with those that are not whole
    /// units.
    pub(crate) fn find(
        file: &std::fs::File,
        length: u64,
        mut part: impl FnMut(u64, u64) -> Result<(), MediumError>,
    ) -> Result<Self, MediumError> {
        let mut found = RangeSet::new();
        Self::each(file, length, |hole, end| {
            let units = units_of(hole, end);
            if units.is_empty() {
                return part(hole, end);
            }
            for (start, end) in [
                (hole, units.start * RELEASE_BYTES),
                (units.end * RELEASE_BYTES, end),
            ] {
                if start < end {
                    part(start, end)?;
                }
            }
            found.insert(units);
            Ok(())
        })?;
        Ok(Self {
            units: Mutex::new(found),
        })
    }

    /// Calls `visit` with start and end of each hole in the first `length` bytes of a file.
    pub(crate) fn each(
        file: &std::fs::File,
        length: u64,
        mut visit: impl FnMut(u64, u64) -> Result<(), MediumError>,
    ) -> Result<(), MediumError> {
        let mut position = 0;
        // If the system does not report holes, the file counts as one without holes.
        while let Ok(hole) = seek(file, SeekFrom::Hole(position)) {
            if hole >= length {
                break;
            }
            position = seek(file, SeekFrom::Data(hole)).map_or(length, |data| data.min(length));
            visit(hole, position)?;
        }
        Ok(())
    }

    pub(crate) fn has(&self, offset: u64) -> bool {
        self.units.lock().contains(&(offset / RELEASE_BYTES))
    }

    /// Removes the unit of this offset from the set: it is no hole, or must not be taken for one.
    pub(crate) fn forget(&self, offset: u64) {
        let unit = offset / RELEASE_BYTES;
        self.units.lock().remove(unit..unit + 1);
    }

    /// Removes the units of a range from the set: they are no holes, or must not be taken for some.
    pub(crate) fn forget_all(&self, start: u64, end: u64) {
        let units = units_of(start, end);
        if !units.is_empty() {
            self.units.lock().remove(units);
        }
    }

    /// Forgets the holes beyond `length`.
    pub(crate) fn cut(&self, length: u64) {
        self.units.lock().remove(length / RELEASE_BYTES..u64::MAX);
    }

    /// Punches whole units out of the file. Units that the file system cannot punch, or that a reader
    /// in another process maps, keep their room.
    pub(crate) fn punch(&self, io: &dyn Io, start: u64, end: u64) {
        let mut units = self.units.lock();
        let punched = units_of(start, end);
        if punched.is_empty() {
            return;
        }
        let is_punched = unless_mapped(io.file(), || io.punch(start, end));
        if matches!(is_punched, Ok(true)) {
            units.insert(punched);
        }
    }

    /// Gives holes in a range room on the disk again.
    pub(crate) fn fill(&self, io: &dyn Io, start: u64, end: u64) -> Result<(), MediumError> {
        let mut units = self.units.lock();
        let within = units_of(start, end);
        if within.is_empty() || !units.overlaps(&within) {
            return Ok(());
        }
        io.allocate(start, end).map_err(|error| {
            let length = io.length();
            let fails = |source| {
                MapError {
                    action: "measure a file of",
                    bytes: end,
                    source,
                }
                .into()
            };
            length.map_or_else(fails, |length| {
                not_allocated(error, length, length, io.file())
            })
        })?;
        units.remove(within);
        Ok(())
    }
}
