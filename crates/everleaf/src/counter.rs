//! Counters: values that are numbers.

use engines::{ErrorKind, Result};

use crate::sealed::Sealed;
use crate::typed::TypedTree;
use crate::word_tree::WordTree;
use crate::{EncodedLike, Key, Tree};

/// An integer that counts: see [`TypedTree::increment`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not count: the trait `everleaf::Counter` is missing",
    label = "no counter",
    note = "values that count are integers of up to 64 bits; `fetch_update` computes any other value from the old one"
)]
pub trait Counter: Sealed + Copy + Default {
    /// The sum; `None` if the type has no such number.
    #[doc(hidden)]
    fn plus(self, by: i64) -> Option<Self>;
}

macro_rules! counters {
    ($($type:ty),*) => {$(
        impl Sealed for $type {}

        impl Counter for $type {
            fn plus(self, by: i64) -> Option<Self> {
                let number = i128::try_from(self).ok()?;
                Self::try_from(number.checked_add(by.into())?).ok()
            }
        }
    )*};
}
counters!(u8, u16, u32, u64, i8, i16, i32, i64);

/// A counter of `tree` after an increment; an absent one counts as 0.
///
/// # Errors
/// [`ErrorKind::CounterOverflow`].
pub(crate) fn counted<C: Counter>(tree: &Tree, old: Option<C>, by: i64) -> Result<C> {
    match old.unwrap_or_default().plus(by) {
        Some(sum) => Ok(sum),
        None => Err(ErrorKind::CounterOverflow {
            name: tree.name().to_owned(),
        }
        .into()),
    }
}

impl<K: Key, V: Counter + crate::EncodedValue> TypedTree<K, V> {
    /// Adds a number to that of a key, where an absent key counts as 0, and returns the sum. One
    /// atomic step: threads that count one key get different sums. O(log n).
    ///
    /// ```
    /// # let store = everleaf::Store::in_memory()?;
    /// let hits = store.typed::<String, u64>("hits")?;
    /// for _ in 0..3 {
    ///     hits.increment("index.html", 1)?;
    /// }
    /// assert_eq!(hits.increment("index.html", -1)?, 2);
    /// # Ok::<(), everleaf::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::CounterOverflow`], and nothing changes; those of [`Tree`].
    pub fn increment<Q: Key + ?Sized>(&self, key: &Q, by: i64) -> Result<V>
    where
        K: EncodedLike<Q>,
    {
        let tree = self.beneath();
        let sum = |old| tree.at(counted(tree, old, by));
        self.try_fetch_update(key, sum)
    }
}

impl WordTree {
    /// Adds a number to that of a key; see [`TypedTree::increment`].
    ///
    /// # Errors
    /// Those of [`TypedTree::increment`].
    pub fn increment(&self, key: u64, by: i64) -> Result<u64> {
        let tree = self.as_tree();
        let sum = |old| tree.at(counted(tree, old, by));
        self.try_fetch_update(key, sum)
    }
}
