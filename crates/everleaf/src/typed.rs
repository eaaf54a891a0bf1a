//! Trees of types.

use std::marker::PhantomData;
use std::ops::RangeBounds;

use engines::index::Bounds;
use engines::{Error, ErrorKind, Result};

use crate::back_off::BackOff;
use crate::encoding::NotEncodable;
use crate::tree_types::{EntryTypes, WantedEntries};
use crate::{EncodedLike, EncodedValue, Key, Range, StartsWith, Store, Tree, TreeOptions};

/// An ordered map from `K` to `V`, by name in a [`Store`](crate::Store): a [`Tree`] whose keys and
/// values are encoded. [`Tree`] has the rest: threads, durability, errors.
///
/// ```
/// # let store = everleaf::Store::in_memory()?;
/// let readings = store.typed::<(String, i32), f64>("readings")?;
/// for (day, celsius) in [(-1, 3.5), (0, 4.0), (1, -0.5)] {
///     readings.put(&("roof".to_owned(), day), &celsius)?;
/// }
/// readings.put(&("yard".to_owned(), 0), &5.0)?;
///
/// let roof: Vec<_> = readings.prefix("roof").collect::<Result<_, _>>()?;
/// assert_eq!(roof.len(), 3);
/// assert_eq!(roof[0], (("roof".to_owned(), -1), 3.5));
/// let since = ("roof".to_owned(), 1)..;
/// assert_eq!(readings.range(since).count(), 2);
/// # Ok::<(), everleaf::Error>(())
/// ```
///
/// The pool remembers the encodings of `K` and `V` by name, and the tree opens with these types only:
/// see [`Store::typed`](crate::Store::typed). Bytes that are those of no `K` or `V`, for example
/// because a type's code has changed and its version has not, are [`ErrorKind::NotOfType`].
pub struct TypedTree<K, V> {
    tree: Tree,
    /// The same tree, for callers that read bytes.
    bytes: Tree,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Clone for TypedTree<K, V> {
    fn clone(&self) -> Self {
        Self {
            tree: self.tree.clone(),
            bytes: self.bytes.clone(),
            types: PhantomData,
        }
    }
}

pub(crate) fn key_bytes(key: &(impl Key + ?Sized)) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    bytes
}

pub(crate) fn value_bytes(
    value: &(impl EncodedValue + ?Sized),
) -> std::result::Result<Vec<u8>, NotEncodable> {
    let mut bytes = Vec::new();
    value.encode_value(&mut bytes)?;
    Ok(bytes)
}

/// The key of a tree that these bytes stand for.
pub(crate) fn decode_key<K: Key>(tree: &str, bytes: &[u8]) -> Result<K> {
    K::decode(bytes).ok_or_else(|| not_of_type::<K>(tree, "key"))
}

/// The value of a tree that these bytes stand for.
pub(crate) fn decode_value<V: EncodedValue>(tree: &str, bytes: &[u8]) -> Result<V> {
    V::decode_value(bytes).ok_or_else(|| not_of_type::<V>(tree, "value"))
}

#[cold]
fn not_of_type<T>(tree: &str, what: &'static str) -> Error {
    ErrorKind::NotOfType {
        name: tree.to_owned(),
        what,
        wanted: std::any::type_name::<T>(),
    }
    .into()
}

impl Store {
    /// The tree `name` with keys and values of these types. The pool remembers their encodings by
    /// name and version ([`Encoding`](crate::Encoding)) when the tree is made, and the tree opens
    /// with the same types only. If a type has a newer version that reads the older one of the tree,
    /// the tree remembers the newer version from now on, unless the store is only read: programs
    /// that know only the older version are refused then.
    ///
    /// A tree that has no entry has nothing that could be misread, so it takes the types of the first
    /// open that names others, unless a handle of it or a snapshot is in use. A program that ends before it
    /// has written anything, for example because it could not read its own input, leaves no tree that
    /// refuses the right types.
    ///
    /// ```
    /// # use everleaf::{ErrorKind, Store};
    /// # let store = Store::in_memory()?;
    /// let names = store.typed::<u64, String>("names")?;
    /// names.put(&7, "ada")?;
    /// let refused = store.typed::<String, u64>("names").unwrap_err();
    /// assert!(matches!(refused.kind(), ErrorKind::TypeMismatch { .. }));
    /// assert!(refused.to_string().contains("holds u64 -> text, not text -> u64"));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// [`Store::tree`] opens such a tree to be read as bytes. [`Store::adopt`] gives types to a tree
    /// of byte strings, and other ones to a typed tree.
    ///
    /// # Errors
    /// [`ErrorKind::TypeMismatch`]: the tree has entries, and other types or none;
    /// [`ErrorKind::BadEncoding`]: the names of the types have more than 272 bytes together;
    /// and the errors of [`Store::tree`], which also has the cost.
    pub fn typed<K: Key, V: EncodedValue>(&self, name: &str) -> Result<TypedTree<K, V>> {
        let types = EntryTypes::of::<K, V>();
        let tree = self.of_any_engine(name, TreeOptions::RECORDS, &WantedEntries::Typed(&types))?;
        Ok(TypedTree::new(tree))
    }

