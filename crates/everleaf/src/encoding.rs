//! Keys and values as byte strings, and the names by which a tree remembers how.

use std::fmt;

use engines::{Error, ErrorKind};

/// The encoding of a type of keys or values, as a tree remembers it: a name. A type of the user has a
/// version as well, and may read the bytes of older encodings.
///
/// | type | name |
/// | --- | --- |
/// | numbers, `bool`, `char`, `()` | as in Rust |
/// | `str`, `String` | `text` |
/// | `[u8]`, `Vec<u8>`; `[u8; 16]` | `bytes`; `bytes[16]` |
/// | `Option<u64>`, `(String, u32)` | `option(u64)`, `(text,u32)` |
/// | a type of your own | its name and version: `order:2` |
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encoding {
    name: String,
    /// Names of older encodings whose bytes the type reads as well.
    older: Vec<String>,
}

impl Encoding {
    /// The encoding of a type of your own. The name stays when the type gets another name or place in
    /// the program; the version changes when its bytes do.
    pub fn new(name: &str, version: u32) -> Self {
        Self::named(&format!("{name}:{version}"))
    }

    /// The same encoding, of a type that also reads bytes of `older` and everything that the type of
    /// `older` reads.
    #[must_use]
    pub fn reads_too(mut self, older: Self) -> Self {
        self.older.push(older.name);
        self.older.extend(older.older);
        self
    }

    /// An encoding that reads nothing else.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            older: Vec::new(),
        }
    }

    /// The encoding of a type with parts: the names of the parts between `open` and `)`.
    fn of_parts(open: &str, parts: &[Self]) -> Self {
        let mut names = vec![open.to_owned()];
        for (index, part) in parts.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let mut longer = Vec::new();
            for begun in &names {
                for name in part.all_names() {
                    longer.push(format!("{begun}{comma}{name}"));
                }
            }
            names = longer;
        }
        let mut names = names.into_iter().map(|name| name + ")");
        Self {
            // The first one has the present version of each part.
            name: names.next().unwrap_or_default(),
            older: names.collect(),
        }
    }

    /// Its name, and those of older encodings.
    fn all_names(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.name).chain(&self.older)
    }

    /// Its name, as a tree remembers it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the type reads bytes of the encoding `name`: its own one, or an older one.
    pub fn reads(&self, name: &str) -> bool {
        self.all_names().any(|own| own == name)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

/// Why a value has no encoding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotEncodable {
    /// The reason, in words.
    pub why: String,
}

impl fmt::Display for NotEncodable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a value cannot be encoded: {}", self.why)
    }
}

impl std::error::Error for NotEncodable {}

impl From<NotEncodable> for Error {
    fn from(NotEncodable { why }: NotEncodable) -> Self {
        ErrorKind::NotEncodable { why }.into()
    }
}

