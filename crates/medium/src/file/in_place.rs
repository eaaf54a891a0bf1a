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
//! - If the announcement is of a newer incarnation of the log than the prefix, a process has opened the
//!   pool again meanwhile, and the log may have gone on before P: if a sync had failed, the frames up
//!   to P were not on the disk. Such an announcement overtakes the view, whatever its position.
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
//!
//! # Before the first write
//!
//! A process that has opened the pool and has written nothing yet has a log that holds nothing, and that
//! the pool does not name. The state is that of the pool's file. Two signs end such a view:
//!
//! - The file has another time: before the first group goes to the log, the pool names the log.
//! - The log has no name any more. A close without a write removes it. And so does a process that opens
//!   the pool on mapped memory, before it stores anything: its stores do not change the time. (It finds
//!   such a log after a process that was killed.)

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
use crate::presence::Presence;
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
    /// The present moment of a file that is not being written now. Waits, if need be, until each later
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
    /// The announcements of this log must not be beyond `end`, and of no newer incarnation.
    Log {
        log: Arc<dyn Io>,
        end: u64,
        incarnation: u32,
    },
    /// The pool was closed: its file must not change.
    Closed(FileMoment),
    /// A process has the pool open and has written nothing yet: the file must not change, and the log
    /// must have a name.
    NotYetWritten {
        log: Arc<dyn Io>,
        moment: FileMoment,
    },
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
    /// Opens a view of the pool in `pool`. `again` is the same file, opened once more; the caller
    /// shares it with no other user, and maps nothing from it. `None` if there is no view: it was
    /// overtaken while it was opened, or the pool is written on another medium, or the file system
    /// cannot tell its writer that the file is mapped.
    ///
    /// # Errors
    /// [`MediumError::Log`] if log and pool do not fit together, or one of them is damaged.
    pub fn view(
        pool: fs::File,
        again: fs::File,
        log_place: &FilePlace,
        pool_use: PoolUse,
        options: FileOptions,
    ) -> Result<Option<ViewedPool>, MediumError> {
        let Ok(presence) = Presence::beside(again, &pool) else {
            return Ok(None);
        };
        let found = open_log(log_place, LogAccess::Read)?;
        let log = found.map(|log| Arc::new(Disk(log)) as Arc<dyn Io>);
        Self::view_on(Arc::new(Disk(pool)), log, Some(presence), pool_use, options)
    }

    /// Does the same as [`File::view`], with files that are open already. `presence` is the lock of the
    /// reader, if it has one.
    pub(super) fn view_on(
        pool: Arc<dyn Io>,
        log: Option<Arc<dyn Io>>,
        presence: Option<Presence>,
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
                let marked = MarkedPool {
                    pool,
                    log_mark,
                    mark,
                };
                return view_of_log(marked, log, presence, &options);
            }
            (LogMark(None), _, PoolUse::Unwritten(moment)) => InPlace {
                pool,
                mark_offset,
                mark,
                basis: Basis::Closed(moment),
            },
            (LogMark(None), Some(log), PoolUse::Written) => {
                let Some(moment) = moment_before_first_write(&*pool, &*log, mark_offset)? else {
                    return Ok(None);
                };
                InPlace {
                    pool,
                    mark_offset,
                    mark,
                    basis: Basis::NotYetWritten { log, moment },
                }
            }
            // The pool is just being closed, or it is open on another medium.
            _ => return Ok(None),
        };
        let image = Dax::plain_view(in_place.pool.file(), presence)?;
        in_place.if_current(image)
    }
}

/// The present moment of a pool whose file a process has open for writing, and has not written since it
/// made its log; `None` if there is no such moment. In a later moment the file has another time, or the
/// log has no name.
fn moment_before_first_write(
    pool: &dyn Io,
    log: &dyn Io,
    mark_offset: u64,
) -> Result<Option<FileMoment>, LogError> {
    let Ok(moment) = FileMoment::begin(pool.file()) else {
        return Ok(None);
    };
    // A log that holds anything is named by its pool.
    let is_new = matches!(find(log, LogMark(None)), Ok(LogFile::Unneeded));
    let mark = LogMark::decode(&read_line(pool, mark_offset)?);
    if is_new && mark == Some(LogMark(None)) {
        Ok(Some(moment))
    } else {
        Ok(None)
    }
}

/// A pool that names its log.
struct MarkedPool {
    pool: Arc<dyn Io>,
    log_mark: LogMark,
    /// The line with the name of the log.
    mark: [u8; LINE_BYTES],
}

/// Opens a view of a pool that names its log.
fn view_of_log(
    marked: MarkedPool,
    log: Arc<dyn Io>,
    presence: Option<Presence>,
    options: &FileOptions,
) -> Result<Option<ViewedPool>, MediumError> {
    let MarkedPool {
        pool,
        log_mark,
        mark,
    } = marked;
    let LogFile::Log(newest) = find(&*log, log_mark)? else {
        return Ok(None);
    };
    let image = Dax::plain_view(pool.file(), presence)?;
    let length = image.extent().length();
    let expected = newest.header.pool_bytes;
    if length < expected {
        return Err(LogError::PoolTruncated { length, expected }.into());
    }
    let header = newest.header.clone();
    let incarnation = header.ranges.last().map_or(0, |range| range.incarnation);
    let read = Log::new(Arc::clone(&log), header, LogSizes::default(), options.sizes);
    let replayed = replay_into(&read, &newest, image.mapping(), Some(&|_, _| {}))?;
    let in_place = InPlace {
        pool,
        mark_offset: options.mark_offset,
        mark,
        basis: Basis::Log {
            log,
            end: replayed.end,
            incarnation,
        },
    };
    in_place.if_current(image)
}

fn read_line(pool: &dyn Io, offset: u64) -> Result<[u8; LINE_BYTES], LogError> {
    let mut line = [0; LINE_BYTES];
    read_all(pool, &mut line, offset).map_err(refused("read the pool"))?;
    Ok(line)
}

/// The newest announcement of a checkpoint; `None` if it cannot be read.
fn announced(log: &dyn Io) -> Result<Option<CheckpointNotice>, LogError> {
    for _ in 0..ATTEMPTS_MAX {
        let mut bytes = [0; ANNOUNCEMENT_BYTES];
        read_all(log, &mut bytes, ANNOUNCEMENT).map_err(refused("read the log"))?;
        if let Some(notice) = CheckpointNotice::decode(&bytes) {
            return Ok(Some(notice));
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
            Basis::Log {
                log,
                end,
                incarnation,
            } => announced(&**log)?.is_some_and(|notice| notice.is_within(*end, *incarnation)),
            Basis::Closed(moment) => self.is_at(*moment)?,
            Basis::NotYetWritten { log, moment } => {
                let log = log.file().metadata().map_err(refused("examine the log"))?;
                log.nlink() > 0 && self.is_at(*moment)?
            }
        };
        Ok(is_current && read_line(&*self.pool, self.mark_offset)? == self.mark)
    }

    /// Whether the pool's file was not written since a moment.
    fn is_at(&self, moment: FileMoment) -> Result<bool, LogError> {
        let now = FileMoment::of(self.pool.file()).map_err(refused("examine the pool"))?;
        Ok(now == moment)
    }
}
