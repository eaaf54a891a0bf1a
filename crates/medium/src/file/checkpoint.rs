//! Checkpoints: lines are written from the log back to the pool's file, and their space in the log
//! is free again.
//!
//! 1. The log is durable up to a position L.
//! 2. L is announced to readers in other processes (`in_place`), without a sync.
//! 3. Its lines up to L are written to the pool's file. They are read from the log, never from
//!    memory.
//! 4. The pool's file is synced.
//! 5. A header that names L as the new start is written and synced.
//! 6. The space before L may be overwritten. Units that were released before L are punched out of
//!    the pool's file.
//!
//! A crash before step 5 leaves a pool's file with some lines newer than the start in the header;
//! the log still holds all of them, and an open replays them. Writers are not stopped at any step.

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::MutexGuard;

use super::Core;
use super::layout::{Header, LENGTH, lines_of};
use super::log::{FrameReader, Log, LogItem};
use super::pages::{PAGE_BYTES, PAGE_LINES, Pages};
use crate::io::{Io, read_all, sync_whole, write_all};
use crate::testing::mutant::Mutant;
use crate::{LINE_BYTES, MediumError};

/// The most pages that are written at a time.
const SPAN_PAGES: u64 = 256;

/// Lines that are about to be written to the pool's file.
#[derive(Default)]
struct CheckpointBatch {
    /// The number of the line that belongs to the medium, which is left out.
    mark: u64,
    /// The number of each line, and its place in `contents`.
    lines: Vec<(u64, u32)>,
    contents: Vec<[u8; LINE_BYTES]>,
    span: Vec<u8>,
    /// The pages that were written so far.
    pages: Pages,
}

impl CheckpointBatch {
    fn add(&mut self, number: u64, line: &[u8; LINE_BYTES]) {
        if number != LENGTH && number != self.mark {
            self.lines.push((number, self.contents.len() as u32));
            self.contents.push(*line);
        }
    }

    /// Writes the newest content of each line, neighbouring pages together.
    fn write(&mut self, target: &dyn Io) -> io::Result<()> {
        self.lines.sort_unstable();
        self.lines.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            // Of equal numbers the last one has the newest content.
            if is_same {
                kept.1 = later.1;
            }
            is_same
        });
        let mut rest = &self.lines[..];
        while !rest.is_empty() {
            let span = first_span(rest);
            let (lines, later) = rest.split_at(span.lines);
            write_span(target, lines, &self.contents, &mut self.span)?;
            for page in span.pages {
                self.pages.add(page * PAGE_LINES);
            }
            rest = later;
        }
        self.lines.clear();
        self.contents.clear();
        Ok(())
    }
}

/// Neighbouring pages that are written with one call.
struct Span {
    /// How many of the lines, from the first one on, lie in these pages.
    lines: usize,
    pages: Range<u64>,
}

/// The span that begins with the page of the first line. The lines are in order.
fn first_span(lines: &[(u64, u32)]) -> Span {
    let Some((first, _)) = lines.first() else {
        return Span {
            lines: 0,
            pages: 0..0,
        };
    };
    let begin = first / PAGE_LINES;
    let mut span = Span {
        lines: 0,
        pages: begin..begin,
    };
    for (number, _) in lines {
        let page = number / PAGE_LINES;
        let is_neighbour = page <= span.pages.end;
        if !is_neighbour || page >= begin + SPAN_PAGES {
            break;
        }
        span.lines += 1;
        span.pages.end = page + 1;
    }
    span
}

/// Writes lines of neighbouring pages with one call, which is cheaper than a call for each. The
/// bytes between the lines are read first and written as they are; the disk gets whole pages in
/// either case.
fn write_span(
    target: &dyn Io,
    lines: &[(u64, u32)],
    contents: &[[u8; LINE_BYTES]],
    span: &mut Vec<u8>,
) -> io::Result<()> {
    let [(first, _), ..] = lines else {
        return Ok(());
    };
    let (last, _) = lines[lines.len() - 1];
    let offset = first * LINE_BYTES as u64;
    let count = last - first + 1;
    span.resize(count as usize * LINE_BYTES, 0);
    if count > lines.len() as u64 {
        read_all(target, span, offset)?;
    }
    for (number, place) in lines {
        let begin = (number - first) as usize * LINE_BYTES;
        span[begin..begin + LINE_BYTES].copy_from_slice(&contents[*place as usize]);
    }
    write_all(target, span, offset)
}

