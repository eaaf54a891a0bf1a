//! A consistent copy of a pool that is in use, by this process or by another one.
//!
//! 1. The copy reads the base image part by part, while checkpoints write to it. So some lines are
//!    older than others, and some are read half written.
//! 2. Between two parts it reads on in the log, from the start that the log's header named when the
//!    copy began, and keeps the frames in the *spool*.
//! 3. When all of the base image is read, it reads the log to its end, and writes the lines of the
//!    spool over the copy.
//!
//! The result is the state after a prefix of the log's groups:
//!
//! - It contains all that was durable when the copy began: it was checkpointed, or is in the log.
//! - It contains nothing newer than the end of the spool: the base image holds a line only after
//!   the log holds it durably, and the log was read after the base image.
//! - Its lines are whole: a line that was written to the base image meanwhile is in the spool, too.
//!
//! Nothing is locked, so no thread waits for a copy. But the log may reuse its space before the
//! copy has read it. Frames name their positions, so the copy notices that, and begins anew.
//!
//! A store that is read beside a writer is such a copy as well ([`File::copy_to_read`]). Then the
//! copy is not made durable: it has no name, and ends with the process that reads it.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::checkpoint::{incarnation_at, write_back};
use super::error::{LogError, refused};
use super::find::{LogAccess, open_log, read_mark};
use super::layout::{BLOCK_BYTES, Header, LENGTH, LogMark, RING, first_word, lines_of};
use super::log::{FoundHeader, FrameReader, Log, LogItem, LogSizes};
use super::open::write_mark;
use super::replay::{LogRemnant, look_behind, lost};
use super::{File, Sizes};
use crate::folder::FilePlace;
use crate::io::{Disk, Io, sync_whole, write_all};
use crate::presence::Presence;
use crate::{LINE_BYTES, MediumError};

/// Lines of this many bytes of log are written over the copy together.
const COPY_BATCH_BYTES: u64 = 16 << 20;
/// Attempts before a copy holds off checkpoints, so that they free no space of the log. If another
/// process makes the checkpoints, the copy gives up instead.
const FREE_ATTEMPTS: u32 = 2;

/// How a copy ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CopyOutcome {
    /// The copy is whole; it has this many bytes.
    Whole(u64),
    /// Space of the log was reused before it was read.
    Overrun,
    /// The log is not the pool's any more: the pool was closed.
    Closed,
}

/// Where a copy is made: two empty files.
#[derive(Clone, Debug)]
pub struct CopyTarget {
    /// The copy.
    pub copy: Arc<dyn Io>,
    /// Room for the frames that the log holds and receives meanwhile; not needed afterwards.
    pub spool: Arc<dyn Io>,
}

impl CopyTarget {
    fn empty(&self) -> Result<(), LogError> {
        let emptied = self.copy.truncate(0).and_then(|()| self.spool.truncate(0));
        emptied.map_err(refused("empty the unfinished copy"))
    }

    /// Says in the copy that it needs no log. Nothing is made durable.
    fn finish_to_read(&self, mark_offset: u64) -> Result<(), LogError> {
        let mark = LogMark(None).encode();
        write_all(&*self.copy, &mark, mark_offset).map_err(refused("write the copy"))
    }

    /// Makes the copy durable, and says in it that it needs no log.
    pub(super) fn finish(&self, mark_offset: u64) -> Result<(), LogError> {
        // The copy is synced before the mark is cleared: a copy that a crash cuts short must not
        // say that it needs no log.
        sync_whole(&*self.copy).map_err(refused("make the copy durable"))?;
        write_mark(&*self.copy, mark_offset, LogMark(None))
    }
}

impl File {
    /// Copies the pool as it is at some moment of the call, and returns the bytes of the copy,
    /// which needs no log and is durable. Writers are not stopped; but after two attempts in which
    /// the log reused its space too soon, checkpoints wait for the copy, and writers wait if the
    /// log is full.
    ///
    /// # Errors
    /// [`MediumError::Log`] if reading or writing fails; [`MediumError::Failed`] if this medium
    /// failed.
    pub fn backup(&self, target: &CopyTarget) -> Result<u64, MediumError> {
        let core = &*self.core;
        if core.commit.is_displaced() {
            // The pool's file has everything, and is not written any more.
            let length = copy_base(&*core.pool, target, core.log.sizes)?;
            target.finish(core.mark_offset)?;
            return Ok(length);
        }
        core.settle(core.end())?;
        for attempt in 0..=FREE_ATTEMPTS {
            // Without checkpoints no space of the log is reused.
            let _no_checkpoint = (attempt == FREE_ATTEMPTS).then(|| core.checkpointing.lock());
            let copied = copy(
                &*core.pool,
                &core.log.io,
                target,
                core.mark_offset,
                core.log.sizes,
            )?;
            if let CopyOutcome::Whole(length) = copied {
                target.finish(core.mark_offset)?;
                return Ok(length);
            }
            target.empty()?;
            if core.commit.is_displaced() {
                return self.backup(target);
            }
            core.commit.failure()?;
        }
        Err(LogError::Overrun.into())
    }

