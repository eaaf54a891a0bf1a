//! Appending groups of lines to the log, in memory; `commit` writes them out.
//!
//! Lines are captured and appended under the lock around [`Appender`], so the log has them in the
//! order of their captures. A prefix of the log is therefore a state that the flushed part of the
//! memory once had.

use std::collections::VecDeque;

use super::layout::{BLOCK_BYTES, FRAME_HEADER_BYTES, FRAME_LINE_BYTES, FrameHeader};
use crate::LineValue;
use crate::testing::mutant::Mutant;

/// A buffer with this many bytes is full.
const BUFFER_BYTES: usize = 1 << 20;
/// Buffers that are kept to be used again.
const SPARE_MAX: usize = 4;

/// Bytes of the log from a block boundary on. The first block may repeat bytes that were written
/// already.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) first: u64,
    pub(super) bytes: Vec<u8>,
    /// Frames that begin in this buffer.
    pub(super) frames: u64,
    /// Bytes at the beginning that are repeated.
    repeated: usize,
}

impl Buffer {
    pub(super) fn end(&self) -> u64 {
        self.first + self.bytes.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.len() == self.repeated
    }
}

/// The end of the log, in memory.
#[derive(Debug)]
pub(super) struct Appender {
    incarnation: u32,
    buffer_bytes: usize,
    current: Buffer,
    full: VecDeque<Buffer>,
    spare: Vec<Vec<u8>>,
    /// Groups appended, for the figures.
    pub(super) frames: u64,
    pub(super) lines: u64,
}

/// The size of a buffer for a ring of this capacity.
fn buffer_bytes(capacity: u64) -> usize {
    BUFFER_BYTES.min(capacity as usize / 8)
}

impl Appender {
    /// The end of a log at `end`; `block` is the content of its last, unfinished block.
    pub(super) fn new(incarnation: u32, end: u64, block: &[u8], capacity: u64) -> Self {
        debug_assert_eq!(end % BLOCK_BYTES, block.len() as u64);
        let current = Buffer {
            first: end - block.len() as u64,
            bytes: block.to_vec(),
            frames: 0,
            repeated: block.len(),
        };
        Self {
            incarnation,
            buffer_bytes: buffer_bytes(capacity),
            current,
            full: VecDeque::new(),
            spare: Vec::new(),
            frames: 0,
            lines: 0,
        }
    }

    /// From now on buffers fit into a ring of this capacity.
    pub(super) fn set_capacity(&mut self, capacity: u64) {
        self.buffer_bytes = buffer_bytes(capacity);
    }

    /// The position behind the last frame.
    pub(super) fn end(&self) -> u64 {
        self.current.end()
    }

    /// Appends one frame of `count` lines, which `line` captures one after the other. Returns where
    /// it ends.
    #[inline]
    pub(super) fn append(
        &mut self,
        durable: u64,
        count: usize,
        mut line: impl FnMut(usize) -> (u64, LineValue),
    ) -> u64 {
        let bytes = FRAME_HEADER_BYTES + count * FRAME_LINE_BYTES;
        if self.current.bytes.len() + bytes > self.buffer_bytes && !self.current.is_empty() {
            let full = self.rotate();
            self.full.push_back(full);
        }
        let position = self.end();
        let buffer = &mut self.current.bytes;
        let begin = buffer.len();
        buffer.reserve(bytes);
        let incarnation = self.incarnation;
        let lines = count as u32;
        let durable = match durable {
            _ if Mutant::NothingSaidDurable.is_planted() => 0,
            _ if Mutant::AllSaidDurable.is_planted() => position,
            durable => durable,
        };
        let mut header = FrameHeader {
            check: 0,
            lines,
            position,
            incarnation,
            durable,
        };
        buffer.extend_from_slice(&header.encode());
        for index in 0..count {
            let (number, value) = line(index);
            buffer.extend_from_slice(&number.to_le_bytes());
            for word in value.0 {
                buffer.extend_from_slice(&word.to_le_bytes());
            }
        }
        header.check = FrameHeader::checksum(&buffer[begin..]);
        buffer[begin..begin + 4].copy_from_slice(&header.check.to_le_bytes());
        self.current.frames += 1;
        self.frames += 1;
        self.lines += count as u64;
        self.end()
    }

    /// The oldest buffer that is not written yet.
    pub(super) fn take(&mut self) -> Option<Buffer> {
        if let Some(full) = self.full.pop_front() {
            return Some(full);
        }
        if self.current.is_empty() {
            None
        } else {
            Some(self.rotate())
        }
    }

    /// Takes back a buffer that was written.
    pub(super) fn give_back(&mut self, buffer: Buffer) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(buffer.bytes);
        }
    }

    /// Returns the current buffer, and begins a new one with its unfinished block.
    fn rotate(&mut self) -> Buffer {
        let end = self.current.end();
        let first = end - end % BLOCK_BYTES;
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(&self.current.bytes[(first - self.current.first) as usize..]);
        let repeated = bytes.len();
        std::mem::replace(
            &mut self.current,
            Buffer {
                first,
                bytes,
                frames: 0,
                repeated,
            },
        )
    }
}
