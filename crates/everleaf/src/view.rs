//! Reading the trees of a store as of one moment: what snapshots and transactions have in common.
#![expect(
    clippy::needless_pass_by_value,
    reason = "a key or a value is often made for the call"
)]

use std::ops::Bound;

use engines::Result;
use engines::index::Bounds;

use crate::range::Range;
use crate::view_reads::ViewReads;
use crate::{KeyFor, KeyRange as _, PrefixFor, RangeFor, TreeHandle};

/// The trees of a store as of one moment: a [`Snapshot`](crate::Snapshot), or a
/// [`Transaction`](crate::Transaction), which adds its own writes.
///
/// The methods take handles of trees of any kind, and return keys and values of that kind.
///
/// ```
/// use everleaf::View;
///
/// fn total(view: &impl View, accounts: &everleaf::TypedTree<String, u64>) -> everleaf::Result<u64> {
///     view.iter(accounts).map(|entry| Ok(entry?.1)).sum()
/// }
/// # let store = everleaf::Store::in_memory()?;
/// # let accounts = store.typed::<String, u64>("accounts")?;
/// accounts.put("ada", &70)?;
/// accounts.put("bob", &30)?;
/// let snapshot = store.snapshot()?;
/// accounts.put("ada", &0)?;
/// assert_eq!(total(&snapshot, &accounts)?, 100);
/// # Ok::<(), everleaf::Error>(())
/// ```
///
/// # Errors of all methods
/// [`ErrorKind::ViewTooOld`](crate::ErrorKind::ViewTooOld);
/// [`ErrorKind::OfAnotherStore`](crate::ErrorKind::OfAnotherStore);
/// [`ErrorKind::BatchUnfinished`](crate::ErrorKind::BatchUnfinished) if the view ought to have a
/// batch that could not be finished; the errors of a read of the tree.
pub trait View: ViewReads + Sized {
    /// The value of `key`. O(log n).
    fn get<T: TreeHandle>(&self, tree: &T, key: impl KeyFor<T>) -> Result<Option<T::Value>> {
        match self.read(tree.bytes_tree(), &key.encoded())? {
            Some(value) => Ok(Some(tree.value_of(&value)?)),
            None => Ok(None),
        }
    }

    /// Calls `read` with the bytes of the value of `key`, if it is present, and returns what that
    /// returns. O(log n).
    fn get_with<T: TreeHandle, R>(
        &self,
        tree: &T,
        key: impl KeyFor<T>,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let value = self.read(tree.bytes_tree(), &key.encoded())?;
        Ok(value.map(|value| read(&value)))
    }

    /// The values of many keys, in their order. Faster than one [`View::get`] after the other.
    fn get_many<T: TreeHandle, K: KeyFor<T>>(
        &self,
        tree: &T,
        keys: &[K],
    ) -> Result<Vec<Option<T::Value>>> {
        let encoded: Vec<_> = keys.iter().map(KeyFor::encoded).collect();
        let keys: Vec<&[u8]> = encoded.iter().map(|key| &**key).collect();
        let mut values = Vec::with_capacity(keys.len());
        for value in self.read_many(tree.bytes_tree(), &keys)? {
            values.push(match value {
                Some(value) => Some(tree.value_of(&value)?),
                None => None,
            });
        }
        Ok(values)
    }

    /// Whether `key` is present. O(log n).
    fn contains<T: TreeHandle>(&self, tree: &T, key: impl KeyFor<T>) -> Result<bool> {
        Ok(self.read(tree.bytes_tree(), &key.encoded())?.is_some())
    }

