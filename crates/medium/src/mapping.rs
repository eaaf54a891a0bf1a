//! A file or plain memory, mapped to addresses where it grows in place.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::Extent;
use crate::addresses::{AddressRange, NotMapped, page_bytes};
use crate::error::{Grown, LimitedBy, MapError, MediumError, address_space_limit, not_allocated};
use crate::holes::Holes;
use crate::huge_pages::{self, HUGE_PAGE_BYTES};
use crate::io::{Disk, Io, is_full, sync_whole, write_all};
use crate::presence::{Presence, unless_mapped};

/// Plain memory has this length of mapped pages from the beginning, or its limit if that is less.
const MEMORY_BYTES_AT_FIRST: u64 = 1 << 16;

/// Zeros that are written to a file with one call, in bytes.
const ZEROS_BYTES: u64 = 1 << 20;

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn refused(action: &'static str, bytes: u64) -> impl FnOnce(Errno) -> MapError {
    move |errno| MapError {
        action,
        bytes,
        source: errno.into(),
    }
}

fn not_mapped(action: &'static str, bytes: u64) -> impl FnOnce(NotMapped) -> MapError {
    move |not_mapped| MapError {
        action,
        bytes,
        source: not_mapped.into(),
    }
}

/// The memory or file behind the mapped part of the range.
#[derive(Debug)]
enum Backing {
    Memory,
    Shared {
        disk: Disk,
        /// Whether the file system granted `MAP_SYNC`.
        synchronous: bool,
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

impl Backing {
    /// The access to pages by which a mapping grows, until they are replaced by pages of a file.
    fn access_of_new_pages(&self) -> ProtFlags {
        match self {
            Self::Memory | Self::Private { .. } | Self::Copy => READ_WRITE,
            // They are always replaced; without access they count as no memory until then.
            Self::Shared { .. } => ProtFlags::empty(),
        }
    }
}

/// The most ranges that one thread keeps: retired memory holds on to its mapping for a while, so
/// hundreds are in use.
const KEPT_RANGES_MAX: usize = 512;
/// The most mapped bytes of a range that is kept.
const KEPT_BYTES_MAX: u64 = 1 << 20;

thread_local! {
    /// Ranges of plain memory, all of it zero, for this thread's next mappings; `None` if it keeps
    /// none.
    static KEPT: RefCell<Option<Vec<AddressRange>>> = const { RefCell::new(None) };
}

/// Sets whether mappings of plain memory that this thread drops leave it their address ranges, for
/// those that it makes next: neither then costs a system call.
pub(crate) fn keep_ranges(keep: bool) {
    KEPT.with_borrow_mut(|kept| {
        if !keep {
            *kept = None;
        } else if kept.is_none() {
            *kept = Some(Vec::new());
        }
    });
}

/// Whether mappings of plain memory that this thread drops leave it their address ranges.
pub(crate) fn keeps_ranges() -> bool {
    KEPT.with_borrow(Option::is_some)
}

fn kept_range(limit_bytes: u64) -> Option<AddressRange> {
    KEPT.with_borrow_mut(|kept| {
        let kept = kept.as_mut()?;
        kept.iter()
            .rposition(|range| range.limit_bytes() == limit_bytes)
            .map(|index| kept.swap_remove(index))
    })
}

/// Unmaps the ranges that this thread keeps; whether there were any.
fn drop_kept() -> bool {
    let kept = KEPT.with_borrow_mut(|kept| kept.as_mut().map(std::mem::take));
    kept.is_some_and(|kept| !kept.is_empty())
}

/// Mapped memory that grows in place.
#[derive(Debug)]
pub(crate) struct Mapping {
    extent: Extent,
    backing: Backing,
    holes: Arc<Holes>,
    /// `None` only while the mapping is dropped.
    range: Option<AddressRange>,
    limit_bytes: u64,
    /// The file or memory that grows with it, for errors.
    grown: Grown,
    /// The greatest length that it ever had.
    length_max: AtomicU64,
    /// How many bytes, from the first one on, may be other than zero; `None` if all may be.
    written_bytes: Option<u64>,
    growing: Mutex<()>,
    /// Up to here the file may hold other bytes than zeros, even behind the end: it was cut since it was
    /// opened, and a reader may have put that off.
    stale_end: AtomicU64,
    /// Tells writers that the file is mapped. It is dropped after the range.
    presence: Option<Presence>,
}

// SAFETY: the addresses are plain numbers here; the memory behind them is accessed through `Extent`
// only.
unsafe impl Send for Mapping {}
// SAFETY: as above; growth is serialised by `growing`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of this process, growing up to `limit_bytes`; errors name it as `grown`.
    pub(crate) fn memory(limit_bytes: u64, grown: Grown) -> Result<Self, MapError> {
        let kept = kept_range(limit_bytes);
        let range = match kept {
            Some(range) => range,
            None => place(
                MEMORY_BYTES_AT_FIRST.min(limit_bytes),
                limit_bytes,
                READ_WRITE,
            )
            .map_err(not_mapped("map memory of", MEMORY_BYTES_AT_FIRST))?,
        };
        Ok(Self::of(range, Backing::Memory, limit_bytes, grown))
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
        let synchronous = grants_sync(&disk.0);
        let backing = Backing::Shared { disk, synchronous };
        let mut mapping = Self::of_file(backing, length, limit_bytes)?;
        mapping.holes = Arc::new(holes);
        mapping.map_file(0, length)?;
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
        let holes = Holes::find(io.file(), length, |_, _| Ok(()))?;
        let backing = Backing::Private {
            io,
            is_growth_mapped: AtomicBool::new(false),
        };
        let mut mapping = Self::of_file(backing, length, limit_bytes)?;
        mapping.holes = Arc::new(holes);
        mapping.map_file(0, length)?;
        // SAFETY: just mapped up to `length`.
        unsafe { mapping.extent.set_length(length) };
        Ok(mapping)
    }

    /// Memory with the content of `file`, which grows without it. No store reaches the file. If
    /// another process writes the file, the memory changes where nothing was stored to it: as all
    /// memory of a pool, it is only reached by atomic accesses, and any content is valid. The caller
    /// sees to it that the file is not cut.
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
        let mut mapping = Self::of_file(Backing::Copy, length, u64::MAX)?;
        mapping.holes = Arc::new(Holes::find(file, length, |_, _| Ok(()))?);
        if length > 0 {
            let kind = MapFlags::PRIVATE | MapFlags::NORESERVE;
            mapping.map_part(file, 0, length, kind)?;
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

    /// Places the mapping of a file of `length` bytes, which the caller maps to it then.
    fn of_file(backing: Backing, length: u64, limit_bytes: u64) -> Result<Self, MapError> {
        let bytes = length.max(page_bytes());
        let range = place(bytes, limit_bytes, backing.access_of_new_pages())
            .map_err(not_mapped("map a file of", length))?;
        Ok(Self::of(range, backing, limit_bytes, Grown::Pool))
    }

    /// A mapping of no bytes in this range.
    fn of(range: AddressRange, backing: Backing, limit_bytes: u64, grown: Grown) -> Self {
        // SAFETY: nothing is accessible yet; what `grow` adds stays mapped until `drop`.
        let extent = unsafe { Extent::new(range.start(), 0) };
        Self {
            extent,
            backing,
            holes: Arc::default(),
            range: Some(range),
            limit_bytes,
            grown,
            length_max: AtomicU64::new(0),
            written_bytes: None,
            growing: Mutex::new(()),
            stale_end: AtomicU64::new(0),
            presence: None,
        }
    }

    /// Keeps the lock of a reader as long as the mapping.
    pub(crate) fn keep(&mut self, presence: Presence) {
        self.presence = Some(presence);
    }

    /// Says that only the first `bytes` bytes may be other than zero.
    pub(crate) fn set_written(&mut self, bytes: u64) {
        self.written_bytes = Some(bytes);
    }

    pub(crate) fn extent(&self) -> &Extent {
        &self.extent
    }

    /// The file to which stores go; `None` if they stay in memory.
    pub(crate) fn file(&self) -> Option<&File> {
        match &self.backing {
            Backing::Shared { disk, .. } => Some(&disk.0),
            Backing::Memory | Backing::Private { .. } | Backing::Copy => None,
        }
    }

    /// Whether the file system granted `MAP_SYNC`: its own metadata is then durable before a page
    /// is written.
    pub(crate) fn is_synchronous(&self) -> bool {
        matches!(
            self.backing,
            Backing::Shared {
                synchronous: true,
                ..
            }
        )
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
        if length > self.limit_bytes {
            return Err(self.full(length, self.limit_bytes, LimitedBy::Limit));
        }
        // If the disk is full then, the pages stay mapped for the next growth, and are not accessed.
        self.extend(length)?;
        self.clear_stale(length)?;
        match &self.backing {
            Backing::Memory | Backing::Copy => self.advise_huge_pages(length),
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
                    self.advise_huge_pages(length);
                }
            }
        }
        self.length_max.fetch_max(length, Ordering::Relaxed);
        // SAFETY: just mapped up to `length`.
        unsafe { self.extent.set_length(length) };
        Ok(())
    }

