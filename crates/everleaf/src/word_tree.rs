//! A tree of words.

use std::ops::{Bound, RangeBounds};

use engines::Result;
use engines::batch::StripedWords;
use engines::index::{Bounds, Condition, WordIndex};

use crate::back_off::BackOff;
use crate::tree_types::encodings_of_words;
use crate::{Range, Tree};

/// An ordered map from `u64` to `u64`, by name in a [`Store`](crate::Store): the fast path for
/// small fixed entries, without byte strings in between. [`Tree`] has the rest: threads,
/// durability, errors.
///
/// ```
/// # let store = everleaf::Store::in_memory()?;
/// let ages = store.word_tree("ages")?;
/// ages.put(7, 41)?;
/// assert_eq!(ages.get(7)?, Some(41));
/// assert!(ages.compare_exchange(7, Some(41), Some(42))?);
/// let pairs: Vec<(u64, u64)> = ages.range(5..10).collect::<Result<_, _>>()?;
/// assert_eq!(pairs, [(7, 42)]);
/// # Ok::<(), everleaf::Error>(())
/// ```
#[derive(Clone)]
pub struct WordTree {
    tree: Tree,
}

impl Tree {
    /// The same tree as a tree of words, whatever its engine; `None` if it is one of records, or if
    /// its keys or values have another type than `u64`.
    ///
    /// ```
    /// # use everleaf::{Engine, Store, TreeOptions};
    /// # let store = Store::in_memory()?;
    /// let tree = store.tree_with("ages", TreeOptions { engine: Engine::BZTREE, ..TreeOptions::WORDS })?;
    /// let ages = tree.as_words().expect("made as one");
    /// ages.put(7, 41)?;
    /// assert_eq!(tree.get(7_u64.to_be_bytes())?.as_deref(), Some(&41_u64.to_be_bytes()[..]));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn as_words(&self) -> Option<WordTree> {
        self.striped().as_words()?;
        let are_words = match self.encodings() {
            Some(encodings) => *encodings == encodings_of_words(),
            None => true,
        };
        if are_words {
            Some(WordTree::new(self.for_its_encodings()))
        } else {
            None
        }
    }
}

impl WordTree {
    /// A tree of words.
    pub(crate) fn new(tree: Tree) -> Self {
        Self { tree }
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> &StripedWords {
        self.tree
            .striped()
            .as_words()
            .expect("`Tree::as_words` asked whether it is a tree of words")
    }

    /// The same tree over byte strings: keys and values as 8 bytes, big-endian.
    pub fn as_tree(&self) -> &Tree {
        &self.tree
    }

    #[inline(always)]
    fn write(&self, key: u64, value: Option<u64>, condition: Condition<u64>) -> Result<bool> {
        self.tree
            .write(|| self.words().write(key, value, condition))
    }

    /// The value of `key`. O(log n). [`WordTree`] has an example.
    #[inline]
    pub fn get(&self, key: u64) -> Result<Option<u64>> {
        self.tree.answer(self.words().read(key))
    }

    /// Adds a key; `false`, and nothing changes, if it is present. O(log n).
    #[inline]
    pub fn insert(&self, key: u64, value: u64) -> Result<bool> {
        self.write(key, Some(value), Condition::Absent)
    }

    /// Replaces the value of a key; `false`, and nothing changes, if it is absent. O(log n).
    #[inline]
    pub fn update(&self, key: u64, value: u64) -> Result<bool> {
        self.write(key, Some(value), Condition::Present)
    }

    /// Sets the value of a key, whether it is present or not. O(log n). [`WordTree`] has an
    /// example.
    #[inline]
    pub fn put(&self, key: u64, value: u64) -> Result<()> {
        self.write(key, Some(value), Condition::Always).map(|_| ())
    }

    /// Removes a key; `false` if it is absent. O(log n).
    #[inline]
    pub fn remove(&self, key: u64) -> Result<bool> {
        self.write(key, None, Condition::Present)
    }

    /// Replaces `current` by `new` in one atomic step; `None` stands for absent. Returns whether
    /// the key had `current`; if not, nothing changes. O(log n).
    pub fn compare_exchange(
        &self,
        key: u64,
        current: Option<u64>,
        new: Option<u64>,
    ) -> Result<bool> {
        match (current, new) {
            (None, None) => Ok(self.get(key)?.is_none()),
            (None, Some(_)) => self.write(key, new, Condition::Absent),
            (Some(current), _) => self.write(key, new, Condition::Equals(current)),
        }
    }

    /// Computes the new value of a key from the old one, in one atomic step, and returns the old one;
    /// see [`Tree::fetch_update`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let highest = store.word_tree("highest")?; // score of each player
    /// highest.put(7, 41)?;
    /// for score in [12, 64, 50] {
    ///     highest.fetch_update(7, |old| old.max(Some(score)))?;
    /// }
    /// assert_eq!(highest.get(7)?, Some(64));
    /// assert_eq!(highest.fetch_update(7, |_| None)?, Some(64)); // removes the key
    /// assert!(highest.is_empty()?);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn fetch_update(
        &self,
        key: u64,
        mut update: impl FnMut(Option<u64>) -> Option<u64>,
    ) -> Result<Option<u64>> {
        let mut back_off = BackOff::spinning();
        loop {
            let old = self.get(key)?;
            if self.compare_exchange(key, old, update(old))? {
                return Ok(old);
            }
            back_off.pause();
        }
    }

