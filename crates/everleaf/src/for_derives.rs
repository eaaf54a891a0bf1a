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
