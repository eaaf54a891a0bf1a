//! Whether a loss of power loses a file even if it was synced, because its file system is in
//! memory.

use std::fs::File;

use rustix::fs::fstatfs;

use crate::Survives;

const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;
const OVERLAYFS: i64 = 0x794c_7630;

/// The failures that a synced file survives. If the system does not tell, only the end of the
/// process.
pub fn survives(file: &File) -> Survives {
    promise(is_volatile(file))
}

fn promise(is_volatile: Option<bool>) -> Survives {
    if is_volatile == Some(false) {
        Survives::PowerLoss
    } else {
        Survives::ProcessCrash
    }
}

/// Whether the file is in memory; `None` if the system does not tell.
pub(super) fn is_volatile(file: &File) -> Option<bool> {
    of_file_system(i64::from(fstatfs(file).ok()?.f_type as u32))
}

fn of_file_system(number: i64) -> Option<bool> {
    match number {
        TMPFS | RAMFS => Some(true),
        // An overlay (the file system of most containers) may write to memory, and may be mounted
        // so that it never syncs. In a container the folder to which it writes is out of sight.
        OVERLAYFS => None,
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests;
