//! Byte-addressable memory: persistent memory, mapped from a file, or plain memory, in which
//! nothing is durable.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::MapError;
use crate::file::survives;
use crate::flush::{FlushKind, flush_range, store_fence};
use crate::folder::{DisplacedFile, FilePlace};
use crate::line_store::{store_single, stream};
use crate::mapping::{Mapping, grants_sync};
use crate::presence::Presence;
use crate::process::CoveredDescriptor;
use crate::{Extent, Grown, LineForm, LineStore, LineValue, Lsn, Medium, MediumError, Survives};

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
        Self {
            flush: FlushKind::detect(),
            line_store: LineStore::detect(),
            limit_bytes: u64::MAX,
        }
    }
}

/// Memory whose lines are written back by the processor: a mapped file ([`Dax::new`]). Or plain
/// memory, where nothing is written back, for volatile use and as the baseline for the cost of
/// durability: empty at first ([`Dax::plain`]), or a copy of a pool that is only read. Both are one
/// type, so that engines are compiled once for both.
///
/// A file on an fsdax file system that grants `MAP_SYNC` survives loss of power. On any other file
/// system it is an emulation: the same instructions run, and the bytes that they wrote survive the
/// process but not the machine.
#[derive(Debug)]
pub struct Dax {
    /// The mapped file. It goes before the mapping, which closes the file.
    _covered: Option<CoveredDescriptor>,
    mapping: Mapping,
    flush: FlushKind,
    line_store: LineStore,
    line_form: LineForm,
    /// In plain memory: what the file that it is a copy of survives, or [`Survives::Nothing`] if it
    /// is no copy.
    plain: Option<Survives>,
    /// Where the file lies, if the caller has said so.
    place: Option<FilePlace>,
}

impl Dax {
    /// Maps all of `file`. Holes in it that are whole units of
    /// [`RELEASE_BYTES`](crate::RELEASE_BYTES) stay holes, smaller ones get room on the disk. Fails
    /// if the processor lacks an instruction that the options name, or if the disk is full.
    pub fn new(file: File, options: DaxOptions) -> Result<Self, MediumError> {
        let DaxOptions {
            flush, line_store, ..
        } = options;
        if !flush.is_supported() || !line_store.is_supported() {
            let what = format!("this processor lacks flush {flush} or line store {line_store}");
            let source = std::io::Error::new(std::io::ErrorKind::Unsupported, what);
            return Err(MapError {
                action: "map a file of",
                bytes: 0,
                source,
            }
            .into());
        }
        // The table of covered descriptors has a number only as long as the file is open.
        let descriptor = file.as_raw_fd();
        let mapping = Mapping::shared(file, options.limit_bytes)?;
        let covered = CoveredDescriptor::of(descriptor);
        let line_form = if line_store == LineStore::Twin {
            LineForm::Twin
        } else {
            LineForm::Single
        };
        Ok(Self {
            _covered: Some(covered),
            mapping,
            flush,
            line_store,
            line_form,
            plain: None,
            place: None,
        })
    }

    /// Says where the file lies. Growth and the close of the pool then fail if it has lost its name
    /// there.
    #[must_use]
    pub fn lying_at(mut self, place: FilePlace) -> Self {
        self.place = Some(place);
        self
    }

    /// The file, unless this is plain memory.
    pub fn pool_file(&self) -> Option<&File> {
        self.mapping.file()
    }

    /// Whether the file still has its name.
    fn expect_place(&self) -> Result<(), MediumError> {
        let Some(place) = &self.place else {
            return Ok(());
        };
        let Some(file) = self.mapping.file() else {
            return Ok(());
        };
        // If the system does not tell, the file counts as being in place.
        let Ok(Some(how)) = place.displacement(file) else {
            return Ok(());
        };
        Err(MediumError::Displaced(DisplacedFile {
            file: Grown::Pool,
            path: place.path().to_owned(),
            how,
        }))
    }

    /// Plain memory of this process, in huge pages where the system gives them. It grows as needed,
    /// up to `limit_bytes`.
    pub fn plain(limit_bytes: u64) -> Result<Self, MapError> {
        Ok(Self::of_plain(
            Mapping::memory(limit_bytes, Grown::Pool)?,
            Survives::Nothing,
        ))
    }

