//! Ranges of keys, and iterators over them.

use std::ops::{self, Bound};

use engines::Result;
use engines::index::{Bounds, Direction, Scan, Value};
use medium::Lsn;

use crate::Tree;
use crate::view_reads::ViewReads;

/// A range of keys, as [`Tree::range`] takes it: any range of the standard library over byte
/// strings (`"a".."f"`, `key..`, `..`, `..=vec![1, 2]`), a pair of [`Bound`]s, or a [`Bounds`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no range of keys: the trait `everleaf::KeyRange` is missing",
    note = "take a range such as `\"a\"..\"f\"`, `key..` or `..`, whose ends are `AsRef<[u8]>`"
)]
pub trait KeyRange {
    /// The ends of the range.
    fn into_bounds(self) -> Bounds;
}

impl KeyRange for Bounds {
    fn into_bounds(self) -> Bounds {
        self
    }
}

impl KeyRange for ops::RangeFull {
    fn into_bounds(self) -> Bounds {
        Bounds::all()
    }
}

macro_rules! key_range {
    ($($range:ty),*) => {$(
        impl<K: AsRef<[u8]>> KeyRange for $range {
            fn into_bounds(self) -> Bounds {
                Bounds::of(&self)
            }
        }
    )*};
}

key_range!(
    ops::Range<K>,
    ops::RangeInclusive<K>,
    ops::RangeFrom<K>,
    ops::RangeTo<K>,
    ops::RangeToInclusive<K>,
    (Bound<K>, Bound<K>)
);

/// One end from which a range is read.
#[derive(Default)]
struct RangeEnd<'t> {
    /// The key that it begins at, if not at the bounds.
    from: Option<Vec<u8>>,
    scan: Option<Box<dyn Scan + 't>>,
    /// The key of the entry that was returned last, if `has_returned`: the other end stops there.
    key: Vec<u8>,
    has_returned: bool,
    /// The greatest LSN that it has waited for, or that its view has noted to wait for later.
    awaited: Lsn,
}

impl RangeEnd<'_> {
    /// The entry that it is at.
    fn entry(&self) -> (&[u8], &[u8]) {
        self.scan
            .as_ref()
            .map(|scan| scan.entry())
            .unwrap_or_default()
    }
}

/// The entries of a range of a tree, in order of their keys; from either end, so `rev()` works.
///
/// An item is a key and its value, or the error that ended the range. Each key comes at most once,
/// and every key that is there for the whole scan does come; keys that are added or removed
/// meanwhile may or may not. Between two calls a range holds no lock and keeps no space from being
/// reused, so it may live for long, and another thread may go on with it. It reads up to 256
/// entries ahead.
///
/// ```
/// # let store = everleaf::Store::in_memory()?;
/// let letters = store.tree("letters")?;
/// for letter in ["a", "b", "c", "d"] {
///     letters.put(letter, "")?;
/// }
/// let mut range = letters.iter();
/// assert_eq!(&*range.next().unwrap()?.0, b"a");
/// assert_eq!(&*range.next_back().unwrap()?.0, b"d");
/// assert_eq!(range.count(), 2); // those between the two ends
/// # Ok::<(), everleaf::Error>(())
/// ```
pub struct Range<'t> {
    tree: &'t Tree,
    /// The view in which the tree is read; `None` for the present state.
    view: Option<&'t dyn ViewReads>,
    bounds: Bounds,
    front: RangeEnd<'t>,
    back: RangeEnd<'t>,
    done: bool,
}

