//! The ends of a range.

use std::cmp::Ordering;
use std::ops::Bound;

use crate::index::record::prefix_word;

/// Which way a range is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Reverse,
}

impl Direction {
    /// The order in which two keys come.
    #[inline]
    pub fn compare(self, one: &[u8], other: &[u8]) -> Ordering {
        match self {
            Self::Forward => one.cmp(other),
            Self::Reverse => other.cmp(one),
        }
    }
}

/// A range of byte-string keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The lower end.
    pub lower: Bound<Vec<u8>>,
    /// The upper end.
    pub upper: Bound<Vec<u8>>,
}

impl Bounds {
    /// All keys.
    pub fn all() -> Self {
        Self {
            lower: Bound::Unbounded,
            upper: Bound::Unbounded,
        }
    }

    /// The keys that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        let upper = prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        Self {
            lower: Bound::Included(prefix.to_vec()),
            upper,
        }
    }

    /// The keys in a standard range of byte strings.
    pub fn of<K: AsRef<[u8]>>(range: &impl std::ops::RangeBounds<K>) -> Self {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        Self {
            lower: owned(range.start_bound()),
            upper: owned(range.end_bound()),
        }
    }

    /// Whether no key can lie within the bounds. `BTreeMap::range` panics at some of these.
    pub fn is_empty(&self) -> bool {
        let (Bound::Included(lower) | Bound::Excluded(lower)) = &self.lower else {
            return false;
        };
        let (Bound::Included(upper) | Bound::Excluded(upper)) = &self.upper else {
            return false;
        };
        let are_included =
            matches!(self.lower, Bound::Included(_)) && matches!(self.upper, Bound::Included(_));
        lower > upper || lower == upper && !are_included
    }

    /// The ends as slices, for a map of byte strings.
    pub fn as_slices(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let lower = self.lower.as_ref().map(Vec::as_slice);
        let upper = self.upper.as_ref().map(Vec::as_slice);
        (lower, upper)
    }

    /// Whether `key` lies within the bounds.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.is_above_lower(key) && self.is_below_upper(key)
    }

    /// Whether `key` is not above the upper end.
    pub fn is_below_upper(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Included(upper) => key <= upper.as_slice(),
            Bound::Excluded(upper) => key < upper.as_slice(),
            Bound::Unbounded => true,
        }
    }

    /// Whether `key` is not below the lower end.
    pub fn is_above_lower(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Included(lower) => key >= lower.as_slice(),
            Bound::Excluded(lower) => key > lower.as_slice(),
            Bound::Unbounded => true,
        }
    }

    /// The position of all keys with this first word: `Less` if all of them are below the lower
    /// end, `Greater` if all are above the upper end, `Equal` if all are within; `None` if an end
    /// has the same first word.
    pub(crate) fn side_of(&self, word: u64) -> Option<Ordering> {
        let with_end = |bound: &Bound<Vec<u8>>, inwards| match bound {
            Bound::Included(key) | Bound::Excluded(key) => word.cmp(&prefix_word(key)),
            Bound::Unbounded => inwards,
        };
        match (
            with_end(&self.lower, Ordering::Greater),
            with_end(&self.upper, Ordering::Less),
        ) {
            (Ordering::Less, _) => Some(Ordering::Less),
            (_, Ordering::Greater) => Some(Ordering::Greater),
            (Ordering::Greater, Ordering::Less) => Some(Ordering::Equal),
            (Ordering::Equal, _) | (_, Ordering::Equal) => None,
        }
    }
}

/// The first key above all keys that begin with `prefix`; `None` if there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests;
