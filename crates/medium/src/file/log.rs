//! The log's file: its header, its ring, and the reader of frames.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Sizes;
use super::append::Buffer;
use super::error::{LogError, refused};
use super::layout::{
    ANNOUNCEMENT, BLOCK_BYTES, CAPACITY_MIN, CheckpointNotice, FRAME_HEADER_BYTES, FrameHeader,
    HEADER_BYTES, HEADERS, Header, NoHeader, POSITION_MAX, RING, SEQUENCE_MAX, VERSION,
};
use crate::io::{Io, data_from, is_full, read_all, sync_whole, write_all};
use crate::testing::mutant::Mutant;

/// Bytes of a new log that are filled with zeros before it is used.
pub(super) const FILLED_AT_FIRST: u64 = 64 << 10;

/// Where positions of the log lie in its file.
#[derive(Clone, Copy, Debug)]
struct Ring {
    base: u64,
    capacity: u64,
}

impl Ring {
    fn offset(self, position: u64) -> u64 {
        (position - self.base) % self.capacity
    }

    /// Where the lap of a position begins.
    fn lap(self, position: u64) -> u64 {
        position - self.offset(position)
    }
}

/// An idle log that follows the size of its pool has one part in this many of it.
const POOL_FRACTION: u64 = 8;

/// How large the ring of a log is.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LogSizes {
    /// The largest capacity of a log that is new or idle.
    pub(super) idle_bytes: u64,
    /// Whether an idle log of a small pool is smaller.
    pub(super) follows_pool: bool,
    /// The largest capacity that it may grow to.
    pub(super) bytes_max: u64,
}

impl LogSizes {
    /// The capacity of a log that is new or idle, for a pool of this length.
    pub(super) fn idle(self, pool_bytes: u64) -> u64 {
        let wanted = if self.follows_pool {
            self.idle_bytes.min(pool_bytes / POOL_FRACTION)
        } else {
            self.idle_bytes
        };
        wanted.max(CAPACITY_MIN).next_multiple_of(BLOCK_BYTES)
    }
}

/// The newer of a header's two copies.
#[derive(Debug)]
pub(super) struct NewestHeader {
    pub(super) header: Header,
    /// The offset of the other copy, if it fails its check. It may have been the newer one.
    pub(super) unreadable: Option<u64>,
}

/// The result of reading the header of a log's file.
#[derive(Debug)]
pub(super) enum FoundHeader {
    /// At least one copy passes its check.
    Newest(NewestHeader),
    /// No copy passes its check.
    None(NoHeader),
}

/// The log of an open pool, or of a pool that is copied.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) io: Arc<dyn Io>,
    /// Whether a sync has failed; locked while one is under way.
    lost: Mutex<bool>,
    pub(super) uuid: u128,
    ring: Mutex<Ring>,
    wanted: LogSizes,
    /// The largest capacity that it may grow to.
    capacity_max: AtomicU64,
    header: Mutex<Header>,
    /// The part before this position is checkpointed, and may be overwritten.
    start: AtomicU64,
    /// The end of the part of the ring that was filled with zeros or written, as a position of the
    /// first lap. Only grows.
    filled: AtomicU64,
    filling: Mutex<()>,
    /// Where the log began when it was opened.
    pub(super) start_at_open: u64,
    pub(super) sizes: Sizes,
}

impl Log {
    /// The log that `header` describes.
    pub(super) fn new(io: Arc<dyn Io>, header: Header, wanted: LogSizes, sizes: Sizes) -> Self {
        Self {
            io,
            lost: Mutex::new(false),
            uuid: header.uuid,
            ring: Mutex::new(Ring {
                base: header.base,
                capacity: header.capacity,
            }),
            wanted,
            capacity_max: AtomicU64::new(wanted.bytes_max / BLOCK_BYTES * BLOCK_BYTES),
            start: AtomicU64::new(header.start),
            start_at_open: header.start,
            filled: AtomicU64::new(0),
            filling: Mutex::new(()),
            header: Mutex::new(header),
            sizes,
        }
    }

    /// Makes all writes to the log durable. The system reports data that it could not write only
    /// once: to the next sync, whichever thread makes it. So there is one sync at a time, and after
    /// a failed one all fail.
    pub(super) fn sync(&self) -> io::Result<()> {
        let mut lost = self.lost.lock();
        if *lost {
            return Err(io::Error::other("an earlier sync of the log failed"));
        }
        sync_whole(&*self.io).inspect_err(|_| *lost = true)
    }