    /// Plain memory with the content of `file`. Stores do not reach the file, and only pages that
    /// were stored to take memory.
    pub(crate) fn plain_copy(file: &File) -> Result<Self, MediumError> {
        Ok(Self::of_plain(Mapping::copy_of(file)?, survives(file)))
    }

    /// Does the same as [`Dax::plain_copy`], and keeps the lock of a reader as long as the memory.
    pub(crate) fn plain_view(file: &File, presence: Option<Presence>) -> Result<Self, MediumError> {
        let mut mapping = Mapping::copy_of(file)?;
        if let Some(presence) = presence {
            mapping.keep(presence);
        }
        Ok(Self::of_plain(mapping, survives(file)))
    }

    fn of_plain(mapping: Mapping, survives: Survives) -> Self {
        // The line store is not used.
        let flush = FlushKind::Nothing;
        let line_store = LineStore::Twin;
        let line_form = LineForm::Single;
        Self {
            _covered: None,
            mapping,
            flush,
            line_store,
            line_form,
            plain: Some(survives),
            place: None,
        }
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Sets the form of the lines of plain memory. A copy of a pool takes the form of the pool.
    ///
    /// # Panics
    /// In persistent memory, where the form follows from how lines are stored.
    pub fn set_line_form(&mut self, line_form: LineForm) {
        assert!(
            self.plain.is_some(),
            "the form of lines in persistent memory is fixed"
        );
        self.line_form = line_form;
    }

    /// Whether `file` lies where a `Dax` survives loss of power: on a file system that grants
    /// `MAP_SYNC`.
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
        if length > self.mapping.extent().length() {
            self.expect_place()?;
        }
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
        self.line_form
    }

    #[inline(always)]
    fn is_volatile(&self) -> bool {
        self.plain.is_some()
    }

    #[inline(always)]
    fn store_line(
        &self,
        notes: &(),
        line: &[AtomicU64; 8],
        value: &LineValue,
    ) -> Result<(), MediumError> {
        if self.plain.is_some() {
            value.store(line, Ordering::Release);
            return Ok(());
        }
        // SAFETY: a `Line` is aligned to 64 bytes and writable; `new` checked that the store is
        // supported.
        unsafe { store_single(self.line_store, line, value) }?;
        if self.line_store != LineStore::Movdir64b {
            self.flush(notes, line);
        }
        Ok(())
    }

    #[inline(always)]
    fn store_copy(&self, notes: &(), copy: &[AtomicU64; 8], value: &LineValue) {
        // If the caches are durable, a store past them has no use and takes longer.
        if self.flush == FlushKind::Nothing || !stream(copy, value) {
            for (word, value) in copy.iter().zip(value.0) {
                self.store(word, value);
            }
            self.flush(notes, copy);
        }
    }

    #[inline(always)]
    fn flush(&self, _notes: &(), memory: &[AtomicU64]) {
        // SAFETY: the range is mapped memory; writing it back changes nothing that can be seen.
        unsafe { flush_range(self.flush, memory.as_ptr().cast(), size_of_val(memory)) };
    }

    #[inline(always)]
    fn fence(&self, _notes: &()) -> Lsn {
        if self.plain.is_some() {
            return Lsn::DURABLE;
        }
        store_fence(self.flush);
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        Lsn::DURABLE
    }

    fn prepare_finish(&self) -> Result<(), MediumError> {
        self.expect_place()
    }

    fn survives(&self) -> Survives {
        match self.plain {
            Some(survives) => survives,
            None if self.mapping.is_synchronous() => Survives::PowerLoss,
            None => Survives::ProcessCrash,
        }
    }

    fn describe(&self) -> String {
        match self.plain {
            Some(Survives::Nothing) => {
                return "ram: memory of this process; nothing survives its end".to_owned();
            }
            Some(Survives::PowerLoss) => {
                return "read-only: nothing is written; as an ordinary file it survives loss of power"
                    .to_owned();
            }
            Some(_) => {
                return "read-only: nothing is written; the file survives the process, NOT loss of power"
                    .to_owned();
            }
            None => {}
        }
        let instructions = format!(
            "flush {}, line store {}",
            self.flush.name(),
            self.line_store.name()
        );
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
