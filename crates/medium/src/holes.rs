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
    units: Mutex<Units>,
}

/// The numbers of units. They are kept as ranges, because a sparse file may have more units than fit in
/// memory.
#[derive(Debug, Default)]
struct Units {
    holes: RangeSet<u64>,
    /// Units that are to be punched as soon as no reader maps the file.
    put_off: RangeSet<u64>,
}

impl Units {
    /// Units that are no holes, and are not to become some.
    fn remove(&mut self, units: Range<u64>) {
        if !units.is_empty() {
            self.holes.remove(units.clone());
            self.put_off.remove(units);
        }
    }
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
        let units = Units {
            holes: found,
            put_off: RangeSet::new(),
        };
        Ok(Self {
            units: Mutex::new(units),
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
        self.units.lock().holes.contains(&(offset / RELEASE_BYTES))
    }

    /// Removes the unit of this offset from the set: it is no hole, or must not be taken for one.
    pub(crate) fn forget(&self, offset: u64) {
        let unit = offset / RELEASE_BYTES;
        self.units.lock().remove(unit..unit + 1);
    }

    /// Removes the units of a range from the set: they are no holes, or must not be taken for some.
    pub(crate) fn forget_all(&self, start: u64, end: u64) {
        self.units.lock().remove(units_of(start, end));
    }

    /// Forgets the holes beyond `length`.
    pub(crate) fn cut(&self, length: u64) {
        let mut units = self.units.lock();
        units.remove(length / RELEASE_BYTES..u64::MAX);
    }

    /// Punches whole units out of the file. Units that the file system cannot punch keep their room. If
    /// a reader in another process maps the file, they are put off.
    pub(crate) fn punch(&self, io: &dyn Io, start: u64, end: u64) {
        let mut units = self.units.lock();
        let wanted = units_of(start, end);
        if wanted.is_empty() {
            return;
        }
        let punched = unless_mapped(io.file(), || io.punch(start, end));
        match punched {
            Ok(true) => units.holes.insert(wanted),
            Ok(false) => units.put_off.insert(wanted),
            Err(_) => {}
        }
    }

    /// Punches the units that were put off, unless a reader still maps the file. Returns the bytes from
    /// which to which each run of them lies.
    pub(crate) fn punch_put_off(&self, io: &dyn Io) -> Vec<Range<u64>> {
        let mut units = self.units.lock();
        let due: Vec<Range<u64>> = units.put_off.iter().cloned().collect();
        let mut done = Vec::new();
        for run in due {
            let start = run.start * RELEASE_BYTES;
            let end = run.end * RELEASE_BYTES;
            let punched = unless_mapped(io.file(), || io.punch(start, end));
            if matches!(punched, Ok(false)) {
                break;
            }
            units.put_off.remove(run.clone());
            if punched.is_ok() {
                units.holes.insert(run);
                done.push(start..end);
            }
        }
        done
    }

    /// Gives holes in a range room on the disk again.
    pub(crate) fn fill(&self, io: &dyn Io, start: u64, end: u64) -> Result<(), MediumError> {
        let mut units = self.units.lock();
        let within = units_of(start, end);
        if within.is_empty() {
            return Ok(());
        }
        // A thread takes them into use.
        units.put_off.remove(within.clone());
        if !units.holes.overlaps(&within) {
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
        units.holes.remove(within);
        Ok(())
    }
}
