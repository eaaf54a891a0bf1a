//! Stores that are only read, also beside the process that writes the pool.
//!
//! A store reads the pool *in place*, or a *copy* of it. Either shows one moment that is no older than
//! the open, and either holds no lock that keeps a writer out.
//!
//! # In place
//!
//! The pool's file is mapped, and the log's lines lie over it in memory
//! (`medium/src/file/in_place.rs` has the steps, and why that is one moment). A checkpoint of the
//! process that writes overtakes such a store sooner or later. From then on its reads fail
//! ([`ErrorKind::ViewTooOld`]). A store that is overtaken again and again while it is opened becomes
//! a copy.
//!
//! # A copy
//!
//! 1. The reader finds out whether the folder of the pool has room for a copy, and makes two files
//!    there that have no name: the copy, and room for the content of the log. The system removes
//!    them when the process ends, however it ends.
//! 2. It copies the pool and its log, as a backup does (`medium/src/file/backup.rs` has the steps,
//!    and why the copy is one moment). The writer goes on. Its log may grow meanwhile, but not
//!    beyond its own limit: if the log reuses space that was not copied yet, the copy begins anew,
//!    and fails in the end.
//! 3. It maps the copy, and recovers it in memory, as after a crash.
//!
//! A writer has made an acknowledged write durable before, so the write is in the pool's file or in
//! the log when step 2 begins. The copy has all of both.
//!
//! A copy of a pool that no process writes needs no lock either: the pool's file has the same time
//! before and after ([`FileMoment`]).
//!
//! # With the lock
//!
//! If neither can be had, and no process writes the pool, the reader shares the pool's lock, and
//! keeps writers out: on a file system without locks on bytes, for example.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engines::{Error, ErrorKind, Result};
use medium::file::{CopyTarget, Disk, FileMoment, PoolUse, ViewedPool};
use medium::{FileOptions, FilePlace, LimitedBy, LogError, MediumError};

use crate::options::{LockedPool, NamedPool, locked_to_read, log_place};

/// How often a copy is tried if the holder of the pool changes meanwhile.
const ATTEMPTS: u32 = 5;
/// How long to sleep before the next attempt.
const REST: Duration = Duration::from_millis(20);

/// A pool that is to be read.
pub(crate) enum PoolToRead {
    /// The pool itself, locked against writers.
    Locked(LockedPool),
    /// A copy of it.
    Copied(CopiedPool),
}

/// A copy of a pool.
pub(crate) struct CopiedPool {
    /// The copy, which needs no log.
    pub(crate) copy: File,
    /// Where the pool itself lies.
    pub(crate) place: FilePlace,
}

/// A view of a pool, and where the pool lies.
pub(crate) struct FoundView {
    pub(crate) viewed: ViewedPool,
    pub(crate) file: File,
    pub(crate) place: FilePlace,
}

/// Opens a view of the pool at `path`; `None` if it was overtaken meanwhile, or there can be none.
pub(crate) fn find_view(path: &Path, options: FileOptions) -> Result<Option<FoundView>> {
    let pool_use = match locked_to_read(path) {
        Ok(locked) => PoolUse::Unwritten(FileMoment::begin(&locked.file).map_err(refused)?),
        Err(error) if matches!(error.kind(), ErrorKind::Locked { .. }) => PoolUse::Written,
        Err(error) => return Err(error),
    };
    let place = FilePlace::find(path).map_err(refused)?;
    // The view has these two open files alone.
    let mapped = place.open(false).map_err(refused)?;
    let again = place.open(false).map_err(refused)?;
    let file = place.open(false).map_err(refused)?;
    let viewed = medium::File::view(mapped, again, &log_place(&place), pool_use, options)?;
    Ok(viewed.map(|viewed| FoundView {
        viewed,
        file,
        place,
    }))
}

/// Finds the pool at `path`, to be copied. If no process writes it, and it need not be a copy
/// (`from_copy`) or cannot be one, it is locked instead.
pub(crate) fn find_to_read(path: &Path, from_copy: bool) -> Result<PoolToRead> {
    let mut holder = None;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(REST);
        }
        let locked = match locked_to_read(path) {
            Ok(locked) => locked,
            Err(error) => {
                let ErrorKind::Locked { holder: found, .. } = error.kind() else {
                    return Err(error);
                };
                holder = *found;
                if let Some(copied) = copy_written(path, holder)? {
                    return Ok(PoolToRead::Copied(copied));
                }
                // The process has closed the pool, or has just opened it.
                continue;
            }
        };
        if !from_copy {
            return Ok(PoolToRead::Locked(locked));
        }
        match copy_unwritten(locked) {
            Ok(Some(copied)) => return Ok(PoolToRead::Copied(copied)),
            // A process has begun to write meanwhile.
            Ok(None) => {}
            // There is no room, or the folder is read-only, or the pool is damaged.
            Err(_) => {
                if let Ok(locked) = locked_to_read(path) {
                    return Ok(PoolToRead::Locked(locked));
                }
            }
        }
    }
    let why = "it is open there on a medium without a log, such as mapped memory; wait for its end, or open it there with \
               `MediumChoice::File`";
    Err(not_beside(holder, why.to_owned()))
}