    /// Does the same as [`File::backup`], for a pool that another process has open. The caller shares
    /// `pool` with no other user. The copy
    /// contains everything that was durable when this was called. `None`, with an empty copy, if no
    /// log of the pool lies at `log_place`: the pool was closed meanwhile, or is open on another
    /// medium.
    ///
    /// # Errors
    /// [`LogError::Overrun`] if the log reused its space before it was read;
    /// [`LogError::Unsettled`] if the other process takes seconds to recover the pool; and the
    /// errors of [`File::backup`].
    pub fn backup_beside(
        pool: fs::File,
        log_place: &FilePlace,
        target: &CopyTarget,
        mark_offset: u64,
    ) -> Result<Option<u64>, LogError> {
        let copied = Self::copy_beside(pool, log_place, target, mark_offset)?;
        if copied.is_some() {
            target.finish(mark_offset)?;
        }
        Ok(copied)
    }

    /// Does the same as [`File::backup_beside`], but does not make the copy durable. It also copies
    /// a pool whose process was killed.
    ///
    /// # Errors
    /// The same as those of [`File::backup_beside`].
    pub fn copy_to_read(
        pool: fs::File,
        log_place: &FilePlace,
        target: &CopyTarget,
        mark_offset: u64,
    ) -> Result<Option<u64>, LogError> {
        let copied = Self::copy_beside(pool, log_place, target, mark_offset)?;
        if copied.is_some() {
            target.finish_to_read(mark_offset)?;
        }
        Ok(copied)
    }

    /// Copies the file of a pool that needs no log and that no process writes, and returns its
    /// bytes. The copy is not made durable.
    ///
    /// # Errors
    /// [`LogError::Io`] if a file cannot be read or written.
    pub fn copy_closed_to_read(pool: fs::File, target: &CopyTarget) -> Result<u64, LogError> {
        copy_base(&Disk(pool), target, Sizes::default())
    }

    /// Makes a copy, which names its log as the pool does.
    fn copy_beside(
        pool: fs::File,
        log_place: &FilePlace,
        target: &CopyTarget,
        mark_offset: u64,
    ) -> Result<Option<u64>, LogError> {
        // The process that writes lets its log grow for readers of the pool. If it does not hear of
        // this one, its log may be too small.
        let pool = Disk(pool);
        let _presence = Presence::of_unmapped(&pool.0);
        let sizes = Sizes::default();
        let mark = read_mark(&pool, mark_offset)?;
        let Some(log) = open_log(log_place, LogAccess::Read)? else {
            return Ok(None);
        };
        let log: Arc<dyn Io> = Arc::new(Disk(log));
        let uuid = live_header(&*log, sizes.header_patience)?.map(|header| header.uuid);
        let Some(uuid) = uuid.filter(|uuid| mark.0.is_none_or(|named| named == *uuid)) else {
            return Ok(None);
        };
        let mut copied = copy(&pool, &log, target, mark_offset, sizes)?;
        for _ in 0..FREE_ATTEMPTS {
            if copied != CopyOutcome::Overrun {
                break;
            }
            target.empty()?;
            copied = copy(&pool, &log, target, mark_offset, sizes)?;
        }
        // Whether the pool was open all the time. A clean close clears the mark. A pool without a
        // mark may have named its log meanwhile; if it has not, the log must still lie there.
        let was_open = match (mark.0, read_mark(&pool, mark_offset)?.0) {
            (None, None) => is_log(log_place, uuid, sizes.header_patience)?,
            (_, now) => now == Some(uuid),
        };
        match copied {
            CopyOutcome::Whole(length) if was_open => Ok(Some(length)),
            CopyOutcome::Overrun if was_open => Err(LogError::Overrun),
            _ => target.empty().map(|()| None),
        }
    }
}

/// Reports bytes that were copied; an error if the caller ends the copy.
pub(super) fn advance(bytes: u64) -> Result<(), LogError> {
    if crate::progress::advance(bytes) {
        return Ok(());
    }
    Err(refused("finish the copy")(
        io::ErrorKind::Interrupted.into(),
    ))
}

/// The pause between two reads of a header.
const HEADER_REST: Duration = Duration::from_millis(1);

