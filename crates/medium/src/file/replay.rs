//! Replay: an open stores the lines of the log to the pool's memory.
//!
//! The log ends at the first frame that cannot be read. That is
//!
//! - *damage*, if a later incarnation began behind it, or if a later frame says that the log was
//!   durable beyond it when that frame was appended;
//! - otherwise a *torn tail*: the missing frames were never acknowledged.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::error::{LogError, refused};
use super::layout::{
    BLOCK_BYTES, FRAME_HEADER_BYTES, FrameHeader, Header, LENGTH, first_word, lines_of,
};
use super::log::{FrameReader, Log, LogItem};
use crate::MediumError;
use crate::testing::mutant::Mutant;

/// How a log ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LogEnd {
    /// There was nothing to replay: the pool is new, or was closed cleanly.
    Empty,
    /// Behind the last frame lie only frames of an earlier lap: no write was under way.
    Clean,
    /// A write was under way; the part of it that was written is dropped.
    Torn,
}

/// The result of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replay {
    /// Bytes of log that were replayed.
    pub bytes: u64,
    /// Groups of lines in them.
    pub groups: u64,
    /// Lines in them.
    pub lines: u64,
    /// Syncs that made them durable: groups that were appended between the same two syncs count as
    /// one.
    pub syncs: u64,
    /// How the log ended.
    pub end: LogEnd,
    /// The time until all replayed frames were durable.
    pub duration: Duration,
}

impl Replay {
    /// The replay of a pool without a log.
    pub(super) const NOTHING: Self = Self {
        bytes: 0,
        groups: 0,
        lines: 0,
        syncs: 0,
        end: LogEnd::Empty,
        duration: Duration::ZERO,
    };
}

/// The result of a replay, and where the log ends. Frames between `durable` and `end` may not be
/// durable.
pub(super) struct Replayed {
    pub(super) replay: Replay,
    pub(super) end: u64,
    pub(super) durable: u64,
    /// The pool's length as the log has it.
    pub(super) length: u64,
}

/// Reads all frames, and calls `store` with each: the window that holds it, and its place there.
/// Before that, `check_line` is called with the number of each line and the position of its frame,
/// and `grow` with each new length of the pool.
pub(super) fn replay(
    log: &Log,
    header: &Header,
    store: &mut impl FnMut(&Arc<Vec<u8>>, Range<usize>),
    mut check_line: impl FnMut(u64, u64) -> Result<(), LogError>,
    mut grow: impl FnMut(u64) -> Result<(), MediumError>,
) -> Result<Replayed, MediumError> {
    let mut found = Replayed {
        replay: Replay::NOTHING,
        end: header.start,
        durable: header.start,
        length: header.pool_bytes,
    };
    let limit = header.start + header.capacity;
    let mut reader = FrameReader::new(log, limit);
    let mut synced = None;
    for (index, range) in header.ranges.iter().enumerate() {
        let next = header.ranges.get(index + 1);
        while next.is_none_or(|next| found.end < next.begin) {
            let frame = reader
                .look(found.end, range.incarnation)
                .map_err(refused("read the log"))?;
            let LogItem::Frame(frame_header, frame) = frame else {
                if next.is_some() {
                    let what = "a frame that was durable cannot be read";
                    return Err(damaged(log, found.end, what).into());
                }
                let is_broken = matches!(frame, LogItem::Broken);
                return Ok(finish(log, found, range.incarnation, is_broken)?);
            };
            for (number, line) in lines_of(frame) {
                if number == LENGTH {
                    grow(first_word(line))?;
                    found.length = found.length.max(first_word(line));
                } else {
                    check_line(number, found.end)?;
                }
            }
            let (window, first) = reader.window();
            let begin = (found.end - first) as usize;
            store(window, begin..begin + frame_header.bytes());
            found.replay.groups += 1;
            if synced != Some(frame_header.durable) {
                synced = Some(frame_header.durable);
                found.replay.syncs += 1;
            }
            found.replay.lines += u64::from(frame_header.lines);
            found.replay.bytes += frame_header.bytes() as u64;
            found.durable = found.durable.max(frame_header.durable);
            found.end += frame_header.bytes() as u64;
        }
        // An open made all frames that it found durable before it began the next incarnation.
        found.durable = found.durable.max(next.map_or(0, |next| next.begin));
    }
    Ok(found)
}

