//! The types of a tree's entries: those that a caller wants, and those that the pool remembers.

use engines::engine::CodecKind;
use engines::{ErrorKind, Result};
use pool::Encodings;

use crate::encoding::{EncodedValue, Encoding, Key};

/// A tree without encodings, in an error.
const BYTE_STRINGS: &str = "byte strings";

/// The entries that a caller reads and writes.
pub(crate) enum WantedEntries<'e> {
    /// Byte strings.
    Bytes,
    /// Keys and values of these types.
    Typed(&'e EntryTypes),
}

impl WantedEntries<'_> {
    /// The encodings that a tree remembers which is made for this caller.
    pub(crate) fn names(&self) -> Option<Encodings> {
        match self {
            Self::Bytes => None,
            Self::Typed(types) => Some(types.names()),
        }
    }
}

/// The types of keys and values that a caller names.
pub(crate) struct EntryTypes {
    key: Encoding,
    value: Encoding,
}

/// How the encodings that a tree remembers fit the types of a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TypeFit {
    Same,
    /// The tree has older versions of the types, which the caller reads as well.
    Older,
}

impl EntryTypes {
    pub(crate) fn of<K: Key, V: EncodedValue>() -> Self {
        Self {
            key: K::encoding(),
            value: V::value_encoding(),
        }
    }

    /// Types of which only the encodings are known.
    pub(crate) fn named(encodings: &Encodings) -> Self {
        Self {
            key: Encoding::named(&encodings.key),
            value: Encoding::named(&encodings.value),
        }
    }

    pub(crate) fn names(&self) -> Encodings {
        Encodings {
            key: self.key.name().to_owned(),
            value: self.value.name().to_owned(),
        }
    }

    /// Compares the types with the encodings of the tree `name`, which has this codec.
    ///
    /// # Errors
    /// [`ErrorKind::TypeMismatch`].
    pub(crate) fn fit(
        &self,
        name: &str,
        codec: CodecKind,
        found: Option<&Encodings>,
    ) -> Result<TypeFit> {
        let found = match found {
            Some(found) => Some(found.clone()),
            // It need not remember what its codec says.
            None if codec == CodecKind::Word => Some(encodings_of_words()),
            None => None,
        };
        let wanted = self.names();
        if let Some(found) = &found {
            if *found == wanted {
                return Ok(TypeFit::Same);
            }
            if self.key.reads(&found.key) && self.value.reads(&found.value) {
                return Ok(TypeFit::Older);
            }
        }
        Err(mismatch(name, found.as_ref(), &wanted))
    }
}

/// The encodings of a tree of words.
pub(crate) fn encodings_of_words() -> Encodings {
    EntryTypes::of::<u64, u64>().names()
}

/// The error for a tree that has other encodings than a caller wants.
pub(crate) fn mismatch(
    name: &str,
    found: Option<&Encodings>,
    wanted: &Encodings,
) -> engines::Error {
    ErrorKind::TypeMismatch {
        name: name.to_owned(),
        found: match found {
            Some(found) => found.to_string(),
            None => BYTE_STRINGS.to_owned(),
        },
        wanted: wanted.to_string(),
    }
    .into()
}
