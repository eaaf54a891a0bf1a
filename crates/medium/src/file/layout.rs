//! The log's file, byte by byte.
//!
//! ```text
//! 0x0000  header, first copy     512 bytes of its block
//! 0x1000  header, second copy    the same; the newer whole copy counts
//! 0x2000  announcement           32 bytes of its block: how far checkpoints write
//! 0x3000  ring                   `capacity` bytes of frames
//! ```
//!
//! A *position* counts the bytes ever appended; position `p` lies at `0x3000 + (p - base) %
//! capacity`, where `base` is 0 until the log grows. An LSN is the position at which a group of
//! lines ends.
//!
//! A frame is read as a whole or not at all:
//!
//! ```text
//! word 0   CRC32C of all that follows (bits 0 to 31), lines (32 to 63)
//! word 1   the position of the frame
//! word 2   the log incarnation (0 to 31), eighths of the bytes before the frame that were not durable yet (32 to 63)
//! then     for each line its number in the pool and its 64 bytes; the number !0 stands for a new length of the pool
//! ```
//!
//! A frame names its position, so a frame of an earlier lap of the ring is never taken for a new
//! one. It names its incarnation, which is new at each open, so a frame that an earlier crash left
//! behind a torn one is never taken for a new one. Word 2 says how far the log was durable when the
//! frame was appended: an unreadable frame *before* that position is damage, an unreadable frame
//! behind it a torn tail.

use crate::LINE_BYTES;
use crate::testing::mutant::Mutant;

/// Bytes of a block: the unit of writing.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// The offset of the announcement.
pub(super) const ANNOUNCEMENT: u64 = 2 * BLOCK_BYTES;
pub(super) const ANNOUNCEMENT_BYTES: usize = 32;
/// Where the ring begins.
pub(super) const RING: u64 = 3 * BLOCK_BYTES;
/// The offsets of the header's copies.
pub(super) const HEADERS: [u64; 2] = [0, BLOCK_BYTES];
/// A header fits in one sector.
pub(super) const HEADER_BYTES: usize = 512;
const MAGIC: u64 = u64::from_le_bytes(*b"EVERLLOG");
/// The version of the format that this crate writes.
pub(super) const VERSION: u64 = 4;

pub(super) const FRAME_HEADER_BYTES: usize = 24;
pub(super) const FRAME_LINE_BYTES: usize = 8 + LINE_BYTES;
/// The most lines of a frame. A larger group becomes several frames: only single lines must be
/// whole after a crash.
pub(super) const FRAME_LINES_MAX: usize = 512;
/// A number that stands in the place of a line's number: the first word of the content is then the
/// pool's length.
pub(super) const LENGTH: u64 = u64::MAX;

/// The most incarnations in a log. An open that finds this many makes a checkpoint.
pub(super) const RANGES_MAX: usize = 16;

/// An incarnation, and where it begins. It ends where the next one begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LogRange {
    pub(super) incarnation: u32,
    pub(super) begin: u64,
}

/// The header of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) uuid: u128,
    /// Grows with every header that is written: the copy with the greater number is the newer one.
    pub(super) sequence: u64,
    pub(super) capacity: u64,
    /// The position that lies at the ring's beginning. All positions before it are checkpointed.
    pub(super) base: u64,
    /// The pool's length at the last checkpoint.
    pub(super) pool_bytes: u64,
    /// The position where replay starts. All positions before it are checkpointed.
    pub(super) start: u64,
    /// When the last checkpoint ended, in seconds since 1970; 0 if there was none.
    pub(super) checkpointed_at: u64,
    /// The incarnation of the next open.
    pub(super) incarnation_next: u32,
    /// Oldest first; none in a log whose pool was closed cleanly.
    pub(super) ranges: Vec<LogRange>,
}

/// Why bytes are no header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoHeader {
    /// Zeros: nothing was ever written.
    Blank,
    /// No header of Everleaf.
    Foreign,
    /// It has the magic number, and fails its check.
    Damaged,
    Version(u64),
}

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(
        bytes[8 * index..8 * index + 8]
            .try_into()
            .expect("eight bytes"),
    )
}

const CHECK: usize = HEADER_BYTES / 8 - 1;
const FIXED: usize = 10;

