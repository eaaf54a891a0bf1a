//! A damaged pool that is only read: the pool's file, and as much of its log as can be read.
//! Neither file is written.
//!
//! The damage decides how the log is read:
//!
//! 1. If the log is whole, all of it is replayed, as for [`File::image`].
//! 2. If a frame is damaged, the log is replayed up to that frame.
//! 3. If the log's header is damaged, the salvage searches the whole file for frames, and replays
//!    those that follow one another without a gap up to the end of the log ([`readable`]).
//! 4. If the log is missing, or is that of another pool, the pool's file is read without it.
//!
//! In case 3 it is not known which frames were checkpointed. Replaying them again does no harm: each
//! line gets its last content in the end, as all later frames are replayed as well.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::error::{LogError, refused};
use super::find::{LogAccess, LogFile, find, open_log, read_mark};
use super::layout::{
    BLOCK_BYTES, FRAME_HEADER_BYTES, FRAME_LINE_BYTES, FRAME_LINES_MAX, FrameHeader, Header,
    LENGTH, LogMark, RING, first_word, lines_of,
};
use super::log::{FoundHeader, FrameReader, Log, LogItem, LogSizes, NewestHeader};
use super::open::replay_into;
use super::{File, FileOptions, Sizes};
use crate::folder::FilePlace;
use crate::io::{Disk, Io, data_from};
use crate::{Dax, LINE_BYTES, Medium, MediumError};

/// The most bytes of a frame.
const FRAME_BYTES_MAX: u64 = (FRAME_HEADER_BYTES + FRAME_LINES_MAX * FRAME_LINE_BYTES) as u64;

/// A damaged pool in memory.
#[derive(Debug)]
pub struct SalvagedImage {
    /// The pool, as far as it could be read.
    pub image: Dax,
    /// The parts of its files that could not be read.
    pub losses: Vec<ImageLoss>,
}

/// A part of a pool's files that a salvage could not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageLoss {
    /// The pool's file is shorter than it was.
    #[error(
        "the part of the file that was cut off is left out: it has {length} of {expected} bytes"
    )]
    CutOff {
        /// Its length.
        length: u64,
        /// Its length at the last checkpoint.
        expected: u64,
    },
    /// The pool's file was read without the log.
    #[error("the writes that only the log had are left out: {why}")]
    Log {
        /// The reason.
        why: MediumError,
    },
    /// The pool's file does not say any more which log it needs. The log beside it was read.
    #[error("the log beside the pool was taken for its log: {why}")]
    Unnamed {
        /// The damage of the line that names the log.
        why: MediumError,
    },
    /// The log was read up to a damaged frame.
    #[error("the writes that only the log had are left out from the damage on: {why}")]
    EndOfLog {
        /// The damage.
        why: MediumError,
    },
    /// The log was read without its header.
    #[error(
        "some of the writes that only the log had may be left out: {lines} lines were found without its header: {why}"
    )]
    LogHeader {
        /// The lines that were found.
        lines: u64,
        /// The damage of the header.
        why: MediumError,
    },
}

/// The log of a pool that is salvaged.
enum FoundLog {
    /// The pool needs no log.
    Unneeded,
    /// A log with at least one whole copy of its header.
    Headed {
        io: Arc<dyn Io>,
        newest: NewestHeader,
        /// Damage that is not noticed while the log is read.
        loss: Option<ImageLoss>,
    },
    /// The pool needs a log, and the file at its place has no header that can be read.
    Headless { io: Arc<dyn Io>, why: LogError },
}

impl File {
    /// Reads the pool in `pool` into memory, with as much of the log at the place `log` as can be
    /// read. The caller holds the pool's lock. If the log is missing, the result is the state at the
    /// end of a checkpoint, or in the middle of one.
    ///
    /// # Errors
    /// [`MediumError::Map`] if the system gives no memory; [`MediumError::Log`] if it does not open
    /// the pool.
    pub fn salvage_image(
        pool: &fs::File,
        log: &FilePlace,
        options: &FileOptions,
    ) -> Result<SalvagedImage, MediumError> {
        let image = Dax::plain_copy(pool)?;
        let mut losses = Vec::new();
        let pool = Disk(pool.try_clone().map_err(refused("open the pool"))?);
        let loss = match find_log(&pool, log, options.mark_offset) {
            Ok(FoundLog::Unneeded) => None,
            Ok(FoundLog::Headed { io, newest, loss }) => {
                let length = image.extent().length();
                let expected = newest.header.pool_bytes;
                if length < expected && image.grow(expected).is_ok() {
                    losses.push(ImageLoss::CutOff { length, expected });
                }
                losses.extend(loss);
                replay_headed(&image, io, &newest, options)
            }
            Ok(FoundLog::Headless { io, why }) => {
                Some(replay_headless(&image, io, why.into(), options))
            }
            Err(why) => Some(ImageLoss::Log { why: why.into() }),
        };
        losses.extend(loss);
        Ok(SalvagedImage { image, losses })
    }
}