    /// Replaces the value of a key by what `update` makes of it, in one atomic step, and returns the
    /// new one; an error of `update` ends it, and nothing changes.
    pub(crate) fn try_fetch_update(
        &self,
        key: u64,
        update: impl Fn(Option<u64>) -> Result<u64>,
    ) -> Result<u64> {
        let mut back_off = BackOff::spinning();
        loop {
            let old = self.get(key)?;
            let new = update(old)?;
            if self.compare_exchange(key, old, Some(new))? {
                return Ok(new);
            }
            back_off.pause();
        }
    }

    /// The values of many keys, in their order: several times as fast as one [`WordTree::get`]
    /// after the other.
    pub fn get_many(&self, keys: &[u64]) -> Result<Vec<Option<u64>>> {
        let mut values = vec![None; keys.len()];
        self.get_many_into(keys, &mut values)?;
        Ok(values)
    }

    /// Writes the values of many keys into a buffer; see [`WordTree::get_many`].
    ///
    /// # Panics
    /// If `values` is not as long as `keys`.
    pub fn get_many_into(&self, keys: &[u64], values: &mut [Option<u64>]) -> Result<()> {
        assert_eq!(keys.len(), values.len(), "one place for each key");
        let lsn = self.tree.at(self.words().read_many(keys, values))?;
        self.tree.wait_for(lsn)
    }

    /// Calls `visit` with the entries from `from` on, ascending, until it returns `false`: the
    /// fastest way to read a range. O(log n + entries).
    ///
    /// If this returns [`ErrorKind::ViewTooOld`](crate::ErrorKind::ViewTooOld), in a store that is
    /// only read, the entries do not count.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let squares = store.word_tree("squares")?;
    /// squares.bulk_load((0..1000).map(|n| (n, n * n)), 1.0)?;
    /// let mut sum = 0;
    /// squares.scan(10, |n, square| {
    ///     sum += square;
    ///     n < 12 // 12 is the last one
    /// })?;
    /// assert_eq!(sum, 100 + 121 + 144);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn scan(&self, from: u64, visit: impl FnMut(u64, u64) -> bool) -> Result<()> {
        let words: &dyn WordIndex = self.words();
        self.tree.at(words.scan_each(from, visit))
    }

    /// The entries within a range of keys, in order; `rev()` reads them from the end. See
    /// [`Tree::range`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let ages = store.word_tree("ages")?;
    /// for id in 1..=9 {
    ///     ages.put(id, 20 + id)?;
    /// }
    /// let last: Vec<_> = ages.range(5..).rev().take(2).collect::<Result<_, _>>()?;
    /// assert_eq!(last, [(9, 29), (8, 28)]);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn range(&self, range: impl RangeBounds<u64>) -> WordRange<'_> {
        let bytes = |bound: Bound<&u64>| bound.map(|key| key.to_be_bytes().to_vec());
        let bounds = Bounds {
            lower: bytes(range.start_bound()),
            upper: bytes(range.end_bound()),
        };
        WordRange {
            range: self.tree.range(bounds),
        }
    }

    /// The number of keys; exact when no thread writes. O(leaves).
    pub fn len(&self) -> Result<u64> {
        self.tree.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> Result<bool> {
        self.tree.is_empty()
    }

    /// Fills an empty tree from entries in strictly ascending order; see [`Tree::bulk_load`].
    pub fn bulk_load(
        &self,
        entries: impl IntoIterator<Item = (u64, u64)>,
        fill: f64,
    ) -> Result<u64> {
        let bytes = |(key, value): (u64, u64)| (key.to_be_bytes(), value.to_be_bytes());
        self.tree.bulk_load(entries.into_iter().map(bytes), fill)
    }
}

impl std::fmt::Debug for WordTree {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("WordTree").field(&self.tree).finish()
    }
}

/// The entries of a range of a [`WordTree`], in order; from either end, so `rev()` works. See
/// [`Range`].
#[derive(Debug)]
pub struct WordRange<'t> {
    range: Range<'t>,
}

/// Eight bytes as a word. The codec gives no other length.
pub(crate) fn word(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk::<8>()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

impl Iterator for WordRange<'_> {
    type Item = Result<(u64, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.range.next_entry();
        entry
            .map(|entry| entry.map(|(key, value)| (word(key), word(value))))
            .transpose()
    }
}

impl DoubleEndedIterator for WordRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.range.next_entry_back();
        entry
            .map(|entry| entry.map(|(key, value)| (word(key), word(value))))
            .transpose()
    }
}

impl std::iter::FusedIterator for WordRange<'_> {}
