//! Operations on trees that follow from single reads and writes: the old value of a write, the ends
//! of a tree, neighbours of a key, removal of many keys.

use std::ops::Bound;

use engines::Result;
use engines::index::{Bounds, Entry, Value};

use crate::back_off::BackOff;
use crate::{KeyRange, Pending, Tree};

/// Keys that a removal of a range reads before it removes them.
pub(crate) const REMOVED_AT_ONCE: usize = 256;

impl Tree {
    /// Sets the value of a key, and returns the old one; `None` if the key was absent. One atomic
    /// step. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.tree("stock")?;
    /// assert_eq!(stock.replace("apple", "12")?, None);
    /// assert_eq!(stock.replace("apple", "11")?.as_deref(), Some(b"12".as_slice()));
    /// assert_eq!(stock.take("apple")?.as_deref(), Some(b"11".as_slice()));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.fetch_update(key, |_| Some(value.as_ref()))
    }

    /// Removes a key, and returns its value; `None` if it was absent. One atomic step. O(log n).
    /// [`Tree::replace`] has an example.
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.fetch_update(key, |_| None::<Vec<u8>>)
    }

    /// Replaces the value of a key by what `update` makes of it, where `None` stands for absent,
    /// and returns the old one. One atomic step: if another thread changes the key meanwhile,
    /// `update` is called again, after a pause that grows. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let visits = store.tree("visits")?;
    /// let count = |bytes: Option<&[u8]>| bytes.map_or(0, |bytes| bytes.len());
    /// for _ in 0..3 {
    ///     visits.fetch_update("ada", |old| Some("x".repeat(count(old) + 1)))?;
    /// }
    /// assert_eq!(visits.get("ada")?.as_deref(), Some(b"xxx".as_slice()));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn fetch_update<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        mut update: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Value>> {
        let key = key.as_ref();
        let mut back_off = BackOff::spinning();
        loop {
            let old = self.get(key)?;
            let new = update(old.as_deref());
            if self.compare_exchange(key, old.as_deref(), new.as_ref().map(AsRef::as_ref))? {
                return Ok(old);
            }
            back_off.pause();
        }
    }

    /// The entry with the smallest key. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let years = store.tree("years")?;
    /// assert_eq!(years.first()?, None);
    /// years.put("1969", "Apollo 11")?;
    /// years.put("1957", "Sputnik")?;
    /// assert_eq!(&*years.first()?.unwrap().0, b"1957");
    /// assert_eq!(&*years.last()?.unwrap().0, b"1969");
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn first(&self) -> Result<Option<Entry>> {
        self.iter().next().transpose()
    }

    /// The entry with the greatest key. O(log n). [`Tree::first`] has an example.
    pub fn last(&self) -> Result<Option<Entry>> {
        self.iter().next_back().transpose()
    }

    /// The first entry above a key, whether that is present or not. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let years = store.tree("years")?;
    /// years.put("1969", "")?;
    /// years.put("1989", "")?;
    /// assert_eq!(&*years.next_above("1969")?.unwrap().0, b"1989");
    /// assert_eq!(&*years.next_below("1970")?.unwrap().0, b"1969");
    /// assert_eq!(years.next_below("1969")?, None);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn next_above(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        let lower = Bound::Excluded(key.as_ref().to_vec());
        self.range(Bounds {
            lower,
            upper: Bound::Unbounded,
        })
        .next()
        .transpose()
    }

    /// The last entry below a key, whether that is present or not. O(log n). [`Tree::next_above`]
    /// has an example.
    pub fn next_below(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        self.range(..key.as_ref()).next_back().transpose()
    }

    /// Removes the entry with the smallest key, and returns it; threads that do so never get the
    /// same entry. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let queue = store.tree("queue")?;
    /// for number in 0..3_u64 {
    ///     queue.put(number.to_be_bytes(), format!("job {number}"))?;
    /// }
    /// assert_eq!(&*queue.pop_first()?.unwrap().1, b"job 0");
    /// assert_eq!(&*queue.pop_last()?.unwrap().1, b"job 2");
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn pop_first(&self) -> Result<Option<Entry>> {
        self.pop(Self::first)
    }

    /// Removes the entry with the greatest key, and returns it; threads that do so never get the
    /// same entry. O(log n). [`Tree::pop_first`] has an example.
    pub fn pop_last(&self) -> Result<Option<Entry>> {
        self.pop(Self::last)
    }

    fn pop(&self, find: impl Fn(&Self) -> Result<Option<Entry>>) -> Result<Option<Entry>> {
        let mut back_off = BackOff::spinning();
        loop {
            let Some((key, value)) = find(self)? else {
                return Ok(None);
            };
            if self.compare_exchange(&key, Some(&value), None)? {
                return Ok(Some((key, value)));
            }
            back_off.pause();
        }
    }

    /// Removes the keys of a range, and returns how many. The removal is not atomic: readers may
    /// see some keys removed and others not, a crash may leave some of them, and a key that another
    /// thread adds meanwhile may stay. It waits for the medium once, at the end; with an engine
    /// that is durable by epochs it does not wait. O(log n) a key.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let readings = store.tree("readings")?;
    /// for day in 1..=31_u8 {
    ///     readings.put([day], "21.5 C")?;
    /// }
    /// assert_eq!(readings.remove_range(..[25_u8])?, 24);
    /// assert_eq!(readings.len()?, 7);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn remove_range(&self, range: impl KeyRange) -> Result<u64> {
        let mut bounds = range.into_bounds();
        let mut removed = 0;
        let mut last: Option<Pending<bool>> = None;
        loop {
            let mut keys = Vec::new();
            let mut range = self.range(bounds.clone());
            while keys.len() < REMOVED_AT_ONCE
                && let Some((key, _)) = range.next_entry()?
            {
                keys.push(key.to_vec());
            }
            drop(range);
            let Some(end) = keys.last().cloned() else {
                break;
            };
            for key in keys {
                let pending = self.pending().remove(key)?;
                removed += u64::from(pending.peek() == Some(&true));
                last = Some(pending);
            }
            bounds.lower = Bound::Excluded(end);
        }
        if let Some(last) = last
            && !self.kind().engine.is_buffered()
        {
            last.wait()?;
        }
        Ok(removed)
    }

    /// Removes all keys, as [`Tree::remove_range`] with the range `..` does. Dropping the tree and
    /// making it again is faster.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.tree("stock")?;
    /// stock.put("apple", "12")?;
    /// stock.put("pear", "3")?;
    /// assert_eq!(stock.clear()?, 2); // the number of keys that it removed
    /// assert!(stock.is_empty()?);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn clear(&self) -> Result<u64> {
        self.remove_range(..)
    }
}