    /// The tree `name` with keys and values of these types, made with these options if it is missing.
    /// With [`TreeOptions::WORDS`] both types have encodings of 8 bytes. Errors are those of
    /// [`Store::typed`] and of [`Store::tree_with`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// use everleaf::{Engine, TreeOptions};
    ///
    /// let kind = TreeOptions { engine: Engine::BZTREE, ..TreeOptions::WORDS };
    /// let temperatures = store.typed_with::<i64, f64>("temperatures", kind)?;
    /// temperatures.put(&-3, &21.5)?;
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn typed_with<K: Key, V: EncodedValue>(
        &self,
        name: &str,
        options: TreeOptions,
    ) -> Result<TypedTree<K, V>> {
        let types = EntryTypes::of::<K, V>();
        let tree = self.of_one_engine(name, options, &WantedEntries::Typed(&types))?;
        Ok(TypedTree::new(tree))
    }
}

impl Tree {
    /// The same tree with the types of its keys and values. Errors are those of
    /// [`Store::typed`](crate::Store::typed).
    pub fn typed<K: Key, V: EncodedValue>(&self) -> Result<TypedTree<K, V>> {
        let store = Store {
            inner: self.store().clone(),
        };
        store.typed(self.name())
    }
}

impl<K: Key, V: EncodedValue> TypedTree<K, V> {
    /// A handle that writes keys and values of these types, which the tree has.
    pub(crate) fn new(tree: Tree) -> Self {
        Self {
            bytes: tree.for_bytes(),
            tree,
            types: PhantomData,
        }
    }

    /// The same tree over byte strings, to be read: a write of bytes is
    /// [`ErrorKind::TypedTree`].
    pub fn as_tree(&self) -> &Tree {
        &self.bytes
    }

