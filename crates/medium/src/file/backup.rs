//! A consistent copy of a pool while it is written, by this process or by another.
//!
//! The base image is read part by part, as it is, while checkpoints may write to it: some of its lines are as of the
//! beginning, some newer, and some may be caught half written. But whatever goes home meanwhile stands in the log, whole.
//! So the log is read along, from the start that its header names at the beginning, and what it holds goes over the copy
//! in the end: a *fuzzy* copy, made sharp by redo. It is then the state after a prefix of the log's groups, which ends
//! where nothing more could be read after all of the base image had been read:
//!
//! - what was durable when the copy began is in it, for it was home, or in the log;
//! - nothing of the base image is newer, for that holds no line before the log holds it durably, and a log is read to its
//!   end;
//! - a line is whole: if it went home meanwhile, the log's content of it comes over it.
//!
//! Nothing is locked, so no thread waits. In return the log's space may be used again before the copy has read it. That shows,
//! for frames name their positions; then the copy begins anew.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::checkpoint::{incarnation_at, write_home};
use super::error::{LogError, refused};
use super::find::{Access, open_log, read_mark};
use super::io::{Disk, Io, read_some, write_all};
use super::layout::{BLOCK_BYTES, Header, LENGTH, Mark, RING, first_word, lines_of};
use super::log::{Found, Log, Reader};
use super::open::write_mark;
use super::replay::{Behind, look_behind, lost};
use super::{File, Sizes};
use crate::{LINE_BYTES, MediumError};

/// How often a copy is tried before the log's space is kept from being used again meanwhile.
const FREE_ATTEMPTS: u32 = 2;

/// How a copy ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Copied {
    /// With so many bytes.
    Whole(u64),
    /// The log's space was used again before it was read.
    Overrun,
    /// The log is no longer the pool's: this was closed.
    Closed,
}

/// Where a copy is made: two empty files.
#[derive(Clone, Debug)]
pub struct CopyTarget {
    /// The copy.
    pub copy: Arc<dyn Io>,
    /// Room for what the log holds and gets meanwhile. Not needed afterwards.
    pub spool: Arc<dyn Io>,
}

impl CopyTarget {
    fn empty(&self) -> Result<(), LogError> {
        let emptied = self.copy.truncate(0).and_then(|()| self.spool.truncate(0));
        emptied.map_err(refused("empty the copy that was begun"))
    }

    /// The copy needs no log. Makes it durable.
    fn finish(&self, mark_offset: u64) -> Result<(), LogError> {
        // All else first: a copy that lacks some of it must not say that it needs no log.
        self.copy.sync().map_err(refused("make the copy durable"))?;
        write_mark(&*self.copy, mark_offset, Mark(None))
    }
}

impl File {
    /// Copies the pool as it is at some moment of the call. The copy needs no log. Durable when this returns. Writers go
    /// on; only if the log went around before it could be read, twice, they wait while it is full. Returns the bytes of
    /// the copy.
    ///
    /// # Errors
    /// [`MediumError::Log`] if reading or writing fails; [`MediumError::Failed`] if this medium failed.
    pub fn backup(&self, target: &CopyTarget) -> Result<u64, MediumError> {
        let core = &*self.core;
        core.settle(core.end())?;
        for attempt in 0..=FREE_ATTEMPTS {
            // Without a checkpoint the log keeps its start.
            let _still = (attempt == FREE_ATTEMPTS).then(|| core.checkpointing.lock());
            let copied = copy(&*core.pool, &core.log.io, target, core.mark_offset, core.log.sizes)?;
            if let Copied::Whole(length) = copied {
                target.finish(core.mark_offset)?;
                return Ok(length);
            }
            core.commit.failure()?;
            target.empty()?;
        }
        Err(LogError::Overrun.into())
    }