    /// Makes the file hold zeros between the end and `length`, durably, if the file was cut and a
    /// reader put that off. Cuts it now if no reader maps it any more. If the cut was not put off, but is not
    /// durable, a loss of power could take it back, and leave a growth that is durable.
    fn clear_stale(&self, length: u64) -> Result<(), MediumError> {
        let old = self.extent.length();
        let stale_end = self.stale_end.load(Ordering::Relaxed);
        if stale_end <= old {
            return Ok(());
        }
        let io: &dyn Io = match &self.backing {
            Backing::Shared { disk, .. } => disk,
            Backing::Private { io, .. } => &**io,
            Backing::Memory | Backing::Copy => return Ok(()),
        };
        let cleared = Self::cut_or_fill(io, old, stale_end.min(length));
        let is_cut = cleared.map_err(|error| not_allocated(error, old, length, io.file()))?;
        if is_cut || length >= stale_end {
            self.stale_end.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Cuts a file off at `old`; or fills it with zeros up to `end`, if a reader maps it. Durable when
    /// this returns. Returns whether it was cut.
    fn cut_or_fill(io: &dyn Io, old: u64, end: u64) -> io::Result<bool> {
        let file_end = io.length()?;
        let is_cut = unless_mapped(io.file(), || {
            if file_end > old {
                io.truncate(old)
            } else {
                Ok(())
            }
        })?;
        if !is_cut {
            let end = end.min(file_end);
            let zeros = vec![0; ZEROS_BYTES.min(end.saturating_sub(old)) as usize];
            let mut offset = old;
            while offset < end {
                let part = ZEROS_BYTES.min(end - offset) as usize;
                write_all(io, &zeros[..part], offset)?;
                offset += part as u64;
            }
        }
        sync_whole(io)?;
        Ok(is_cut)
    }

    fn full(&self, wanted: u64, limit: u64, by: LimitedBy) -> MediumError {
        MediumError::Full {
            wanted,
            limit,
            by,
            file: self.grown,
        }
    }

    fn range(&self) -> &AddressRange {
        self.range.as_ref().expect("taken only by the drop")
    }

    /// Maps pages until there are enough for `length` bytes. On failure nothing has changed.
    fn extend(&self, length: u64) -> Result<(), MediumError> {
        let access = self.backing.access_of_new_pages();
        let mut extended = self.range().extend(length, access);
        // The ranges that this thread keeps for later may take up all addresses.
        if matches!(extended, Err(NotMapped::Refused(_))) && drop_kept() {
            extended = self.range().extend(length, access);
        }
        let by = match extended {
            Ok(()) => return Ok(()),
            Err(NotMapped::Occupied) => LimitedBy::Addresses,
            Err(NotMapped::Refused(Errno::NOMEM)) => LimitedBy::AddressSpace {
                limit_bytes: address_space_limit(),
            },
            Err(NotMapped::Refused(errno)) => return Err(refused("map", length)(errno).into()),
        };
        Err(self.full(length, self.extent.length(), by))
    }

    /// Gives back the memory beyond `length`. The addresses stay mapped; a file that is mapped
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
            Backing::Shared { disk, .. } => cut_file(disk, length)?,
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

    /// The holes of the file.
    pub(crate) fn holes(&self) -> &Arc<Holes> {
        &self.holes
    }

    /// Punches units that are out of use.
    pub(crate) fn release(&self, start: u64, end: u64) {
        if let Backing::Shared { disk, .. } = &self.backing {
            self.holes.punch_put_off(disk);
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
        self.stale_end.fetch_max(old, Ordering::Relaxed);
        if let Backing::Shared { disk, .. } = &self.backing {
            cut_file(disk, length)?;
        }
        Ok(())
    }

    /// Replaces whole pages by memory of zeros.
    fn map_zeros(&self, start: u64, end: u64) -> rustix::io::Result<()> {
        debug_assert!(end <= self.range().mapped_bytes());
        let bytes = (end - start) as usize;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: pages of this mapping; what replaces the file's pages is accessed as these are.
        unsafe { mmap_anonymous(self.address(start), bytes, READ_WRITE, flags) }.map(drop)
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

    /// Asks for huge pages, if there is room for one. Only a hint: small pages work as well.
    fn advise_huge_pages(&self, length: u64) {
        if length >= HUGE_PAGE_BYTES {
            // SAFETY: mapped up to `length`; advice changes no content.
            let _ = unsafe { madvise(self.address(0), length as usize, Advice::LinuxHugepage) };
        }
    }

    /// Maps the file's bytes from `old` to `length` to pages of this mapping.
    fn map_file(&self, old: u64, length: u64) -> Result<(), MapError> {
        // The page in which the old length ends is mapped as a whole. To map it again would lose
        // stores to it, if they are private.
        let start = old.next_multiple_of(page_bytes());
        if start >= length {
            return Ok(());
        }
        match &self.backing {
            Backing::Memory | Backing::Copy => Ok(()),
            Backing::Shared { disk, synchronous } => {
                // If the first part has `MAP_SYNC`, a later one must have it, too, because writes
                // are acknowledged on the strength of it.
                let kind = match synchronous {
                    true => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
                    false => MapFlags::SHARED,
                };
                self.map_part(&disk.0, start, length, kind)?;
                let bytes = (length - start) as usize;
                // SAFETY: the range just mapped; advice changes no content, and is only a hint.
                let _ = unsafe { madvise(self.address(start), bytes, Advice::LinuxHugepage) };
                Ok(())
            }
            Backing::Private { io, .. } => {
                let kind = MapFlags::PRIVATE | MapFlags::NORESERVE;
                self.map_part(io.file(), start, length, kind)
            }
        }
    }

    /// Replaces pages of this mapping by pages of the file. They are mapped already, because the
    /// system knows no way to map with `MAP_SYNC` and to replace nothing: it refuses the flag for
    /// the latter, as all flags that it does not know.
    fn map_part(
        &self,
        file: &File,
        start: u64,
        length: u64,
        kind: MapFlags,
    ) -> Result<(), MapError> {
        debug_assert!(length <= self.range().mapped_bytes());
        let bytes = (length - start) as usize;
        let address = self.address(start);
        // SAFETY: pages of this mapping, beyond its length, are replaced; or pages that `cut` has
        // mapped, in which other threads read zeros as well as what the file holds.
        let mapped = unsafe {
            mmap(
                address,
                bytes,
                READ_WRITE,
                kind | MapFlags::FIXED,
                file,
                start,
            )
        };
        mapped.map(drop).map_err(|errno| {
            // The system may have unmapped the pages before it failed.
            let end = length.next_multiple_of(page_bytes());
            let _ = self.map_zeros(start, end);
            refused("map a file of", length)(errno)
        })
    }
}

/// How long a thread waits for addresses that another one may have taken for a moment.
const ADDRESSES_REST: std::time::Duration = std::time::Duration::from_millis(5);

/// Places a range, if need be at the cost of the ranges that this thread keeps for later.
fn place(bytes: u64, limit_bytes: u64, access: ProtFlags) -> Result<AddressRange, NotMapped> {
    let placed = AddressRange::place(bytes, limit_bytes, access);
    if !matches!(placed, Err(NotMapped::Refused(_))) {
        return placed;
    }
    if drop_kept() {
        return AddressRange::place(bytes, limit_bytes, access);
    }
    // The allocator of another thread takes 128 MiB of addresses for a moment, which is half of what
    // a process with few addresses has.
    std::thread::sleep(ADDRESSES_REST);
    AddressRange::place(bytes, limit_bytes, access)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let Some(range) = self.range.take() else {
            return;
        };
        let length_max = *self.length_max.get_mut();
        if !matches!(self.backing, Backing::Memory) || range.mapped_bytes() > KEPT_BYTES_MAX {
            return;
        }
        // While the thread ends, its list of kept ranges is gone already; then the range is
        // unmapped here.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            let Some(kept) = kept.as_mut().filter(|kept| kept.len() < KEPT_RANGES_MAX) else {
                return;
            };
            let written = match self.written_bytes {
                Some(bytes) => bytes.min(length_max),
                None => length_max,
            };
            // SAFETY: exclusive access to memory that was made accessible up to `length_max`.
            unsafe { self.extent.base().write_bytes(0, written as usize) };
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

/// Cuts a file off, unless a reader in another process maps it.
fn cut_file(disk: &Disk, length: u64) -> Result<(), MapError> {
    let cut = unless_mapped(&disk.0, || disk.truncate(length));
    cut.map(drop).map_err(|source| MapError {
        action: "truncate a file to",
        bytes: length,
        source,
    })
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
            // A reader may map what lies behind the old length, if a cut was put off for it.
            let _ = unless_mapped(io.file(), || io.truncate(old));
        }
        not_allocated(error, old, length, io.file())
    })
}

#[cfg(test)]
mod tests;
