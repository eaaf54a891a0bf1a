//! Keys and values as byte strings.

/// A type of keys. The bytes of its keys sort as the keys do, so that ranges of them are ranges of
/// a tree.
///
/// | type | bytes |
/// | --- | --- |
/// | `u8` to `u128` | big-endian |
/// | `i8` to `i128` | big-endian, the sign flipped |
/// | `f32`, `f64` | in total order ([`f64::total_cmp`]): those of negative numbers flipped, of others the sign |
/// | `bool`, `char`, `()` | 0 or 1; as its number; none |
/// | `[u8; N]` | as it is |
/// | `str`, `String`, `[u8]`, `Vec<u8>` | as it is; before another part of a tuple 0 becomes 0 255, and 0 0 ends it |
/// | `Option` | 0, or 1 and what is in it |
/// | tuples of two to four | one after the other |
///
/// A string or a byte vector that is the whole key is stored as [`Tree::put`](crate::Tree::put)
/// would store it, so such a tree may be used with types and without.
pub trait Key {
    /// Appends the bytes of the key, behind which nothing follows.
    fn encode(&self, bytes: &mut Vec<u8>);

    /// Appends the bytes of the key, behind which those of another key follow: a reader must be
    /// able to tell where they end.
    fn encode_before(&self, bytes: &mut Vec<u8>) {
        self.encode(bytes);
    }

    /// Reads a key from all bytes; `None` if they are not the bytes of a key.
    fn decode(bytes: &[u8]) -> Option<Self>
    where
        Self: Sized,
    {
        let mut bytes = bytes;
        let key = Self::decode_before(&mut bytes)?;
        if bytes.is_empty() { Some(key) } else { None }
    }

    /// Reads a key, behind which others may follow, and leaves the bytes behind it; `None` if the
    /// first bytes are not those of a key.
    fn decode_before(bytes: &mut &[u8]) -> Option<Self>
    where
        Self: Sized;
}

/// A type of values.
///
/// Every [`Key`] is one. For a type of your own:
///
/// ```
/// # use everleaf::Store;
/// #[derive(Debug, PartialEq)]
/// struct Price { cents: u32, currency: [u8; 3] }
///
/// impl everleaf::EncodedValue for Price {
///     fn encode_value(&self, bytes: &mut Vec<u8>) {
///         bytes.extend(self.cents.to_le_bytes());
///         bytes.extend(self.currency);
///     }
///     fn decode_value(bytes: &[u8]) -> Option<Self> {
///         let (cents, currency) = bytes.split_first_chunk()?;
///         Some(Self { cents: u32::from_le_bytes(*cents), currency: currency.try_into().ok()? })
///     }
/// }
///
/// # let store = Store::in_memory()?;
/// let prices = store.typed::<String, Price>("prices")?;
/// prices.put("apple", &Price { cents: 42, currency: *b"EUR" })?;
/// assert_eq!(prices.get("apple")?.unwrap().cents, 42);
/// # Ok::<(), everleaf::Error>(())
/// ```
pub trait EncodedValue {
    /// Appends the bytes of the value.
    fn encode_value(&self, bytes: &mut Vec<u8>);

    /// Reads a value from all bytes; `None` if they are not the bytes of a value.
    fn decode_value(bytes: &[u8]) -> Option<Self>
    where
        Self: Sized;
}

impl<K: Key + ?Sized> EncodedValue for K {
    fn encode_value(&self, bytes: &mut Vec<u8>) {
        Key::encode(self, bytes);
    }

    fn decode_value(bytes: &[u8]) -> Option<Self>
    where
        Self: Sized,
    {
        Key::decode(bytes)
    }
}

/// A key whose first part is a `P`: see [`TypedTree::prefix`](crate::TypedTree::prefix).
pub trait StartsWith<P: ?Sized> {}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

macro_rules! unsigned {
    ($($type:ty),*) => {$(
        impl Key for $type {
            fn encode(&self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_be_bytes());
            }

            fn decode_before(bytes: &mut &[u8]) -> Option<Self> {
                take(bytes).map(Self::from_be_bytes)
            }
        }
    )*};
}
unsigned!(u8, u16, u32, u64, u128);

macro_rules! signed {
    ($($type:ty),*) => {$(
        impl Key for $type {
            fn encode(&self, bytes: &mut Vec<u8>) {
                bytes.extend((self ^ Self::MIN).to_be_bytes());
            }

            fn decode_before(bytes: &mut &[u8]) -> Option<Self> {
                take(bytes).map(|bytes| Self::from_be_bytes(bytes) ^ Self::MIN)
            }
        }
    )*};
}
signed!(i8, i16, i32, i64, i128);