    /// As [`File::backup`], of a pool that another process has open; of what that has acknowledged all is in the copy that
    /// was durable when this was called. `None` if the pool was closed meanwhile, or is on another medium: there is no log
    /// at `log_path` that belongs to it. Then the copy is nothing, and empty.
    ///
    /// # Errors
    /// [`LogError::Overrun`] if the log went around before it was read; [`LogError::Unsettled`] if that process recovers the
    /// pool, and takes seconds; else as [`File::backup`].
    pub fn backup_beside(
        pool: fs::File,
        log_path: &Path,
        target: &CopyTarget,
        mark_offset: u64,
    ) -> Result<Option<u64>, LogError> {
        let (pool, sizes) = (Disk(pool), Sizes::default());
        let mark = read_mark(&pool, mark_offset)?;
        let Some(log) = open_log(log_path, Access::Read)? else { return Ok(None) };
        let log: Arc<dyn Io> = Arc::new(Disk(log));
        let uuid = live_header(&*log, sizes.header_patience)?.map(|header| header.uuid);
        let Some(uuid) = uuid.filter(|uuid| mark.0.is_none_or(|named| named == *uuid)) else {
            return Ok(None);
        };
        let copied = copy(&pool, &log, target, mark_offset, sizes)?;
        // A log that the pool needs is gone for good when the pool is closed. One that it does not need yet may be named
        // by it meanwhile; and if it is still where it was, the pool was not closed.
        let still = match (mark.0, read_mark(&pool, mark_offset)?.0) {
            (None, None) => is_log(log_path, uuid, sizes.header_patience)?,
            (_, now) => now == Some(uuid),
        };
        match copied {
            Copied::Whole(length) if still => {
                target.finish(mark_offset)?;
                Ok(Some(length))
            }
            Copied::Overrun if still => Err(LogError::Overrun),
            _ => target.empty().map(|()| None),
        }
    }
}

/// The pause between two reads of a header.
const HEADER_REST: Duration = Duration::from_millis(1);

/// The header of a log that is in use. If one copy of it fails its check, both are read again until `patience` has passed:
/// the process that has the pool open may be writing that copy, or recovers the pool and writes both copies after it has
/// replayed the log.
fn live_header(log: &dyn Io, patience: Duration) -> Result<Option<Header>, LogError> {
    let start = Instant::now();
    for attempt in 0.. {
        let Ok(newest) = Log::read_header(log)? else { return Ok(None) };
        if newest.unreadable.is_none() {
            return Ok(Some(newest.header).filter(|header| !header.ranges.is_empty()));
        }
        // The other copy may be older than what was freed and written again since.
        match attempt {
            0..100 => std::thread::yield_now(),
            _ if start.elapsed() < patience => std::thread::sleep(HEADER_REST),
            _ => break,
        }
    }
    Err(LogError::Unsettled)
}

fn is_log(path: &Path, uuid: u128, patience: Duration) -> Result<bool, LogError> {
    let Ok(Some(log)) = open_log(path, Access::Read) else { return Ok(false) };
    Ok(live_header(&Disk(log), patience)?.is_some_and(|header| header.uuid == uuid))
}

/// Copies base image and log; makes nothing durable.
pub(super) fn copy(
    pool: &dyn Io,
    log: &Arc<dyn Io>,
    target: &CopyTarget,
    mark_offset: u64,
    sizes: Sizes,
) -> Result<Copied, LogError> {
    let Some(header) = live_header(&**log, sizes.header_patience)? else { return Ok(Copied::Closed) };
    let mut tail = Tail::new(log, &target.spool, header, sizes);
    let (mut part, mut offset) = (vec![0; sizes.part_bytes], 0);
    loop {
        let bytes = read_some(pool, &mut part, offset).map_err(refused("read the pool"))?;
        write_all(&*target.copy, &part[..bytes], offset).map_err(refused("write the copy"))?;
        offset += bytes as u64;
        match tail.follow()? {
            Copied::Whole(_) => {}
            other => return Ok(other),
        }
        if bytes == 0 {
            break;
        }
    }
    match tail.expect_end()? {
        Copied::Whole(_) => {}
        other => return Ok(other),
    }
    // It may have grown behind what was read.
    let length = offset.max(tail.length);
    if let Some((number, position)) =
        tail.last_line.filter(|(number, _)| *number >= length / LINE_BYTES as u64)
    {
        let what = format!("a line of number {number} lies outside of the pool");
        return Err(LogError::Damaged { position, what });
    }
    let grown = if length > offset { target.copy.allocate(offset, length) } else { Ok(()) };
    let written = grown
        .and_then(|()| write_home(&tail.spooled(), &*target.copy, mark_offset, tail.begin, tail.position));
    written.map_err(refused("write the copy"))?;
    Ok(Copied::Whole(length))
}