/// A type of keys. The bytes of its keys sort as the keys do, so that ranges of them are ranges of
/// a tree.
///
/// | type | bytes |
/// | --- | --- |
/// | `u8` to `u128` | big-endian |
/// | `i8` to `i128` | big-endian, the sign flipped |
/// | `f32`, `f64` | big-endian, in total order ([`f64::total_cmp`]): of a negative number all bits are flipped, of any other the sign |
/// | `bool`, `char`, `()` | 0 or 1; as its number; none |
/// | `[u8; N]` | as it is |
/// | `str`, `String`, `[u8]`, `Vec<u8>` | as it is; before another part of a tuple 0 becomes 0 255, and 0 0 ends it |
/// | `Option` | 0, or 1 and what is in it |
/// | tuples of two to four | one after the other |
///
/// A string or a byte vector that is the whole key is stored as [`Tree::put`](crate::Tree::put)
/// would store it.
///
/// A type of your own derives it, if its fields are keys. Structs and enums sort as with
/// `#[derive(PartialOrd)]`; an enum has up to 256 variants.
///
/// ```
/// use everleaf::Key;
///
/// #[derive(Key, Clone, PartialEq, Debug)]
/// #[everleaf(name = "due")]
/// struct Due { seconds: u64, job: u64 }
///
/// #[derive(Key, Clone, PartialEq, Debug)]
/// #[everleaf(name = "state", version = 2, reads(1))]
/// enum State { Waiting, Running, Failed { attempts: u32 } } // version 1 had no `Failed`
///
/// # let store = everleaf::Store::in_memory()?;
/// let queue = store.typed::<(State, Due), String>("queue")?;
/// queue.put(&(State::Failed { attempts: 2 }, Due { seconds: 60, job: 1 }), "mail")?;
/// queue.put(&(State::Waiting, Due { seconds: 90, job: 2 }), "print")?;
/// assert_eq!(queue.first()?.unwrap().1, "print");
/// assert_eq!(queue.prefix(&State::Waiting).count(), 1);
/// assert_eq!(queue.as_tree().encodings().unwrap().to_string(), "(state:2,due:1) -> text");
/// # Ok::<(), everleaf::Error>(())
/// ```
///
/// The name (if none is given, that of the type) and the version are what a tree remembers. All keys
/// of a tree have one form, so `reads` lists older versions whose bytes are bytes of this version.
/// Keys of any other form belong into another tree. A key with fields has a prefix, the first field
/// ([`StartsWith`]).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key of a tree: the trait `everleaf::Key` is missing",
    label = "`Key` is missing here",
    note = "keys are numbers, text, bytes, `Option`s and tuples of up to four of these; a type of your own derives it: `#[derive(everleaf::Key)]`",
    note = "if `{Self}` is to be a value, `everleaf::EncodedValue` is enough: `#[derive(everleaf::EncodedValue)]`, with `#[everleaf(serde)]` for a type that serde knows"
)]
pub trait Key {
    /// The name by which a tree remembers the encoding.
    fn encoding() -> Encoding;

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
/// Every [`Key`] is one. A type of your own derives it, if its fields are values:
///
/// ```
/// use everleaf::EncodedValue;
///
/// #[derive(EncodedValue)]
/// #[everleaf(name = "price", version = 1)]
/// struct PriceV1 { cents: u32 }
///
/// #[derive(EncodedValue, PartialEq, Debug)]
/// #[everleaf(name = "price", version = 2, reads(PriceV1))]
/// struct Price { cents: u32, currency: String }
///
/// impl From<PriceV1> for Price {
///     fn from(old: PriceV1) -> Self {
///         Self { cents: old.cents, currency: "EUR".to_owned() }
///     }
/// }
///
/// # let store = everleaf::Store::in_memory()?;
/// store.typed::<String, PriceV1>("prices")?.put("apple", &PriceV1 { cents: 42 })?;
///
/// let prices = store.typed::<String, Price>("prices")?; // remembers version 2 from now on
/// assert_eq!(prices.get("apple")?.unwrap().currency, "EUR");
/// prices.put("pear", &Price { cents: 50, currency: "CHF".to_owned() })?;
/// assert!(store.typed::<String, PriceV1>("prices").is_err());
/// # Ok::<(), everleaf::Error>(())
/// ```
///
/// The name (if none is given, that of the type) and the version are what a tree remembers. Each value
/// begins with its version, so values of several versions lie in one tree. Change the version when the
/// fields change, and keep the older type as long as its values may be there. `reads` lists types that
/// derive this trait, each with another version. A type whose values begin with no version is refused,
/// because they could be misread:
///
/// ```compile_fail,E0277
/// #[derive(everleaf::EncodedValue)]
/// #[everleaf(version = 2, reads(String))]
/// struct Price { cents: u32 }
///
/// impl From<String> for Price {
///     fn from(old: String) -> Self {
///         Self { cents: old.parse().unwrap_or(0) }
///     }
/// }
/// ```
///
/// So is one that has the same version:
///
/// ```compile_fail,E0080
/// #[derive(everleaf::EncodedValue)]
/// #[everleaf(name = "price")]
/// struct OldPrice { euros: u32 }
///
/// #[derive(everleaf::EncodedValue)]
/// #[everleaf(name = "price", reads(OldPrice))] // `version = 2` is missing
/// struct Price { cents: u32 }
///
/// impl From<OldPrice> for Price {
///     fn from(old: OldPrice) -> Self {
///         Self { cents: 100 * old.euros }
///     }
/// }
/// ```
///
/// With the feature `serde`, `#[everleaf(serde)]` stores a type as serde and postcard encode it, so
/// that its fields may have any type that serde knows: vectors, maps, nested types.
///
/// Without a derive:
///
/// ```
/// # use everleaf::{Encoding, NotEncodable, Store};
/// struct Price { cents: u32, currency: [u8; 3] }
///
/// impl everleaf::EncodedValue for Price {
///     fn value_encoding() -> Encoding {
///         Encoding::new("price", 1)
///     }
///     fn encode_value(&self, bytes: &mut Vec<u8>) -> Result<(), NotEncodable> {
///         bytes.extend(self.cents.to_le_bytes());
///         bytes.extend(self.currency);
///         Ok(())
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
///
/// A type without it is refused by the compiler, which names the trait:
///
/// ```compile_fail,E0277
/// # let store = everleaf::Store::in_memory()?;
/// struct Unknown;
/// store.typed::<u64, Unknown>("unknown")?;
/// # Ok::<(), everleaf::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no value of a tree: the trait `everleaf::EncodedValue` is missing",
    label = "`EncodedValue` is missing here",
    note = "every key is a value; a type of your own derives it: `#[derive(everleaf::EncodedValue)]`, with `#[everleaf(serde)]` for a type that serde knows"
)]
pub trait EncodedValue {
    /// The name by which a tree remembers the encoding.
    fn value_encoding() -> Encoding;