impl Tree {
    /// The entries within a range of keys, in order; `rev()` reads them from the end. O(log n),
    /// then O(1) an entry.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let users = store.tree("users")?;
    /// for name in ["ada", "bob", "cleo", "dan"] {
    ///     users.put(name, "")?;
    /// }
    /// assert_eq!(users.range("b".."d").count(), 2);
    /// assert_eq!(users.range(..="bob").count(), 2);
    /// let mut last_first = users.range("bob"..).rev();
    /// assert_eq!(&*last_first.next().unwrap()?.0, b"dan");
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn range(&self, range: impl KeyRange) -> Range<'_> {
        Range::new(self, range.into_bounds())
    }

    /// The entries whose keys begin with `prefix`, in order; see [`Tree::range`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let sizes = store.tree("sizes")?;
    /// for path in ["src/lib.rs", "src/main.rs", "tests/a.rs"] {
    ///     sizes.put(path, "100")?;
    /// }
    /// assert_eq!(sizes.prefix("src/").count(), 2);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range<'_> {
        Range::new(self, Bounds::prefix(prefix.as_ref()))
    }

    /// All entries, in order; see [`Tree::range`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let stock = store.tree("stock")?;
    /// stock.put("pear", "3")?;
    /// stock.put("apple", "12")?;
    /// let mut fruits = Vec::new();
    /// for entry in &stock {
    ///     fruits.push(entry?.0);
    /// }
    /// assert_eq!(&*fruits[0], b"apple");
    /// assert_eq!(&*fruits[1], b"pear");
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn iter(&self) -> Range<'_> {
        self.range(..)
    }
}

impl<'t> IntoIterator for &'t Tree {
    type Item = Result<(Value, Value)>;
    type IntoIter = Range<'t>;

    fn into_iter(self) -> Range<'t> {
        self.iter()
    }
}

impl<'t> Range<'t> {
    pub(crate) fn new(tree: &'t Tree, bounds: Bounds) -> Self {
        Self::of(tree, None, bounds)
    }

    /// A range of a tree as it is in a view.
    pub(crate) fn in_view(tree: &'t Tree, view: &'t dyn ViewReads, bounds: Bounds) -> Self {
        Self::of(tree, Some(view), bounds)
    }

    fn of(tree: &'t Tree, view: Option<&'t dyn ViewReads>, bounds: Bounds) -> Self {
        Self {
            tree,
            view,
            bounds,
            front: RangeEnd::default(),
            back: RangeEnd::default(),
            done: false,
        }
    }

