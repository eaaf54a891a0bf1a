//! A pool that is read in place, beside the process that writes it.
//!
//! Such a *view* is the state after a prefix of the log: the pool's file, and over it the lines that
//! the log has from its start up to a position P, the view's *end*.
//!
//! # Opening
//!
//! 1. The reader says that it maps the file (`crate::presence`). From now on no process cuts the file.
//! 2. It maps the file privately. A page to which nothing is stored shows the file as it is at the
//!    moment of each load.
//! 3. It reads the frames of the log, from the start that the header names to the first frame that
//!    is not there, and stores their lines to its memory. P is where the last of them ends.
//! 4. It checks that the view is current.
//!
//! # Why a current view is a prefix of the log
//!
//! Before a checkpoint writes lines to the file, it says in a block of the log, the *announcement*,
//! up to which position L it will write. It does not wait for the disk.
//!
//! - If L is not beyond P, each line that the checkpoint writes is a line of the prefix. The reader
//!   has stored that line itself. Its page is private then, and does not show the file any more.
//! - If L is beyond P, the checkpoint has *overtaken* the view. The view never becomes current again,
//!   because L only grows.
//!
//! So the reader loads first, and then reads the announcement. If a load has found a line from beyond
//! P, the announcement was written before that line, and the reader finds it. Nothing that was
//! loaded is believed before this check, neither a value nor an error.
//!
//! Space of the log is used again only before L. So if a frame of the prefix was overwritten before
//! the reader had read it, P is less than L, and the view is not current.
//!
//! A power cut may take back an announcement, because it was not synced. But then no reader is left,
//! and the log still has all lines that the checkpoint has written.
//!
//! # The end of a session
//!
//! A close clears the line of the pool's file that names the log, and another session names another
//! log. So a view counts as overtaken if this line has changed.
//!
//! A pool that was closed has no log, so its views need another sign: a process that opens a pool for
//! writing first writes its number to the file, which gives the file another time ([`FileMoment`]).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::error::{LogError, refused};
use super::find::{LogAccess, LogFile, find, open_log};
use super::layout::{ANNOUNCEMENT, ANNOUNCEMENT_BYTES, CheckpointNotice, LogMark};
use super::log::{Log, LogSizes};
use super::open::replay_into;
use super::{File, FileOptions};
use crate::folder::FilePlace;
use crate::io::{Disk, Io, read_all};
use crate::presence::say_mapped;
use crate::{Dax, LINE_BYTES, Medium, MediumError};

/// How often an announcement is read again that fails its check, because it is just being written.
const ATTEMPTS_MAX: u32 = 1000;

/// The system stamps files with a clock that stands still for up to 10 ms.
const FILE_CLOCK: Duration = Duration::from_millis(20);

/// The length of a file, and when it was written last. Of two equal moments the content is the same,
/// unless the file was written through a mapping alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileMoment {
    length: u64,
    changed_s: i64,
    changed_ns: i64,
}

impl FileMoment {
    /// The present moment of a file that no process writes now. Waits, if need be, until each later
    /// write gives the file another time.
    ///
    /// # Errors
    /// If the system does not tell, or only in whole seconds.
    pub fn begin(file: &fs::File) -> std::io::Result<Self> {
        let moment = Self::of(file)?;
        if moment.changed_ns == 0 {
            // Some file systems note seconds only, so a write a moment later gives the same time.
            return Err(std::io::ErrorKind::Unsupported.into());
        }
        let seconds = u64::try_from(moment.changed_s).unwrap_or_default();
        let since_1970 =
            Duration::from_secs(seconds) + Duration::from_nanos(moment.changed_ns.unsigned_abs());
        let is_long_ago = SystemTime::now()
            .duration_since(UNIX_EPOCH + since_1970)
            .is_ok_and(|age| age > FILE_CLOCK);
        if !is_long_ago {
            std::thread::sleep(FILE_CLOCK);
        }
        Ok(moment)
    }

    /// The present moment of a file.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn of(file: &fs::File) -> std::io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self {
            length: found.len(),
            changed_s: found.mtime(),
            changed_ns: found.mtime_nsec(),
        })
    }
}

/// The sign by which a view notices that it was overtaken.
#[derive(Debug)]
enum Basis {
    /// The announcements of this log must not be beyond `end`.
    Log { log: Arc<dyn Io>, end: u64 },
    /// The pool was closed: its file must not change.
    Closed(FileMoment),
}

/// The files on which a view rests, and the sign that it was overtaken. The page of this module has
/// the protocol.
#[derive(Debug)]
pub struct InPlace {
    pool: Arc<dyn Io>,
    mark_offset: u64,
    mark: [u8; LINE_BYTES],
    basis: Basis,
}

/// A view, and its memory.
#[derive(Debug)]
pub struct ViewedPool {
    /// The memory. What is loaded from it counts only if the view is current afterwards.
    pub image: Dax,
    /// The check.
    pub in_place: InPlace,
}

/// A pool that was closed, or that is written at present.
#[derive(Clone, Copy, Debug)]
pub enum PoolUse {
    /// No process wrote the pool at this moment of its file.
    Unwritten(FileMoment),
    /// A process has the pool open for writing.
    Written,
}

