//! The names of the encodings of a tree's keys and values, which its slot keeps.
//!
//! ```text
//! words of a slot
//! 28      bytes of the name of the keys' encoding (bits 0 to 15), of that of the values (16 to 31), "has encodings" (32);
//!         0 in a tree of byte strings
//! 29..63  the two names, one after the other, UTF-8, padded with zeros
//! 63      CRC32C of words 28..63
//! ```

use medium::{Medium, MediumGuard, Word};

use crate::bytes::{bytes_of, words_check};
use crate::{ErrorKind, Result};

/// The first word of the part, in a slot.
pub(super) const ENCODINGS: usize = 28;
/// The word behind the part.
pub(super) const ENCODINGS_END: usize = 64;
/// Words of the part.
const PART_WORDS: usize = ENCODINGS_END - ENCODINGS;

// Words within the part.
const LENGTHS: usize = 0;
const NAMES: usize = 1;
const CHECK: usize = PART_WORDS - 1;

const VALUE_LENGTH_SHIFT: u32 = 16;
const HAS_ENCODINGS: u64 = 1 << 32;

/// The names of both encodings of a tree have at most this many bytes together.
pub const ENCODINGS_BYTES_MAX: usize = 8 * (CHECK - NAMES);

/// The names of the encodings of a tree's keys and values. A pool keeps them, and does not know
/// what they mean.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Encodings {
    /// That of its keys.
    pub key: String,
    /// That of its values.
    pub value: String,
}

impl Encodings {
    /// Refuses names that do not fit into a slot.
    ///
    /// # Errors
    /// [`ErrorKind::BadEncoding`].
    pub(super) fn check(&self) -> Result<()> {
        for name in [&self.key, &self.value] {
            if !is_name(name) {
                return Err(ErrorKind::BadEncoding {
                    name: name.clone(),
                    why: "the name is empty, or has spaces or control characters".to_owned(),
                }
                .into());
            }
        }
        let bytes = self.key.len() + self.value.len();
        if bytes > ENCODINGS_BYTES_MAX {
            return Err(ErrorKind::BadEncoding {
                name: self.to_string(),
                why: format!(
                    "the two names have {bytes} bytes together, and a tree keeps {ENCODINGS_BYTES_MAX}"
                ),
            }
            .into());
        }
        Ok(())
    }
}

/// Whether a tree can remember an encoding by this name: it is one word in every report.
fn is_name(name: &str) -> bool {
    let is_bad = |character: char| character.is_whitespace() || character.is_control();
    !name.is_empty() && !name.contains(is_bad)
}

/// As in `u64 -> text`.
impl std::fmt::Display for Encodings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} -> {}", self.key, self.value)
    }
}

/// A tree that is about to be made: its name, and the encodings of its keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewTree<'t> {
    /// Its name.
    pub name: &'t str,
    /// Its encodings; `None` for a tree of byte strings.
    pub encodings: Option<&'t Encodings>,
}

/// A tree of byte strings.
impl<'t> From<&'t str> for NewTree<'t> {
    fn from(name: &'t str) -> Self {
        Self {
            name,
            encodings: None,
        }
    }
}

/// A tree of byte strings.
impl<'t> From<&'t String> for NewTree<'t> {
    fn from(name: &'t String) -> Self {
        name.as_str().into()
    }
}

/// The part of a slot that keeps the encodings.
pub(super) fn encode(encodings: Option<&Encodings>) -> [u64; PART_WORDS] {
    let mut words = [0; PART_WORDS];
    if let Some(Encodings { key, value }) = encodings {
        let key_length = key.len() as u64;
        let value_length = value.len() as u64;
        words[LENGTHS] = HAS_ENCODINGS | value_length << VALUE_LENGTH_SHIFT | key_length;
        let names = [key.as_bytes(), value.as_bytes()].concat();
        for (word, chunk) in words[NAMES..CHECK].iter_mut().zip(names.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(bytes);
        }
    }
    words[CHECK] = words_check(&words[..CHECK]);
    words
}

/// The encodings in a copy of a slot, or what is wrong with them.
pub(super) fn read<M: Medium>(
    guard: &MediumGuard<'_, M>,
    cells: &[Word],
) -> std::result::Result<Option<Encodings>, &'static str> {
    let words: Vec<u64> = cells[ENCODINGS..ENCODINGS_END]
        .iter()
        .map(|cell| cell.load(guard))
        .collect();
    if words[CHECK] != words_check(&words[..CHECK]) {
        return Err("the encodings fail their checksum");
    }
    let lengths = words[LENGTHS];
    if lengths & HAS_ENCODINGS == 0 {
        return Ok(None);
    }
    let key_length = usize::from(lengths as u16);
    let value_length = usize::from((lengths >> VALUE_LENGTH_SHIFT) as u16);
    let names = bytes_of(&words[NAMES..CHECK]);
    let Some(names) = names.get(..key_length + value_length) else {
        return Err("the names of the encodings are too long");
    };
    let (key, value) = names.split_at(key_length);
    match (std::str::from_utf8(key), std::str::from_utf8(value)) {
        (Ok(key), Ok(value)) if is_name(key) && is_name(value) => Ok(Some(Encodings {
            key: key.to_owned(),
            value: value.to_owned(),
        })),
        _ => Err("a name of an encoding is no name"),
    }
}
