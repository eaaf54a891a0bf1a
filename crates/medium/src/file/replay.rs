//! Replay: what the log holds becomes the memory's content again.
//!
//! The log ends where the first frame is that cannot be read. That is a *torn tail* if nothing says that the place was
//! durable: then what is missing was never acknowledged. It is *damage* if a later incarnation began behind it, or if a
//! later frame says that the log was durable beyond it when that frame was appended.

use std::io;

use super::error::{LogError, refused};
use super::layout::{FRAME_HEADER_BYTES, Header, LENGTH, first_word, lines_of};
use super::log::{Found, Log, Reader};
use crate::LINE_BYTES;

/// So far behind the place where a log ends a later frame is looked for; logs of tests are small.
pub(super) const LOOK_BYTES: u64 = if cfg!(test) { 128 << 10 } else { 16 << 20 };

/// How a log ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LogEnd {
    /// There was nothing to replay: the pool is new, or was closed cleanly.
    Empty,
    /// Behind the last frame lies what an earlier lap left, or nothing: no write was under way.
    Clean,
    /// A write was under way, and what it left in part is dropped.
    Torn,
}

/// What replay found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replay {
    /// Bytes of log that were replayed.
    pub bytes: u64,
    /// Groups of lines in them.
    pub groups: u64,
    /// Lines in them.
    pub lines: u64,
    /// Syncs that made them durable, as far as they tell: groups appended between the same two syncs count as one.
    pub syncs: u64,
    /// How the log ended.
    pub end: LogEnd,
}

/// Where a log ends, and what has to be written again because nobody knows whether it is durable.
pub(super) struct Replayed {
    pub(super) replay: Replay,
    pub(super) end: u64,
    pub(super) durable: u64,
    /// The pool's length as the log has it.
    pub(super) length: Option<u64>,
}

/// Reads all frames; `use_line` gets each line's number and bytes, `grow` each new length of the pool.
pub(super) fn replay(
    log: &Log,
    header: &Header,
    mut use_line: impl FnMut(u64, &[u8; LINE_BYTES]) -> Result<(), LogError>,
    mut grow: impl FnMut(u64) -> Result<(), LogError>,
) -> Result<Replayed, LogError> {
    let mut found = Replayed {
        replay: Replay { bytes: 0, groups: 0, lines: 0, syncs: 0, end: LogEnd::Empty },
        end: header.start,
        durable: header.start,
        length: None,
    };
    let limit = header.start + header.capacity;
    let mut reader = Reader::new(log, limit);
    let mut synced = None;
    for (index, range) in header.ranges.iter().enumerate() {
        let next = header.ranges.get(index + 1);
        while next.is_none_or(|next| found.end < next.begin) {
            let (frame_header, frame) =
                match reader.look(found.end, range.incarnation).map_err(refused("read the log"))? {
                    Found::Frame(header, frame) => (header, frame),
                    other => {
                        let broken = matches!(other, Found::Broken);
                        if next.is_some() {
                            return Err(damaged(log, found.end, "a frame that was durable cannot be read"));
                        }
                        return finish(log, found, range.incarnation, broken);
                    }
                };
            for (number, line) in lines_of(frame) {
                if number == LENGTH {
                    grow(first_word(line))?;
                    found.length = Some(first_word(line));
                } else {
                    use_line(number, line)?;
                }
            }
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
        // What an open found is durable.
        found.durable = found.durable.max(next.map_or(0, |next| next.begin));
    }
    Ok(found)
}

fn damaged(log: &Log, position: u64, what: &str) -> LogError {
    LogError::Damaged { position: log.physical(position), what: what.to_owned() }
}

/// The log ends here: is that a tail, or damage?
fn finish(log: &Log, mut found: Replayed, incarnation: u32, broken: bool) -> Result<Replayed, LogError> {
    let ring_end = log.start() + log.capacity();
    let behind = look_behind(log, found.end, incarnation, ring_end).map_err(refused("read the log"))?;
    if behind == Behind::Durable {
        return Err(lost(log, found.end));
    }
    let torn = broken || behind == Behind::Something;
    found.replay.end = if torn { LogEnd::Torn } else { LogEnd::Clean };
    Ok(found)
}

/// What lies behind the end of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Behind {
    /// Nothing, or what an earlier lap left.
    Nothing,
    /// Parts of what was being written.
    Something,
    /// A frame that says that the end was durable beyond.
    Durable,
}

/// Damage that a later frame tells of.
pub(super) fn lost(log: &Log, end: u64) -> LogError {
    damaged(log, end, "no frame can be read here, but a later one says that it was durable")
}

/// Looks behind the `end` of a log, up to `ring_end`.
pub(super) fn look_behind(log: &Log, end: u64, incarnation: u32, ring_end: u64) -> io::Result<Behind> {
    let mut reader = Reader::new(log, ring_end);
    let mut behind = Behind::Nothing;
    let mut position = end + 8;
    // One that was appended when this place was durable may be as far away as ever was appended without a sync: so every
    // frame that is found is a reason to look on.
    let mut limit = (end + LOOK_BYTES).min(ring_end);
    while position + FRAME_HEADER_BYTES as u64 <= limit {
        match reader.look(position, incarnation)? {
            Found::Frame(later, _) if later.durable > end => return Ok(Behind::Durable),
            Found::Frame(later, _) => {
                behind = Behind::Something;
                position += later.bytes() as u64;
                limit = (position + LOOK_BYTES).min(ring_end);
            }
            Found::Broken => {
                behind = Behind::Something;
                position += 8;
            }
            Found::Nothing => position += 8,
        }
    }
    Ok(behind)
}
