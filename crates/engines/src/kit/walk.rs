//! Walks over the leaves of a chain, sound or not.

use std::collections::HashSet;

use medium::Medium;
use pool::Guard;

use crate::index::{Codec, EntryWords};
use crate::{Error, Result};

/// Calls `visit` with the offset of each leaf of a chain, from `first` on; `visit` returns the next
/// one, 0 after the last. It ends on any pool, damaged or not. O(leaves), with some bytes of memory
/// for each.
///
/// # Errors
/// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the chain leads to a leaf twice; otherwise
/// the errors of `visit`.
pub fn chain(first: u64, visit: impl FnMut(u64) -> Result<u64>) -> Result<()> {
    follow_chain(first, visit).map_err(|broken| broken.error)
}

/// Why a chain of leaves could not be followed to its end.
pub(super) struct BrokenChain {
    /// The last leaf that was visited.
    pub(super) leaf: u64,
    pub(super) error: Error,
}

/// Does the same as [`chain`], and returns the leaf at which it stopped.
pub(super) fn follow_chain(
    first: u64,
    mut visit: impl FnMut(u64) -> Result<u64>,
) -> std::result::Result<(), BrokenChain> {
    let mut leaf = first;
    let mut next = first;
    let mut visited = HashSet::new();
    while next != 0 {
        if !visited.insert(next) {
            let error = Error::corrupt(next, "the chain of leaves runs in a circle");
            return Err(BrokenChain { leaf, error });
        }
        leaf = next;
        next = visit(leaf).map_err(|error| BrokenChain { leaf, error })?;
    }
    Ok(())
}

/// Verifies an entry and its record, if it has one, and that its key lies above `last`, which
/// becomes its key. Returns a description of the damage; `None` if there is none.
pub fn verify_entry<M: Medium, C: Codec>(
    guard: &Guard<'_, M>,
    words: EntryWords,
    last: &mut Option<Vec<u8>>,
) -> Result<Option<&'static str>> {
    medium::progress::advance(1);
    let mut key = Vec::new();
    C::copy_key(guard, words, &mut key)?;
    let coded = C::key(&key)?;
    let what = if last.as_ref().is_some_and(|last| *last >= key) {
        Some("entries out of order")
    } else if C::word(coded) != words[0] || C::hash_of(words) != C::hash(coded) {
        Some("an entry that is not its key's")
    } else if !C::is_sound(guard, words)? {
        Some("a record that fails its check")
    } else {
        None
    };
    *last = Some(key);
    Ok(what)
}