    /// The tree that takes the bytes of keys and values of these types.
    pub(crate) fn beneath(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn value(&self, bytes: &[u8]) -> Result<V> {
        self.tree.at(decode_value(self.tree.name(), bytes))
    }

    pub(crate) fn key(&self, bytes: &[u8]) -> Result<K> {
        self.tree.at(decode_key(self.tree.name(), bytes))
    }

    pub(crate) fn entry(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(K, V)> {
        Ok((self.key(key.as_ref())?, self.value(value.as_ref())?))
    }

    /// Returns the value of a key; see [`Tree::get`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let ages = store.typed::<String, u32>("ages")?;
    /// ages.put("ada", &36)?; // a `&str` has the same bytes as a `String`
    /// assert_eq!(ages.get("ada")?, Some(36));
    /// assert_eq!(ages.get("bob")?, None);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn get<Q: Key + ?Sized>(&self, key: &Q) -> Result<Option<V>>
    where
        K: EncodedLike<Q>,
    {
        self.tree
            .get(key_bytes(key))?
            .map(|value| self.value(&value))
            .transpose()
    }

    /// Whether a key is present; see [`Tree::contains`].
    pub fn contains<Q: Key + ?Sized>(&self, key: &Q) -> Result<bool>
    where
        K: EncodedLike<Q>,
    {
        self.tree.contains(key_bytes(key))
    }

    /// Returns the values of many keys, in their order; see [`Tree::get_many`].
    pub fn get_many<'q, Q: Key + ?Sized + 'q>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
    ) -> Result<Vec<Option<V>>>
    where
        K: EncodedLike<Q>,
    {
        let keys: Vec<Vec<u8>> = keys.into_iter().map(key_bytes).collect();
        let found = self.tree.get_many(&keys)?;
        found
            .into_iter()
            .map(|found| found.map(|value| self.value(&value)).transpose())
            .collect()
    }

    /// Adds a key; `false`, and nothing changes, if it is present. See [`Tree::insert`].
    pub fn insert<Q: Key + ?Sized, W: EncodedValue + ?Sized>(
        &self,
        key: &Q,
        value: &W,
    ) -> Result<bool>
    where
        K: EncodedLike<Q>,
        V: EncodedLike<W>,
    {
        self.tree.insert(key_bytes(key), value_bytes(value)?)
    }

    /// Replaces the value of a key; `false`, and nothing changes, if it is absent. See
    /// [`Tree::update`].
    pub fn update<Q: Key + ?Sized, W: EncodedValue + ?Sized>(
        &self,
        key: &Q,
        value: &W,
    ) -> Result<bool>
    where
        K: EncodedLike<Q>,
        V: EncodedLike<W>,
    {
        self.tree.update(key_bytes(key), value_bytes(value)?)
    }

    /// Sets the value of a key, whether it is present or not; see [`Tree::put`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let names = store.typed::<(u16, u32), String>("names")?;
    /// names.put(&(2024, 7), "ada")?;
    /// names.put(&(2024, 7), "bob")?; // replaces the value
    /// assert_eq!(names.get(&(2024, 7))?.as_deref(), Some("bob"));
    /// assert_eq!(names.len()?, 1);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn put<Q: Key + ?Sized, W: EncodedValue + ?Sized>(&self, key: &Q, value: &W) -> Result<()>
    where
        K: EncodedLike<Q>,
        V: EncodedLike<W>,
    {
        self.tree.put(key_bytes(key), value_bytes(value)?)
    }

    /// Removes a key; `false` if it is absent. See [`Tree::remove`].
    pub fn remove<Q: Key + ?Sized>(&self, key: &Q) -> Result<bool>
    where
        K: EncodedLike<Q>,
    {
        self.tree.remove(key_bytes(key))
    }

    /// Replaces `current` by `new` in one atomic step; see [`Tree::compare_exchange`].
    pub fn compare_exchange<Q: Key + ?Sized, W: EncodedValue + ?Sized>(
        &self,
        key: &Q,
        current: Option<&W>,
        new: Option<&W>,
    ) -> Result<bool>
    where
        K: EncodedLike<Q>,
        V: EncodedLike<W>,
    {
        let current = current.map(value_bytes).transpose()?;
        let new = new.map(value_bytes).transpose()?;
        self.tree
            .compare_exchange(key_bytes(key), current.as_deref(), new.as_deref())
    }

    /// Sets the value of a key, and returns the old one; see [`Tree::replace`].
    pub fn replace<Q: Key + ?Sized, W: EncodedValue + ?Sized>(
        &self,
        key: &Q,
        value: &W,
    ) -> Result<Option<V>>
    where
        K: EncodedLike<Q>,
        V: EncodedLike<W>,
    {
        let old = self.tree.replace(key_bytes(key), value_bytes(value)?)?;
        old.map(|old| self.value(&old)).transpose()
    }

    /// Removes a key, and returns its value; see [`Tree::take`].
    pub fn take<Q: Key + ?Sized>(&self, key: &Q) -> Result<Option<V>>
    where
        K: EncodedLike<Q>,
    {
        self.tree
            .take(key_bytes(key))?
            .map(|old| self.value(&old))
            .transpose()
    }

    /// Computes the new value of a key from the old one, in one atomic step, and returns the old
    /// one; see [`Tree::fetch_update`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let hits = store.typed::<String, u64>("hits")?;
    /// for _ in 0..3 {
    ///     hits.fetch_update("index.html", |hits| Some(hits.unwrap_or(0) + 1))?;
    /// }
    /// assert_eq!(hits.get("index.html")?, Some(3));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn fetch_update<Q: Key + ?Sized>(
        &self,
        key: &Q,
        mut update: impl FnMut(Option<V>) -> Option<V>,
    ) -> Result<Option<V>>
    where
        K: EncodedLike<Q>,
    {
        let key = key_bytes(key);
        let mut back_off = BackOff::spinning();
        loop {
            let bytes = self.tree.get(&key)?;
            let old = || bytes.as_deref().map(|old| self.value(old)).transpose();
            let new = update(old()?).as_ref().map(value_bytes).transpose()?;
            if self
                .tree
                .compare_exchange(&key, bytes.as_deref(), new.as_deref())?
            {
                return old();
            }
            back_off.pause();
        }
    }

