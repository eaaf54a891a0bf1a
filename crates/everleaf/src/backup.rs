//! Copies of stores that are in use, by this process or by another.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engines::{Error, ErrorKind, Result};
use medium::file::{CopyTarget, Disk, share_access};
use medium::folder::NewFile;
use medium::{FilePlace, Grown, LimitedBy, LogError, MediumError};
use rustix::io::Errno;

use crate::open_store::ReadSource;
use crate::options::{LockedPool, locked_to_read, log_place};
use crate::{Options, Store};

/// How often a copy is tried if the holder of the pool changes meanwhile.
const ATTEMPTS: u32 = 5;
/// How long to sleep before the next attempt.
const REST: Duration = Duration::from_millis(20);

/// A copy that is made under another name beside its place, and renamed when it is whole.
pub(crate) struct NewCopy {
    /// Its path, for messages.
    path: PathBuf,
    place: FilePlace,
    /// The place of the copy until it is renamed, in the same folder.
    part: FilePlace,
    /// The length of the pool, or about that.
    length: u64,
    pub(crate) target: CopyTarget,
}

fn refused(source: io::Error) -> Error {
    Error::io("make the copy")(source)
}

/// The error of a copy to `place`, which would have had `wanted` bytes. Only the copy grows: if
/// there is no room, the error names it, and not the pool.
fn of_copy(error: Error, path: &Path, wanted: u64) -> Error {
    let (ErrorKind::Io { source, .. }
    | ErrorKind::Medium {
        source: MediumError::Log(LogError::Io { source, .. }),
    }) = error.kind()
    else {
        return error;
    };
    let by = File::open(medium::file::folder_of(path))
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
        .at(path),
    }
}

impl NewCopy {
    /// Makes the file, and an unnamed second one beside it. Users that may not read the pool may
    /// read neither.
    pub(crate) fn make(path: &Path, pool: Option<&Metadata>) -> Result<Self> {
        let length = pool.map_or(0, Metadata::len).max(1);
        Self::begin(path, pool, length).map_err(|error| of_copy(error, path, length))
    }

    fn begin(path: &Path, pool: Option<&Metadata>, length: u64) -> Result<Self> {
        let refused = |error| refused(error).at(path);
        let place = FilePlace::of_name(path).map_err(refused)?;
        // An existing target is reported before anything is copied.
        if place.is_taken() {
            return Err(refused(Errno::EXIST.into()));
        }
        let NewFile { place: part, file } = place.make_beside("part").map_err(refused)?;
        if let Some(pool) = pool {
            // If this fails, only this user may read the copy.
            let _ = share_access(&file, pool);
        }
        let spool = match place.make_unnamed() {
            Ok(spool) => spool,
            Err(error) => {
                let _ = part.remove(&file);
                return Err(refused(error));
            }
        };
        let target = CopyTarget {
            copy: Arc::new(Disk(file)),
            spool: Arc::new(Disk(spool)),
        };
        Ok(Self {
            path: path.to_owned(),
            place,
            part,
            length,
            target,
        })
    }

    /// Renames the copy to its place, durably; or removes it, if copying failed.
    pub(crate) fn finish(self, copied: Result<Option<u64>>) -> Result<Option<u64>> {
        let copied = copied.and_then(|bytes| {
            if bytes.is_some() {
                let taken = self.part.rename_to(&self.place);
                taken.map_err(|error| refused(error).at(&self.path))?;
                self.place.folder().sync().map_err(|error| {
                    // A copy whose rename is not durable could be lost, so it is removed.
                    let _ = self.place.remove(self.target.copy.file());
                    refused(error)
                })?;
            }
            Ok(bytes)
        });
        if !matches!(copied, Ok(Some(_))) {
            let _ = self.part.remove(self.target.copy.file());
        }
        copied.map_err(|error| of_copy(error, &self.path, self.length))
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
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("a.pool");
    /// # let copy = folder.path().join("copy.pool");
    /// use everleaf::{MediumChoice, Options};
    ///
    /// let options = Options::new().medium(MediumChoice::File);
    /// let store = options.open(&path)?;
    /// let stock = store.tree("stock")?;
    /// stock.put("apple", "12")?;
    /// store.backup(&copy)?;
    /// stock.put("pear", "3")?; // comes too late for the copy
    ///
    /// let copied = options.open(&copy)?.tree("stock")?;
    /// assert!(copied.contains("apple")?);
    /// assert!(!copied.contains("pear")?);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if `target` exists or cannot be made; [`ErrorKind::PoolFull`] if there is
    /// no room for it; [`ErrorKind::NoBackup`] if the store is written to and not on
    /// [`MediumChoice::File`](crate::MediumChoice::File); [`ErrorKind::Medium`] if the disk fails.
    /// After an error there is no copy.
    pub fn backup(&self, target: impl AsRef<Path>) -> Result<u64> {
        let path = &self.inner.path;
        if self.inner.is_in_place() {
            // Another process may be writing the pool.
            return Options::new().backup(self.inner.absolute_path(), target);
        }
        if let Some(source) = &self.inner.source
            && self.inner.place.is_some()
        {
            let copied = Options::new().copy_unopened(source, target.as_ref());
            return copied.map_err(|error| error.at(path));
        }
        let backend = self.at(self.inner.backend())?;
        let pool = backend.pool_file();
        let pool = pool.and_then(|pool| pool.metadata().ok());
        let new = NewCopy::make(target.as_ref(), pool.as_ref())?;
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
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("a.pool");
    /// # let copy = folder.path().join("copy.pool");
    /// use everleaf::{MediumChoice, Options, Store};
    ///
    /// let store = Options::new().medium(MediumChoice::File).open(&path)?;
    /// store.tree("stock")?.put("apple", "12")?;
    /// // Another process knows only the path.
    /// let bytes = Options::new().backup(&path, &copy)?;
    /// assert_eq!(bytes, std::fs::metadata(&copy).unwrap().len());
    /// assert!(Store::open(&copy)?.tree("stock")?.contains("apple")?);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
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
                Ok(LockedPool { file, place, lock }) => {
                    let source = ReadSource {
                        file,
                        log_place: Some(log_place(&place)),
                    };
                    let copied = self.copy_unopened(&source, target);
                    drop(lock);
                    return copied.map_err(|error| error.at(path));
                }
                Err(error) => match error.kind() {
                    ErrorKind::Locked { holder: found, .. } => holder = *found,
                    _ => return Err(error.at(path)),
                },
            }
            let pool = std::fs::metadata(path).ok();
            let new = NewCopy::make(target, pool.as_ref())?;
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

    /// Copies the store in a file that no process writes.
    fn copy_unopened(&self, source: &ReadSource, target: &Path) -> Result<u64> {
        let image = self.image(source)?;
        let new = NewCopy::make(target, source.file.metadata().ok().as_ref())?;
        let copied = medium::File::write_image(&image, &new.target, pool::MEDIUM_LINE);
        let copied = new.finish(copied.map(Some).map_err(Error::from));
        Ok(copied?.unwrap_or_default())
    }
}

/// Copies a pool that another process has open; `None` if it has no log.
fn copy_beside(path: &Path, target: &CopyTarget) -> Result<Option<u64>> {
    let refused = |source| Error::io("open the pool")(source);
    let place = FilePlace::find(path).map_err(refused)?;
    let pool = place.open(false).map_err(refused)?;
    let copied = medium::File::backup_beside(pool, &log_place(&place), target, pool::MEDIUM_LINE);
    Ok(copied.map_err(MediumError::from)?)
}
