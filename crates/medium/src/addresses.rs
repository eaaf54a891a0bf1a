//! Where in the address space mappings begin, and how far each may grow.
//!
//! Threads hold references into a mapping, so it never moves: it grows in place, and needs free
//! addresses behind it. They are not reserved. A reservation counts as used address space
//! (`ulimit -v`), and takes it from all that the process allocates later.
//!
//! Instead, mappings begin far apart, in a *window* of the address space away from the program, its
//! heap, and the place where the system puts mappings that name no address:
//!
//! 1. Each mapping has a *territory*: the addresses from its start up to the start of the next
//!    mapping. A table of all territories ([`Territories`]) is the only trace of addresses that are
//!    not mapped.
//! 2. A new mapping begins in the middle of the largest free end of a territory. The first mappings
//!    of a process can grow to many TiB, and those of a thousand pools still to tens of GiB. A
//!    mapping that needs less, because of its limit, gets no more than that.
//! 3. A mapping grows by new pages directly behind its last one. They never replace other pages
//!    (`MAP_FIXED_NOREPLACE`): something that is not ours may lie in a territory.
//! 4. When a mapping ends, its territory goes to the mapping before it.
//!
//! Under a limit (`ulimit -v`), mappings leave a part of it to the allocations of the program
//! itself, which ends if one of these fails.
//!
//! If the system gives no addresses in the window, a mapping begins where the system wants, with
//! room behind it that is free at that moment.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::error::address_space_limit;
use crate::huge_pages::HUGE_PAGE_BYTES;

/// No mapping is larger than this: half of the addresses, which have 47 bits.
const MAPPING_BYTES_MAX: u64 = 1 << 46;
/// How many places in the window are tried for a mapping.
const PLACES_MAX: usize = 16;
/// Outside of the window, a mapping begins where this much is free behind it, or less.
const ROOM_BYTES_MAX: u64 = 64 << 30;

/// Under a limit of the address space, mappings leave at least an eighth of it to the program's own
/// allocations, or this if that is less.
const LEFT_BYTES_MAX: u64 = 64 << 20;

/// Pages are added only where nothing is mapped. Systems that do not know the flag take the address
/// for a hint.
#[cfg(target_os = "linux")]
const NO_REPLACE: MapFlags = MapFlags::FIXED_NOREPLACE;
#[cfg(not(target_os = "linux"))]
const NO_REPLACE: MapFlags = MapFlags::empty();

/// Why pages were not mapped.
#[derive(Debug)]
pub(crate) enum NotMapped {
    /// The addresses belong to something else.
    Occupied,
    /// The system refused.
    Refused(Errno),
}

impl From<NotMapped> for io::Error {
    fn from(not_mapped: NotMapped) -> Self {
        match not_mapped {
            NotMapped::Occupied => Self::other("the process has no free addresses for them"),
            NotMapped::Refused(errno) => errno.into(),
        }
    }
}

/// The addresses from the start of a mapping up to the start of the next one.
#[derive(Debug)]
struct Territory {
    /// Where the mapping ends.
    used_end: u64,
    end: u64,
}

/// The free end of a territory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct FreeEnd {
    bytes: u64,
    /// The start of the territory.
    start: u64,
}

impl FreeEnd {
    fn of(start: u64, territory: &Territory) -> Self {
        Self {
            bytes: territory.end - territory.used_end,
            start,
        }
    }
}

/// The territories of all mappings in the window, without gaps between them. The first one belongs
/// to no mapping: it is the free beginning of the window.
#[derive(Debug)]
struct Territories {
    by_start: BTreeMap<u64, Territory>,
    free_ends: BTreeSet<FreeEnd>,
}

/// How long a thread waits for the table of territories.
const PATIENCE: Duration = Duration::from_millis(100);

/// The territories of this process; `None` before the first mapping.
static TERRITORIES: Mutex<Option<Territories>> = Mutex::new(None);

/// Uses the territories. Returns `None` without doing so if a thread holds the table for long: in
/// the child of a fork, a thread that does not exist there may hold it for ever. The mapping then
/// does without the table.
fn with_territories<R>(use_them: impl FnOnce(&mut Territories) -> R) -> Option<R> {
    let mut territories = TERRITORIES.try_lock_for(PATIENCE)?;
    let territories = territories.get_or_insert_with(|| {
        // A 128th of all addresses: 1 TiB if there are 128 TiB.
        let part = addresses() / 128;
        Territories::of_window(part, 84 * part)
    });
    Some(use_them(territories))
}

/// How many addresses a process has, from the place where the system puts a mapping: in the upper
/// half of them.
fn addresses() -> u64 {
    let bytes = page_bytes() as usize;
    // SAFETY: a fresh page at an address of the system's choice, to which nobody has a reference.
    let address = unsafe {
        let access = ProtFlags::empty();
        let address = mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE);
        if let Ok(address) = address {
            let _ = munmap(address, bytes);
        }
        address
    };
    match address {
        Ok(address) => (address.addr() as u64).next_power_of_two(),
        Err(_) => 1 << 47,
    }
}