    /// Appends the bytes of the value.
    ///
    /// # Errors
    /// If it has none. The write then changes nothing, and returns
    /// [`ErrorKind::NotEncodable`](crate::ErrorKind::NotEncodable).
    fn encode_value(&self, bytes: &mut Vec<u8>) -> Result<(), NotEncodable>;

    /// Reads a value from all bytes; `None` if they are not the bytes of a value.
    fn decode_value(bytes: &[u8]) -> Option<Self>
    where
        Self: Sized;
}

impl<K: Key + ?Sized> EncodedValue for K {
    fn value_encoding() -> Encoding {
        K::encoding()
    }

    fn encode_value(&self, bytes: &mut Vec<u8>) -> Result<(), NotEncodable> {
        Key::encode(self, bytes);
        Ok(())
    }

    fn decode_value(bytes: &[u8]) -> Option<Self>
    where
        Self: Sized,
    {
        Key::decode(bytes)
    }
}

/// A type whose bytes are those of a `Q`: a tree of it takes a `Q` by reference as well. So a tree of
/// `String` takes `&str`, and one of `Vec<u8>` takes `&[u8]`. Each type is like itself.
///
/// The standard library's `Borrow` does not promise this: `[u8; 8]` borrows as `[u8]`, which may have
/// any length, and whose encoding is another one. A tree of `[u8; 8]` takes no slice:
///
/// ```compile_fail,E0277
/// # let store = everleaf::Store::in_memory()?;
/// let hashes = store.typed::<[u8; 8], u64>("hashes")?;
/// let slice: &[u8] = b"short";
/// hashes.put(slice, &1)?;
/// # Ok::<(), everleaf::Error>(())
/// ```
///
/// A type of your own that has a borrowed form with the same bytes may say so:
///
/// ```
/// use everleaf::{EncodedLike, EncodedValue, Encoding, NotEncodable};
///
/// struct Note(String);
/// struct NoteRef<'n>(&'n str);
/// # impl EncodedValue for Note {
/// #     fn value_encoding() -> Encoding {
/// #         Encoding::new("note", 1)
/// #     }
/// #     fn encode_value(&self, bytes: &mut Vec<u8>) -> Result<(), NotEncodable> {
/// #         NoteRef(&self.0).encode_value(bytes)
/// #     }
/// #     fn decode_value(bytes: &[u8]) -> Option<Self> {
/// #         String::from_utf8(bytes.to_vec()).ok().map(Note)
/// #     }
/// # }
/// # impl EncodedValue for NoteRef<'_> {
/// #     fn value_encoding() -> Encoding {
/// #         Note::value_encoding()
/// #     }
/// #     fn encode_value(&self, bytes: &mut Vec<u8>) -> Result<(), NotEncodable> {
/// #         bytes.extend(self.0.as_bytes());
/// #         Ok(())
/// #     }
/// #     fn decode_value(_bytes: &[u8]) -> Option<Self> {
/// #         None // it would have to borrow
/// #     }
/// # }
///
/// // Both have the encoding `note:1`.
/// impl<'n> EncodedLike<NoteRef<'n>> for Note {}
///
/// # let store = everleaf::Store::in_memory()?;
/// let notes = store.typed::<u64, Note>("notes")?;
/// notes.put(&1, &NoteRef("call back"))?;
/// assert_eq!(notes.get(&1)?.unwrap().0, "call back");
/// # Ok::<(), everleaf::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a tree of `{Self}` takes no `{Q}`: the trait `everleaf::EncodedLike<{Q}>` is missing",
    label = "`{Self}` is not encoded like this",
    note = "a tree of `T` takes `&T`; a tree of `String` takes `&str` as well, and one of `Vec<u8>` takes `&[u8]`; the items of an array are no array, whose length is a part of its type"
)]
pub trait EncodedLike<Q: ?Sized> {}