    /// Replaces the value of a key by what `update` makes of it, in one atomic step, and returns the
    /// new one; an error of `update` ends it, and nothing changes.
    pub(crate) fn try_fetch_update<Q: Key + ?Sized>(
        &self,
        key: &Q,
        update: impl Fn(Option<V>) -> Result<V>,
    ) -> Result<V>
    where
        K: EncodedLike<Q>,
    {
        let key = key_bytes(key);
        let mut back_off = BackOff::spinning();
        loop {
            let bytes = self.tree.get(&key)?;
            let old = match &bytes {
                Some(bytes) => Some(self.value(bytes)?),
                None => None,
            };
            let new = update(old)?;
            let new_bytes = value_bytes(&new)?;
            let old_bytes = bytes.as_deref();
            if self
                .tree
                .compare_exchange(&key, old_bytes, Some(&new_bytes))?
            {
                return Ok(new);
            }
            back_off.pause();
        }
    }

    /// Returns the entry with the smallest key; see [`Tree::first`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let celsius = store.typed::<i32, f64>("celsius")?; // by day
    /// for day in [3, -2, 0] {
    ///     celsius.put(&day, &21.5)?;
    /// }
    /// assert_eq!(celsius.first()?, Some((-2, 21.5))); // numbers sort as numbers
    /// assert_eq!(celsius.last()?, Some((3, 21.5)));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn first(&self) -> Result<Option<(K, V)>> {
        self.tree
            .first()?
            .map(|(key, value)| self.entry(key, value))
            .transpose()
    }

    /// Returns the entry with the greatest key; see [`Tree::last`].
    pub fn last(&self) -> Result<Option<(K, V)>> {
        self.tree
            .last()?
            .map(|(key, value)| self.entry(key, value))
            .transpose()
    }

    /// Removes the entry with the smallest key, and returns it; see [`Tree::pop_first`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let jobs = store.typed::<(u8, u64), String>("jobs")?; // by priority and number
    /// jobs.put(&(2, 1), "print")?;
    /// jobs.put(&(1, 2), "alarm")?;
    /// assert_eq!(jobs.pop_first()?, Some(((1, 2), "alarm".to_owned())));
    /// assert_eq!(jobs.pop_first()?, Some(((2, 1), "print".to_owned())));
    /// assert_eq!(jobs.pop_first()?, None);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn pop_first(&self) -> Result<Option<(K, V)>> {
        self.tree
            .pop_first()?
            .map(|(key, value)| self.entry(key, value))
            .transpose()
    }

    /// Removes the entry with the greatest key, and returns it; see [`Tree::pop_last`].
    pub fn pop_last(&self) -> Result<Option<(K, V)>> {
        self.tree
            .pop_last()?
            .map(|(key, value)| self.entry(key, value))
            .transpose()
    }

    /// Returns the first entry above a key; see [`Tree::next_above`].
    pub fn next_above<Q: Key + ?Sized>(&self, key: &Q) -> Result<Option<(K, V)>>
    where
        K: EncodedLike<Q>,
    {
        self.tree
            .next_above(key_bytes(key))?
            .map(|(key, value)| self.entry(key, value))
            .transpose()
    }

    /// Returns the last entry below a key; see [`Tree::next_below`].
    pub fn next_below<Q: Key + ?Sized>(&self, key: &Q) -> Result<Option<(K, V)>>
    where
        K: EncodedLike<Q>,
    {
        self.tree
            .next_below(key_bytes(key))?
            .map(|(key, value)| self.entry(key, value))
            .transpose()
    }

    fn bounds<Q: Key + ?Sized>(range: &impl RangeBounds<Q>) -> Bounds {
        Bounds {
            lower: range.start_bound().map(key_bytes),
            upper: range.end_bound().map(key_bytes),
        }
    }

    /// Iterates over the entries within a range of keys, in order; see [`Tree::range`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let celsius = store.typed::<i32, f64>("celsius")?; // by day
    /// for day in -3..3 {
    ///     celsius.put(&day, &f64::from(day))?;
    /// }
    /// let days: Vec<_> = celsius.range(-1..1).collect::<Result<_, _>>()?;
    /// assert_eq!(days, [(-1, -1.0), (0, 0.0)]);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn range<Q: Key + ?Sized>(&self, range: impl RangeBounds<Q>) -> TypedRange<'_, K, V>
    where
        K: EncodedLike<Q>,
    {
        TypedRange {
            range: self.tree.range(Self::bounds(&range)),
            tree: self,
        }
    }

    /// Iterates over the entries whose keys are tuples with this first part; see [`Tree::range`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let sales = store.typed::<(u16, u8), u32>("sales")?; // by year and month
    /// sales.put(&(2023, 12), &70)?;
    /// sales.put(&(2024, 1), &30)?;
    /// sales.put(&(2024, 2), &12)?;
    /// let of_2024: Vec<_> = sales.prefix(&2024_u16).collect::<Result<_, _>>()?;
    /// assert_eq!(of_2024, [((2024, 1), 30), ((2024, 2), 12)]);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn prefix<P: Key + ?Sized>(&self, part: &P) -> TypedRange<'_, K, V>
    where
        K: StartsWith<P>,
    {
        let mut bytes = Vec::new();
        part.encode_before(&mut bytes);
        TypedRange {
            range: self.tree.prefix(bytes),
            tree: self,
        }
    }

    /// Iterates over all entries, in order; see [`Tree::iter`].
    pub fn iter(&self) -> TypedRange<'_, K, V> {
        TypedRange {
            range: self.tree.iter(),
            tree: self,
        }
    }

    /// Removes the keys of a range, and returns how many; see [`Tree::remove_range`].
    pub fn remove_range<Q: Key + ?Sized>(&self, range: impl RangeBounds<Q>) -> Result<u64>
    where
        K: EncodedLike<Q>,
    {
        self.tree.remove_range(Self::bounds(&range))
    }

    /// Removes all keys, and returns how many; see [`Tree::clear`].
    pub fn clear(&self) -> Result<u64> {
        self.tree.clear()
    }

    /// Returns the number of keys; see [`Tree::len`].
    pub fn len(&self) -> Result<u64> {
        self.tree.len()
    }

    /// Whether there is no key; see [`Tree::is_empty`].
    pub fn is_empty(&self) -> Result<bool> {
        self.tree.is_empty()
    }

    /// Fills an empty tree from entries in strictly ascending order; see [`Tree::bulk_load`].
    pub fn bulk_load(&self, entries: impl IntoIterator<Item = (K, V)>, fill: f64) -> Result<u64> {
        let bytes = |(key, value): (K, V)| -> Result<(Vec<u8>, Vec<u8>)> {
            Ok((key_bytes(&key), value_bytes(&value)?))
        };
        self.tree
            .try_bulk_load(entries.into_iter().map(bytes), fill)
    }
}

