//! Searches among entries.

use std::cmp::Ordering;

use medium::Medium;
use pool::Guard;

use crate::Result;
use crate::index::{Codec, EntryWords};

/// How many of `count` entries in ascending order lie below a key, and whether the next one is the
/// key's. O(log n).
#[inline]
pub fn rank<M: Medium, C: Codec>(
    guard: &Guard<'_, M>,
    key: C::Key<'_>,
    count: usize,
    entry: impl Fn(usize) -> EntryWords,
) -> Result<(usize, bool)> {
    let mut low = 0;
    let mut high = count;
    while low < high {
        let middle = usize::midpoint(low, high);
        let words = entry(middle);
        let order = match C::word(key).cmp(&words[0]) {
            Ordering::Equal if C::TIES => C::compare_tie(guard, key, words)?,
            order => order,
        };
        match order {
            Ordering::Equal => return Ok((middle, true)),
            Ordering::Greater => low = middle + 1,
            Ordering::Less => high = middle,
        }
    }
    Ok((low, false))
}