impl<T: ?Sized> EncodedLike<T> for T {}
impl EncodedLike<str> for String {}
impl EncodedLike<[u8]> for Vec<u8> {}

/// A key whose first part is a `P`: see [`TypedTree::prefix`](crate::TypedTree::prefix).
#[diagnostic::on_unimplemented(
    message = "`{P}` is not the first part of the key `{Self}`: the trait `everleaf::StartsWith<{P}>` is missing",
    label = "keys do not begin with this",
    note = "a prefix is the first part of a tuple, or the first field of a struct that derives `everleaf::Key`"
)]
pub trait StartsWith<P: ?Sized> {}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

macro_rules! unsigned {
    ($($type:ty),*) => {$(
        impl Key for $type {
            fn encoding() -> Encoding {
                Encoding::named(stringify!($type))
            }

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
            fn encoding() -> Encoding {
                Encoding::named(stringify!($type))
            }

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
            fn encoding() -> Encoding {
                Encoding::named(stringify!($type))
            }

            fn encode(&self, bytes: &mut Vec<u8>) {
                let bits = self.to_bits();
                let sign: $bits = 1 << (<$bits>::BITS - 1);
                let is_negative = bits & sign != 0;
                let ordered = if is_negative { !bits } else { bits | sign };
                bytes.extend(ordered.to_be_bytes());
            }

            fn decode_before(bytes: &mut &[u8]) -> Option<Self> {
                let ordered = <$bits>::from_be_bytes(take(bytes)?);
                let sign: $bits = 1 << (<$bits>::BITS - 1);
                let is_negative = ordered & sign == 0;
                let bits = if is_negative { !ordered } else { ordered & !sign };
                Some(Self::from_bits(bits))
            }
        }
    )*};
}
float!(f32, u32; f64, u64);

impl Key for bool {
    fn encoding() -> Encoding {
        Encoding::named("bool")
    }

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
    fn encoding() -> Encoding {
        Encoding::named("char")
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        u32::from(*self).encode(bytes);
    }

    fn decode_before(bytes: &mut &[u8]) -> Option<Self> {
        u32::decode_before(bytes).and_then(Self::from_u32)
    }
}

impl Key for () {
    fn encoding() -> Encoding {
        Encoding::named("()")
    }

    fn encode(&self, _bytes: &mut Vec<u8>) {}

    fn decode_before(_bytes: &mut &[u8]) -> Option<Self> {
        Some(())
    }
}

impl<const N: usize> Key for [u8; N] {
    fn encoding() -> Encoding {
        Encoding::named(&format!("bytes[{N}]"))
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self);
    }

    fn decode_before(bytes: &mut &[u8]) -> Option<Self> {
        take(bytes)
    }
}

impl Key for [u8] {
    fn encoding() -> Encoding {
        Encoding::named("bytes")
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self);
    }

    fn encode_before(&self, bytes: &mut Vec<u8>) {
        for byte in self {
            bytes.push(*byte);
            if *byte == 0 {
                bytes.push(u8::MAX);
            }
        }
        bytes.extend([0, 0]);
    }
}

impl Key for Vec<u8> {
    fn encoding() -> Encoding {
        <[u8]>::encoding()
    }

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
    fn encoding() -> Encoding {
        Encoding::named("text")
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        self.as_bytes().encode(bytes);
    }

    fn encode_before(&self, bytes: &mut Vec<u8>) {
        self.as_bytes().encode_before(bytes);
    }
}

impl Key for String {
    fn encoding() -> Encoding {
        str::encoding()
    }

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
    fn encoding() -> Encoding {
        Encoding::of_parts("option(", &[K::encoding()])
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self.is_some()));
        if let Some(key) = self {
            key.encode(bytes);
        }
    }

    fn encode_before(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self.is_some()));
        if let Some(key) = self {
            key.encode_before(bytes);
        }
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
            fn encoding() -> Encoding {
                let parts = [$first::encoding(), $($middle::encoding(),)* $last::encoding()];
                Encoding::of_parts("(", &parts)
            }

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

        impl<P: Key + ?Sized, $first: EncodedLike<P>, $($middle,)* $last> StartsWith<P> for ($first, $($middle,)* $last) {}
    };
}
tuple!(A; B);
tuple!(A B; C);
tuple!(A B C; D);
