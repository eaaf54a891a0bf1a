//! The pool's first 64 KiB: two copies of the header, the state line, the root table.
//!
//! ```text
//! 0x0000  header, first copy      words: magic, version, features, uuid (2), slab bytes, 0, CRC32C of the seven
//! 0x1000  header, second copy     the same
//! 0x2000  state line              words, each with its check: high-water mark, clean flag, holder's process id, used slots
//! 0x2040  the medium's line       which log the pool needs; never written by the pool
//! 0x2200  epochs, first copy      512 bytes for epochs that trees share; written by engines
//! 0x2400  batches                 64 words that lead to batches being applied; written by engines
//! 0x2800  epochs, second copy     the same
//! 0x3000  root table              its first slots and its directory (roots/pages.rs)
//! 0x10000 slabs                   (space.rs)
//! ```
//!
//! The header never changes after creation, so two copies guard against damage, not against torn
//! writes. The words of the state line do change; each is one atomic store that carries its own
//! 16-bit check.

use medium::{LineForm, Medium, MediumGuard, Word};

use crate::limits::SLAB_BYTES;
use crate::lost_copy::{LostCopy, ordinal};
use crate::{Error, ErrorKind, Result};

/// The version of the format that this crate writes.
pub const FORMAT_VERSION: u32 = 13;

const MAGIC: u64 = u64::from_le_bytes(*b"EVERLEAF");
const COPIES: [u64; 2] = [0x0000, 0x1000];
const HEADER_WORDS: usize = 8;
const STATE: u64 = 0x2000;
/// A line of the prefix that the pool leaves to its medium.
pub const MEDIUM_LINE: u64 = 0x2040;
/// Where the prefix has room for the epochs that trees share: two copies of 512 bytes, which the
/// pool leaves to engines.
pub const EPOCHS: [u64; 2] = [0x2200, 0x2800];
/// Where the prefix has room for pointers to the batches that are being applied: [`BATCH_SLOTS`]
/// words, which the pool leaves to engines.
pub const BATCHES: u64 = 0x2400;
/// Words at [`BATCHES`].
pub const BATCH_SLOTS: usize = 64;
pub(crate) const ROOT_TABLE: u64 = 0x3000;
/// Bytes before the first slab.
pub(crate) const PREFIX_BYTES: u64 = SLAB_BYTES;

/// Feature bit: lines are twins.
const FEATURE_TWIN_LINES: u64 = 1;
const FEATURES_KNOWN: u64 = FEATURE_TWIN_LINES;

/// The facts of a pool that are fixed when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The version of the format.
    pub version: u32,
    /// A random number that no other pool has.
    pub uuid: u128,
    /// The form of its lines.
    pub line_form: LineForm,
}

impl Identity {
    fn encode(&self) -> [u64; HEADER_WORDS] {
        let features = if self.line_form == LineForm::Twin {
            FEATURE_TWIN_LINES
        } else {
            0
        };
        let low = self.uuid as u64;
        let high = (self.uuid >> 64) as u64;
        let mut words = [
            MAGIC,
            u64::from(self.version),
            features,
            low,
            high,
            SLAB_BYTES,
            0,
            0,
        ];
        words[7] = check(&words[..7]);
        words
    }

    fn decode(words: &[u64; HEADER_WORDS]) -> Result<Self> {
        if words[0] != MAGIC {
            return Err(ErrorKind::NotAPool {
                why: "the magic number is missing".to_owned(),
            }
            .into());
        }
        if words[7] != check(&words[..7]) {
            return Err(Error::corrupt(
                0,
                "both copies of the header fail their checksum",
            ));
        }
        if words[1] != u64::from(FORMAT_VERSION) {
            return Err(ErrorKind::Version {
                found: words[1] as u32,
                supported: FORMAT_VERSION,
            }
            .into());
        }
        if words[2] & !FEATURES_KNOWN != 0 {
            return Err(ErrorKind::UnknownFeatures {
                unknown: words[2] & !FEATURES_KNOWN,
            }
            .into());
        }
        if words[5] != SLAB_BYTES {
            return Err(Error::corrupt(40, format!("slabs of {} bytes", words[5])));
        }
        let line_form = if words[2] & FEATURE_TWIN_LINES != 0 {
            LineForm::Twin
        } else {
            LineForm::Single
        };
        let uuid = u128::from(words[3]) | u128::from(words[4]) << 64;
        Ok(Self {
            version: words[1] as u32,
            uuid,
            line_form,
        })
    }
}

fn check(words: &[u64]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    u64::from(crc32c::crc32c(&bytes))
}

/// Writes both headers; the pool exists when that is durable.
pub(crate) fn create<M: Medium>(guard: &MediumGuard<'_, M>, identity: &Identity) -> Result<()> {
    // The first copy is written last: it makes the file a pool.
    for offset in [COPIES[1], COPIES[0]] {
        // PERSIST: nothing must precede, for an open mends a state line of zeros; if this is lost,
        // the file is still blank and is made a pool again.
        write(guard, offset, &identity.encode())?;
    }
    Ok(())
}

fn write<M: Medium>(
    guard: &MediumGuard<'_, M>,
    offset: u64,
    words: &[u64; HEADER_WORDS],
) -> Result<()> {
    let cells = guard.words(offset, HEADER_WORDS)?;
    for (cell, word) in cells.iter().zip(words) {
        cell.store(guard, *word);
    }
    guard.flush_words(cells);
    guard.fence();
    Ok(())
}