impl<'t, K: Key, V: EncodedValue> IntoIterator for &'t TypedTree<K, V> {
    type Item = Result<(K, V)>;
    type IntoIter = TypedRange<'t, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K, V> std::fmt::Debug for TypedTree<K, V> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_tuple("TypedTree")
            .field(&self.tree)
            .finish()
    }
}

/// The entries of a range of a [`TypedTree`], in order; from either end, so `rev()` works. See
/// [`Range`].
pub struct TypedRange<'t, K, V> {
    range: Range<'t>,
    tree: &'t TypedTree<K, V>,
}

impl<K: Key, V: EncodedValue> Iterator for TypedRange<'_, K, V> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.range.next_entry().transpose()?;
        Some(entry.and_then(|(key, value)| self.tree.entry(key, value)))
    }
}

impl<K: Key, V: EncodedValue> DoubleEndedIterator for TypedRange<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.range.next_entry_back().transpose()?;
        Some(entry.and_then(|(key, value)| self.tree.entry(key, value)))
    }
}

impl<K: Key, V: EncodedValue> std::iter::FusedIterator for TypedRange<'_, K, V> {}

impl<K, V> std::fmt::Debug for TypedRange<'_, K, V> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_tuple("TypedRange")
            .field(&self.range)
            .finish()
    }
}