fn not_beside(holder: Option<u32>, why: String) -> Error {
    ErrorKind::NotBeside { holder, why }.into()
}

fn refused(source: std::io::Error) -> Error {
    Error::io("copy the pool, to read it")(source)
}

/// Copies a pool that another process writes; `None` if it has no log.
fn copy_written(path: &Path, holder: Option<u32>) -> Result<Option<CopiedPool>> {
    let place = FilePlace::find(path).map_err(refused)?;
    let file = place.open(false).map_err(refused)?;
    let target = match NewTarget::beside(&place, &file)? {
        NewTarget::Made(target) => target,
        NewTarget::NoRoom(why) => return Err(not_beside(holder, why)),
    };
    let copied = medium::File::copy_to_read(file, &log_place(&place), &target, pool::MEDIUM_LINE);
    match copied {
        Ok(None) => Ok(None),
        Ok(Some(_)) => CopiedPool::of(&target, place).map(Some),
        Err(LogError::Io { source, .. })
            if LimitedBy::of(&source, target.copy.file()).is_some() =>
        {
            let why = format!("its copy found no more room in its folder ({source}); {FREE_ROOM}");
            Err(not_beside(holder, why))
        }
        Err(error) => Err(MediumError::from(error).into()),
    }
}

/// Copies a pool that no process writes at first; `None` if that changes meanwhile.
fn copy_unwritten(locked: LockedPool) -> Result<Option<CopiedPool>> {
    let moment = FileMoment::begin(&locked.file).map_err(refused)?;
    // From here on a writer may come.
    let NamedPool { file, place } = locked.unlock();
    let target = match NewTarget::beside(&place, &file)? {
        NewTarget::Made(target) => target,
        NewTarget::NoRoom(why) => return Err(not_beside(None, why)),
    };
    let again = || file.try_clone().map_err(refused);
    let log = log_place(&place);
    let mark_offset = pool::MEDIUM_LINE;
    // A process that was killed has left a log, which is copied as that of a process that writes.
    let own = place.open(false).map_err(refused)?;
    let copied = medium::File::copy_to_read(own, &log, &target, mark_offset);
    if copied.map_err(MediumError::from)?.is_some() {
        return CopiedPool::of(&target, place).map(Some);
    }
    let needs_log = medium::File::needs_log(&file, mark_offset).map_err(MediumError::from)?;
    if needs_log {
        // The log is missing, or a process is just closing the pool. The way with the lock finds out.
        return Err(refused(std::io::ErrorKind::NotFound.into()));
    }
    let copied = medium::File::copy_closed_to_read(again()?, &target);
    copied.map_err(MediumError::from)?;
    if FileMoment::of(&file).map_err(refused)? != moment {
        return Ok(None);
    }
    CopiedPool::of(&target, place).map(Some)
}

impl CopiedPool {
    fn of(target: &CopyTarget, place: FilePlace) -> Result<Self> {
        let copy = target.copy.file().try_clone().map_err(refused)?;
        Ok(Self { copy, place })
    }
}

const FREE_ROOM: &str = "free some space there, or wait for its end";

/// The room that a file has on its disk, in bytes.
fn room_of(file: &File) -> Result<u64> {
    Ok(512 * file.metadata().map_err(refused)?.blocks())
}

/// The files of a copy.
enum NewTarget {
    Made(CopyTarget),
    /// They cannot be made. The text names the reason and the way out.
    NoRoom(String),
}

impl NewTarget {
    fn make(place: &FilePlace) -> std::io::Result<CopyTarget> {
        let copy = place.make_unnamed()?;
        let spool = place.make_unnamed()?;
        Ok(CopyTarget {
            copy: Arc::new(Disk(copy)),
            spool: Arc::new(Disk(spool)),
        })
    }

    /// Makes two files without a name in the folder of the pool, if it has room.
    fn beside(place: &FilePlace, pool: &File) -> Result<Self> {
        let log = place.with_suffix(".log").open(false).ok();
        let mut wanted = room_of(pool)?;
        if let Some(log) = &log {
            wanted += room_of(log)?;
        }
        if let Some(free) = place.folder().free_bytes()
            && free < wanted
        {
            let why = format!(
                "a copy in its folder needs {}, and {} are free; {FREE_ROOM}",
                medium::size(wanted),
                medium::size(free)
            );
            return Ok(Self::NoRoom(why));
        }
        match Self::make(place) {
            Ok(target) => Ok(Self::Made(target)),
            Err(source) => Ok(Self::NoRoom(format!(
                "no file can be made in its folder, where its copy would lie ({source}); give write permission there, or wait \
                 for its end"
            ))),
        }
    }
}
