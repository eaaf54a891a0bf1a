//! One reserved address range, into which a file or plain memory grows in place.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap,
};

use crate::Extent;
use crate::error::{Grown, LimitedBy, MapError, MediumError, not_allocated};
use crate::holes::Holes;
use crate::huge_pages::{self, HUGE_PAGE_BYTES};
use crate::io::{Disk, Io, is_full};

/// The address space that a mapping asks for first; it is halved as long as the system refuses.
const RESERVE_BYTES_WANTED: u64 = 1 << 40;
/// The least address space that a mapping asks for: if the system refuses it, the mapping fails.
const RESERVE_BYTES_MIN: u64 = 16 << 20;
/// Addresses have 47 bits, so no range may be larger than half of that.
const RESERVE_BYTES_MAX: u64 = 1 << 46;

fn refused(action: &'static str, bytes: u64) -> impl FnOnce(rustix::io::Errno) -> MapError {
    move |errno| MapError {
        action,
        bytes,
        source: errno.into(),
    }
}

/// What backs the mapped part of the range.
#[derive(Debug)]
enum Backing {
    Memory,
    Shared {
        disk: Disk,
        synchronous: AtomicBool,
    },
    /// Stores stay in memory; the file is written past the mapping.
    Private {
        io: Arc<dyn Io>,
        /// Whether the part by which the mapping grows is mapped from the file, too.
        is_growth_mapped: AtomicBool,
    },
    /// Stores stay in memory; the file is never written, and does not grow with the mapping.
    Copy,
}

/// A reserved address range.
#[derive(Debug)]
struct AddressRange {
    start: NonNull<u8>,
    bytes: u64,
    /// Bytes from the first huge page on that are accessible memory already, all of them zero.
    accessible_bytes: u64,
}

impl AddressRange {
    /// Reserves an address range of `bytes` bytes or, if the system has none left, a smaller one.
    fn reserve(mut bytes: u64) -> Result<Self, MapError> {
        loop {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a fresh range at an address of the system's choice.
            match unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    bytes as usize,
                    ProtFlags::empty(),
                    flags,
                )
            } {
                Ok(address) => {
                    let start = NonNull::new(address.cast::<u8>()).expect("mmap gives no null");
                    return Ok(Self {
                        start,
                        bytes,
                        accessible_bytes: 0,
                    });
                }
                // The ranges that this thread keeps for later may take up all addresses.
                Err(_) if drop_kept() => {}
                Err(_) if bytes > RESERVE_BYTES_MIN => bytes = bytes / 2 + HUGE_PAGE_BYTES / 2,
                Err(errno) => return Err(refused("reserve an address range of", bytes)(errno)),
            }
        }
    }

    /// The first huge page.
    fn base(&self) -> NonNull<u8> {
        let padding = self.start.as_ptr().align_offset(HUGE_PAGE_BYTES as usize);
        NonNull::new(self.start.as_ptr().wrapping_add(padding)).expect("inside the range")
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `reserve`, and nobody holds references into it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes as usize) };
    }
}

/// The most ranges that one thread keeps: retired memory holds on to its mapping for a while, so
/// hundreds are in use.
const KEPT_RANGES_MAX: usize = 512;
/// The most addresses of all ranges that one thread keeps: a sixteenth of those that a process has.
const KEPT_ADDRESSES_MAX: u64 = 8 << 40;
/// The most accessible bytes of a range that is kept.
const KEPT_BYTES_MAX: u64 = 1 << 20;

thread_local! {
    /// Ranges of plain memory for this thread's next mappings; `None` if it keeps none.
    static KEPT: RefCell<Option<Vec<AddressRange>>> = const { RefCell::new(None) };
}

/// Whether mappings of plain memory that this thread drops leave it their address ranges, for those
/// that it makes next: neither then costs a system call.
pub(crate) fn keep_ranges(keep: bool) {
    KEPT.with_borrow_mut(|kept| {
        if !keep {
            *kept = None;
        } else if kept.is_none() {
            *kept = Some(Vec::new());
        }
    });
}