/// The log of a pool that another process writes, and what was read of it.
struct Tail<'c> {
    log: &'c Arc<dyn Io>,
    spool: &'c Arc<dyn Io>,
    /// The newest header that was read, with incarnations that the log has forgotten since.
    newest: Header,
    /// As `newest`, but the ring may be as it was before the log grew.
    header: Header,
    begin: u64,
    /// Up to here it was read.
    position: u64,
    /// The pool's length, as far as is known.
    length: u64,
    sizes: Sizes,
    /// The line that lies last in the pool, and where the log's file has it.
    last_line: Option<(u64, u64)>,
}

impl<'c> Tail<'c> {
    fn new(log: &'c Arc<dyn Io>, spool: &'c Arc<dyn Io>, header: Header, sizes: Sizes) -> Self {
        let (begin, length) = (header.start, header.pool_bytes);
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
    fn follow(&mut self) -> Result<Copied, LogError> {
        loop {
            self.read_frames()?;
            let newest = live_header(&**self.log, self.sizes.header_patience)?
                .filter(|newest| newest.uuid == self.newest.uuid);
            let Some(newest) = newest else { return Ok(Copied::Closed) };
            if newest.sequence != self.newest.sequence {
                self.learn(newest);
            } else if self.header.base != self.newest.base && self.position >= self.newest.base {
                self.header = self.newest.clone();
            } else if self.newest.start > self.position {
                // There was something, and it cannot be read any more.
                return Ok(Copied::Overrun);
            } else {
                return Ok(Copied::Whole(self.length));
            }
        }
    }

    /// Refuses damage that looks like the log's end: what is behind it would be missing.
    fn expect_end(&mut self) -> Result<Copied, LogError> {
        loop {
            let log = Log::new(Arc::clone(self.log), self.header.clone(), 0, self.sizes);
            let (end, incarnation) = (self.position, incarnation_at(&self.header, self.position));
            let behind = look_behind(&log, end, incarnation, end + self.header.capacity);
            if behind.map_err(refused("read the log"))? != Behind::Durable {
                return Ok(Copied::Whole(self.length));
            }
            // Or it was not yet written when it was looked for.
            match self.follow()? {
                Copied::Whole(_) if self.position == end => return Err(lost(&log, end)),
                Copied::Whole(_) => {}
                other => return Ok(other),
            }
        }
    }

    /// Takes over a newer header. What a checkpoint forgot may still be to be read; so may what lies before the first lap
    /// of a ring that grew, for it stays where it was until it is overwritten.
    fn learn(&mut self, mut newest: Header) {
        let first = newest.ranges[0].begin;
        let forgotten = self.newest.ranges.iter().filter(|range| range.begin < first).copied();
        newest.ranges = forgotten.chain(newest.ranges.iter().copied()).collect();
        self.newest = newest.clone();
        if newest.base > self.position {
            (newest.base, newest.capacity) = (self.header.base, self.header.capacity);
        }
        self.header = newest;
    }

    /// Keeps the frames that can be read.
    fn read_frames(&mut self) -> Result<(), LogError> {
        let log = Log::new(Arc::clone(self.log), self.header.clone(), 0, self.sizes);
        let mut reader = Reader::new(&log, self.position + self.header.capacity);
        let (mut first, mut kept) = (self.position, Vec::new());
        loop {
            let incarnation = incarnation_at(&self.header, self.position);
            let found = reader.look(self.position, incarnation).map_err(refused("read the log"))?;
            let Found::Frame(frame, bytes) = found else { break };
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
                (first, kept) = (self.position, Vec::new());
            }
        }
        self.keep(first, &kept)
    }

    fn keep(&self, first: u64, frames: &[u8]) -> Result<(), LogError> {
        let kept = write_all(&**self.spool, frames, RING + first - self.base());
        kept.map_err(refused("keep beside the copy what the log holds"))
    }

    /// Where what is kept begins: with a block.
    fn base(&self) -> u64 {
        self.begin - self.begin % BLOCK_BYTES
    }

    /// What was kept, as a log that never goes around.
    fn spooled(&self) -> Log {
        let base = self.base();
        let capacity = (self.position - base + 1).next_multiple_of(BLOCK_BYTES);
        let header = Header { capacity, base, ..self.newest.clone() };
        Log::new(Arc::clone(self.spool), header, 0, self.sizes)
    }
}