impl Territories {
    /// A window without mappings.
    fn of_window(start: u64, end: u64) -> Self {
        let start = start.next_multiple_of(HUGE_PAGE_BYTES);
        let mut territories = Self {
            by_start: BTreeMap::new(),
            free_ends: BTreeSet::new(),
        };
        let used_end = start;
        territories.insert(start, Territory { used_end, end });
        territories
    }

    fn insert(&mut self, start: u64, territory: Territory) {
        self.free_ends.insert(FreeEnd::of(start, &territory));
        self.by_start.insert(start, territory);
    }

    fn take(&mut self, start: u64) -> Option<Territory> {
        let territory = self.by_start.remove(&start)?;
        self.free_ends.remove(&FreeEnd::of(start, &territory));
        Some(territory)
    }

    /// Makes a territory for a mapping of `bytes` bytes that grows up to `limit_bytes`, and returns
    /// its start: the first byte of a huge page. `None` if no free end is large enough.
    fn claim(&mut self, bytes: u64, limit_bytes: u64) -> Option<u64> {
        let largest = *self.free_ends.last()?;
        let territory = self.by_start.get(&largest.start)?;
        let end = territory.end;
        let first = territory.used_end.next_multiple_of(HUGE_PAGE_BYTES);
        let free_bytes = end.checked_sub(first)?;
        let least = end.checked_sub(bytes)?;
        let middle = first + free_bytes / 2;
        let enough = end - limit_bytes.max(bytes).min(free_bytes);
        let start = middle.max(enough).min(least);
        let start = start - start % HUGE_PAGE_BYTES;
        // The free beginning of the window has no mapping at its start, but keeps it.
        if start < first || start == largest.start {
            return None;
        }
        let mut before = self.take(largest.start)?;
        before.end = start;
        self.insert(largest.start, before);
        let used_end = start + bytes;
        self.insert(start, Territory { used_end, end });
        Some(start)
    }

    /// Notes that the mapping at `start` has `bytes` bytes. `false` if its territory is smaller, or
    /// it has none.
    fn resize(&mut self, start: u64, bytes: u64) -> bool {
        let Some(mut territory) = self.take(start) else {
            return false;
        };
        let fits = bytes <= territory.end - start;
        if fits {
            territory.used_end = start + bytes;
        }
        self.insert(start, territory);
        fits
    }

    /// Gives the territory of a mapping to the one before it.
    fn release(&mut self, start: u64) {
        let Some((before, _)) = self.by_start.range(..start).next_back() else {
            return;
        };
        let before = *before;
        let Some(released) = self.take(start) else {
            return;
        };
        if let Some(mut territory) = self.take(before) {
            territory.end = released.end;
            self.insert(before, territory);
        }
    }
}

/// Mapped addresses that grow in place. The pages are memory of zeros; their owner may replace them
/// by others. They stay mapped until this is dropped.
#[derive(Debug)]
pub(crate) struct AddressRange {
    start: NonNull<u8>,
    /// Changed only by the thread that grows it.
    mapped_bytes: AtomicU64,
    limit_bytes: u64,
    has_territory: bool,
}

impl AddressRange {
    /// Maps `bytes` bytes, rounded up to pages, where they can grow: up to `limit_bytes` if there
    /// are so many addresses. The range begins at a huge page.
    pub(crate) fn place(
        bytes: u64,
        limit_bytes: u64,
        access: ProtFlags,
    ) -> Result<Self, NotMapped> {
        let bytes = whole_pages(bytes.max(1))?;
        if !leaves_enough(bytes) {
            return Err(NotMapped::Refused(Errno::NOMEM));
        }
        for _ in 0..PLACES_MAX {
            let claimed = with_territories(|all| all.claim(bytes, limit_bytes));
            let Some(start) = claimed.flatten() else {
                break;
            };
            match map_new(start, bytes, access) {
                Ok(start) => {
                    return Ok(Self {
                        start,
                        mapped_bytes: AtomicU64::new(bytes),
                        limit_bytes,
                        has_territory: true,
                    });
                }
                // The territory stays, so that nothing is tried there again.
                Err(NotMapped::Occupied) => {}
                Err(refused) => {
                    with_territories(|all| all.release(start));
                    if address_space_limit().is_some() {
                        return Err(refused);
                    }
                    break;
                }
            }
        }
        Self::place_anywhere(bytes, limit_bytes, access)
    }