fn read<M: Medium>(guard: &MediumGuard<'_, M>, offset: u64) -> Result<[u64; HEADER_WORDS]> {
    let cells = guard.words(offset, HEADER_WORDS)?;
    Ok(std::array::from_fn(|index| cells[index].load(guard)))
}

/// A header that was read.
pub(crate) struct WholeHeader {
    pub(crate) identity: Identity,
    /// The copy that is damaged, if one is.
    pub(crate) damaged: Option<usize>,
    words: [u64; HEADER_WORDS],
}

/// Reads the header, from a copy that is whole.
pub(crate) fn find<M: Medium>(guard: &MediumGuard<'_, M>) -> Result<WholeHeader> {
    let copies = [read(guard, COPIES[0])?, read(guard, COPIES[1])?];
    let decoded = copies.each_ref().map(Identity::decode);
    let found = |identity, whole: usize, damaged| WholeHeader {
        identity,
        damaged,
        words: copies[whole],
    };
    match decoded {
        [Ok(identity), Ok(other)] if identity == other => Ok(found(identity, 0, None)),
        [Ok(_), Ok(_)] => Err(Error::corrupt(
            COPIES[1],
            "the two headers are of different pools",
        )),
        [Ok(identity), Err(_)] => Ok(found(identity, 0, Some(1))),
        [Err(_), Ok(identity)] => Ok(found(identity, 1, Some(0))),
        [Err(first), Err(second)] => match first.kind() {
            // The other copy may be more precise: a bad checksum says that the file is, or was, a
            // pool.
            ErrorKind::NotAPool { .. } => Err(second),
            _ => Err(first),
        },
    }
}

/// Reads the header, and repairs a damaged copy from the other one.
pub(crate) fn open<M: Medium>(guard: &MediumGuard<'_, M>) -> Result<OpenedHeader> {
    let found = find(guard)?;
    let mut mended = None;
    if let Some(copy) = found.damaged {
        write(guard, COPIES[copy], &found.words)?;
        mended = Some(lost_copy(copy));
    }
    Ok(OpenedHeader {
        identity: found.identity,
        mended,
    })
}

/// A header that was read and repaired.
pub(crate) struct OpenedHeader {
    pub(crate) identity: Identity,
    /// The copy that was damaged, and that was written anew from the other one.
    pub(crate) mended: Option<LostCopy>,
}

fn lost_copy(copy: usize) -> LostCopy {
    LostCopy {
        offset: COPIES[copy],
        what: format!("the {} copy of the header fails its check", ordinal(copy)),
        is_outdated: false,
        can_be_mended: true,
    }
}

/// Whether nothing has been written yet: a new file, or one whose creation a crash cut off.
pub(crate) fn is_blank<M: Medium>(guard: &MediumGuard<'_, M>) -> Result<bool> {
    if guard.medium().extent().length() < PREFIX_BYTES {
        return Ok(false);
    }
    let copies = [read(guard, COPIES[0])?, read(guard, COPIES[1])?];
    // A torn second copy is no pool yet either: the first is written only after it is durable.
    Ok(copies[0] == [0; HEADER_WORDS]
        && Identity::decode(&copies[1]).is_err()
        && roots_are_zero(guard)?)
}

fn roots_are_zero<M: Medium>(guard: &MediumGuard<'_, M>) -> Result<bool> {
    let words = guard.words(ROOT_TABLE, ((PREFIX_BYTES - ROOT_TABLE) / 8) as usize)?;
    Ok(words.iter().all(|word| word.load(guard) == 0))
}

/// A word of the state line: a 48-bit value with a 16-bit check above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StateWord {
    /// Slabs that may be in use, counted from the file's start.
    HighWater = 0,
    /// 1: the bitmaps in the slabs are right.
    Clean = 1,
    /// The process that has the pool open, or had it last.
    Holder = 2,
    /// The slots of the root table that were ever used.
    Slots = 3,
}

/// A 48-bit value with its check.
pub(crate) fn checked(value: u64) -> u64 {
    debug_assert!(value >> 48 == 0);
    value | u64::from(crc32c::crc32c(&value.to_le_bytes()) & 0xffff) << 48
}

/// The value, if the check fits.
pub(crate) fn unchecked(word: u64) -> Option<u64> {
    let value = word & ((1 << 48) - 1);
    (checked(value) == word).then_some(value)
}

impl StateWord {
    /// Where the word is in the file.
    pub(crate) fn offset(self) -> u64 {
        STATE + 8 * self as u64
    }

    fn word<'g, M: Medium>(self, guard: &'g MediumGuard<'_, M>) -> Result<&'g Word> {
        Ok(&guard.words(self.offset(), 1)?[0])
    }

    pub(crate) fn load<M: Medium>(self, guard: &MediumGuard<'_, M>) -> Result<u64> {
        let word = self.word(guard)?.load(guard);
        unchecked(word).ok_or_else(|| {
            Error::corrupt(self.offset(), format!("the {self:?} word fails its check"))
        })
    }

    /// Stores and flushes; the caller fences.
    #[track_caller]
    pub(crate) fn publish<M: Medium>(self, guard: &MediumGuard<'_, M>, value: u64) -> Result<()> {
        self.word(guard)?.publish(guard, checked(value));
        Ok(())
    }
}
