//! Handles of trees of every kind, and the arguments that they take: what batches, snapshots and
//! transactions are generic over.

use std::ops::{Bound, Deref, RangeBounds};

use engines::Result;
use engines::index::{Bounds, Value};

use crate::encoding::NotEncodable;
use crate::sealed::Sealed;
use crate::typed::{key_bytes, value_bytes};
use crate::{EncodedLike, EncodedValue, Key, KeyRange, StartsWith, Tree, TypedTree, WordTree};

/// A handle of a tree: a [`Tree`], a [`TypedTree`] or a [`WordTree`]. Batches, snapshots and
/// transactions take any of them, with the keys and values of its kind.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no handle of a tree",
    label = "a `Tree`, a `TypedTree` or a `WordTree` is expected, by reference"
)]
pub trait TreeHandle: Sealed {
    /// A key, as a read returns it.
    type Key;
    /// A value, as a read returns it.
    type Value;
    /// A value that a condition names.
    type Named<'v>
    where
        Self: 'v;

    /// The tree of byte strings beneath.
    #[doc(hidden)]
    fn bytes_tree(&self) -> &Tree;
    /// A key from its bytes.
    #[doc(hidden)]
    fn key_of(&self, bytes: &[u8]) -> Result<Self::Key>;
    /// A value from its bytes.
    #[doc(hidden)]
    fn value_of(&self, bytes: &[u8]) -> Result<Self::Value>;
    /// The bytes of a value, as a read returns it.
    #[doc(hidden)]
    fn value_bytes(value: &Self::Value) -> Encoded<Value>;
    /// The bytes of a value that a condition names.
    #[doc(hidden)]
    fn named_bytes(value: Self::Named<'_>) -> Encoded<Value>;
}

/// A key that a tree of the kind `T` takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key of a `{T}`: the trait `everleaf::KeyFor` is missing",
    label = "no key of this tree",
    note = "a `Tree` takes anything that is `AsRef<[u8]>`, a `TypedTree<K, V>` takes `&K`, and a `WordTree` takes `u64`"
)]
pub trait KeyFor<T: TreeHandle> {
    /// Its bytes.
    #[doc(hidden)]
    fn encoded(&self) -> EncodedBytes<'_>;
}

/// A value that a tree of the kind `T` takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no value of a `{T}`: the trait `everleaf::ValueFor` is missing",
    label = "no value of this tree",
    note = "a `Tree` takes anything that is `AsRef<[u8]>`, a `TypedTree<K, V>` takes `&V`, and a `WordTree` takes `u64`"
)]
pub trait ValueFor<T: TreeHandle> {
    /// Its bytes.
    #[doc(hidden)]
    fn encoded(&self) -> Encoded<EncodedBytes<'_>>;
}

/// The bytes of a value, or why it has none.
type Encoded<B> = std::result::Result<B, NotEncodable>;

/// A range of keys that a tree of the kind `T` takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no range of keys of a `{T}`: the trait `everleaf::RangeFor` is missing",
    label = "no range of this tree",
    note = "a `Tree` takes ranges of anything that is `AsRef<[u8]>`, a `TypedTree<K, V>` takes ranges of `K`, and a `WordTree` takes ranges of `u64`"
)]
pub trait RangeFor<T: TreeHandle> {
    /// Its ends.
    #[doc(hidden)]
    fn encoded(self) -> Bounds;
}

/// The first part of keys of a tree of the kind `T`: the beginning of their bytes, or the first part
/// of a tuple.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no prefix of keys of a `{T}`: the trait `everleaf::PrefixFor` is missing",
    label = "keys of this tree do not begin with this",
    note = "a `Tree` takes anything that is `AsRef<[u8]>`, and a `TypedTree<K, V>` takes a reference to the first part of a tuple `K`, or to the first field of a `K` that derives `everleaf::Key`"
)]
pub trait PrefixFor<T: TreeHandle> {
    /// Its bytes.
    #[doc(hidden)]
    fn encoded(&self) -> EncodedBytes<'_>;
}

/// The bytes of a key or a value: borrowed, or made for this.
#[doc(hidden)]
#[derive(Debug)]
pub enum EncodedBytes<'b> {
    Borrowed(&'b [u8]),
    Owned(Value),
}

impl Deref for EncodedBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl EncodedBytes<'_> {
    fn of_vec(bytes: Vec<u8>) -> Self {
        Self::Owned(Value::from_vec(bytes))
    }

    fn of_word(word: u64) -> Self {
        Self::Owned(Value::from_slice(&word.to_be_bytes()))
    }
}

impl Sealed for Tree {}
impl<K, V> Sealed for TypedTree<K, V> {}
impl Sealed for WordTree {}

impl TreeHandle for Tree {
    type Key = Value;
    type Value = Value;
    type Named<'v> = &'v [u8];

    fn bytes_tree(&self) -> &Tree {
        self
    }