    /// Maps `bytes` bytes where the system wants.
    fn place_anywhere(bytes: u64, limit_bytes: u64, access: ProtFlags) -> Result<Self, NotMapped> {
        let room = Room::map(bytes, limit_bytes, access)?;
        let before = room.address.align_offset(HUGE_PAGE_BYTES as usize);
        let start = room.address.wrapping_add(before);
        let end = start.wrapping_add(bytes as usize);
        let behind = room.bytes as usize - before - bytes as usize;
        // SAFETY: parts of the room just mapped, to which nobody has a reference. If the system
        // refuses, they stay mapped, and the range cannot grow.
        unsafe {
            if before > 0 {
                let _ = munmap(room.address, before);
            }
            if behind > 0 {
                let _ = munmap(end, behind);
            }
        }
        Ok(Self {
            start: NonNull::new(start.cast()).expect("mmap gives no null"),
            mapped_bytes: AtomicU64::new(bytes),
            limit_bytes,
            has_territory: false,
        })
    }

    /// The first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes that are mapped: whole pages.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.mapped_bytes.load(Ordering::Relaxed)
    }

    /// The limit that it was placed for.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Maps new pages until `bytes` bytes are mapped. On failure nothing has changed. The caller
    /// lets no other thread do so at the same time.
    pub(crate) fn extend(&self, bytes: u64, access: ProtFlags) -> Result<(), NotMapped> {
        let old = self.mapped_bytes();
        if bytes <= old {
            return Ok(());
        }
        let new = whole_pages(bytes)?;
        if !leaves_enough(new - old) {
            return Err(NotMapped::Refused(Errno::NOMEM));
        }
        let start = self.start.as_ptr().addr() as u64;
        if self.has_territory && with_territories(|all| all.resize(start, new)) != Some(true) {
            return Err(NotMapped::Occupied);
        }
        if let Err(not_mapped) = map_new(start + old, new - old, access) {
            if self.has_territory {
                with_territories(|all| all.resize(start, old));
            }
            return Err(not_mapped);
        }
        self.mapped_bytes.store(new, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        let bytes = self.mapped_bytes() as usize;
        // SAFETY: mapped by this range, and nobody holds references into it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), bytes) };
        if self.has_territory {
            let start = self.start.as_ptr().addr() as u64;
            with_territories(|all| all.release(start));
        }
    }
}

/// Memory at an address of the system's choice, of which a range keeps only the beginning: what
/// lies behind is then free.
struct Room {
    address: *mut c_void,
    bytes: u64,
}

impl Room {
    /// Maps more than a huge page and `bytes` bytes, as much as the system gives.
    fn map(bytes: u64, limit_bytes: u64, access: ProtFlags) -> Result<Self, NotMapped> {
        let mut behind_bytes = limit_bytes.min(ROOM_BYTES_MAX);
        loop {
            let wanted = bytes.max(behind_bytes);
            let mapped_bytes = whole_pages(wanted)? + HUGE_PAGE_BYTES;
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a fresh range at an address of the system's choice.
            let mapped = unsafe {
                mmap_anonymous(std::ptr::null_mut(), mapped_bytes as usize, access, flags)
            };
            match mapped {
                Ok(address) => {
                    return Ok(Self {
                        address,
                        bytes: mapped_bytes,
                    });
                }
                Err(_) if wanted > bytes => behind_bytes /= 2,
                Err(errno) => return Err(NotMapped::Refused(errno)),
            }
        }
    }
}

/// Maps memory of zeros at exactly this address, and replaces nothing.
fn map_new(address: u64, bytes: u64, access: ProtFlags) -> Result<NonNull<u8>, NotMapped> {
    let wanted: *mut c_void = std::ptr::without_provenance_mut(address as usize);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | NO_REPLACE;
    // SAFETY: no page is replaced: the system refuses, or maps at another address.
    let mapped = match unsafe { mmap_anonymous(wanted, bytes as usize, access, flags) } {
        Ok(mapped) => mapped,
        Err(Errno::EXIST) => return Err(NotMapped::Occupied),
        Err(errno) => return Err(NotMapped::Refused(errno)),
    };
    if mapped != wanted {
        // SAFETY: just mapped, and nobody has a reference.
        let _ = unsafe { munmap(mapped, bytes as usize) };
        return Err(NotMapped::Occupied);
    }
    Ok(NonNull::new(mapped.cast()).expect("mmap gives no null"))
}

/// Whether the limit of the address space, if there is one, leaves enough to the program after
/// `bytes` more bytes were mapped.
fn leaves_enough(bytes: u64) -> bool {
    let Some(limit_bytes) = address_space_limit() else {
        return true;
    };
    // Without the figure the system alone decides.
    let Some(mapped_bytes) = mapped_bytes_of_process() else {
        return true;
    };
    let left_bytes = LEFT_BYTES_MAX.min(limit_bytes / 8);
    mapped_bytes + bytes + left_bytes <= limit_bytes
}

/// The bytes that count under the limit of the address space; `None` if the system does not say.
fn mapped_bytes_of_process() -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = sizes.split(' ').next()?.parse().ok()?;
    Some(pages * page_bytes())
}

fn whole_pages(bytes: u64) -> Result<u64, NotMapped> {
    if bytes > MAPPING_BYTES_MAX {
        return Err(NotMapped::Occupied);
    }
    Ok(bytes.next_multiple_of(page_bytes()))
}

pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests;
