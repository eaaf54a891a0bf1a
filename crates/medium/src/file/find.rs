//! Finding the log that belongs to a pool. No file is changed here.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use super::error::{LogError, refused};
use super::layout::{FRAME_HEADER_BYTES, FrameHeader, LogMark, NoHeader, RING};
use super::log::{FoundHeader, Log, NewestHeader};
use crate::LINE_BYTES;
use crate::folder::FilePlace;
use crate::io::{Io, data_from, read_all, read_some};

/// The file at the path where the log of a pool belongs.
#[derive(Debug)]
pub(super) enum LogFile {
    /// No file; or a file that this process has just made.
    Fresh,
    /// The remains of an interrupted creation of a log.
    Remains,
    /// A log that the pool does not need, because it was closed cleanly.
    Unneeded,
    /// The log that the pool needs.
    Log(NewestHeader),
}

/// The purpose for which a log is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LogAccess {
    Read,
    Write,
}

/// Opens the file where a log belongs; `None` if there is none.
pub(super) fn open_log(place: &FilePlace, access: LogAccess) -> Result<Option<fs::File>, LogError> {
    match place.open(access == LogAccess::Write) {
        Ok(log)
            if log
                .metadata()
                .map_err(refused("examine the log"))?
                .is_file() =>
        {
            Ok(Some(log))
        }
        Ok(_) => Err(LogError::NotALog),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => Err(LogError::Link {
            path: place.path().to_owned(),
        }),
        Err(error) => Err(refused("open the log")(error)),
    }
}

pub(super) fn read_mark(pool: &dyn Io, offset: u64) -> Result<LogMark, LogError> {
    let mut line = [0; LINE_BYTES];
    read_all(pool, &mut line, offset).map_err(refused("read the pool"))?;
    LogMark::decode(&line).ok_or(LogError::Mark { offset })
}

/// Does the same as [`read_mark`], for a file that is not a medium's yet. It takes no descriptor:
/// a process may have none left.
pub(super) fn read_mark_of(pool: &fs::File, offset: u64) -> Result<LogMark, LogError> {
    let mut line = [0; LINE_BYTES];
    let mut bytes = 0;
    while bytes < LINE_BYTES {
        match pool.read_at(&mut line[bytes..], offset + bytes as u64) {
            Ok(0) => break,
            Ok(read) => bytes += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(refused("read the pool")(error)),
        }
    }
    LogMark::decode(&line).ok_or(LogError::Mark { offset })
}

/// Whether `io`, the file where the log belongs, is the log of a pool with this mark.
pub(super) fn find(io: &dyn Io, LogMark(mark): LogMark) -> Result<LogFile, LogError> {
    let is_blank = |offset| is_blank(io, offset).map_err(refused("read the log"));
    let damaged = |what: &str| LogError::Damaged {
        position: 0,
        what: what.to_owned(),
    };
    let newest = match Log::read_header(io)? {
        FoundHeader::Newest(newest) => newest,
        FoundHeader::None(reason) => {
            return match (reason, mark) {
                (NoHeader::Blank, None) if !is_blank(0)? => Err(LogError::NotALog),
                (NoHeader::Damaged, None) if !is_blank(RING)? => Err(LogError::UnaskedDamaged),
                // The creation of a log was interrupted.
                (NoHeader::Blank | NoHeader::Damaged, None) => Ok(LogFile::Remains),
                (NoHeader::Blank, Some(uuid)) if is_blank(0)? => Err(LogError::Missing { uuid }),
                (NoHeader::Blank, Some(_)) => Err(damaged("both copies of its header are zeros")),
                (NoHeader::Foreign, _) => Err(LogError::NotALog),
                (NoHeader::Damaged | NoHeader::Version(_), _) => {
                    Err(damaged("both copies of its header fail their check"))
                }
            };
        }
    };
    let header = &newest.header;
    let found = header.uuid;
    if let Some(expected) = mark {
        if found != expected {
            return Err(LogError::Foreign { expected, found });
        }
        let length = io.length().map_err(refused("measure the log"))?;
        if length < RING + header.capacity {
            let what = format!(
                "it ends here, and should have {} bytes",
                RING + header.capacity
            );
            return Err(LogError::Damaged {
                position: length,
                what,
            });
        }
        return Ok(LogFile::Log(newest));
    }
    // The pool was closed cleanly, or was never opened with this log: the log must be empty.
    let Some(range) = header.ranges.last().copied() else {
        return Ok(LogFile::Unneeded);
    };
    // A new log is empty until the pool names it.
    let is_new = header.ranges.len() == 1 && header.start == 0;
    let mut bytes = [0; FRAME_HEADER_BYTES];
    read_all(io, &mut bytes, RING).map_err(refused("read the log"))?;
    let frame =
        FrameHeader::decode(&bytes, 0).filter(|frame| frame.incarnation == range.incarnation);
    if is_new && frame.is_none() {
        Ok(LogFile::Unneeded)
    } else {
        Err(LogError::Unasked { found })
    }
}

/// Whether a file holds nothing but zeros from `offset` on.
fn is_blank(io: &dyn Io, mut offset: u64) -> io::Result<bool> {
    let mut part = vec![0; 1 << 20];
    while let Some(data) = data_from(io, offset)? {
        let bytes = read_some(io, &mut part, data)?;
        if bytes == 0 || part[..bytes].iter().any(|byte| *byte != 0) {
            return Ok(bytes == 0);
        }
        offset = data + bytes as u64;
    }
    Ok(true)
}
