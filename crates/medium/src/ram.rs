//! Plain memory: nothing survives, and nothing is paid for durability.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::mapping::{MapError, Mapping};
use crate::{Extent, LineForm, LineValue, Lsn, Medium, MediumError, Survives};

/// Volatile memory of this process, in huge pages where the system gives them. For volatile use, and the baseline
/// for the cost of durability.
#[derive(Debug)]
pub struct Ram {
    mapping: Mapping,
}

impl Ram {
    /// Memory that grows as needed, up to `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Result<Self, MapError> {
        Ok(Self { mapping: Mapping::memory(limit_bytes)? })
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

    fn cut(&self, length: u64) -> Result<(), MediumError> {
        self.mapping.cut(length)
    }

    #[inline(always)]
    fn line_form(&self) -> LineForm {
        LineForm::Single
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
        Survives::Nothing
    }

    fn describe(&self) -> String {
        "ram: memory of this process; nothing survives its end".to_owned()
    }
}

#[cfg(test)]
mod tests;