    /// The newer whole header of a log's file.
    pub(super) fn read_header(io: &dyn Io) -> Result<FoundHeader, LogError> {
        let mut copies = Vec::new();
        for offset in HEADERS {
            let mut bytes = [0; HEADER_BYTES];
            read_all(io, &mut bytes, offset).map_err(refused("read the log's header"))?;
            copies.push(Header::decode(&bytes));
        }
        let newest = copies
            .iter()
            .filter_map(|copy| copy.as_ref().ok())
            .max_by_key(|header| header.sequence);
        if let Some(header) = newest {
            let unreadable = copies
                .iter()
                .position(Result::is_err)
                .map(|copy| HEADERS[copy]);
            return Ok(FoundHeader::Newest(NewestHeader {
                header: header.clone(),
                unreadable,
            }));
        }
        for copy in &copies {
            if let Err(NoHeader::Version(found)) = copy {
                return Err(LogError::Version {
                    found: *found,
                    supported: VERSION,
                });
            }
        }
        // A damaged copy tells more than a blank or foreign one: there was a header.
        let is_damaged = copies.contains(&Err(NoHeader::Damaged));
        let is_blank = copies.iter().all(|copy| *copy == Err(NoHeader::Blank));
        let reason = if is_damaged {
            NoHeader::Damaged
        } else if is_blank {
            NoHeader::Blank
        } else {
            NoHeader::Foreign
        };
        Ok(FoundHeader::None(reason))
    }

    /// Changes the header and makes it durable, together with all of the log that was written.
    pub(super) fn update(&self, change: impl FnOnce(&mut Header)) -> io::Result<()> {
        let mut header = self.header.lock();
        let mut new = header.clone();
        change(&mut new);
        new.sequence += 1;
        if new.sequence > SEQUENCE_MAX {
            return Err(io::Error::other(
                "the sequence number in its header is too large",
            ));
        }
        write_all(&*self.io, &new.encode(), new.place())?;
        self.sync()?;
        *header = new;
        // ORDER: pairs with the acquire in `start`: the header says so durably.
        self.start.store(header.start, Ordering::Release);
        Ok(())
    }

    /// Says to readers in other processes that lines up to `position` are about to be written to the
    /// pool's file. This is not made durable.
    pub(super) fn announce(&self, position: u64) -> io::Result<()> {
        if Mutant::Unannounced.is_planted() {
            return Ok(());
        }
        let header = self.header();
        let newest = header.ranges.last();
        let notice = CheckpointNotice {
            position,
            incarnation: newest.map_or(0, |range| range.incarnation),
        };
        write_all(&*self.io, &notice.encode(), ANNOUNCEMENT)
    }

    /// Writes both copies of a new log's header. If either is damaged later, the other one shows
    /// that the file is a log. Durable with the next sync.
    pub(super) fn write_first_header(&self) -> io::Result<()> {
        let mut header = self.header.lock();
        for _ in HEADERS {
            header.sequence += 1;
            write_all(&*self.io, &header.encode(), header.place())?;
        }
        Ok(())
    }

    /// Writes the header again as it is. Durable with the next sync.
    pub(super) fn rewrite_header(&self) -> io::Result<()> {
        let header = self.header.lock();
        write_all(&*self.io, &header.encode(), header.place())
    }

    /// This log with a ring up to the end of the file, in case the header that recorded the growth
    /// is lost; `None` if the file ends with the ring.
    pub(super) fn as_grown(&self) -> io::Result<Option<Self>> {
        let header = self.header();
        let base = self.ring().lap(header.start);
        let capacity = self.io.length()?.saturating_sub(RING);
        let is_larger = capacity > header.capacity && capacity.is_multiple_of(BLOCK_BYTES);
        Ok(is_larger.then(|| {
            Self::new(
                Arc::clone(&self.io),
                Header {
                    capacity,
                    base,
                    ..header
                },
                LogSizes::default(),
                self.sizes,
            )
        }))
    }