/// The words of a header that hold its content. The last word is the check; the first word of each
/// line is the magic number, so that a header of which a crash wrote only some lines is still
/// recognised.
fn payload() -> impl Iterator<Item = usize> {
    (0..CHECK).filter(|index| !index.is_multiple_of(8))
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut words = [0_u64; HEADER_BYTES / 8];
        words.iter_mut().step_by(8).for_each(|word| *word = MAGIC);
        let fixed = [
            VERSION,
            self.uuid as u64,
            (self.uuid >> 64) as u64,
            self.sequence,
            self.capacity,
            self.pool_bytes,
            self.start,
            u64::from(self.incarnation_next) | (self.ranges.len() as u64) << 32,
            self.base,
            self.checkpointed_at,
        ];
        let ranges = self
            .ranges
            .iter()
            .flat_map(|range| [u64::from(range.incarnation), range.begin]);
        for (index, word) in payload().zip(fixed.into_iter().chain(ranges)) {
            words[index] = word;
        }
        let mut bytes = [0; HEADER_BYTES];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let check = u64::from(crc32c::crc32c(&bytes[..8 * CHECK]));
        bytes[8 * CHECK..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, NoHeader> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(NoHeader::Blank);
        }
        if (0..CHECK)
            .step_by(8)
            .all(|index| word(bytes, index) != MAGIC)
        {
            return Err(NoHeader::Foreign);
        }
        if word(bytes, CHECK) != u64::from(crc32c::crc32c(&bytes[..8 * CHECK])) {
            return Err(NoHeader::Damaged);
        }
        let words: Vec<u64> = payload().map(|index| word(bytes, index)).collect();
        if words[0] != VERSION {
            return Err(NoHeader::Version(words[0]));
        }
        let ranges = (words[7] >> 32) as usize;
        let capacity = words[4];
        let start = words[6];
        let base = words[8];
        let blocks = capacity.is_multiple_of(BLOCK_BYTES) && base.is_multiple_of(BLOCK_BYTES);
        if ranges > RANGES_MAX || !blocks || base > start || start > POSITION_MAX {
            return Err(NoHeader::Damaged);
        }
        let pairs = words[FIXED..].chunks_exact(2).take(ranges);
        let header = Self {
            uuid: u128::from(words[1]) | u128::from(words[2]) << 64,
            sequence: words[3],
            capacity,
            base,
            pool_bytes: words[5],
            start,
            checkpointed_at: words[9],
            incarnation_next: words[7] as u32,
            ranges: pairs
                .map(|pair| LogRange {
                    incarnation: pair[0] as u32,
                    begin: pair[1],
                })
                .collect(),
        };
        if header.is_possible() {
            Ok(header)
        } else {
            Err(NoHeader::Damaged)
        }
    }

    /// Whether the numbers fit together: a forged header may pass its check.
    fn is_possible(&self) -> bool {
        let begins = || self.ranges.iter().map(|range| range.begin);
        (CAPACITY_MIN..=CAPACITY_MAX).contains(&self.capacity)
            && self.sequence <= SEQUENCE_MAX
            && begins().is_sorted()
            && begins().next().is_none_or(|begin| begin <= self.start)
            && begins().all(|begin| begin <= self.start + self.capacity)
    }

    /// Where the copy with this sequence number lies.
    pub(super) fn place(&self) -> u64 {
        HEADERS[(self.sequence % 2) as usize]
    }
}

const _: () = assert!(FIXED + 2 * RANGES_MAX <= CHECK - HEADER_BYTES / 64);

/// The smallest ring. Some frames of the largest size fit into it.
pub(super) const CAPACITY_MIN: u64 = 64 << 10;
/// A bound on rings: no file is so large.
const CAPACITY_MAX: u64 = 1 << 56;
/// A bound on sequence numbers: no header is written so often.
pub(super) const SEQUENCE_MAX: u64 = 1 << 60;
/// A bound on positions: no log gets so far.
pub(super) const POSITION_MAX: u64 = 1 << 60;

/// The first three words of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameHeader {
    pub(super) check: u32,
    pub(super) lines: u32,
    pub(super) position: u64,
    pub(super) incarnation: u32,
    /// How far the log was durable when the frame was appended.
    pub(super) durable: u64,
}

impl FrameHeader {
    /// Bytes of the whole frame.
    pub(super) fn bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.lines as usize * FRAME_LINE_BYTES
    }

    pub(super) fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let behind = u32::try_from((self.position - self.durable) / 8).unwrap_or(u32::MAX);
        let words = [
            u64::from(self.check) | u64::from(self.lines) << 32,
            self.position,
            u64::from(self.incarnation) | u64::from(behind) << 32,
        ];
        let mut bytes = [0; FRAME_HEADER_BYTES];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The position in the first bytes of `bytes`, if these are a frame's header.
    pub(super) fn position_in(bytes: &[u8]) -> u64 {
        word(bytes, 1)
    }

    /// The header in the first bytes of `bytes`, if these are the header of a frame at this
    /// position.
    pub(super) fn decode(bytes: &[u8], position: u64) -> Option<Self> {
        let first = word(bytes, 0);
        let last = word(bytes, 2);
        let behind = (last >> 32) * 8;
        let lines = (first >> 32) as u32;
        let is_here = word(bytes, 1) == position || Mutant::AnyPosition.is_planted();
        let right = is_here && lines as usize <= FRAME_LINES_MAX && behind <= position;
        right.then(|| Self {
            check: first as u32,
            lines,
            position,
            incarnation: last as u32,
            durable: position - behind,
        })
    }

    /// The checksum over all of a frame but the checksum itself.
    pub(super) fn checksum(frame: &[u8]) -> u32 {
        crc32c::crc32c(&frame[4..])
    }
}