    /// The next entry, borrowed until the next call: a range without allocation.
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let texts = store.tree("texts")?;
    /// texts.put("greeting", "good morning")?;
    /// texts.put("farewell", "good night")?;
    /// let mut bytes = 0;
    /// let mut range = texts.iter();
    /// while let Some((_, text)) = range.next_entry()? {
    ///     bytes += text.len();
    /// }
    /// assert_eq!(bytes, 22);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) where the tree is damaged; the range then
    /// ends.
    #[allow(clippy::type_complexity, reason = "a pair, twice wrapped")]
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let found = self.advance(Direction::Forward)?;
        Ok(found.then(|| self.front.entry()))
    }

    /// The last entry not yet returned, borrowed until the next call; see [`Range::next_entry`].
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let log = store.tree("log")?;
    /// for (time, line) in [("08:00", "up"), ("08:10", "down"), ("08:20", "up")] {
    ///     log.put(time, line)?;
    /// }
    /// let mut went_down = None;
    /// let mut range = log.range(..);
    /// while let Some((time, line)) = range.next_entry_back()? {
    ///     if line == b"down" {
    ///         went_down = Some(time.to_vec());
    ///         break;
    ///     }
    /// }
    /// assert_eq!(went_down.as_deref(), Some(b"08:10".as_slice()));
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    #[allow(clippy::type_complexity, reason = "a pair, twice wrapped")]
    pub fn next_entry_back(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let found = self.advance(Direction::Reverse)?;
        Ok(found.then(|| self.back.entry()))
    }

    /// Goes to a key, forward or back: [`Range::next_entry`] then returns the first entry at or
    /// above it that the bounds of the range include and the other end has not passed. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let years = store.tree("years")?;
    /// (1960..1970).try_for_each(|year| years.put(format!("{year}"), ""))?;
    /// let mut range = years.range("1962"..);
    /// assert_eq!(&*range.next().unwrap()?.0, b"1962");
    /// range.seek("1968");
    /// assert_eq!(&*range.next().unwrap()?.0, b"1968");
    /// range.seek("1900"); // not below the bounds
    /// assert_eq!(&*range.next().unwrap()?.0, b"1962");
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        let key = key.as_ref();
        self.done = false;
        self.front = RangeEnd {
            from: self.bounds.is_above_lower(key).then(|| key.to_vec()),
            ..RangeEnd::default()
        };
    }

    /// Goes to a key from the other end: [`Range::next_entry_back`] then returns the last entry at
    /// or below it that the bounds of the range include and the other end has not passed. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let years = store.tree("years")?;
    /// (1960..1970).try_for_each(|year| years.put(format!("{year}"), ""))?;
    /// let mut range = years.iter();
    /// range.seek_back("1964");
    /// assert_eq!(&*range.next_back().unwrap()?.0, b"1964");
    /// assert_eq!(&*range.next_back().unwrap()?.0, b"1963");
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    pub fn seek_back(&mut self, key: impl AsRef<[u8]>) {
        let key = key.as_ref();
        self.done = false;
        self.back = RangeEnd {
            from: self.bounds.is_below_upper(key).then(|| key.to_vec()),
            ..RangeEnd::default()
        };
    }

    /// Continues a range that ended with an error: the next entry is the one behind the damage, or
    /// the same error if the range cannot get past it. For salvaging a damaged tree.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("a.pool");
    /// # let store = everleaf::Store::open(&path)?;
    /// # store.tree("stock")?.put("apple", "twelve apples")?;
    /// # store.tree("stock")?.put("pear", "three pears")?;
    /// # store.close()?;
    /// # let mut bytes = std::fs::read(&path)?;
    /// # let at = bytes.windows(13).position(|bytes| bytes == b"twelve apples").unwrap();
    /// # bytes[at] ^= 1;
    /// # std::fs::write(&path, bytes)?;
    /// # let store = everleaf::Store::open(&path)?;
    /// // The tree has the keys "apple" and "pear". A bit of the value of "apple" has changed on disk.
    /// let stock = store.tree("stock")?;
    /// let mut range = stock.iter();
    /// assert!(range.next().unwrap().unwrap_err().is_corrupt());
    /// assert!(range.next().is_none()); // the error has ended the range
    /// range.skip_damage();
    /// assert_eq!(&*range.next().unwrap()?.0, b"pear");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn skip_damage(&mut self) {
        self.done = false;
    }

    /// Replaces the entry of one end by the next; `false` if the two ends have passed each other.
    fn advance(&mut self, direction: Direction) -> Result<bool> {
        if self.done {
            return Ok(false);
        }
        let more = self.step(direction);
        self.done = !matches!(more, Ok(true));
        self.tree.at(more)
    }

    fn step(&mut self, direction: Direction) -> Result<bool> {
        // A cursor does not check it, and entries that were read ahead need no cursor.
        self.tree.store().expect_own_process()?;
        let (end, other) = match direction {
            Direction::Forward => (&mut self.front, &self.back),
            Direction::Reverse => (&mut self.back, &self.front),
        };
        let scan = match &mut end.scan {
            Some(scan) => scan,
            None => {
                let mut bounds = self.bounds.clone();
                if let Some(from) = end.from.take().map(Bound::Included) {
                    let own = if direction == Direction::Forward {
                        &mut bounds.lower
                    } else {
                        &mut bounds.upper
                    };
                    *own = from;
                }
                let scan = match self.view {
                    Some(view) => view.cursor(self.tree, bounds, direction)?,
                    None => self.tree.index().cursor(bounds, direction)?,
                };
                end.scan.insert(scan)
            }
        };
        let is_there = scan.advance()?;
        // The end of a range is an answer as well.
        let lsn = scan.lsn();
        if lsn > end.awaited {
            match self.view {
                Some(view) => view.wait_for(self.tree, lsn)?,
                None => self.tree.wait_for(lsn)?,
            }
            end.awaited = lsn;
        }
        if !is_there {
            return Ok(false);
        }
        let (key, _) = scan.entry();
        let has_met = || match direction {
            Direction::Forward => *key >= *other.key,
            Direction::Reverse => *key <= *other.key,
        };
        let is_there = !(other.has_returned && has_met());
        end.has_returned = true;
        end.key.clear();
        end.key.extend_from_slice(key);
        Ok(is_there)
    }
}

impl Iterator for Range<'_> {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry()
            .map(|entry| entry.map(|(key, value)| owned(key, value)))
            .transpose()
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_entry_back()
            .map(|entry| entry.map(|(key, value)| owned(key, value)))
            .transpose()
    }
}

impl std::iter::FusedIterator for Range<'_> {}

fn owned(key: &[u8], value: &[u8]) -> (Value, Value) {
    (Value::from_slice(key), Value::from_slice(value))
}

impl std::fmt::Debug for Range<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Range")
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}