    /// Whether the ring holds a whole frame with a position from `end` on for which `is_wanted`.
    /// Reads all of the ring but holes.
    pub(super) fn has_frame(
        &self,
        end: u64,
        is_wanted: impl Fn(&FrameHeader) -> bool,
    ) -> io::Result<bool> {
        let ring = self.ring();
        let mut reader =
            FrameReader::new(self, ring.base + ring.capacity + FRAME_HEADER_BYTES as u64);
        let mut place = ring.base;
        while place < ring.base + ring.capacity {
            if place.is_multiple_of(BLOCK_BYTES) {
                let Some(data) = data_from(&*self.io, RING + ring.offset(place))? else {
                    break;
                };
                let block = data - data % BLOCK_BYTES;
                if block > RING + ring.offset(place) {
                    place = ring.base + (block - RING);
                    continue;
                }
            }
            let here = place;
            place += 8;
            let Some(bytes) = reader.bytes(here, FRAME_HEADER_BYTES)? else {
                break;
            };
            let position = FrameHeader::position_in(bytes);
            if position < end
                || position > POSITION_MAX
                || ring.offset(position) != ring.offset(here)
            {
                continue;
            }
            let Some(frame) = FrameHeader::decode(bytes, position).filter(&is_wanted) else {
                continue;
            };
            let mut frames = FrameReader::new(self, position + frame.bytes() as u64);
            if matches!(
                frames.look(position, frame.incarnation)?,
                LogItem::Frame(..)
            ) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn header(&self) -> Header {
        self.header.lock().clone()
    }

    pub(super) fn start(&self) -> u64 {
        self.start.load(Ordering::Acquire)
    }

    fn ring(&self) -> Ring {
        *self.ring.lock()
    }

    /// Bytes of the ring.
    pub(super) fn capacity(&self) -> u64 {
        self.ring().capacity
    }

    /// Where a position lies in the file.
    pub(super) fn physical(&self, position: u64) -> u64 {
        RING + self.ring().offset(position)
    }

    /// Makes the ring up to twice as large, if `limit`, its own limit and the disk allow it.
    /// Returns whether it did. The ring is written up to `end`; the caller sees to it that no
    /// thread reads or writes it meanwhile.
    ///
    /// The frames in the ring stay in place. So the ring grows only while they do not wrap around
    /// its end: their lap becomes the first lap of the larger ring. A ring without frames begins
    /// anew.
    pub(super) fn grow(&self, end: u64, limit: u64) -> io::Result<bool> {
        let _filling = self.filling.lock();
        let ring = self.ring();
        let limit = limit / BLOCK_BYTES * BLOCK_BYTES;
        let capacity = (2 * ring.capacity)
            .min(limit)
            .min(self.capacity_max.load(Ordering::Relaxed));
        let start = self.start();
        let is_empty = start == end;
        let base = if is_empty {
            start - start % BLOCK_BYTES
        } else {
            ring.lap(start)
        };
        // Growing takes two syncs, so the log does not grow by small steps.
        if capacity < ring.capacity / 4 * 5 || end > base + ring.capacity {
            return Ok(false);
        }
        if let Err(error) = self.io.allocate(RING + ring.capacity, RING + capacity) {
            if !is_full(&error) {
                return Err(error);
            }
            // The failed call may have taken the rest of the room on the disk.
            self.io.truncate(RING + ring.capacity)?;
            // The log does not try again.
            self.capacity_max.store(ring.capacity, Ordering::Relaxed);
            return Ok(false);
        }
        // The file must have its new length durably before the header says so.
        self.sync()?;
        // If a ring begins anew, new frames do not lie where the older copy of the header says, so
        // neither copy may be the older one.
        let copies = if is_empty { HEADERS.len() } else { 1 };
        for _ in 0..copies {
            self.update(|header| {
                header.base = base;
                header.capacity = capacity;
            })?;
        }
        *self.ring.lock() = Ring { base, capacity };
        // The new part is not filled with zeros yet.
        let filled = self.filled.load(Ordering::Relaxed);
        let filled_bytes = filled.saturating_sub(ring.base).min(ring.capacity);
        self.filled.store(base + filled_bytes, Ordering::Relaxed);
        Ok(true)
    }

    /// The capacity that an idle log of a pool of this length is to have.
    pub(super) fn capacity_idle(&self, pool_bytes: u64) -> u64 {
        self.wanted.idle(pool_bytes)
    }

    /// Whether the ring is larger than an idle one is to be.
    pub(super) fn is_grown(&self, pool_bytes: u64) -> bool {
        self.capacity() > self.capacity_idle(pool_bytes)
    }

    /// Cuts off the part of the file behind the ring, which is left of a larger ring. Both copies
    /// of the header name this ring.
    pub(super) fn cut(&self) -> io::Result<()> {
        let length = RING + self.capacity();
        if self.io.length()? > length {
            self.io.truncate(length)
        } else {
            Ok(())
        }
    }

    /// Makes a ring that has grown as small as an idle one is to be. It holds nothing from its
    /// start on; the caller sees to it that no thread reads or writes it meanwhile.
    pub(super) fn shrink(&self, pool_bytes: u64) -> io::Result<()> {
        let _filling = self.filling.lock();
        if !self.is_grown(pool_bytes) {
            return Ok(());
        }
        let start = self.start();
        let ring = Ring {
            base: start - start % BLOCK_BYTES,
            capacity: self.capacity_idle(pool_bytes),
        };
        // Both copies have to name the smaller ring durably before the file is cut: a copy that
        // names the larger one would lead an open beyond the file's end.
        for _ in HEADERS {
            self.update(|header| {
                header.base = ring.base;
                header.capacity = ring.capacity;
            })?;
        }
        *self.ring.lock() = ring;
        // The ring lies where the larger one began, which was written before.
        self.set_filled();
        self.cut()
    }

    /// Whether the ring has room up to `end`, its last block included.
    pub(super) fn has_room(&self, end: u64) -> bool {
        let start = self.start();
        end.next_multiple_of(BLOCK_BYTES) - (start - start % BLOCK_BYTES) <= self.capacity()
            || Mutant::NoRoomNeeded.is_planted()
    }

    /// Writes a buffer, padded with zeros to whole blocks. There is room for it.
    pub(super) fn write(&self, buffer: &mut Buffer) -> io::Result<()> {
        let bytes = buffer.bytes.len();
        buffer
            .bytes
            .resize(bytes.next_multiple_of(BLOCK_BYTES as usize), 0);
        self.pass(buffer.end());
        let result = self.write_ring(buffer.first, &buffer.bytes);
        buffer.bytes.truncate(bytes);
        result
    }

    pub(super) fn write_ring(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        let ring = self.ring();
        let offset = ring.offset(position);
        let to_end = (ring.capacity - offset) as usize;
        let (first, rest) = bytes.split_at(bytes.len().min(to_end));
        write_all(&*self.io, first, RING + offset)?;
        if rest.is_empty() {
            Ok(())
        } else {
            write_all(&*self.io, rest, RING)
        }
    }

    pub(super) fn read_ring(&self, position: u64, bytes: &mut [u8]) -> io::Result<()> {
        let ring = self.ring();
        let offset = ring.offset(position);
        let to_end = (ring.capacity - offset) as usize;
        let length = bytes.len().min(to_end);
        let (first, rest) = bytes.split_at_mut(length);
        read_all(&*self.io, first, RING + offset)?;
        if rest.is_empty() {
            Ok(())
        } else {
            read_all(&*self.io, rest, RING)
        }
    }

    /// Fills the beginning of a new log's ring with zeros, as [`Log::fill_ahead`] does with the rest.
    /// Durable with the next sync.
    pub(super) fn fill_first(&self) {
        let _filling = self.filling.lock();
        let bytes = FILLED_AT_FIRST.min(self.capacity());
        if self.filled.load(Ordering::Relaxed) >= bytes {
            return;
        }
        if self.write_ring(0, &vec![0; bytes as usize]).is_ok() {
            self.filled.store(bytes, Ordering::Relaxed);
        } else {
            self.set_filled();
        }
    }

    /// Fills the next part of the ring with zeros before the log reaches it first: a sync of blocks
    /// that were written before is cheaper than one of blocks that were only allocated. Returns
    /// whether more is to be filled up to `end + ahead`.
    pub(super) fn fill_ahead(&self, end: u64, ahead: u64) -> io::Result<bool> {
        const PART: u64 = 1 << 20;
        let _filling = self.filling.lock();
        let whole = self.first_lap_end();
        let wanted = (end + ahead).min(whole);
        let from = self.filled.load(Ordering::Relaxed);
        if from >= wanted {
            return Ok(false);
        }
        let wanted = wanted.next_multiple_of(BLOCK_BYTES);
        let to = (from + PART).min(wanted);
        // Zeros only make syncs cheaper: if they cannot be written, the log does without.
        if self
            .write_ring(from, &vec![0; (to - from) as usize])
            .is_err()
        {
            self.set_filled();
            return Ok(false);
        }
        self.sync()?;
        self.filled.store(to, Ordering::Relaxed);
        Ok(to < wanted)
    }

    /// To be called before a write up to `end`: from now on zeros are written only behind `end`.
    fn pass(&self, end: u64) {
        if end > self.filled.load(Ordering::Relaxed) {
            // Waits for zeros that are being written to the same blocks.
            let _filling = self.filling.lock();
            self.filled.fetch_max(end, Ordering::Relaxed);
        }
    }

    fn first_lap_end(&self) -> u64 {
        let ring = self.ring();
        ring.base + ring.capacity
    }

    /// Whether there are blocks before `end` that need to be filled.
    pub(super) fn wants_zeros(&self, end: u64) -> bool {
        self.filled.load(Ordering::Relaxed) < end.min(self.first_lap_end())
    }

    /// Stops filling the ring: it was used before, or zeros cannot be written.
    pub(super) fn set_filled(&self) {
        self.filled.store(u64::MAX, Ordering::Relaxed);
    }
}

/// The frame, if any, at a position of the log.
#[derive(Debug)]
pub(super) enum LogItem<'w> {
    Frame(FrameHeader, &'w [u8]),
    /// No frame of this position and incarnation.
    Nothing,
    /// The header of such a frame; but the frame fails its check or is cut off.
    Broken,
}

/// Reads frames one after the other.
pub(super) struct FrameReader<'l> {
    log: &'l Log,
    /// Nothing is read from this position on.
    limit: u64,
    window: Arc<Vec<u8>>,
    window_first: u64,
    /// Earlier windows, which are used again when no caller keeps them any more.
    earlier: Vec<Arc<Vec<u8>>>,
}

impl<'l> FrameReader<'l> {
    pub(super) fn new(log: &'l Log, limit: u64) -> Self {
        Self {
            log,
            limit,
            window: Arc::default(),
            window_first: 0,
            earlier: Vec::new(),
        }
    }