/// The header of a log that is in use. If one copy of it fails its check, both are read again until
/// `patience` has passed: the process that has the pool open may be writing that copy, or recovers
/// the pool and writes both copies after it has replayed the log.
fn live_header(log: &dyn Io, patience: Duration) -> Result<Option<Header>, LogError> {
    let start = Instant::now();
    for attempt in 0.. {
        let FoundHeader::Newest(newest) = Log::read_header(log)? else {
            return Ok(None);
        };
        if newest.unreadable.is_none() {
            return Ok(Some(newest.header).filter(|header| !header.ranges.is_empty()));
        }
        // The copy that passes its check may be the older one, and the log at its start may be
        // overwritten already.
        match attempt {
            0..100 => std::thread::yield_now(),
            _ if start.elapsed() < patience => std::thread::sleep(HEADER_REST),
            _ => break,
        }
    }
    Err(LogError::Unsettled)
}

fn is_log(place: &FilePlace, uuid: u128, patience: Duration) -> Result<bool, LogError> {
    let Ok(Some(log)) = open_log(place, LogAccess::Read) else {
        return Ok(false);
    };
    Ok(live_header(&Disk(log), patience)?.is_some_and(|header| header.uuid == uuid))
}

/// Copies a part of the pool's file, from `offset` on. Returns its bytes; 0 at the end of the file.
fn copy_part(
    pool: &dyn Io,
    target: &CopyTarget,
    offset: u64,
    sizes: Sizes,
) -> Result<u64, LogError> {
    loop {
        match pool.copy_to(&*target.copy, offset, sizes.part_bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            copied => return Ok(copied.map_err(refused("copy the pool"))? as u64),
        }
    }
}

/// Gives the copy `length` bytes, if it has fewer: its end may be a hole.
fn lengthen(target: &CopyTarget, length: u64) -> Result<(), LogError> {
    let copy = &*target.copy;
    let is_shorter = copy.length().map_err(refused("measure the copy"))? < length;
    if is_shorter {
        copy.truncate(length).map_err(refused("write the copy"))?;
    }
    Ok(())
}

/// Copies the pool's file alone. Returns its bytes.
fn copy_base(pool: &dyn Io, target: &CopyTarget, sizes: Sizes) -> Result<u64, LogError> {
    let mut offset = 0;
    loop {
        let bytes = copy_part(pool, target, offset, sizes)?;
        if bytes == 0 {
            break;
        }
        offset += bytes;
        advance(bytes)?;
    }
    lengthen(target, offset)?;
    Ok(offset)
}

/// Makes the copy, but not durable.
pub(super) fn copy(
    pool: &dyn Io,
    log: &Arc<dyn Io>,
    target: &CopyTarget,
    mark_offset: u64,
    sizes: Sizes,
) -> Result<CopyOutcome, LogError> {
    let Some(header) = live_header(&**log, sizes.header_patience)? else {
        return Ok(CopyOutcome::Closed);
    };
    let mut tail = LiveLog::new(log, &target.spool, header, sizes);
    let mut offset = 0;
    loop {
        let bytes = copy_part(pool, target, offset, sizes)?;
        offset += bytes;
        advance(bytes)?;
        match tail.follow()? {
            CopyOutcome::Whole(_) => {}
            other => return Ok(other),
        }
        if bytes == 0 {
            break;
        }
    }
    match tail.expect_end()? {
        CopyOutcome::Whole(_) => {}
        other => return Ok(other),
    }
    // The pool may have grown behind the part that was read last.
    let length = offset.max(tail.length);
    if let Some((number, position)) = tail
        .last_line
        .filter(|(number, _)| *number >= length / LINE_BYTES as u64)
    {
        let what = format!("a line of number {number} lies outside of the pool");
        return Err(LogError::Damaged { position, what });
    }
    lengthen(target, offset)?;
    let grown = if length > offset {
        target.copy.allocate(offset, length)
    } else {
        Ok(())
    };
    let written = grown.and_then(|()| {
        write_back(
            &tail.spooled(),
            &*target.copy,
            mark_offset,
            [tail.begin, tail.position],
            COPY_BATCH_BYTES,
        )
    });
    written.map_err(refused("write the copy"))?;
    Ok(CopyOutcome::Whole(length))
}

/// A log that is in use, and how far it was read.
struct LiveLog<'c> {
    log: &'c Arc<dyn Io>,
    spool: &'c Arc<dyn Io>,
    /// The newest header that was read, with the incarnations that its log has dropped since.
    newest: Header,
    /// The header by which frames are read: `newest`, but with the ring before the log grew until
    /// all frames in that are read.
    header: Header,
    begin: u64,
    /// Up to here the log was read.
    position: u64,
    /// The greatest length of the pool that was read.
    length: u64,
    sizes: Sizes,
    /// The greatest line number that was read, and where in the log's file.
    last_line: Option<(u64, u64)>,
}

