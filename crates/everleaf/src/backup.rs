//! Copies of stores that are in use, by this process or by another.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engines::{Error, ErrorKind, Result};
use medium::file::{CopyTarget, Disk, PRIVATE_MODE, folder_of, share_access, sync_folder};
use medium::{Grown, LimitedBy, LogError, MediumError};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::options::{locked_to_read, log_path};
use crate::{Options, Store};

/// How often a copy is tried if the holder of the pool changes meanwhile.
const ATTEMPTS: u32 = 5;
/// How long to sleep before the next attempt.
const REST: Duration = Duration::from_millis(20);

/// A copy that is made under another name beside its place, and renamed when it is whole.
pub(crate) struct NewCopy {
    place: PathBuf,
    /// The path of the copy until it is renamed.
    part: PathBuf,
    /// The length of the pool, or about that.
    length: u64,
    pub(crate) target: CopyTarget,
}

fn refused(source: io::Error) -> Error {
    Error::io("make the copy")(source)
}

/// The error of a copy to `place`, which would have had `wanted` bytes. Only the copy grows: if
/// there is no room, the error names it, and not the pool.
fn of_copy(error: Error, place: &Path, wanted: u64) -> Error {
    let (ErrorKind::Io { source, .. }
    | ErrorKind::Medium {
        source: MediumError::Log(LogError::Io { source, .. }),
    }) = error.kind()
    else {
        return error;
    };
    let by = File::open(folder_of(place))
        .ok()
        .and_then(|folder| LimitedBy::of(source, &folder));
    match by {
        None => error,
        Some(by) => Error::from(ErrorKind::PoolFull {
            wanted,
            limit: 0,
            by,
            file: Grown::Pool,
        })
        .at(place),
    }
}

impl NewCopy {
    /// Makes the file, and an unnamed second one beside it. Users that may not read the pool may
    /// read neither.
    pub(crate) fn make(place: &Path, pool: &Path) -> Result<Self> {
        let length = std::fs::metadata(pool).map_or(0, |pool| pool.len()).max(1);
        Self::begin(place, pool, length).map_err(|error| of_copy(error, place, length))
    }

    fn begin(place: &Path, pool: &Path, length: u64) -> Result<Self> {
        // An existing target is reported before anything is copied.
        if place.symlink_metadata().is_ok() {
            return Err(refused(Errno::EXIST.into()).at(place));
        }
        let (part, copy) = make_beside(place, "part").map_err(|error| refused(error).at(place))?;
        if let Ok(pool) = std::fs::metadata(pool) {
            // If this fails, only this user may read the copy.
            let _ = share_access(&copy, &pool);
        }
        let spool = make_beside(place, "spool").and_then(|(path, spool)| {
            std::fs::remove_file(path)?;
            Ok(spool)
        });
        let spool = spool.map_err(|error| {
            let _ = std::fs::remove_file(&part);
            refused(error).at(place)
        })?;
        let target = CopyTarget {
            copy: Arc::new(Disk(copy)),
            spool: Arc::new(Disk(spool)),
        };
        Ok(Self {
            place: place.to_owned(),
            part,
            length,
            target,
        })
    }

    /// Renames the copy to its place, durably; or removes it, if copying failed.
    pub(crate) fn finish(self, copied: Result<Option<u64>>) -> Result<Option<u64>> {
        let copied = copied.and_then(|bytes| {
            if bytes.is_some() {
                let taken = take_place(&self.part, &self.place);
                taken.map_err(|error| refused(error).at(&self.place))?;
                sync_folder(&self.place).map_err(|error| {
                    // A copy whose rename is not durable could be lost, so it is removed.
                    let _ = std::fs::remove_file(&self.place);
                    refused(error)
                })?;
            }
            Ok(bytes)
        });
        if !matches!(copied, Ok(Some(_))) {
            let _ = std::fs::remove_file(&self.part);
        }
        copied.map_err(|error| of_copy(error, &self.place, self.length))
    }
}

/// Makes a file in the folder of `place`, readable by its owner only; and its name, which was not
/// taken.
fn make_beside(place: &Path, what: &str) -> io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let mut name = OsString::from(".");
        name.push(place.file_name().unwrap_or_default());
        name.push(format!(".{}.{number}.{what}", std::process::id()));
        let path = place.with_file_name(name);
        match OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(PRIVATE_MODE)
            .open(&path)
        {
            // An earlier process with the same number has left a file of this name.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|file| (path, file)),
        }
    }
}

/// Renames a file, unless something has the name.
fn take_place(part: &Path, place: &Path) -> io::Result<()> {
    match renameat_with(CWD, part, CWD, place, RenameFlags::NOREPLACE) {
        // The file system has no rename that refuses to replace.
        Err(Errno::INVAL | Errno::NOSYS) => {
            std::fs::hard_link(part, place)?;
            std::fs::remove_file(part)
        }
        renamed => Ok(renamed?),
    }
}