impl File {
    /// Opens a view of the pool in `pool`, a descriptor that no other user shares. `None` if there is
    /// none: the view was overtaken while it was opened, or the pool is written on another medium,
    /// or the file system cannot tell its writer that the file is mapped.
    ///
    /// # Errors
    /// [`MediumError::Log`] if log and pool do not fit together, or one of them is damaged.
    pub fn view(
        pool: fs::File,
        log_place: &FilePlace,
        pool_use: PoolUse,
        options: FileOptions,
    ) -> Result<Option<ViewedPool>, MediumError> {
        if say_mapped(&pool).is_err() {
            return Ok(None);
        }
        let found = open_log(log_place, LogAccess::Read)?;
        let log = found.map(|log| Arc::new(Disk(log)) as Arc<dyn Io>);
        Self::view_on(Arc::new(Disk(pool)), log, pool_use, options)
    }

    /// Does the same as [`File::view`], with files that are open already.
    pub(super) fn view_on(
        pool: Arc<dyn Io>,
        log: Option<Arc<dyn Io>>,
        pool_use: PoolUse,
        options: FileOptions,
    ) -> Result<Option<ViewedPool>, MediumError> {
        let mark_offset = options.mark_offset;
        let mark = read_line(&*pool, mark_offset)?;
        let Some(log_mark) = LogMark::decode(&mark) else {
            return Err(LogError::Mark {
                offset: mark_offset,
            }
            .into());
        };
        let in_place = match (log_mark, log, pool_use) {
            (LogMark(Some(_)), Some(log), _) => {
                return view_of_log(pool, log, log_mark, mark, &options);
            }
            (LogMark(None), _, PoolUse::Unwritten(moment)) => InPlace {
                pool,
                mark_offset,
                mark,
                basis: Basis::Closed(moment),
            },
            // The pool is just being closed, or it is open on another medium.
            _ => return Ok(None),
        };
        let image = Dax::plain_copy(in_place.pool.file())?;
        in_place.if_current(image)
    }
}

/// Opens a view of a pool that names its log.
fn view_of_log(
    pool: Arc<dyn Io>,
    log: Arc<dyn Io>,
    log_mark: LogMark,
    mark: [u8; LINE_BYTES],
    options: &FileOptions,
) -> Result<Option<ViewedPool>, MediumError> {
    let LogFile::Log(newest) = find(&*log, log_mark)? else {
        return Ok(None);
    };
    let image = Dax::plain_copy(pool.file())?;
    let length = image.extent().length();
    let expected = newest.header.pool_bytes;
    if length < expected {
        return Err(LogError::PoolTruncated { length, expected }.into());
    }
    let header = newest.header.clone();
    let read = Log::new(Arc::clone(&log), header, LogSizes::default(), options.sizes);
    let replayed = replay_into(&read, &newest, image.mapping(), Some(&|_, _| {}))?;
    let in_place = InPlace {
        pool,
        mark_offset: options.mark_offset,
        mark,
        basis: Basis::Log {
            log,
            end: replayed.end,
        },
    };
    in_place.if_current(image)
}

fn read_line(pool: &dyn Io, offset: u64) -> Result<[u8; LINE_BYTES], LogError> {
    let mut line = [0; LINE_BYTES];
    read_all(pool, &mut line, offset).map_err(refused("read the pool"))?;
    Ok(line)
}

/// The position up to which checkpoints have written to the pool, or are about to. `None` if the
/// announcement cannot be read.
fn announced(log: &dyn Io) -> Result<Option<u64>, LogError> {
    for _ in 0..ATTEMPTS_MAX {
        let mut bytes = [0; ANNOUNCEMENT_BYTES];
        read_all(log, &mut bytes, ANNOUNCEMENT).map_err(refused("read the log"))?;
        if let Some(CheckpointNotice(position)) = CheckpointNotice::decode(&bytes) {
            return Ok(Some(position));
        }
        std::thread::yield_now();
    }
    Ok(None)
}

impl InPlace {
    fn if_current(self, image: Dax) -> Result<Option<ViewedPool>, MediumError> {
        if !self.is_current()? {
            return Ok(None);
        }
        Ok(Some(ViewedPool {
            image,
            in_place: self,
        }))
    }

    /// Whether all that was loaded so far belongs to the moment of the view.
    ///
    /// # Errors
    /// [`LogError::Io`] if a file cannot be read.
    pub fn is_current(&self) -> Result<bool, LogError> {
        // ORDER: the loads of the caller come before the reads of the files.
        fence(Ordering::Acquire);
        let is_current = match &self.basis {
            Basis::Log { log, end } => {
                announced(&**log)?.is_some_and(|announced| announced <= *end)
            }
            Basis::Closed(moment) => {
                let now = FileMoment::of(self.pool.file()).map_err(refused("examine the pool"))?;
                now == *moment
            }
        };
        Ok(is_current && read_line(&*self.pool, self.mark_offset)? == self.mark)
    }
}