impl<'c> LiveLog<'c> {
    fn new(log: &'c Arc<dyn Io>, spool: &'c Arc<dyn Io>, header: Header, sizes: Sizes) -> Self {
        let begin = header.start;
        let length = header.pool_bytes;
        Self {
            log,
            spool,
            newest: header.clone(),
            header,
            begin,
            position: begin,
            length,
            sizes,
            last_line: None,
        }
    }

    /// Reads the log to its end.
    fn follow(&mut self) -> Result<CopyOutcome, LogError> {
        loop {
            self.read_frames()?;
            let newest = live_header(&**self.log, self.sizes.header_patience)?
                .filter(|newest| newest.uuid == self.newest.uuid);
            let Some(newest) = newest else {
                return Ok(CopyOutcome::Closed);
            };
            if newest.sequence != self.newest.sequence {
                self.learn(newest);
            } else if self.header.base != self.newest.base && self.position >= self.newest.base {
                self.header = self.newest.clone();
            } else if self.newest.start > self.position {
                // Space from `position` on was freed, so its frames cannot be read any more.
                return Ok(CopyOutcome::Overrun);
            } else {
                return Ok(CopyOutcome::Whole(self.length));
            }
        }
    }

    /// Tells the log's end from damage that looks like an end: the copy would lack the frames
    /// behind the damage.
    fn expect_end(&mut self) -> Result<CopyOutcome, LogError> {
        loop {
            let log = Log::new(
                Arc::clone(self.log),
                self.header.clone(),
                LogSizes::default(),
                self.sizes,
            );
            let end = self.position;
            let incarnation = incarnation_at(&self.header, self.position);
            let behind = look_behind(&log, end, incarnation, end + self.header.capacity);
            if behind.map_err(refused("read the log"))? != LogRemnant::Durable {
                return Ok(CopyOutcome::Whole(self.length));
            }
            // Damage, or the frame was still being written when it was read.
            match self.follow()? {
                CopyOutcome::Whole(_) if self.position == end => return Err(lost(&log, end)),
                CopyOutcome::Whole(_) => {}
                other => return Ok(other),
            }
        }
    }

    /// Takes over a newer header. This copy may still have to read incarnations that the header has
    /// dropped, and frames before the first lap of a ring that grew. Both stay in place until they
    /// are overwritten.
    fn learn(&mut self, mut newest: Header) {
        let first = newest.ranges[0].begin;
        let forgotten = self
            .newest
            .ranges
            .iter()
            .filter(|range| range.begin < first)
            .copied();
        newest.ranges = forgotten.chain(newest.ranges.iter().copied()).collect();
        self.newest = newest.clone();
        if newest.base > self.position {
            newest.base = self.header.base;
            newest.capacity = self.header.capacity;
        }
        self.header = newest;
    }

    /// Reads frames as far as there are any, into the spool.
    fn read_frames(&mut self) -> Result<(), LogError> {
        let log = Log::new(
            Arc::clone(self.log),
            self.header.clone(),
            LogSizes::default(),
            self.sizes,
        );
        let mut reader = FrameReader::new(&log, self.position + self.header.capacity);
        let mut first = self.position;
        let mut kept = Vec::new();
        loop {
            let incarnation = incarnation_at(&self.header, self.position);
            let found = reader
                .look(self.position, incarnation)
                .map_err(refused("read the log"))?;
            let LogItem::Frame(frame, bytes) = found else {
                break;
            };
            for (number, line) in lines_of(bytes) {
                if number == LENGTH {
                    self.length = self.length.max(first_word(line));
                } else if self.last_line.is_none_or(|(last, _)| number > last) {
                    self.last_line = Some((number, log.physical(self.position)));
                }
            }
            kept.extend_from_slice(bytes);
            self.position += frame.bytes() as u64;
            if kept.len() >= self.sizes.part_bytes {
                self.keep(first, &kept)?;
                first = self.position;
                kept.clear();
            }
        }
        self.keep(first, &kept)
    }

    fn keep(&self, first: u64, frames: &[u8]) -> Result<(), LogError> {
        let kept = write_all(&**self.spool, frames, RING + first - self.base());
        kept.map_err(refused("write the content of the log beside the copy"))
    }

    /// The position at which the spool begins: the start of a block.
    fn base(&self) -> u64 {
        self.begin - self.begin % BLOCK_BYTES
    }

    /// The spool, as a log that never wraps around.
    fn spooled(&self) -> Log {
        let base = self.base();
        let capacity = (self.position - base + 1).next_multiple_of(BLOCK_BYTES);
        let header = Header {
            capacity,
            base,
            ..self.newest.clone()
        };
        Log::new(
            Arc::clone(self.spool),
            header,
            LogSizes::default(),
            self.sizes,
        )
    }
}
