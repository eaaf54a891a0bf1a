//! Byte-addressable persistent memory, mapped from a file.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::flush::{FlushKind, flush_range, store_fence};
use crate::line_store::{store_single, stream};
use crate::mapping::{MapError, Mapping, grants_sync};
use crate::{Extent, LineForm, LineStore, LineValue, Lsn, Medium, MediumError, Survives};

/// How [`Dax`] makes bytes durable; the default asks the processor.
#[derive(Clone, Copy, Debug)]
pub struct DaxOptions {
    /// How a line is written back.
    pub flush: FlushKind,
    /// How a line is stored failure-atomically.
    pub line_store: LineStore,
    /// The largest length of the file, in bytes.
    pub limit_bytes: u64,
}

impl Default for DaxOptions {
    fn default() -> Self {
        Self { flush: FlushKind::detect(), line_store: LineStore::detect(), limit_bytes: u64::MAX }
    }
}

/// A mapped file whose lines are written back by the processor.
///
/// On an fsdax file system that grants `MAP_SYNC` this survives loss of power. On any other file system it is an
/// emulation: the same instructions run, and what they wrote survives the process but not the machine.
#[derive(Debug)]
pub struct Dax {
    mapping: Mapping,
    flush: FlushKind,
    line_store: LineStore,
}

impl Dax {
    /// Maps all of `file`. Holes in it that are whole units of [`RELEASE_BYTES`](crate::RELEASE_BYTES) stay holes, smaller ones get
    /// room on the disk. Fails if the processor lacks an instruction that the options
    /// name, or if the disk is full.
    pub fn new(file: File, options: DaxOptions) -> Result<Self, MediumError> {
        let DaxOptions { flush, line_store, .. } = options;
        if !flush.is_supported() || !line_store.is_supported() {
            let what = format!("this processor lacks flush {flush} or line store {line_store}");
            let source = std::io::Error::new(std::io::ErrorKind::Unsupported, what);
            return Err(MapError { action: "map a file of", bytes: 0, source }.into());
        }
        let mapping = Mapping::shared(file, options.limit_bytes)?;
        Ok(Self { mapping, flush, line_store })
    }

    /// Whether `file` lies where a `Dax` survives loss of power: on a file system that grants `MAP_SYNC`.
    #[must_use]
    pub fn survives_power_loss(file: &File) -> bool {
        grants_sync(file)
    }
}

// SAFETY: the mapping owns its extent, never moves it, and unmaps it only when dropped.
unsafe impl Medium for Dax {
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

    fn release(&self, start: u64, bytes: u64) {
        // A fence is durable here.
        self.mapping.release(start, start + bytes);
    }

    fn reserve(&self, start: u64, bytes: u64) -> Result<(), MediumError> {
        self.mapping.reserve_room(start, start + bytes)
    }

    fn is_hole(&self, offset: u64) -> bool {
        self.mapping.holes().has(offset)
    }

    fn cut(&self, length: u64) -> Result<(), MediumError> {
        self.mapping.cut(length)
    }

    #[inline(always)]
    fn line_form(&self) -> LineForm {
        if self.line_store == LineStore::Twin { LineForm::Twin } else { LineForm::Single }
    }

    #[inline(always)]
    fn store_line(&self, notes: &(), line: &[AtomicU64; 8], value: &LineValue) -> Result<(), MediumError> {
        // SAFETY: a `Line` is aligned to 64 bytes and writable; `new` checked that the store is supported.
        unsafe { store_single(self.line_store, line, value) }?;
        if self.line_store != LineStore::Movdir64b {
            self.flush(notes, line);
        }
        Ok(())
    }

    #[inline(always)]
    fn store_copy(&self, notes: &(), copy: &[AtomicU64; 8], value: &LineValue) {
        // With durable caches, a store past the caches only costs time.
        if self.flush == FlushKind::Nothing || !stream(copy, value) {
            for (word, value) in copy.iter().zip(value.0) {
                self.store(word, value);
            }
            self.flush(notes, copy);
        }
    }

    #[inline(always)]
    fn flush(&self, (): &(), memory: &[AtomicU64]) {
        // SAFETY: the range is mapped memory; writing it back changes nothing that can be seen.
        unsafe { flush_range(self.flush, memory.as_ptr().cast(), size_of_val(memory)) };
    }

    #[inline(always)]
    fn fence(&self, (): &()) -> Lsn {
        store_fence(self.flush);
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        Lsn::DURABLE
    }

    fn survives(&self) -> Survives {
        if self.mapping.is_synchronous() { Survives::PowerLoss } else { Survives::ProcessCrash }
    }

    fn describe(&self) -> String {
        let instructions = format!("flush {}, line store {}", self.flush.name(), self.line_store.name());
        if self.mapping.is_synchronous() {
            format!("dax: persistent memory with MAP_SYNC, {instructions}; survives loss of power")
        } else {
            format!(
                "dax (emulated: no MAP_SYNC here), {instructions}; survives the process, NOT loss of power or a \
                 kernel crash"
            )
        }
    }
}

#[cfg(test)]
mod tests;