/// Writes the lines that the log holds from `from` to `to` into `target`, except the one at
/// `mark_offset`, which belongs to the medium. Lines of `batch_bytes` bytes of log are sorted and
/// written together: the more there are, the more of them share a page. Returns the bytes of all
/// pages that changed: the sync of `target` writes this many.
pub(super) fn write_back(
    log: &Log,
    target: &dyn Io,
    mark_offset: u64,
    [from, to]: [u64; 2],
    batch_bytes: u64,
) -> io::Result<u64> {
    let header = log.header();
    let mut reader = FrameReader::new(log, to);
    let mut batch = CheckpointBatch {
        mark: mark_offset / LINE_BYTES as u64,
        ..CheckpointBatch::default()
    };
    let mut position = from;
    let mut batch_begin = from;
    while position < to {
        let LogItem::Frame(frame, bytes) =
            reader.look(position, incarnation_at(&header, position))?
        else {
            let what = format!(
                "the log cannot be read any more at byte {:#x}",
                log.physical(position)
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        lines_of(bytes).for_each(|(number, line)| batch.add(number, line));
        position += frame.bytes() as u64;
        if position - batch_begin >= batch_bytes {
            batch.write(target)?;
            batch_begin = position;
        }
    }
    batch.write(target)?;
    Ok(batch.pages.count() * PAGE_BYTES)
}

/// The incarnation that a position belongs to.
pub(super) fn incarnation_at(header: &Header, position: u64) -> u32 {
    let range = header
        .ranges
        .iter()
        .rev()
        .find(|range| range.begin <= position);
    range.map_or(0, |range| range.incarnation)
}

/// Drops the part before `start`, which is checkpointed, from the header.
pub(super) fn forget(header: &mut Header, start: u64) {
    header.start = start;
    header.checkpointed_at = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let last = header
        .ranges
        .iter()
        .rposition(|range| range.begin <= start)
        .unwrap_or(0);
    header.ranges.drain(..last);
}

/// A part of the log whose lines are durable in the pool's file.
struct WrittenPart {
    from: u64,
    to: u64,
    /// The bytes of the pages that were written.
    bytes: u64,
    /// A length of the pool's file that is durable.
    pool_bytes: u64,
}

impl Core {
    /// Checkpoints the durable part of the log, and frees its space.
    pub(super) fn checkpoint(&self) -> Result<(), MediumError> {
        self.commit.failure()?;
        let result = self.try_checkpoint();
        result.map_err(|error| {
            self.commit.fail(format!("a checkpoint failed: {error}"));
            self.commit.failure().expect_err("just failed")
        })
    }

    pub(super) fn try_checkpoint(&self) -> io::Result<()> {
        let checkpointing = self.checkpointing.lock();
        let start = Instant::now();
        let written = self.write_durable_part(&checkpointing)?;
        let to = written.to;
        if written.from == to {
            self.punch(to);
            return Ok(());
        }
        self.log.update(|header| {
            forget(header, to);
            header.pool_bytes = written.pool_bytes;
        })?;
        self.punch(to);
        let last_s = self.log.header().checkpointed_at;
        let mut last = self.checkpoints.lock();
        last.last_s = last_s;
        last.checkpoints += 1;
        last.log_bytes += to - written.from;
        last.written_back_bytes += written.bytes;
        last.time += start.elapsed();
        Ok(())
    }

    /// Checkpoints the log, and says in its header that it holds nothing any more. The pool's file
    /// then has the length `pool_bytes`, if that is given.
    pub(super) fn checkpoint_and_end_log(&self, pool_bytes: Option<u64>) -> io::Result<()> {
        let checkpointing = self.checkpointing.lock();
        let written = self.write_durable_part(&checkpointing)?;
        let pool_bytes = pool_bytes.unwrap_or(written.pool_bytes);
        self.log.update(|header| {
            forget(header, written.to);
            header.ranges.clear();
            header.pool_bytes = pool_bytes;
        })?;
        self.punch(written.to);
        Ok(())
    }

    /// Steps 1 to 4 of a checkpoint.
    fn write_durable_part(&self, _checkpointing: &MutexGuard<'_, ()>) -> io::Result<WrittenPart> {
        let from = self.log.start();
        let mut to = self.commit.durable();
        if Mutant::CheckpointUnbound.is_planted() {
            to = self.end();
        }
        let mut written = WrittenPart {
            from,
            to,
            bytes: 0,
            pool_bytes: self.pool_bytes.load(Ordering::Relaxed),
        };
        if from < to {
            self.log.announce(to)?;
            let batch_bytes = self.burst_bytes_max;
            let pool = &*self.pool;
            written.bytes = write_back(&self.log, pool, self.mark_offset, [from, to], batch_bytes)?;
            // Read before the sync: a length that the pool reaches after the sync may not be
            // durable.
            written.pool_bytes = self.pool_bytes.load(Ordering::Relaxed);
            sync_whole(pool)?;
        }
        Ok(written)
    }
}