/// The log of the pool in `pool`, which belongs at `place`.
fn find_log(pool: &dyn Io, place: &FilePlace, mark_offset: u64) -> Result<FoundLog, LogError> {
    let mark = match read_mark(pool, mark_offset) {
        Ok(mark) => mark,
        Err(why) => return find_unnamed(place, why),
    };
    let Some(log) = open_log(place, LogAccess::Read)? else {
        return match mark {
            LogMark(None) => Ok(FoundLog::Unneeded),
            LogMark(Some(uuid)) => Err(LogError::Missing { uuid }),
        };
    };
    let io: Arc<dyn Io> = Arc::new(Disk(log));
    let why = match find(&*io, mark) {
        Ok(LogFile::Log(newest)) => {
            return Ok(FoundLog::Headed {
                io,
                newest,
                loss: None,
            });
        }
        Ok(LogFile::Fresh | LogFile::Remains | LogFile::Unneeded) => return Ok(FoundLog::Unneeded),
        Err(why) => why,
    };
    let LogMark(Some(uuid)) = mark else {
        return Err(why);
    };
    if !matches!(why, LogError::Damaged { .. } | LogError::NotALog) {
        return Err(why);
    }
    match Log::read_header(&*io)? {
        FoundHeader::Newest(newest) if newest.header.uuid == uuid => Ok(FoundLog::Headed {
            io,
            newest,
            // The part that is missing reads as zeros, as if nothing had been written there.
            loss: Some(ImageLoss::EndOfLog { why: why.into() }),
        }),
        FoundHeader::Newest(_) => Err(why),
        FoundHeader::None(_) => Ok(FoundLog::Headless { io, why }),
    }
}

/// The log at the place of a pool whose line that names it is damaged, as `why` says.
fn find_unnamed(place: &FilePlace, why: LogError) -> Result<FoundLog, LogError> {
    let Some(log) = open_log(place, LogAccess::Read)? else {
        return Err(why);
    };
    let io: Arc<dyn Io> = Arc::new(Disk(log));
    match Log::read_header(&*io)? {
        FoundHeader::Newest(newest) if !newest.header.ranges.is_empty() => Ok(FoundLog::Headed {
            io,
            newest,
            loss: Some(ImageLoss::Unnamed { why: why.into() }),
        }),
        FoundHeader::Newest(_) | FoundHeader::None(_) => Err(why),
    }
}

/// Replays a log that has a header, as far as it can be read. Returns the part that cannot.
fn replay_headed(
    image: &Dax,
    io: Arc<dyn Io>,
    newest: &NewestHeader,
    options: &FileOptions,
) -> Option<ImageLoss> {
    let header = newest.header.clone();
    let log = Log::new(Arc::clone(&io), header, LogSizes::default(), options.sizes);
    let mapping = image.mapping();
    // Without a function that takes the lines, this checks the log, and stores nothing.
    let checked = replay_into(&log, newest, mapping, None);
    if let Err(why) = checked {
        if newest.unreadable.is_some() {
            // The copy of the header that cannot be read may be the newer one. The frames that
            // follow the start of the older one are checkpointed then, and perhaps overwritten.
            return Some(replay_headless(image, io, why, options));
        }
        // The result is the same as before: this time the frames before the damage are stored.
        let _ = replay_into(&log, newest, mapping, Some(&|_, _| {}));
        return Some(ImageLoss::EndOfLog { why });
    }
    match replay_into(&log, newest, mapping, Some(&|_, _| {})) {
        Ok(_) => None,
        Err(why) => Some(ImageLoss::EndOfLog { why }),
    }
}

/// Replays a log without its header. `why` is the damage of the header.
fn replay_headless(
    image: &Dax,
    io: Arc<dyn Io>,
    why: MediumError,
    options: &FileOptions,
) -> ImageLoss {
    match store_found(image, io, options.sizes) {
        Ok(lines) if lines > 0 => ImageLoss::LogHeader { lines, why },
        // A failure to read the file tells less than the damage of the header.
        Ok(_) | Err(_) => ImageLoss::Log { why },
    }
}

/// Stores the lines of all frames that can be used. Returns how many there are.
fn store_found(image: &Dax, io: Arc<dyn Io>, sizes: Sizes) -> Result<u64, MediumError> {
    let length = io.length().map_err(refused("measure the log"))?;
    let capacity = length.saturating_sub(RING) / BLOCK_BYTES * BLOCK_BYTES;
    if capacity == 0 {
        return Ok(0);
    }
    // A ring whose positions are places: its base is 0.
    let header = Header {
        uuid: 0,
        sequence: 0,
        capacity,
        base: 0,
        pool_bytes: 0,
        start: 0,
        checkpointed_at: 0,
        incarnation_next: 0,
        ranges: Vec::new(),
    };
    let log = Log::new(io, header, LogSizes::default(), sizes);
    let runs = search(&log).map_err(refused("read the log"))?;
    let mut lines = 0;
    for run in readable(runs) {
        lines += store_run(image, &log, &run)?;
    }
    Ok(lines)
}