    /// The entries within a range of keys, in order; `rev()` reads them from the end. O(log n), then
    /// O(1) an entry.
    fn range<'v, T: TreeHandle>(
        &'v self,
        tree: &'v T,
        range: impl RangeFor<T>,
    ) -> ViewRange<'v, T> {
        ViewRange::new(self, tree, range.encoded())
    }

    /// The entries whose keys begin with `prefix`, or are tuples with this first part, in order.
    fn prefix<'v, T: TreeHandle>(
        &'v self,
        tree: &'v T,
        prefix: impl PrefixFor<T>,
    ) -> ViewRange<'v, T> {
        ViewRange::new(self, tree, Bounds::prefix(&prefix.encoded()))
    }

    /// All entries, in order.
    fn iter<'v, T: TreeHandle>(&'v self, tree: &'v T) -> ViewRange<'v, T> {
        ViewRange::new(self, tree, Bounds::all())
    }

    /// The entry with the smallest key. O(log n).
    fn first<T: TreeHandle>(&self, tree: &T) -> Result<Option<(T::Key, T::Value)>> {
        self.iter(tree).next().transpose()
    }

    /// The entry with the greatest key. O(log n).
    fn last<T: TreeHandle>(&self, tree: &T) -> Result<Option<(T::Key, T::Value)>> {
        self.iter(tree).next_back().transpose()
    }

    /// The first entry above a key, whether that is present or not. O(log n).
    fn next_above<T: TreeHandle>(
        &self,
        tree: &T,
        key: impl KeyFor<T>,
    ) -> Result<Option<(T::Key, T::Value)>> {
        let above = Bounds {
            lower: Bound::Excluded(key.encoded().to_vec()),
            upper: Bound::Unbounded,
        };
        ViewRange::new(self, tree, above).next().transpose()
    }

    /// The last entry below a key, whether that is present or not. O(log n).
    fn next_below<T: TreeHandle>(
        &self,
        tree: &T,
        key: impl KeyFor<T>,
    ) -> Result<Option<(T::Key, T::Value)>> {
        let below = (..&*key.encoded()).into_bounds();
        ViewRange::new(self, tree, below).next_back().transpose()
    }
}

/// The entries of a range of a tree in a [`View`], in order of their keys; from either end, so
/// `rev()` works. An item is a key and its value, or the error that ended the range.
pub struct ViewRange<'v, T> {
    range: Range<'v>,
    tree: &'v T,
}

impl<'v, T: TreeHandle> ViewRange<'v, T> {
    fn new(view: &'v dyn ViewReads, tree: &'v T, bounds: Bounds) -> Self {
        Self {
            range: Range::in_view(tree.bytes_tree(), view, bounds),
            tree,
        }
    }

    /// Goes to a key, forward or back: [`Iterator::next`] then returns the first entry at or above
    /// it that the bounds of the range include and the other end has not passed. O(log n).
    pub fn seek(&mut self, key: impl KeyFor<T>) {
        self.range.seek(&*key.encoded());
    }

    /// Goes to a key from the other end: [`DoubleEndedIterator::next_back`] then returns the last
    /// entry at or below it that the bounds of the range include and the other end has not passed.
    /// O(log n).
    pub fn seek_back(&mut self, key: impl KeyFor<T>) {
        self.range.seek_back(&*key.encoded());
    }

    /// The bytes of the next entry, borrowed until the next call: a range without allocation.
    ///
    /// # Errors
    /// Those of [`View`]; the range then ends.
    pub fn next_bytes(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.range.next_entry()
    }

    /// The bytes of the last entry that was not returned yet, borrowed until the next call; see
    /// [`ViewRange::next_bytes`].
    ///
    /// # Errors
    /// Those of [`View`]; the range then ends.
    pub fn next_bytes_back(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.range.next_entry_back()
    }
}

impl<T: TreeHandle> Iterator for ViewRange<'_, T> {
    type Item = Result<(T::Key, T::Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.range.next_entry() {
            Ok(Some((key, value))) => Some(decoded(self.tree, key, value)),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl<T: TreeHandle> DoubleEndedIterator for ViewRange<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self.range.next_entry_back() {
            Ok(Some((key, value))) => Some(decoded(self.tree, key, value)),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl<T: TreeHandle> std::iter::FusedIterator for ViewRange<'_, T> {}

impl<T> std::fmt::Debug for ViewRange<'_, T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_tuple("ViewRange")
            .field(&self.range)
            .finish()
    }
}

fn decoded<T: TreeHandle>(tree: &T, key: &[u8], value: &[u8]) -> Result<(T::Key, T::Value)> {
    Ok((tree.key_of(key)?, tree.value_of(value)?))
}
