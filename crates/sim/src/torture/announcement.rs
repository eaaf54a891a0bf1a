//! The operations of writers, their keys and values, and the records that announce them.

use super::TortureWorkload;

/// Whether a tree has words.
pub fn has_words(tree: u8) -> bool {
    tree % 2 == 1
}

/// One key in this many is used by all threads; each other one belongs to one thread, so that its
/// history is known exactly.
const SHARED_EVERY: u32 = 8;

/// A version of a key's value: the number of the write that made it. Never 0.
pub type ValueVersion = u64;

/// The version that an operation writes.
pub fn version(round: u32, thread: u8, sequence: u32) -> ValueVersion {
    u64::from(round) << 40 | u64::from(thread) << 32 | u64::from(sequence)
}

/// Spreads a number over all 64 bits, one to one.
pub fn spread(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The thread that a key belongs to; `None` if all threads use it.
pub fn owner(key: u32, threads: u8) -> Option<u8> {
    (!key.is_multiple_of(SHARED_EVERY)).then(|| (spread(u64::from(key)) % u64::from(threads)) as u8)
}

/// The bytes of a key: numbers in a tree of words; elsewhere short ones, long ones, and many that
/// tie in their first 8 bytes.
pub fn key_bytes(tree: u8, key: u32) -> Vec<u8> {
    if has_words(tree) {
        return spread(u64::from(key)).to_be_bytes().to_vec();
    }
    let number = key.to_be_bytes();
    match key % 4 {
        0 => number.to_vec(),
        1 => [b"shared prefix ".as_slice(), &number].concat(),
        2 => [
            b"shared prefix, longer than a word ".as_slice(),
            &spread(u64::from(key)).to_be_bytes(),
            &number,
        ]
        .concat(),
        _ => [
            &spread(u64::from(key)).to_be_bytes()[..6],
            &number,
            &[b'.'; 90],
        ]
        .concat(),
    }
}

/// The bytes of a version: the version itself, and in a tree of records a tail that follows from
/// it, mostly short, sometimes of several slabs.
pub fn value_bytes(tree: u8, version: ValueVersion) -> Vec<u8> {
    if has_words(tree) {
        return version.to_be_bytes().to_vec();
    }
    let random = spread(version);
    let tail = match random % 4096 {
        0 => 70_000 + (random >> 32) % 100_000,
        1..16 => 4000 + (random >> 32) % 8000,
        16..256 => (random >> 32) % 1000,
        _ => (random >> 32) % 48,
    };
    let length = 8 + tail as usize;
    let mut bytes = Vec::with_capacity(length + 8);
    bytes.extend_from_slice(&version.to_be_bytes());
    let mut word = random;
    while bytes.len() < length {
        word = word.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The version with exactly these bytes.
pub fn version_of(tree: u8, bytes: &[u8]) -> Option<ValueVersion> {
    let version = u64::from_be_bytes(*bytes.first_chunk::<8>()?);
    (version != 0 && value_bytes(tree, version) == bytes).then_some(version)
}

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationKind {
    /// Adds a key if it is absent.
    Insert,
    /// Replaces the value of a key that is present.
    Update,
    /// Sets the value of a key.
    Put,
    /// Removes a key.
    Remove,
    /// From the expected version to the new one.
    Exchange,
    /// From the expected version to nothing.
    ExchangeOut,
    /// A read; its answer is the next record's `seen`.
    Get,
    /// The end of an epoch: operations acknowledged before it began are durable when it is
    /// acknowledged.
    Sync,
    /// The transfer with this version; false if one of its conditions failed.
    Batch,
}

impl OperationKind {
    const ALL: [Self; 9] = [
        Self::Insert,
        Self::Update,
        Self::Put,
        Self::Remove,
        Self::Exchange,
        Self::ExchangeOut,
        Self::Get,
        Self::Sync,
        Self::Batch,
    ];

    /// Whether the operation writes its version.
    pub fn writes(self) -> bool {
        matches!(
            self,
            Self::Insert | Self::Update | Self::Put | Self::Exchange
        )
    }

    /// Whether the operation removes the key.
    pub fn removes(self) -> bool {
        matches!(self, Self::Remove | Self::ExchangeOut)
    }
}

/// Bytes of a record: its fields, and their CRC32C.
pub const ANNOUNCEMENT_BYTES: usize = FIELD_BYTES + 4;
const FIELD_BYTES: usize = 32;

/// The record that a writer thread sends before each operation: how its last one ended, and the
/// next one. The order of records is the order in time: an operation that is acknowledged before
/// another is announced ended before that began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// The thread.
    pub thread: u8,
    /// The answer of the thread's last operation; `None` in its first record.
    pub answer: Option<bool>,
    /// The version that the last operation read, if it was a read; 0 for none.
    pub seen: ValueVersion,
    /// The kind of the operation.
    pub kind: OperationKind,
    /// The tree, by its number.
    pub tree: u8,
    /// The key, by its number.
    pub key: u32,
    /// The version that is written.
    pub version: ValueVersion,
    /// The version that an exchange expects.
    pub expected: ValueVersion,
}

impl Announcement {
    /// The bytes of the record.
    pub fn encode(&self) -> [u8; ANNOUNCEMENT_BYTES] {
        let mut bytes = [0; ANNOUNCEMENT_BYTES];
        let kind = OperationKind::ALL
            .iter()
            .position(|kind| *kind == self.kind)
            .unwrap_or_default();
        let answer = self.answer.map_or(2, u8::from);
        bytes[..4].copy_from_slice(&[self.thread, answer, kind as u8, self.tree]);
        bytes[4..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.expected.to_le_bytes());
        bytes[24..FIELD_BYTES].copy_from_slice(&self.seen.to_le_bytes());
        let check = crc32c::crc32c(&bytes[..FIELD_BYTES]);
        bytes[FIELD_BYTES..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Decodes a record, as [`Announcement::decode`] does. Returns `None` also for trees and keys
    /// that the workload does not have.
    pub(super) fn decode_of(
        workload: &TortureWorkload,
        bytes: &[u8; ANNOUNCEMENT_BYTES],
    ) -> Option<Self> {
        let announcement = Self::decode(bytes)?;
        let is_known =
            announcement.key < workload.key_count() && announcement.tree < workload.tree_count();
        is_known.then_some(announcement)
    }

    /// `None` for bytes that no thread writes: zeros, or a part of a record.
    pub fn decode(bytes: &[u8; ANNOUNCEMENT_BYTES]) -> Option<Self> {
        let (fields, check) = bytes.split_last_chunk::<4>()?;
        if u32::from_le_bytes(*check) != crc32c::crc32c(fields) {
            return None;
        }
        let word = |at: usize| {
            bytes[at..]
                .first_chunk::<8>()
                .map(|bytes| u64::from_le_bytes(*bytes))
        };
        Some(Self {
            thread: bytes[0],
            answer: match bytes[1] {
                0 => Some(false),
                1 => Some(true),
                2 => None,
                _ => return None,
            },
            kind: *OperationKind::ALL.get(usize::from(bytes[2]))?,
            tree: bytes[3],
            key: u32::from_le_bytes(*bytes[4..].first_chunk()?),
            version: word(8)?,
            expected: word(16)?,
            seen: word(24)?,
        })
    }
}

#[cfg(test)]
mod tests;
