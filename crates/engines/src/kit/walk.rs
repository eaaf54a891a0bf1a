//! Walks over the leaves of a chain, sound or not.

use std::collections::HashSet;

use medium::Medium;
use pool::Guard;

use super::salvage::{Salvage, read_whole, what_of};
use crate::index::{Codec, EntryWords, Violation};
use crate::{Error, Result};

/// Calls `visit` with the offset of each leaf of a chain, from `first` on; `visit` returns the next one, 0 after the last. Comes
/// to an end on any pool. O(leaves), with some bytes of memory for each.
///
/// # Errors
/// [`Error::Corrupt`] if the chain leads to a leaf twice; otherwise what `visit` returns.
pub fn chain(first: u64, mut visit: impl FnMut(u64) -> Result<u64>) -> Result<()> {
    let (mut offset, mut visited) = (first, HashSet::new());
    while offset != 0 {
        if !visited.insert(offset) {
            return Err(Error::corrupt(offset, "the chain of leaves runs in a circle"));
        }
        offset = visit(offset)?;
    }
    Ok(())
}

/// A leaf as a salvage reads it: the next leaf, and the entries in order, or what is wrong with them.
pub type LeafRead = (u64, Result<Vec<EntryWords>>);

/// Calls `visit` with the entries of all leaves of a chain that `read` can read, in ascending order of keys, until it returns
/// `false`. Returns what was left out: leaves whose entries are damaged, entries whose records are, and all leaves behind one
/// that does not name the next.
pub fn salvage_chain<M: Medium, C: Codec>(
    guard: &Guard<'_, M>,
    first: u64,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    read: impl Fn(u64) -> Result<LeafRead>,
) -> Vec<Violation> {
    let (mut salvage, mut at) = (Salvage::new(visit), first);
    let walked = chain(first, |offset| {
        let (next, entries) = read(offset)?;
        let goes_on = match entries {
            Ok(entries) => {
                entries.into_iter().all(|words| salvage.entry(offset, read_whole::<M, C>(guard, words)))
            }
            Err(error) => {
                salvage.leave_out(offset, format!("the entries of a leaf: {}", what_of(&error)));
                true
            }
        };
        at = if goes_on { next } else { 0 };
        Ok(at)
    });
    if let Err(error) = walked {
        salvage.leave_out(at, format!("this leaf and all behind it: {}", what_of(&error)));
    }
    salvage.finish()
}

/// Verifies an entry and its record, if it has one, and that its key lies above `last`, which becomes its key. Returns what is
/// wrong; `None` if nothing is.
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
