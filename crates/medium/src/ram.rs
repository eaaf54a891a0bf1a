//! Plain memory: nothing survives, and nothing is paid for durability. It begins empty, or as a copy of a pool that is only read.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::file::survives;
use crate::mapping::{MapError, Mapping};
use crate::{Extent, LineForm, LineValue, Lsn, Medium, MediumError, Survives};

/// Volatile memory of this process, in huge pages where the system gives them. For volatile use, and the baseline
/// for the cost of durability.
#[derive(Debug)]
pub struct Ram {
    mapping: Mapping,
    line_form: LineForm,
    survives: Survives,
    is_copy: bool,
}

impl Ram {
    /// Memory that grows as needed, up to `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Result<Self, MapError> {
        let mapping = Mapping::memory(limit_bytes)?;
        Ok(Self { mapping, line_form: LineForm::Single, survives: Survives::Nothing, is_copy: false })
    }

    /// Memory that holds what `file` holds. What is stored stays in memory: only written pages take any.
    pub(crate) fn copy_of(file: &File) -> Result<Self, MediumError> {
        let mapping = Mapping::copy_of(file)?;
        Ok(Self { mapping, line_form: LineForm::Single, survives: survives(file), is_copy: true })
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Sets the form of the lines, which a copy of a pool takes from that.
    pub fn set_line_form(&mut self, line_form: LineForm) {
        self.line_form = line_form;
    }
}

// SAFETY: the mapping owns its extent, never moves it, and unmaps it only when dropped.
unsafe impl Medium for Ram {
    type Notes = ();
    const LATE: bool = false;
    const VOLATILE: bool = true;
    const DIRECT: bool = true;

    #[inline(always)]
    fn extent(&self) -> &Extent {
        self.mapping.extent()
    }

    fn grow(&self, length: u64) -> Result<(), MediumError> {
        self.mapping.grow(length)
    }

    fn shrink(&mut self, length: u64) -> Result<(), MediumError> {
        self.mapping.shrink(length)
    }

    fn reserve(&self, start: u64, bytes: u64) -> Result<(), MediumError> {
        self.mapping.reserve_room(start, start + bytes)
    }

    #[inline]
    fn is_hole(&self, offset: u64) -> bool {
        self.is_copy && self.mapping.holes().has(offset)
    }

    fn cut(&self, length: u64) -> Result<(), MediumError> {
        self.mapping.cut(length)
    }

    #[inline(always)]
    fn line_form(&self) -> LineForm {
        self.line_form
    }

    #[inline(always)]
    fn store_line(&self, (): &(), line: &[AtomicU64; 8], value: &LineValue) -> Result<(), MediumError> {
        value.store(line, Ordering::Release);
        Ok(())
    }

    #[inline(always)]
    fn flush(&self, (): &(), _memory: &[AtomicU64]) {}

    #[inline(always)]
    fn fence(&self, (): &()) -> Lsn {
        Lsn::DURABLE
    }

    fn survives(&self) -> Survives {
        self.survives
    }

    fn describe(&self) -> String {
        let what = match (self.is_copy, self.survives) {
            (true, Survives::PowerLoss) => {
                "read-only: nothing is written; as an ordinary file it survives loss of power"
            }
            (true, _) => "read-only: nothing is written; the file survives the process, NOT loss of power",
            (false, _) => "ram: memory of this process; nothing survives its end",
        };
        what.to_owned()
    }
}

#[cfg(test)]
mod tests;
