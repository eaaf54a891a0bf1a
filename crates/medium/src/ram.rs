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

    #[inline(always)]
    fn line_form(&self) -> LineForm {
        LineForm::Single
    }

    #[inline(always)]
    fn store_line(&self, (): &(), line: &[AtomicU64; 8], value: &LineValue) -> Result<(), MediumError> {
        for (word, value) in line.iter().zip(value.0) {
            word.store(value, Ordering::Release);
        }
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
mod tests {
    use super::*;
    use crate::Guard;

    #[test]
    fn what_was_given_back_reads_as_zeros_when_it_is_there_again() {
        let mut ram = Ram::new(1 << 30).unwrap();
        let length = (4 << 20) + 4096;
        for kept in [0, 64, 4096, 5000, 2 << 20, length - 8] {
            ram.grow(length).unwrap();
            let guard = Guard::new(&ram);
            let words = guard.words(0, length as usize / 8).unwrap();
            let first = (words.len() - 8..words.len()).chain([0, kept as usize / 8, 700, 1000]);
            first.for_each(|word| words[word].store(&guard, 7));
            drop(guard);
            ram.shrink(kept).unwrap();
            assert_eq!(ram.extent().length(), kept);
            ram.grow(length).unwrap();
            let guard = Guard::new(&ram);
            let words = guard.words(0, length as usize / 8).unwrap();
            let (before, after) = words.split_at(kept as usize / 8);
            assert!(after.iter().all(|word| word.load(&guard) == 0), "{kept} bytes kept");
            assert!(before.first().is_none_or(|word| word.load(&guard) == 7), "{kept} bytes kept");
        }
    }
}