    fn key_of(&self, bytes: &[u8]) -> Result<Value> {
        Ok(Value::from_slice(bytes))
    }

    fn value_of(&self, bytes: &[u8]) -> Result<Value> {
        Ok(Value::from_slice(bytes))
    }

    fn value_bytes(value: &Value) -> Encoded<Value> {
        Ok(value.clone())
    }

    fn named_bytes(value: &[u8]) -> Encoded<Value> {
        Ok(Value::from_slice(value))
    }
}

impl<K: AsRef<[u8]>> KeyFor<Tree> for K {
    fn encoded(&self) -> EncodedBytes<'_> {
        EncodedBytes::Borrowed(self.as_ref())
    }
}

impl<V: AsRef<[u8]>> ValueFor<Tree> for V {
    fn encoded(&self) -> Encoded<EncodedBytes<'_>> {
        Ok(EncodedBytes::Borrowed(self.as_ref()))
    }
}

impl<R: KeyRange> RangeFor<Tree> for R {
    fn encoded(self) -> Bounds {
        self.into_bounds()
    }
}

impl<P: AsRef<[u8]>> PrefixFor<Tree> for P {
    fn encoded(&self) -> EncodedBytes<'_> {
        EncodedBytes::Borrowed(self.as_ref())
    }
}

impl<K: Key, V: EncodedValue> TreeHandle for TypedTree<K, V> {
    type Key = K;
    type Value = V;
    type Named<'v>
        = &'v V
    where
        Self: 'v;

    fn bytes_tree(&self) -> &Tree {
        self.beneath()
    }

    fn key_of(&self, bytes: &[u8]) -> Result<K> {
        self.key(bytes)
    }

    fn value_of(&self, bytes: &[u8]) -> Result<V> {
        self.value(bytes)
    }

    fn value_bytes(value: &V) -> Encoded<Value> {
        Self::named_bytes(value)
    }

    fn named_bytes(value: &V) -> Encoded<Value> {
        Ok(Value::from_vec(value_bytes(value)?))
    }
}

impl<K, V, Q> KeyFor<TypedTree<K, V>> for &Q
where
    K: Key + EncodedLike<Q>,
    V: EncodedValue,
    Q: Key + ?Sized,
{
    fn encoded(&self) -> EncodedBytes<'_> {
        EncodedBytes::of_vec(key_bytes(*self))
    }
}

impl<K, V, W> ValueFor<TypedTree<K, V>> for &W
where
    K: Key,
    V: EncodedValue + EncodedLike<W>,
    W: EncodedValue + ?Sized,
{
    fn encoded(&self) -> Encoded<EncodedBytes<'_>> {
        Ok(EncodedBytes::of_vec(value_bytes(*self)?))
    }
}

impl<K: Key, V: EncodedValue, R: RangeBounds<K>> RangeFor<TypedTree<K, V>> for R {
    fn encoded(self) -> Bounds {
        Bounds {
            lower: self.start_bound().map(key_bytes),
            upper: self.end_bound().map(key_bytes),
        }
    }
}

impl<K, V, P> PrefixFor<TypedTree<K, V>> for &P
where
    K: Key + StartsWith<P>,
    V: EncodedValue,
    P: Key + ?Sized,
{
    fn encoded(&self) -> EncodedBytes<'_> {
        let mut bytes = Vec::new();
        self.encode_before(&mut bytes);
        EncodedBytes::of_vec(bytes)
    }
}

impl TreeHandle for WordTree {
    type Key = u64;
    type Value = u64;
    type Named<'v> = u64;

    fn bytes_tree(&self) -> &Tree {
        self.as_tree()
    }

    fn key_of(&self, bytes: &[u8]) -> Result<u64> {
        Ok(crate::word_tree::word(bytes))
    }

    fn value_of(&self, bytes: &[u8]) -> Result<u64> {
        Ok(crate::word_tree::word(bytes))
    }

    fn value_bytes(value: &u64) -> Encoded<Value> {
        Self::named_bytes(*value)
    }

    fn named_bytes(value: u64) -> Encoded<Value> {
        Ok(Value::from_slice(&value.to_be_bytes()))
    }
}

impl KeyFor<WordTree> for u64 {
    fn encoded(&self) -> EncodedBytes<'_> {
        EncodedBytes::of_word(*self)
    }
}

impl ValueFor<WordTree> for u64 {
    fn encoded(&self) -> Encoded<EncodedBytes<'_>> {
        Ok(EncodedBytes::of_word(*self))
    }
}

impl<R: RangeBounds<u64>> RangeFor<WordTree> for R {
    fn encoded(self) -> Bounds {
        let bytes = |bound: Bound<&u64>| bound.map(|key| key.to_be_bytes().to_vec());
        Bounds {
            lower: bytes(self.start_bound()),
            upper: bytes(self.end_bound()),
        }
    }
}