fn damaged(log: &Log, position: u64, what: &str) -> LogError {
    LogError::Damaged {
        position: log.physical(position),
        what: what.to_owned(),
    }
}

/// Decides whether the end of the log is a torn tail or damage.
fn finish(
    log: &Log,
    mut found: Replayed,
    incarnation: u32,
    broken: bool,
) -> Result<Replayed, LogError> {
    let ring_end = log.start() + log.capacity();
    let behind =
        look_behind(log, found.end, incarnation, ring_end).map_err(refused("read the log"))?;
    if behind == LogRemnant::Durable {
        return Err(lost(log, found.end));
    }
    let torn = broken || behind == LogRemnant::Something;
    found.replay.end = if torn { LogEnd::Torn } else { LogEnd::Clean };
    Ok(found)
}

/// Checks a log that was replayed up to `end` by one copy of its header, because the other copy, at
/// `copy`, fails its check. If a crash tore that copy while it was written, no frame was written
/// after it. Otherwise it was the newer header, and is damaged: then the ring may hold frames that
/// the header at hand does not allow, which are of a later incarnation, beyond the space that was
/// free, or in the part by which the log had grown.
pub(super) fn expect_nothing_later(log: &Log, end: u64, copy: u64) -> Result<(), LogError> {
    let has_later = has_later_frame(log, end).map_err(refused("read the log"))?;
    if has_later && !Mutant::AnyHeader.is_planted() {
        let what = "this copy of the header fails its check, and without it the frames that follow it cannot be found";
        return Err(LogError::Damaged {
            position: copy,
            what: what.to_owned(),
        });
    }
    Ok(())
}

/// Whether the log, which was replayed up to `end`, has a frame that its header does not allow.
fn has_later_frame(log: &Log, end: u64) -> io::Result<bool> {
    let header = log.header();
    let last = header
        .ranges
        .last()
        .map_or(header.incarnation_next.wrapping_sub(1), |range| {
            range.incarnation
        });
    let free_end = header.start - header.start % BLOCK_BYTES + header.capacity;
    let is_later = |frame: &FrameHeader| {
        frame.incarnation.wrapping_sub(last).cast_signed() > 0
            || frame.position + frame.bytes() as u64 > free_end
    };
    if log.has_frame(end, is_later)? {
        return Ok(true);
    }
    let Some(grown) = log.as_grown()? else {
        return Ok(false);
    };
    let old_end = grown.header().base + header.capacity;
    grown.has_frame(end, |frame| {
        is_later(frame) || frame.position + frame.bytes() as u64 > old_end
    })
}

/// The content of a log behind its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LogRemnant {
    /// Nothing, or frames of an earlier lap.
    Nothing,
    /// Parts of a write that was under way.
    Something,
    /// A frame that says that the log was durable beyond its end.
    Durable,
}

/// The error for an unreadable frame before a place that was durable.
pub(super) fn lost(log: &Log, end: u64) -> LogError {
    damaged(
        log,
        end,
        "no frame can be read here, but a later one says that it was durable",
    )
}

/// Searches for frames behind the `end` of a log, up to `ring_end`.
pub(super) fn look_behind(
    log: &Log,
    end: u64,
    incarnation: u32,
    ring_end: u64,
) -> io::Result<LogRemnant> {
    let mut reader = FrameReader::new(log, ring_end);
    let mut behind = LogRemnant::Nothing;
    let mut position = end + 8;
    // A frame that says so lies behind all frames that were appended without a sync in between,
    // which may be many. So each frame that is found extends the search.
    let mut limit = (end + log.sizes.look_bytes).min(ring_end);
    while position + FRAME_HEADER_BYTES as u64 <= limit {
        match reader.look(position, incarnation)? {
            LogItem::Frame(later, _) if later.durable > end => return Ok(LogRemnant::Durable),
            LogItem::Frame(later, _) => {
                behind = LogRemnant::Something;
                position += later.bytes() as u64;
                limit = (position + log.sizes.look_bytes).min(ring_end);
            }
            LogItem::Broken => {
                behind = LogRemnant::Something;
                position += 8;
            }
            LogItem::Nothing => position += 8,
        }
    }
    Ok(behind)
}