fn kept_range(bytes: u64) -> Option<AddressRange> {
    KEPT.with_borrow_mut(|kept| {
        let kept = kept.as_mut()?;
        kept.iter()
            .rposition(|range| range.bytes == bytes)
            .map(|index| kept.swap_remove(index))
    })
}

/// Unmaps the ranges that this thread keeps; whether there were any.
fn drop_kept() -> bool {
    let kept = KEPT.with_borrow_mut(|kept| kept.as_mut().map(std::mem::take));
    kept.is_some_and(|kept| !kept.is_empty())
}

/// A reserved address range whose beginning is mapped.
#[derive(Debug)]
pub(crate) struct Mapping {
    extent: Extent,
    backing: Backing,
    holes: Arc<Holes>,
    /// `None` only while the mapping is dropped.
    range: Option<AddressRange>,
    reserved_bytes: u64,
    limit_bytes: u64,
    /// The greatest length that it ever had.
    length_max: AtomicU64,
    /// How many bytes, from the first one on, may be other than zero; `None` if all may be.
    written_bytes: Option<u64>,
    growing: Mutex<()>,
}

// SAFETY: the addresses are plain numbers here; the memory behind them is accessed through `Extent`
// only.
unsafe impl Send for Mapping {}
// SAFETY: as above; growth is serialised by `growing`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of this process, growing up to `limit_bytes`.
    pub(crate) fn memory(limit_bytes: u64) -> Result<Self, MapError> {
        Self::reserve(
            Backing::Memory,
            0,
            limit_bytes,
            RESERVE_BYTES_WANTED.min(limit_bytes.max(1)),
        )
    }

    /// A shared mapping of all of `file`, which grows with it up to `limit_bytes`. Asks for
    /// `MAP_SYNC` first.
    pub(crate) fn shared(file: File, limit_bytes: u64) -> Result<Self, MediumError> {
        let action = "measure a file of";
        let length = file
            .metadata()
            .map_err(|source| MapError {
                action,
                bytes: 0,
                source,
            })?
            .len();
        let disk = Disk(file);
        let holes = Holes::find(&disk.0, length, |hole, end| {
            // It is the end of a file whose growth was cut short, or a part that a copy left out.
            disk.reserve(hole, end)
                .map_err(|error| not_allocated(error, length, length, &disk.0))
        })?;
        let wanted = RESERVE_BYTES_WANTED.max(length.saturating_mul(2));
        let synchronous = AtomicBool::new(true);
        let mut mapping = Self::reserve(
            Backing::Shared { disk, synchronous },
            length,
            limit_bytes,
            wanted,
        )?;
        mapping.holes = Arc::new(holes);
        // A page is mapped even if the file is empty, because only a mapping tells whether the file
        // system grants `MAP_SYNC`. It is not accessed before the file has this length.
        mapping.map_file(0, length.max(page_bytes()))?;
        mapping.settle(length)?;
        // SAFETY: just mapped up to `length`.
        unsafe { mapping.extent.set_length(length) };
        Ok(mapping)
    }

    /// With `MAP_SYNC`, makes durable the file's length, and the stores that a killed process left
    /// in the processors' caches. Otherwise a power cut could take back data that this process has
    /// read and relies on.
    fn settle(&self, length: u64) -> Result<(), MapError> {
        match &self.backing {
            Backing::Shared { disk, .. } if self.is_synchronous() => disk.sync(),
            _ => Ok(()),
        }
        .map_err(|source| MapError {
            action: "make durable a file of",
            bytes: length,
            source,
        })
    }

    /// A private mapping of all of the file behind `io`, which grows with it up to `limit_bytes`.
    pub(crate) fn private(io: Arc<dyn Io>, limit_bytes: u64) -> Result<Self, MediumError> {
        let action = "measure a file of";
        let length = io.length().map_err(|source| MapError {
            action,
            bytes: 0,
            source,
        })?;
        let wanted = RESERVE_BYTES_WANTED.max(length.saturating_mul(2));
        let holes = Holes::find(io.file(), length, |_, _| Ok(()))?;
        let backing = Backing::Private {
            io,
            is_growth_mapped: AtomicBool::new(false),
        };
        let mut mapping = Self::reserve(backing, length, limit_bytes, wanted)?;
        mapping.holes = Arc::new(holes);
        if length > 0 {
            mapping.map_file(0, length)?;
            // SAFETY: just mapped up to `length`.
            unsafe { mapping.extent.set_length(length) };
        }
        Ok(mapping)
    }

    /// Memory with the content of `file`, which grows without it. No store reaches the file.
    pub(crate) fn copy_of(file: &File) -> Result<Self, MediumError> {
        let action = "measure a file of";
        let length = file
            .metadata()
            .map_err(|source| MapError {
                action,
                bytes: 0,
                source,
            })?
            .len();
        let wanted = RESERVE_BYTES_WANTED.max(length.saturating_mul(2));
        let mut mapping = Self::reserve(Backing::Copy, length, u64::MAX, wanted)?;
        mapping.holes = Arc::new(Holes::find(file, length, |_, _| Ok(()))?);
        if length > 0 {
            mapping.map_private(file, 0, length)?;
            // A load from a hole of a file system in memory takes a page, or ends the process if
            // there is none.
            Holes::each(file, length, |hole, end| {
                let start = hole.next_multiple_of(page_bytes());
                let end = end - end % page_bytes();
                if start < end {
                    mapping
                        .map_zeros(start, end)
                        .map_err(refused("map memory of", end - start))?;
                }
                Ok(())
            })?;
            // SAFETY: just mapped up to `length`.
            unsafe { mapping.extent.set_length(length) };
        }
        Ok(mapping)
    }

    /// Reserves addresses: for `wanted` bytes or fewer, but not for fewer than the file has.
    fn reserve(
        backing: Backing,
        length: u64,
        limit_bytes: u64,
        wanted: u64,
    ) -> Result<Self, MapError> {
        let reserved_bytes = wanted
            .next_multiple_of(HUGE_PAGE_BYTES)
            .clamp(HUGE_PAGE_BYTES, RESERVE_BYTES_MAX);
        let range_bytes = reserved_bytes + HUGE_PAGE_BYTES;
        let kept = if matches!(backing, Backing::Memory) {
            kept_range(range_bytes)
        } else {
            None
        };
        let range = kept.map_or_else(|| AddressRange::reserve(range_bytes), Ok)?;
        let reserved_bytes = range.bytes - HUGE_PAGE_BYTES;
        if length > reserved_bytes {
            // A mapping at fixed addresses replaces any mapping that is there.
            let source =
                io::Error::other(format!("the system gives addresses for {reserved_bytes}"));
            return Err(MapError {
                action: "map a file of",
                bytes: length,
                source,
            });
        }
        // SAFETY: nothing is accessible yet; what `grow` adds stays mapped until `drop`.
        let extent = unsafe { Extent::new(range.base(), 0) };
        Ok(Self {
            extent,
            backing,
            holes: Arc::default(),
            range: Some(range),
            reserved_bytes,
            limit_bytes,
            length_max: AtomicU64::new(0),
            written_bytes: None,
            growing: Mutex::new(()),
        })
    }

    /// Says that only the first `bytes` bytes may be other than zero.
    pub(crate) fn set_written(&mut self, bytes: u64) {
        self.written_bytes = Some(bytes);
    }

    pub(crate) fn extent(&self) -> &Extent {
        &self.extent
    }

    /// Whether the file system granted `MAP_SYNC`: its own metadata is then durable before a page
    /// is written.
    pub(crate) fn is_synchronous(&self) -> bool {
        matches!(&self.backing, Backing::Shared { synchronous, .. } if synchronous.load(Ordering::Relaxed))
    }

    /// Makes at least `length` bytes accessible; never shrinks. The new part reads as zeros.
    ///
    /// With `MAP_SYNC` the file's new length is durable when this returns. The file system itself
    /// makes it durable only before the first store to a *new* page. But a store that refers to the
    /// new space may go to an old page, where the file system does nothing. Without `MAP_SYNC`
    /// nothing is synced here: a shared mapping is not promised to survive the machine, and the
    /// file medium logs the length, and syncs the file before it frees the log.
    pub(crate) fn grow(&self, length: u64) -> Result<(), MediumError> {
        let _growing = self.growing.lock();
        let old = self.extent.length();
        if length <= old {
            return Ok(());
        }
        let by = |limit, by| MediumError::Full {
            wanted: length,
            limit,
            by,
            file: Grown::Pool,
        };
        if length > self.limit_bytes {
            return Err(by(self.limit_bytes, LimitedBy::Limit));
        }
        if length > self.reserved_bytes {
            return Err(by(self.reserved_bytes, LimitedBy::Addresses));
        }
        match &self.backing {
            Backing::Memory | Backing::Copy => self.map_memory(old, length)?,
            Backing::Shared { disk, .. } => {
                let huge = huge_pages::prepare(&disk.0, old, length);
                if huge.is_empty() {
                    expect_room(disk.reserve(old, length), disk, old, length)?;
                }
                self.map_file(old, length)?;
                if !huge.is_empty() {
                    let bytes = (huge.end - huge.start) as usize;
                    // SAFETY: mapped up to `length`.
                    unsafe { huge_pages::collapse(self.address(huge.start), bytes) };
                    expect_room(disk.reserve(old, length), disk, old, length)?;
                }
                self.settle(length)?;
            }
            Backing::Private {
                io,
                is_growth_mapped,
            } => {
                expect_room(io.allocate(old, length), &**io, old, length)?;
                // The new part of the file is zeros, too, so anonymous memory may stand for it,
                // which comes in huge pages.
                let is_mapped = is_growth_mapped.load(Ordering::Relaxed);
                if is_mapped {
                    self.map_file(old, length)?;
                } else {
                    self.map_memory(old, length)?;
                }
            }
        }
        self.length_max.fetch_max(length, Ordering::Relaxed);
        // SAFETY: just mapped up to `length`.
        unsafe { self.extent.set_length(length) };
        Ok(())
    }

    /// Gives back the memory beyond `length`. The range stays reserved; a file that is mapped
    /// privately stays as it is.
    pub(crate) fn shrink(&mut self, length: u64) -> Result<(), MediumError> {
        let old = self.extent.length();
        if length >= old {
            return Ok(());
        }
        // SAFETY: exclusive access, so nobody holds a reference beyond `length`.
        unsafe { self.extent.set_length(length) };
        match &self.backing {
            Backing::Memory => self
                .clear(length, old)
                .map_err(refused("give back", old - length))?,
            Backing::Shared { disk, .. } => disk.truncate(length).map_err(|source| MapError {
                action: "truncate a file to",
                bytes: length,
                source,
            })?,
            Backing::Private { .. } | Backing::Copy => {}
        }
        Ok(())
    }

    /// From now on, maps the part by which a private mapping grows from the file as well.
    pub(crate) fn map_growth(&self) {
        if let Backing::Private {
            is_growth_mapped, ..
        } = &self.backing
        {
            is_growth_mapped.store(true, Ordering::Relaxed);
        }
    }

    /// The addresses that it may grow to, in bytes.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    /// The holes of the file.
    pub(crate) fn holes(&self) -> &Arc<Holes> {
        &self.holes
    }

    /// Punches units that are out of use.
    pub(crate) fn release(&self, start: u64, end: u64) {
        if let Backing::Shared { disk, .. } = &self.backing {
            self.holes.punch(disk, start, end);
        }
    }

    /// Gives holes room on the disk again.
    pub(crate) fn reserve_room(&self, start: u64, end: u64) -> Result<(), MediumError> {
        match &self.backing {
            Backing::Memory => Ok(()),
            Backing::Copy => {
                self.holes.forget_all(start, end);
                Ok(())
            }
            Backing::Shared { disk, .. } => self.holes.fill(disk, start, end),
            Backing::Private { io, .. } => self.holes.fill(&**io, start, end),
        }
    }

    /// Gives back the memory beyond `length`, a multiple of the page size, as [`Mapping::shrink`]
    /// does, but while other threads may still read there: they find zeros.
    pub(crate) fn cut(&self, length: u64) -> Result<(), MediumError> {
        let _growing = self.growing.lock();
        let old = self.extent.length();
        if length >= old {
            return Ok(());
        }
        // SAFETY: memory beyond stays mapped.
        unsafe { self.extent.set_length(length) };
        if let Err(errno) = self.map_zeros(length, old.next_multiple_of(page_bytes())) {
            // SAFETY: nothing was unmapped.
            unsafe { self.extent.set_length(old) };
            return Err(refused("give back", old - length)(errno).into());
        }
        self.holes.cut(length);
        if let Backing::Shared { disk, .. } = &self.backing {
            disk.truncate(length).map_err(|source| MapError {
                action: "truncate a file to",
                bytes: length,
                source,
            })?;
        }
        Ok(())
    }

    /// Replaces whole pages by memory of zeros.
    fn map_zeros(&self, start: u64, end: u64) -> rustix::io::Result<()> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = (end - start) as usize;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: inside the reserved range; what replaces the file's pages is accessed as these
        // are.
        unsafe { mmap_anonymous(self.address(start), bytes, access, flags) }.map(drop)
    }

    /// Makes memory that is out of use read as zeros; whole pages go back to the system.
    fn clear(&mut self, start: u64, end: u64) -> rustix::io::Result<()> {
        let pages = start.next_multiple_of(page_bytes()).min(end);
        // SAFETY: accessible memory of this mapping, to which nobody has a reference.
        unsafe {
            self.address(start)
                .cast::<u8>()
                .write_bytes(0, (pages - start) as usize);
        };
        if pages == end {
            return Ok(());
        }
        // SAFETY: as above; private anonymous memory reads as zeros afterwards.
        unsafe {
            madvise(
                self.address(pages),
                (end - pages) as usize,
                Advice::LinuxDontNeed,
            )
        }
    }

    fn address(&self, offset: u64) -> *mut std::ffi::c_void {
        self.extent.base().wrapping_add(offset as usize).cast()
    }

    fn map_memory(&self, old: u64, length: u64) -> Result<(), MapError> {
        if self
            .range
            .as_ref()
            .is_some_and(|range| length <= range.accessible_bytes)
        {
            return Ok(());
        }
        let start = old - old % page_bytes();
        let bytes = (length - start) as usize;
        // SAFETY: inside the reserved range, which belongs to this mapping and is private anonymous
        // memory.
        unsafe {
            mprotect(
                self.address(start),
                bytes,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }
        .map_err(refused("make accessible", bytes as u64))?;
        if length >= HUGE_PAGE_BYTES {
            // Only a hint: small pages work as well.
            // SAFETY: the same range; advice changes no content.
            let _ = unsafe { madvise(self.address(0), length as usize, Advice::LinuxHugepage) };
        }
        Ok(())
    }

    fn map_file(&self, old: u64, length: u64) -> Result<(), MapError> {
        match &self.backing {
            Backing::Memory | Backing::Copy => Ok(()),
            Backing::Shared { disk, synchronous } => {
                self.map_shared(&disk.0, synchronous, old, length)
            }
            Backing::Private { io, .. } => {
                // The page in which the old length ends is mapped as a whole, and stores to it are
                // private. To map it again would lose them.
                let start = old.next_multiple_of(page_bytes());
                if start >= length {
                    Ok(())
                } else {
                    self.map_private(io.file(), start, length)
                }
            }
        }
    }

    fn map_private(&self, file: &File, start: u64, length: u64) -> Result<(), MapError> {
        self.map_part(file, start, length, MapFlags::PRIVATE | MapFlags::NORESERVE)
            .map_err(refused("map a file of", length))
    }

    fn map_part(
        &self,
        file: &File,
        start: u64,
        length: u64,
        kind: MapFlags,
    ) -> rustix::io::Result<()> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = (length - start) as usize;
        // SAFETY: inside the reserved range, where only this mapping's own earlier pages can be
        // replaced, by the same pages of the same file.
        unsafe {
            mmap(
                self.address(start),
                bytes,
                access,
                kind | MapFlags::FIXED,
                file,
                start,
            )
        }
        .map(|_| ())
    }

    fn map_shared(
        &self,
        file: &File,
        synchronous: &AtomicBool,
        old: u64,
        length: u64,
    ) -> Result<(), MapError> {
        // Mappings begin at pages; mapping the same page of the same file again changes nothing for
        // its users.
        let start = old - old % page_bytes();
        let map = |kind| self.map_part(file, start, length, kind);
        let mapped = if synchronous.load(Ordering::Relaxed) {
            match map(MapFlags::SHARED_VALIDATE | MapFlags::SYNC) {
                // If the first mapping has `MAP_SYNC`, a later one must have it, too, because
                // writes are acknowledged on the strength of it.
                Err(Errno::OPNOTSUPP | Errno::INVAL) if self.extent.length() == 0 => {
                    synchronous.store(false, Ordering::Relaxed);
                    map(MapFlags::SHARED)
                }
                mapped => mapped,
            }
        } else {
            map(MapFlags::SHARED)
        };
        mapped.map_err(refused("map a file of", length))?;
        // SAFETY: the range just mapped; advice changes no content, and is only a hint.
        let _ = unsafe {
            madvise(
                self.address(start),
                (length - start) as usize,
                Advice::LinuxHugepage,
            )
        };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let Some(mut range) = self.range.take() else {
            return;
        };
        let length_max = *self.length_max.get_mut();
        let accessible_bytes = range.accessible_bytes.max(length_max);
        if !matches!(self.backing, Backing::Memory) || accessible_bytes > KEPT_BYTES_MAX {
            return;
        }
        // While the thread ends, its list of kept ranges is gone already; then the range is
        // unmapped here.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            let Some(kept) = kept.as_mut().filter(|kept| kept.len() < KEPT_RANGES_MAX) else {
                return;
            };
            if kept.iter().map(|range| range.bytes).sum::<u64>() + range.bytes > KEPT_ADDRESSES_MAX
            {
                return;
            }
            let written = match self.written_bytes {
                Some(bytes) => bytes.min(length_max),
                None => length_max,
            };
            // SAFETY: exclusive access to memory that was made accessible up to `length_max`.
            unsafe { self.extent.base().write_bytes(0, written as usize) };
            range.accessible_bytes = accessible_bytes;
            kept.push(range);
        });
    }
}

