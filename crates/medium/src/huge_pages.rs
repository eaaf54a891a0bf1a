//! Huge pages for files in memory.
//!
//! An fsdax file system maps persistent memory in pages of 2 MiB. A file in memory, which emulates
//! that, gets pages of 4 KiB unless its mount says otherwise, and finding one of those takes longer
//! than the cache miss behind it. The kernel makes a huge page of a range on request
//! (`MADV_COLLAPSE`, Linux 6.1), whatever the mount says. Only a hint: where it fails, small pages
//! stay.

use std::fs::File;
use std::ops::Range;

use rustix::fs::{FallocateFlags, fallocate, fstatfs, ftruncate};

/// A huge page.
pub(crate) const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// The `f_type` of a tmpfs.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Lengthens a file in memory from `old` bytes to `length`, and returns the range whose huge pages
/// are then whole: the caller maps and collapses it before the rest of the file is allocated,
/// because collapsing copies small pages that are allocated already. The range is empty if there is
/// nothing to collapse; then the file was not changed.
pub(crate) fn prepare(file: &File, old: u64, length: u64) -> Range<u64> {
    let huge = old - old % HUGE_PAGE_BYTES..length - length % HUGE_PAGE_BYTES;
    if huge.is_empty() || !is_in_memory(file) || lengthen(file, length).is_err() {
        return 0..0;
    }
    for offset in huge.clone().step_by(HUGE_PAGE_BYTES as usize) {
        // A hole cannot become a huge page.
        let _ = fallocate(file, FallocateFlags::empty(), offset, 1);
    }
    huge
}

/// Gives a file `length` bytes, unless it is longer: a cut may have been put off for a reader.
fn lengthen(file: &File, length: u64) -> std::io::Result<()> {
    if file.metadata()?.len() < length {
        ftruncate(file, length)?;
    }
    Ok(())
}

/// Whether a file lives in memory.
fn is_in_memory(file: &File) -> bool {
    cfg!(target_os = "linux")
        && fstatfs(file).is_ok_and(|system| system.f_type as u64 == TMPFS_MAGIC)
}

/// While this lives, the process gets small pages only, even where huge pages are asked for: to
/// compare media by the same pages. Memory that has huge pages already keeps them.
#[derive(Debug)]
pub struct SmallPages {
    /// Whether the process had small pages only before.
    before: bool,
}

impl SmallPages {
    /// Gives the process small pages only; `None` if the system has no such switch. Guards that
    /// live at the same time must be dropped in the reverse order.
    pub fn take() -> Option<Self> {
        let before = Self::are_all()?;
        if Self::set(true) {
            Some(Self { before })
        } else {
            None
        }
    }

    /// Whether the process gets small pages only; `None` if the system does not say.
    pub fn are_all() -> Option<bool> {
        #[cfg(target_os = "linux")]
        {
            let unused = 0 as libc::c_ulong;
            // SAFETY: reads a flag of this process.
            let flag =
                unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, unused, unused, unused, unused) };
            match flag {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            }
        }
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Whether the system has done so.
    fn set(small_only: bool) -> bool {
        #[cfg(target_os = "linux")]
        {
            let flag = libc::c_ulong::from(small_only);
            let unused = 0 as libc::c_ulong;
            // SAFETY: a flag of this process, which changes no content.
            unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, flag, unused, unused, unused) == 0 }
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = small_only;
            false
        }
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        Self::set(self.before);
    }
}

/// Makes huge pages of a mapped range.
///
/// # Safety
/// The range is mapped.
pub(crate) unsafe fn collapse(address: *mut std::ffi::c_void, bytes: usize) {
    #[cfg(target_os = "linux")]
    if bytes > 0 {
        // SAFETY: the caller ensures that the range is mapped; the advice changes no content.
        let _ = unsafe { libc::madvise(address, bytes, libc::MADV_COLLAPSE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (address, bytes);
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