    /// The bytes that were read last, and their position. They do not change as long as a caller
    /// keeps them.
    pub(super) fn window(&self) -> (&Arc<Vec<u8>>, u64) {
        (&self.window, self.window_first)
    }

    /// Puts a window that no caller keeps in the place of the last one.
    fn free_window(&mut self) -> &mut Vec<u8> {
        if Arc::get_mut(&mut self.window).is_none() {
            let free = self
                .earlier
                .iter_mut()
                .position(|window| Arc::get_mut(window).is_some());
            let free = free
                .map(|free| self.earlier.swap_remove(free))
                .unwrap_or_default();
            self.earlier.push(std::mem::replace(&mut self.window, free));
        }
        Arc::get_mut(&mut self.window).expect("this is the only owner")
    }

    /// `bytes` bytes from `position`; `None` behind the limit.
    fn bytes(&mut self, position: u64, bytes: usize) -> io::Result<Option<&[u8]>> {
        if position + bytes as u64 > self.limit {
            return Ok(None);
        }
        let window_end = self.window_first + self.window.len() as u64;
        if position < self.window_first || position + bytes as u64 > window_end {
            let first = position - position % BLOCK_BYTES;
            let wanted = self
                .log
                .sizes
                .window_bytes
                .max(bytes + BLOCK_BYTES as usize) as u64;
            let length = wanted.min(self.limit - first);
            let log = self.log;
            self.window_first = first;
            let window = self.free_window();
            window.resize(length as usize, 0);
            log.read_ring(first, window)?;
        }
        let begin = (position - self.window_first) as usize;
        Ok(Some(&self.window[begin..begin + bytes]))
    }