/// The frames that `bytes` consist of.
pub(super) fn frames_of(bytes: &[u8]) -> Frames<'_> {
    Frames { rest: bytes }
}

/// The iterator of [`frames_of`].
#[derive(Clone)]
pub(super) struct Frames<'b> {
    rest: &'b [u8],
}

impl<'b> Iterator for Frames<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        let first_word = self.rest.first_chunk::<8>()?;
        let lines = (u64::from_le_bytes(*first_word) >> 32) as usize;
        let bytes = FRAME_HEADER_BYTES + lines * FRAME_LINE_BYTES;
        let (frame, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(frame)
    }
}

/// The lines of a frame: their numbers and their bytes.
pub(super) fn lines_of(frame: &[u8]) -> impl Iterator<Item = (u64, &[u8; LINE_BYTES])> + Clone {
    frame[FRAME_HEADER_BYTES..]
        .chunks_exact(FRAME_LINE_BYTES)
        .map(|line| (word(line, 0), line[8..].first_chunk().expect("64 bytes")))
}

/// The first word of a line: with the number [`LENGTH`], the pool's length.
pub(super) fn first_word(line: &[u8; LINE_BYTES]) -> u64 {
    word(line, 0)
}

/// The position up to which checkpoints have written to the pool's file, or are about to. It is for
/// readers in other processes ([`in_place`](super::in_place)); an open does not need it.
///
/// Word 0 is the magic number, word 1 the position; word 2 has the incarnation (bits 0 to 31) and the
/// CRC32C of the bytes before the check (32 to 63). Zeros stand for position 0: nothing was announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CheckpointNotice {
    pub(super) position: u64,
    /// The incarnation to which the frames before the position belong, or that of a later session.
    pub(super) incarnation: u32,
}

impl CheckpointNotice {
    const NOTHING: Self = Self {
        position: 0,
        incarnation: 0,
    };

    pub(super) fn encode(self) -> [u8; ANNOUNCEMENT_BYTES] {
        let mut bytes = [0; ANNOUNCEMENT_BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.position.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.incarnation.to_le_bytes());
        let check = crc32c::crc32c(&bytes[..20]);
        bytes[20..24].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// `None` for bytes that are none; they may be half written.
    pub(super) fn decode(bytes: &[u8; ANNOUNCEMENT_BYTES]) -> Option<Self> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Some(Self::NOTHING);
        }
        let notice = Self {
            position: word(bytes, 1),
            incarnation: word(bytes, 2) as u32,
        };
        (notice.encode() == *bytes).then_some(notice)
    }

    /// Whether all lines that checkpoints have written since are in a prefix of the log that ends at
    /// `end`, and whose newest frames are of this incarnation.
    ///
    /// A session goes on where the log that it finds ends. If the frames at the end of the session
    /// before were lost, because a sync had failed, this is before `end`, and frames of the new session
    /// lie at positions of the prefix. So a newer incarnation is beyond the prefix, whatever its position.
    pub(super) fn is_within(self, end: u64, incarnation: u32) -> bool {
        if self == Self::NOTHING {
            return true;
        }
        // Incarnations begin with a random number and count on, beyond the greatest one from the
        // beginning.
        let newer_by = self.incarnation.wrapping_sub(incarnation).cast_signed();
        newer_by <= 0 && self.position <= end
    }
}

/// The line of the pool's file that names the log which the pool needs; zeros if it needs none.
/// Both halves of the line say so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LogMark(pub(super) Option<u128>);

impl LogMark {
    pub(super) fn encode(self) -> [u8; LINE_BYTES] {
        let mut bytes = [0; LINE_BYTES];
        if let Some(uuid) = self.0 {
            bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[8..24].copy_from_slice(&uuid.to_le_bytes());
            let check = u64::from(crc32c::crc32c(&bytes[..24]));
            bytes[24..32].copy_from_slice(&check.to_le_bytes());
            bytes.copy_within(..32, 32);
        }
        bytes
    }

    /// The mark in a half that passes its check; `None` if neither does, or if they disagree.
    pub(super) fn decode(bytes: &[u8; LINE_BYTES]) -> Option<Self> {
        let of_half = |half: &[u8]| {
            let uuid = u128::from_le_bytes(half[8..24].try_into().expect("16 bytes"));
            [Self(None), Self(Some(uuid))]
                .into_iter()
                .find(|mark| mark.encode()[..32] == *half)
        };
        let (first, second) = bytes.split_at(32);
        match (of_half(first), of_half(second)) {
            (Some(mark), Some(other)) => (mark == other).then_some(mark),
            (mark, other) => mark.or(other),
        }
    }
}

#[cfg(test)]
mod tests;