/// Frames that follow one another without a gap, in the log and in their positions.
#[derive(Clone, Debug)]
struct FoundRun {
    /// Where it begins in the ring.
    place: u64,
    /// The position of its first frame.
    position: u64,
    /// The position behind its last frame.
    end: u64,
    /// The incarnation of its first frame.
    incarnation_first: u32,
    /// The incarnation of its last frame.
    incarnation_last: u32,
    /// How far the log was durable, as its frames say.
    durable: u64,
}

impl FoundRun {
    /// A frame alone.
    fn of(frame: &FrameHeader, place: u64) -> Self {
        Self {
            place,
            position: frame.position,
            end: frame.position + frame.bytes() as u64,
            incarnation_first: frame.incarnation,
            incarnation_last: frame.incarnation,
            durable: frame.durable,
        }
    }

    /// Where it ends in the ring; beyond the ring's end if it goes around that.
    fn place_end(&self) -> u64 {
        self.place + (self.end - self.position)
    }

    /// Whether `next` was appended directly behind it.
    fn leads_to(&self, next: &Self) -> bool {
        next.position == self.end && next.incarnation_first >= self.incarnation_last
    }

    /// Takes the frames of `next` in, to which it leads.
    fn extend(&mut self, next: &Self) {
        self.end = next.end;
        self.incarnation_last = next.incarnation_last;
        self.durable = self.durable.max(next.durable);
    }
}

/// All frames in a ring, in the order of their places.
fn search(log: &Log) -> io::Result<Vec<FoundRun>> {
    let capacity = log.capacity();
    // A frame may go around the ring's end.
    let mut reader = FrameReader::new(log, capacity + FRAME_BYTES_MAX.min(capacity));
    let mut runs: Vec<FoundRun> = Vec::new();
    let mut place = 0;
    while place < capacity {
        if place.is_multiple_of(BLOCK_BYTES) {
            let Some(data) = data_from(&*log.io, RING + place)? else {
                break;
            };
            let block = data - data % BLOCK_BYTES;
            if block > RING + place {
                place = block - RING;
                continue;
            }
        }
        let LogItem::Frame(frame, _) = reader.look_at(place)? else {
            place += 8;
            continue;
        };
        let found = FoundRun::of(&frame, place);
        place = found.place_end();
        match runs.last_mut() {
            Some(run) if run.place_end() == found.place && run.leads_to(&found) => {
                run.extend(&found);
            }
            _ => runs.push(found),
        }
    }
    Ok(runs)
}

/// The runs that are to be replayed, in their order. They follow one another without a gap, and end
/// where the log ends:
///
/// - If a later run says that the log was durable beyond a gap, or belongs to a later incarnation,
///   the gap is damage. The runs before the gap are left out: the pool's file may be newer.
/// - Otherwise the gap is a torn tail. The runs behind it were never acknowledged.
fn readable(mut runs: Vec<FoundRun>) -> Vec<FoundRun> {
    runs.sort_by_key(|run| run.position);
    let mut readable: Vec<FoundRun> = Vec::new();
    for run in runs {
        let Some(last) = readable.last() else {
            readable.push(run);
            continue;
        };
        if last.leads_to(&run) {
            readable.push(run);
            continue;
        }
        let is_behind = run.position > last.end;
        let is_proof = run.durable > last.end || run.incarnation_last > last.incarnation_last;
        if is_behind && is_proof {
            readable.clear();
            readable.push(run);
        }
    }
    readable
}

/// Stores the lines of a run, in the order of its frames. Returns how many they are. Lines outside
/// of the pool are left out.
fn store_run(image: &Dax, log: &Log, run: &FoundRun) -> Result<u64, MediumError> {
    let end = run.place_end();
    let mut reader = FrameReader::new(log, end);
    let mut place = run.place;
    let mut lines = 0;
    while place < end {
        let item = reader.look_at(place).map_err(refused("read the log"))?;
        let LogItem::Frame(frame, bytes) = item else {
            break;
        };
        for (number, line) in lines_of(bytes) {
            if number == LENGTH {
                image.grow(first_word(line))?;
                continue;
            }
            let Some(words) = image.extent().line(number) else {
                continue;
            };
            // The content of the line is not in the file, so its unit must not count as a hole.
            image.mapping().holes().forget(number * LINE_BYTES as u64);
            for (word, bytes) in words.iter().zip(line.as_chunks().0) {
                word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
            }
            lines += 1;
        }
        place += frame.bytes() as u64;
    }
    Ok(lines)
}
