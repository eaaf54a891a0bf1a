//! Whether a file is gone with the power, however often it is synced: its file system is in memory, or never syncs.

use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, StatxFlags, fstatfs, statfs, statx};

use crate::Survives;

const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;
const OVERLAYFS: i64 = 0x794c_7630;

/// Where the system tells of its mounts.
const MOUNTS: &str = "/proc/self/mountinfo";

/// What a file survives that is synced. What cannot be found out is no promise.
pub fn survives(file: &File) -> Survives {
    promise(is_volatile(file))
}

fn promise(is_volatile: Option<bool>) -> Survives {
    if is_volatile == Some(false) { Survives::PowerLoss } else { Survives::ProcessCrash }
}

/// Whether it is so, as far as can be found out.
pub(super) fn is_volatile(file: &File) -> Option<bool> {
    match i64::from(fstatfs(file).ok()?.f_type as u32) {
        TMPFS | RAMFS => Some(true),
        OVERLAYFS => is_on_volatile_overlay(file),
        _ => Some(false),
    }
}

/// What an overlay file system writes goes to its upper folder. That may be in memory; and an overlay may be mounted so
/// that it never syncs. In a container the upper folder of its own files is out of sight: then it is not known. Those go
/// with the container anyhow; what is to stay lies in a volume, which is no overlay.
fn is_on_volatile_overlay(file: &File) -> Option<bool> {
    let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    let mounts = std::fs::read(MOUNTS).ok()?;
    loses_all(overlay_options(&mounts, found.stx_mnt_id)?)
}

/// Whether an overlay with these options is gone with the power.
fn loses_all(options: &[u8]) -> Option<bool> {
    let mut options = options.split(|byte| *byte == b',');
    // The system tells it behind the folders.
    if options.clone().any(|option| option == b"volatile") {
        return Some(true);
    }
    let folder = options.find_map(|option| option.strip_prefix(b"upperdir="))?;
    let system = statfs(path(folder)).ok()?;
    Some(matches!(i64::from(system.f_type as u32), TMPFS | RAMFS))
}

/// The options of the overlay with this mount number: behind the dash come type, source and options.
fn overlay_options(mounts: &[u8], number: u64) -> Option<&[u8]> {
    mounts.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let is_it = std::str::from_utf8(fields.next()?).ok()?.parse() == Ok(number);
        let mut rest = fields.skip_while(|field| *field != b"-");
        let is_overlay = rest.nth(1)? == b"overlay";
        if is_it && is_overlay { rest.nth(1) } else { None }
    })
}

/// A path as the system tells it: some bytes as a backslash and three octal digits.
fn path(told: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), told);
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.first_chunk::<3>().filter(|_| *first == b'\\');
        let octal = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &behind[3..] } else { behind };
    }
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests;