macro_rules! float {
    ($($type:ty, $bits:ty);*) => {$(
        impl Key for $type {
            fn encode(&self, bytes: &mut Vec<u8>) {
                let (bits, sign) = (self.to_bits(), 1 << (<$bits>::BITS - 1));
                bytes.extend(if bits & sign == 0 { bits | sign } else { !bits }.to_be_bytes());
            }

            fn decode_before(bytes: &mut &[u8]) -> Option<Self> {
                let (bits, sign) = (<$bits>::from_be_bytes(take(bytes)?), 1 << (<$bits>::BITS - 1));
                Some(Self::from_bits(if bits & sign == 0 { !bits } else { bits & !sign }))
            }
        }
    )*};
}
float!(f32, u32; f64, u64);

impl Key for bool {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(*self));
    }

    fn decode_before(bytes: &mut &[u8]) -> Option<Self> {
        match take(bytes)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl Key for char {
    fn encode(&self, bytes: &mut Vec<u8>) {
        u32::from(*self).encode(bytes);
    }

    fn decode_before(bytes: &mut &[u8]) -> Option<Self> {
        u32::decode_before(bytes).and_then(Self::from_u32)
    }
}

impl Key for () {
    fn encode(&self, _bytes: &mut Vec<u8>) {}

    fn decode_before(_bytes: &mut &[u8]) -> Option<Self> {
        Some(())
    }
}

impl<const N: usize> Key for [u8; N] {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self);
    }

    fn decode_before(bytes: &mut &[u8]) -> Option<Self> {
        take(bytes)
    }
}

impl Key for [u8] {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self);
    }

    fn encode_before(&self, bytes: &mut Vec<u8>) {
        for byte in self {
            bytes.push(*byte);
            bytes.extend((*byte == 0).then_some(u8::MAX));
        }
        bytes.extend([0, 0]);
    }
}

impl Key for Vec<u8> {
    fn encode(&self, bytes: &mut Vec<u8>) {
        self.as_slice().encode(bytes);
    }

    fn encode_before(&self, bytes: &mut Vec<u8>) {
        self.as_slice().encode_before(bytes);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }

    fn decode_before(bytes: &mut &[u8]) -> Option<Self> {
        let mut key = Self::new();
        loop {
            match take(bytes)? {
                [0] => match take(bytes)? {
                    [0] => return Some(key),
                    [u8::MAX] => key.push(0),
                    _ => return None,
                },
                [byte] => key.push(byte),
            }
        }
    }
}

impl Key for str {
    fn encode(&self, bytes: &mut Vec<u8>) {
        self.as_bytes().encode(bytes);
    }

    fn encode_before(&self, bytes: &mut Vec<u8>) {
        self.as_bytes().encode_before(bytes);
    }
}

impl Key for String {
    fn encode(&self, bytes: &mut Vec<u8>) {
        self.as_str().encode(bytes);
    }

    fn encode_before(&self, bytes: &mut Vec<u8>) {
        self.as_str().encode_before(bytes);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Self::from_utf8(bytes.to_vec()).ok()
    }

    fn decode_before(bytes: &mut &[u8]) -> Option<Self> {
        Self::from_utf8(Vec::decode_before(bytes)?).ok()
    }
}

impl<K: Key> Key for Option<K> {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self.is_some()));
        self.iter().for_each(|key| key.encode(bytes));
    }

    fn encode_before(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self.is_some()));
        self.iter().for_each(|key| key.encode_before(bytes));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (0, []) => Some(None),
            (1, rest) => K::decode(rest).map(Some),
            _ => None,
        }
    }

    fn decode_before(bytes: &mut &[u8]) -> Option<Self> {
        match take(bytes)? {
            [0] => Some(None),
            [1] => K::decode_before(bytes).map(Some),
            _ => None,
        }
    }
}

macro_rules! tuple {
    ($first:ident $($middle:ident)*; $last:ident) => {
        impl<$first: Key, $($middle: Key,)* $last: Key> Key for ($first, $($middle,)* $last) {
            fn encode(&self, bytes: &mut Vec<u8>) {
                #[allow(non_snake_case, reason = "named as the types")]
                let ($first, $($middle,)* $last) = self;
                $first.encode_before(bytes);
                $($middle.encode_before(bytes);)*
                $last.encode(bytes);
            }

            fn encode_before(&self, bytes: &mut Vec<u8>) {
                #[allow(non_snake_case, reason = "named as the types")]
                let ($first, $($middle,)* $last) = self;
                $first.encode_before(bytes);
                $($middle.encode_before(bytes);)*
                $last.encode_before(bytes);
            }

            fn decode(bytes: &[u8]) -> Option<Self> {
                let mut bytes = bytes;
                Some(($first::decode_before(&mut bytes)?, $($middle::decode_before(&mut bytes)?,)* $last::decode(bytes)?))
            }

            fn decode_before(bytes: &mut &[u8]) -> Option<Self> {
                Some(($first::decode_before(bytes)?, $($middle::decode_before(bytes)?,)* $last::decode_before(bytes)?))
            }
        }

        impl<P: Key + ?Sized, $first: std::borrow::Borrow<P>, $($middle,)* $last> StartsWith<P> for ($first, $($middle,)* $last) {}
    };
}
tuple!(A; B);
tuple!(A B; C);
tuple!(A B C; D);