/// Tells the system that pages of a mapping are read in no order: pages that it would read ahead
/// would displace pages that are needed.
pub(crate) fn expect_random_loads(extent: &Extent) {
    // SAFETY: the extent is mapped; advice changes no content, and is only a hint.
    let _ = unsafe {
        madvise(
            extent.base().cast(),
            extent.length() as usize,
            Advice::Random,
        )
    };
}

/// Gives the memory of written pages back to the system: loads find what the file holds. Returns
/// whether it did.
///
/// # Safety
/// `extent` is mapped. A file is mapped there, and what it holds is what was stored; no thread
/// stores meanwhile.
pub(crate) unsafe fn show_file(extent: &Extent, offset: u64, bytes: u64) -> bool {
    let address = extent.base().wrapping_add(offset as usize).cast();
    // SAFETY: by the caller's promise no content changes.
    unsafe { madvise(address, bytes as usize, Advice::LinuxDontNeed) }.is_ok()
}

/// Whether the file system of `file` grants `MAP_SYNC`. Only a mapping tells: persistent memory
/// behind a hypervisor may be mapped directly without it.
pub(crate) fn grants_sync(file: &File) -> bool {
    let bytes = page_bytes() as usize;
    let kind = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    // SAFETY: a fresh range at an address of the system's choice, which nobody touches.
    match unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, kind, file, 0) } {
        Ok(address) => {
            // SAFETY: just mapped, and nobody has a reference.
            let _ = unsafe { munmap(address, bytes) };
            true
        }
        Err(_) => false,
    }
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Passes on whether a file got blocks for its bytes from `old` to `length`: a store to a hole of a
/// full disk would be a signal, not an error. If the disk is full, the file is cut back to its old
/// length.
fn expect_room(
    allocated: io::Result<()>,
    io: &dyn Io,
    old: u64,
    length: u64,
) -> Result<(), MediumError> {
    allocated.map_err(|error| {
        if is_full(&error) {
            let _ = io.truncate(old);
        }
        not_allocated(error, old, length, io.file())
    })
}

#[cfg(test)]
mod tests;