impl Store {
    /// Copies the store, as it is at some moment of the call, into the new file `target`, while
    /// other threads go on writing, and returns the copy's bytes. The copy is durable when this
    /// returns. It is a pool of its own with the same UUID, and opens as after a crash. It gets the
    /// permissions of the pool, and its owner if the system allows that. `target` appears only when
    /// the copy is whole: a process that ends before leaves a file beside it whose name ends with
    /// `.part`. O(file + log); the log is copied into an unnamed file beside `target` meanwhile.
    /// Writers wait only if they fill the log faster than it can be read. For a store that another
    /// process has open: [`Options::backup`].
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if `target` exists or cannot be made; [`ErrorKind::PoolFull`] if there is
    /// no room for it; [`ErrorKind::NoBackup`] if the store is written to and not on
    /// [`MediumChoice::File`](crate::MediumChoice::File); [`ErrorKind::Medium`] if the disk fails.
    /// After an error there is no copy.
    pub fn backup(&self, target: impl AsRef<Path>) -> Result<u64> {
        let backend = self.at(self.inner.backend())?;
        if let Some(source) = &self.inner.source {
            return Options::new().copy_unopened(&self.inner.path, source, target.as_ref());
        }
        let new = NewCopy::make(target.as_ref(), &self.inner.path)?;
        let copied = backend.backup(&new.target).map(Some);
        Ok(self.at(new.finish(copied))?.unwrap_or_default())
    }
}

impl Options {
    /// Copies the store at `path`, as it is at some moment of the call, into the new file `target`,
    /// even while another process has it open and writes. That process is not disturbed. The copy
    /// has everything that it had acknowledged as durable when this was called, but not what
    /// another [`Durability`](crate::Durability) holds back. If no process writes to the store, its
    /// files are read and not changed, so they may be on a read-only file system.
    /// [`Store::backup`](crate::Store::backup) describes the copy. O(file + log); the log is copied
    /// into an unnamed file beside `target` meanwhile.
    ///
    /// # Errors
    /// - the errors of [`Options::open`] and [`Store::backup`](crate::Store::backup);
    /// - [`ErrorKind::PoolFull`] if there is no room for the copy; its path is that of the copy;
    /// - [`ErrorKind::NoBackup`] if another process has the store open on another medium than
    ///   [`MediumChoice::File`](crate::MediumChoice::File), or others keep opening and closing it;
    /// - [`ErrorKind::Medium`] with [`LogError::Overrun`](crate::LogError::Overrun) if the log
    ///   beside the pool is too small for the rate of writes: the other process reused its space
    ///   before this one had read it.
    pub fn backup(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<u64> {
        let path = path.as_ref();
        let target = target.as_ref();
        let mut holder = None;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(REST);
            }
            match locked_to_read(path) {
                Ok(locked) => return self.copy_unopened(path, &locked.file, target),
                Err(error) => match error.kind() {
                    ErrorKind::Locked { holder: found, .. } => holder = *found,
                    _ => return Err(error.at(path)),
                },
            }
            let new = NewCopy::make(target, path)?;
            let copied = copy_beside(path, &new.target);
            if let Some(bytes) = new.finish(copied).map_err(|error| error.at(path))? {
                return Ok(bytes);
            }
        }
        let holder = holder.map_or_else(
            || "another process".to_owned(),
            |process| format!("process {process}"),
        );
        let refused = Error::from(ErrorKind::NoBackup {
            why: format!("{holder} has it open on a medium without a log"),
        });
        Err(refused.at(path))
    }

    /// Copies the store at `path`, whose file is locked, so that no process writes to it.
    pub(crate) fn copy_unopened(&self, path: &Path, file: &File, target: &Path) -> Result<u64> {
        let image = self.image(path, file).map_err(|error| error.at(path))?;
        let new = NewCopy::make(target, path)?;
        let copied = medium::File::write_image(&image, &new.target, pool::MEDIUM_LINE);
        let copied = new.finish(copied.map(Some).map_err(Error::from));
        Ok(copied.map_err(|error| error.at(path))?.unwrap_or_default())
    }
}

/// Copies a pool that another process has open; `None` if it has no log.
fn copy_beside(path: &Path, target: &CopyTarget) -> Result<Option<u64>> {
    let pool = File::open(path).map_err(Error::io("open the pool"))?;
    let copied = medium::File::backup_beside(pool, &log_path(path), target, pool::MEDIUM_LINE);
    Ok(copied.map_err(MediumError::from)?)
}