    /// The frame at a place of the ring, whatever its position and incarnation, for a log without a
    /// header. The log's base is 0, so that a position of this reader is a place.
    pub(super) fn look_at(&mut self, place: u64) -> io::Result<LogItem<'_>> {
        let header = match self.bytes(place, FRAME_HEADER_BYTES)? {
            Some(bytes) => FrameHeader::decode(bytes, FrameHeader::position_in(bytes)),
            None => None,
        };
        let Some(header) = header else {
            return Ok(LogItem::Nothing);
        };
        // A ring consists of blocks, and begins with the position of a block.
        let is_possible =
            header.position <= POSITION_MAX && header.position % BLOCK_BYTES == place % BLOCK_BYTES;
        if !is_possible {
            return Ok(LogItem::Nothing);
        }
        Ok(match self.bytes(place, header.bytes())? {
            Some(frame) if FrameHeader::checksum(frame) == header.check => {
                LogItem::Frame(header, frame)
            }
            _ => LogItem::Nothing,
        })
    }

    /// The frame at `position`, if it is of this incarnation.
    pub(super) fn look(&mut self, position: u64, incarnation: u32) -> io::Result<LogItem<'_>> {
        let header = match self.bytes(position, FRAME_HEADER_BYTES)? {
            Some(bytes) => FrameHeader::decode(bytes, position),
            None => None,
        };
        let Some(header) = header.filter(|header| header.incarnation == incarnation) else {
            return Ok(LogItem::Nothing);
        };
        Ok(match self.bytes(position, header.bytes())? {
            Some(frame) if FrameHeader::checksum(frame) == header.check => {
                LogItem::Frame(header, frame)
            }
            _ => LogItem::Broken,
        })
    }
}
