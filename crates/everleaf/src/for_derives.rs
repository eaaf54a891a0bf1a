//! Functions that the code of derives calls. They are no part of the face, and may change with any
//! release.

use crate::{EncodedValue, NotEncodable};

/// Bits of a number in each byte of its encoding; the highest bit says that more follow.
const BITS: u32 = 7;
const MORE: u8 = 1 << BITS;

/// Appends a number.
pub fn put_number(bytes: &mut Vec<u8>, number: u32) {
    let mut rest = number;
    while rest >= u32::from(MORE) {
        bytes.push(rest as u8 | MORE);
        rest >>= BITS;
    }
    bytes.push(rest as u8);
}

/// Takes a number from the beginning of `rest`; `None` if there is none.
pub fn take_number(rest: &mut &[u8]) -> Option<u32> {
    let mut number = 0;
    let mut shift = 0;
    loop {
        let (first, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(first & !MORE) << shift;
        shift += BITS;
        if first & MORE == 0 {
            return u32::try_from(number).ok();
        }
        if shift >= u32::BITS + BITS {
            return None;
        }
    }
}

/// A type that derives `EncodedValue`: its values begin with its version, and each type that it reads
/// is one as well. So the first bytes of a value tell which of the types it is of.
#[diagnostic::on_unimplemented(
    message = "`reads` cannot list `{Self}`, whose values do not begin with a version",
    label = "values of this type could be misread",
    note = "`reads` lists types that derive `everleaf::EncodedValue`; for values of any other type, implement `EncodedValue` by hand, or copy them into another tree"
)]
pub trait Versioned: EncodedValue {
    /// The type, and those that it reads.
    const VERSIONS: ReadVersions;
}

/// The name and version of a type, and those of the types that it reads.
#[derive(Clone, Copy, Debug)]
pub struct ReadVersions {
    name: &'static str,
    version: u32,
    older: &'static [ReadVersions],
}

impl ReadVersions {
    /// For a type that reads the types `older`. Evaluated by the compiler.
    ///
    /// # Panics
    /// If values of two of the types begin with one version: a value of the one would be read as one
    /// of the other.
    pub const fn new(name: &'static str, version: u32, older: &'static [Self]) -> Self {
        let mut index = 0;
        while index < older.len() {
            assert!(
                !older[index].has_version(version),
                "a type that `reads` lists has the version of this type, or reads one that has it: give this type another version"
            );
            let mut other = index + 1;
            while other < older.len() {
                assert!(
                    !older[index].clashes_with_any_of(&older[other]),
                    "two types that `reads` lists, or that these read, have one version: their values cannot be told apart"
                );
                other += 1;
            }
            index += 1;
        }
        Self {
            name,
            version,
            older,
        }
    }

    /// Whether the type or one that it reads has this version.
    const fn has_version(&self, version: u32) -> bool {
        let mut is_found = self.version == version;
        let mut index = 0;
        while index < self.older.len() {
            is_found |= self.older[index].has_version(version);
            index += 1;
        }
        is_found
    }

    /// Whether one of these types and one of `others` have one version and are not the same type.
    const fn clashes_with_any_of(&self, others: &Self) -> bool {
        let mut is_found = self.clashes_with(others);
        let mut index = 0;
        while index < others.older.len() {
            is_found |= self.clashes_with_any_of(&others.older[index]);
            index += 1;
        }
        is_found
    }

    /// Whether one of these types and `other`, without those that it reads, have one version and are
    /// not the same type.
    const fn clashes_with(&self, other: &Self) -> bool {
        let mut is_found = self.version == other.version && !is_same(self.name, other.name);
        let mut index = 0;
        while index < self.older.len() {
            is_found |= self.older[index].clashes_with(other);
            index += 1;
        }
        is_found
    }
}

/// Whether two names are equal. The comparison of the standard library cannot run in the compiler.
const fn is_same(one: &str, other: &str) -> bool {
    let one = one.as_bytes();
    let other = other.as_bytes();
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// Appends a value, behind which others follow.
pub fn put_part<V: EncodedValue>(bytes: &mut Vec<u8>, value: &V) -> Result<(), NotEncodable> {
    let mut part = Vec::new();
    value.encode_value(&mut part)?;
    let Ok(length) = u32::try_from(part.len()) else {
        let why = "a field has more than 4 GiB".to_owned();
        return Err(NotEncodable { why });
    };
    put_number(bytes, length);
    bytes.extend(part);
    Ok(())
}

/// Takes a value from the beginning of `rest`; `None` if there is none.
pub fn take_part<V: EncodedValue>(rest: &mut &[u8]) -> Option<V> {
    let length = take_number(rest)?;
    let (part, behind) = rest.split_at_checked(length as usize)?;
    *rest = behind;
    V::decode_value(part)
}

#[cfg(feature = "serde")]
mod by_serde {
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use crate::NotEncodable;

    /// Appends a value in postcard's format.
    pub fn put_serde<T: Serialize>(bytes: &mut Vec<u8>, value: &T) -> Result<(), NotEncodable> {
        match postcard::to_stdvec(value) {
            Ok(encoded) => {
                bytes.extend(encoded);
                Ok(())
            }
            Err(error) => Err(NotEncodable {
                why: error.to_string(),
            }),
        }
    }

    /// Reads a value from all of `rest`; `None` if it is not one.
    pub fn take_serde<T: DeserializeOwned>(rest: &[u8]) -> Option<T> {
        match postcard::take_from_bytes(rest) {
            Ok((value, [])) => Some(value),
            _ => None,
        }
    }
}

/// The same functions without the feature: no type has them, and the compiler says why.
#[cfg(not(feature = "serde"))]
mod by_serde {
    use crate::NotEncodable;

    /// A type whose values serde encodes.
    #[diagnostic::on_unimplemented(
        message = "`#[everleaf(serde)]` needs the feature `serde` of the crate `everleaf`",
        label = "the feature is off",
        note = "write `everleaf = {{ version = \"...\", features = [\"serde\"] }}` in Cargo.toml"
    )]
    pub trait SerdeFeature: Sized {}

    /// Never called.
    pub fn put_serde<T: SerdeFeature>(
        _bytes: &mut Vec<u8>,
        _value: &T,
    ) -> Result<(), NotEncodable> {
        Ok(())
    }

    /// Never called.
    pub fn take_serde<T: SerdeFeature>(_rest: &[u8]) -> Option<T> {
        None
    }
}

pub use by_serde::{put_serde, take_serde};

#[cfg(test)]
mod tests;
